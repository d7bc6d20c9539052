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
    EXECUTION, SOMEBODY, account, approve, approve_when_asked, ends, ends_at, execution, executors_secrets,
    on_stage, over, policy, roll_back, roll_back_when_ready, scale, scale_by, scenario,
};
use crate::acting::CANARY;
use crate::ground::{Ground, request};
use crate::oracle;
use crate::scenario::{Deed, Scenario, deletion, phase_is};
use crate::scenarios::expect::{self, none_left, text};
use crate::scenarios::merged;

pub(super) fn all() -> Vec<Scenario> {
    vec![left_behind(), self_approval(), job_removed(), stale_rollback(), secret(), moves()]
}

/// What a process leaves that stood still until the executions it worked for were gone.
fn left_behind() -> Scenario {
    scenario(
        "action-strays",
        "what was made for executions that are gone goes, but what was let go first does what it was made for",
    )
    .script(|| {
        let job = |name: &str, held: bool| {
            let template = crate::scenarios::jobs::template(&["exit", "0"]);
            let spec = json!({"suspend": held, "template": template});
            stray(JOB, "KubernetesExecution", name, held, json!({"spec": spec}))
        };
        let secret = |name: &str| stray(SECRET, "KubernetesExecution", name, false, json!({}));
        let run = json!({"spec": {"status": "PipelineRunPending", "pipelineRef": {"name": "mend"}}});
        on_stage([
            job("ke-held", true),
            job("ke-going", false),
            secret("ke-held-in"),
            secret("pawl-undo-gone"),
            stray(PIPELINE_RUN, "WorkflowExecution", "far", true, run),
        ])
    })
    .ends_with(|ground| {
        none_left(ground, &[JOB, PIPELINE_RUN])?;
        expect::equal("Secrets left", executors_secrets(ground), 0)?;
        let ran = ground.history.iter().any(|happened| {
            happened.object.name() == "ke-going"
                && happened.object.status().get("succeeded") == Some(&json!(1))
        });
        expect::equal("what was let go came to its end", ran, true)
    })
}

/// What was made for the execution `default/gone`, which there is none of any more.
fn stray(kind: Kind, owner: &str, name: &str, held: bool, more: Value) -> Deed {
    let held = if held { json!({HELD: "false"}) } else { json!({}) };
    let annotations = merged(json!({annotations::EXECUTION: "default/gone"}), held);
    let labels =
        json!({OWNER_KIND: owner, OWNER_UID: "gone", OWNER_NAMESPACE: "default", OWNER_NAME: "gone"});
    let metadata =
        json!({"name": name, "namespace": EXECUTOR_NAMESPACE, "labels": labels, "annotations": annotations});
    Deed::create(kind, merged(json!({"metadata": metadata}), more))
}

fn self_approval() -> Scenario {
    scenario(
        "action-self-approval",
        "whoever asks for an action does not approve it, and nobody else does in time",
    )
    .script(|| on_stage([policy("approve-soon"), scale_by(SOMEBODY, "k", 5), approve_when_asked()]))
    .ends_with(|ground| ends_at(ground, "failed", 3))
}

fn job_removed() -> Scenario {
    scenario(
        "action-job-removed",
        "a Job that somebody removes while it runs, or after it, is never made again",
    )
    .script(|| on_stage([scale("k", 5), remove_the_job()]))
    .ends_with(|ground| safe(ground).and_then(|()| over(ground, "k")))
}

/// Removes the Job of an action once it was let go; where all is over and it has gone by itself, looks and leaves.
fn remove_the_job() -> Deed {
    fn going(ground: &Ground) -> Option<Key> {
        ground.all(&JOB).find(|job| oracle::has_run(job)).map(|job| job.key())
    }
    Deed::send(|ground| match going(ground) {
        Some(job) => deletion(&JOB.path(job.namespace.as_deref(), Some(&job.name)), "Background"),
        None => {
            let path = EXECUTION.path(Some("default"), Some("k"));
            request(Method::GET, &path, "application/json", &Value::Null)
        }
    })
    .when(|ground| going(ground).is_some() || over(ground, "k").is_ok())
}

fn stale_rollback() -> Scenario {
    scenario("action-rollback-stale", "a rollback does not take back what somebody made of the target since")
        .script(|| {
            let more = Deed::patch(DEPLOYMENT, "web", json!({"spec": {"replicas": 9}}));
            let more = more.when(phase_is(EXECUTION, "k", "rollback_ready"));
            on_stage([scale("k", 5), more, roll_back("k")])
        })
        .ends_with(|ground| {
            ends_at(ground, "rollback_ready", 9)?;
            let back = ground.all(&EXECUTION).find(|one| one.label(labels::ROLLBACK_OF).is_some());
            let reason = back.and_then(|back| text(back.status(), "reason"));
            expect::equal("reason of the rollback", reason, Some("precondition_failed"))
        })
}

fn secret() -> Scenario {
    scenario("action-secret", "a value goes from one Secret to another and back, and is seen nowhere else")
        .script(|| {
            let secret = |name: &str, tail: &str| {
                let value = STANDARD.encode(format!("{CANARY}{tail}"));
                Deed::create(SECRET, json!({"metadata": {"name": name}, "data": {"password": value}}))
            };
            let from = json!({"valueFrom": {"secretKeyRef": {"name": "rotated", "key": "password"}}});
            let update = json!({"secret": "db", "namespace": "default", "data": {"password": from}});
            // A condition is shown the target too.
            let named = json!([{"type": "Named", "rego": "/metadata/name == \"db\"", "timeout": "11h"}]);
            let more = json!({"postConditions": named, "parameters": {"updateSecret": update}});
            on_stage([
                secret("db", "-old"),
                secret("rotated", "-new"),
                account(Action::UpdateSecret),
                policy("dry-run"),
                execution("ann", "k", "update_secret", more),
                roll_back_when_ready(),
            ])
        })
        .ends_with(|ground| {
            safe(ground)?;
            ends(ground, "k", "completed")?;
            let found = ground.get(&SECRET, "default", "db");
            let value = found.and_then(|secret| secret.raw().pointer("/data/password")?.as_str());
            if value == Some(STANDARD.encode(format!("{CANARY}-old")).as_str()) {
                Ok(())
            } else {
                Err("the Secret is not what it was".to_owned())
            }
        })
}

/// For tests that disturb it at every step (`tests/it/moves.rs`): whatever comes of it, what holds of every world holds.
fn moves() -> Scenario {
    scenario("action-moves", "an action that is approved comes to an end, whatever moves meanwhile")
        .script(|| {
            // Where it has ended before anybody was asked, the word comes too late.
            let yes = approve("yes").when(|ground| {
                phase_is(EXECUTION, "k", "waiting_approval")(ground) || over(ground, "k").is_ok()
            });
            on_stage([policy("approve"), scale("k", 5), yes])
        })
        .ends_with(|ground| safe(ground).and_then(|()| over(ground, "k")))
}
