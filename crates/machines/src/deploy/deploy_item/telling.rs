//! What does an item tell people: that it has come to a phase, and what of its configuration nobody reads.

use pawl_api::deploy::{DeployItemStatus, conditions, execution};
use pawl_api::meta::{NewCondition, Reason, condition};

use super::Facts;
use crate::deploy::config_keys;
use crate::object::{Key, Reference};
use crate::plan::Note;

/// That it has come to a phase. Of the items that do so at the same moment one Event tells, about their Execution.
pub(super) fn moved(facts: &Facts<'_>, reason: Reason, message: String) -> Note {
    let job = facts.cx.typed.status.as_ref().and_then(|status| status.job_id.clone()).unwrap_or_default();
    let note = Note::normal(reason, message).once(job);
    let parent = facts.cx.object.controller().filter(|owner| owner.kind == execution::KIND.kind);
    match parent {
        Some(owner) => note.together(Reference {
            kind: execution::KIND,
            key: Key::new(facts.cx.object.namespace(), &owner.name),
            uid: owner.uid.clone(),
        }),
        None => note,
    }
}

/// Says which keys of its configuration nobody reads.
pub(super) fn warns(facts: &Facts<'_>, status: &mut DeployItemStatus) -> Option<Note> {
    let unread = config_keys::unread(&facts.cx.typed.spec.type_, &facts.cx.typed.spec.config);
    if unread.is_empty() {
        condition::remove(&mut status.conditions, conditions::KEYS_IGNORED);
        return None;
    }
    let message = format!("not known, and passed over: {}", unread.join(", "));
    let new = NewCondition::yes(conditions::KEYS_IGNORED, Reason::KeysIgnored, &message);
    condition::set(&mut status.conditions, new, facts.cx.object.meta().generation, facts.cx.now);
    Some(Note::warning(Reason::KeysIgnored, message).once(status.job_id.clone().unwrap_or_default()))
}
