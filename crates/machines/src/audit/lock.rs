//! What has happened to a target's lock that no unit tells of? What people did to it.

use pawl_api::meta::names;

use super::unit::Teller;
use super::{Actor, Entry};
use crate::lock::{self, acts};

pub(crate) fn lease(tell: &Teller<'_>) -> Vec<Entry> {
    let target = tell.me.annotation(lock::TARGET).unwrap_or_default();
    let entry = |act: acts::Act| {
        let occasion = names::hash(&[&act.at.0.to_string(), &act.by, &act.reason, &act.about], 16);
        Entry::new(tell.me, Actor::User(act.by), act.what.event(), &occasion, act.at.0)
            .target(target)
            .with("reason", act.reason)
            .with("about", act.about)
    };
    acts::of(tell.me).into_iter().map(entry).collect()
}
