//! `pawl demo alert`: Alertmanager says that something is wrong. What comes of it, and what would a person type next?

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use pawl_api::meta::{Phase as _, names};
use pawl_api::remedy::{RemediationPhase, RemediationRequest, labels};
use pawl_integrations::alerts;
use serde::Deserialize;
use serde_json::json;

use super::{left_by_up, own_name};
use crate::terminal::{Say, printable};
use crate::{cluster, loopback};

/// In the data directory: where the sample's alerts are taken, and the token that must come with them.
pub(crate) const ADDRESS_FILE: &str = "demo-alerts";
pub(crate) const TOKEN_FILE: &str = "demo-alerts-token";

/// How long it is watched until it waits for somebody, or is over: gates and a dry run take a second or two.
const PATIENCE: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The alert's name.
    #[arg(default_value = "NoReplicaReady")]
    name: String,
    /// The namespace that it is about.
    #[arg(long, short, default_value = "shop-prod")]
    namespace: String,
    /// The Deployment that it is about.
    #[arg(long, default_value = "checkout")]
    deployment: String,
    /// Say that it is over instead.
    #[arg(long)]
    resolved: bool,
}

/// What the receiver answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    created: usize,
    unmatched: usize,
}

pub(super) async fn run(data_dir: &Path, args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let (address, token) = (left_by_up(data_dir, ADDRESS_FILE)?, left_by_up(data_dir, TOKEN_FILE)?);
    let Args { name, namespace, deployment, resolved } = args;
    let status = if *resolved { "resolved" } else { "firing" };
    // The same labels are the same alert.
    let fingerprint = names::hash(&[name, namespace, deployment], 16);
    let alert = json!({"status": status, "fingerprint": fingerprint, "startsAt": jiff::Timestamp::now().to_string(),
        "labels": {"alertname": name, "namespace": namespace, "deployment": deployment, "severity": "critical"},
        "annotations": {"summary": format!("{deployment} has no replica that can serve")}});
    let sent = json!({"version": "4", "status": status, "receiver": "pawl", "alerts": [alert]});
    let client = cluster::for_controllers(Some(&data_dir.join("kubeconfig"))).await?;
    let before: BTreeSet<String> =
        requests(&client, &fingerprint).await?.iter().map(|request| request.name_any()).collect();
    let answer = loopback::post_as(&address, alerts::PATH, &token, &sent.to_string()).await?;
    let answer: Answer = serde_json::from_str(&answer).context("read the answer")?;
    say.line(&format!("Alertmanager said: {name} is {status}, about Deployment {namespace}/{deployment}"));
    if answer.unmatched > 0 {
        bail!("no playbook is about it: kubectl get remediationplaybooks -A");
    }
    if answer.created == 0 {
        say.line("nothing is to be done about it");
        return Ok(());
    }
    let request = settled(&client, &fingerprint, &before).await?;
    tell(data_dir, &request, say);
    Ok(())
}

/// The requests about an alert.
async fn requests(client: &kube::Client, fingerprint: &str) -> anyhow::Result<Vec<RemediationRequest>> {
    let api: Api<RemediationRequest> = Api::all(client.clone());
    let about = ListParams::default().labels(&format!("{}={fingerprint}", labels::FINGERPRINT));
    Ok(api.list(&about).await.context("list RemediationRequests")?.items)
}

/// The request that was not there before, once it waits for somebody or is over. Which of two is newer, their times, which
/// are whole seconds, do not tell.
async fn settled(
    client: &kube::Client,
    fingerprint: &str,
    before: &BTreeSet<String>,
) -> anyhow::Result<RemediationRequest> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let mut all = requests(client, fingerprint).await?.into_iter();
        let newest = all.find(|request| !before.contains(&request.name_any()));
        let newest = newest.context("the request that was made is gone")?;
        let phase = newest.status.as_ref().and_then(|status| status.overall_phase);
        let stands = phase.is_some_and(|phase| {
            phase.is_terminal()
                || matches!(phase, RemediationPhase::AwaitingApproval | RemediationPhase::Blocked)
        });
        if stands || tokio::time::Instant::now() >= until {
            return Ok(newest);
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn tell(data_dir: &Path, request: &RemediationRequest, say: &mut dyn Say) {
    let (name, namespace) = (request.name_any(), request.namespace().unwrap_or_default());
    let status = request.status.clone().unwrap_or_default();
    let phase = status.overall_phase.map_or("not looked at yet", RemediationPhase::as_str);
    let message = status.message.map(|said| format!(": {said}")).unwrap_or_default();
    say.line(&printable(&format!("rr/{name} is {phase}{message}")));
    let elsewhere = data_dir != Path::new(".pawl");
    let (here, of) = (own_name(), data_dir.display());
    let kubeconfig = if elsewhere { format!(" --kubeconfig {of}/kubeconfig") } else { String::new() };
    let ledger = if elsewhere { format!(" --data-dir {of}") } else { String::new() };
    let waiting = status.steps.iter().filter(|step| step.phase == "waiting_approval");
    let approve = waiting.filter_map(|step| step.child_ref.as_ref()).map(|child| {
        (
            format!("{here} approve{kubeconfig} -n {namespace} ke/{}", child.name),
            "shows what would be done, then asks you",
        )
    });
    say.line("next:");
    for (command, what) in approve.chain([
        (
            format!("{here} explain{kubeconfig} -n {namespace} rr/{name}"),
            "where it stands, and what to type next; again and again",
        ),
        (format!("{here} audit{ledger} -n {namespace}"), "who did what"),
    ]) {
        say.line(&format!("  # {what}"));
        say.line(&format!("  {command}"));
    }
}
