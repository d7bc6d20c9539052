//! Is what a WorkflowExecution asks for something that can be run?

use pawl_api::meta::{Target, names};
use pawl_api::pawl::annotations::TARGETS;
use pawl_api::remedy::WorkflowExecutionSpec;
use pawl_api::remedy::workflow_execution::TARGET_PARAMETER;

use crate::lock;
use crate::object::Object;

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
    let listed = lock::listed(me.annotation(TARGETS).unwrap_or_default());
    for target in listed.map_err(|error| format!("annotation {TARGETS}: {error}"))? {
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
