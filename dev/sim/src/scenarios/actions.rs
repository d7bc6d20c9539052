//! The remedy door's actions: approvals that race with what they are about, undos, and rollbacks.

use pawl_api::k8s::{CONFIG_MAP, DEPLOYMENT, JOB, NAMESPACE, SECRET, SERVICE_ACCOUNT};
use pawl_api::meta::{Kind, Phase as _};
use pawl_api::pawl::labels::POLICY;
use pawl_api::pawl::{SYSTEM_NAMESPACE, approval};
use pawl_api::remedy::kubernetes_execution;
use pawl_api::remedy::{
    Action, EXECUTOR_NAMESPACE, KubernetesExecution, KubernetesExecutionPhase, SERVICE_ACCOUNT_PREFIX,
    remediation_request,
};
use pawl_machines::remedy::identity;
use pawl_machines::remedy::kubernetes_execution::rollback;
use serde_json::{Map, Value, json};

use super::expect::{self, none_left, text};
use super::remedy::machines;
use super::{home, merged};
use crate::ground::Ground;
use crate::scenario::{Deed, Scenario, phase_is};

mod safe;
mod troubles;

use safe::safe;

const EXECUTION: Kind = kubernetes_execution::KIND;
const REQUEST: Kind = remediation_request::KIND;

/// Whom a store without access control takes everybody for.
const SOMEBODY: &str = "system:apiserver";

pub(super) fn all() -> Vec<Scenario> {
    let mut all = alone();
    all.extend(approved());
    all.extend(requests());
    all.extend(troubles::all());
    all
}

fn alone() -> Vec<Scenario> {
    vec![
        scenario("action-scale", "an action is done once, with its undo stored before")
            .script(|| on_stage([scale("k", 5)]))
            .ends_with(|ground| ends_at(ground, "rollback_ready", 5)),
        scenario("action-rollback", "an action is taken back by another, and both know of each other")
            .script(|| on_stage([policy("dry-run"), scale("k", 5), roll_back_when_ready()]))
            .ends_with(|ground| ends_at(ground, "completed", 3)),
        scenario(
            "action-contenders",
            "of actions on one target never two are carried out at once, and each has its turn",
        )
        .script(|| on_stage([scale("k0", 4), scale("k1", 5), scale("k2", 6), scale("k3", 7)]))
        .ends_with(|ground| {
            safe(ground)?;
            ["k0", "k1", "k2", "k3"].into_iter().try_for_each(|name| over(ground, name))
        }),
        scenario(
            "action-delete",
            "an execution deleted while its Job is there leaves neither Job nor lock nor Secret",
        )
        .script(|| {
            let gone = Deed::delete(EXECUTION, "k").when(|ground| ground.all(&JOB).next().is_some());
            on_stage([scale("k", 5), gone])
        })
        .ends_with(|ground| {
            safe(ground)?;
            none_left(ground, &[EXECUTION, JOB])?;
            expect::equal("Secrets left", executors_secrets(ground), 0)
        }),
    ]
}

fn approved() -> Vec<Scenario> {
    vec![
        scenario(
            "action-approval",
            "an action that policy wants approved is done after somebody else approved just that",
        )
        .script(|| on_stage([policy("approve"), scale("k", 5), approve_when_asked()]))
        .ends_with(|ground| ends_at(ground, "rollback_ready", 5)),
        scenario(
            "action-target-moves",
            "who scales the target while an approval of it is under way makes that worthless, or is too late",
        )
        .script(|| {
            let more = Deed::patch(DEPLOYMENT, "web", json!({"spec": {"replicas": 9}}));
            let again = approve("again").when(|ground| over(ground, "k").is_ok() || is_outdated(ground));
            on_stage([policy("approve"), scale("k", 5), approve_when_asked(), more, again])
        })
        .ends_with(|ground| safe(ground).and_then(|()| ends(ground, "k", "rollback_ready"))),
        scenario(
            "action-policy-moves",
            "a policy that denies meanwhile stops what was not let go yet, and nothing else",
        )
        .script(|| {
            let no = Deed::patch(CONFIG_MAP, "policy", json!({"data": {"a.rego": "deny"}}));
            let no = no.in_namespace(SYSTEM_NAMESPACE);
            on_stage([policy("approve"), scale("k", 5), approve_when_asked(), no])
        })
        .ends_with(|ground| ends_at(ground, "rollback_ready", 5).or_else(|_| ends_at(ground, "failed", 3))),
    ]
}

fn requests() -> Vec<Scenario> {
    vec![
        scenario("action-request", "the actions of a request are done in their order, and their offers end")
            .script(|| {
                let steps = json!([step("a", 5, &[], &[]), step("b", 6, &["a"], &[])]);
                on_stage([deployment("a"), deployment("b"), request(steps, json!({}))])
            })
            .ends_with(|ground| {
                safe(ground)?;
                request_is(ground, "Completed")?;
                let left =
                    ground.all(&EXECUTION).filter(|one| text(one.status(), "phase") != Some("completed"));
                expect::equal("offers left", left.count(), 0)
            }),
        scenario("action-request-fails", "when a step fails, what was done is taken back in reverse")
            .script(|| {
                let steps = json!([step("a", 5, &[], &[]), step("b", 6, &["a"], &["/spec/replicas == 99"])]);
                let more = json!({"rollbackStrategy": "automatic"});
                on_stage([deployment("a"), deployment("b"), request(steps, more)])
            })
            .ends_with(|ground| {
                safe(ground)?;
                request_is(ground, "Failed")?;
                ["a", "b"].into_iter().try_for_each(|name| replicas(ground, name, 3))
            }),
        scenario("action-request-kept", "after its retention a request goes with all its actions")
            .script(|| {
                let steps = json!([step("a", 5, &[], &[])]);
                on_stage([deployment("a"), request(steps, json!({"retention": "20m"}))])
            })
            .ends_with(|ground| safe(ground).and_then(|()| none_left(ground, &[REQUEST, EXECUTION]))),
    ]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).timed().machines(machines)
}

/// Deeds after what they need: namespaces, accounts, who checks approvers, and a target.
fn on_stage<const N: usize>(deeds: [Deed; N]) -> Vec<Deed> {
    let executor = Deed::create(NAMESPACE, json!({"metadata": {"name": EXECUTOR_NAMESPACE}}));
    let account = account(Action::ScaleDeployment);
    let checks = identity::manifests(&[SOMEBODY.to_owned()], &json!({})).into_iter().map(|manifest| {
        let policy = manifest.get("kind").and_then(Value::as_str) == Some(&identity::POLICY.kind);
        Deed::create(if policy { identity::POLICY } else { identity::BINDING }, manifest)
    });
    [home(), executor, account].into_iter().chain(checks).chain([deployment("web")]).chain(deeds).collect()
}

/// As whom an action is carried out.
fn account(action: Action) -> Deed {
    let name = action.service_account(SERVICE_ACCOUNT_PREFIX);
    Deed::create(SERVICE_ACCOUNT, json!({"metadata": {"name": name, "namespace": EXECUTOR_NAMESPACE}}))
}

fn deployment(name: &str) -> Deed {
    let labels = json!({"app": name});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "hang"}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template});
    Deed::create_with_spec(DEPLOYMENT, name, spec)
}

fn policy(word: &str) -> Deed {
    Deed::create(
        CONFIG_MAP,
        json!({"metadata": {"name": "policy", "namespace": SYSTEM_NAMESPACE, "labels": {POLICY: "safety"}},
            "data": {"a.rego": word}}),
    )
}

/// An action on the Deployment `web`.
fn scale(name: &str, replicas: i64) -> Deed {
    scale_by("ann", name, replicas)
}

fn scale_by(who: &str, name: &str, replicas: i64) -> Deed {
    execution(who, name, "scale_deployment", json!({"parameters": scale_parameters("web", replicas)}))
}

fn scale_parameters(deployment: &str, replicas: i64) -> Value {
    json!({"scaleDeployment": {"deployment": deployment, "namespace": "default", "replicas": replicas}})
}

fn execution(who: &str, name: &str, action: &str, more: Value) -> Deed {
    let spec = json!({"action": action, "requestedBy": who, "lockTimeout": "11h", "timeout": "11h"});
    Deed::create_with_spec(EXECUTION, name, merged(spec, more))
}

fn step(name: &str, replicas: i64, after: &[&str], hold: &[&str]) -> Value {
    let conditions: Vec<Value> =
        hold.iter().map(|rego| json!({"type": "Holds", "rego": rego, "timeout": "1m"})).collect();
    json!({"name": name, "dependsOn": after, "action": {"action": "scale_deployment", "timeout": "5h",
        "postConditions": conditions, "parameters": scale_parameters(name, replicas)}})
}

fn request(steps: Value, more: Value) -> Deed {
    let spec = json!({"targetResource": {"kind": "Deployment", "name": "a", "namespace": "default"},
        "requestedBy": "ann", "timeouts": {"global": "11h", "executing": "11h"}, "plan": {"steps": steps}});
    Deed::create_with_spec(REQUEST, "r", merged(spec, more))
}

/// Somebody approves what is asked for at that moment.
fn approve(name: &'static str) -> Deed {
    Deed::create_from(approval::KIND, move |ground| {
        let digest = ground.get(&EXECUTION, "default", "k").map(|one| digest_of(one.status()).to_owned());
        json!({"metadata": {"name": name}, "spec": {"executionRef": {"name": "k"},
            "decision": "approve", "approver": {"username": SOMEBODY}, "digest": digest}})
    })
}

fn approve_when_asked() -> Deed {
    approve("yes").when(phase_is(EXECUTION, "k", "waiting_approval"))
}

fn roll_back_when_ready() -> Deed {
    roll_back("k").when(phase_is(EXECUTION, "k", "rollback_ready"))
}

fn roll_back(name: &'static str) -> Deed {
    Deed::create_from(EXECUTION, move |ground| {
        let first = ground.get(&EXECUTION, "default", name);
        let first = first.and_then(|one| one.parse::<KubernetesExecution>().ok());
        let made = first.and_then(|first| rollback::manifest(&first, Some("ann"), 1, Map::new()).ok());
        made.unwrap_or_default()
    })
}

/// Whether the approval that was given is of something else by now.
fn is_outdated(ground: &Ground) -> bool {
    let given = ground.get(&approval::KIND, "default", "yes");
    let given = given.and_then(|one| one.raw().pointer("/spec/digest")?.as_str());
    let digest = ground.get(&EXECUTION, "default", "k").map(|one| digest_of(one.status()));
    phase_is(EXECUTION, "k", "waiting_approval")(ground) && given != digest
}

fn digest_of(status: &Value) -> &str {
    text(status, "approvalDigest").unwrap_or("none")
}

fn over(ground: &Ground, name: &str) -> Result<(), String> {
    let status = ground.get(&EXECUTION, "default", name).map(|one| one.status());
    let phase = status.and_then(|status| text(status, "phase"));
    if KubernetesExecutionPhase::TERMINAL.iter().any(|over| phase == Some(over.as_str())) {
        return Ok(());
    }
    Err(format!("{name} is not over: {status:?}"))
}

fn replicas(ground: &Ground, name: &str, expected: i64) -> Result<(), String> {
    let found = ground.get(&DEPLOYMENT, "default", name);
    let found = found.and_then(|one| one.raw().pointer("/spec/replicas")?.as_i64());
    expect::equal(&format!("replicas of {name}"), found, Some(expected))
}

/// Everything was safe, the one execution is in this phase, and its target has this size.
fn ends_at(ground: &Ground, phase: &str, size: i64) -> Result<(), String> {
    safe(ground)?;
    ends(ground, "k", phase)?;
    replicas(ground, "web", size)
}

fn ends(ground: &Ground, name: &str, phase: &str) -> Result<(), String> {
    expect::phase(ground, &EXECUTION, name, phase)
}

fn request_is(ground: &Ground, phase: &str) -> Result<(), String> {
    expect::says(ground, &REQUEST, "r", "/overallPhase", phase)
}

fn executors_secrets(ground: &Ground) -> usize {
    ground.all(&SECRET).filter(|one| one.namespace() == Some(EXECUTOR_NAMESPACE)).count()
}
