//! What does an object's finalizer ask for? Four rows, and no fifth.
//!
//! | being deleted | has our finalizer | what now |
//! |---|---|---|
//! | no  | no  | add it before anything else is done, so that nothing done is left behind |
//! | no  | yes | do the work |
//! | yes | yes | clean up, then take it off |
//! | yes | no  | nothing: it is no longer ours |

use crate::object::Object;

/// What to do with an object that carries a finalizer of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    Add,
    Run,
    CleanUp,
    Nothing,
}

/// Where an object is in its life, as far as `finalizer` is concerned.
pub fn of(object: &Object, finalizer: &str) -> Lifecycle {
    row(object.is_deleting(), object.has_finalizer(finalizer))
}

fn row(deleting: bool, held: bool) -> Lifecycle {
    match (deleting, held) {
        (false, false) => Lifecycle::Add,
        (false, true) => Lifecycle::Run,
        (true, true) => Lifecycle::CleanUp,
        (true, false) => Lifecycle::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::meta::Kind;
    use serde_json::json;

    #[test]
    fn a_foreign_finalizer_is_not_ours() {
        let check = |metadata: serde_json::Value, expect: Lifecycle| {
            let kind = Kind::of("", "v1", "ConfigMap", "configmaps", true);
            let object = Object::new(kind, json!({"metadata": metadata})).unwrap();
            assert_eq!(of(&object, "ours"), expect, "{metadata}");
        };
        let at = "2026-01-01T00:00:00Z";
        check(json!({"name": "a", "finalizers": ["theirs"]}), Lifecycle::Add);
        check(json!({"name": "a", "finalizers": ["theirs", "ours"]}), Lifecycle::Run);
        check(json!({"name": "a", "finalizers": ["ours"], "deletionTimestamp": at}), Lifecycle::CleanUp);
        check(json!({"name": "a", "finalizers": ["theirs"], "deletionTimestamp": at}), Lifecycle::Nothing);
    }
}
