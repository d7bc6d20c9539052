//! What are policies and conditions asked, and what may they answer?
//!
//! Rego is pure but not harmless: it is evaluated behind a port, bounded in time and memory. Whatever goes wrong there
//! is a `No`, never an answer that allows.

use std::fmt;
use std::sync::Arc;

use pawl_api::meta::Duration;

/// The policies that hold, as they stand in ConfigMaps; none: the built-in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Policies {
    /// Name (`configmap/key`) and text, by name.
    pub modules: Arc<[(String, String)]>,
    /// Of all of the above; empty where there are none.
    pub digest: String,
}

/// Something to be evaluated. Inputs are JSON text with members in the order of their names, and hold no secret (I6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// `data.pawl.safety.decision` (or `deny` sets) over this input.
    Safety { policies: Policies, input: Arc<str> },
    /// `data.condition.allow`, or the last expression, over this input.
    Condition { rego: Arc<str>, input: Arc<str> },
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Safety(Verdict),
    Condition(Held),
}

/// What policy says.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What to call it: the ConfigMaps, or `built-in`.
    pub policy: String,
    /// Of the policies that were evaluated.
    pub digest: String,
    /// `Err`: it could not be evaluated, which denies; why, in words.
    pub decision: Result<Decision, String>,
    /// Why the newest policies do not hold and older ones were asked.
    pub outdated: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allow: bool,
    pub deny: Vec<String>,
    pub require_approval: bool,
    pub require_dry_run: bool,
    pub approver_groups: Vec<String>,
    /// At least 1 where approval is required.
    pub approver_count: u32,
    pub approval_timeout: Option<Duration>,
    pub risk: Option<String>,
    /// `allow_gitops`: also what Argo CD or Flux manages may be changed. Nothing but this word allows it.
    pub allow_gitops: bool,
}

/// What a condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    Yes {
        message: Option<String>,
    },
    No {
        message: Option<String>,
    },
    /// It cannot be evaluated: not now, and not later.
    Error(String),
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safety { .. } => "ask policy",
            Self::Condition { .. } => "evaluate a condition",
        })
    }
}
