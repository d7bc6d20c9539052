//! Pull requests: their files, new commits, forks, and what people ask for in comments.

use pawl_integrations::github::fake::{Change, Effect};
use serde_json::json;

use super::*;

pub(super) fn all() -> Vec<Scenario> {
    [heads(), people()].into_iter().flatten().collect()
}

fn heads() -> Vec<Scenario> {
    vec![
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
            |ground| jobs(ground, 3).and_then(|()| concluded(ground, "pawl", "success")),
        ),
        on_github(
            "git-force-push",
            "a ref that is moved on and back while its Workflows run ends where it was",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({"bootstrap": "cursor"})),
                    pull_request().when(synced),
                    second_commit().when(has_begun),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            let first =
                                hub.fake.journal().into_iter().find_map(|applied| match applied.effect {
                                    Effect::CheckRunCreated { sha, .. } => Some(sha),
                                    Effect::TokenMinted
                                    | Effect::CheckRunUpdated { .. }
                                    | Effect::StatusSet { .. }
                                    | Effect::Commented { .. } => None,
                                });
                            infra.set_branch("topic", &first.unwrap_or_default());
                        });
                    })
                    .when(|ground| seen_commits(ground) == 2),
                ]
            },
            |ground| {
                if !all_workflows_are(ground, "Succeeded", 1) {
                    return Err("not all Workflows succeeded".to_owned());
                }
                concluded(ground, "pawl", "success").or_else(|_| first_concluded(ground))
            },
        ),
        on_github(
            "git-supersede-finish",
            "what may finish finishes although its ref moved on, and the check of its commit says how",
            || {
                vec![
                    system(),
                    credentials(),
                    template_with("plan", &["exit", "0"], &json!({"supersede": "finish"})),
                    repository(json!({"bootstrap": "cursor"})),
                    pull_request().when(synced),
                    second_commit().when(has_begun),
                ]
            },
            |ground| {
                jobs(ground, 3)?;
                let hub = ground.hub.as_ref().ok_or("no GitHub")?;
                let runs =
                    hub.fake.repository("acme/infra").map(|infra| infra.check_runs()).unwrap_or_default();
                match runs.iter().find(|run| run.conclusion.as_deref() != Some("success")) {
                    None => Ok(()),
                    Some(run) => Err(format!("{run:?}")),
                }
            },
        ),
    ]
}

fn people() -> Vec<Scenario> {
    vec![
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
            "git-retest",
            "a member's /retest runs what failed once more, as another attempt",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "1"]),
                    repository(json!({"bootstrap": "cursor"})),
                    pull_request().when(synced),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.comment(1, "mallory", "/retest");
                            infra.comment(1, "alice", "/retest");
                        });
                    })
                    .when(|ground| has_pull_request(ground) && all_workflows_are(ground, "Failed", 1)),
                ]
            },
            |ground| {
                jobs(ground, 2)?;
                if !all_workflows_are(ground, "Failed", 2) {
                    return Err("there are not two attempts".to_owned());
                }
                concluded(ground, "pawl", "failure")
            },
        ),
        on_github(
            "git-rerequested",
            "who asks GitHub to run a check again gets one more attempt, or none if GitHub's word is lost",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "1"]),
                    repository(json!({"bootstrap": "cursor"})),
                    pull_request().when(synced),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            let failed = infra.check_runs().into_iter().find(|run| run.name != "pawl");
                            infra.rerequest(failed.map(|run| run.id).unwrap_or_default(), "alice");
                        });
                    })
                    .when(|ground| {
                        has_pull_request(ground)
                            && all_workflows_are(ground, "Failed", 1)
                            && check_run(ground, "pawl").is_some()
                    }),
                ]
            },
            |ground| {
                jobs(ground, 2).or_else(|_| jobs(ground, 1))?;
                concluded(ground, "pawl", "failure")
            },
        ),
    ]
}

/// A pull request of one commit that changes one folder.
fn pull_request() -> Deed {
    Deed::on_github(|hub| {
        infra(hub, |infra| {
            infra.push("topic", &Change::new("a").put("net/a.tf", "1"));
            infra.open_pull(infra, "topic", "main", "alice", false);
        });
    })
}

/// Another commit on the same ref; the pull request then changes two folders.
fn second_commit() -> Deed {
    Deed::on_github(|hub| {
        infra(hub, |infra| {
            infra.push("topic", &Change::new("b").put("dns/b.tf", "1"));
        });
    })
}

/// At how many commits the ref has been seen.
fn seen_commits(ground: &Ground) -> usize {
    let branches = ground.history.iter().filter(|happened| *happened.object.kind() == BRANCH);
    let shas: std::collections::BTreeSet<String> = branches
        .map(|happened| &happened.object)
        .filter(|branch| branch.raw().pointer("/spec/name").and_then(Value::as_str) == Some("topic"))
        .filter_map(|branch| branch.raw().pointer("/spec/sha")?.as_str().map(str::to_owned))
        .collect();
    shas.len()
}

/// The check of the commit at which it began: GitHub lists it before that of the commit in between.
fn first_concluded(ground: &Ground) -> Result<(), String> {
    let hub = ground.hub.as_ref().ok_or("no GitHub")?;
    let runs = hub.fake.repository("acme/infra").map(|infra| infra.check_runs()).unwrap_or_default();
    match runs.iter().find(|run| run.name == "pawl").and_then(|run| run.conclusion.as_deref()) {
        Some("success") => Ok(()),
        other => Err(format!("the check concluded {other:?}")),
    }
}
