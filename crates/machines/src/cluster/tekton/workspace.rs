//! Where do the directories come from that pipelines and tasks want?

use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_api::meta::names;
use pawl_api::tekton::{WorkspaceBinding, WorkspaceDeclaration};
use serde_json::{Map, Value, json};

use crate::object::Object;
use crate::plan::Step;

/// Where a workspace is seen unless its declaration says otherwise: under this directory, by its name.
const ROOT: &str = "/workspace";

/// A claim that is made for a run and goes with it.
const TEMPLATE: &str = "volumeClaimTemplate";

/// The volumes that may stand behind a workspace.
const SOURCES: &[&str] = &["emptyDir", "persistentVolumeClaim", "configMap", "secret", "projected", TEMPLATE];

/// What is wrong with a binding; `None` if it can be used.
pub(crate) fn problem(binding: &WorkspaceBinding) -> Option<String> {
    let sources: Vec<&String> = binding.rest.keys().collect();
    match sources.as_slice() {
        [] => Some(format!(
            "workspace {:?}: expected exactly one of {}, got none",
            binding.name,
            SOURCES.join(", ")
        )),
        [one] if SOURCES.contains(&one.as_str()) => None,
        [other] => Some(format!("workspace {:?}: {other} is not supported here", binding.name)),
        _ => {
            Some(format!("workspace {:?}: expected exactly one source, got {}", binding.name, sources.len()))
        }
    }
}

/// The binding with a claim in the place of the template for one.
pub(crate) fn settled(owner: &Object, binding: &WorkspaceBinding) -> WorkspaceBinding {
    if !binding.rest.contains_key(TEMPLATE) {
        return binding.clone();
    }
    let claim = json!({"claimName": claim_name(owner, &binding.name)});
    let rest = Map::from_iter([("persistentVolumeClaim".to_owned(), claim)]);
    WorkspaceBinding { name: binding.name.clone(), sub_path: binding.sub_path.clone(), rest }
}

/// The steps that make the claims which templates ask for.
pub(crate) fn claims<'a>(
    owner: &'a Object,
    bindings: &'a [WorkspaceBinding],
) -> impl Iterator<Item = Step> + 'a {
    bindings.iter().filter_map(move |binding| {
        let template = binding.rest.get(TEMPLATE)?;
        let mut metadata = template.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        metadata.retain(|key, _| matches!(key.as_str(), "labels" | "annotations"));
        metadata.insert("name".to_owned(), claim_name(owner, &binding.name).into());
        let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
        let manifest = json!({"metadata": metadata, "spec": spec});
        Some(Step::create_child(owner, PERSISTENT_VOLUME_CLAIM, manifest))
    })
}

/// Where a workspace is seen.
pub(crate) fn path(declaration: &WorkspaceDeclaration) -> String {
    let given = declaration.mount_path.clone().filter(|path| !path.is_empty());
    given.unwrap_or_else(|| format!("{ROOT}/{}", declaration.name))
}

fn claim_name(owner: &Object, workspace: &str) -> String {
    format!("pvc-{}", names::hash(&[workspace, owner.uid()], 10))
}
