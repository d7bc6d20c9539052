//! Which tasks can be run here, and what is wrong with those that cannot?
//!
//! What is not supported is refused by name: a run that silently leaves something out would end well and mean nothing.

use pawl_api::meta::names;
use pawl_api::tekton::{PipelineTask, TaskSpec};
use serde_json::{Map, Value};

/// Scripts travel to the Pod as annotations, of which Kubernetes takes 256 KiB in all; the rest is for everybody else's.
pub(crate) const MAX_SCRIPT_BYTES: usize = 240 * 1024;

/// Steps of one task: each is a container, and Pods are made for dozens, not thousands.
const MAX_STEPS: usize = 200;

/// Tasks of one pipeline: each is an object and a Pod. Far more than anybody writes by hand, few enough that one
/// decision stays in the milliseconds.
pub(crate) const MAX_TASKS: usize = 1000;

/// Fields of a step that would change what it does, and that are not supported.
const STEP_FIELDS: &[(&str, &str)] = &[
    ("ref", "a StepAction"),
    ("timeout", "a timeout of its own"),
    ("when", "a condition of its own"),
    ("results", "results of its own"),
    ("workspaces", "workspaces of its own"),
    ("stdoutConfig", "a redirection of its output"),
    ("stderrConfig", "a redirection of its output"),
];

/// What is wrong with a task; `None` if it can be run.
pub(crate) fn problem(spec: &TaskSpec) -> Option<String> {
    if spec.steps.is_empty() {
        return Some("missing field(s): steps".to_owned());
    }
    if spec.steps.len() > MAX_STEPS {
        return Some(format!("spec.steps: there are {}, at most {MAX_STEPS} are run", spec.steps.len()));
    }
    let mut seen = std::collections::BTreeSet::new();
    for (at, step) in spec.steps.iter().enumerate() {
        if let Some(problem) = step_problem(step) {
            return Some(format!("spec.steps[{at}]{problem}"));
        }
        let name = step.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        if name.is_some_and(|name| !seen.insert(name)) {
            return Some(format!("expected exactly one, got both: spec.steps[{at}].name"));
        }
    }
    for (at, result) in spec.results.iter().enumerate() {
        if !is_result_name(&result.name) {
            return Some(format!("invalid key name {:?}: spec.results[{at}].name", result.name));
        }
        if result.rest.contains_key("value") {
            return Some(format!("spec.results[{at}].value: results of single steps are not supported here"));
        }
    }
    for (at, sidecar) in spec.sidecars.iter().enumerate() {
        if container_name(sidecar).is_none_or(|name| !names::is_label(&format!("sidecar-{name}"))) {
            return Some(format!(
                "spec.sidecars[{at}].name: a name of lower-case letters, digits and dashes is needed"
            ));
        }
    }
    let scripts = spec.steps.iter().chain(&spec.sidecars).filter_map(script);
    let bytes = scripts.fold(0_usize, |sum, script| sum.saturating_add(script.len()));
    (bytes > MAX_SCRIPT_BYTES).then(|| {
        format!(
            "spec.steps: the scripts have {bytes} bytes, at most {MAX_SCRIPT_BYTES} are run: put them into a \
            ConfigMap and mount that"
        )
    })
}

/// What is wrong with a task of a pipeline, apart from the task itself.
pub(crate) fn pipeline_task_problem(task: &PipelineTask) -> Option<String> {
    if !names::is_label(&task.name) {
        return Some(format!(
            "invalid value {:?}: name: a name of lower-case letters, digits and dashes is needed",
            task.name
        ));
    }
    for (field, what) in
        [("matrix", "a matrix"), ("pipelineRef", "a pipeline"), ("pipelineSpec", "a pipeline")]
    {
        if task.rest.get(field).is_some_and(|value| !value.is_null()) {
            return Some(format!("{}.{field}: {what} as a task is not supported here", task.name));
        }
    }
    for when in &task.when {
        if when.rest.contains_key("cel") {
            return Some(format!("{}.when: CEL expressions are not supported here", task.name));
        }
        if !matches!(when.operator.as_str(), "in" | "notin") {
            return Some(format!(
                "invalid value: operator {:?} is not recognized. valid operators: in,notin: {}.when",
                when.operator, task.name
            ));
        }
        if when.values.is_empty() {
            return Some(format!("invalid value: expecting non-empty values field: {}.when", task.name));
        }
    }
    if task.on_error.as_deref().is_some_and(|word| !matches!(word, "continue" | "stopAndFail")) {
        return Some(format!("invalid value: {}.onError: must be continue or stopAndFail", task.name));
    }
    if task.on_error.as_deref() == Some("continue") && task.retries.unwrap_or_default() > 0 {
        return Some(format!(
            "{}: PipelineTask OnError cannot be set to \"continue\" when Retries is greater than 0",
            task.name
        ));
    }
    let custom = task.task_ref.as_ref().is_some_and(|it| {
        let version = it.api_version.as_deref().unwrap_or_default();
        !version.is_empty() && !version.starts_with("tekton.dev/")
    });
    let embedded = task.task_spec.as_ref().and_then(|spec| spec.rest.get("apiVersion")).is_some();
    if custom || embedded {
        return Some(format!("{}: custom tasks are not supported here", task.name));
    }
    match (&task.task_ref, &task.task_spec) {
        (None, None) => {
            Some(format!("expected exactly one, got neither: {0}.taskRef, {0}.taskSpec", task.name))
        }
        (Some(_), Some(_)) => {
            Some(format!("expected exactly one, got both: {0}.taskRef, {0}.taskSpec", task.name))
        }
        (Some(_), None) => None,
        (None, Some(spec)) => problem(spec).map(|problem| format!("{}.taskSpec: {problem}", task.name)),
    }
}

/// A step's script, if it has one.
pub(crate) fn script(container: &Map<String, Value>) -> Option<&str> {
    container.get("script").and_then(Value::as_str).filter(|script| !script.is_empty())
}

pub(crate) fn container_name(container: &Map<String, Value>) -> Option<&str> {
    container.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())
}

/// Whether a failure of this step lets the next one run.
pub(crate) fn goes_on(step: &Map<String, Value>) -> bool {
    step.get("onError").and_then(Value::as_str) == Some("continue")
}

fn step_problem(step: &Map<String, Value>) -> Option<String> {
    if let Some((field, what)) = STEP_FIELDS.iter().find(|(field, _)| step.contains_key(*field)) {
        return Some(format!(".{field}: a step with {what} is not supported here"));
    }
    if container_name(step).is_some_and(|name| !names::is_label(&format!("step-{name}"))) {
        return Some(".name: a name of lower-case letters, digits and dashes is needed".to_owned());
    }
    if script(step).is_some_and(|script| script.starts_with("#!win")) {
        return Some(".script: Windows is not supported here".to_owned());
    }
    if script(step).is_some() && step.get("command").is_some_and(|command| !command.is_null()) {
        return Some(".script: script cannot be used with command".to_owned());
    }
    match step.get("onError").and_then(Value::as_str) {
        None | Some("" | "continue" | "stopAndFail") => None,
        Some(_) => Some(".onError: must be continue or stopAndFail".to_owned()),
    }
}

/// A result is a file of that name.
fn is_result_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.len() <= names::MAX_LABEL
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value) -> Option<String> {
        problem(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn what_cannot_be_run_is_refused_by_name() {
        assert_eq!(check(json!({"steps": [{"name": "a", "image": "i", "script": "true"}]})), None);
        for (spec, word) in [
            (json!({}), "steps"),
            (json!({"steps": [{"ref": {"name": "x"}}]}), "StepAction"),
            (json!({"steps": [{"timeout": "1s"}]}), "timeout"),
            (json!({"steps": [{"name": "a b"}]}), "name"),
            (json!({"steps": [{"name": "a"}, {"name": "a"}]}), "spec.steps[1].name"),
            (json!({"steps": [{"onError": "maybe"}]}), "onError"),
            (json!({"steps": [{"script": "x", "command": ["y"]}]}), "script"),
            (json!({"steps": [{"script": "#!win\nx"}]}), "Windows"),
            (json!({"steps": [{}], "results": [{"name": "../x"}]}), "invalid key name"),
            (json!({"steps": [{}], "sidecars": [{}]}), "sidecars[0]"),
            (json!({"steps": [{"script": "x".repeat(1_000_000)}]}), "1000000 bytes"),
        ] {
            let problem = check(spec).unwrap();
            assert!(problem.contains(word), "{problem}");
        }
    }

    #[test]
    fn tasks_of_a_pipeline_that_are_of_another_make_are_refused() {
        let steps = json!({"steps": [{}]});
        for (task, word) in [
            (json!({"name": "a", "taskSpec": steps, "matrix": {"params": []}}), "matrix"),
            (json!({"name": "a", "taskRef": {"apiVersion": "example.dev/v1", "kind": "Wait"}}), "custom"),
            (json!({"name": "a"}), "neither"),
            (json!({"name": "a", "taskSpec": steps, "taskRef": {"name": "x"}}), "both"),
            (json!({"name": "A", "taskSpec": steps}), "name"),
            (json!({"name": "a", "taskSpec": steps, "when": [{"cel": "true"}]}), "CEL"),
            (
                json!({"name": "a", "taskSpec": steps, "when": [{"input": "x", "operator": "eq", "values": ["x"]}]}),
                "eq",
            ),
            (json!({"name": "a", "taskSpec": steps, "onError": "continue", "retries": 1}), "Retries"),
        ] {
            let problem = pipeline_task_problem(&serde_json::from_value(task).unwrap()).unwrap();
            assert!(problem.contains(word), "{problem}");
        }
    }
}
