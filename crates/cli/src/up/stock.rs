//! What a control plane on this machine has from the start: who carries actions out, and who checks who approves.
//!
//! On a cluster `pawl install --print` prints the same. Here nobody would apply it.

use anyhow::Context as _;
use futures::future::try_join_all;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use pawl_api::k8s::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT};
use pawl_api::meta::Kind;
use pawl_api::pawl::FIELD_MANAGER;
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::rbac;
use pawl_machines::remedy::identity::{self, BINDING, POLICY};
use serde_json::{Value, json};

/// Whom the API server takes the controllers in its own process for.
const CONTROLLERS: &str = "system:apiserver";

/// The kinds of what is in stock.
const KINDS: [Kind; 8] =
    [NAMESPACE, SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, POLICY, BINDING];

/// Makes all of it what this version says it is.
pub(super) async fn fill(client: &kube::Client, executor: &Executor) -> anyhow::Result<()> {
    let labels = json!({"app.kubernetes.io/part-of": "pawl"});
    let mut all = rbac::manifests(executor, &[]);
    all.extend(identity::manifests(&[CONTROLLERS.to_owned()], &labels));
    // Namespaces come first; the rest is written together, for a disk takes many as easily as one.
    let (first, rest): (Vec<Value>, Vec<Value>) = all
        .into_iter()
        .partition(|manifest| manifest.get("kind").and_then(Value::as_str) == Some(&NAMESPACE.kind));
    for some in [first, rest] {
        try_join_all(some.iter().map(|manifest| apply(client, manifest))).await?;
    }
    Ok(())
}

async fn apply(client: &kube::Client, manifest: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(manifest.clone())?;
    let word = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
    let kind =
        KINDS.iter().find(|kind| kind.kind == word).with_context(|| format!("{word}: not in stock"))?;
    let resource = ApiResource {
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        api_version: kind.api_version(),
        kind: kind.kind.to_string(),
        plural: kind.plural.to_string(),
    };
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.metadata.name.clone().unwrap_or_default();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(&object))
        .await
        .with_context(|| format!("apply {word} {name}"))?;
    Ok(())
}
