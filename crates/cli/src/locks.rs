//! `pawl locks`, `pawl unlock` and `pawl clear-block`: who holds what, and what people may do about it.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use pawl_api::meta::{Kind, Reason, Target, condition};
use pawl_api::pawl::conditions::TARGET_LOCKED;
use pawl_api::remedy::annotations::MEMORY;
use pawl_api::remedy::{RemediationPhase, RemediationRequest, WorkflowExecution};
use pawl_api::{deploy, git, remedy};
use pawl_engine::{Clock as _, SystemClock};
use pawl_machines::lock::acts::{self, ACTS, Act, What};
use pawl_machines::lock::{self, Lock};
use pawl_machines::object::Object;
use pawl_machines::remedy::memory::Memory;
use serde_json::{Value, json};

use crate::cluster;
use crate::terminal::Say;

/// How often a write is tried again that somebody else was faster with.
const TRIES: usize = 5;

/// The kinds that say in a condition that they wait for a target.
const WAITING: [Kind; 3] =
    [git::workflow::KIND, deploy::deploy_item::KIND, remedy::kubernetes_execution::KIND];

#[derive(Debug, clap::Args)]
pub(crate) struct Where {
    /// Where the locks are.
    #[arg(long, default_value = "pawl-system")]
    system_namespace: String,
    /// The cluster's kubeconfig; without it KUBECONFIG, then that of a `pawl up` in this folder, then the usual places.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// `json` for programs.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
    #[command(flatten)]
    place: Where,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnlockArgs {
    /// The target, as `pawl locks` shows it.
    target: String,
    /// Why: recorded with your name.
    #[arg(long, required = true)]
    reason: String,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ClearArgs {
    /// The target (namespace/kind/name), or wfe/NAME: the execution that was skipped or failed.
    what: String,
    /// Why: recorded with your name.
    #[arg(long, required = true)]
    reason: String,
    /// Only of this workflow.
    #[arg(long, value_name = "ID")]
    workflow: Option<String>,
    /// The namespace of wfe/NAME.
    #[arg(long, short, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    place: Where,
}

/// One lock, and who has to do with it.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    target: String,
    holder: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    since: String,
    waiting: Vec<String>,
}

pub(crate) async fn list(args: &ListArgs, say: &mut dyn Say) -> anyhow::Result<()> {
    let client = cluster::for_people(args.place.kubeconfig.as_deref()).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), &args.place.system_namespace);
    let leases = leases.list(&ListParams::default()).await.context("list Leases")?;
    let waiting = waiting(&client).await?;
    let mut told = Vec::new();
    for lease in leases.items {
        let lease = object(&lease)?;
        told.extend(tell(&lease, &waiting));
    }
    match args.output {
        Some(Format::Json) => say.line(&serde_json::to_string_pretty(&told)?),
        None if told.is_empty() => say.line("no target is locked"),
        None => {
            for Told { target, holder, run, since, waiting } in told {
                let run = run.map(|run| format!(", running {run}")).unwrap_or_default();
                say.line(&format!("{target}\n  held by {holder} since {since}{run}"));
                for one in waiting {
                    say.line(&format!("  {one} waits"));
                }
            }
        }
    }
    Ok(())
}

pub(crate) async fn unlock(args: &UnlockArgs, say: &mut dyn Say) -> anyhow::Result<()> {
    let client = cluster::for_people(args.place.kubeconfig.as_deref()).await?;
    let target: Target = args.target.parse().with_context(|| format!("{}: not a target", args.target))?;
    let reason = filled(&args.reason)?;
    let who = who_am_i(&client).await?;
    let api: Api<Lease> = Api::namespaced(client, &args.place.system_namespace);
    for _ in 0..TRIES {
        let Some(lease) = api.get_opt(&target.lock_name()).await.context("read the Lease")? else {
            bail!("{target} is not locked");
        };
        let lease = object(&lease)?;
        let holder = match lock::read(Some(&lease)) {
            Lock::Free => bail!("{target} is not locked"),
            Lock::Held(holder) => holder.unit.to_string(),
            Lock::Unreadable(identity) => identity,
        };
        let acts = acted(&lease, What::Unlocked, &who, reason, holder.clone());
        let labels: serde_json::Map<String, Value> =
            lease.labels().map(|(name, _)| (name.to_owned(), Value::Null)).collect();
        let patch = json!({
            "metadata": {"resourceVersion": lease.resource_version(), "labels": labels,
                "annotations": {lock::HOLDER: null, ACTS: acts}},
            "spec": {"holderIdentity": null, "acquireTime": null, "renewTime": null},
        });
        if patched(&api, &lease, &patch).await? {
            say.line(&format!("{target} was held by {holder}, and is free; what it started may still run"));
            return Ok(());
        }
    }
    bail!("{target}: somebody else keeps changing the Lease; try again")
}

pub(crate) async fn clear_block(args: &ClearArgs, say: &mut dyn Say) -> anyhow::Result<()> {
    let client = cluster::for_people(args.place.kubeconfig.as_deref()).await?;
    let reason = filled(&args.reason)?;
    let (target, workflow) = match args.what.strip_prefix("wfe/") {
        Some(name) => {
            let api: Api<WorkflowExecution> = Api::namespaced(client.clone(), &args.namespace);
            let found = cluster::get(&api, name).await?;
            (found.spec.target_resource, Some(found.spec.workflow_ref.workflow_id))
        }
        None => (args.what.clone(), None),
    };
    let workflow = args.workflow.clone().or(workflow);
    let target: Target = target.trim().parse().with_context(|| format!("{target}: not a target"))?;
    let who = who_am_i(&client).await?;
    let api: Api<Lease> = Api::namespaced(client, &args.place.system_namespace);
    for _ in 0..TRIES {
        let Some(lease) = api.get_opt(&target.lock_name()).await.context("read the Lease")? else {
            bail!("{target} remembers nothing: no block is there to be cleared");
        };
        let lease = object(&lease)?;
        let (memory, what, cleared) = match Memory::of(Some(&lease)) {
            Ok(mut memory) => {
                let cleared = memory.clear(workflow.as_deref(), &who, reason, now());
                (memory, What::BlockCleared, cleared)
            }
            Err(unreadable) => {
                say.line(&format!("{unreadable}; it is replaced"));
                (Memory::default(), What::MemoryReplaced, vec!["all".to_owned()])
            }
        };
        if cleared.is_empty() {
            bail!(
                "{target} has no block{}",
                workflow.map(|id| format!(" of workflow {id}")).unwrap_or_default()
            );
        }
        let patch = json!({"metadata": {"resourceVersion": lease.resource_version(),
            "annotations": {MEMORY: memory.written(),
                ACTS: acted(&lease, what, &who, reason, cleared.join(", "))}}});
        if patched(&api, &lease, &patch).await? {
            say.line(&format!("cleared {} on {target}, as {who}: {reason}", cleared.join(", ")));
            return Ok(());
        }
    }
    bail!("{target}: somebody else keeps changing the Lease; try again")
}

/// The annotation that says what a person did: it goes with the deed, so that the ledger learns of both or of neither.
fn acted(lease: &Object, what: What, by: &str, reason: &str, about: String) -> String {
    let (by, reason) = (by.to_owned(), reason.to_owned());
    acts::with(lease, Act { what, by, at: Time(now()), reason, about })
}

/// Who the API server says we are.
///
/// # Errors
/// When it does not say.
pub(crate) async fn who_am_i(client: &kube::Client) -> anyhow::Result<String> {
    Ok(myself(client).await?.username)
}

/// Who the API server takes the caller for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Me {
    pub(crate) username: String,
    pub(crate) groups: Vec<String>,
}

pub(crate) async fn myself(client: &kube::Client) -> anyhow::Result<Me> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review =
        api.create(&PostParams::default(), &SelfSubjectReview::default()).await.context("ask who I am")?;
    let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
    let username = user.username.filter(|name| !name.is_empty());
    let username = username.context("the API server does not say who I am")?;
    Ok(Me { username, groups: user.groups.unwrap_or_default() })
}

/// `false`: somebody else was faster.
async fn patched(api: &Api<Lease>, lease: &Object, patch: &Value) -> anyhow::Result<bool> {
    match api.patch(lease.name(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error).context("write the Lease"),
    }
}

fn tell(lease: &std::sync::Arc<Object>, waiting: &[(String, String)]) -> Option<Told> {
    lock::target_hash(lease)?;
    let (holder, run) = match lock::read(Some(lease)) {
        Lock::Free => return None,
        Lock::Held(holder) => (holder.unit.to_string(), holder.run.map(|run| run.to_string())),
        Lock::Unreadable(identity) => (identity, None),
    };
    let target = lease.annotation(lock::TARGET).unwrap_or(lease.name()).to_owned();
    let since = lease.raw().pointer("/spec/acquireTime").and_then(Value::as_str).unwrap_or("?").to_owned();
    let waiting = waiting.iter().filter(|(of, _)| *of == target).map(|(_, who)| who.clone()).collect();
    Some(Told { target, holder, run, since, waiting })
}

/// Everybody who waits: for which target, and who.
async fn waiting(client: &kube::Client) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for kind in WAITING {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &cluster::resource(&kind));
        match api.list(&ListParams::default()).await {
            Ok(listed) => all.extend(listed.items.iter().filter_map(|one| waits_for(&kind, one))),
            // A cluster without that door.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("list {kind}")),
        }
    }
    let api: Api<RemediationRequest> = Api::all(client.clone());
    match api.list(&ListParams::default()).await {
        Ok(listed) => all.extend(listed.items.iter().flat_map(blocked_on)),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error).context("list RemediationRequests"),
    }
    Ok(all)
}

/// A unit that waits says `<target> is held by …` in its condition.
fn waits_for(kind: &Kind, object: &DynamicObject) -> Option<(String, String)> {
    let conditions = object.data.pointer("/status/conditions")?.clone();
    let conditions: Vec<condition::Condition> = serde_json::from_value(conditions).ok()?;
    let waits = condition::get(&conditions, TARGET_LOCKED).filter(|one| one.status == "True")?;
    let (target, _) = waits.message.split_once(" is held by ")?;
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    Some((target.to_owned(), format!("{} {namespace}/{name}", kind.kind)))
}

/// The targets of the steps that found them taken.
fn blocked_on(request: &RemediationRequest) -> Vec<(String, String)> {
    let Some(status) = &request.status else { return Vec::new() };
    let busy = Reason::ResourceBusy.as_str();
    if status.overall_phase != Some(RemediationPhase::Blocked) {
        return Vec::new();
    }
    let who = format!(
        "RemediationRequest {}/{}",
        request.metadata.namespace.as_deref().unwrap_or_default(),
        request.metadata.name.as_deref().unwrap_or_default()
    );
    let steps = request.spec.plan.steps.iter().zip(&status.steps).filter(|(_, said)| said.reason == busy);
    let targets = steps.filter_map(|(step, _)| {
        let own = step.workflow.as_ref().and_then(|workflow| workflow.target_resource.as_deref());
        match own {
            Some(own) => own.trim().parse().ok(),
            None => request.spec.target_resource.target().ok(),
        }
    });
    targets.map(|target: Target| (target.to_string(), who.clone())).collect()
}

fn object(lease: &Lease) -> anyhow::Result<std::sync::Arc<Object>> {
    Ok(Object::new(lock::LEASE, serde_json::to_value(lease)?)?)
}

fn filled(reason: &str) -> anyhow::Result<&str> {
    match reason.trim() {
        "" => bail!("--reason: say why; it is recorded"),
        reason => Ok(reason),
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_says_who_holds_it_with_which_run_and_who_waits() {
        let holder = json!({"unit": {"group": "g", "version": "v1", "kind": "WorkflowExecution", "plural": "ws",
            "namespaced": true, "namespace": "n", "name": "w", "uid": "u"}});
        let lease = |name: &str| {
            Object::new(
                lock::LEASE,
                json!({"metadata": {"name": name, "annotations": {
                lock::TARGET: "n/deployment/web", lock::HOLDER: holder.to_string()}},
                "spec": {"holderIdentity": "w", "acquireTime": "2026-01-01T00:00:00.000000Z"}}),
            )
            .unwrap()
        };
        let waiting =
            [("n/deployment/web".to_owned(), "RemediationRequest n/r".to_owned()), ("x".into(), "y".into())];
        let told = tell(&lease("pawl-lock-0"), &waiting).unwrap();
        assert_eq!(
            (told.holder.as_str(), told.waiting.as_slice()),
            (
                "WorkflowExecution.g n/w",
                &waiting[0..1].iter().map(|(_, who)| who.clone()).collect::<Vec<_>>()[..]
            )
        );
        assert_eq!(tell(&lease("leader"), &waiting), None);
    }

    #[test]
    fn who_waits_is_read_from_conditions_and_blocked_steps() {
        let workflow: DynamicObject = serde_json::from_value(json!({"apiVersion": "x/v1", "kind": "Workflow",
            "metadata": {"name": "w", "namespace": "n"}, "status": {"conditions": [{"type": "TargetLocked", "status": "True",
                "reason": "TargetLocked", "message": "n/deployment/web is held by somebody",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
        .unwrap();
        let expected = ("n/deployment/web".to_owned(), "Workflow n/w".to_owned());
        assert_eq!(waits_for(&git::workflow::KIND, &workflow), Some(expected));
        let request: RemediationRequest = serde_json::from_value(json!({"apiVersion": "x/v1", "kind": "RemediationRequest",
            "metadata": {"name": "r", "namespace": "n"}, "spec": {
                "targetResource": {"kind": "Deployment", "name": "web", "namespace": "n"},
                "plan": {"steps": [{"name": "a", "workflow": {"workflowRef": {"workflowId": "w", "containerImage": "i"}}}]}},
            "status": {"overallPhase": "Blocked", "steps": [{"name": "a", "reason": "ResourceBusy"}]}}))
        .unwrap();
        assert_eq!(
            blocked_on(&request),
            [("n/deployment/web".to_owned(), "RemediationRequest n/r".to_owned())]
        );
    }
}
