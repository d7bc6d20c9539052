//! The check of a Workflow on GitHub.
//!
//! A state is reported once, and states only move forward: the last one reported is in `status.checkRunReported`. A call
//! that failed for now is made again at the next reconcile; one that GitHub refused is not.

use std::sync::Arc;

use pawl_api::git::workflow::CHECK_RUN;
use pawl_api::git::{Workflow, WorkflowPhase, WorkflowStatus, WorkflowTemplate};
use pawl_api::meta::{Phase, Reason};

use super::text::{self, Details};
use super::{Reported, Reporter};
use crate::cluster::job::followed::Followed;
use crate::external;
use crate::failure::{Category, Failure};
use crate::git::account::{self, NoAccount};
use crate::git::github::{Account, CheckRun, CheckState, Conclusion};
use crate::git::job_template;
use crate::held_run::HeldRun;
use crate::logs::Logs;
use crate::object::{Key, Object};
use crate::pods;
use crate::view::Context;

/// The end of a failed container's log that a check run shows.
const LOG_TAIL_BYTES: usize = 16 * 1024;

/// The check of one Workflow, and all that its text is made of.
#[derive(Clone, Copy, Debug)]
pub struct WorkflowCheck<'a> {
    pub cx: &'a Context<'a, Workflow>,
    /// `None` where no Repository owns the Branch, so that there is nobody to report to.
    pub repository: Option<&'a Arc<Object>>,
    /// `None` where it is missing or malformed.
    pub template: Option<&'a Arc<WorkflowTemplate>>,
    /// Another template with the same display name comes before this one by name.
    pub shares_display_name: bool,
    pub job: &'a HeldRun,
    pub pods: &'a [Arc<Object>],
    pub dashboard_url: Option<&'a str>,
}

/// What became of reporting a Workflow's state.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckReport {
    /// There was nothing to report.
    Unchanged,
    /// GitHub shows the state now, and the status says so.
    Reported,
    /// These calls must be made first.
    Calls(Vec<external::Call>),
    /// There are no credentials to report with.
    NoAccount(String),
    /// GitHub cannot be reached for now.
    Unreachable(Failure),
    /// The credentials or the repository are missing. They may return, and no watch tells when.
    Missing(Failure),
    /// GitHub refuses the report.
    Refused(Failure),
}

impl WorkflowCheck<'_> {
    /// Reports the status' phase.
    pub fn report(&self, status: &mut WorkflowStatus) -> CheckReport {
        match state(status) {
            Some(state) => self.report_state(status, state),
            None => CheckReport::Unchanged,
        }
    }

    /// Reports that the Workflow is queued.
    pub fn report_queued(&self, status: &mut WorkflowStatus) -> CheckReport {
        self.report_state(status, CheckState::Queued)
    }

    /// Reports the last state of a Workflow that is being deleted: its result, or that it was cancelled. A check run whose
    /// id was lost is looked for.
    pub fn conclude(&self, status: &mut WorkflowStatus) -> CheckReport {
        if status.phase.is_some_and(WorkflowPhase::is_terminal) {
            return self.report(status);
        }
        let state = CheckState::Completed(Conclusion::Cancelled);
        let exists = self.id(status).is_some() || status.check_run_reported.is_some();
        match self.account() {
            Some(Ok(account)) if !exists => {
                let wanted = self.check_run(status, state, None);
                let reported = self.reporter(&account).conclude_lost(&wanted);
                self.record(status, state, reported)
            }
            Some(Err(_)) | None if !exists => CheckReport::Unchanged,
            Some(_) => self.report_state(status, state),
            None => CheckReport::NoAccount("its Repository is gone".to_owned()),
        }
    }

    /// The check run's id: from the status, or from the Job that was created after it.
    pub fn id(&self, status: &WorkflowStatus) -> Option<i64> {
        let on_job = || self.job.own()?.annotation(CHECK_RUN)?.parse().ok();
        status.check_run_id.filter(|id| *id != 0).or_else(on_job)
    }

    /// The check's name: the one it had before, or the template's display name and the path.
    pub fn name(&self, status: &WorkflowStatus) -> String {
        let spec = &self.cx.typed.spec;
        let before = status.check_run_name.clone().filter(|name| !name.is_empty());
        before.unwrap_or_else(|| match self.template {
            Some(template) => {
                let qualifier = self.shares_display_name.then_some(spec.template.as_str());
                text::name(&template.spec.display_name, &spec.path, qualifier)
            }
            None => text::name(&spec.template, &spec.path, None),
        })
    }

    fn report_state(&self, status: &mut WorkflowStatus, state: CheckState) -> CheckReport {
        if rank(status.check_run_reported.as_deref()) >= rank(Some(&state.to_string())) {
            return CheckReport::Unchanged;
        }
        let account = match self.account() {
            None => return CheckReport::Unchanged,
            Some(Err(none)) => return CheckReport::NoAccount(none.to_string()),
            Some(Ok(account)) => account,
        };
        let wanted = match self.log(state) {
            Ok(log) => Ok(self.check_run(status, state, log.as_ref())),
            Err(call) => Err(call),
        };
        let reported = self.reporter(&account).report(self.id(status), wanted);
        self.record(status, state, reported)
    }

    fn account(&self) -> Option<Result<Arc<Account>, NoAccount>> {
        self.repository.map(|repository| account::of(self.cx.view, repository))
    }

    fn reporter<'s>(&'s self, account: &'s Arc<Account>) -> Reporter<'s> {
        Reporter { account, answers: self.cx.answers, starts_queued: true }
    }

    /// Writes a report that GitHub took into the status.
    fn record(&self, status: &mut WorkflowStatus, state: CheckState, reported: Reported) -> CheckReport {
        match reported {
            Reported::Done(id) => {
                status.check_run_name = Some(self.name(status));
                status.check_run_id = id.or(status.check_run_id);
                status.check_run_reported = Some(state.to_string());
                CheckReport::Reported
            }
            Reported::Unchanged => CheckReport::Unchanged,
            Reported::Calls(calls) => CheckReport::Calls(calls),
            Reported::NoAccess(failure) | Reported::Failed(failure) => match failure.category {
                Category::Permanent => CheckReport::Refused(failure),
                Category::Transient | Category::Conflict => CheckReport::Unreachable(failure),
                Category::NotFound | Category::MissingCredentials => CheckReport::Missing(failure),
            },
        }
    }

    fn check_run(&self, status: &WorkflowStatus, state: CheckState, log: Option<&Log>) -> CheckRun {
        let (object, spec) = (self.cx.object, &self.cx.typed.spec);
        let containers = match state {
            CheckState::Completed(_) => pods::containers(self.pods),
            CheckState::Queued | CheckState::InProgress => Vec::new(),
        };
        let details = Details {
            state,
            reason: reason(status),
            message: match state {
                // The reason for waiting changes too often to be reported.
                CheckState::Queued => "",
                CheckState::InProgress | CheckState::Completed(_) => {
                    status.message.as_deref().unwrap_or_default()
                }
            },
            template: &spec.template,
            path: &spec.path,
            workflow: object.name(),
            attempt: spec.attempt,
            containers: &containers,
            log: log.map(|(container, text)| {
                (container.as_str(), text.as_ref().map(String::as_str).map_err(String::as_str))
            }),
        };
        let job = state.conclusion().and(self.job.found());
        CheckRun {
            sha: spec.sha.clone(),
            name: self.name(status),
            external_id: format!("{}/{}", object.uid(), spec.attempt),
            state,
            started_at: status.start_time.as_ref().filter(|_| state != CheckState::Queued).map(|at| at.0),
            completed_at: job.and_then(|job| job.parse::<Followed>().ok()?.ended_at()),
            details_url: self.details_url(),
            title: text::title(&details),
            summary: text::summary(&details),
            text: text::log_section(&details),
        }
    }

    /// The end of the log that explains a failure, or the call that reads it. A log that cannot be read is left out.
    fn log(&self, state: CheckState) -> Result<Option<Log>, external::Call> {
        let CheckState::Completed(Conclusion::Failure | Conclusion::TimedOut) = state else {
            return Ok(None);
        };
        let containers = pods::containers(self.pods);
        let Some(failed) = pods::failed_container(&containers) else { return Ok(None) };
        let Some(job) = self.job.found() else { return Ok(None) };
        let namespace = self.cx.object.namespace();
        let logs = Logs {
            pod: Key::new(namespace, &failed.pod),
            container: failed.name.clone(),
            tail_bytes: LOG_TAIL_BYTES,
            mask: job_template::secrets(job.raw()).iter().map(|name| Key::new(namespace, name)).collect(),
        };
        let text = match self.cx.answers.get(&logs) {
            None => return Err(logs.into()),
            Some(answer) => answer.cloned().map_err(|failure| failure.message.clone()),
        };
        Ok(Some((failed.name.clone(), text)))
    }

    fn details_url(&self) -> Option<String> {
        let base = self.dashboard_url?.trim_end_matches('/');
        let namespace = self.cx.object.namespace().unwrap_or_default();
        Some(format!("{base}/workflows/{namespace}/{}", self.cx.object.name()))
    }
}

/// A container, and the end of its log or why it cannot be read.
type Log = (String, Result<String, String>);

/// The state that a check shows for a status.
pub fn state(status: &WorkflowStatus) -> Option<CheckState> {
    status.phase.map(|phase| text::state(phase, reason(status)))
}

/// The status' reason.
pub fn reason(status: &WorkflowStatus) -> Reason {
    let word = status.reason.as_deref().unwrap_or_default();
    Reason::ALL.iter().find(|reason| reason.as_str() == word).copied().unwrap_or(Reason::Unknown)
}

/// The order of states: none is reported after a later one.
fn rank(reported: Option<&str>) -> u8 {
    match reported {
        None | Some("") => 0,
        Some("queued") => 1,
        Some("in_progress") => 2,
        Some(_) => 3,
    }
}
