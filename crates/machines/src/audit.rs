//! What has happened to an object, as entries of the ledger? Said by its state, not remembered by anybody.
//!
//! ```text
//! status written ─▶ state ─▶ Machine::audit(state) ─▶ entries ─▶ ledger (an id that it knows is dropped)
//!                     └── crash anywhere: the next look reads the same state, and says the same entries
//! ```
//! An entry's id is a function of the object's UID, the event and the occasion, so saying it again is harmless, and
//! nothing is written down but the status itself. What leaves no trace in a state (the last words of an object that is
//! released) is derived from the plan that releases it, and must be kept before that plan is carried out.
//! docs/decisions/0015 says why.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::object::Object;

pub(crate) mod deploy;
pub(crate) mod git;
pub(crate) mod lock;
pub(crate) mod remedy;
pub mod standing;
pub mod unit;

pub use standing::{Standing, say};
pub use unit::Teller;

/// One decision or effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The same however often it is said.
    pub id: Uuid,
    pub at: Timestamp,
    pub actor: Actor,
    pub about: Subject,
    /// What it works on, normalized; empty where there is nothing.
    pub target: String,
    /// What happened, as `git.workflow.started`.
    pub event: String,
    pub outcome: Outcome,
    /// The UID at the root of the tree that the object belongs to.
    pub correlation: String,
    /// The rest: an object. It is masked and cut before it is stored.
    pub payload: Value,
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// One of our controllers, by its machine's name.
    Controller(&'static str),
    /// A person or another program, as the API server or GitHub knows them.
    User(String),
}

impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Controller(name) => write!(f, "controller:{name}"),
            Self::User(name) => write!(f, "user:{name}"),
        }
    }
}

/// What it happened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Subject {
    pub fn of(object: &Object) -> Self {
        Self {
            kind: object.kind().kind.to_string(),
            namespace: object.namespace().unwrap_or_default().to_owned(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was begun, or waits.
    Pending,
    Success,
    Failure,
    /// It was not done, for a reason that is no failure.
    Skipped,
    Denied,
    Cancelled,
    /// It could not be found out or undone any more (I5).
    Lost,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Skipped => "skipped",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

impl Entry {
    /// An entry about this object. `occasion` tells apart what can happen to it more than once: an attempt, a job's id,
    /// a commit.
    pub fn new(
        object: &Object,
        actor: Actor,
        event: impl Into<String>,
        occasion: &str,
        at: Timestamp,
    ) -> Self {
        let event = event.into();
        Self {
            id: id(object.uid(), &event, occasion),
            at,
            actor,
            about: Subject::of(object),
            target: String::new(),
            event,
            outcome: Outcome::Success,
            correlation: object.uid().to_owned(),
            payload: json!({}),
        }
    }

    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    #[must_use]
    pub fn outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    #[must_use]
    pub fn correlation(mut self, root: impl Into<String>) -> Self {
        self.correlation = root.into();
        self
    }

    /// Adds one field of the payload; what is null is left out.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if let (false, Some(payload)) = (value.is_null(), self.payload.as_object_mut()) {
            payload.insert(field.to_owned(), value);
        }
        self
    }
}

/// The id of what happened to the object of this UID, on this occasion. Parts are told apart by a byte that none of
/// them has.
pub fn id(uid: &str, event: &str, occasion: &str) -> Uuid {
    let space = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("pawl.dev/audit/{uid}").as_bytes());
    Uuid::new_v5(&space, format!("{event}\0{occasion}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_function_of_object_event_and_occasion() {
        assert_eq!(id("u", "git.workflow.started", "1"), id("u", "git.workflow.started", "1"));
        let others =
            [id("v", "e", "1"), id("u", "f", "1"), id("u", "e", "2"), id("u", "e1", ""), id("ue", "", "1")];
        for (place, one) in others.iter().enumerate() {
            assert_ne!(*one, id("u", "e", "1"));
            assert!(!others[..place].contains(one));
        }
        // Written down: an id that changed with a version of ours would store everything anew.
        assert_eq!(id("u", "e", "1").to_string(), "8372df46-4baa-598a-87e3-02122a6cda5e");
    }
}
