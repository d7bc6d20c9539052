//! Which Pods of Jobs are kept for a count that nobody will make any more?

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::{JOB, POD};
use crate::cluster::owned_pod::OwnedPod;
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object, Reference};
use crate::plan::{Plan, Step};
use crate::view::{Context, View};

/// Lets go the Pods of Jobs that are gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrphanPods;

impl Machine for OrphanPods {
    type Kind = Pod;
    type Status = ();

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::other(JOB, pods_of).metadata_only()],
            writes: vec![Write::main(POD, &["patch"])],
            ..Description::new("job-orphans", POD)
        }
    }

    fn reconcile(&self, cx: &Context<'_, Pod>) -> Plan<()> {
        let Some(pod) = OwnedPod::of(Arc::clone(cx.object)).filter(OwnedPod::is_tracked) else {
            return Plan::rest();
        };
        let Some(owner) = cx.object.controller().filter(|owner| owner.kind == JOB.kind) else {
            return Plan::step(pod.release());
        };
        let key = Key::new(cx.object.namespace(), &owner.name);
        if cx.view.get(&JOB, &key).is_some_and(|job| job.uid() == owner.uid) {
            return Plan::rest();
        }
        let job = Reference { kind: JOB, key, uid: owner.uid.clone() };
        Plan::step(Step::confirm_gone(job)).then(pod.release())
    }
}

fn pods_of(job: &Object, view: &dyn View) -> Vec<Key> {
    view.owned(&POD, job.uid()).iter().map(|pod| pod.key()).collect()
}
