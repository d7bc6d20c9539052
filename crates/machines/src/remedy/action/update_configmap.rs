//! `update_configmap`: sets and removes keys of a ConfigMap.

use pawl_api::k8s::CONFIG_MAP;
use pawl_api::remedy::actions::{self, Action};
use serde_json::{Map, Value, json};

use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::kept::Restore;
use super::seen::{Place, Seen};

/// An undo that is larger stays in its Secret, and the status small.
const MAX_SHOWN_BYTES: usize = 8 * 1024;

pub(super) const DEFINITION: Definition = Definition {
    about: "Sets keys of a ConfigMap and removes others; keys that are not named stay as they are. An immutable \
            ConfigMap is refused. Pods read the new values when they look again: restart them where they do not.",
    done: "updated",
    undo: UndoKind::Action,
    kinds: &[CONFIG_MAP],
    example: || json!({"configMap": "web", "namespace": "shop", "data": {"LOG_LEVEL": "debug"}, "removeKeys": ["SAMPLING"]}),
    ..Definition::new(Action::UpdateConfigmap, |all| Some(Box::new(all.update_configmap.as_ref()?)))
};

impl Act for &actions::UpdateConfigmap {
    fn check(&self) -> Result<(), Problem> {
        if self.data.is_empty() && self.remove_keys.is_empty() {
            return Err(Problem::new("", "data, removeKeys or both must be said"));
        }
        self.data.keys().try_for_each(|key| check_key("data", key))?;
        self.remove_keys.iter().try_for_each(|key| check_key("removeKeys", key))?;
        match self.remove_keys.iter().find(|key| self.data.contains_key(*key)) {
            Some(key) => Err(Problem::new("removeKeys", format!("{key} is set in data too"))),
            None => Ok(()),
        }
    }

    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(CONFIG_MAP, &self.namespace, &self.config_map))
    }

    fn patch(&self, _: &Context<'_>, object: &Value, _: &Seen) -> Result<Option<Value>, String> {
        if is_immutable(object) {
            return Err("it is immutable".to_owned());
        }
        let (mut data, mut binary) = (Map::new(), Map::new());
        let set = self.data.iter().map(|(key, value)| (key, Some(value.as_str())));
        for (key, wanted) in set.chain(self.remove_keys.iter().map(|key| (key, None))) {
            if held(object, "data", key).and_then(Value::as_str) != wanted {
                data.insert(key.clone(), wanted.into());
            }
            // A key is in one of the two.
            if held(object, "binaryData", key).is_some() {
                binary.insert(key.clone(), Value::Null);
            }
        }
        let mut patch = json!({});
        for (part, changes) in [("data", data), ("binaryData", binary)] {
            if let (Some(patch), false) = (patch.as_object_mut(), changes.is_empty()) {
                patch.insert(part.to_owned(), changes.into());
            }
        }
        Ok((patch != json!({})).then_some(patch))
    }

    fn restore(&self, object: &Value) -> Restore {
        let part = |part: &str| -> Map<String, Value> {
            let was = |key: &String| (key.clone(), held(object, part, key).cloned().unwrap_or_default());
            keys(self).map(was).collect()
        };
        let (data, binary) = (part("data"), part("binaryData"));
        // Where there was no binary data nothing need be said of it.
        let binary: Map<String, Value> = binary.into_iter().filter(|(_, value)| !value.is_null()).collect();
        Restore::Merge(match binary.is_empty() {
            true => json!({"data": data}),
            false => json!({"data": data, "binaryData": binary}),
        })
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        let one = |key: &String| match held(object, "data", key).or_else(|| held(object, "binaryData", key)) {
            Some(value) => format!("{key}: {value}"),
            None => format!("{key}: absent"),
        };
        keys(self).map(one).collect::<Vec<_>>().join(", ")
    }

    fn undo(&self, seen: &Seen, _: &Seen) -> Option<(Action, Value)> {
        let object = seen.object(&self.place()?)?;
        if keys(self).any(|key| held(object, "binaryData", key).is_some()) {
            return None;
        }
        let was = |key: &String| Some((key.clone(), held(object, "data", key)?.clone()));
        let data: Map<String, Value> = keys(self).filter_map(was).collect();
        let gone: Vec<&String> = keys(self).filter(|key| !data.contains_key(*key)).collect();
        let mut undo = json!({"configMap": self.config_map, "namespace": self.namespace});
        if let Some(undo) = undo.as_object_mut() {
            if !data.is_empty() {
                undo.insert("data".to_owned(), data.into());
            }
            if !gone.is_empty() {
                undo.insert("removeKeys".to_owned(), json!(gone));
            }
        }
        (undo.to_string().len() <= MAX_SHOWN_BYTES).then_some((Action::UpdateConfigmap, undo))
    }
}

fn keys(given: &actions::UpdateConfigmap) -> impl Iterator<Item = &String> {
    given.data.keys().chain(&given.remove_keys)
}

fn held<'a>(object: &'a Value, part: &str, key: &str) -> Option<&'a Value> {
    object.get(part)?.get(key)
}

pub(super) fn is_immutable(object: &Value) -> bool {
    object.get("immutable").and_then(Value::as_bool) == Some(true)
}

/// What a key of a ConfigMap or Secret may be.
pub(super) fn check_key(field: &str, key: &str) -> Result<(), Problem> {
    let good = !key.is_empty()
        && key.len() <= 253
        && key != "."
        && !key.starts_with("..")
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let problem = || Problem::new(field, format!("{key:?} is no key: at most 253 of [A-Za-z0-9_.-]"));
    good.then_some(()).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{check, course, given, patch, refusal, undo, words};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn config_map(data: Value) -> Value {
        json!({"kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}, "data": data})
    }

    fn asking(more: Value) -> Value {
        let mut asked = json!({"configMap": "web", "namespace": "shop"});
        crate::json::merge(&mut asked, more);
        asked
    }

    #[test]
    fn keys_are_set_and_removed_and_the_undo_is_the_opposite() {
        let order =
            given("update_configmap", asking(json!({"data": {"a": "2", "b": "1"}, "removeKeys": ["c"]})));
        let before = config_map(json!({"a": "1", "c": "3", "d": "4"}));
        assert_eq!(
            patch(&order, std::slice::from_ref(&before)).1,
            json!({"data": {"a": "2", "b": "1", "c": null}})
        );
        assert_eq!(words(&order, std::slice::from_ref(&before)), [r#"a: "1", b: absent, c: "3""#]);
        let back = asking(json!({"data": {"a": "1", "c": "3"}, "removeKeys": ["b"]}));
        assert_eq!(undo(&order, &[before]), Undo::action(Action::UpdateConfigmap, back));
        assert!(matches!(course(&order, &[config_map(json!({"a": "2", "b": "1"}))]), Course::Done(_)));
    }

    #[test]
    fn what_does_not_fit_an_action_is_put_back_from_what_was_kept() {
        let order = given("update_configmap", asking(json!({"data": {"a": "2"}})));
        let mut binary = config_map(json!({}));
        binary["binaryData"] = json!({"a": "AAAA"});
        assert_eq!(
            patch(&order, std::slice::from_ref(&binary)).1,
            json!({"data": {"a": "2"}, "binaryData": {"a": null}})
        );
        assert_eq!(undo(&order, &[binary]), Undo::Restore);
        assert_eq!(undo(&order, &[config_map(json!({"a": "x".repeat(9000)}))]), Undo::Restore);
    }

    #[test]
    fn immutable_ones_and_keys_that_cannot_be_are_refused() {
        let order = given("update_configmap", asking(json!({"data": {"a": "2"}})));
        let mut immutable = config_map(json!({}));
        immutable["immutable"] = true.into();
        assert_eq!(refusal(&order, &[immutable]), "it is immutable");
        for (bad, field) in [
            (json!({}), "updateConfigmap"),
            (json!({"data": {"a b": "1"}}), "updateConfigmap.data"),
            (json!({"removeKeys": ["../x"]}), "updateConfigmap.removeKeys"),
            (json!({"data": {"a": "1"}, "removeKeys": ["a"]}), "updateConfigmap.removeKeys"),
        ] {
            assert_eq!(check("update_configmap", asking(bad)).unwrap_err().field, field);
        }
    }
}
