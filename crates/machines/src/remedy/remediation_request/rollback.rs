//! What is taken back when a plan fails, in which order, and how far is that?
//!
//! What was done last is taken back first, one at a time: an earlier step may be what a later one stands on. The step that
//! failed is taken back too, where it had changed something. Each is an execution of its own, with all its gates.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use pawl_api::meta::{Phase as _, Reason};
use pawl_api::remedy::kubernetes_execution::{self, rollback_name};
use pawl_api::remedy::remediation_request::RollbackStrategy;
use pawl_api::remedy::{KubernetesExecution, KubernetesExecutionPhase, RemediationRequest, annotations};
use serde_json::{Map, Value, json};

use super::steps::{Stepped, Steps};
use super::{Facts, beside, marks, reference};
use crate::json;
use crate::object::Object;
use crate::plan::{Note, Step};
use crate::remedy::kubernetes_execution::rollback;
use crate::view::View;

/// How often a rollback that never got its turn is asked for: with the usual `lockTimeout` for half an hour, as long as a
/// request usually lets one of its steps run. Whoever holds a target that long is for a person to look at.
const MAX_ATTEMPTS: i32 = 3;

/// A step that is to be taken back.
#[derive(Debug)]
pub(super) struct Rollback {
    /// The step.
    pub(super) step: String,
    /// What it did.
    of: Arc<KubernetesExecution>,
    /// What takes it back, once there is one: the latest.
    child: Option<(Arc<Object>, Option<Arc<KubernetesExecution>>)>,
    /// Which that is, from 1; 0 while there is none.
    attempt: i32,
}

/// How far taking back is.
pub(super) enum Course {
    /// Nothing is to be taken back, or all of it was.
    Over,
    /// This one is next: what makes it, and what it is called.
    Next { create: Box<Step>, step: String, name: String },
    /// One is going on; `approving`: people are asked about it.
    Going { approving: bool },
    /// It cannot go on: a person must look.
    Stuck(String),
}

impl Rollback {
    pub(super) fn is_begun(&self) -> bool {
        self.child.is_some()
    }

    pub(super) fn is_going(&self) -> bool {
        self.child.is_some() && !self.phase().is_some_and(KubernetesExecutionPhase::is_terminal)
    }

    pub(super) fn object(&self) -> Option<&Arc<Object>> {
        self.child.as_ref().map(|(object, _)| object)
    }

    /// What takes it back is called, the so-manieth time.
    fn name(&self, attempt: i32) -> String {
        let meta = &self.of.metadata;
        rollback_name(
            meta.name.as_deref().unwrap_or_default(),
            meta.uid.as_deref().unwrap_or_default(),
            attempt,
        )
    }

    /// Finds the latest that takes it back. Only ours are there: whoever else does it gives it another name.
    fn find(&mut self, view: &dyn View, me: &Object) {
        for attempt in 1..=MAX_ATTEMPTS {
            let found = view.get(&kubernetes_execution::KIND, &beside(me, &self.name(attempt)));
            let Some(object) = found.filter(|one| one.is_controlled_by(me)) else { return };
            self.attempt = attempt;
            self.child = Some((Arc::clone(&object), object.parse().ok()));
        }
    }

    /// Whether it ended before anything was done, for want of the target alone, and may be asked for once more.
    fn is_worth_another(&self) -> bool {
        let status = self.child.as_ref().and_then(|(_, typed)| typed.as_ref()?.status.as_ref());
        let reason = status.and_then(|status| status.reason.as_deref());
        reason == Some(Reason::LockTimeout.as_str()) && self.attempt < MAX_ATTEMPTS
    }

    fn phase(&self) -> Option<KubernetesExecutionPhase> {
        self.child.as_ref()?.1.as_ref()?.status.as_ref()?.phase
    }
}

/// What is to be taken back, the newest first.
pub(super) fn observe(
    view: &dyn View,
    me: &Object,
    request: &RemediationRequest,
    steps: &Steps,
) -> Vec<Rollback> {
    let failed = steps.iter().any(|step| step.failed().is_some());
    let wanted = request.spec.rollback_strategy == RollbackStrategy::Automatic && !request.spec.dry_run;
    if !failed || !wanted {
        return Vec::new();
    }
    let rollbacks = begun(request, steps).into_iter().map(|(step, action)| {
        let step = step.step.name.clone();
        let mut rollback = Rollback { step, of: Arc::clone(action), child: None, attempt: 0 };
        rollback.find(view, me);
        rollback
    });
    // Once it was taken back, it offers that no more.
    rollbacks.filter(|rollback| rollback.is_begun() || is_offered(&rollback.of)).collect()
}

/// The executions that a person may take back, the newest first. One that is being taken back, or was, is not offered; one
/// whose rollback failed is.
pub(super) fn offers(
    view: &dyn View,
    me: &Object,
    request: &RemediationRequest,
    steps: &Steps,
) -> Vec<String> {
    if request.spec.rollback_strategy != RollbackStrategy::Manual || request.spec.dry_run {
        return Vec::new();
    }
    let is_taken = |action: &KubernetesExecution| {
        let information = action.status.as_ref().and_then(|status| status.rollback_information.as_ref());
        let by = information.and_then(|information| information.rolled_back_by.as_deref());
        let found = by.and_then(|name| view.get(&kubernetes_execution::KIND, &beside(me, name)));
        let phase = found.and_then(|one| one.parse::<KubernetesExecution>().ok()?.status.as_ref()?.phase);
        by.is_some() && phase != Some(KubernetesExecutionPhase::Failed)
    };
    let offered =
        begun(request, steps).into_iter().filter(|(_, action)| is_offered(action) && !is_taken(action));
    offered.filter_map(|(_, action)| action.metadata.name.clone()).collect()
}

fn is_offered(action: &KubernetesExecution) -> bool {
    let information = action.status.as_ref().and_then(|status| status.rollback_information.as_ref());
    information.is_some_and(|information| information.available)
}

/// The steps whose action began, the newest first: an action that never began has changed nothing.
fn begun<'a>(
    request: &RemediationRequest,
    steps: &'a Steps,
) -> Vec<(&'a Stepped, &'a Arc<KubernetesExecution>)> {
    let done = steps.iter().filter_map(|step| Some((step, step.child.as_ref()?.action()?)));
    let mut begun: Vec<_> = done
        .filter(|(_, action)| action.status.as_ref().is_some_and(|status| status.job_ref.is_some()))
        .collect();
    let depths = depths(request);
    // Times are of whole seconds: what depends on another came after it, whatever they say.
    begun.sort_by_key(|(step, action)| {
        let ended = action.status.as_ref().and_then(|status| status.completion_time.as_ref()).map(|at| at.0);
        Reverse((ended, depths.get(step.step.name.as_str()).copied().unwrap_or_default()))
    });
    begun
}

/// How many steps stand below each, one on the other.
fn depths(request: &RemediationRequest) -> BTreeMap<&str, usize> {
    let steps = &request.spec.plan.steps;
    let mut depths: BTreeMap<&str, usize> = BTreeMap::new();
    // A chain is at most as long as the plan.
    for _ in 0..steps.len() {
        for step in steps {
            let below = step.depends_on.iter().filter_map(|name| depths.get(name.as_str())).max();
            let depth = below.map_or(0, |below| below.saturating_add(1));
            depths.insert(&step.name, depth);
        }
    }
    depths
}

/// How far it is.
pub(super) fn course(facts: &Facts<'_>) -> Course {
    for rollback in &facts.rollbacks {
        match rollback.phase() {
            _ if rollback.child.is_none() => return next(facts, rollback),
            Some(KubernetesExecutionPhase::RollbackReady | KubernetesExecutionPhase::Completed) => {}
            Some(KubernetesExecutionPhase::Failed) if rollback.is_worth_another() => {
                return next(facts, rollback);
            }
            Some(KubernetesExecutionPhase::Failed) => {
                let status = rollback.child.as_ref().and_then(|(_, typed)| typed.as_ref()?.status.clone());
                let why = status.and_then(|status| status.message).unwrap_or_default();
                return Course::Stuck(format!("step {} could not be taken back: {why}", rollback.step));
            }
            phase @ (None
            | Some(
                KubernetesExecutionPhase::Validating
                | KubernetesExecutionPhase::Validated
                | KubernetesExecutionPhase::WaitingApproval
                | KubernetesExecutionPhase::Executing,
            )) => {
                return Course::Going { approving: phase == Some(KubernetesExecutionPhase::WaitingApproval) };
            }
        }
    }
    Course::Over
}

fn next(facts: &Facts<'_>, rollback: &Rollback) -> Course {
    let me = facts.cx.object;
    let more: Map<String, Value> = Map::from_iter([("remediationRequestRef".to_owned(), reference(me))]);
    let requested_by = facts.cx.typed.spec.requested_by.as_deref();
    let attempt = rollback.attempt.saturating_add(1);
    match rollback::manifest(&rollback.of, requested_by, attempt, more) {
        Err(impossible) => Course::Stuck(format!("step {}: {impossible}", rollback.step)),
        Ok(mut manifest) => {
            json::merge(&mut manifest, json!({"metadata": {"labels": marks(me, &rollback.step)}}));
            let create = Step::create_child(me, kubernetes_execution::KIND, manifest);
            Course::Next {
                create: Box::new(create),
                step: rollback.step.clone(),
                name: rollback.name(attempt),
            }
        }
    }
}

/// That a step is taken back, for people.
pub(super) fn note(step: &str) -> Note {
    Note::normal(Reason::RollbackStarted, format!("step {step} is taken back"))
}

/// Ends the offers of a rollback: the plan succeeded as a whole.
pub(super) fn finalize(facts: &Facts<'_>) -> Vec<Step> {
    let offered = facts.steps.iter().filter_map(|step| step.child.as_ref()).filter(|child| {
        let phase = child.action().and_then(|action| action.status.as_ref()?.phase);
        phase == Some(KubernetesExecutionPhase::RollbackReady)
            && child.object.annotation(annotations::FINALIZE).is_none()
            && !child.object.is_deleting()
    });
    let why = format!("RemediationRequest {} is done", facts.cx.object.name());
    offered
        .map(|child| {
            Step::patch(&child.object, json!({"metadata": {"annotations": {annotations::FINALIZE: why}}}))
        })
        .collect()
}
