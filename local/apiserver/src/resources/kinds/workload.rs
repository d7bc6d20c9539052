//! What does Kubernetes fill into what keeps pods running, and what does it refuse?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use serde_json::{Value, json};

use super::{Hooks, NONE, fill, not_negative, pod};
use crate::selector::selects;
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
    validate: |object, old| {
        let mut errors = validate(object, old, &["selector"]);
        errors.extend(validate_strategy(&object["spec"]["strategy"]));
        let (least, deadline) =
            (&object["spec"]["minReadySeconds"], &object["spec"]["progressDeadlineSeconds"]);
        if deadline.as_i64().is_some_and(|deadline| deadline <= least.as_i64().unwrap_or(0)) {
            let why = "must be greater than minReadySeconds";
            errors.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, why));
        }
        errors
    },
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

fn validate_strategy(strategy: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let rolling = &strategy["rollingUpdate"];
    match strategy["type"].as_str() {
        Some("Recreate") if !rolling.is_null() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", why));
        }
        Some("Recreate") => {}
        Some("RollingUpdate") => {
            for part in ["maxUnavailable", "maxSurge"] {
                errors.extend(share(&rolling[part], &format!("spec.strategy.rollingUpdate.{part}")));
            }
            if is_none_of_all(&rolling["maxUnavailable"]) && is_none_of_all(&rolling["maxSurge"]) {
                let why = "may not be 0 when `maxSurge` is 0";
                let field = "spec.strategy.rollingUpdate.maxUnavailable";
                errors.push(FieldError::invalid(field, &rolling["maxUnavailable"], why));
            }
        }
        Some(_) | None => {
            errors.push(FieldError::not_supported("spec.strategy", strategy, &["Recreate", "RollingUpdate"]));
        }
    }
    errors
}

/// A number that is not negative, or a percentage up to a hundred.
fn share(value: &Value, field: &str) -> Option<FieldError> {
    let Some(text) = value.as_str() else { return not_negative(value, field.to_owned()) };
    let percent = text.strip_suffix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    match percent.and_then(|digits| digits.parse::<u32>().ok()) {
        None => {
            let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                       regex used for validation is '[0-9]+%')";
            Some(FieldError::invalid(field, value, why))
        }
        Some(percent) if percent > 100 && field.ends_with("maxUnavailable") => {
            Some(FieldError::invalid(field, value, "must not be greater than 100%"))
        }
        Some(_) => None,
    }
}

fn is_none_of_all(share: &Value) -> bool {
    share == 0 || share.as_str().is_some_and(|text| text.trim_end_matches('%').parse() == Ok(0_u32))
}

fn validate(object: &Value, old: Option<&Value>, fixed: &[&str]) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    for key in ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        errors.extend(not_negative(&spec[key], format!("spec.{key}")));
    }
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if selector["matchLabels"].is_null() && selector["matchExpressions"].is_null() {
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
