//! Several copies of the loop, one of which acts; and what others see of it.

use std::time::Duration;

use pawl_engine::{Engine, health, leader};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use crate::lab::{Lab, Spoil, eventually, keeper};

fn candidate(lab: &Lab, identity: &str) -> Engine {
    let config = leader::Config {
        namespace: "default".to_owned(),
        name: "pawl".to_owned(),
        identity: identity.to_owned(),
    };
    lab.engine([keeper()]).leader(config).build().unwrap()
}

fn holder(lab: &Lab) -> String {
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/pawl";
    lab.call("GET", path, &Value::Null)["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_follows_at_once_when_it_stops() {
    let lab = Lab::new();
    let (first, second) = (candidate(&lab, "first"), candidate(&lab, "second"));
    let running = lab.run(&first);
    eventually("the first leads", || first.is_leading()).await;
    let standby = lab.run(&second);
    second.ready().await;
    sleep(Duration::from_mins(5)).await;
    assert!(first.is_leading() && !second.is_leading() && holder(&lab) == "first");
    running.stop().await;
    let stopped = Instant::now();
    eventually("the second leads", || second.is_leading()).await;
    assert!(stopped.elapsed() < Duration::from_secs(5), "a lease given back need not expire");
    lab.config_map("a", json!({}));
    eventually("it acts", || lab.secrets() == ["a-0"]).await;
    standby.stop().await;
    assert_eq!(holder(&lab), "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_acting_before_another_begins() {
    let lab = Lab::new();
    let (first, second) = (candidate(&lab, "first"), candidate(&lab, "second"));
    let running = lab.run(&first);
    eventually("the first leads", || first.is_leading()).await;
    let standby = lab.run(&second);
    second.ready().await;
    sleep(Duration::from_secs(20)).await;
    // Whoever writes as the first gets no answer.
    let mut writes = 0;
    lab.spoil(move |asked| {
        if asked.method == "PUT" && asked.uri.contains("/leases/") {
            writes += 1;
            if writes <= 9 {
                return Spoil::Say(500, "down".into());
            }
        }
        Spoil::Nothing
    });
    eventually("the first gives up", || !first.is_leading()).await;
    assert!(!second.is_leading(), "both would act");
    eventually("somebody leads again", || first.is_leading() || second.is_leading()).await;
    assert!(!(first.is_leading() && second.is_leading()));
    running.stop().await;
    standby.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_is_killed_asks_for_nothing_more_and_the_next_one_goes_on() {
    let lab = Lab::new();
    lab.config_map("a", json!({"wants": "3"}));
    // Children are made side by side: so that there is one and not yet another, each takes longer than the one before.
    let mut lag = Duration::ZERO;
    lab.spoil(move |asked| {
        if asked.method != "POST" {
            return Spoil::Nothing;
        }
        lag += Duration::from_secs(2);
        Spoil::Lag(lag)
    });
    let first = lab.run(&candidate(&lab, "first"));
    eventually("the first child", || lab.secrets().len() == 1).await;
    first.kill().await;
    let asked = lab.log().len();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(lab.log().len(), asked, "{:?}", lab.log());
    let second = candidate(&lab, "second");
    let running = lab.run(&second);
    eventually("all children", || lab.secrets() == ["a-0", "a-1", "a-2"]).await;
    assert_eq!(holder(&lab), "second");
    running.stop().await;
}

#[tokio::test]
async fn health_and_metrics_are_served() {
    let lab = Lab::new();
    let engine = lab.engine([keeper()]).build().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(health::serve(listener, engine.clone(), async {
        let _ = stopped.await;
    }));
    let get = async |path: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(get("/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(get("/healthz").await.starts_with("HTTP/1.1 503"));
    let running = lab.run(&engine);
    engine.ready().await;
    assert!(get("/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get("/metrics").await.contains("pawl_watch_state{kind=\"ConfigMap\",state=\"live\"} 1"));
    running.stop().await;
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
}
