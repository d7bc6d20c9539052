//! What does Kubernetes fill into what keeps pods running, and what does it refuse?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use serde_json::{Value, json};

use super::{Hooks, NONE, fill, not_negative, pod};
use crate::validation::FieldError;

/// Kubernetes' number of old ReplicaSets and ControllerRevisions that are kept.
const HISTORY: i64 = 10;

pub(crate) const DEPLOYMENT: Hooks = Hooks {
    default: |object| {
        default_template(object);
        if let Some(spec) = object.get_mut("spec") {
            fill(spec, "replicas", json!(1));
            fill(spec, "strategy", json!({}));
            fill(spec, "revisionHistoryLimit", json!(HISTORY));
            fill(spec, "progressDeadlineSeconds", json!(600));
            roll(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
        }
    },
    validate: |object, old| validate(object, old, &["selector"]),
    ..NONE
};

pub(crate) const STATEFUL_SET: Hooks = Hooks {
    default: |object| {
        default_template(object);
        if let Some(spec) = object.get_mut("spec") {
            fill(spec, "replicas", json!(1));
            fill(spec, "podManagementPolicy", json!("OrderedReady"));
            fill(spec, "revisionHistoryLimit", json!(HISTORY));
            fill(spec, "updateStrategy", json!({}));
            let keep = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            fill(spec, "persistentVolumeClaimRetentionPolicy", keep);
            roll(spec, "updateStrategy", &[("partition", json!(0))]);
        }
    },
    validate: |object, old| validate(object, old, &["selector", "serviceName", "podManagementPolicy"]),
    ..NONE
};

pub(crate) const DAEMON_SET: Hooks = Hooks {
    default: |object| {
        default_template(object);
        if let Some(spec) = object.get_mut("spec") {
            fill(spec, "revisionHistoryLimit", json!(HISTORY));
            fill(spec, "updateStrategy", json!({}));
            roll(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
        }
    },
    validate: |object, old| validate(object, old, &["selector"]),
    ..NONE
};

pub(crate) const REPLICA_SET: Hooks = Hooks {
    default: |object| {
        default_template(object);
        if let Some(spec) = object.get_mut("spec") {
            fill(spec, "replicas", json!(1));
        }
    },
    validate: |object, old| validate(object, old, &["selector"]),
    ..NONE
};

fn default_template(object: &mut Value) {
    if let Some(template) = object.pointer_mut("/spec/template") {
        pod::default_template(template);
    }
}

/// A rolling update is the default, with its own defaults.
fn roll(spec: &mut Value, key: &str, parts: &[(&str, Value)]) {
    let Some(strategy) = spec.get_mut(key) else { return };
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] != "RollingUpdate" {
        return;
    }
    fill(strategy, "rollingUpdate", json!({}));
    if let Some(rolling) = strategy.get_mut("rollingUpdate") {
        for (part, value) in parts {
            fill(rolling, part, value.clone());
        }
    }
}

fn validate(object: &Value, old: Option<&Value>, fixed: &[&str]) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    for key in ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        errors.extend(not_negative(&spec[key], format!("spec.{key}")));
    }
    let selector = &spec["selector"];
    if selector["matchLabels"].is_null() && selector["matchExpressions"].is_null() {
        let detail = "empty selector is invalid for a workload";
        errors.push(FieldError::invalid("spec.selector", selector, detail));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if !selects(selector, labels) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, detail));
    }
    let pod = &spec["template"]["spec"];
    errors.extend(pod::validate_spec(pod, "spec.template.spec"));
    if pod["restartPolicy"] != "Always" {
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(field, &pod["restartPolicy"], &["Always"]));
    }
    for key in fixed.iter().filter(|key| old.is_some_and(|old| old["spec"][**key] != spec[**key])) {
        errors.push(FieldError::invalid(format!("spec.{key}"), &spec[*key], "field is immutable"));
    }
    errors
}

/// Whether a LabelSelector chooses these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    wanted.into_iter().all(|(key, value)| labels[key] == *value)
        && expressions.into_iter().all(|expression| {
            let value = &labels[expression["key"].as_str().unwrap_or_default()];
            let listed = expression["values"].as_array().is_some_and(|v| v.contains(value));
            match expression["operator"].as_str() {
                Some("In") => listed,
                Some("NotIn") => !listed,
                Some("Exists") => !value.is_null(),
                Some("DoesNotExist") => value.is_null(),
                Some(_) | None => false,
            }
        })
}
