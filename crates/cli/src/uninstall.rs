//! Takes Pawl off a cluster without wedging it: finalizers first, for nobody will be left to remove them (I5).
//!
//! Order: stop the operator, so that nothing puts a finalizer back; strip the finalizers of every object of our kinds;
//! delete the CRDs (and with them the objects); delete the rest of what `pawl install --print` applied.

use anyhow::Context as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery;
use serde_json::{Value, json};

use crate::install::{self, Choices};
use crate::terminal::Say;

/// Objects are read in pages, so that a large cluster does not come back in one answer.
const PAGE: u32 = 500;

pub(crate) async fn run(client: kube::Client, choices: &Choices, say: &mut dyn Say) -> anyhow::Result<()> {
    let manifests = install::manifests(choices)?;
    for deployment in manifests.iter().filter(|manifest| is(manifest, "Deployment")) {
        remove(&client, deployment, say).await?;
    }
    for crd in manifests.iter().filter(|manifest| is(manifest, "CustomResourceDefinition")) {
        strip(&client, crd, say).await?;
        remove(&client, crd, say).await?;
    }
    let rest = manifests.iter().rev().filter(|m| !is(m, "Deployment") && !is(m, "CustomResourceDefinition"));
    for manifest in rest {
        remove(&client, manifest, say).await?;
    }
    Ok(())
}

fn is(manifest: &Value, kind: &str) -> bool {
    text(manifest, "/kind") == kind
}

fn text<'a>(manifest: &'a Value, pointer: &str) -> &'a str {
    manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Takes our finalizers, and only ours, off every object of one of our kinds.
async fn strip(client: &kube::Client, crd: &Value, say: &mut dyn Say) -> anyhow::Result<()> {
    let version = text(crd, "/spec/versions/0/name");
    let gvk = GroupVersionKind::gvk(text(crd, "/spec/group"), version, text(crd, "/spec/names/kind"));
    let resource = ApiResource::from_gvk_with_plural(&gvk, text(crd, "/spec/names/plural"));
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match all.list(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("list {}", gvk.kind)),
        };
        for object in &page.items {
            release(client, &resource, object, say).await?;
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn release(
    client: &kube::Client,
    resource: &ApiResource,
    object: &DynamicObject,
    say: &mut dyn Say,
) -> anyhow::Result<()> {
    let held = object.metadata.finalizers.clone().unwrap_or_default();
    let kept: Vec<&String> = held.iter().filter(|finalizer| !is_ours(finalizer)).collect();
    if kept.len() == held.len() {
        return Ok(());
    }
    let (namespace, name) = (
        object.metadata.namespace.as_deref().unwrap_or_default(),
        object.metadata.name.as_deref().unwrap_or_default(),
    );
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let patch =
        json!({"metadata": {"finalizers": kept, "resourceVersion": object.metadata.resource_version}});
    match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => say.line(&format!("released {} {namespace}/{name}", resource.kind)),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => {
            return Err(error).with_context(|| format!("release {} {namespace}/{name}", resource.kind));
        }
    }
    Ok(())
}

/// The finalizers that Pawl sets, whatever the kind.
fn is_ours(finalizer: &str) -> bool {
    finalizer.starts_with("terrakojo.io/")
        || finalizer == "finalizer.landscaper.gardener.cloud"
        || finalizer.starts_with("pawl.dev/")
        || finalizer.contains("kubernaut.ai/")
}

async fn remove(client: &kube::Client, manifest: &Value, say: &mut dyn Say) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(manifest.clone())?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let gvk: GroupVersionKind = object
        .types
        .as_ref()
        .and_then(|types| types.try_into().ok())
        .context("a manifest of ours has no kind")?;
    let (resource, capabilities) = match discovery::pinned_kind(client, &gvk).await {
        Ok(found) => found,
        // A server without that kind (an old one without admission policies) has nothing of it to remove.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(kube::Error::Discovery(_)) => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("look up {}", gvk.kind)),
    };
    let api: Api<DynamicObject> = match (capabilities.scope, object.metadata.namespace.as_deref()) {
        (discovery::Scope::Namespaced, Some(namespace)) => {
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        _ => Api::all_with(client.clone(), &resource),
    };
    match api.delete(&name, &DeleteParams::foreground()).await {
        Ok(_) => say.line(&format!("removed {} {name}", gvk.kind)),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error).with_context(|| format!("remove {} {name}", gvk.kind)),
    }
    Ok(())
}
