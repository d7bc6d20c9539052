//! May a unit act on its targets now, and when is a target free again?
//!
//! ```text
//! no Lease, or a free one ──compare and swap──▶ held by a unit ──unit and run are over, or gone──▶ free
//! ```
//! A lock is a `coordination.k8s.io/v1` Lease. Compare-and-swap on it is the only authority: a unit acts when the API
//! server has answered that every one of its Leases names it. Age only orders those who wait. What must outlive units
//! stands in annotations of the Lease: such a Lease stays when it is freed, with no holder. One that carries nothing
//! else is deleted, so that locks do not pile up with every path that ever changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::meta::Target;
use pawl_api::pawl::labels;
use pawl_api::tekton::PIPELINE_RUN;
use pawl_api::tekton::labels::PIPELINE_RUN_UID;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cluster::job::{JOB, POD};
use crate::object::{Key, Object, Reference, Spot};
use crate::plan::{Adopt, Precondition, Step};
use crate::view::View;

pub mod acts;
pub mod reaper;
mod unit;

pub use unit::{Busy, LockResult, Locks};

pub use pawl_api::k8s::LEASE;

/// What a Lease locks, in full: its name holds only a hash.
pub const TARGET: &str = "pawl.dev/target";

/// Who holds it and which run it started, as JSON; `spec.holderIdentity` says the same to people.
pub const HOLDER: &str = "pawl.dev/lock-holder";

/// On a held Lease: the UID of its unit, so that a unit finds what it holds.
pub const UNIT: &str = labels::OWNER_UID;

/// What every lock's name begins with; the hash of its target follows.
pub const PREFIX: &str = "pawl-lock-";

/// What says which Job a Pod is of, also when the Job is gone.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// More labels of a Lease while it is held, for those who count or look for locks.
pub type Marks = BTreeMap<&'static str, String>;

/// Annotations of a Lease that outlive its holder; `None` takes one away.
pub type Kept = BTreeMap<&'static str, Option<String>>;

/// Who holds a lock: a unit, and the run it starts. The run's name is known before it exists, its UID only after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub unit: Reference,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Reference>,
}

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    Free,
    Held(Box<Holder>),
    /// Somebody holds it who is not written in our way: never taken, never freed, but by a person.
    Unreadable(String),
}

/// What a unit that wants to act gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// All locks are its own, and name its run.
    Have,
    /// These steps take or write down what is missing; then look again.
    Take(Vec<Step>),
    /// Somebody else holds a target. What was taken of the others is given back: all or none.
    Busy { target: Target, holder: String, give_back: Vec<Step> },
}

/// What became of a unit or a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It may still act.
    Going,
    /// It is finished, for good.
    Over,
    /// No cache shows it; the server is asked before that is believed.
    Absent,
}

/// The place of a unit among those that wait for the same target: smaller is earlier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The order of commits, where there is one.
    pub sequence: Option<i64>,
    pub spot: Spot,
}

impl Place {
    pub fn of(unit: &Object, sequence: Option<i64>) -> Self {
        Self { sequence, spot: Spot::of(unit) }
    }
}

/// Where the Lease of a target is.
pub fn key(system_namespace: &str, target: &Target) -> Key {
    Key::new(Some(system_namespace), &target.lock_name())
}

/// Reads a Lease, or that there is none.
pub fn read(lease: Option<&Arc<Object>>) -> Lock {
    lease.map_or(Lock::Free, |lease| read_object(lease))
}

/// Reads a Lease.
pub fn read_object(lease: &Object) -> Lock {
    let holder = lease.annotation(HOLDER);
    if let Some(Ok(holder)) = holder.map(serde_json::from_str) {
        return Lock::Held(Box::new(holder));
    }
    let identity = lease.raw().pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default();
    if holder.is_none() && identity.is_empty() { Lock::Free } else { Lock::Unreadable(identity.to_owned()) }
}

/// The locks that a unit holds, in the order of their names. The watch of Leases must index [`UNIT`].
pub fn held_by(view: &dyn View, uid: &str) -> Vec<Arc<Object>> {
    let named = view.labelled(&LEASE, UNIT, uid).into_iter();
    named.filter(|lease| matches!(read(Some(lease)), Lock::Held(holder) if holder.unit.uid == uid)).collect()
}

/// Makes a unit findable for whoever frees a target; `None` where it is so already.
pub fn find_me(me: &Object, target: &Target) -> Option<Step> {
    let hash = target.short_hash();
    (me.label(WAITS_FOR) != Some(&hash))
        .then(|| Step::patch(me, json!({"metadata": {"labels": {WAITS_FOR: hash}}})))
}

/// The hash of the target that a Lease locks; `None` for Leases that are no locks.
pub fn target_hash(lease: &Object) -> Option<&str> {
    lease.name().strip_prefix(PREFIX)
}

/// The targets that an annotation lists, comma-separated.
///
/// # Errors
/// When one of them is none.
pub fn listed(text: &str) -> Result<Vec<Target>, pawl_api::meta::target::ParseError> {
    text.split(',').map(str::trim).filter(|raw| !raw.is_empty()).map(str::parse).collect()
}

/// What a unit must do to hold all of its targets, with the run that it names written on each.
///
/// Claimed before the run exists, a lock names it without its UID; claimed again once the run is there, that is put
/// right. Whoever starts a run so that it can be made before it acts claims after it is made, and saves that write.
///
/// `lease_of` looks into the cache. Steps are in the order of the Leases' names, so that two units that want the same
/// targets meet at the first; each applies only to the version that was read, so a stale cache loses the race.
pub fn claim(
    system_namespace: &str,
    targets: &[Target],
    lease_of: impl Fn(&Key) -> Option<Arc<Object>>,
    me: &Holder,
    marks: &Marks,
    now: Timestamp,
) -> Claim {
    let mut wanted: Vec<(Key, &Target)> =
        targets.iter().map(|target| (key(system_namespace, target), target)).collect();
    wanted.sort();
    wanted.dedup_by(|a, b| a.0 == b.0);
    let (mut take, mut held, mut busy) = (Vec::new(), Vec::new(), None);
    for (key, target) in wanted {
        let lease = lease_of(&key);
        match read(lease.as_ref()) {
            Lock::Held(holder) if holder.unit.uid == me.unit.uid => {
                take.extend(lease.as_ref().and_then(|lease| record(lease, me)));
                held.extend(lease);
            }
            Lock::Held(holder) => busy = busy.or(Some((target.clone(), holder.unit.to_string()))),
            Lock::Unreadable(identity) => busy = busy.or(Some((target.clone(), identity))),
            Lock::Free => take.push(match lease {
                Some(lease) => hold(&lease, target, me, marks, now),
                None => create(&key, target, me, marks, now),
            }),
        }
    }
    match busy {
        Some((target, holder)) => Claim::Busy { target, holder, give_back: held.iter().map(free).collect() },
        None if take.is_empty() => Claim::Have,
        None => Claim::Take(take),
    }
}

/// Writes down what has become known of the run, such as its UID; `None` when the Lease says so already, or more.
pub fn record(lease: &Arc<Object>, me: &Holder) -> Option<Step> {
    let run = me.run.as_ref()?;
    match read(Some(lease)) {
        Lock::Held(holder) if holder.unit.uid == me.unit.uid && !tells_of(&holder, run) => {
            Some(patch(lease, json!({"metadata": {"annotations": {HOLDER: encode(me)}}})))
        }
        Lock::Held(_) | Lock::Free | Lock::Unreadable(_) => None,
    }
}

/// Whether a holder names this run, at least as far as it is known.
fn tells_of(holder: &Holder, run: &Reference) -> bool {
    let same = |told: &Reference| told.kind == run.kind && told.key == run.key;
    holder.run.as_ref().is_some_and(|told| same(told) && (run.uid.is_empty() || told.uid == run.uid))
}

/// Frees a lock whose unit and run can do nothing more; whoever notices may. `None` while one of them may.
///
/// A unit that is over does not free its target while its run goes on, and a run that is over does not while its unit
/// may start another.
pub fn reap(lease: &Arc<Object>, unit: Life, run: Life) -> Option<Vec<Step>> {
    let Lock::Held(holder) = read(Some(lease)) else { return None };
    let confirm = |life: Life, of: Option<&Reference>| match (life, of) {
        (Life::Going, Some(_)) => None,
        (Life::Absent, Some(of)) => Some(confirm_gone(of)),
        (Life::Over, Some(_)) | (_, None) => Some(Vec::new()),
    };
    let unit = confirm(unit, Some(&holder.unit))?;
    let run = confirm(run, holder.run.as_ref())?;
    Some(unit.into_iter().chain(run).chain([free(lease)]).collect())
}

/// Goes on only if a unit or a run is gone on the API server itself, and what acts for a run too: when a Job or a
/// PipelineRun is deleted, its Pods outlive it by their grace.
pub fn confirm_gone(of: &Reference) -> Vec<Step> {
    let label = match (of.uid.as_str(), &of.kind) {
        ("", _) => None,
        (_, kind) if *kind == JOB => Some(JOB_UID),
        (_, kind) if *kind == PIPELINE_RUN => Some(PIPELINE_RUN_UID),
        _ => None,
    };
    let pods = label.map(|label| {
        Step::Confirm(Precondition::NoneLabelled {
            kind: POD,
            namespace: of.key.namespace.clone(),
            label,
            value: of.uid.clone(),
        })
    });
    std::iter::once(Step::confirm_gone(of.clone())).chain(pods).collect()
}

fn create(key: &Key, target: &Target, me: &Holder, marks: &Marks, now: Timestamp) -> Step {
    let manifest = json!({
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": labelled(me, marks),
            "annotations": {TARGET: target.to_string(), HOLDER: encode(me)}},
        "spec": {"holderIdentity": identity(me), "acquireTime": stamp(now), "renewTime": stamp(now),
            "leaseTransitions": 0},
    });
    Step::Create { kind: LEASE, manifest, adopt: Adopt::Never }
}

fn hold(lease: &Arc<Object>, target: &Target, me: &Holder, marks: &Marks, now: Timestamp) -> Step {
    let before = lease.raw().pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or_default();
    let metadata = json!({"labels": labelled(me, marks),
        "annotations": {TARGET: target.to_string(), HOLDER: encode(me)}});
    let spec = json!({"holderIdentity": identity(me), "acquireTime": stamp(now), "renewTime": stamp(now),
        "leaseTransitions": i32::try_from(before.saturating_add(1)).unwrap_or(i32::MAX)});
    patch(lease, json!({"metadata": metadata, "spec": spec}))
}

fn labelled(me: &Holder, marks: &Marks) -> Map<String, Value> {
    let unit = (UNIT.to_owned(), Value::from(me.unit.uid.as_str()));
    marks.iter().map(|(key, value)| ((*key).to_owned(), value.as_str().into())).chain([unit]).collect()
}

/// Lets go of a Lease: of exactly the version that was read, so that nobody's later hold is broken.
pub fn free(lease: &Arc<Object>) -> Step {
    free_keeping(lease, &Kept::new())
}

/// The same, and writes down what must outlive the holder in the same request.
pub fn free_keeping(lease: &Arc<Object>, kept: &Kept) -> Step {
    if !outlives_its_holder(lease, kept) {
        return Step::delete_unchanged(lease);
    }
    let labels: Map<String, Value> = lease.labels().map(|(name, _)| (name.to_owned(), Value::Null)).collect();
    let mut annotations = annotated(kept);
    annotations.insert(HOLDER.to_owned(), Value::Null);
    let spec = json!({"holderIdentity": null, "acquireTime": null, "renewTime": null});
    patch(lease, json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}))
}

/// Writes down what must outlive the holder, who keeps the lock.
pub fn keep(lease: &Arc<Object>, kept: &Kept) -> Step {
    patch(lease, json!({"metadata": {"annotations": annotated(kept)}}))
}

fn annotated(kept: &Kept) -> Map<String, Value> {
    kept.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect()
}

/// Whether a Lease carries something besides its lock.
fn outlives_its_holder(lease: &Object, kept: &Kept) -> bool {
    let of_lock = |name: &str| name == TARGET || name == HOLDER;
    lease.annotations().any(|(name, _)| !of_lock(name) && !kept.contains_key(name))
        || kept.values().any(Option::is_some)
        || !lease.finalizers().is_empty()
}

/// Of exactly the version that was read: the compare and the swap.
fn patch(lease: &Arc<Object>, patch: Value) -> Step {
    Step::patch_unchanged(lease, patch)
}

/// For `kubectl get lease`.
fn identity(holder: &Holder) -> String {
    format!("{} ({})", holder.unit, holder.unit.uid)
}

fn stamp(now: Timestamp) -> String {
    format!("{now:.6}")
}

fn encode(holder: &Holder) -> String {
    // A struct of strings is always JSON.
    serde_json::to_string(holder).unwrap_or_default()
}

#[cfg(test)]
mod tests;
