//! A sample that a person can watch: two templates and three Workflows, of which one fails and one waits.

use anyhow::Context as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pawl_api::git;
use pawl_api::meta::Kind;
use serde_json::{Value, json};

use crate::terminal::Say;

/// Puts the sample there; what is there from an earlier start stays as it is.
pub(super) async fn start(client: &kube::Client, say: &mut dyn Say) -> anyhow::Result<()> {
    for (kind, manifest) in sample() {
        let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &kind.plural);
        let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let object: DynamicObject = serde_json::from_value(manifest.clone())?;
        match api.create(&kube::api::PostParams::default(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let patch = json!({"metadata": manifest.get("metadata"), "spec": manifest.get("spec")});
                // A sample of an earlier version may have rules that this one refuses; then it stays.
                let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            }
            Err(error) => return Err(error).with_context(|| format!("the sample's {} {name}", kind.kind)),
        }
    }
    say.line("  sample      three Workflows: one plans, one fails a check, one waits for its template");
    Ok(())
}

fn sample() -> Vec<(Kind, Value)> {
    let sha = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
    let repository = json!({"owner": "acme", "repository": "infra"});
    let branch = with(&repository, json!({"name": "feature/network", "sha": sha, "prNumber": 7}));
    let template = |name: &str, display: &str, script: &str| {
        let container = json!({"name": "main", "image": "alpine:3", "command": ["/bin/sh", "-ec", script]});
        let job = json!({"template": {"spec": {"containers": [container]}}});
        (
            git::workflow_template::KIND,
            named(
                &git::workflow_template::KIND,
                name,
                &json!({"displayName": display, "match": {"paths": ["**/*.tf"]}, "job": job}),
            ),
        )
    };
    let workflow = |name: &str, template: &str, path: &str| {
        let spec = with(
            &repository,
            json!({"branch": "infra-feature-network", "sha": sha, "template": template,
            "path": path, "parameters": {"isDefaultBranch": "false", "executionUnit": "folder"}}),
        );
        (git::workflow::KIND, named(&git::workflow::KIND, name, &spec))
    };
    vec![
        (git::branch::KIND, named(&git::branch::KIND, "infra-feature-network", &branch)),
        template(
            "plan",
            "Terraform plan",
            "echo \"planning $TERRAKOJO_WORKFLOW_PATH at $TERRAKOJO_SHA\"; sleep 3; echo 'Plan: 2 to add, 0 to destroy.'",
        ),
        template(
            "lint",
            "Terraform lint",
            "echo \"linting $TERRAKOJO_WORKFLOW_PATH\"; sleep 1; echo 'main.tf:12: variable is unused' >&2; exit 1",
        ),
        workflow("plan-network", "plan", "envs/prod/network"),
        workflow("lint-network", "lint", "envs/prod/network"),
        workflow("apply-network", "apply", "envs/prod/network"),
    ]
}

fn named(kind: &Kind, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name, "namespace": "default"},
        "spec": spec})
}

fn with(base: &Value, more: Value) -> Value {
    let mut merged = base.clone();
    if let (Some(merged), Value::Object(more)) = (merged.as_object_mut(), more) {
        merged.extend(more);
    }
    merged
}
