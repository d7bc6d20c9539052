//! How does one object look in the other of its APIs?
//!
//! Two built-in kinds are served by two APIs each, and kept in the form of one: Events (`v1` keeps, `events.k8s.io/v1`
//! has other names for some fields) and HorizontalPodAutoscalers (`v2` keeps, `v1` knows one metric and puts everything
//! else into annotations, so that a write through it loses nothing).

use serde_json::{Map, Value, json};

use super::Resource;
use crate::store::Object;

/// Events: `v1` on the left, `events.k8s.io/v1` on the right.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Where an autoscaler's `v1` keeps what only `v2` has a field for.
const AUTOSCALER_NOTES: [(&str, &str); 4] = [
    ("/spec/metrics", "autoscaling.alpha.kubernetes.io/metrics"),
    ("/spec/behavior", "autoscaling.alpha.kubernetes.io/behavior"),
    ("/status/currentMetrics", "autoscaling.alpha.kubernetes.io/current-metrics"),
    ("/status/conditions", "autoscaling.alpha.kubernetes.io/conditions"),
];

/// An API that shows objects in another form than they are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Event,
    Autoscaler,
}

impl View {
    fn of(resource: &Resource) -> Option<View> {
        if resource.is("events.k8s.io", "events") {
            Some(View::Event)
        } else if resource.is("autoscaling", "horizontalpodautoscalers") && &*resource.ids.version == "v1" {
            Some(View::Autoscaler)
        } else {
            None
        }
    }

    fn shown(self, kept: Value) -> Value {
        match self {
            View::Event => renamed(kept, true),
            View::Autoscaler => autoscaler_v1(kept),
        }
    }

    fn kept(self, shown: Value) -> Value {
        match self {
            View::Event => renamed(shown, false),
            View::Autoscaler => autoscaler_v2(shown),
        }
    }
}

/// A kept object as `resource` shows it.
pub(super) fn shown(resource: &Resource, kept: Value) -> Value {
    match View::of(resource) {
        Some(view) => view.shown(kept),
        None => kept,
    }
}

/// An object of `resource` as it is kept; `None` where that is the same.
pub(super) fn kept(resource: &Resource, shown: &Value) -> Option<Value> {
    View::of(resource).map(|view| view.kept(shown.clone()))
}

/// The members of a kept object, without `{`, `kind` and `apiVersion`, as `resource` shows them; `None` where they are
/// shown as they are kept.
pub(crate) fn members(resource: &Resource, object: &Object) -> Option<Vec<u8>> {
    let mut value = View::of(resource)?.shown(object.value());
    if let Some(members) = value.as_object_mut() {
        members.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion"));
    }
    value.to_string().strip_prefix('{').map(|rest| rest.as_bytes().to_vec())
}

fn renamed(value: Value, to_new: bool) -> Value {
    let Value::Object(members) = value else { return value };
    let new_name = |key: String| {
        let pair = EVENT_NAMES.iter().find(|(old, new)| if to_new { *old == key } else { *new == key });
        pair.map_or(key, |(old, new)| (if to_new { *new } else { *old }).to_owned())
    };
    members.into_iter().map(|(key, value)| (new_name(key), value)).collect()
}

/// The one metric `v1` has a field for: how busy the processors are to be.
fn is_processor_target(metric: &Value) -> bool {
    let text = |pointer: &str| metric.pointer(pointer).and_then(Value::as_str);
    text("/type") == Some("Resource")
        && text("/resource/name") == Some("cpu")
        && text("/resource/target/type") == Some("Utilization")
}

fn autoscaler_v1(mut object: Value) -> Value {
    let metrics = object.pointer_mut("/spec/metrics").and_then(Value::as_array_mut);
    let target = metrics.and_then(|metrics| {
        let at = metrics.iter().position(is_processor_target)?;
        metrics.remove(at).pointer("/resource/target/averageUtilization").cloned()
    });
    for (pointer, annotation) in AUTOSCALER_NOTES {
        let Some(value) = take(&mut object, pointer) else { continue };
        let empty = value.as_array().is_some_and(Vec::is_empty);
        if let Some(annotations) = annotations(&mut object).filter(|_| !empty) {
            annotations.insert(annotation.into(), value.to_string().into());
        }
    }
    if let (Some(target), Some(spec)) = (target, object.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert("targetCPUUtilizationPercentage".into(), target);
    }
    object
}

fn autoscaler_v2(mut object: Value) -> Value {
    let target = take(&mut object, "/spec/targetCPUUtilizationPercentage");
    for (pointer, annotation) in AUTOSCALER_NOTES {
        let noted = object
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut)
            .and_then(|annotations| annotations.remove(annotation));
        let value = noted.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
        let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
        if let (Some(value), Some(parent)) =
            (value, object.pointer_mut(parent).and_then(Value::as_object_mut))
        {
            parent.insert(key.into(), value);
        }
    }
    if let (Some(target), Some(spec)) = (target, object.get_mut("spec").and_then(Value::as_object_mut)) {
        let metric = json!({"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}});
        match spec.get_mut("metrics").and_then(Value::as_array_mut) {
            Some(metrics) => metrics.insert(0, metric),
            None => {
                spec.insert("metrics".into(), json!([metric]));
            }
        }
    }
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata
        && metadata.get("annotations").and_then(Value::as_object).is_some_and(Map::is_empty)
    {
        metadata.remove("annotations");
    }
    object
}

fn take(object: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, key) = pointer.rsplit_once('/')?;
    object.pointer_mut(parent)?.as_object_mut()?.remove(key)
}

fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaler_goes_through_its_old_api_unharmed() {
        let kept = json!({
            "metadata": {"name": "web", "annotations": {"a": "b"}},
            "spec": {"maxReplicas": 5, "behavior": {"scaleDown": {"selectPolicy": "Min"}}, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            ]},
        });
        let shown = autoscaler_v1(kept.clone());
        assert_eq!(shown["spec"], json!({"maxReplicas": 5, "targetCPUUtilizationPercentage": 80}));
        assert!(shown["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].is_string());
        assert_eq!(autoscaler_v2(shown), kept);
        let plain = json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 2}});
        assert_eq!(autoscaler_v2(autoscaler_v1(plain.clone())), plain);
    }

    #[test]
    fn an_autoscaler_with_nonsense_in_its_notes_is_kept_without_them() {
        let shown = json!({
            "metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "{", "autoscaling.alpha.kubernetes.io/behavior": 5}},
            "spec": {"targetCPUUtilizationPercentage": 5},
        });
        let kept = autoscaler_v2(shown);
        assert_eq!(kept["spec"]["metrics"].as_array().unwrap().len(), 1);
        assert_eq!(kept["metadata"], json!({}));
    }
}
