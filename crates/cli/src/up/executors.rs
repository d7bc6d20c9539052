//! Who carries actions out here, as `pawl rbac generate` prints it, and who checks who approves them, as `pawl install`
//! does.

use pawl_api::k8s::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SERVICE_ACCOUNT};
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::rbac;
use pawl_machines::remedy::identity::{self, BINDING, POLICY};
use serde_json::json;

use super::apply::apply;

/// Whom the API server takes the controllers in its own process for.
const CONTROLLERS: &str = "system:apiserver";

/// Makes all of it, or brings it up to date.
pub(crate) async fn install(client: &kube::Client, executor: &Executor) -> anyhow::Result<()> {
    let checks =
        identity::manifests(&[CONTROLLERS.to_owned()], &json!({"app.kubernetes.io/part-of": "pawl"}));
    let kinds = [NAMESPACE, SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, POLICY, BINDING];
    for manifest in rbac::manifests(executor, &[]).into_iter().chain(checks) {
        apply(client, &kinds, &manifest).await?;
    }
    Ok(())
}
