//! The objects with which an image is run: its Job, what goes in, what comes out, and who may bring it out.
//!
//! ```text
//! Pod   prepare (Pawl) ──writes──▶ shared directory ◀──reads, writes── main (the item's image)
//!         ▲ mounts in, out, target      │ state, exports
//!         │                             ▼ when main has ended
//!       Secrets ◀──patches out── collect (Pawl, a sidecar with a token of its own)
//! ```
//! Nothing is asked of the image but that it runs: no shell, no wrapper around its entrypoint. The token is mounted into the
//! sidecar alone, and all it may do is to read and patch one Secret (docs/decisions/0013).

#![expect(clippy::indexing_slicing, reason = "the objects whose keys are written here are made right here")]

use pawl_api::deploy::{Target, target};
use pawl_api::k8s::{ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT};
use pawl_api::meta::names;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deploy::item_job::Flow;
use crate::hardening::Hardening;
use crate::object::{Key, Object};
use crate::plan::Step;

/// What an item of this deployer is told.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Config {
    pub(super) image: String,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) import_values: Value,
    /// Landscaper's; there is no component here that they could name.
    pub(super) blueprint: Value,
    pub(super) component_descriptor: Value,
}

/// Where things are in the Pod: below the directory that Landscaper uses, so that images which know it by heart find
/// theirs. The command that runs in Pawl's own containers gets them as arguments.
pub(super) const SHARED: &str = "/data/ls/shared";
pub(super) const IN: &str = "/data/ls/in";
const OUT: &str = "/data/ls/out";
const TARGET: &str = "/data/ls/target";
/// Where every Kubernetes client looks for its credentials.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The container that runs the item's image.
pub(super) const MAIN: &str = "main";

/// Keys of the Secret in which things come out: written by the sidecar, read here.
pub mod out {
    /// The job that wrote it last.
    pub const JOB: &str = "job";
    /// What the image exported, as it wrote it.
    pub const EXPORTS: &str = "exports";
    /// What it wants to find again, as Pawl packs it.
    pub const STATE: &str = "state";
    /// What could not be brought out, and why.
    pub const ERROR: &str = "error";
}

/// Keys of the Secret in which things go in.
const IMPORTS_KEY: &str = "imports.json";
const TARGET_KEY: &str = "target.json";
const CONTENT_KEY: &str = "content";

/// A token lives this long: an hour more than any job that does not say how long it takes.
const TOKEN_SECONDS: u32 = 2 * 60 * 60;

/// How long the sidecar has to bring things out after the image has ended.
const GRACE_SECONDS: u32 = 60;

/// What the Job of a try is called (I1).
pub(super) fn job_key(me: &Object, job: &str, tried: i32) -> Key {
    let hash = [me.uid(), job, &tried.to_string()];
    Key::new(me.namespace(), &names::child(me.name(), &hash, 8, names::MAX_LABEL))
}

fn named(me: &Object, what: &str) -> Key {
    let name = names::child(&format!("{}-{what}", me.name()), &[me.uid(), what], 8, names::MAX_LABEL);
    Key::new(me.namespace(), &name)
}

/// Where what goes in is.
pub(super) fn in_key(me: &Object) -> Key {
    named(me, "in")
}

/// Where what came out is.
pub(super) fn out_key(me: &Object) -> Key {
    named(me, "out")
}

/// What goes in, as the data of a Secret.
pub(super) fn input(config: &Config, target: Option<&Object>) -> Value {
    let mut data = json!({IMPORTS_KEY: config.import_values.to_string()});
    let typed = target.and_then(|target| target.parse::<Target>().ok());
    if let (Some(object), Some(typed)) = (target, typed) {
        let about = json!({"apiVersion": target::KIND.api_version(), "kind": target::KIND.kind,
            "metadata": {"name": object.name(), "namespace": object.namespace()},
            "spec": {"type": typed.spec.type_}});
        data[TARGET_KEY] = about.to_string().into();
        let content = match &typed.spec.config {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            config @ Value::Bool(_)
            | config @ Value::Number(_)
            | config @ Value::Array(_)
            | config @ Value::Object(_) => Some(match config.get("kubeconfig") {
                Some(Value::String(text)) => text.clone(),
                Some(inner) => inner.to_string(),
                None => config.to_string(),
            }),
        };
        if let Some(content) = content {
            data[CONTENT_KEY] = content.into();
        }
    }
    data
}

/// What must be there before the Job: an account that may patch one Secret, and that Secret.
pub(super) fn surroundings(me: &Object) -> Vec<Step> {
    let (account, out) = (named(me, "collect"), out_key(me));
    let create = |kind, manifest| Step::create_child(me, kind, manifest);
    let named = json!({"name": account.name});
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [out.name],
        "verbs": ["get", "patch"]}]);
    let group = "rbac.authorization.k8s.io";
    vec![
        create(SERVICE_ACCOUNT, json!({"metadata": named, "automountServiceAccountToken": false})),
        create(ROLE, json!({"metadata": named, "rules": rules})),
        create(
            ROLE_BINDING,
            json!({"metadata": named,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": account.name},
                "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}]}),
        ),
        create(SECRET, json!({"metadata": {"name": out.name}, "type": "Opaque"})),
    ]
}

/// The Secret with what goes in, made.
pub(super) fn make_input(me: &Object, data: &Value) -> Step {
    let metadata = json!({"name": in_key(me).name});
    Step::create_child(me, SECRET, json!({"metadata": metadata, "type": "Opaque", "stringData": data}))
}

/// The manifest of the Job of one try.
pub(super) fn job(
    me: &Object,
    key: &Key,
    job: &str,
    flow: Flow,
    config: &Config,
    image: &str,
    target: Option<&Object>,
) -> Value {
    let out = out_key(me);
    let shared = json!({"name": "shared", "mountPath": SHARED});
    let small = json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}});
    let mut prepared = vec![shared.clone(), mount("in", IN), mount("out", OUT)];
    let mut volumes = vec![
        json!({"name": "shared", "emptyDir": {}}),
        json!({"name": "in", "secret": {"secretName": in_key(me).name}}),
        json!({"name": "out", "secret": {"secretName": out.name}}),
        json!({"name": "token", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]}}),
    ];
    let secret = target
        .and_then(|target| target.parse::<Target>().ok())
        .and_then(|target| target.spec.secret_ref.clone());
    if let Some(secret) = secret {
        let field = secret.key.unwrap_or_else(|| target::DEFAULT_SECRET_KEY.to_owned());
        prepared.push(mount("target", TARGET));
        volumes.push(json!({"name": "target", "secret": {"secretName": secret.name,
            "items": [{"key": field, "path": CONTENT_KEY}]}}));
    }
    let mut prepare = json!({"name": "prepare", "image": image, "volumeMounts": prepared, "resources": small,
        "args": ["container", "prepare", "--shared", SHARED, "--in", IN, "--out", OUT, "--target", TARGET]});
    let mut collect = json!({"name": "collect", "image": image, "restartPolicy": "Always", "resources": small,
        "volumeMounts": [shared.clone(), {"name": "token", "mountPath": TOKEN, "readOnly": true}],
        "args": ["container", "collect", "--shared", SHARED, "--namespace", out.namespace, "--secret", out.name,
            "--job", job]});
    Hardening::OWN_IMAGE.apply_to_container(&mut prepare);
    Hardening::OWN_IMAGE.apply_to_container(&mut collect);
    let env = [
        ("OPERATION", operation(flow).to_owned()),
        ("IMPORTS_PATH", format!("{SHARED}/imports.json")),
        ("EXPORTS_PATH", format!("{SHARED}/exports/values")),
        ("STATE_PATH", format!("{SHARED}/state")),
        ("TARGET_PATH", format!("{SHARED}/target.json")),
    ];
    let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let mut main = json!({"name": MAIN, "image": config.image, "env": env, "volumeMounts": [shared]});
    for (field, words) in [("command", &config.command), ("args", &config.args)] {
        if !words.is_empty() {
            main[field] = json!(words);
        }
    }
    let marks = json!({pawl_api::deploy::labels::DEPLOY_ITEM: me.name(),
        pawl_api::deploy::labels::DEPLOY_ITEM_NAMESPACE: me.namespace()});
    let mut pod = json!({
        "restartPolicy": "Never", "serviceAccountName": named(me, "collect").name,
        "automountServiceAccountToken": false, "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "volumes": volumes, "initContainers": [prepare, collect], "containers": [main],
    });
    Hardening::ANY_USER.apply_to_pod(&mut pod);
    json!({
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": marks,
            "ownerReferences": [me.controller_reference()]},
        "spec": {
            "backoffLimit": 0, "podReplacementPolicy": "Failed",
            "template": {"metadata": {"labels": marks}, "spec": pod},
        },
    })
}

fn mount(volume: &str, path: &str) -> Value {
    json!({"name": volume, "mountPath": path, "readOnly": true})
}

fn operation(flow: Flow) -> &'static str {
    match flow {
        Flow::Install => "RECONCILE",
        Flow::Remove => "DELETE",
    }
}
