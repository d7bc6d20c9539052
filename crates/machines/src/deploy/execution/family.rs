//! Which DeployItems does an Execution control, and how does each stand in its job?
//!
//! An Execution may have ten thousand of them, and is reconciled after every few that finish. So [`Families`] keeps what the
//! last reconcile read: the list, and of each object what every reconcile asks. The next one goes over the objects that are
//! there now; one that is the very version that was read before is not read again.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use pawl_api::deploy::{DeployItem, DeployItemPhase, Execution, deploy_item, target};

use crate::deploy::graph::Standing;
use crate::deploy::item_job;
use crate::deploy::items::{self, Invalid, Items};
use crate::deploy::job::Jobs;
use crate::object::{Key, Object};
use crate::view::{Context, View};

/// The items of an Execution: as its spec lists them, and as they are there.
#[derive(Debug)]
pub(super) struct Family {
    /// What the list was read from.
    execution: Arc<Execution>,
    /// The job in which the objects stand as they do.
    job: String,
    pub(super) items: Result<Items, Invalid>,
    /// In the order of their names.
    pub(super) owned: Vec<Owned>,
}

/// A DeployItem of the Execution. What every look asks is here and not behind a pointer.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) object: Arc<Object>,
    /// Its place in the list.
    pub(super) number: Option<usize>,
    pub(super) deleting: bool,
    /// `None` where it does not have the shape of its kind.
    pub(super) stands: Option<Standing>,
    /// Nobody has picked it up, and the Target it names is not there.
    pub(super) target_missing: bool,
    waits_for_target: bool,
    /// False for one that was not there, or not like this, in the last look.
    read: bool,
}

/// How many families are kept: as many large Executions as anybody runs at the same time. The one that was reconciled least
/// recently goes first.
const MAX_FAMILIES: usize = 16;

/// Families smaller than this are read anew each time: that is cheap.
const WORTH_KEEPING: usize = 100;

/// Cache of the children that the last reconciles of large Executions read. It saves work and decides nothing: it may be lost between
/// any two reconciles, and a decision is the same without it.
#[derive(Debug, Default)]
#[expect(
    clippy::disallowed_types,
    reason = "what is kept here changes how long a decision takes, and never what it is"
)]
pub struct Families(std::sync::Mutex<VecDeque<Family>>);

impl Families {
    /// The family of an Execution; empty while no job runs, when nobody asks.
    pub(super) fn read(&self, cx: &Context<'_, Execution>) -> Family {
        let kept = self.take(cx.object.uid());
        let status = cx.typed.status.as_ref();
        let jobs = status.map(|status| Jobs::of(&status.job_id, &status.job_id_finished));
        let Some(job) = jobs.and_then(Jobs::running) else { return Family::none(cx.typed) };
        Family::of(kept, cx.view, cx.typed, job)
    }

    fn take(&self, uid: &str) -> Option<Family> {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = families.iter().position(|kept| kept.execution.metadata.uid.as_deref() == Some(uid))?;
        families.remove(at)
    }

    /// Keeps a family for the next reconcile of the same Execution.
    pub(super) fn keep(&self, family: Family) {
        if family.owned.len() < WORTH_KEEPING {
            return;
        }
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        families.push_back(family);
        if families.len() > MAX_FAMILIES {
            families.pop_front();
        }
    }
}

impl Family {
    fn none(execution: &Arc<Execution>) -> Self {
        Self {
            execution: Arc::clone(execution),
            job: String::new(),
            items: Ok(Items::default()),
            owned: vec![],
        }
    }

    fn of(kept: Option<Self>, view: &dyn View, execution: &Arc<Execution>, job: &str) -> Self {
        let (items, before) = match kept.filter(|kept| lists_the_same(&kept.execution, execution)) {
            Some(kept) if kept.job == job => (kept.items, kept.owned),
            Some(kept) => (kept.items, Vec::new()),
            None => (items::read(execution), Vec::new()),
        };
        let uid = execution.metadata.uid.as_deref().unwrap_or_default();
        let mut owned = follow(before, view, uid);
        for owned in owned.iter_mut().filter(|owned| !owned.read) {
            owned.look_into(items.as_ref().ok(), job);
        }
        for owned in owned.iter_mut().filter(|owned| owned.waits_for_target) {
            owned.target_missing = owned.target().is_some_and(|key| view.get(&target::KIND, &key).is_none());
        }
        Self { execution: Arc::clone(execution), job: job.to_owned(), items, owned }
    }
}

/// Whether what was read of one is what would be read of the other.
fn lists_the_same(one: &Execution, other: &Execution) -> bool {
    let of =
        |it: &Execution| (it.metadata.uid.clone(), it.metadata.name.clone(), it.metadata.namespace.clone());
    of(one) == of(other)
        && one.spec.deploy_items_compressed == other.spec.deploy_items_compressed
        && one.spec.deploy_items == other.spec.deploy_items
}

/// The objects that are there now; those that were there before, in the same version, as they were found then.
fn follow(before: Vec<Owned>, view: &dyn View, uid: &str) -> Vec<Owned> {
    let mut owned = Vec::with_capacity(before.len());
    let mut before = before.into_iter().peekable();
    view.visit_owned(&deploy_item::KIND, uid, &mut |object| {
        let is_it = |held: &Owned| is_same(&held.object, object);
        // Both are in order: what does not come after this one is gone, or was replaced by it.
        while before.next_if(|held| !is_it(held) && place(&held.object) <= place(object)).is_some() {}
        match before.next_if(is_it) {
            Some(held) if Arc::ptr_eq(&held.object, object) => owned.push(held),
            Some(held) => owned.push(Owned { object: Arc::clone(object), ..held }),
            None => owned.push(Owned::unread(Arc::clone(object))),
        }
    });
    owned.retain(|owned| owned.read || owned.object.controller().is_some_and(|owner| owner.uid == uid));
    owned
}

/// Whether one is the version that the other is. Mostly it is the other, and then neither is looked into.
fn is_same(one: &Arc<Object>, other: &Arc<Object>) -> bool {
    Arc::ptr_eq(one, other)
        || (one.resource_version() == other.resource_version()
            && one.uid() == other.uid()
            && place(one) == place(other))
}

fn place(object: &Object) -> (Option<&str>, &str) {
    (object.namespace(), object.name())
}

impl Owned {
    fn unread(object: Arc<Object>) -> Self {
        Self {
            deleting: object.is_deleting(),
            object,
            number: None,
            stands: None,
            target_missing: false,
            waits_for_target: false,
            read: false,
        }
    }

    fn look_into(&mut self, items: Option<&Items>, job: &str) {
        let item = self.item();
        self.number = items.and_then(|items| items.number(self.object.name()));
        self.stands = item.as_ref().map(|item| in_job(item, job));
        let status = item.as_ref().and_then(|item| item.status.as_ref());
        let picked_up = status.is_some_and(|status| status.last_reconcile_time.is_some());
        self.waits_for_target = self.stands == Some(Standing::Running) && !picked_up;
        self.read = true;
    }

    /// The item as it says it is: asked for where something is to be done about it, and not kept.
    pub(super) fn item(&self) -> Option<Arc<DeployItem>> {
        self.object.parse::<DeployItem>().ok()
    }

    /// The Target it names.
    fn target(&self) -> Option<Key> {
        let item = self.item()?;
        Some(Key::new(self.object.namespace(), &item.spec.target.as_ref()?.name))
    }
}

fn in_job(item: &DeployItem, job: &str) -> Standing {
    let Some(status) = &item.status else { return Standing::Waiting };
    match (item_job::running(Some(status)), status.phase) {
        (Some(_), _) => Standing::Running,
        (None, _) if status.job_id.as_deref() != Some(job) => Standing::Waiting,
        (None, Some(DeployItemPhase::Succeeded)) => Standing::Done,
        (None, _) => Standing::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use pawl_api::deploy::execution;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const ITEMS: usize = 6;

    fn execution(job: &str, length: usize) -> Value {
        let list: Vec<Value> = (0..length).map(|at| json!({"name": format!("i{at}"), "type": "t"})).collect();
        json!({"apiVersion": execution::KIND.api_version(), "kind": "Execution", "metadata": {"name": "e", "uid": "e"},
            "spec": {"deployItems": list}, "status": {"jobID": job}})
    }

    fn item(at: usize, controlled: bool, status: &Value) -> Value {
        let name = deploy_item::name("e", "e", &format!("i{at}"));
        json!({"kind": "DeployItem", "metadata": {"name": name, "uid": format!("i{at}"),
            "ownerReferences": [{"apiVersion": execution::KIND.api_version(), "kind": "Execution", "name": "e", "uid": "e",
                "controller": controlled}]},
            "spec": {"type": "t", "target": {"name": "t"}}, "status": status})
    }

    fn malformed(mut item: Value) -> Value {
        item["spec"] = json!(7);
        item
    }

    /// All that a look sees of a family.
    fn told(family: &Family) -> Vec<String> {
        let Family { items, owned, job, execution: _ } = family;
        let own = |one: &Owned| {
            let Owned { object, number, deleting, stands, target_missing, waits_for_target, read } = one;
            let version = (object.name(), object.resource_version());
            format!("{version:?} {number:?} {deleting} {stands:?} {target_missing} {waits_for_target} {read}")
        };
        let list = items.as_ref().map(|items| items.list.len());
        owned.iter().map(own).chain([format!("{list:?} {job}")]).collect()
    }

    proptest! {
        #[test]
        fn what_was_kept_changes_nothing_but_the_work(
            acts in prop::collection::vec((0..9_u8, 0..ITEMS, 0..4_u8), 1..40),
        ) {
            let mut cluster = Cluster::of(&[execution::KIND, deploy_item::KIND, target::KIND], "");
            let (mut job, mut length) = ("one", ITEMS);
            cluster.put(execution(job, length));
            let mut kept = None;
            for (act, at, how) in acts {
                let status = match how {
                    0 => json!({}),
                    1 => json!({"jobID": job}),
                    2 => json!({"jobID": job, "jobIDFinished": job, "phase": "Succeeded"}),
                    _ => json!({"jobID": job, "jobIDFinished": job, "phase": "Failed"}),
                };
                match act {
                    0 => job = if job == "one" { "two" } else { "one" },
                    1 => length = 1 + at,
                    2 => cluster.put(json!({"kind": "Target", "metadata": {"name": "t"}, "spec": {"type": "x"}})),
                    3 => drop(cluster.world.remove(&target::KIND, &Key::new(Some("n"), "t"))),
                    4 => {
                        let name = deploy_item::name("e", "e", &format!("i{at}"));
                        cluster.world.remove(&deploy_item::KIND, &Key::new(Some("n"), &name));
                    }
                    5 => cluster.put(item(at, false, &status)),
                    6 => cluster.cache_only(malformed(item(at, true, &status))),
                    _ => cluster.put(item(at, true, &status)),
                }
                cluster.put(execution(job, length));
                let me = cluster.world.get(&execution::KIND, &Key::new(Some("n"), "e")).unwrap();
                let me = me.parse::<Execution>().unwrap();
                let anew = Family::of(None, &cluster.world, &me, job);
                let followed = Family::of(kept.take(), &cluster.world, &me, job);
                prop_assert_eq!(told(&followed), told(&anew));
                kept = Some(followed);
            }
        }
    }

    fn family_of(uid: &str, items: usize) -> Family {
        let mut execution = execution("one", 1);
        execution["metadata"]["uid"] = uid.into();
        let execution = Object::new(execution::KIND, execution).unwrap().parse::<Execution>().unwrap();
        let object = Object::new(deploy_item::KIND, item(0, true, &json!({}))).unwrap();
        let owned = (0..items).map(|_| Owned::unread(Arc::clone(&object))).collect();
        Family { owned, ..Family::none(&execution) }
    }

    #[test]
    fn large_families_are_kept_each_for_its_execution_and_only_so_many() {
        let families = Families::default();
        families.keep(family_of("small", WORTH_KEEPING - 1));
        (0..=MAX_FAMILIES).for_each(|at| families.keep(family_of(&format!("e{at}"), WORTH_KEEPING + at)));
        let kept = |uid: &str| families.take(uid).map(|family| family.owned.len());
        assert_eq!(kept("small"), None, "it is read anew");
        assert_eq!(kept("e0"), None, "the oldest made room");
        assert_eq!(kept("e1"), Some(WORTH_KEEPING + 1));
        assert_eq!(kept("e1"), None, "it was taken");
        assert_eq!(kept(&format!("e{MAX_FAMILIES}")), Some(WORTH_KEEPING + MAX_FAMILIES));
    }

    #[test]
    fn one_that_did_not_change_is_not_looked_into_again() {
        let mut cluster = Cluster::of(&[execution::KIND, deploy_item::KIND, target::KIND], "");
        cluster.put(execution("one", ITEMS));
        (0..ITEMS).for_each(|at| cluster.put(item(at, true, &json!({"jobID": "one"}))));
        let me = cluster.world.get(&execution::KIND, &Key::new(Some("n"), "e")).unwrap();
        let me = me.parse::<Execution>().unwrap();
        let mut family = Family::of(None, &cluster.world, &me, "one");
        // A mark that looking into it would wipe away.
        family.owned.iter_mut().for_each(|owned| owned.stands = Some(Standing::Failed));
        // The cache may have read one of them anew.
        let key = family.owned[0].object.key();
        let raw = cluster.get(&deploy_item::KIND, &key).unwrap();
        cluster.world.put(Object::new(deploy_item::KIND, raw).unwrap());
        cluster.put(item(2, true, &json!({"jobID": "one", "jobIDFinished": "one", "phase": "Succeeded"})));
        let family = Family::of(Some(family), &cluster.world, &me, "one");
        let done = family.owned.iter().filter(|owned| owned.stands == Some(Standing::Done)).count();
        let untouched = family.owned.iter().filter(|owned| owned.stands == Some(Standing::Failed)).count();
        assert_eq!((done, untouched), (1, ITEMS - 1));
    }
}
