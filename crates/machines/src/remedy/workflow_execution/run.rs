//! The run of a WorkflowExecution, whichever engine it has: its manifest, and how far it is.

#![expect(clippy::indexing_slicing, reason = "the objects whose keys are written here are made right here")]

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::meta::{Kind, Target, names};
use pawl_api::pawl::labels as owner;
use pawl_api::remedy::workflow_execution::{Engine, PipelineRunSummary, TARGET_PARAMETER, run_name};
use pawl_api::remedy::{WorkflowExecutionSpec, annotations, labels};
use pawl_api::tekton::{self, PIPELINE_RUN, PipelineRun, TASK_RUN};
use serde_json::{Map, Value, json};

use crate::cluster::job::followed::Followed;
use crate::cluster::job::{JOB, POD};
use crate::hardening::Hardening;
use crate::held_run::is_held;
use crate::object::{Key, Object};
use crate::plan::Adopt;

/// The pipeline of a bundle that is run.
const PIPELINE: &str = "workflow";

/// What a cache shows under the name of a run.
#[derive(Clone, Debug)]
pub(super) enum Run {
    Pipeline(Arc<Object>, Arc<PipelineRun>),
    Job(Arc<Object>, Arc<Followed>),
    /// It does not have the shape of its kind, so nobody can say how it stands.
    Malformed(Arc<Object>),
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Made, and not let go.
    Held,
    Going(PipelineRunSummary),
    Succeeded(PipelineRunSummary),
    Failed(PipelineRunSummary),
}

pub(super) fn kind_of(engine: Engine) -> Kind {
    match engine {
        Engine::Tekton => PIPELINE_RUN,
        Engine::Job => JOB,
    }
}

/// Where the run of an execution is: its name follows from the execution (I1).
pub(super) fn key(me: &Object, spec: &WorkflowExecutionSpec) -> Key {
    let elsewhere = spec.execution_config.namespace.as_deref();
    Key::new(elsewhere.or(me.namespace()), &run_name(me.name(), me.uid()))
}

impl Run {
    pub(super) fn read(object: &Arc<Object>) -> Self {
        let read = if *object.kind() == JOB {
            object.parse().map(|job| Self::Job(Arc::clone(object), job))
        } else {
            object.parse().map(|run| Self::Pipeline(Arc::clone(object), run))
        };
        read.unwrap_or_else(|_| Self::Malformed(Arc::clone(object)))
    }

    pub(super) fn object(&self) -> &Arc<Object> {
        match self {
            Self::Pipeline(object, _) | Self::Job(object, _) | Self::Malformed(object) => object,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        match self {
            _ if is_held(self.object()) => Standing::Held,
            Self::Pipeline(_, run) => of_pipeline(run),
            Self::Job(_, job) => of_job(job),
            Self::Malformed(_) => Standing::Going(PipelineRunSummary {
                status: "Unknown".to_owned(),
                reason: Some("Malformed".to_owned()),
                ..PipelineRunSummary::default()
            }),
        }
    }

    /// What its own status says, once it was let go.
    pub(super) fn summary(&self) -> Option<PipelineRunSummary> {
        match self.standing() {
            Standing::Held => None,
            Standing::Going(summary) | Standing::Succeeded(summary) | Standing::Failed(summary) => {
                Some(summary)
            }
        }
    }

    pub(super) fn started_at(&self) -> Option<Timestamp> {
        let at = match self {
            Self::Pipeline(_, run) => run.status.as_ref()?.start_time.as_ref(),
            Self::Job(_, job) => job.status.as_ref()?.start_time.as_ref(),
            Self::Malformed(_) => None,
        };
        at.map(|at| at.0)
    }

    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        match self {
            Self::Pipeline(_, run) => run.status.as_ref()?.completion_time.as_ref().map(|at| at.0),
            Self::Job(_, job) => job.ended_at(),
            Self::Malformed(_) => None,
        }
    }
}

/// The kind whose objects may still act for a run that is gone.
pub(super) fn actors(engine: Engine) -> Kind {
    match engine {
        Engine::Tekton => TASK_RUN,
        Engine::Job => POD,
    }
}

/// How a run of this execution is told from others: it controls it, or, where a reference would be invalid, labels say so.
pub(super) fn owner(me: &Object, key: &Key) -> Adopt {
    if key.namespace.as_deref() == me.namespace() {
        return Adopt::ControlledBy(me.uid().to_owned());
    }
    Adopt::Labelled([(owner::OWNER_UID.to_owned(), me.uid().to_owned())].into())
}

/// The manifest of the run.
pub(super) fn manifest(me: &Object, spec: &WorkflowExecutionSpec, target: &Target) -> Value {
    let key = key(me, spec);
    let execution = format!("{}/{}", me.namespace().unwrap_or_default(), me.name());
    let annotations = json!({annotations::EXECUTION: execution});
    let labels = marks(me, spec);
    let body = match spec.engine {
        Engine::Tekton => pipeline_run(spec, target),
        Engine::Job => job(spec, target, &labels, &annotations),
    };
    let mut metadata =
        json!({"name": key.name, "namespace": key.namespace, "labels": labels, "annotations": annotations});
    if key.namespace.as_deref() == me.namespace() {
        metadata["ownerReferences"] = json!([me.controller_reference()]);
    }
    json!({"metadata": metadata, "spec": body})
}

fn marks(me: &Object, spec: &WorkflowExecutionSpec) -> Map<String, Value> {
    let fit = |text: &str| Value::from(names::label_value(text));
    let mut marks: Map<String, Value> = [
        (labels::EXECUTION_ID, fit(me.name())),
        (owner::OWNER_KIND, fit(&me.kind().kind)),
        (owner::OWNER_NAMESPACE, fit(me.namespace().unwrap_or_default())),
        (owner::OWNER_NAME, fit(me.name())),
        (owner::OWNER_UID, Value::from(me.uid())),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    if let Some(request) = &spec.remediation_request_ref {
        marks.insert(labels::REMEDIATION_REQUEST.to_owned(), fit(&request.name));
    }
    marks
}

fn pipeline_run(spec: &WorkflowExecutionSpec, target: &Target) -> Value {
    let mut params: Vec<Value> =
        parameters(spec, target).map(|(name, value)| json!({"name": name, "value": value})).collect();
    params.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let mut pod = json!({"securityContext": {"fsGroup": Hardening::USER_IMAGE.user}});
    Hardening::USER_IMAGE.apply_to_pod(&mut pod);
    let mut template = json!({"podTemplate": pod});
    if let Some(account) = &spec.execution_config.service_account_name {
        template["serviceAccountName"] = json!(account);
    }
    json!({
        "pipelineRef": tekton::PipelineRef::bundle(&image(spec), PIPELINE),
        "params": params,
        "timeouts": {"pipeline": spec.execution_config.timeout},
        "taskRunTemplate": template,
    })
}

fn job(
    spec: &WorkflowExecutionSpec,
    target: &Target,
    labels: &Map<String, Value>,
    annotations: &Value,
) -> Value {
    // What is in a parameter may come from an alert: Kubernetes would expand `$(SECRET)` in it (I10).
    let env: Vec<Value> = parameters(spec, target)
        .map(|(name, value)| json!({"name": name, "value": value.replace('$', "$$")}))
        .collect();
    let account = spec.execution_config.service_account_name.as_deref();
    let mut container = json!({"name": PIPELINE, "image": image(spec), "env": env});
    Hardening::USER_IMAGE.apply_to_container(&mut container);
    let mut pod = json!({
        "restartPolicy": "Never",
        // A remedy acts through the API as whom it was given; without that it needs no token.
        "automountServiceAccountToken": account.is_some(),
        "containers": [container],
    });
    Hardening::USER_IMAGE.apply_to_pod(&mut pod);
    if let Some(account) = account {
        pod["serviceAccountName"] = json!(account);
    }
    let secs = spec.execution_config.timeout.get().as_secs().max(1);
    json!({
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": secs,
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
    })
}

/// All that the run is told. Ours comes last, and no other has its name: that is validated before.
fn parameters<'a>(
    spec: &'a WorkflowExecutionSpec,
    target: &Target,
) -> impl Iterator<Item = (&'a str, String)> {
    let given = spec.parameters.iter().filter(|(name, _)| *name != TARGET_PARAMETER);
    let given = given.map(|(name, value)| (name.as_str(), value.clone()));
    given.chain([(TARGET_PARAMETER, target.to_string())])
}

/// With its digest, so that what was chosen is what is run.
fn image(spec: &WorkflowExecutionSpec) -> String {
    let image = spec.workflow_ref.container_image.trim();
    match &spec.workflow_ref.container_digest {
        Some(digest) if !image.contains('@') => format!("{image}@{digest}"),
        Some(_) | None => image.to_owned(),
    }
}

fn of_pipeline(run: &PipelineRun) -> Standing {
    let Some(condition) = run.succeeded() else {
        return Standing::Going(PipelineRunSummary { status: "Unknown".to_owned(), ..Default::default() });
    };
    let [completed, incomplete, skipped] = ["Tasks Completed: ", "Incomplete: ", "Skipped: "]
        .map(|before| number_after(&condition.message, before));
    let children = run.status.as_ref().map_or(0, |status| status.child_references.len());
    let counted =
        completed.unwrap_or_default() + incomplete.unwrap_or_default() + skipped.unwrap_or_default();
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let summary = PipelineRunSummary {
        status: condition.status.clone(),
        reason: filled(&condition.reason),
        message: filled(&condition.message),
        completed_tasks: completed.unwrap_or_default(),
        total_tasks: counted.max(i32::try_from(children).unwrap_or(i32::MAX)),
    };
    match condition.status.as_str() {
        "True" => Standing::Succeeded(summary),
        "False" => Standing::Failed(summary),
        _ => Standing::Going(summary),
    }
}

/// Tekton counts its tasks in the message of the condition, and nowhere else.
fn number_after(message: &str, before: &str) -> Option<i32> {
    let (_, rest) = message.split_once(before)?;
    let digits =
        rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| rest.get(..end).unwrap_or_default());
    digits.parse().ok()
}

fn of_job(job: &Followed) -> Standing {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let of = |type_: &str| conditions.iter().find(|one| one.type_ == type_ && one.status == "True");
    let summary = |status: &str, type_: &str, completed_tasks| PipelineRunSummary {
        status: status.to_owned(),
        reason: of(type_).and_then(|one| one.reason.clone()),
        message: of(type_).and_then(|one| one.message.clone()).filter(|text| !text.is_empty()),
        completed_tasks,
        total_tasks: 1,
    };
    if !job.is_finished() {
        return Standing::Going(summary("Unknown", "", 0));
    }
    if of("Complete").is_some() {
        Standing::Succeeded(summary("True", "Complete", 1))
    } else {
        Standing::Failed(summary("False", "Failed", 1))
    }
}
