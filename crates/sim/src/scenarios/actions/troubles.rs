//! Worlds of actions in which somebody does what they should not, or comes too late.

use http::Method;
use pawl_api::git::workflow::HELD;
use pawl_api::k8s::{DEPLOYMENT, JOB, SECRET};
use pawl_api::meta::Kind;
use pawl_api::pawl::labels::{OWNER_KIND, OWNER_NAME, OWNER_NAMESPACE, OWNER_UID};
use pawl_api::remedy::{Action, EXECUTOR_NAMESPACE, annotations, labels};
use pawl_api::tekton::PIPELINE_RUN;
use pawl_machines::object::Key;
use serde_json::{Value, json};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::safe::safe;
use super::{
    ConcatDeeds as _, EXECUTION, SOMEBODY, account, approve, ends, execution, is_over, policy, replicas,
    roll_back, scenario, stage,
};
use crate::acting::CANARY;
use crate::ground::{Ground, request};
use crate::oracle;
use crate::scenario::{Act, Deed, Scenario, phase_is};
use crate::scenarios::remedy::merge;

pub(super) fn all() -> Vec<Scenario> {
    vec![left_behind(), self_approval(), job_removed(), stale_rollback(), secret(), moves()]
}

/// What a process leaves that stood still until the executions it worked for were gone.
fn left_behind() -> Scenario {
    scenario(
        "action-strays",
        "what was made for executions that are gone goes, but for what was let go, which first does what it was made for",
        || {
            let job = |name: &str, held: bool| {
                let template = crate::scenarios::jobs::template(&["exit", "0"]);
                stray(
                    JOB,
                    "KubernetesExecution",
                    name,
                    held,
                    Some(json!({"suspend": held, "template": template})),
                )
            };
            let secret = |name: &str| stray(SECRET, "KubernetesExecution", name, false, None);
            let run = json!({"status": "PipelineRunPending", "pipelineRef": {"name": "mend"}});
            let left = vec![
                job("ke-held", true),
                job("ke-going", false),
                secret("ke-held-in"),
                secret("pawl-undo-gone"),
                stray(PIPELINE_RUN, "WorkflowExecution", "far", true, Some(run)),
            ];
            [stage(), left].concat_deeds()
        },
        |ground| {
            let ran = ground.history.iter().any(|happened| {
                happened.object.name() == "ke-going"
                    && happened.object.status().get("succeeded") == Some(&json!(1))
            });
            let secrets = ground.all(&SECRET).filter(|one| one.namespace() == Some(EXECUTOR_NAMESPACE));
            match ground.all(&JOB).count() + ground.all(&PIPELINE_RUN).count() + secrets.count() {
                0 if ran => Ok(()),
                0 => Err("what was let go was stopped".to_owned()),
                left => Err(format!("{left} objects are left")),
            }
        },
    )
}

/// What was made for the execution `default/gone`, which there is none of any more.
fn stray(kind: Kind, owner: &str, name: &str, held: bool, spec: Option<Value>) -> Deed {
    let mut annotations = json!({annotations::EXECUTION: "default/gone"});
    if held {
        merge(&mut annotations, json!({HELD: "false"}));
    }
    let labels =
        json!({OWNER_KIND: owner, OWNER_UID: "gone", OWNER_NAMESPACE: "default", OWNER_NAME: "gone"});
    let metadata =
        json!({"name": name, "namespace": EXECUTOR_NAMESPACE, "labels": labels, "annotations": annotations});
    let manifest = match spec {
        Some(spec) => json!({"metadata": metadata, "spec": spec}),
        None => json!({"metadata": metadata}),
    };
    Deed::create(kind, manifest)
}

fn self_approval() -> Scenario {
    scenario(
        "action-self-approval",
        "whoever asks for an action does not approve it, and nobody else does in time",
        || {
            let asks = json!({"spec": {"requestedBy": SOMEBODY}});
            let yes = approve("yes").when(phase_is(EXECUTION, "k", "waiting_approval"));
            [stage(), vec![policy("approve-soon"), execution("k", 5, asks), yes]].concat_deeds()
        },
        |ground| {
            safe(ground)?;
            ends(ground, "k", "failed")?;
            replicas(ground, 3)
        },
    )
}

fn job_removed() -> Scenario {
    scenario(
        "action-job-removed",
        "a Job that somebody removes while it runs, or after it, is never made again",
        || [stage(), vec![execution("k", 5, json!({})), remove_the_job()]].concat_deeds(),
        |ground| {
            safe(ground)?;
            over(ground)
        },
    )
}

/// Removes the Job of an action once it was let go; where all is over and it has gone by itself, looks and leaves.
fn remove_the_job() -> Deed {
    fn going(ground: &Ground) -> Option<Key> {
        ground.all(&JOB).find(|job| oracle::has_run(job)).map(|job| job.key())
    }
    let asks = |ground: &Ground| match going(ground) {
        Some(job) => {
            let body =
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
            let path = JOB.path(job.namespace.as_deref(), Some(&job.name));
            request(Method::DELETE, &path, "application/json", &body)
        }
        None => {
            let path = EXECUTION.path(Some("default"), Some("k"));
            request(Method::GET, &path, "application/json", &Value::Null)
        }
    };
    Deed {
        when: Box::new(|ground| going(ground).is_some() || over(ground).is_ok()),
        act: Act::Ask(Box::new(asks)),
    }
}

fn stale_rollback() -> Scenario {
    scenario(
        "action-rollback-stale",
        "a rollback does not take back what somebody made of the target since",
        || {
            let more = Deed::patch(DEPLOYMENT, Some("default"), "web", json!({"spec": {"replicas": 9}}));
            let more = more.when(phase_is(EXECUTION, "k", "rollback_ready"));
            [stage(), vec![execution("k", 5, json!({})), more, roll_back("k")]].concat_deeds()
        },
        |ground| {
            safe(ground)?;
            ends(ground, "k", "rollback_ready")?;
            replicas(ground, 9)?;
            let back = ground.all(&EXECUTION).find(|one| one.label(labels::ROLLBACK_OF).is_some());
            match back.and_then(|back| back.status().get("reason")?.as_str()) {
                Some("precondition_failed") => Ok(()),
                other => Err(format!("the rollback ended with {other:?}")),
            }
        },
    )
}

fn secret() -> Scenario {
    scenario(
        "action-secret",
        "a value goes from one Secret to another and back, and is seen nowhere else",
        || {
            let values = [("db", "-old"), ("rotated", "-new")].map(|(name, tail)| {
                let value = STANDARD.encode(format!("{CANARY}{tail}"));
                let metadata = json!({"name": name, "namespace": "default"});
                Deed::create(SECRET, json!({"metadata": metadata, "data": {"password": value}}))
            });
            let from = json!({"valueFrom": {"secretKeyRef": {"name": "rotated", "key": "password"}}});
            let update = json!({"secret": "db", "namespace": "default", "data": {"password": from}});
            // A condition is shown the target too.
            let named = json!([{"type": "Named", "rego": "/metadata/name == \"db\"", "timeout": "11h"}]);
            let update = json!({"metadata": {"name": "k", "namespace": "default"}, "spec": {"action": "update_secret",
                "requestedBy": "ann", "lockTimeout": "11h", "timeout": "11h", "postConditions": named,
                "parameters": {"updateSecret": update}}});
            let back = roll_back("k").when(phase_is(EXECUTION, "k", "rollback_ready"));
            let acts =
                vec![account(Action::UpdateSecret), policy("dry-run"), Deed::create(EXECUTION, update), back];
            [stage(), values.into_iter().collect(), acts].concat_deeds()
        },
        |ground| {
            safe(ground)?;
            ends(ground, "k", "completed")?;
            let found = ground.get(&SECRET, "default", "db");
            let value = found.and_then(|secret| secret.raw().pointer("/data/password")?.as_str());
            if value == Some(STANDARD.encode(format!("{CANARY}-old")).as_str()) {
                Ok(())
            } else {
                Err("the Secret is not what it was".to_owned())
            }
        },
    )
}

/// For tests that disturb it at every step (`tests/it/moves.rs`): whatever comes of it, what holds of every world holds.
fn moves() -> Scenario {
    scenario(
        "action-moves",
        "an action that is approved comes to an end, whatever moves meanwhile",
        || {
            // Where it has ended before anybody was asked, the word comes too late.
            let yes = approve("yes").when(|ground| {
                let status = ground.get(&EXECUTION, "default", "k").map(|one| one.status().clone());
                let waits = |status: &Value| status.get("phase") == Some(&json!("waiting_approval"));
                status.is_some_and(|status| waits(&status) || is_over(&status))
            });
            [stage(), vec![policy("approve"), execution("k", 5, json!({})), yes]].concat_deeds()
        },
        |ground| {
            safe(ground)?;
            over(ground)
        },
    )
}

fn over(ground: &Ground) -> Result<(), String> {
    let status = ground.get(&EXECUTION, "default", "k").map(|one| one.status().clone()).unwrap_or_default();
    if is_over(&status) { Ok(()) } else { Err(format!("k is not over: {status}")) }
}
