//! `pawl explain`: why something ran, or did not.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use pawl_api::git::{Branch, Repository, Workflow, WorkflowTemplate};
use pawl_api::meta::{Kind, Target, names};
use pawl_api::remedy::{KubernetesExecution, RemediationRequest, WorkflowExecution, annotations, labels};
use pawl_machines::git::explain;
use pawl_machines::lock::LEASE;
use pawl_machines::object::Object;
use pawl_machines::remedy::memory::Memory;
use pawl_machines::story::Happened;
use pawl_machines::{deploy, remedy};

use crate::cluster::{self, Namespaced};
use crate::terminal::Say;
use crate::tree;

/// How many Events are told of each object: the newest.
const EVENTS: usize = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to explain: workflow/NAME, branch/NAME, pr/NUMBER, inst/NAME, exec/NAME, di/NAME, wfe/NAME, ke/NAME or
    /// rr/NAME.
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// What this path leads to (with pr/NUMBER or branch/NAME).
    #[arg(long)]
    path: Option<String>,
    /// Whose pull request, where several repositories have one of that number.
    #[arg(long, value_name = "OWNER/NAME")]
    repository: Option<String>,
    /// The namespace.
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// Where the locks are, and what targets remember.
    #[arg(long, default_value = "pawl-system")]
    system_namespace: String,
    /// The cluster's kubeconfig; without it KUBECONFIG, then that of a `pawl up` in this folder, then the usual places.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let Some((kind, name)) = args.what.split_once('/') else {
        bail!(
            "{}: say KIND/NAME, as workflow/plan-1, branch/infra-1, pr/7, inst/shop, exec/shop or di/shop-db",
            args.what
        );
    };
    let asked = Asked { client: cluster::for_people(args.kubeconfig.as_deref()).await?, args };
    let told = match kind {
        "workflow" | "workflows" | "wf" => asked.workflow(name).await?,
        "branch" | "branches" | "br" => {
            let branch: Branch = asked.get(name).await?;
            asked.branch(branch).await?
        }
        "pr" | "pull" => {
            let number = name.parse().with_context(|| format!("pr/{name}: not a number"))?;
            asked.pull_request(number).await?
        }
        "wfe" | "workflowexecution" | "workflowexecutions" => asked.execution(name).await?,
        "ke" | "kubernetesexecution" | "kubernetesexecutions" => asked.action(name).await?,
        "rr" | "remediationrequest" | "remediationrequests" => asked.request(name).await?,
        other => match tree::kind_of(other) {
            Some(kind) => asked.deployed(&kind, name).await?,
            None => bail!("{other}: not explained; say workflow, branch, pr, inst, exec, di, wfe, ke or rr"),
        },
    };
    say.line(told.trim_end());
    Ok(())
}

/// What an action of a request is called in its story: by its step, or by the one that it takes back.
fn step_of(action: &KubernetesExecution, all: &[KubernetesExecution]) -> String {
    let step = |one: &KubernetesExecution| one.labels().get(labels::STEP).cloned();
    let first = action.annotations().get(annotations::ROLLBACK_OF);
    let first = first.and_then(|name| all.iter().find(|one| one.name_any() == *name));
    match first.and_then(step) {
        Some(step) => format!("rollback of {step}"),
        None => step(action).unwrap_or_else(|| action.name_any()),
    }
}

struct Asked<'a> {
    client: kube::Client,
    args: &'a Args,
}

impl Asked<'_> {
    async fn workflow(&self, name: &str) -> anyhow::Result<String> {
        let workflow: Workflow = self.get(name).await?;
        let happened = self.happened(&workflow.uid().unwrap_or_default()).await?;
        Ok(explain::workflow(name, &workflow, &happened))
    }

    async fn execution(&self, name: &str) -> anyhow::Result<String> {
        let execution: WorkflowExecution = self.get(name).await?;
        let happened = self.happened(&execution.uid().unwrap_or_default()).await?;
        let memory = match execution.spec.target_resource.trim().parse::<Target>() {
            Ok(target) => self.memory(&target).await?,
            Err(_) => None,
        };
        Ok(remedy::explain::execution(name, &execution, memory.as_ref(), &happened))
    }

    /// What a target remembers, as far as it can be read.
    async fn memory(&self, target: &Target) -> anyhow::Result<Option<Memory>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.args.system_namespace);
        let Some(lease) = leases.get_opt(&target.lock_name()).await.context("read the Lease")? else {
            return Ok(None);
        };
        let lease = Object::new(LEASE, serde_json::to_value(lease)?)?;
        Ok(Memory::of(Some(&lease)).ok())
    }

    async fn action(&self, name: &str) -> anyhow::Result<String> {
        let execution: KubernetesExecution = self.get(name).await?;
        let happened = self.happened(&execution.uid().unwrap_or_default()).await?;
        Ok(remedy::explain::action(name, &execution, &happened))
    }

    async fn request(&self, name: &str) -> anyhow::Result<String> {
        let request: RemediationRequest = self.get(name).await?;
        let uid = request.uid().unwrap_or_default();
        let steps = self.actions_of(name, &uid).await?;
        let whose = steps.iter().map(|one| (one.uid().unwrap_or_default(), step_of(one, &steps)));
        let whose: Vec<(String, String)> = std::iter::once((uid, String::new())).chain(whose).collect();
        let happened = self.happened_to(&whose).await?;
        Ok(remedy::explain::request(name, &request, &steps, &happened))
    }

    /// The actions of a request, and what takes them back, the oldest first.
    async fn actions_of(&self, name: &str, uid: &str) -> anyhow::Result<Vec<KubernetesExecution>> {
        let api: Api<KubernetesExecution> = Api::namespaced(self.client.clone(), &self.args.namespace);
        let of = format!("{}={}", labels::REMEDIATION_REQUEST, names::label_value(name));
        let listed = api.list(&ListParams::default().labels(&of)).await;
        let mut found = listed.context("list KubernetesExecutions")?.items;
        found.retain(|one| one.owner_references().iter().any(|owner| owner.uid == uid));
        found.sort_by_key(|one| one.creation_timestamp().map(|at| at.0));
        Ok(found)
    }

    async fn deployed(&self, kind: &Kind, name: &str) -> anyhow::Result<String> {
        let found = tree::look(&self.client, &self.args.namespace, kind, name).await?;
        let happened = self.happened(found.object.uid()).await?;
        let told = deploy::explain::story(&found.world, &found.object, &happened);
        told.with_context(|| format!("{} {name}: it does not have the shape of its kind", kind.kind))
    }

    async fn branch(&self, branch: Branch) -> anyhow::Result<String> {
        let workflows = self.workflows_of(&branch).await?;
        if let Some(path) = &self.args.path {
            let repositories: Vec<Repository> = self.list().await?;
            let is_default = repositories.iter().any(|repository| {
                let spec = &repository.spec;
                spec.owner == branch.spec.owner
                    && spec.name == branch.spec.repository
                    && spec.default_branch == branch.spec.name
                    && branch.spec.head_repository.is_none()
            });
            let templates: Vec<WorkflowTemplate> = self.list().await?;
            let templates: Vec<_> = templates.into_iter().map(|one| (one.name_any(), one)).collect();
            return Ok(explain::path(path, &branch, is_default, &templates, &workflows));
        }
        let happened = self.happened(&branch.uid().unwrap_or_default()).await?;
        Ok(explain::branch(&branch.name_any(), &branch, &workflows, &happened))
    }

    async fn pull_request(&self, number: i64) -> anyhow::Result<String> {
        let branches: Vec<Branch> = self.list().await?;
        let wanted = |branch: &Branch| {
            let of = format!("{}/{}", branch.spec.owner, branch.spec.repository);
            branch.spec.pull_request() == Some(number)
                && self.args.repository.as_ref().is_none_or(|repository| of.eq_ignore_ascii_case(repository))
        };
        let mut found: Vec<Branch> = branches.into_iter().filter(wanted).collect();
        match (found.pop(), found.is_empty()) {
            (None, _) => bail!(
                "pr/{number}: no Branch in namespace {} has this pull request; is it open, and has its \
                 Repository been synced since?",
                self.args.namespace
            ),
            (Some(_), false) => {
                bail!("pr/{number}: several repositories have one: say --repository OWNER/NAME")
            }
            (Some(branch), true) => self.branch(branch).await,
        }
    }

    async fn workflows_of(&self, branch: &Branch) -> anyhow::Result<Vec<(String, Workflow)>> {
        let all: Vec<Workflow> = self.list().await?;
        let name = branch.name_any();
        let its = all.into_iter().filter(|workflow| workflow.spec.branch == name);
        Ok(its.map(|workflow| (workflow.name_any(), workflow)).collect())
    }

    async fn happened(&self, uid: &str) -> anyhow::Result<Vec<Happened>> {
        self.happened_to(&[(uid.to_owned(), String::new())]).await
    }

    /// What happened to all of these, in its order, each with what it is called in the story.
    async fn happened_to(&self, all_of: &[(String, String)]) -> anyhow::Result<Vec<Happened>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.args.namespace);
        let about = ListParams::default();
        let mut all = events.list(&about).await.context("list Events")?.items;
        let whose = |event: &Event| {
            let uid = event.regarding.as_ref().and_then(|about| about.uid.as_deref());
            all_of.iter().find(|(one, _)| Some(one.as_str()) == uid).map(|(_, name)| name.clone())
        };
        all.retain(|event| whose(event).is_some());
        let when = |event: &Event| {
            let deprecated = || event.deprecated_last_timestamp.as_ref().map(|time| time.0);
            event.event_time.as_ref().map(|time| time.0).or_else(deprecated)
        };
        all.sort_by_key(when);
        let newest = all.split_off(all.len().saturating_sub(EVENTS.saturating_mul(all_of.len())));
        Ok(newest
            .into_iter()
            .map(|event| Happened {
                when: when(&event).map(|at| format!("{at:.0}")).unwrap_or_default(),
                about: whose(&event).unwrap_or_default(),
                reason: event.reason.unwrap_or_default(),
                note: event.note.unwrap_or_default(),
            })
            .collect())
    }

    async fn get<K: Namespaced>(&self, name: &str) -> anyhow::Result<K> {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.args.namespace);
        let found = api.get_opt(name).await.with_context(|| format!("read {} {name}", K::kind(&())))?;
        found.with_context(|| {
            format!("{} {name}: not found in namespace {}", K::kind(&()), self.args.namespace)
        })
    }

    async fn list<K: Namespaced>(&self) -> anyhow::Result<Vec<K>> {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.args.namespace);
        let listed = api.list(&ListParams::default()).await;
        Ok(listed.with_context(|| format!("list {}", K::plural(&())))?.items)
    }
}
