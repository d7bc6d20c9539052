//! Whether the caches have seen what was written: no decision runs on a cache older than its own last write.
//!
//! Without this a machine that created a child would, asked again at once, not see it and act a second time. Names and
//! preconditions would stop the harm (I1), but not the noise, nor a decision that counts.
//!
//! ```text
//!  written ──▶ wait for the watch ──(CATCH_UP)──▶ ask for a list ──(LIST)──▶ behind: retried with back-off,
//!                  │ seen                            │ listed                and still not decided upon
//!                  ▼                                 ▼
//!               decide                            decide
//! ```

use std::time::Duration;

use pawl_machines::apply::Written;
use pawl_machines::object::Object;
use tokio::time::Instant;

use crate::caches::Caches;

/// A healthy watch is milliseconds behind; one that is silent for this long has probably lost something.
pub const CATCH_UP: Duration = Duration::from_secs(10);

/// How long a list asked for may take to come: one request's time-out, and its turn.
pub const LIST: Duration = Duration::from_secs(60);

/// Waits until the caches have seen all of these.
///
/// # Errors
/// With the first write that could not be seen even by listing again.
pub async fn caught_up(caches: &Caches, writes: &[Written]) -> Result<(), Written> {
    let deadline = Instant::now() + CATCH_UP;
    for written in writes {
        let seen = caches.until_seen(written);
        if tokio::time::timeout_at(deadline, seen).await.is_ok() {
            continue;
        }
        tracing::warn!(kind = %written.kind, key = %written.key, resource_version = %written.resource_version,
            "the watch has not shown a write of ours: asking for a list");
        let tickets = caches.ask_to_list(&written.kind);
        let listed = caches
            .until(&written.kind, || caches.has_listed(&written.kind, &tickets) || caches.has_seen(written));
        if tokio::time::timeout(LIST, listed).await.is_err() {
            return Err(written.clone());
        }
    }
    Ok(())
}

/// Whether a cache that holds `known` and has seen everything up to `seen` shows a write.
pub fn shows(known: Option<&Object>, seen: &str, written: &Written) -> bool {
    let Written { uid, resource_version, deleted, .. } = written;
    match known {
        // A namesake that came later: ours is over.
        Some(known)
            if !uid.is_empty() && known.uid() != uid && past(known.resource_version(), resource_version) =>
        {
            true
        }
        Some(known) if *deleted => {
            known.is_deleting() && at_least(known.resource_version(), resource_version)
                || !uid.is_empty() && known.uid() != uid
        }
        Some(known) => {
            (uid.is_empty() || known.uid() == uid) && at_least(known.resource_version(), resource_version)
        }
        None if *deleted => true,
        // Made, and deleted again by somebody, if the watch has come past it.
        None => number(seen).zip(number(resource_version)).is_some_and(|(seen, wanted)| seen >= wanted),
    }
}

/// Whether one resourceVersion is another or later. They are numbers on every API server there is; where they are not,
/// only the same one is sure.
pub fn at_least(have: &str, want: &str) -> bool {
    match (number(have), number(want)) {
        (Some(have), Some(want)) => have >= want,
        _ => have == want || want.is_empty(),
    }
}

fn past(have: &str, want: &str) -> bool {
    match (number(have), number(want)) {
        (Some(have), Some(want)) => have > want,
        _ => want.is_empty(),
    }
}

fn number(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::meta::Kind;
    use pawl_machines::object::Key;
    use serde_json::json;
    use std::sync::Arc;

    const POD: Kind = Kind::of("", "v1", "Pod", "pods", true);

    fn pod(uid: &str, version: &str, deleting: bool) -> Arc<Object> {
        let mut metadata = json!({"name": "a", "namespace": "n", "uid": uid, "resourceVersion": version});
        if deleting {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Object::new(POD, json!({"metadata": metadata})).unwrap()
    }

    fn written(version: &str, deleted: bool) -> Written {
        let key = Key::new(Some("n"), "a");
        Written { kind: POD, key, uid: "u".into(), resource_version: version.into(), deleted }
    }

    #[test]
    fn a_write_is_seen_at_its_version_or_a_later_one() {
        for (known, seen, expected) in [
            (None, "5", false),
            (None, "12", true),
            (Some(("u", "9")), "11", false),
            (Some(("u", "10")), "10", true),
            (Some(("u", "100")), "100", true),
            (Some(("v", "8")), "9", false),
            (Some(("v", "11")), "11", true),
        ] {
            let known = known.map(|(uid, version)| pod(uid, version, false));
            assert_eq!(shows(known.as_deref(), seen, &written("10", false)), expected, "{known:?} {seen}");
        }
    }

    #[test]
    fn a_delete_is_seen_when_the_object_is_gone_going_or_another() {
        assert!(shows(None, "1", &written("10", true)));
        assert!(shows(Some(&pod("v", "3", false)), "3", &written("", true)));
        assert!(shows(Some(&pod("u", "10", true)), "10", &written("10", true)));
        assert!(!shows(Some(&pod("u", "9", false)), "9", &written("9", true)));
        // Taking a finalizer off: it was on its way before, and the write itself must show.
        assert!(!shows(Some(&pod("u", "9", true)), "9", &written("10", true)));
    }

    #[test]
    fn versions_that_are_no_numbers_are_only_compared_for_equality() {
        assert!(at_least("abc", "abc") && !at_least("abd", "abc") && !at_least("7", "abc"));
        assert!(at_least("10", "9") && at_least("x", ""));
    }
}
