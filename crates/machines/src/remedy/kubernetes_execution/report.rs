//! The status in the making: what people and parents read on the execution, as Events say the same.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::{Gate, GateName, NewCondition, Phase, Reason, condition, text};
use pawl_api::pawl::conditions::{FROZEN, TARGET_LOCKED};
use pawl_api::remedy::kubernetes_execution::{
    APPROVERS_VERIFIED, ActionOutcome, ExecutionResults, SUCCEEDED, ValidationResults,
};
use pawl_api::remedy::{AffectedResource, KubernetesExecutionPhase, KubernetesExecutionStatus};

use super::asking::{Pause, spec_digest};
use super::job::Run;
use super::{Facts, KubernetesExecutions, Verified, later, recorded_uid};
use crate::external::Call;
use crate::held_run;
use crate::object::{Object, Reference};
use crate::plan::{Note, Plan, Step};

/// What fits `status.message`.
const MAX_MESSAGE_CHARS: usize = 32_768;
/// What fits `executionResults.errorMessage`.
const MAX_ERROR_CHARS: usize = 4096;

/// The status in the making.
pub(super) struct Report<'a> {
    pub(super) settings: &'a KubernetesExecutions,
    pub(super) facts: &'a Facts<'a>,
    pub(super) now: Timestamp,
    pub(super) status: KubernetesExecutionStatus,
    /// Verdicts reached in this decision.
    pub(super) gates: Vec<Gate>,
}

/// Why an execution does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// This must be asked first.
    Ask(Vec<Call>),
    /// Something could not be asked: the loop looks again.
    Later,
    /// A gate says no.
    No(Box<No>),
    /// A gate says: not yet. Looked at again when something changes, and at the latest then.
    Wait { gate: Gate, until: Timestamp },
}

/// A gate's no.
#[derive(Debug)]
pub(super) struct No {
    pub(super) gate: Option<Gate>,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// A word of its own for people, beside that the execution failed.
    pub(super) note: Option<Note>,
    /// What must be so on the API server itself before it is believed.
    pub(super) confirm: Vec<Step>,
}

impl Stop {
    pub(super) fn no(gate: GateName, reason: Reason, message: impl Into<String>, change: &str) -> Self {
        let message = message.into();
        let gate = Some(Gate::stopped(gate, reason, &message, change));
        Self::No(Box::new(No { gate, reason, message, note: None, confirm: Vec::new() }))
    }

    /// The same, with a word of its own for people.
    #[must_use]
    pub(super) fn noting(self, note: Note) -> Self {
        match self {
            Self::No(no) => Self::No(Box::new(No { note: Some(note), ..*no })),
            Self::Ask(_) | Self::Later | Self::Wait { .. } => self,
        }
    }
}

/// What to do where an answer is missing; where it cannot be had at all, `never` says what that means.
pub(super) fn stopped_by(pause: Pause, never: impl FnOnce(String) -> Stop) -> Stop {
    match pause {
        Pause::Ask(call) => Stop::Ask(vec![call]),
        Pause::Later => Stop::Later,
        Pause::Never(failure) => never(failure.to_string()),
    }
}

impl<'a> Report<'a> {
    pub(super) fn of(settings: &'a KubernetesExecutions, facts: &'a Facts<'a>) -> Self {
        let mut status = facts.cx.typed.status.clone().unwrap_or_default();
        status.observed_generation = facts.cx.object.meta().generation;
        Self { settings, facts, now: facts.cx.now, status, gates: Vec::new() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.status.phase.is_some_and(KubernetesExecutionPhase::is_terminal)
    }

    pub(super) fn validation(&mut self) -> &mut ValidationResults {
        self.status.validation_results.get_or_insert_default()
    }

    pub(super) fn results(&mut self) -> &mut ExecutionResults {
        self.status.execution_results.get_or_insert_default()
    }

    /// The first word.
    pub(super) fn begins(mut self) -> Plan<KubernetesExecutionStatus> {
        self.status.spec_digest = Some(spec_digest(&self.facts.cx.typed.spec));
        self.status.target = self.facts.wish.as_ref().ok().and_then(super::Wish::told);
        let told = format!("{} on {}", self.facts.cx.typed.spec.action, self.target());
        self.says(
            KubernetesExecutionPhase::Validating,
            Reason::ActionValidating,
            &format!("validates {told}"),
        );
        self.plan().note(Note::normal(Reason::ActionValidating, told))
    }

    pub(super) fn target(&self) -> String {
        self.status.target.clone().unwrap_or_else(|| "no target".to_owned())
    }

    pub(super) fn passes(&mut self, gate: Gate) {
        self.gates.push(gate);
    }

    /// What is asked before anything is said.
    pub(super) fn stops(self, stop: Stop) -> Plan<KubernetesExecutionStatus> {
        match stop {
            Stop::Ask(calls) => Plan { asks: calls, ..Plan::rest() },
            Stop::Later => Plan::rest(),
            Stop::No(no) => self.fails(*no),
            // The end of time is no time to wake at.
            Stop::Wait { gate, until } if until == Timestamp::MAX => self.plan().gate(gate),
            Stop::Wait { gate, until } => self.plan().gate(gate).wake_at(until),
        }
    }

    /// As it stands.
    pub(super) fn plan(self) -> Plan<KubernetesExecutionStatus> {
        Plan { gates: self.gates, ..Plan::rest() }.status(self.status)
    }

    /// The end, and not a good one. What was made and not let go is taken away.
    pub(super) fn fails(mut self, no: No) -> Plan<KubernetesExecutionStatus> {
        let No { gate, reason, message, note, confirm } = no;
        self.gates.extend(gate);
        self.status.outcome = Some(ActionOutcome::Failed);
        if let Some(results) =
            self.status.execution_results.as_mut().filter(|results| results.job_name.is_some())
        {
            results.error_message = text::head(message.as_str(), MAX_ERROR_CHARS);
            results.end_time.get_or_insert(Time(self.now));
        }
        self.says(KubernetesExecutionPhase::Failed, reason, &message);
        let failed = Note::warning(Reason::ExecutionFailed, format!("{reason}: {message}"));
        let mut plan = self.ends(failed);
        plan.notes.extend(note);
        plan.steps.splice(0..0, confirm);
        plan
    }

    /// The last word. The locks go with it as soon as nothing can act on the target any more.
    pub(super) fn ends(mut self, note: Note) -> Plan<KubernetesExecutionStatus> {
        self.status.completion_time = Some(Time(self.now));
        condition::remove(&mut self.status.conditions, TARGET_LOCKED);
        condition::remove(&mut self.status.conditions, FROZEN);
        let held = self.held().map(held_run::delete);
        let release = if held.is_some() { Vec::new() } else { self.release() };
        let mut plan = self.plan().note(note);
        plan.steps.extend(held);
        plan.steps.extend(release);
        plan
    }

    /// The Job that was created and not started.
    fn held(&self) -> Option<&'a Object> {
        let own = self.facts.run.own().filter(|run| held_run::is_held(run) && !run.is_deleting());
        own.map(AsRef::as_ref)
    }

    /// Steps that let go of the locks; none while the Job may act, or where nothing is held.
    pub(super) fn release(&self) -> Vec<Step> {
        let facts = self.facts;
        let confirm =
            facts.run.confirm_ended(&self.run_reference(), facts.pods.iter().any(super::job::may_act));
        let Some(confirm) = confirm.filter(|_| !facts.locks.held().is_empty()) else { return Vec::new() };
        confirm.into_iter().chain(facts.locks.release()).collect()
    }

    /// The Job of the attempt: the one that was recorded, or else whichever is made.
    pub(super) fn run_reference(&self) -> Reference {
        let key =
            super::job::key(&self.settings.executor.namespace, self.facts.cx.object.uid(), self.attempt());
        let uid = recorded_uid(Some(&self.status)).unwrap_or_default().to_owned();
        Reference { kind: crate::cluster::job::JOB, key, uid }
    }

    pub(super) fn attempt(&self) -> i32 {
        self.status.attempt.unwrap_or_default()
    }

    /// How long one attempt may take.
    pub(super) fn timeout(&self) -> std::time::Duration {
        let spec = &self.facts.cx.typed.spec;
        let usual = crate::remedy::action::definition(spec.action).timeout;
        spec.timeout.unwrap_or(usual).get().max(std::time::Duration::from_secs(1))
    }

    /// Writes down which Job it is, and since when.
    pub(super) fn records(&mut self, object: &Object) {
        self.status.attempt = Some(self.attempt());
        self.status.job_ref = Some(object.object_ref());
        self.begins_its_time();
        let results = self.results();
        results.job_name = Some(object.name().to_owned());
        results.end_time = None;
        results.duration = None;
        results.error_message = String::new();
        condition::remove(&mut self.status.conditions, TARGET_LOCKED);
    }

    /// A Job's time is what it has from the moment it is let go: what it was held for is not taken from it. Says whether it
    /// begins anew, for by now it would be over too soon.
    pub(super) fn renews_its_time(&mut self) -> bool {
        let needed = later(self.now, self.timeout());
        let enough = self.status.execution_deadline.as_ref().is_some_and(|at| needed <= at.0);
        if !enough {
            self.begins_its_time();
        }
        !enough
    }

    fn begins_its_time(&mut self) {
        let (now, deadline) = (self.now, later(later(self.now, self.timeout()), super::executing::GRACE));
        self.status.execution_deadline = Some(Time(deadline));
        self.results().start_time = Some(Time(now));
    }

    /// Where what is about to change stands, in the words of `before`.
    pub(super) fn before(&mut self, before: &[AffectedResource]) {
        self.results().resources_affected = before.iter().take(MAX_AFFECTED).cloned().collect();
    }

    /// And in those of `after`.
    pub(super) fn after(&mut self, after: &[AffectedResource]) {
        let affected = &mut self.results().resources_affected;
        for now in after {
            let same = |one: &AffectedResource| {
                (&one.kind, &one.namespace, &one.name) == (&now.kind, &now.namespace, &now.name)
            };
            match affected.iter().position(same).and_then(|at| affected.get_mut(at)) {
                Some(one) => one.after.clone_from(&now.before),
                None => {
                    let after = now.before.clone();
                    affected.push(AffectedResource { after, before: String::new(), ..now.clone() });
                }
            }
        }
        affected.truncate(MAX_AFFECTED);
    }

    /// Whether approvals can count at all, for people to see while they are waited for.
    pub(super) fn tells_of_verification(&mut self) {
        let new = match &self.facts.verified {
            Verified::Yes => NewCondition::yes(
                APPROVERS_VERIFIED,
                Reason::Valid,
                "the API server checks that an approver is who creates the Approval",
            ),
            Verified::No(why) => NewCondition::no(
                APPROVERS_VERIFIED,
                Reason::ApproverUnverified,
                format!("approvals do not count, for nothing checks who makes them: {why}"),
            ),
        };
        self.condition(new);
    }

    pub(super) fn says(&mut self, phase: KubernetesExecutionPhase, reason: Reason, message: &str) {
        self.condition(match phase {
            KubernetesExecutionPhase::Validating
            | KubernetesExecutionPhase::Validated
            | KubernetesExecutionPhase::WaitingApproval
            | KubernetesExecutionPhase::Executing => NewCondition::unknown(SUCCEEDED, reason, message),
            KubernetesExecutionPhase::RollbackReady | KubernetesExecutionPhase::Completed => {
                NewCondition::yes(SUCCEEDED, reason, message)
            }
            KubernetesExecutionPhase::Failed => NewCondition::no(SUCCEEDED, reason, message),
        });
        self.status.phase = Some(phase);
        self.status.reason = Some(reason.into());
        self.status.message = Some(text::head(message, MAX_MESSAGE_CHARS));
    }

    pub(super) fn condition(&mut self, new: NewCondition) {
        condition::set(&mut self.status.conditions, new, self.facts.cx.object.meta().generation, self.now);
    }
}

/// What fits `executionResults.resourcesAffected`.
const MAX_AFFECTED: usize = 128;

impl Facts<'_> {
    /// The Job, if this execution made it.
    pub(super) fn ours(&self) -> Option<Run> {
        self.run.own().map(Run::read)
    }
}
