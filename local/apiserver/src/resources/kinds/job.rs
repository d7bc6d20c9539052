//! What does Kubernetes fill into a Job, and what does it refuse?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use serde_json::{Value, json};

use super::{Hooks, NONE, fill, job_policy, not_negative, one_of, pod, set};
use crate::validation::FieldError;

/// Kubernetes' number.
const BACKOFF_LIMIT: i64 = 6;
/// Minute, hour, day of month, month, day of week.
const CRON_FIELDS: usize = 5;
/// A Job's name may have 63 bytes, and eleven of them say when it was made.
const MAX_CRON_NAME: usize = 52;

pub(crate) const JOB: Hooks = Hooks {
    default: |object| {
        if let Some(spec) = object.get_mut("spec") {
            default_spec(spec);
        }
        let labels = object.pointer("/spec/template/metadata/labels").cloned();
        if let (Some(labels), Some(metadata)) = (labels, object.get_mut("metadata")) {
            fill(metadata, "labels", labels);
        }
    },
    create: |object, _| select_own_pods(object),
    validate: |object, old| {
        let mut errors = validate_spec(&object["spec"], "spec");
        if let Some(old) = old {
            errors.extend(validate_update(object, old));
        }
        errors
    },
    ..NONE
};

pub(crate) const CRON_JOB: Hooks = Hooks {
    default: |object| {
        if let Some(spec) = object.get_mut("spec") {
            fill(spec, "concurrencyPolicy", json!("Allow"));
            fill(spec, "suspend", json!(false));
            fill(spec, "successfulJobsHistoryLimit", json!(3));
            fill(spec, "failedJobsHistoryLimit", json!(1));
            if let Some(template) = spec.pointer_mut("/jobTemplate/spec/template") {
                pod::default_template(template);
            }
        }
    },
    validate: |object, _| {
        let mut errors = validate_spec(&object["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec");
        errors.extend(validate_cron(&object["spec"], &object["metadata"]["name"]));
        errors
    },
    ..NONE
};

/// When a CronJob makes Jobs, and how many at once.
fn validate_cron(spec: &Value, name: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let schedule = spec["schedule"].as_str().unwrap_or_default();
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid("spec.schedule", &spec["schedule"], why));
    } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != CRON_FIELDS {
        let found = schedule.split_whitespace().count();
        let why = format!("expected exactly {CRON_FIELDS} fields, found {found}: {schedule}");
        errors.push(FieldError::invalid("spec.schedule", &spec["schedule"], why));
    }
    errors.extend(one_of(spec, "spec", "concurrencyPolicy", &["Allow", "Forbid", "Replace"]));
    for key in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.extend(not_negative(&spec[key], format!("spec.{key}")));
    }
    if name.as_str().is_some_and(|name| name.len() > MAX_CRON_NAME) {
        let why = format!("must be no more than {MAX_CRON_NAME} bytes");
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    errors
}

fn default_spec(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        set(spec, "completions", json!(1));
    }
    fill(spec, "parallelism", json!(1));
    let limit = if spec["backoffLimitPerIndex"].is_null() { BACKOFF_LIMIT } else { i64::from(i32::MAX) };
    fill(spec, "backoffLimit", json!(limit));
    fill(spec, "completionMode", json!("NonIndexed"));
    fill(spec, "suspend", json!(false));
    fill(spec, "manualSelector", json!(false));
    let replace = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    fill(spec, "podReplacementPolicy", json!(replace));
    if let Some(template) = spec.get_mut("template") {
        pod::default_template(template);
    }
}

/// A job finds its pods by its own uid, unless its author insists on another way.
fn select_own_pods(object: &mut Value) {
    if object.pointer("/spec/manualSelector") == Some(&json!(true)) {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    let Some(spec) = object.get_mut("spec") else { return };
    fill(spec, "template", json!({}));
    if let Some(template) = spec.get_mut("template") {
        fill(template, "metadata", json!({}));
        if let Some(metadata) = template.get_mut("metadata") {
            fill(metadata, "labels", json!({}));
            if let Some(labels) = metadata.get_mut("labels") {
                for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
                    set(labels, key, uid.clone());
                }
                for key in ["job-name", "batch.kubernetes.io/job-name"] {
                    set(labels, key, name.clone());
                }
            }
        }
    }
    set(spec, "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
}

fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.extend(not_negative(&spec[key], format!("{path}.{key}")));
    }
    errors.extend(one_of(spec, path, "completionMode", &["NonIndexed", "Indexed"]));
    errors.extend(one_of(spec, path, "podReplacementPolicy", &["Failed", "TerminatingOrFailed"]));
    errors.extend(job_policy::validate(spec, path));
    if !spec["podFailurePolicy"].is_null() && spec["template"]["spec"]["restartPolicy"] == "OnFailure" {
        let field = format!("{path}.template.spec.restartPolicy");
        let why = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.push(FieldError::invalid(field, &spec["template"]["spec"]["restartPolicy"], why));
    }
    if spec["completionMode"] == "Indexed" && spec["completions"].is_null() {
        let detail = "when completion mode is Indexed";
        errors.push(FieldError::required(format!("{path}.completions"), detail));
    }
    let pod = &spec["template"]["spec"];
    errors.extend(pod::validate_spec(pod, &format!("{path}.template.spec")));
    if !matches!(pod["restartPolicy"].as_str(), Some("Never" | "OnFailure")) {
        let field = format!("{path}.template.spec.restartPolicy");
        // A pod's own complaint about a policy it does not know says it better.
        if !errors.iter().any(|e| e.field == field) {
            errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\""));
        }
    }
    errors
}

fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let mut errors = Vec::new();
    let mut fixed = |field: &str, now: &Value, then: &Value| {
        if now != then {
            errors.push(FieldError::invalid(field, now, "field is immutable"));
        }
    };
    // An indexed job may grow and shrink, its completions along with its parallelism.
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    if !elastic {
        fixed("spec.completions", &spec["completions"], &before["completions"]);
    }
    for key in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        fixed(&format!("spec.{key}"), &spec[key], &before[key]);
    }
    // While a job waits to be started, whoever admits it may say where it runs.
    let waits = before["suspend"] == true && old["status"]["startTime"].is_null();
    let pod = |template: &Value| {
        let mut pod = template["spec"].clone();
        if waits {
            for key in ["nodeSelector", "tolerations", "affinity", "schedulingGates"] {
                set(&mut pod, key, Value::Null);
            }
        }
        pod
    };
    fixed("spec.template.spec", &pod(&spec["template"]), &pod(&before["template"]));
    if !waits {
        fixed("spec.template.metadata", &spec["template"]["metadata"], &before["template"]["metadata"]);
    }
    errors
}
