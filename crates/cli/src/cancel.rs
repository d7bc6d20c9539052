//! `pawl cancel`: stop a remediation, and say who wanted that.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use kube::api::{Api, Patch, PatchParams};
use pawl_api::meta::Phase as _;
use pawl_api::remedy::annotations::CANCEL;
use pawl_api::remedy::{
    KubernetesExecution, KubernetesExecutionPhase, RemediationPhase, RemediationRequest, WorkflowExecution,
    WorkflowExecutionPhase,
};
use serde_json::json;

use crate::terminal::Say;
use crate::{cluster, locks};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to stop: wfe/NAME, ke/NAME or rr/NAME.
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// Why: recorded with your name.
    #[arg(long, default_value = "")]
    reason: String,
    /// The namespace.
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// The cluster's kubeconfig; without it KUBECONFIG, then that of a `pawl up` in this folder, then the usual places.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let Some((kind, name)) = args.what.split_once('/') else {
        bail!("{}: say KIND/NAME, as wfe/mend-1, ke/scale-1 or rr/crash-1", args.what);
    };
    let client = cluster::for_people(args.kubeconfig.as_deref()).await?;
    let who = locks::who_am_i(&client).await?;
    let why = if args.reason.trim().is_empty() { who } else { format!("{who}: {}", args.reason.trim()) };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {CANCEL: why}}}));
    let parameters = PatchParams::default();
    match kind {
        "wfe" | "workflowexecution" => {
            let api: Api<WorkflowExecution> = Api::namespaced(client, &args.namespace);
            let found = api.get(name).await.with_context(|| format!("read WorkflowExecution {name}"))?;
            let phase = found.status.and_then(|status| status.phase);
            if let Some(phase) = phase.filter(|phase| WorkflowExecutionPhase::is_terminal(*phase)) {
                bail!("WorkflowExecution {name} is over: {phase:?}");
            }
            api.patch(name, &parameters, &patch).await.with_context(|| format!("cancel {name}"))?;
        }
        "rr" | "remediationrequest" => {
            let api: Api<RemediationRequest> = Api::namespaced(client, &args.namespace);
            let found = api.get(name).await.with_context(|| format!("read RemediationRequest {name}"))?;
            let phase = found.status.and_then(|status| status.overall_phase);
            if let Some(phase) = phase.filter(|phase| RemediationPhase::is_terminal(*phase)) {
                bail!("RemediationRequest {name} is over: {phase:?}");
            }
            api.patch(name, &parameters, &patch).await.with_context(|| format!("cancel {name}"))?;
        }
        "ke" | "kubernetesexecution" => {
            let api: Api<KubernetesExecution> = Api::namespaced(client, &args.namespace);
            let found = api.get(name).await.with_context(|| format!("read KubernetesExecution {name}"))?;
            let phase = found.status.and_then(|status| status.phase);
            if let Some(phase) = phase.filter(|phase| KubernetesExecutionPhase::is_terminal(*phase)) {
                bail!("KubernetesExecution {name} is over: {}", phase.as_str());
            }
            api.patch(name, &parameters, &patch).await.with_context(|| format!("cancel {name}"))?;
        }
        other => bail!("{other}: cannot be cancelled; say wfe/NAME, ke/NAME or rr/NAME"),
    }
    say.line(&format!("{} is asked to stop", args.what));
    Ok(())
}
