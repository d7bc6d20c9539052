//! When does the next job of an Installation start by itself?

use jiff::Timestamp;
use pawl_api::deploy::installation::AutomaticReconcile;
use pawl_api::deploy::{InstallationPhase, InstallationStatus};
use pawl_api::meta::Duration;

use super::Facts;
use crate::deploy::cron::Schedule;

/// After a success, where neither an interval nor a schedule is given: as Landscaper does it.
const AFTER_SUCCESS: Duration = Duration::from_hours(24);
/// After a failure: the same.
const AFTER_FAILURE: Duration = Duration::from_mins(5);

/// When, and how often a failure will then have been tried again.
pub(super) fn next(facts: &Facts<'_>, status: &InstallationStatus) -> Option<(Timestamp, Option<i32>)> {
    let AutomaticReconcile { succeeded_reconcile, failed_reconcile } =
        facts.cx.typed.spec.automatic_reconcile.as_ref()?;
    let ended = status.transition_times.as_ref()?.finished_time.as_ref()?.0;
    match status.phase? {
        // Nobody takes down what is there but a job that was asked to.
        InstallationPhase::Succeeded if !facts.cx.object.is_deleting() => {
            let wanted = succeeded_reconcile.as_ref()?;
            Some((due(ended, wanted.interval, wanted.cron_spec.as_deref(), AFTER_SUCCESS)?, None))
        }
        InstallationPhase::Failed | InstallationPhase::DeleteFailed => {
            let wanted = failed_reconcile.as_ref()?;
            // Another spec is another failure. A deletion moves the generation too, and changes no spec.
            let changed = !facts.cx.object.is_deleting()
                && facts.cx.object.meta().generation != status.observed_generation;
            let tried = status.automatic_retries.filter(|_| !changed).unwrap_or_default();
            if wanted.number_of_reconciles.is_some_and(|limit| tried >= limit) {
                return None;
            }
            let due = due(ended, wanted.interval, wanted.cron_spec.as_deref(), AFTER_FAILURE)?;
            Some((due, Some(tried.saturating_add(1))))
        }
        InstallationPhase::Succeeded
        | InstallationPhase::Init
        | InstallationPhase::CleanupOrphaned
        | InstallationPhase::ObjectsCreated
        | InstallationPhase::Progressing
        | InstallationPhase::Completing
        | InstallationPhase::InitDelete
        | InstallationPhase::TriggerDelete
        | InstallationPhase::Deleting => None,
    }
}

/// The earlier of both, where both are given. A schedule that cannot be read is none.
fn due(
    ended: Timestamp,
    interval: Option<Duration>,
    cron: Option<&str>,
    otherwise: Duration,
) -> Option<Timestamp> {
    let interval = interval.or(cron.is_none().then_some(otherwise));
    let interval = interval.and_then(|interval| ended.checked_add(interval.get()).ok());
    let cron = cron.and_then(|text| Schedule::parse(text).ok()).and_then(|schedule| schedule.after(ended));
    interval.into_iter().chain(cron).min()
}

/// What is wrong with a schedule, told before it is waited for in vain.
pub(super) fn bad_schedule(facts: &Facts<'_>) -> Option<String> {
    let automatic = facts.cx.typed.spec.automatic_reconcile.as_ref()?;
    let succeeded = automatic.succeeded_reconcile.as_ref().and_then(|one| one.cron_spec.as_deref());
    let failed = automatic.failed_reconcile.as_ref().and_then(|one| one.cron_spec.as_deref());
    let bad = |(field, text): (&str, &str)| {
        let problem = Schedule::parse(text).err()?;
        Some(format!("spec.automaticReconcile.{field}.cronSpec: {problem}"))
    };
    let all = [("succeededReconcile", succeeded), ("failedReconcile", failed)];
    all.into_iter().filter_map(|(field, text)| Some((field, text?))).find_map(bad)
}
