//! Why did it run, or why not? The answer in words, from what stands in the objects (I3).
//!
//! Nothing is asked of GitHub and nothing is decided anew but which templates a path would lead to, and that by the very
//! code that decided it for the Branch.

use pawl_api::git::{Branch, Workflow, WorkflowTemplate};

use super::matching::{self, ChangedFile};
use crate::story::{Happened, Story};

/// How much of a commit's SHA is shown: as git does.
const SHORT_SHA: usize = 7;

/// The story of one Workflow.
pub fn workflow(name: &str, workflow: &Workflow, happened: &[Happened]) -> String {
    let (spec, status) = (&workflow.spec, workflow.status.clone().unwrap_or_default());
    let mut story = Story::default();
    story.line(format_args!(
        "Workflow {name}: template {} on {} of {}/{}@{}, attempt {}",
        spec.template,
        spec.path,
        spec.owner,
        spec.repository,
        short(&spec.sha),
        spec.attempt
    ));
    match status.phase {
        None => story.line(format_args!("has not been looked at yet")),
        Some(phase) => {
            let reason = status.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let message = status.message.as_deref().map(|said| format!(": {said}")).unwrap_or_default();
            story.line(format_args!("is {phase:?}{reason}{message}"));
        }
    }
    story.gates(&status.gates);
    story.conditions(&status.conditions);
    if status.target.is_some() || status.job_ref.is_some() || status.check_run_id.is_some() {
        story.heading("what it is tied to");
        if let Some(target) = &status.target {
            story.item("target", target);
        }
        if let Some(job) = &status.job_ref {
            story.item("Job", &format!("{} {}", job.name, job.uid));
        }
        if let Some(id) = status.check_run_id {
            let told = status.check_run_reported.as_deref().unwrap_or("nothing yet");
            let name = status.check_run_name.as_deref().unwrap_or_default();
            story.item("check run", &format!("{id} {name}; GitHub was told: {told}"));
        }
    }
    story.happened(happened);
    story.text
}

/// The story of one Branch: what each template made of it, and what became of the Workflows.
pub fn branch(
    name: &str,
    branch: &Branch,
    workflows: &[(String, Workflow)],
    happened: &[Happened],
) -> String {
    let (spec, status) = (&branch.spec, branch.status.clone().unwrap_or_default());
    let mut story = Story::default();
    let pull = spec.pull_request().map(|number| format!(", pull request #{number}")).unwrap_or_default();
    let fork = spec.head_repository.as_ref().map(|head| format!(" of {head}")).unwrap_or_default();
    story.line(format_args!(
        "Branch {name}: {}{fork} of {}/{} at {}{pull}",
        spec.name,
        spec.owner,
        spec.repository,
        short(&spec.sha)
    ));
    if status.evaluated_sha.as_deref() == Some(&*spec.sha) {
        let files = status.changed_file_count.unwrap_or_default();
        story.line(format_args!("was evaluated: {files} changed files, {} Workflows", workflows.len()));
    } else {
        story.line(format_args!("has not been evaluated at this commit yet"));
    }
    if !status.evaluations.is_empty() {
        story.heading("what each template made of the change");
        for evaluation in &status.evaluations {
            let runs = match evaluation.workflows {
                0 => "does not run".to_owned(),
                1 => "runs once".to_owned(),
                many => format!("runs {many} times"),
            };
            story.item(
                &evaluation.template,
                &format!("{runs}: {} ({})", evaluation.message, evaluation.reason),
            );
        }
    }
    if !workflows.is_empty() {
        story.heading("its Workflows");
        for (name, workflow) in workflows {
            let status = workflow.status.clone().unwrap_or_default();
            let phase = status.phase.map_or_else(|| "new".to_owned(), |phase| format!("{phase:?}"));
            let why = status.message.or(status.reason).unwrap_or_default();
            story.item(&workflow.spec.path, &format!("{name} is {phase}: {why}"));
        }
    }
    story.conditions(&status.conditions);
    story.happened(happened);
    story.text
}

/// What a path would lead to on this Branch, template by template.
pub fn path(
    path: &str,
    branch: &Branch,
    is_default_branch: bool,
    templates: &[(String, WorkflowTemplate)],
    workflows: &[(String, Workflow)],
) -> String {
    let mut story = Story::default();
    let status = branch.status.clone().unwrap_or_default();
    let listed = status.changed_files.iter().any(|file| file == path);
    let all_listed = status.changed_file_count.unwrap_or_default() <= status.changed_files.len() as i64;
    let among = match (listed, all_listed) {
        (true, _) => "is among the changed files",
        (false, true) => "is not among the changed files",
        (false, false) => "is not among the changed files that are listed; there are more",
    };
    story.line(format_args!("{path} {among}"));
    if templates.is_empty() {
        story.line(format_args!("there is no WorkflowTemplate in this namespace, so nothing can run"));
    }
    let named = templates.iter().map(|(name, template)| (name.as_str(), &template.spec));
    for verdict in matching::fan_out(&[ChangedFile::new(path)], named, is_default_branch) {
        let made = verdict.targets.iter().find_map(|target| {
            workflows.iter().find(|(_, workflow)| {
                workflow.spec.template == verdict.template && workflow.spec.path == target.path
            })
        });
        let words = match (verdict.targets.first(), made) {
            (None, _) => verdict.to_string(),
            (Some(target), Some((name, workflow))) => {
                let phase = workflow.status.as_ref().and_then(|status| status.phase);
                let phase = phase.map_or_else(|| "new".to_owned(), |phase| format!("{phase:?}"));
                format!("a change of it runs on {}: Workflow {name} is {phase}", target.path)
            }
            (Some(target), None) => {
                format!("a change of it would run on {}, and there is no such Workflow now", target.path)
            }
        };
        story.item(&verdict.template, &words);
    }
    story.text
}

fn short(sha: &str) -> &str {
    sha.get(..SHORT_SHA).unwrap_or(sha)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn a_workflow(status: &Value) -> Workflow {
        parse(json!({
            "apiVersion": "terrakojo.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {"owner": "acme", "repository": "infra", "branch": "b", "sha": SHA, "template": "plan", "path": "net"},
            "status": status,
        }))
    }

    fn a_branch(status: &Value) -> Branch {
        parse(json!({
            "apiVersion": "terrakojo.io/v1alpha1", "kind": "Branch", "metadata": {"name": "b"},
            "spec": {"owner": "acme", "repository": "infra", "name": "topic", "sha": SHA, "prNumber": 7},
            "status": status,
        }))
    }

    fn a_template(pattern: &str) -> WorkflowTemplate {
        parse(json!({
            "apiVersion": "terrakojo.io/v1alpha1", "kind": "WorkflowTemplate", "metadata": {"name": "plan"},
            "spec": {"displayName": "Plan", "match": {"paths": [pattern]}, "job": {"template": {"spec": {}}}},
        }))
    }

    #[test]
    fn i3_a_waiting_workflow_says_who_holds_it_and_what_would_change_that() {
        let waits = a_workflow(&json!({
            "phase": "Pending", "reason": "TargetLocked", "message": "Workflow default/other holds the target",
            "gates": [
                {"gate": "Validate", "verdict": "Passed", "reason": "Valid", "lookedAt": "the job"},
                {"gate": "Lock", "verdict": "Waiting", "reason": "TargetLocked", "lookedAt": "the Lease",
                    "wouldChange": "the end of Workflow default/other"},
            ],
        }));
        let told = workflow("w", &waits, &[]);
        assert!(
            told.contains("is Pending (TargetLocked): Workflow default/other holds the target"),
            "{told}"
        );
        assert!(
            told.contains("waits   Lock (TargetLocked): the Lease; it would go on with the end of"),
            "{told}"
        );
        assert!(workflow("w", &a_workflow(&Value::Null), &[]).contains("has not been looked at"));
    }

    #[test]
    fn i3_a_branch_says_of_every_template_why_it_runs_or_does_not() {
        let evaluated = a_branch(&json!({
            "evaluatedSha": SHA, "changedFileCount": 1, "changedFiles": ["docs/a.md"],
            "evaluations": [{"template": "plan", "workflows": 0, "reason": "NothingMatched",
                "message": "1 file changed and does not match: docs/a.md"}],
        }));
        let told = branch("b", &evaluated, &[], &[]);
        assert!(
            told.contains("pull request #7") && told.contains("plan  does not run: 1 file changed"),
            "{told}"
        );
        assert!(branch("b", &a_branch(&Value::Null), &[], &[]).contains("has not been evaluated"));
    }

    #[test]
    fn i3_a_path_is_followed_through_every_template_to_its_workflow() {
        let status = json!({"changedFiles": ["net/main.tf"], "changedFileCount": 1});
        let templates = [("plan".to_owned(), a_template("*/**"))];
        let made = [("plan-1".to_owned(), a_workflow(&json!({"phase": "Failed"})))];
        let told = path("net/main.tf", &a_branch(&status), false, &templates, &made);
        assert!(told.contains("plan  a change of it runs on net: Workflow plan-1 is Failed"), "{told}");
        let other = path(
            "docs/a.md",
            &a_branch(&Value::Null),
            false,
            &[("plan".to_owned(), a_template("net/**"))],
            &[],
        );
        assert!(other.contains("not among the changed files") && other.contains("does not match"), "{other}");
        assert!(path("x", &a_branch(&Value::Null), false, &[], &[]).contains("no WorkflowTemplate"));
    }
}
