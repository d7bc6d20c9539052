//! A sample that a person can watch: a GitHub in this process with a repository of three folders and two templates, and a
//! shop that is down with a playbook for it.
//!
//! ```text
//! pawl demo push … ──▶ the fake GitHub ──webhooks──▶ the webhook's own code ──▶ Repository ──▶ Workflows, check runs
//! pawl demo alert  ──as Alertmanager──▶ /api/v1/alerts ──▶ playbook ──▶ RemediationRequest ──▶ KubernetesExecutions
//! ```
//! Nothing leaves the machine. The GitHub lives as long as this process; the objects stay, and a new start moves them to
//! the new GitHub.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::Full;
use pawl_api::git;
use pawl_api::k8s::{DEPLOYMENT, NAMESPACE, SECRET};
use pawl_api::meta::Kind;
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_api::remedy::remediation_playbook;
use pawl_engine::{Engine, SystemClock};
use pawl_integrations::alerts::{self, Alerts};
use pawl_integrations::github::fake::{
    self, APP_ID, APP_KEY_PKCS1, Change, Fake, INSTALLATION_ID, Role, WEBHOOK_SECRET,
};
use pawl_integrations::webhook::{Trust, Webhook};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::apply::apply;
use super::identity::{new_token, write_private};
use crate::demo::{ADDRESS_FILE, REPOSITORY, alert, own_name};
use crate::stop::Stop;
use crate::terminal::Say;

/// Where the repository's objects are: where `kubectl` looks.
const HERE: &str = "default";

/// The shop, its playbook, and the namespace in which policy asks a person.
const SHOP: &str = include_str!("../../../../examples/remedy/shop.yaml");

/// What the sample is made of.
const KINDS: [Kind; 6] = [
    SECRET,
    NAMESPACE,
    DEPLOYMENT,
    git::workflow_template::KIND,
    git::repository::KIND,
    remediation_playbook::KIND,
];

/// How often deliveries are taken from GitHub to the webhook: at once, to a person.
const DELIVER_EVERY: Duration = Duration::from_millis(100);

/// Starts the GitHub and what takes alerts, and puts the sample there; what is there from an earlier start is kept.
pub(super) async fn start(
    client: &kube::Client,
    engine: &Engine,
    data_dir: &Path,
    stopping: Stop,
    say: &mut dyn Say,
) -> anyhow::Result<()> {
    let github = populated();
    let (listener, address) = listen().await.context("listen for the sample's GitHub")?;
    let file = data_dir.join(ADDRESS_FILE);
    std::fs::write(&file, format!("{address}\n")).with_context(|| format!("write {}", file.display()))?;
    let (served, until) = (github.clone(), stopping.clone());
    tokio::spawn(async move {
        if let Err(error) = fake::serve(listener, served, None, until.wait()).await {
            tracing::error!(%error, "the sample's GitHub ended");
        }
    });
    let token = new_token()?;
    let alerts = Alerts::new(
        engine.clone(),
        client.clone(),
        Trust::from_secret(Some(token.as_bytes()), false)?,
        SYSTEM_NAMESPACE,
    );
    let trust = Trust::from_secret(Some(WEBHOOK_SECRET.as_bytes()), false)?;
    let webhook = Webhook::new(engine.clone(), client.clone(), Arc::new(SystemClock), trust);
    let webhook = webhook.with_alerts(alerts);
    let (listener, taking) = listen().await.context("listen for the sample's alerts")?;
    write_private(&data_dir.join(alert::TOKEN_FILE), &token)?;
    write_private(&data_dir.join(alert::ADDRESS_FILE), &format!("{taking}\n"))?;
    let (serving, until) = (webhook.clone(), stopping.clone());
    tokio::spawn(async move {
        if let Err(error) = serving.serve(listener, until.wait()).await {
            tracing::error!(%error, "what takes the sample's alerts ended");
        }
    });
    tokio::spawn(deliver(github, webhook, stopping));
    for manifest in repository(&format!("http://{address}")).into_iter().chain(shop()?) {
        apply(client, &KINDS, &manifest).await.context("the sample")?;
    }
    tell(data_dir, address, taking, say);
    Ok(())
}

async fn listen() -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn tell(data_dir: &Path, github: SocketAddr, taking: SocketAddr, say: &mut dyn Say) {
    let pawl = own_name();
    let elsewhere = data_dir != Path::new(".pawl");
    let options = if elsewhere { format!(" --data-dir {}", data_dir.display()) } else { String::new() };
    let token = data_dir.join(alert::TOKEN_FILE);
    say.line(&format!("  GitHub      http://{github} (a fake one in this process, with {REPOSITORY})"));
    say.line(&format!("  alerts      http://{taking}{} (bearer token in {})", alerts::PATH, token.display()));
    say.line("  sample      three folders, two templates, a pull request; a shop that is down, and a playbook for it");
    say.line("              in another terminal:");
    for (command, what) in [
        ("checks --watch", "see check runs come and conclude"),
        ("push", "push a commit to a branch"),
        ("pr --fork mallory", "open a pull request from a fork: it waits for /ok-to-test"),
        ("comment 1 /retest", "run again what failed on pull request #1"),
        ("alert", "say that the shop is down: the playbook answers, and policy asks you"),
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

fn repository(github: &str) -> Vec<Value> {
    let secret = json!({"stringData": {"github-app-id": APP_ID.to_string(),
        "github-installation-id": INSTALLATION_ID.to_string(), "github-private-key": APP_KEY_PKCS1}});
    let (owner, name) = REPOSITORY.split_once('/').unwrap_or((REPOSITORY, REPOSITORY));
    let repository = json!({"spec": {"owner": owner, "name": name, "defaultBranch": "main", "historyLimit": 5,
        "githubSecretRef": {"name": "github"}, "apiUrl": github}});
    let template = |name: &str, display: &str, script: &str| {
        let container = json!({"name": "main", "image": "alpine:3", "command": ["/bin/sh", "-ec", script]});
        let job = json!({"template": {"spec": {"containers": [container]}}});
        let spec = json!({"displayName": display, "match": {"paths": ["envs/**/*.tf"]}, "job": job});
        named(&git::workflow_template::KIND, name, json!({"spec": spec}))
    };
    vec![
        named(&SECRET, "github", secret),
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
        named(&git::repository::KIND, "infra", repository),
    ]
}

fn shop() -> anyhow::Result<Vec<Value>> {
    serde_saphyr::from_multiple(SHOP).context("read the sample's shop")
}

fn named(kind: &Kind, name: &str, mut manifest: Value) -> Value {
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.insert("apiVersion".to_owned(), kind.api_version().into());
        manifest.insert("kind".to_owned(), kind.kind.as_ref().into());
        manifest.insert("metadata".to_owned(), json!({"name": name, "namespace": HERE}));
    }
    manifest
}
