//! Who carries actions out here, as `pawl rbac generate` prints it, and who checks who approves them, as `pawl install`
//! does.

use futures::future::try_join_all;
use pawl_api::k8s::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SERVICE_ACCOUNT};
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::rbac;
use pawl_machines::remedy::identity::{self, BINDING, POLICY};
use serde_json::{Value, json};

use super::apply::apply;

/// Whom the API server takes the controllers in its own process for.
const CONTROLLERS: &str = "system:apiserver";

/// Makes all of it, or brings it up to date.
pub(crate) async fn install(client: &kube::Client, executor: &Executor) -> anyhow::Result<()> {
    let checks =
        identity::manifests(&[CONTROLLERS.to_owned()], &json!({"app.kubernetes.io/part-of": "pawl"}));
    let kinds = [NAMESPACE, SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, POLICY, BINDING];
    let manifests = rbac::manifests(executor, &[]).into_iter().chain(checks);
    let is_namespace = |manifest: &Value| manifest.get("kind") == Some(&NAMESPACE.kind.as_ref().into());
    let (namespaces, others): (Vec<Value>, Vec<Value>) = manifests.partition(is_namespace);
    // What is in a namespace needs it; all else can be made side by side, and wait for the disk together.
    for together in [namespaces, others] {
        try_join_all(together.iter().map(|manifest| apply(client, &kinds, manifest))).await?;
    }
    Ok(())
}
