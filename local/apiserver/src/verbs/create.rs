//! How does an object come into being?

use serde_json::{Value, json};

use super::options::WriteOptions;
use super::{Answer, Call, Core, Outcome, content, metadata, owners, settled};
use crate::access;
use crate::admission::{self, Operation, Write};
use crate::resources::kinds::Context;
use crate::resources::{Content, crd};
use crate::status::{Cause, Status};
use crate::store::{Draft, Expect};

/// How often a generated name is drawn anew when it is taken; Kubernetes' number.
const NAME_DRAWS: usize = 8;
/// The largest object that is kept: etcd's limit on a request.
pub(super) const MAX_OBJECT_BYTES: usize = 3 << 19;

/// POST to a collection.
pub(super) fn create(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    let options = WriteOptions::read(call)?;
    let (object, warnings) = content::decode(call, options.validation)?;
    Ok(place(core, call, object, Origin::Written, options)?.warning(warnings))
}

/// Where an object's content comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A body or a patch: it is yet to be brought into shape, and its writer owns what changed.
    Written,
    /// An apply, which did both.
    Applied,
}

/// Creates a decoded object: also how an apply or an update of an absent object ends.
pub(super) fn place(
    core: &Core,
    call: &Call<'_>,
    mut object: Value,
    origin: Origin,
    options: WriteOptions,
) -> Result<Outcome, Status> {
    let resource = call.resource;
    check_namespace(call, &mut object)?;
    if !metadata::text(&object, "resourceVersion").is_empty() {
        return Err(Status::unknown("resourceVersion should not be set on objects to be created"));
    }
    let generated =
        metadata::text(&object, "name").is_empty() && !metadata::text(&object, "generateName").is_empty();
    if generated {
        metadata::generate_name(&mut object, &*core.env);
    }
    refuse_while_ending(core, call, metadata::text(&object, "name"))?;
    let warnings = match origin {
        Origin::Written => {
            let warnings = content::reshape(resource, &mut object, options.validation)?;
            owners::track(core, call, None, &mut object);
            warnings
        }
        Origin::Applied => content::finish_applied(resource, &mut object)?,
    };
    metadata::begin(&mut object, resource, &*core.env);
    if resource.status
        && let Some(body) = object.as_object_mut()
    {
        body.remove("status");
    }
    if let Content::Builtin(builtin) = &resource.content {
        let siblings =
            || core.store.list(&resource.table, "").objects.iter().map(|o| o.bytes().clone()).collect();
        let context = Context { now: core.env.now(), siblings: &siblings };
        (builtin.hooks.create)(&mut object, &context);
        if builtin.empty_status
            && let Some(body) = object.as_object_mut()
        {
            body.entry("status").or_insert_with(|| Value::Object(serde_json::Map::new()));
        }
    }
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        name_requester(call, &mut object);
    }
    access::refuse_escalation(core, call, &object, None)?;
    content::validate(resource, &object, None)?;
    let write =
        Write { operation: Operation::Create, object: Some(&object), old: None, dry_run: options.dry_run };
    let mut warnings = warnings;
    warnings.extend(admission::review(core, call, write)?);
    for _ in 0..NAME_DRAWS {
        let draft = draft(call, &object)?;
        if options.dry_run {
            if core.store.head(&resource.table, draft.place.key()).is_some() {
                return Err(Status::already_exists(resource, draft.place.name()));
            }
            return Ok(Outcome { answer: Answer::Value(201, object), warnings });
        }
        let stored = settled(core.store.put_while(call.basis, &resource.table, Expect::Absent, draft))?;
        if let Some(stored) = stored {
            if &*resource.table == crd::TABLE && !call.who.is_server() {
                core.unpublished.hold(stored.name(), core.env.now());
            }
            return Ok(Outcome { answer: Answer::Object(201, stored), warnings });
        }
        if !generated {
            break;
        }
        metadata::generate_name(&mut object, &*core.env);
    }
    Err(Status::already_exists(resource, metadata::text(&object, "name")))
}

/// A request to be signed says who asks for it: that is the server's to say, whatever was written.
fn name_requester(call: &Call<'_>, object: &mut Value) {
    let (Some(spec), Value::Object(who)) =
        (object.get_mut("spec").and_then(Value::as_object_mut), json!(call.who))
    else {
        return;
    };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.extend(who);
}

/// The object as it will be kept, unless it is too large to be.
pub(super) fn draft(call: &Call<'_>, object: &Value) -> Result<Draft, Status> {
    let draft = call.resource.draft(object);
    if draft.len() > MAX_OBJECT_BYTES {
        return Err(Status::too_large(format!(
            "{} {:?} takes {} bytes, more than the {MAX_OBJECT_BYTES} an object may take",
            call.resource.ids.group_resource(),
            draft.place.name(),
            draft.len()
        )));
    }
    Ok(draft)
}

fn check_namespace(call: &Call<'_>, object: &mut Value) -> Result<(), Status> {
    let named = metadata::text(object, "namespace");
    if !call.resource.ids.namespaced {
        return match named {
            "" => Ok(()),
            _ => Err(Status::bad_request("namespace may not be set on cluster-scoped objects".to_owned())),
        };
    }
    if call.namespace.is_empty() {
        return Err(Status::method_not_allowed());
    }
    if !named.is_empty() && named != call.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    metadata::of(object).insert("namespace".into(), call.namespace.into());
    Ok(())
}

/// Nothing new in a namespace, or of a definition, that is not there or is on its way out.
fn refuse_while_ending(core: &Core, call: &Call<'_>, name: &str) -> Result<(), Status> {
    let resource = call.resource;
    if let Content::Custom(custom) = &resource.content
        && custom.terminating
    {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status { code: 405, reason: "MethodNotAllowed".into(), ..Status::bad_request(why) });
    }
    if !resource.ids.namespaced {
        return Ok(());
    }
    let registry = core.registry();
    let Some(namespaces) = registry.find("", "v1", "namespaces") else { return Ok(()) };
    let Some(namespace) = core.store.head(&namespaces.table, call.namespace) else {
        return Err(Status::not_found(namespaces, call.namespace));
    };
    if namespace.meta.deleting {
        let ends = format!("namespace {} is being terminated", call.namespace);
        let cause = Cause {
            reason: "NamespaceTerminating".into(),
            message: ends,
            field: "metadata.namespace".into(),
        };
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            call.namespace
        );
        return Err(Status::forbidden(resource, name, &why, vec![cause]));
    }
    Ok(())
}
