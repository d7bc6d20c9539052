//! What does an executor say at its end, in the few bytes that a termination message has?
//!
//! ```text
//! {"version":1,"uid":"…","action":"scale_deployment","outcome":"done","message":"…","changed":[…],"counts":{…},…}
//! ```
//! `before` comes from what was kept and `after` is read by the controller: here is only what neither of them knows.

use std::collections::BTreeMap;

use pawl_api::meta::text;
use pawl_api::remedy::Action;
use serde::{Deserialize, Serialize};

/// A kubelet keeps 4,096 bytes of a container's message; this leaves room for what others add.
pub const MAX_BYTES: usize = 3_500;

/// Whoever reads a report of another version does not know what it means.
pub const VERSION: u32 = 1;

const MAX_MESSAGE_CHARS: usize = 600;
const MAX_WARNINGS: usize = 5;
const MAX_WARNING_CHARS: usize = 160;
const MAX_CHANGED: usize = 12;

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub version: u32,
    /// The execution's: a report of another one is none.
    pub uid: String,
    pub action: Action,
    pub outcome: Outcome,
    /// In words.
    pub message: String,
    /// The first objects that were written, and what they became.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
    /// How many requests of each verb succeeded; evictions that a budget refused are `refused`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u32>,
    /// The first warnings of the API server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It was done, now or before.
    Done,
    /// It cannot be done to what is there; nothing was changed by this attempt.
    Refused,
    /// It may have been done in part.
    Failed,
}

/// An object that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    pub verb: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// Of what is there now; empty where nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// Why a termination message is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the executor left no report")]
    Empty,
    #[error("the executor's report cannot be read: {0}")]
    Malformed(String),
    #[error("the executor's report is of version {0}, and {VERSION} is known")]
    Version(u32),
    #[error("the executor's report is about another execution")]
    Another,
}

impl Report {
    pub fn new(uid: &str, action: Action, outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            version: VERSION,
            uid: uid.to_owned(),
            action,
            outcome,
            message: message.into(),
            changed: Vec::new(),
            counts: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// As a termination message: whatever does not fit is left out, the least important first.
    pub fn render(&self) -> String {
        let mut report = self.clone();
        report.message = text::head(report.message, MAX_MESSAGE_CHARS);
        report.warnings.truncate(MAX_WARNINGS);
        report
            .warnings
            .iter_mut()
            .for_each(|warning| *warning = text::head(warning.as_str(), MAX_WARNING_CHARS));
        report.changed.truncate(MAX_CHANGED);
        loop {
            let rendered = serde_json::to_string(&report).unwrap_or_default();
            if rendered.len() <= MAX_BYTES {
                return rendered;
            }
            // A character may be several bytes, and an escaped one more.
            if report.changed.pop().is_none() && report.warnings.pop().is_none() {
                if report.message.is_empty() {
                    return rendered;
                }
                let half = report.message.chars().count() / 2;
                report.message = text::head(report.message, half);
                report.counts.clear();
            }
        }
    }

    /// Reads the termination message of an attempt of this execution.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &str, uid: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let message = message.trim();
        if message.is_empty() {
            return Err(Unreadable::Empty);
        }
        let malformed = |error: serde_json::Error| Unreadable::Malformed(error.to_string());
        let Head { version } = serde_json::from_str(message).map_err(malformed)?;
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        let report: Self = serde_json::from_str(message).map_err(malformed)?;
        if report.uid == uid { Ok(report) } else { Err(Unreadable::Another) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn long(text: &str) -> Report {
        let mut report = Report::new("u", Action::DrainNode, Outcome::Failed, text.repeat(5_000));
        report.warnings = vec![text.repeat(1_000); 50];
        let changed = Changed {
            verb: "evict".to_owned(),
            kind: "Pod".to_owned(),
            namespace: Some(text.repeat(60)),
            name: text.repeat(253),
            resource_version: "12345678901".to_owned(),
        };
        report.changed = vec![changed; 200];
        report.counts.insert("evict".to_owned(), 200);
        report
    }

    #[test]
    fn what_was_rendered_is_read_again_by_its_own_execution_alone() {
        let mut report = Report::new("u", Action::ScaleDeployment, Outcome::Done, "Deployment n/d is scaled");
        report.counts.insert("patch".to_owned(), 1);
        assert_eq!(Report::parse(&report.render(), "u"), Ok(report.clone()));
        assert_eq!(Report::parse(&report.render(), "v"), Err(Unreadable::Another));
        assert_eq!(Report::parse(" \n", "u"), Err(Unreadable::Empty));
        assert!(matches!(Report::parse("panicked at", "u"), Err(Unreadable::Malformed(_))));
        assert_eq!(Report::parse(r#"{"version":9}"#, "u"), Err(Unreadable::Version(9)));
    }

    #[test]
    fn the_longest_report_fits_and_still_says_what_happened() {
        for text in ["a", "ä", "\u{1}", "🦀", "\""] {
            let rendered = long(text).render();
            assert!(rendered.len() <= MAX_BYTES, "{}", rendered.len());
            let read = Report::parse(&rendered, "u").unwrap();
            assert_eq!(read.outcome, Outcome::Failed);
            assert!(!read.message.is_empty());
        }
    }

    proptest! {
        #[test]
        fn any_report_fits(message in "\\PC{0,900}", warnings in prop::collection::vec("\\PC{0,300}", 0..9)) {
            let mut report = Report::new("u", Action::DrainNode, Outcome::Done, message);
            report.warnings = warnings;
            prop_assert!(report.render().len() <= MAX_BYTES);
            prop_assert!(Report::parse(&report.render(), "u").is_ok());
        }
    }
}
