//! What is the next thing to do for an Installation: a blueprint, its imports, and what came of it?
//!
//! ```text
//! job ─▶ Init: the blueprint is rendered to one Execution of the same name
//!        ObjectsCreated: the Execution gets the job's ID     Progressing: it runs
//!        Completing: what it exported becomes DataObjects and Targets ─▶ Succeeded
//! job, and being deleted ─▶ InitDelete: the Execution is deleted    TriggerDelete: it gets the job's ID
//!        Deleting: it takes everything down ─▶ gone
//! ```
//! It is the root of its tree: jobs start here (job.rs), by annotation, by a new generation where that was asked for, by
//! deletion, and by themselves some time after the last one ended.

mod imports;
mod rendering;
mod report;

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::deploy::installation::KIND;
use pawl_api::deploy::{
    ExecutionPhase, ExecutionStatus, FINALIZER, Installation, InstallationPhase, InstallationStatus,
    annotations, data_object, execution, operations, target,
};
use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::Reason;
use pawl_api::meta::phase::Table;
use pawl_api::meta::reference::NamedRef;
use serde::Deserialize;
use serde_json::{Value, json};

use super::job::{self, Begin, Jobs, Parent};
use crate::apply::difference;
use crate::audit::{self, Entry, Teller};
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Object, Reference};
use crate::plan::{Adopt, Note, Part, Plan, Propagation, Refusal, Step, Waiting};
use crate::view::{Input, View};

use imports::Imported;
use rendering::Exported;
use report::Report;

/// Runs Installations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Installations;

/// An Installation and all that its next step depends on.
#[derive(Debug)]
pub struct Observed {
    me: Arc<Object>,
    installation: Arc<Installation>,
    parent: Parent,
    execution: Option<Arc<Object>>,
    /// What the Execution says of itself.
    ran: ExecutionStatus,
    imported: Vec<Imported>,
    exported: Exported,
    /// Installations beside it that import what this one exports.
    importers: Vec<String>,
    refusals: Vec<Refusal>,
}

impl Machine for Installations {
    type Kind = Installation;
    type Observed = Observed;
    type Status = InstallationStatus;

    fn description(&self) -> Description {
        Description {
            name: "installation",
            primary: Primary::One(KIND),
            depth: Depth::Full,
            watches: vec![
                Watch::owned(execution::KIND),
                // What it exports is its own; what it imports is looked at when a job starts.
                Watch::owned(data_object::KIND),
                Watch::owned(target::KIND),
                Watch::other(SECRET, |_, _| Vec::new()),
                Watch::other(CONFIG_MAP, |_, _| Vec::new()),
            ],
            finalizer: Some(FINALIZER),
            phases: Some(Table::of::<InstallationPhase>(KIND, ["status", "phase"])),
            writes: vec![
                Write::main(KIND, &["patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(execution::KIND, &["create", "delete", "patch"]),
                Write::status(execution::KIND),
                Write::main(data_object::KIND, &["create", "patch"]),
                Write::main(target::KIND, &["create", "patch"]),
            ],
        }
    }

    fn audit(&self, tell: &Teller<'_>, installation: &Installation) -> Option<Vec<Entry>> {
        Some(audit::deploy::installation(tell, installation.status.as_ref()))
    }

    fn observe(&self, input: &Input<'_>, installation: &Arc<Installation>) -> Observed {
        let (view, me) = (input.view, Arc::clone(input.me));
        let execution = view.get(&execution::KIND, &me.key());
        let ours = execution.filter(|found| found.controller().is_some_and(|owner| owner.uid == me.uid()));
        let ran = ours.as_ref().map(|found| ExecutionStatus::deserialize(found.status()).unwrap_or_default());
        let ran = ran.unwrap_or_default();
        Observed {
            parent: Parent::of(view, &me, &KIND),
            imported: imports::read(view, &me, &installation.spec.imports),
            exported: rendering::read_exports(view, &me, &installation.spec.exports, &ran),
            importers: importers(view, &me, installation),
            refusals: input.refusals.to_vec(),
            installation: Arc::clone(installation),
            execution: ours,
            ran,
            me,
        }
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan<InstallationStatus> {
        match lifecycle::of(&observed.me, FINALIZER) {
            Lifecycle::Add => Plan::step(Step::AddFinalizer(FINALIZER.to_owned())),
            Lifecycle::Run | Lifecycle::CleanUp => run(observed, now),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

fn run(observed: &Observed, now: Timestamp) -> Plan<InstallationStatus> {
    let status = observed.installation.status.clone().unwrap_or_default();
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    if let Some(step) = job::interrupt(&observed.me, jobs) {
        return Plan::step(step);
    }
    let Some(job) = jobs.running().map(str::to_owned) else { return begin(observed, &status, jobs, now) };
    let report = Report::of(observed, job, now);
    if let Some(step) = hand_interrupt(observed, jobs) {
        return Plan::step(step);
    }
    use InstallationPhase as P;
    match status.phase {
        None | Some(P::Succeeded | P::Failed | P::DeleteFailed) => report.starts(),
        Some(P::Init | P::CleanupOrphaned) => init(observed, report),
        Some(P::ObjectsCreated) => hand_over(observed, report, P::Progressing),
        Some(P::Progressing) => progress(observed, report),
        Some(P::Completing) => complete(observed, report),
        Some(P::InitDelete) => init_delete(observed, report),
        Some(P::TriggerDelete) => hand_over(observed, report, P::Deleting),
        Some(P::Deleting) => delete(observed, report),
    }
}

/// No job runs: is one to start, or will one start by itself?
fn begin(
    observed: &Observed,
    status: &InstallationStatus,
    jobs: Jobs<'_>,
    now: Timestamp,
) -> Plan<InstallationStatus> {
    let removed = status.phase == Some(InstallationPhase::DeleteFailed);
    match job::begin(&observed.me, &observed.parent, jobs, status.observed_generation, removed) {
        Begin::Steps(steps) => Plan { steps, ..Plan::rest() },
        Begin::Refuse(step, note) => Plan::step(step).note(note),
        Begin::Job(job, steps) => Plan { steps, ..Report::of(observed, job, now).starts() },
        Begin::Rest if observed.parent != Parent::None => Plan::rest(),
        Begin::Rest => match report::by_itself(observed, status) {
            Some((at, _)) if at > now => Plan::rest().wake_at(at),
            Some((_, tried)) => {
                let mut report = Report::of(observed, job::id(&observed.me, jobs, "automatic"), now);
                report.status.automatic_retries = tried;
                report.starts()
            }
            None => Plan::rest(),
        },
    }
}

/// The Execution is made as the blueprint says.
fn init(observed: &Observed, mut report: Report<'_>) -> Plan<InstallationStatus> {
    report.status.observed_generation = observed.me.meta().generation;
    if let Some(refusal) = observed.refusals.first() {
        let reason = match refusal.failure.reason.as_str() {
            "OwnershipMismatch" => Reason::OwnershipMismatch,
            _ => Reason::ValidationFailed,
        };
        return report.fails("Init", reason, refusal.failure.to_string());
    }
    if let Some(problem) = report::bad_schedule(observed) {
        return report.fails("Init", Reason::ValidationFailed, problem);
    }
    let spec = match rendering::render(&observed.installation.spec, &observed.imported) {
        Ok(spec) => spec,
        Err((reason, message)) => return report.fails("Init", reason, message),
    };
    let step = match &observed.execution {
        None => Some(Step::Create {
            kind: execution::KIND,
            manifest: json!({
                "metadata": {"name": observed.me.name(), "namespace": observed.me.namespace(),
                    "finalizers": [FINALIZER], "ownerReferences": [observed.me.controller_reference()]},
                "spec": spec,
            }),
            adopt: Adopt::ControlledBy(observed.me.uid().to_owned()),
        }),
        // Somebody deleted it: it goes with this job, and the next look makes it anew.
        Some(found) if found.is_deleting() => return replace(observed, report, found),
        Some(found) => difference(found.raw().get("spec").unwrap_or(&Value::Null), &spec)
            .map(|changes| patch(found, json!({"spec": changes}), Part::Main)),
    };
    if let Some(step) = step {
        return Plan::step(step);
    }
    report.status.execution_ref = Some(NamedRef { name: observed.me.name().to_owned(), namespace: None });
    report.moves(InstallationPhase::ObjectsCreated, Reason::Progressing, "the blueprint is rendered")
}

fn replace(observed: &Observed, report: Report<'_>, found: &Arc<Object>) -> Plan<InstallationStatus> {
    let jobs = Jobs::of(&observed.ran.job_id, &observed.ran.job_id_finished);
    let waiting = awaits(found, "it is gone");
    if jobs.running().is_some() {
        return Plan::rest().waiting(waiting);
    }
    if observed.ran.job_id.as_deref() == Some(&report.job) {
        let message = observed.ran.last_error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
        return report.fails("Init", Reason::ExecutionFailed, message);
    }
    Plan::step(give_job(found, &report.job)).waiting(waiting)
}

/// Hands the job's ID to the Execution, when it is free for it.
fn hand_over(observed: &Observed, report: Report<'_>, then: InstallationPhase) -> Plan<InstallationStatus> {
    let Some(found) = &observed.execution else {
        // Nothing is there to hand it to; the next phase sees what that means.
        return report.moves(then, Reason::Progressing, "the Execution is gone");
    };
    let jobs = Jobs::of(&observed.ran.job_id, &observed.ran.job_id_finished);
    if observed.ran.job_id.as_deref() == Some(&report.job) {
        return report.moves(then, Reason::JobStarted, "the Execution has the job");
    }
    if jobs.running().is_some() {
        return Plan::rest().waiting(awaits(found, "its job is finished"));
    }
    Plan::step(give_job(found, &report.job))
}

fn progress(observed: &Observed, report: Report<'_>) -> Plan<InstallationStatus> {
    let Some(found) = &observed.execution else {
        let mut plan = report.fails("Progressing", Reason::ExecutionFailed, "the Execution is gone");
        plan.steps.push(Step::ConfirmGone(execution_of(observed)));
        return plan;
    };
    let finished = observed.ran.job_id_finished.as_deref() == Some(&report.job);
    match observed.ran.phase {
        Some(ExecutionPhase::Succeeded) if finished => {
            report.moves(InstallationPhase::Completing, Reason::Completed, "the Execution succeeded")
        }
        _ if finished => {
            let (reason, message) = report::why(&observed.ran);
            report.fails("Progressing", reason, message)
        }
        _ => Plan::rest().waiting(awaits(found, "its job is finished")),
    }
}

/// What was exported becomes objects that others may import.
fn complete(observed: &Observed, mut report: Report<'_>) -> Plan<InstallationStatus> {
    if let Some(refusal) = observed.refusals.first() {
        return report.fails("Completing", Reason::OwnershipMismatch, refusal.failure.to_string());
    }
    let steps = match rendering::export(observed) {
        Ok(steps) => steps,
        Err((reason, message)) => {
            let mut plan = report.fails("Completing", reason, message);
            // A cache that has not seen it yet is no proof that it is missing.
            plan.steps.extend(observed.exported.absent.clone().map(Step::ConfirmGone));
            return plan;
        }
    };
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    report.status.automatic_retries = None;
    report.moves(InstallationPhase::Succeeded, Reason::JobFinished, "the job succeeded")
}

fn init_delete(observed: &Observed, report: Report<'_>) -> Plan<InstallationStatus> {
    if !observed.importers.is_empty() {
        let message = format!("{} import what it exports", observed.importers.join(", "));
        return report.fails("InitDelete", Reason::SiblingImports, message);
    }
    let Some(found) = &observed.execution else {
        return report.moves(InstallationPhase::TriggerDelete, Reason::Deleting, "there is no Execution");
    };
    let only_objects = annotations::DELETE_WITHOUT_UNINSTALL;
    if observed.me.annotation(only_objects).is_some()
        && found.annotation(only_objects) != observed.me.annotation(only_objects)
    {
        let wish = observed.me.annotation(only_objects);
        return Plan::step(patch(
            found,
            json!({"metadata": {"annotations": {only_objects: wish}}}),
            Part::Main,
        ));
    }
    if !found.is_deleting() {
        return Plan::step(Step::Delete {
            target: found.reference(),
            resource_version: None,
            propagation: Propagation::Background,
            only_if_gone: vec![],
        });
    }
    report.moves(InstallationPhase::TriggerDelete, Reason::Deleting, "the Execution is being deleted")
}

fn delete(observed: &Observed, report: Report<'_>) -> Plan<InstallationStatus> {
    let Some(found) = &observed.execution else {
        return Plan::step(Step::ConfirmGone(execution_of(observed)))
            .then(Step::RemoveFinalizer(FINALIZER.to_owned()))
            .note(Note::normal(Reason::Uninstalled, format!("Installation {} is gone", observed.me.key())));
    };
    if observed.ran.job_id_finished.as_deref() == Some(&report.job) {
        let (_, message) = report::why(&observed.ran);
        return report.fails("Deleting", Reason::DeleteFailed, message);
    }
    // One that appeared only now: what it was given before was another job.
    if observed.ran.job_id.as_deref() != Some(&report.job) {
        return hand_over(observed, report, InstallationPhase::Deleting);
    }
    Plan::rest().waiting(awaits(found, "it is gone"))
}

/// An interrupted job is interrupted where it runs.
fn hand_interrupt(observed: &Observed, jobs: Jobs<'_>) -> Option<Step> {
    let found = observed.execution.as_ref().filter(|_| job::is_interrupted(&observed.me, jobs))?;
    let theirs = Jobs::of(&observed.ran.job_id, &observed.ran.job_id_finished);
    let open = theirs.running() == jobs.running() && !job::is_interrupted(found, theirs);
    let asked = found.annotation(annotations::OPERATION) == Some(operations::INTERRUPT);
    (open && !asked).then(|| {
        let wish = json!({"metadata": {"annotations": {annotations::OPERATION: operations::INTERRUPT}}});
        patch(found, wish, Part::Main)
    })
}

fn give_job(found: &Arc<Object>, job: &str) -> Step {
    patch(found, json!({"status": {"jobID": job}}), Part::Status)
}

fn patch(found: &Arc<Object>, patch: Value, part: Part) -> Step {
    Step::Patch {
        target: found.reference(),
        resource_version: Some(found.resource_version().to_owned()),
        patch,
        part,
    }
}

fn awaits(found: &Object, until: &str) -> Waiting {
    Waiting::Object { kind: execution::KIND, key: found.key(), until: until.to_owned() }
}

fn execution_of(observed: &Observed) -> Reference {
    Reference { kind: execution::KIND, key: observed.me.key(), uid: String::new() }
}

/// Siblings in the same namespace that import what this one exports.
fn importers(view: &dyn View, me: &Object, installation: &Installation) -> Vec<String> {
    let exports = &installation.spec.exports;
    if exports.is_empty() || !me.is_deleting() {
        return Vec::new();
    }
    let imports = |other: &Installation| {
        let data = other.spec.imports.data.iter().filter_map(|import| import.data_ref.as_deref());
        let targets = other.spec.imports.targets.iter().flat_map(|import| {
            import.target.iter().chain(import.targets.iter().flatten()).map(String::as_str)
        });
        let data_exports: Vec<&str> = exports.data.iter().map(|export| export.data_ref.as_str()).collect();
        let target_exports: Vec<&str> = exports.targets.iter().map(|export| export.target.as_str()).collect();
        data.into_iter().any(|name| data_exports.contains(&name))
            || targets.into_iter().any(|name| target_exports.contains(&name))
    };
    let beside = view.list(&KIND, me.namespace());
    let others = beside.iter().filter(|other| other.uid() != me.uid() && !other.is_deleting());
    others
        .filter(|other| other.parse::<Installation>().is_ok_and(|other| imports(&other)))
        .map(|other| other.name().to_owned())
        .collect()
}

#[cfg(test)]
mod tests;
