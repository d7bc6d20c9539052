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
            "a branch with a pull request runs for the files of that, a new commit replaces the old",
        )
        .script(|| {
            let all_succeeded = |ground: &Ground| all_workflows_are(ground, "Succeeded", 1);
            new_commits([plan(&["exit", "0"])], [pull_request(), second_commit().when(all_succeeded)])
        })
        .ends_with(|ground| jobs_ran(ground, 3).and_then(|()| succeeded(ground))),
        on_github("git-force-push", "a ref moved on and back while its Workflows run ends where it was")
            .script(|| {
                let back = Deed::on_github(move_back).when(|ground| seen_commits(ground) == 2);
                new_commits([plan(&["exit", "0"])], [pull_request(), second_commit().when(has_begun), back])
            })
            .ends_with(|ground| {
                all_ended(ground, "Succeeded", 1)?;
                succeeded(ground).or_else(|_| first_succeeded(ground))
            }),
        on_github(
            "git-supersede-finish",
            "what may finish does although its ref moved on, and the check of its commit says how",
        )
        .script(|| {
            let finish = json!({"supersede": "finish"});
            let template = workflow_template("plan", job(&["exit", "0"]), finish);
            new_commits([template], [pull_request(), second_commit().when(has_begun)])
        })
        .ends_with(|ground| {
            jobs_ran(ground, 3)?;
            let all = check_runs(ground);
            let other = all.iter().find(|run| run.conclusion.as_deref() != Some("success"));
            other.map_or(Ok(()), |run| Err(format!("{run:?}")))
        }),
    ]
}

fn people() -> Vec<Scenario> {
    vec![
        on_github("git-fork", "a pull request from a fork waits until a member lets its commit run")
            .script(|| {
                let fork = on_infra(|infra| {
                    let fork = infra.fork("someone");
                    fork.push("main", &Change::new("mine").by("mallory").put("net/x.tf", "1"));
                    infra.open_pull(&fork, "main", "main", "mallory", false);
                });
                let asked = |ground: &Ground| concluded(ground, "pawl", "action_required").is_ok();
                new_commits(
                    [plan(&["exit", "0"])],
                    [fork.when(synced), Deed::on_github(ok_to_test).when(asked)],
                )
            })
            .ends_with(|ground| jobs_ran(ground, 1).and_then(|()| succeeded(ground))),
        on_github(
            "git-cancel",
            "Workflows with a workspace are cancelled by a comment of a member, and of nobody else",
        )
        .script(|| {
            let template = workflow_template("plan", job(&["hang"]), json!({"workspace": {"enabled": true}}));
            let cancel = comment("/cancel")
                .when(|ground| has_pull_request(ground) && all_workflows_are(ground, "Running", 1));
            new_commits([template], [pull_request(), cancel])
        })
        .ends_with(|ground| all_ended(ground, "Cancelled", 1)),
        on_github("git-retest", "a member's /retest runs what failed once more, as another attempt")
            .script(|| {
                let retest = comment("/retest")
                    .when(|ground| has_pull_request(ground) && all_workflows_are(ground, "Failed", 1));
                new_commits([plan(&["exit", "1"])], [pull_request(), retest])
            })
            .ends_with(|ground| {
                jobs_ran(ground, 2)?;
                all_ended(ground, "Failed", 2)?;
                failed(ground)
            }),
        on_github(
            "git-rerequested",
            "who asks GitHub to run a check again gets one more attempt, or none if GitHub's word is lost",
        )
        .script(|| {
            let rerequest = on_infra(|infra| {
                let failed = infra.check_runs().into_iter().find(|run| run.name != "pawl");
                infra.rerequest(failed.map(|run| run.id).unwrap_or_default(), "alice");
            })
            .when(|ground| {
                has_pull_request(ground)
                    && all_workflows_are(ground, "Failed", 1)
                    && check_run(ground, "pawl").is_some()
            });
            new_commits([plan(&["exit", "1"])], [pull_request(), rerequest])
        })
        .ends_with(|ground| {
            jobs_ran(ground, 2).or_else(|_| jobs_ran(ground, 1))?;
            failed(ground)
        }),
    ]
}

/// The ref goes back to the first commit that has a check run.
fn move_back(hub: &Hub) {
    let first = hub.fake.journal().into_iter().find_map(|applied| match applied.effect {
        Effect::CheckRunCreated { sha, .. } => Some(sha),
        Effect::TokenMinted
        | Effect::CheckRunUpdated { .. }
        | Effect::StatusSet { .. }
        | Effect::Commented { .. } => None,
    });
    if let Some(infra) = hub.fake.repository("acme/infra") {
        infra.set_branch("topic", &first.unwrap_or_default());
    }
}

/// Somebody who may not, then somebody who may, let the fork's commit run.
fn ok_to_test(hub: &Hub) {
    let sha = hub.fake.repository("someone/infra").and_then(|fork| fork.head("main"));
    if let Some(infra) = hub.fake.repository("acme/infra") {
        comment_twice(&infra, &format!("/ok-to-test {}", sha.unwrap_or_default()));
    }
}

/// Somebody who may not, then somebody who may, comment on the pull request.
fn comment(text: &'static str) -> Deed {
    on_infra(move |infra| comment_twice(infra, text))
}

fn comment_twice(infra: &Repo, text: &str) {
    infra.comment(1, "mallory", text);
    infra.comment(1, "alice", text);
}

/// All Workflows, so many or more, are in this phase.
fn all_ended(ground: &Ground, phase: &str, at_least: usize) -> Result<(), String> {
    expect::equal(&format!("all Workflows are {phase}"), all_workflows_are(ground, phase, at_least), true)
}

/// A pull request of one commit that changes one folder, once the repository is synced.
fn pull_request() -> Deed {
    on_infra(|infra| {
        infra.push("topic", &Change::new("a").put("net/a.tf", "1"));
        infra.open_pull(infra, "topic", "main", "alice", false);
    })
    .when(synced)
}

/// Another commit on the same ref; the pull request then changes two folders.
fn second_commit() -> Deed {
    on_infra(|infra| {
        infra.push("topic", &Change::new("b").put("dns/b.tf", "1"));
    })
}

/// At how many commits the ref has been seen.
fn seen_commits(ground: &Ground) -> usize {
    let branches = ground.history.iter().filter(|happened| *happened.object.kind() == BRANCH);
    let shas: BTreeSet<String> = branches
        .map(|happened| &happened.object)
        .filter(|branch| branch.raw().pointer("/spec/name").and_then(Value::as_str) == Some("topic"))
        .filter_map(|branch| branch.raw().pointer("/spec/sha")?.as_str().map(str::to_owned))
        .collect();
    shas.len()
}

/// The check of the commit at which it began: GitHub lists it before that of the commit in between.
fn first_succeeded(ground: &Ground) -> Result<(), String> {
    let first = check_runs(ground).into_iter().find(|run| run.name == "pawl");
    expect::equal("first conclusion", first.and_then(|run| run.conclusion).as_deref(), Some("success"))
}
