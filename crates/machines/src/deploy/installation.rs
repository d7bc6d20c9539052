//! What is the next thing to do for an Installation: a blueprint, its imports, and what came of it?
//!
//! ```text
//! job ─▶ Init: the blueprint is rendered to one Execution of the same name, and to sub-Installations
//!        CleanupOrphaned: sub-Installations that are no longer wanted go
//!        ObjectsCreated: those that wait for nobody get the job's ID     Progressing: the others, as their turn comes
//!        Completing: what all of them exported becomes DataObjects and Targets ─▶ Succeeded
//! job, and being deleted ─▶ InitDelete: all of them are deleted    TriggerDelete: the first get the job's ID
//!        Deleting: the others, in reverse, as those that import from them are gone ─▶ gone
//! ```
//! A root starts jobs (job.rs): by annotation, by a new generation where that was asked for, by deletion, and by itself
//! some time after the last one ended (by_itself.rs). A sub-Installation gets them from its parent.

mod by_itself;
mod exports;
mod family;
mod making;
mod scope;
mod siblings;

use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::deploy::installation::KIND;
use pawl_api::deploy::{
    FINALIZER, Installation, InstallationPhase, InstallationStatus, annotations, conditions, data_object,
    execution, labels, target,
};
use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::phase::Table;
use pawl_api::meta::reference::NamedRef;
use pawl_api::meta::{NewCondition, Reason, condition, names};
use serde_json::json;

use super::graph::{self, Direction, Next};
use super::job::{self, Begin, Jobs, Parent};
use super::report::Report;
use crate::audit::{self, Entry, Teller};
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Depth, Description, Machine, Primary, Watch, Write};
use crate::object::{Object, Reference};
use crate::plan::{Note, Part, Plan, Precondition, Refusal, Step};
use crate::view::{Input, View};

use exports::Exported;
use family::{Family, Member, Side, give_job, listed, patch};
use making::remove;
use scope::Imported;
use siblings::{Beside, Importer};

/// Runs Installations.
#[derive(Clone, Copy, Debug)]
pub struct Installations;

/// An Installation and all that its next step depends on.
#[derive(Debug)]
pub struct Observed {
    me: Arc<Object>,
    installation: Arc<Installation>,
    parent: Parent,
    /// How many Installations it is within.
    depth: usize,
    family: Family,
    /// Looked at only where something is rendered.
    imported: Imported,
    /// The same.
    exported: Exported,
    /// Looked at only when a root's job starts.
    beside: Beside,
    /// Looked at only when a root is to be taken down.
    importers: Vec<Importer>,
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
                Watch::owned(KIND),
                Watch::other(KIND, siblings::of_the_sibling),
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
                Write::main(KIND, &["create", "delete", "patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(execution::KIND, &["create", "delete", "patch"]),
                Write::status(execution::KIND),
                Write::main(data_object::KIND, &["create", "delete", "patch"]),
                Write::main(target::KIND, &["create", "delete", "patch"]),
            ],
        }
    }

    fn audit(&self, tell: &Teller<'_>, installation: &Installation) -> Option<Vec<Entry>> {
        Some(audit::deploy::installation(tell, installation.status.as_ref()))
    }

    fn observe(&self, input: &Input<'_>, installation: &Arc<Installation>) -> Observed {
        use InstallationPhase as P;
        let (view, me) = (input.view, Arc::clone(input.me));
        let phase = installation.status.as_ref().and_then(|status| status.phase);
        let making = matches!(phase, Some(P::Init | P::CleanupOrphaned));
        let completing = phase == Some(P::Completing);
        let parent = Parent::of(view, &me, &KIND);
        let root = parent == Parent::None;
        let family = family::read(view, &me);
        let read_imports = || scope::read(view, &me, &installation.spec.imports);
        let read_exports = || exports::read(view, &me, installation, &family);
        let look_beside = || siblings::exporters(view, &me, installation);
        let look_for_importers = || siblings::importers(view, &me, installation);
        Observed {
            depth: if making { scope::depth(view, &me) } else { 0 },
            imported: (making || completing).then(read_imports).unwrap_or_default(),
            exported: completing.then(read_exports).unwrap_or_default(),
            beside: (root && phase == Some(P::Init)).then(look_beside).unwrap_or_default(),
            importers: (root && phase == Some(P::InitDelete)).then(look_for_importers).unwrap_or_default(),
            refusals: input.refusals.to_vec(),
            installation: Arc::clone(installation),
            parent,
            family,
            me,
        }
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan<InstallationStatus> {
        match lifecycle::of(&observed.me, FINALIZER) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(FINALIZER)),
            Lifecycle::Run | Lifecycle::CleanUp => run(observed, now),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

type Told<'a> = Report<'a, InstallationStatus>;

fn run(observed: &Observed, now: Timestamp) -> Plan<InstallationStatus> {
    let status = observed.installation.status.clone().unwrap_or_default();
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    if let Some(step) = job::interrupt(&observed.me, jobs) {
        return Plan::step(step);
    }
    let Some(job) = jobs.running().map(str::to_owned) else { return begin(observed, &status, jobs, now) };
    let is_interrupted = job::is_interrupted(&observed.me, jobs);
    let phase = status.phase;
    let report = Report::of(&observed.me, status, job, now);
    use InstallationPhase as P;
    match phase {
        None | Some(P::Succeeded | P::Failed | P::DeleteFailed) => report.starts(),
        Some(_) if is_interrupted => interrupt(observed, report),
        Some(P::Init | P::CleanupOrphaned) => init(observed, report),
        Some(P::ObjectsCreated) => hand_over(observed, report, Direction::Build),
        Some(P::Progressing) => progress(observed, report),
        Some(P::Completing) => complete(observed, report),
        Some(P::InitDelete) => init_delete(observed, report),
        Some(P::TriggerDelete) => hand_over(observed, report, Direction::TakeDown),
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
    let starts = |job: String| Report::of(&observed.me, status.clone(), job, now).starts();
    match job::begin(&observed.me, &observed.parent, jobs, status.observed_generation, removed) {
        Begin::Steps(steps) => Plan { steps, ..Plan::rest() },
        Begin::Refuse(step, note) => Plan::step(step).note(note),
        Begin::Job(job, steps) => Plan { steps, ..starts(job) },
        Begin::Rest if observed.parent != Parent::None => Plan::rest(),
        Begin::Rest => match by_itself::next(observed, status) {
            Some((at, _)) if at > now => Plan::rest().wake_at(at),
            Some((_, tried)) => {
                let mut plan = starts(job::id(&observed.me, jobs, "automatic"));
                if let Some(status) = &mut plan.status {
                    status.automatic_retries = tried;
                }
                plan
            }
            None => Plan::rest(),
        },
    }
}

/// The Execution and the sub-Installations are made as the blueprint says; what it does not say any more goes.
fn init(observed: &Observed, mut report: Told<'_>) -> Plan<InstallationStatus> {
    report.status.observed_generation = observed.me.meta().generation;
    if let Some(refusal) = observed.refusals.first() {
        let reason = match refusal.failure.reason.as_str() {
            "OwnershipMismatch" => Reason::OwnershipMismatch,
            "Forbidden" if refusal.failure.is_quota() => Reason::QuotaExceeded,
            "Forbidden" => Reason::Forbidden,
            _ => Reason::ValidationFailed,
        };
        return report.fails("Init", reason, refusal.failure.to_string());
    }
    if let Some(problem) = by_itself::bad_schedule(observed) {
        return report.fails("Init", Reason::ValidationFailed, problem);
    }
    if let Some(circle) = &observed.beside.circle {
        let message = format!("the imports go in a circle: {circle}");
        return report.fails("Init", Reason::DependencyCycle, message);
    }
    if !observed.beside.at_work.is_empty() {
        // They export what is imported here: their job comes first.
        return Plan::rest();
    }
    let wanted = match making::render(observed) {
        Ok(wanted) => wanted,
        Err((reason, mut message)) => {
            if reason == Reason::ImportMissing && !observed.beside.owing.is_empty() {
                let owing: Vec<&str> = observed.beside.owing.iter().map(String::as_str).collect();
                message.push_str(&format!("; exported by {}, not yet with success", listed(&owing)));
            }
            return report.fails("Init", reason, message);
        }
    };
    let making::Making { steps, leaving } = wanted.making(observed);
    if !steps.is_empty() {
        // What is made may turn out to be there already, and not as it should be: the next look sees.
        return Plan { steps, ..Plan::rest() };
    }
    if !leaving.is_empty() {
        return clean_up(observed, report, &leaving);
    }
    report.status.execution_ref = Some(NamedRef { name: observed.me.name().to_owned(), namespace: None });
    report.status.installation_refs = wanted.refs();
    let note = warns(observed, &mut report, &wanted.ignored);
    let mut plan =
        report.moves(InstallationPhase::ObjectsCreated, Reason::Progressing, "the blueprint is rendered");
    plan.notes.extend(note);
    plan
}

/// Says which keys nobody reads.
fn warns(observed: &Observed, report: &mut Told<'_>, ignored: &[String]) -> Option<Note> {
    let conditions = &mut report.status.conditions;
    if ignored.is_empty() {
        condition::remove(conditions, conditions::KEYS_IGNORED);
        return None;
    }
    let message = ignored.join("; ");
    let new = NewCondition::yes(conditions::KEYS_IGNORED, Reason::KeysIgnored, &message);
    condition::set(conditions, new, observed.me.meta().generation, report.now);
    Some(Note::warning(Reason::KeysIgnored, message).once(report.job.clone()))
}

/// Takes down what is not wanted any more, or in the way of what is to be made anew.
fn clean_up(observed: &Observed, report: Told<'_>, leaving: &[&Member]) -> Plan<InstallationStatus> {
    if report.status.phase == Some(InstallationPhase::Init) {
        let message = format!("{} of its objects have to go first", leaving.len());
        return report.moves(InstallationPhase::CleanupOrphaned, Reason::Progressing, message);
    }
    let side = Side::leaving(leaving.iter().copied(), &report.job);
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        Next::Trigger(those) | Next::Stuck(those) => trigger(observed, &report, &side, &those),
        Next::Failed(those) => {
            let (_, message) = side.told(&those);
            report.fails("CleanupOrphaned", Reason::OrphanDeleteFailed, message)
        }
        Next::Wait | Next::Done => Plan::rest(),
    }
}

/// Hands the job's ID to those that wait for nobody; the next phase sees to the rest.
fn hand_over(observed: &Observed, report: Told<'_>, direction: Direction) -> Plan<InstallationStatus> {
    let (side, then) = match direction {
        Direction::Build => (
            Side::building(observed, &report.status.installation_refs, &report.job),
            InstallationPhase::Progressing,
        ),
        Direction::TakeDown => {
            (Side::leaving(observed.family.members(), &report.job), InstallationPhase::Deleting)
        }
    };
    match graph::next(&side.graph, direction, &side.standing) {
        Next::Trigger(those) => trigger(observed, &report, &side, &those),
        Next::Done | Next::Wait | Next::Failed(_) | Next::Stuck(_) => {
            report.moves(then, Reason::JobStarted, "the first have the job")
        }
    }
}

fn progress(observed: &Observed, report: Told<'_>) -> Plan<InstallationStatus> {
    let refs = report.status.installation_refs.clone();
    let side = Side::building(observed, &refs, &report.job);
    match graph::next(&side.graph, Direction::Build, &side.standing) {
        Next::Done => {
            let message = match refs.len() {
                0 => "the Execution succeeded".to_owned(),
                some => format!("the Execution and {some} sub-Installations succeeded"),
            };
            report.moves(InstallationPhase::Completing, Reason::Completed, message)
        }
        Next::Wait => Plan::rest(),
        Next::Trigger(those) => trigger(observed, &report, &side, &those),
        Next::Failed(those) => {
            let (reason, message) = side.told(&those);
            let mut plan = report.fails("Progressing", reason, message);
            plan.steps.extend(side.missing(observed, &refs));
            plan
        }
        Next::Stuck(those) => {
            let message = format!("nothing runs, but {} wait for each other", side.names(&those));
            report.fails("Progressing", Reason::Stuck, message)
        }
    }
}

/// Hands the job's ID to members whose turn has come.
fn trigger(
    observed: &Observed,
    report: &Told<'_>,
    side: &Side<'_>,
    those: &[usize],
) -> Plan<InstallationStatus> {
    let mut plan = Plan::rest();
    // Another replica may have ended this job: what seemed free then must not start now. An Execution alone is the
    // first thing that a job starts.
    if side.standing.len() > 1 {
        plan.steps.push(Step::confirm_unchanged(&observed.me));
    }
    let members = those.iter().filter_map(|at| side.get(*at));
    plan.steps.extend(members.map(|member| give_job(&member.object, &report.job)));
    plan
}

/// What was exported becomes objects that others may import.
fn complete(observed: &Observed, report: Told<'_>) -> Plan<InstallationStatus> {
    if let Some(refusal) = observed.refusals.first() {
        return report.fails("Completing", Reason::OwnershipMismatch, refusal.failure.to_string());
    }
    let steps = match exports::steps(observed) {
        Ok(steps) => steps,
        Err((reason, message)) => {
            let mut plan = report.fails("Completing", reason, message);
            // A cache that has not seen it yet is no proof that it is missing.
            plan.steps.extend(observed.exported.absent.clone().map(Step::confirm_gone));
            return plan;
        }
    };
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    let mut report = report;
    report.status.automatic_retries = None;
    report.moves(InstallationPhase::Succeeded, Reason::JobFinished, "the job succeeded")
}

fn init_delete(observed: &Observed, report: Told<'_>) -> Plan<InstallationStatus> {
    if !observed.importers.is_empty() {
        return held_by_importers(observed, report);
    }
    let only_objects = annotations::DELETE_WITHOUT_UNINSTALL;
    let wish = observed.me.annotation(only_objects);
    let unaware = |member: &&Member| wish.is_some() && member.object.annotation(only_objects) != wish;
    let tell = |member: &Member| {
        patch(&member.object, json!({"metadata": {"annotations": {only_objects: wish}}}), Part::Main)
    };
    let steps: Vec<Step> = observed.family.members().filter(unaware).map(tell).collect();
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    let staying = observed.family.members().filter(|member| !member.object.is_deleting());
    let steps: Vec<Step> = staying.map(remove).collect();
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    let message = format!("{} objects are to be taken down", observed.family.members().count());
    report.moves(InstallationPhase::TriggerDelete, Reason::Deleting, message)
}

/// Refused, visibly, while somebody imports what is exported here. It goes on by itself when they are gone: a namespace
/// that is deleted as a whole asks nobody to try again (I5).
fn held_by_importers(observed: &Observed, mut report: Told<'_>) -> Plan<InstallationStatus> {
    let plan = Plan::rest();
    let staying = observed.importers.iter().filter(|importer| !importer.is_deleting);
    let staying: Vec<&str> = staying.map(|importer| importer.key.name.as_str()).collect();
    if staying.is_empty() {
        return plan;
    }
    let message = format!("not deleted while {} import what it exports", listed(&staying));
    let note = Note::warning(Reason::SiblingImports, &message).once(report.job.clone());
    let condition = NewCondition::unknown(conditions::SUCCEEDED, Reason::SiblingImports, &message);
    condition::set(&mut report.status.conditions, condition, observed.me.meta().generation, report.now);
    let said = report.status.last_error.take().filter(|error| error.message == message);
    report.status.last_error =
        said.or_else(|| Some(job::error("InitDelete", Reason::SiblingImports, &message, None, report.now)));
    plan.status(report.status).note(note)
}

fn delete(observed: &Observed, report: Told<'_>) -> Plan<InstallationStatus> {
    // Made by a replica that lags: it goes like the others.
    let late = observed.family.members().filter(|member| !member.object.is_deleting());
    let steps: Vec<Step> = late.map(remove).collect();
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    let side = Side::leaving(observed.family.members(), &report.job);
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        Next::Done => gone(observed),
        Next::Wait => Plan::rest(),
        Next::Trigger(those) => trigger(observed, &report, &side, &those),
        Next::Failed(those) => {
            let (reason, message) = side.told(&those);
            let reason = if reason == Reason::Interrupted { reason } else { Reason::DeleteFailed };
            report.fails("Deleting", reason, message)
        }
        // A circle has no end to begin at; but what is to go, goes (I5).
        Next::Stuck(those) => {
            let message =
                format!("{} import from each other in a circle: they go all at once", side.names(&those));
            let note = Note::warning(Reason::Stuck, message).once(report.job.clone());
            trigger(observed, &report, &side, &those).note(note)
        }
    }
}

/// Nothing is left, as far as one can see; the server is asked whether that is so.
fn gone(observed: &Observed) -> Plan<InstallationStatus> {
    let execution = Reference { kind: execution::KIND, key: observed.me.key(), uid: String::new() };
    Plan::step(Step::confirm_gone(execution))
        .then(Step::Confirm(Precondition::NoneLabelled {
            kind: KIND,
            namespace: observed.me.namespace().map(str::to_owned),
            label: labels::ENCOMPASSED_BY,
            value: names::label_value(observed.me.name()),
        }))
        .then(Step::remove_finalizer(FINALIZER))
        .note(Note::normal(Reason::Uninstalled, format!("Installation {} is gone", observed.me.key())))
}

/// For people: which other roots this one waits for.
pub(super) fn waits_for_roots(view: &dyn View, me: &Object) -> Vec<String> {
    let Ok(its) = me.parse::<Installation>() else { return Vec::new() };
    let phase = its.status.as_ref().and_then(|status| status.phase);
    if Parent::of(view, me, &KIND) != Parent::None {
        return Vec::new();
    }
    if phase == Some(InstallationPhase::Init) {
        let at_work = siblings::exporters(view, me, &its).at_work.into_iter();
        return at_work
            .map(|key| format!("Installation {}, which exports what it imports, to finish", key.name))
            .collect();
    }
    if phase == Some(InstallationPhase::InitDelete) {
        let importers = siblings::importers(view, me, &its).into_iter();
        return importers
            .map(|one| format!("Installation {}, which imports from it, to be gone", one.key.name))
            .collect();
    }
    Vec::new()
}

/// An interrupted job is interrupted where it runs; when nothing of it runs any more, it is over.
fn interrupt(observed: &Observed, report: Told<'_>) -> Plan<InstallationStatus> {
    let running: Vec<&Member> =
        observed.family.members().filter(|member| member.jobs().running() == Some(&report.job)).collect();
    if running.is_empty() {
        let message = "the job was interrupted; what had not finished was given up";
        return report.fails("Interrupt", Reason::Interrupted, message);
    }
    let steps = running.iter().filter_map(|member| member.interrupt(&report.job)).collect();
    Plan { steps, ..Plan::rest() }
}

#[cfg(test)]
mod subtests;
#[cfg(test)]
mod tests;
