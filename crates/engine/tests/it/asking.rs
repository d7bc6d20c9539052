//! The external calls of a plan, and the replies to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use pawl_engine::Ports;
use pawl_machines::failure::Failure;
use pawl_machines::logs::Logs;
use pawl_machines::machine::{AnyMachine, Description, Machine, Watch};
use pawl_machines::object::Key;
use pawl_machines::plan::{Adopt, Plan, Step};
use pawl_machines::view::Context;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::{Lab, SECRET, eventually, keeper};

/// Asks for one log after the other, as many as `wants` says, and then makes a Secret named after what it heard last.
struct Listener;

impl Machine for Listener {
    type Kind = ConfigMap;
    type Status = Value;

    fn description(&self) -> Description {
        Description { watches: vec![Watch::owned(SECRET)], ..keeper().description().clone() }
    }

    fn reconcile(&self, cx: &Context<'_, ConfigMap>) -> Plan<Value> {
        let me = cx.object;
        if !cx.view.owned(&SECRET, me.uid()).is_empty() {
            return Plan::rest();
        }
        let data = cx.typed.data.as_ref();
        let wants: usize = data.and_then(|data| data.get("wants")).map_or(1, |text| text.parse().unwrap());
        let mut last = String::new();
        for number in 0..wants {
            let pod = Key::new(Some("default"), &format!("pod-{number}"));
            let logs = Logs { pod, container: "c".into(), tail_bytes: 10, mask: vec![] };
            match cx.answers.get(&logs) {
                None => return Plan::rest().ask(logs),
                Some(Err(_)) => return Plan::rest(),
                Some(Ok(text)) => last.clone_from(text),
            }
        }
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": me.name(), "uid": me.uid(),
            "controller": true});
        let manifest =
            json!({"metadata": {"name": last, "namespace": "default", "ownerReferences": [owner]}});
        Plan::step(Step::Create { kind: SECRET, manifest, adopt: Adopt::ControlledBy(me.uid().to_owned()) })
    }
}

/// Answers with the Pod's name, after `fails` failures and a wait.
#[derive(Debug, Default)]
struct Port {
    asked: Mutex<Vec<String>>,
    fails: Mutex<usize>,
    wait: Duration,
}

impl pawl_engine::Port<Logs> for Port {
    fn call<'a>(&'a self, logs: &'a Logs) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(async move {
            sleep(self.wait).await;
            self.asked.lock().unwrap().push(logs.pod.name.clone());
            let mut fails = self.fails.lock().unwrap();
            if *fails > 0 {
                *fails -= 1;
                return Err(Failure::unanswered(logs.to_string(), "not now"));
            }
            Ok(logs.pod.name.clone())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_taken_again_with_what_was_heard_and_nothing_is_asked_twice() {
    let lab = Lab::new();
    lab.config_map("a", json!({"wants": "3"}));
    let port = Arc::new(Port::default());
    let engine = lab
        .engine([AnyMachine::new(Listener)])
        .ports(Ports::default().with::<Logs>(port.clone()))
        .build()
        .unwrap();
    let running = lab.run(&engine);
    eventually("the secret", || lab.secrets() == ["pod-2"]).await;
    sleep(Duration::from_hours(2)).await;
    assert_eq!(*port.asked.lock().unwrap(), ["pod-0", "pod-1", "pod-2"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_heard_is_asked_again_with_back_off() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let port = Arc::new(Port { fails: Mutex::new(3), ..Port::default() });
    let engine = lab
        .engine([AnyMachine::new(Listener)])
        .ports(Ports::default().with::<Logs>(port.clone()))
        .build()
        .unwrap();
    let running = lab.run(&engine);
    eventually("the secret", || lab.secrets() == ["pod-0"]).await;
    assert_eq!(port.asked.lock().unwrap().len(), 4);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_goes_on_asking_is_stopped_and_others_are_not() {
    let lab = Lab::new();
    lab.config_map("endless", json!({"wants": "1000"}));
    let port = Arc::new(Port::default());
    let engine = lab
        .engine([AnyMachine::new(Listener)])
        .ports(Ports::default().with::<Logs>(port.clone()))
        .build()
        .unwrap();
    let running = lab.run(&engine);
    sleep(Duration::from_secs(5)).await;
    lab.config_map("other", json!({}));
    eventually("the other's secret", || lab.secrets() == ["pod-0"]).await;
    assert!(
        engine.metrics().exposition().contains("category=\"endless\""),
        "{}",
        engine.metrics().exposition()
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_outside_keeps_nobody_from_working() {
    let lab = Lab::new();
    for number in 0..8 {
        lab.config_map(&format!("slow-{number}"), json!({}));
    }
    let port = Arc::new(Port { wait: Duration::from_secs(30), ..Port::default() });
    let engine = lab
        .engine([AnyMachine::new(Listener)])
        .ports(Ports::default().with::<Logs>(port.clone()))
        .concurrency(1)
        .build()
        .unwrap();
    let running = lab.run(&engine);
    sleep(Duration::from_secs(31)).await;
    assert_eq!(port.asked.lock().unwrap().len(), 8, "all were asked at the same time");
    running.stop().await;
}
