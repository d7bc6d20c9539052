//! The remedy door: executions that compete for a target, and requests whose steps they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Method;
use pawl_api::git::workflow::HELD;
use pawl_api::k8s::{JOB, LEASE, NAMESPACE, POD};
use pawl_api::meta::Kind;
use pawl_api::remedy::{annotations, remediation_playbook, remediation_request, workflow_execution};
use pawl_api::tekton::PIPELINE_RUN;
use pawl_apiserver::ChangeType;
use pawl_machines::lock::{self, Lock, reaper::Reaper};
use pawl_machines::machine::AnyMachine;
use pawl_machines::object::Object;
use pawl_machines::remedy::kubernetes_execution::KubernetesExecutions;
use pawl_machines::remedy::memory::Memory;
use serde_json::{Value, json};

use super::home;
use crate::ground::{Ground, Happened, request};
use crate::mutant::Guards;
use crate::oracle;
use crate::scenario::{Act, Deed, Scenario, phase_is};

const EXECUTION: Kind = workflow_execution::KIND;
const REQUEST: Kind = remediation_request::KIND;

/// Where no simulated clock jumps.
const FAR: &str = "11h";

/// How many want the same target at once.
const CONTENDERS: [&str; 10] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9"];

pub(super) fn all() -> Vec<Scenario> {
    let mut all = executions();
    all.extend(on_tekton());
    all.extend(requests());
    all
}

fn executions() -> Vec<Scenario> {
    vec![
        scenario(
            "remedy-job",
            "an execution runs its Job once and completes; its second target's lock goes without a trace",
            || {
                let more =
                    json!({"metadata": {"annotations": {"pawl.dev/targets": "default/deployment/db"}}});
                vec![home(), execution("w", "exit:0", more)]
            },
            |ground| {
                fair(ground).and_then(|()| runs(ground, 1)).and_then(|()| ends(ground, "w", "Completed"))
            },
        ),
        scenario(
            "remedy-job-fails",
            "an execution that fails blocks its workflow on its target",
            || {
                let next = execution("v", "exit:0", json!({})).when(phase_is(EXECUTION, "w", "Failed"));
                vec![home(), execution("w", "exit:3", json!({})), next]
            },
            |ground| {
                fair(ground)?;
                runs(ground, 1)?;
                ends(ground, "w", "Failed")?;
                says(ground, "v", "PreviousExecutionFailed")
            },
        ),
        scenario(
            "remedy-contenders",
            "of ten executions on one target never two run at once, and whoever is skipped is told why",
            || {
                let wanted = CONTENDERS.iter().enumerate().map(|(number, name)| {
                    let image = if number % 4 == 3 { "exit:1" } else { "exit:0" };
                    let spec =
                        json!({"cooldown": "0s", "workflowRef": {"workflowId": format!("w{}", number % 3)}});
                    execution(name, image, json!({"spec": spec}))
                });
                std::iter::once(home()).chain(wanted).collect()
            },
            |ground| {
                fair(ground)?;
                let over = CONTENDERS.iter().all(|name| {
                    let phase =
                        ground.get(&EXECUTION, "default", name).map(|one| one.status()["phase"].clone());
                    matches!(phase.as_ref().and_then(Value::as_str), Some("Completed" | "Failed" | "Skipped"))
                });
                if over { Ok(()) } else { Err("a contender is not over".to_owned()) }
            },
        ),
        scenario(
            "remedy-delete",
            "an execution deleted while it runs stops its Job before it goes, and lets go of the target",
            || {
                vec![
                    home(),
                    execution("w", "hang", json!({})),
                    Deed::delete(EXECUTION, Some("default"), "w", "Background")
                        .when(|ground| ground.all(&POD).next().is_some()),
                ]
            },
            |ground| {
                fair(ground)?;
                match ground.all(&EXECUTION).count() + ground.all(&JOB).count() {
                    0 => Ok(()),
                    left => Err(format!("{left} objects are left")),
                }
            },
        ),
        scenario(
            "remedy-cancel",
            "an execution that is cancelled stops its Job",
            || {
                let cancel = json!({"metadata": {"annotations": {annotations::CANCEL: "enough"}}});
                vec![
                    home(),
                    execution("w", "hang", json!({})),
                    Deed::patch(EXECUTION, Some("default"), "w", cancel)
                        .when(|ground| ground.all(&POD).next().is_some()),
                ]
            },
            |ground| fair(ground).and_then(|()| ends(ground, "w", "Failed")),
        ),
    ]
}

fn on_tekton() -> Vec<Scenario> {
    vec![
        scenario(
            "remedy-tekton",
            "an execution makes one PipelineRun, and completes as Tekton says",
            || {
                let tekton = json!({"spec": {"engine": "tekton"}});
                vec![home(), execution("w", "bundle", tekton), tekton_says("True", "Succeeded")]
            },
            |ground| fair(ground).and_then(|()| ends(ground, "w", "Completed")),
        ),
        scenario(
            "remedy-tekton-elsewhere",
            "a PipelineRun in another namespace goes with its execution",
            || {
                let labels = json!({"pawl.dev/allow-from": "default"});
                let spec = json!({"engine": "tekton", "executionConfig": {"namespace": "runs"}});
                vec![
                    home(),
                    Deed::create(NAMESPACE, json!({"metadata": {"name": "runs", "labels": labels}})),
                    execution("w", "bundle", json!({"spec": spec})),
                    tekton_says("True", "Succeeded"),
                    Deed::delete(EXECUTION, Some("default"), "w", "Background").when(phase_is(
                        EXECUTION,
                        "w",
                        "Completed",
                    )),
                ]
            },
            |ground| {
                fair(ground)?;
                match ground.all(&EXECUTION).count() + ground.all(&PIPELINE_RUN).count() {
                    0 => Ok(()),
                    left => Err(format!("{left} objects are left")),
                }
            },
        ),
    ]
}

fn requests() -> Vec<Scenario> {
    vec![
        scenario(
            "remedy-request",
            "the steps of a request run in their order",
            || {
                let steps = json!([
                    step("a", "exit:0", &[]),
                    step("b", "exit:0", &[]),
                    step("c", "exit:0", &["a", "b"])
                ]);
                vec![
                    home(),
                    playbook(),
                    remediation(steps, json!({"timeouts": {"global": FAR, "executing": FAR}})),
                ]
            },
            |ground| {
                fair(ground)?;
                runs(ground, 3)?;
                request_is(ground, "Completed")
            },
        ),
        scenario(
            "remedy-request-fails",
            "after a step that failed nothing more is started",
            || {
                let steps = json!([step("a", "exit:1", &[]), step("b", "exit:0", &["a"])]);
                vec![home(), remediation(steps, json!({"timeouts": {"global": FAR, "executing": FAR}}))]
            },
            |ground| {
                fair(ground)?;
                runs(ground, 1)?;
                request_is(ground, "Failed")
            },
        ),
        scenario(
            "remedy-request-late",
            "a request whose time is over cancels what runs",
            || {
                vec![
                    home(),
                    remediation(
                        json!([step("a", "hang", &[])]),
                        json!({"timeouts": {"global": "10m", "executing": FAR}}),
                    ),
                ]
            },
            |ground| fair(ground).and_then(|()| request_is(ground, "TimedOut")),
        ),
        scenario(
            "remedy-request-kept",
            "after its retention a request goes with all it made",
            || vec![home(), remediation(json!([step("a", "exit:0", &[])]), json!({"retention": "20m"}))],
            |ground| {
                fair(ground)?;
                match ground.all(&REQUEST).count() + ground.all(&EXECUTION).count() + ground.all(&JOB).count()
                {
                    0 => Ok(()),
                    left => Err(format!("{left} objects are left")),
                }
            },
        ),
        scenario(
            "remedy-request-blocked",
            "a request that finds its target taken runs when it is free",
            || {
                let other = json!({"spec": {"workflowRef": {"workflowId": "other"}, "targetResource": "default/deployment/a"}});
                vec![
                    home(),
                    execution("w", "exit:0", other),
                    remediation(
                        json!([step("a", "exit:0", &[])]),
                        json!({"timeouts": {"global": FAR, "executing": FAR}}),
                    ),
                ]
            },
            |ground| fair(ground).and_then(|()| request_is(ground, "Completed")),
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

pub(super) fn machines(guards: Guards) -> Vec<AnyMachine> {
    let actions = KubernetesExecutions::default();
    let own = pawl_machines::remedy::machines_with(actions, pawl_api::meta::Duration::default());
    super::jobs::machines(guards).into_iter().chain(own).chain([AnyMachine::new(Reaper)]).collect()
}

fn execution(name: &'static str, image: &str, patch: Value) -> Deed {
    let mut manifest = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"engine": "job",
        "targetResource": "default/deployment/web", "workflowRef": {"workflowId": "mend", "containerImage": image},
        "executionConfig": {"timeout": FAR}}});
    merge(&mut manifest, patch);
    Deed::create(EXECUTION, manifest)
}

fn step(name: &str, image: &str, after: &[&str]) -> Value {
    json!({"name": name, "dependsOn": after, "workflow": {"engine": "job",
        "targetResource": format!("default/deployment/{name}"), "executionConfig": {"timeout": FAR},
        "workflowRef": {"workflowId": name, "containerImage": image}}})
}

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
fn remediation(steps: Value, more: Value) -> Deed {
    let mut spec = json!({"targetResource": {"kind": "Deployment", "name": "web", "namespace": "default"},
        "plan": {"steps": steps}});
    merge(&mut spec, more);
    Deed::create(REQUEST, json!({"metadata": {"name": "r", "namespace": "default"}, "spec": spec}))
}

/// Says of itself that it can be used.
fn playbook() -> Deed {
    let spec = json!({"matchers": [{"name": "alertname", "value": "Crash"}],
        "target": {"kind": "Deployment", "nameLabel": "deployment", "namespaceLabel": "namespace"},
        "plan": {"steps": [step("a", "exit:0", &[])]}});
    Deed::create(
        remediation_playbook::KIND,
        json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec}),
    )
}

/// Tekton's part, once the run is let go.
fn tekton_says(status: &'static str, reason: &'static str) -> Deed {
    let say = move |ground: &Ground| {
        let Some(run) = ground.all(&PIPELINE_RUN).next() else { return http::Request::new(Vec::new()) };
        let path = format!("{}/status", PIPELINE_RUN.path(run.namespace(), Some(run.name())));
        let at = format!("{:.0}", ground.now());
        let condition = json!({"type": "Succeeded", "status": status, "reason": reason, "message": "so it is",
            "lastTransitionTime": at});
        let said = json!({"status": {"startTime": at, "completionTime": at, "conditions": [condition]}});
        request(Method::PATCH, &path, "application/merge-patch+json", &said)
    };
    Deed { when: Box::new(|_| true), act: Act::Ask(Box::new(say)) }
        .when(|ground| ground.all(&PIPELINE_RUN).any(|run| run.annotation(HELD).is_none()))
}

pub(super) fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch,
    }
}

fn says(ground: &Ground, name: &str, reason: &str) -> Result<(), String> {
    let status = ground.get(&EXECUTION, "default", name).map(|one| one.status().clone()).unwrap_or_default();
    let found = status.get("reason").and_then(Value::as_str);
    if found == Some(reason) { Ok(()) } else { Err(format!("{name} does not say {reason}: {status}")) }
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

/// So many Jobs were let go, ever.
fn runs(ground: &Ground, expected: usize) -> Result<(), String> {
    let jobs = ground.history.iter().map(|happened| &happened.object).filter(|object| *object.kind() == JOB);
    let ran: BTreeSet<&str> = jobs.filter(|job| oracle::has_run(job)).map(|job| job.uid()).collect();
    if ran.len() == expected { Ok(()) } else { Err(format!("{} Jobs ran", ran.len())) }
}

/// What holds whoever wins: never two runs alive on a target, no run without the lock, no lock without a reason at the end,
/// and nobody skipped for something that was not so.
fn fair(ground: &Ground) -> Result<(), String> {
    let mut past = Past::default();
    for happened in &ground.history {
        past.take(happened);
        past.check()?;
        if *happened.object.kind() == EXECUTION {
            past.check_skip(&happened.object)?;
        }
    }
    let held = ground.all(&LEASE).filter(|lease| lock::target_hash(lease).is_some());
    let mut leaked = held.filter_map(|lease| match lock::read(Some(lease)) {
        Lock::Held(holder) => Some(holder),
        Lock::Free | Lock::Unreadable(_) => None,
    });
    match leaked.find(|holder| !past.jobs.values().any(|run| run.owner == holder.unit.uid && run.alive)) {
        Some(holder) => Err(format!("the lock of {} leaked", holder.unit)),
        None => Ok(()),
    }
}

/// The world as it was at some moment, as far as fairness goes.
#[derive(Default)]
struct Past {
    /// By UID.
    jobs: BTreeMap<String, JobSeen>,
    /// The UIDs of Jobs with a Pod that runs, by Pod.
    acting: BTreeMap<String, String>,
    /// Who holds a target, by its hash: UID and name.
    holders: BTreeMap<String, (String, String)>,
    /// Everybody who ever held it, by name.
    ever: BTreeSet<(String, String)>,
    /// What each target remembers.
    memories: BTreeMap<String, Memory>,
    /// Who was seen as skipped before.
    skipped: BTreeSet<String>,
}

struct JobSeen {
    owner: String,
    target: String,
    alive: bool,
}

impl Past {
    fn take(&mut self, happened: &Happened) {
        let object = &happened.object;
        let gone = happened.what == ChangeType::Deleted;
        match object.kind() {
            kind if *kind == JOB => self.take_job(object, gone),
            kind if *kind == POD => {
                let job = object.controller().map(|owner| owner.uid.clone()).unwrap_or_default();
                if !gone && object.status().get("phase").and_then(Value::as_str) == Some("Running") {
                    self.acting.insert(object.uid().to_owned(), job);
                } else {
                    self.acting.remove(object.uid());
                }
            }
            kind if *kind == LEASE => {
                let Some(hash) = lock::target_hash(object) else { return };
                match lock::read(Some(object)) {
                    Lock::Held(holder) if !gone => {
                        self.ever.insert((hash.to_owned(), holder.unit.key.name.clone()));
                        self.holders.insert(hash.to_owned(), (holder.unit.uid, holder.unit.key.name));
                    }
                    Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => {
                        self.holders.remove(hash);
                    }
                }
                self.memories.insert(hash.to_owned(), Memory::of(Some(object)).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn take_job(&mut self, job: &Arc<Object>, gone: bool) {
        if job.annotation(annotations::EXECUTION).is_none() {
            return;
        }
        let env = job.raw().pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
        let is_target = |one: &&Value| one.get("name").and_then(Value::as_str) == Some("TARGET_RESOURCE");
        let target = env
            .into_iter()
            .flatten()
            .find(is_target)
            .and_then(|one| one.get("value"))
            .and_then(Value::as_str);
        let owner = job.controller().map(|owner| owner.uid.clone()).unwrap_or_default();
        let conditions = job.status().get("conditions").and_then(Value::as_array);
        let over = conditions.into_iter().flatten().any(|one| {
            let type_ = one.get("type").and_then(Value::as_str);
            matches!(type_, Some("Complete" | "Failed")) && one.get("status") == Some(&json!("True"))
        });
        let alive = !gone && !over && oracle::has_run(job);
        let target = target.unwrap_or_default().to_owned();
        self.jobs.insert(job.uid().to_owned(), JobSeen { owner, target, alive });
    }

    fn check(&self) -> Result<(), String> {
        let mut on_target: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for (uid, job) in &self.jobs {
            let acts = job.alive || self.acting.values().any(|acting| acting == uid);
            if !acts {
                continue;
            }
            if let Some((other, _)) = on_target.insert(&job.target, (uid, &job.owner)) {
                return Err(format!("two runs were alive on {}: {other} and {uid}", job.target));
            }
            let target: pawl_api::meta::Target = job.target.parse().map_err(|error| format!("{error}"))?;
            let holder = self.holders.get(&target.short_hash()).map(|(uid, _)| uid.as_str());
            if holder != Some(job.owner.as_str()) {
                return Err(format!(
                    "a run was alive on {} without its lock, which {holder:?} held",
                    job.target
                ));
            }
        }
        Ok(())
    }

    fn check_skip(&mut self, execution: &Arc<Object>) -> Result<(), String> {
        let status = execution.status();
        if status.get("phase").and_then(Value::as_str) != Some("Skipped")
            || !self.skipped.insert(execution.uid().to_owned())
        {
            return Ok(());
        }
        let text = |path: &str| execution.raw().pointer(path).and_then(Value::as_str).unwrap_or_default();
        let target: pawl_api::meta::Target =
            text("/status/target").parse().map_err(|error| format!("{error}"))?;
        let hash = target.short_hash();
        let workflow = text("/spec/workflowRef/workflowId");
        let remembered = self.memories.get(&hash).and_then(|memory| memory.get(workflow));
        let so = match text("/status/reason") {
            "ResourceBusy" => {
                let name = text("/status/skipDetails/conflictingWorkflow/name").to_owned();
                name != execution.name() && self.ever.contains(&(hash, name))
            }
            "RecentlyRemediated" => remembered.is_some_and(|one| one.last_success.is_some()),
            "PreviousExecutionFailed" => remembered.is_some_and(|one| one.block.is_some()),
            "BackingOff" | "ExhaustedRetries" => remembered.is_some_and(|one| one.failures > 0),
            _ => false,
        };
        if so {
            Ok(())
        } else {
            Err(format!("{} was skipped without a true reason: {status}", execution.name()))
        }
    }
}
