//! What is asked of the ports about an execution, in which words, and what was heard?
//!
//! Inputs for Rego are plain JSON, the same text for the same facts: within one look a question is asked once. So the
//! time that a policy sees is cut to the minute, for the clock goes on while answers are waited for.

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::meta::names;
use pawl_api::remedy::kubernetes_execution::DryRunResults;
use pawl_api::remedy::{KubernetesExecutionSpec, labels};
use serde_json::{Value, json};

use super::Facts;
use crate::external::{self, Request};
use crate::failure::{Category, Failure};
use crate::freeze::Standing;
use crate::object::{Key, Object};
use crate::remedy::action::{self, Access, Ask, Captured, Looked, Order};
use crate::remedy::safety::{Answer, Held, Question, Verdict};

/// How long a digest is, in hex: all of SHA-256.
const DIGEST_HEX: usize = 64;

/// What was heard, or what comes first.
pub(super) type Heard<T> = Result<T, Pause>;

/// Why something is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pause {
    /// This must be asked.
    Ask(external::Call),
    /// It was asked in vain, and will be again: the loop looks once more, later.
    Later,
    /// It cannot be asked at all.
    Never(Failure),
}

/// The order that an execution is.
pub(super) fn order(me: &Object, spec: &KubernetesExecutionSpec) -> Order {
    Order {
        execution: me.key(),
        uid: me.uid().to_owned(),
        action: spec.action,
        parameters: canonical(&spec.parameters).into(),
        undoes: me.label(labels::ROLLBACK_OF).map(str::to_owned),
    }
}

/// The digest of what is asked for. An approval is no part of that.
pub(super) fn spec_digest(spec: &KubernetesExecutionSpec) -> String {
    let asked = KubernetesExecutionSpec { approval_received: false, ..spec.clone() };
    digest(&[&canonical(&asked)])
}

pub(super) fn digest(parts: &[&str]) -> String {
    names::hash(parts, DIGEST_HEX)
}

/// The text of a value: members in the order of their names, as `serde_json` keeps them.
pub(super) fn canonical(value: &impl serde::Serialize) -> String {
    // Structs of strings and numbers are always JSON.
    serde_json::to_value(value).unwrap_or_default().to_string()
}

impl Facts<'_> {
    pub(super) fn look(&self) -> Heard<&Looked> {
        self.look_at(&self.order)
    }

    /// What another order works on, as it is now.
    pub(super) fn look_at(&self, order: &Order) -> Heard<&Looked> {
        self.hear(action::Call { order: order.clone(), ask: Ask::Look }, |reply| {
            if let action::Reply::Looked(looked) = reply { Some(looked) } else { None }
        })
    }

    pub(super) fn access(&self, service_account: Key) -> Heard<&Access> {
        self.hear(self.action(Ask::Access { service_account }), |reply| {
            if let action::Reply::Access(access) = reply { Some(access) } else { None }
        })
    }

    pub(super) fn dry_run(&self, service_account: Key) -> Heard<&DryRunResults> {
        self.hear(self.action(Ask::DryRun { service_account }), |reply| {
            if let action::Reply::DryRun(results) = reply { Some(results) } else { None }
        })
    }

    pub(super) fn capture(&self, secret: Key, service_account: Key) -> Heard<&Captured> {
        self.hear(self.action(Ask::Capture { secret, service_account }), |reply| {
            if let action::Reply::Captured(captured) = reply { Some(captured) } else { None }
        })
    }

    /// What policy says of the action on what was seen, and of what a dry run showed.
    pub(super) fn policy(
        &self,
        looked: &Looked,
        tried: Option<&DryRunResults>,
        now: Timestamp,
    ) -> Heard<&Verdict> {
        let question = Question::Safety {
            policies: self.policies.clone(),
            input: self.policy_input(looked, tried, now),
        };
        self.hear(question, |answer| if let Answer::Safety(verdict) = answer { Some(verdict) } else { None })
    }

    /// Whether a condition holds on what was seen.
    pub(super) fn condition(&self, rego: &str, looked: &Looked) -> Heard<&Held> {
        let question = Question::Condition { rego: rego.into(), input: self.condition_input(looked) };
        self.hear(question, |answer| if let Answer::Condition(held) = answer { Some(held) } else { None })
    }

    fn action(&self, ask: Ask) -> action::Call {
        action::Call { order: self.order.clone(), ask }
    }

    fn hear<'a, R: Request, T>(
        &'a self,
        request: R,
        read: impl Fn(&'a R::Reply) -> Option<&'a T>,
    ) -> Heard<&'a T> {
        match self.cx.answers.get(&request) {
            None => Err(Pause::Ask(request.into())),
            Some(Ok(reply)) => read(reply).ok_or_else(|| {
                let message = "the answer is to another question";
                Pause::Never(Failure::new(Category::Permanent, request.to_string(), "WrongAnswer", message))
            }),
            Some(Err(failure)) => Err(match failure.category {
                Category::Transient | Category::Conflict => Pause::Later,
                Category::Permanent | Category::NotFound | Category::MissingCredentials => {
                    Pause::Never(failure.clone())
                }
            }),
        }
    }

    fn policy_input(&self, looked: &Looked, tried: Option<&DryRunResults>, now: Timestamp) -> Arc<str> {
        let spec = &self.cx.typed.spec;
        let targets: Vec<&Value> =
            looked.targets.iter().filter_map(|(_, object)| object.as_deref()).collect();
        let namespace = looked.targets.iter().find_map(|(place, _)| place.key.namespace.as_deref());
        let labels = namespace.and_then(|namespace| looked.namespaces.get(namespace));
        let mut cluster = looked.facts.clone();
        cluster.insert("concurrentActions".to_owned(), self.concurrent.into());
        let minute = Timestamp::from_second(now.as_second().div_euclid(60).saturating_mul(60)).unwrap_or(now);
        let input = json!({
            "action": spec.action,
            "parameters": spec.parameters,
            "target": targets.first(),
            "targets": targets,
            "namespace": {"name": namespace, "labels": labels},
            "namespaces": looked.namespaces,
            "requester": {"username": spec.requested_by},
            "execution": {"namespace": self.cx.object.namespace(), "name": self.cx.object.name(), "uid": self.cx.object.uid(),
                "dryRun": spec.dry_run},
            "dryRun": tried,
            "cluster": cluster,
            "freezes": self.overridden_freezes(now),
            "time": {"now": format!("{minute:.0}")},
        });
        input.to_string().into()
    }

    /// The Freezes that hold although somebody overrode them: policy may ask for more then.
    fn overridden_freezes(&self, now: Timestamp) -> Vec<String> {
        match self.freezes.standing(now) {
            Standing::Overridden { hold, .. } => hold.freezes,
            Standing::Unselected | Standing::Free { .. } | Standing::Frozen(_) => Vec::new(),
        }
    }

    fn condition_input(&self, looked: &Looked) -> Arc<str> {
        let target = looked.targets.iter().find_map(|(_, object)| object.as_deref());
        let pods: Vec<&Value> = looked.pods.iter().map(|pod| &**pod).collect();
        let input = json!({
            "target": target,
            "pods": pods,
            "execution": {"namespace": self.cx.object.namespace(), "name": self.cx.object.name(), "uid": self.cx.object.uid(),
                "action": self.cx.typed.spec.action},
            "parameters": self.cx.typed.spec.parameters,
        });
        input.to_string().into()
    }
}
