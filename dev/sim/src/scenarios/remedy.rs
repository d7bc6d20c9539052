//! The remedy door: executions that compete for a target, and requests whose steps they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

use super::expect::{self, has_condition, jobs_ran, none_left, text};
use super::{home, merged};
use crate::ground::{Ground, Happened};
use crate::mutant::Guards;
use crate::oracle;
use crate::scenario::{Deed, Scenario, merge_patch, phase_is};

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
        )
        .script(|| {
            let more = json!({"metadata": {"annotations": {"pawl.dev/targets": "default/deployment/db"}}});
            vec![home(), execution("w", "exit:0", more)]
        })
        .ends_with(|ground| {
            fair(ground).and_then(|()| jobs_ran(ground, 1)).and_then(|()| ends(ground, "w", "Completed"))
        }),
        scenario("remedy-job-fails", "an execution that fails blocks its workflow on its target")
            .script(|| {
                let next = run("v", "exit:0").when(phase_is(EXECUTION, "w", "Failed"));
                vec![home(), run("w", "exit:3"), next]
            })
            .ends_with(|ground| {
                fair(ground)?;
                jobs_ran(ground, 1)?;
                ends(ground, "w", "Failed")?;
                says(ground, "v", "PreviousExecutionFailed")
            }),
        scenario(
            "remedy-contenders",
            "of ten executions on one target never two run at once, and whoever is skipped is told why",
        )
        .script(|| {
            let wanted = CONTENDERS.iter().enumerate().map(|(number, name)| {
                let image = if number % 4 == 3 { "exit:1" } else { "exit:0" };
                let spec =
                    json!({"cooldown": "0s", "workflowRef": {"workflowId": format!("w{}", number % 3)}});
                execution(name, image, json!({"spec": spec}))
            });
            std::iter::once(home()).chain(wanted).collect()
        })
        .ends_with(|ground| {
            fair(ground)?;
            let over = CONTENDERS.iter().all(|name| {
                let status = ground.get(&EXECUTION, "default", name).map(|one| one.status());
                let phase = status.and_then(|status| text(status, "phase"));
                matches!(phase, Some("Completed" | "Failed" | "Skipped"))
            });
            expect::equal("all contenders are over", over, true)
        }),
        scenario(
            "remedy-delete",
            "an execution deleted while it runs stops its Job before it goes, and lets go of the target",
        )
        .script(|| vec![home(), run("w", "hang"), Deed::delete(EXECUTION, "w").when(has_pod)])
        .ends_with(|ground| fair(ground).and_then(|()| none_left(ground, &[EXECUTION, JOB]))),
        scenario("remedy-cancel", "an execution that is cancelled stops its Job")
            .script(|| {
                let cancel = json!({"metadata": {"annotations": {annotations::CANCEL: "enough"}}});
                vec![home(), run("w", "hang"), Deed::patch(EXECUTION, "w", cancel).when(has_pod)]
            })
            .ends_with(|ground| fair(ground).and_then(|()| ends(ground, "w", "Failed"))),
    ]
}

fn on_tekton() -> Vec<Scenario> {
    vec![
        scenario("remedy-tekton", "an execution makes one PipelineRun, and completes as Tekton says")
            .script(|| {
                let tekton = json!({"spec": {"engine": "tekton"}});
                vec![home(), execution("w", "bundle", tekton), tekton_says("True", "Succeeded")]
            })
            .ends_with(|ground| fair(ground).and_then(|()| ends(ground, "w", "Completed"))),
        scenario("remedy-tekton-elsewhere", "a PipelineRun in another namespace goes with its execution")
            .script(|| {
                let labels = json!({"pawl.dev/allow-from": "default"});
                let spec = json!({"engine": "tekton", "executionConfig": {"namespace": "runs"}});
                vec![
                    home(),
                    Deed::create(NAMESPACE, json!({"metadata": {"name": "runs", "labels": labels}})),
                    execution("w", "bundle", json!({"spec": spec})),
                    tekton_says("True", "Succeeded"),
                    Deed::delete(EXECUTION, "w").when(phase_is(EXECUTION, "w", "Completed")),
                ]
            })
            .ends_with(|ground| fair(ground).and_then(|()| none_left(ground, &[EXECUTION, PIPELINE_RUN]))),
    ]
}

fn requests() -> Vec<Scenario> {
    vec![
        scenario("remedy-request", "the steps of a request run in their order")
            .script(|| {
                let steps =
                    [step("a", "exit:0", &[]), step("b", "exit:0", &[]), step("c", "exit:0", &["a", "b"])];
                vec![home(), playbook(), remediation(&steps, timeouts(FAR))]
            })
            .ends_with(|ground| {
                fair(ground)?;
                jobs_ran(ground, 3)?;
                request_is(ground, "Completed")
            }),
        scenario("remedy-request-fails", "after a step that failed nothing more is started")
            .script(|| {
                let steps = [step("a", "exit:1", &[]), step("b", "exit:0", &["a"])];
                vec![home(), remediation(&steps, timeouts(FAR))]
            })
            .ends_with(|ground| {
                fair(ground)?;
                jobs_ran(ground, 1)?;
                request_is(ground, "Failed")
            }),
        scenario("remedy-request-late", "a request whose time is over cancels what runs")
            .script(|| vec![home(), remediation(&[step("a", "hang", &[])], timeouts("10m"))])
            .ends_with(|ground| fair(ground).and_then(|()| request_is(ground, "TimedOut"))),
        scenario("remedy-request-kept", "after its retention a request goes with all it made")
            .script(|| {
                let steps = [step("a", "exit:0", &[])];
                vec![home(), remediation(&steps, json!({"retention": "20m"}))]
            })
            .ends_with(|ground| fair(ground).and_then(|()| none_left(ground, &[REQUEST, EXECUTION, JOB]))),
        scenario("remedy-request-blocked", "a request that finds its target taken runs when it is free")
            .script(|| {
                let other = json!({"spec": {"workflowRef": {"workflowId": "other"},
                    "targetResource": "default/deployment/a"}});
                let steps = [step("a", "exit:0", &[])];
                vec![home(), execution("w", "exit:0", other), remediation(&steps, timeouts(FAR))]
            })
            .ends_with(|ground| fair(ground).and_then(|()| request_is(ground, "Completed"))),
    ]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about).timed().machines(machines)
}

pub(super) fn machines(guards: Guards) -> Vec<AnyMachine> {
    let actions = KubernetesExecutions::default();
    let own = pawl_machines::remedy::machines_with(actions, pawl_api::meta::Duration::default());
    super::jobs::machines(guards).into_iter().chain(own).chain([AnyMachine::new(Reaper)]).collect()
}

/// An execution of this image on the target that all share.
fn run(name: &str, image: &str) -> Deed {
    execution(name, image, json!({}))
}

fn execution(name: &str, image: &str, more: Value) -> Deed {
    let spec = json!({"engine": "job", "targetResource": "default/deployment/web",
        "workflowRef": {"workflowId": "mend", "containerImage": image}, "executionConfig": {"timeout": FAR}});
    Deed::create(EXECUTION, merged(json!({"metadata": {"name": name}, "spec": spec}), more))
}

fn step(name: &str, image: &str, after: &[&str]) -> Value {
    json!({"name": name, "dependsOn": after, "workflow": {"engine": "job",
        "targetResource": format!("default/deployment/{name}"), "executionConfig": {"timeout": FAR},
        "workflowRef": {"workflowId": name, "containerImage": image}}})
}

fn timeouts(global: &str) -> Value {
    json!({"timeouts": {"global": global, "executing": FAR}})
}

fn remediation(steps: &[Value], more: Value) -> Deed {
    let spec = json!({"targetResource": {"kind": "Deployment", "name": "web", "namespace": "default"},
        "plan": {"steps": steps}});
    Deed::create_with_spec(REQUEST, "r", merged(spec, more))
}

/// Says of itself that it can be used.
fn playbook() -> Deed {
    let spec = json!({"matchers": [{"name": "alertname", "value": "Crash"}],
        "target": {"kind": "Deployment", "nameLabel": "deployment", "namespaceLabel": "namespace"},
        "plan": {"steps": [step("a", "exit:0", &[])]}});
    Deed::create_with_spec(remediation_playbook::KIND, "p", spec)
}

/// Tekton's part, once the run is let go.
fn tekton_says(status: &'static str, reason: &'static str) -> Deed {
    Deed::send(move |ground| {
        let Some(run) = ground.all(&PIPELINE_RUN).next() else { return http::Request::new(Vec::new()) };
        let path = format!("{}/status", PIPELINE_RUN.path(run.namespace(), Some(run.name())));
        let at = format!("{:.0}", ground.now());
        let condition = json!({"type": "Succeeded", "status": status, "reason": reason, "message": "so it is",
            "lastTransitionTime": at});
        let said = json!({"status": {"startTime": at, "completionTime": at, "conditions": [condition]}});
        merge_patch(&path, &said)
    })
    .when(|ground| ground.all(&PIPELINE_RUN).any(|run| run.annotation(HELD).is_none()))
}

fn has_pod(ground: &Ground) -> bool {
    ground.all(&POD).next().is_some()
}

fn says(ground: &Ground, name: &str, reason: &str) -> Result<(), String> {
    expect::says(ground, &EXECUTION, name, "/reason", reason)
}

fn ends(ground: &Ground, name: &str, phase: &str) -> Result<(), String> {
    expect::phase(ground, &EXECUTION, name, phase)
}

fn request_is(ground: &Ground, phase: &str) -> Result<(), String> {
    expect::says(ground, &REQUEST, "r", "/overallPhase", phase)
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
        let over = ["Complete", "Failed"].iter().any(|end| has_condition(job, end, "True"));
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
