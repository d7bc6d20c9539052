//! Is a lock held by a unit that no longer exists? Then nobody else will let go of it.
//!
//! A unit frees its own locks before its finalizer goes, so there is something to do here only where that was skipped:
//! a finalizer taken off by hand, or a process that stalled until its unit was gone and took the lock then. The run is
//! looked at too: a lock is free only when nothing can act on the target any more.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use pawl_api::deploy::deploy_item;
use pawl_api::git::workflow;
use pawl_api::meta::Kind;
use pawl_api::pawl::labels::{OWNER_KIND, OWNER_UID};
use pawl_api::remedy::annotations::EXECUTION;
use pawl_api::remedy::{kubernetes_execution, workflow_execution};
use pawl_api::tekton::PIPELINE_RUN;

use super::{
    Holder, Kept, LEASE, Life, Lock, UNIT, acts, free_keeping, keep, read, read_object, reap, target_hash,
};
use crate::audit::{self, Entry, Teller};
use crate::cluster::job::JOB;
use crate::held_run;
use crate::machine::{Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::Plan;
use crate::view::{Context, View};

/// The kinds of units whose absence can be told: those that are watched here.
const UNITS: [Kind; 4] =
    [workflow::KIND, workflow_execution::KIND, kubernetes_execution::KIND, deploy_item::KIND];

/// Frees the locks of units that are gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reaper;

impl Machine for Reaper {
    type Kind = Lease;
    type Status = ();

    fn description(&self) -> Description {
        Description {
            primary: Primary::Woken(LEASE),
            watches: vec![
                Watch::other(LEASE, if_it_concerns_us).by_labels(&[UNIT]),
                Watch::other(workflow::KIND, of_a_unit_that_goes),
                Watch::other(workflow_execution::KIND, of_a_unit_that_goes),
                Watch::other(kubernetes_execution::KIND, of_a_unit_that_goes),
                Watch::other(deploy_item::KIND, of_a_unit_that_goes),
                Watch::other(JOB, of_a_run_without_its_unit),
                Watch::other(PIPELINE_RUN, of_a_run_without_its_unit),
            ],
            writes: vec![Write::main(LEASE, &["delete", "patch"])],
            ..Description::new("lock", LEASE)
        }
    }

    fn audit(&self, tell: &Teller<'_>, _: &Lease) -> Option<Vec<Entry>> {
        Some(audit::lock::lease(tell))
    }

    fn reconcile(&self, cx: &Context<'_, Lease>) -> Plan<()> {
        let lock = target_hash(cx.object).map(|_| read(Some(cx.object)));
        let lives = match lock {
            Some(Lock::Held(holder)) if UNITS.contains(&holder.unit.kind) => Some(lives(cx.view, &holder)),
            // No lock, or free, or held by a kind that is not ours to judge.
            Some(Lock::Held(_) | Lock::Free | Lock::Unreadable(_)) | None => None,
        };
        // A unit that is there frees its own, also when it is over.
        let Some((Life::Absent, run)) = lives else { return forget(cx.object, cx.now) };
        let steps = reap(cx.object, Life::Absent, run).unwrap_or_default();
        Plan { steps, ..Plan::rest() }
    }
}

/// Takes what people did off a Lease, once it has been there for long enough.
fn forget(lease: &Arc<Object>, now: Timestamp) -> Plan<()> {
    match acts::kept_until(lease).filter(|_| target_hash(lease).is_some()) {
        Some(until) if until <= now => {
            let nothing = Kept::from([(acts::ACTS, None)]);
            let free = matches!(read(Some(lease)), Lock::Free);
            Plan::step(if free { free_keeping(lease, &nothing) } else { keep(lease, &nothing) })
        }
        Some(until) => Plan::rest().wake_at(until),
        None => Plan::rest(),
    }
}

/// What became of a holder, as far as the caches tell: its unit, and its run.
pub fn lives(view: &dyn View, holder: &Holder) -> (Life, Life) {
    let unit = if find(view, &holder.unit).is_some() { Life::Going } else { Life::Absent };
    let run = match &holder.run {
        Some(run) if run.kind == JOB || run.kind == PIPELINE_RUN => {
            run_life(find(view, run).as_deref(), &holder.unit)
        }
        // What is not watched may do anything.
        Some(_) => Life::Going,
        None => Life::Absent,
    };
    (unit, run)
}

/// What became of what has a run's name. One that is somebody else's is not the run.
fn run_life(run: Option<&Object>, unit: &Reference) -> Life {
    let Some(run) = run.filter(|run| owner_uid(run) == Some(&unit.uid)) else { return Life::Absent };
    if held_run::is_finished(run) { Life::Over } else { Life::Going }
}

/// Whose a run is: its controller's, or, across namespaces, that of whom its label names.
fn owner_uid(run: &Object) -> Option<&str> {
    run.controller().map(|owner| owner.uid.as_str()).or_else(|| run.label(OWNER_UID))
}

/// The object itself; a namesake that came later is not it, unless no UID was known.
pub(crate) fn find(view: &dyn View, reference: &Reference) -> Option<Arc<Object>> {
    let found = view.get(&reference.kind, &reference.key)?;
    (reference.uid.is_empty() || found.uid() == reference.uid).then_some(found)
}

/// Nearly every lock is its unit's business alone: one whose unit is not seen is ours, and one with something on it that
/// goes with time.
fn if_it_concerns_us(lease: &Object, view: &dyn View) -> Vec<Key> {
    if target_hash(lease).is_none() {
        return Vec::new();
    }
    let is_orphaned = || match read_object(lease) {
        Lock::Held(holder) => UNITS.contains(&holder.unit.kind) && find(view, &holder.unit).is_none(),
        Lock::Free | Lock::Unreadable(_) => false,
    };
    if acts::kept_until(lease).is_some() || is_orphaned() { vec![lease.key()] } else { Vec::new() }
}

/// One that is being deleted, or was gone at once because nothing held it.
fn of_a_unit_that_goes(unit: &Object, view: &dyn View) -> Vec<Key> {
    if !unit.is_deleting() && find(view, &unit.reference()).is_some() {
        return Vec::new();
    }
    locks_of(view, unit.uid())
}

fn of_a_run_without_its_unit(run: &Object, view: &dyn View) -> Vec<Key> {
    let orphaned = unit_of(run).filter(|unit| find(view, unit).is_none());
    orphaned.map(|unit| locks_of(view, &unit.uid)).unwrap_or_default()
}

/// The unit that a run names, as its controller or, across namespaces, in its annotation.
pub(crate) fn unit_of(run: &Object) -> Option<Reference> {
    if let Some(owner) = run.controller() {
        let kind = UNITS.into_iter().find(|kind| kind.kind == owner.kind)?;
        return Some(Reference { kind, key: Key::new(run.namespace(), &owner.name), uid: owner.uid.clone() });
    }
    let (namespace, name) = run.annotation(EXECUTION)?.split_once('/')?;
    let uid = run.label(OWNER_UID)?.to_owned();
    let kind = UNITS.into_iter().find(|kind| run.label(OWNER_KIND) == Some(&kind.kind))?;
    Some(Reference { kind, key: Key::new(Some(namespace), name), uid })
}

fn locks_of(view: &dyn View, uid: &str) -> Vec<Key> {
    view.labelled(&LEASE, UNIT, uid).iter().map(|lease| lease.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::testing::Cluster;

    fn lease(name: &str, kind: &str, more: &str) -> String {
        let group = if kind == "Workflow" { "terrakojo.io" } else { "example.com" };
        format!(
            "
kind: Lease
metadata:
  name: {name}
  namespace: pawl-system
  labels: {{pawl.dev/owner-uid: workflow-w}}
  annotations: {{pawl.dev/target: t{more}, pawl.dev/lock-holder: '{{\"unit\":{{\"group\":\"{group}\",\"version\":\"v1alpha1\",
    \"kind\":\"{kind}\",\"plural\":\"workflows\",\"namespaced\":true,\"namespace\":\"n\",\"name\":\"w\",\"uid\":\"workflow-w\"}},
    \"run\":{{\"group\":\"batch\",\"version\":\"v1\",\"kind\":\"Job\",\"plural\":\"jobs\",\"namespaced\":true,\"namespace\":\"n\",\"name\":\"w\"}}}}'}}
spec: {{holderIdentity: w}}
---"
        )
    }

    const WORKFLOW: &str =
        "\nkind: Workflow\nmetadata: {name: w}\nspec: {owner: acme, repository: infra, branch: b,
  sha: '0000000000000000000000000000000000000000', template: plan, path: p}\n---";

    fn job(status: &str) -> String {
        format!(
            "\nkind: Job\nmetadata: {{name: w, ownerReferences: [{{apiVersion: terrakojo.io/v1alpha1, kind: Workflow, name: w,
  uid: workflow-w, controller: true}}]}}\nspec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}}}\nstatus: {status}\n---"
        )
    }

    /// Whether the lock is still held after the reaper was there.
    fn check(documents: &[&str], held: bool) -> Cluster {
        let mut cluster = Cluster::of(&[LEASE, workflow::KIND, JOB], &documents.concat());
        cluster.settle(&[AnyMachine::new(Reaper)]);
        let kept = cluster.world.list(&LEASE, None);
        let is_held = kept.iter().any(|lease| !matches!(read(Some(lease)), Lock::Free));
        assert_eq!(is_held, held, "{documents:?}");
        cluster
    }

    #[test]
    fn a_lock_is_freed_when_neither_its_unit_nor_its_run_is_there_any_more() {
        let lock = lease("pawl-lock-0", "Workflow", "");
        let done = job("{conditions: [{type: Complete, status: 'True'}]}");
        check(&[&lock, WORKFLOW], true);
        check(&[&lock, &job("{active: 1}")], true);
        check(&[&lock, &done, WORKFLOW], true);
        check(&[&lock, &done], false);
        let cluster = check(&[&lock], false);
        assert!(cluster.world.list(&LEASE, None).is_empty());
        let cluster = check(&[&lease("pawl-lock-0", "Workflow", ", kept: 'yes'")], false);
        assert_eq!(cluster.world.list(&LEASE, None)[0].annotation("kept"), Some("yes"));
    }

    #[test]
    fn what_people_did_is_recorded_once_with_their_names_and_goes_after_a_day() {
        let acts = "pawl.dev/acts: '[{\"what\":\"unlocked\",\"by\":\"ann\",\"at\":\"2026-01-01T00:00:00Z\",\"reason\":\"it hangs\",\
            \"about\":\"Workflow n/w\"},{\"what\":\"blockCleared\",\"by\":\"bob\",\"at\":\"2026-01-01T00:01:00Z\",\"reason\":\"mended\",\
            \"about\":\"mend\"}]'";
        let document = format!(
            "\nkind: Lease\nmetadata: {{name: pawl-lock-0, namespace: pawl-system, annotations: {{pawl.dev/target: n/deployment/web, {acts}}}}}"
        );
        let mut cluster = Cluster::of(&[LEASE, workflow::KIND, JOB], &document);
        cluster.now = "2026-01-01T00:02:00Z".parse().unwrap();
        let machine = AnyMachine::new(Reaper);
        let lease = cluster.world.list(&LEASE, None)[0].clone();
        let told = || machine.audit(&cluster.world, &lease, cluster.now).unwrap();
        let words: Vec<(String, String, String)> = told()
            .into_iter()
            .map(|entry| {
                (entry.actor.to_string(), entry.event, entry.payload["reason"].as_str().unwrap().to_owned())
            })
            .collect();
        let expected =
            [("user:ann", "target.unlocked", "it hangs"), ("user:bob", "target.block.cleared", "mended")];
        assert_eq!(words, expected.map(|(by, what, why)| (by.to_owned(), what.to_owned(), why.to_owned())));
        assert!(told().iter().all(|entry| entry.target == "n/deployment/web"));
        let ids = || told().iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(), ids());

        cluster.settle(std::slice::from_ref(&machine));
        assert_eq!(cluster.world.list(&LEASE, None).len(), 1);
        cluster.now = "2026-01-02T00:01:00Z".parse().unwrap();
        cluster.settle(&[machine]);
        assert!(cluster.world.list(&LEASE, None).is_empty(), "a Lease that says nothing more goes");
    }

    #[test]
    fn a_lock_wakes_nobody_here_while_its_unit_is_there_and_nothing_on_it_goes_with_time() {
        let woken = |documents: &[&str]| {
            let cluster = Cluster::of(&[LEASE, workflow::KIND, JOB], &documents.concat());
            let lease = cluster.world.list(&LEASE, None)[0].clone();
            !if_it_concerns_us(&lease, &cluster.world).is_empty()
        };
        let lock = lease("pawl-lock-0", "Workflow", "");
        assert!(!woken(&[&lock, WORKFLOW]));
        assert!(woken(&[&lock]), "its unit is not seen");
        let acts = ", pawl.dev/acts: '[{\"what\":\"unlocked\",\"by\":\"ann\",\"at\":\"2026-01-01T00:00:00Z\",\"reason\":\"r\",\"about\":\"a\"}]'";
        assert!(woken(&[&lease("pawl-lock-0", "Workflow", acts), WORKFLOW]), "somebody did something");
        assert!(!woken(&[&lease("node-1", "Workflow", "")]), "it is no lock");
        assert!(!woken(&[&lease("pawl-lock-0", "Stranger", "")]), "its unit is not ours to judge");
    }

    #[test]
    fn a_unit_that_is_gone_at_once_leads_to_its_locks() {
        let lock = lease("pawl-lock-0", "Workflow", "");
        let mut cluster = Cluster::of(&[LEASE, workflow::KIND, JOB], &[lock.as_str(), WORKFLOW].concat());
        let unit = cluster.world.list(&workflow::KIND, None)[0].clone();
        assert!(of_a_unit_that_goes(&unit, &cluster.world).is_empty());
        cluster.world.remove(&workflow::KIND, &unit.key());
        assert_eq!(of_a_unit_that_goes(&unit, &cluster.world).len(), 1);
    }

    #[test]
    fn what_is_no_lock_or_held_by_an_unknown_kind_is_left_alone() {
        check(&[&lease("node-1", "Workflow", "")], true);
        check(&[&lease("pawl-lock-0", "Stranger", "")], true);
    }
}
