//! Which locks does an execution want, has it got them, and what do their Leases remember when it lets go?

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::Target;
use pawl_api::remedy::WorkflowExecution;
use pawl_api::remedy::annotations::MEMORY;
use pawl_api::remedy::workflow_execution::{self, ConflictingWorkflow};
use serde_json::Value;

use crate::lock::reaper::lives;
use crate::lock::{self, Claim, Holder, Kept, LEASE, Life, Lock, Marks};
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::remedy::memory::{Memory, Unreadable};
use crate::view::View;

/// What became of a holder, and of its run.
type Lives = (Life, Life);

/// What the caches show of an execution's locks.
#[derive(Debug)]
pub(super) struct Locks {
    /// Its own target first; none where what it asks for is malformed.
    targets: Vec<Target>,
    /// The Leases of those targets that are there, and what became of whoever else holds them.
    leases: BTreeMap<Key, (Arc<Object>, Option<Lives>)>,
    /// The Leases that name this execution, whatever its targets are by now.
    held: Vec<Arc<Object>>,
    own: Option<Key>,
    holders: BTreeMap<Key, ConflictingWorkflow>,
}

/// Whether an execution may act on its targets now.
pub(super) enum Turn {
    Yes,
    /// After these steps, if they all succeed.
    Take(Vec<Step>),
    /// Whoever holds them can do nothing more: these steps let go for it. Then look again.
    Reap(Vec<Step>),
    Busy(Box<Busy>),
}

/// Somebody else holds a target.
pub(super) struct Busy {
    pub(super) target: Target,
    pub(super) conflict: ConflictingWorkflow,
    /// For people.
    pub(super) holder: String,
    /// The Lease that says so.
    pub(super) lease: Option<Arc<Object>>,
    /// What was taken of the others, given back.
    pub(super) give_back: Vec<Step>,
}

impl Locks {
    pub(super) fn observe(view: &dyn View, system_namespace: &str, me: &Object, targets: &[Target]) -> Self {
        let keys = targets.iter().map(|target| lock::key(system_namespace, target));
        let mut leases = BTreeMap::new();
        let mut holders = BTreeMap::new();
        for key in keys {
            let Some(lease) = view.get(&LEASE, &key) else { continue };
            let mut judged = None;
            match lock::read(Some(&lease)) {
                Lock::Held(holder) if holder.unit.uid != me.uid() => {
                    judged = Some(lives(view, &holder));
                    holders.insert(key.clone(), conflict(view, &lease, &holder));
                }
                Lock::Held(_) | Lock::Free => {}
                Lock::Unreadable(identity) => {
                    let unknown = ConflictingWorkflow { name: identity, ..ConflictingWorkflow::default() };
                    holders.insert(key.clone(), unknown);
                }
            }
            leases.insert(key, (lease, judged));
        }
        Self {
            own: targets.first().map(|target| lock::key(system_namespace, target)),
            targets: targets.to_vec(),
            held: lock::held_by(view, me.uid()),
            leases,
            holders,
        }
    }

    /// The Lease of its own target.
    pub(super) fn own(&self) -> Option<&Arc<Object>> {
        self.leases.get(self.own.as_ref()?).map(|(lease, _)| lease)
    }

    pub(super) fn memory(&self) -> Result<Memory, Unreadable> {
        Memory::of(self.own().map(AsRef::as_ref))
    }

    pub(super) fn holds_some(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn turn(&self, system_namespace: &str, me: &Object, run: Reference, now: Timestamp) -> Turn {
        let holder = Holder { unit: me.reference(), run: Some(run) };
        let lease_of = |key: &Key| self.leases.get(key).map(|(lease, _)| Arc::clone(lease));
        match lock::claim(system_namespace, &self.targets, lease_of, &holder, &Marks::new(), now) {
            Claim::Have => Turn::Yes,
            Claim::Take(steps) => Turn::Take(steps),
            Claim::Busy { target, holder, give_back } => {
                let key = lock::key(system_namespace, &target);
                let found = self.leases.get(&key);
                let reaped = found
                    .and_then(|(lease, judged)| judged.and_then(|(unit, run)| lock::reap(lease, unit, run)));
                if let Some(steps) = reaped {
                    return Turn::Reap(steps);
                }
                let conflict = self.holders.get(&key).cloned().unwrap_or_default();
                let lease = found.map(|(lease, _)| Arc::clone(lease));
                Turn::Busy(Box::new(Busy { target, conflict, holder, lease, give_back }))
            }
        }
    }

    /// Lets go of everything it holds. What its own target must remember is written in the same request.
    pub(super) fn release(&self, memory: Option<&Memory>) -> Vec<Step> {
        let kept = memory.map(remembered).unwrap_or_default();
        let free = |lease: &Arc<Object>| match &self.own {
            Some(own) if *own == lease.key() => lock::free_keeping(lease, &kept),
            Some(_) | None => lock::free(lease),
        };
        self.held.iter().map(free).collect()
    }

    /// Writes down what the target must remember, and keeps the lock.
    pub(super) fn remember(&self, memory: &Memory) -> Option<Step> {
        let own = self.held.iter().find(|lease| Some(lease.key()) == self.own)?;
        Some(lock::keep(own, &remembered(memory)))
    }
}

fn remembered(memory: &Memory) -> Kept {
    [(MEMORY, memory.written())].into()
}

fn conflict(view: &dyn View, lease: &Object, holder: &Holder) -> ConflictingWorkflow {
    let unit = &holder.unit;
    let workflow_id = (unit.kind == workflow_execution::KIND)
        .then(|| view.get(&unit.kind, &unit.key)?.parse::<WorkflowExecution>().ok())
        .flatten()
        .map(|other| other.spec.workflow_ref.workflow_id.clone());
    let since = lease.raw().pointer("/spec/acquireTime").and_then(Value::as_str);
    ConflictingWorkflow {
        kind: unit.kind.kind.clone().into_owned(),
        namespace: unit.key.namespace.clone().unwrap_or_default(),
        name: unit.key.name.clone(),
        workflow_id,
        started_at: since.and_then(|since| since.parse().ok()).map(Time),
    }
}
