//! The phase of a Workflow, from its Job's conditions.

use pawl_api::git::{WorkflowPhase, WorkflowStatus};
use pawl_api::meta::Reason;

use crate::cluster::job::followed::Followed;
use crate::git::check_run::workflow::reason;

/// Conditions come before counters: a Job that failed once and tries again has not failed. It is finished with `Complete` or
/// `Failed`, as for [`crate::held_run::is_finished`].
pub(super) fn phase_of(job: &Followed) -> (WorkflowPhase, Reason, String) {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let holds = |type_: &str| conditions.iter().find(|one| one.type_ == type_ && one.status == "True");
    let text = |message: &Option<String>, otherwise: &str| {
        message.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| otherwise.to_owned())
    };
    if let Some(found) = holds("Complete") {
        let message = text(&found.message, "the Job succeeded");
        return (WorkflowPhase::Succeeded, Reason::JobSucceeded, message);
    }
    if let Some(found) = holds("Failed") {
        let reason = match found.reason.as_deref() {
            Some("DeadlineExceeded") => Reason::JobDeadlineExceeded,
            _ => Reason::JobFailed,
        };
        return (WorkflowPhase::Failed, reason, text(&found.message, "the Job failed"));
    }
    // The result is only announced: Pods of the Job may still act on the target.
    if let Some(found) = holds("FailureTarget").or_else(|| holds("SuccessCriteriaMet")) {
        let message = format!("the Job ends when its Pods are gone: {}", text(&found.message, &found.type_));
        return (WorkflowPhase::Running, Reason::Running, message);
    }
    if let Some(found) = holds("Suspended") {
        return (WorkflowPhase::Pending, Reason::Suspended, text(&found.message, "the Job is suspended"));
    }
    if status.active.unwrap_or_default() > 0 {
        return (WorkflowPhase::Running, Reason::Running, "the Job is running".to_owned());
    }
    (WorkflowPhase::Pending, Reason::Pending, "the Job has no running Pod".to_owned())
}

/// Whether a Job that was recorded and started has no Pod yet: the Workflow's status stays as it is.
pub(in crate::git) fn has_not_begun(job: &Followed, status: &WorkflowStatus) -> bool {
    let suspended = job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true));
    let (phase, ..) = phase_of(job);
    phase == WorkflowPhase::Pending && !suspended && reason(status) == Reason::JobCreated
}
