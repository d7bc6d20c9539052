//! A small cluster with the machines of this door, for its tests.

use std::collections::BTreeMap;
use std::time::Duration;

use pawl_api::deploy::{annotations, data_object, deploy_item, execution, installation, labels, target};
use pawl_api::k8s::{CLUSTER_ROLE, CUSTOM_RESOURCE_DEFINITION, DEPLOYMENT, LEASE, NAMESPACE, SECRET};
use pawl_api::meta::Kind;
use pawl_api::pawl::freeze;
use serde_json::{Value, json};

use super::deploy_item::DeployItems;
use super::execution::Executions;
use crate::cluster::garbage::Garbage;
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::testing::{CONFIG_MAP, Cluster};

pub(super) const KINDS: [Kind; 13] = [
    installation::KIND,
    execution::KIND,
    deploy_item::KIND,
    target::KIND,
    data_object::KIND,
    SECRET,
    CONFIG_MAP,
    NAMESPACE,
    DEPLOYMENT,
    CLUSTER_ROLE,
    LEASE,
    CUSTOM_RESOURCE_DEFINITION,
    freeze::KIND,
];

pub(super) struct Case {
    pub(super) cluster: Cluster,
    pub(super) machines: Vec<AnyMachine>,
}

pub(super) fn key(name: &str) -> Key {
    Key::new(Some("n"), name)
}

/// `a b<a c<a,b` as items of the mock deployer; `configs` by name.
pub(super) fn items(line: &str, configs: &[(&str, Value)]) -> Value {
    let item = |word: &str| {
        let (name, others) = word.split_once('<').unwrap_or((word, ""));
        let others: Vec<&str> = others.split(',').filter(|other| !other.is_empty()).collect();
        let config =
            configs.iter().find(|(of, _)| *of == name).map_or(json!({}), |(_, config)| config.clone());
        json!({"name": name, "type": "landscaper.gardener.cloud/mock", "dependsOn": others, "config": config})
    };
    line.split_whitespace().map(item).collect()
}

impl Case {
    /// One Execution `e` with these items, which has not run.
    pub(super) fn of(line: &str, configs: &[(&str, Value)]) -> Self {
        let mut case = Self::empty();
        case.cluster.put(json!({"kind": "Execution", "metadata": {"name": "e"},
            "spec": {"deployItems": items(line, configs)}}));
        case
    }

    pub(super) fn empty() -> Self {
        Self::with(&[])
    }

    /// With more kinds.
    pub(super) fn with(kinds: &[Kind]) -> Self {
        let machines = vec![
            AnyMachine::new(Executions::default()),
            AnyMachine::new(DeployItems::default()),
            AnyMachine::new(Garbage),
        ];
        let kinds: Vec<Kind> = KINDS.iter().chain(kinds).cloned().collect();
        Self { cluster: Cluster::of(&kinds, ""), machines }
    }

    pub(super) fn settle(&mut self) -> &mut Self {
        self.cluster.settle(&self.machines);
        self
    }

    pub(super) fn wait(&mut self, by: Duration) -> &mut Self {
        self.cluster.advance(by);
        self.settle()
    }

    /// A person asks for a job.
    pub(super) fn reconcile(&mut self) -> &mut Self {
        self.operation("reconcile").settle()
    }

    pub(super) fn operation(&mut self, word: &str) -> &mut Self {
        self.edit(json!({"metadata": {"annotations": {annotations::OPERATION: word}}}))
    }

    /// Changes the Execution.
    #[expect(clippy::needless_pass_by_value, reason = "it is written in place, as json!")]
    pub(super) fn edit(&mut self, patch: Value) -> &mut Self {
        self.cluster.edit(&execution::KIND, &key("e"), &patch);
        self
    }

    /// Replaces the items.
    pub(super) fn set_items(&mut self, line: &str, configs: &[(&str, Value)]) -> &mut Self {
        self.edit(json!({"spec": {"deployItems": items(line, configs)}}))
    }

    pub(super) fn delete(&mut self) -> &mut Self {
        self.cluster.delete(&execution::KIND, &key("e"), "Background");
        self.settle()
    }

    pub(super) fn execution(&self) -> Option<Value> {
        self.cluster.get(&execution::KIND, &key("e"))
    }

    /// Phase and reason of the Execution.
    pub(super) fn says(&self) -> (String, String) {
        let found = self.execution().expect("the Execution");
        let text = |at: &str| found.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/status/phase"), text("/status/lastError/reason"))
    }

    pub(super) fn message(&self) -> String {
        self.execution().unwrap()["status"]["lastError"]["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn check(&self, phase: &str, reason: &str) {
        let (found, because) = self.says();
        let status = &self.execution().unwrap()["status"];
        assert_eq!((found.as_str(), because.as_str()), (phase, reason), "{status:#}");
    }

    pub(super) fn item_key(&self, name: &str) -> Key {
        let execution = self.execution();
        let uid = execution.as_ref().and_then(|found| found["metadata"]["uid"].as_str());
        key(&deploy_item::name("e", uid.unwrap_or("execution-e"), name))
    }

    pub(super) fn item(&self, name: &str) -> Option<Value> {
        self.cluster.get(&deploy_item::KIND, &self.item_key(name))
    }

    /// `a=Succeeded b=Failed`, in the order of names; an item that never ran has no phase.
    pub(super) fn phases(&self) -> String {
        use crate::view::View;
        let mut phases: BTreeMap<String, String> = BTreeMap::new();
        for item in self.cluster.world.list(&deploy_item::KIND, None) {
            let name = item.label(labels::NAME).unwrap_or("?").to_owned();
            phases.insert(name, item.status()["phase"].as_str().unwrap_or("-").to_owned());
        }
        phases.iter().map(|(name, phase)| format!("{name}={phase}")).collect::<Vec<_>>().join(" ")
    }

    /// The names of items in the order in which they were given a job's ID, from the so-manieth status write on.
    pub(super) fn triggered(&self, from: usize) -> Vec<String> {
        let mut seen: BTreeMap<&Key, &Value> = BTreeMap::new();
        let mut order = Vec::new();
        for (at, (key, status)) in self.cluster.statuses.iter().enumerate() {
            let job = &status["jobID"];
            let name = key.name.strip_prefix("e-").and_then(|rest| rest.rsplit_once('-'));
            let Some((name, _)) = name.filter(|_| !job.is_null()) else { continue };
            if seen.insert(key, job) != Some(job) && at >= from {
                order.push(name.to_owned());
            }
        }
        order
    }

    /// Where in the record we are.
    pub(super) fn mark(&self) -> usize {
        self.cluster.statuses.len()
    }
}
