//! A small cluster with the machines of this door, and a Tekton that is played by the test.

pub(super) mod actions;

use std::time::Duration;

use pawl_api::k8s::CUSTOM_RESOURCE_DEFINITION;
use pawl_api::meta::Kind;
use pawl_api::pawl::freeze;
use pawl_api::remedy::{annotations, kubernetes_execution, remediation_request, workflow_execution};
use pawl_api::tekton::{PIPELINE_RUN, TASK_RUN};
use serde_json::{Value, json};

use super::memory::Memory;
use super::remediation_request::RemediationRequests;
use super::workflow_execution::WorkflowExecutions;
use crate::cluster::garbage::Garbage;
use crate::cluster::job::orphans::OrphanPods;
use crate::cluster::job::{JOB, Jobs, POD};
use crate::cluster::namespace::NAMESPACE;
use crate::lock::{self, LEASE, Lock};
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::testing::{Cluster, merge};
use crate::view::View as _;

const KINDS: [Kind; 11] = [
    NAMESPACE,
    workflow_execution::KIND,
    kubernetes_execution::KIND,
    remediation_request::KIND,
    JOB,
    POD,
    PIPELINE_RUN,
    TASK_RUN,
    LEASE,
    freeze::KIND,
    CUSTOM_RESOURCE_DEFINITION,
];

pub(super) struct Lab {
    pub(super) cluster: Cluster,
    pub(super) machines: Vec<AnyMachine>,
}

impl Lab {
    pub(super) fn new() -> Self {
        let machines = vec![
            AnyMachine::new(WorkflowExecutions::default()),
            AnyMachine::new(RemediationRequests::default()),
            AnyMachine::new(Garbage),
            AnyMachine::new(Jobs),
            AnyMachine::new(OrphanPods),
        ];
        let mut cluster = Cluster::of(&KINDS, "");
        cluster.put(json!({"kind": "Namespace", "metadata": {"name": "n"}}));
        Self { cluster, machines }
    }

    /// Without the cluster's own machines: what was refused is known to one machine, and the small cluster does not tell
    /// whose it was.
    pub(super) fn alone() -> Self {
        let mut lab = Self::new();
        lab.machines.truncate(1);
        lab
    }

    /// An execution of workflow `mend` on `n/deployment/web`, changed as the patch says.
    #[expect(clippy::needless_pass_by_value, reason = "it is written in place, as json!")]
    pub(super) fn execution(&mut self, name: &str, patch: Value) -> &mut Self {
        let mut raw = json!({"kind": "WorkflowExecution", "metadata": {"name": name}, "spec": {
            "workflowRef": {"workflowId": "mend", "version": "1", "containerImage": "registry.example.com/mend:1"},
            "targetResource": "n/deployment/web",
        }});
        merge(&mut raw, &patch);
        self.cluster.put(raw);
        self.settle()
    }

    pub(super) fn settle(&mut self) -> &mut Self {
        self.cluster.settle(&self.machines);
        self
    }

    pub(super) fn wait(&mut self, by: Duration) -> &mut Self {
        self.cluster.advance(by);
        self.settle()
    }

    pub(super) fn get(&self, name: &str) -> Value {
        self.cluster.get(&workflow_execution::KIND, &key(name)).expect("the execution")
    }

    pub(super) fn status(&self, name: &str) -> Value {
        self.get(name)["status"].clone()
    }

    #[track_caller]
    pub(super) fn check(&mut self, name: &str, phase: &str, reason: &str) -> &mut Self {
        let status = self.status(name);
        assert_eq!((&status["phase"], &status["reason"]), (&json!(phase), &json!(reason)), "{status:#}");
        self
    }

    pub(super) fn runs(&self, kind: &Kind) -> Vec<Value> {
        self.cluster.world.list(kind, None).iter().map(|object| object.raw().clone()).collect()
    }

    /// The one PipelineRun of an execution.
    pub(super) fn run_of(&self, name: &str) -> Value {
        let of = format!("n/{name}");
        let mut found = self.runs(&PIPELINE_RUN);
        found.extend(self.runs(&JOB));
        found.retain(|run| run["metadata"]["annotations"][annotations::EXECUTION] == of.as_str());
        assert_eq!(found.len(), 1, "runs of {name}");
        found.remove(0)
    }

    /// Tekton says how the run fares.
    pub(super) fn tekton(&mut self, name: &str, status: &str, reason: &str, message: &str) -> &mut Self {
        let run = self.run_of(name);
        let at = self.cluster.now;
        let mut said = json!({"startTime": at, "conditions": [
            {"type": "Succeeded", "status": status, "reason": reason, "message": message}]});
        if status != "Unknown" {
            said["completionTime"] = json!(at);
        }
        self.cluster.edit(&PIPELINE_RUN, &run_key(&run), &json!({"status": said}));
        self.settle()
    }

    pub(super) fn succeed(&mut self, name: &str) -> &mut Self {
        self.tekton(name, "True", "Succeeded", "Tasks Completed: 1 (Failed: 0, Cancelled 0), Skipped: 0")
    }

    /// A task of the run failed while it was executing.
    pub(super) fn fail(&mut self, name: &str) -> &mut Self {
        let run = self.run_of(name);
        let owner = json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": run["metadata"]["name"],
            "uid": run["metadata"]["uid"], "controller": true}]);
        self.cluster.put(json!({"kind": "TaskRun", "metadata": {"name": format!("{name}-a"), "ownerReferences": owner,
            "labels": {"tekton.dev/pipelineTask": "a"}}, "spec": {}, "status": {
                "conditions": [{"type": "Succeeded", "status": "False", "reason": "StepFailed", "message": "exited with code 1"}],
                "steps": [{"name": "s1", "container": "step-s1", "terminated": {"exitCode": 1, "reason": "Error"}}]}}));
        let children = json!([{"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": format!("{name}-a"),
            "pipelineTaskName": "a"}]);
        self.cluster.edit(&PIPELINE_RUN, &run_key(&run), &json!({"status": {"childReferences": children}}));
        self.tekton(name, "False", "Failed", "Tasks Completed: 1 (Failed: 1, Cancelled 0), Skipped: 0")
    }

    /// Who holds the target, as the Leases say.
    pub(super) fn holders(&self) -> Vec<String> {
        let leases = self.cluster.world.list(&LEASE, None);
        let held = leases.iter().filter_map(|lease| match lock::read(Some(lease)) {
            Lock::Held(holder) => Some(holder.unit.key.name.clone()),
            Lock::Free => None,
            Lock::Unreadable(identity) => Some(identity),
        });
        held.collect()
    }

    pub(super) fn memory(&self) -> Memory {
        let lease = self.cluster.world.list(&LEASE, None).into_iter().next();
        Memory::of(lease.as_deref()).unwrap()
    }

    pub(super) fn event(&self, reason: &str) -> bool {
        self.cluster.events.iter().any(|(_, one, _)| one == reason)
    }
}

pub(super) fn key(name: &str) -> Key {
    Key::new(Some("n"), name)
}

pub(super) fn run_key(run: &Value) -> Key {
    Key::new(run["metadata"]["namespace"].as_str(), run["metadata"]["name"].as_str().unwrap())
}

pub(super) fn engine_job() -> Value {
    json!({"spec": {"engine": "job"}})
}
