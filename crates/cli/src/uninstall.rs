//! Takes Pawl off a cluster without wedging it: finalizers first, for nobody will be left to remove them (I5).
//!
//! Order: stop the operator, so that nothing puts a finalizer back; strip the finalizers of every object of our kinds;
//! delete the CRDs (and with them the objects); delete the rest of what `pawl install --print` applied.

use anyhow::Context as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{ResourceExt as _, discovery};
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
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let patch =
        json!({"metadata": {"finalizers": kept, "resourceVersion": object.metadata.resource_version}});
    match api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Said;
    use bytes::Bytes;
    use http::Request;
    use pawl_apiserver::{RealEnv, Server};
    use pawl_engine::Engine;
    use std::sync::Arc;
    use std::time::Duration;

    fn send(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = server.call(request.body(Bytes::from(body.to_string())).unwrap());
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    #[tokio::test]
    async fn i5_what_holds_our_finalizers_goes_though_nobody_is_left_to_remove_them() {
        let server = Server::in_memory(Arc::new(RealEnv));
        for crd in pawl_api::crds::all() {
            server.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let spec = json!({"owner": "a", "repository": "r", "branch": "b", "sha": "a".repeat(40), "template": "t",
            "path": "p"});
        let workflow = |name: &str, finalizer: &str| {
            json!({"apiVersion": "terrakojo.io/v1alpha1", "kind": "Workflow",
                "metadata": {"name": name, "finalizers": [finalizer]}, "spec": spec})
        };
        let path = "/apis/terrakojo.io/v1alpha1/namespaces/default/workflows";
        assert_eq!(send(&server, "POST", path, &workflow("ours", "terrakojo.io/cleanup-checkrun")).0, 201);
        assert_eq!(send(&server, "POST", path, &workflow("theirs", "example.com/theirs")).0, 201);
        // A cluster collects garbage; so does this one.
        let cluster = Engine::builder(kube::Client::new(server.service(), "default"))
            .machines(pawl_machines::cluster::machines())
            .build()
            .unwrap();
        tokio::spawn(async move { cluster.run(std::future::pending()).await });
        let choices = Choices { system_namespace: "pawl-system".into(), image: "pawl:test".into() };
        let mut said = Said::default();
        // This server has no admission policies; that is no reason to stop half-way.
        run(kube::Client::new(server.service(), "default"), &choices, &mut said).await.unwrap();
        assert!(said.0.contains(&"released Workflow default/ours".to_owned()), "{said:?}");
        assert!(!said.0.iter().any(|line| line.contains("theirs")), "{said:?}");
        let (_, theirs) = send(&server, "GET", &format!("{path}/theirs"), &json!({}));
        assert_eq!(theirs["metadata"]["finalizers"], json!(["example.com/theirs"]), "{theirs}");
        assert_eq!(send(&server, "GET", &format!("{path}/ours"), &json!({})).0, 404);
        let left = || {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let (_, crds) = send(&server, "GET", path, &json!({}));
            let crds = crds["items"].as_array().unwrap().iter();
            crds.map(|crd| crd["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while left().len() > 1 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Somebody else's finalizer is somebody else's to remove, and its definition waits for it.
        assert_eq!(left(), ["workflows.terrakojo.io"]);
    }
}
