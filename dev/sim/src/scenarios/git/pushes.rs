//! Commits of the default branch: once per folder, in order, one template after the other.

use pawl_integrations::github::fake::Change;
use serde_json::json;

use super::*;

pub(super) fn all() -> Vec<Scenario> {
    [commits(), chains()].into_iter().flatten().collect()
}

fn commits() -> Vec<Scenario> {
    vec![
        on_github(
            "git-push",
            "a commit on the default branch runs once per folder, and its check runs conclude",
        )
        .script(|| every_commit([plan(&["exit", "0"])], []))
        .ends_with(|ground| jobs_ran(ground, 2).and_then(|()| succeeded(ground))),
        on_github(
            "git-job-ttl",
            "a Job that goes when its time is over takes nothing along, and nothing runs again",
        )
        .script(|| {
            let job = merged(job(&["exit", "0"]), json!({"ttlSecondsAfterFinished": 60}));
            set_up([workflow_template("plan", job, json!({}))], json!({"historyLimit": 5}), [])
        })
        .ends_with(|ground| {
            jobs_ran(ground, 2)?;
            none_left(ground, &[JOB])?;
            expect::equal("both Workflows succeeded", all_workflows_are(ground, "Succeeded", 2), true)?;
            succeeded(ground)
        }),
        on_github("git-fails", "a failing folder fails its check run and the aggregate")
            .script(|| every_commit([plan(&["exit", "1"])], []))
            .ends_with(|ground| jobs_ran(ground, 2).and_then(|()| failed(ground))),
        on_github("git-two-commits", "two commits on one folder run one after the other, in their order")
            .script(|| {
                let push = on_infra(|infra| {
                    infra.push("main", &Change::new("one").put("net/main.tf", "1"));
                    infra.push("main", &Change::new("two").put("net/main.tf", "2"));
                });
                new_commits([plan(&["exit", "0"])], [push.when(synced)])
            })
            .ends_with(|ground| {
                let commits = default_branch(ground, 2);
                jobs_ran(ground, 2).and_then(|()| in_order(ground, &commits))
            }),
    ]
}

fn chains() -> Vec<Scenario> {
    vec![
        on_github("git-depends", "a template that depends on another runs after it, for the same folder")
            .script(|| chain_of_three(&["exit", "0"]))
            .ends_with(|ground| {
                jobs_ran(ground, 3)?;
                let order: Vec<_> =
                    started(ground).iter().filter_map(|(job, _)| job.label(git::labels::TEMPLATE)).collect();
                expect::equal("order", order, ["a-lint", "b-plan", "c-apply"])?;
                succeeded(ground)
            }),
        on_github(
            "git-depends-fails",
            "what depends on a template that failed is cancelled, and so is what depends on that",
        )
        .script(|| chain_of_three(&["exit", "1"]))
        .ends_with(|ground| jobs_ran(ground, 1).and_then(|()| failed(ground))),
    ]
}

/// Three templates of which each depends on the next; the one that runs first runs this.
fn chain_of_three(first: &[&str]) -> Vec<Deed> {
    let after = |name, other| workflow_template(name, job(&["exit", "0"]), json!({"dependsOn": [other]}));
    let first = workflow_template("a-lint", job(first), json!({}));
    let push = on_infra(|infra| {
        infra.push("main", &Change::new("one").put("net/main.tf", "1"));
    });
    new_commits([after("c-apply", "b-plan"), after("b-plan", "a-lint"), first], [push.when(synced)])
}

/// The last commits of the default branch, oldest first, as their Branches tell.
fn default_branch(ground: &Ground, last: usize) -> Vec<String> {
    let branches = ground.history.iter().filter(|happened| *happened.object.kind() == BRANCH);
    let order: std::collections::BTreeMap<i64, String> = branches
        .filter_map(|happened| {
            let spec = happened.object.raw().get("spec")?;
            Some((spec.get("sequence")?.as_i64()?, spec.get("sha")?.as_str()?.to_owned()))
        })
        .collect();
    let skipped = order.len().saturating_sub(last);
    order.into_values().skip(skipped).collect()
}
