//! What are policies and conditions asked, and what may they answer?
//!
//! Rego is pure but not harmless: it is evaluated behind a port, bounded in time and memory. Whatever goes wrong there
//! is a `No`, never an answer that allows.

use std::fmt;
use std::sync::Arc;

use pawl_api::k8s::CONFIG_MAP;
use pawl_api::meta::Duration;
use pawl_api::pawl::labels;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::external::Request;
use crate::view::View;

/// What the label of a policy says.
pub const SAFETY: &str = "safety";

/// The policies that hold, as they stand in ConfigMaps; none: the built-in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Policies {
    /// Name (`configmap/key`) and text, by name.
    pub modules: Arc<[(String, String)]>,
    /// Of all of the above; empty where there are none.
    pub digest: String,
}

impl Policies {
    /// Modules by name, in the order of their names.
    pub fn of(mut modules: Vec<(String, String)>) -> Self {
        if modules.is_empty() {
            return Self::default();
        }
        modules.sort();
        let mut hash = Sha256::new();
        for part in modules.iter().flat_map(|(name, text)| [name, text]) {
            // Lengths first: no two sets read alike.
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self { modules: modules.into(), digest: format!("sha256:{}", hex::encode(hash.finalize())) }
    }

    /// Every entry of the ConfigMaps in Pawl's namespace that are labelled as policies: the watch on ConfigMaps must be
    /// `by_labels(&[labels::POLICY])`.
    pub fn observe(view: &dyn View, system_namespace: &str) -> Self {
        let found = view.labelled(&CONFIG_MAP, labels::POLICY, SAFETY);
        let ours = found.iter().filter(|map| map.namespace() == Some(system_namespace) && !map.is_deleting());
        let entries = ours.flat_map(|map| {
            let data = map.raw().get("data").and_then(Value::as_object).into_iter().flatten();
            data.filter_map(move |(key, text)| {
                Some((format!("{}/{key}", map.name()), text.as_str()?.to_owned()))
            })
        });
        Self::of(entries.collect())
    }
}

/// Something to be evaluated. Inputs are JSON text with members in the order of their names, and hold no secret (I6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// `data.pawl.safety.decision` (or `deny` sets) over this input.
    Safety { policies: Policies, input: Arc<str> },
    /// `data.condition.allow`, or the last expression, over this input.
    Condition { rego: Arc<str>, input: Arc<str> },
    /// Whether these policies can be used at all.
    Check { policies: Policies },
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Safety(Verdict),
    Condition(Held),
    /// Why they cannot, with the place.
    Check(Result<(), String>),
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl Request for Question {
    type Reply = Answer;
    const SYSTEM: &'static str = "policy";
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safety { .. } => "ask policy",
            Self::Condition { .. } => "evaluate a condition",
            Self::Check { .. } => "read policies",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::World;
    use serde_json::json;

    fn map(namespace: &str, name: &str, label: &str, data: &Value) -> (pawl_api::meta::Kind, Value) {
        let metadata = json!({"namespace": namespace, "name": name, "labels": {labels::POLICY: label}});
        (CONFIG_MAP, json!({"metadata": metadata, "data": data}))
    }

    fn observed(maps: Vec<(pawl_api::meta::Kind, Value)>) -> Policies {
        Policies::observe(&World::of(maps).unwrap(), "pawl-system")
    }

    #[test]
    fn policies_are_the_labelled_config_maps_of_pawls_own_namespace() {
        let policies = observed(vec![
            map("pawl-system", "b", "safety", &json!({"z.rego": "z", "a.rego": "a"})),
            map("pawl-system", "a", "safety", &json!({"a.rego": "first"})),
            map("pawl-system", "c", "other", &json!({"a.rego": "no policy"})),
            map("team", "d", "safety", &json!({"a.rego": "anybody could write this"})),
            map("pawl-system", "e", "safety", &Value::Null),
        ]);
        let names: Vec<&str> = policies.modules.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a/a.rego", "b/a.rego", "b/z.rego"]);
    }

    #[test]
    fn the_digest_moves_with_every_letter_and_is_empty_for_none() {
        let of = |text: &str| observed(vec![map("pawl-system", "a", "safety", &json!({"k": text}))]).digest;
        assert_ne!(of("x"), of("y"));
        assert_eq!(of("x"), of("x"));
        assert_eq!(observed(vec![]), Policies::default());
        let two = |a: &str, b: &str| {
            Policies::of(vec![("n".to_owned(), a.to_owned()), ("m".to_owned(), b.to_owned())]).digest
        };
        assert_ne!(two("ab", "c"), two("a", "bc"));
    }
}
