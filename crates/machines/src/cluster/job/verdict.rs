//! Is a Job over, and why?
//!
//! In Kubernetes' order: what was found before stands; then a failure that ends the Job at once, too many failures, too
//! much time, too many indexes given up; then what a success policy is content with, and at last all completions.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::SuccessPolicyRule;

use super::indexes::Indexes;
use super::pods::Action;
use super::{Round, condition, count, later, seconds};

/// Why a Job ends.
pub(super) struct Verdict {
    pub(super) success: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Verdict {
    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.into() }
    }

    fn success(reason: &str, message: impl Into<String>) -> Self {
        Self { success: true, reason: reason.to_owned(), message: message.into() }
    }
}

impl Round<'_> {
    /// A verdict that was reached before stands.
    pub(super) fn ending(&self) -> Option<Verdict> {
        let stands = |type_: &str, success| {
            let found = condition(&self.status, type_).filter(|one| one.status == "True")?;
            let (reason, message) = (found.reason.clone(), found.message.clone());
            Some(Verdict {
                success,
                reason: reason.unwrap_or_default(),
                message: message.unwrap_or_default(),
            })
        };
        stands("FailureTarget", false).or_else(|| stands("SuccessCriteriaMet", true))
    }

    pub(super) fn verdict(&mut self) -> Option<Verdict> {
        if let Some(verdict) = self.ending() {
            return Some(verdict);
        }
        let verdict = self.new_verdict()?;
        let type_ = if verdict.success { "SuccessCriteriaMet" } else { "FailureTarget" };
        self.set_condition(type_, "True", &verdict.reason, &verdict.message);
        Some(verdict)
    }

    fn new_verdict(&self) -> Option<Verdict> {
        let failed = self.pods.iter().filter(|pod| pod.is_tracked() && pod.has_failed());
        for pod in failed {
            if let Some((Action::FailJob, message)) = self.action(pod) {
                return Some(Verdict::failure("PodFailurePolicy", message));
            }
        }
        let held = self.pods.iter().filter(|pod| self.held.contains(pod.uid()));
        let held = count(held.filter(|pod| self.counts(pod)).count());
        if self.failed().saturating_add(held) > self.backoff_limit() || self.restarts_exceed_limit() {
            let message = "Job has reached the specified backoff limit";
            return Some(Verdict::failure("BackoffLimitExceeded", message));
        }
        if self.deadline().is_some_and(|deadline| deadline <= self.cx.now) {
            let message = "Job was active longer than specified deadline";
            return Some(Verdict::failure("DeadlineExceeded", message));
        }
        if let Some(verdict) = self.verdict_on_indexes() {
            return Some(verdict);
        }
        let complete = match self.spec.completions {
            Some(completions) => self.succeeded() >= completions,
            None => self.succeeded() > 0 && self.active().next().is_none(),
        };
        let message = "Reached expected number of succeeded pods";
        (complete && !self.is_suspended()).then(|| Verdict::success("CompletionsReached", message))
    }

    fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(6)
    }

    /// With `OnFailure` containers are restarted in place, and every restart is a retry.
    fn restarts_exceed_limit(&self) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let restarts = self.active().fold(0_i32, |sum, pod| sum.saturating_add(pod.restarts()));
        restarts > 0 && restarts >= self.backoff_limit()
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let limit = self.spec.active_deadline_seconds?;
        let started = self.status.start_time.as_ref()?.0;
        Some(later(started, seconds(limit)))
    }

    /// What the indexes decide, each on its own or as a policy picks them.
    fn verdict_on_indexes(&self) -> Option<Verdict> {
        let (true, Some(completions)) = (self.is_indexed(), self.spec.completions) else { return None };
        let given_up = self.failed_indexes.len();
        if self.limit_per_index().is_some() {
            if self.spec.max_failed_indexes.is_some_and(|max| given_up > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(Verdict::failure("MaxFailedIndexesExceeded", message));
            }
            if given_up > 0 && given_up.saturating_add(self.indexes.len()) >= completions {
                return Some(Verdict::failure("FailedIndexes", "Job has failed indexes"));
            }
        }
        let rules = self.spec.success_policy.as_ref().map(|policy| policy.rules.as_slice())?;
        let content = rules.iter().position(|rule| contents(rule, &self.indexes, completions))?;
        Some(Verdict::success("SuccessPolicy", format!("Matched rules at index {content}")))
    }
}

/// Whether what has succeeded is enough for a rule of a success policy.
fn contents(rule: &SuccessPolicyRule, succeeded: &Indexes, completions: i32) -> bool {
    if succeeded.len() == 0 {
        return false;
    }
    match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(wanted), least) => {
            let wanted = Indexes::parse(wanted, completions);
            wanted.shared_with(succeeded) >= least.unwrap_or(wanted.len())
        }
        (None, Some(least)) => succeeded.len() >= least,
        (None, None) => false,
    }
}
