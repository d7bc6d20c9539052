//! What do people read on GitHub about a run? Words only: who sends them, and when, is `workflow::telling`'s.
//!
//! What comes from a repository or a log is data here: it is fenced or quoted so that it cannot become markup (I10), and
//! logs reach this place already masked (I6).

use jiff::{SignedDuration, Timestamp};
use pawl_api::git::WorkflowPhase;
use pawl_api::meta::{Reason, names, text};

use super::github::{CheckState, Conclusion};

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

/// One container that ran, or should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub pod: String,
    pub name: String,
    /// `None` while it has not ended.
    pub exit_code: Option<i32>,
    /// A kubelet's word, such as `OOMKilled`.
    pub reason: String,
    pub took: Option<SignedDuration>,
}

/// What there is to say about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story<'a> {
    pub state: CheckState,
    pub reason: Reason,
    pub message: &'a str,
    pub template: &'a str,
    pub path: &'a str,
    pub workflow: &'a str,
    pub attempt: i32,
    pub containers: &'a [Container],
    /// The container that failed, and the masked end of what it wrote, or why that is not known.
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
    let told = also.map_or_else(|| plain.clone(), |template| format!("{plain} [{template}]"));
    if told.chars().count() <= MAX_NAME_CHARS {
        return told;
    }
    let room = MAX_NAME_CHARS - HASH_HEX - 2;
    let head: String = told.chars().take(room).collect();
    format!("{head}… {}", names::hash(&[&told], HASH_HEX))
}

/// The verdict in one line.
pub fn title(story: &Story<'_>) -> String {
    let word = match story.state {
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
    let message = story.message.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = if message.is_empty() { word.to_owned() } else { format!("{word}: {message}") };
    text::head(title, MAX_NAME_CHARS)
}

/// The same for a commit status, which has little room.
pub fn description(story: &Story<'_>) -> String {
    text::head(title(story), MAX_DESCRIPTION_CHARS)
}

/// What it was about, how each container ended, and what to do next.
pub fn summary(story: &Story<'_>) -> String {
    let Story { reason, template, path, workflow, attempt, containers, state, .. } = story;
    let mut lines = vec![
        format!("**{}** ({reason})", quoted(&title(story))),
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

/// The end of the log that tells why.
pub fn details(story: &Story<'_>) -> String {
    let Some((container, log)) = story.log else { return String::new() };
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
        let took = container.took.map_or_else(|| "–".to_owned(), duration);
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

/// How long something took, where both ends are known.
pub fn between(start: Option<Timestamp>, end: Option<Timestamp>) -> Option<SignedDuration> {
    Some(end?.duration_since(start?))
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
        let took = Some(SignedDuration::from_millis(millis));
        Container { pod: "p".to_owned(), name: name.to_owned(), exit_code, reason: reason.to_owned(), took }
    }

    fn story<'a>(state: CheckState, message: &'a str, containers: &'a [Container]) -> Story<'a> {
        Story {
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
        let told = summary(&story(FAILED, "Job has reached the\nspecified backoff limit", &containers));
        assert!(
            told.starts_with("**Failed: Job has reached the specified backoff limit** (JobFailed)"),
            "{told}"
        );
        assert!(told.contains("Template `plan` on `envs/prod`, attempt 2, Workflow `plan-1`."));
        assert!(told.contains("| clone | 0 | 850 ms |"), "{told}");
        assert!(told.contains("| main | 137 (OOMKilled) | 3 min 20 s |"), "{told}");
        assert!(told.contains("| side | ImagePullBackOff | 0 ms |"), "{told}");
        assert!(told.contains("`/retest`"));
        let fine = summary(&story(CheckState::Completed(Conclusion::Success), "done", &containers));
        assert!(!fine.contains("/retest"));
    }

    #[test]
    fn phases_are_told_in_githubs_words() {
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
        let mut told = story(FAILED, "<img> @everyone [x](y)", &[]);
        told.path = "a`b";
        let told = summary(&told);
        assert!(told.contains(r"\<img\> \@everyone \[x\](y)"), "{told}");
        assert!(told.contains("``a`b``"), "{told}");
    }

    #[test]
    fn a_log_cannot_leave_its_fence_and_its_end_is_what_is_kept() {
        let log = format!("{}\n````\nthe end", "x".repeat(100_000));
        let mut told = story(FAILED, "m", &[]);
        told.log = Some(("main", Ok(&log)));
        let text = details(&told);
        assert!(text.ends_with("the end\n`````\n"), "{}", &text[text.len() - 40..]);
        assert!(text.chars().count() <= MAX_TEXT_CHARS);
        told.log = Some(("main", Err("gone")));
        assert_eq!(details(&told), "The log of container `main` could not be read: gone");
    }

    proptest! {
        #[test]
        fn nothing_is_longer_than_github_takes(message in "\\PC{0,400}", rows in 0_usize..300, log in any::<String>()) {
            let containers: Vec<_> = (0..rows).map(|n| container(&"c".repeat(n), Some(1), &message, 5)).collect();
            let mut told = story(FAILED, &message, &containers);
            told.log = Some(("main", Ok(&log)));
            prop_assert!(title(&told).chars().count() <= MAX_NAME_CHARS);
            prop_assert!(description(&told).chars().count() <= MAX_DESCRIPTION_CHARS);
            prop_assert!(summary(&told).chars().count() <= MAX_TEXT_CHARS);
            prop_assert!(details(&told).chars().count() <= MAX_TEXT_CHARS);
        }
    }
}
