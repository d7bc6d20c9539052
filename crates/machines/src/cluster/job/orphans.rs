//! Which Pods of Jobs are kept for a count that nobody will make any more?

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::pods::Seen;
use super::{JOB, POD};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Plan, Step};
use crate::view::{Input, View};

/// Lets go the Pods of Jobs that are gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrphanPods;

/// A Pod that is tracked, though no Job that it names seems to be there.
#[derive(Debug)]
pub struct Orphan {
    pod: Seen,
    job: Option<Reference>,
}

impl Machine for OrphanPods {
    type Kind = Pod;
    type Observed = Option<Orphan>;
    type Status = ();

    fn description(&self) -> Description {
        Description {
            name: "job-orphans",
            primary: Primary::One(POD),
            depth: Depth::Full,
            watches: vec![Watch::other(JOB, pods_of).metadata_only()],
            finalizer: None,
            phases: None,
            writes: vec![Write::main(POD, &["patch"])],
        }
    }

    fn observe(&self, input: &Input<'_>, _: &Arc<Pod>) -> Option<Orphan> {
        let pod = Seen::of(Arc::clone(input.me)).filter(Seen::is_tracked)?;
        let Some(owner) = input.me.controller().filter(|owner| owner.kind == JOB.kind) else {
            return Some(Orphan { pod, job: None });
        };
        let key = Key::new(input.me.namespace(), &owner.name);
        let there = input.view.get(&JOB, &key).is_some_and(|job| job.uid() == owner.uid);
        let job = Reference { kind: JOB, key, uid: owner.uid.clone() };
        (!there).then_some(Orphan { pod, job: Some(job) })
    }

    fn decide(&self, observed: &Option<Orphan>, _: Timestamp) -> Plan<()> {
        let Some(Orphan { pod, job }) = observed else { return Plan::rest() };
        let confirm = job.clone().map(Step::confirm_gone);
        Plan { steps: confirm.into_iter().chain([pod.release()]).collect(), ..Plan::rest() }
    }
}

fn pods_of(job: &Object, view: &dyn View) -> Vec<Key> {
    view.owned(&POD, job.uid()).iter().map(|pod| pod.key()).collect()
}
