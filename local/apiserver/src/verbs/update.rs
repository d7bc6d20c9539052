//! How does an object change?
//!
//! Updates and patches differ only in where the new content comes from. Everything after is one path:
//! place and version checks, the kind's shape, the parts this request may not touch put back, rules,
//! compare-and-swap, and again from the start if someone was faster.

use serde_json::Value;

use super::create::Origin;
use super::options::WriteOptions;
use super::{
    Answer, Call, Core, MODIFIED, Outcome, Subresource, Verb, content, create, delete, metadata, owners, pods,
};
use super::{settled, until_settled};
use crate::access;
use crate::admission::{self, Operation, Write};
use crate::apply::strategic::strategic_merge;
use crate::http::body;
use crate::patch::{self, PatchError};
use crate::resources::kinds::Context;
use crate::resources::{Content, Resource};
use crate::status::Status;
use crate::store::{Expect, Object, key};
use crate::validation::FieldError;

/// PUT and PATCH of an object or its status.
pub(super) fn write(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    let options = WriteOptions::read(call)?;
    let (source, warnings) = Source::read(call, options)?;
    let key = key(call.namespace, call.name);
    let outcome = until_settled(call, || {
        let Some(head) = core.store.head(&call.resource.table, &key) else {
            return absent(core, call, &source, options).map(Some);
        };
        let old = call.resource.read(&head);
        let (new, origin) = source.content(core, call, &old)?;
        change(core, call, &head, &old, new, origin, options)
    })?;
    Ok(outcome.warning(warnings))
}

/// Where the new content comes from.
enum Source {
    Replace(Value),
    Merge(Value),
    Json(Vec<patch::Operation>),
    Strategic(Value),
    /// One that does not say its name is about what is there, and creates nothing.
    Apply {
        config: Value,
        force: bool,
        named: bool,
    },
}

impl Source {
    /// Reads the body. The second value is what to warn of.
    fn read(call: &Call<'_>, options: WriteOptions) -> Result<(Source, Vec<String>), Status> {
        if call.verb == Verb::Update {
            let (mut object, warnings) = content::decode(call, options.validation)?;
            content::check_place(call, &mut object)?;
            return Ok((Source::Replace(object), warnings));
        }
        Ok((Source::patch(call)?, Vec::new()))
    }

    fn patch(call: &Call<'_>) -> Result<Source, Status> {
        match call.content_type {
            "application/merge-patch+json" => {
                let patch = body::parse("application/json", call.body)?;
                if !patch.is_object() {
                    return Err(Status::bad_request("a merge patch must be an object".to_owned()));
                }
                Ok(Source::Merge(patch))
            }
            "application/json-patch+json" => {
                let patch = body::parse("application/json", call.body)?;
                Ok(Source::Json(patch::operations(&patch).map_err(refuse_patch)?))
            }
            "application/strategic-merge-patch+json" => match &call.resource.content {
                Content::Builtin(_) => Ok(Source::Strategic(body::parse("application/json", call.body)?)),
                Content::Custom(_) => Err(Status::unsupported_media_type(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                )),
            },
            "application/apply-patch+yaml" => {
                let mut config = body::parse(call.content_type, call.body)?;
                content::check_type(call.resource, &mut config)?;
                let named = !metadata::text(&config, "name").is_empty();
                if !named {
                    metadata::of(&mut config).insert("name".into(), call.name.into());
                }
                content::check_place(call, &mut config)?;
                Ok(Source::Apply { config, force: call.query.flag("force") == Some(true), named })
            }
            _ => Err(Status::unsupported_patch_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    fn content(&self, core: &Core, call: &Call<'_>, old: &Value) -> Result<(Value, Origin), Status> {
        let mut new = match self {
            Source::Replace(object) => return Ok((object.clone(), Origin::Written)),
            Source::Apply { config, force, .. } => {
                return Ok((owners::lay(core, call, Some(old), config, *force)?, Origin::Applied));
            }
            Source::Merge(patch) => {
                let mut new = old.clone();
                patch::merge(&mut new, patch);
                new
            }
            Source::Json(operations) => {
                let mut new = old.clone();
                patch::apply(&mut new, operations).map_err(refuse_patch)?;
                new
            }
            Source::Strategic(patch) => strategic_merge(old, patch, &call.resource.schema)
                .map_err(|error| Status::bad_request(error.to_string()))?,
        };
        content::check_type(call.resource, &mut new).map_err(|status| blame_patch(call, status))?;
        content::check_place(call, &mut new)?;
        Ok((new, Origin::Written))
    }
}

fn refuse_patch(error: PatchError) -> Status {
    match error {
        PatchError::Malformed(why) => Status::bad_request(why),
        PatchError::TooMany(why) => Status::too_large(why),
        PatchError::DoesNotApply(why) => Status::unprocessable(format!(
            "the server rejected our request due to an error in our request: {why}"
        )),
    }
}

/// Nothing is there to change: some resources create it then.
fn absent(core: &Core, call: &Call<'_>, source: &Source, options: WriteOptions) -> Result<Outcome, Status> {
    match source {
        Source::Replace(object)
            if call.resource.rules.create_on_update && call.subresource == Subresource::Whole =>
        {
            access::authorize_also(core, call, "create")?;
            let mut object = object.clone();
            metadata::of(&mut object).remove("resourceVersion");
            create::place(core, call, object, Origin::Written, options)
        }
        Source::Apply { named: false, .. } if call.subresource == Subresource::Whole => {
            let error = FieldError::required("metadata.name", "name or generateName is required");
            Err(Status::invalid(call.resource, "", vec![error]))
        }
        Source::Apply { config, force, .. } if call.subresource == Subresource::Whole => {
            if !metadata::text(config, "uid").is_empty() {
                let why = "uid mismatch: the provided object specified uid, and no existing object was found";
                return Err(Status::conflict(call.resource, call.name, why));
            }
            access::authorize_also(core, call, "create")?;
            let object = owners::lay(core, call, None, config, *force)?;
            create::place(core, call, object, Origin::Applied, options)
        }
        Source::Replace(_)
        | Source::Merge(_)
        | Source::Json(_)
        | Source::Strategic(_)
        | Source::Apply { .. } => Err(Status::not_found(call.resource, call.name)),
    }
}

/// One try at putting `new` in the place of `old`: `None` if someone was faster.
pub(super) fn change(
    core: &Core,
    call: &Call<'_>,
    head: &std::sync::Arc<Object>,
    old: &Value,
    mut new: Value,
    origin: Origin,
    options: WriteOptions,
) -> Result<Option<Outcome>, Status> {
    let resource = call.resource;
    check_identity(call, head, &new)?;
    metadata::of(&mut new).remove("resourceVersion");
    let warnings = match origin {
        Origin::Applied => content::finish_applied(resource, &mut new)?,
        Origin::Written => {
            let warnings = content::reshape(resource, &mut new, options.validation)
                .map_err(|status| blame_patch(call, status))?;
            owners::track(core, call, Some(old), &mut new);
            warnings
        }
    };
    metadata::carry_over(&mut new, old);
    isolate(call, &mut new, old);
    if let Content::Builtin(builtin) = &resource.content {
        let siblings =
            || core.store.list(&resource.table, "").objects.iter().map(|o| o.bytes().clone()).collect();
        (builtin.hooks.update)(&mut new, old, &Context { now: core.env.now(), siblings: &siblings });
    }
    metadata::omit_empty(&mut new);
    count_generation(resource, &mut new, old);
    access::refuse_escalation(core, call, &new, Some(old))?;
    if call.subresource == Subresource::Approval {
        let signer = old.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default();
        access::authorize_approval(core, call, signer)?;
    }
    content::validate(resource, &new, Some(old))?;
    pods::check_ephemeral(call, &new, old)?;

    // A scale is judged as a scale, by who made the change of it.
    let mut warnings = warnings;
    if call.subresource != Subresource::Scale {
        let write = Write {
            operation: Operation::Update,
            object: Some(&new),
            old: Some(old),
            dry_run: options.dry_run,
        };
        warnings.extend(admission::review(core, call, write)?);
    }
    let draft = create::draft(call, &new)?;
    let done = |answer| Ok(Some(Outcome { answer, warnings }));
    if draft.same_as(head) {
        return done(Answer::Object(200, head.clone()));
    }
    if options.dry_run {
        metadata::of(&mut new).insert("resourceVersion".into(), head.revision.to_string().into());
        return done(Answer::Value(200, new));
    }
    let table = &resource.table;
    let committed = if delete::is_complete(resource, &new) {
        let key = key(call.namespace, call.name);
        let deleted = settled(core.store.delete(table, &key, head.revision, Some(draft)))?;
        delete::after(core, resource);
        deleted
    } else {
        settled(core.store.put(table, Expect::Revision(head.revision), draft))?
    };
    match committed {
        Some(object) => done(Answer::Object(200, object)),
        None => Ok(None),
    }
}

/// What a patch made of an object is the patch's fault, and said as such.
fn blame_patch(call: &Call<'_>, status: Status) -> Status {
    if call.verb != Verb::Patch || status.code != 400 {
        return status;
    }
    Status::invalid_patch(FieldError::wrong("patch", status.message))
}

/// The uid and the version the client believes in.
fn check_identity(call: &Call<'_>, head: &Object, new: &Value) -> Result<(), Status> {
    let resource = call.resource;
    let uid = metadata::text(new, "uid");
    if !uid.is_empty() && *uid != *head.meta.uid {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", head.meta.uid);
        return Err(Status::conflict(resource, call.name, &why));
    }
    match metadata::text(new, "resourceVersion") {
        "" | "0" if resource.rules.unconditional_update => Ok(()),
        "" | "0" if call.verb == Verb::Patch => Ok(()),
        "" | "0" => {
            let why = "0x0: must be specified for an update";
            let error = FieldError::wrong("metadata.resourceVersion", why);
            Err(Status::invalid(resource, call.name, vec![error]))
        }
        version => match version.parse::<u64>() {
            Ok(version) if version == head.revision => Ok(()),
            Ok(_) => Err(Status::conflict(resource, call.name, MODIFIED)),
            // Kubernetes does not expect this and says so with a 500.
            Err(_) => Err(Status::unknown(format!("strconv.ParseUint: parsing {version:?}: invalid syntax"))),
        },
    }
}

/// Puts back the parts of the object that this request may not touch.
fn isolate(call: &Call<'_>, new: &mut Value, old: &Value) {
    let custom = matches!(call.resource.content, Content::Custom(_));
    match call.subresource {
        Subresource::Whole if call.resource.status => restore(new, old, |key| key == "status"),
        Subresource::Whole
        | Subresource::Scale
        | Subresource::Token
        | Subresource::Eviction
        | Subresource::Binding => {}
        Subresource::Status => {
            restore(new, old, |key| !matches!(key, "status" | "metadata" | "kind" | "apiVersion"));
            if custom {
                let owners = metadata::of(new).remove("managedFields");
                restore(new, old, |key| key == "metadata");
                metadata::of(new).remove("resourceVersion");
                metadata::of(new).insert("managedFields".into(), owners.unwrap_or_default());
            }
        }
        Subresource::Finalize => {
            let finalizers = new.pointer("/spec/finalizers").cloned();
            restore(new, old, |_| true);
            metadata::of(new).remove("resourceVersion");
            if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("finalizers".into(), finalizers.unwrap_or_else(|| Value::Array(Vec::new())));
            }
        }
        Subresource::EphemeralContainers => only(new, old, "spec", "ephemeralContainers"),
        Subresource::Approval => only(new, old, "status", "conditions"),
    }
}

/// Lets one field of one part through, and who wrote it.
fn only(new: &mut Value, old: &Value, part: &str, field: &str) {
    let written = new.pointer(&format!("/{part}/{field}")).cloned();
    let owners = metadata::of(new).remove("managedFields");
    restore(new, old, |_| true);
    metadata::of(new).remove("resourceVersion");
    metadata::of(new).insert("managedFields".into(), owners.unwrap_or_default());
    let Some(whole) = new.as_object_mut() else { return };
    let within = whole.entry(part).or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Some(within) = within.as_object_mut() {
        within.remove(field);
        within.extend(written.map(|written| (field.to_owned(), written)));
    }
}

fn restore(new: &mut Value, old: &Value, chosen: impl Fn(&str) -> bool) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    new.retain(|key, _| !chosen(key));
    for (key, value) in old.iter().filter(|(key, _)| chosen(key)) {
        new.insert(key.clone(), value.clone());
    }
}

/// The generation counts changes of what is desired.
fn count_generation(resource: &Resource, new: &mut Value, old: &Value) {
    if !resource.rules.generation {
        return;
    }
    fn desired(object: &Value, with_status: bool) -> impl Iterator<Item = (&String, &Value)> {
        let body = object.as_object().into_iter().flatten();
        body.filter(move |(key, _)| match key.as_str() {
            "metadata" | "kind" | "apiVersion" => false,
            "status" => with_status,
            _ => true,
        })
    }
    if !desired(new, !resource.status).eq(desired(old, !resource.status)) {
        let before = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        metadata::of(new).insert("generation".into(), before.saturating_add(1).into());
    }
}
