//! What runs again, or stops, because somebody asked for it?
//!
//! | asked by | what | which |
//! |---|---|---|
//! | `terrakojo.io/rerun` on a Workflow | another attempt of it | when it is over |
//! | `pawl.dev/retest` on the Branch | another attempt | of each that failed or was cancelled |
//! | a template with `backfill` that is new or edited | a first or another attempt | of what it matches |
//! | `pawl.dev/cancel` on the Branch | the same annotation on the Workflow | of each that is not over |
//!
//! An attempt carries what caused it, so that one request makes one attempt, however often it is looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use pawl_api::git::{BranchStatus, Workflow, WorkflowPhase, annotations};
use pawl_api::meta::Reason;
use serde_json::json;

use super::evaluate::{self, Wanted};
use super::{Known, is_over};
use crate::git::github::Reply;
use crate::git::matching;
use crate::object::Object;
use crate::plan::{Note, Plan, Step};

/// The attempts at one template and path, oldest first.
pub(super) type Attempts<'a> = Vec<(&'a Arc<Object>, &'a Arc<Workflow>)>;

/// The Workflows of the current commit, by template and path.
pub(super) fn groups<'a>(known: &Known<'a>) -> BTreeMap<(&'a str, &'a str), Attempts<'a>> {
    let mut groups: BTreeMap<(&str, &str), Attempts<'_>> = BTreeMap::new();
    for (object, workflow) in known.facts.current() {
        let key = (workflow.spec.template.as_str(), workflow.spec.path.as_str());
        groups.entry(key).or_default().push((object, workflow));
    }
    for attempts in groups.values_mut() {
        attempts.sort_by_key(|(object, workflow)| (workflow.spec.attempt, object.key()));
    }
    groups
}

/// Plans what was asked for; true if something is made, stopped or noted as answered.
pub(super) fn requested(known: &Known<'_>, status: &mut BranchStatus, plan: &mut Plan<BranchStatus>) -> bool {
    let groups = groups(known);
    let before = plan.steps.len();
    let mut wanted = reruns(known, &groups);
    wanted.extend(retest(known, &groups, status, plan));
    let verdicts = backfill(known, plan);
    wanted.extend(backfill_attempts(known, &groups, verdicts.as_deref().unwrap_or_default()));
    if let Some(verdicts) = &verdicts {
        remember(known, verdicts, status);
    }
    if !wanted.is_empty() {
        status.workflows = evaluate::make(known, &wanted, &evaluate::refused(known), plan);
        let made = plan.steps.len() - before;
        if made > 0 {
            let message = format!("Created Workflow for Branch: {made} more attempts");
            let causes: Vec<&str> = wanted.iter().filter_map(|one| one.cause.as_deref()).collect();
            plan.notes.push(Note::normal(Reason::RerunRequested, message).once(causes.join(",")));
        }
    }
    cancel(known, status, plan);
    plan.steps.len() > before || *status != known.facts.status()
}

fn reruns<'a>(known: &Known<'a>, groups: &BTreeMap<(&'a str, &'a str), Attempts<'a>>) -> Vec<Wanted<'a>> {
    let mut wanted = Vec::new();
    for attempts in groups.values() {
        for (object, _) in attempts {
            let Some(asked) = object.annotation(annotations::RERUN) else { continue };
            // The request names the delivery: the same one twice is one request.
            wanted.extend(another(known, attempts, &format!("rerun:{asked}")));
        }
    }
    wanted
}

fn retest<'a>(
    known: &Known<'a>,
    groups: &BTreeMap<(&'a str, &'a str), Attempts<'a>>,
    status: &mut BranchStatus,
    plan: &mut Plan<BranchStatus>,
) -> Vec<Wanted<'a>> {
    let Some(asked) = unanswered(known, annotations::RETEST, status.handled_retest.as_deref()) else {
        return vec![];
    };
    let cause = format!("retest:{asked}");
    let again = |attempts: &Attempts<'a>| {
        let phase = attempts.last().and_then(|(_, last)| last.status.as_ref()?.phase);
        matches!(phase, Some(WorkflowPhase::Failed | WorkflowPhase::Cancelled))
            .then(|| another(known, attempts, &cause))
            .flatten()
    };
    let wanted: Vec<Wanted<'_>> = groups.values().filter_map(again).collect();
    let message = format!("{} Workflows run again", wanted.len());
    plan.notes.push(Note::normal(Reason::RetestRequested, message).once(asked));
    status.handled_retest = Some(asked.to_owned());
    wanted
}

fn cancel(known: &Known<'_>, status: &mut BranchStatus, plan: &mut Plan<BranchStatus>) {
    let Some(asked) = unanswered(known, annotations::CANCEL, status.handled_cancel.as_deref()) else {
        return;
    };
    let running: Vec<_> = known
        .facts
        .current()
        .filter(|(object, workflow)| !is_over(workflow) && object.annotation(annotations::CANCEL).is_none())
        .collect();
    plan.steps.extend(running.iter().map(|(object, _)| {
        Step::patch(object, json!({"metadata": {"annotations": {annotations::CANCEL: asked}}}))
    }));
    let message = format!("{} Workflows are stopped", running.len());
    plan.notes.push(Note::normal(Reason::CancelRequested, message).once(asked));
    status.handled_cancel = Some(asked.to_owned());
}

/// What the new or edited templates say of the pull request's files; `None` until GitHub has told them.
fn backfill(known: &Known<'_>, plan: &mut Plan<BranchStatus>) -> Option<Vec<matching::Verdict>> {
    let templates = evaluate::backfilled(known);
    if templates.is_empty() || known.trust.stop().is_some() {
        return None;
    }
    let account = known.account.as_ref().ok()?;
    let call = evaluate::listing(known, account)?;
    match known.facts.cx.answers.get(&call) {
        None => {
            plan.asks.push(call.into());
            None
        }
        Some(Ok(Reply::Files(files))) => {
            let all = &known.facts.templates.all;
            let mut verdicts = matching::fan_out(
                &files.files,
                all.iter().map(|(name, (_, template))| (name.as_str(), &template.spec)),
                known.is_default,
            );
            verdicts.retain(|one| templates.iter().any(|(object, _)| object.name() == one.template));
            Some(verdicts)
        }
        Some(Ok(_) | Err(_)) => None,
    }
}

fn backfill_attempts<'a>(
    known: &Known<'a>,
    groups: &BTreeMap<(&'a str, &'a str), Attempts<'a>>,
    verdicts: &'a [matching::Verdict],
) -> Vec<Wanted<'a>> {
    let first = verdicts.iter().flat_map(|verdict| evaluate::first_attempts(known, verdict));
    first
        .filter_map(|one| {
            let cause = format!("backfill:{}", evaluate::version(one.template));
            match groups.get(&(one.template.name(), one.path)) {
                None => Some(Wanted { cause: Some(cause), ..one }),
                Some(attempts) => another(known, attempts, &cause),
            }
        })
        .collect()
}

fn remember(known: &Known<'_>, verdicts: &[matching::Verdict], status: &mut BranchStatus) {
    for verdict in verdicts {
        let Some((template, _)) = known.facts.templates.all.get(&verdict.template) else { continue };
        status.evaluations.retain(|one| one.template != verdict.template);
        status.evaluations.push(verdict.evaluation(evaluate::version(template)));
    }
    status.evaluations.sort_by(|a, b| a.template.cmp(&b.template));
}

/// The next attempt, if the last is over and none was made for this cause yet.
fn another<'a>(known: &Known<'a>, attempts: &Attempts<'a>, cause: &str) -> Option<Wanted<'a>> {
    let (_, last) = attempts.last()?;
    let made = attempts.iter().any(|(object, _)| object.annotation(annotations::CAUSE) == Some(cause));
    if made || !is_over(last) {
        return None;
    }
    let (template, typed) = known.facts.templates.all.get(&last.spec.template)?;
    Some(Wanted {
        template,
        spec: &typed.spec,
        path: &last.spec.path,
        attempt: last.spec.attempt.checked_add(1)?,
        cause: Some(cause.to_owned()),
    })
}

fn unanswered<'a>(known: &Known<'a>, annotation: &str, handled: Option<&str>) -> Option<&'a str> {
    let asked = known.facts.cx.object.annotation(annotation)?;
    (Some(asked) != handled).then_some(asked)
}
