//! What does an item tell people: that it has come to a phase, and what of its configuration nobody reads.

use jiff::Timestamp;
use pawl_api::deploy::{DeployItemStatus, conditions, execution};
use pawl_api::meta::{NewCondition, Reason, condition};

use super::Observed;
use crate::deploy::config_keys;
use crate::object::{Key, Reference};
use crate::plan::Note;

/// That it has come to a phase. Of the items that do so at the same moment one Event tells, about their Execution.
pub(super) fn moved(observed: &Observed, reason: Reason, message: String) -> Note {
    let job = observed.item.status.as_ref().and_then(|status| status.job_id.clone()).unwrap_or_default();
    let note = Note::normal(reason, message).once(job);
    let parent = observed.me.controller().filter(|owner| owner.kind == execution::KIND.kind);
    match parent {
        Some(owner) => note.together(Reference {
            kind: execution::KIND,
            key: Key::new(observed.me.namespace(), &owner.name),
            uid: owner.uid.clone(),
        }),
        None => note,
    }
}

/// Says which keys of its configuration nobody reads.
pub(super) fn warns(observed: &Observed, status: &mut DeployItemStatus, now: Timestamp) -> Option<Note> {
    let unread = config_keys::unread(&observed.item.spec.type_, &observed.item.spec.config);
    if unread.is_empty() {
        condition::remove(&mut status.conditions, conditions::KEYS_IGNORED);
        return None;
    }
    let message = format!("not known, and passed over: {}", unread.join(", "));
    let new = NewCondition::yes(conditions::KEYS_IGNORED, Reason::KeysIgnored, &message);
    condition::set(&mut status.conditions, new, observed.me.meta().generation, now);
    Some(Note::warning(Reason::KeysIgnored, message).once(status.job_id.clone().unwrap_or_default()))
}
