//! What does Kubernetes fill into a pod, and what does it refuse?

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Hooks, NONE, fill, items, one_of, set};
use crate::validation::{FieldError, Quantity, dns1123_label};

/// Kubernetes' number.
const GRACE_SECS: i64 = 30;
/// The highest number that a port can have.
const MAX_PORT: i64 = 65_535;
/// `rw-r--r--`: how files from secrets and config maps are made.
const FILE_MODE: i64 = 0o644;

pub(crate) const POD: Hooks = Hooks {
    default: |object| {
        if let Some(spec) = object.get_mut("spec") {
            default_spec(spec);
            fill(spec, "enableServiceLinks", json!(true));
        }
    },
    create: |object, _| {
        // A pod begins without: they join one that is there.
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("ephemeralContainers");
        }
        set(object, "status", json!({"phase": "Pending", "qosClass": qos(&object["spec"])}));
    },
    validate: |object, old| {
        let mut errors = validate_spec(&object["spec"], "spec");
        if let Some(old) = old {
            errors.extend(validate_update(&object["spec"], &old["spec"]));
        }
        errors
    },
    ..NONE
};

/// Fills in a pod template of another kind.
pub(super) fn default_template(template: &mut Value) {
    if let Some(spec) = template.get_mut("spec") {
        default_spec(spec);
    }
}

/// Everything wrong with a pod's spec at `path`.
pub(super) fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (at, container) in items(spec, list).iter().enumerate() {
            let field = format!("{path}.{list}[{at}]");
            let name = container["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(FieldError::required(format!("{field}.name"), ""));
            } else {
                let field = format!("{field}.name");
                errors.extend(FieldError::each_invalid(&field, &container["name"], dns1123_label(name)));
                if !names.insert(name) {
                    errors.push(FieldError::duplicate(&field, &container["name"]));
                }
            }
            if container["image"].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("{field}.image"), ""));
            }
            errors.extend(validate_container(container, &field, spec));
        }
    }
    errors.extend(one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"]));
    errors.extend(one_of(
        spec,
        path,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    ));
    for (key, least) in [("terminationGracePeriodSeconds", 0), ("activeDeadlineSeconds", 1)] {
        if spec[key].as_i64().is_some_and(|seconds| seconds < least) {
            let why = format!("must be greater than or equal to {least}");
            errors.push(FieldError::invalid(format!("{path}.{key}"), &spec[key], why));
        }
    }
    let mut volumes: Vec<&Value> = Vec::new();
    for (at, volume) in items(spec, "volumes").iter().enumerate() {
        let field = format!("{path}.volumes[{at}].name");
        if volumes.contains(&&volume["name"]) {
            errors.push(FieldError::duplicate(&field, &volume["name"]));
        }
        let name = volume["name"].as_str().unwrap_or_default();
        errors.extend(FieldError::each_invalid(&field, &volume["name"], dns1123_label(name)));
        volumes.push(&volume["name"]);
    }
    errors
}

/// Everything wrong with a container but its name and image.
fn validate_container(container: &Value, path: &str, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(one_of(container, path, "imagePullPolicy", &["Always", "IfNotPresent", "Never"]));
    errors.extend(one_of(container, path, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"]));
    for (at, port) in items(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{at}]");
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            1..=MAX_PORT => {}
            _ => {
                let why = format!("must be between 1 and {MAX_PORT}, inclusive");
                errors.push(FieldError::invalid(
                    format!("{path}.containerPort"),
                    &port["containerPort"],
                    why,
                ));
            }
        }
        errors.extend(one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]));
    }
    for (at, variable) in items(container, "env").iter().enumerate() {
        let path = format!("{path}.env[{at}]");
        let name = variable["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if name.contains('=') || !name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(format!("{path}.name"), &variable["name"], why));
        }
        let has_value = variable["value"].as_str().is_some_and(|value| !value.is_empty());
        if has_value && !variable["valueFrom"].is_null() {
            let why = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(format!("{path}.valueFrom"), &"".into(), why));
        }
    }
    let mut places: Vec<&Value> = Vec::new();
    for (at, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{at}]");
        if mount["name"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        if !items(spec, "volumes").iter().any(|volume| volume["name"] == mount["name"]) {
            errors.push(FieldError::not_found(format!("{path}.name"), &mount["name"]));
        }
        if mount["mountPath"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        } else if places.contains(&&mount["mountPath"]) {
            errors.push(FieldError::invalid(
                format!("{path}.mountPath"),
                &mount["mountPath"],
                "must be unique",
            ));
        }
        places.push(&mount["mountPath"]);
    }
    errors.extend(validate_resources(&container["resources"], &format!("{path}.resources")));
    errors
}

/// Nobody asks for more than their own limit, or for less than nothing.
fn validate_resources(resources: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let amount = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    for kind in ["limits", "requests"] {
        for (name, value) in resources[kind].as_object().into_iter().flatten() {
            if amount(value).is_some_and(Quantity::is_negative) {
                let field = format!("{path}.{kind}[{name}]");
                errors.push(FieldError::invalid(field, value, "must be greater than or equal to 0"));
            }
        }
    }
    for (name, asked) in resources["requests"].as_object().into_iter().flatten() {
        let limit = resources["limits"].get(name).unwrap_or(&Value::Null);
        if let (Some(asks), Some(most)) = (amount(asked), amount(limit))
            && asks > most
        {
            let why = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            errors.push(FieldError::invalid(format!("{path}.requests"), asked, why));
        }
    }
    errors
}

/// A pod that is there can be changed in few ways.
fn validate_update(new: &Value, old: &Value) -> Option<FieldError> {
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                set(container, "image", Value::Null);
            }
        }
        for key in
            ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"]
        {
            set(&mut spec, key, Value::Null);
        }
        // Who may bring these, and how, is judged where it is known by which way they come.
        set(&mut spec, "ephemeralContainers", Value::Null);
        // Binding a pod to a node is done once, by whoever schedules.
        if old["nodeName"].is_null() {
            set(&mut spec, "nodeName", Value::Null);
        }
        spec
    };
    (fixed(new) != fixed(old)).then(|| {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,\
            `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
            existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
            previously negative)";
        FieldError::forbidden("spec", detail)
    })
}

fn default_spec(spec: &mut Value) {
    fill(spec, "dnsPolicy", json!("ClusterFirst"));
    fill(spec, "restartPolicy", json!("Always"));
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", json!(GRACE_SECS));
    fill(spec, "schedulerName", json!("default-scheduler"));
    // Two names of one field: whoever reads either finds it.
    if let Some(account) = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned() {
        fill(spec, "serviceAccountName", account.clone());
        set(spec, "serviceAccount", account);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_container(container);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        default_volume(volume);
    }
}

fn default_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    fill(container, "imagePullPolicy", json!(policy));
    fill(container, "terminationMessagePath", json!("/dev/termination-log"));
    fill(container, "terminationMessagePolicy", json!("File"));
    fill(container, "resources", json!({}));
    // What a container is limited to it also asks for, unless it says what it asks for.
    if let Some(Value::Object(limits)) = container.pointer("/resources/limits").cloned()
        && let Some(resources) = container.get_mut("resources")
    {
        fill(resources, "requests", Value::Object(Map::new()));
        for (name, limit) in limits {
            if let Some(requests) = resources.get_mut("requests") {
                fill(requests, &name, limit);
            }
        }
    }
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(port, "protocol", json!("TCP"));
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            for (key, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                fill(probe, key, json!(value));
            }
            if let Some(get) = probe.get_mut("httpGet") {
                fill(get, "path", json!("/"));
                fill(get, "scheme", json!("HTTP"));
            }
        }
    }
}

fn default_volume(volume: &mut Value) {
    let Some(map) = volume.as_object() else { return };
    if map.keys().all(|key| key == "name") {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            fill(source, "defaultMode", json!(FILE_MODE));
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", json!(""));
    }
}

/// No tag is `latest`; a digest is none.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// How the pod fares when memory is short.
fn qos(spec: &Value) -> &'static str {
    let containers: Vec<&Value> =
        ["containers", "initContainers"].iter().flat_map(|l| items(spec, l)).collect();
    let given =
        |c: &Value, what: &str| c.pointer(&format!("/resources/{what}")).and_then(Value::as_object).cloned();
    let asks =
        |c: &&&Value| given(c, "requests").or_else(|| given(c, "limits")).is_some_and(|m| !m.is_empty());
    if !containers.iter().any(|c| asks(&c)) {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|c| {
        let (requests, limits) = (given(c, "requests"), given(c, "limits").unwrap_or_default());
        ["cpu", "memory"].iter().all(|r| limits.contains_key(*r))
            && requests.is_none_or(|r| ["cpu", "memory"].iter().all(|k| r.get(*k) == limits.get(*k)))
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_tag_is_pulled_always() {
        for (image, latest) in [
            ("busybox", true),
            ("busybox:latest", true),
            ("busybox:1", false),
            ("localhost:5000/busybox", true),
            ("localhost:5000/a/busybox:1", false),
            ("busybox@sha256:00", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let spec = |resources: Value| json!({"containers": [{"name": "c", "resources": resources}]});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(qos(&spec(json!({}))), "BestEffort");
        assert_eq!(qos(&spec(json!({"limits": both, "requests": both}))), "Guaranteed");
        assert_eq!(qos(&spec(json!({"limits": both}))), "Guaranteed");
        assert_eq!(qos(&spec(json!({"requests": {"cpu": "1"}}))), "Burstable");
    }
}
