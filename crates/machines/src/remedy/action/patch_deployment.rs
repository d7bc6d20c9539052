//! `patch_deployment`: patches a Deployment.

use pawl_api::k8s::DEPLOYMENT;
use pawl_api::meta::text;
use pawl_api::remedy::actions::{self, Action, MAX_PATCH_CHARS, PatchType};
use serde_json::{Map, Value, json};

use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::diff;
use super::kept::Restore;
use super::seen::{Place, Seen};
use crate::apply::difference;
use crate::yaml;

/// What may be patched: the name, the owners and the status are not a person's to change.
const ALLOWED: &str = "a patch may change spec, metadata.labels and metadata.annotations";
const MAX_WORDS: usize = 512;

pub(super) const DEFINITION: Definition = Definition {
    about: "Patches `spec`, labels or annotations of a Deployment, with a strategic merge patch, a JSON merge patch \
            or a JSON patch. Before it is done, the API server is asked what would come of it, and the undo is the \
            patch that leads back from there.",
    done: "patched",
    undo: UndoKind::Action,
    kinds: &[DEPLOYMENT],
    example: || {
        json!({"deployment": "web", "namespace": "shop", "patchType": "merge",
            "patch": "spec: {template: {spec: {priorityClassName: important}}}"})
    },
    ..Definition::new(Action::PatchDeployment, |all| Some(Box::new(all.patch_deployment.as_ref()?)))
};

impl Act for &actions::PatchDeployment {
    fn check(&self) -> Result<(), Problem> {
        read(self).map(|_| ()).map_err(|problem| Problem::new("patch", problem))
    }

    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(DEPLOYMENT, &self.namespace, &self.deployment))
    }

    fn patch(&self, _: &Context<'_>, _: &Value, _: &Seen) -> Result<Option<Value>, String> {
        let patch = read(self).map_err(|why| format!("the patch: {why}"))?;
        Ok((!is_empty(&patch)).then_some(patch))
    }

    fn patch_type(&self) -> PatchType {
        self.patch_type
    }

    fn foresees(&self) -> bool {
        true
    }

    fn restore(&self, object: &Value) -> Restore {
        Restore::Fields(diff::own(object))
    }

    /// Of the Deployment, what the patch speaks of.
    fn fields(&self, object: &Value) -> Value {
        match read(self) {
            Ok(Value::Array(steps)) => steps.iter().flat_map(paths).map(|path| at(object, &path)).collect(),
            Ok(patch) => spoken_of(object, &patch),
            Err(_) => Value::Null,
        }
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        text::head(self.fields(object).to_string(), MAX_WORDS)
    }

    fn undo(&self, seen: &Seen, after: &Seen) -> Option<(Action, Value)> {
        let place = self.place()?;
        let (before, after) = (seen.object(&place)?, after.object(&place)?);
        let back = difference(&diff::own(after), &diff::own(before)).unwrap_or_else(|| json!({}));
        let back = back.to_string();
        let undo = json!({"deployment": self.deployment, "namespace": self.namespace, "patchType": "merge",
            "patch": back});
        (back.chars().count() <= MAX_PATCH_CHARS).then_some((Action::PatchDeployment, undo))
    }
}

/// The patch, if it is one that may be made.
fn read(given: &actions::PatchDeployment) -> Result<Value, String> {
    let patch = yaml::read(&given.patch).map_err(|error| format!("not JSON or YAML: {error}"))?;
    match (given.patch_type, &patch) {
        (PatchType::Strategic | PatchType::Merge, Value::Object(fields)) => check_fields(fields)?,
        (PatchType::Strategic | PatchType::Merge, _) => {
            return Err("a strategic or merge patch must be an object".to_owned());
        }
        (PatchType::Json, Value::Array(steps)) => steps.iter().try_for_each(check_step)?,
        (PatchType::Json, _) => return Err("a json patch must be a list of operations".to_owned()),
    }
    Ok(patch)
}

fn check_fields(fields: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("spec", Value::Object(_)) => {}
            ("metadata", Value::Object(metadata)) => {
                for (key, value) in metadata {
                    if !matches!(key.as_str(), "labels" | "annotations") || !value.is_object() {
                        return Err(format!("{ALLOWED}, not metadata.{key}"));
                    }
                }
            }
            _ => return Err(format!("{ALLOWED}, not {key}")),
        }
    }
    Ok(())
}

fn check_step(step: &Value) -> Result<(), String> {
    let op = step.get("op").and_then(Value::as_str).unwrap_or_default();
    if !matches!(op, "add" | "remove" | "replace" | "move" | "copy" | "test") {
        return Err(format!("{op:?} is no operation of a json patch"));
    }
    let paths = paths(step);
    if paths.is_empty() {
        return Err(format!("{op} has no path"));
    }
    for path in paths {
        let inside =
            |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'));
        if path != "/spec" && !["/spec", "/metadata/labels", "/metadata/annotations"].into_iter().any(inside)
        {
            return Err(format!("{ALLOWED}, not {path}"));
        }
    }
    Ok(())
}

/// The paths that an operation reads or writes.
fn paths(step: &Value) -> Vec<String> {
    let fields = ["path", "from"].into_iter().filter_map(|field| step.get(field));
    fields.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What is at a path, or, where nothing is yet, where it would be.
fn at(object: &Value, path: &str) -> Value {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let found = object.pointer(path).or_else(|| object.pointer(parent));
    json!({path: found})
}

/// Of an object, the fields that a merge patch has too; what is no object, whole.
fn spoken_of(object: &Value, patch: &Value) -> Value {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            let both = patch.iter().map(|(key, patch)| {
                (key.clone(), object.get(key).map_or(Value::Null, |value| spoken_of(value, patch)))
            });
            Value::Object(both.collect())
        }
        (object, _) => object.clone(),
    }
}

fn is_empty(patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(steps) => steps.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::kept::Undo;
    use super::super::testing::{asked, asked_again, check, given, kept, only_patch, patch, undo};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn deployment(replicas: i64, labels: Value) -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": labels,
            "resourceVersion": "7"}, "spec": {"replicas": replicas, "paused": false}})
    }

    fn asking(type_: &str, patch: &str) -> Value {
        json!({"deployment": "web", "namespace": "shop", "patchType": type_, "patch": patch})
    }

    #[test]
    fn a_patch_may_be_yaml_and_is_sent_as_its_type_says() {
        let order = given("patch_deployment", asking("strategic", "spec: {replicas: 4}"));
        let sent = patch(&order, &[deployment(3, json!({}))]);
        assert_eq!(sent, (PatchType::Strategic, json!({"spec": {"replicas": 4}})));
        let order = given("patch_deployment", asking("json", r#"[{"op":"remove","path":"/spec/paused"}]"#));
        let (style, body) = patch(&order, &[deployment(3, json!({}))]);
        assert_eq!((style, &body[3]), (PatchType::Json, &json!({"op": "remove", "path": "/spec/paused"})));
    }

    #[test]
    fn nothing_but_spec_labels_and_annotations_may_be_patched() {
        for (type_, patch) in [
            ("merge", "status: {replicas: 1}"),
            ("merge", "metadata: {name: other}"),
            ("merge", "metadata: {ownerReferences: []}"),
            ("strategic", "metadata: {annotations: null}"),
            ("strategic", "$patch: delete"),
            ("merge", "spec: null"),
            ("merge", "[1]"),
            ("merge", "a: [1,\n"),
            ("json", "spec: {}"),
            ("json", r#"[{"op":"replace","path":"","value":{}}]"#),
            ("json", r#"[{"op":"remove","path":"/metadata/annotations"}]"#),
            ("json", r#"[{"op":"remove","path":"/metadata/labels/"}]"#),
            ("json", r#"[{"op":"move","from":"/status","path":"/spec/x"}]"#),
            ("json", r#"[{"op":"remove","path":"/specx"}]"#),
            ("json", r#"[{"op":"explode","path":"/spec"}]"#),
            ("json", r#"[{"op":"remove"}]"#),
        ] {
            let problem = check("patch_deployment", asking(type_, patch)).expect_err(patch);
            assert_eq!(problem.field, "patchDeployment.patch", "{problem}");
        }
        for (type_, patch) in
            [("merge", "{}"), ("json", "[]"), ("json", r#"[{"op":"test","path":"/spec/replicas"}]"#)]
        {
            assert_eq!(check("patch_deployment", asking(type_, patch)), Ok(()), "{patch}");
        }
    }

    #[test]
    fn the_undo_leads_back_from_what_the_api_server_would_make_of_it() {
        let order =
            given("patch_deployment", asking("merge", "{metadata: {labels: {new: x}}, spec: {replicas: 4}}"));
        let before = deployment(3, json!({"old": "y"}));
        let mut foreseen = Seen::default();
        foreseen.put(
            Place::namespaced(DEPLOYMENT, "shop", "web"),
            Some(deployment(4, json!({"old": "y", "new": "x"}))),
        );
        let undo =
            asked(&order, &[before], |definition, context, seen| definition.undo(context, seen, &foreseen));
        let Undo::Action { action: Action::PatchDeployment, parameters } = undo else { panic!("{undo:?}") };
        let patch: Value =
            serde_json::from_str(parameters["patchDeployment"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, json!({"metadata": {"labels": {"new": null}}, "spec": {"replicas": 3}}));
    }

    #[test]
    fn what_was_not_foreseen_is_put_back_from_what_was_kept() {
        let order = given("patch_deployment", asking("merge", "spec: {replicas: 4}"));
        let before = deployment(3, json!({}));
        assert_eq!(undo(&order, std::slice::from_ref(&before)), Undo::Restore);
        let kept = kept(&order, &[before]);
        let after = deployment(4, json!({"new": "x"}));
        let course = asked_again(&order, &[after], Some(&kept), |definition, context, seen| {
            definition.course(context, seen)
        });
        let Course::Finish(writes) = course else { panic!("{course:?}") };
        assert_eq!(
            only_patch(&writes).1,
            json!({"metadata": {"labels": {"new": null}}, "spec": {"replicas": 3}})
        );
    }

    #[test]
    fn the_digest_is_of_what_the_patch_speaks_of() {
        let order = given("patch_deployment", asking("merge", "spec: {paused: true}"));
        let of = |object: Value| kept(&order, &[object]).digest;
        assert_eq!(of(deployment(3, json!({}))), of(deployment(9, json!({"a": "b"}))));
        let mut paused = deployment(3, json!({}));
        paused["spec"]["paused"] = true.into();
        assert_ne!(of(deployment(3, json!({}))), of(paused));
    }
}
