//! What a machine may ask of systems other than the API server, as data: the question, and what was heard.
//!
//! ```text
//! decide ─▶ Plan { asks: [call, …] } ─▶ (a port carries them out) ─▶ decide again, with the answers
//! ```
//! A decision that needs to know something from outside, or wants something done there, puts a [`Call`] into its plan.
//! The plan's own steps come first; then the calls are made, and the same object is decided on again with what was
//! heard. Nothing waits inside a decision. What was heard is forgotten when the look at the object ends: whatever must
//! be known later stands in the object's status, or is found outside again under the call's key (I7).
//!
//! Credentials never pass through here: a call says on whose behalf it is made, and the port finds the Secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::deploy::target as cluster;
use crate::failure::{Category, Failure};
use crate::git::github;
use crate::object::Key;
use crate::remedy::{action, safety};

/// Something to be asked or done outside. Two equal calls are the same call: within one look it is made once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    GitHub(github::Call),
    Logs(Logs),
    Bundle(BundleEntry),
    /// Something on a cluster that is not watched, or not by us.
    Cluster(cluster::Call),
    /// Something about an action on this cluster.
    Action(action::Call),
    /// Something that is written in Rego.
    Safety(safety::Question),
}

/// One pipeline or task of a Tekton bundle: an OCI image whose layers are manifests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BundleEntry {
    /// As images are named.
    pub bundle: String,
    /// `pipeline` or `task`.
    pub kind: String,
    pub name: String,
}

/// The end of what a container wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Logs {
    /// The Pod.
    pub pod: Key,
    pub container: String,
    /// At most so much of its end.
    pub tail_bytes: usize,
    /// Whatever these Secrets hold is masked before anybody sees it (I6).
    pub mask: Vec<Key>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    GitHub(github::Reply),
    /// The masked text.
    Logs(String),
    Cluster(cluster::Reply),
    /// The manifest.
    Bundle(serde_json::Value),
    Action(action::Reply),
    Safety(safety::Answer),
}

impl Reply {
    /// What GitHub said; `None` where another system answered.
    pub fn github(&self) -> Option<&github::Reply> {
        if let Self::GitHub(reply) = self { Some(reply) } else { None }
    }

    /// The text of a log.
    pub fn logs(&self) -> Option<&str> {
        if let Self::Logs(text) = self { Some(text) } else { None }
    }

    /// What another cluster said.
    pub fn cluster(&self) -> Option<&cluster::Reply> {
        if let Self::Cluster(reply) = self { Some(reply) } else { None }
    }

    /// The manifest from a bundle.
    pub fn bundle(&self) -> Option<&serde_json::Value> {
        if let Self::Bundle(manifest) = self { Some(manifest) } else { None }
    }

    /// What was found out about an action.
    pub fn action(&self) -> Option<&action::Reply> {
        if let Self::Action(reply) = self { Some(reply) } else { None }
    }

    /// What policy, or a condition, says.
    pub fn safety(&self) -> Option<&safety::Answer> {
        if let Self::Safety(answer) = self { Some(answer) } else { None }
    }
}

/// What was heard so far in this look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    heard: BTreeMap<Call, Result<Arc<Reply>, Failure>>,
}

impl Answers {
    /// `None`: it has not been asked in this look.
    pub fn get(&self, call: &Call) -> Option<Result<&Arc<Reply>, &Failure>> {
        self.heard.get(call).map(Result::as_ref)
    }

    pub fn put(&mut self, call: Call, answer: Result<Reply, Failure>) {
        self.heard.insert(call, answer.map(Arc::new));
    }

    /// The first failure that passes: the look is repeated because of it, whatever was decided meanwhile.
    pub fn unheard(&self) -> Option<&Failure> {
        let failed = self.heard.values().filter_map(|answer| answer.as_ref().err());
        failed.min_by_key(|failure| (!passes(failure), failure.retry_after)).filter(|failure| passes(failure))
    }
}

fn passes(failure: &Failure) -> bool {
    match failure.category {
        Category::Transient | Category::Conflict => true,
        Category::Permanent | Category::Gone => false,
    }
}

impl Call {
    /// Which system it is for: a word for metrics.
    pub fn port(&self) -> &'static str {
        match self {
            Self::GitHub(_) => "github",
            Self::Logs(_) => "logs",
            Self::Cluster(_) => "cluster",
            Self::Bundle(_) => "bundles",
            Self::Action(_) => "actions",
            Self::Safety(_) => "policy",
        }
    }

    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Self::GitHub(call) => call.ask.is_write(),
            Self::Logs(_) | Self::Bundle(_) | Self::Safety(_) => false,
            Self::Action(call) => call.is_write(),
            Self::Cluster(call) => call.is_write(),
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::GitHub(call) => call.fmt(f),
            Self::Logs(Logs { pod, container, .. }) => write!(f, "read the log of {pod} {container}"),
            Self::Cluster(call) => call.fmt(f),
            Self::Action(call) => call.fmt(f),
            Self::Safety(question) => question.fmt(f),
            Self::Bundle(BundleEntry { bundle, kind, name }) => {
                write!(f, "read {kind} {name} of bundle {bundle}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn logs(container: &str) -> Call {
        let pod = Key::new(Some("n"), "p");
        Call::Logs(Logs { pod, container: container.to_owned(), tail_bytes: 10, mask: vec![] })
    }

    #[test]
    fn what_failed_for_now_is_asked_again_and_what_failed_for_good_is_an_answer() {
        let mut answers = Answers::default();
        answers.put(logs("a"), Err(Failure::answered("a", 403, None, br#"{"kind":"Status","code":403}"#)));
        assert_eq!(answers.unheard(), None);
        answers.put(logs("b"), Err(Failure::answered("b", 503, Some(7), b"")));
        assert_eq!(answers.unheard().unwrap().retry_after, Some(Duration::from_secs(7)));
        answers.put(logs("c"), Ok(Reply::Logs("text".to_owned())));
        assert!(answers.get(&logs("c")).unwrap().is_ok());
        assert!(answers.get(&logs("d")).is_none());
    }
}
