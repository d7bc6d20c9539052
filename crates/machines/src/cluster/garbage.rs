//! Which objects go because of what became of their owners?
//!
//! ```text
//!                    some owner stays   ─▶ references to the others are taken off
//! owners of an object ┤ all are absent  ─▶ deleted (each absence confirmed on the server: a cache is no proof)
//!                    one waits for us   ─▶ deleted (in the foreground if it has dependents of its own)
//!
//! being deleted with  foregroundDeletion ─▶ the finalizer goes when no dependent blocks any more
//!                     orphan             ─▶ dependents lose their reference, then the finalizer goes
//! ```
//! The same rules as Kubernetes' garbage collector, decided for one object at a time.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::machine::{Depth, Description, EVERY, Machine, Primary, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Note, Plan, Propagation, Step};
use crate::view::{Context, View};

/// Keeps an owner until those of its dependents that block its deletion are gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Keeps an owner until its dependents no longer name it.
pub const ORPHAN: &str = "orphan";

/// Deletes what nothing owns any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Garbage;

/// Any object: garbage collection looks at metadata alone.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Anything {}

/// What an owner reference points at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// It is there, and not waiting for its dependents to go.
    Solid,
    /// It is being deleted in the foreground.
    Waiting,
    /// Not where the reference says. `elsewhere`: it lives in another namespace, where it cannot own this object.
    Absent { reference: Reference, elsewhere: bool },
    /// No served kind is meant: whether it exists cannot be told.
    Unresolvable,
    /// A cluster-scoped object cannot be owned from a namespace.
    Impossible,
}

impl Machine for Garbage {
    type Kind = Anything;
    type Status = ();

    fn description(&self) -> Description {
        Description {
            name: "garbage",
            primary: Primary::Every,
            depth: Depth::Metadata,
            watches: vec![],
            finalizer: None,
            phases: None,
            writes: vec![Write::main(EVERY, &["delete", "patch"])],
        }
    }

    fn reconcile(&self, cx: &Context<'_, Anything>) -> Plan<()> {
        let me = cx.object;
        // Events are many, own nothing and expire by themselves.
        if me.kind().kind == "Event" {
            return Plan::rest();
        }
        if me.is_deleting() && me.has_finalizer(ORPHAN) {
            return orphan(cx);
        }
        if me.is_deleting() && me.has_finalizer(FOREGROUND) {
            return await_dependents(cx);
        }
        if me.is_deleting() || me.owners().is_empty() {
            return Plan::rest();
        }
        judge(cx)
    }
}

/// The objects that name this one as an owner.
fn dependents(cx: &Context<'_, Anything>) -> Vec<Arc<Object>> {
    let mut dependents = cx.view.dependents(cx.object.uid());
    dependents.retain(|dependent| may_own(cx.object, dependent));
    dependents
}

/// Where a reference points, as far as the caches know.
fn look_up(view: &dyn View, me: &Object, owner: &OwnerReference) -> Owner {
    let Some(kind) = view.resolve(&owner.api_version, &owner.kind) else {
        return Owner::Unresolvable;
    };
    if kind.namespaced && me.namespace().is_none() {
        return Owner::Impossible;
    }
    let key = Key::new(me.namespace().filter(|_| kind.namespaced), &owner.name);
    match view.get(&kind, &key).filter(|found| found.uid() == owner.uid) {
        Some(found) if found.is_deleting() && found.has_finalizer(FOREGROUND) => Owner::Waiting,
        Some(_) => Owner::Solid,
        None => {
            let elsewhere = kind.namespaced && view.by_uid(&kind, &owner.uid).is_some();
            Owner::Absent { reference: Reference { kind, key, uid: owner.uid.clone() }, elsewhere }
        }
    }
}

/// Owners are cluster-scoped or in the same namespace.
fn may_own(owner: &Object, dependent: &Object) -> bool {
    owner.namespace().is_none() || owner.namespace() == dependent.namespace()
}

fn orphan(cx: &Context<'_, Anything>) -> Plan<()> {
    let me = cx.object;
    let dependents = dependents(cx);
    let strip =
        |dependent: &Arc<Object>| keep_owners(dependent, |owner| owner.uid != me.uid(), |owner| json!(owner));
    let steps = dependents.iter().map(strip);
    let release = Step::remove_finalizer(ORPHAN);
    Plan { steps: steps.chain([release]).collect(), ..Plan::rest() }
}

fn await_dependents(cx: &Context<'_, Anything>) -> Plan<()> {
    let blocks = |dependent: &Arc<Object>| {
        let blocking =
            |owner: &OwnerReference| owner.uid == cx.object.uid() && owner.block_owner_deletion == Some(true);
        dependent.owners().iter().any(blocking)
    };
    if dependents(cx).iter().any(blocks) {
        return Plan::rest();
    }
    Plan::step(Step::remove_finalizer(FOREGROUND))
}

fn judge(cx: &Context<'_, Anything>) -> Plan<()> {
    let me = cx.object;
    let owners: Vec<_> = me.owners().iter().map(|owner| (owner, look_up(cx.view, me, owner))).collect();
    let mut plan = Plan::rest();
    let (mut solid, mut waits, mut absent) = (false, false, Vec::new());
    for (reference, owner) in &owners {
        match owner {
            Owner::Solid => solid = true,
            Owner::Waiting => waits = true,
            Owner::Absent { reference: gone, elsewhere } => {
                absent.push(gone.clone());
                if *elsewhere {
                    plan = plan.note(invalid_namespace(me, reference));
                }
            }
            // Kubernetes leaves such an object alone and says so.
            Owner::Impossible => return plan.note(invalid_namespace(me, reference)),
            Owner::Unresolvable => return plan,
        }
    }
    if solid {
        if waits || !absent.is_empty() {
            plan.steps.extend(absent.into_iter().map(Step::confirm_gone));
            let stays = |owner: &OwnerReference| {
                owners.iter().any(|(reference, found)| reference.uid == owner.uid && *found == Owner::Solid)
            };
            plan.steps.push(keep_owners(me, stays, |owner| json!(owner)));
        }
        return plan;
    }
    let dependents = if waits { dependents(cx) } else { Vec::new() };
    if waits && !dependents.is_empty() {
        // In a circle everybody would wait for everybody: this object no longer blocks its owners.
        let circle =
            dependents.iter().any(|dependent| dependent.is_deleting() && dependent.has_finalizer(FOREGROUND));
        if circle {
            plan.steps.push(keep_owners(me, |_| true, unblocked));
        }
        // The write before this one makes another version.
        let delete = if circle { Step::delete(me) } else { Step::delete_unchanged(me) };
        return delete_if_gone(plan, absent, delete.foreground());
    }
    // Only while it has the owners that were judged: the version says so.
    let delete = Step::delete_unchanged(me);
    let delete = if me.has_finalizer(ORPHAN) {
        delete.propagating(Propagation::Orphan)
    } else if me.has_finalizer(FOREGROUND) {
        delete.foreground()
    } else {
        delete
    };
    delete_if_gone(plan, absent, delete)
}

fn delete_if_gone(mut plan: Plan<()>, absent: Vec<Reference>, delete: Step) -> Plan<()> {
    plan.steps.extend(absent.into_iter().rev().map(Step::confirm_gone));
    plan.then(delete)
}

/// Rewrites the owner references of exactly the version that was observed.
fn keep_owners(
    object: &Object,
    keep: impl Fn(&OwnerReference) -> bool,
    write: impl Fn(&OwnerReference) -> Value,
) -> Step {
    let owners: Vec<Value> = object.owners().iter().filter(|owner| keep(owner)).map(write).collect();
    let owners = if owners.is_empty() { Value::Null } else { owners.into() };
    Step::patch_unchanged(object, json!({"metadata": {"ownerReferences": owners}}))
}

fn unblocked(owner: &OwnerReference) -> Value {
    json!(OwnerReference { block_owner_deletion: Some(false), ..owner.clone() })
}

fn invalid_namespace(me: &Object, owner: &OwnerReference) -> Note {
    let OwnerReference { api_version, kind, name, uid, .. } = owner;
    let namespace = me.namespace().unwrap_or_default();
    let message = format!(
        "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in namespace {namespace:?}"
    );
    Note::warning("OwnerRefInvalidNamespace", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::plan::Precondition;
    use crate::testing::{CONFIG_MAP, Cluster, NODE};
    use crate::view::Input;
    use jiff::Timestamp;

    fn cluster(yaml: &str) -> Cluster {
        Cluster::of(&[CONFIG_MAP, NODE], yaml)
    }

    /// `name<owner,owner!`: an owner with `!` is blocked by it. `~` deletes in the foreground, `?` orphans.
    fn family(line: &str) -> String {
        line.split_whitespace()
            .map(|member| {
                let (name, owners) = member.split_once('<').unwrap_or((member, ""));
                let (name, deletion) = match name.strip_suffix(['~', '?']) {
                    Some(bare) if name.ends_with('~') => (bare, FOREGROUND),
                    Some(bare) => (bare, ORPHAN),
                    None => (name, ""),
                };
                let owners: Vec<Value> = owners
                    .split(',')
                    .filter(|owner| !owner.is_empty())
                    .map(|owner| {
                        let bare = owner.trim_end_matches('!');
                        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": bare,
                            "uid": format!("configmap-{bare}"), "blockOwnerDeletion": owner.ends_with('!')})
                    })
                    .collect();
                let mut metadata = json!({"name": name, "ownerReferences": owners});
                if !deletion.is_empty() {
                    metadata["deletionTimestamp"] = crate::testing::START.into();
                    metadata["finalizers"] = json!([deletion]);
                }
                format!("---\n{}\n", json!({"kind": "ConfigMap", "metadata": metadata}))
            })
            .collect()
    }

    fn left(cluster: &Cluster) -> String {
        let objects = cluster.world.list(&CONFIG_MAP, None);
        let shown = objects.iter().map(|object| {
            let owners: Vec<_> = object.owners().iter().map(|owner| owner.name.as_str()).collect();
            if owners.is_empty() {
                object.name().to_owned()
            } else {
                format!("{}<{}", object.name(), owners.join(","))
            }
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    /// Lets the collector work on a family and says who is left, with whom as owners.
    fn check(given: &str, expect: &str) {
        let mut cluster = cluster(&family(given));
        cluster.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&cluster), expect, "given {given}");
    }

    #[test]
    fn what_nobody_owns_stays_and_what_lost_all_owners_goes_with_all_below() {
        check("a b<a c<b", "a b<a c<b");
        check("b<a c<b d", "d");
        check("b<gone,missing", "");
    }

    #[test]
    fn one_owner_that_stays_keeps_it_and_the_others_are_forgotten() {
        check("a b<a,gone", "a b<a");
        check("a w~ b<a,w! c<w!", "a b<a");
    }

    #[test]
    fn foreground_deletion_waits_for_those_that_block_and_only_for_them() {
        check("a~ b<a! c<b!", "");
        check("a~ b<a", "");
        let mut cluster = cluster(&family("a~ b<a!"));
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        cluster.edit(&CONFIG_MAP, &Key::new(Some("n"), "b"), &hold);
        cluster.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&cluster), "a b<a", "b is held, so a waits");
        cluster.edit(&CONFIG_MAP, &Key::new(Some("n"), "b"), &json!({"metadata": {"finalizers": null}}));
        cluster.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&cluster), "");
    }

    #[test]
    fn orphans_stay_without_their_reference() {
        check("a? b<a c<b", "b c<b");
        check("z a? b<a,z", "b<z z");
    }

    #[test]
    fn a_circle_does_not_wait_for_itself() {
        check("a~<b! b<a!", "");
        check("a~<c! b<a! c<b!", "");
        check("a<b b<a", "a<b b<a");
    }

    #[test]
    fn an_owner_that_the_cache_has_not_seen_yet_is_confirmed_before_anything_is_deleted() {
        let real = cluster(&family("a b<a,gone"));
        let mut stale = crate::cache::World::default();
        stale.put(real.world.get(&CONFIG_MAP, &Key::new(Some("n"), "b")).unwrap());
        let me = stale.get(&CONFIG_MAP, &Key::new(Some("n"), "b")).unwrap();
        let input = Input { view: &stale, me: &me, refusals: &[], answers: &Arc::default() };
        let plan = AnyMachine::new(Garbage).plan(&input, Timestamp::UNIX_EPOCH).unwrap();
        let [
            Step::Confirm(Precondition::Gone(gone)),
            Step::Confirm(Precondition::Gone(unseen)),
            Step::Delete { resource_version, .. },
        ] = plan.steps.as_slice()
        else {
            panic!("{:?}", plan.steps)
        };
        assert_eq!((gone.key.name.as_str(), unseen.key.name.as_str()), ("gone", "a"));
        assert_eq!(resource_version.as_deref(), Some(me.resource_version()));
    }

    #[test]
    fn a_namesake_that_came_later_is_not_the_owner() {
        let mut cluster = cluster(&family("a b<a"));
        cluster.remove(&CONFIG_MAP, &Key::new(Some("n"), "a"));
        cluster.put(json!({"kind": "ConfigMap", "metadata": {"name": "a", "uid": "another"}}));
        cluster.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&cluster), "a");
    }

    #[test]
    fn an_owner_in_another_namespace_is_absent_and_that_is_said() {
        let yaml = family("a b<a").replace(r#""name":"a""#, r#""name":"a","namespace":"other""#);
        let mut cluster =
            cluster(&yaml.replacen(r#""name":"a","namespace":"other","uid""#, r#""name":"a","uid""#, 1));
        cluster.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&cluster), "a");
        assert_eq!(cluster.events.len(), 1, "{:?}", cluster.events);
        let (severity, reason, note) = &cluster.events[0];
        assert_eq!((severity.as_str(), reason.as_str()), ("Warning", "OwnerRefInvalidNamespace"));
        assert_eq!(
            note,
            "ownerRef [v1/ConfigMap, namespace: n, name: a, uid: configmap-a] does not exist in namespace \"n\""
        );
    }

    #[test]
    fn a_cluster_scoped_owner_may_own_anywhere_and_never_the_other_way_round() {
        let owned = |kind: &str, name: &str, owner_kind: &str, owner: &str| {
            let uid = format!("{}-{owner}", owner_kind.to_lowercase());
            json!({"kind": kind, "metadata": {"name": name, "ownerReferences":
                [{"apiVersion": "v1", "kind": owner_kind, "name": owner, "uid": uid}]}})
        };
        let node = json!({"kind": "Node", "metadata": {"name": "w"}});
        let child = owned("ConfigMap", "c", "Node", "w");
        let wrong = owned("Node", "x", "ConfigMap", "c");
        let mut cluster = cluster(&format!("---\n{node}\n---\n{child}\n---\n{wrong}\n"));
        cluster.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&cluster), "c<w");
        assert!(cluster.get(&NODE, &Key::new(None, "x")).is_some());
        assert_eq!(cluster.events[0].1, "OwnerRefInvalidNamespace");
    }

    #[test]
    fn a_reference_of_an_older_version_means_the_same_kind_and_an_unknown_kind_decides_nothing() {
        let mut old =
            cluster(&family("a b<a").replace("\"apiVersion\":\"v1\"", "\"apiVersion\":\"v1beta1\""));
        old.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&old), "a b<a");
        let yaml = family("b<a").replace("\"apiVersion\":\"v1\"", "\"apiVersion\":\"example.com/v1\"");
        let mut unknown = cluster(&yaml);
        unknown.settle(&[AnyMachine::new(Garbage)]);
        assert_eq!(left(&unknown), "b<a");
    }
}
