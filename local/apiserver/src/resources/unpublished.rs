//! Which definitions do the OpenAPI documents not tell of yet?
//!
//! A kube-apiserver serves a custom resource as soon as its definition is established, but tells of it in `/openapi/…`
//! only when the part that joins the documents next looks at those of the definitions, once a second. Clients live by
//! that: `kubectl explain` right after `kubectl apply` of a definition does not know the resource, and tools wait for
//! the document as a sign that a definition has settled. Ours would be there at once; who learned from it that nothing
//! need be waited for would fail on a cluster.
//!
//! Only what strangers create is held back: the server's own definitions are there before anybody can ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// How often a kube-apiserver looks at the documents of the definitions: the longest that one of them is late there.
const PUBLISHED_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// The definitions held back, and until when.
#[derive(Debug, Default)]
pub(crate) struct Unpublished {
    until: Mutex<BTreeMap<String, Timestamp>>,
    /// For how long, where it is not as long as usual.
    after: OnceLock<SignedDuration>,
}

impl Unpublished {
    /// Holds definitions back for longer or shorter than usual. Said twice, the first counts.
    pub(crate) fn hold_for(&self, after: SignedDuration) {
        // The first counts, as said.
        let _ = self.after.set(after);
    }

    /// Holds a definition back that was created now.
    pub(crate) fn hold(&self, definition: &str, now: Timestamp) {
        let after = *self.after.get().unwrap_or(&PUBLISHED_AFTER);
        let mut until = self.lock();
        // Those that have waited long enough make room: what is kept is what one second can create.
        until.retain(|_, at| *at > now);
        until.insert(definition.to_owned(), now.saturating_add(after).unwrap_or(now));
    }

    /// Those held back at a moment.
    pub(crate) fn at(&self, now: Timestamp) -> BTreeSet<String> {
        let until = self.lock();
        until.iter().filter(|(_, at)| **at > now).map(|(definition, _)| definition.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        // Nothing can panic while the lock is held.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_held_back_for_a_second_and_then_forgotten() {
        let unpublished = Unpublished::default();
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        unpublished.hold("a.example.com", at(0));
        unpublished.hold("b.example.com", at(600));
        assert_eq!(unpublished.at(at(999)).len(), 2);
        assert_eq!(unpublished.at(at(1_000)), BTreeSet::from(["b.example.com".to_owned()]));
        unpublished.hold("c.example.com", at(1_600));
        assert_eq!(unpublished.lock().len(), 1, "what is over takes no room");
    }
}
