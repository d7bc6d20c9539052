//! Is something left that was made for an execution which is gone? Then nobody else will take it away.
//!
//! ```text
//! a process looks at an execution ── stands still ── the execution is deleted, with all that it had made ── it goes on:
//!     the Job (held), its input or the undo is made for nobody
//! ```
//! What an execution makes in another namespace cannot name it as its owner, so no garbage collector takes it along, and a
//! write that comes too late finds its name free. Only what was never let go is taken away here. A Job that runs may be in
//! the middle of its change: it is never stopped; once it is over it expires like any other.
//!
//! Watches name what is worth a look: an object whose execution no cache shows. Where nothing is left, nobody looks.

use std::marker::PhantomData;

use pawl_api::k8s::SECRET;
use pawl_api::meta::Kind;
use pawl_api::pawl::labels::OWNER_UID;
use pawl_api::remedy::{kubernetes_execution, workflow_execution};
use pawl_api::tekton::{PIPELINE_RUN, PipelineRun};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use crate::cluster::job::JOB;
use crate::cluster::job::followed::Followed;
use crate::held_run::{is_finished, is_held};
use crate::lock::reaper::{find, unit_of};
use crate::machine::{AnyMachine, Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Plan, Precondition, Step};
use crate::remedy::kubernetes_execution::KEPT_SECONDS;
use crate::view::{Context, View};

/// The machines that tidy up after executions that are gone; what they keep is in the executor namespace.
pub(super) fn machines(executor_namespace: &str) -> [AnyMachine; 3] {
    [
        AnyMachine::new(Strays::<Followed>::new(JOB, executor_namespace)),
        AnyMachine::new(Strays::<PipelineRun>::new(PIPELINE_RUN, executor_namespace)),
        AnyMachine::new(Strays::<IgnoredAny>::new(SECRET, executor_namespace)),
    ]
}

/// Takes away what was made for executions that are gone: objects of one kind, which others read as `K`.
struct Strays<K> {
    kind: Kind,
    executor_namespace: String,
    read_as: PhantomData<fn() -> K>,
}

impl<K> Strays<K> {
    fn new(kind: Kind, executor_namespace: &str) -> Self {
        Self { kind, executor_namespace: executor_namespace.to_owned(), read_as: PhantomData }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Machine for Strays<K> {
    type Kind = K;
    type Status = ();

    fn description(&self) -> Description {
        let job = || Watch::other(JOB, of_itself).by_labels(&[OWNER_UID]);
        let action = |wakes| Watch::other(kubernetes_execution::KIND, wakes);
        let workflow = |wakes| Watch::other(workflow_execution::KIND, wakes);
        let (name, depth, watches, verbs): (_, _, _, &'static [&'static str]) = match &self.kind {
            kind if *kind == JOB => {
                let watches = vec![job(), action(jobs_of), workflow(jobs_of)];
                ("stray-jobs", Depth::Full, watches, &["delete", "patch"])
            }
            kind if *kind == PIPELINE_RUN => {
                let runs = Watch::other(PIPELINE_RUN, of_itself).by_labels(&[OWNER_UID]);
                ("stray-pipelineruns", Depth::Full, vec![runs, workflow(pipeline_runs_of)], &["delete"])
            }
            _ => {
                let secrets = Watch::other(SECRET, of_itself).by_labels(&[OWNER_UID]).metadata_only();
                let jobs = Watch { wakes: crate::machine::Wakes::By(secrets_of_the_job), ..job() };
                ("stray-secrets", Depth::Metadata, vec![secrets, jobs, action(secrets_of)], &["delete"])
            }
        };
        Description {
            name,
            primary: Primary::Woken(self.kind.clone()),
            depth,
            watches,
            finalizer: None,
            phases: None,
            writes: vec![Write::main(self.kind.clone(), verbs)],
        }
    }

    fn reconcile(&self, cx: &Context<'_, K>) -> Plan<()> {
        let me = cx.object;
        let Some(owner) = orphaned(me, cx.view).filter(|_| !me.is_deleting()) else { return Plan::rest() };
        let owner_uid = owner.uid.clone();
        // A cache is no proof that an execution is gone.
        let gone = Plan::step(Step::confirm_gone(owner));
        if *me.kind() == SECRET {
            let ours = me.namespace() == Some(self.executor_namespace.as_str());
            if !ours || !cx.view.labelled(&JOB, OWNER_UID, &owner_uid).is_empty() {
                return Plan::rest();
            }
            let no_job = Step::Confirm(Precondition::NoneLabelled {
                kind: JOB,
                namespace: me.namespace().map(str::to_owned),
                label: OWNER_UID,
                value: owner_uid,
            });
            return gone.then(no_job).then(Step::delete(me));
        }
        if is_held(me) {
            // Of exactly the version that was read: it was not started since.
            return gone.then(Step::delete_unchanged(me).foreground());
        }
        // A Job that is over would stay for ever.
        let over = *me.kind() == JOB && is_finished(me);
        if over && me.raw().pointer("/spec/ttlSecondsAfterFinished").is_none() {
            return gone.then(Step::patch(me, json!({"spec": {"ttlSecondsAfterFinished": KEPT_SECONDS}})));
        }
        Plan::rest()
    }
}

/// The execution that an object was made for, if no cache shows it. What is in the namespace of its execution has a
/// controller, and goes with it; most objects are of neither sort, and are done with at a glance.
fn orphaned(object: &Object, view: &dyn View) -> Option<Reference> {
    object.label(OWNER_UID)?;
    if object.controller().is_some() {
        return None;
    }
    let ours =
        |unit: &Reference| unit.kind == kubernetes_execution::KIND || unit.kind == workflow_execution::KIND;
    unit_of(object).filter(ours).filter(|unit| find(view, unit).is_none())
}

fn of_itself(object: &Object, view: &dyn View) -> Vec<Key> {
    orphaned(object, view).map(|_| object.key()).into_iter().collect()
}

/// What was kept for the Jobs of an execution goes when they have gone.
fn secrets_of_the_job(job: &Object, view: &dyn View) -> Vec<Key> {
    orphaned(job, view).map(|unit| labelled(&SECRET, &unit.uid, view)).unwrap_or_default()
}

fn jobs_of(unit: &Object, view: &dyn View) -> Vec<Key> {
    left_by(unit, &JOB, view)
}

fn pipeline_runs_of(unit: &Object, view: &dyn View) -> Vec<Key> {
    left_by(unit, &PIPELINE_RUN, view)
}

fn secrets_of(unit: &Object, view: &dyn View) -> Vec<Key> {
    left_by(unit, &SECRET, view)
}

/// What an execution leaves when it goes; nothing while it is there.
fn left_by(unit: &Object, kind: &Kind, view: &dyn View) -> Vec<Key> {
    if find(view, &unit.reference()).is_some() { Vec::new() } else { labelled(kind, unit.uid(), view) }
}

fn labelled(kind: &Kind, uid: &str, view: &dyn View) -> Vec<Key> {
    view.labelled(kind, OWNER_UID, uid).iter().map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::garbage::Garbage;
    use crate::testing::Cluster;
    use pawl_api::git::workflow::HELD;
    use pawl_api::meta::names;
    use pawl_api::remedy::annotations;
    use serde_json::Value;

    const EXECUTOR: &str = "kubernaut-executor";

    /// An object that was made for the KubernetesExecution `n/k`, or for the WorkflowExecution of that name.
    fn made(kind: &str, owner: &str, name: &str, held: bool) -> Value {
        let mut annotations = json!({annotations::EXECUTION: "n/k"});
        if held {
            annotations[HELD] = json!("false");
        }
        let uid = format!("{}-k", owner.to_lowercase());
        json!({"kind": kind, "metadata": {"name": name, "namespace": EXECUTOR, "annotations": annotations,
            "labels": {"pawl.dev/owner-kind": names::label_value(owner), "pawl.dev/owner-uid": uid}},
            "spec": {"suspend": held, "template": {"spec":
                {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    }

    fn execution() -> Value {
        json!({"kind": "KubernetesExecution", "metadata": {"name": "k"}, "spec": {"action": "scale_deployment",
            "parameters": {"scaleDeployment": {"deployment": "web", "namespace": "n", "replicas": 5}}}})
    }

    fn over(mut job: Value) -> Value {
        job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        job
    }

    /// With what ends a deletion that waits for what an object owns.
    fn with_garbage() -> Vec<AnyMachine> {
        machines(EXECUTOR).into_iter().chain([AnyMachine::new(Garbage)]).collect()
    }

    /// What is left after the strays were looked for.
    fn left(objects: &[Value]) -> (Cluster, Vec<String>) {
        let kinds = [JOB, SECRET, PIPELINE_RUN, kubernetes_execution::KIND, workflow_execution::KIND];
        let mut cluster = Cluster::of(&kinds, "");
        for object in objects {
            cluster.put(object.clone());
        }
        cluster.settle(&with_garbage());
        let names = [JOB, SECRET, PIPELINE_RUN].into_iter().flat_map(|kind| cluster.world.list(&kind, None));
        let names = names.map(|object| object.name().to_owned()).collect();
        (cluster, names)
    }

    const NOBODY: &[&str] = &[];

    #[test]
    fn what_was_never_let_go_and_what_was_kept_goes_when_the_execution_is_gone() {
        let action = "KubernetesExecution";
        let objects = [
            made("Job", action, "job", true),
            made("Secret", action, "job-in", false),
            made("Secret", action, "pawl-undo-kubernetesexecution-k", false),
            made("Job", "WorkflowExecution", "far", true),
            made("PipelineRun", "WorkflowExecution", "run", true),
        ];
        assert_eq!(left(&objects).1, NOBODY);
    }

    #[test]
    fn while_the_execution_is_there_everything_stays() {
        let action = "KubernetesExecution";
        let objects =
            [execution(), made("Job", action, "job", true), made("Secret", action, "job-in", false)];
        assert_eq!(left(&objects).1, ["job", "job-in"]);
    }

    #[test]
    fn a_job_that_was_let_go_is_never_stopped_and_keeps_what_it_needs() {
        let action = "KubernetesExecution";
        let objects = [made("Job", action, "job", false), made("Secret", action, "job-in", false)];
        assert_eq!(left(&objects).1, ["job", "job-in"]);
        let run = made("PipelineRun", "WorkflowExecution", "run", false);
        assert_eq!(left(&[run]).1, ["run"]);
    }

    #[test]
    fn a_job_that_is_over_expires_and_what_it_needed_goes_with_it() {
        let action = "KubernetesExecution";
        let objects = [over(made("Job", action, "job", false)), made("Secret", action, "job-in", false)];
        let (mut cluster, names) = left(&objects);
        assert_eq!(names, ["job", "job-in"]);
        let job = Key::new(Some(EXECUTOR), "job");
        assert_eq!(cluster.get(&JOB, &job).unwrap()["spec"]["ttlSecondsAfterFinished"], KEPT_SECONDS);
        cluster.delete(&JOB, &job, "Background");
        cluster.settle(&with_garbage());
        assert!(cluster.world.list(&SECRET, None).is_empty());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let mut elsewhere = made("Secret", "KubernetesExecution", "theirs", false);
        elsewhere["metadata"]["namespace"] = json!("n");
        let mut near = made("Job", "WorkflowExecution", "near", true);
        near["metadata"]["ownerReferences"] = json!([{"apiVersion": workflow_execution::KIND.api_version(),
            "kind": "WorkflowExecution", "name": "k", "uid": "workflowexecution-k", "controller": true}]);
        // Without the garbage collector, which would take what its owner left, as it should.
        let mut cluster =
            Cluster::of(&[JOB, SECRET, kubernetes_execution::KIND, workflow_execution::KIND], "");
        for object in [elsewhere, near, made("Job", "Stranger", "stranger", true)] {
            cluster.put(object);
        }
        cluster.settle(&machines(EXECUTOR));
        let left = [JOB, SECRET].into_iter().flat_map(|kind| cluster.world.list(&kind, None));
        let left: Vec<String> = left.map(|object| object.name().to_owned()).collect();
        assert_eq!(left, ["near", "stranger", "theirs"]);
    }

    #[test]
    fn nobody_looks_where_the_execution_is_there_and_its_end_is_enough_to_look() {
        let mut cluster = Cluster::of(&[JOB, kubernetes_execution::KIND], "");
        cluster.put(execution());
        cluster.put(made("Job", "KubernetesExecution", "job", true));
        let key = Key::new(Some("n"), "k");
        let execution = cluster.world.get(&kubernetes_execution::KIND, &key).unwrap();
        let job = cluster.world.list(&JOB, None).remove(0);
        assert_eq!((of_itself(&job, &cluster.world), jobs_of(&execution, &cluster.world)), (vec![], vec![]));
        cluster.world.remove(&kubernetes_execution::KIND, &key);
        assert_eq!(of_itself(&job, &cluster.world), [job.key()]);
        assert_eq!(jobs_of(&execution, &cluster.world), [job.key()]);
    }
}
