//! `pawl cancel`: stop a remediation, and say who wanted that.

use anyhow::{Context as _, bail};
use kube::api::{Api, Patch, PatchParams};
use pawl_api::meta::Phase;
use pawl_api::remedy::annotations::CANCEL;
use pawl_api::remedy::{KubernetesExecution, RemediationRequest, WorkflowExecution};
use serde_json::json;

use crate::cluster::{self, Namespaced};
use crate::locks;
use crate::terminal::Say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to stop: wfe/NAME, ke/NAME or rr/NAME.
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// Why: recorded with your name.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    scope: cluster::Scope,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let Some((kind, name)) = args.what.split_once('/') else {
        bail!("{}: say KIND/NAME, as wfe/mend-1, ke/scale-1 or rr/crash-1", args.what);
    };
    let client = args.scope.client().await?;
    let who = locks::who_am_i(&client).await?;
    let why = if args.reason.trim().is_empty() { who } else { format!("{who}: {}", args.reason.trim()) };
    let namespace = &args.scope.namespace;
    match kind {
        "wfe" | "workflowexecution" => {
            let api: Api<WorkflowExecution> = Api::namespaced(client, namespace);
            cancel(&api, name, &why, |one| one.status?.phase).await?;
        }
        "rr" | "remediationrequest" => {
            let api: Api<RemediationRequest> = Api::namespaced(client, namespace);
            cancel(&api, name, &why, |one| one.status?.overall_phase).await?;
        }
        "ke" | "kubernetesexecution" => {
            let api: Api<KubernetesExecution> = Api::namespaced(client, namespace);
            cancel(&api, name, &why, |one| one.status?.phase).await?;
        }
        other => bail!("{other}: cannot be cancelled; say wfe/NAME, ke/NAME or rr/NAME"),
    }
    say.line(&format!("{} is asked to stop", args.what));
    Ok(())
}

/// Asks an object to stop, unless it is over.
async fn cancel<K: Namespaced, P: Phase>(
    api: &Api<K>,
    name: &str,
    why: &str,
    phase: impl Fn(K) -> Option<P>,
) -> anyhow::Result<()> {
    let found = cluster::get(api, name).await?;
    if let Some(phase) = phase(found).filter(|phase| phase.is_terminal()) {
        bail!("{} {name} is over: {}", K::kind(&()), phase.as_str());
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {CANCEL: why}}}));
    api.patch(name, &PatchParams::default(), &patch).await.with_context(|| format!("cancel {name}"))?;
    Ok(())
}
