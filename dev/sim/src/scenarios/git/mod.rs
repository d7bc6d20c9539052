//! The whole git door: a repository on GitHub, pushes and pull requests, Jobs, check runs.

mod pulls;
mod pushes;
mod troubles;

use std::collections::BTreeSet;

use pawl_api::git;
use pawl_api::k8s::{JOB, NAMESPACE, POD, SECRET};
use pawl_api::meta::Kind;
use pawl_integrations::github::fake::{APP_ID, APP_KEY_PKCS8, Change, CheckRun, INSTALLATION_ID, Repo, Role};
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use super::expect::{self, jobs_ran, none_left};
use super::jobs::template;
use super::{home, merged};
use crate::ground::Ground;
use crate::hub::{CREDENTIALS, Hub};
use crate::mutant::Guards;
use crate::oracle;
use crate::scenario::{Deed, Scenario};

const REPOSITORY: Kind = git::repository::KIND;
const BRANCH: Kind = git::branch::KIND;
const WORKFLOW: Kind = git::workflow::KIND;
const TEMPLATE: Kind = git::workflow_template::KIND;

/// A scenario with a GitHub; the rest is as these all are.
fn on_github(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).on_github(prepare).machines(machines)
}

pub(super) fn all() -> Vec<Scenario> {
    [pushes::all(), pulls::all(), troubles::all()].into_iter().flatten().collect()
}

fn prepare(hub: &Hub) {
    let infra = hub.fake.create("acme/infra");
    infra.permit("alice", Role::Write);
    infra.push(
        "main",
        &Change::new("begin").put("net/main.tf", "0").put("dns/main.tf", "0").put("README.md", "0"),
    );
}

fn machines(guards: Guards) -> Vec<AnyMachine> {
    let mut all = super::jobs::machines(guards);
    all.extend(pawl_machines::git::machines(pawl_api::pawl::SYSTEM_NAMESPACE));
    all
}

/// Something that somebody does with the repository on GitHub.
fn on_infra(act: impl Fn(&Repo) + 'static) -> Deed {
    Deed::on_github(move |hub| {
        if let Some(infra) = hub.fake.repository("acme/infra") {
            act(&infra);
        }
    })
}

/// A Repository that runs what its default branch is at; before it what it needs, after it what people do.
fn every_commit<const N: usize, const M: usize>(templates: [Deed; N], then: [Deed; M]) -> Vec<Deed> {
    set_up(templates, json!({}), then)
}

/// The same of a Repository that runs only what comes after it.
fn new_commits<const N: usize, const M: usize>(templates: [Deed; N], then: [Deed; M]) -> Vec<Deed> {
    set_up(templates, json!({"bootstrap": "cursor"}), then)
}

fn set_up<const N: usize, const M: usize>(templates: [Deed; N], more: Value, then: [Deed; M]) -> Vec<Deed> {
    let before = [home(), credentials()].into_iter().chain(templates);
    before.chain([repository(more)]).chain(then).collect()
}

fn credentials() -> Deed {
    let app = json!({
        "metadata": {"name": CREDENTIALS},
        "stringData": {"github-app-id": APP_ID.to_string(), "github-installation-id": INSTALLATION_ID.to_string(),
            "github-private-key": APP_KEY_PKCS8},
    });
    Deed::create(SECRET, app)
}

/// A template that runs this command.
fn plan(command: &[&str]) -> Deed {
    workflow_template("plan", job(command), json!({}))
}

fn workflow_template(name: &str, job: Value, more: Value) -> Deed {
    let spec = json!({"displayName": "Plan", "match": {"paths": ["**/*.tf"]}, "job": job});
    Deed::create_with_spec(TEMPLATE, name, merged(spec, more))
}

fn job(command: &[&str]) -> Value {
    json!({"backoffLimit": 0, "template": template(command)})
}

fn repository(more: Value) -> Deed {
    let spec = json!({"owner": "acme", "name": "infra", "type": "github", "defaultBranch": "main",
        "githubSecretRef": {"name": CREDENTIALS}, "pollInterval": "6h"});
    Deed::create_with_spec(REPOSITORY, "infra", merged(spec, more))
}

fn synced(ground: &Ground) -> bool {
    let repository = ground.get(&REPOSITORY, "default", "infra");
    repository.is_some_and(|repository| repository.status().get("synced") == Some(&Value::Bool(true)))
}

fn has_pull_request(ground: &Ground) -> bool {
    ground
        .all(&BRANCH)
        .any(|branch| branch.raw().pointer("/spec/prNumber").and_then(Value::as_i64) == Some(1))
}

fn all_workflows_are(ground: &Ground, phase: &str, at_least: usize) -> bool {
    let all: Vec<_> = ground.all(&WORKFLOW).collect();
    all.len() >= at_least
        && all.iter().all(|workflow| workflow.status().get("phase").and_then(Value::as_str) == Some(phase))
}

/// Whether a Job of a Workflow was let go, at some time.
fn has_begun(ground: &Ground) -> bool {
    ground.by_kind.get(&POD).is_some_and(|pods| !pods.is_empty())
}

/// The check runs of the repository, oldest first.
fn check_runs(ground: &Ground) -> Vec<CheckRun> {
    let infra = ground.hub.as_ref().and_then(|hub| hub.fake.repository("acme/infra"));
    infra.map(|infra| infra.check_runs()).unwrap_or_default()
}

/// The conclusion of the newest check run of this name.
fn check_run(ground: &Ground, name: &str) -> Option<String> {
    check_runs(ground).into_iter().rfind(|run| run.name == name)?.conclusion
}

/// The check of the newest commit has succeeded.
fn succeeded(ground: &Ground) -> Result<(), String> {
    concluded(ground, "pawl", "success")
}

fn failed(ground: &Ground) -> Result<(), String> {
    concluded(ground, "pawl", "failure")
}

fn concluded(ground: &Ground, name: &str, conclusion: &str) -> Result<(), String> {
    expect::equal(&format!("conclusion of {name}"), check_run(ground, name).as_deref(), Some(conclusion))
}

/// The Jobs in the order in which they were let go, each with whether another one still ran then.
fn started(ground: &Ground) -> Vec<(&std::sync::Arc<pawl_machines::object::Object>, bool)> {
    let mut running: BTreeSet<&str> = Default::default();
    let mut seen: BTreeSet<&str> = Default::default();
    let mut started = Vec::new();
    for happened in ground.history.iter().filter(|happened| *happened.object.kind() == JOB) {
        let job = &happened.object;
        let over = job.status().get("completionTime").is_some()
            || happened.what == pawl_apiserver::ChangeType::Deleted;
        if over {
            running.remove(job.uid());
        } else if oracle::has_run(job) && seen.insert(job.uid()) {
            started.push((job, !running.is_empty()));
            running.insert(job.uid());
        }
    }
    started
}

/// No Job was let go while another one ran, and each was of the next of these commits.
fn in_order(ground: &Ground, shas: &[String]) -> Result<(), String> {
    let started = started(ground);
    if let Some((job, _)) = started.iter().find(|(_, beside)| *beside) {
        return Err(format!("{} started while another one ran", job.name()));
    }
    let found: Vec<&str> = started.iter().filter_map(|(job, _)| job.label(git::labels::SHA)).collect();
    expect::equal("commits with Jobs", found, shas)
}
