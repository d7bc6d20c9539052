//! What objects' states imply reaches the ledger once, whatever happens in between, and objects say when it does not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use pawl_api::git::{Workflow, workflow};
use pawl_engine::Ledger;
use pawl_engine::ledger::Changes;
use pawl_machines::audit::{Entry, Standing, Teller};
use pawl_machines::machine::{AnyMachine, Depth, Description, Machine, Primary};
use pawl_machines::plan::{Note, Plan, Step};
use pawl_machines::view::Context;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use uuid::Uuid;

use crate::lab::{Lab, Spoil, eventually};

const FINALIZER: &str = "pawl.dev/clerk";
const PATH: &str = "/apis/terrakojo.io/v1alpha1/namespaces/default/workflows";

/// Writes into the status what the annotation `phase` says; each phase is an entry.
struct Clerk;

impl Machine for Clerk {
    type Kind = Workflow;
    type Status = Value;

    fn description(&self) -> Description {
        Description {
            name: "clerk",
            primary: Primary::One(workflow::KIND),
            depth: Depth::Full,
            watches: vec![],
            finalizer: Some(FINALIZER),
            phases: None,
            writes: vec![],
        }
    }

    fn audit(&self, tell: &Teller<'_>, _: &Workflow) -> Option<Vec<Entry>> {
        let phase = tell.me.status().get("phase").and_then(Value::as_str);
        Some(phase.map(|phase| tell.entry(&phase.to_lowercase(), "", None)).into_iter().collect())
    }

    fn reconcile(&self, cx: &Context<'_, Workflow>) -> Plan<Value> {
        let me = cx.object;
        if me.is_deleting() {
            let release = Plan::step(Step::remove_finalizer(FINALIZER));
            return release.note(Note::warning("RemoteGone", "nobody was told"));
        }
        if !me.has_finalizer(FINALIZER) {
            return Plan::step(Step::add_finalizer(FINALIZER));
        }
        let mut status = json!({"phase": me.annotation("phase").unwrap_or("Pending")});
        if let Some(conditions) = me.status().get("conditions") {
            status["conditions"] = conditions.clone();
        }
        Plan::rest().status(status)
    }
}

/// A ledger in memory, with a store that can be taken away.
#[derive(Debug)]
struct Book {
    pages: Mutex<Pages>,
    changes: watch::Sender<Changes>,
    /// While true, nothing becomes safe.
    holds: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Pages {
    stored: Vec<(Uuid, String)>,
    waiting: Vec<Entry>,
    offered: usize,
    store: Store,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Store {
    #[default]
    Up,
    Down,
    /// What is offered is never seen again: the process dies before it writes.
    Forgetful,
    Absent,
}

impl Book {
    fn new() -> Arc<Self> {
        let changes = watch::Sender::new(Changes::default());
        Arc::new(Self { pages: Mutex::default(), changes, holds: watch::Sender::new(false) })
    }

    fn set(&self, store: Store) {
        let mut pages = self.pages.lock().unwrap();
        pages.store = store;
        if store == Store::Up {
            let waiting = std::mem::take(&mut pages.waiting);
            waiting.into_iter().for_each(|entry| pages.store(entry));
        }
        drop(pages);
        self.changes.send_modify(|changes| changes.standings += 1);
    }

    fn events(&self) -> Vec<String> {
        self.pages.lock().unwrap().stored.iter().map(|(_, event)| event.clone()).collect()
    }
}

impl Pages {
    fn store(&mut self, entry: Entry) {
        if !self.stored.iter().any(|(id, _)| *id == entry.id) {
            self.stored.push((entry.id, entry.event));
        }
    }
}

impl Ledger for Book {
    fn offer(&self, entries: Vec<Entry>) {
        let mut pages = self.pages.lock().unwrap();
        for entry in entries {
            pages.offered += 1;
            match pages.store {
                Store::Up => pages.store(entry),
                Store::Down => pages.waiting.push(entry),
                Store::Forgetful | Store::Absent => {}
            }
        }
    }

    fn keep<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let _ = self.holds.subscribe().wait_for(|holds| !holds).await;
        })
    }

    fn standing(&self, uid: &str) -> Standing {
        let pages = self.pages.lock().unwrap();
        if pages.store == Store::Absent {
            return Standing::NoStore;
        }
        let ids: Vec<Uuid> =
            pages.waiting.iter().filter(|entry| entry.about.uid == uid).map(|entry| entry.id).collect();
        if ids.is_empty() {
            Standing::Recorded
        } else {
            Standing::Waiting { why: "it is down".to_owned(), ids }
        }
    }

    fn backlog(&self) -> usize {
        0
    }

    fn changes(&self) -> watch::Receiver<Changes> {
        self.changes.subscribe()
    }
}

fn lab() -> Lab {
    let lab = Lab::new();
    let crd = pawl_api::crds::all().into_iter().find(|crd| crd.spec.names.kind == "Workflow").unwrap();
    lab.server.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
    let spec = json!({"owner": "acme", "repository": "infra", "branch": "b", "template": "plan", "path": ".",
        "sha": "0123456789abcdef0123456789abcdef01234567"});
    let manifest = json!({"apiVersion": "terrakojo.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"},
        "spec": spec});
    lab.call("POST", PATH, &manifest);
    lab
}

fn set_phase(lab: &Lab, phase: &str) {
    lab.call("PATCH", &format!("{PATH}/w"), &json!({"metadata": {"annotations": {"phase": phase}}}));
}

fn status(lab: &Lab) -> Value {
    lab.call("GET", &format!("{PATH}/w"), &Value::Null)["status"].clone()
}

fn audit_recorded(lab: &Lab) -> Option<(String, String)> {
    let status = status(lab);
    let said = status["conditions"].as_array()?.iter().find(|it| it["type"] == "AuditRecorded")?.clone();
    Some((said["status"].as_str()?.to_owned(), said["reason"].as_str()?.to_owned()))
}

fn engine(lab: &Lab, book: &Arc<Book>) -> pawl_engine::Engine {
    lab.engine([AnyMachine::new(Clerk)]).ledger(book.clone()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_event_is_recorded_once_despite_conflicts_lost_answers_and_a_restart() {
    let (lab, book) = (lab(), Book::new());
    let mut count = 0;
    lab.spoil(move |asked| {
        if !asked.uri.contains("/status") {
            return Spoil::Nothing;
        }
        count += 1;
        match count % 3 {
            1 => Spoil::Say(409, r#"{"kind":"Status","code":409,"reason":"Conflict"}"#.to_owned()),
            2 => Spoil::Lose,
            _ => Spoil::Nothing,
        }
    });
    let running = lab.run(&engine(&lab, &book));
    eventually("pending", || book.events() == ["git.workflow.pending"]).await;
    set_phase(&lab, "Running");
    eventually("running", || book.events().len() == 2).await;
    running.kill().await;
    let running = lab.run(&engine(&lab, &book));
    set_phase(&lab, "Succeeded");
    eventually("succeeded", || book.events().len() == 3).await;
    sleep(Duration::from_hours(2)).await;
    let all = ["pending", "running", "succeeded"].map(|phase| format!("git.workflow.{phase}"));
    assert_eq!(book.events(), all);
    assert!(book.pages.lock().unwrap().offered <= 5, "and hardly offered twice: once more after the restart");
    assert_eq!(audit_recorded(&lab), None, "while all is well nothing is said (I12)");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_status_and_the_ledger_loses_nothing() {
    let (lab, book) = (lab(), Book::new());
    book.set(Store::Forgetful);
    let running = lab.run(&engine(&lab, &book));
    set_phase(&lab, "Succeeded");
    eventually("the status is there", || status(&lab)["phase"] == "Succeeded").await;
    running.kill().await;
    assert!(book.events().is_empty());
    book.set(Store::Up);
    let running = lab.run(&engine(&lab, &book));
    eventually("it is recorded", || book.events() == ["git.workflow.succeeded"]).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_down_the_work_goes_on_and_the_object_says_so() {
    let (lab, book) = (lab(), Book::new());
    let running = lab.run(&engine(&lab, &book));
    eventually("pending", || book.events().len() == 1).await;
    book.set(Store::Down);
    set_phase(&lab, "Running");
    eventually("the phase", || status(&lab)["phase"] == "Running").await;
    book.set(Store::Down);
    let down = Some(("False".to_owned(), "AuditStoreDown".to_owned()));
    eventually("the condition", || audit_recorded(&lab) == down).await;
    let ids = status(&lab)["pendingAuditEvents"].clone();
    let waiting = book.pages.lock().unwrap().waiting[0].id.to_string();
    assert_eq!(ids, json!([waiting]));
    let writes = lab.writes().len();
    sleep(Duration::from_hours(2)).await;
    assert_eq!(lab.writes().len(), writes, "said once, not again and again");
    book.set(Store::Up);
    let up = Some(("True".to_owned(), "AuditRecorded".to_owned()));
    eventually("the condition is taken back", || audit_recorded(&lab) == up).await;
    assert_eq!(status(&lab)["pendingAuditEvents"], Value::Null);
    assert_eq!(book.events(), ["git.workflow.pending", "git.workflow.running"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_store_the_object_says_so_in_the_write_that_is_made_anyway() {
    let (lab, book) = (lab(), Book::new());
    let running = lab.run(&engine(&lab, &book));
    eventually("pending", || status(&lab)["phase"] == "Pending").await;
    let with_a_store = lab.writes().len();
    running.stop().await;

    let (lab, book) = (self::lab(), Book::new());
    book.set(Store::Absent);
    let running = lab.run(&engine(&lab, &book));
    let missing = Some(("False".to_owned(), "AuditStoreMissing".to_owned()));
    eventually("the condition", || audit_recorded(&lab) == missing).await;
    sleep(Duration::from_hours(2)).await;
    assert_eq!(lab.writes().len(), with_a_store, "{:?}", lab.writes());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i5_an_object_is_let_go_only_after_its_last_words_are_safe_and_never_wedges() {
    let (lab, book) = (lab(), Book::new());
    let running = lab.run(&engine(&lab, &book));
    eventually("pending", || book.events().len() == 1).await;
    book.holds.send_replace(true);
    lab.call("DELETE", &format!("{PATH}/w"), &Value::Null);
    eventually("the last words", || book.events().len() == 2).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.names(PATH), ["w"], "it is still there");
    // A ledger that never makes anything safe holds nobody up for long.
    eventually("it is gone", || lab.names(PATH).is_empty()).await;
    assert_eq!(book.events(), ["git.workflow.pending", "git.workflow.deleted"]);
    running.stop().await;
}
