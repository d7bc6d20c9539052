//! Which environment, and which words, does a container get?
//!
//! Kubernetes' rules to the letter: `$(NAME)` is replaced where NAME is known, `$$` is one `$`, an unknown name
//! stays as written. A value may use what was defined before it, never what comes after. What comes out of a
//! Secret, a ConfigMap or a field is data: it is never expanded itself (I10).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, ResourceFieldSelector,
};
use kube::ResourceExt;

use crate::sources::{Data, Sources};
use pawl_api::meta::quantity::{UNIT, ceil_div, nano};

/// The address of every pod: processes share the machine's network.
pub const POD_IP: &str = "127.0.0.1";

/// What the machine has, for `resourceFieldRef` where a container sets no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub cpus: u32,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
}

/// Where the values of a container's environment come from.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub pod: &'a Pod,
    pub sources: &'a Sources,
    pub node: &'a str,
    pub capacity: Capacity,
    /// What Kubernetes itself defines, before the pod does; the pod's values may use it.
    pub defaults: &'a [(String, String)],
    /// What a container runtime sets beneath all that (and the image with it); no value can use it.
    pub runtime: &'a [(String, String)],
}

/// Why a container cannot be configured; its text goes into the status, so no value is in it (I6).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("secret \"{0}\" not found")]
    NoSecret(String),
    #[error("configmap \"{0}\" not found")]
    NoConfigMap(String),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error(
        "value of {key} in {kind} {namespace}/{name} is no text, so it cannot be put into the environment"
    )]
    NotText { kind: &'static str, namespace: String, name: String, key: String },
    #[error("env {name}: unsupported fieldPath: {path}")]
    Field { name: String, path: String },
    #[error("env {name}: unsupported resource {resource}")]
    Resource { name: String, resource: String },
    #[error("env {0}: a name or value with a NUL byte or `=` cannot be given to a process")]
    Unfit(String),
    #[error("env {0}: valueFrom names no source that is served here")]
    Source(String),
    #[error(
        "volumeMounts: container \"{container}\" mounts volume \"{volume}\", which the pod does not define"
    )]
    NoVolume { container: String, volume: String },
    #[error("volumeMounts: subPath \"{path}\" of container \"{container}\" leads out of its volume")]
    SubPath { container: String, path: String },
    #[error(
        "volumeMounts: mountPath \"{path}\" of container \"{container}\" must be absolute and without `..`"
    )]
    MountPath { container: String, path: String },
    #[error("workingDir \"{path}\" of container \"{container}\" must be absolute and without `..`")]
    WorkingDir { container: String, path: String },
    #[error("container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})")]
    RunAsRoot { pod: String, container: String },
    #[error("container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})")]
    RunAsUserIsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root \
         (pod: \"{pod}\", container: {container})"
    )]
    RunAsUnknown { user: String, pod: String, container: String },
    #[error("unable to find user {user}: no matching entries in {file} file")]
    User { user: String, file: &'static str },
    #[error("container \"{0}\" asks to be privileged, which is not allowed here")]
    Privileged(String),
    #[error("argument {index} of container \"{container}\" holds a NUL byte")]
    Argument { container: String, index: usize },
}

/// A resolved environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// What Kubernetes and the pod define: all that `$(NAME)` can mean.
    pub values: BTreeMap<String, String>,
    /// Values that came out of Secrets, to be masked wherever output is captured (I6).
    pub secrets: Vec<String>,
}

/// A container's environment, from defaults, `envFrom` and `env`, in that order.
pub fn resolve(context: &Context<'_>, container: &Container) -> Result<Environment, ConfigError> {
    let mut out = Environment::default();
    out.values.extend(context.defaults.iter().cloned());
    from_objects(context, container, &mut out)?;
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (_, Some(source)) => value_from(context, container, var, source, &mut out.secrets)?,
            (Some(text), None) => Some(expand(text, &out.values)),
            (None, None) => Some(String::new()),
        };
        let Some(value) = value else { continue };
        if var.name.is_empty() || var.name.contains(['=', '\0']) || value.contains('\0') {
            return Err(ConfigError::Unfit(var.name.clone()));
        }
        out.values.insert(var.name.clone(), value);
    }
    Ok(out)
}

/// `$(NAME)` expansion as Kubernetes does it.
pub fn expand(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, dollar) = rest.split_at(at);
        out.push_str(before);
        let after = dollar.strip_prefix('$').unwrap_or_default();
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match values.get(name) {
                Some(value) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// A field of the pod, as `fieldRef` names it. `None`: no such field here.
pub(crate) fn field(context: &Context<'_>, path: &str) -> Option<String> {
    let meta = &context.pod.metadata;
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return None,
        };
        return Some(map.and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let spec = context.pod.spec.as_ref();
    Some(match path {
        "metadata.name" => context.pod.name_any(),
        "metadata.namespace" => context.pod.namespace().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "metadata.labels" => listed(meta.labels.as_ref()),
        "metadata.annotations" => listed(meta.annotations.as_ref()),
        "spec.nodeName" => context.node.to_owned(),
        "spec.serviceAccountName" => {
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| "default".to_owned())
        }
        "status.podIP" | "status.podIPs" | "status.hostIP" | "status.hostIPs" => POD_IP.to_owned(),
        _ => return None,
    })
}

/// A resource of a container, as `resourceFieldRef` names it. `None`: no such resource, or a bad divisor.
pub(crate) fn resource(
    context: &Context<'_>,
    own: Option<&Container>,
    selector: &ResourceFieldSelector,
) -> Option<String> {
    let spec = context.pod.spec.as_ref()?;
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match named {
        Some(name) => {
            let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            all.into_iter().find(|container| container.name == name)?
        }
        None => own?,
    };
    let (list, name) = selector.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|r| r.limits.as_ref()).and_then(|limits| limits.get(name));
    let request = resources.and_then(|r| r.requests.as_ref()).and_then(|requests| requests.get(name));
    let whole = match name {
        "cpu" => i128::from(context.capacity.cpus) * UNIT,
        "memory" => i128::from(context.capacity.memory_bytes) * UNIT,
        "ephemeral-storage" => i128::from(context.capacity.disk_bytes) * UNIT,
        _ => return None,
    };
    let amount = match list {
        "limits" => limit.map_or(Some(whole), |q| nano(&q.0))?,
        "requests" => request.or(limit).map_or(Some(0), |q| nano(&q.0))?,
        _ => return None,
    };
    let divisor = selector.divisor.as_ref().and_then(|q| nano(&q.0)).filter(|by| *by != 0).unwrap_or(UNIT);
    Some(ceil_div(amount, divisor).to_string())
}

/// `envFrom`: every key of a ConfigMap or Secret, prefixed. Keys that are no variable's name are left out, as
/// Kubernetes does.
fn from_objects(
    context: &Context<'_>,
    container: &Container,
    out: &mut Environment,
) -> Result<(), ConfigError> {
    for source in container.env_from.iter().flatten() {
        let (data, secret) = match (&source.config_map_ref, &source.secret_ref) {
            (Some(from), _) => match context.sources.config_maps.get(&from.name) {
                Some(data) => (data, false),
                None if from.optional == Some(true) => continue,
                None => return Err(ConfigError::NoConfigMap(from.name.clone())),
            },
            (None, Some(from)) => match context.sources.secrets.get(&from.name) {
                Some(data) => (data, true),
                None if from.optional == Some(true) => continue,
                None => return Err(ConfigError::NoSecret(from.name.clone())),
            },
            (None, None) => continue,
        };
        for (key, value) in data {
            let name = format!("{}{key}", source.prefix.as_deref().unwrap_or_default());
            let Ok(value) = String::from_utf8(value.clone()) else { continue };
            if name.contains(['=', '\0']) || value.contains('\0') {
                continue;
            }
            if secret {
                out.secrets.push(value.clone());
            }
            out.values.insert(name, value);
        }
    }
    Ok(())
}

/// One `valueFrom`. `None`: optional and absent.
fn value_from(
    context: &Context<'_>,
    container: &Container,
    var: &EnvVar,
    source: &EnvVarSource,
    secrets: &mut Vec<String>,
) -> Result<Option<String>, ConfigError> {
    if let Some(from) = &source.secret_key_ref {
        let missing = ConfigError::NoSecret(from.name.clone());
        let data = context.sources.secrets.get(&from.name);
        let value = keyed(context, "Secret", data, &from.name, &from.key, from.optional, missing)?;
        secrets.extend(value.clone());
        return Ok(value);
    }
    if let Some(from) = &source.config_map_key_ref {
        let missing = ConfigError::NoConfigMap(from.name.clone());
        let data = context.sources.config_maps.get(&from.name);
        return keyed(context, "ConfigMap", data, &from.name, &from.key, from.optional, missing);
    }
    if let Some(ObjectFieldSelector { field_path, .. }) = &source.field_ref {
        // Maps as a whole are for files only: in a variable their lines could not be told apart.
        let whole_map = matches!(field_path.as_str(), "metadata.labels" | "metadata.annotations");
        let value = field(context, field_path).filter(|_| !whole_map);
        let bad = || ConfigError::Field { name: var.name.clone(), path: field_path.clone() };
        return value.map(Some).ok_or_else(bad);
    }
    if let Some(selector) = &source.resource_field_ref {
        let bad = || ConfigError::Resource { name: var.name.clone(), resource: selector.resource.clone() };
        return resource(context, Some(container), selector).map(Some).ok_or_else(bad);
    }
    Err(ConfigError::Source(var.name.clone()))
}

/// One key of a Secret or ConfigMap, as text.
fn keyed(
    context: &Context<'_>,
    kind: &'static str,
    data: Option<&Data>,
    name: &str,
    key: &str,
    optional: Option<bool>,
    missing: ConfigError,
) -> Result<Option<String>, ConfigError> {
    let namespace = || context.pod.namespace().unwrap_or_default();
    let (name, key) = (name.to_owned(), key.to_owned());
    match (data, data.and_then(|data| data.get(&key))) {
        (_, Some(bytes)) => String::from_utf8(bytes.clone()).map(Some).map_err(|_| ConfigError::NotText {
            kind,
            namespace: namespace(),
            name,
            key,
        }),
        _ if optional == Some(true) => Ok(None),
        (None, None) => Err(missing),
        (Some(_), None) => Err(ConfigError::NoKey { kind, namespace: namespace(), name, key }),
    }
}

/// Labels or annotations as a downward file shows them: `key="value"` lines, escaped, sorted.
fn listed(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "a literal at the call reads best without a reference")]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn expansion_is_kubernetes_own() {
        let known = values(&[("A", "1"), ("B", "$(A)"), ("E", "")]);
        let table = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(B)", "$(A)"),
            ("$(E)!", "!"),
            ("$(NOPE)", "$(NOPE)"),
            ("$(A", "$(A"),
            ("$A ${A}", "$A ${A}"),
            ("$()", "$()"),
            ("end$", "end$"),
            ("$(A$(A)", "$(A$(A)"),
            ("ü$(A)ü", "ü1ü"),
        ];
        for (text, expect) in table {
            assert_eq!(expand(text, &known), expect, "{text}");
        }
    }

    fn sources() -> Sources {
        let data = |key: &str, value: &[u8]| Data::from([(key.to_owned(), value.to_vec())]);
        let mut sources = Sources::default();
        sources.secrets.insert("s".to_owned(), data("k", b"not-a-real-secret"));
        sources.secrets.insert("binary".to_owned(), data("k", &[0xff]));
        sources.config_maps.insert("c".to_owned(), data("k", b"$(A)"));
        sources
    }

    fn check(container: serde_json::Value) -> Result<BTreeMap<String, String>, ConfigError> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "l"}, "annotations": {"x": "y"}},
            "spec": {"containers": [container]}
        }))
        .unwrap();
        let capacity = Capacity { cpus: 4, memory_bytes: 1 << 30, disk_bytes: 1 << 40 };
        let sources = sources();
        let context =
            Context { pod: &pod, sources: &sources, node: "node", capacity, defaults: &[], runtime: &[] };
        resolve(&context, &pod.spec.as_ref().unwrap().containers[0]).map(|env| env.values)
    }

    #[test]
    fn a_value_sees_what_stands_before_it_and_data_is_never_expanded() {
        let env = check(json!({"name": "m", "env": [
            {"name": "LATE", "value": "$(A)"},
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)2"},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "D", "value": "$(C)"},
        ]}))
        .unwrap();
        assert_eq!(env, values(&[("LATE", "$(A)"), ("A", "1"), ("B", "12"), ("C", "$(A)"), ("D", "$(A)")]));
    }

    #[test]
    fn fields_and_resources_are_the_pods_own() {
        let field = |path: &str| json!({"name": path, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let resource = |name: &str, resource: &str, divisor: &str| {
            json!({"name": name, "valueFrom":
            {"resourceFieldRef": {"resource": resource, "divisor": divisor}}})
        };
        let env = check(json!({"name": "m", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}, "env": [
            field("metadata.name"), field("metadata.namespace"), field("metadata.uid"),
            field("metadata.labels['a/b']"), field("metadata.annotations['x']"), field("metadata.labels['no']"),
            field("spec.nodeName"), field("spec.serviceAccountName"), field("status.podIP"),
            resource("CPU", "limits.cpu", "0"), resource("MILLI", "limits.cpu", "1m"),
            resource("MEM", "limits.memory", "1Mi"), resource("REQ", "requests.memory", "1"),
            resource("DISK", "limits.ephemeral-storage", "1Gi"),
        ]}))
        .unwrap();
        let expect = values(&[
            ("metadata.name", "p"),
            ("metadata.namespace", "n"),
            ("metadata.uid", "u"),
            ("metadata.labels['a/b']", "l"),
            ("metadata.annotations['x']", "y"),
            ("metadata.labels['no']", ""),
            ("spec.nodeName", "node"),
            ("spec.serviceAccountName", "default"),
            ("status.podIP", POD_IP),
            ("CPU", "2"),
            ("MILLI", "1500"),
            ("MEM", "64"),
            ("REQ", "67108864"),
            ("DISK", "1024"),
        ]);
        assert_eq!(env, expect);
    }

    #[test]
    fn what_is_missing_is_named_as_a_kubelet_names_it_and_optional_is_left_out() {
        let secret = |name: &str, key: &str, optional: bool| {
            let from = json!({"secretKeyRef": {"name": name, "key": key, "optional": optional}});
            check(json!({"name": "m", "env": [{"name": "V", "valueFrom": from}]})).map_err(|e| e.to_string())
        };
        assert_eq!(secret("s", "k", false).unwrap()["V"], "not-a-real-secret");
        assert_eq!(secret("no", "k", false).unwrap_err(), "secret \"no\" not found");
        assert_eq!(secret("s", "no", false).unwrap_err(), "couldn't find key no in Secret n/s");
        assert!(secret("binary", "k", false).unwrap_err().contains("no text"));
        assert_eq!(secret("s", "no", true).unwrap(), BTreeMap::new());
        assert_eq!(secret("no", "k", true).unwrap(), BTreeMap::new());

        let from = |from: serde_json::Value| {
            check(json!({"name": "m", "envFrom": [from]})).map_err(|e| e.to_string())
        };
        assert_eq!(
            from(json!({"prefix": "P_", "secretRef": {"name": "s"}})).unwrap()["P_k"],
            "not-a-real-secret"
        );
        assert_eq!(from(json!({"configMapRef": {"name": "c"}})).unwrap()["k"], "$(A)");
        assert_eq!(from(json!({"configMapRef": {"name": "no"}})).unwrap_err(), "configmap \"no\" not found");
        assert_eq!(from(json!({"secretRef": {"name": "no", "optional": true}})).unwrap(), BTreeMap::new());
    }
}
