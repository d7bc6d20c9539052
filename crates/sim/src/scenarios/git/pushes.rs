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
            "git-job-ttl",
            "a Job that goes when its time is over takes nothing along, and nothing runs again",
            || {
                let job = json!({"backoffLimit": 0, "ttlSecondsAfterFinished": 60,
                    "template": template(&["exit", "0"])});
                vec![
                    system(),
                    credentials(),
                    template_with("plan", &[], &json!({"job": job})),
                    repository(json!({"historyLimit": 5})),
                ]
            },
            |ground| {
                jobs(ground, 2)?;
                let left = ground.all(&JOB).count();
                if left > 0 || !all_workflows_are(ground, "Succeeded", 2) {
                    return Err(format!("{left} Jobs are left, or a Workflow did not succeed"));
                }
                concluded(ground, "pawl", "success")
            },
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
            |ground| {
                let commits = default_branch(ground, 2);
                jobs(ground, 2).and_then(|()| in_order(ground, &commits))
            },
        ),
    ]
}

fn chains() -> Vec<Scenario> {
    vec![
        on_github(
            "git-depends",
            "a template that depends on another runs after it, for the same folder",
            || {
                vec![
                    system(),
                    credentials(),
                    template_with("c-apply", &["exit", "0"], &json!({"dependsOn": ["b-plan"]})),
                    template_with("b-plan", &["exit", "0"], &json!({"dependsOn": ["a-lint"]})),
                    workflow_template("a-lint", &["exit", "0"]),
                    repository(json!({"bootstrap": "cursor"})),
                    change_of_net().when(synced),
                ]
            },
            |ground| {
                jobs(ground, 3)?;
                let order: Vec<_> =
                    started(ground).iter().filter_map(|(job, _)| job.label(git::labels::TEMPLATE)).collect();
                if order != ["a-lint", "b-plan", "c-apply"] {
                    return Err(format!("the order was {order:?}"));
                }
                concluded(ground, "pawl", "success")
            },
        ),
        on_github(
            "git-depends-fails",
            "what depends on a template that failed is cancelled, and so is what depends on that",
            || {
                vec![
                    system(),
                    credentials(),
                    template_with("c-apply", &["exit", "0"], &json!({"dependsOn": ["b-plan"]})),
                    template_with("b-plan", &["exit", "0"], &json!({"dependsOn": ["a-lint"]})),
                    workflow_template("a-lint", &["exit", "1"]),
                    repository(json!({"bootstrap": "cursor"})),
                    change_of_net().when(synced),
                ]
            },
            |ground| jobs(ground, 1).and_then(|()| concluded(ground, "pawl", "failure")),
        ),
    ]
}

fn change_of_net() -> Deed {
    Deed::on_github(|hub| {
        infra(hub, |infra| {
            infra.push("main", &Change::new("one").put("net/main.tf", "1"));
        });
    })
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
