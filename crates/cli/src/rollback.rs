//! `pawl rollback` and `pawl finalize`: take an action back, or say that nobody will.

use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use pawl_api::meta::Phase as _;
use pawl_api::remedy::kubernetes_execution::rollback_name;
use pawl_api::remedy::{KubernetesExecution, KubernetesExecutionPhase, annotations};
use pawl_machines::remedy::kubernetes_execution::rollback;
use serde_json::json;

use crate::approve::named;
use crate::terminal::{Say, printable};
use crate::{cluster, locks};

/// How often a rollback may be tried: whoever failed so often should look at the target.
const MAX_ATTEMPTS: i32 = 20;

/// How long the gates of a rollback are waited for, so that a refusal is told at once.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The execution: ke/NAME.
    #[arg(value_name = "ke/NAME")]
    what: String,
    #[command(flatten)]
    scope: cluster::Scope,
}

/// Makes the execution that takes another one back, and says what its gates say.
pub(crate) async fn roll_back(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let name = named(&args.what)?;
    let client = args.scope.client().await?;
    let who = locks::who_am_i(&client).await?;
    let api: Api<KubernetesExecution> = Api::namespaced(client, &args.scope.namespace);
    let first = cluster::get(&api, name).await?;
    let attempt = next_attempt(&api, &first).await?;
    let manifest = rollback::manifest(&first, Some(&who), attempt, serde_json::Map::new())?;
    let back: KubernetesExecution = serde_json::from_value(manifest)?;
    let back = api.create(&PostParams::default(), &back).await.context("create the rollback")?;
    let name = back.name_any();
    say.line(&format!("ke/{name}: {}", back.spec.action));
    let told = settled(&api, &name).await?;
    say.line(&printable(&told));
    Ok(())
}

/// The number of the attempt. One that is under way is not doubled.
async fn next_attempt(api: &Api<KubernetesExecution>, first: &KubernetesExecution) -> anyhow::Result<i32> {
    let (name, uid) = (first.name_any(), first.uid().unwrap_or_default());
    for attempt in 1..=MAX_ATTEMPTS {
        let taken = rollback_name(&name, &uid, attempt);
        let Some(found) =
            api.get_opt(&taken).await.with_context(|| format!("read KubernetesExecution {taken}"))?
        else {
            return Ok(attempt);
        };
        let phase = found.status.and_then(|status| status.phase);
        match phase {
            Some(KubernetesExecutionPhase::Failed) => {}
            Some(phase) if phase.is_terminal() => bail!("ke/{taken} took it back already"),
            Some(_) | None => bail!("ke/{taken} takes it back already"),
        }
    }
    bail!("{MAX_ATTEMPTS} rollbacks of ke/{name} failed: a person must look at the target")
}

/// What became of it so far.
async fn settled(api: &Api<KubernetesExecution>, name: &str) -> anyhow::Result<String> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let status = cluster::get(api, name).await?.status;
        let status = status.unwrap_or_default();
        let message = status.message.unwrap_or_default();
        match status.phase {
            Some(KubernetesExecutionPhase::Failed) => {
                bail!("ke/{name} failed ({}): {message}", status.reason.unwrap_or_default())
            }
            None | Some(KubernetesExecutionPhase::Validating | KubernetesExecutionPhase::Validated)
                if tokio::time::Instant::now() < until =>
            {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            None => return Ok("nobody has looked at it yet: do the controllers run?".to_owned()),
            Some(phase) => return Ok(format!("is {}: {message}", phase.as_str())),
        }
    }
}

/// Says that no rollback will be wanted.
pub(crate) async fn finalize(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let name = named(&args.what)?;
    let client = args.scope.client().await?;
    let who = locks::who_am_i(&client).await?;
    let api: Api<KubernetesExecution> = Api::namespaced(client, &args.scope.namespace);
    let found = cluster::get(&api, name).await?;
    let phase = found.status.and_then(|status| status.phase);
    if phase != Some(KubernetesExecutionPhase::RollbackReady) {
        let phase = phase.map_or("not looked at yet", KubernetesExecutionPhase::as_str);
        bail!("KubernetesExecution {name} offers no rollback that could be given up: it is {phase}");
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::FINALIZE: who}}}));
    api.patch(name, &PatchParams::default(), &patch).await.with_context(|| format!("finalize {name}"))?;
    say.line(&format!("ke/{name} stays as it is: what was kept for its rollback goes"));
    Ok(())
}
