//! Can the policies in a ConfigMap be used? An Event on it says so, whenever they change.
//!
//! All labelled ConfigMaps are one set, read as a whole, so each of them tells of the set. Nothing else is done here:
//! whoever asks policy reads the set itself, and hears when older policies answered.

use k8s_openapi::api::core::v1::ConfigMap;
use pawl_api::k8s::CONFIG_MAP;
use pawl_api::meta::Reason;
use pawl_api::pawl::labels::POLICY;

use super::safety::{Answer, Policies, Question, SAFETY};
use crate::machine::{Description, Machine, Primary, Watch};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan};
use crate::view::{Context, View};

/// Tells of policies whether they can be used.
#[derive(Clone, Debug)]
pub struct PolicyMaps {
    /// Where policies are.
    pub system_namespace: String,
}

impl Machine for PolicyMaps {
    type Kind = ConfigMap;
    type Status = ();

    fn description(&self) -> Description {
        Description {
            // Of thousands of ConfigMaps a few are policies.
            primary: Primary::Woken(CONFIG_MAP),
            watches: vec![Watch::other(CONFIG_MAP, of_the_set).by_labels(&[POLICY])],
            ..Description::new("policy", CONFIG_MAP)
        }
    }

    fn reconcile(&self, cx: &Context<'_, ConfigMap>) -> Plan<()> {
        let me = cx.object;
        let is_policy = is_policy(me) && me.namespace() == Some(self.system_namespace.as_str());
        if !is_policy || me.is_deleting() {
            return Plan::rest();
        }
        let set = Policies::observe(cx.view, &self.system_namespace);
        if set.modules.is_empty() {
            return Plan::rest();
        }
        let question = Question::Check { policies: set.clone() };
        let checked = match cx.answers.get(&question) {
            None => return Plan::rest().ask(question),
            Some(Ok(Answer::Check(checked))) => checked,
            // The engine repeats the reconcile after a failure; the other two answer other questions.
            Some(Err(_) | Ok(Answer::Safety(_) | Answer::Condition(_))) => return Plan::rest(),
        };
        let note = match checked {
            Ok(()) => Note::normal(Reason::PolicyLoaded, format!("the policies hold, as {}", set.digest)),
            Err(problem) => {
                // Which those are is known to the process that asked them: after a restart there are none.
                let message = format!(
                    "{problem}; until it is mended the last policies that could be used hold, and where none are known \
                     nothing is allowed"
                );
                Note::warning(Reason::PolicyRejected, message)
            }
        };
        Plan::rest().note(note.once(set.digest.clone()))
    }
}

fn is_policy(map: &Object) -> bool {
    map.label(POLICY) == Some(SAFETY)
}

/// A set is read as a whole.
fn of_the_set(changed: &Object, view: &dyn View) -> Vec<Key> {
    if !is_policy(changed) {
        return Vec::new();
    }
    let all = view.labelled(&CONFIG_MAP, POLICY, SAFETY).into_iter();
    all.filter(|map| map.namespace() == changed.namespace()).map(|map| map.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::Reply;
    use crate::machine::AnyMachine;
    use crate::testing::Cluster;
    use serde_json::json;

    fn cluster(label: &str, namespace: &str, text: &str) -> Cluster {
        let mut cluster = Cluster::of(&[CONFIG_MAP], "");
        cluster.outside = |call| {
            let Some(Question::Check { policies }) = call.request() else { panic!("{call}") };
            let bad = policies.modules.iter().find(|(_, text)| text == "bad");
            let checked = bad.map_or(Ok(()), |(name, _)| Err(format!("{name}:1:1: no")));
            Ok(Reply::new::<Question>(Answer::Check(checked)))
        };
        cluster.put(json!({"kind": "ConfigMap", "metadata": {"name": "p", "namespace": namespace,
            "labels": {POLICY: label}}, "data": {"a.rego": text}}));
        cluster
    }

    fn told(cluster: &mut Cluster) -> Vec<(String, String)> {
        let machine = PolicyMaps { system_namespace: "pawl-system".to_owned() };
        cluster.settle(&[AnyMachine::new(machine)]);
        cluster.events.iter().map(|(_, reason, note)| (reason.clone(), note.clone())).collect()
    }

    #[test]
    fn policies_that_can_be_used_are_told_of() {
        let told = told(&mut cluster("safety", "pawl-system", "good"));
        assert!(matches!(told.as_slice(), [(reason, _)] if reason == "PolicyLoaded"), "{told:?}");
    }

    #[test]
    fn policies_that_cannot_be_used_are_told_of_with_the_place() {
        let mut cluster = cluster("safety", "pawl-system", "bad");
        let told_once = told(&mut cluster);
        assert!(
            matches!(told_once.as_slice(), [(reason, note)] if reason == "PolicyRejected" && note.starts_with("p/a.rego:1:1: no")),
            "{told_once:?}"
        );
        cluster.edit(&CONFIG_MAP, &Key::new(Some("pawl-system"), "p"), &json!({"data": {"a.rego": "good"}}));
        assert_eq!(told(&mut cluster).last().unwrap().0, "PolicyLoaded");
    }

    #[test]
    fn other_config_maps_are_nobodys_business() {
        for (label, namespace) in [("other", "pawl-system"), ("safety", "team")] {
            assert!(told(&mut cluster(label, namespace, "bad")).is_empty());
        }
    }
}
