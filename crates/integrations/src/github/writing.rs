//! What is told to GitHub.
//!
//! None of these looks first and none is sent twice: who may have been carried out ([`Error::fate`]) is looked for before
//! the next attempt, by [`super::checks`] and by the marker of a comment.

use http::Method;
use jiff::Timestamp;
use pawl_machines::git::github::{CheckRun, CheckRunRef, CommitStatus, Conclusion, StatusState};
use serde::Serialize;

use super::budget::Endpoint;
use super::client::Client;
use super::error::Error;
use super::wire;

/// GitHub takes at most 65,535 characters of summary and of text.
const MAX_OUTPUT_CHARS: usize = 65_535;
/// And 140 of a commit status's description.
const MAX_DESCRIPTION_CHARS: usize = 140;
/// Stands where a text was cut.
const CUT: char = '…';

#[derive(Serialize)]
struct Run<'a> {
    name: &'a str,
    /// Not in an update: a check run keeps its commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_sha: Option<&'a str>,
    external_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conclusion: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details_url: Option<&'a str>,
    output: Output<'a>,
}

#[derive(Serialize)]
struct Output<'a> {
    title: &'a str,
    summary: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
}

#[derive(Serialize)]
struct NewStatus<'a> {
    state: &'static str,
    context: &'a str,
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_url: Option<&'a str>,
}

#[derive(Serialize)]
struct NewComment<'a> {
    body: &'a str,
}

fn body<'a>(run: &'a CheckRun, head_sha: Option<&'a str>) -> Run<'a> {
    Run {
        name: &run.name,
        head_sha,
        external_id: &run.external_id,
        status: run.state.as_str(),
        conclusion: run.state.conclusion().map(Conclusion::as_str),
        started_at: run.started_at,
        completed_at: run.completed_at,
        details_url: run.details_url.as_deref(),
        output: Output {
            title: &run.title,
            summary: fitted(&run.summary, MAX_OUTPUT_CHARS),
            text: fitted(&run.text, MAX_OUTPUT_CHARS),
        },
    }
}

impl Client {
    /// Makes a check run, whether or not there is one: see [`Client::ensure_check_run`].
    ///
    /// # Errors
    /// [`Error::fate`] tells whether it may be there all the same.
    pub(crate) async fn post_check_run(&self, run: &CheckRun) -> Result<CheckRunRef, Error> {
        let path = self.path(&["check-runs"]);
        let made: wire::CheckRun =
            self.write(Endpoint::CreateCheckRun, Method::POST, path, &body(run, Some(&run.sha))).await?;
        Ok((&made).into())
    }

    pub(crate) async fn patch_check_run(&self, id: i64, run: &CheckRun) -> Result<CheckRunRef, Error> {
        let path = self.path(&["check-runs", &id.to_string()]);
        let made: wire::CheckRun =
            self.write(Endpoint::UpdateCheckRun, Method::PATCH, path, &body(run, None)).await?;
        Ok((&made).into())
    }

    /// Sets a commit status. The newest of a context counts, so sending it twice is harmless.
    ///
    /// # Errors
    /// As [`Client::repository`].
    pub async fn set_status(&self, status: &CommitStatus) -> Result<(), Error> {
        let new = NewStatus {
            state: match status.state {
                StatusState::Pending => "pending",
                StatusState::Success => "success",
                StatusState::Failure => "failure",
                StatusState::Error => "error",
            },
            context: &status.context,
            description: fitted(&status.description, MAX_DESCRIPTION_CHARS),
            target_url: status.target_url.as_deref(),
        };
        let path = self.path(&["statuses", &status.sha]);
        self.write::<wire::Status>(Endpoint::CreateStatus, Method::POST, path, &new).await.map(drop)
    }

    /// Comments on an issue or pull request, unless a comment there holds `marker`.
    ///
    /// # Errors
    /// As [`Client::repository`].
    pub async fn say(&self, number: i64, marker: &str, text: &str) -> Result<(), Error> {
        let said = self.for_reports().comment_texts(number).await?;
        if said.iter().any(|text| text.contains(marker)) {
            return Ok(());
        }
        let text = if text.contains(marker) { text.to_owned() } else { format!("{text}\n\n{marker}") };
        let path = self.path(&["issues", &number.to_string(), "comments"]);
        let new = NewComment { body: &text };
        self.write::<wire::IssueComment>(Endpoint::CreateComment, Method::POST, path, &new).await.map(drop)
    }
}

/// At most so many characters, with a mark where something was cut.
fn fitted(text: &str, max: usize) -> String {
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain([CUT]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_visibly_and_what_just_fits_is_not() {
        assert_eq!(fitted("äöü", 3), "äöü");
        assert_eq!(fitted("äöüx", 3), "äö…");
    }
}
