//! Repositories, Branches and templates for the git controllers' tests, and how to read what they became.

use pawl_api::git::{Branch, Workflow, branch, repository, workflow, workflow_template};
use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_api::meta::Kind;
use serde_json::{Value, json};

use crate::cluster::namespace::NAMESPACE;
use crate::git::branch::Branches;
use crate::git::repository::Repositories;
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::testing::{Cluster, merge};
use crate::view::View;

pub(crate) const KINDS: [Kind; 6] = [
    NAMESPACE,
    repository::KIND,
    branch::KIND,
    workflow_template::KIND,
    workflow::KIND,
    PERSISTENT_VOLUME_CLAIM,
];

/// A Repository `r` with more in its spec.
pub(crate) fn following(spec: &str) -> Cluster {
    let mut cluster = Cluster::of(&KINDS, "");
    cluster.outside = super::fake_github::answer;
    cluster.put(repository("r", spec));
    cluster
}

pub(crate) fn repository(name: &str, more: &str) -> Value {
    let mut spec = json!({"owner": "acme", "name": "infra", "githubSecretRef": {"name": "s"}});
    merge(&mut spec, &serde_saphyr::from_str(more).unwrap());
    json!({"kind": "Repository", "metadata": {"name": name}, "spec": spec})
}

/// A template for paths, with more in its spec.
pub(crate) fn template(cluster: &mut Cluster, name: &str, paths: &[&str], more: &str) {
    let job = json!({"template": {"spec": {"containers": [{"name": "main"}]}}});
    let mut spec = json!({"displayName": name, "match": {"paths": paths}, "job": job});
    merge(&mut spec, &serde_saphyr::from_str(more).unwrap());
    cluster.put(json!({"kind": "WorkflowTemplate", "metadata": {"name": name}, "spec": spec}));
}

pub(crate) fn machines() -> [AnyMachine; 2] {
    [AnyMachine::new(Repositories), AnyMachine::new(Branches)]
}

/// Asks for a look and lets everything come to rest.
pub(crate) fn sync(cluster: &mut Cluster) {
    let at = cluster.now.to_string();
    cluster.advance(std::time::Duration::from_secs(1));
    let patch = json!({"metadata": {"annotations": {"terrakojo.io/sync-requested-at": at}}});
    cluster.edit(&repository::KIND, &Key::new(Some("n"), "r"), &patch);
    settle(cluster);
}

/// Workflows that are deleted go at once: their machine is not part of these tests.
pub(crate) fn settle(cluster: &mut Cluster) {
    loop {
        cluster.settle(&machines());
        let leaving: Vec<Key> = cluster
            .world
            .list(&workflow::KIND, None)
            .iter()
            .filter(|object| object.is_deleting())
            .map(|object| object.key())
            .collect();
        if leaving.is_empty() {
            return;
        }
        for key in leaving {
            cluster.edit(&workflow::KIND, &key, &json!({"metadata": {"finalizers": null}}));
        }
    }
}

/// `ref sha[pr]` of every Branch, with `@sequence` for commits.
pub(crate) fn branches(cluster: &Cluster) -> Vec<String> {
    let mut all: Vec<String> = cluster
        .world
        .list(&branch::KIND, None)
        .iter()
        .map(|object| {
            let spec = object.parse::<Branch>().unwrap().spec.clone();
            let number = spec.pull_request().map(|number| format!("#{number}")).unwrap_or_default();
            let sequence = spec.sequence.map(|place| format!("@{place}")).unwrap_or_default();
            let from = spec.head_repository.map(|head| format!("{head}:")).unwrap_or_default();
            format!("{from}{} {}{number}{sequence}", spec.name, spec.sha.trim_end_matches('0'))
        })
        .collect();
    all.sort();
    all
}

/// `template path sha attempt` of every Workflow.
pub(crate) fn workflows(cluster: &Cluster) -> Vec<String> {
    let mut all: Vec<String> = cluster
        .world
        .list(&workflow::KIND, None)
        .iter()
        .map(|object| {
            let spec = object.parse::<Workflow>().unwrap().spec.clone();
            format!("{} {} {} {}", spec.template, spec.path, spec.sha.trim_end_matches('0'), spec.attempt)
        })
        .collect();
    all.sort();
    all
}

/// The key of the Branch of a ref.
pub(crate) fn branch_of(cluster: &Cluster, reference: &str) -> Key {
    let all = cluster.world.list(&branch::KIND, None);
    let found = all.iter().find(|object| object.parse::<Branch>().unwrap().spec.name == reference);
    found.unwrap_or_else(|| panic!("a Branch of {reference}")).key()
}

pub(crate) fn status_of(cluster: &Cluster, reference: &str) -> Value {
    cluster.get(&branch::KIND, &branch_of(cluster, reference)).unwrap()["status"].clone()
}

pub(crate) fn repository_status(cluster: &Cluster) -> Value {
    cluster.get(&repository::KIND, &Key::new(Some("n"), "r")).unwrap()["status"].clone()
}

/// `status reason` of a condition.
pub(crate) fn condition(status: &Value, type_: &str) -> String {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|one| one["type"] == type_);
    found.map_or_else(String::new, |one| {
        format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap())
    })
}

/// The Workflows whose `template path sha attempt` begins like this end in this phase.
pub(crate) fn end(cluster: &mut Cluster, which: &str, phase: &str) {
    for object in cluster.world.list(&workflow::KIND, None) {
        let spec = object.parse::<Workflow>().unwrap().spec.clone();
        let told = format!("{} {} {} {}", spec.template, spec.path, spec.sha, spec.attempt);
        if told.starts_with(which) {
            cluster.edit(&workflow::KIND, &object.key(), &json!({"status": {"phase": phase}}));
        }
    }
}
