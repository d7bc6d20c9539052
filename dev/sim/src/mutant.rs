//! Guards that can be taken away one at a time, to see that the simulation notices.
//!
//! A simulator that cannot fail proves nothing. Each entry of [`ALL`] names a promise, takes away what keeps it, and is
//! expected to be caught; `tests/it/mutants.rs` checks that every one is.
//!
//! ```text
//!  caches ──view, shown──▶ controller ──decided──▶ plan ──tamper──▶ request ──▶ API server
//! ```
//! The controllers have no switch for this: a mutant changes what a controller is shown, what it decided, or what is sent.
//! Only the inner simulator does so, and the ports of both.

use std::sync::Arc;

use http::{Method, Request};
use pawl_api::git::annotations::{LAST_SHA, OK_TO_TEST};
use pawl_api::git::{WorkflowPhase, branch, workflow};
use pawl_api::k8s::JOB;
use pawl_api::meta::{Kind, Phase as _};
use pawl_api::pawl::approval;
use pawl_api::pawl::labels::OWNER_UID;
use pawl_api::remedy::{KubernetesExecutionPhase, kubernetes_execution};
use pawl_machines::apply::difference;
use pawl_machines::git::trust;
use pawl_machines::held_run;
use pawl_machines::machine::BoundPlan;
use pawl_machines::object::{Key, Object};
use pawl_machines::plan::{Adopt, Part, Precondition, Step};
use pawl_machines::view::{Served, View};
use serde_json::{Value, json};

/// Something that keeps a run right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A taken name is adopted only from ourselves (I1).
    AdoptionCheck,
    /// Another object is changed or deleted only while it is the one that was observed, not a namesake.
    UidPrecondition,
    /// Writes apply only to the version that was decided on.
    ResourceVersion,
    /// An owner that a cache does not show is read from the server before its dependents are deleted.
    OwnerLiveCheck,
    /// Children are created and deleted only while their owner is in the version that was decided on.
    BasisCheck,
    /// The API server itself compares, where it can, so that a process that stalls after its last look does nothing.
    Fence,
    /// The status comes after the steps: it never claims what has not been done.
    StatusLast,
    /// A decision never runs on caches older than its own last write.
    ReadYourWrites,
    /// The finalizer of a Workflow goes only after its Job.
    FinalizerOrder,
    /// A finished unit does not run again (I2).
    TerminalCheck,
    /// A pull request from a fork waits until a person with write access approves it.
    ForkGate,
    /// A commit of the default branch waits for the earlier ones.
    Sequence,
    /// `$` is written `$$` in what a Job is told of branches and paths (I10).
    DollarEscape,
    /// A Job that is stopped is gone only once its Pods are.
    ForegroundDelete,
    /// `last-sha` is written after the Workflows exist.
    LastShaOrder,
    /// Before a check run is made, it is looked for by its `external_id` (I7).
    ExternalIdLookUp,
    /// What Secrets hold is masked in the log that GitHub is shown (I6).
    LogMask,
    /// What Secrets hold is masked in what policies and conditions are shown of a target (I6).
    ShownMask,
    /// An approval counts for exactly what it names.
    ApprovalDigest,
    /// Nobody approves what they ask for.
    ApprovalByAnother,
    /// The undo is stored before there is a Job (I4).
    UndoFirst,
    /// A Job is started only once its UID is recorded.
    RecordedFirst,
    /// A rollback is refused where the target changed since.
    Freshness,
    /// DeployItems and sub-Installations wait for those that they depend on.
    DependencyOrder,
}

/// The guards of a run: all of them, but for at most one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    without: Option<Guard>,
}

impl Guards {
    pub fn without(guard: Guard) -> Self {
        Self { without: Some(guard) }
    }

    pub fn has(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// The caches as the controller of `me` sees them.
    pub fn view<'a>(self, view: &'a dyn View, me: &'a Object) -> impl View + 'a {
        Shown { view, me, guards: self }
    }

    /// The object itself, as its controller is shown it.
    pub fn shown(self, view: &dyn View, me: &Arc<Object>) -> Arc<Object> {
        let (kind, status) = (me.kind(), me.status());
        let phase = status.get("phase").and_then(Value::as_str);
        match self.without {
            Some(Guard::TerminalCheck) if *kind == workflow::KIND => {
                let over = WorkflowPhase::TERMINAL.iter().any(|over| phase == Some(over.as_str()));
                if over { edited(me, &json!({"status": null})) } else { Arc::clone(me) }
            }
            Some(Guard::ForkGate) if *kind == branch::KIND => {
                let sha = me.raw().pointer("/spec/sha").and_then(Value::as_str).unwrap_or_default();
                let approved = trust::ok_to_test(sha, "nobody");
                edited(me, &json!({"metadata": {"annotations": {OK_TO_TEST: approved}}}))
            }
            Some(Guard::UndoFirst) if *kind == kubernetes_execution::KIND => {
                let executing = phase == Some(KubernetesExecutionPhase::Executing.as_str());
                if executing && status.get("rollbackInformation").is_none() {
                    edited(me, &json!({"status": {"rollbackInformation": {"available": false}}}))
                } else {
                    Arc::clone(me)
                }
            }
            Some(Guard::RecordedFirst) => match unrecorded(view, me) {
                Some(job) => {
                    let job = json!({"name": job.name(), "namespace": job.namespace(), "uid": job.uid()});
                    edited(me, &json!({"status": {"jobRef": job}}))
                }
                None => Arc::clone(me),
            },
            _ => Arc::clone(me),
        }
    }

    /// A plan as it would be. `me` is the object as it is.
    pub fn decided(self, view: &dyn View, me: &Object, plan: &mut BoundPlan) {
        match self.without {
            Some(Guard::AdoptionCheck) => plan.steps.iter_mut().for_each(|step| {
                if let Step::Create { adopt, .. } = step
                    && *adopt != Adopt::Never
                {
                    *adopt = Adopt::Anyones;
                }
            }),
            Some(Guard::OwnerLiveCheck) => plan.steps.retain(|step| !confirms_absence(step)),
            // `tamper` takes off what a fenced plan relies on.
            Some(Guard::BasisCheck) => plan.fenced = true,
            Some(Guard::Fence) => plan.fenced = false,
            Some(Guard::StatusLast) if !plan.steps.iter().any(Step::releases_object) => {
                let status = plan.status.take().and_then(|status| difference(me.status(), &status));
                let first = status
                    .map(|status| Step::patch_unchanged(me, json!({"status": status})).in_part(Part::Status));
                plan.steps.splice(0..0, first);
            }
            Some(Guard::FinalizerOrder) if is_deleted_workflow(me) => {
                plan.steps.retain(|step| !confirms_absence(step));
            }
            Some(Guard::LastShaOrder) => {
                let marks = |step: &Step| matches!(step, Step::Patch { patch, .. } if patch.pointer("/metadata/annotations").is_some_and(|all| all.get(LAST_SHA).is_some()));
                plan.steps.sort_by_key(|step| !marks(step));
            }
            Some(Guard::RecordedFirst) if unrecorded(view, me).is_some() => {
                if let Some(status) = plan.status.as_mut().and_then(Value::as_object_mut) {
                    status.remove("jobRef");
                }
            }
            Some(Guard::DependencyOrder) => {
                let others = others_triggered(view, me, &plan.steps);
                plan.steps.extend(others);
            }
            _ => {}
        }
    }

    /// A request as it would be.
    #[must_use]
    pub fn tamper(self, mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
        let of_jobs = request.uri().path().contains("/jobs");
        let replaced = match (self.without, request.method()) {
            (Some(Guard::DollarEscape), &Method::POST) if of_jobs => Some(("$$", "$")),
            (Some(Guard::ForegroundDelete), &Method::DELETE) if of_jobs => Some(("Foreground", "Background")),
            _ => None,
        };
        if let Some((guarded, bare)) = replaced {
            let body = String::from_utf8_lossy(request.body()).replace(guarded, bare);
            *request.body_mut() = body.into_bytes();
        }
        let precondition = match self.without {
            Some(Guard::UidPrecondition) => "uid",
            Some(Guard::ResourceVersion) => "resourceVersion",
            Some(Guard::BasisCheck) => {
                request.headers_mut().remove("pawl-if-unchanged");
                return request;
            }
            _ => return request,
        };
        if let Ok(mut body) = serde_json::from_slice::<Value>(request.body()) {
            for at in ["/metadata", "/preconditions"] {
                if let Some(fields) = body.pointer_mut(at).and_then(Value::as_object_mut) {
                    fields.remove(precondition);
                }
            }
            *request.body_mut() = body.to_string().into_bytes();
        }
        request
    }
}

/// The caches, as the controller of one object is shown them.
struct Shown<'a> {
    view: &'a dyn View,
    me: &'a Object,
    guards: Guards,
}

impl Shown<'_> {
    fn show(&self, object: Arc<Object>) -> Option<Arc<Object>> {
        let (kind, mine) = (object.kind(), self.me.kind());
        match self.guards.without {
            Some(Guard::FinalizerOrder) if *kind == JOB && is_deleted_workflow(self.me) => None,
            Some(Guard::Sequence) if *kind == branch::KIND && *mine == workflow::KIND => {
                Some(edited(&object, &json!({"spec": {"sequence": null}})))
            }
            Some(Guard::ApprovalDigest) if *kind == approval::KIND => {
                let asked = self.me.status().get("approvalDigest").cloned().unwrap_or_default();
                Some(edited(&object, &json!({"spec": {"digest": asked}})))
            }
            Some(Guard::ApprovalByAnother) if *kind == approval::KIND => {
                Some(edited(&object, &json!({"spec": {"approver": {"username": "another"}}})))
            }
            _ => Some(object),
        }
    }

    fn show_all(&self, objects: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
        objects.into_iter().filter_map(|object| self.show(object)).collect()
    }
}

impl View for Shown<'_> {
    fn get(&self, kind: &Kind, key: &Key) -> Option<Arc<Object>> {
        self.view.get(kind, key).and_then(|object| self.show(object))
    }

    fn list(&self, kind: &Kind, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.show_all(self.view.list(kind, namespace))
    }

    fn owned(&self, kind: &Kind, owner_uid: &str) -> Vec<Arc<Object>> {
        self.show_all(self.view.owned(kind, owner_uid))
    }

    fn labelled(&self, kind: &Kind, label: &str, value: &str) -> Vec<Arc<Object>> {
        self.show_all(self.view.labelled(kind, label, value))
    }

    fn dependents(&self, owner_uid: &str) -> Vec<Arc<Object>> {
        self.show_all(self.view.dependents(owner_uid))
    }

    fn serves(&self, kind: &Kind) -> Served {
        self.view.serves(kind)
    }

    fn resolve(&self, api_version: &str, kind: &str) -> Option<Kind> {
        self.view.resolve(api_version, kind)
    }

    fn kinds(&self) -> Vec<Kind> {
        self.view.kinds()
    }
}

/// The same object and version, merge-patched.
fn edited(object: &Arc<Object>, patch: &Value) -> Arc<Object> {
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            into.clone_from(patch);
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (field, value) in patch {
            match into.as_object_mut() {
                Some(fields) if value.is_null() => drop(fields.remove(field)),
                Some(fields) => merge(fields.entry(field).or_insert(Value::Null), value),
                None => {}
            }
        }
    }
    let mut raw = object.raw().clone();
    merge(&mut raw, patch);
    Object::new(object.kind().clone(), raw).unwrap_or_else(|_| Arc::clone(object))
}

fn is_deleted_workflow(me: &Object) -> bool {
    *me.kind() == workflow::KIND && me.is_deleting()
}

fn confirms_absence(step: &Step) -> bool {
    matches!(step, Step::Confirm(Precondition::Gone(_) | Precondition::NoneLabelled { .. }))
}

/// The held Job of a KubernetesExecution whose status does not name one.
fn unrecorded(view: &dyn View, me: &Object) -> Option<Arc<Object>> {
    if *me.kind() != kubernetes_execution::KIND || me.status().get("jobRef").is_some() {
        return None;
    }
    view.labelled(&JOB, OWNER_UID, me.uid()).into_iter().find(|job| held_run::is_held(job))
}

/// Where a step triggers a child of `me`: the same for all others of that kind.
fn others_triggered(view: &dyn View, me: &Object, steps: &[Step]) -> Vec<Step> {
    let triggered = steps.iter().filter_map(|step| {
        let Step::Patch { target, patch, part: Part::Status, .. } = step else { return None };
        Some((target, patch, patch.pointer("/status/jobID")?))
    });
    let triggered: Vec<_> = triggered.collect();
    let Some((first, patch, job)) = triggered.first() else { return Vec::new() };
    let others = view.owned(&first.kind, me.uid()).into_iter().filter(|other| {
        let has_turn = triggered.iter().any(|(target, ..)| target.uid == other.uid());
        !has_turn && other.status().get("jobID") != Some(*job)
    });
    others.map(|other| Step::patch_unchanged(&other, (*patch).clone()).in_part(Part::Status)).collect()
}

/// A guard taken away.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub name: &'static str,
    /// The scenario whose seeds catch it.
    pub scenario: &'static str,
    /// A seed from which on it is soon caught.
    pub from: u64,
    pub guard: Guard,
}

/// Every mutant. A new guard gets a line here.
pub const ALL: &[Mutant] = &[
    Mutant { name: "adoption check", scenario: "git-foreign-claim", from: 1, guard: Guard::AdoptionCheck },
    Mutant {
        name: "UID precondition",
        scenario: "statefulset-update",
        from: 40,
        guard: Guard::UidPrecondition,
    },
    Mutant { name: "finalizer order", scenario: "workflow-delete", from: 1, guard: Guard::FinalizerOrder },
    Mutant {
        name: "read your writes",
        scenario: "workflow-foreign-job",
        from: 580,
        guard: Guard::ReadYourWrites,
    },
    Mutant {
        name: "resourceVersion on status",
        scenario: "workflow",
        from: 30,
        guard: Guard::ResourceVersion,
    },
    Mutant {
        name: "owner live check",
        scenario: "garbage-other-kind",
        from: 15,
        guard: Guard::OwnerLiveCheck,
    },
    Mutant { name: "basis check", scenario: "job-suspend", from: 1, guard: Guard::BasisCheck },
    Mutant { name: "fence", scenario: "job-delete", from: 40, guard: Guard::Fence },
    Mutant { name: "status last", scenario: "workflow", from: 20, guard: Guard::StatusLast },
    Mutant { name: "external_id look-up", scenario: "git-push", from: 1, guard: Guard::ExternalIdLookUp },
    Mutant { name: "terminal check", scenario: "workflow-job-removed", from: 1, guard: Guard::TerminalCheck },
    Mutant { name: "fork gate", scenario: "git-fork", from: 1, guard: Guard::ForkGate },
    Mutant { name: "$ escape", scenario: "git-names", from: 1, guard: Guard::DollarEscape },
    Mutant { name: "sequence", scenario: "git-two-commits", from: 1, guard: Guard::Sequence },
    Mutant {
        name: "foreground delete",
        scenario: "workflow-delete",
        from: 1,
        guard: Guard::ForegroundDelete,
    },
    Mutant { name: "last-sha order", scenario: "git-two-commits", from: 1, guard: Guard::LastShaOrder },
    Mutant { name: "log mask", scenario: "git-secret-in-log", from: 1, guard: Guard::LogMask },
    Mutant {
        name: "approval digest",
        scenario: "action-target-moves",
        from: 130,
        guard: Guard::ApprovalDigest,
    },
    Mutant {
        name: "approval by another",
        scenario: "action-self-approval",
        from: 1,
        guard: Guard::ApprovalByAnother,
    },
    Mutant { name: "undo first", scenario: "action-scale", from: 1, guard: Guard::UndoFirst },
    Mutant {
        name: "recorded before let go",
        scenario: "action-job-removed",
        from: 1,
        guard: Guard::RecordedFirst,
    },
    Mutant {
        name: "freshness of a rollback",
        scenario: "action-rollback-stale",
        from: 1,
        guard: Guard::Freshness,
    },
    Mutant { name: "mask of what is shown", scenario: "action-secret", from: 1, guard: Guard::ShownMask },
    Mutant {
        name: "dependency order of items",
        scenario: "deploy-diamond",
        from: 1,
        guard: Guard::DependencyOrder,
    },
    Mutant {
        name: "dependency order of Installations",
        scenario: "installation-tree",
        from: 1,
        guard: Guard::DependencyOrder,
    },
];
