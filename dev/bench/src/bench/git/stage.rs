//! What is there before it begins, and how is it taken away?

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pawl_api::git::{annotations, repository, workflow_template};
use pawl_api::meta::Kind;
use pawl_cli::cluster;
use pawl_cli::stop::Stop;
use pawl_cli::up::{Plane, make_namespace};
use pawl_engine::{Engine, SystemClock};
use pawl_integrations::github::fake::{self, APP_ID, APP_KEY_PKCS1, Change, Fake, INSTALLATION_ID, Repo};
use pawl_machines::cluster as of_a_cluster;
use pawl_machines::machine::AnyMachine;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::jobs::MANAGER;

/// Where everything happens.
pub(super) const NAMESPACE: &str = "pawl-bench-git";
/// Where the locks are.
pub(in crate::bench) const SYSTEM: &str = "pawl-bench-git-system";

const REPOSITORY: &str = "infra";
const SECRET: Kind = Kind::of("", "v1", "Secret", "secrets", true);

/// More than the sum of all calls by far: limits are not what is measured.
const RATE_LIMIT: u32 = 1_000_000;

/// How long everything may take to go away again.
const GONE_WITHIN: Duration = Duration::from_secs(120);

/// How soon controllers that are there would have seen a new Repository: they do at once, and a busy machine is slow.
const OTHERS_WITHIN: Duration = Duration::from_secs(2);

/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// An API server, a GitHub, and a Repository that is in step with it.
pub(super) struct Stage {
    client: kube::Client,
    kubeconfig: PathBuf,
    pub(super) github: Fake,
    repo: Repo,
    github_url: String,
    /// The embedded server's data; removed with it.
    embedded: Option<tempfile::TempDir>,
    tasks: Vec<JoinHandle<()>>,
}

impl Stage {
    /// On the API server of a kubeconfig, or on one of its own.
    pub(super) async fn set(kubeconfig: Option<&Path>, stopping: Stop) -> anyhow::Result<Self> {
        let github = Fake::new(Arc::new(SystemClock));
        github.set_rate_limit(RATE_LIMIT);
        let repo = github.create(&format!("acme/{REPOSITORY}"));
        repo.push("main", &Change::new("begin").put("README.md", "begin"));
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for calls to GitHub")?;
        let github_url = format!("http://{}", listener.local_addr()?);
        let (served, until) = (github.clone(), stopping.clone());
        let mut tasks = vec![tokio::spawn(async move {
            if let Err(error) = fake::serve(listener, served, None, until.wait()).await {
                tracing::error!(%error, "the fake GitHub ended");
            }
        })];
        let (client, kubeconfig, embedded) = match kubeconfig {
            Some(file) => (cluster::for_controllers(Some(file)).await?, file.to_owned(), None),
            None => {
                let directory = tempfile::tempdir().context("make a directory for the server's data")?;
                let plane = Plane::open(directory.path(), ([127, 0, 0, 1], 0).into(), None).await?;
                let kubeconfig = plane.kubeconfig.clone();
                tasks.extend(embed(plane, stopping)?);
                (cluster::for_controllers(Some(&kubeconfig)).await?, kubeconfig, Some(directory))
            }
        };
        for namespace in [NAMESPACE, SYSTEM] {
            make_namespace(&client, namespace).await?;
        }
        Ok(Self { client, kubeconfig, github, repo, github_url, embedded, tasks })
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Where it played.
    pub(super) fn told(&self) -> String {
        match &self.embedded {
            Some(_) => "the embedded API server with its journal on disk, as `pawl up` has it".to_owned(),
            None => format!("the API server of {}", self.kubeconfig.display()),
        }
    }

    /// Makes the template and the Repository.
    pub(super) async fn introduce(&self, args: &super::Args) -> anyhow::Result<()> {
        let secret = json!({"stringData": {"github-app-id": APP_ID.to_string(),
            "github-installation-id": INSTALLATION_ID.to_string(), "github-private-key": APP_KEY_PKCS1}});
        let container = json!({"name": "main", "image": "none", "command": ["true"]});
        let job = json!({"managedBy": MANAGER, "template": {"spec": {"containers": [container]}}});
        let template = json!({"spec": {"displayName": "Plan", "match": {"paths": ["**/*.tf"]}, "job": job}});
        let repository = json!({"spec": {"owner": "acme", "name": REPOSITORY, "defaultBranch": "main",
            "githubSecretRef": {"name": "github"}, "apiUrl": self.github_url, "pollInterval": "24h",
            "bootstrap": "cursor", "maxConcurrent": args.max_concurrent}});
        for (kind, name, manifest) in [
            (SECRET, "github", secret),
            (workflow_template::KIND, "plan", template),
            (repository::KIND, REPOSITORY, repository),
        ] {
            self.create(&kind, name, manifest).await?;
        }
        Ok(())
    }

    /// Makes sure that nobody else sees to Repositories there: what two do is not what one costs.
    pub(super) async fn alone(&self) -> anyhow::Result<()> {
        tokio::time::sleep(OTHERS_WITHIN).await;
        let seen = self.api(&repository::KIND).get(REPOSITORY).await?;
        if seen.metadata.finalizers.is_some_and(|held| !held.is_empty()) || seen.data.get("status").is_some()
        {
            bail!("controllers of somebody else's run against this API server: stop them first");
        }
        Ok(())
    }

    /// Waits until the Repository has seen the default branch.
    pub(super) async fn in_step(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < GONE_WITHIN {
            let seen = self.api(&repository::KIND).get(REPOSITORY).await?;
            if seen.data.pointer("/status/synced") == Some(&Value::Bool(true)) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!("the Repository was never in step with GitHub")
    }

    /// Pushes every branch, each with a change in every folder.
    pub(super) fn push(&self, args: &super::Args) {
        for branch in 0..args.branches {
            let change = (0..args.folders).fold(Change::new("change all"), |change, folder| {
                change.put(&format!("envs/e{folder:03}/main.tf"), &format!("{branch}"))
            });
            self.repo.push(&format!("feature/{branch:03}"), &change);
        }
    }

    /// What a webhook delivery does.
    pub(super) async fn nudge(&self, now: Timestamp) -> anyhow::Result<()> {
        let patch = json!({"metadata": {"annotations": {annotations::SYNC_REQUESTED_AT: now.to_string()}}});
        let patch = Patch::Merge(&patch);
        self.api(&repository::KIND).patch(REPOSITORY, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Takes all of it away; an embedded server goes with its data.
    pub(super) async fn clear(self) -> anyhow::Result<()> {
        let cleared = if self.embedded.is_some() { Ok(()) } else { self.clear_cluster().await };
        self.leave();
        cleared
    }

    /// Ends what serves it; what is on a server that goes too needs no removal.
    pub(super) fn leave(self) {
        for task in &self.tasks {
            task.abort();
        }
    }

    /// Finalizers are the controllers', so they run once more.
    async fn clear_cluster(&self) -> anyhow::Result<()> {
        let controllers = super::Controllers::start(&self.kubeconfig).await?;
        let _ = self.api(&repository::KIND).delete(REPOSITORY, &DeleteParams::foreground()).await;
        let began = Instant::now();
        while self.api(&repository::KIND).get_opt(REPOSITORY).await?.is_some() {
            if began.elapsed() > GONE_WITHIN {
                bail!(
                    "Repository {NAMESPACE}/{REPOSITORY} does not go; namespaces {NAMESPACE} and {SYSTEM} stay"
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        controllers.stop().await?;
        let namespaces: Api<pawl_api::k8s::Namespace> = Api::all(self.client.clone());
        for namespace in [NAMESPACE, SYSTEM] {
            namespaces.delete(namespace, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn create(&self, kind: &Kind, name: &str, mut manifest: Value) -> anyhow::Result<()> {
        if let Some(manifest) = manifest.as_object_mut() {
            manifest.insert("apiVersion".to_owned(), kind.api_version().into());
            manifest.insert("kind".to_owned(), kind.kind.as_ref().into());
            manifest.insert("metadata".to_owned(), json!({"name": name, "namespace": NAMESPACE}));
        }
        let object: DynamicObject = serde_json::from_value(manifest)?;
        match self.api(kind).create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("make {} {NAMESPACE}/{name}", kind.kind)),
        }
    }

    fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &kind.plural);
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }
}

/// Serves the API with what a cluster brings, and without the doors: those are in the child.
fn embed(plane: Plane, stopping: Stop) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let engine = Engine::builder(plane.client())
        .machines(of_a_cluster::machines())
        .machine(AnyMachine::new(plane.root_certificates()))
        .build()?;
    let until = stopping.clone();
    let looped = tokio::spawn(async move {
        engine.run(until.wait()).await;
    });
    let served = tokio::spawn(async move {
        if let Err(error) = plane.serve(stopping).await {
            tracing::error!(%error, "the API server ended");
        }
    });
    Ok(vec![looped, served])
}
