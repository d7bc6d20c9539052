//! The accounts with which actions are carried out here, as `pawl rbac generate` prints them.

use anyhow::Context as _;
use http::{Method, Request, header};
use pawl_api::k8s::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SERVICE_ACCOUNT};
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::rbac;
use serde_json::Value;

/// Makes them, or brings them up to date.
pub(crate) async fn install(client: &kube::Client, executor: &Executor) -> anyhow::Result<()> {
    for manifest in rbac::manifests(executor, &[]) {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        let kinds = [NAMESPACE, SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING];
        let kind = kinds.into_iter().find(|kind| text("/kind") == Some(&kind.kind));
        let kind = kind.with_context(|| format!("{name} is of a kind that is not known"))?;
        let path = kind.path(text("/metadata/namespace"), Some(name));
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{path}?fieldManager=pawl-up&force=true"))
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(manifest.to_string().into_bytes())?;
        client.request::<Value>(request).await.with_context(|| format!("make {kind} {name}"))?;
    }
    Ok(())
}
