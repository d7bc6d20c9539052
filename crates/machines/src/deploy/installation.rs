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

use pawl_api::deploy::installation::KIND;
use pawl_api::deploy::{
    FINALIZER, Installation, InstallationPhase, InstallationStatus, annotations, conditions, data_object,
    execution, labels, target,
};
use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::reference::NamedRef;
use pawl_api::meta::{NewCondition, Reason, condition, names};
use serde_json::json;

use super::graph::{self, Direction, Next};
use super::job::{self, Begin, Jobs, Parent};
use super::report::Report;
use crate::audit::{self, Entry, Teller};
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Object, Reference};
use crate::plan::{Note, Part, Plan, Precondition, Step};
use crate::view::{Context, View};

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
struct Facts<'a> {
    cx: &'a Context<'a, Installation>,
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
}

impl Machine for Installations {
    type Kind = Installation;
    type Status = InstallationStatus;

    fn description(&self) -> Description {
        Description {
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
            writes: vec![
                Write::main(KIND, &["create", "delete", "patch"]),
                Write::status(KIND),
                Write::finalizers(KIND),
                Write::main(execution::KIND, &["create", "delete", "patch"]),
                Write::status(execution::KIND),
                Write::main(data_object::KIND, &["create", "delete", "patch"]),
                Write::main(target::KIND, &["create", "delete", "patch"]),
            ],
            ..Description::new("installation", KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, installation: &Installation) -> Option<Vec<Entry>> {
        Some(audit::deploy::installation(tell, installation.status.as_ref()))
    }

    fn reconcile(&self, cx: &Context<'_, Installation>) -> Plan<InstallationStatus> {
        match lifecycle::of(cx.object, FINALIZER) {
            Lifecycle::Add => Plan::step(Step::add_finalizer(FINALIZER)),
            Lifecycle::Run | Lifecycle::CleanUp => run(&self.facts(cx)),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl Installations {
    fn facts<'a>(&self, cx: &'a Context<'a, Installation>) -> Facts<'a> {
        use InstallationPhase as P;
        let (view, me, installation) = (cx.view, cx.object, cx.typed);
        let phase = installation.status.as_ref().and_then(|status| status.phase);
        let making = matches!(phase, Some(P::Init | P::CleanupOrphaned));
        let completing = phase == Some(P::Completing);
        let parent = Parent::of(view, me, &KIND);
        let root = parent == Parent::None;
        let family = family::read(view, me);
        let read_imports = || scope::read(view, me, &installation.spec.imports);
        let read_exports = || exports::read(view, me, installation, &family);
        let look_beside = || siblings::exporters(view, me, installation);
        let look_for_importers = || siblings::importers(view, me, installation);
        Facts {
            depth: if making { scope::depth(view, me) } else { 0 },
            imported: (making || completing).then(read_imports).unwrap_or_default(),
            exported: completing.then(read_exports).unwrap_or_default(),
            beside: (root && phase == Some(P::Init)).then(look_beside).unwrap_or_default(),
            importers: (root && phase == Some(P::InitDelete)).then(look_for_importers).unwrap_or_default(),
            parent,
            family,
            cx,
        }
    }
}

type Told<'a> = Report<'a, InstallationStatus>;

fn run(facts: &Facts<'_>) -> Plan<InstallationStatus> {
    let status = facts.cx.typed.status.clone().unwrap_or_default();
    let jobs = Jobs::of(&status.job_id, &status.job_id_finished);
    if let Some(step) = job::interrupt(facts.cx.object, jobs) {
        return Plan::step(step);
    }
    let Some(job) = jobs.running().map(str::to_owned) else { return begin(facts, &status, jobs) };
    let is_interrupted = job::is_interrupted(facts.cx.object, jobs);
    let phase = status.phase;
    let report = Report::of(facts.cx.object, status, job, facts.cx.now);
    use InstallationPhase as P;
    match phase {
        None | Some(P::Succeeded | P::Failed | P::DeleteFailed) => report.starts(),
        Some(_) if is_interrupted => interrupt(facts, report),
        Some(P::Init | P::CleanupOrphaned) => init(facts, report),
        Some(P::ObjectsCreated) => hand_over(facts, report, Direction::Build),
        Some(P::Progressing) => progress(facts, report),
        Some(P::Completing) => complete(facts, report),
        Some(P::InitDelete) => init_delete(facts, report),
        Some(P::TriggerDelete) => hand_over(facts, report, Direction::TakeDown),
        Some(P::Deleting) => delete(facts, report),
    }
}

/// No job runs: is one to start, or will one start by itself?
fn begin(facts: &Facts<'_>, status: &InstallationStatus, jobs: Jobs<'_>) -> Plan<InstallationStatus> {
    let removed = status.phase == Some(InstallationPhase::DeleteFailed);
    let starts = |job: String| Report::of(facts.cx.object, status.clone(), job, facts.cx.now).starts();
    let begin = job::begin(facts.cx.object, &facts.parent, jobs, status.observed_generation, removed);
    if begin != Begin::Rest || facts.parent != Parent::None {
        return begin.plan(starts);
    }
    match by_itself::next(facts, status) {
        Some((at, _)) if at > facts.cx.now => Plan::rest().wake_at(at),
        Some((_, tried)) => {
            let mut plan = starts(job::id(facts.cx.object, jobs, "automatic"));
            if let Some(status) = &mut plan.status {
                status.automatic_retries = tried;
            }
            plan
        }
        None => Plan::rest(),
    }
}

/// The Execution and the sub-Installations are made as the blueprint says; what it does not say any more goes.
fn init(facts: &Facts<'_>, mut report: Told<'_>) -> Plan<InstallationStatus> {
    report.status.observed_generation = facts.cx.object.meta().generation;
    if let Some(refusal) = facts.cx.refusals.first() {
        return report.fails("Init", job::refused(&refusal.failure), refusal.failure.to_string());
    }
    if let Some(problem) = by_itself::bad_schedule(facts) {
        return report.fails("Init", Reason::ValidationFailed, problem);
    }
    if let Some(circle) = &facts.beside.circle {
        let message = format!("the imports go in a circle: {circle}");
        return report.fails("Init", Reason::DependencyCycle, message);
    }
    if !facts.beside.at_work.is_empty() {
        // They export what is imported here: their job comes first.
        return Plan::rest();
    }
    let wanted = match making::render(facts) {
        Ok(wanted) => wanted,
        Err((reason, mut message)) => {
            if reason == Reason::ImportMissing && !facts.beside.owing.is_empty() {
                let owing: Vec<&str> = facts.beside.owing.iter().map(String::as_str).collect();
                message.push_str(&format!("; exported by {}, not yet with success", listed(&owing)));
            }
            return report.fails("Init", reason, message);
        }
    };
    let making::Making { steps, leaving } = wanted.making(facts);
    if !steps.is_empty() {
        // What is made may turn out to be there already, and not as it should be: the next look sees.
        return Plan { steps, ..Plan::rest() };
    }
    if !leaving.is_empty() {
        return clean_up(facts, report, &leaving);
    }
    report.status.execution_ref = Some(NamedRef { name: facts.cx.object.name().to_owned(), namespace: None });
    report.status.installation_refs = wanted.refs();
    let note = warns(facts, &mut report, &wanted.ignored);
    let mut plan =
        report.moves(InstallationPhase::ObjectsCreated, Reason::Progressing, "the blueprint is rendered");
    plan.notes.extend(note);
    plan
}

/// Says which keys nobody reads.
fn warns(facts: &Facts<'_>, report: &mut Told<'_>, ignored: &[String]) -> Option<Note> {
    let conditions = &mut report.status.conditions;
    if ignored.is_empty() {
        condition::remove(conditions, conditions::KEYS_IGNORED);
        return None;
    }
    let message = ignored.join("; ");
    let new = NewCondition::yes(conditions::KEYS_IGNORED, Reason::KeysIgnored, &message);
    condition::set(conditions, new, facts.cx.object.meta().generation, report.now);
    Some(Note::warning(Reason::KeysIgnored, message).once(report.job.clone()))
}

/// Takes down what is not wanted any more, or in the way of what is to be made anew.
fn clean_up(facts: &Facts<'_>, report: Told<'_>, leaving: &[&Member]) -> Plan<InstallationStatus> {
    if report.status.phase == Some(InstallationPhase::Init) {
        let message = format!("{} of its objects have to go first", leaving.len());
        return report.moves(InstallationPhase::CleanupOrphaned, Reason::Progressing, message);
    }
    let side = Side::leaving(leaving.iter().copied(), &report.job);
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        Next::Trigger(those) | Next::Stuck(those) => trigger(facts, &report, &side, &those),
        Next::Failed(those) => {
            let (_, message) = side.told(&those);
            report.fails("CleanupOrphaned", Reason::OrphanDeleteFailed, message)
        }
        Next::Wait | Next::Done => Plan::rest(),
    }
}

/// Hands the job's ID to those that wait for nobody; the next phase sees to the rest.
fn hand_over(facts: &Facts<'_>, report: Told<'_>, direction: Direction) -> Plan<InstallationStatus> {
    let (side, then) = match direction {
        Direction::Build => (
            Side::building(facts, &report.status.installation_refs, &report.job),
            InstallationPhase::Progressing,
        ),
        Direction::TakeDown => {
            (Side::leaving(facts.family.members(), &report.job), InstallationPhase::Deleting)
        }
    };
    match graph::next(&side.graph, direction, &side.standing) {
        Next::Trigger(those) => trigger(facts, &report, &side, &those),
        Next::Done | Next::Wait | Next::Failed(_) | Next::Stuck(_) => {
            report.moves(then, Reason::JobStarted, "the first have the job")
        }
    }
}

fn progress(facts: &Facts<'_>, report: Told<'_>) -> Plan<InstallationStatus> {
    let refs = report.status.installation_refs.clone();
    let side = Side::building(facts, &refs, &report.job);
    match graph::next(&side.graph, Direction::Build, &side.standing) {
        Next::Done => {
            let message = match refs.len() {
                0 => "the Execution succeeded".to_owned(),
                some => format!("the Execution and {some} sub-Installations succeeded"),
            };
            report.moves(InstallationPhase::Completing, Reason::Completed, message)
        }
        Next::Wait => Plan::rest(),
        Next::Trigger(those) => trigger(facts, &report, &side, &those),
        Next::Failed(those) => {
            let (reason, message) = side.told(&those);
            let mut plan = report.fails("Progressing", reason, message);
            plan.steps.extend(side.missing(facts, &refs));
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
    facts: &Facts<'_>,
    report: &Told<'_>,
    side: &Side<'_>,
    those: &[usize],
) -> Plan<InstallationStatus> {
    let mut plan = Plan::rest();
    // Another replica may have ended this job: what seemed free then must not start now. An Execution alone is the
    // first thing that a job starts.
    if side.standing.len() > 1 {
        plan.steps.push(Step::confirm_unchanged(facts.cx.object));
    }
    let members = those.iter().filter_map(|at| side.get(*at));
    plan.steps.extend(members.map(|member| give_job(&member.object, &report.job)));
    plan
}

/// What was exported becomes objects that others may import.
fn complete(facts: &Facts<'_>, report: Told<'_>) -> Plan<InstallationStatus> {
    if let Some(refusal) = facts.cx.refusals.first() {
        return report.fails("Completing", Reason::OwnershipMismatch, refusal.failure.to_string());
    }
    let steps = match exports::steps(facts) {
        Ok(steps) => steps,
        Err((reason, message)) => {
            let mut plan = report.fails("Completing", reason, message);
            // A cache that has not seen it yet is no proof that it is missing.
            plan.steps.extend(facts.exported.absent.clone().map(Step::confirm_gone));
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

fn init_delete(facts: &Facts<'_>, report: Told<'_>) -> Plan<InstallationStatus> {
    if !facts.importers.is_empty() {
        return held_by_importers(facts, report);
    }
    let only_objects = annotations::DELETE_WITHOUT_UNINSTALL;
    let wish = facts.cx.object.annotation(only_objects);
    let unaware = |member: &&Member| wish.is_some() && member.object.annotation(only_objects) != wish;
    let tell = |member: &Member| {
        patch(&member.object, json!({"metadata": {"annotations": {only_objects: wish}}}), Part::Main)
    };
    let steps: Vec<Step> = facts.family.members().filter(unaware).map(tell).collect();
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    let staying = facts.family.members().filter(|member| !member.object.is_deleting());
    let steps: Vec<Step> = staying.map(remove).collect();
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    let message = format!("{} objects are to be taken down", facts.family.members().count());
    report.moves(InstallationPhase::TriggerDelete, Reason::Deleting, message)
}

/// Refused, visibly, while somebody imports what is exported here. It goes on by itself when they are gone: a namespace
/// that is deleted as a whole asks nobody to try again (I5).
fn held_by_importers(facts: &Facts<'_>, mut report: Told<'_>) -> Plan<InstallationStatus> {
    let plan = Plan::rest();
    let staying = facts.importers.iter().filter(|importer| !importer.is_deleting);
    let staying: Vec<&str> = staying.map(|importer| importer.key.name.as_str()).collect();
    if staying.is_empty() {
        return plan;
    }
    let message = format!("not deleted while {} import what it exports", listed(&staying));
    let note = Note::warning(Reason::SiblingImports, &message).once(report.job.clone());
    let condition = NewCondition::unknown(conditions::SUCCEEDED, Reason::SiblingImports, &message);
    condition::set(&mut report.status.conditions, condition, facts.cx.object.meta().generation, report.now);
    let said = report.status.last_error.take().filter(|error| error.message == message);
    report.status.last_error =
        said.or_else(|| Some(job::error("InitDelete", Reason::SiblingImports, &message, None, report.now)));
    plan.status(report.status).note(note)
}

fn delete(facts: &Facts<'_>, report: Told<'_>) -> Plan<InstallationStatus> {
    // Made by a replica that lags: it goes like the others.
    let late = facts.family.members().filter(|member| !member.object.is_deleting());
    let steps: Vec<Step> = late.map(remove).collect();
    if !steps.is_empty() {
        return Plan { steps, ..Plan::rest() };
    }
    let side = Side::leaving(facts.family.members(), &report.job);
    match graph::next(&side.graph, Direction::TakeDown, &side.standing) {
        Next::Done => gone(facts),
        Next::Wait => Plan::rest(),
        Next::Trigger(those) => trigger(facts, &report, &side, &those),
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
            trigger(facts, &report, &side, &those).note(note)
        }
    }
}

/// Nothing is left, as far as one can see; the server is asked whether that is so.
fn gone(facts: &Facts<'_>) -> Plan<InstallationStatus> {
    let execution = Reference { kind: execution::KIND, key: facts.cx.object.key(), uid: String::new() };
    Plan::step(Step::confirm_gone(execution))
        .then(Step::Confirm(Precondition::NoneLabelled {
            kind: KIND,
            namespace: facts.cx.object.namespace().map(str::to_owned),
            label: labels::ENCOMPASSED_BY,
            value: names::label_value(facts.cx.object.name()),
        }))
        .then(Step::remove_finalizer(FINALIZER))
        .note(Note::normal(Reason::Uninstalled, format!("Installation {} is gone", facts.cx.object.key())))
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
fn interrupt(facts: &Facts<'_>, report: Told<'_>) -> Plan<InstallationStatus> {
    let running: Vec<&Member> =
        facts.family.members().filter(|member| member.jobs().running() == Some(&report.job)).collect();
    if running.is_empty() {
        let message = "the job was interrupted; what had not finished was given up";
        return report.fails("Interrupt", Reason::Interrupted, message);
    }
    let steps = running.iter().filter_map(|member| member.interrupt(&report.job)).collect();
    Plan { steps, ..Plan::rest() }
}

#[cfg(test)]
mod tests;
