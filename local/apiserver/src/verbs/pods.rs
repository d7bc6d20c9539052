//! What can be asked of a Pod besides what can be asked of everything: to go where a budget allows it, and to run
//! somewhere.

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use bytes::Bytes;
use serde_json::{Value, json};

use super::options::WriteOptions;
use super::{Answer, Call, Core, Outcome, Subresource, Verb, delete, metadata, update};
use crate::admission::{self, Operation, Write};
use crate::http::body;
use crate::resources::Resource;
use crate::selector;
use crate::status::{Cause, Details, Status};
use crate::store::{key, prefix};
use crate::validation::FieldError;

/// When to ask again whether a budget allows an eviction: a Pod takes seconds to become ready.
const RETRY_AFTER_SECONDS: u32 = 10;

/// POST of `/eviction`: a deletion, unless it would break a PodDisruptionBudget.
///
/// Nobody keeps the budgets' status here, so what they allow is counted when it is asked for.
pub(super) fn evict(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    let eviction = read(call, "Eviction", "policy/v1")?;
    let warnings = judge(core, call, &eviction)?;
    let pod = find(core, call)?;
    let healthy = matches!(pod["status"]["phase"].as_str(), Some("Running")) && is_ready(&pod);
    if healthy && pod["metadata"]["deletionTimestamp"].is_null() {
        check_budgets(core, call, &pod)?;
    }
    let mut options = eviction["deleteOptions"].clone();
    if let Some(options) = options.as_object_mut() {
        options.remove("kind");
        options.remove("apiVersion");
    }
    let options = if options.is_null() { Bytes::new() } else { options.to_string().into() };
    let deletion = as_request(call, Verb::Delete, Subresource::Whole, "application/json", &options);
    delete::delete_admitted(core, &deletion)?;
    Ok(done().warning(warnings))
}

/// POST of `/binding`: a Pod is given to a node, once.
pub(super) fn bind(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    let binding = read(call, "Binding", "v1")?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        let error = FieldError::required("target.name", "");
        return Err(Status::invalid_as("", "Binding", call.name, vec![error]));
    }
    let warnings = judge(core, call, &binding)?;
    let pod = find(core, call)?;
    if let Some(taken) = pod["spec"]["nodeName"].as_str().filter(|taken| !taken.is_empty()) {
        let why = format!("pod {} is already assigned to node {taken:?}", call.name);
        return Err(Status::conflict(call.resource, &format!("{}/{}", call.namespace, call.name), &why));
    }
    let version = &pod["metadata"]["resourceVersion"];
    let place = json!({"metadata": {"resourceVersion": version}, "spec": {"nodeName": node}});
    patch(core, call, Subresource::Whole, &place)?;
    let now = crate::env::to_second(core.env.now()).to_string();
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
    patch(core, call, Subresource::Status, &json!({"status": {"conditions": [scheduled]}}))?;
    Ok(done().warning(warnings))
}

/// Ephemeral containers come by their own way, and stay: nobody takes one away from a Pod, or changes it.
pub(super) fn check_ephemeral(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Status> {
    if !call.resource.is("", "pods") {
        return Ok(());
    }
    let of = |pod: &Value| pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    let (now, before) = (of(new), of(old));
    let refused = |field: &str, why: &str| {
        Err(Status::invalid(call.resource, call.name, vec![FieldError::forbidden(field, why)]))
    };
    if call.subresource != Subresource::EphemeralContainers {
        if now == before {
            return Ok(());
        }
        return refused(
            "spec",
            "pod updates may not change ephemeral containers: use pods/ephemeralcontainers",
        );
    }
    let named = |name: &Value| now.iter().find(|container| container["name"] == *name);
    if let Some(gone) = before.iter().find(|container| named(&container["name"]).is_none()) {
        let name = gone["name"].as_str().unwrap_or_default();
        return refused(
            "spec.ephemeralContainers",
            &format!("existing ephemeral containers {name:?} may not be removed"),
        );
    }
    if let Some(changed) = before.iter().find(|container| named(&container["name"]) != Some(*container)) {
        let name = changed["name"].as_str().unwrap_or_default();
        return refused(
            "spec.ephemeralContainers",
            &format!("existing ephemeral containers {name:?} may not be changed"),
        );
    }
    Ok(())
}

fn read(call: &Call<'_>, kind: &str, version: &str) -> Result<Value, Status> {
    WriteOptions::read(call)?;
    let object = body::parse(call.content_type, call.body)?;
    let is = |key: &str, want: &str| {
        object[key].is_null() || object[key].as_str().is_some_and(|got| got.is_empty() || got == want)
    };
    if !object.is_object() || !is("kind", kind) || !is("apiVersion", version) {
        return Err(Status::bad_request(format!("the body cannot be handled as a {kind} of {version}")));
    }
    let name = metadata::text(&object, "name");
    if !name.is_empty() && name != call.name {
        let message =
            format!("the name of the object ({name}) does not match the name on the URL ({})", call.name);
        return Err(Status::bad_request(message));
    }
    Ok(object)
}

/// What admission policies say of it.
fn judge(core: &Core, call: &Call<'_>, asked: &Value) -> Result<Vec<String>, Status> {
    let dry_run = WriteOptions::read(call)?.dry_run;
    let write = Write { operation: Operation::Create, object: Some(asked), old: None, dry_run };
    admission::review(core, call, write)
}

fn find(core: &Core, call: &Call<'_>) -> Result<Value, Status> {
    let head = core.store.head(&call.resource.table, &key(call.namespace, call.name));
    let head = head.ok_or_else(|| Status::not_found(call.resource, call.name))?;
    let mut pod = head.value();
    pod["metadata"]["resourceVersion"] = head.revision.to_string().into();
    Ok(pod)
}

fn patch(core: &Core, call: &Call<'_>, part: Subresource, patch: &Value) -> Result<Outcome, Status> {
    let body = Bytes::from(patch.to_string());
    update::write(core, &as_request(call, Verb::Patch, part, "application/strategic-merge-patch+json", &body))
}

fn as_request<'a>(
    call: &Call<'a>,
    verb: Verb,
    subresource: Subresource,
    content_type: &'a str,
    body: &'a [u8],
) -> Call<'a> {
    Call { verb, subresource, content_type, body, ..*call }
}

fn done() -> Outcome {
    Answer::Value(
        201,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
    .into()
}

/// Refuses an eviction that a budget does not allow.
fn check_budgets(core: &Core, call: &Call<'_>, pod: &Value) -> Result<(), Status> {
    let registry = core.registry();
    let Some(budgets) = registry.find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    let prefix = prefix(call.namespace);
    let all = core.store.list(&budgets.table, &prefix).objects;
    let matching: Vec<Value> =
        all.iter().map(|budget| budget.value()).filter(|budget| covers(budget, pod)).collect();
    let budget = match matching.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(Status::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let pods: Vec<Value> =
        core.store.list(&call.resource.table, &prefix).objects.iter().map(|p| p.value()).collect();
    let covered = pods.iter().filter(|pod| covers(budget, pod));
    let (total, healthy) =
        covered.fold((0, 0), |(total, healthy), pod| (total + 1, healthy + i64::from(is_ready(pod))));
    let needed = needed(&budget["spec"], total);
    if healthy > needed {
        return Ok(());
    }
    Err(violated(budgets, budget, needed, healthy))
}

fn violated(budgets: &Resource, budget: &Value, needed: i64, healthy: i64) -> Status {
    let name = metadata::text(budget, "name");
    let mut status = Status::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        RETRY_AFTER_SECONDS,
    );
    let cause = Cause {
        reason: "DisruptionBudget".into(),
        message: format!(
            "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        ),
        field: String::new(),
    };
    tracing::debug!(budget = name, resource = budgets.ids.group_resource(), "an eviction was refused");
    status.details = Some(Box::new(Details {
        causes: vec![cause],
        retry_after_seconds: RETRY_AFTER_SECONDS,
        ..Details::default()
    }));
    status
}

/// How many Pods a budget wants healthy, of so many.
fn needed(spec: &Value, total: i64) -> i64 {
    // A percentage of Pods is rounded up, as Kubernetes does for both.
    let count = |share: &Value| {
        let percent = share.as_str().map(|text| text.trim_end_matches('%').parse().unwrap_or(0));
        percent.map(|percent: i64| (total * percent + 99) / 100).or_else(|| share.as_i64())
    };
    match (count(&spec["minAvailable"]), count(&spec["maxUnavailable"])) {
        (Some(least), _) => least,
        (None, Some(most)) => (total - most).max(0),
        (None, None) => 0,
    }
}

fn covers(budget: &Value, pod: &Value) -> bool {
    selector::selects(&budget["spec"]["selector"], &pod["metadata"]["labels"])
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_how_many_must_stay() {
        for (spec, total, want) in [
            (json!({"minAvailable": 2}), 3, 2),
            (json!({"minAvailable": "50%"}), 3, 2),
            (json!({"maxUnavailable": 1}), 3, 2),
            (json!({"maxUnavailable": "34%"}), 3, 1),
            (json!({"maxUnavailable": 9}), 3, 0),
            (json!({}), 3, 0),
        ] {
            assert_eq!(needed(&spec, total), want, "{spec}");
        }
    }
}
