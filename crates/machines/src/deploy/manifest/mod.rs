//! What is to be done for an item that is a list of Kubernetes objects?
//!
//! ```text
//! write down what will be made ─▶ delete what left the list, apply the rest (CRDs, cluster-scoped, namespaced) ─▶ ready?
//! ```
//! What is made is written to `providerStatus` before it is made, so that nothing is ever left behind. Objects are
//! applied once per job. Where Pawl runs, the applying is steps of the plan, and the objects' own changes wake the item
//! where their kind is one that is watched in full ([`WATCHED`]). On another cluster, or as another ServiceAccount, the
//! same steps are carried out through a port, and the item looks again after a while. Taking down goes backwards, and is
//! over when the API server says that all are gone.

mod config;
mod objects;
mod readiness;
mod sight;
mod steps;

use std::time::Duration;

use jiff::Timestamp;
use pawl_api::deploy::{DeployItem, DeployItemPhase, DeployItemStatus};
use pawl_api::k8s::{
    CONFIG_MAP, DAEMON_SET, DEPLOYMENT, JOB, POD, REPLICA_SET, SECRET, SERVICE, STATEFUL_SET,
};
use pawl_api::meta::{Kind, Reason, Target};
use serde::Deserialize;
use serde_json::Value;

use self::config::{Config, MAX_MANIFESTS, Policy, UpdateStrategy};
use self::objects::{Kept, Kinds, Managed, Power, Wanted};
use self::readiness::Ready;
use self::sight::{Eyes, Looked, Sight};
use super::deploy_item::{Come, Work};
use super::item_job::Flow;
use super::target::{Ask, Call, Place, Steps};
use crate::failure::{Category, Failure};
use crate::object::Reference;
use crate::plan::Step;
use crate::view::Context;

/// The kinds of which the whole object is seen: those that can be not ready yet, and those that hold what is exported.
pub(super) const WATCHED: &[Kind] =
    &[DEPLOYMENT, STATEFUL_SET, DAEMON_SET, REPLICA_SET, POD, JOB, SECRET, CONFIG_MAP, SERVICE];

/// Where nothing tells of changes, an item looks again after a quarter of the time it has waited, but not sooner than …
const SHORTEST_POLL: Duration = Duration::from_secs(2);
/// … and not later than this: a rollout that took ten minutes is noticed half a minute late.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// What an item of this deployer depends on.
#[derive(Debug)]
pub(super) struct Facts {
    place: Place,
    config: Result<Config, String>,
    wanted: Vec<Wanted>,
    kept: Kept,
    sight: Sight,
    looked: Looked,
    /// The kinds must be asked for first.
    kinds: Option<Call>,
    unheard_kinds: Option<Failure>,
}

/// Reads what the item depends on.
pub(super) fn observe(cx: &Context<'_, DeployItem>, system_namespace: &str) -> Facts {
    let (view, me, item) = (cx.view, cx.object, cx.typed);
    let status = item.status.clone().unwrap_or_default();
    let config =
        Config::deserialize(Value::Object(item.spec.config.clone())).map_err(|error| error.to_string());
    let target = item.spec.target.as_ref().map(|target| target.name.as_str());
    let mut facts = Facts {
        place: Place::of(view, me, target),
        config: Err(String::new()),
        wanted: Vec::new(),
        kept: Kept::of(&status.provider_status),
        sight: Sight::default(),
        looked: Looked::default(),
        kinds: None,
        unheard_kinds: None,
    };
    if let Ok(config) = &config {
        let place = facts.place.clone();
        let kinds = Kinds::of(view, cx.answers, &place, config);
        let home = me.namespace().unwrap_or_default();
        let power = Power { view, home, system_namespace, place: &place };
        let list = config.manifests.iter().take(MAX_MANIFESTS).enumerate();
        facts.wanted = list.map(|(at, entry)| objects::wanted(&kinds, power, at, entry)).collect();
        let eyes = Eyes { view, answers: cx.answers, place: &place };
        let merges = config.update_strategy == UpdateStrategy::Merge;
        let applied = facts.kept.applied_in == status.job_id;
        let compared = facts.wanted.iter().filter(|one| match one.policy {
            Policy::Fallback => true,
            Policy::Manage | Policy::Keep => merges && !applied,
            Policy::Ignore | Policy::Immutable => false,
        });
        let compared: Vec<Reference> =
            compared.filter_map(|one| one.managed.as_ref().ok()).map(Managed::reference).collect();
        facts.sight.look(eyes, compared);
        if applied {
            facts.looked = Looked::at(&mut facts.sight, eyes, &kinds, power, config, &facts.wanted);
        }
        (facts.kinds, facts.unheard_kinds) = (kinds.pending, kinds.failed);
    }
    facts.config = config;
    facts
}

impl Facts {
    /// What the item acts on, beside itself: the objects of the cluster that Pawl runs on.
    pub(super) fn targets(&self) -> Vec<Target> {
        if !self.place.is_home() {
            return Vec::new();
        }
        let wanted = self.wanted.iter().filter(|one| one.policy != Policy::Ignore);
        let wanted = wanted.filter_map(|one| one.managed.as_ref().ok());
        wanted.chain(&self.kept.managed_resources).filter_map(Managed::target).collect()
    }
}

/// What has come of an item whose job was picked up.
pub(super) fn work(
    cx: &Context<'_, DeployItem>,
    facts: &Facts,
    flow: Flow,
    status: &DeployItemStatus,
) -> Work {
    let work = match flow {
        Flow::Remove => remove(cx, facts, status.phase),
        Flow::Install => match ahead(facts) {
            Some(work) => work,
            None => match wanted(cx, facts) {
                Ok(wanted) => install(cx, facts, &wanted, status),
                Err((reason, message)) => Work::come(Come::Hopeless(reason, message)),
            },
        },
    };
    match &work.trouble {
        // No watch tells when the Secret returns; the item's timeout ends the wait.
        Some((Reason::CredentialsMissing, _)) => Work { wake: next_poll(status, cx.now), ..work },
        Some(_) | None => work,
    }
}

/// What must be known, or be otherwise, before the objects matter.
fn ahead(facts: &Facts) -> Option<Work> {
    let hopeless = |reason, message: String| Some(Work::come(Come::Hopeless(reason, message)));
    match &facts.place {
        Place::Here | Place::Through { .. } => {}
        // Its job was picked up when there was one; it may come back.
        Place::Missing(problem) => return Some(Work::trouble(Reason::TargetMissing, problem.clone())),
        Place::Unusable(problem) => return hopeless(Reason::TargetInvalid, problem.clone()),
    }
    if let Err(problem) = &facts.config {
        return hopeless(Reason::ConfigurationError, format!("spec.config: {problem}"));
    }
    let (was, is) = (facts.kept.target.as_deref(), through(&facts.place));
    if !facts.kept.managed_resources.is_empty() && was != is {
        let message = format!(
            "what is deployed was deployed to {}; take it down before it is deployed to {}",
            was.unwrap_or("this cluster"),
            is.unwrap_or("this cluster")
        );
        return hopeless(Reason::TargetInvalid, message);
    }
    let asked = facts.kinds.as_ref().or(facts.sight.pending.as_ref());
    if let Some(call) = asked {
        return Some(Work { asks: vec![call.clone().into()], ..Work::default() });
    }
    facts.unheard_kinds.as_ref().or(facts.sight.failed.as_ref()).map(failed)
}

/// The name of the Target through which an item is deployed; none where Pawl deploys it itself.
fn through(place: &Place) -> Option<&str> {
    match place {
        Place::Through { cluster, .. } => cluster.target(),
        Place::Here | Place::Missing(_) | Place::Unusable(_) => None,
    }
}

fn install(
    cx: &Context<'_, DeployItem>,
    facts: &Facts,
    wanted: &[Managed],
    status: &DeployItemStatus,
) -> Work {
    let kept = &facts.kept;
    let Ok(config) = &facts.config else { return Work::default() };
    let known = |one: &Managed| kept.managed_resources.iter().any(|other| other.same_object(one));
    let target = through(&facts.place).map(str::to_owned);
    if !wanted.iter().all(known) || kept.target != target {
        let news = wanted.iter().filter(|one| !known(one)).cloned();
        let managed_resources = kept.managed_resources.iter().cloned().chain(news).collect();
        let kept = Kept { managed_resources, applied_in: kept.applied_in.clone(), target };
        return Work { provider_status: kept.written(), ..Work::default() };
    }
    if kept.applied_in != status.job_id {
        let stays = |one: &&Managed| wanted.iter().any(|other| other.same_object(one));
        let gone: Vec<&Managed> = kept.managed_resources.iter().filter(|one| !stays(one)).collect();
        let mut steps = steps::take_down(&gone);
        let making = facts.wanted.iter().filter_map(|one| {
            let managed = one.managed.as_ref().ok().filter(|managed| stays(managed))?;
            Some((one, managed, facts.sight.get(&managed.reference()).map(AsRef::as_ref)))
        });
        steps.extend(steps::make(cx.object, config.update_strategy, making));
        let kept = Kept { managed_resources: wanted.to_vec(), applied_in: status.job_id.clone(), target };
        let done = Work { provider_status: kept.written(), ..Work::default() };
        return carried(cx, &facts.place, steps, done);
    }
    match facts.looked.ready(&facts.sight, config, wanted) {
        Ready::Yes => match facts.looked.exported(&facts.sight, config) {
            Ok(export) => {
                let message = format!("{} objects are deployed", wanted.len());
                Work { export, ..Work::come(Come::Done(message)) }
            }
            Err(_) => waits(facts, status, cx.now),
        },
        Ready::NotYet(_) => waits(facts, status, cx.now),
        Ready::Never(why) => Work::come(Come::Failed(Reason::NotReady, why)),
    }
}

fn waits(facts: &Facts, status: &DeployItemStatus, now: Timestamp) -> Work {
    Work { wake: next_poll(status, now).filter(|_| facts.sight.polled), ..Work::default() }
}

/// The longer a job takes, the longer the time to its next poll.
fn next_poll(status: &DeployItemStatus, now: Timestamp) -> Option<Timestamp> {
    let since = status.last_reconcile_time.as_ref().map_or(now, |time| time.0);
    let waited = now.duration_since(since).unsigned_abs();
    now.checked_add((waited / 4).clamp(SHORTEST_POLL, LONGEST_POLL)).ok()
}

fn remove(cx: &Context<'_, DeployItem>, facts: &Facts, phase: Option<DeployItemPhase>) -> Work {
    let kept = &facts.kept;
    // People see that it is at it, however long it takes.
    if phase == Some(DeployItemPhase::InitDelete) && !kept.managed_resources.is_empty() {
        return Work::default();
    }
    let all: Vec<&Managed> = kept.managed_resources.iter().collect();
    let steps = steps::take_down(&all);
    let message = format!("{} objects are gone", all.len());
    let Some(target) = &kept.target else {
        return Work { steps, ..Work::come(Come::Done(message)) };
    };
    let lost = |why: &str| {
        let message = format!("{} objects may be left on the cluster of Target {target}: {why}", all.len());
        Work::come(Come::Lost(message))
    };
    match &facts.place {
        _ if steps.is_empty() => Work::come(Come::Done(message)),
        // I5: without it nobody can do anything there.
        Place::Missing(why) => lost(why),
        // Nothing is known to have been deployed, and nobody can look: it is not held up for that.
        Place::Unusable(why) if kept.applied_in.is_none() => lost(why),
        Place::Unusable(why) => Work::come(Come::Failed(Reason::TargetInvalid, why.clone())),
        place if through(place) != Some(target) => {
            let why = format!("it was deployed to Target {target}, and now names another");
            Work::come(Come::Failed(Reason::TargetInvalid, why))
        }
        Place::Here | Place::Through { .. } => {
            let call = carry(&facts.place, steps.clone());
            match call.and_then(|call| cx.answers.get(&call).map(|heard| heard.err().cloned())) {
                Some(Some(failure))
                    if matches!(failure.category, Category::NotFound | Category::MissingCredentials) =>
                {
                    lost(&failure.message)
                }
                Some(Some(failure)) if failure.is("TargetInvalid") && kept.applied_in.is_none() => {
                    lost(&failure.message)
                }
                _ => carried(cx, &facts.place, steps, Work::come(Come::Done(message))),
            }
        }
    }
}

/// Carries out steps where the item is deployed; then what follows.
fn carried(cx: &Context<'_, DeployItem>, place: &Place, steps: Vec<Step>, then: Work) -> Work {
    if steps.is_empty() {
        return then;
    }
    let Some(call) = carry(place, steps.clone()) else { return Work { steps, ..then } };
    match cx.answers.get(&call) {
        None => {
            // A look that is late must not act there: the version it was decided on is asked for at home, first.
            let confirm = Step::confirm_unchanged(cx.object);
            Work { steps: vec![confirm], asks: vec![call.into()], ..Work::default() }
        }
        Some(Ok(_)) => then,
        Some(Err(failure)) => failed(failure),
    }
}

fn carry(place: &Place, steps: Vec<Step>) -> Option<Call> {
    match place {
        Place::Through { cluster, .. } => {
            Some(Call { cluster: cluster.clone(), ask: Ask::Carry(Steps::of(steps)) })
        }
        Place::Here | Place::Missing(_) | Place::Unusable(_) => None,
    }
}

/// What a question or a deed that failed means for the job.
fn failed(failure: &Failure) -> Work {
    let reason = match failure.reason.as_str() {
        "TargetInvalid" => Reason::TargetInvalid,
        "TargetGone" => Reason::TargetMissing,
        "Forbidden" => Reason::Forbidden,
        // It goes, slowly; that is no error.
        "StillThere" => return Work::default(),
        _ => Reason::DeployerFailed,
    };
    match failure.category {
        // The loop comes back by itself, later and later.
        Category::Transient | Category::Conflict => Work::trouble(reason, failure.to_string()),
        Category::MissingCredentials => Work::trouble(Reason::CredentialsMissing, failure.to_string()),
        Category::Permanent | Category::NotFound => Work::come(Come::Failed(reason, failure.to_string())),
    }
}

/// The objects to be made, or all that is wrong with them at once.
fn wanted(cx: &Context<'_, DeployItem>, facts: &Facts) -> Result<Vec<Managed>, (Reason, String)> {
    let count = facts.config.as_ref().map(|config| config.manifests.len()).unwrap_or_default();
    if count > MAX_MANIFESTS {
        let message = format!("{count} objects are too many; at most {MAX_MANIFESTS} are allowed");
        return Err((Reason::ConfigurationError, message));
    }
    let of_interest = facts.wanted.iter().filter(|one| one.policy != Policy::Ignore);
    let (mut wanted, mut problems) = (Vec::new(), Vec::new());
    for one in of_interest {
        match &one.managed {
            Ok(managed) => {
                let found = facts.sight.get(&managed.reference()).map(AsRef::as_ref);
                if one.policy == Policy::Fallback && steps::is_theirs(cx.object, found) {
                    continue;
                }
                wanted.push(managed.clone());
            }
            Err(problem) => problems.push(problem.clone()),
        }
    }
    match problems.first() {
        None => Ok(wanted),
        Some((reason, _)) => {
            let told = problems.iter().take(10).map(|(_, message)| message.as_str()).collect::<Vec<_>>();
            Err((*reason, told.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests;
