//! Is what a WorkflowExecution asks for something that can be run, and may it be asked for from where it is?

use std::sync::Arc;

use pawl_api::meta::{Target, names};
use pawl_api::pawl::annotations::TARGETS;
use pawl_api::pawl::labels::ALLOW_FROM;
use pawl_api::remedy::WorkflowExecutionSpec;
use pawl_api::remedy::workflow_execution::TARGET_PARAMETER;

use crate::cluster::namespace::{NAMESPACE, lets_in};
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::view::View;

/// All that an execution acts on: its own target first, then those that its annotation lists.
///
/// # Errors
/// What is wrong, naming the field, the value and what is allowed.
pub(super) fn targets(me: &Object, spec: &WorkflowExecutionSpec) -> Result<Vec<Target>, String> {
    let own: Target =
        spec.target_resource.trim().parse().map_err(|error| format!("spec.targetResource: {error}"))?;
    if own.as_object().is_none() {
        return Err(format!(
            "spec.targetResource: {own} is no Kubernetes object; write namespace/kind/name, or kind/name"
        ));
    }
    let mut targets = vec![own];
    let listed = me.annotation(TARGETS).into_iter().flat_map(|list| list.split(',')).map(str::trim);
    for raw in listed.filter(|raw| !raw.is_empty()) {
        let target = raw.parse().map_err(|error| format!("annotation {TARGETS}: {error}"))?;
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// What is wrong with the rest of it, if anything is. The schema says most of this before; an object may be older.
pub(super) fn problem(spec: &WorkflowExecutionSpec, target: &Target) -> Option<String> {
    let reference = &spec.workflow_ref;
    let image = reference.container_image.trim();
    let odd = |text: &str| text.chars().any(|c| c.is_whitespace() || c.is_control());
    if reference.workflow_id.trim().is_empty() {
        return Some("spec.workflowRef.workflowId: it is empty; name the workflow".to_owned());
    }
    if image.is_empty() {
        return Some(
            "spec.workflowRef.containerImage: it is empty; name the image or bundle to run".to_owned(),
        );
    }
    if odd(image) {
        return Some(format!("spec.workflowRef.containerImage: {image:?} has spaces or control characters"));
    }
    let pinned = image.split_once('@').map(|(_, digest)| digest);
    if let (Some(pinned), Some(digest)) = (pinned, reference.container_digest.as_deref())
        && pinned != digest
    {
        return Some(format!(
            "spec.workflowRef: containerImage is pinned to {pinned}, containerDigest says {digest}"
        ));
    }
    for (name, value) in &spec.parameters {
        let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) || !name.chars().all(upper) {
            return Some(format!("spec.parameters: {name:?} is not UPPER_SNAKE_CASE"));
        }
        if name == TARGET_PARAMETER && value.trim().parse().ok().as_ref() != Some(target) {
            return Some(format!(
                "spec.parameters.{TARGET_PARAMETER}: it is set by Pawl to the target, {target}"
            ));
        }
        if value.contains('\0') {
            return Some(format!("spec.parameters.{name}: a value may not hold a NUL character"));
        }
    }
    let config = &spec.execution_config;
    if config.timeout.get().as_secs() == 0 {
        return Some("spec.executionConfig.timeout: it must be at least one second".to_owned());
    }
    config.namespace.as_ref().filter(|namespace| !names::is_label(namespace)).map(|namespace| {
        format!("spec.executionConfig.namespace: {namespace:?} is not the name of a namespace")
    })
}

/// Somebody else's namespace that does not let this execution in.
#[derive(Debug)]
pub(super) struct NotAllowed {
    pub(super) message: String,
    /// The namespace as it was seen: a cache that lags must not end anything.
    pub(super) seen: Option<Box<Step>>,
}

/// A unit acts in its own namespace, and in those that say so; on what belongs to no namespace only from the system's.
pub(super) fn power(
    view: &dyn View,
    system_namespace: &str,
    me: &Object,
    spec: &WorkflowExecutionSpec,
    targets: &[Target],
) -> Result<(), NotAllowed> {
    let home = me.namespace().unwrap_or_default();
    if home == system_namespace {
        return Ok(());
    }
    if let Some(target) = targets.iter().find(|target| is_cluster_scoped(target)) {
        let message =
            format!("{target} belongs to no namespace; only executions in {system_namespace} may act on it");
        return Err(NotAllowed { message, seen: None });
    }
    let theirs = targets.iter().filter_map(Target::namespace);
    let elsewhere = theirs.chain(spec.execution_config.namespace.as_deref()).find(|namespace| {
        let there = view.get(&NAMESPACE, &Key::new(None, namespace));
        *namespace != home && !lets_in(there.as_deref(), home)
    });
    match elsewhere {
        None => Ok(()),
        Some(namespace) => Err(NotAllowed {
            message: format!("the namespace {namespace} is not labelled {ALLOW_FROM}: {home}"),
            seen: Some(Box::new(as_seen(view, namespace))),
        }),
    }
}

fn is_cluster_scoped(target: &Target) -> bool {
    target.as_object().is_some_and(|object| object.namespace().is_none())
}

fn as_seen(view: &dyn View, namespace: &str) -> Step {
    let key = Key::new(None, namespace);
    match view.get(&NAMESPACE, &key) {
        Some(seen) => unchanged(&seen),
        None => Step::ConfirmGone(Reference { kind: NAMESPACE, key, uid: String::new() }),
    }
}

pub(super) fn unchanged(seen: &Arc<Object>) -> Step {
    Step::ConfirmUnchanged { target: seen.reference(), resource_version: seen.resource_version().to_owned() }
}
