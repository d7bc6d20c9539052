//! What `pawl up` brings along is applied: made where it is not there, and brought up to date where it is.

use anyhow::Context as _;
use http::{Method, Request, header};
use pawl_api::meta::Kind;
use serde_json::Value;

/// Applies a manifest of one of these kinds.
///
/// # Errors
/// When it is of another kind, or the API server does not take it.
pub(super) async fn apply(client: &kube::Client, kinds: &[Kind], manifest: &Value) -> anyhow::Result<()> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").unwrap_or_default();
    let is = |kind: &&Kind| {
        text("/kind") == Some(&kind.kind) && text("/apiVersion") == Some(kind.api_version().as_str())
    };
    let kind = kinds.iter().find(is).with_context(|| format!("{name} is of a kind that is not known"))?;
    let path = kind.path(text("/metadata/namespace"), Some(name));
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?fieldManager=pawl-up&force=true"))
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(manifest.to_string().into_bytes())?;
    client.request::<Value>(request).await.with_context(|| format!("make {kind} {name}"))?;
    Ok(())
}
