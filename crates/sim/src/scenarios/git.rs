//! The whole git door: a repository on GitHub, pushes and pull requests, Jobs, check runs.

use pawl_api::git;
use pawl_api::k8s::{JOB, NAMESPACE, SECRET};
use pawl_integrations::github::fake::{APP_ID, APP_KEY_PKCS8, Change, INSTALLATION_ID, Repo, Role, TOKEN};
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};

use super::jobs::template;
use crate::ground::Ground;
use crate::hub::Hub;
use crate::mutant::Guards;
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
    vec![
        on_github(
            "git-push",
            "a commit on the default branch runs once per folder, and its check runs conclude",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({})),
                ]
            },
            |ground| jobs(ground, 2).and_then(|()| concluded(ground, "pawl", "success")),
        ),
        on_github(
            "git-fails",
            "a failing folder fails its check run and the aggregate",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "1"]),
                    repository(json!({})),
                ]
            },
            |ground| jobs(ground, 2).and_then(|()| concluded(ground, "pawl", "failure")),
        ),
        on_github(
            "git-two-commits",
            "two commits on one folder run one after the other, in their order",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({"bootstrap": "cursor"})),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.push("main", &Change::new("one").put("net/main.tf", "1"));
                            infra.push("main", &Change::new("two").put("net/main.tf", "2"));
                        });
                    })
                    .when(synced),
                ]
            },
            |ground| jobs(ground, 2).and_then(|()| in_order(ground)),
        ),
        on_github(
            "git-pull-request",
            "a branch with a pull request runs for the files of the pull request, a new commit replaces the old",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({"bootstrap": "cursor"})),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.push("topic", &Change::new("a").put("net/a.tf", "1"));
                            infra.open_pull(infra, "topic", "main", "alice", false);
                        });
                    })
                    .when(synced),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.push("topic", &Change::new("b").put("dns/b.tf", "1"));
                        });
                    })
                    .when(|ground| all_workflows_are(ground, "Succeeded", 1)),
                ]
            },
            |ground| concluded(ground, "pawl", "success"),
        ),
        on_github(
            "git-fork",
            "a pull request from a fork waits until a member lets its commit run",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({"bootstrap": "cursor"})),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            let fork = infra.fork("someone");
                            fork.push("main", &Change::new("mine").by("mallory").put("net/x.tf", "1"));
                            infra.open_pull(&fork, "main", "main", "mallory", false);
                        });
                    })
                    .when(synced),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            let sha = hub.fake.repository("someone/infra").and_then(|fork| fork.head("main"));
                            infra.comment(
                                1,
                                "mallory",
                                &format!("/ok-to-test {}", sha.clone().unwrap_or_default()),
                            );
                            infra.comment(1, "alice", &format!("/ok-to-test {}", sha.unwrap_or_default()));
                        });
                    })
                    .when(|ground| check_run(ground, "pawl").is_some_and(|found| found == "action_required")),
                ]
            },
            |ground| jobs(ground, 1).and_then(|()| concluded(ground, "pawl", "success")),
        ),
        on_github(
            "git-cancel",
            "Workflows with a workspace are cancelled by a comment of a member, and of nobody else",
            || {
                vec![
                    system(),
                    credentials(),
                    template_with("plan", &["hang"], &json!({"workspace": {"enabled": true}})),
                    repository(json!({"bootstrap": "cursor"})),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.push("topic", &Change::new("a").put("net/a.tf", "1"));
                            infra.open_pull(infra, "topic", "main", "alice", false);
                        });
                    })
                    .when(synced),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.comment(1, "mallory", "/cancel");
                            infra.comment(1, "alice", "/cancel");
                        });
                    })
                    .when(|ground| has_pull_request(ground) && all_workflows_are(ground, "Running", 1)),
                ]
            },
            |ground| {
                if all_workflows_are(ground, "Cancelled", 1) {
                    Ok(())
                } else {
                    Err("something still runs".to_owned())
                }
            },
        ),
        on_github(
            "git-token",
            "with a token, commit statuses stand for check runs",
            || {
                let token = json!({"metadata": {"name": "credentials", "namespace": "default"}, "stringData": {"token": TOKEN}});
                vec![
                    system(),
                    Deed::create(SECRET, token),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({})),
                ]
            },
            |ground| {
                let hub = ground.hub.as_ref().ok_or("no GitHub")?;
                let infra = hub.fake.repository("acme/infra").ok_or("no repository")?;
                let statuses = infra.statuses(&infra.head("main").unwrap_or_default());
                if statuses.is_empty() || statuses.values().any(|state| state != "success") {
                    return Err(format!("{statuses:?}"));
                }
                jobs(ground, 2)
            },
        ),
        Scenario {
            // How far it had got when everything was taken away depends on the order of things.
            timed: true,
            ..on_github(
                "git-all-goes",
                "the Secret goes first, then the Repository: nothing wedges",
                || {
                    vec![
                        system(),
                        credentials(),
                        workflow_template("plan", &["hang"]),
                        repository(json!({})),
                        Deed::delete(SECRET, Some("default"), "credentials", "Background")
                            .when(|ground| all_workflows_are(ground, "Running", 2)),
                        Deed::delete(REPOSITORY, Some("default"), "infra", "Background"),
                    ]
                },
                |ground| {
                    let left: usize =
                        [REPOSITORY, BRANCH, WORKFLOW, JOB].iter().map(|kind| ground.all(kind).count()).sum();
                    if left == 0 { Ok(()) } else { Err(format!("{left} objects are left")) }
                },
            )
        },
    ]
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

fn system() -> Deed {
    Deed::create(NAMESPACE, json!({"metadata": {"name": pawl_api::pawl::SYSTEM_NAMESPACE}}))
}

fn credentials() -> Deed {
    let app = json!({
        "metadata": {"name": "credentials", "namespace": "default"},
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
        "githubSecretRef": {"name": "credentials"}, "pollInterval": "1h"});
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

/// Whatever happened, so many Jobs were ever made.
fn jobs(ground: &Ground, expected: usize) -> Result<(), String> {
    let made = ground
        .history
        .iter()
        .filter(|happened| {
            happened.what == pawl_apiserver::ChangeType::Added && *happened.object.kind() == JOB
        })
        .count();
    if made == expected { Ok(()) } else { Err(format!("{made} Jobs were made, not {expected}")) }
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

/// No Job of a later commit was let go before that of the earlier one had ended.
fn in_order(ground: &Ground) -> Result<(), String> {
    let mut running: Option<String> = None;
    for happened in ground.history.iter().filter(|happened| *happened.object.kind() == JOB) {
        let job = &happened.object;
        let suspended = job.raw().pointer("/spec/suspend") == Some(&Value::Bool(true));
        let done = job.status().pointer("/completionTime").is_some();
        match &running {
            Some(name) if name == job.name() && done => running = None,
            Some(name) if name != job.name() && !suspended && !done => {
                return Err(format!("{} started while {name} ran", job.name()));
            }
            None if !suspended && !done => running = Some(job.name().to_owned()),
            _ => {}
        }
    }
    Ok(())
}
