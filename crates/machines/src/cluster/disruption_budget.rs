//! How many of its Pods could a PodDisruptionBudget do without right now?
//!
//! Evictions are counted by the API server when they are asked for; this only says the count beforehand, for people and
//! for tools that look before they ask.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pawl_api::k8s::{POD, POD_DISRUPTION_BUDGET};

use super::job::count;
use super::owned_pod::OwnedPod;
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::Plan;
use crate::view::{Context, View};

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// Keeps the status of budgets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisruptionBudgets;

impl Machine for DisruptionBudgets {
    type Kind = PodDisruptionBudget;
    type Status = PodDisruptionBudgetStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::other(POD, budgets_of)],
            writes: vec![Write::status(POD_DISRUPTION_BUDGET)],
            ..Description::new("disruption", POD_DISRUPTION_BUDGET)
        }
    }

    fn is_fenced(&self) -> bool {
        true
    }

    fn reconcile(&self, cx: &Context<'_, PodDisruptionBudget>) -> Plan<PodDisruptionBudgetStatus> {
        let Some(spec) = &cx.typed.spec else { return Plan::rest() };
        let selected = |pod: &Arc<Object>| spec.selector.as_ref().is_some_and(|by| selects(by, pod));
        let pods = cx.view.list(&POD, cx.object.namespace()).into_iter().filter(selected);
        let pods: Vec<OwnedPod> = pods.filter_map(OwnedPod::of).filter(OwnedPod::is_active).collect();
        let expected = count(pods.len());
        let healthy = count(pods.iter().filter(|pod| pod.is_ready()).count());
        let desired = match (&spec.min_available, &spec.max_unavailable) {
            (Some(least), _) => share(least, expected),
            (None, Some(most)) => expected.saturating_sub(share(most, expected)).max(0),
            (None, None) => 0,
        };
        let allowed = if expected == 0 { 0 } else { healthy.saturating_sub(desired).max(0) };
        let before = cx.typed.status.clone().unwrap_or_default();
        Plan::rest().status(PodDisruptionBudgetStatus {
            conditions: Some(vec![condition(cx, &before, allowed)]),
            current_healthy: Some(healthy),
            desired_healthy: Some(desired),
            disrupted_pods: before.disrupted_pods,
            disruptions_allowed: Some(allowed),
            expected_pods: Some(expected),
            observed_generation: Some(cx.object.generation()),
        })
    }
}

fn condition(
    cx: &Context<'_, PodDisruptionBudget>,
    before: &PodDisruptionBudgetStatus,
    allowed: i32,
) -> Condition {
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let known = before.conditions.iter().flatten().find(|one| one.type_ == DISRUPTION_ALLOWED);
    let since = known.filter(|one| one.status == status).map(|one| one.last_transition_time.clone());
    Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: since.unwrap_or(Time(cx.now)),
        observed_generation: Some(cx.object.generation()),
    }
}

/// A number, or a share of so many, rounded up as Kubernetes does.
fn share(value: &IntOrString, of: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            let part = (i64::from(of).saturating_mul(percent).saturating_add(99)) / 100;
            i32::try_from(part).unwrap_or(i32::MAX)
        }
    }
}

/// Whether the selector chooses the Pod. An empty one chooses all.
fn selects(selector: &LabelSelector, pod: &Object) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| pod.label(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|demand| {
            let value = pod.label(&demand.key);
            let listed = demand.values.iter().flatten().any(|one| value == Some(one));
            match demand.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn budgets_of(pod: &Object, view: &dyn View) -> Vec<Key> {
    view.list(&POD_DISRUPTION_BUDGET, pod.namespace()).iter().map(|budget| budget.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::testing::Cluster;
    use serde_json::{Value, json};

    fn status(spec: &Value, ready: usize, all: usize) -> Value {
        let mut cluster = Cluster::of(&[POD_DISRUPTION_BUDGET, POD], "");
        let mut spec = spec.clone();
        spec["selector"] = json!({"matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]});
        cluster.put(json!({"kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}));
        for number in 0..all {
            let is = if number < ready { "True" } else { "False" };
            cluster.put(
                json!({"kind": "Pod", "metadata": {"name": format!("p{number}"), "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": is}]}}),
            );
        }
        cluster.put(
            json!({"kind": "Pod", "metadata": {"name": "other", "labels": {"app": "web", "gone": "yes"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        cluster.settle(&[AnyMachine::new(DisruptionBudgets)]);
        cluster.get(&POD_DISRUPTION_BUDGET, &Key::new(Some("n"), "b")).unwrap()["status"].clone()
    }

    #[test]
    fn what_may_go_is_what_is_healthy_beyond_what_must_stay() {
        for (spec, ready, all, allowed, desired) in [
            (json!({"minAvailable": 1}), 3, 3, 2, 1),
            (json!({"minAvailable": "50%"}), 3, 3, 1, 2),
            (json!({"maxUnavailable": 1}), 2, 3, 0, 2),
            (json!({"maxUnavailable": "34%"}), 3, 3, 2, 1),
            (json!({"minAvailable": 1}), 0, 0, 0, 1),
        ] {
            let status = status(&spec, ready, all);
            assert_eq!(status["disruptionsAllowed"], allowed, "{spec}: {status}");
            assert_eq!(
                (&status["desiredHealthy"], &status["currentHealthy"]),
                (&json!(desired), &json!(ready))
            );
            assert_eq!(status["expectedPods"], all);
            assert_eq!(status["conditions"][0]["status"], if allowed > 0 { "True" } else { "False" });
        }
    }
}
