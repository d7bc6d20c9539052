//! Where do built-in kinds differ beyond what a table can say?

mod admission;
mod certificate;
mod data;
mod job;
mod job_policy;
mod pod;
mod rbac;
mod service;
mod workload;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(super) use admission::{POLICY, POLICY_BINDING};
pub(super) use certificate::SIGNING_REQUEST;
pub(super) use data::{CONFIG_MAP, SECRET};
pub(super) use job::{CRON_JOB, JOB};
pub(super) use pod::POD;
pub(super) use rbac::{BINDING, CLUSTER_BINDING, CLUSTER_ROLE, ROLE};
pub(super) use service::SERVICE;
pub(super) use workload::{DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET};

use super::crd;
use crate::validation::{FieldError, qualified_name};

/// What a hook may know.
pub(crate) struct Context<'a> {
    pub(crate) now: Timestamp,
    /// The other objects of the same resource, as JSON: most hooks need little of them, or nothing.
    pub(crate) siblings: &'a dyn Fn() -> Vec<Bytes>,
}

/// What a kind does at the turns of an object's life. Objects have passed through their type.
#[derive(Debug)]
pub(crate) struct Hooks {
    /// Whatever is written gets the values it leaves out.
    pub(crate) default: fn(&mut Value),
    /// A new object gets what its kind gives it.
    pub(crate) create: fn(&mut Value, &Context<'_>),
    /// A changed object, with what it was.
    pub(crate) update: fn(&mut Value, &Value, &Context<'_>),
    /// Deletion begins.
    pub(crate) delete: fn(&mut Value, &Context<'_>),
    /// Something besides finalizers keeps a deleted object.
    pub(crate) held: fn(&Value) -> bool,
    /// What is wrong with it, or with changing it so.
    pub(crate) validate: fn(&Value, Option<&Value>) -> Vec<FieldError>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("now", &self.now).finish_non_exhaustive()
    }
}

pub(crate) const NONE: Hooks = Hooks {
    default: |_| {},
    create: |_, _| {},
    update: |_, _, _| {},
    delete: |_, _| {},
    held: |_| false,
    validate: |_, _| Vec::new(),
};

pub(crate) const NAMESPACE: Hooks = Hooks {
    create: |object, _| {
        name_label(object);
        let mut finalizers =
            object.pointer("/spec/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        if !finalizers.iter().any(|one| one == "kubernetes") {
            finalizers.push("kubernetes".into());
        }
        set(object, "spec", json!({"finalizers": finalizers}));
        set(object, "status", json!({"phase": "Active"}));
    },
    update: |object, old, _| {
        name_label(object);
        // Only `/finalize` touches spec.finalizers; a main write keeps them.
        if object.pointer("/spec/finalizers").is_none() && old.pointer("/spec/finalizers").is_some() {
            set(object, "spec", old.get("spec").cloned().unwrap_or_default());
        }
    },
    delete: |object, _| set(object, "status", json!({"phase": "Terminating"})),
    validate: |object, old| {
        let mut errors = Vec::new();
        for (at, finalizer) in
            object.pointer("/spec/finalizers").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let name = finalizer.as_str().unwrap_or_default();
            let field = format!("spec.finalizers[{at}]");
            if name != "kubernetes" && !name.contains('/') {
                let why = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(field, finalizer, why));
            } else {
                errors.extend(FieldError::each_invalid(&field, finalizer, qualified_name(name)));
            }
        }
        let going = object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
        let phase = object.pointer("/status/phase").unwrap_or(&Value::Null);
        let (want, why) = if going {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        } else {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        };
        if old.is_some() && phase != want {
            errors.push(FieldError::invalid("status.Phase", phase, why));
        }
        errors
    },
    held: |object| {
        object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
    },
    ..NONE
};

pub(crate) const DEFINITION: Hooks = Hooks {
    validate: crd::validate,
    create: |object, context| {
        crd::default(object);
        crd::settle(object, &(context.siblings)(), context.now);
    },
    update: |object, _, context| {
        crd::default(object);
        crd::settle(object, &(context.siblings)(), context.now);
    },
    delete: |object, context| {
        crd::terminate(object, context.now);
        let finalizers = object.pointer_mut("/metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = finalizers {
            let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut()
                && !list.iter().any(|f| f == crd::CLEANUP)
            {
                list.push(crd::CLEANUP.into());
            }
        }
    },
    ..NONE
};

pub(crate) const CLAIM: Hooks = Hooks {
    default: |object| {
        if let Some(spec) = object.get_mut("spec") {
            fill(spec, "volumeMode", json!("Filesystem"));
        }
    },
    create: |object, _| set(object, "status", json!({"phase": "Pending"})),
    ..NONE
};

/// Sets what is not set.
fn fill(object: &mut Value, key: &str, value: Value) {
    if let Some(body) = object.as_object_mut() {
        body.entry(key).or_insert(value);
    }
}

/// A list in an object, empty if there is none.
fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A text that is none of those a field may hold.
fn one_of(spec: &Value, path: &str, key: &str, allowed: &[&str]) -> Option<FieldError> {
    let value = spec.get(key)?;
    let wrong = value.as_str().is_some_and(|text| !allowed.contains(&text));
    wrong.then(|| FieldError::not_supported(format!("{path}.{key}"), value, allowed))
}

fn not_negative(value: &Value, field: String) -> Option<FieldError> {
    let negative = value.as_i64().is_some_and(|n| n < 0);
    negative.then(|| FieldError::invalid(field, value, "must be greater than or equal to 0"))
}

pub(super) fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(body) = object.as_object_mut() {
        body.insert(key.to_owned(), value);
    }
}

fn name_label(object: &mut Value) {
    let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
        set(labels, "kubernetes.io/metadata.name", name);
    }
}
