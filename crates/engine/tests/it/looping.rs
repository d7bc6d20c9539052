//! Queue, decisions and writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use pawl_engine::{Clock, Stopped};
use pawl_machines::machine::{AnyMachine, Description, Machine, Watch};
use pawl_machines::plan::{Adopt, Plan, Step};
use pawl_machines::view::Context;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::{Keeper, Lab, SECRET, Spoil, eventually, keeper};

const LATER: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_child_is_made_and_made_again_when_it_is_deleted() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the child", || lab.secrets() == ["a-0"]).await;
    lab.call("DELETE", "/api/v1/namespaces/default/secrets/a-0", &Value::Null);
    assert!(lab.secrets().is_empty());
    eventually("the child again", || lab.secrets() == ["a-0"]).await;
    assert_eq!(running.stop().await, Stopped::Clean);
}

#[tokio::test(start_paused = true)]
async fn i12_a_steady_state_makes_no_writes() {
    let lab = Lab::new();
    for name in ["a", "b", "c"] {
        lab.config_map(name, json!({}));
    }
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the children", || lab.secrets().len() == 3).await;
    sleep(LATER).await;
    let (revision, writes) = (lab.server.revision(), lab.writes().len());
    sleep(Duration::from_hours(3)).await;
    assert_eq!((lab.server.revision(), lab.writes().len()), (revision, writes));
    assert!(engine.is_idle() && engine.is_ready());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn different_objects_are_looked_at_in_parallel_up_to_the_bound() {
    let lab = Lab::new();
    for number in 0..10 {
        lab.config_map(&format!("m{number}"), json!({}));
    }
    lab.spoil(|asked| if asked.is_write() { Spoil::Lag(Duration::from_secs(1)) } else { Spoil::Nothing });
    let engine = lab.engine([keeper()]).concurrency(4).build().unwrap();
    let running = lab.run(&engine);
    eventually("ten children", || lab.secrets().len() == 10).await;
    assert_eq!(lab.most_in_flight(), 4);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_object_is_never_looked_at_twice_at_once() {
    let lab = Lab::new();
    lab.config_map("a", json!({"wants": "3"}));
    lab.spoil(|asked| if asked.is_write() { Spoil::Lag(Duration::from_millis(700)) } else { Spoil::Nothing });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    for number in 0..20 {
        let patch = json!({"metadata": {"annotations": {"touched": number.to_string()}}});
        lab.call("PATCH", "/api/v1/namespaces/default/configmaps/a", &patch);
        sleep(Duration::from_millis(200)).await;
    }
    eventually("three children", || lab.secrets().len() == 3).await;
    assert_eq!((lab.most_in_flight(), lab.writes().len()), (1, 3));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_decision_runs_on_a_cache_older_than_its_own_last_write() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    lab.spoil(
        |asked| {
            if asked.is_watch("secrets") { Spoil::Lag(Duration::from_secs(3)) } else { Spoil::Nothing }
        },
    );
    // It makes a child under a name of its own each time it sees none.
    let machine = AnyMachine::new(Keeper { counter: Some(AtomicUsize::new(0)) });
    let engine = lab.engine([machine]).build().unwrap();
    let running = lab.run(&engine);
    for number in 0..10 {
        sleep(Duration::from_millis(100)).await;
        let patch = json!({"metadata": {"annotations": {"touched": number.to_string()}}});
        lab.call("PATCH", "/api/v1/namespaces/default/configmaps/a", &patch);
    }
    assert!(!engine.is_idle(), "it was touched ten times, and waits for its watch");
    assert_eq!(lab.secrets().len(), 1);
    sleep(LATER).await;
    running.stop().await;
    assert_eq!(lab.secrets().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_never_shows_a_write_is_overtaken_by_a_list() {
    let lab = Lab::new();
    lab.config_map("a", json!({"wants": "1"}));
    // Open, and silent for good.
    lab.spoil(
        |asked| {
            if asked.is_watch("secrets") { Spoil::Lag(Duration::from_hours(9)) } else { Spoil::Nothing }
        },
    );
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the first child", || lab.secrets().len() == 1).await;
    lab.call("PATCH", "/api/v1/namespaces/default/configmaps/a", &json!({"data": {"wants": "2"}}));
    eventually("the second child", || lab.secrets().len() == 2).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_about_one_object_does_not_stop_the_others() {
    let lab = Lab::new();
    lab.config_map("a", json!({"panic": "yes"}));
    lab.config_map("b", json!({}));
    let engine = lab.engine([keeper()]).concurrency(1).build().unwrap();
    let running = lab.run(&engine);
    eventually("the other's child", || lab.secrets() == ["b-0"]).await;
    assert!(engine.metrics().exposition().contains("category=\"panic\""));
    lab.call("PATCH", "/api/v1/namespaces/default/configmaps/a", &json!({"data": {"panic": null}}));
    eventually("its own child, once it is mended", || lab.secrets().len() == 2).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_decided_upon_once_and_kept_until_something_changes() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    lab.config_map("b", json!({}));
    let refusing = Arc::new(AtomicBool::new(true));
    let refuses = Arc::clone(&refusing);
    lab.spoil(move |asked| {
        if asked.is_write() && refuses.load(Ordering::SeqCst) {
            return Spoil::Say(422, json!({"kind": "Status", "code": 422, "reason": "Invalid"}).to_string());
        }
        Spoil::Nothing
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(lab.writes().len(), 2, "{:?}", lab.writes());
    refusing.store(false, Ordering::SeqCst);
    lab.call("PATCH", "/api/v1/namespaces/default/configmaps/a", &json!({"data": {"changed": "yes"}}));
    eventually("the child of the one that changed", || lab.secrets() == ["a-0"]).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(lab.secrets().len(), 2, "the slow resync asks again for the other");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_found_again_and_nothing_is_made_twice() {
    let lab = Lab::new();
    lab.config_map("a", json!({"wants": "3"}));
    let mut left = 4;
    lab.spoil(move |asked| {
        if asked.is_write() && left > 0 {
            left -= 1;
            return if left % 2 == 0 { Spoil::Lose } else { Spoil::Say(503, "busy".into()) };
        }
        Spoil::Nothing
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("three children", || lab.secrets().len() == 3).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_be_left_alone_is_left_alone() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let mut busy = true;
    lab.spoil(move |asked| {
        if asked.is_write() && std::mem::take(&mut busy) {
            let details = json!({"retryAfterSeconds": 20});
            let status =
                json!({"kind": "Status", "code": 429, "reason": "TooManyRequests", "details": details});
            return Spoil::Say(429, status.to_string());
        }
        Spoil::Nothing
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the first try", || lab.writes().len() == 1).await;
    lab.call("PATCH", "/api/v1/namespaces/default/configmaps/a", &json!({"data": {"changed": "yes"}}));
    sleep(Duration::from_secs(19)).await;
    assert_eq!(lab.writes().len(), 1, "not even a change makes us impatient");
    eventually("the second try", || lab.secrets() == ["a-0"]).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_whose_cache_is_behind_do_not_hold_up_the_others() {
    let lab = Lab::new();
    for name in ["a", "b", "c"] {
        lab.config_map(name, json!({}));
    }
    lab.spoil(
        |asked| {
            if asked.is_watch("secrets") { Spoil::Lag(Duration::from_secs(8)) } else { Spoil::Nothing }
        },
    );
    let engine = lab.engine([keeper()]).concurrency(1).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.secrets().len(), 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_finishes_the_plan_that_is_under_way() {
    let lab = Lab::new();
    lab.config_map("a", json!({"wants": "4"}));
    lab.spoil(|asked| if asked.is_write() { Spoil::Lag(Duration::from_secs(2)) } else { Spoil::Nothing });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the first write", || !lab.writes().is_empty()).await;
    lab.config_map("late", json!({}));
    assert_eq!(running.stop().await, Stopped::Clean);
    assert_eq!(lab.secrets().len(), 4);
    assert!(!engine.is_running());
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_only_so_long() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    lab.spoil(|asked| if asked.is_write() { Spoil::Lag(Duration::from_secs(35)) } else { Spoil::Nothing });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the write", || !lab.writes().is_empty()).await;
    assert_eq!(running.stop().await, Stopped::Cut { unfinished: 1 });
}

/// Makes a Secret for every ConfigMap when its hour has come.
struct Alarm;

impl Machine for Alarm {
    type Kind = ConfigMap;
    type Status = Value;

    fn description(&self) -> Description {
        Description { name: "alarm", watches: vec![Watch::owned(SECRET)], ..keeper().description().clone() }
    }

    fn reconcile(&self, cx: &Context<'_, ConfigMap>) -> Plan<Value> {
        let me = cx.object;
        let at = cx.typed.data.as_ref().unwrap()["at"].parse().unwrap();
        if cx.now < at || !cx.view.owned(&SECRET, me.uid()).is_empty() {
            return Plan::rest().wake_at(at);
        }
        let manifest = json!({"metadata": {"name": me.name(), "namespace": "default",
            "ownerReferences": [me.controller_reference()]}});
        Plan::step(Step::Create { kind: SECRET, manifest, adopt: Adopt::Anyones })
    }
}

#[tokio::test(start_paused = true)]
async fn i8_a_deadline_is_kept_to_the_moment_and_follows_a_clock_that_is_set() {
    let lab = Lab::new();
    let start = lab.clock.now();
    for (name, minutes) in [("soon", 5), ("late", 120)] {
        lab.config_map(name, json!({"at": (start + SignedDuration::from_mins(minutes)).to_string()}));
    }
    let engine = lab.engine([AnyMachine::new(Alarm)]).resync(Duration::from_hours(24)).build().unwrap();
    let running = lab.run(&engine);
    sleep(Duration::from_mins(5) - Duration::from_millis(10)).await;
    assert!(lab.secrets().is_empty());
    sleep(Duration::from_millis(20)).await;
    assert_eq!(lab.secrets(), ["soon"]);
    lab.clock.jump(SignedDuration::from_hours(3));
    sleep(Duration::from_secs(31)).await;
    assert_eq!(lab.secrets().len(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_change_nothing() {
    let lab = Lab::new();
    for number in 0..100 {
        lab.config_map(&format!("m{number}"), json!({"wants": "2"}));
    }
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("all children", || lab.secrets().len() == 200).await;
    eventually("rest", || engine.is_idle()).await;
    assert_eq!((running.stop().await, lab.writes().len()), (Stopped::Clean, 200));
}

/// A busy minute with faults of all sorts, as an ordered log with virtual times.
async fn a_bad_minute(seed: u64) -> Vec<String> {
    let lab = Lab::new();
    let mut asked_so_far = 0_u32;
    lab.spoil(move |asked| {
        asked_so_far += 1;
        match asked_so_far % 7 {
            2 => Spoil::Say(500, "<html>sorry</html>".into()),
            3 | 4 if asked.is_write() => Spoil::Lose,
            5 => Spoil::CutInside(1),
            _ => Spoil::Nothing,
        }
    });
    let engine = lab.engine([keeper()]).seed(seed).concurrency(8).build().unwrap();
    let running = lab.run(&engine);
    for number in 0..40 {
        lab.config_map(&format!("m{number}"), json!({"wants": "2"}));
        if number % 4 == 3 {
            sleep(Duration::from_millis(300)).await;
        }
    }
    lab.cut();
    eventually("all children", || lab.secrets().len() == 80).await;
    sleep(LATER).await;
    running.stop().await;
    lab.log()
}

#[test]
fn the_same_seed_makes_the_same_requests_in_the_same_order() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(a_bad_minute(seed))
    };
    let first = run(7);
    assert!(first.len() > 100, "{first:#?}");
    for _ in 0..4 {
        assert_eq!(first, run(7));
    }
    assert_ne!(first, run(8), "chance does not come from the seed");
}
