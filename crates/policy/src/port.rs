//! What do machines hear? What policy says of an execution, and whether its conditions hold.
//!
//! ```text
//! no policies          ─▶ the built-in one
//! policies that can be ─▶ they are asked, and remembered as the last good ones
//! policies that cannot ─▶ the last good ones are asked, and the verdict says why the newest do not hold
//!                         there are none: nothing is allowed
//! ```
//! What was good is remembered by this process alone: after a restart with policies that cannot be used, nothing is
//! allowed until they are mended. That is the safe side.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use pawl_machines::failure::{Category, Failure};
use pawl_machines::remedy::safety::{Answer, Decision, Held, Policies, Question, Verdict};

use crate::built_in::built_in;
use crate::evaluator::{Evaluator, Trouble};

/// What the built-in policy is called.
const BUILT_IN_NAME: &str = "built-in";

/// Sets that are known to be bad. A set changes when somebody edits it.
const MAX_BAD: usize = 16;

/// Answers questions about policies.
#[derive(Debug)]
pub struct Port {
    evaluator: Arc<dyn Evaluator>,
    known: Mutex<Known>,
    pub(crate) counts: Counts,
}

#[derive(Debug, Default)]
struct Known {
    /// The last set that could be used.
    good: Option<Policies>,
    /// Why others cannot, by digest.
    bad: BTreeMap<String, String>,
}

/// For metrics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Answers of older policies, for the newest cannot be used.
    pub(crate) outdated: AtomicU64,
    pub(crate) conditions: AtomicU64,
}

impl Port {
    pub fn new(evaluator: Arc<dyn Evaluator>) -> Self {
        Self { evaluator, known: Mutex::default(), counts: Counts::default() }
    }

    /// What policy says of an input.
    ///
    /// # Errors
    /// When nobody could be asked: a moment later somebody can.
    pub async fn safety(&self, policies: &Policies, input: &str) -> Result<Verdict, Failure> {
        let verdict = if policies.modules.is_empty() {
            of_built_in(input)
        } else {
            self.of_policies(policies, input).await?
        };
        self.count(&verdict);
        Ok(verdict)
    }

    async fn of_policies(&self, policies: &Policies, input: &str) -> Result<Verdict, Failure> {
        let known_bad = self.known().bad.get(&policies.digest).cloned();
        let why = match known_bad {
            Some(why) => why,
            None => match self.evaluator.decide(policies, Some(input)).await {
                Ok(decision) => {
                    let mut known = self.known();
                    if known.good.as_ref().is_none_or(|good| good.digest != policies.digest) {
                        tracing::info!(policies = %names(policies), digest = %policies.digest, "policies hold now");
                        known.good = Some(policies.clone());
                    }
                    return Ok(verdict(policies, decision, None));
                }
                // The evaluation was ended, not the policies refused: an answer like any other that is no decision.
                Err(Trouble::Stopped(why)) => return Ok(verdict(policies, Err(why), None)),
                Err(Trouble::Lost(why)) => return Err(lost(why)),
                Err(Trouble::Rejected(rejected)) => self.remember_bad(policies, rejected.to_string()),
            },
        };
        let good = self.known().good.clone();
        let Some(good) = good else {
            return Ok(verdict(policies, Err(format!("the policies cannot be used: {why}")), None));
        };
        match self.evaluator.decide(&good, Some(input)).await {
            Ok(decision) => Ok(verdict(&good, decision, Some(why))),
            Err(Trouble::Stopped(stopped)) => Ok(verdict(&good, Err(stopped), Some(why))),
            Err(Trouble::Rejected(rejected)) => Ok(verdict(&good, Err(rejected.to_string()), Some(why))),
            Err(Trouble::Lost(why)) => Err(lost(why)),
        }
    }

    fn remember_bad(&self, policies: &Policies, why: String) -> String {
        let mut known = self.known();
        if known.bad.len() >= MAX_BAD {
            known.bad.clear();
        }
        let kept = known.good.as_ref().map(|good| good.digest.clone());
        tracing::warn!(policies = %names(policies), digest = %policies.digest, kept, problem = %why,
            "policies cannot be used; the last good ones hold");
        known.bad.insert(policies.digest.clone(), why.clone());
        why
    }

    /// Whether policies can be used; they are not taken for the last good ones before somebody asks them.
    ///
    /// # Errors
    /// When nobody could be asked: a moment later somebody can.
    pub async fn check(&self, policies: &Policies) -> Result<Result<(), String>, Failure> {
        if policies.modules.is_empty() {
            return Ok(Ok(()));
        }
        match self.evaluator.decide(policies, None).await {
            Ok(_) => Ok(Ok(())),
            Err(Trouble::Rejected(rejected)) => Ok(Err(rejected.to_string())),
            Err(Trouble::Stopped(why)) => Ok(Err(why)),
            Err(Trouble::Lost(why)) => Err(lost(why)),
        }
    }

    /// Whether a condition holds.
    ///
    /// # Errors
    /// When nobody could be asked: a moment later somebody can.
    pub async fn condition(&self, rego: &str, input: &str) -> Result<Held, Failure> {
        self.counts.conditions.fetch_add(1, Ordering::Relaxed);
        match self.evaluator.holds(rego, input).await {
            Ok(held) => Ok(held),
            Err(Trouble::Stopped(why)) => Ok(Held::Error(why)),
            Err(Trouble::Rejected(rejected)) => Ok(Held::Error(rejected.to_string())),
            Err(Trouble::Lost(why)) => Err(lost(why)),
        }
    }

    fn count(&self, verdict: &Verdict) {
        let Counts { allowed, denied, failed, outdated, conditions: _ } = &self.counts;
        let which = match &verdict.decision {
            Ok(Decision { allow: true, .. }) => allowed,
            Ok(Decision { allow: false, .. }) => denied,
            Err(_) => failed,
        };
        which.fetch_add(1, Ordering::Relaxed);
        if verdict.outdated.is_some() {
            outdated.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl pawl_engine::Port<Question> for Port {
    fn call<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            match question {
                Question::Safety { policies, input } => {
                    self.safety(policies, input).await.map(Answer::Safety)
                }
                Question::Condition { rego, input } => {
                    self.condition(rego, input).await.map(Answer::Condition)
                }
                Question::Check { policies } => self.check(policies).await.map(Answer::Check),
            }
        })
    }

    fn begin(&self) {
        // What another process took for good meanwhile is not known here.
        *self.known() = Known::default();
    }
}

fn of_built_in(input: &str) -> Verdict {
    let (decision, digest) = match built_in() {
        Ok(policy) => (policy.decide(input), policy.digest().to_owned()),
        Err(rejected) => (Err(rejected.to_string()), String::new()),
    };
    Verdict { policy: BUILT_IN_NAME.to_owned(), digest, decision, outdated: None }
}

fn verdict(policies: &Policies, decision: Result<Decision, String>, outdated: Option<String>) -> Verdict {
    Verdict { policy: names(policies), digest: policies.digest.clone(), decision, outdated }
}

/// The ConfigMaps of a set.
fn names(policies: &Policies) -> String {
    let mut names: Vec<&str> =
        policies.modules.iter().map(|(name, _)| name.split('/').next().unwrap_or(name)).collect();
    names.dedup();
    names.join(", ")
}

fn lost(why: String) -> Failure {
    Failure {
        attempt: "ask policy".to_owned(),
        category: Category::Transient,
        reason: "PolicyWorkerLost".to_owned(),
        message: why,
        retry_after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluator::testing::InProcess;
    use futures::FutureExt as _;
    use pawl_engine::Port as _;

    fn port() -> Port {
        Port::new(Arc::new(InProcess))
    }

    fn policies(name: &str, text: &str) -> Policies {
        Policies {
            modules: [(format!("{name}/safety.rego"), text.to_owned())].into(),
            digest: name.to_owned(),
        }
    }

    fn ask(port: &Port, policies: &Policies, input: &str) -> Verdict {
        port.safety(policies, input).now_or_never().unwrap().unwrap()
    }

    const OLD: &str = "package main\ndeny contains \"old\" if input.a == 1\n";
    const NEW: &str = "package main\ndeny contains \"new\" if input.a == 1\n";
    const BAD: &str = "package main\ndeny contains \"bad\" if {\n";

    #[test]
    fn without_policies_the_built_in_one_is_asked() {
        let verdict = ask(&port(), &Policies::default(), r#"{"action": "notify_only"}"#);
        assert_eq!(verdict.policy, "built-in");
        assert!(verdict.digest.starts_with("sha256:"));
        assert!(verdict.decision.unwrap().allow);
    }

    #[test]
    fn new_policies_take_the_place_of_old_ones_at_once() {
        let port = port();
        let said =
            |text: &str, name: &str| ask(&port, &policies(name, text), r#"{"a": 1}"#).decision.unwrap().deny;
        assert_eq!(said(OLD, "one"), ["old"]);
        assert_eq!(said(NEW, "two"), ["new"]);
        assert_eq!(said(OLD, "one"), ["old"]);
    }

    #[test]
    fn a_bad_reload_keeps_the_old_set_and_says_so() {
        let port = port();
        ask(&port, &policies("good", OLD), "{}");
        for _ in 0..2 {
            let verdict = ask(&port, &policies("bad", BAD), r#"{"a": 1}"#);
            assert_eq!((verdict.policy.as_str(), verdict.digest.as_str()), ("good", "good"));
            assert_eq!(verdict.decision.unwrap().deny, ["old"]);
            assert!(verdict.outdated.unwrap().starts_with("bad/safety.rego:"));
        }
        assert_eq!(ask(&port, &policies("mended", NEW), r#"{"a": 1}"#).outdated, None);
        assert_eq!(port.counts.outdated.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_syntax_error_without_a_set_before_it_denies_with_its_place() {
        let verdict = ask(&port(), &policies("bad", BAD), "{}");
        assert!(verdict.decision.unwrap_err().contains("bad/safety.rego:"));
    }

    #[test]
    fn whether_policies_can_be_used_is_told_before_anybody_asks_them() {
        let port = port();
        let check =
            |name: &str, text: &str| port.check(&policies(name, text)).now_or_never().unwrap().unwrap();
        assert_eq!(check("good", OLD), Ok(()));
        assert!(check("bad", BAD).unwrap_err().starts_with("bad/safety.rego:"));
        assert!(ask(&port, &policies("bad", BAD), "{}").decision.is_err(), "checking is not asking");
    }

    #[test]
    fn who_begins_to_lead_forgets_what_was_good() {
        let port = port();
        ask(&port, &policies("good", OLD), "{}");
        port.begin();
        assert!(ask(&port, &policies("bad", BAD), "{}").decision.is_err());
    }

    #[test]
    fn an_evaluation_error_denies_and_is_no_reason_to_keep_older_policies() {
        let port = port();
        ask(&port, &policies("good", OLD), "{}");
        let text = "package pawl.safety\ndecision := {\"allow\": input.a}\n";
        let verdict = ask(&port, &policies("strange", text), r#"{"a": "yes"}"#);
        assert_eq!(verdict.policy, "strange");
        assert!(verdict.decision.unwrap_err().contains("not a boolean"));
    }
}
