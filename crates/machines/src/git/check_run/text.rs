//! The text of a check: its name, title, summary and log.
//!
//! Text from a repository or a log is fenced or quoted, so that it cannot become markup (I10). Logs are masked before they
//! come here (I6).

use jiff::SignedDuration;
use pawl_api::git::WorkflowPhase;
use pawl_api::meta::{Reason, names, text};

use crate::git::github::{CheckState, Conclusion};
use crate::pods::Container;

/// What GitHub takes in `output.summary` and in `output.text`, in characters.
pub const MAX_TEXT_CHARS: usize = 65_535;

/// What GitHub shows of a title, and the longest `context` of a commit status.
pub const MAX_NAME_CHARS: usize = 255;

/// The longest `description` of a commit status.
pub const MAX_DESCRIPTION_CHARS: usize = 140;

/// How many containers a table lists: a Job that retried often has more, and its last ones count.
const MAX_ROWS: usize = 50;

/// Digits of the hash that keeps names apart that had to be cut.
const HASH_HEX: usize = 8;

/// All that the text of a check is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details<'a> {
    pub state: CheckState,
    pub reason: Reason,
    pub message: &'a str,
    pub template: &'a str,
    pub path: &'a str,
    pub workflow: &'a str,
    pub attempt: i32,
    pub containers: &'a [Container],
    /// The container that failed, and the masked end of its log, or why it cannot be read.
    pub log: Option<(&'a str, Result<&'a str, &'a str>)>,
}

/// What a phase is on GitHub.
pub fn state(phase: WorkflowPhase, reason: Reason) -> CheckState {
    match phase {
        WorkflowPhase::Pending => CheckState::Queued,
        WorkflowPhase::Running => CheckState::InProgress,
        WorkflowPhase::Succeeded => CheckState::Completed(Conclusion::Success),
        WorkflowPhase::Failed if reason == Reason::JobDeadlineExceeded => {
            CheckState::Completed(Conclusion::TimedOut)
        }
        WorkflowPhase::Failed => CheckState::Completed(Conclusion::Failure),
        WorkflowPhase::Cancelled => CheckState::Completed(Conclusion::Cancelled),
    }
}

/// `<displayName>(<path>)`, and the template's name where another template has the same display name.
pub fn name(display_name: &str, path: &str, also: Option<&str>) -> String {
    let plain = format!("{display_name}({path})");
    let full = also.map_or_else(|| plain.clone(), |template| format!("{plain} [{template}]"));
    if full.chars().count() <= MAX_NAME_CHARS {
        return full;
    }
    let room = MAX_NAME_CHARS - HASH_HEX - 2;
    let head: String = full.chars().take(room).collect();
    format!("{head}… {}", names::hash(&[&full], HASH_HEX))
}

/// The verdict in one line.
pub fn title(details: &Details<'_>) -> String {
    let word = match details.state {
        CheckState::Queued => "Queued",
        CheckState::InProgress => "Running",
        CheckState::Completed(conclusion) => match conclusion {
            Conclusion::Success => "Succeeded",
            Conclusion::Failure => "Failed",
            Conclusion::Cancelled => "Cancelled",
            Conclusion::Skipped => "Skipped",
            Conclusion::Neutral => "Neutral",
            Conclusion::TimedOut => "Timed out",
            Conclusion::ActionRequired => "Action required",
        },
    };
    let message = details.message.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = if message.is_empty() { word.to_owned() } else { format!("{word}: {message}") };
    text::head(title, MAX_NAME_CHARS)
}

/// What it was about, how each container ended, and what to do next.
pub fn summary(details: &Details<'_>) -> String {
    let Details { reason, template, path, workflow, attempt, containers, state, .. } = details;
    let mut lines = vec![
        format!("**{}** ({reason})", quoted(&title(details))),
        String::new(),
        format!(
            "Template {} on {}, attempt {attempt}, Workflow {}.",
            code(template),
            code(path),
            code(workflow)
        ),
    ];
    if !containers.is_empty() {
        lines.push(String::new());
        lines.extend(table(containers));
    }
    if let CheckState::Completed(conclusion) = state
        && *conclusion != Conclusion::Success
    {
        lines.push(String::new());
        lines.push(
            "To try again, choose **Re-run** on this check, or comment `/retest` on the pull request."
                .to_owned(),
        );
    }
    text::head(lines.join("\n"), MAX_TEXT_CHARS)
}

/// The end of the failed container's log.
pub fn log_section(details: &Details<'_>) -> String {
    let Some((container, log)) = details.log else { return String::new() };
    let log = match log {
        Ok(log) => log,
        Err(problem) => {
            return format!(
                "The log of container {} could not be read: {}",
                code(container),
                quoted(problem)
            );
        }
    };
    let fence = "`".repeat(longest_run(log, '`').max(2) + 1);
    let frame = format!("The end of the log of container {}:\n\n{fence}text\n", code(container));
    let room = MAX_TEXT_CHARS.saturating_sub(frame.chars().count() + fence.len() + 2);
    // Bytes are never fewer than characters, so this fits.
    format!("{frame}{}\n{fence}\n", text::tail(log.trim_end(), room))
}

fn table(containers: &[Container]) -> Vec<String> {
    let left_out = containers.len().saturating_sub(MAX_ROWS);
    let mut lines = vec!["| container | exit code | took |".to_owned(), "|---|---|---|".to_owned()];
    lines.extend(containers.iter().skip(left_out).map(|container| {
        let ended = match (container.exit_code, container.reason.as_str()) {
            (Some(code), "" | "Completed" | "Error") => code.to_string(),
            (Some(code), reason) => format!("{code} ({})", cell(reason)),
            (None, "") => "–".to_owned(),
            (None, reason) => cell(reason),
        };
        let took = container.duration.map_or_else(|| "–".to_owned(), duration);
        format!("| {} | {ended} | {took} |", cell(&container.name))
    }));
    if left_out > 0 {
        lines.push(format!("\n{left_out} earlier ones are not shown."));
    }
    lines
}

/// `850 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(took: SignedDuration) -> String {
    let seconds = took.as_secs().max(0);
    match seconds {
        0 => format!("{} ms", took.subsec_millis().max(0)),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// One line that Markdown leaves as it is.
fn quoted(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '!' | '@' | '~' | '&') {
            out.push('\\');
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out
}

/// A span of code, whatever is in it.
fn code(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let fence = "`".repeat(longest_run(&line, '`') + 1);
    let pad = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{line}{pad}{fence}")
}

fn cell(text: &str) -> String {
    quoted(text)
}

fn longest_run(text: &str, of: char) -> usize {
    let mut runs = (0, 0);
    for c in text.chars() {
        let now = if c == of { runs.0 + 1 } else { 0 };
        runs = (now, runs.1.max(now));
    }
    runs.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn container(name: &str, exit_code: Option<i32>, reason: &str, millis: i64) -> Container {
        let duration = Some(SignedDuration::from_millis(millis));
        Container {
            pod: "p".to_owned(),
            name: name.to_owned(),
            exit_code,
            reason: reason.to_owned(),
            duration,
        }
    }

    fn details<'a>(state: CheckState, message: &'a str, containers: &'a [Container]) -> Details<'a> {
        Details {
            state,
            reason: Reason::JobFailed,
            message,
            template: "plan",
            path: "envs/prod",
            workflow: "plan-1",
            attempt: 2,
            containers,
            log: None,
        }
    }

    const FAILED: CheckState = CheckState::Completed(Conclusion::Failure);

    #[test]
    fn a_summary_has_the_verdict_the_containers_and_how_to_retry() {
        let containers = [
            container("clone", Some(0), "Completed", 850),
            container("main", Some(137), "OOMKilled", 200_000),
            container("side", None, "ImagePullBackOff", 0),
        ];
        let summary = summary(&details(FAILED, "Job has reached the\nspecified backoff limit", &containers));
        assert!(
            summary.starts_with("**Failed: Job has reached the specified backoff limit** (JobFailed)"),
            "{summary}"
        );
        assert!(summary.contains("Template `plan` on `envs/prod`, attempt 2, Workflow `plan-1`."));
        assert!(summary.contains("| clone | 0 | 850 ms |"), "{summary}");
        assert!(summary.contains("| main | 137 (OOMKilled) | 3 min 20 s |"), "{summary}");
        assert!(summary.contains("| side | ImagePullBackOff | 0 ms |"), "{summary}");
        assert!(summary.contains("`/retest`"));
        let fine = super::summary(&details(CheckState::Completed(Conclusion::Success), "done", &containers));
        assert!(!fine.contains("/retest"));
    }

    #[test]
    fn phases_map_to_githubs_states() {
        use WorkflowPhase::{Cancelled, Failed, Pending, Running, Succeeded};
        for (phase, reason, expect) in [
            (Pending, Reason::Queued, "queued"),
            (Running, Reason::Running, "in_progress"),
            (Succeeded, Reason::JobSucceeded, "completed/success"),
            (Failed, Reason::JobFailed, "completed/failure"),
            (Failed, Reason::JobDeadlineExceeded, "completed/timed_out"),
            (Cancelled, Reason::DependencyFailed, "completed/cancelled"),
        ] {
            assert_eq!(state(phase, reason).to_string(), expect);
        }
    }

    #[test]
    fn names_stay_apart_whatever_their_length() {
        assert_eq!(name("Plan", "envs/prod", None), "Plan(envs/prod)");
        assert_eq!(name("Plan", "envs/prod", Some("plan-b")), "Plan(envs/prod) [plan-b]");
        let (a, b) = ("x".repeat(400) + "a", "x".repeat(400) + "b");
        assert_ne!(name("Plan", &a, None), name("Plan", &b, None));
        assert!(name("Plan", &a, None).chars().count() <= MAX_NAME_CHARS);
    }

    #[test]
    fn i10_what_a_repository_says_is_no_markup() {
        let mut shown = details(FAILED, "<img> @everyone [x](y)", &[]);
        shown.path = "a`b";
        let summary = summary(&shown);
        assert!(summary.contains(r"\<img\> \@everyone \[x\](y)"), "{summary}");
        assert!(summary.contains("``a`b``"), "{summary}");
    }

    #[test]
    fn a_log_cannot_leave_its_fence_and_its_end_is_what_is_kept() {
        let log = format!("{}\n````\nthe end", "x".repeat(100_000));
        let mut shown = details(FAILED, "m", &[]);
        shown.log = Some(("main", Ok(&log)));
        let text = log_section(&shown);
        assert!(text.ends_with("the end\n`````\n"), "{}", &text[text.len() - 40..]);
        assert!(text.chars().count() <= MAX_TEXT_CHARS);
        shown.log = Some(("main", Err("gone")));
        assert_eq!(log_section(&shown), "The log of container `main` could not be read: gone");
    }

    proptest! {
        #[test]
        fn nothing_is_longer_than_github_takes(message in "\\PC{0,400}", rows in 0_usize..300, log in any::<String>()) {
            let containers: Vec<_> = (0..rows).map(|n| container(&"c".repeat(n), Some(1), &message, 5)).collect();
            let mut shown = details(FAILED, &message, &containers);
            shown.log = Some(("main", Ok(&log)));
            prop_assert!(title(&shown).chars().count() <= MAX_NAME_CHARS);
            prop_assert!(summary(&shown).chars().count() <= MAX_TEXT_CHARS);
            prop_assert!(log_section(&shown).chars().count() <= MAX_TEXT_CHARS);
        }
    }
}
