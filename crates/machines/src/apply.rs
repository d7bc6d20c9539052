//! How a plan becomes requests: in its order, without IO and without choices.
//!
//! ```text
//! ask() ─▶ request ─▶ (somebody sends it) ─▶ answer() ─▶ ask() … ─▶ None ─▶ finish()
//! ```
//! Where a machine says so, and neighbouring steps are alike (children of one kind), `ask` gives the next before the last
//! is answered, to whoever wants to send them side by side; answers come in the order of questions.
//!
//! Whoever drives it (the loop over a client, the inner simulator over the store) may die between any two calls;
//! what was sent stands, and the next observation starts from there. Steps come first, then Events, then the status:
//! so a status never claims what has not been done, and an Event is found again under the same name if it is repeated.

use std::collections::VecDeque;
use std::sync::Arc;

use http::{Request, header};
use jiff::Timestamp;
use pawl_api::meta::{Kind, names};
use pawl_api::pawl::FIELD_MANAGER;
use pawl_api::remedy::actions::PatchType;
use serde_json::{Value, json};

use crate::failure::{Category, Failure};
use crate::machine::BoundPlan;
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, FinalizerChange, Note, Part, Precondition, Propagation, Refusal, Severity, Step};
use crate::request;

mod heard;

pub use pawl_api::k8s::EVENTS_EVENT as EVENT;

/// Events keep a note of at most this many bytes on every API server.
const MAX_NOTE_BYTES: usize = 1024;

/// Makes a create or delete count only while another object is as it was; known to Pawl's own API server.
const IF_UNCHANGED: header::HeaderName = header::HeaderName::from_static("pawl-if-unchanged");

/// What came back for a request.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    Received {
        code: u16,
        retry_after: Option<u32>,
        body: &'a [u8],
    },
    /// Nothing: it may or may not have been carried out.
    Lost(&'a str),
}

/// What applying came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was written, so that no later decision runs on caches older than this.
    pub writes: Vec<Written>,
    /// Steps that will not succeed as things are: an observation for the next decision.
    pub refusals: Vec<Refusal>,
    /// Why it stopped early, if it did.
    pub failure: Option<Failure>,
    /// Events that could not be written. They are for people; the work does not wait for them.
    pub lost_notes: usize,
}

/// An object as it was after one of our writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub kind: Kind,
    pub key: Key,
    pub uid: String,
    pub resource_version: String,
    /// It was deleted, or is on its way.
    pub deleted: bool,
}

/// A plan under way.
#[derive(Debug)]
pub struct Applying {
    about: Arc<Object>,
    machine: &'static str,
    now: Timestamp,
    fenced: bool,
    in_any_order: bool,
    /// Of `about`: moves with our own writes to it, so that the status is still compared and swapped.
    resource_version: String,
    tasks: VecDeque<Task>,
    /// The questions whose answers are awaited, in their order.
    asked: VecDeque<Asked>,
    /// What those are, where more of them may be asked meanwhile.
    alike: Option<Alike>,
    outcome: Outcome,
}

/// Steps that do not concern each other, so that neighbours may be sent side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Alike {
    /// Makes a child of this kind.
    Make(Kind),
    /// Tells another object of this kind what its status is, only in the version that was seen.
    Tell(Kind),
}

#[derive(Clone, Debug)]
enum Task {
    /// Caches of different kinds lag differently: what was seen of the children may be newer than what was seen of the
    /// object, and then the plan is an answer to a question nobody asks any more. Whatever made the children what they
    /// were seen to be had been written to the object before, so reading it once now is enough to notice.
    ConfirmBasis,
    Step(Step),
    /// A create found its name taken: see whose it is.
    Adopt {
        kind: Kind,
        key: Key,
        adopt: Adopt,
    },
    Note(Note),
    Status(Value),
}

/// A question.
#[derive(Debug)]
enum Asked {
    Create {
        kind: Kind,
        key: Key,
        adopt: Adopt,
    },
    ReadToAdopt {
        kind: Kind,
        key: Key,
        adopt: Adopt,
    },
    Basis,
    IsGone(Reference),
    IsNone {
        kind: Kind,
        namespace: Option<String>,
    },
    IsUnchanged {
        target: Reference,
        resource_version: String,
    },
    Patch {
        kind: Kind,
        key: Key,
    },
    Delete(Reference),
    /// A write to the object the plan is about.
    Own {
        last: bool,
    },
    Note,
}

impl Applying {
    pub fn new(plan: BoundPlan, about: Arc<Object>, now: Timestamp) -> Self {
        let BoundPlan {
            machine,
            basis: _,
            resource_version,
            fenced,
            in_any_order,
            mut steps,
            notes,
            status,
            asks: _,
            wake: _,
        } = plan;
        let releases = steps.iter().any(Step::releases_object);
        let status = status.filter(|_| !releases).and_then(|status| difference(about.status(), &status));
        // What there is to say of an object is said before it may be gone: nobody would come back to say it.
        let release =
            steps.iter().position(Step::releases_object).map(|at| steps.split_off(at)).unwrap_or_default();
        let confirm = !fenced && needs_confirmed_basis(&about, &steps);
        let tasks: VecDeque<Task> = confirm
            .then_some(Task::ConfirmBasis)
            .into_iter()
            .chain(steps.into_iter().map(Task::Step))
            .chain(notes.into_iter().map(Task::Note))
            .chain(release.into_iter().map(Task::Step))
            .chain(status.map(Task::Status))
            .collect();
        Self { machine, fenced, in_any_order, resource_version, ..Self::of(about, now, tasks) }
    }

    /// Steps on another cluster than the one the object is on. Whether they are still wanted was confirmed at home.
    pub fn elsewhere(steps: Vec<Step>, about: Arc<Object>, now: Timestamp) -> Self {
        Self::of(about, now, steps.into_iter().map(Task::Step).collect())
    }

    fn of(about: Arc<Object>, now: Timestamp, tasks: VecDeque<Task>) -> Self {
        Self {
            resource_version: about.resource_version().to_owned(),
            about,
            machine: "deploy-item",
            now,
            fenced: false,
            in_any_order: false,
            tasks,
            asked: VecDeque::new(),
            alike: None,
            outcome: Outcome::default(),
        }
    }

    /// Whether there is nothing to send at all.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.asked.is_empty()
    }

    /// The next request; `None` when all is done or nothing more can be, or while an answer is to be awaited.
    pub fn ask(&mut self) -> Option<Request<Vec<u8>>> {
        if self.outcome.failure.is_some() || !self.outcome.refusals.is_empty() {
            return None;
        }
        let alike = self.alike();
        if !self.asked.is_empty() && (alike.is_none() || alike != self.alike) {
            return None;
        }
        self.alike = alike;
        let (asked, request) = match self.tasks.pop_front()? {
            Task::ConfirmBasis => (Asked::Basis, confirm_request(self.about.kind(), &self.about.key())),
            Task::Step(step) => self.ask_step(step),
            Task::Adopt { kind, key, adopt } => {
                let request = get_request(&kind, &key);
                (Asked::ReadToAdopt { kind, key, adopt }, request)
            }
            Task::Note(note) => (Asked::Note, event(&self.about.reference(), &note, self.machine, self.now)),
            Task::Status(patch) => {
                let body = self.swapping(json!({"status": patch}));
                (
                    Asked::Own { last: true },
                    patch_request(self.about.kind(), &self.about.key(), Part::Status, &body),
                )
            }
        };
        self.asked.push_back(asked);
        Some(request)
    }

    /// Takes the answer to the first request that `ask` gave and that has none yet.
    pub fn answer(&mut self, answer: Answer<'_>) {
        let Some(asked) = self.asked.pop_front() else { return };
        let attempt = self.attempt(&asked);
        let reply = match answer {
            Answer::Lost(problem) => Err(Failure::unanswered(attempt, problem)),
            Answer::Received { code: 200..300, body, .. } => match heard::read(body) {
                Ok(value) if value.get("kind").is_some() => Ok(value),
                Ok(_) => Err(Failure::unanswered(attempt, "the answer has no kind")),
                Err(error) => Err(Failure::unanswered(attempt, format!("the answer is not JSON: {error}"))),
            },
            Answer::Received { code, retry_after, body } => {
                Err(Failure::answered(attempt, code, retry_after, body))
            }
        };
        self.take(asked, reply);
    }

    pub fn finish(self) -> Outcome {
        self.outcome
    }

    /// What the next step is, if others like it may be on their way at the same time.
    fn alike(&self) -> Option<Alike> {
        match self.tasks.front().filter(|_| self.in_any_order)? {
            Task::Step(Step::Create { kind, adopt: Adopt::ControlledBy(owner), .. })
                if owner == self.about.uid() =>
            {
                Some(Alike::Make(kind.clone()))
            }
            Task::Step(Step::Patch { target, resource_version: Some(_), part: Part::Status, .. })
                if target.uid != self.about.uid() =>
            {
                Some(Alike::Tell(target.kind.clone()))
            }
            Task::ConfirmBasis | Task::Step(_) | Task::Adopt { .. } | Task::Note(_) | Task::Status(_) => None,
        }
    }

    fn ask_step(&mut self, step: Step) -> (Asked, Request<Vec<u8>>) {
        match step {
            Step::Create { kind, mut manifest, adopt } => {
                let key = complete(&kind, &mut manifest);
                let request = create_request(&kind, key.namespace.as_deref(), &manifest);
                (Asked::Create { kind, key, adopt }, self.fence(request))
            }
            Step::Apply { kind, mut manifest, force } => {
                let key = complete(&kind, &mut manifest);
                let request = request::apply(&kind, &key, "pawl-deployer", force, &manifest);
                (Asked::Patch { kind, key }, request.build_or_root())
            }
            Step::Patch { target: Reference { kind, key, uid }, resource_version, patch, part } => {
                let body = with_preconditions(patch, Some(&uid), resource_version.as_deref());
                let request = patch_request(&kind, &key, part, &body);
                (Asked::Patch { kind, key }, request)
            }
            Step::Delete { target, resource_version, propagation } => {
                let request = delete_request(&target, resource_version.as_deref(), propagation);
                (Asked::Delete(target), self.fence(request))
            }
            Step::Confirm(Precondition::Gone(gone)) => {
                let request = confirm_request(&gone.kind, &gone.key);
                (Asked::IsGone(gone), request)
            }
            Step::Confirm(Precondition::NoneLabelled { kind, namespace, label, value }) => {
                let request = request::list(&kind, namespace.as_deref()).metadata_only();
                let request = request.query("labelSelector", &format!("{label}={value}")).query("limit", "1");
                (Asked::IsNone { kind, namespace }, request.build_or_root())
            }
            Step::Confirm(Precondition::Unchanged { target, resource_version }) => {
                let request = confirm_request(&target.kind, &target.key);
                (Asked::IsUnchanged { target, resource_version }, request)
            }
            Step::Finalizer(FinalizerChange::ReplaceInSpec(finalizers)) => {
                (Asked::Own { last: true }, self.finalize_request(&finalizers))
            }
            Step::Finalizer(FinalizerChange::Add(finalizer)) => {
                let mut finalizers = self.about.finalizers().to_vec();
                finalizers.push(finalizer);
                (Asked::Own { last: false }, self.finalizers_request(&finalizers))
            }
            Step::Finalizer(FinalizerChange::Remove(finalizer)) => {
                let mut finalizers = self.about.finalizers().to_vec();
                finalizers.retain(|held| *held != finalizer);
                (Asked::Own { last: true }, self.finalizers_request(&finalizers))
            }
        }
    }

    /// A process may stall between its last look and this request for as long as the rest of the object's life takes
    /// others. Where the API server can, it compares the version that this was decided on with the write itself.
    fn fence(&self, mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
        if self.fenced {
            let key = self.about.key();
            let path = self.about.kind().path(key.namespace.as_deref(), Some(&key.name));
            let basis = format!("{path} {}", self.resource_version);
            if let Ok(basis) = header::HeaderValue::from_str(&basis) {
                request.headers_mut().insert(IF_UNCHANGED, basis);
            }
        }
        request
    }

    fn take(&mut self, asked: Asked, reply: Result<Value, Failure>) {
        match asked {
            Asked::Create { kind, key, adopt } => match reply {
                Ok(made) => self.written(kind, key, &made, false),
                // I1: whether it was us who made it, the object itself says.
                Err(failure) if failure.is("AlreadyExists") && adopt != Adopt::Never => {
                    self.tasks.push_front(Task::Adopt { kind, key, adopt });
                }
                Err(failure) => self.stop(kind, key, failure),
            },
            Asked::ReadToAdopt { kind, key, adopt } => match reply {
                Ok(found) => self.adopt(kind, key, &adopt, &found),
                Err(failure) => self.stop(kind, key, Failure { category: Category::Conflict, ..failure }),
            },
            Asked::Basis => {
                let (kind, key) = (self.about.kind().clone(), self.about.key());
                self.check_version(kind, key, &self.resource_version.clone(), reply);
            }
            Asked::IsGone(gone) => self.check_gone(&gone, reply),
            Asked::IsNone { kind, namespace } => self.check_none(kind, namespace, reply),
            Asked::IsUnchanged { target: Reference { kind, key, .. }, resource_version } => {
                self.check_version(kind, key, &resource_version, reply);
            }
            Asked::Patch { kind, key } => match reply {
                // The status that follows swaps with what this write made of the object.
                Ok(patched) if text(&patched, "/metadata/uid") == Some(self.about.uid()) => {
                    self.own_written(&patched);
                }
                Ok(patched) => self.written(kind, key, &patched, false),
                Err(failure) => self.stop(kind, key, failure),
            },
            Asked::Delete(Reference { kind, key, .. }) => match reply {
                Ok(deleted) => self.written(kind, key, &deleted, true),
                Err(failure) if failure.category == Category::NotFound => {}
                Err(failure) => self.stop(kind, key, failure),
            },
            Asked::Own { last } => match reply {
                Ok(own) => self.own_written(&own),
                // The object is gone: whatever its finalizer or status should have been, it is settled.
                Err(failure) if last && failure.category == Category::NotFound => self.tasks.clear(),
                Err(failure) => self.stop(self.about.kind().clone(), self.about.key(), failure),
            },
            Asked::Note => match reply {
                Ok(_) => {}
                Err(failure) if failure.is("AlreadyExists") => {}
                Err(_) => self.outcome.lost_notes += 1,
            },
        }
    }

    fn adopt(&mut self, kind: Kind, key: Key, adopt: &Adopt, found: &Value) {
        let found_labels = found.pointer("/metadata/labels");
        let ours = match adopt {
            Adopt::Anyones => true,
            Adopt::Never => false,
            Adopt::ControlledBy(uid) => controller_uid(found) == Some(uid),
            Adopt::Labelled(labels) => labels.iter().all(|(label, value)| {
                found_labels.and_then(|labels| labels.get(label)).and_then(Value::as_str) == Some(value)
            }),
        };
        let attempt = format!("adopt {kind} {key}");
        if !ours {
            let owner = found.pointer("/metadata/ownerReferences").cloned().unwrap_or_default();
            let message = format!("{kind} {key} exists and is not ours; its owner references are {owner}");
            self.stop(kind, key, Failure::new(Category::Permanent, attempt, "OwnershipMismatch", message));
        } else if found.pointer("/metadata/deletionTimestamp").is_some() {
            // Ours, but on its way out: its name is free only once it is gone.
            let message = format!("{kind} {key} is being deleted");
            self.stop(kind, key, Failure::new(Category::Conflict, attempt, "Terminating", message));
        } else {
            self.written(kind, key, found, false);
        }
    }

    fn check_version(&mut self, kind: Kind, key: Key, version: &str, reply: Result<Value, Failure>) {
        match reply {
            Ok(found) if text(&found, "/metadata/resourceVersion") == Some(version) => {}
            Ok(_) => {
                let attempt = format!("confirm {kind} {key}");
                let message = format!("{kind} {key} has changed since this was decided");
                self.stop(kind, key, Failure::new(Category::Conflict, attempt, "Outdated", message));
            }
            Err(failure) => self.stop(kind, key, failure),
        }
    }

    fn check_gone(&mut self, gone: &Reference, reply: Result<Value, Failure>) {
        match reply {
            // A namesake that came later is not it, unless any of that name is meant.
            Ok(found) if !gone.uid.is_empty() && text(&found, "/metadata/uid") != Some(&gone.uid) => {}
            Err(failure) if failure.category == Category::NotFound => {}
            Err(failure) => self.stop(gone.kind.clone(), gone.key.clone(), failure),
            Ok(_) => {
                let attempt = format!("check that {gone} is gone");
                let message = format!("{gone} exists, so what depends on it stays");
                let failure = Failure::new(Category::Conflict, attempt, "StillThere", message);
                self.stop(gone.kind.clone(), gone.key.clone(), failure);
            }
        }
    }

    fn check_none(&mut self, kind: Kind, namespace: Option<String>, reply: Result<Value, Failure>) {
        let key = Key { namespace, name: String::new() };
        match reply {
            Ok(list) if list.get("items").and_then(Value::as_array).is_some_and(Vec::is_empty) => {}
            Ok(_) => {
                let home = key.namespace.as_deref().unwrap_or("any");
                let attempt = format!("check that no {kind} is left in {home}");
                let message = format!("some {kind} is there that this was decided without");
                self.stop(kind, key, Failure::new(Category::Conflict, attempt, "StillThere", message));
            }
            Err(failure) => self.stop(kind, key, failure),
        }
    }

    fn stop(&mut self, kind: Kind, key: Key, failure: Failure) {
        if failure.category == Category::Permanent || failure.is_quota() {
            self.outcome.refusals.push(Refusal { kind, key, failure });
        } else {
            self.outcome.failure = Some(failure);
        }
    }

    fn own_written(&mut self, own: &Value) {
        if let Some(version) = text(own, "/metadata/resourceVersion") {
            self.resource_version = version.to_owned();
        }
        let deleted = own.pointer("/metadata/deletionTimestamp").is_some();
        self.written(self.about.kind().clone(), self.about.key(), own, deleted);
    }

    fn written(&mut self, kind: Kind, key: Key, reply: &Value, deleted: bool) {
        // A delete that took effect at once may be answered by a Status, which has no version to wait for.
        let uid = text(reply, "/metadata/uid").or_else(|| text(reply, "/details/uid")).unwrap_or_default();
        let resource_version = text(reply, "/metadata/resourceVersion").unwrap_or_default();
        self.outcome.writes.push(Written {
            kind,
            key,
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
            deleted,
        });
    }

    fn finalizers_request(&self, finalizers: &[String]) -> Request<Vec<u8>> {
        let body = self.swapping(json!({"metadata": {"finalizers": finalizers}}));
        patch_request(self.about.kind(), &self.about.key(), Part::Main, &body)
    }

    /// `finalize` takes the metadata from what it is sent: so all of it is sent.
    fn finalize_request(&self, finalizers: &[String]) -> Request<Vec<u8>> {
        let mut body = self.about.raw().clone();
        let key = complete(self.about.kind(), &mut body);
        if let Some(fields) = body.as_object_mut() {
            fields.insert("spec".to_owned(), json!({"finalizers": finalizers}));
        }
        request::finalize(self.about.kind(), &key, &self.swapping(body)).build_or_root()
    }

    /// A write to the object this plan is about, valid only for the version it was decided on.
    fn swapping(&self, body: Value) -> Value {
        with_preconditions(body, None, Some(&self.resource_version))
    }

    fn attempt(&self, asked: &Asked) -> String {
        match asked {
            Asked::Create { kind, key, .. } => format!("create {kind} {key}"),
            Asked::ReadToAdopt { kind, key, .. } => format!("read {kind} {key}"),
            Asked::Basis => format!("confirm {} {}", self.about.kind(), self.about.key()),
            Asked::IsGone(gone) => format!("check that {gone} is gone"),
            Asked::IsNone { kind, .. } => format!("check that no {kind} is left"),
            Asked::IsUnchanged { target, .. } => format!("check that {target} is as it was seen"),
            Asked::Patch { kind, key } => format!("patch {kind} {key}"),
            Asked::Delete(target) => format!("delete {target}"),
            Asked::Own { .. } => format!("update {} {}", self.about.kind(), self.about.key()),
            Asked::Note => format!("write an Event about {} {}", self.about.kind(), self.about.key()),
        }
    }
}

/// The request that writes an Event about an object: at most one for the same words.
pub fn event(about: &Reference, note: &Note, machine: &str, now: Timestamp) -> Request<Vec<u8>> {
    let Note { severity, reason, message, once, together: _ } = note;
    let Reference { kind, key: Key { namespace, name }, uid } = about;
    let home = namespace.as_deref().unwrap_or("default");
    let event = names::child(name, &[uid, reason, message, once], 16, names::MAX_SUBDOMAIN);
    let manifest = json!({
        "apiVersion": EVENT.api_version(), "kind": EVENT.kind,
        "metadata": {"name": event, "namespace": home},
        "eventTime": format!("{now:.6}"),
        "type": match severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
        "reason": reason, "action": reason, "note": cut(message, MAX_NOTE_BYTES),
        "reportingController": format!("pawl.dev/{machine}"), "reportingInstance": "pawl",
        "regarding": {
            "apiVersion": kind.api_version(), "kind": kind.kind, "name": name, "namespace": namespace, "uid": uid,
        },
    });
    create_request(&EVENT, Some(home), &manifest)
}

/// Whether a plan makes or removes other objects before anything else has compared the object's version.
fn needs_confirmed_basis(about: &Object, steps: &[Step]) -> bool {
    match steps.first() {
        Some(Step::Finalizer(FinalizerChange::Add(_))) => false,
        _ => steps.iter().any(|step| match step {
            Step::Create { .. } | Step::Apply { .. } => true,
            Step::Delete { target, resource_version, .. } => {
                target.uid != about.uid() || resource_version.is_none()
            }
            Step::Patch { .. } | Step::Confirm(_) | Step::Finalizer(_) => false,
        }),
    }
}

/// The merge patch that makes `old` into `new`; `None` when they say the same.
pub fn difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let removed =
                old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
            let changed = new.iter().filter_map(|(key, value)| match old.get(key) {
                Some(before) => Some((key.clone(), difference(before, value)?)),
                None => Some((key.clone(), value.clone())),
            });
            let patch: serde_json::Map<_, _> = removed.chain(changed).collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (old, new) if old == new => None,
        // An object that only says defaults is not worth a write to an absent status.
        (Value::Null, Value::Object(new)) if new.is_empty() => None,
        (_, new) => Some(new.clone()),
    }
}

fn controller_uid(object: &Value) -> Option<&str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let controller = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    controller.get("uid")?.as_str()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn cut(text: &str, max_bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(max_bytes)).unwrap_or(text)
}

/// A write that applies only to this very object, or version: the server compares what is given.
fn with_preconditions(mut body: Value, uid: Option<&str>, resource_version: Option<&str>) -> Value {
    if let Some(body) = body.as_object_mut()
        && let Some(metadata) = body.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        let given = [("uid", uid), ("resourceVersion", resource_version)];
        metadata.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
    }
    body
}

/// Says of which kind a manifest is; gives the key of its object.
fn complete(kind: &Kind, manifest: &mut Value) -> Key {
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.insert("apiVersion".to_owned(), kind.api_version().into());
        manifest.insert("kind".to_owned(), kind.kind.as_ref().into());
    }
    let name = text(manifest, "/metadata/name").unwrap_or_default();
    Key::new(text(manifest, "/metadata/namespace"), name)
}

fn create_request(kind: &Kind, namespace: Option<&str>, manifest: &Value) -> Request<Vec<u8>> {
    request::create(kind, namespace, FIELD_MANAGER, manifest).build_or_root()
}

fn get_request(kind: &Kind, key: &Key) -> Request<Vec<u8>> {
    request::get(kind, key).build_or_root()
}

fn confirm_request(kind: &Kind, key: &Key) -> Request<Vec<u8>> {
    request::get_metadata(kind, key).build_or_root()
}

fn patch_request(kind: &Kind, key: &Key, part: Part, body: &Value) -> Request<Vec<u8>> {
    request::patch(kind, key, part, PatchType::Merge, FIELD_MANAGER, body).build_or_root()
}

fn delete_request(
    target: &Reference,
    resource_version: Option<&str>,
    propagation: Propagation,
) -> Request<Vec<u8>> {
    let mut preconditions = serde_json::Map::new();
    if !target.uid.is_empty() {
        preconditions.insert("uid".to_owned(), target.uid.as_str().into());
    }
    if let Some(version) = resource_version {
        preconditions.insert("resourceVersion".to_owned(), version.into());
    }
    let propagation = match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions,
        "propagationPolicy": propagation});
    request::delete(&target.kind, &target.key, &body).build_or_root()
}

#[cfg(test)]
mod tests;
