//! Credentials that go, come back and expire; names, claims and logs that somebody wrote to do harm.

use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_integrations::github::fake::{Change, TOKEN};
use pawl_machines::cluster::namespace::Namespaces;
use serde_json::json;

use super::*;
use crate::ground::first_uid;
use crate::hub::POD_SECRET;

pub(super) fn all() -> Vec<Scenario> {
    [credentials_go(), harm()].into_iter().flatten().collect()
}

fn credentials_go() -> Vec<Scenario> {
    vec![
        on_github(
            "git-token",
            "with a token, commit statuses stand for check runs",
            || {
                let token = json!({"metadata": {"name": CREDENTIALS, "namespace": "default"}, "stringData": {"token": TOKEN}});
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
                        Deed::delete(SECRET, Some("default"), CREDENTIALS, "Background")
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
        Scenario {
            timed: true,
            machines: |guards| machines(guards).into_iter().chain([AnyMachine::new(Namespaces)]).collect(),
            ..on_github(
                "git-namespace-goes",
                "the Secret goes first, then the namespace with everything in it: nothing is left and nothing hangs",
                || {
                    let at_home = |deed: fn() -> Deed| deed().in_namespace("team");
                    vec![
                        system(),
                        Deed::create(NAMESPACE, json!({"metadata": {"name": "team"}})),
                        at_home(credentials),
                        at_home(|| workflow_template("plan", &["hang"])),
                        at_home(|| repository(json!({}))),
                        Deed::delete(SECRET, Some("team"), CREDENTIALS, "Background")
                            .when(|ground| all_workflows_are(ground, "Running", 2)),
                        Deed::delete(NAMESPACE, None, "team", "Background"),
                    ]
                },
                |ground| {
                    let left: usize = [REPOSITORY, BRANCH, WORKFLOW, JOB, POD]
                        .iter()
                        .map(|kind| ground.all(kind).count())
                        .sum();
                    let home = ground.all(&NAMESPACE).any(|namespace| namespace.name() == "team");
                    if left == 0 && !home { Ok(()) } else { Err(format!("{left} objects are left")) }
                },
            )
        },
        on_github(
            "git-token-expires",
            "tokens that GitHub takes back in the middle of a run are minted anew",
            || {
                let expire = || Deed::on_github(|hub| hub.fake.revoke_tokens());
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({})),
                    expire().when(|ground| ground.by_kind.contains_key(&BRANCH)),
                    expire().when(has_begun),
                ]
            },
            |ground| jobs(ground, 2).and_then(|()| concluded(ground, "pawl", "success")),
        ),
        on_github(
            "git-secret-back",
            "a Secret that is taken away in the middle of a run and put back: GitHub still hears of the end",
            || {
                vec![
                    system(),
                    credentials(),
                    workflow_template("plan", &["exit", "0"]),
                    repository(json!({"historyLimit": 5})),
                    Deed::delete(SECRET, Some("default"), CREDENTIALS, "Background").when(has_begun),
                    credentials().when(|ground| all_workflows_are(ground, "Succeeded", 2)),
                ]
            },
            |ground| jobs(ground, 2),
        ),
    ]
}

fn harm() -> Vec<Scenario> {
    vec![
        on_github(
            "git-names",
            "what a branch and a folder are called reaches a Job as it is",
            || {
                let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main",
                    "image": "sim", "command": ["exit", "0"], "env": [{"name": "SECRET", "value": "obviously-fake"}]}]}}});
                vec![
                    system(),
                    credentials(),
                    template_with("plan", &["exit", "0"], &json!({"job": job})),
                    repository(json!({"bootstrap": "cursor"})),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.push(NAMED, &Change::new("a").put("$(SECRET)/$$(SECRET).tf", "1"));
                        });
                    })
                    .when(synced),
                ]
            },
            |ground| {
                jobs(ground, 1)?;
                let mut history = ground.history.iter().map(|happened| &happened.object);
                let job = history.rfind(|object| *object.kind() == JOB).ok_or("no Job")?;
                let told = |name: &str| expanded(job.raw(), name);
                let found = (told("TERRAKOJO_REF_NAME"), told("TERRAKOJO_WORKFLOW_PATH"));
                if found == (NAMED.to_owned(), "$(SECRET)".to_owned()) {
                    Ok(())
                } else {
                    Err(format!("the Job is told {found:?}"))
                }
            },
        ),
        on_github(
            "git-foreign-claim",
            "a volume of the workspace's name that is somebody else's is not worked in",
            || {
                let branch = git::branch::name("infra", "acme/infra", "topic");
                let claim =
                    git::branch::workspace_claim_name(&first_uid(&BRANCH, "default", &branch), "plan");
                let theirs = json!({"metadata": {"name": claim, "namespace": "default"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
                vec![
                    system(),
                    credentials(),
                    template_with("plan", &["exit", "0"], &json!({"workspace": {"enabled": true}})),
                    Deed::create(PERSISTENT_VOLUME_CLAIM, theirs),
                    repository(json!({"bootstrap": "cursor"})),
                    Deed::on_github(|hub| {
                        infra(hub, |infra| {
                            infra.push("topic", &Change::new("a").put("net/a.tf", "1"));
                        });
                    })
                    .when(synced),
                ]
            },
            |ground| jobs(ground, 0).and_then(|()| concluded(ground, "pawl", "failure")),
        ),
        on_github(
            "git-secret-in-log",
            "what a failing Job tells of its Secret stays here",
            || {
                let from = json!({"secretKeyRef": {"name": "deploy-key", "key": "key"}});
                let job = json!({"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [
                    {"name": "main", "image": "sim", "command": ["exit", "1"], "env": [{"name": "KEY", "valueFrom": from}]}]}}});
                let key = json!({"metadata": {"name": "deploy-key", "namespace": "default"},
                    "stringData": {"key": POD_SECRET}});
                vec![
                    system(),
                    credentials(),
                    Deed::create(SECRET, key),
                    template_with("plan", &[], &json!({"job": job})),
                    repository(json!({})),
                ]
            },
            |ground| {
                let hub = ground.hub.as_ref().ok_or("no GitHub")?;
                match hub.told().iter().any(|text| text.contains("do not tell")) {
                    true => jobs(ground, 2),
                    false => Err("GitHub was shown no log".to_owned()),
                }
            },
        ),
    ]
}

/// A branch whose name asks Kubernetes for a Secret.
const NAMED: &str = "fix/$(SECRET)";

/// A variable as Kubernetes hands it to the container: `$(NAME)` stands for an earlier variable, `$$` for `$`.
fn expanded(job: &Value, wanted: &str) -> String {
    let env = job.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
    let text = |variable: &Value, field: &str| {
        variable.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let all: Vec<(String, String)> =
        env.into_iter().flatten().map(|variable| (text(variable, "name"), text(variable, "value"))).collect();
    let Some((_, value)) = all.iter().find(|(name, _)| name == wanted) else { return String::new() };
    let mut rest = value.as_str();
    let mut out = String::new();
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let named = after.strip_prefix("$(").and_then(|inside| inside.split_once(')'));
        if let Some(after) = after.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = named {
            // Whoever comes later in the list is not known yet; a stricter kubelet would leave it as it is.
            out.push_str(all.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value));
            rest = after;
        } else {
            out.push('$');
            rest = after.strip_prefix('$').unwrap_or_default();
        }
    }
    out + rest
}
