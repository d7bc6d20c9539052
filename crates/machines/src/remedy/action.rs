//! What is asked about an action, and of whom, before, while and after it is done?
//!
//! ```text
//! Look ─▶ what is there, without secrets      Access ─▶ may its ServiceAccount?      DryRun ─▶ what would change?
//! Capture ─▶ the undo, stored where it stays (I4)      (a Job runs `pawl act`)       Look ─▶ what is there now
//! ```
//! Everything here goes through a port: values that may be secret are read, compared and stored there, and a decision
//! sees only what may stand in a status (I6).

mod apply_manifest;
mod cordon;
pub mod course;
pub mod definition;
mod delete_pod;
pub mod diff;
mod drain_node;
pub mod executor;
mod expand_pvc;
mod increase_resources;
pub mod kept;
mod notify_only;
mod patch_deployment;
mod quarantine_pod;
pub mod rbac;
pub mod report;
mod rollback_deployment;
mod rollout_restart;
mod scale;
pub mod seen;
mod taint;
#[cfg(test)]
pub(crate) mod testing;
mod update_configmap;
mod update_hpa;
mod update_secret;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use pawl_api::meta::{Kind, names};
use pawl_api::pawl::labels as owner;
use pawl_api::remedy::{
    Action, ActionParameters, AffectedResource, DryRunResults, RollbackInformation, kubernetes_execution,
    labels,
};
use serde_json::{Map, Value, json};

pub use self::definition::{Context, Definition, Need, Problem, Rule, UndoKind};
pub use self::report::Report;
use crate::external::Request;
use crate::object::{Key, Reference};

/// The reason of a failure that says that an action cannot be done to what is there.
pub const REFUSED: &str = "Refused";

/// The one place that lists them.
pub fn definition(action: Action) -> &'static Definition {
    match action {
        Action::ScaleDeployment => &scale::DEPLOYMENTS,
        Action::ScaleStatefulset => &scale::STATEFUL_SETS,
        Action::RolloutRestart => &rollout_restart::DEFINITION,
        Action::RollbackDeployment => &rollback_deployment::DEFINITION,
        Action::PatchDeployment => &patch_deployment::DEFINITION,
        Action::IncreaseResources => &increase_resources::DEFINITION,
        Action::UpdateHpa => &update_hpa::DEFINITION,
        Action::DeletePod => &delete_pod::DEFINITION,
        Action::QuarantinePod => &quarantine_pod::DEFINITION,
        Action::CordonNode => &cordon::CORDON,
        Action::UncordonNode => &cordon::UNCORDON,
        Action::DrainNode => &drain_node::DEFINITION,
        Action::TaintNode => &taint::TAINT,
        Action::UntaintNode => &taint::UNTAINT,
        Action::UpdateConfigmap => &update_configmap::DEFINITION,
        Action::UpdateSecret => &update_secret::DEFINITION,
        Action::ExpandPvc => &expand_pvc::DEFINITION,
        Action::ApplyManifest => &apply_manifest::DEFINITION,
        Action::NotifyOnly => &notify_only::DEFINITION,
    }
}

/// The kinds of the objects that actions name in their parameters. What a manifest holds is not named: a cluster would have
/// to be watched as a whole for it.
pub fn named_kinds() -> BTreeSet<Kind> {
    let named = Action::ALL.iter().map(|action| definition(*action)).filter(|one| !one.creates());
    named.flat_map(|one| one.kinds).cloned().collect()
}

/// An action on behalf of an execution: what a port needs to look at it, try it or do it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// The execution, and the UID by which what it did is found again (I7).
    pub execution: Key,
    pub uid: String,
    /// `spec.action`.
    pub action: Action,
    /// `spec.parameters` as JSON, members in the order of their names: equal parameters are equal text.
    pub parameters: Arc<str>,
    /// The execution that this one takes back, where it is a rollback: what may be secret is in that one's undo.
    pub undoes: Option<String>,
}

/// Why a text is no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the order cannot be read: {0}")]
pub struct Unreadable(String);

impl Order {
    /// # Errors
    /// When they are not what the schema allows.
    pub fn parameters(&self) -> Result<ActionParameters, Unreadable> {
        serde_json::from_str(&self.parameters).map_err(|error| Unreadable(format!("parameters: {error}")))
    }

    /// By what the objects that are made for it name its execution: it is in another namespace, so no reference may.
    pub fn marks(&self) -> Map<String, Value> {
        let fit = |text: &str| Value::from(names::label_value(text));
        [
            (labels::EXECUTION_ID, fit(&self.execution.name)),
            (labels::ACTION, fit(self.action.as_str())),
            (owner::OWNER_KIND, fit(&kubernetes_execution::KIND.kind)),
            (owner::OWNER_NAMESPACE, fit(self.execution.namespace.as_deref().unwrap_or_default())),
            (owner::OWNER_NAME, fit(&self.execution.name)),
            (owner::OWNER_UID, Value::from(self.uid.as_str())),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }

    /// As it stands in the input of an executor.
    pub fn to_json(&self) -> Value {
        let parameters: Value = serde_json::from_str(&self.parameters).unwrap_or_default();
        json!({"execution": self.execution, "uid": self.uid, "action": self.action, "parameters": parameters, "undoes": self.undoes})
    }

    /// Reads what `to_json` wrote.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_json(text: &str) -> Result<Self, Unreadable> {
        #[derive(serde::Deserialize)]
        struct Written {
            execution: Key,
            uid: String,
            action: Action,
            parameters: Value,
            #[serde(default)]
            undoes: Option<String>,
        }
        let Written { execution, uid, action, parameters, undoes } =
            serde_json::from_str(text).map_err(|error| Unreadable(error.to_string()))?;
        let parameters = parameters.to_string().into();
        Ok(Self { execution, uid, action, parameters, undoes })
    }
}

/// Something to be asked or done for an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub order: Order,
    pub ask: Ask,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// What the action works on, as it is now.
    Look,
    /// Whether this ServiceAccount exists and may do all that the action needs.
    Access { service_account: Key },
    /// What the action would change, tried by the server without effect and with a short-lived token of this
    /// ServiceAccount.
    DryRun { service_account: Key },
    /// Stores what is needed to take the action back as an immutable Secret of this name, or finds the one that this
    /// execution stored before (I4). What the undo must foresee is tried without effect, as for `DryRun`.
    Capture { secret: Key, service_account: Key },
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Looked(Looked),
    Access(Access),
    DryRun(DryRunResults),
    Captured(Captured),
}

/// What an action works on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// Each object that it names, `None` where there is none; values of Secrets are masked.
    pub targets: Vec<(Reference, Option<Arc<serde_json::Value>>)>,
    /// The Pods of the target, where it has some; for conditions.
    pub pods: Vec<Arc<serde_json::Value>>,
    /// The labels of each target's namespace, by its name: a manifest may have several.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// A digest of the fields that the action reads or writes, with each target's UID: what an approval is about. Two
    /// are comparable where the orders are: to see whether a change still stands as it was made, ask with the order
    /// that made it.
    pub digest: String,
    /// What the targets are, in words: in `before` of each, whether it is before the action or after.
    pub described: Vec<AffectedResource>,
    /// Of the cluster, for policy: `nodes`, `schedulableNodes`.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Why the action cannot be done to what is there (a revision that is gone, a volume that would shrink).
    pub refusal: Option<String>,
}

/// What a ServiceAccount may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub exists: bool,
    /// What it lacks, each as `patch deployments.apps in prod`.
    pub missing: Vec<String>,
}

/// The undo, as it may stand in the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Captured {
    pub information: RollbackInformation,
    /// What is about to change, in the words of `before`.
    pub before: Vec<AffectedResource>,
    /// `Looked::digest` of the very state that was captured.
    pub digest: String,
}

impl Request for Call {
    type Reply = Reply;
    const SYSTEM: &'static str = "actions";

    fn is_write(&self) -> bool {
        match self.ask {
            Ask::Look | Ask::Access { .. } | Ask::DryRun { .. } => false,
            Ask::Capture { .. } => true,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Order { execution, action, .. } = &self.order;
        match &self.ask {
            Ask::Look => write!(f, "look at what {action} of {execution} works on"),
            Ask::Access { service_account } => write!(f, "ask what {service_account} may do for {execution}"),
            Ask::DryRun { .. } => write!(f, "try {action} of {execution} without effect"),
            Ask::Capture { secret, .. } => write!(f, "store the undo of {execution} as {secret}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(definition: &Definition) -> Order {
        testing::given(definition.action.as_str(), (definition.example)())
    }

    /// Whether a rule of a ServiceAccount covers something that is needed.
    fn covers(rule: &Rule, need: &Need) -> bool {
        let resource = match need.subresource {
            Some(part) => format!("{}/{part}", need.resource),
            None => need.resource.clone(),
        };
        rule.group == need.group
            && rule.resources.contains(&resource.as_str())
            && rule.verbs.contains(&need.verb)
    }

    #[test]
    fn every_action_is_listed_under_its_own_name_and_its_example_is_good() {
        for action in Action::ALL {
            let definition = definition(*action);
            assert_eq!(definition.action, *action);
            assert!(!definition.about.is_empty() && !definition.done.is_empty(), "{action}");
            let order = order(definition);
            let parameters = order.parameters().unwrap();
            assert_eq!(parameters.present(), [*action]);
            definition.check(&parameters).unwrap();
            let again = serde_json::to_value(&parameters).unwrap();
            assert_eq!(
                again[action.member()],
                (definition.example)(),
                "an example says nothing that is not read"
            );
        }
    }

    #[test]
    fn the_rules_of_a_service_account_allow_what_its_action_needs() {
        for action in Action::ALL {
            let definition = definition(*action);
            let order = order(definition);
            let needs = definition.needs(&order, &order.parameters().unwrap());
            assert!(!needs.is_empty(), "{action}");
            for need in needs {
                assert!(definition.rules().iter().any(|rule| covers(rule, &need)), "{action}: {need}");
            }
        }
    }

    #[test]
    fn nobody_may_write_rights_admission_or_pawl_s_own_kinds() {
        for action in Action::ALL {
            for rule in definition(*action).rules() {
                let group = rule.group;
                assert!(
                    !group.contains("pawl") && !group.contains("kubernaut") && !group.contains("rbac"),
                    "{action}"
                );
                assert!(!group.contains("admission") && !group.contains('*'), "{action}");
                assert!(!rule.verbs.contains(&"*") && !rule.resources.contains(&"*"), "{action}");
                let secrets = rule.resources.contains(&"secrets");
                assert!(!secrets || *action == Action::UpdateSecret, "{action} may read Secrets");
            }
        }
    }

    #[test]
    fn parameters_of_another_action_are_told_and_lead_nowhere() {
        let cordon = testing::order(
            "cordon_node",
            json!({"scaleDeployment": {"deployment": "a", "namespace": "b",
            "replicas": 1}}),
        );
        let parameters = cordon.parameters().unwrap();
        let definition = definition(Action::CordonNode);
        let problem = definition.check(&parameters).unwrap_err().to_string();
        assert!(problem.contains("scale_deployment"), "{problem}");
        assert!(definition.needs(&cordon, &parameters).is_empty());
        assert!(definition.check(&ActionParameters::default()).is_err());
    }

    #[test]
    fn parameters_name_their_target() {
        let order = testing::given(
            "scale_deployment",
            json!({"deployment": "web", "namespace": "prod", "replicas": 3}),
        );
        let parameters = order.parameters().unwrap();
        let target = definition(Action::ScaleDeployment).target(&parameters).unwrap().unwrap();
        assert_eq!(target.to_string(), "prod/deployment/web");
        assert!(definition(Action::DeletePod).target(&parameters).is_none());
    }

    #[test]
    fn those_that_cannot_be_taken_back_are_the_ones_that_the_spec_names() {
        let never = |action: &&Action| matches!(definition(**action).undo, UndoKind::Never(_));
        let never: Vec<&str> = Action::ALL.iter().filter(never).map(|action| action.as_str()).collect();
        assert_eq!(never, ["rollout_restart", "delete_pod", "drain_node", "expand_pvc", "notify_only"]);
    }
}
