//! `apply_manifest`: applies manifests, each object checked by itself.
//!
//! Which kinds may be applied is a list, not a guess: workloads, their configuration and how they are reached. Rights,
//! admission, definitions of kinds, Pawl's own kinds and Secrets (whose values a spec must not have, I6) are not on it.

use std::collections::BTreeSet;

use pawl_api::k8s::{
    CONFIG_MAP, CRON_JOB, DAEMON_SET, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INGRESS, JOB, NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM, POD_DISRUPTION_BUDGET, SERVICE, STATEFUL_SET,
};
use pawl_api::meta::{Kind, names};
use pawl_api::remedy::actions::{self, Action};
use pawl_api::remedy::annotations::CHANGED_BY;
use serde_json::{Value, json};

use super::Order;
use super::course::{Course, How, Write, is_marked};
use super::definition::{Act, Context, Definition, Problem, UndoKind};
use super::diff;
use super::kept::{Kept, Restore};
use super::seen::{self, Place, Seen};
use crate::json::merge;
use crate::yaml;

/// An execution's status has room for 128 objects; half of that is more than anybody reviews.
const MAX_OBJECTS: usize = 64;

/// What may be applied.
const KINDS: &[Kind] = &[
    CONFIG_MAP,
    SERVICE,
    PERSISTENT_VOLUME_CLAIM,
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    CRON_JOB,
    HORIZONTAL_POD_AUTOSCALER,
    POD_DISRUPTION_BUDGET,
    INGRESS,
    NETWORK_POLICY,
];

pub(super) const DEFINITION: Definition = Definition {
    about: "Applies one or more objects by server-side apply. Each object is looked at by itself: its kind must be one \
            that may be applied, its namespace one where this execution may act, and the ServiceAccount must be \
            allowed to make, change and remove it. Taken back, objects that were there are as they were, and objects \
            that were not are deleted. Kinds: ConfigMap, Service, PersistentVolumeClaim, Deployment, StatefulSet, \
            DaemonSet, Job, CronJob, HorizontalPodAutoscaler, PodDisruptionBudget, Ingress, NetworkPolicy.",
    done: "applied",
    undo: UndoKind::Restore,
    // To make what is not there, change what is, and take away what was made when it is taken back.
    verbs: &["get", "create", "patch", "delete"],
    kinds: KINDS,
    example: || {
        json!({"namespace": "shop", "manifest":
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: feature-flags}\ndata: {checkout: \"off\"}\n"})
    },
    ..Definition::new(Action::ApplyManifest, |all| Some(Box::new(all.apply_manifest.as_ref()?)))
};

impl Act for &actions::ApplyManifest {
    fn check(&self) -> Result<(), Problem> {
        objects(self, "default").map(|_| ()).map_err(|problem| Problem::new("manifest", problem))
    }

    fn place(&self) -> Option<Place> {
        None
    }

    fn places(&self, order: &Order) -> Vec<Place> {
        wanted(order, self).into_iter().map(|(place, _)| place).collect()
    }

    fn course(&self, context: &Context<'_>, seen: &Seen) -> Course {
        let wanted = wanted(context.order, self).into_iter();
        let writes: Result<Vec<Option<Write>>, String> = match context.restoring() {
            Some(kept) => wanted.map(|(place, _)| put_back(context, kept, &place, seen)).collect(),
            None => wanted.map(|(place, manifest)| apply(context, &place, manifest, seen)).collect(),
        };
        match writes.map(|writes| writes.into_iter().flatten().collect::<Vec<_>>()) {
            Err(why) => Course::Refuse(why),
            Ok(writes) if writes.is_empty() => Course::Done("every object is as it should be".to_owned()),
            Ok(writes) => Course::Finish(writes),
        }
    }

    fn restore(&self, object: &Value) -> Restore {
        Restore::Fields(diff::own(object))
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        match object.pointer("/metadata/generation").and_then(Value::as_i64) {
            Some(generation) => format!("generation: {generation}"),
            None => format!("version: {}", seen::resource_version(object)),
        }
    }
}

/// The objects of an order; none where the manifest is not one, which `check` tells.
fn wanted(order: &Order, given: &actions::ApplyManifest) -> Vec<(Place, Value)> {
    objects(given, order.execution.namespace.as_deref().unwrap_or_default()).unwrap_or_default()
}

/// Every object with its place; those that name no namespace are in the parameters', or else at home.
fn objects(given: &actions::ApplyManifest, home: &str) -> Result<Vec<(Place, Value)>, String> {
    let documents = yaml::read_all(&given.manifest, MAX_OBJECTS).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(fields) if fields.get("kind").and_then(Value::as_str) == Some("List") => {
                let items = fields.get("items").and_then(Value::as_array).ok_or("a List has no items")?;
                found.extend(items.iter().cloned());
            }
            other @ (Value::Object(_)
            | Value::Array(_)
            | Value::String(_)
            | Value::Number(_)
            | Value::Bool(_)) => found.push(other),
        }
    }
    if found.is_empty() || found.len() > MAX_OBJECTS {
        return Err(format!("it has {} objects: from 1 to {MAX_OBJECTS} are allowed", found.len()));
    }
    let home = given.namespace.as_deref().unwrap_or(home);
    let mut places = BTreeSet::new();
    let mut objects = Vec::with_capacity(found.len());
    for (at, object) in found.into_iter().enumerate() {
        let (place, object) =
            checked(object, home).map_err(|problem| format!("object {}: {problem}", at + 1))?;
        if !places.insert(place.clone()) {
            return Err(format!("{place} is there twice"));
        }
        objects.push((place, object));
    }
    Ok(objects)
}

fn checked(mut object: Value, home: &str) -> Result<(Place, Value), String> {
    let text = |pointer: &str| seen::text(&object, pointer).unwrap_or_default();
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let known =
        KINDS.iter().find(|known| known.kind == kind && known.api_version() == version).ok_or_else(|| {
            let allowed: Vec<String> =
                KINDS.iter().map(|kind| format!("{} {}", kind.api_version(), kind.kind)).collect();
            format!("{version} {kind} may not be applied; these may: {}", allowed.join(", "))
        })?;
    let name = text("/metadata/name").to_owned();
    if !names::is_subdomain(&name) || name.is_empty() {
        return Err(format!("{name:?} is no name of a {kind}"));
    }
    let namespace = seen::text(&object, "/metadata/namespace").unwrap_or(home).to_owned();
    if !names::is_label(&namespace) {
        return Err(format!("{namespace:?} is no name of a namespace"));
    }
    let fields = object.as_object_mut().ok_or("it is no object")?;
    if fields.contains_key("status") {
        return Err("a status cannot be applied".to_owned());
    }
    let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut).ok_or("it has no metadata")?;
    let known_field =
        |key: &&String| !matches!(key.as_str(), "name" | "namespace" | "labels" | "annotations");
    if let Some(other) = metadata.keys().find(known_field) {
        return Err(format!("metadata.{other}: only name, namespace, labels and annotations may be said"));
    }
    metadata.insert("namespace".to_owned(), namespace.as_str().into());
    Ok((Place::namespaced(known.clone(), &namespace, &name), object))
}

/// What makes one object what the manifest says; nothing where this execution has done so before.
fn apply(
    context: &Context<'_>,
    place: &Place,
    mut manifest: Value,
    seen: &Seen,
) -> Result<Option<Write>, String> {
    let there = seen.object(place);
    if there.is_some_and(|object| is_marked(context, object)) {
        return Ok(None);
    }
    if let Some(target) = context.kept.and_then(|kept| kept.of(place))
        && target.uid.as_deref() != there.map(seen::uid)
    {
        return Err(format!("{place} is another one than when the execution began"));
    }
    merge(&mut manifest, json!({"metadata": {"annotations": {CHANGED_BY: context.order.uid}}}));
    Ok(Some(Write { place: place.clone(), how: How::Apply(manifest) }))
}

/// What makes one object what it was before the execution that is taken back.
fn put_back(context: &Context<'_>, kept: &Kept, place: &Place, seen: &Seen) -> Result<Option<Write>, String> {
    let target = kept.of(place).ok_or_else(|| format!("nothing was kept of {place}"))?;
    match (&target.restore, seen.object(place)) {
        (Restore::Absent, None) => Ok(None),
        (Restore::Absent, Some(object)) => match seen::annotation(object, CHANGED_BY) {
            Some(by) if by == kept.uid => Ok(Some(Write::delete(place, object, None))),
            _ => Err(format!("{place} was not there before, but somebody else has changed it since")),
        },
        (_, None) => Err(format!("{place} is not there any more")),
        (_, Some(object)) if is_marked(context, object) => Ok(None),
        (restore, Some(object)) => {
            let patch = restore.patch(object);
            Ok(patch.map(|(type_, body)| Write::marked(context.order, place, object, type_, body)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::definition;
    use super::super::testing::{asked_again, check, course, given, kept, words};
    use super::*;

    const TWO: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: new}\n---\n\
        apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: b, namespace: other}\nspec: {replicas: 2}\n";

    fn order(manifest: &str) -> Order {
        given("apply_manifest", json!({"manifest": manifest, "namespace": "shop"}))
    }

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn config_map(data: Value, annotations: Value) -> Value {
        json!({"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "annotations": annotations}, "data": data})
    }

    fn names(course: &Course) -> Vec<String> {
        let Course::Finish(writes) = course else { panic!("{course:?}") };
        writes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_object_is_applied_where_it_belongs_with_the_mark_of_the_execution() {
        let order = order(TWO);
        assert_eq!(names(&course(&order, &[])), ["apply ConfigMap shop/a", "apply Deployment other/b"]);
        let marked = config_map(json!({"k": "new"}), json!({CHANGED_BY: order.uid}));
        assert_eq!(names(&course(&order, &[marked])), ["apply Deployment other/b"]);
        assert_eq!(words(&order, &[]), ["absent", "absent"]);
        let needs = definition(order.action).needs(&order, &order.parameters().unwrap());
        assert_eq!(needs.len(), 8);
        assert_eq!(needs[7].to_string(), "delete deployments.apps in other");
    }

    #[test]
    fn taken_back_what_was_there_is_as_it_was_and_what_was_made_is_gone() {
        let order = order(TWO);
        let kept = kept(&order, &[config_map(json!({"k": "old"}), json!({}))]);
        let back = |objects: &[Value]| {
            asked_again(&order, objects, Some(&kept), |definition, context, seen| {
                definition.course(context, seen)
            })
        };
        let changed = config_map(json!({"k": "new", "l": "more"}), json!({}));
        let mut made = json!({"kind": "Deployment", "metadata": {"name": "b", "namespace": "other", "uid": "v",
            "annotations": {CHANGED_BY: kept.uid}}});
        // The rollback is another execution in truth; here the mark of the first one is what matters.
        assert_eq!(
            names(&back(&[changed.clone(), made.clone()])),
            ["patch ConfigMap shop/a", "delete Deployment other/b"]
        );
        made["metadata"]["annotations"][CHANGED_BY] = "somebody".into();
        assert!(matches!(back(&[changed, made]), Course::Refuse(_)));
    }

    #[test]
    fn only_kinds_on_the_list_may_be_applied_and_only_what_a_manifest_may_say() {
        let config_map =
            |more: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{more}}}\n");
        for (bad, why) in [
            ("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n".to_owned(), "may not be applied"),
            (
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: s}\n".to_owned(),
                "may not",
            ),
            ("apiVersion: v1\nkind: Namespace\nmetadata: {name: s}\n".to_owned(), "may not"),
            ("apiVersion: pawl.dev/v1alpha1\nkind: Approval\nmetadata: {name: s}\n".to_owned(), "may not"),
            ("apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: s}\n".to_owned(), "may not"),
            (config_map(", finalizers: [x]"), "metadata.finalizers"),
            (config_map(", namespace: ../x"), "no name of a namespace"),
            (config_map("") + "status: {}\n", "status"),
            (config_map("") + "---\n" + &config_map(""), "twice"),
            ("apiVersion: v1\nkind: ConfigMap\n".to_owned(), "no name"),
            ("- a\n".to_owned(), "may not"),
            ("# nothing\n".to_owned(), "0 objects"),
            ("a: [\n".to_owned(), "line"),
            ("---\n".repeat(3) + &config_map("").repeat(2), "duplicate"),
        ] {
            let problem = check("apply_manifest", json!({"manifest": bad})).expect_err(&bad);
            assert!(problem.problem.contains(why), "{bad}: {problem}");
        }
        let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"}}]}"#;
        assert_eq!(check("apply_manifest", json!({"manifest": list})), Ok(()));
    }
}
