//! The Job that carries an action out: its manifest and input, how far it is, and what it says at its end.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use pawl_api::k8s::SECRET;
use pawl_api::meta::names;
use pawl_api::pawl::labels as owner;
use pawl_api::remedy::kubernetes_execution::job_name;
use pawl_api::remedy::{KubernetesExecutionSpec, annotations, labels};
use serde_json::{Map, Value, json};

use crate::cluster::job::followed::{ended_at, is_finished};
use crate::held_run::{HeldRun, is_held};
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Step};
use crate::remedy::action::executor::{CONTAINER, Executor};
use crate::remedy::action::{Order, Report};

/// How long a Job is kept after its result was recorded: as long as the seed keeps it, so that people can look at it.
pub(in crate::remedy) const KEPT_SECONDS: i64 = 300;

/// What the name of an input adds to that of its Job.
const INPUT: &str = "-in";

/// What a cache shows under the name of an attempt's Job.
#[derive(Clone, Debug)]
pub(super) struct Run {
    object: Arc<Object>,
    /// `None`: it does not have the shape of a Job, so nobody can say how it stands.
    job: Option<Arc<Job>>,
}

/// How a Job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Made, and not let go.
    Held,
    Going,
    Complete,
    Failed {
        /// It took too long, as the Job's own clock says.
        late: bool,
        message: String,
    },
}

/// What an attempt came to, as its Pod says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// What the executor reported.
    Report(Box<Report>),
    /// It ended without a report that can be read: how, in words.
    Nothing(String),
    /// No Pod of it ended here.
    Unseen,
}

/// Where the Job of an attempt is: its name follows from the execution (I1).
pub(super) fn key(executor_namespace: &str, uid: &str, attempt: i32) -> Key {
    Key::new(Some(executor_namespace), &job_name(uid, attempt))
}

/// Where its input is.
pub(super) fn input_key(job: &Key) -> Key {
    Key { namespace: job.namespace.clone(), name: format!("{}{INPUT}", job.name) }
}

/// Whether a Pod may still do something.
pub(super) fn may_act(pod: &Arc<Object>) -> bool {
    let phase = pod.status().get("phase").and_then(Value::as_str);
    !matches!(phase, Some("Succeeded" | "Failed"))
}

impl Run {
    pub(super) fn read(object: &Arc<Object>) -> Self {
        Self { job: object.parse().ok(), object: Arc::clone(object) }
    }

    pub(super) fn object(&self) -> &Arc<Object> {
        &self.object
    }

    pub(super) fn standing(&self) -> Standing {
        if is_held(&self.object) {
            return Standing::Held;
        }
        let Some(job) = self.job.as_ref().filter(|job| job.status.as_ref().is_some_and(is_finished)) else {
            return Standing::Going;
        };
        let conditions =
            job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        match conditions.iter().find(|one| one.type_ == "Failed" && one.status == "True") {
            None => Standing::Complete,
            Some(failed) => {
                let reason = failed.reason.clone().unwrap_or_default();
                let late = reason == "DeadlineExceeded";
                let message = failed.message.clone().filter(|text| !text.is_empty()).unwrap_or(reason);
                Standing::Failed { late, message }
            }
        }
    }

    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        ended_at(self.job.as_deref()?.status.as_ref()?)
    }

    /// Its result is recorded: it may expire. `None` when that was said before.
    pub(super) fn expire(&self) -> Option<Step> {
        let spec = self.job.as_ref()?.spec.as_ref()?;
        let said = spec.ttl_seconds_after_finished.is_some() || self.object.is_deleting();
        (!said).then(|| Step::patch(&self.object, json!({"spec": {"ttlSecondsAfterFinished": KEPT_SECONDS}})))
    }
}

/// How a Job of this execution is told from others: by its labels, for a reference across namespaces would be invalid.
pub(super) fn owner(uid: &str) -> Adopt {
    Adopt::Labelled([(owner::OWNER_UID.to_owned(), uid.to_owned())].into())
}

/// Creates the input, and the Job, held.
pub(super) fn create(
    run: &HeldRun,
    executor: &Executor,
    spec: &KubernetesExecutionSpec,
    order: &Order,
    timeout: std::time::Duration,
) -> Vec<Step> {
    let key = run.reference().key;
    let input = input_key(&key);
    let marks = marks(order, spec);
    let execution = json!({annotations::EXECUTION: order.execution.to_string()});
    let secret = json!({
        "metadata": {"name": input.name, "namespace": input.namespace, "labels": marks, "annotations": execution},
        "type": "Opaque", "immutable": true, "stringData": Executor::input(order),
    });
    let job = json!({
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": marks, "annotations": execution},
        "spec": {
            "backoffLimit": 0, "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": timeout.as_secs().max(1),
            "template": {"metadata": {"labels": marks, "annotations": execution},
                "spec": executor.pod_spec(order, &input.name)},
        },
    });
    vec![Step::Create { kind: SECRET, manifest: secret, adopt: owner(&order.uid) }, run.create(job)]
}

/// The name of the Job that a Secret is the input of.
pub(super) fn job_of_input(secret: &Object) -> Option<&str> {
    secret.name().strip_suffix(INPUT)
}

/// Takes the input of a Job away, whichever has its name.
pub(super) fn forget_input(job: &Key) -> Step {
    delete_secret_of(input_key(job))
}

/// Takes away whichever Secret has this name.
pub(super) fn delete_secret_of(key: Key) -> Step {
    delete_secret(Reference { kind: SECRET, key, uid: String::new() })
}

pub(super) fn delete_secret(target: Reference) -> Step {
    Step::delete_reference(target)
}

/// What the Pods of an attempt say of its end.
pub(super) fn told(pods: &[Arc<Object>], uid: &str) -> Told {
    let ended = pods.iter().filter_map(|pod| Some((pod, pod.parse::<Pod>().ok()?)));
    let mut nothing = Told::Unseen;
    for (pod, typed) in ended {
        let status = typed.status.clone().unwrap_or_default();
        let mut containers = status.container_statuses.iter().flatten();
        let terminated = containers
            .find(|one| one.name == CONTAINER)
            .and_then(|one| one.state.as_ref()?.terminated.as_ref());
        let Some(terminated) = terminated else {
            if !may_act(pod) {
                let said =
                    [status.reason, status.message].into_iter().flatten().collect::<Vec<_>>().join(": ");
                nothing = Told::Nothing(format!("Pod {} ended: {said}", pod.name()));
            }
            continue;
        };
        match Report::parse(terminated.message.as_deref().unwrap_or_default(), uid) {
            Ok(report) => return Told::Report(Box::new(report)),
            Err(unreadable) => {
                nothing = Told::Nothing(format!("{}: {unreadable}", ending(pod.name(), terminated)))
            }
        }
    }
    nothing
}

/// The Pod whose log tells what happened.
pub(super) fn speaker(pods: &[Arc<Object>]) -> Option<Key> {
    pods.iter().max_by_key(|pod| pod.created_at()).map(|pod| pod.key())
}

fn ending(pod: &str, ended: &ContainerStateTerminated) -> String {
    let reason = ended.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("container {CONTAINER} of Pod {pod} ended with {}{reason}", ended.exit_code)
}

fn marks(order: &Order, spec: &KubernetesExecutionSpec) -> Map<String, Value> {
    let mut marks = order.marks();
    if let Some(request) = &spec.remediation_request_ref {
        marks.insert(labels::REMEDIATION_REQUEST.to_owned(), names::label_value(&request.name).into());
    }
    marks
}
