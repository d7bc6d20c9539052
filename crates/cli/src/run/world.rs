//! How do the Workflows of a plan run on this machine?
//!
//! An API server in memory, the machines that make Jobs of Workflows and Pods of Jobs, and the runner that makes
//! processes of Pods: what `pawl up` runs, in this process, without a socket and without anything left behind. No
//! Repository stands behind the Branch, so GitHub is not asked. A Workflow is made when its turn has come.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use pawl_api::git::{Branch, Workflow, WorkflowPhase, branch, workflow, workflow_template};
use pawl_api::meta::{Kind, Phase as _, Reason};
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_apiserver::{RealEnv, Server};
use pawl_engine::Engine;
use pawl_integrations::mask::Mask;
use pawl_machines::cluster;
use pawl_machines::git::matching;
use pawl_machines::git::workflow::Workflows;
use pawl_machines::git::workflow_template::Templates;
use pawl_machines::lock::reaper::Reaper;
use pawl_machines::machine::AnyMachine;
use pawl_runner::{Isolation, LogOptions, Logs, Runner};
use serde_json::Value;
use tokio::sync::watch;

use super::plan::Plan;
use super::progress::{Progress, REFRESH};
use super::report::FailedContainer;
use super::schedule::{End, Schedule};
use super::templates::{self, NAMESPACE};
use crate::cluster::resource;
use crate::stop::Stop;
use crate::up::make_namespace;

/// The claim by which containers mount the checkout.
const CLAIM: &str = "checkout";
/// How much of a failed container's output is shown.
const TAIL_LINES: u64 = 50;
/// What leads the executable to a container's first process.
const CONTAINER_ARGUMENT: &str = "run-container";

/// What a Pod's container waits for that nobody here will bring: all objects there will be are there from the start.
const WAITING_IN_VAIN: [&str; 4] =
    ["ContainerCreating", "CreateContainerConfigError", "ErrImageNeverPull", "ErrImagePull"];

pub(super) struct World {
    client: kube::Client,
    isolation: Isolation,
}

/// What this machine lets containers be isolated by.
///
/// # Errors
/// When that cannot be tried.
pub(super) async fn isolation() -> anyhow::Result<Isolation> {
    let own = std::env::current_exe().context("find this executable")?;
    let scratch = tempfile::tempdir().context("make a directory to try things in")?;
    let detected = Isolation::detect(&own, &[CONTAINER_ARGUMENT.into()], scratch.path()).await;
    detected.context("find out how containers can be isolated")
}

/// Runs by the names of their Workflows.
type Started = BTreeMap<String, usize>;

impl World {
    /// A server with the plan's manifests in it.
    ///
    /// # Errors
    /// When the server refuses one, as a cluster would.
    pub(super) async fn new(plan: &Plan, isolation: Isolation) -> anyhow::Result<Self> {
        let server = Server::in_memory(Arc::new(RealEnv));
        for crd in pawl_api::crds::all() {
            let name = crd.name_any();
            let installed = server.install_crd(serde_json::to_value(crd)?);
            installed.map_err(|status| anyhow::anyhow!("install {name}: {status:?}"))?;
        }
        let world = Self { client: kube::Client::new(server.service(), NAMESPACE), isolation };
        make_namespace(&world.client, SYSTEM_NAMESPACE).await?;
        for (kind, manifest) in &plan.manifests.objects {
            let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let spec = plan.manifests.templates.get(name).filter(|_| *kind == workflow_template::KIND);
            let placed = spec.map(|spec| templates::working_in(manifest, &world.place(plan, spec)));
            world.put(kind, placed.as_ref().unwrap_or(manifest)).await?;
        }
        Ok(world)
    }

    /// Runs what is in the schedule until all of it is done, or somebody wants it to stop. Returns what made runs fail.
    pub(super) async fn run(
        &self,
        plan: &Plan,
        schedule: &mut Schedule,
        progress: &mut Progress,
        directory: &Path,
        stopping: Stop,
    ) -> anyhow::Result<Vec<FailedContainer>> {
        let engine = Engine::builder(self.client.clone())
            .machines(cluster::machines())
            .machine(AnyMachine::new(Templates))
            .machine(AnyMachine::new(Workflows::default()))
            .machine(AnyMachine::new(Reaper))
            .build()?;
        let own = std::env::current_exe().context("find this executable")?;
        let mut options = pawl_runner::Options::new(directory, own);
        options.container_arguments = vec![CONTAINER_ARGUMENT.into()];
        options.isolation = Some(self.isolation);
        options.directories.insert(format!("{NAMESPACE}/{CLAIM}"), plan.checkout.root.clone());
        let runner = Runner::new(self.client.clone(), options);
        let logs = runner.logs();
        let (stop, stopped) = watch::channel(false);
        let until_stopped = || {
            let mut stopped = stopped.clone();
            async move {
                // An error means that the other end is gone, which says the same.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            }
        };
        let ran = tokio::spawn(runner.run(until_stopped()));
        let looped = tokio::spawn({
            let until = until_stopped();
            async move { engine.run(until).await }
        });
        let followed = self.follow(plan, schedule, progress, stopping).await;
        // Nobody listening: they have stopped already.
        let _ = stop.send(true);
        ran.await?.context("the runner")?;
        looped.await?;
        let mask = Mask::of(plan.manifests.secrets.iter().map(String::as_bytes));
        self.failures(schedule, &followed?, &logs, &mask).await
    }

    /// Starts what may start and takes in what happens, until all is done.
    async fn follow(
        &self,
        plan: &Plan,
        schedule: &mut Schedule,
        progress: &mut Progress,
        stopping: Stop,
    ) -> anyhow::Result<Started> {
        let branch = self.branch(plan).await?;
        let config = watcher::Config::default;
        let workflows: Api<Workflow> = Api::default_namespaced(self.client.clone());
        let mut changed_workflows = watcher::watcher(workflows.clone(), config()).default_backoff().boxed();
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let mut changed_pods = watcher::watcher(pods, config()).default_backoff().boxed();
        let mut tick = tokio::time::interval(REFRESH);
        let mut stopping = std::pin::pin!(stopping.wait());
        let mut started = Started::new();
        loop {
            for at in schedule.start(Instant::now()) {
                let workflow = self.workflow(plan, schedule, at, &branch)?;
                let name = workflow.name_any();
                workflows
                    .create(&PostParams::default(), &workflow)
                    .await
                    .with_context(|| format!("make {name}"))?;
                started.insert(name, at);
            }
            progress.show(schedule, Instant::now());
            if schedule.is_done() {
                return Ok(started);
            }
            tokio::select! {
                () = &mut stopping => schedule.interrupt(Instant::now()),
                Some(event) = changed_workflows.next() => {
                    if let Some((name, end)) = seen(event).as_ref().and_then(ended)
                        && let Some(at) = started.get(&name)
                    {
                        schedule.finish(*at, Instant::now(), end);
                    }
                }
                Some(event) = changed_pods.next() => {
                    if let Some((name, problem)) = seen(event).as_ref().and_then(waits_in_vain)
                        && let Some(at) = started.get(&name)
                    {
                        let reason = Reason::ContainerCannotStart.as_str();
                        schedule.finish(*at, Instant::now(), End::new(WorkflowPhase::Failed, reason, problem));
                        // Its Job would try for minutes; if it is gone already, so much the better.
                        let _ = workflows.delete(&name, &DeleteParams::background()).await;
                    }
                }
                _ = tick.tick(), if progress.is_live() => {}
            }
        }
    }

    async fn branch(&self, plan: &Plan) -> anyhow::Result<Branch> {
        let spec = plan.branch();
        let head = format!("{}/{}", spec.owner, spec.repository);
        let branch = Branch::new(&branch::name(&spec.repository, &head, &spec.name), spec);
        let api: Api<Branch> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &branch).await.context("make the Branch")
    }

    /// The Workflow of a run, as the Branch's controller would make it, with the checkout as its workspace.
    fn workflow(
        &self,
        plan: &Plan,
        schedule: &Schedule,
        at: usize,
        branch: &Branch,
    ) -> anyhow::Result<Workflow> {
        let Some(run) = schedule.get(at) else { bail!("there is no run {at}") };
        let Some(template) = plan.manifests.templates.get(&run.template) else {
            bail!("there is no template {}", run.template)
        };
        let place = self.place(plan, template);
        let claim = if self.isolation.mount { CLAIM } else { "" };
        let workspace = Some((claim, place.as_str()));
        let branch_name = branch.name_any();
        let spec = matching::workflow_spec(
            (&branch_name, &branch.spec),
            (&run.template, template),
            &run.path,
            plan.is_default_branch,
            workspace,
        );
        let uid = branch.uid().unwrap_or_default();
        Ok(Workflow::new(&workflow::name(&uid, &spec.sha, &spec.template, &spec.path, spec.attempt), spec))
    }

    /// Where containers of a template find the checkout. Where nothing can be mounted, it is where it is.
    fn place(&self, plan: &Plan, template: &pawl_api::git::WorkflowTemplateSpec) -> String {
        if self.isolation.mount {
            templates::mount_path(template)
        } else {
            plan.checkout.root.to_string_lossy().into_owned()
        }
    }

    async fn put(&self, kind: &Kind, manifest: &Value) -> anyhow::Result<()> {
        let resource = resource(kind);
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &resource);
        let object: DynamicObject = serde_json::from_value(manifest.clone())?;
        let name = object.name_any();
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => bail!("{}", status.message),
            Err(error) => Err(error).with_context(|| format!("{} {name}", kind.kind)),
        }
    }

    /// The containers that made runs fail, with the end of what they wrote.
    async fn failures(
        &self,
        schedule: &Schedule,
        started: &Started,
        logs: &Logs,
        mask: &Mask,
    ) -> anyhow::Result<Vec<FailedContainer>> {
        let api: Api<Pod> = Api::default_namespaced(self.client.clone());
        let pods = api.list(&Default::default()).await.context("list Pods")?.items;
        let mut failures = Vec::new();
        for (name, at) in started {
            let Some(run) = schedule.get(*at) else { continue };
            let failed = run.outcome().is_some_and(|outcome| outcome.end.phase == WorkflowPhase::Failed);
            // Of several attempts, the last.
            let mine = pods.iter().filter(|pod| job_of(pod) == Some(name));
            let Some(pod) = mine.max_by_key(|pod| pod.creation_timestamp()).filter(|_| failed) else {
                continue;
            };
            for (container, verdict) in failed_containers(pod) {
                let tail = tail(logs, pod, &container, mask).await;
                let verdict = mask.apply(&verdict);
                let (template, path) = (run.template.clone(), run.path.clone());
                failures.push((*at, FailedContainer { template, path, container, verdict, tail }));
            }
        }
        failures.sort_by_key(|(at, _)| *at);
        Ok(failures.into_iter().map(|(_, failure)| failure).collect())
    }
}

/// What an event shows of an object that is there.
fn seen<K>(event: Result<Event<K>, watcher::Error>) -> Option<K> {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => Some(object),
        Ok(Event::Init | Event::InitDone | Event::Delete(_)) => None,
        Err(error) => {
            tracing::warn!(%error, "a watch failed; tried again");
            None
        }
    }
}

fn ended(workflow: &Workflow) -> Option<(String, End)> {
    let status = workflow.status.as_ref()?;
    let phase = status.phase.filter(|phase| phase.is_terminal())?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some((workflow.name_any(), End::new(phase, text(&status.reason), text(&status.message))))
}

/// The Job that a Pod belongs to, which is called as its Workflow is.
fn job_of(pod: &Pod) -> Option<&String> {
    pod.owner_references().iter().find(|owner| owner.kind == "Job").map(|owner| &owner.name)
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    })
}

fn waits_in_vain(pod: &Pod) -> Option<(String, String)> {
    let name = job_of(pod)?.clone();
    statuses(pod).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let message = waiting.message.as_deref().filter(|message| !message.is_empty())?;
        let in_vain = WAITING_IN_VAIN.contains(&reason);
        in_vain.then(|| (name.clone(), format!("container {} cannot start: {message}", container.name)))
    })
}

fn failed_containers(pod: &Pod) -> Vec<(String, String)> {
    statuses(pod)
        .filter_map(|container| {
            let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
            let reason = ended.reason.as_deref().filter(|reason| *reason != "Error");
            let words =
                [reason, ended.message.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(": ");
            let more = if words.is_empty() { words } else { format!(" ({words})") };
            Some((container.name.clone(), format!("exited with {}{more}", ended.exit_code)))
        })
        .collect()
}

async fn tail(logs: &Logs, pod: &Pod, container: &str, mask: &Mask) -> Vec<String> {
    let options = LogOptions { tail_lines: Some(TAIL_LINES), ..LogOptions::default() };
    // A container that never started has written nothing.
    let Ok(output) = logs.open(&pod.uid().unwrap_or_default(), container, options).await else {
        return vec![];
    };
    let chunks: Vec<_> = output.filter_map(|chunk| async move { chunk.ok() }).collect().await;
    let text = String::from_utf8_lossy(&chunks.concat()).into_owned();
    mask.apply(&text).lines().map(str::to_owned).collect()
}
