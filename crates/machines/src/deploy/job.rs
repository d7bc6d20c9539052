//! When does a job start, and what is it called?
//!
//! ```text
//! operation: reconcile ──one write──▶ pawl.dev/job: <ID> ──▶ status.jobID ──…──▶ status.jobIDFinished
//! a new generation, a deletion ────────────────────────────▶ status.jobID
//! ```
//! Only the root of a tree starts jobs, and never while one runs: what is asked for meanwhile waits. The ID is a function
//! of the object, of the job before and of what was asked, so a crash at any point repeats the same ID; each job's ID
//! contains the one before, so no two are the same. An annotation cannot be taken off and a status written in one
//! request: so the annotation first becomes another one that names the job, which asking twice does not change.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use pawl_api::deploy::{LastError, TransitionTimes, annotations, operations};
use pawl_api::meta::{Kind, Reason, text};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::failure::Failure;
use crate::object::{Key, Object, Reference};
use crate::plan::{Note, Plan, Step};
use crate::view::{View, group_of};

/// The space of our job IDs among all UUIDs: any fixed one would do.
const SPACE: Uuid = Uuid::from_u128(0x5b9c_54a8_0f3e_4c61_9d27_70a3_b6f1_2e88);

/// What `status.lastError.message` has room for.
const MAX_MESSAGE_CHARS: usize = 32_768;

/// What an object says of its jobs.
#[derive(Clone, Copy, Debug)]
pub struct Jobs<'a> {
    pub id: Option<&'a str>,
    pub finished: Option<&'a str>,
}

impl<'a> Jobs<'a> {
    pub fn of(id: &'a Option<String>, finished: &'a Option<String>) -> Self {
        Self { id: id.as_deref(), finished: finished.as_deref() }
    }

    /// The job that runs.
    pub fn running(self) -> Option<&'a str> {
        self.id.filter(|id| Some(*id) != self.finished)
    }
}

/// What is to be done about jobs before anything else.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "made and taken apart within one decision, never kept")]
pub enum Start {
    /// Nothing is asked for.
    No,
    /// The request is written down under the job's ID; then look again.
    Accept(Step),
    /// The job of this ID starts.
    Begin(String),
}

/// Who starts an object's jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Nobody else: it is a root.
    None,
    There,
    /// What made it is not in sight; the server is asked before that is believed.
    Absent(Reference),
}

impl Parent {
    /// The controller of that kind, if it has one.
    pub fn of(view: &dyn View, me: &Object, kind: &Kind) -> Self {
        let ours =
            |owner: &&OwnerReference| owner.kind == kind.kind && group_of(&owner.api_version) == kind.group;
        let Some(owner) = me.controller().filter(ours) else { return Self::None };
        let key = Key::new(me.namespace(), &owner.name);
        match view.get(kind, &key) {
            Some(found) if found.uid() == owner.uid => Self::There,
            _ => Self::Absent(Reference { kind: kind.clone(), key, uid: owner.uid.clone() }),
        }
    }
}

/// What an object without a running job is to do.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "made and taken apart within one decision, never kept")]
pub enum Begin {
    Rest,
    /// These, and then look again.
    Steps(Vec<Step>),
    /// It asked for what only a root does.
    Refuse(Step, Note),
    /// The job of this ID starts, once these are confirmed.
    Job(String, Vec<Step>),
}

impl Begin {
    /// The plan that begins so; `starts` makes that of a new job.
    pub fn plan<S>(self, starts: impl FnOnce(String) -> Plan<S>) -> Plan<S> {
        match self {
            Self::Rest => Plan::rest(),
            Self::Steps(steps) => Plan::steps(steps),
            Self::Refuse(step, note) => Plan::step(step).note(note),
            Self::Job(job, steps) => Plan { steps, ..starts(job) },
        }
    }
}

/// Like [`start`], for an object that may or may not be a root.
pub fn begin(
    me: &Arc<Object>,
    parent: &Parent,
    jobs: Jobs<'_>,
    observed_generation: Option<i64>,
    removed: bool,
) -> Begin {
    let start = start(me, jobs, observed_generation, removed);
    let asked = me.annotation(annotations::OPERATION) == Some(operations::RECONCILE);
    match parent {
        Parent::There if asked => {
            let message = "only the root of a tree starts jobs: annotate that";
            let step = annotate(me, &json!({annotations::OPERATION: null}));
            Begin::Refuse(step, Note::warning(Reason::NotApplicable, message))
        }
        Parent::There => Begin::Rest,
        // Nobody else will ever start the job that takes it down (I5).
        Parent::Absent(_) if !me.is_deleting() => Begin::Rest,
        Parent::None | Parent::Absent(_) => {
            let confirm = match parent {
                Parent::Absent(parent) => vec![Step::confirm_gone(parent.clone())],
                Parent::None | Parent::There => vec![],
            };
            match start {
                Start::No => Begin::Rest,
                Start::Accept(step) => Begin::Steps(confirm.into_iter().chain([step]).collect()),
                Start::Begin(job) => Begin::Job(job, confirm),
            }
        }
    }
}

/// Whether the root of a tree is to start a job. `removed`: its last job was one that took it down.
pub fn start(me: &Arc<Object>, jobs: Jobs<'_>, observed_generation: Option<i64>, removed: bool) -> Start {
    if jobs.running().is_some() {
        return Start::No;
    }
    let asked_for = me.annotation(annotations::JOB).filter(|asked| jobs.id != Some(asked));
    if let Some(asked) = asked_for.filter(|asked| Some(*asked) == Some(&id(me, jobs, operations::RECONCILE)))
    {
        return Start::Begin(asked.to_owned());
    }
    if me.annotation(annotations::OPERATION) == Some(operations::RECONCILE) {
        let next = id(me, jobs, operations::RECONCILE);
        return Start::Accept(annotate(me, &json!({annotations::OPERATION: null, annotations::JOB: next})));
    }
    if me.is_deleting() && !removed {
        return Start::Begin(id(me, jobs, "delete"));
    }
    let if_changed = me.annotation(annotations::RECONCILE_IF_CHANGED) == Some("true");
    if if_changed && !me.is_deleting() && me.meta().generation != observed_generation {
        return Start::Begin(id(me, jobs, &format!("generation {}", me.generation())));
    }
    Start::No
}

/// What an `interrupt` or a `reconcile` in the wrong place becomes; `None` when there is nothing to take off.
pub fn interrupt(me: &Arc<Object>, jobs: Jobs<'_>) -> Option<Step> {
    if me.annotation(annotations::OPERATION) != Some(operations::INTERRUPT) {
        return None;
    }
    // Without a job there is nothing to interrupt, and the wish must not meet the next one.
    let job = jobs.running().map_or(Value::Null, Value::from);
    Some(annotate(me, &json!({annotations::OPERATION: null, annotations::INTERRUPT_JOB: job})))
}

/// Whether the job that runs is to end at once.
pub fn is_interrupted(me: &Object, jobs: Jobs<'_>) -> bool {
    jobs.running().is_some_and(|job| me.annotation(annotations::INTERRUPT_JOB) == Some(job))
}

/// Changes annotations of the object itself, if it is still as it was seen.
pub fn annotate(me: &Arc<Object>, changes: &Value) -> Step {
    Step::patch_unchanged(me, json!({"metadata": {"annotations": changes}}))
}

/// The ID of the job after the last one.
pub fn id(me: &Object, jobs: Jobs<'_>, asked: &str) -> String {
    let name = format!("{}/{}/{asked}", me.uid(), jobs.id.unwrap_or_default());
    Uuid::new_v5(&SPACE, name.as_bytes()).to_string()
}

/// Why a job fails whose objects the API server refuses.
pub fn refused(failure: &Failure) -> Reason {
    match failure.reason.as_str() {
        "OwnershipMismatch" => Reason::OwnershipMismatch,
        "Forbidden" if failure.is_quota() => Reason::QuotaExceeded,
        "Forbidden" => Reason::Forbidden,
        _ => Reason::ValidationFailed,
    }
}

/// The stations of a job that has just arrived.
pub fn triggered(now: Timestamp) -> TransitionTimes {
    TransitionTimes { trigger_time: Some(Time(now)), ..TransitionTimes::default() }
}

/// An error as it stands in a status; one that says the same as the last keeps when it first showed.
pub fn error(
    operation: &str,
    reason: Reason,
    message: impl Into<String>,
    before: Option<&LastError>,
    now: Timestamp,
) -> LastError {
    let message = text::head(message, MAX_MESSAGE_CHARS);
    let same = before.filter(|before| before.reason == reason.as_str() && before.message == message);
    LastError {
        operation: operation.to_owned(),
        reason: reason.into(),
        message,
        last_transition_time: same.and_then(|same| same.last_transition_time.clone()).or(Some(Time(now))),
        last_update_time: Some(Time(now)),
        codes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::deploy::execution::KIND;

    fn root(annotations: &Value, deleting: bool) -> Arc<Object> {
        let mut raw = json!({"metadata": {"name": "e", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "generation": 2, "annotations": annotations}});
        if deleting {
            raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Object::new(KIND, raw).unwrap()
    }

    const NEW: Jobs<'_> = Jobs { id: None, finished: None };
    const RAN: Jobs<'_> = Jobs { id: Some("j"), finished: Some("j") };
    const RUNS: Jobs<'_> = Jobs { id: Some("j"), finished: Some("i") };

    #[test]
    fn a_request_becomes_a_job_in_two_writes_that_may_be_repeated() {
        let me = root(&json!({annotations::OPERATION: "reconcile"}), false);
        let Start::Accept(Step::Patch { patch, resource_version, .. }) = start(&me, NEW, None, false) else {
            panic!()
        };
        assert_eq!(resource_version.as_deref(), Some("7"));
        let asked = patch["metadata"]["annotations"][annotations::JOB].as_str().unwrap().to_owned();
        assert!(patch["metadata"]["annotations"][annotations::OPERATION].is_null());
        let accepted = root(&json!({annotations::JOB: asked}), false);
        assert_eq!(start(&accepted, NEW, None, false), Start::Begin(asked.clone()));
        // It ran: the annotation stays and means nothing any more.
        let ran = Jobs { id: Some(&asked), finished: Some(&asked) };
        assert_eq!(start(&accepted, ran, None, false), Start::No);
        let again = root(&json!({annotations::JOB: asked, annotations::OPERATION: "reconcile"}), false);
        let Start::Accept(Step::Patch { patch, .. }) = start(&again, ran, None, false) else { panic!() };
        assert_ne!(patch["metadata"]["annotations"][annotations::JOB], asked.as_str());
    }

    #[test]
    fn what_is_asked_while_a_job_runs_waits() {
        for (annotations, deleting) in [
            (json!({annotations::OPERATION: "reconcile"}), false),
            (json!({}), true),
            (json!({annotations::RECONCILE_IF_CHANGED: "true"}), false),
        ] {
            assert_eq!(start(&root(&annotations, deleting), RUNS, Some(1), false), Start::No);
            assert_ne!(start(&root(&annotations, deleting), RAN, Some(1), false), Start::No);
        }
    }

    #[test]
    fn a_spec_change_alone_starts_nothing_and_the_annotation_lets_it() {
        assert_eq!(start(&root(&json!({}), false), RAN, Some(1), false), Start::No);
        let me = root(&json!({annotations::RECONCILE_IF_CHANGED: "true"}), false);
        assert!(matches!(start(&me, RAN, Some(1), false), Start::Begin(_)));
        assert_eq!(start(&me, RAN, Some(2), false), Start::No);
    }

    #[test]
    fn a_deletion_starts_one_job_and_after_a_failed_one_a_person_starts_the_next() {
        let me = root(&json!({}), true);
        let Start::Begin(first) = start(&me, RAN, None, false) else { panic!() };
        assert_eq!(start(&me, RAN, None, false), Start::Begin(first), "the same in every repetition");
        assert_eq!(start(&me, RAN, None, true), Start::No);
        let asked = root(&json!({annotations::OPERATION: "reconcile"}), true);
        assert!(matches!(start(&asked, RAN, None, true), Start::Accept(_)));
    }

    #[test]
    fn an_interrupt_meets_the_job_that_runs_and_no_other() {
        let me = root(&json!({annotations::OPERATION: "interrupt"}), false);
        let Some(Step::Patch { patch, .. }) = interrupt(&me, RUNS) else { panic!() };
        assert_eq!(patch["metadata"]["annotations"][annotations::INTERRUPT_JOB], "j");
        let Some(Step::Patch { patch, .. }) = interrupt(&me, RAN) else { panic!() };
        assert!(patch["metadata"]["annotations"][annotations::INTERRUPT_JOB].is_null());
        let noted = root(&json!({annotations::INTERRUPT_JOB: "j"}), false);
        assert!(is_interrupted(&noted, RUNS));
        assert!(!is_interrupted(&noted, RAN));
        assert!(!is_interrupted(&noted, Jobs { id: Some("k"), finished: Some("j") }));
    }
}
