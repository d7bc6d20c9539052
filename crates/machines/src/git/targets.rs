//! The targets that a Workflow locks: its own, and those that it and its template list.

use std::sync::Arc;

use pawl_api::git::workflow::parameters;
use pawl_api::git::{BranchSpec, Repository, WorkflowSpec};
use pawl_api::meta::Target;
use pawl_api::meta::target::GitRef;
use pawl_api::pawl::annotations::TARGETS;

use crate::lock;
use crate::object::Object;

/// GitHub's own host, whose API has another.
const GITHUB: &str = "github.com";

/// All targets of a Workflow, its own first.
///
/// # Errors
/// Names the target that cannot be locked, and the object that lists it.
pub(super) fn of_workflow(
    me: &Object,
    spec: &WorkflowSpec,
    branch: &BranchSpec,
    template: Option<&Object>,
    repository: Option<&Arc<Object>>,
) -> Result<Vec<Target>, String> {
    let host = repository.map_or_else(|| GITHUB.to_owned(), |repository| host(repository));
    let reference = reference(spec, branch);
    let own = Target::git(&host, &spec.owner, &spec.repository, &spec.path, &spec.template, reference);
    let mut targets = vec![own.map_err(|error| error.to_string())?];
    let of_template = template.and_then(|template| template.annotation(TARGETS));
    for (list, kind) in [(me.annotation(TARGETS), "Workflow"), (of_template, "WorkflowTemplate")] {
        let listed = lock::listed(list.unwrap_or_default());
        for target in listed.map_err(|error| format!("annotation {TARGETS} of the {kind}: {error}"))? {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    Ok(targets)
}

/// The host of a repository, from the address of its API.
fn host(repository: &Object) -> String {
    let typed = repository.parse::<Repository>().ok();
    let url = typed.and_then(|typed| typed.spec.api_url.clone()).unwrap_or_default();
    let host = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    match host {
        "" | "api.github.com" => GITHUB.to_owned(),
        other => other.to_owned(),
    }
}

/// The ref whose commits queue behind each other. A fork's ref is never that of the same name in the repository.
fn reference(spec: &WorkflowSpec, branch: &BranchSpec) -> GitRef {
    match &branch.head_repository {
        Some(fork) => GitRef::Named(format!("{fork}/{}", branch.name)),
        None if spec.parameter(parameters::IS_DEFAULT_BRANCH) == Some("true") => GitRef::Default,
        None => GitRef::Named(branch.name.clone()),
    }
}
