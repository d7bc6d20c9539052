//! What PipelineRuns and TaskRuns of the embedded server have in common: conditions, names, times, and where a
//! pipeline or task comes from.
//!
//! On a cluster Tekton runs them, and none of this does.

use pawl_api::meta::condition::Status;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::names;
use pawl_api::tekton::{RunCondition, SUCCEEDED};
use serde_json::{Map, Value};

use crate::plan::Note;

pub mod origin;
pub(super) mod spec;
pub(super) mod substitute;
pub(super) mod values;
pub(super) mod workspace;

/// Who makes TaskRuns and Pods, as Tekton says it.
pub(super) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "tekton-pipelines");

/// How long a run may take if nobody says otherwise: Tekton's own figure.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_hours(1);

/// A spec of this size or less is copied into its run's status, as Tekton does: twice of it is far below the 1.5 MiB
/// that an object may have. A larger one stands in the run's own spec, or was fetched and must be kept.
pub(super) const MAX_COPIED_BYTES: usize = 256 * 1024;

/// What the one condition of a run says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) status: Status,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Verdict {
    fn new(status: Status, reason: &str, message: impl Into<String>) -> Self {
        Self { status, reason: reason.to_owned(), message: message.into() }
    }

    pub(super) fn running(reason: &str, message: impl Into<String>) -> Self {
        Self::new(Status::Unknown, reason, message)
    }

    pub(super) fn succeeded(reason: &str, message: impl Into<String>) -> Self {
        Self::new(Status::True, reason, message)
    }

    pub(super) fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::new(Status::False, reason, message)
    }

    /// What somebody wrote is at fault, as Tekton marks it.
    pub(super) fn user_error(reason: &str, message: impl std::fmt::Display) -> Self {
        Self::failed(reason, format!("[User error] {message}"))
    }

    pub(super) fn is_final(&self) -> bool {
        self.status != Status::Unknown
    }

    /// Writes it down; the time moves only when the standing does.
    pub(super) fn set(&self, conditions: &mut Vec<RunCondition>, now: Timestamp) {
        let before = conditions.iter().find(|condition| condition.type_ == SUCCEEDED);
        let since = before.filter(|before| before.status == self.status.as_str());
        let since = since.and_then(|before| before.last_transition_time.clone()).unwrap_or(Time(now));
        let condition = RunCondition {
            type_: SUCCEEDED.to_owned(),
            status: self.status.as_str().to_owned(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            last_transition_time: Some(since),
            severity: None,
        };
        conditions.retain(|other| other.type_ != SUCCEEDED);
        conditions.push(condition);
    }

    /// What people are told when it is new.
    pub(super) fn note(&self, before: Option<&RunCondition>) -> Option<Note> {
        let same =
            |before: &RunCondition| before.reason == self.reason && before.status == self.status.as_str();
        if before.is_some_and(same) {
            return None;
        }
        Some(match self.status {
            Status::Unknown => Note::normal(self.reason.clone(), self.message.clone()),
            Status::True => Note::normal("Succeeded", self.message.clone()),
            Status::False => Note::warning("Failed", self.message.clone()),
        })
    }
}

/// Whether a run is over.
pub(super) fn is_done(conditions: &[RunCondition]) -> bool {
    let condition = conditions.iter().find(|condition| condition.type_ == SUCCEEDED);
    condition.is_some_and(|condition| condition.status == "True" || condition.status == "False")
}

/// `<parent><suffix>` where that is a name, else as much of it as fits with a hash of it all (I1).
pub(super) fn child_name(parent: &str, suffix: &str) -> String {
    let whole = format!("{parent}{suffix}");
    if whole.len() <= names::MAX_LABEL {
        whole
    } else {
        names::child(parent, &[suffix], 10, names::MAX_LABEL)
    }
}

/// The labels or annotations that a run hands down to what it makes: all but what `kubectl apply` keeps for itself.
pub(super) fn handed_down<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    let all = all.filter(|(key, _)| *key != "kubectl.kubernetes.io/last-applied-configuration");
    all.map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// A length of time as Go prints it: `1h0m0s`, `4s`, `500ms`.
pub(super) fn go_duration(duration: Duration) -> String {
    let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if secs == 0 {
        return pawl_api::meta::Duration::from(duration).to_string();
    }
    let (hours, minutes, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
    let fraction = match nanos {
        0 => String::new(),
        nanos => format!(".{}", format!("{nanos:09}").trim_end_matches('0')),
    };
    match (hours, minutes) {
        (0, 0) => format!("{secs}{fraction}s"),
        (0, minutes) => format!("{minutes}m{secs}{fraction}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{secs}{fraction}s"),
    }
}

/// How long a run may take; `None`: as long as it wants.
pub(super) fn limit(given: Option<pawl_api::meta::Duration>) -> Option<Duration> {
    let limit = given.map_or(DEFAULT_TIMEOUT, pawl_api::meta::Duration::get);
    Some(limit).filter(|limit| !limit.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_as_go_prints_them() {
        for (millis, expected) in [
            (0, "0s"),
            (500, "500ms"),
            (4_000, "4s"),
            (90_000, "1m30s"),
            (3_600_000, "1h0m0s"),
            (5_461_500, "1h31m1.5s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_told_apart() {
        assert_eq!(child_name("run", "-task"), "run-task");
        let [one, two] = ["a", "b"].map(|last| child_name(&"x".repeat(60), &format!("-task-{last}")));
        assert!(one != two && one.len() <= names::MAX_LABEL);
    }

    #[test]
    fn i12_the_time_moves_only_when_the_standing_does() {
        let mut conditions = Vec::new();
        let at = |second| Timestamp::from_second(second).unwrap();
        Verdict::running("Started", "").set(&mut conditions, at(1));
        Verdict::running("Running", "one").set(&mut conditions, at(2));
        assert_eq!(conditions[0].last_transition_time, Some(Time(at(1))));
        Verdict::failed("Failed", "two").set(&mut conditions, at(3));
        assert_eq!((conditions.len(), conditions[0].last_transition_time.clone()), (1, Some(Time(at(3)))));
        assert!(is_done(&conditions));
    }
}
