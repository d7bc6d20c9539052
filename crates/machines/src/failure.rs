//! What an answer of an API server means for whoever asked: the one place where errors are told apart (I9).

use std::time::Duration;

use serde::Deserialize;

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Ask again later: overload, a timeout, a broken connection, a server's own fault.
    Transient,
    /// What was observed is no longer so: look again, then decide again.
    Conflict,
    /// Asking again will not help: the request itself is refused.
    Permanent,
    /// The server says that the object does not exist, or that its namespace is being deleted.
    NotFound,
    /// The call was not made: the Secret with its credentials is missing, unreadable or malformed. Whether the object
    /// exists is unknown.
    MissingCredentials,
}

impl Category {
    /// A word for logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::Permanent => "permanent",
            Self::NotFound => "not_found",
            Self::MissingCredentials => "missing_credentials",
        }
    }
}

/// A request that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attempt}: {reason}: {message}")]
pub struct Failure {
    /// What was tried, on which object.
    pub attempt: String,
    pub category: Category,
    /// The API server's own word where it gave one.
    pub reason: String,
    pub message: String,
    /// How long the server asked to be left alone.
    pub retry_after: Option<Duration>,
}

/// The part of `metav1.Status` that tells failures apart.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    kind: String,
    reason: String,
    message: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    causes: Vec<Cause>,
    retry_after_seconds: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

/// No server may send us away for longer than this: the longest back-off there is (I9).
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// What of an answer that is not a `Status` is shown: enough to recognize a proxy's page.
const EXCERPT_CHARS: usize = 120;

impl Failure {
    /// Reads a failed answer; `retry_after` is the header's value in seconds, if there was one.
    pub fn answered(attempt: impl Into<String>, code: u16, retry_after: Option<u32>, body: &[u8]) -> Self {
        let status = serde_json::from_slice::<Status>(body).ok().filter(|status| status.kind == "Status");
        let spoke_kubernetes = status.is_some();
        let Status { reason, message, details, .. } = status.unwrap_or_default();
        let caused = |word: &str| details.causes.iter().any(|cause| cause.reason == word);
        let category = match code {
            // Somebody between us and the API server answered: nothing about the request is known.
            _ if !spoke_kubernetes && code != 404 => Category::Transient,
            404 | 410 => Category::NotFound,
            409 => Category::Conflict,
            403 if caused("NamespaceTerminating") => Category::NotFound,
            // A quota frees up as other work ends.
            403 if message.contains("exceeded quota") => Category::Transient,
            408 | 429 => Category::Transient,
            // An expired credential is renewed outside; the object is not at fault.
            401 => Category::Transient,
            400..500 => Category::Permanent,
            _ => Category::Transient,
        };
        let retry_after = retry_after
            .or((details.retry_after_seconds > 0).then_some(details.retry_after_seconds))
            .map(|seconds| Duration::from_secs(seconds.into()).min(MAX_RETRY_AFTER));
        Self {
            attempt: attempt.into(),
            category,
            reason: if reason.is_empty() { format!("HTTP{code}") } else { reason },
            message: if spoke_kubernetes { message } else { excerpt(body) },
            retry_after,
        }
    }

    pub fn new(
        category: Category,
        attempt: impl Into<String>,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        let (attempt, reason, message) = (attempt.into(), reason.to_owned(), message.into());
        Self { attempt, category, reason, message, retry_after: None }
    }

    /// The call needs credentials that cannot be used; the message says which Secret, and what is wrong with it.
    pub fn without_credentials(attempt: impl Into<String>, reason: &str, message: impl Into<String>) -> Self {
        Self::new(Category::MissingCredentials, attempt, reason, message)
    }

    /// No answer came: whether the request was carried out is not known.
    pub fn unanswered(attempt: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self::new(Category::Transient, attempt, "NoAnswer", problem.to_string())
    }

    /// A quota is used up: it frees up as other work ends, and people want to see that it is waited for.
    pub fn is_quota(&self) -> bool {
        self.reason == "Forbidden" && self.message.contains("exceeded quota")
    }

    pub fn is(&self, reason: &str) -> bool {
        self.reason == reason
    }
}

fn excerpt(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body.get(..EXCERPT_CHARS * 4).unwrap_or(body))
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(EXCERPT_CHARS)
        .collect();
    format!("not an answer of a Kubernetes API server: {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn category(code: u16, reason: &str, message: &str, cause: &str) -> Category {
        let body = json!({"kind": "Status", "reason": reason, "message": message,
            "details": {"causes": [{"reason": cause}]}});
        Failure::answered("create Job a", code, None, body.to_string().as_bytes()).category
    }

    #[test]
    fn answers_are_told_apart_in_one_place() {
        use Category::{Conflict, NotFound, Permanent, Transient};
        let table = [
            (409, "Conflict", "the object has been modified", "", Conflict),
            (409, "AlreadyExists", "", "", Conflict),
            (404, "NotFound", "", "", NotFound),
            (410, "Expired", "", "", NotFound),
            (403, "Forbidden", "being terminated", "NamespaceTerminating", NotFound),
            (403, "Forbidden", "exceeded quota: q", "", Transient),
            (403, "Forbidden", "cannot create", "", Permanent),
            (422, "Invalid", "", "FieldValueInvalid", Permanent),
            (400, "BadRequest", "", "", Permanent),
            (413, "RequestEntityTooLarge", "", "", Permanent),
            (401, "Unauthorized", "", "", Transient),
            (429, "TooManyRequests", "", "", Transient),
            (500, "InternalError", "", "", Transient),
            (504, "Timeout", "", "", Transient),
        ];
        for (code, reason, message, cause, expected) in table {
            assert_eq!(category(code, reason, message, cause), expected, "{code} {reason} {message}");
        }
    }

    #[test]
    fn a_proxys_page_is_transient_and_quoted_briefly() {
        let page = format!("<html>\n<body>{}</body></html>", "x".repeat(10_000));
        let failure = Failure::answered("get Job a", 403, None, page.as_bytes());
        assert_eq!(failure.category, Category::Transient);
        assert!(failure.message.len() < 250 && failure.message.contains("<html>"), "{failure}");
    }

    #[test]
    fn being_sent_away_is_honoured_up_to_a_bound() {
        let body = br#"{"kind":"Status","details":{"retryAfterSeconds":7}}"#;
        assert_eq!(Failure::answered("a", 429, None, body).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(Failure::answered("a", 429, Some(99_999), body).retry_after, Some(MAX_RETRY_AFTER));
    }
}
