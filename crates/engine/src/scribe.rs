//! What is told to people, and how often? What many say at the same time is told once.
//!
//! ```text
//!  note, may be told together ──▶ gathered for a moment ──▶ of one object: an Event about that object
//!                                                       └─▶ of several: one Event about what they have in common
//! ```
//! A push that makes twenty Jobs is one thing that happened. Events are for people and the work does not wait for them:
//! what was gathered when a process dies is in its log, and in the status of the objects.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pawl_machines::apply;
use pawl_machines::object::Reference;
use pawl_machines::plan::{Note, Severity};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::engine::Core;
use crate::metrics::{MachineLabels, RequestLabels};

/// How long notes are gathered: a commit's Jobs are made within this, and nobody reads faster.
const GATHER: Duration = Duration::from_secs(1);

/// How long the last ones may take when the loop stops.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);

/// Notes that wait to be told.
#[derive(Debug, Default)]
pub(crate) struct Scribe {
    gathered: Mutex<BTreeMap<Said, Vec<Reference>>>,
    some: Notify,
}

/// What several may have to say, and of what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    of: Reference,
    machine: &'static str,
    warning: bool,
    reason: String,
    message: String,
    /// Tells apart occurrences that would read the same.
    once: String,
}

impl Scribe {
    pub(crate) fn gather(&self, machine: &'static str, about: &Reference, note: Note) {
        let Note { severity, reason, message, once, together } = note;
        let warning = severity == Severity::Warning;
        let of = together.unwrap_or_else(|| about.clone());
        let said = Said { of, machine, warning, reason, message, once };
        self.lock().entry(said).or_default().push(about.clone());
        self.some.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Said, Vec<Reference>>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    /// What the Event is about, and what it says.
    fn told(self, mut by: Vec<Reference>) -> (Reference, Note) {
        let note = |message: String| match self.warning {
            true => Note::warning(self.reason.clone(), message).once(self.once.clone()),
            false => Note::normal(self.reason.clone(), message).once(self.once.clone()),
        };
        by.sort();
        by.dedup();
        match by.as_slice() {
            [only] => (only.clone(), note(self.message.clone())),
            all => {
                let names: Vec<&str> = all.iter().map(|about| about.key.name.as_str()).collect();
                let message = format!("{}: {} ({})", self.message, names.join(", "), names.len());
                (self.of.clone(), note(message))
            }
        }
    }
}

impl Core {
    /// Tells what was gathered, for as long as the loop runs.
    pub(crate) async fn write_events(self: Arc<Self>) {
        loop {
            self.scribe.some.notified().await;
            sleep(GATHER).await;
            self.tell_all().await;
        }
    }

    /// Tells what there is now.
    pub(crate) async fn tell_all(&self) {
        let gathered = std::mem::take(&mut *self.scribe.lock());
        for (said, by) in gathered {
            let machine = said.machine;
            let (about, note) = said.told(by);
            // Whoever no longer leads says nothing more.
            if !self.leading.load(Ordering::SeqCst) {
                return;
            }
            let request = apply::event(&about, &note, machine, self.time.wall());
            let answer = self.wire.send(request).await;
            let code = answer.as_ref().map_or(0, |reply| reply.code.into());
            let labels = RequestLabels { machine, method: "POST".to_owned(), code };
            self.metrics.requests.get_or_create(&labels).inc();
            // 409: it was told before.
            if !matches!(code, 200..=299 | 409) {
                self.metrics.lost_notes.get_or_create(&MachineLabels { machine }).inc();
                tracing::warn!(code, "an Event could not be written");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::meta::Kind;
    use pawl_machines::object::Key;

    fn reference(kind: &'static str, name: &str) -> Reference {
        let kind = Kind::of("example.com", "v1", kind, "things", true);
        Reference { kind, key: Key::new(Some("n"), name), uid: format!("uid-{name}") }
    }

    fn told(names: &[&str]) -> Vec<(String, String)> {
        let scribe = Scribe::default();
        for name in names {
            let note =
                Note::normal("JobCreated", "Created Job for Workflow").together(reference("Branch", "b"));
            scribe.gather("workflow", &reference("Workflow", name), note);
        }
        let gathered = std::mem::take(&mut *scribe.lock());
        let told = gathered.into_iter().map(|(said, by)| said.told(by));
        told.map(|(about, note)| (about.key.name, note.message)).collect()
    }

    #[test]
    fn what_one_says_is_told_of_it_and_what_many_say_of_what_they_have_in_common() {
        assert_eq!(told(&["w"]), [("w".into(), "Created Job for Workflow".into())]);
        assert_eq!(told(&["x", "w", "x"]), [("b".into(), "Created Job for Workflow: w, x (2)".into())]);
    }

    #[test]
    fn the_same_words_on_another_occasion_are_told_again() {
        let scribe = Scribe::default();
        for (job, name) in [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")] {
            let note = Note::normal("PickedUp", "picked up").once(job).together(reference("Execution", "e"));
            scribe.gather("deploy-item", &reference("DeployItem", name), note);
        }
        let gathered = std::mem::take(&mut *scribe.lock());
        let told: Vec<(Reference, Note)> = gathered.into_iter().map(|(said, by)| said.told(by)).collect();
        let onces: Vec<(&str, &str)> =
            told.iter().map(|(about, note)| (about.key.name.as_str(), note.once.as_str())).collect();
        assert_eq!(onces, [("e", "1"), ("e", "2")]);
        assert!(told.iter().all(|(_, note)| note.message == "picked up: a, b (2)"));
    }
}
