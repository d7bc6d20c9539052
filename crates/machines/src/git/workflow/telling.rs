//! What is GitHub told about a run, and what of it was heard there?
//!
//! ```text
//! id known ─────────────────────────────▶ update the check run
//! else: how are we known? ─ App ────────▶ create it under its key, update it if it was there in another state
//!                         └ token ──────▶ set the commit status
//! ```
//! A state is told once, and states only move forward; what was told stands in `status.checkRunReported`. A call that
//! fails for now is made again at the next look, one that fails for good is not.

use std::sync::Arc;

use pawl_api::git::workflow::CHECK_RUN;
use pawl_api::git::{WorkflowStatus, WorkflowTemplate};
use pawl_api::meta::Reason;

use super::{Facts, Found, following};
use crate::cluster::job::followed::Followed;
use crate::external;
use crate::failure::{Category, Failure};
use crate::git::check_run::{self, Story};
use crate::git::github::{
    Account, Ask, Call, CheckRun, CheckRunRef, CheckState, CommitStatus, Conclusion, Identity, Reply,
    StatusState, mismatched,
};
use crate::git::job_template;
use crate::logs::Logs;
use crate::object::Key;

/// What of a failing container's log is shown.
const LOG_TAIL_BYTES: usize = 16 * 1024;

/// Where telling GitHub stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// It was told before, or there is nothing to tell.
    Already,
    /// There is something to tell, and nobody who could: why.
    Nobody(String),
    /// First these must be asked.
    Ask(Vec<external::Call>),
    /// It was told now.
    Now { id: Option<i64>, name: String, state: CheckState },
    /// GitHub does not answer for now, or the credentials or the repository are not there: they may come back.
    Later(Failure),
    /// GitHub does not want to be told.
    Never(Failure),
}

/// Tells a state, in the words of the status that goes with it.
pub(super) fn tell(facts: &Facts<'_>, status: &WorkflowStatus, state: CheckState) -> Told {
    if rank(status.check_run_reported.as_deref()) >= rank(Some(&state.to_string())) {
        return Told::Already;
    }
    let account = match &facts.account {
        None => return Told::Already,
        Some(Err(problem)) => return Told::Nobody(problem.clone()),
        Some(Ok(account)) => account,
    };
    let teller = Teller { facts, account, name: name(facts, status) };
    teller.tell(status, state).unwrap_or_else(|told| told)
}

/// Tells that a run is over which may never have been told of: a check run whose id was lost is looked for.
pub(super) fn tell_end(facts: &Facts<'_>, status: &WorkflowStatus) -> Told {
    let state = CheckState::Completed(Conclusion::Cancelled);
    let known = check_run_id(facts, status).is_some() || status.check_run_reported.is_some();
    match &facts.account {
        Some(Ok(account)) if !known => {
            let teller = Teller { facts, account, name: name(facts, status) };
            teller.tell_lost(status, state).unwrap_or_else(|told| told)
        }
        Some(Err(_)) | None if !known => Told::Already,
        Some(_) => tell(facts, status, state),
        None => Told::Nobody("its Repository is gone".to_owned()),
    }
}

/// What the check is called: as it was called before, or by its template.
pub(super) fn name(facts: &Facts<'_>, status: &WorkflowStatus) -> String {
    let spec = &facts.cx.typed.spec;
    let called = status.check_run_name.clone().filter(|name| !name.is_empty());
    called.unwrap_or_else(|| match &facts.template {
        Found::There { typed, .. } => display_name(typed, &spec.path, &spec.template, facts.shares_its_name),
        Found::Missing | Found::Malformed(_) => check_run::name(&spec.template, &spec.path, None),
    })
}

fn display_name(template: &WorkflowTemplate, path: &str, name: &str, shared: bool) -> String {
    check_run::name(&template.spec.display_name, path, shared.then_some(name))
}

/// The check run of a Workflow: from its status, or from the Job that was made after it.
pub(super) fn check_run_id(facts: &Facts<'_>, status: &WorkflowStatus) -> Option<i64> {
    let on_job = || {
        let job = facts.job.own()?;
        job.annotation(CHECK_RUN)?.parse().ok()
    };
    status.check_run_id.filter(|id| *id != 0).or_else(on_job)
}

struct Teller<'a> {
    facts: &'a Facts<'a>,
    account: &'a Arc<Account>,
    name: String,
}

impl Teller<'_> {
    fn tell(&self, status: &WorkflowStatus, state: CheckState) -> Result<Told, Told> {
        let log = self.log(state);
        let Some(id) = check_run_id(self.facts, status) else {
            let access = self.hear(Ask::Access, log.as_ref().err());
            return match self.identity(access)? {
                Identity::App => self.create(&self.run(status, state, &log?)),
                Identity::Token => self.set_status(status, state, &log?),
            };
        };
        self.update(id, &self.run(status, state, &log?))
    }

    /// A check run may be there whose id was never written down.
    fn tell_lost(&self, status: &WorkflowStatus, state: CheckState) -> Result<Told, Told> {
        match self.identity(self.hear(Ask::Access, None))? {
            Identity::Token => self.set_status(status, state, &None),
            Identity::App => {
                let run = self.run(status, state, &None);
                let (sha, external_id) = (run.sha.clone(), run.external_id.clone());
                let heard = self.hear(Ask::FindCheckRun { sha, external_id }, None)?;
                let Reply::CheckRun(found) = heard else { return Err(self.mismatch(Ask::Access)) };
                match found {
                    None | Some(CheckRunRef { state: CheckState::Completed(_), .. }) => Ok(Told::Already),
                    Some(found) => self.update(found.id, &run),
                }
            }
        }
    }

    fn create(&self, run: &CheckRun) -> Result<Told, Told> {
        let ask = Ask::CreateCheckRun(run.clone());
        let Reply::CheckRun(Some(made)) = self.hear(ask.clone(), None)? else {
            return Err(self.mismatch(ask));
        };
        if made.state == run.state {
            return Ok(self.told(Some(made.id), run.state));
        }
        // It was there already, from before a crash or a lost answer.
        self.update(made.id, run)
    }

    fn update(&self, id: i64, run: &CheckRun) -> Result<Told, Told> {
        self.hear(Ask::UpdateCheckRun { id, run: run.clone() }, None)?;
        Ok(self.told(Some(id), run.state))
    }

    fn set_status(&self, status: &WorkflowStatus, state: CheckState, log: &Log) -> Result<Told, Told> {
        // To a commit status, running is as pending as queued.
        if state == CheckState::InProgress {
            return Ok(Told::Already);
        }
        let containers = following::containers(&self.facts.pods);
        let story = self.story(status, state, &containers, log);
        let status = CommitStatus {
            sha: self.facts.cx.typed.spec.sha.clone(),
            context: self.name.clone(),
            state: StatusState::from(state),
            description: check_run::description(&story),
            target_url: self.details_url(),
        };
        self.hear(Ask::SetStatus(status), None)?;
        Ok(self.told(None, state))
    }

    fn run(&self, status: &WorkflowStatus, state: CheckState, log: &Log) -> CheckRun {
        let Facts { cx, job, pods, .. } = self.facts;
        let containers = match state {
            CheckState::Completed(_) => following::containers(pods),
            CheckState::Queued | CheckState::InProgress => Vec::new(),
        };
        let story = self.story(status, state, &containers, log);
        let over =
            state.conclusion().and(job.found()).and_then(|job| job.parse::<Followed>().ok()?.ended_at());
        CheckRun {
            sha: cx.typed.spec.sha.clone(),
            name: self.name.clone(),
            external_id: format!("{}/{}", cx.object.uid(), cx.typed.spec.attempt),
            state,
            started_at: status.start_time.as_ref().filter(|_| state != CheckState::Queued).map(|at| at.0),
            completed_at: over,
            details_url: self.details_url(),
            title: check_run::title(&story),
            summary: check_run::summary(&story),
            text: check_run::details(&story),
        }
    }

    fn story<'s>(
        &'s self,
        status: &'s WorkflowStatus,
        state: CheckState,
        containers: &'s [check_run::Container],
        log: &'s Log,
    ) -> Story<'s> {
        let spec = &self.facts.cx.typed.spec;
        Story {
            state,
            reason: reason(status),
            message: match state {
                // What it waits for changes too often to be told.
                CheckState::Queued => "",
                CheckState::InProgress | CheckState::Completed(_) => {
                    status.message.as_deref().unwrap_or_default()
                }
            },
            template: &spec.template,
            path: &spec.path,
            workflow: self.facts.cx.object.name(),
            attempt: spec.attempt,
            containers,
            log: log.as_ref().map(|(container, text)| {
                (container.as_str(), text.as_ref().map(String::as_str).map_err(String::as_str))
            }),
        }
    }

    /// The end of the log that explains a failure. It is asked for before anything is told, and what cannot be read is
    /// left out.
    fn log(&self, state: CheckState) -> Result<Log, Told> {
        let CheckState::Completed(Conclusion::Failure | Conclusion::TimedOut) = state else {
            return Ok(None);
        };
        let containers = following::containers(&self.facts.pods);
        let Some(culprit) = following::culprit(&containers) else { return Ok(None) };
        let Some(job) = self.facts.job.found() else { return Ok(None) };
        let namespace = self.facts.cx.object.namespace();
        let logs = Logs {
            pod: Key::new(namespace, &culprit.pod),
            container: culprit.name.clone(),
            tail_bytes: LOG_TAIL_BYTES,
            mask: job_template::secrets(job.raw()).iter().map(|name| Key::new(namespace, name)).collect(),
        };
        let text = match self.facts.cx.answers.get(&logs) {
            None => return Err(Told::Ask(vec![logs.into()])),
            Some(answer) => answer.cloned().map_err(|failure| failure.message.clone()),
        };
        Ok(Some((culprit.name.clone(), text)))
    }

    fn identity(&self, access: Result<Reply, Told>) -> Result<Identity, Told> {
        let Reply::Access(access) = access? else { return Err(self.mismatch(Ask::Access)) };
        Ok(access.identity)
    }

    /// What GitHub answered; asked for together with `also` where it was not asked yet.
    fn hear(&self, ask: Ask, also: Option<&Told>) -> Result<Reply, Told> {
        let call = Call::new(self.account, ask);
        match self.facts.cx.answers.get(&call) {
            None => {
                let also = match also {
                    Some(Told::Ask(also)) => also.clone(),
                    _ => Vec::new(),
                };
                Err(Told::Ask(also.into_iter().chain([call.into()]).collect()))
            }
            Some(Ok(reply)) => Ok(reply.clone()),
            Some(Err(failure)) => Err(match failure.category {
                Category::Transient | Category::Conflict | Category::Gone => Told::Later(failure.clone()),
                Category::Permanent => Told::Never(failure.clone()),
            }),
        }
    }

    fn mismatch(&self, ask: Ask) -> Told {
        Told::Never(mismatched(&Call::new(self.account, ask)))
    }

    fn told(&self, id: Option<i64>, state: CheckState) -> Told {
        Told::Now { id, name: self.name.clone(), state }
    }

    fn details_url(&self) -> Option<String> {
        let base = self.facts.dashboard_url.as_deref()?.trim_end_matches('/');
        let namespace = self.facts.cx.object.namespace().unwrap_or_default();
        Some(format!("{base}/workflows/{namespace}/{}", self.facts.cx.object.name()))
    }
}

/// A container, and the end of its log or why there is none.
type Log = Option<(String, Result<String, String>)>;

/// The reason of a status as the word it is.
pub(super) fn reason(status: &WorkflowStatus) -> Reason {
    let word = status.reason.as_deref().unwrap_or_default();
    Reason::ALL.iter().find(|reason| reason.as_str() == word).copied().unwrap_or(Reason::Unknown)
}

/// Whether what it takes to tell GitHub is not there: nothing tells when it is again.
pub(super) fn is_missing(failure: &Failure) -> bool {
    failure.category == Category::Gone
}

/// How far a state is; nothing is ever told that is less far than what was told.
fn rank(told: Option<&str>) -> u8 {
    match told {
        None | Some("") => 0,
        Some("queued") => 1,
        Some("in_progress") => 2,
        Some(_) => 3,
    }
}
