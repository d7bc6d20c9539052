//! May this write happen, by the policies that people keep in the API?
//!
//! ValidatingAdmissionPolicies say what to check in CEL, their bindings say where and what follows. Both are compiled
//! when they are first needed after a change, and every write that its schema allows passes here:
//!
//! ```text
//! bindings ─▶ does the policy mean this request? ─▶ params ─▶ match conditions ─▶ validations
//!                                                                                 │ false, or an error under `Fail`
//!                                                                                 ▼
//!                                                             Deny: refused   Warn: said   Audit: nothing to write to
//! ```
//!
//! | file | question |
//! |---|---|
//! | `matching` | does a policy or binding mean this request? |
//! | `program` | what do its expressions say of it? |
//!
//! Not there: the `authorizer` variable. A policy that speaks of it is refused when it is written.

mod matching;
mod program;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::resources::Resource;
use crate::schema::Budget;
use crate::selector;
use crate::status::{Cause, Status};
use crate::store::{Object, Parsed, Store, key, prefix};
use crate::verbs::{Call, Core};
use matching::Matching;
pub(crate) use program::compile_errors;
use program::{Finding, Program, Scene};

/// The group of policies and bindings.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// A write that is about to happen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) operation: Operation,
    /// What will be; absent on deletion.
    pub(crate) object: Option<&'a Value>,
    /// What is; absent on creation.
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

/// What kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// All bindings at some moment, each with its policy compiled.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    /// The revisions of the two tables this was made from.
    made_from: [u64; 2],
    compiled: Parsed<Policy>,
    bindings: Vec<Binding>,
}

#[derive(Debug)]
struct Policy {
    name: String,
    matching: Matching,
    /// Errors refuse (`Fail`) or are passed over (`Ignore`).
    fails: bool,
    params: Option<ParamKind>,
    program: Program,
}

#[derive(Debug)]
struct ParamKind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Debug)]
struct Binding {
    name: String,
    policy: Arc<Policy>,
    matching: Option<Matching>,
    deny: bool,
    warn: bool,
    params: Option<Value>,
}

impl Policies {
    /// The same if the store has nothing new, or what the store says now.
    pub(crate) fn current(store: &Store, known: &Arc<Policies>) -> Arc<Policies> {
        // Asked before reading: a write in between makes the next question read again.
        let now = [POLICIES, BINDINGS].map(|table| store.table_revision(table));
        if known.made_from == now { known.clone() } else { Arc::new(Policies::read(store, now, known)) }
    }

    fn read(store: &Store, made_from: [u64; 2], before: &Policies) -> Policies {
        let compiled = store.parsed(POLICIES, &before.compiled, Policy::read);
        let bindings = store.list(BINDINGS, "").objects;
        let bindings = bindings.iter().filter_map(|object| Binding::read(object, &compiled)).collect();
        Policies { made_from, compiled, bindings }
    }
}

impl Policy {
    fn read(object: &Object) -> Policy {
        let value = object.value();
        let spec = value.get("spec").unwrap_or(&Value::Null);
        Policy {
            name: object.name().to_owned(),
            matching: Matching::read(spec.get("matchConstraints").unwrap_or(&Value::Null)),
            fails: spec.get("failurePolicy").and_then(Value::as_str) != Some("Ignore"),
            params: spec.get("paramKind").and_then(ParamKind::read),
            program: Program::compile(spec),
        }
    }
}

impl ParamKind {
    fn read(value: &Value) -> Option<ParamKind> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (group, version) = match text("apiVersion")? {
            both if both.contains('/') => both.split_once('/')?,
            core => ("", core),
        };
        Some(ParamKind { group: group.into(), version: version.into(), kind: text("kind")?.into() })
    }

    fn resource(&self, core: &Core) -> Option<Arc<Resource>> {
        let registry = core.registry();
        let version = registry.version(&self.group, &self.version)?;
        version.resources.values().find(|resource| *resource.ids.kind == *self.kind).cloned()
    }
}

impl Binding {
    /// A binding to a policy that is not there says nothing yet.
    fn read(object: &Object, policies: &Parsed<Policy>) -> Option<Binding> {
        let value = object.value();
        let spec = value.get("spec")?;
        let (_, policy) = policies.get(spec.get("policyName")?.as_str()?)?;
        let actions = spec.get("validationActions").and_then(Value::as_array);
        let acts = |name: &str| actions.is_some_and(|all| all.iter().any(|action| action == name));
        Some(Binding {
            name: object.name().to_owned(),
            policy: policy.clone(),
            matching: spec.get("matchResources").map(Matching::read),
            deny: acts("Deny"),
            warn: acts("Warn"),
            params: spec.get("paramRef").cloned(),
        })
    }
}

/// Asks every policy that means this write. The answer is what to warn of, or the first refusal.
pub(crate) fn review(core: &Core, call: &Call<'_>, write: Write<'_>) -> Result<Vec<String>, Status> {
    let policies = core.admission();
    if policies.bindings.is_empty() || is_exempt(call.resource) {
        return Ok(Vec::new());
    }
    let namespace = namespace_of(core, call);
    let mut budget = Budget::default();
    let mut warnings = Vec::new();
    for binding in &policies.bindings {
        let means = |matching: &Matching| matching.means(call, &write, namespace.as_ref());
        if !means(&binding.policy.matching) || !binding.matching.as_ref().is_none_or(means) {
            continue;
        }
        for finding in findings(core, call, write, binding, namespace.as_ref(), &mut budget) {
            let (policy, name, said) = (&binding.policy.name, &binding.name, &finding.message);
            if binding.warn {
                warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{name}': {said}"
                ));
            }
            if binding.deny {
                let why = format!(
                    "ValidatingAdmissionPolicy '{policy}' with binding '{name}' denied request: {said}"
                );
                return Err(refusal(call, &write, &why, &finding));
            }
        }
    }
    Ok(warnings)
}

/// What a binding's policy has against the write, with each of its parameters.
fn findings(
    core: &Core,
    call: &Call<'_>,
    write: Write<'_>,
    binding: &Binding,
    namespace: Option<&Value>,
    budget: &mut Budget,
) -> Vec<Finding> {
    let policy = &binding.policy;
    let params = match (&policy.params, &binding.params) {
        (None, _) | (Some(_), None) => Ok(vec![Value::Null]),
        (Some(kind), Some(reference)) => find_params(core, call, kind, reference),
    };
    let params = match params {
        Ok(params) => params,
        Err(why) if policy.fails => {
            return vec![Finding::error(format!("failed to configure binding: {why}"))];
        }
        Err(_) => return Vec::new(),
    };
    let request = request(call, &write);
    let null = Value::Null;
    let mut out = Vec::new();
    for params in &params {
        let scene = Scene {
            object: write.object.unwrap_or(&null),
            old: write.old.unwrap_or(&null),
            request: &request,
            params,
            namespace: namespace.unwrap_or(&null),
        };
        out.extend(policy.program.run(&scene, policy.fails, budget));
    }
    out
}

/// The objects a binding hands to its policy.
fn find_params(
    core: &Core,
    call: &Call<'_>,
    kind: &ParamKind,
    reference: &Value,
) -> Result<Vec<Value>, String> {
    let text = |name: &str| reference.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(resource) = kind.resource(core) else {
        return Err(format!("failed to find resource referenced by paramKind: '{}'", kind.kind));
    };
    let namespace = match (resource.ids.namespaced, text("namespace")) {
        (false, Some(_)) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
        (false, None) => "",
        (true, Some(named)) => named,
        (true, None) if call.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into(),
            );
        }
        (true, None) => call.namespace,
    };
    let found: Vec<Value> = match text("name") {
        Some(name) => {
            let found = core.store.get(&resource.table, &key(namespace, name));
            found.map(|object| resource.read(&object)).into_iter().collect()
        }
        None => {
            let all = core.store.list(&resource.table, &prefix(namespace)).objects;
            let chosen = |value: &Value| {
                let labels = value.pointer("/metadata/labels").unwrap_or(&Value::Null);
                selector::selects(reference.get("selector").unwrap_or(&Value::Null), labels)
            };
            all.iter().map(|object| resource.read(object)).filter(chosen).collect()
        }
    };
    if found.is_empty() && text("parameterNotFoundAction") == Some("Deny") {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found)
}

/// Policies do not judge themselves, or nobody could mend a bad one; questions are not writes.
fn is_exempt(resource: &Resource) -> bool {
    &*resource.ids.group == GROUP || resource.review().is_some()
}

fn namespace_of(core: &Core, call: &Call<'_>) -> Option<Value> {
    if call.namespace.is_empty() {
        return None;
    }
    let registry = core.registry();
    let namespaces = registry.find("", "v1", "namespaces")?;
    core.store.head(&namespaces.table, call.namespace).map(|object| object.value())
}

/// `request` as expressions see it.
fn request(call: &Call<'_>, write: &Write<'_>) -> Value {
    let ids = &call.resource.ids;
    let kind = json!({"group": &*ids.group, "version": &*ids.version, "kind": &*ids.kind});
    let resource = json!({"group": &*ids.group, "version": &*ids.version, "resource": &*ids.plural});
    json!({
        "kind": kind,
        "resource": resource,
        "subResource": call.subresource.as_str(),
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": call.subresource.as_str(),
        "name": name_of(call, write),
        "namespace": call.namespace,
        "operation": write.operation.as_str(),
        "userInfo": call.who,
        "dryRun": write.dry_run,
    })
}

fn name_of<'a>(call: &Call<'a>, write: &Write<'a>) -> &'a str {
    let named = write.object.and_then(|object| object.pointer("/metadata/name")).and_then(Value::as_str);
    if call.name.is_empty() { named.unwrap_or_default() } else { call.name }
}

fn refusal(call: &Call<'_>, write: &Write<'_>, why: &str, finding: &Finding) -> Status {
    let cause = Cause { reason: String::new().into(), message: why.to_owned(), field: String::new() };
    let mut status = Status::forbidden(call.resource, name_of(call, write), why, vec![cause]);
    (status.code, status.reason) = match finding.reason.as_str() {
        "Unauthorized" => (401, "Unauthorized".into()),
        "Forbidden" => (403, "Forbidden".into()),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge".into()),
        _ => (422, "Invalid".into()),
    };
    status
}
