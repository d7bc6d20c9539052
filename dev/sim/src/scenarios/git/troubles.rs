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
        on_github("git-token", "with a token, commit statuses stand for check runs")
            .script(|| {
                let token = json!({"metadata": {"name": CREDENTIALS}, "stringData": {"token": TOKEN}});
                vec![home(), Deed::create(SECRET, token), plan(&["exit", "0"]), repository(json!({}))]
            })
            .ends_with(|ground| {
                let hub = ground.hub.as_ref().ok_or("no GitHub")?;
                let infra = hub.fake.repository("acme/infra").ok_or("no repository")?;
                let statuses = infra.statuses(&infra.head("main").unwrap_or_default());
                if statuses.is_empty() || statuses.values().any(|state| state != "success") {
                    return Err(format!("{statuses:?}"));
                }
                jobs_ran(ground, 2)
            }),
        // How far it had got when everything was taken away depends on the order of things.
        on_github("git-all-goes", "the Secret goes first, then the Repository: nothing wedges")
            .timed()
            .script(|| {
                let secret = Deed::delete(SECRET, CREDENTIALS).when(both_run);
                every_commit([plan(&["hang"])], [secret, Deed::delete(REPOSITORY, "infra")])
            })
            .ends_with(|ground| none_left(ground, &[REPOSITORY, BRANCH, WORKFLOW, JOB])),
        on_github(
            "git-namespace-goes",
            "the Secret goes first, then the namespace with all in it: nothing is left and nothing hangs",
        )
        .timed()
        .machines(|guards| machines(guards).into_iter().chain([AnyMachine::new(Namespaces)]).collect())
        .script(|| {
            vec![
                home(),
                Deed::create(NAMESPACE, json!({"metadata": {"name": "team"}})),
                credentials().in_namespace("team"),
                plan(&["hang"]).in_namespace("team"),
                repository(json!({})).in_namespace("team"),
                Deed::delete(SECRET, CREDENTIALS).in_namespace("team").when(both_run),
                Deed::delete(NAMESPACE, "team"),
            ]
        })
        .ends_with(|ground| {
            none_left(ground, &[REPOSITORY, BRANCH, WORKFLOW, JOB, POD])?;
            let team = ground.all(&NAMESPACE).any(|namespace| namespace.name() == "team");
            expect::equal("the namespace is there", team, false)
        }),
        on_github(
            "git-token-expires",
            "tokens that GitHub takes back in the middle of a run are minted anew",
        )
        .script(|| {
            let expire = || Deed::on_github(|hub| hub.fake.revoke_tokens());
            let has_branch = |ground: &Ground| ground.by_kind.contains_key(&BRANCH);
            every_commit([plan(&["exit", "0"])], [expire().when(has_branch), expire().when(has_begun)])
        })
        .ends_with(|ground| jobs_ran(ground, 2).and_then(|()| succeeded(ground))),
        on_github(
            "git-secret-back",
            "a Secret that is taken away in the middle of a run and put back: GitHub still hears of the end",
        )
        .script(|| {
            let taken = Deed::delete(SECRET, CREDENTIALS).when(has_begun);
            let back = credentials().when(|ground| all_workflows_are(ground, "Succeeded", 2));
            set_up([plan(&["exit", "0"])], json!({"historyLimit": 5}), [taken, back])
        })
        .ends_with(|ground| jobs_ran(ground, 2)),
    ]
}

fn harm() -> Vec<Scenario> {
    vec![
        on_github("git-names", "what a branch and a folder are called reaches a Job as it is")
            .script(|| {
                let variable = json!({"name": "SECRET", "value": "obviously-fake"});
                let job = json!({"template": with_variable(&["exit", "0"], variable)});
                let push = on_infra(|infra| {
                    infra.push(NAMED, &Change::new("a").put("$(SECRET)/$$(SECRET).tf", "1"));
                });
                new_commits([workflow_template("plan", job, json!({}))], [push.when(synced)])
            })
            .ends_with(|ground| {
                jobs_ran(ground, 1)?;
                let mut history = ground.history.iter().map(|happened| &happened.object);
                let job = history.rfind(|object| *object.kind() == JOB).ok_or("no Job")?;
                let told = |name: &str| expanded(job.raw(), name);
                let found = [told("TERRAKOJO_REF_NAME"), told("TERRAKOJO_WORKFLOW_PATH")];
                expect::equal("variables of the Job", found, [NAMED, "$(SECRET)"])
            }),
        on_github(
            "git-foreign-claim",
            "a volume of the workspace's name that is somebody else's is not worked in",
        )
        .script(|| {
            let branch = git::branch::name("infra", "acme/infra", "topic");
            let claim = git::branch::workspace_claim_name(&first_uid(&BRANCH, "default", &branch), "plan");
            let theirs =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
            let theirs = Deed::create_with_spec(PERSISTENT_VOLUME_CLAIM, &claim, theirs);
            let workspace = json!({"workspace": {"enabled": true}});
            let push = on_infra(|infra| {
                infra.push("topic", &Change::new("a").put("net/a.tf", "1"));
            });
            let template = workflow_template("plan", job(&["exit", "0"]), workspace);
            new_commits([template, theirs], [push.when(synced)])
        })
        .ends_with(|ground| jobs_ran(ground, 0).and_then(|()| failed(ground))),
        on_github("git-secret-in-log", "what a failing Job tells of its Secret stays here")
            .script(|| {
                let from = json!({"secretKeyRef": {"name": "deploy-key", "key": "key"}});
                let variable = json!({"name": "KEY", "valueFrom": from});
                let job = json!({"backoffLimit": 0, "template": with_variable(&["exit", "1"], variable)});
                let key = json!({"metadata": {"name": "deploy-key"}, "stringData": {"key": POD_SECRET}});
                every_commit([Deed::create(SECRET, key), workflow_template("plan", job, json!({}))], [])
            })
            .ends_with(|ground| {
                let hub = ground.hub.as_ref().ok_or("no GitHub")?;
                let shown = hub.told().iter().any(|text| text.contains("do not tell"));
                expect::equal("GitHub was shown a log", shown, true)?;
                jobs_ran(ground, 2)
            }),
    ]
}

fn both_run(ground: &Ground) -> bool {
    all_workflows_are(ground, "Running", 2)
}

/// A pod template whose container has an environment variable.
fn with_variable(command: &[&str], variable: Value) -> Value {
    let main = json!({"name": "main", "image": "sim", "command": command, "env": [variable]});
    merged(template(command), json!({"spec": {"containers": [main]}}))
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
