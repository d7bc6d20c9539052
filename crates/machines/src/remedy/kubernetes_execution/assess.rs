//! May this action be done to what is there: what each gate before the approval says, and why.
//!
//! ```text
//! parameters ▸ power ▸ protection by name ▸ [Look, Access] ▸ target ▸ [policy] ▸ GitOps ▸ [dry run ▸ policy] ▸ [preconditions]
//! ```
//! In brackets: what is asked of ports. The same functions are asked again while approval is waited for and under the lock.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::{Gate, GateName, Reason, condition, text};
use pawl_api::pawl::conditions::FROZEN;
use pawl_api::remedy::kubernetes_execution::{
    ActionCondition, ActionOutcome, ConditionResult, DryRunResults, PolicyValidation,
};
use pawl_api::remedy::{KubernetesExecutionPhase, KubernetesExecutionStatus};

use super::approvals::approval_digest;
use super::report::{No, Report, Stop, stopped_by};
use super::{later, rollback, validate};
use crate::plan::{Note, Plan};
use crate::remedy::action::{self, Looked};
use crate::remedy::safety::{Decision, Held, Verdict};

/// Nobody waits longer than this for approval, whatever policy and request say.
const LONGEST_APPROVAL: std::time::Duration = std::time::Duration::from_hours(1);

/// What fits one violation, warning or word of a condition.
const MAX_WORDS: usize = 1024;
/// What fits the lists of them.
const MAX_LISTED: usize = 64;

/// The phase `validating`, in one look: whatever must be known is asked, and only what came of it is written.
pub(super) fn validate(mut report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    match pass(&mut report) {
        Err(stop) => report.stops(stop),
        Ok(decision) => validated(report, &decision),
    }
}

/// Every gate in its order.
fn pass(report: &mut Report<'_>) -> Result<Decision, Stop> {
    parameters(report)?;
    let looked = target(report, true)?;
    // What changes nothing may be tried at any time.
    if !report.facts.cx.typed.spec.dry_run {
        thawed(report)?;
    }
    let decision = with_a_try(report, looked)?;
    report.status.target_digest = Some(looked.digest.clone());
    preconditions(report, looked, true)?;
    Ok(decision)
}

/// All of it holds.
fn validated(mut report: Report<'_>, decision: &Decision) -> Plan<KubernetesExecutionStatus> {
    let (now, spec) = (report.now, &report.facts.cx.typed.spec);
    report.status.validation_time = Some(Time(now));
    if spec.dry_run {
        return dry_run_only(report);
    }
    report.status.approval_digest = Some(approval_digest(&report.status));
    if decision.require_approval {
        report.status.approval_deadline = Some(Time(later(now, approval_timeout(&report, decision))));
    }
    let message = format!("{} on {} may be done", spec.action, report.target());
    report.says(KubernetesExecutionPhase::Validated, Reason::ActionValidated, &message);
    report.plan()
}

/// The smallest of what policy, the request and we allow.
pub(super) fn approval_timeout(report: &Report<'_>, decision: &Decision) -> std::time::Duration {
    let said = [decision.approval_timeout, report.facts.approval_timeout].into_iter().flatten();
    said.map(pawl_api::meta::Duration::get).fold(LONGEST_APPROVAL, std::time::Duration::min)
}

/// Only what would happen was asked for.
fn dry_run_only(mut report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let results = report.validation().dry_run_results.clone().unwrap_or_default();
    let impact = results.estimated_impact.map(|impact| impact.description).unwrap_or_default();
    let message =
        format!("nothing was done; it would be: {}", if impact.is_empty() { "as asked" } else { &impact });
    report.status.outcome = Some(ActionOutcome::Success);
    report.says(KubernetesExecutionPhase::Completed, Reason::DryRun, &message);
    report.ends(Note::normal(Reason::ExecutionCompletedPermanent, message))
}

/// What it asks for can be asked for, and from here.
pub(super) fn parameters(report: &mut Report<'_>) -> Result<(), Stop> {
    let facts = report.facts;
    let wish = match &facts.wish {
        Ok(wish) => wish,
        Err(problem) => {
            report.validation().parameter_validation = Some(false);
            return Err(Stop::no(
                GateName::Validate,
                Reason::KeValidationError,
                problem,
                "another execution",
            ));
        }
    };
    if let Err(problem) = rollback::problem(facts) {
        report.validation().parameter_validation = Some(false);
        return Err(Stop::no(GateName::Validate, Reason::KeValidationError, problem, "another execution"));
    }
    report.validation().parameter_validation = Some(true);
    report.status.target = wish.told();
    if let Err(not_allowed) = &facts.power {
        let message = &not_allowed.message;
        let gate = Gate::stopped(GateName::Validate, Reason::KeNamespaceNotAllowed, message, "that label");
        return Err(Stop::No(Box::new(No {
            gate: Some(gate),
            reason: Reason::KeNamespaceNotAllowed,
            message: message.clone(),
            note: None,
            confirm: not_allowed.seen.as_deref().cloned().into_iter().collect(),
        })));
    }
    match validate::protected_by_name(report.settings, &wish.targets) {
        Some(why) => {
            report.validation().resource_exists = Some(false);
            Err(Stop::no(
                GateName::Validate,
                Reason::ProtectedResource,
                why,
                "another list of protected namespaces",
            ))
        }
        None => Ok(()),
    }
}

/// Who carries it out may, and what it works on is there and may be touched.
pub(super) fn target<'a>(report: &mut Report<'a>, with_access: bool) -> Result<&'a Looked, Stop> {
    let facts = report.facts;
    let looked = facts.look();
    if with_access {
        let access = facts.access(report.settings.executor.service_account(&facts.order));
        // Both are asked at once.
        if let (Err(super::asking::Pause::Ask(look)), Err(super::asking::Pause::Ask(access))) =
            (&looked, &access)
        {
            return Err(Stop::Ask(vec![look.clone(), access.clone()]));
        }
        allowed(report, access.map_err(|pause| stopped_by(pause, no_access))?)?;
    }
    let looked = looked.map_err(|pause| stopped_by(pause, no_look))?;
    let there = exists(report, looked);
    report.validation().resource_exists = Some(there.is_ok());
    there?;
    rollback::fresh(report)?;
    let words: Vec<String> =
        looked.described.iter().map(|one| format!("{} {}: {}", one.kind, one.name, one.before)).collect();
    let seen = if words.is_empty() { report.target() } else { words.join("; ") };
    report.passes(Gate::passed(GateName::Validate, Reason::Valid, format!("the spec, rights, and {seen}")));
    Ok(looked)
}

fn allowed(report: &mut Report<'_>, access: &action::Access) -> Result<(), Stop> {
    let account = report.settings.executor.service_account(&report.facts.order);
    let problem = if !access.exists {
        Some(format!("there is no ServiceAccount {account}; pawl rbac generate makes it"))
    } else if !access.missing.is_empty() {
        Some(format!("ServiceAccount {account} may not {}", access.missing.join(", nor ")))
    } else {
        None
    };
    report.validation().rbac_validation = Some(problem.is_none());
    match problem {
        Some(problem) => Err(Stop::no(GateName::Validate, Reason::RbacDenied, problem, "pawl rbac generate")),
        None => Ok(()),
    }
}

fn no_access(failure: String) -> Stop {
    Stop::no(GateName::Validate, Reason::RbacDenied, failure, "what it says")
}

fn no_look(failure: String) -> Stop {
    Stop::no(GateName::Validate, Reason::ResourceNotFound, failure, "what it says")
}

/// Each object is there, and is nobody's whom an action leaves alone.
fn exists(report: &Report<'_>, looked: &Looked) -> Result<(), Stop> {
    let creates = action::definition(report.facts.cx.typed.spec.action).creates();
    let no =
        |reason, message: String, change: &str| Err(Stop::no(GateName::Validate, reason, message, change));
    for (place, object) in &looked.targets {
        match object {
            None if creates => {}
            None => return no(Reason::ResourceNotFound, format!("{place} is not there"), "that object"),
            Some(object) => {
                if let Some(why) = validate::protected_by_role(place, object) {
                    return no(Reason::ProtectedResource, why, "another target");
                }
            }
        }
    }
    match &looked.refusal {
        Some(why) => no(Reason::KeValidationError, why.clone(), "another execution"),
        None => Ok(()),
    }
}

/// No Freeze holds, or none that counts.
pub(super) fn thawed(report: &mut Report<'_>) -> Result<(), Stop> {
    let standing = report.facts.freezes.standing(report.now);
    let Some(hold) = standing.hold() else {
        report.gates.extend(standing.gate());
        condition::remove(&mut report.status.conditions, FROZEN);
        return Ok(());
    };
    report.condition(standing.condition());
    let phase = report.status.phase.unwrap_or(KubernetesExecutionPhase::Validating);
    report.says(phase, Reason::Frozen, &hold.to_string());
    let until = hold.until.unwrap_or(Timestamp::MAX);
    match standing.gate() {
        Some(gate) => Err(Stop::Wait { gate, until }),
        None => Ok(()),
    }
}

/// What policy says, recorded; `Err` where it says no.
pub(super) fn policy(
    report: &mut Report<'_>,
    looked: &Looked,
    tried: Option<&DryRunResults>,
) -> Result<Decision, Stop> {
    let verdict = report.facts.policy(looked, tried, report.now);
    let verdict = verdict.map_err(|pause| stopped_by(pause, policy_failed))?;
    let decision = decided(report, verdict)?;
    let mut managed = looked.targets.iter().filter_map(|(place, object)| {
        let by = validate::managed_by(object.as_deref()?)?;
        Some(format!("{place} is managed by {by}: a change there would be undone, or undo theirs"))
    });
    if !decision.allow_gitops
        && let Some(why) = managed.next()
    {
        let change = "a policy that says allow_gitops, or a change where it is managed";
        return Err(Stop::no(GateName::Policy, Reason::GitopsManaged, why, change));
    }
    let outdated = verdict.outdated.as_ref().map(|why| format!("; newer policies do not hold: {why}"));
    let looked_at = format!("{}{}", verdict.policy, outdated.unwrap_or_default());
    report.passes(Gate::passed(GateName::Policy, Reason::PolicyAllowed, looked_at));
    Ok(decision)
}

/// Writes down what was said.
fn decided(report: &mut Report<'_>, verdict: &Verdict) -> Result<Decision, Stop> {
    let fit = |said: &[String]| -> Vec<String> {
        said.iter().take(MAX_LISTED).map(|one| text::head(one.as_str(), MAX_WORDS)).collect()
    };
    let mut told = PolicyValidation {
        policy_name: text::head(verdict.policy.as_str(), MAX_WORDS),
        policy_digest: Some(verdict.digest.clone()),
        ..PolicyValidation::default()
    };
    let decision = match &verdict.decision {
        Err(problem) => {
            told.violations = fit(std::slice::from_ref(problem));
            report.validation().policy_validation = Some(told);
            return Err(policy_failed(format!("{}: {problem}", verdict.policy)));
        }
        Ok(decision) => decision.clone(),
    };
    let allowed = decision.allow && decision.deny.is_empty();
    told.allowed = allowed;
    told.required_approval = decision.require_approval;
    told.required_dry_run = decision.require_dry_run;
    told.approver_groups = decision.approver_groups.iter().take(MAX_LISTED).cloned().collect();
    told.approver_count = decision
        .require_approval
        .then(|| i32::try_from(decision.approver_count.max(1)).unwrap_or(i32::MAX).min(MAX_LISTED as i32));
    told.risk = decision.risk.clone().map(|risk| text::head(risk, 64));
    told.violations = fit(&decision.deny);
    report.validation().policy_validation = Some(told);
    if allowed {
        return Ok(decision);
    }
    let why =
        if decision.deny.is_empty() { "it does not say allow".to_owned() } else { decision.deny.join("; ") };
    let message = format!("{}: {why}", verdict.policy);
    Err(Stop::no(GateName::Policy, Reason::KePolicyDenied, &message, "another policy, or another action")
        .noting(Note::warning(Reason::PolicyDenied, message)))
}

fn policy_failed(failure: String) -> Stop {
    Stop::no(GateName::Policy, Reason::PolicyError, &failure, "a policy that can be evaluated")
        .noting(Note::warning(Reason::PolicyDenied, failure))
}

/// What policy says; where the action is tried without effect first, also to what that showed.
pub(super) fn with_a_try(report: &mut Report<'_>, looked: &Looked) -> Result<Decision, Stop> {
    let first = policy(report, looked, None)?;
    match try_out(report, &first)? {
        None => Ok(first),
        // Policy sees what would happen, and has the last word.
        Some(tried) => policy(report, looked, Some(tried)),
    }
}

/// Risks of which policy need not say that they must be tried first.
const RISKY: [&str; 2] = ["high", "critical"];

/// Tries the action without effect, where somebody asks for that. `None`: nobody does.
fn try_out<'a>(report: &mut Report<'a>, decision: &Decision) -> Result<Option<&'a DryRunResults>, Stop> {
    let facts = report.facts;
    let spec = &facts.cx.typed.spec;
    let risky = decision.risk.as_deref().is_some_and(|risk| RISKY.contains(&risk));
    if !(decision.require_dry_run || spec.dry_run || risky) {
        let why = "neither policy nor the spec nor its risk asks for it";
        report.passes(Gate::passed(GateName::DryRun, Reason::DryRunNotRequired, why));
        return Ok(None);
    }
    if !action::definition(spec.action).dry_runnable {
        let why = format!("{} cannot be tried without effect", spec.action);
        if decision.require_dry_run {
            return Err(Stop::no(
                GateName::DryRun,
                Reason::DryRunFailed,
                why,
                "a policy that does not ask for it",
            ));
        }
        report.validation().dry_run_results =
            Some(DryRunResults { warnings: vec![why.clone()], ..DryRunResults::default() });
        report.passes(Gate::passed(GateName::DryRun, Reason::DryRunNotRequired, why));
        return Ok(None);
    }
    let no = |failure: String| Stop::no(GateName::DryRun, Reason::DryRunFailed, failure, "what it says");
    let tried = facts.dry_run(report.settings.executor.service_account(&facts.order));
    let tried = tried.map_err(|pause| stopped_by(pause, no))?;
    report.validation().dry_run_results = Some(tried.clone());
    if !tried.success {
        return Err(no(format!("the API server would not take it: {}", tried.errors.join("; "))));
    }
    let impact = tried.estimated_impact.as_ref().map(|impact| impact.description.clone()).unwrap_or_default();
    report.passes(Gate::passed(GateName::DryRun, Reason::DryRunSucceeded, impact));
    Ok(Some(tried))
}

/// What must hold before. `patient`: one that does not hold yet is waited for, as long as it allows.
pub(super) fn preconditions(report: &mut Report<'_>, looked: &Looked, patient: bool) -> Result<(), Stop> {
    let facts = report.facts;
    let conditions = &facts.cx.typed.spec.pre_conditions;
    if conditions.is_empty() {
        report.passes(Gate::passed(GateName::Preconditions, Reason::PreconditionsMet, "there are none"));
        return Ok(());
    }
    let before = std::mem::take(&mut report.validation().pre_condition_results);
    let results = evaluate(report, conditions, looked, &before)?;
    let failed: Vec<(&ActionCondition, &ConditionResult)> = conditions
        .iter()
        .zip(&results)
        .filter(|(condition, result)| condition.required && !result.passed)
        .collect();
    let told = |failed: &[(&ActionCondition, &ConditionResult)]| {
        failed
            .iter()
            .map(|(one, result)| format!("{}: {}", one.type_, result.message))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let deadline = |(one, result): &(&ActionCondition, &ConditionResult)| {
        let since = result.evaluated_at.as_ref().map_or(report.now, |at| at.0);
        let patience = if is_broken(report, one, looked) { None } else { one.timeout };
        later(since, patience.unwrap_or_default().get())
    };
    let words = told(&failed);
    let until: Option<Timestamp> = failed.iter().map(deadline).min();
    report.validation().pre_condition_results = results;
    match until {
        None => {
            let held = format!("{} conditions", conditions.len());
            report.passes(Gate::passed(GateName::Preconditions, Reason::PreconditionsMet, held));
            Ok(())
        }
        Some(until) if patient && report.now < until => {
            let gate = Gate::waiting(
                GateName::Preconditions,
                Reason::PreconditionsPending,
                &words,
                "that they hold",
            );
            Err(Stop::Wait { gate, until })
        }
        Some(_) => Err(Stop::no(
            GateName::Preconditions,
            Reason::PreconditionFailed,
            words,
            "another execution, once they hold",
        )),
    }
}

/// Asks every condition. `evaluatedAt` is when the answer last became another.
pub(super) fn evaluate(
    report: &Report<'_>,
    conditions: &[ActionCondition],
    looked: &Looked,
    before: &[ConditionResult],
) -> Result<Vec<ConditionResult>, Stop> {
    let (mut results, mut asks) = (Vec::new(), Vec::new());
    for (place, condition) in conditions.iter().enumerate() {
        let (passed, message) = match report.facts.condition(&condition.rego, looked) {
            Ok(Held::Yes { message }) => (true, message.clone().unwrap_or_default()),
            Ok(Held::No { message }) => {
                (false, message.clone().unwrap_or_else(|| "it does not hold".to_owned()))
            }
            Ok(Held::Error(problem)) => (false, format!("it cannot be evaluated: {problem}")),
            Err(super::asking::Pause::Ask(call)) => {
                if !asks.contains(&call) {
                    asks.push(call);
                }
                continue;
            }
            Err(super::asking::Pause::Later) => return Err(Stop::Later),
            Err(super::asking::Pause::Never(failure)) => (false, format!("it cannot be asked: {failure}")),
        };
        let known =
            before.get(place).filter(|known| known.type_ == condition.type_ && known.passed == passed);
        let at = known.and_then(|known| known.evaluated_at.clone()).unwrap_or(Time(report.now));
        results.push(ConditionResult {
            type_: condition.type_.clone(),
            required: condition.required,
            passed,
            message: text::head(message, MAX_WORDS),
            evaluated_at: Some(at),
        });
    }
    if asks.is_empty() { Ok(results) } else { Err(Stop::Ask(asks)) }
}

/// Whether a condition cannot be evaluated at all: then there is nothing to wait for.
pub(super) fn is_broken(report: &Report<'_>, condition: &ActionCondition, looked: &Looked) -> bool {
    matches!(report.facts.condition(&condition.rego, looked), Ok(Held::Error(_)))
}
