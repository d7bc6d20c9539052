//! What a decision looks like: so specific that carrying it out makes no choices.
//!
//! A machine returns a [`Plan`]; [`crate::machine`] binds it to the version it was decided on; [`crate::apply`]
//! turns it into requests one at a time, so that between any two requests the process may die and the next
//! observation finds its way.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pawl_api::meta::{Gate, Kind};
use serde_json::Value;

use crate::failure::Failure;
use crate::object::{Key, Reference};
use crate::outside::Call;

/// What to do next, and why not more.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// In order. Each is idempotent and findable again; none depends on an earlier one's reply.
    pub steps: Vec<Step>,
    /// Told to people, before the status says the same.
    pub notes: Vec<Note>,
    /// The whole status as it should be; `None` leaves it alone. Written last, and only where it differs.
    pub status: Option<S>,
    /// Verdicts reached this time; those of other gates stay as they were.
    pub gates: Vec<Gate>,
    /// Not acting is data: what would have to happen first.
    pub waiting: Vec<Waiting>,
    /// What to ask or do outside once the steps are done; then the object is decided on again, with the answers.
    pub asks: Vec<Call>,
    pub wake: Wake,
}

impl<S> Plan<S> {
    /// Nothing to do until something changes.
    pub fn rest() -> Self {
        Self {
            steps: Vec::new(),
            notes: Vec::new(),
            status: None,
            gates: Vec::new(),
            waiting: Vec::new(),
            asks: Vec::new(),
            wake: Wake::OnChange,
        }
    }

    /// One step, and then look again.
    pub fn step(step: Step) -> Self {
        Self::rest().then(step)
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

    #[must_use]
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting.push(waiting);
        self
    }

    /// To be heard before the next decision.
    #[must_use]
    pub fn ask(mut self, call: Call) -> Self {
        self.asks.push(call);
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
    Delete {
        target: Reference,
        resource_version: Option<String>,
        propagation: Propagation,
        /// Checked on the API server itself just before: a cache that has not yet seen something is no proof that it
        /// is absent.
        only_if_gone: Vec<Reference>,
    },
    /// Go on only if this object is gone on the API server itself, as `only_if_gone` of a delete does. An empty UID
    /// means any object of that name.
    ConfirmGone(Reference),
    /// Go on only if no object of this kind in this namespace carries this label on the API server itself.
    ConfirmNone { kind: Kind, namespace: Option<String>, label: &'static str, value: String },
    /// Go on only if this object is on the API server as it was seen: caches of different kinds lag differently.
    ConfirmUnchanged { target: Reference, resource_version: String },
    /// Replace `spec.finalizers` of the Namespace this plan is about, through its `finalize` subresource; afterwards it
    /// may be gone, so no status follows.
    Finalize(Vec<String>),
    /// Put a finalizer on the object this plan is about.
    AddFinalizer(String),
    /// Take it off again; afterwards the object may be gone, so no status follows.
    RemoveFinalizer(String),
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

/// What keeps a plan from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// An object that is not there yet, or not far enough; `until` says what is awaited.
    Object { kind: Kind, key: Key, until: String },
    /// Somebody else holds the target.
    Lock { target: String, holder: String },
    /// A moment.
    Time { at: Timestamp, why: String },
    /// A kind that the API server does not serve.
    Kind(Kind),
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
