//! What went wrong with a request to GitHub, and was it carried out?

use std::fmt;
use std::time::Duration;

use pawl_machines::failure::{Category, Failure};

/// A request that did not succeed. The attempt is method and path; no variant holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// GitHub is to be left alone for a while; nothing was sent, or it was sent and refused for that.
    #[error("{attempt}: {why}: again in {} s", retry_after.as_secs())]
    Waiting { attempt: String, why: Wait, retry_after: Duration },
    /// It was sent, and no answer came.
    #[error("{attempt}: no answer: {problem}; it may have been carried out")]
    Unanswered { attempt: String, problem: String },
    /// It never got there.
    #[error("{attempt}: not sent: {problem}")]
    NotSent { attempt: String, problem: String },
    /// GitHub said no.
    #[error("{attempt}: GitHub answered {status}: {message}")]
    Refused { attempt: String, status: u16, message: String, retry_after: Option<Duration> },
    /// GitHub says that it does not exist; it says the same of what the credentials may not see.
    #[error("{attempt}: not found: GitHub answered {status}: {message}")]
    NotFound { attempt: String, status: u16, message: String },
    /// An answer that is not what GitHub answers.
    #[error("{attempt}: cannot read the answer: {problem}")]
    Unreadable { attempt: String, problem: String },
    /// A list that goes on after the last page we read.
    #[error("{attempt}: more than {pages} pages")]
    TooManyPages { attempt: String, pages: usize },
    /// The next page is said to be somewhere else, where our credential must not go.
    #[error("{attempt}: the next page is not on {host}: {link:?}")]
    ForeignLink { attempt: String, host: String, link: String },
    /// The credential itself is no use.
    #[error("{attempt}: {problem}")]
    Credentials { attempt: String, problem: String },
}

/// Why GitHub is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// All requests of the hour are used.
    Primary,
    /// Too many at once.
    Secondary,
    /// What is left of the hour is kept for writing.
    Reserve,
}

impl Wait {
    /// A stable word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Primary => "RateLimited",
            Self::Secondary => "SecondaryRateLimited",
            Self::Reserve => "RateLimitReserve",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "the rate limit is used up",
            Self::Secondary => "GitHub asked for a pause (secondary rate limit)",
            Self::Reserve => "what is left of the rate limit is kept for reports",
        })
    }
}

/// Whether a request that failed may have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Surely not.
    NotCarriedOut,
    /// Nobody knows: look before doing it again.
    Unknown,
}

impl Error {
    pub fn attempt(&self) -> &str {
        match self {
            Self::Waiting { attempt, .. }
            | Self::Unanswered { attempt, .. }
            | Self::NotSent { attempt, .. }
            | Self::Refused { attempt, .. }
            | Self::NotFound { attempt, .. }
            | Self::Unreadable { attempt, .. }
            | Self::TooManyPages { attempt, .. }
            | Self::ForeignLink { attempt, .. }
            | Self::Credentials { attempt, .. } => attempt,
        }
    }

    /// What to do about it.
    pub fn category(&self) -> Category {
        match self {
            Self::Waiting { .. }
            | Self::Unanswered { .. }
            | Self::NotSent { .. }
            | Self::Unreadable { .. } => Category::Transient,
            Self::NotFound { .. } => Category::NotFound,
            Self::Refused { status, .. } => match status {
                // An expired or revoked credential is renewed outside; the object is not at fault.
                401 | 408 | 429 => Category::Transient,
                409 => Category::Conflict,
                // A repository that moved (3xx) is one to name anew.
                300..500 => Category::Permanent,
                _ => Category::Transient,
            },
            Self::TooManyPages { .. } | Self::ForeignLink { .. } => Category::Permanent,
            Self::Credentials { .. } => Category::MissingCredentials,
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Waiting { retry_after, .. } => Some(*retry_after),
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Unanswered { .. }
            | Self::NotSent { .. }
            | Self::NotFound { .. }
            | Self::Unreadable { .. }
            | Self::TooManyPages { .. }
            | Self::ForeignLink { .. }
            | Self::Credentials { .. } => None,
        }
    }

    /// Whether it may have been carried out all the same.
    pub fn fate(&self) -> Fate {
        match self {
            Self::Unanswered { .. } | Self::Unreadable { .. } => Fate::Unknown,
            Self::Refused { status, .. } if *status >= 500 => Fate::Unknown,
            Self::Refused { .. }
            | Self::Waiting { .. }
            | Self::NotSent { .. }
            | Self::NotFound { .. }
            | Self::TooManyPages { .. }
            | Self::ForeignLink { .. }
            | Self::Credentials { .. } => Fate::NotCarriedOut,
        }
    }

    /// A stable word.
    pub fn reason(&self) -> String {
        match self {
            Self::Waiting { why, .. } => why.reason().to_owned(),
            Self::Unanswered { .. } => "NoAnswer".to_owned(),
            Self::NotSent { .. } => "NotSent".to_owned(),
            Self::Refused { status, .. } | Self::NotFound { status, .. } => format!("HTTP{status}"),
            Self::Unreadable { .. } => "Unreadable".to_owned(),
            Self::TooManyPages { .. } => "TooManyPages".to_owned(),
            Self::ForeignLink { .. } => "ForeignLink".to_owned(),
            Self::Credentials { .. } => "BadCredentials".to_owned(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let whole = error.to_string();
        let prefix = format!("{}: ", error.attempt());
        Self {
            message: whole.strip_prefix(&prefix).unwrap_or(&whole).to_owned(),
            category: error.category(),
            reason: error.reason(),
            retry_after: error.retry_after(),
            attempt: error.attempt().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> Error {
        Error::Refused { attempt: "GET /x".into(), status, message: "m".into(), retry_after: None }
    }

    #[test]
    fn answers_are_told_apart() {
        use Category::{Conflict, Permanent, Transient};
        let table = [
            (400, Permanent, Fate::NotCarriedOut),
            (401, Transient, Fate::NotCarriedOut),
            (403, Permanent, Fate::NotCarriedOut),
            (409, Conflict, Fate::NotCarriedOut),
            (422, Permanent, Fate::NotCarriedOut),
            (429, Transient, Fate::NotCarriedOut),
            (500, Transient, Fate::Unknown),
            (502, Transient, Fate::Unknown),
        ];
        for (status, category, fate) in table {
            assert_eq!((refused(status).category(), refused(status).fate()), (category, fate), "{status}");
        }
    }

    #[test]
    fn a_failure_names_the_attempt_once() {
        let failure = Failure::from(refused(502));
        assert_eq!(failure.to_string(), "GET /x: HTTP502: GitHub answered 502: m");
    }
}
