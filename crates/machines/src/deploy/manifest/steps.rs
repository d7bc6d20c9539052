//! What makes an item's objects, and what takes them down?

use pawl_api::deploy::labels;
use serde_json::{Map, Value, json};

use super::config::{Policy, UpdateStrategy};
use super::objects::{Managed, Wanted};
use crate::json;
use crate::object::Object;
use crate::plan::{Adopt, Step};

/// Makes the objects: definitions first, then what belongs to no namespace, then the rest.
pub(super) fn make<'a>(
    me: &Object,
    strategy: UpdateStrategy,
    wanted: impl Iterator<Item = (&'a Wanted, &'a Managed, Option<&'a Object>)>,
) -> Vec<Step> {
    let mut making: Vec<_> = wanted.collect();
    making.sort_by_key(|(_, managed, _)| managed.class());
    let steps = making.into_iter().map(|(one, managed, found)| {
        let manifest = marked(me, &one.manifest, managed);
        let apply = |manifest| Step::Apply { kind: managed.kind.clone(), manifest, force: true };
        match (one.policy, found) {
            (Policy::Ignore, _) => None,
            // What is there already stays as it is, whoever made it.
            (Policy::Immutable, _) => {
                Some(Step::Create { kind: managed.kind.clone(), manifest, adopt: Adopt::Anyones })
            }
            (Policy::Manage | Policy::Keep | Policy::Fallback, Some(found)) => match strategy {
                UpdateStrategy::Merge => {
                    missing(found.raw(), &manifest).map(|patch| Step::patch(found, patch))
                }
                UpdateStrategy::Update | UpdateStrategy::Patch | UpdateStrategy::MergeOverwrite => {
                    Some(apply(manifest))
                }
            },
            (Policy::Manage | Policy::Keep | Policy::Fallback, None) => Some(apply(manifest)),
        }
    });
    steps.flatten().collect()
}

/// Backwards, class by class: what the next one needs goes only when this one is gone.
pub(super) fn take_down(those: &[&Managed]) -> Vec<Step> {
    let mut going: Vec<&Managed> = those
        .iter()
        .copied()
        .filter(|one| !matches!(one.policy, Policy::Keep | Policy::Ignore))
        .rev()
        .collect();
    going.sort_by_key(|one| std::cmp::Reverse(one.class()));
    let classes = going.chunk_by(|a, b| a.class() == b.class());
    let steps = classes.flat_map(|class| {
        let deletes = class.iter().map(|one| Step::delete_reference(one.reference()).foreground());
        deletes.chain(class.iter().map(|one| Step::confirm_gone(one.reference())))
    });
    steps.collect()
}

/// Whether an object that is there was made by somebody else.
pub(super) fn is_theirs(me: &Object, found: Option<&Object>) -> bool {
    found.is_some_and(|found| {
        found.label(labels::DEPLOY_ITEM) != Some(me.name())
            || found.label(labels::DEPLOY_ITEM_NAMESPACE) != me.namespace()
    })
}

/// The manifest with its place, and with what leads back to the item.
fn marked(me: &Object, manifest: &Value, managed: &Managed) -> Value {
    let namespace = me.namespace().unwrap_or_default();
    let marks = json!({labels::DEPLOY_ITEM: me.name(), labels::DEPLOY_ITEM_NAMESPACE: namespace});
    let mut manifest = manifest.clone();
    json::merge(&mut manifest, json!({"metadata": managed.key}));
    json::merge(&mut manifest, json!({"metadata": {"labels": marks}}));
    manifest
}

/// What of `wanted` is not there at all; `None` when all of it is.
fn missing(found: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(found), Value::Object(wanted)) = (found, wanted) else { return None };
    let fields = wanted.iter().filter(|(_, value)| !value.is_null()).filter_map(|(key, value)| {
        let patch = match found.get(key) {
            None => Some(value.clone()),
            Some(there) => missing(there, value),
        };
        Some((key.clone(), patch?))
    });
    let fields: Map<String, Value> = fields.collect();
    (!fields.is_empty()).then_some(Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_adds_what_is_missing_and_changes_nothing() {
        let found = json!({"data": {"a": "theirs"}, "list": [1]});
        let wanted = json!({"data": {"a": "ours", "b": "new"}, "list": [2], "more": {"c": 1}, "none": null});
        assert_eq!(missing(&found, &wanted), Some(json!({"data": {"b": "new"}, "more": {"c": 1}})));
        assert_eq!(missing(&found, &json!({"data": {"a": "ours"}})), None);
    }
}
