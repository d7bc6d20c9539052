//! What should run for the commit a Branch is at? Everything is made in one plan, and only then does `last-sha` say so:
//! names are functions of what is run (I1), so a crash in between repeats the same creates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pawl_api::git::branch::{
    BranchResult, Evaluation, MAX_CHANGED_FILES, ResultState, TRUSTED, WORKFLOW_CREATE_FAILED,
    WORKFLOW_READY, workspace_claim_name,
};
use pawl_api::git::repository::BranchDiff;
use pawl_api::git::workflow;
use pawl_api::git::{
    BranchStatus, WorkflowSpec, WorkflowTemplate, WorkflowTemplateSpec, annotations, finalizers, labels,
    workflow_template,
};
use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use pawl_api::meta::{NewCondition, Reason, condition, names, text};
use pawl_api::pawl;
use serde_json::{Map, Value, json};

use super::{Known, aggregate, delete_me, evaluation_key, superseded};
use crate::external;
use crate::failure::{Category, Failure};
use crate::git::github::{self, Account, Ask, Call, CommitInfo, Files, Reply};
use crate::git::matching::{self, Verdict};
use crate::git::repository::schedule;
use crate::git::trust::{self, Stop};
use crate::object::Object;
use crate::plan::{Adopt, Note, Plan, Step};
use crate::time::later;
use crate::view::Served;

/// What a status may hold.
const MAX_EVALUATIONS: usize = 500;
const MAX_PATH_CHARS: usize = 4096;

/// How long until what GitHub refused for good is asked again: somebody may have granted it meanwhile.
const REFUSED_RETRY: Duration = Duration::from_mins(5);

/// How long until what a quota or a missing right kept out is tried again: nothing tells us when that changes.
const KEPT_OUT_RETRY: Duration = Duration::from_secs(30);

/// A Workflow to be made.
pub(super) struct Wanted<'a> {
    pub(super) template: &'a Arc<Object>,
    pub(super) spec: &'a WorkflowTemplateSpec,
    pub(super) path: &'a str,
    pub(super) attempt: i32,
    /// What asked for another attempt.
    pub(super) cause: Option<String>,
}

pub(super) fn evaluate(known: &Known<'_>) -> Plan<BranchStatus> {
    let facts = known.facts;
    let mut plan = superseded(facts);
    if let Some(stop) = known.trust.stop() {
        return stopped(known, plan, stop);
    }
    // A ref that went back to where it was: the names of its Workflows are free only when the old ones are gone.
    let leaving = |unit: &super::Unit| {
        let workflow = unit.workflow.as_ref();
        unit.object.is_deleting() && workflow.is_some_and(|workflow| workflow.spec.sha == known.spec().sha)
    };
    if facts.units.iter().any(leaving) {
        return plan;
    }
    if facts.templates.served == Served::No {
        return unlisted(known, plan);
    }
    let account = match known.account {
        Ok(account) => account,
        Err(problem) => return waits(known, plan, Reason::SecretRefNotAllowed, problem.to_string()),
    };
    let commit = Call::new(account, Ask::Commit { sha: known.spec().sha.clone() });
    let listing = listing(known, account);
    let unasked: Vec<external::Call> = std::iter::once(&commit)
        .chain(&listing)
        .filter(|call| facts.cx.answers.get(*call).is_none())
        .cloned()
        .map(external::Call::new)
        .collect();
    if !unasked.is_empty() {
        plan.asks = unasked;
        return plan;
    }
    match changes(known, &commit, listing.as_ref()) {
        Ok((message, _)) if trust::says_skip(message) => stopped(known, plan, Stop::SkipCi),
        Ok((_, files)) => fan_out(known, plan, files),
        Err(failure) => unreadable(known, plan, account, &failure),
    }
}

/// What is asked beside the commit itself: a pull request's files, or all since the merge base.
pub(super) fn listing(known: &Known<'_>, account: &Arc<Account>) -> Option<Call> {
    let spec = known.spec();
    let ask = match (spec.pull_request(), known.repository.spec.branch_diff) {
        (Some(number), _) => Ask::PullFiles { number },
        (None, BranchDiff::MergeBase) if !known.is_default => {
            Ask::SinceMergeBase { base: known.repository.spec.default_branch.clone(), head: spec.sha.clone() }
        }
        (None, BranchDiff::MergeBase | BranchDiff::Commit) => return None,
    };
    Some(Call::new(account, ask))
}

fn changes<'a>(
    known: &Known<'a>,
    commit: &Call,
    listing: Option<&Call>,
) -> Result<(&'a str, &'a Files), Failure> {
    let heard = |call: &Call| match known.facts.cx.answers.get(call) {
        None => Err(github::mismatched(call)),
        Some(answer) => answer.map_err(Clone::clone),
    };
    let Reply::Commit(CommitInfo { brief, files }) = heard(commit)? else {
        return Err(github::mismatched(commit));
    };
    match listing {
        None => Ok((&brief.message, files)),
        Some(call) => {
            let Reply::Files(files) = heard(call)? else { return Err(github::mismatched(call)) };
            Ok((&brief.message, files))
        }
    }
}

fn fan_out(known: &Known<'_>, mut plan: Plan<BranchStatus>, files: &Files) -> Plan<BranchStatus> {
    let facts = known.facts;
    let verdicts = matching::fan_out(
        &files.files,
        facts.templates.all.iter().map(|(name, (_, template))| (name.as_str(), &template.spec)),
        known.is_default,
    );
    let mut status = facts.status();
    let wanted: Vec<Wanted<'_>> =
        verdicts.iter().flat_map(|verdict| first_attempts(known, verdict)).collect();
    if let Some(kept_out) = kept_out(known, &mut status) {
        plan.wake = kept_out;
        return plan.status(status);
    }
    let refused = refused(known);
    let before = plan.steps.len();
    status.workflows = make(known, &wanted, &refused, &mut plan);
    create_failed(known, &mut status, &refused);
    status.evaluations = evaluations(known, &verdicts);
    status.changed_files = files
        .files
        .iter()
        .take(MAX_CHANGED_FILES)
        .map(|file| text::head(&file.path, MAX_PATH_CHARS))
        .collect();
    status.changed_file_count = i64::try_from(files.files.len()).ok();
    if wanted.is_empty() && facts.current().next().is_none() {
        let (reason, message) = if files.files.is_empty() {
            (Reason::NoChangedFiles, "No changed files for Branch")
        } else {
            (Reason::NoMatchingTemplate, "No matching WorkflowTemplate found for Branch")
        };
        plan.notes.push(Note::normal(reason, message).once(&known.spec().sha));
        let ready = NewCondition::yes(WORKFLOW_READY, reason, message);
        let result = (ResultState::Succeeded, format!("nothing to do: {message}"));
        return record(known, plan, status, None, ready, result);
    }
    let message = format!("{} Workflows for {}", wanted.len(), known.spec().sha);
    if plan.steps.len() > before {
        let note = Note::normal(Reason::WorkflowCreated, format!("Created Workflow for Branch: {message}"));
        plan.notes.push(note.once(evaluation_key(&known.spec().sha, known.spec().pull_request())));
    }
    let ready = NewCondition::yes(WORKFLOW_READY, Reason::WorkflowCreated, message);
    let result = (ResultState::Running, aggregate::running(wanted.len()));
    record(known, plan, status, None, ready, result)
}

pub(super) fn first_attempts<'a>(known: &Known<'a>, verdict: &'a Verdict) -> Vec<Wanted<'a>> {
    let Some((template, typed)) = known.facts.templates.all.get(&verdict.template) else { return vec![] };
    let one = |target: &'a matching::Target| Wanted {
        template,
        spec: &typed.spec,
        path: &target.path,
        attempt: 1,
        cause: None,
    };
    verdict.targets.iter().map(one).collect()
}

/// Plans what is not there yet of all that is wanted, workspaces first; gives the names of all.
pub(super) fn make(
    known: &Known<'_>,
    wanted: &[Wanted<'_>],
    refused: &BTreeMap<String, String>,
    plan: &mut Plan<BranchStatus>,
) -> Vec<String> {
    let there: BTreeSet<&str> = known.facts.units.iter().map(|unit| unit.object.name()).collect();
    let mut names: BTreeSet<String> =
        known.facts.current().map(|(object, _)| object.name().to_owned()).collect();
    let mut workspaces = BTreeSet::new();
    let mut creates = Vec::new();
    for one in wanted {
        let me = &known.facts.cx.object;
        let name = workflow::name(me.uid(), &known.spec().sha, one.template.name(), one.path, one.attempt);
        // Without its workspace it would work in somebody else's.
        let claim = workspace_claim_name(me.uid(), one.template.name());
        if refused.contains_key(&name) || (has_workspace(one) && refused.contains_key(&claim)) {
            continue;
        }
        if !there.contains(name.as_str()) {
            if has_workspace(one) && workspaces.insert(one.template.name()) {
                plan.steps.extend(workspace(known, one, &claim));
            }
            creates.push(create(known, one, &name));
        }
        names.insert(name);
    }
    plan.steps.extend(creates);
    names.into_iter().collect()
}

fn has_workspace(one: &Wanted<'_>) -> bool {
    one.spec.workspace.as_ref().is_some_and(|workspace| workspace.enabled)
}

fn workspace(known: &Known<'_>, one: &Wanted<'_>, name: &str) -> Option<Step> {
    let me = &known.facts.cx.object;
    let workspace = one.spec.workspace.as_ref()?;
    let class =
        workspace.storage_class_name.as_ref().map(|class| ("storageClassName".to_owned(), json!(class)));
    let mut spec = Map::from_iter(class);
    spec.insert("accessModes".to_owned(), json!(["ReadWriteOnce"]));
    spec.insert("resources".to_owned(), json!({"requests": {"storage": workspace.size}}));
    let manifest = json!({
        "metadata": {"name": name, "namespace": me.namespace(), "labels": own_labels(known),
            "ownerReferences": [me.controller_reference()]},
        "spec": spec,
    });
    let adopt = Adopt::ControlledBy(me.uid().to_owned());
    Some(Step::Create { kind: PERSISTENT_VOLUME_CLAIM, manifest, adopt })
}

fn create(known: &Known<'_>, one: &Wanted<'_>, name: &str) -> Step {
    let (me, spec) = (&known.facts.cx.object, known.spec());
    let workspace = one.spec.workspace.as_ref().filter(|workspace| workspace.enabled);
    let claim = workspace_claim_name(me.uid(), one.template.name());
    let wanted = matching::workflow_spec(
        (me.name(), spec),
        (one.template.name(), one.spec),
        one.path,
        known.is_default,
        workspace.map(|workspace| (claim.as_str(), workspace.mount_path.as_str())),
    );
    let wanted = WorkflowSpec { attempt: one.attempt, ..wanted };
    let mut annotations = Map::new();
    if let Some(targets) = one.template.annotation(pawl::annotations::TARGETS) {
        annotations.insert(pawl::annotations::TARGETS.to_owned(), targets.into());
    }
    if let Some(cause) = &one.cause {
        annotations.insert(annotations::CAUSE.to_owned(), cause.as_str().into());
    }
    let mut labels = own_labels(known);
    labels.insert(labels::SHA.to_owned(), spec.sha.as_str().into());
    labels.insert(labels::TEMPLATE.to_owned(), names::label_value(one.template.name()).into());
    // With its finalizer from the start: one write less for each.
    let manifest = json!({
        "metadata": {"name": name, "namespace": me.namespace(), "labels": labels, "annotations": annotations,
            "finalizers": [finalizers::WORKFLOW], "ownerReferences": [me.controller_reference()]},
        "spec": wanted,
    });
    Step::Create { kind: workflow::KIND, manifest, adopt: Adopt::ControlledBy(me.uid().to_owned()) }
}

fn own_labels(known: &Known<'_>) -> Map<String, Value> {
    let spec = known.spec();
    let all = [
        (labels::OWNER, spec.owner.as_str()),
        (labels::REPO_NAME, spec.repository.as_str()),
        (labels::REPO_UID, known.repository_uid),
        (labels::OWNER_UID, known.facts.cx.object.uid()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), names::label_value(value).into())).collect()
}

/// Which version of a template was looked at.
pub(super) fn version(template: &Object) -> String {
    format!("{}/{}", template.uid(), template.generation())
}

fn evaluations(known: &Known<'_>, verdicts: &[Verdict]) -> Vec<Evaluation> {
    let all = &known.facts.templates.all;
    let of = |verdict: &Verdict| {
        let template = all.get(&verdict.template);
        verdict.evaluation(template.map(|(object, _)| version(object)).unwrap_or_default())
    };
    verdicts.iter().take(MAX_EVALUATIONS).map(of).collect()
}

/// Nothing is to run for this commit, and that is an answer too.
fn stopped(known: &Known<'_>, plan: Plan<BranchStatus>, stop: Stop) -> Plan<BranchStatus> {
    let message = stop.message(known.spec());
    let mut status = known.facts.status();
    status.workflows = known.facts.current().map(|(object, _)| object.name().to_owned()).collect();
    status.evaluations.clear();
    status.changed_files.clear();
    status.changed_file_count = None;
    let ready = NewCondition::no(WORKFLOW_READY, stop.reason(), message.clone());
    let note = Note::normal(stop.reason(), message.clone());
    record(known, plan.note(note), status, Some(stop), ready, (stop.state(), message))
}

/// The commit is evaluated: says so, on the object and in the status, and goes on to the check.
fn record(
    known: &Known<'_>,
    mut plan: Plan<BranchStatus>,
    mut status: BranchStatus,
    stop: Option<Stop>,
    ready: NewCondition,
    (state, message): (ResultState, String),
) -> Plan<BranchStatus> {
    let (facts, spec) = (known.facts, known.spec());
    status.observed_generation = facts.cx.object.meta().generation;
    status.evaluated_sha = Some(spec.sha.clone());
    status.result = Some(BranchResult { sha: spec.sha.clone(), state, message });
    status.approved = match &known.trust {
        trust::Trust::Approved(approval) => Some(approval.clone()),
        trust::Trust::Own | trust::Trust::Allowed | trust::Trust::Stopped(_) => None,
    };
    facts.condition(&mut status, ready);
    facts.condition(&mut status, trusted(known));
    // A commit of the default branch that nothing follows from leaves no trace but its check.
    let has_work = !status.workflows.is_empty();
    if known.may_go() && !has_work && state.is_over() {
        let mut told = status.clone();
        aggregate::report(known, &mut told, &mut plan);
        if !plan.asks.is_empty() {
            plan.notes.clear();
            return plan;
        }
        if aggregate::is_told(&told, &spec.sha) {
            return plan.then(delete_me(facts.cx.object));
        }
    }
    aggregate::intend(known, &mut status);
    if !state.is_over() {
        aggregate::reopen(&mut status, &spec.sha);
    }
    plan.steps.extend(mark(known, stop));
    // The check is the next thing, and it is decided on what was just written.
    if let Ok(account) = known.account {
        let access = Call::new(account, Ask::Access);
        if facts.cx.answers.get(&access).is_none() {
            plan.asks = vec![access.into()];
        }
    }
    plan.status(status)
}

/// `last-sha`, after the Workflows exist.
fn mark(known: &Known<'_>, stop: Option<Stop>) -> Option<Step> {
    let (me, spec) = (&known.facts.cx.object, known.spec());
    let mut key = evaluation_key(&spec.sha, spec.pull_request());
    if let Some(stop) = stop {
        key = format!("{key}:{}", stop.word());
    }
    let wanted = [(annotations::LAST_SHA, spec.sha.as_str()), (annotations::LAST_EVALUATION, key.as_str())];
    if wanted.iter().all(|(annotation, value)| me.annotation(annotation) == Some(*value)) {
        return None;
    }
    Some(Step::patch_unchanged(
        me,
        json!({"metadata": {"annotations": wanted.into_iter().collect::<BTreeMap<_, _>>()}}),
    ))
}

fn trusted(known: &Known<'_>) -> NewCondition {
    let spec = known.spec();
    match &known.trust {
        trust::Trust::Own => {
            NewCondition::yes(TRUSTED, Reason::Trusted, "the ref is in the repository itself")
        }
        trust::Trust::Allowed => {
            NewCondition::yes(TRUSTED, Reason::Allowed, "spec.forks of the Repository is allow")
        }
        trust::Trust::Approved(approval) => {
            let message = format!("{} allowed commit {}", approval.by, approval.sha);
            NewCondition::yes(TRUSTED, Reason::ForkApproved, message)
        }
        trust::Trust::Stopped(stop) => match stop {
            Stop::NotApproved | Stop::Denied => NewCondition::no(TRUSTED, stop.reason(), stop.message(spec)),
            Stop::Draft | Stop::SkipCi => NewCondition::yes(TRUSTED, Reason::Trusted, stop.message(spec)),
        },
    }
}

/// The kind of templates is not served: the seed's words for it, and its patience.
fn unlisted(known: &Known<'_>, plan: Plan<BranchStatus>) -> Plan<BranchStatus> {
    let mut status = known.facts.status();
    let message = format!("{} cannot be listed: the API server does not serve it", workflow_template::KIND);
    let new = NewCondition::no(WORKFLOW_CREATE_FAILED, Reason::TemplateListFailed, message);
    known.facts.condition(&mut status, new);
    plan.status(status)
}

fn not_ready(
    known: &Known<'_>,
    plan: Plan<BranchStatus>,
    reason: Reason,
    message: String,
) -> Plan<BranchStatus> {
    let mut status = known.facts.status();
    known.facts.condition(&mut status, NewCondition::no(WORKFLOW_READY, reason, message));
    plan.status(status)
}

/// The same, with an Event, and another try after as long as it has waited already: no watch tells when it may go on.
fn waits(known: &Known<'_>, plan: Plan<BranchStatus>, reason: Reason, message: String) -> Plan<BranchStatus> {
    let conditions = known.facts.cx.typed.status.iter().flat_map(|status| &status.conditions);
    let before = conditions.into_iter().find(|one| one.type_ == WORKFLOW_READY);
    let told = before.filter(|one| one.reason == reason.as_str() && one.message == message);
    let since = told.map_or(known.facts.cx.now, |one| one.last_transition_time.0);
    let interval = known.repository.spec.poll_interval.get();
    let mut plan = plan.wake_at(schedule::retry_at(since, None, interval, known.facts.cx.now));
    if told.is_none() {
        plan = plan.note(Note::warning(reason, message.clone()));
    }
    not_ready(known, plan, reason, message)
}

/// The changed files cannot be read. GitHub answers 404 and 422 also for missing access and while its replicas lag, so a
/// commit is given up only when GitHub shows the head that came after it.
fn unreadable(
    known: &Known<'_>,
    mut plan: Plan<BranchStatus>,
    account: &Arc<Account>,
    failure: &Failure,
) -> Plan<BranchStatus> {
    let message = format!("what commit {} changed is not known: {failure}", known.spec().sha);
    match failure.category {
        Category::NotFound => match lost(known, account) {
            Lost::Ask(calls) => {
                plan.asks = calls;
                plan
            }
            Lost::Yes => {
                let note = Note::warning(Reason::CommitGone, message.clone());
                let status = BranchStatus { workflows: vec![], evaluations: vec![], ..known.facts.status() };
                let ready = NewCondition::no(WORKFLOW_READY, Reason::CommitGone, message.clone());
                record(known, plan.note(note), status, None, ready, (ResultState::Cancelled, message))
            }
            Lost::Unknown => waits(known, plan, Reason::ChangedFilesFailed, message),
        },
        Category::MissingCredentials => waits(known, plan, Reason::CredentialsMissing, message),
        Category::Permanent => {
            let at = later(known.facts.cx.now, REFUSED_RETRY);
            not_ready(known, plan, Reason::ChangedFilesFailed, message).wake_at(at)
        }
        // The loop asks again, with back-off. How long GitHub wants to be left alone changes from look to look.
        Category::Transient | Category::Conflict => {
            let message = format!("{}: {}", failure.attempt, failure.reason);
            not_ready(known, plan, Reason::ChangedFilesFailed, message)
        }
    }
}

/// Whether GitHub no longer has a commit that it answers 404 or 422 for.
enum Lost {
    Ask(Vec<external::Call>),
    Yes,
    Unknown,
}

/// A commit of the default branch is lost when GitHub reads the branch's head and cannot compare the commit with it: then
/// the credentials work, and a replica that knows the head knows its ancestors. The Branch of any other ref is moved or
/// pruned by its Repository as soon as the ref is.
fn lost(known: &Known<'_>, account: &Arc<Account>) -> Lost {
    let (facts, sha) = (known.facts, &known.spec().sha);
    let cursor = known.repository.status.as_ref().and_then(|it| it.last_default_branch_head_sha.as_ref());
    let Some(head) = cursor.filter(|head| known.is_default && *head != sha) else { return Lost::Unknown };
    let compare = Call::new(account, Ask::Commits { base: sha.clone(), head: head.clone() });
    let read = Call::new(account, Ask::Commit { sha: head.clone() });
    match (facts.cx.answers.get(&compare), facts.cx.answers.get(&read)) {
        (None, _) | (_, None) => Lost::Ask(vec![compare.into(), read.into()]),
        (Some(Err(failure)), Some(Ok(_))) if failure.category == Category::NotFound => Lost::Yes,
        (Some(_), Some(_)) => Lost::Unknown,
    }
}

/// What the API server will not have, by name: told, and the rest goes on.
pub(super) fn refused(known: &Known<'_>) -> BTreeMap<String, String> {
    let about_one = known.facts.cx.refusals.iter().filter(|refusal| is_about_one(&refusal.failure));
    about_one.map(|refusal| (refusal.key.name.clone(), refusal.failure.to_string())).collect()
}

fn is_about_one(failure: &Failure) -> bool {
    failure.is("OwnershipMismatch") || failure.is("Invalid")
}

/// A refusal of everything we make here: said once, then tried again from time to time.
fn kept_out(known: &Known<'_>, status: &mut BranchStatus) -> Option<crate::plan::Wake> {
    let refusal = known.facts.cx.refusals.iter().find(|refusal| !is_about_one(&refusal.failure))?;
    let message = refusal.failure.to_string();
    let told = condition::get(&status.conditions, WORKFLOW_CREATE_FAILED).map(|told| told.message.clone());
    if told.as_ref() == Some(&message) {
        return None;
    }
    let reason = if refusal.failure.is_quota() { Reason::QuotaExceeded } else { Reason::Forbidden };
    known.facts.condition(status, NewCondition::no(WORKFLOW_CREATE_FAILED, reason, message));
    let at = later(known.facts.cx.now, KEPT_OUT_RETRY);
    Some(crate::plan::Wake::At(at))
}

fn create_failed(known: &Known<'_>, status: &mut BranchStatus, refused: &BTreeMap<String, String>) {
    let malformed = &known.facts.templates.malformed;
    if let Some(problem) = malformed.first() {
        let message = format!("{} WorkflowTemplates cannot be read: {problem}", malformed.len());
        let new = NewCondition::no(WORKFLOW_CREATE_FAILED, Reason::TemplateListFailed, message);
        return known.facts.condition(status, new);
    }
    if let Some((name, problem)) = refused.first_key_value() {
        let message = format!("{} could not be made, the first of them {name}: {problem}", refused.len());
        let new = NewCondition::no(WORKFLOW_CREATE_FAILED, Reason::Invalid, message);
        return known.facts.condition(status, new);
    }
    condition::remove(&mut status.conditions, WORKFLOW_CREATE_FAILED);
}

/// Of the templates that are there, those that were added or edited since and are to run for open pull requests too.
pub(super) fn backfilled<'a>(known: &Known<'a>) -> Vec<(&'a Arc<Object>, &'a Arc<WorkflowTemplate>)> {
    let facts = known.facts;
    let seen =
        &facts.cx.typed.status.as_ref().map(|status| status.evaluations.as_slice()).unwrap_or_default();
    // Beyond what a status holds nothing is known, and nothing is run twice because of that.
    if known.spec().pull_request().is_none() || seen.len() >= MAX_EVALUATIONS {
        return vec![];
    }
    let is_new = |template: &Object| {
        let version = version(template);
        !seen.iter().any(|one| one.template == template.name() && one.version == version)
    };
    let all = facts.templates.all.values();
    all.filter(|(object, template)| template.spec.backfill && is_new(object))
        .map(|(object, template)| (object, template))
        .collect()
}
