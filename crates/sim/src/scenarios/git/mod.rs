//! The whole git door: a repository on GitHub, pushes and pull requests, Jobs, check runs.

mod pulls;
mod pushes;
mod troubles;

use pawl_api::git;
use pawl_api::k8s::{JOB, NAMESPACE, POD, SECRET};
use pawl_integrations::github::fake::{APP_ID, APP_KEY_PKCS8, Change, INSTALLATION_ID, Repo, Role};
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use super::home as system;
use super::jobs::template;
use crate::ground::Ground;
use crate::hub::{CREDENTIALS, Hub};
use crate::mutant::Guards;
use crate::oracle;
use crate::scenario::{Deed, Scenario};

const REPOSITORY: pawl_api::meta::Kind = git::repository::KIND;
const BRANCH: pawl_api::meta::Kind = git::branch::KIND;
const WORKFLOW: pawl_api::meta::Kind = git::workflow::KIND;
const TEMPLATE: pawl_api::meta::Kind = git::workflow_template::KIND;

/// A scenario with a GitHub; the rest is as these all are.
fn on_github(
    name: &'static str,
    about: &'static str,
    script: fn() -> Vec<Deed>,
    ends_with: fn(&Ground) -> Result<(), String>,
) -> Scenario {
    Scenario {
        name,
        about,
        own_kinds: true,
        timed: false,
        stalls: true,
        alone: false,
        github: Some(prepare),
        machines,
        script,
        ends_with,
    }
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

fn infra(hub: &Hub, act: impl FnOnce(&Repo)) {
    if let Some(infra) = hub.fake.repository("acme/infra") {
        act(&infra);
    }
}

fn credentials() -> Deed {
    let app = json!({
        "metadata": {"name": CREDENTIALS, "namespace": "default"},
        "stringData": {"github-app-id": APP_ID.to_string(), "github-installation-id": INSTALLATION_ID.to_string(),
            "github-private-key": APP_KEY_PKCS8},
    });
    Deed::create(SECRET, app)
}

fn workflow_template(name: &'static str, command: &[&str]) -> Deed {
    template_with(name, command, &json!({}))
}

fn template_with(name: &'static str, command: &[&str], extra: &Value) -> Deed {
    let job = json!({"backoffLimit": 0, "template": template(command)});
    let mut spec = json!({"displayName": "Plan", "match": {"paths": ["**/*.tf"]}, "job": job});
    if let (Some(spec), Some(extra)) = (spec.as_object_mut(), extra.as_object()) {
        spec.extend(extra.clone());
    }
    Deed::create(TEMPLATE, json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}))
}

fn repository(extra: Value) -> Deed {
    let mut spec = json!({"owner": "acme", "name": "infra", "type": "github", "defaultBranch": "main",
        "githubSecretRef": {"name": CREDENTIALS}, "pollInterval": "6h"});
    if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
        spec.extend(extra);
    }
    Deed::create(REPOSITORY, json!({"metadata": {"name": "infra", "namespace": "default"}, "spec": spec}))
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

/// Whatever happened, so many Jobs ever ran.
fn jobs(ground: &Ground, expected: usize) -> Result<(), String> {
    let all = ground.history.iter().map(|happened| &happened.object).filter(|object| *object.kind() == JOB);
    let ran: std::collections::BTreeSet<&str> =
        all.filter(|job| oracle::has_run(job)).map(|job| job.uid()).collect();
    if ran.len() == expected { Ok(()) } else { Err(format!("{} Jobs ran, not {expected}", ran.len())) }
}

/// The conclusion of the newest check run of this name.
fn check_run(ground: &Ground, name: &str) -> Option<String> {
    let runs = ground.hub.as_ref()?.fake.repository("acme/infra")?.check_runs();
    runs.into_iter().rfind(|run| run.name == name)?.conclusion
}

fn concluded(ground: &Ground, name: &str, conclusion: &str) -> Result<(), String> {
    match check_run(ground, name) {
        Some(found) if found == conclusion => Ok(()),
        other => Err(format!("check run {name} concluded {other:?}, not {conclusion}")),
    }
}

/// The Jobs in the order in which they were let go, each with whether another one still ran then.
fn started(ground: &Ground) -> Vec<(&std::sync::Arc<pawl_machines::object::Object>, bool)> {
    let mut running: std::collections::BTreeSet<&str> = Default::default();
    let mut seen: std::collections::BTreeSet<&str> = Default::default();
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
    if found == shas { Ok(()) } else { Err(format!("Jobs ran for {found:?}, not for {shas:?}")) }
}
