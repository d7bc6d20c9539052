//! How does an object go away?
//!
//! ```text
//!            nothing holds it                      the last hold goes
//! there ────────────────────▶ gone      deleting ────────────────────▶ gone
//!   └── finalizers, grace, kind ─────────▶ │ ▲ refuses new finalizers
//! ```

use std::sync::Arc;

use jiff::ToSpan as _;
use serde_json::{Value, json};

use super::{
    Answer, Call, Core, List, Outcome, Verb, create, metadata, options, read, settled, until_settled,
};
use crate::admission::{self, Operation, Write};
use crate::env::to_second;
use crate::http::body;
use crate::resources::kinds::Context;
use crate::resources::{Content, Resource, crd};
use crate::status::Status;
use crate::store::{Expect, Object, key};
use crate::validation::FieldError;

/// Namespaces that a cluster cannot be without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// How long a pod is given unless it or the request says otherwise; Kubernetes' number.
const DEFAULT_GRACE_SECS: i64 = 30;

/// How a deletion is to be done.
#[derive(Debug, Clone, Default)]
struct DeleteOptions {
    uid: Option<String>,
    version: Option<String>,
    grace_secs: Option<i64>,
    policy: Option<Policy>,
    orphan: Option<bool>,
    dry_run: bool,
    /// Part of something that has been admitted already: an eviction, the end of a definition.
    admitted: bool,
}

/// What happens to dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// DELETE of one object.
pub(super) fn delete(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    one(core, call, &DeleteOptions::read(call)?)
}

/// The same as part of a request that has been admitted as a whole.
pub(super) fn delete_admitted(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    one(core, call, &DeleteOptions { admitted: true, ..DeleteOptions::read(call)? })
}

fn one(core: &Core, call: &Call<'_>, options: &DeleteOptions) -> Result<Outcome, Status> {
    if call.resource.is("", "namespaces") && IMMORTAL.contains(&call.name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(call.resource, call.name, why, Vec::new()));
    }
    let (removed, warnings) = remove(core, call, options)?;
    let answer = match removed {
        Removed::Gone(object) if call.resource.rules.returns_deleted => Answer::Object(200, object),
        Removed::Gone(object) => {
            Answer::Value(200, Status::deleted(call.resource, object.name(), &object.meta.uid))
        }
        Removed::Going(object) => {
            Answer::Object(if options.orphan == Some(false) { 202 } else { 200 }, object)
        }
        Removed::Dry(value) => Answer::Value(200, value),
    };
    Ok(Outcome { answer, warnings })
}

/// DELETE of a collection: answers with what was there.
pub(super) fn delete_collection(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    let options = DeleteOptions::read(call)?;
    let mut warnings = Vec::new();
    let chosen = read::page(core, call, &super::ListOptions::read(call, false)?)?;
    for object in &chosen.items {
        let one = Call { verb: Verb::Delete, namespace: object.namespace(), name: object.name(), ..*call };
        match remove(core, &one, &options) {
            Ok((_, said)) => warnings.extend(said),
            // Someone else deleted it first: it is as gone as asked.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok(Outcome { answer: Answer::List(List { next: None, remaining: None, ..chosen }), warnings })
}

/// Nothing holds an object that is being deleted any more.
pub(super) fn is_complete(resource: &Resource, object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    metadata::deleting(object)
        && metadata::finalizers(object).is_empty()
        && grace == 0
        && !held_by_kind(resource, object)
}

/// What else ends when an object is gone: the definition that only waited for its last one.
pub(super) fn after(core: &Core, resource: &Resource) {
    if let Content::Custom(custom) = &resource.content {
        finish_definition(core, &custom.definition, &resource.table);
    }
}

enum Removed {
    Gone(Arc<Object>),
    Going(Arc<Object>),
    Dry(Value),
}

/// What became of it, and what to warn of.
fn remove(core: &Core, call: &Call<'_>, options: &DeleteOptions) -> Result<(Removed, Vec<String>), Status> {
    let resource = call.resource;
    let mut warnings = Vec::new();
    let key = key(call.namespace, call.name);
    let removed = until_settled(call, || {
        let head = core.store.head(&resource.table, &key);
        let head = head.ok_or_else(|| Status::not_found(resource, call.name))?;
        options.check(resource, &head)?;
        let mut new = resource.read(&head);
        if !options.admitted {
            let write = Write {
                operation: Operation::Delete,
                object: None,
                old: Some(&new),
                dry_run: options.dry_run,
            };
            warnings = admission::review(core, call, write)?;
        }
        metadata::of(&mut new).remove("resourceVersion");
        let finalizers = options.finalizers(resource, &new);
        let grace = options.grace(resource, &new);
        mark(core, resource, &mut new, finalizers, grace);
        let complete = is_complete(resource, &new);
        if options.dry_run {
            let dry = if complete {
                Status::deleted(resource, call.name, &head.meta.uid)
            } else {
                metadata::of(&mut new).insert("resourceVersion".into(), head.revision.to_string().into());
                new
            };
            return Ok(Some(Removed::Dry(dry)));
        }
        if complete {
            let gone = core.store.delete_while(call.basis, &resource.table, &key, head.revision, None);
            let gone = settled(gone)?;
            return Ok(gone.map(Removed::Gone));
        }
        let draft = create::draft(call, &new)?;
        if draft.same_as(&head) {
            return Ok(Some(Removed::Going(head)));
        }
        let expect = Expect::Revision(head.revision);
        let put = settled(core.store.put_while(call.basis, &resource.table, expect, draft))?;
        Ok(put.map(Removed::Going))
    })?;
    match &removed {
        Removed::Gone(_) => after(core, resource),
        Removed::Going(object) if resource.is("apiextensions.k8s.io", "customresourcedefinitions") => {
            clear_definition(core, object);
        }
        Removed::Going(_) | Removed::Dry(_) => {}
    }
    Ok((removed, warnings))
}

/// Makes `object` say that it is being deleted.
fn mark(core: &Core, resource: &Resource, object: &mut Value, finalizers: Vec<String>, grace_secs: i64) {
    let now = core.env.now();
    let first = !metadata::deleting(object);
    let fields = metadata::of(object);
    fields.insert("finalizers".into(), finalizers.into());
    let sooner = fields
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .is_none_or(|before| grace_secs < before);
    if first || sooner {
        let at = now.checked_add(grace_secs.seconds()).unwrap_or(now);
        fields.insert("deletionTimestamp".into(), to_second(at).into());
        fields.insert("deletionGracePeriodSeconds".into(), grace_secs.into());
    }
    if first {
        let generation = fields.get("generation").and_then(Value::as_i64).unwrap_or(0);
        if generation > 0 {
            fields.insert("generation".into(), generation.saturating_add(1).into());
        }
        if let Content::Builtin(builtin) = &resource.content {
            let context = Context { now, siblings: &Vec::new };
            (builtin.hooks.delete)(object, &context);
        }
    }
    metadata::omit_empty(object);
}

fn held_by_kind(resource: &Resource, object: &Value) -> bool {
    match &resource.content {
        Content::Builtin(builtin) => (builtin.hooks.held)(object),
        Content::Custom(_) => false,
    }
}

/// Deletes the objects of a definition that is being deleted.
fn clear_definition(core: &Core, definition: &Object) {
    let value = definition.value();
    let registry = core.registry();
    let find = || {
        let group = value.pointer("/spec/group")?.as_str()?;
        let plural = value.pointer("/spec/names/plural")?.as_str()?;
        registry.group(group)?.versions.iter().find_map(|v| v.resources.get(plural)).cloned()
    };
    let Some(resource) = find() else {
        let table = definition.name().to_owned();
        finish_definition(core, definition.name(), &table.into());
        return;
    };
    for object in core.store.list(&resource.table, "").objects {
        let call = Call {
            who: &crate::access::Identity::server(),
            verb: Verb::Delete,
            resource: &resource,
            namespace: object.namespace(),
            name: object.name(),
            subresource: super::Subresource::Whole,
            query: &crate::http::Query::default(),
            body: &[],
            content_type: "",
            user_agent: "",
            basis: None,
        };
        // An object that cannot be deleted now keeps its definition; its own deletion finishes both.
        let options = DeleteOptions { admitted: true, ..DeleteOptions::default() };
        if let Err(status) = remove(core, &call, &options) {
            tracing::debug!(object = %object.name(), %status, "an object outlives its definition's deletion");
        }
    }
    finish_definition(core, definition.name(), &resource.table);
}

/// Takes the cleanup finalizer off a definition that has no objects left.
fn finish_definition(core: &Core, name: &str, table: &Arc<str>) {
    let definitions: Arc<str> = crd::TABLE.into();
    while let Some(head) = core.store.head(&definitions, name).filter(|d| d.meta.deleting) {
        if !core.store.head_is_empty(table) {
            return;
        }
        let registry = core.registry();
        let Some(resource) = registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
            return;
        };
        let mut value = head.value();
        metadata::of(&mut value).remove("resourceVersion");
        let left: Vec<String> = metadata::finalizers(&value)
            .into_iter()
            .filter(|f| *f != crd::CLEANUP)
            .map(str::to_owned)
            .collect();
        metadata::of(&mut value).insert("finalizers".into(), left.into());
        metadata::omit_empty(&mut value);
        let draft = resource.draft(&value);
        let done = if is_complete(resource, &value) {
            core.store.delete(&definitions, name, head.revision, Some(draft))
        } else {
            core.store.put(&definitions, Expect::Revision(head.revision), draft)
        };
        match settled(done) {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

impl DeleteOptions {
    /// From the body if there is one, else from the query.
    fn read(call: &Call<'_>) -> Result<DeleteOptions, Status> {
        let mut errors = Vec::new();
        let mut policy = |text: Option<&str>| match text {
            None | Some("") => None,
            Some("Background") => Some(Policy::Background),
            Some("Foreground") => Some(Policy::Foreground),
            Some("Orphan") => Some(Policy::Orphan),
            Some(other) => {
                let allowed = ["Background", "Foreground", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", &json!(other), &allowed));
                None
            }
        };
        let query = call.query;
        let mut options = if call.body.is_empty() {
            DeleteOptions {
                grace_secs: query.get("gracePeriodSeconds").and_then(|s| s.parse().ok()),
                policy: policy(query.get("propagationPolicy")),
                orphan: query.flag("orphanDependents"),
                ..DeleteOptions::default()
            }
        } else {
            let body = body::parse(call.content_type, call.body)?;
            if !body.is_object() {
                return Err(Status::bad_request("DeleteOptions must be an object".to_owned()));
            }
            if let Some(kind) =
                body.get("kind").and_then(Value::as_str).filter(|k| !matches!(*k, "" | "DeleteOptions"))
            {
                return Err(Status::bad_request(format!("a {kind} cannot be handled as a DeleteOptions")));
            }
            let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            DeleteOptions {
                uid: text("/preconditions/uid"),
                version: text("/preconditions/resourceVersion"),
                grace_secs: body.get("gracePeriodSeconds").and_then(Value::as_i64),
                policy: policy(body.get("propagationPolicy").and_then(Value::as_str))
                    .or_else(|| policy(query.get("propagationPolicy"))),
                orphan: body.get("orphanDependents").and_then(Value::as_bool),
                dry_run: body
                    .get("dryRun")
                    .and_then(Value::as_array)
                    .is_some_and(|d| d.contains(&json!("All"))),
                admitted: false,
            }
        };
        options.dry_run |= options::dry_run(query.all("dryRun"), &mut errors);
        if options.orphan.is_some() && options.policy.is_some() {
            let why = "orphanDependents and propagationPolicy cannot be both set";
            errors.push(FieldError::wrong("propagationPolicy", why));
        }
        if errors.is_empty() { Ok(options) } else { Err(Status::invalid_options("DeleteOptions", errors)) }
    }

    fn check(&self, resource: &Resource, head: &Object) -> Result<(), Status> {
        if let Some(uid) = self.uid.as_deref().filter(|u| **u != *head.meta.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
                 been deleted and then recreated",
                head.meta.uid
            );
            return Err(Status::precondition_failed(resource, head.name(), &why));
        }
        let current = head.revision.to_string();
        if let Some(version) = self.version.as_deref().filter(|v| *v != current) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({current}). The object might have been modified"
            );
            return Err(Status::precondition_failed(resource, head.name(), &why));
        }
        Ok(())
    }

    /// The finalizers a deletion leaves on the object: the garbage collector's are decided anew.
    fn finalizers(&self, resource: &Resource, object: &Value) -> Vec<String> {
        let before = metadata::finalizers(object);
        let orphan = match (self.orphan, self.policy) {
            (Some(orphan), _) => orphan,
            (None, Some(policy)) => policy == Policy::Orphan,
            (None, None) => {
                before.contains(&ORPHAN)
                    || (resource.rules.orphans_by_default && !before.contains(&FOREGROUND))
            }
        };
        let foreground = match (self.orphan, self.policy) {
            (Some(_), _) => false,
            (None, Some(policy)) => policy == Policy::Foreground,
            (None, None) => before.contains(&FOREGROUND),
        };
        let mut after: Vec<String> =
            before.iter().filter(|f| ![ORPHAN, FOREGROUND].contains(f)).map(|f| (*f).to_owned()).collect();
        if orphan {
            after.push(ORPHAN.into());
        }
        if foreground {
            after.push(FOREGROUND.into());
        }
        after
    }

    /// How long whoever runs the object is given to end it.
    fn grace(&self, resource: &Resource, object: &Value) -> i64 {
        if !resource.rules.graceful {
            return 0;
        }
        let runs = object.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
        let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        if !runs || matches!(phase, "Succeeded" | "Failed") {
            return 0;
        }
        let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
        self.grace_secs.or(own).unwrap_or(DEFAULT_GRACE_SECS).max(0)
    }
}
