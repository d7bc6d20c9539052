//! Who carries actions out here, as `pawl rbac generate` prints it, and who checks who approves them, as `pawl install`
//! does.

use anyhow::Context as _;
use http::{Method, Request, header};
use pawl_api::k8s::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SERVICE_ACCOUNT};
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::rbac;
use pawl_machines::remedy::identity::{self, BINDING, POLICY};
use serde_json::{Value, json};

/// Whom the API server takes the controllers in its own process for.
const CONTROLLERS: &str = "system:apiserver";

/// Makes all of it, or brings it up to date.
pub(crate) async fn install(client: &kube::Client, executor: &Executor) -> anyhow::Result<()> {
    let checks =
        identity::manifests(&[CONTROLLERS.to_owned()], &json!({"app.kubernetes.io/part-of": "pawl"}));
    for manifest in rbac::manifests(executor, &[]).into_iter().chain(checks) {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        let kinds = [NAMESPACE, SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, POLICY, BINDING];
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
