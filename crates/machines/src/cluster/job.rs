//! What is the next thing to do for a Job: which Pods to make or delete, what to count, when is it over?
//!
//! ```text
//! Pods run ─▶ a Pod ends ─▶ its UID stands in status.uncountedTerminatedPods
//!                           ─▶ its finalizer goes ─▶ it is counted (once, whatever crashes in between)
//! enough succeeded     ─▶ SuccessCriteriaMet ─▶ no Pod is left ─▶ Complete
//! too many failed, … ─▶ FailureTarget      ─▶ no Pod is left ─▶ Failed
//! ```
//! Statuses, reasons, messages and Events are those of Kubernetes' own Job controller, as recorded from it in
//! `job/observed.json`. Not here: adoption of Pods by labels.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::owned_pod::{MAX_AT_ONCE, OwnedPod, REFUSED_RETRY};
use crate::backoff;
use crate::machine::{Description, Machine, Watch, Write};
use crate::plan::{Note, Plan, Step};
use crate::time::later;
use crate::view::Context;

pub mod followed;
mod indexes;
pub mod orphans;
mod per_index;
mod pods;
#[cfg(test)]
mod tests;
mod verdict;

use indexes::Indexes;
use pods::Action;
use verdict::Verdict;

pub use pawl_api::k8s::{JOB, POD};

/// Keeps a Pod until its result has been counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Who a Job's `managedBy` names when it means this controller.
const MANAGER: &str = "kubernetes.io/job-controller";

/// How long a failed Pod holds up its replacement, doubling up to the longest: Kubernetes' own figures.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_mins(10);

/// Runs Jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jobs;

impl Machine for Jobs {
    type Kind = Job;
    type Status = JobStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::owned(POD)],
            writes: vec![
                Write::main(JOB, &["delete"]),
                Write::status(JOB),
                Write::main(POD, &["create", "delete", "patch"]),
            ],
            ..Description::new("job", JOB)
        }
    }

    fn is_fenced(&self) -> bool {
        true
    }

    fn reconcile(&self, cx: &Context<'_, Job>) -> Plan<JobStatus> {
        let Some(spec) = &cx.typed.spec else { return Plan::rest() };
        if spec.managed_by.as_deref().is_some_and(|manager| manager != MANAGER) {
            return Plan::rest();
        }
        let status = cx.typed.status.clone().unwrap_or_default();
        let pods = OwnedPod::all_of(cx.view, cx.object);
        if cx.object.is_deleting() {
            return release_all(&pods);
        }
        if let Some(end) = finished_at(&status) {
            return after_the_end(cx, &pods, spec, end);
        }
        Round::begin(cx, &pods, spec, status).finish()
    }
}

/// Nothing is counted any more: the Pods need not be kept for it.
fn release_all(pods: &[OwnedPod]) -> Plan<JobStatus> {
    let tracked = pods.iter().filter(|pod| pod.is_tracked());
    Plan { steps: tracked.take(MAX_AT_ONCE).map(OwnedPod::release).collect(), ..Plan::rest() }
}

fn after_the_end(
    cx: &Context<'_, Job>,
    pods: &[OwnedPod],
    spec: &JobSpec,
    end: Timestamp,
) -> Plan<JobStatus> {
    let mut plan = release_all(pods);
    // Whoever ended the Job may not have seen this Pod yet.
    let left = pods.iter().filter(|pod| pod.is_active()).take(MAX_AT_ONCE);
    plan.steps.splice(0..0, left.map(OwnedPod::delete_as_seen));
    let Some(ttl) = spec.ttl_seconds_after_finished else { return plan };
    let goes_at = later(end, seconds(i64::from(ttl)));
    if goes_at > cx.now {
        return plan.wake_at(goes_at);
    }
    plan.then(Step::delete_unchanged(cx.object).foreground())
}

/// One look at a Job that is not over.
struct Round<'a> {
    cx: &'a Context<'a, Job>,
    pods: &'a [OwnedPod],
    spec: &'a JobSpec,
    status: JobStatus,
    plan: Plan<JobStatus>,
    /// UIDs that this round's status says are ended; counted in the next, once it is written.
    uncounted: Uncounted,
    indexes: Indexes,
    /// Indexes that failed for good, where each may fail on its own.
    failed_indexes: Indexes,
    /// Failed Pods that stay uncounted until there is another for their index, which carries on their tally.
    held: BTreeSet<&'a str>,
    /// Pods whose finalizer this round takes off.
    released: BTreeSet<&'a str>,
    /// Pods that this round deletes.
    deleted: BTreeSet<&'a str>,
    created: i32,
}

#[derive(Default)]
struct Uncounted {
    succeeded: Vec<String>,
    failed: Vec<String>,
}

impl Uncounted {
    fn len(&self) -> usize {
        self.succeeded.len().saturating_add(self.failed.len())
    }
}

impl<'a> Round<'a> {
    fn begin(cx: &'a Context<'a, Job>, pods: &'a [OwnedPod], spec: &'a JobSpec, status: JobStatus) -> Self {
        let completed = status.completed_indexes.as_deref().unwrap_or_default();
        let failed = status.failed_indexes.as_deref().unwrap_or_default();
        let [indexes, failed_indexes] =
            [completed, failed].map(|text| Indexes::parse(text, spec.completions.unwrap_or_default()));
        Self {
            cx,
            pods,
            spec,
            status,
            plan: Plan::rest(),
            uncounted: Uncounted::default(),
            indexes,
            failed_indexes,
            held: BTreeSet::new(),
            released: BTreeSet::new(),
            deleted: BTreeSet::new(),
            created: 0,
        }
    }

    fn finish(mut self) -> Plan<JobStatus> {
        self.suspend_or_resume();
        self.count();
        let decided_before = self.ending().is_some();
        let verdict = self.verdict();
        match &verdict {
            // Written down before anything is done about it: nobody deletes a Pod for a deadline and then forgets why.
            Some(verdict) if !decided_before => self.record_the_running(verdict),
            Some(verdict) => {
                self.record_the_running(verdict);
                self.delete_active(usize::MAX);
            }
            None if self.is_suspended() => self.delete_active(usize::MAX),
            None => self.keep_running(),
        }
        self.report(verdict.as_ref());
        self.plan.status(self.status)
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed") && self.spec.completions.is_some()
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Whether a Pod on its way out is replaced only once it has ended.
    fn only_replaces_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    fn suspend_or_resume(&mut self) {
        let was = condition(&self.status, "Suspended").is_some_and(|one| one.status == "True");
        if self.is_suspended() && self.ending().is_none() {
            self.status.start_time = None;
            if !was {
                self.set_condition("Suspended", "True", "JobSuspended", "Job suspended");
                self.note(Note::normal("Suspended", "Job suspended"));
            }
            return;
        }
        if was {
            self.set_condition("Suspended", "False", "JobResumed", "Job resumed");
            self.note(Note::normal("Resumed", "Job resumed"));
        }
        if self.status.start_time.is_none() {
            self.status.start_time = Some(Time(self.cx.now));
        }
    }

    /// Counts what was recorded as ended before, and records what has ended since.
    fn count(&mut self) {
        let recorded = self.status.uncounted_terminated_pods.take().unwrap_or_default();
        let (succeeded, failed) =
            (recorded.succeeded.unwrap_or_default(), recorded.failed.unwrap_or_default());
        let recorded: BTreeSet<String> = succeeded.iter().chain(&failed).cloned().collect();
        // What was recorded because the Job failed is let go only once it has been deleted.
        let running: BTreeSet<&str> =
            self.active().filter(|pod| pod.is_tracked()).map(OwnedPod::uid).collect();
        let (running, failed): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|uid| running.contains(uid.as_str()));
        add(&mut self.status.succeeded, succeeded.len());
        add(&mut self.status.failed, failed.len());
        self.uncounted.failed = running;

        self.judge_indexes();
        let persisted = self.indexes.clone();
        let mut completed = Vec::new();
        for pod in self.pods.iter().filter(|pod| pod.is_tracked()) {
            let counted = if recorded.contains(pod.uid()) {
                !pod.is_active()
            } else if self.held.contains(pod.uid()) {
                false
            } else if pod.has_succeeded() && self.is_indexed() {
                let index = pod.index().filter(|index| Some(*index) < self.spec.completions);
                completed.extend(index);
                // An index is recorded in the status itself; one that cannot be is of no use to anybody.
                index.is_none_or(|index| persisted.contains(index))
            } else if self.uncounted.len() >= MAX_AT_ONCE {
                false
            } else if pod.has_succeeded() {
                self.plan.steps.push(pod.confirm_uncounted());
                self.uncounted.succeeded.push(pod.uid().to_owned());
                false
            } else if self.counts_as_failed(pod) {
                self.record_failure(pod)
            } else {
                false
            };
            if counted && self.released.len() < MAX_AT_ONCE {
                self.plan.steps.push(pod.release());
                self.released.insert(pod.uid());
            }
        }
        if let (true, Some(completions)) = (self.is_indexed(), self.spec.completions) {
            self.indexes.insert_all(completed, completions);
            self.status.succeeded = some(self.indexes.len());
            self.status.completed_indexes = Some(self.indexes.to_string()).filter(|text| !text.is_empty());
        }
    }

    fn counts_as_failed(&self, pod: &OwnedPod) -> bool {
        pod.has_failed() || (pod.is_ending() && !self.only_replaces_failed())
    }

    /// Whether the Pod needs no further record.
    fn record_failure(&mut self, pod: &OwnedPod) -> bool {
        let ignored = self.action(pod).is_some_and(|(action, _)| action == Action::Ignore);
        // Kubernetes stopped these itself: resuming must not find the back-off limit used up.
        let suspended = self.is_suspended() && pod.is_ending();
        if !ignored && !suspended {
            self.plan.steps.push(pod.confirm_uncounted());
            self.uncounted.failed.push(pod.uid().to_owned());
        }
        ignored || suspended
    }

    fn action(&self, pod: &OwnedPod) -> Option<(Action, String)> {
        pod.judged(self.spec.pod_failure_policy.as_ref()?)
    }

    fn succeeded(&self) -> i32 {
        self.status.succeeded.unwrap_or_default().saturating_add(count(self.uncounted.succeeded.len()))
    }

    fn failed(&self) -> i32 {
        self.status.failed.unwrap_or_default().saturating_add(count(self.uncounted.failed.len()))
    }

    fn active(&self) -> impl Iterator<Item = &'a OwnedPod> {
        self.pods.iter().filter(|pod| pod.is_active())
    }

    /// What still runs when a Job fails counts as failed, as in Kubernetes.
    fn record_the_running(&mut self, verdict: &Verdict) {
        if !verdict.success {
            let recorded: BTreeSet<&String> = self.uncounted.failed.iter().collect();
            let unrecorded = |pod: &&OwnedPod| {
                pod.is_tracked()
                    && !self.released.contains(pod.uid())
                    && !recorded.contains(&pod.uid().to_owned())
            };
            let counted: Vec<&OwnedPod> = self.active().filter(unrecorded).take(MAX_AT_ONCE).collect();
            for pod in counted {
                self.plan.steps.push(pod.confirm_uncounted());
                self.uncounted.failed.push(pod.uid().to_owned());
            }
        }
    }

    fn keep_running(&mut self) {
        if let Some(deadline) = self.deadline() {
            self.wake_at(deadline);
        }
        let active = count(self.active().count());
        let parallelism = self.spec.parallelism.unwrap_or(1).max(0);
        let wanted = match self.spec.completions {
            Some(completions) => parallelism.min(completions.saturating_sub(self.succeeded())).max(0),
            // Workers on a queue: once one says that it is done, no new ones are needed.
            None if self.succeeded() > 0 => active.min(parallelism),
            None => parallelism,
        };
        if active > wanted {
            let surplus = usize::try_from(active.saturating_sub(wanted)).unwrap_or_default();
            return self.delete_active(surplus);
        }
        let leaving = self.pods.iter().filter(|pod| pod.is_ending()).count();
        let held = if self.only_replaces_failed() { count(leaving) } else { 0 };
        let missing = wanted.saturating_sub(active).saturating_sub(held).max(0);
        if missing > 0 {
            self.create(usize::try_from(missing).unwrap_or_default());
        }
    }

    fn create(&mut self, missing: usize) {
        let ready_at = self.backed_off_until();
        if self.limit_per_index().is_none() && ready_at > self.cx.now {
            return self.wake_at(ready_at);
        }
        if let Some(refused) = self.cx.refused(&POD) {
            let message = format!("Error creating: {}", refused.message);
            self.plan.notes.push(Note::warning("FailedCreate", message));
            return self.wake_at(later(self.cx.now, REFUSED_RETRY));
        }
        let me = self.cx.object;
        let taken: BTreeSet<&str> = self.pods.iter().map(|pod| pod.object.name()).collect();
        let mut used = BTreeSet::new();
        let vacancies = self.vacancies(missing.min(MAX_AT_ONCE));
        let vacancies = self.rested(vacancies);
        let tallies = self.tallies_of_next(&vacancies);
        for index in vacancies {
            // An attempt's name is free once its Pod is deleted: by then it is counted, or never ran to an end.
            let first = if index.is_some() { 0 } else { self.failed().saturating_add(self.succeeded()) };
            let free = |name: &String| !taken.contains(name.as_str()) && !used.contains(name);
            let Some(name) = (first..i32::MAX).map(|attempt| pods::name(me, index, attempt)).find(free)
            else {
                continue;
            };
            let tally = index.and_then(|index| tallies.get(&index).copied());
            self.plan.steps.push(pods::create(me, &name, index, tally));
            self.plan.notes.push(Note::normal("SuccessfulCreate", format!("Created pod: {name}")));
            used.insert(name);
            self.created = self.created.saturating_add(1);
        }
    }

    /// For whom Pods are missing: the lowest indexes without one, or nobody in particular.
    fn vacancies(&self, missing: usize) -> Vec<Option<i32>> {
        let (true, Some(completions)) = (self.is_indexed(), self.spec.completions) else {
            return vec![None; missing];
        };
        let busy = |pod: &&OwnedPod| pod.is_active() || (self.only_replaces_failed() && pod.is_ending());
        let busy: BTreeSet<i32> = self.pods.iter().filter(busy).filter_map(OwnedPod::index).collect();
        let given_up = |index: &i32| self.failed_indexes.contains(*index);
        let vacant =
            self.indexes.missing(completions).filter(|index| !busy.contains(index) && !given_up(index));
        vacant.take(missing).map(Some).collect()
    }

    /// When the next Pod may be made: failures since the last success, as far as their Pods are still there, hold it up.
    fn backed_off_until(&self) -> Timestamp {
        let ends = |wanted: fn(&OwnedPod) -> bool| {
            self.pods.iter().filter(move |pod| wanted(pod)).filter_map(OwnedPod::finished_at)
        };
        let succeeded = ends(OwnedPod::has_succeeded).max();
        let failures: Vec<Timestamp> =
            ends(OwnedPod::has_failed).filter(|failed| succeeded.is_none_or(|at| *failed > at)).collect();
        let Some(last) = failures.iter().max() else { return self.cx.now };
        let attempts = u32::try_from(failures.len()).unwrap_or(u32::MAX);
        later(*last, backoff::doubling(FIRST_BACKOFF, attempts, LONGEST_BACKOFF))
    }

    /// Deletes up to `surplus` active Pods: first those that have done least.
    fn delete_active(&mut self, surplus: usize) {
        let mut active: Vec<&OwnedPod> = self.active().collect();
        active.sort_by_key(|pod| {
            let age = std::cmp::Reverse((pod.index(), pod.object.created_at()));
            (pod.is_ready(), pod.is_running(), age, pod.object.name().to_owned())
        });
        for pod in active.into_iter().take(surplus.min(MAX_AT_ONCE)) {
            self.plan.steps.push(pod.delete_as_seen());
            let name = pod.object.name();
            self.plan.notes.push(Note::normal("SuccessfulDelete", format!("Deleted pod: {name}")));
            self.deleted.insert(pod.uid());
        }
    }

    /// Writes what is so once this round's steps are done.
    fn report(&mut self, verdict: Option<&Verdict>) {
        let stays = |pod: &&OwnedPod| !self.deleted.contains(pod.uid());
        let active = count(self.active().filter(stays).count()).saturating_add(self.created);
        let ready = count(self.active().filter(stays).filter(|pod| pod.is_ready()).count());
        let leaving = self.pods.iter().filter(|pod| pod.is_ending()).count();
        let terminating = count(leaving.saturating_add(self.deleted.len()));
        let uncounted = std::mem::take(&mut self.uncounted);
        let settled = uncounted.len() == 0;
        let kept = self.pods.iter().any(|pod| pod.is_tracked() && !self.released.contains(pod.uid()));
        self.status.active = some(active);
        self.status.ready = Some(ready);
        self.status.terminating = Some(terminating);
        self.status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            succeeded: Some(uncounted.succeeded).filter(|uids| !uids.is_empty()),
            failed: Some(uncounted.failed).filter(|uids| !uids.is_empty()),
        });
        let Some(verdict) = verdict.filter(|_| settled && !kept && active == 0 && terminating == 0) else {
            return;
        };
        if verdict.success {
            self.set_condition("Complete", "True", &verdict.reason, &verdict.message);
            self.status.completion_time = Some(Time(self.cx.now));
            self.note(Note::normal("Completed", "Job completed"));
        } else {
            self.set_condition("Failed", "True", &verdict.reason, &verdict.message);
            self.note(Note::warning(verdict.reason.clone(), verdict.message.clone()));
        }
        if let Some(ttl) = self.spec.ttl_seconds_after_finished {
            self.wake_at(later(self.cx.now, seconds(i64::from(ttl))));
        }
    }

    fn set_condition(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let new = JobCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: Some(Time(self.cx.now)),
            last_transition_time: Some(Time(self.cx.now)),
        };
        let conditions = self.status.conditions.get_or_insert_default();
        match conditions.iter_mut().find(|one| one.type_ == type_) {
            Some(one) => *one = new,
            None => conditions.push(new),
        }
    }

    fn note(&mut self, note: Note) {
        self.plan.notes.push(note.once(self.cx.object.generation().to_string()));
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.plan.wake = self.plan.wake.earliest(crate::plan::Wake::At(at));
    }
}

fn condition<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    status.conditions.as_deref()?.iter().find(|one| one.type_ == type_)
}

/// When a Job ended, if it has.
fn finished_at(status: &JobStatus) -> Option<Timestamp> {
    let ended = |type_| condition(status, type_).filter(|one| one.status == "True");
    let end = ended("Complete").or_else(|| ended("Failed"))?;
    Some(end.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

fn add(counter: &mut Option<i32>, more: usize) {
    *counter = some(counter.unwrap_or_default().saturating_add(count(more)));
}

/// Kubernetes leaves these counters out when they are zero.
pub(super) fn some(counter: i32) -> Option<i32> {
    Some(counter).filter(|counter| *counter != 0)
}

pub(super) fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

pub(super) fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
