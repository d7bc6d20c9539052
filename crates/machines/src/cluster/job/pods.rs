//! The Pods of a Job: what one sighting of a Pod says, and how a new one is written.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::ContainerStatus;
use pawl_api::meta::names;
use serde_json::{Value, json};

use super::TRACKING;
use crate::cluster::owned_pod::OwnedPod;
use crate::json::{default, object};
use crate::object::Object;
use crate::plan::Step;

/// Which index of an Indexed Job a Pod works on; an annotation and a label.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// How often an index failed before this Pod, where each index may fail on its own; and how often that did not count.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// 32 bits: two of the Pods that one Job ever has share a name with odds of one in millions, and then the later one
/// only waits for the earlier to be deleted.
const NAME_HEX: usize = 8;

impl OwnedPod {
    /// Whether its result may still have to be counted.
    pub(super) fn is_tracked(&self) -> bool {
        self.object.has_finalizer(TRACKING)
    }

    pub(super) fn has_succeeded(&self) -> bool {
        self.phase() == "Succeeded"
    }

    pub(super) fn has_failed(&self) -> bool {
        self.phase() == "Failed"
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase() == "Running"
    }

    /// On its way out, and not over yet.
    pub(super) fn is_ending(&self) -> bool {
        !self.is_over() && self.object.is_deleting()
    }

    pub(super) fn index(&self) -> Option<i32> {
        self.object.annotation(INDEX)?.parse().ok().filter(|index| *index >= 0)
    }

    pub(super) fn tally(&self) -> Tally {
        let read = |key| self.object.annotation(key).and_then(|text| text.parse().ok()).unwrap_or_default();
        Tally { counted: read(FAILURES), ignored: read(IGNORED_FAILURES) }
    }

    /// When its last container ended; as a last resort, when it was made.
    pub(super) fn finished_at(&self) -> Option<Timestamp> {
        let ended = self.containers().filter_map(|container| {
            Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
        });
        let deleted = self.object.meta().deletion_timestamp.as_ref().map(|time| time.0);
        ended.max().or(deleted).or_else(|| self.object.created_at())
    }

    pub(super) fn restarts(&self) -> i32 {
        self.containers().fold(0, |sum, container| sum.saturating_add(container.restart_count))
    }

    /// Init containers and containers.
    fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        let status = self.pod.status.as_ref();
        let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
        let main = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        init.iter().chain(main)
    }

    /// Why a Pod must go depends on what it was seen doing: one that has ended meanwhile has a result to be counted.
    pub(super) fn delete_as_seen(&self) -> Step {
        Step::delete_unchanged(&self.object)
    }

    /// A Pod that was counted has lost its finalizer before the count was written: if it is as it was seen, it was not
    /// counted in the version of the Job that is at hand, however late the Pod was seen.
    pub(super) fn confirm_uncounted(&self) -> Step {
        Step::confirm_unchanged(&self.object)
    }

    /// Takes the tracking finalizer off, of exactly the version that was seen.
    pub(super) fn release(&self) -> Step {
        let kept: Vec<_> = self.object.finalizers().iter().filter(|held| *held != TRACKING).collect();
        Step::patch_unchanged(&self.object, json!({"metadata": {"finalizers": kept}}))
    }

    /// What a pod failure policy says of this failed Pod, if a rule matches it.
    pub(super) fn judged(&self, policy: &PodFailurePolicy) -> Option<(Action, String)> {
        policy.rules.iter().enumerate().find_map(|(at, rule)| {
            let action = Action::parse(&rule.action);
            let matched = self.matched_exit(rule).or_else(|| self.matched_condition(rule))?;
            Some((action, format!("{matched} matching {} rule at index {at}", rule.action)))
        })
    }

    fn matched_exit(&self, rule: &PodFailurePolicyRule) -> Option<String> {
        let wanted = rule.on_exit_codes.as_ref()?;
        let (container, code) = self.containers().find_map(|container| {
            let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
            exit_matches(wanted, &container.name, code).then_some((&container.name, code))
        })?;
        Some(format!("Container {container} for pod {} failed with exit code {code}", self.object.key()))
    }

    fn matched_condition(&self, rule: &PodFailurePolicyRule) -> Option<String> {
        let conditions = self.pod.status.as_ref()?.conditions.as_deref()?;
        let found = rule.on_pod_conditions.as_deref()?.iter().find(|wanted| {
            let status = wanted.status.as_deref().unwrap_or("True");
            conditions.iter().any(|one| one.type_ == wanted.type_ && one.status == status)
        })?;
        Some(format!("Pod {} has condition {}", self.object.key(), found.type_))
    }
}

/// What a rule of a pod failure policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    FailJob,
    Ignore,
    /// The index is given up; in a Job without a back-off limit per index the failure counts as any other.
    FailIndex,
    Count,
}

impl Action {
    fn parse(text: &str) -> Self {
        match text {
            "FailJob" => Self::FailJob,
            "Ignore" => Self::Ignore,
            "FailIndex" => Self::FailIndex,
            _ => Self::Count,
        }
    }
}

/// How often an index has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) counted: i32,
    ignored: i32,
}

impl Tally {
    pub(super) fn all(self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }

    pub(super) fn and_one_more(mut self, counts: bool) -> Self {
        let which = if counts { &mut self.counted } else { &mut self.ignored };
        *which = which.saturating_add(1);
        self
    }
}

/// Success is no failure to match, whatever the operator says.
fn exit_matches(wanted: &PodFailurePolicyOnExitCodesRequirement, container: &str, code: i32) -> bool {
    let named = wanted.container_name.as_deref().is_none_or(|name| name == container);
    let listed = wanted.values.contains(&code);
    named && code != 0 && if wanted.operator == "NotIn" { !listed } else { listed }
}

/// The name of a Pod: the same for the same Job, index and attempt (I1).
pub(super) fn name(job: &Object, index: Option<i32>, attempt: i32) -> String {
    let (index, attempt) = (index.map(|index| index.to_string()), attempt.to_string());
    let prefix = match &index {
        Some(index) => format!("{}-{index}", job.name()),
        None => job.name().to_owned(),
    };
    let parts = [job.uid(), index.as_deref().unwrap_or_default(), &attempt];
    names::child(&prefix, &parts, NAME_HEX, names::MAX_LABEL)
}

/// A Pod from the Job's template, tracked until its result is counted.
pub(super) fn create(job: &Object, name: &str, index: Option<i32>, tally: Option<Tally>) -> Step {
    let mut manifest = job.raw().pointer("/spec/template").cloned().unwrap_or_default();
    let metadata = object(&mut manifest, "metadata");
    metadata["name"] = name.into();
    metadata["finalizers"] = json!([TRACKING]);
    let labels = object(metadata, "labels");
    for prefix in ["batch.kubernetes.io/", ""] {
        default(labels, &format!("{prefix}controller-uid"), job.uid().into());
        default(labels, &format!("{prefix}job-name"), names::label_value(job.name()).into());
    }
    if let Some(index) = index {
        labels[INDEX] = index.to_string().into();
        let annotations = object(metadata, "annotations");
        annotations[INDEX] = index.to_string().into();
        if let Some(tally) = tally {
            annotations[FAILURES] = tally.counted.to_string().into();
            if tally.ignored > 0 {
                annotations[IGNORED_FAILURES] = tally.ignored.to_string().into();
            }
        }
        let spec = object(&mut manifest, "spec");
        default(spec, "hostname", names::label(&format!("{}-{index}", job.name())).into());
        for list in ["initContainers", "containers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(tell_index);
        }
    }
    Step::create_child(job, super::POD, manifest)
}

fn tell_index(container: &mut Value) {
    const VARIABLE: &str = "JOB_COMPLETION_INDEX";
    if !container.is_object() {
        return;
    }
    let mut env = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    if env.iter().all(|variable| variable["name"] != VARIABLE) {
        let field = json!({"fieldPath": format!("metadata.labels['{INDEX}']")});
        env.push(json!({"name": VARIABLE, "valueFrom": {"fieldRef": field}}));
        container["env"] = env.into();
    }
}
