//! May a pod start on this node, and if not, what is it told?
//!
//! There is one node, so scheduling is a yes or a no. Pure; the words are the scheduler's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::ResourceExt;

/// What a cordoned node is tainted with, for those who tolerate even that.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// What people say about the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    labels: BTreeMap<String, String>,
    cordoned: bool,
    taints: Vec<Taint>,
}

/// Why a pod waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Terms {
    pub(crate) fn of(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        Self {
            labels: node.labels().clone(),
            cordoned: spec.unschedulable.unwrap_or(false),
            taints: spec.taints.unwrap_or_default(),
        }
    }

    /// Why a pod cannot be placed here; `full`: no more pods fit.
    pub(crate) fn against(&self, pod: &Pod, full: bool) -> Option<Waits> {
        let spec = pod.spec.as_ref()?;
        if spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
            let message = "Scheduling is blocked due to non-empty scheduling gates".to_owned();
            return Some(Waits { reason: "SchedulingGated", message });
        }
        let has = |(key, value): (&String, &String)| self.labels.get(key) == Some(value);
        let why = if self.cordoned && !tolerates(pod, &cordon()) {
            "node(s) were unschedulable".to_owned()
        } else if let Some(taint) =
            self.taints.iter().find(|taint| keeps_out(taint) && !tolerates(pod, taint))
        {
            let value = taint.value.as_deref().unwrap_or_default();
            format!("node(s) had untolerated taint {{{}: {value}}}", taint.key)
        } else if !spec.node_selector.iter().flatten().all(has) {
            "node(s) didn't match Pod's node affinity/selector".to_owned()
        } else if full {
            "Too many pods".to_owned()
        } else {
            return None;
        };
        Some(Waits { reason: "Unschedulable", message: format!("0/1 nodes are available: 1 {why}.") })
    }
}

fn cordon() -> Taint {
    Taint { key: CORDONED.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}

/// A preference keeps nobody out where there is no other node.
fn keeps_out(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    // Its controller lets a DaemonSet's pods onto cordoned nodes.
    let daemon = pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
    let list = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    (daemon && taint.key == CORDONED) || list.into_iter().any(|toleration| matches(toleration, taint))
}

fn matches(toleration: &Toleration, taint: &Taint) -> bool {
    let filled = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let effect = filled(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = filled(&toleration.key).is_none_or(|key| key == taint.key);
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        // Without a key only `Exists` means everything.
        _ => {
            filled(&toleration.key).is_some()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
    };
    effect && key && value
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(node: Value, pod: Value, full: bool) -> Option<String> {
        let node: Node = serde_json::from_value(node).unwrap();
        let pod: Pod = serde_json::from_value(pod).unwrap();
        Terms::of(&node).against(&pod, full).map(|waits| format!("{}: {}", waits.reason, waits.message))
    }

    fn spec(mut spec: Value) -> Value {
        spec["containers"] = json!([]);
        json!({"metadata": {}, "spec": spec})
    }

    #[test]
    fn a_pod_that_cannot_be_placed_is_told_in_the_schedulers_words() {
        let node = json!({"metadata": {"labels": {"kubernetes.io/hostname": "n"}}});
        let none = |pod: Value| check(node.clone(), spec(pod), false);
        assert_eq!(none(json!({})), None);
        assert_eq!(none(json!({"nodeSelector": {"kubernetes.io/hostname": "n"}})), None);
        assert!(none(json!({"schedulingGates": [{"name": "x"}]})).unwrap().starts_with("SchedulingGated"));
        let elsewhere = none(json!({"nodeSelector": {"disk": "ssd"}})).unwrap();
        assert_eq!(
            elsewhere,
            "Unschedulable: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        );
        assert!(check(node.clone(), spec(json!({})), true).unwrap().contains("Too many pods"));
    }

    #[test]
    fn a_cordon_holds_all_but_those_who_tolerate_it() {
        let node = json!({"metadata": {}, "spec": {"unschedulable": true}});
        let held = check(node.clone(), spec(json!({})), false).unwrap();
        assert_eq!(held, "Unschedulable: 0/1 nodes are available: 1 node(s) were unschedulable.");
        let tolerant = spec(json!({"tolerations": [{"key": CORDONED, "operator": "Exists"}]}));
        assert_eq!(check(node.clone(), tolerant, false), None);
        let mut daemon = spec(json!({}));
        daemon["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]);
        assert_eq!(check(node, daemon, false), None);
    }

    #[test]
    fn a_taint_holds_whom_it_means() {
        let tainted = |effect: &str| json!({"metadata": {}, "spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
        let held = check(tainted("NoSchedule"), spec(json!({})), false).unwrap();
        assert!(held.contains("1 node(s) had untolerated taint {k: v}."), "{held}");
        assert_eq!(check(tainted("PreferNoSchedule"), spec(json!({})), false), None);
        for (toleration, helps) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"key": "k", "value": "other"}), false),
            (json!({"value": "v"}), false),
        ] {
            let pod = spec(json!({"tolerations": [toleration]}));
            assert_eq!(check(tainted("NoExecute"), pod.clone(), false).is_none(), helps, "{pod}");
        }
    }
}
