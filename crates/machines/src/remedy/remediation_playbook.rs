//! Can a RemediationPlaybook be used: do its matchers compile, and can its plan be carried out?
//!
//! Nothing else is done here: alerts come in through `POST /api/v1/alerts`, which reads the playbooks (`alerts`).

use pawl_api::meta::{NewCondition, Reason, condition};
use pawl_api::remedy::remediation_playbook::{self, VALID};
use pawl_api::remedy::{RemediationPlaybook, RemediationPlaybookStatus};

use super::alerts::Playbook;
use crate::machine::{Description, Machine, Watch, Write};
use crate::plan::Plan;
use crate::view::Context;

/// Says of each playbook whether it can be used.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemediationPlaybooks;

impl Machine for RemediationPlaybooks {
    type Kind = RemediationPlaybook;
    type Status = RemediationPlaybookStatus;

    fn description(&self) -> Description {
        Description {
            // Alerts are answered from what is known here of namespaces: who may act where.
            watches: vec![
                Watch::other(crate::cluster::namespace::NAMESPACE, |_, _| Vec::new()).metadata_only(),
            ],
            writes: vec![Write::status(remediation_playbook::KIND)],
            ..Description::new("remediationplaybook", remediation_playbook::KIND)
        }
    }

    fn reconcile(&self, cx: &Context<'_, RemediationPlaybook>) -> Plan<RemediationPlaybookStatus> {
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let mut status = cx.typed.status.clone().unwrap_or_default();
        let generation = cx.object.meta().generation;
        status.observed_generation = generation;
        let new = match Playbook::compile(cx.object, cx.typed) {
            Ok(_) => {
                NewCondition::yes(VALID, Reason::Valid, "alerts that match lead to a RemediationRequest")
            }
            Err((reason, problem)) => NewCondition::no(VALID, reason, problem),
        };
        condition::set(&mut status.conditions, new, generation, cx.now);
        Plan::rest().status(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::object::Key;
    use crate::testing::Cluster;
    use serde_json::{Value, json};

    fn verdict(spec: &Value) -> (String, String) {
        let mut cluster = Cluster::of(&[remediation_playbook::KIND], "");
        cluster.put(json!({"kind": "RemediationPlaybook", "metadata": {"name": "p"}, "spec": spec}));
        cluster.settle(&[AnyMachine::new(RemediationPlaybooks)]);
        let found = cluster.get(&remediation_playbook::KIND, &Key::new(Some("n"), "p")).unwrap();
        let condition = &found["status"]["conditions"][0];
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        (text("status"), text("message"))
    }

    #[test]
    fn a_playbook_that_cannot_be_used_says_why() {
        let step =
            json!({"name": "a", "workflow": {"workflowRef": {"workflowId": "w", "containerImage": "i"}}});
        let good = json!({"matchers": [{"name": "alertname", "operator": "=~", "value": "Crash.*"}],
            "target": {"kind": "Deployment", "nameLabel": "deployment", "namespaceLabel": "namespace"},
            "plan": {"steps": [step]}});
        assert_eq!(verdict(&good).0, "True");
        let mut bad = good.clone();
        bad["matchers"][0]["value"] = json!("(");
        let (status, message) = verdict(&bad);
        assert!(status == "False" && message.contains("spec.matchers[0]"), "{message}");
        let mut bad = good.clone();
        bad["plan"]["steps"][0]["dependsOn"] = json!(["a"]);
        assert!(verdict(&bad).1.contains("cycle"));
        let mut bad = good;
        bad["matchers"][0]["value"] = json!("(a{1000}){1000}");
        assert!(verdict(&bad).1.contains("too big"), "{}", verdict(&bad).1);
    }
}
