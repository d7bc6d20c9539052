//! The one run of a unit: a Job or a PipelineRun that is created held, recorded in the unit's status, and started once.
//!
//! ```text
//! Absent ──create, held──▶ Unrecorded ──its UID into the unit's status, by compare-and-swap──▶ Held ──start──▶ Started
//!    │                                                                                          │              │
//!    └─ Foreign: the name belongs to another owner                          Vanished: the recorded run is gone ◀┘
//! ```
//! A run is created suspended (a PipelineRun: pending) and started only after its UID is recorded. A replica that stalls
//! and creates a run late therefore never runs it: the late run is not the recorded one, stays held, and is deleted. So
//! every unit runs at most once (I1), and a run that disappears before its result is recorded is a failure, never a
//! second run (I2).

use std::sync::Arc;

use pawl_api::git::workflow::{HELD, HELD_FOR};
use pawl_api::meta::Kind;
use pawl_api::tekton::{self, PIPELINE_RUN, PipelineRun};
use serde_json::{Value, json};

use crate::cluster::job::JOB;
use crate::cluster::job::followed::Followed;
use crate::lock;
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Step};

/// The run of a unit: what the caches show under its name, and the UID that the unit recorded.
#[derive(Clone, Debug)]
pub struct HeldRun {
    kind: Kind,
    key: Key,
    /// How a run of this unit is told from one of another owner.
    owner: Adopt,
    found: Option<Arc<Object>>,
    recorded: Option<String>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub enum RunState<'a> {
    /// No run exists and none is recorded: create it.
    Absent,
    /// The name belongs to another owner, and no run is recorded. End the unit after [`Step::confirm_unchanged`].
    Foreign(&'a Arc<Object>),
    /// The recorded run is gone; the name may belong to another object by now. End the unit after
    /// [`HeldRun::confirm_gone`].
    Vanished,
    /// A replica that stalled created it after another run was recorded: it never started, and [`HeldRun::delete_late`]
    /// removes it.
    Late(&'a Arc<Object>),
    /// It belongs to the unit, and its UID is not in the unit's status yet.
    Unrecorded(&'a Arc<Object>),
    /// It is recorded and not started.
    Held(&'a Arc<Object>),
    /// It is recorded and was started; it may have ended.
    Started(&'a Arc<Object>),
}

impl HeldRun {
    /// `owner` says which objects of that name belong to the unit; `found` is what the cache has under it.
    pub fn new(
        kind: Kind,
        key: Key,
        owner: Adopt,
        found: Option<Arc<Object>>,
        recorded: Option<String>,
    ) -> Self {
        Self { kind, key, owner, found, recorded }
    }

    pub fn state(&self) -> RunState<'_> {
        match (&self.found, self.recorded.as_deref()) {
            (None, None) => RunState::Absent,
            (None, Some(_)) => RunState::Vanished,
            (Some(run), None) if !self.owner.admits(run) => RunState::Foreign(run),
            (Some(run), Some(_)) if !self.owner.admits(run) => RunState::Vanished,
            (Some(run), Some(uid)) if uid != run.uid() => {
                if is_held(run) && !run.is_deleting() {
                    RunState::Late(run)
                } else {
                    RunState::Vanished
                }
            }
            (Some(run), None) => RunState::Unrecorded(run),
            (Some(run), Some(_)) if is_held(run) && !run.is_deleting() => RunState::Held(run),
            (Some(run), Some(_)) => RunState::Started(run),
        }
    }

    /// The object of the run's name, of any owner.
    pub fn found(&self) -> Option<&Arc<Object>> {
        self.found.as_ref()
    }

    /// The run, if it exists and belongs to the unit.
    pub fn own(&self) -> Option<&Arc<Object>> {
        self.found.as_ref().filter(|run| self.owner.admits(run))
    }

    /// The run of the unit: the recorded one, or else whichever it creates.
    pub fn reference(&self) -> Reference {
        let uid = self.recorded.clone().unwrap_or_default();
        Reference { kind: self.kind.clone(), key: self.key.clone(), uid }
    }

    /// The same with the UID of the run that exists, recorded or not: what a lock names.
    pub fn current(&self) -> Reference {
        let uid = self.own().map(|run| run.uid().to_owned()).or_else(|| self.recorded.clone());
        Reference { uid: uid.unwrap_or_default(), ..self.reference() }
    }

    /// Goes on only if the run does not exist on the API server.
    pub fn confirm_gone(&self) -> Step {
        Step::confirm_gone(self.reference())
    }

    /// What is confirmed before the locks of this run are released; `None` while something may act: the run, or, where it
    /// is gone, what it left behind.
    pub fn confirm_ended(&self, run: &Reference, left_behind: bool) -> Option<Vec<Step>> {
        let acts = self.own().map_or(left_behind, |run| !is_finished(run));
        // A run that is found is over, or the name is somebody else's and will never be a run of ours.
        let confirm = || if self.found.is_some() { Vec::new() } else { lock::confirm_gone(run) };
        (!acts).then(confirm)
    }

    /// Creates the run held, of its name.
    pub fn create(&self, mut manifest: Value) -> Step {
        hold(&self.kind, &mut manifest);
        Step::Create { kind: self.kind.clone(), manifest, adopt: self.owner.clone() }
    }

    /// A run of this unit that was never started and is not the recorded one: a replica that stalled created it.
    pub fn late(&self) -> Option<&Arc<Object>> {
        let recorded = self.recorded.as_deref();
        self.own().filter(|run| is_held(run) && !run.is_deleting() && recorded != Some(run.uid()))
    }

    /// Deletes a late run, if the API server still shows it as the cache does.
    pub fn delete_late(run: &Object) -> [Step; 2] {
        [Step::confirm_unchanged(run), delete(run)]
    }
}

/// Whether a run was created and not started.
pub fn is_held(run: &Object) -> bool {
    run.annotation(HELD).is_some()
}

/// Starts a held run; `None` when it was started before, whatever people did to it since.
pub fn start(run: &Object) -> Option<Step> {
    let held = run.annotation(HELD)?;
    let patch = if *run.kind() == PIPELINE_RUN {
        json!({"metadata": {"annotations": {HELD: null}}, "spec": {"status": null}})
    } else {
        let metadata = json!({"annotations": {HELD: null}, "labels": {HELD_FOR: null}});
        json!({"metadata": metadata, "spec": {"suspend": held == "true"}})
    };
    Some(Step::patch(run, patch))
}

/// Ends a run that may be under way: a PipelineRun's `finally` still runs, a Job and its Pods are deleted. `None` when that
/// was asked before. Only in the version that was read: a run that has ended meanwhile keeps its Pods and their logs.
pub fn stop(run: &Object) -> Option<Step> {
    if run.is_deleting() {
        return None;
    }
    // A PipelineRun that was never started has no `finally` to run.
    if *run.kind() == PIPELINE_RUN && !is_held(run) {
        let asked = run.parse::<PipelineRun>().ok().and_then(|run| run.spec.status.clone());
        let asked = asked.is_some_and(|status| status != tekton::cancel::PENDING);
        let cancel = json!({"spec": {"status": tekton::cancel::CANCELLED_RUN_FINALLY}});
        return (!asked).then(|| Step::patch_unchanged(run, cancel));
    }
    Some(Step::delete_unchanged(run).foreground())
}

/// Deletes a run and waits for its Pods: its name and its target are free only when they are gone.
pub fn delete(run: &Object) -> Step {
    Step::delete(run).foreground()
}

/// Whether a run is over for good, and all of its Pods with it. One that was never started is not: somebody may start it.
pub fn is_finished(run: &Object) -> bool {
    if is_held(run) {
        return false;
    }
    if *run.kind() == PIPELINE_RUN {
        let succeeded = run.parse::<PipelineRun>().ok().and_then(|run| Some(run.succeeded()?.status.clone()));
        return succeeded.is_some_and(|status| status != "Unknown");
    }
    run.parse::<Followed>().is_ok_and(|job| job.is_finished())
}

/// Makes a manifest one that does not run before [`start`]. The annotation keeps what its author wants after that.
fn hold(kind: &Kind, manifest: &mut Value) {
    let (field, held) = if *kind == JOB {
        ("suspend", Value::Bool(true))
    } else {
        ("status", Value::from(tekton::cancel::PENDING))
    };
    let suspended = manifest.pointer("/spec/suspend") == Some(&Value::Bool(true));
    if let Some(spec) = manifest.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.insert(field.to_owned(), held);
    }
    if let Some(metadata) = manifest.pointer_mut("/metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()
    {
        annotations.insert(HELD.to_owned(), suspended.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, uid: &str, owner: &str, annotations: &Value) -> Arc<Object> {
        let owners =
            json!([{"apiVersion": "v1", "kind": "U", "name": "u", "uid": owner, "controller": true}]);
        let metadata = json!({"name": "r", "namespace": "n", "uid": uid, "resourceVersion": "7",
            "annotations": annotations, "ownerReferences": owners});
        Object::new(kind, json!({"metadata": metadata, "spec": {}})).unwrap()
    }

    fn state(found: Option<Arc<Object>>, recorded: Option<&str>) -> String {
        let key = Key::new(Some("n"), "r");
        let owner = Adopt::ControlledBy("unit".to_owned());
        let run = HeldRun::new(JOB, key, owner, found, recorded.map(str::to_owned));
        let state = format!("{:?}", run.state());
        state.split('(').next().unwrap().to_owned()
    }

    #[test]
    fn i1_a_run_is_started_only_after_its_own_uid_is_recorded() {
        let held = json!({HELD: "false"});
        let job = |uid: &str, owner: &str, annotations: &Value| Some(object(JOB, uid, owner, annotations));
        assert_eq!(state(None, None), "Absent");
        assert_eq!(state(job("a", "unit", &held), None), "Unrecorded");
        assert_eq!(state(job("a", "unit", &held), Some("a")), "Held");
        assert_eq!(state(job("a", "unit", &json!({})), Some("a")), "Started");
        assert_eq!(state(job("late", "unit", &held), Some("a")), "Late");
        assert_eq!(state(job("a", "other", &held), None), "Foreign");
    }

    #[test]
    fn i2_a_recorded_run_that_is_gone_or_replaced_has_vanished() {
        assert_eq!(state(None, Some("a")), "Vanished");
        assert_eq!(state(Some(object(JOB, "b", "unit", &json!({}))), Some("a")), "Vanished");
        assert_eq!(state(Some(object(JOB, "b", "other", &json!({HELD: "false"}))), Some("a")), "Vanished");
    }

    #[test]
    fn a_run_is_created_held_and_starts_as_its_author_wants() {
        let created = |kind: &Kind, spec: Value| {
            let mut manifest = json!({"metadata": {"name": "r"}, "spec": spec});
            hold(kind, &mut manifest);
            manifest
        };
        let patch = |kind: Kind, manifest: Value| match start(&Object::new(kind, manifest).unwrap()) {
            Some(Step::Patch { patch, .. }) => patch,
            other => panic!("{other:?}"),
        };
        for (spec, suspend) in [(json!({}), false), (json!({"suspend": true}), true)] {
            let manifest = created(&JOB, spec);
            assert_eq!(manifest["spec"]["suspend"], true);
            let patch = patch(JOB, manifest);
            assert_eq!(
                (&patch["spec"]["suspend"], &patch["metadata"]["annotations"][HELD]),
                (&json!(suspend), &json!(null))
            );
        }
        let manifest = created(&PIPELINE_RUN, json!({}));
        assert_eq!(manifest["spec"]["status"], "PipelineRunPending");
        assert_eq!(patch(PIPELINE_RUN, manifest)["spec"], json!({"status": null}));
        let theirs = json!({"metadata": {"name": "j"}, "spec": {"suspend": true}});
        assert_eq!(start(&Object::new(JOB, theirs).unwrap()), None, "a person suspended it");
    }

    #[test]
    fn a_failing_job_is_finished_when_its_pods_are_gone() {
        let job = |condition: &str| {
            let status = json!({"conditions": [{"type": condition, "status": "True"}]});
            Object::new(JOB, json!({"metadata": {"name": "j"}, "status": status})).unwrap()
        };
        assert!(!is_finished(&job("FailureTarget")) && !is_finished(&job("SuccessCriteriaMet")));
        assert!(is_finished(&job("Failed")) && is_finished(&job("Complete")));
    }
}
