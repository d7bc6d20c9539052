//! How do the steps of a plan stand, as their executions say? And whose turn is it on a target that became free?

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pawl_api::meta::{Kind, Phase, Reason, Target};
use pawl_api::pawl::labels::TARGET_HASH;
use pawl_api::remedy::remediation_request::{self, Step as PlanStep, child_name};
use pawl_api::remedy::{
    KubernetesExecution, KubernetesExecutionPhase, RemediationPhase, RemediationRequest, WorkflowExecution,
    WorkflowExecutionPhase, kubernetes_execution, workflow_execution,
};

use super::{BUSY_RETRY, LONGEST_BUSY_RETRY, beside, later, phase_of, target_of};
use crate::backoff;
use crate::lock::{self, LEASE, Lock, Place};
use crate::object::{Key, Object};
use crate::view::View;

/// The steps, in the order of the plan.
#[derive(Debug)]
pub(super) struct Steps {
    steps: Vec<Stepped>,
    /// All executions of all attempts.
    pub(super) children: Vec<Arc<Object>>,
}

/// One step.
#[derive(Debug)]
pub(super) struct Stepped {
    pub(super) step: PlanStep,
    /// The attempt that is the newest, from 1; 0 before there is one.
    pub(super) attempt: i32,
    /// Its execution.
    pub(super) child: Option<Child>,
    pub(super) standing: Standing,
    /// Whether the lock of its target is free, and nobody who came earlier waits for it.
    free: bool,
}

/// The execution of a step.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) object: Arc<Object>,
    pub(super) typed: Typed,
}

/// What kind of execution it is.
#[derive(Clone, Debug)]
pub(super) enum Typed {
    Workflow(Arc<WorkflowExecution>),
    Action(Arc<KubernetesExecution>),
    /// It does not have the shape of its kind.
    Malformed,
}

impl Child {
    fn read(object: Arc<Object>) -> Self {
        let typed = if *object.kind() == kubernetes_execution::KIND {
            object.parse().map(Typed::Action)
        } else {
            object.parse().map(Typed::Workflow)
        };
        Self { typed: typed.unwrap_or(Typed::Malformed), object }
    }

    /// The action, where it is one.
    pub(super) fn action(&self) -> Option<&Arc<KubernetesExecution>> {
        match &self.typed {
            Typed::Action(action) => Some(action),
            Typed::Workflow(_) | Typed::Malformed => None,
        }
    }
}

/// The kind of the execution that a step leads to.
pub(super) fn kind_of(step: &PlanStep) -> Kind {
    if step.action.is_some() { kubernetes_execution::KIND } else { workflow_execution::KIND }
}

/// Where a step is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Something that it depends on is not done.
    Waiting,
    /// It may be started.
    Ready,
    Going,
    /// People are asked about it.
    Approving,
    Done,
    /// It was not run, and may be later.
    Blocked(Blocked),
    Failed(Failed),
}

/// Why a step was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) reason: String,
    pub(super) message: String,
    since: Timestamp,
    /// When it may be tried again, if its execution said so.
    until: Option<Timestamp>,
}

/// How a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether a person must look at the target.
    pub(super) review: bool,
}

impl Steps {
    pub(super) fn observe(
        view: &dyn View,
        system_namespace: &str,
        me: &Object,
        request: &RemediationRequest,
        target: Option<&Target>,
    ) -> Self {
        let steps = &request.spec.plan.steps;
        let mut stepped: Vec<Stepped> = steps
            .iter()
            .map(|step| {
                let attempt = newest_attempt(view, me, request, step);
                let child = (attempt > 0).then(|| child_name(me.name(), me.uid(), &step.name, attempt));
                let child =
                    child.and_then(|name| view.get(&kind_of(step), &beside(me, &name))).map(Child::read);
                let standing = of_child(attempt, child.as_ref());
                // What a workflow would do can only be told.
                let told = request.spec.dry_run && step.workflow.is_some();
                let standing = if told && standing == Standing::Ready { Standing::Done } else { standing };
                let aim = step.workflow.as_ref().and_then(|workflow| target_of(workflow, target));
                let busy = is_busy(&standing);
                let free = busy && aim.is_some_and(|aim| is_our_turn(view, system_namespace, me, &aim));
                Stepped { step: step.clone(), attempt, child, standing, free }
            })
            .collect();
        let done: BTreeSet<String> = stepped
            .iter()
            .filter(|step| step.standing == Standing::Done)
            .map(|step| step.step.name.clone())
            .collect();
        for step in &mut stepped {
            if step.standing == Standing::Ready
                && !step.step.depends_on.iter().all(|name| done.contains(name))
            {
                step.standing = Standing::Waiting;
            }
        }
        let mut children = view.owned(&workflow_execution::KIND, me.uid());
        children.extend(view.owned(&kubernetes_execution::KIND, me.uid()));
        Self { steps: stepped, children }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stepped> {
        self.steps.iter()
    }

    pub(super) fn none_started(&self) -> bool {
        self.steps.iter().all(|step| step.attempt == 0)
    }
}

impl Stepped {
    /// Whether a person must look at what this step works on if it ends here.
    pub(super) fn needs_review(&self) -> bool {
        let running = || match self.child.as_ref().map(|child| &child.typed) {
            Some(Typed::Workflow(typed)) => {
                typed.status.as_ref().and_then(|status| status.phase) == Some(WorkflowExecutionPhase::Running)
            }
            Some(Typed::Action(typed)) => {
                typed.status.as_ref().is_some_and(|status| status.job_ref.is_some())
            }
            Some(Typed::Malformed) | None => false,
        };
        self.failed().map_or_else(|| self.standing == Standing::Going && running(), |failed| failed.review)
    }

    /// Whether its execution may still do something, or be let do it.
    pub(super) fn is_going(&self) -> bool {
        matches!(self.standing, Standing::Going | Standing::Approving)
    }

    /// Whether its action is done, and only its postconditions are awaited.
    pub(super) fn is_verifying(&self) -> bool {
        let status =
            self.child.as_ref().and_then(|child| child.action()).and_then(|action| action.status.as_ref());
        self.standing == Standing::Going
            && status.is_some_and(|status| status.postcondition_deadline.is_some())
    }

    pub(super) fn failed(&self) -> Option<&Failed> {
        if let Standing::Failed(failed) = &self.standing { Some(failed) } else { None }
    }

    pub(super) fn blocked(&self) -> Option<&Blocked> {
        if let Standing::Blocked(blocked) = &self.standing { Some(blocked) } else { None }
    }

    /// Whether a blocked step is tried again: when its time has come, or when its target became free.
    pub(super) fn may_retry(&self, now: Timestamp) -> bool {
        self.free || self.retried_at().is_some_and(|at| at <= now)
    }

    /// When a blocked step is tried again at the latest.
    pub(super) fn retried_at(&self) -> Option<Timestamp> {
        let Blocked { since, until, .. } = self.blocked()?;
        let attempts = u32::try_from(self.attempt).unwrap_or_default();
        let patience: Duration = backoff::doubling(BUSY_RETRY, attempts, LONGEST_BUSY_RETRY);
        Some(until.unwrap_or_else(|| later(*since, patience)))
    }
}

/// Those who wait for the target whose lock this is, once it is free.
pub(super) fn who_waits(lease: &Object, view: &dyn View) -> Vec<Key> {
    let Some(hash) = lock::target_hash(lease) else { return Vec::new() };
    if lock::read(view.get(&LEASE, &lease.key()).as_ref()) != Lock::Free {
        return Vec::new();
    }
    let waiting = waiting_for(view, hash).into_iter();
    let keys: BTreeSet<Key> = waiting.map(|(_, request)| request.key()).collect();
    keys.into_iter().collect()
}

/// The attempt whose execution is the newest. What a status says of it may be older than what was made.
fn newest_attempt(view: &dyn View, me: &Object, request: &RemediationRequest, step: &PlanStep) -> i32 {
    let said = request
        .status
        .as_ref()
        .and_then(|status| status.steps.iter().find(|one| one.name == step.name).map(|one| one.attempt));
    let is_there = |attempt: i32| {
        let name = child_name(me.name(), me.uid(), &step.name, attempt);
        view.get(&kind_of(step), &beside(me, &name)).is_some_and(|child| child.is_controlled_by(me))
    };
    let mut attempt = said.unwrap_or_default();
    while is_there(attempt.saturating_add(1)) && attempt < i32::MAX {
        attempt = attempt.saturating_add(1);
    }
    attempt
}

fn of_child(attempt: i32, child: Option<&Child>) -> Standing {
    let Some(child) = child else {
        // It was made; somebody deleted it, or this cache has not seen it yet.
        let gone = || failed("Deleted", "its execution is gone".to_owned(), true);
        return if attempt == 0 { Standing::Ready } else { gone() };
    };
    match &child.typed {
        Typed::Malformed => {
            failed("Malformed", format!("{} does not have its shape", child.object.reference()), true)
        }
        Typed::Workflow(typed) => of_workflow(&child.object, typed),
        Typed::Action(typed) => of_action(typed),
    }
}

fn failed(reason: &str, message: String, review: bool) -> Standing {
    Standing::Failed(Failed { reason: reason.to_owned(), message, review })
}

fn of_action(typed: &KubernetesExecution) -> Standing {
    let Some(status) = &typed.status else { return Standing::Going };
    match status.phase {
        None
        | Some(
            KubernetesExecutionPhase::Validating
            | KubernetesExecutionPhase::Validated
            | KubernetesExecutionPhase::Executing,
        ) => Standing::Going,
        Some(KubernetesExecutionPhase::WaitingApproval) => Standing::Approving,
        Some(KubernetesExecutionPhase::RollbackReady | KubernetesExecutionPhase::Completed) => Standing::Done,
        Some(KubernetesExecutionPhase::Failed) => {
            let reason = status.reason.clone().unwrap_or_default();
            failed(&reason, status.message.clone().unwrap_or_default(), status.job_ref.is_some())
        }
    }
}

fn of_workflow(object: &Object, typed: &WorkflowExecution) -> Standing {
    let Some(status) = &typed.status else { return Standing::Going };
    let reason = status.reason.clone().unwrap_or_default();
    let message = status.message.clone().unwrap_or_default();
    match status.phase {
        None | Some(WorkflowExecutionPhase::Pending | WorkflowExecutionPhase::Running) => Standing::Going,
        Some(WorkflowExecutionPhase::Completed) => Standing::Done,
        Some(WorkflowExecutionPhase::Failed) => {
            let review =
                status.failure_details.as_ref().is_some_and(|details| details.requires_manual_review);
            failed(&reason, message, review)
        }
        Some(WorkflowExecutionPhase::Skipped) => {
            let passes =
                [Reason::ResourceBusy, Reason::RecentlyRemediated, Reason::BackingOff, Reason::Frozen];
            if !passes.iter().any(|one| one.as_str() == reason) {
                return failed(&reason, message, true);
            }
            let at = status.completion_time.clone().or_else(|| object.meta().creation_timestamp);
            let since = at.map_or(Timestamp::UNIX_EPOCH, |at| at.0);
            let until = status.next_allowed_execution.as_ref().map(|at| at.0);
            Standing::Blocked(Blocked { reason, message, since, until })
        }
    }
}

fn is_busy(standing: &Standing) -> bool {
    matches!(standing, Standing::Blocked(blocked) if blocked.reason == Reason::ResourceBusy.as_str())
}

/// Whether a target is free, nothing else is about to take it, and no earlier request waits for it: of a hundred that
/// wait, one goes when the lock is let go of.
fn is_our_turn(view: &dyn View, system_namespace: &str, me: &Object, target: &Target) -> bool {
    let lease = view.get(&LEASE, &lock::key(system_namespace, target));
    if lock::read(lease.as_ref()) != Lock::Free {
        return false;
    }
    let hash = target.short_hash();
    let on_target = view.labelled(&workflow_execution::KIND, TARGET_HASH, &hash);
    if on_target.iter().any(is_live) {
        return false;
    }
    let mine = Place::of(me, None);
    waiting_for(view, &hash).iter().all(|(place, request)| request.uid() == me.uid() || mine < *place)
}

fn is_live(object: &Arc<Object>) -> bool {
    let phase = object.parse::<WorkflowExecution>().ok().and_then(|typed| typed.status.as_ref()?.phase);
    !phase.is_some_and(WorkflowExecutionPhase::is_terminal)
}

/// The requests whose newest execution on a target was skipped because it was taken.
fn waiting_for(view: &dyn View, hash: &str) -> Vec<(Place, Arc<Object>)> {
    let executions = view.labelled(&workflow_execution::KIND, TARGET_HASH, hash).into_iter();
    let waiting = executions.filter_map(|execution| {
        let typed = execution.parse::<WorkflowExecution>().ok()?;
        let reason = typed.status.as_ref()?.reason.as_deref()?;
        let owner = execution.controller().filter(|owner| owner.kind == remediation_request::KIND.kind)?;
        if reason != Reason::ResourceBusy.as_str() {
            return None;
        }
        let request = view.get(&remediation_request::KIND, &beside(&execution, &owner.name))?;
        let typed = request.parse::<RemediationRequest>().ok()?;
        let steps = &typed.status.as_ref()?.steps;
        let newest = steps
            .iter()
            .any(|step| step.child_ref.as_ref().is_some_and(|child| child.name == execution.name()));
        let over = phase_of(&typed).is_none_or(RemediationPhase::is_terminal);
        (newest && !over && request.uid() == owner.uid).then(|| (Place::of(&request, None), request))
    });
    waiting.collect()
}
