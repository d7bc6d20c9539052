//! What a decision looks like: so specific that carrying it out makes no choices.
//!
//! A machine returns a [`Plan`]; [`crate::machine`] binds it to the version it was decided on; [`crate::apply`]
//! turns it into requests one at a time, so that between any two requests the process may die and the next
//! observation finds its way.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pawl_api::meta::{Gate, Kind};
use serde_json::{Value, json};

use crate::external::Call;
use crate::failure::Failure;
use crate::json;
use crate::object::{Key, Object, Reference};

/// What to do next, and why not more.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// In order. Each is idempotent and findable again; none depends on an earlier one's reply.
    pub steps: Vec<Step>,
    /// Steps that are alike and follow each other may be sent side by side: any of them may be done while an earlier one is
    /// not. Not for a controller that counts what is there to name what is next.
    pub in_any_order: bool,
    /// Told to people, before the status says the same.
    pub notes: Vec<Note>,
    /// The whole status as it should be; `None` leaves it alone. Written last, and only where it differs.
    pub status: Option<S>,
    /// Verdicts reached this time; those of other gates stay as they were.
    pub gates: Vec<Gate>,
    /// External calls, made once the steps are done; then the object is decided on again, with the replies.
    pub asks: Vec<Call>,
    pub wake: Wake,
}

impl<S> Plan<S> {
    /// Nothing to do until something changes.
    pub fn rest() -> Self {
        Self {
            steps: Vec::new(),
            in_any_order: false,
            notes: Vec::new(),
            status: None,
            gates: Vec::new(),
            asks: Vec::new(),
            wake: Wake::OnChange,
        }
    }

    /// One step, and then look again.
    pub fn step(step: Step) -> Self {
        Self::rest().then(step)
    }

    /// Some steps, and then reconcile again.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::rest() }
    }

    #[must_use]
    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    #[must_use]
    pub fn note(mut self, note: Note) -> Self {
        self.notes.push(note);
        self
    }

    #[must_use]
    pub fn status(mut self, status: S) -> Self {
        self.status = Some(status);
        self
    }

    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gates.push(gate);
        self
    }

    /// To be heard before the next decision.
    #[must_use]
    pub fn ask(mut self, call: impl Into<Call>) -> Self {
        self.asks.push(call.into());
        self
    }

    /// The earliest of what was set before and `at`.
    #[must_use]
    pub fn wake_at(mut self, at: Timestamp) -> Self {
        self.wake = self.wake.earliest(Wake::At(at));
        self
    }
}

/// One write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create an object whose name is a function of its owner and inputs (I1).
    Create { kind: Kind, manifest: Value, adopt: Adopt },
    /// Merge-patch another object, only if it is still the one that was observed.
    Patch { target: Reference, resource_version: Option<String>, patch: Value, part: Part },
    /// Make an object have these fields, by server-side apply, whether or not it is there. With `force`, also where
    /// somebody else has written one of them.
    Apply { kind: Kind, manifest: Value, force: bool },
    /// Delete exactly this object; with an empty UID, whichever has its name. Gone already is done.
    Delete { target: Reference, resource_version: Option<String>, propagation: Propagation },
    /// Go on only if this holds on the API server itself: caches lag, and caches of different kinds lag differently.
    Confirm(Precondition),
    /// Change the finalizers of the object this plan is about.
    Finalizer(FinalizerChange),
}

impl Step {
    /// Creates a child of this object: in its namespace, and controlled by it.
    pub fn create_child(owner: &Object, kind: Kind, mut manifest: Value) -> Self {
        let references = json!([owner.controller_reference()]);
        let metadata = json!({"namespace": owner.namespace(), "ownerReferences": references});
        json::merge(json::object(&mut manifest, "metadata"), metadata);
        Self::Create { kind, manifest, adopt: Adopt::ControlledBy(owner.uid().to_owned()) }
    }

    /// Merge-patches this object, whatever its version is by then.
    pub fn patch(object: &Object, patch: Value) -> Self {
        Self::Patch { target: object.reference(), resource_version: None, patch, part: Part::Main }
    }

    /// Merge-patches this object, only in the version that was read.
    pub fn patch_unchanged(object: &Object, patch: Value) -> Self {
        let resource_version = Some(object.resource_version().to_owned());
        Self::Patch { target: object.reference(), resource_version, patch, part: Part::Main }
    }

    /// Deletes this object, whatever its version is by then.
    pub fn delete(object: &Object) -> Self {
        Self::delete_reference(object.reference())
    }

    /// Deletes this object, only in the version that was read.
    pub fn delete_unchanged(object: &Object) -> Self {
        let resource_version = Some(object.resource_version().to_owned());
        Self::Delete { target: object.reference(), resource_version, propagation: Propagation::Background }
    }

    pub fn delete_reference(target: Reference) -> Self {
        Self::Delete { target, resource_version: None, propagation: Propagation::Background }
    }

    /// Goes on only if this object does not exist; with an empty UID, if none of its name does.
    pub fn confirm_gone(target: Reference) -> Self {
        Self::Confirm(Precondition::Gone(target))
    }

    /// Goes on only if this object is still in the version that was read.
    pub fn confirm_unchanged(object: &Object) -> Self {
        let resource_version = object.resource_version().to_owned();
        Self::Confirm(Precondition::Unchanged { target: object.reference(), resource_version })
    }

    pub fn add_finalizer(finalizer: &str) -> Self {
        Self::Finalizer(FinalizerChange::Add(finalizer.to_owned()))
    }

    pub fn remove_finalizer(finalizer: &str) -> Self {
        Self::Finalizer(FinalizerChange::Remove(finalizer.to_owned()))
    }

    /// Of a delete: the object goes after everything that it owns.
    #[must_use]
    pub fn foreground(self) -> Self {
        self.propagating(Propagation::Foreground)
    }

    /// Of a delete: what happens to what the object owns.
    #[must_use]
    pub fn propagating(mut self, to_owned: Propagation) -> Self {
        if let Self::Delete { propagation, .. } = &mut self {
            *propagation = to_owned;
        }
        self
    }

    /// Of a patch: which part of the object it may change.
    #[must_use]
    pub fn in_part(mut self, changed: Part) -> Self {
        if let Self::Patch { part, .. } = &mut self {
            *part = changed;
        }
        self
    }

    /// Whether the object that the plan is about may be gone after this step, so that no status follows.
    pub fn releases_object(&self) -> bool {
        match self {
            Self::Finalizer(FinalizerChange::Remove(_) | FinalizerChange::ReplaceInSpec(_)) => true,
            Self::Finalizer(FinalizerChange::Add(_))
            | Self::Create { .. }
            | Self::Apply { .. }
            | Self::Patch { .. }
            | Self::Delete { .. }
            | Self::Confirm(_) => false,
        }
    }
}

/// A condition that the API server must confirm before a plan goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// This object does not exist; with an empty UID, none of its name does.
    Gone(Reference),
    /// No object of this kind in this namespace carries this label.
    NoneLabelled { kind: Kind, namespace: Option<String>, label: &'static str, value: String },
    /// This object is in this version.
    Unchanged { target: Reference, resource_version: String },
}

/// A change of the finalizers of the object that a plan is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinalizerChange {
    Add(String),
    Remove(String),
    /// Replaces `spec.finalizers` of a Namespace, through its `finalize` subresource.
    ReplaceInSpec(Vec<String>),
}

/// Which part of an object a patch may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

/// Whose object it must be, if one of that name is there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopt {
    /// Its controller reference names this UID.
    ControlledBy(String),
    /// It carries these labels (owners across namespaces, where a reference would be invalid).
    Labelled(BTreeMap<String, String>),
    /// Whoever made it, it serves.
    Anyones,
    /// Never: somebody was faster, so look again.
    Never,
}

impl Adopt {
    /// Whether this object may be adopted.
    pub fn admits(&self, object: &Object) -> bool {
        match self {
            Self::ControlledBy(uid) => object.controller().is_some_and(|owner| owner.uid == *uid),
            Self::Labelled(labels) => {
                labels.iter().all(|(label, value)| object.label(label) == Some(value.as_str()))
            }
            Self::Anyones => true,
            Self::Never => false,
        }
    }
}

/// What happens to what a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// An Event for people. Written at most once per (object, reason, message, `once`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub severity: Severity,
    pub reason: String,
    pub message: String,
    /// Tells apart occurrences that would read the same, such as the attempt.
    pub once: String,
    /// Where many say the same at the same time, one Event about this object tells it of all of them.
    pub together: Option<Reference>,
}

impl Note {
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Normal,
            reason: reason.into(),
            message: message.into(),
            once: String::new(),
            together: None,
        }
    }

    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::normal(reason, message) }
    }

    /// May be told together with others, about `of`.
    #[must_use]
    pub fn together(mut self, of: Reference) -> Self {
        self.together = Some(of);
        self
    }

    #[must_use]
    pub fn once(mut self, once: impl Into<String>) -> Self {
        self.once = once.into();
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// When to look again if nothing changes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Only a change, or the slow resync.
    OnChange,
    At(Timestamp),
}

impl Wake {
    #[must_use]
    pub fn earliest(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(a), Self::At(b)) => Self::At(a.min(b)),
            (Self::At(at), Self::OnChange) | (Self::OnChange, Self::At(at)) => Self::At(at),
            (Self::OnChange, Self::OnChange) => Self::OnChange,
        }
    }
}

/// A step that the API server will not do however often it is asked, or not before a quota frees up: an observation for
/// the next decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which object the step was about.
    pub kind: Kind,
    pub key: Key,
    pub failure: Failure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_wakes_at_the_earliest_of_its_reasons() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let plan = Plan::<()>::rest().wake_at(at(20)).wake_at(at(10)).wake_at(at(30));
        assert_eq!(plan.wake, Wake::At(at(10)));
        assert_eq!(Wake::OnChange.earliest(Wake::OnChange), Wake::OnChange);
    }
}
