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
use pawl_machines::object::Object;
use pawl_machines::remedy::identity;
use pawl_machines::remedy::kubernetes_execution::rollback;
use serde_json::{Map, Value, json};

use super::home;
use super::remedy::{machines, merge};
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
        scenario(
            "action-scale",
            "an action is done once, with its undo stored before",
            || [stage(), vec![execution("k", 5, json!({}))]].concat_deeds(),
            |ground| {
                safe(ground)?;
                ends(ground, "k", "rollback_ready")?;
                replicas(ground, 5)
            },
        ),
        scenario(
            "action-rollback",
            "an action is taken back by another, and both know of each other",
            || {
                let back = roll_back("k").when(phase_is(EXECUTION, "k", "rollback_ready"));
                [stage(), vec![policy("dry-run"), execution("k", 5, json!({})), back]].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                ends(ground, "k", "completed")?;
                replicas(ground, 3)
            },
        ),
        scenario(
            "action-contenders",
            "of actions on one target never two are carried out at once, and each has its turn",
            || {
                let wanted = [("k0", 4), ("k1", 5), ("k2", 6), ("k3", 7)];
                let wanted = wanted.into_iter().map(|(name, replicas)| execution(name, replicas, json!({})));
                [stage(), wanted.collect()].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                let over = |name: &str| {
                    let phase = ground.get(&EXECUTION, "default", name).map(|one| one.status().clone());
                    phase.is_some_and(|status| is_over(&status))
                };
                if ["k0", "k1", "k2", "k3"].into_iter().all(over) {
                    Ok(())
                } else {
                    Err("one is not over".to_owned())
                }
            },
        ),
        scenario(
            "action-delete",
            "an execution deleted while its Job is there leaves neither Job nor lock nor Secret",
            || {
                let gone = Deed::delete(EXECUTION, Some("default"), "k", "Background")
                    .when(|ground| ground.all(&JOB).next().is_some());
                [stage(), vec![execution("k", 5, json!({})), gone]].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                let secrets = ground.all(&SECRET).filter(|one| one.namespace() == Some(EXECUTOR_NAMESPACE));
                match ground.all(&EXECUTION).count() + ground.all(&JOB).count() + secrets.count() {
                    0 => Ok(()),
                    left => Err(format!("{left} objects are left")),
                }
            },
        ),
    ]
}

fn approved() -> Vec<Scenario> {
    vec![
        scenario(
            "action-approval",
            "an action that policy wants approved is done after somebody else approved just that",
            || {
                let yes = approve("yes").when(phase_is(EXECUTION, "k", "waiting_approval"));
                [stage(), vec![policy("approve"), execution("k", 5, json!({})), yes]].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                ends(ground, "k", "rollback_ready")?;
                replicas(ground, 5)
            },
        ),
        scenario(
            "action-target-moves",
            "whoever scales the target while an approval of it is under way makes it worthless, or comes too late",
            || {
                let yes = approve("yes").when(phase_is(EXECUTION, "k", "waiting_approval"));
                let more = Deed::patch(DEPLOYMENT, Some("default"), "web", json!({"spec": {"replicas": 9}}));
                let again = approve("again").when(|ground| {
                    let status = ground.get(&EXECUTION, "default", "k").map(|one| one.status().clone());
                    status.is_some_and(|status| is_over(&status) || outdated(ground, &status))
                });
                [stage(), vec![policy("approve"), execution("k", 5, json!({})), yes, more, again]]
                    .concat_deeds()
            },
            |ground| {
                safe(ground)?;
                ends(ground, "k", "rollback_ready")
            },
        ),
        scenario(
            "action-policy-moves",
            "a policy that denies meanwhile stops what was not let go yet, and nothing else",
            || {
                let yes = approve("yes").when(phase_is(EXECUTION, "k", "waiting_approval"));
                let no = Deed::patch(
                    CONFIG_MAP,
                    Some(SYSTEM_NAMESPACE),
                    "policy",
                    json!({"data": {"a.rego": "deny"}}),
                );
                [stage(), vec![policy("approve"), execution("k", 5, json!({})), yes, no]].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                match ends(ground, "k", "rollback_ready") {
                    Ok(()) => replicas(ground, 5),
                    Err(_) => ends(ground, "k", "failed").and_then(|()| replicas(ground, 3)),
                }
            },
        ),
    ]
}

fn requests() -> Vec<Scenario> {
    vec![
        scenario(
            "action-request",
            "the actions of a request are done in their order, and their offers end",
            || {
                let steps = json!([step("a", 5, &[], &[]), step("b", 6, &["a"], &[])]);
                [stage(), vec![deployment("a"), deployment("b"), request(steps, json!({}))]].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                request_is(ground, "Completed")?;
                let left = ground
                    .all(&EXECUTION)
                    .filter(|one| one.status().get("phase").and_then(Value::as_str) != Some("completed"));
                match left.count() {
                    0 => Ok(()),
                    left => Err(format!("{left} offers are left")),
                }
            },
        ),
        scenario(
            "action-request-fails",
            "when a step fails, what was done is taken back in reverse",
            || {
                let steps = json!([step("a", 5, &[], &[]), step("b", 6, &["a"], &["/spec/replicas == 99"])]);
                let more = json!({"rollbackStrategy": "automatic"});
                [stage(), vec![deployment("a"), deployment("b"), request(steps, more)]].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                request_is(ground, "Failed")?;
                for name in ["a", "b"] {
                    let found = ground.get(&DEPLOYMENT, "default", name).map(|one| size(one));
                    if found != Some(3) {
                        return Err(format!("{name} has {found:?} replicas"));
                    }
                }
                Ok(())
            },
        ),
        scenario(
            "action-request-kept",
            "after its retention a request goes with all its actions",
            || {
                let steps = json!([step("a", 5, &[], &[])]);
                [stage(), vec![deployment("a"), request(steps, json!({"retention": "20m"}))]].concat_deeds()
            },
            |ground| {
                safe(ground)?;
                match ground.all(&REQUEST).count() + ground.all(&EXECUTION).count() {
                    0 => Ok(()),
                    left => Err(format!("{left} objects are left")),
                }
            },
        ),
    ]
}

fn scenario(
    name: &'static str,
    about: &'static str,
    script: fn() -> Vec<Deed>,
    ends_with: fn(&Ground) -> Result<(), String>,
) -> Scenario {
    Scenario {
        name,
        about,
        own_kinds: true,
        timed: true,
        stalls: true,
        alone: false,
        github: None,
        machines,
        script,
        ends_with,
    }
}

/// Deeds of several lists, one after the other.
trait ConcatDeeds {
    fn concat_deeds(self) -> Vec<Deed>;
}

impl<const N: usize> ConcatDeeds for [Vec<Deed>; N] {
    fn concat_deeds(self) -> Vec<Deed> {
        self.into_iter().flatten().collect()
    }
}

/// What must be there before anything is done: namespaces, accounts, who checks approvers, and a target.
fn stage() -> Vec<Deed> {
    let executor = Deed::create(NAMESPACE, json!({"metadata": {"name": EXECUTOR_NAMESPACE}}));
    let account = account(Action::ScaleDeployment);
    let checks = identity::manifests(&[SOMEBODY.to_owned()], &json!({})).into_iter().map(|manifest| {
        let policy = manifest.get("kind").and_then(Value::as_str) == Some(&identity::POLICY.kind);
        Deed::create(if policy { identity::POLICY } else { identity::BINDING }, manifest)
    });
    [home(), executor, account].into_iter().chain(checks).chain([deployment("web")]).collect()
}

/// As whom an action is carried out.
fn account(action: Action) -> Deed {
    let name = action.service_account(SERVICE_ACCOUNT_PREFIX);
    Deed::create(SERVICE_ACCOUNT, json!({"metadata": {"name": name, "namespace": EXECUTOR_NAMESPACE}}))
}

fn deployment(name: &str) -> Deed {
    let labels = json!({"app": name});
    Deed::create(
        DEPLOYMENT,
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": 3,
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "hang"}]}}}}),
    )
}

fn policy(word: &str) -> Deed {
    Deed::create(
        CONFIG_MAP,
        json!({"metadata": {"name": "policy", "namespace": SYSTEM_NAMESPACE, "labels": {POLICY: "safety"}},
            "data": {"a.rego": word}}),
    )
}

fn execution(name: &'static str, replicas: i64, patch: Value) -> Deed {
    let mut manifest = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "action": "scale_deployment", "requestedBy": "ann", "lockTimeout": "11h", "timeout": "11h",
        "parameters": {"scaleDeployment": {"deployment": "web", "namespace": "default", "replicas": replicas}}}});
    merge(&mut manifest, patch);
    Deed::create(EXECUTION, manifest)
}

fn step(name: &str, replicas: i64, after: &[&str], hold: &[&str]) -> Value {
    let conditions: Vec<Value> =
        hold.iter().map(|rego| json!({"type": "Holds", "rego": rego, "timeout": "1m"})).collect();
    json!({"name": name, "dependsOn": after, "action": {"action": "scale_deployment", "timeout": "5h",
        "postConditions": conditions,
        "parameters": {"scaleDeployment": {"deployment": name, "namespace": "default", "replicas": replicas}}}})
}

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
fn request(steps: Value, more: Value) -> Deed {
    let mut spec = json!({"targetResource": {"kind": "Deployment", "name": "a", "namespace": "default"},
        "requestedBy": "ann", "timeouts": {"global": "11h", "executing": "11h"}, "plan": {"steps": steps}});
    merge(&mut spec, more);
    Deed::create(REQUEST, json!({"metadata": {"name": "r", "namespace": "default"}, "spec": spec}))
}

/// Somebody approves what is asked for at that moment.
fn approve(name: &'static str) -> Deed {
    Deed::create_from(approval::KIND, move |ground| {
        let digest = ground.get(&EXECUTION, "default", "k").map(|one| digest_of(one.status()).to_owned());
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"executionRef": {"name": "k"},
            "decision": "approve", "approver": {"username": SOMEBODY}, "digest": digest}})
    })
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
fn outdated(ground: &Ground, status: &Value) -> bool {
    let given =
        ground.get(&approval::KIND, "default", "yes").map(|one| one.raw().clone()).unwrap_or_default();
    let waits = status.get("phase").and_then(Value::as_str) == Some("waiting_approval");
    waits && given.pointer("/spec/digest").and_then(Value::as_str) != Some(digest_of(status))
}

fn digest_of(status: &Value) -> &str {
    status.get("approvalDigest").and_then(Value::as_str).unwrap_or("none")
}

fn is_over(status: &Value) -> bool {
    let phase = status.get("phase").and_then(Value::as_str);
    KubernetesExecutionPhase::TERMINAL.iter().any(|over| phase == Some(over.as_str()))
}

fn size(deployment: &Object) -> i64 {
    deployment.raw().pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default()
}

fn replicas(ground: &Ground, wanted: i64) -> Result<(), String> {
    let found = ground.get(&DEPLOYMENT, "default", "web").map(|one| size(one));
    if found == Some(wanted) { Ok(()) } else { Err(format!("web has {found:?} replicas, not {wanted}")) }
}

fn ends(ground: &Ground, name: &'static str, phase: &'static str) -> Result<(), String> {
    if phase_is(EXECUTION, name, phase)(ground) {
        return Ok(());
    }
    let status = ground.get(&EXECUTION, "default", name).map(|one| one.status().clone());
    Err(format!("{name} is not {phase}: {status:?}"))
}

fn request_is(ground: &Ground, phase: &str) -> Result<(), String> {
    let status = ground.get(&REQUEST, "default", "r").map(|one| one.status().clone()).unwrap_or_default();
    let found = status.get("overallPhase").and_then(Value::as_str);
    if found == Some(phase) { Ok(()) } else { Err(format!("the request is not {phase}: {status}")) }
}
