//! A sample that a person can watch: a GitHub in this process, a repository with three folders, and two templates.
//!
//! ```text
//! pawl demo … ──▶ the fake GitHub ──webhooks──▶ the webhook's own code ──▶ Repository ──▶ Workflows, check runs
//! ```
//! Nothing leaves the machine. The GitHub lives as long as this process; the objects stay, and a new start moves them to
//! the new GitHub.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::Full;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pawl_api::git;
use pawl_api::meta::Kind;
use pawl_engine::{Engine, SystemClock};
use pawl_integrations::github::fake::{
    self, APP_ID, APP_KEY_PKCS1, Change, Fake, INSTALLATION_ID, Role, WEBHOOK_SECRET,
};
use pawl_integrations::webhook::{Trust, Webhook};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::demo::{ADDRESS_FILE, REPOSITORY, own_name};
use crate::stop::Stop;
use crate::terminal::Say;

/// Where the sample's objects are: where `kubectl` looks.
const NAMESPACE: &str = "default";
const SECRET: Kind = Kind::of("", "v1", "Secret", "secrets", true);

/// How often deliveries are taken from GitHub to the webhook: at once, to a person.
const DELIVER_EVERY: Duration = Duration::from_millis(100);

/// Starts the GitHub and puts the sample there; what is there from an earlier start is kept.
pub(super) async fn start(
    client: &kube::Client,
    engine: &Engine,
    data_dir: &Path,
    stopping: Stop,
    say: &mut dyn Say,
) -> anyhow::Result<()> {
    let github = populated();
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the sample's GitHub")?;
    let address = listener.local_addr()?;
    let file = data_dir.join(ADDRESS_FILE);
    std::fs::write(&file, format!("{address}\n")).with_context(|| format!("write {}", file.display()))?;
    let (served, until) = (github.clone(), stopping.clone());
    tokio::spawn(async move {
        if let Err(error) = fake::serve(listener, served, None, until.wait()).await {
            tracing::error!(%error, "the sample's GitHub ended");
        }
    });
    let trust = Trust::from_secret(Some(WEBHOOK_SECRET.as_bytes()), false)?;
    let webhook = Webhook::new(engine.clone(), client.clone(), Arc::new(SystemClock), trust);
    tokio::spawn(deliver(github, webhook, stopping));
    for (kind, manifest) in sample(&format!("http://{address}")) {
        put(client, &kind, &manifest).await?;
    }
    tell(data_dir, address, say);
    Ok(())
}

fn tell(data_dir: &Path, address: std::net::SocketAddr, say: &mut dyn Say) {
    let pawl = own_name();
    let elsewhere = data_dir != Path::new(".pawl");
    let options = if elsewhere { format!(" --data-dir {}", data_dir.display()) } else { String::new() };
    say.line(&format!("  GitHub      http://{address} (a fake one in this process, with {REPOSITORY})"));
    say.line("  sample      three folders, two templates, a pull request; in another terminal:");
    for (command, what) in [
        ("checks --watch", "see check runs come and conclude"),
        ("push", "push a commit to a branch"),
        ("pr --fork mallory", "open a pull request from a fork: it waits for /ok-to-test"),
        ("comment 1 /retest", "run again what failed on pull request #1"),
    ] {
        say.line(&format!("                {:<36}  # {what}", format!("{pawl} demo{options} {command}")));
    }
}

/// Takes what GitHub would send to where it would arrive.
async fn deliver(github: Fake, webhook: Webhook, stopping: Stop) {
    while !stopping.is_requested() {
        tokio::time::sleep(DELIVER_EVERY).await;
        for delivery in github.take_deliveries() {
            match delivery.request(http::Uri::from_static("/webhook")) {
                Ok(request) => {
                    let answer = webhook.take(request.map(Full::new)).await;
                    tracing::debug!(event = delivery.event, status = %answer.status(), "delivered");
                }
                Err(error) => tracing::error!(%error, "a delivery cannot be sent"),
            }
        }
    }
}

/// A repository as somebody left it.
fn populated() -> Fake {
    let github = Fake::new(Arc::new(SystemClock));
    let repo = github.create(REPOSITORY);
    repo.permit("alice", Role::Write);
    repo.push("main", &Change::new("Begin").put("README.md", "# infra\n"));
    let folders =
        ["dev", "staging", "prod"].into_iter().fold(Change::new("Three environments"), |change, name| {
            change.put(&format!("envs/{name}/main.tf"), &format!("# {name}\n"))
        });
    repo.push("main", &folders);
    let network = Change::new("Open a port").put("envs/prod/network.tf", "# 443\n");
    repo.push("feature/network", &network);
    repo.open_pull(&repo, "feature/network", "main", "alice", false);
    // What was before the start is seen by the first look; nobody need be told.
    github.take_deliveries();
    github
}

fn sample(github: &str) -> Vec<(Kind, Value)> {
    let secret = json!({"stringData": {"github-app-id": APP_ID.to_string(),
        "github-installation-id": INSTALLATION_ID.to_string(), "github-private-key": APP_KEY_PKCS1}});
    let (owner, name) = REPOSITORY.split_once('/').unwrap_or((REPOSITORY, REPOSITORY));
    let repository = json!({"spec": {"owner": owner, "name": name, "defaultBranch": "main", "historyLimit": 5,
        "githubSecretRef": {"name": "github"}, "apiUrl": github}});
    let template = |name: &str, display: &str, script: &str| {
        let container = json!({"name": "main", "image": "alpine:3", "command": ["/bin/sh", "-ec", script]});
        let job = json!({"template": {"spec": {"containers": [container]}}});
        let spec = json!({"displayName": display, "match": {"paths": ["envs/**/*.tf"]}, "job": job});
        (git::workflow_template::KIND, named(&git::workflow_template::KIND, name, json!({"spec": spec})))
    };
    vec![
        (SECRET, named(&SECRET, "github", secret)),
        template(
            "plan",
            "Terraform plan",
            "echo \"planning $TERRAKOJO_WORKFLOW_PATH at $TERRAKOJO_SHA\"; sleep 3; echo 'Plan: 2 to add, 0 to destroy.'",
        ),
        template(
            "lint",
            "Terraform lint",
            "echo \"linting $TERRAKOJO_WORKFLOW_PATH\"; sleep 1\n\
             if [ \"$TERRAKOJO_WORKFLOW_PATH\" = envs/prod ]; then echo 'main.tf:12: variable is unused' >&2; exit 1; fi",
        ),
        (git::repository::KIND, named(&git::repository::KIND, "infra", repository)),
    ]
}

fn named(kind: &Kind, name: &str, mut manifest: Value) -> Value {
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.insert("apiVersion".to_owned(), kind.api_version().into());
        manifest.insert("kind".to_owned(), kind.kind.as_ref().into());
        manifest.insert("metadata".to_owned(), json!({"name": name, "namespace": NAMESPACE}));
    }
    manifest
}

async fn put(client: &kube::Client, kind: &Kind, manifest: &Value) -> anyhow::Result<()> {
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &kind.plural);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let object: DynamicObject = serde_json::from_value(manifest.clone())?;
    let failed = || format!("the sample's {} {name}", kind.kind);
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => api
            .patch(name, &PatchParams::default(), &Patch::Merge(manifest))
            .await
            .map(drop)
            .with_context(failed),
        Err(error) => Err(error).with_context(failed),
    }
}
