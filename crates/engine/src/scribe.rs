//! What is told to people, and how often? What many say at the same time is told once.
//!
//! ```text
//!  note, may be told together ──▶ gathered for a moment ──▶ of one object: an Event about that object
//!                                     ▲                 └─▶ of several: one Event about what they have in common
//!                                     └── the same is said again: the next moment is twice as long
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
use tokio::time::{Instant, sleep_until};

use crate::engine::Core;
use crate::metrics::{MachineLabels, RequestLabels};

/// How long notes are gathered: a commit's Jobs are made within this, and nobody reads faster.
const GATHER: Duration = Duration::from_secs(1);

/// What is said on and on is told twice as late each time, but never later than this: whoever watches a long queue drain
/// still sees it move.
const SELDOM: Duration = Duration::from_secs(8);

/// Between two rounds of telling at least: each goes over all that is gathered, and thousands may be, each due at a moment of
/// its own.
const ROUND: Duration = Duration::from_millis(250);

/// How long the last ones may take when the loop stops.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);

/// Notes that wait to be told.
#[derive(Debug, Default)]
pub(crate) struct Scribe {
    heard: Mutex<Heard>,
    some: Notify,
}

#[derive(Debug, Default)]
struct Heard {
    gathered: BTreeMap<Said, Gathered>,
    /// When the first of them is due.
    first: Option<Instant>,
    /// What was told a short while ago.
    paces: BTreeMap<Said, Pace>,
}

#[derive(Debug)]
struct Gathered {
    by: Vec<Reference>,
    due: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    told: Instant,
    /// How long what is said next is gathered, from when it was told last.
    next: Duration,
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
        if self.lock().take(machine, about, note, Instant::now()) {
            self.some.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    /// Whether it is due before all others.
    fn take(&mut self, machine: &'static str, about: &Reference, note: Note, now: Instant) -> bool {
        let Note { severity, reason, message, once, together } = note;
        let warning = severity == Severity::Warning;
        let of = together.unwrap_or_else(|| about.clone());
        let said = Said { of, machine, warning, reason, message, once };
        if let Some(gathered) = self.gathered.get_mut(&said) {
            gathered.by.push(about.clone());
            return false;
        }
        let paced = self.paces.get(&said).map(|pace| pace.told + pace.next);
        let due = paced.map_or(now + GATHER, |paced| paced.max(now + GATHER));
        self.gathered.insert(said, Gathered { by: vec![about.clone()], due });
        let is_first = self.first.is_none_or(|first| due < first);
        if is_first {
            self.first = Some(due);
        }
        is_first
    }

    /// What is to be told now.
    fn due(&mut self, now: Instant) -> Vec<(Said, Vec<Reference>)> {
        let due: Vec<(Said, Gathered)> =
            self.gathered.extract_if(.., |_, gathered| gathered.due <= now).collect();
        for (said, _) in &due {
            let next = self.paces.get(said).map_or(GATHER, |pace| pace.next) * 2;
            self.paces.insert(said.clone(), Pace { told: now, next: next.min(SELDOM) });
        }
        // Who was silent for as long is told of at once again.
        self.paces.retain(|_, pace| now < pace.told + pace.next);
        self.first = self.gathered.values().map(|gathered| gathered.due).min();
        due.into_iter().map(|(said, gathered)| (said, gathered.by)).collect()
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
        let mut round = Instant::now();
        loop {
            let first = self.scribe.lock().first;
            let due = async {
                match first {
                    Some(at) => sleep_until(at.max(round)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => {
                    let due = self.scribe.lock().due(Instant::now());
                    self.tell_people(due).await;
                    round = Instant::now() + ROUND;
                }
                () = self.scribe.some.notified() => {}
            }
        }
    }

    /// Tells all there is, due or not.
    pub(crate) async fn tell_all(&self) {
        let gathered = std::mem::take(&mut *self.scribe.lock()).gathered;
        self.tell_people(gathered.into_iter().map(|(said, gathered)| (said, gathered.by)).collect()).await;
    }

    async fn tell_people(&self, all: Vec<(Said, Vec<Reference>)>) {
        for (said, by) in all {
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

    fn created() -> Note {
        Note::normal("JobCreated", "Created Job for Workflow").together(reference("Branch", "b"))
    }

    fn told(heard: &mut Heard, now: Instant) -> Vec<(String, String)> {
        let told = heard.due(now).into_iter().map(|(said, by)| said.told(by));
        told.map(|(about, note)| (about.key.name, note.message)).collect()
    }

    fn told_at_once(names: &[&str]) -> Vec<(String, String)> {
        let (mut heard, now) = (Heard::default(), Instant::now());
        for name in names {
            heard.take("workflow", &reference("Workflow", name), created(), now);
        }
        told(&mut heard, now + GATHER)
    }

    #[test]
    fn what_one_says_is_told_of_it_and_what_many_say_of_what_they_have_in_common() {
        assert_eq!(told_at_once(&["w"]), [("w".into(), "Created Job for Workflow".into())]);
        assert_eq!(
            told_at_once(&["x", "w", "x"]),
            [("b".into(), "Created Job for Workflow: w, x (2)".into())]
        );
    }

    #[test]
    fn what_is_said_on_and_on_is_told_ever_more_seldom_and_after_a_silence_soon_again() {
        let (mut heard, start) = (Heard::default(), Instant::now());
        let mut told_after = Vec::new();
        // A Job every tenth of a second for half a minute, and one a minute later; what is due is told then.
        for tick in (0..300).chain([900]) {
            let now = start + Duration::from_millis(100 * tick);
            heard.take("workflow", &reference("Workflow", &tick.to_string()), created(), now);
            if !told(&mut heard, now).is_empty() {
                told_after.push(tick / 10);
            }
        }
        assert_eq!(told_after, [1, 3, 7, 15, 23, 90]);
        assert_eq!(heard.gathered.len(), 0);
        let now = start + Duration::from_secs(200);
        heard.take("workflow", &reference("Workflow", "w"), created(), now);
        assert!(told(&mut heard, now).is_empty());
        assert_eq!(told(&mut heard, now + GATHER).len(), 1, "as soon as the first time");
        told(&mut heard, now + SELDOM * 2);
        assert!(heard.paces.is_empty(), "what is not said any more is forgotten");
    }

    #[test]
    fn the_teller_is_woken_for_the_first_alone_and_knows_when_the_next_is_due() {
        let (mut heard, start) = (Heard::default(), Instant::now());
        let say = |heard: &mut Heard, branch: &str, millis: u64| {
            let note = Note::normal("JobCreated", "Created").together(reference("Branch", branch));
            heard.take("workflow", &reference("Workflow", "w"), note, start + Duration::from_millis(millis))
        };
        assert!(say(&mut heard, "a", 0));
        assert!(!say(&mut heard, "b", 10) && !say(&mut heard, "a", 20));
        assert_eq!(heard.first, Some(start + GATHER));
        assert_eq!(told(&mut heard, start + GATHER).len(), 1);
        assert_eq!(heard.first, Some(start + GATHER + Duration::from_millis(10)));
        // What was told a moment ago is told later again: whoever is new is before it.
        assert!(!say(&mut heard, "a", 1_005));
        assert_eq!(told(&mut heard, start + GATHER + Duration::from_millis(10)).len(), 1);
        assert!(say(&mut heard, "c", 1_100));
    }

    #[test]
    fn the_same_words_on_another_occasion_are_told_again() {
        let (mut heard, now) = (Heard::default(), Instant::now());
        for (job, name) in [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")] {
            let note = Note::normal("PickedUp", "picked up").once(job).together(reference("Execution", "e"));
            heard.take("deploy-item", &reference("DeployItem", name), note, now);
        }
        let told: Vec<(Reference, Note)> =
            heard.due(now + GATHER).into_iter().map(|(said, by)| said.told(by)).collect();
        let onces: Vec<(&str, &str)> =
            told.iter().map(|(about, note)| (about.key.name.as_str(), note.once.as_str())).collect();
        assert_eq!(onces, [("e", "1"), ("e", "2")]);
        assert!(told.iter().all(|(_, note)| note.message == "picked up: a, b (2)"));
    }
}
