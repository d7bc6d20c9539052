//! How is one execution taken back by another: what that one is, whether it still fits, and how both know of each other?
//!
//! A rollback is an execution like any other, and passes the same gates. Beside them it must be exactly what the first one
//! says would take it back, and the target must still be what the first one made of it: whatever came later would be lost.

use std::sync::Arc;

use pawl_api::meta::{GateName, Phase as _, Reason};
use pawl_api::remedy::kubernetes_execution::{self, ActionOutcome};
use pawl_api::remedy::{
    KubernetesExecution, KubernetesExecutionPhase, KubernetesExecutionSpec, annotations, labels,
};
use serde_json::{Map, Value, json};

use super::Facts;
use super::executing::is_retry;
use super::report::{Report, Stop, stopped_by};
use crate::object::{Key, Object};
use crate::plan::Note;
use crate::remedy::action::Order;
use crate::view::View;

/// Why an execution cannot be taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    #[error("KubernetesExecution {0} has changed nothing yet, and may still: it is {1}")]
    NotOver(String, &'static str),
    #[error("KubernetesExecution {0} changed nothing")]
    NothingDone(String),
    #[error("KubernetesExecution {0} cannot be taken back: {1}")]
    Unavailable(String, String),
}

/// The execution that takes another one back, as a manifest. `attempt` counts from 1; `more` goes into its spec.
///
/// # Errors
/// When there is nothing to take back, or no way to.
pub fn manifest(
    of: &KubernetesExecution,
    requested_by: Option<&str>,
    attempt: i32,
    more: Map<String, Value>,
) -> Result<Value, Impossible> {
    let name = of.metadata.name.clone().unwrap_or_default();
    let uid = of.metadata.uid.clone().unwrap_or_default();
    let status = of.status.as_ref();
    let phase = status.and_then(|status| status.phase).unwrap_or(KubernetesExecutionPhase::Validating);
    if !phase.is_terminal() {
        return Err(Impossible::NotOver(name, phase.as_str()));
    }
    let Some(information) = status.and_then(|status| status.rollback_information.as_ref()) else {
        return Err(Impossible::NothingDone(name));
    };
    let (true, Some(action)) = (information.available, information.rollback_action) else {
        let why = information.unavailable_reason.clone();
        return Err(Impossible::Unavailable(
            name,
            if why.is_empty() { "nobody knows how".to_owned() } else { why },
        ));
    };
    let mut spec = Map::from_iter([
        ("action".to_owned(), json!(action)),
        ("parameters".to_owned(), Value::Object(information.rollback_parameters.clone())),
    ]);
    // Whoever gave the way there so much time and so many tries gives them to the way back.
    let KubernetesExecutionSpec { timeout, lock_timeout, max_retries, .. } = &of.spec;
    spec.extend([
        ("lockTimeout".to_owned(), json!(lock_timeout)),
        ("maxRetries".to_owned(), json!(max_retries)),
    ]);
    spec.extend(timeout.map(|timeout| ("timeout".to_owned(), json!(timeout))));
    if let Some(requested_by) = requested_by {
        spec.insert("requestedBy".to_owned(), json!(requested_by));
    }
    spec.extend(more);
    let kind = kubernetes_execution::KIND;
    Ok(json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {
            "name": kubernetes_execution::rollback_name(&name, &uid, attempt),
            "namespace": of.metadata.namespace,
            "labels": {labels::ROLLBACK_OF: uid},
            "annotations": {annotations::ROLLBACK_OF: name},
        },
        "spec": spec,
    }))
}

/// The execution that this one says it takes back, if it is there.
pub(super) fn undone(view: &dyn View, me: &Object) -> Option<Arc<KubernetesExecution>> {
    let (name, uid) = (me.annotation(annotations::ROLLBACK_OF)?, me.label(labels::ROLLBACK_OF)?);
    let found = view.get(&kubernetes_execution::KIND, &Key::new(me.namespace(), name))?;
    if found.uid() == uid { found.parse().ok() } else { None }
}

/// Those that say that they take this one back, the oldest first.
pub(super) fn of(view: &dyn View, me: &Object) -> Vec<Arc<Object>> {
    let named = view.labelled(&kubernetes_execution::KIND, labels::ROLLBACK_OF, me.uid()).into_iter();
    let mut ours: Vec<Arc<Object>> = named
        .filter(|one| {
            one.namespace() == me.namespace() && one.annotation(annotations::ROLLBACK_OF) == Some(me.name())
        })
        .collect();
    ours.sort_by_key(|one| (one.created_at(), one.uid().to_owned()));
    ours
}

/// What is wrong with an execution that says it is a rollback. Whoever is none may not say so: what the other one kept may
/// be secret.
pub(super) fn problem(facts: &Facts<'_>) -> Result<(), String> {
    let says = facts.order.undoes.is_some() || facts.cx.object.annotation(annotations::ROLLBACK_OF).is_some();
    if !says {
        return Ok(());
    }
    let Some(first) = &facts.undone else {
        return Err(format!(
            "label {} and annotation {}: there is no such KubernetesExecution in this namespace",
            labels::ROLLBACK_OF,
            annotations::ROLLBACK_OF
        ));
    };
    let expected = manifest(first, None, 1, Map::new()).map_err(|impossible| impossible.to_string())?;
    let spec = &facts.cx.typed.spec;
    let same = expected.pointer("/spec/action") == Some(&json!(spec.action))
        && expected.pointer("/spec/parameters").map(ToString::to_string).as_deref()
            == Some(&*facts.order.parameters);
    if same {
        Ok(())
    } else {
        let name = first.metadata.name.as_deref().unwrap_or_default();
        Err(format!("spec: action and parameters are not those that take back KubernetesExecution {name}"))
    }
}

/// Whether the target is still what the first execution made of it.
pub(super) fn fresh(report: &Report<'_>) -> Result<(), Stop> {
    let facts = report.facts;
    let Some(first) = facts.undone.as_deref().filter(|_| !is_retry(report)) else { return Ok(()) };
    let name = first.metadata.name.clone().unwrap_or_default();
    let refused = |message: String| {
        Stop::no(GateName::Validate, Reason::PreconditionFailed, &message, "a change by hand")
            .noting(Note::warning(Reason::RollbackRefused, message))
    };
    let looked = facts.look_at(&order_of(first)).map_err(|pause| stopped_by(pause, refused))?;
    let status = first.status.clone().unwrap_or_default();
    let left = status.rollback_information.and_then(|information| information.changed_digest);
    let Some(left) = left else {
        return Err(refused(format!("nobody looked at what {name} left behind: a person must")));
    };
    if left == looked.digest {
        return Ok(());
    }
    let affected = status.execution_results.map(|results| results.resources_affected).unwrap_or_default();
    let mut differences = Vec::new();
    for now in &looked.described {
        let was = affected
            .iter()
            .find(|one| (&one.kind, &one.namespace, &one.name) == (&now.kind, &now.namespace, &now.name));
        let was = was.map(|one| one.after.as_str()).unwrap_or("unknown");
        if was != now.before {
            differences.push(format!(
                "{} {}/{}: {name} left {was:?}, and it is {:?}",
                now.kind, now.namespace, now.name, now.before
            ));
        }
    }
    let told = if differences.is_empty() {
        "in what its words do not show".to_owned()
    } else {
        differences.join("; ")
    };
    Err(refused(format!("the target changed since {name}: {told}")))
}

/// The order that an execution was.
fn order_of(first: &KubernetesExecution) -> Order {
    let parameters = super::asking::canonical(&first.spec.parameters).into();
    let undoes = first.metadata.labels.as_ref().and_then(|labels| labels.get(labels::ROLLBACK_OF).cloned());
    Order {
        execution: Key::new(
            first.metadata.namespace.as_deref(),
            first.metadata.name.as_deref().unwrap_or_default(),
        ),
        uid: first.metadata.uid.clone().unwrap_or_default(),
        action: first.spec.action,
        parameters,
        undoes,
    }
}

/// How a rollback stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Going,
    Done,
    Failed,
}

pub(super) fn standing(rollback: &Object) -> Standing {
    let status =
        rollback.parse::<KubernetesExecution>().ok().and_then(|one| one.status.clone()).unwrap_or_default();
    match status.phase {
        Some(KubernetesExecutionPhase::RollbackReady | KubernetesExecutionPhase::Completed) => {
            match status.outcome {
                Some(ActionOutcome::Success | ActionOutcome::PartialSuccess) => Standing::Done,
                Some(ActionOutcome::Failed) | None => Standing::Failed,
            }
        }
        Some(KubernetesExecutionPhase::Failed) => Standing::Failed,
        Some(
            KubernetesExecutionPhase::Validating
            | KubernetesExecutionPhase::Validated
            | KubernetesExecutionPhase::WaitingApproval
            | KubernetesExecutionPhase::Executing,
        )
        | None => Standing::Going,
    }
}
