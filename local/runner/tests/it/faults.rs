//! What is left when Pawl stops, and what the next start makes of it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use pawl_runner::{LOST_CODE, LOST_MESSAGE};
use serde_json::{Value, json};

use crate::{World, container, main, phase, terminated};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_what_ran_is_lost_and_said_so() {
    let mut world = World::new();
    world.script("p", "sleep 600").await;
    world.until("p", |pod| phase(pod) == Some("Running")).await;
    world.crash().await;
    world.restart().await;
    let pod = world.over("p").await;
    let end = terminated(&pod);
    assert_eq!(
        (phase(Some(&pod)), end.exit_code, end.reason.as_deref()),
        (Some("Failed"), LOST_CODE, Some("Error"))
    );
    assert_eq!(end.message.as_deref(), Some(LOST_MESSAGE));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_a_pod_that_restarts_does() {
    let mut world = World::new();
    let script = "if [ -e /s/again ]; then exit 0; else touch /s/again; sleep 600; fi";
    let container_spec = main(
        json!({"command": ["/bin/sh", "-c", script], "volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
    );
    let spec = json!({"restartPolicy": "OnFailure", "containers": [container_spec], "volumes": [{"name": "s", "emptyDir": {}}]});
    world.pod("p", spec).await;
    let pod = world.until("p", |pod| phase(pod) == Some("Running")).await.unwrap();
    // It has begun for good once its file is there: what it keeps must outlive the crash.
    let file = world.data.path().join("pods").join(pod.metadata.uid.unwrap()).join("volumes/s/again");
    tokio::time::timeout(crate::BOUND, async {
        while !file.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    world.crash().await;
    world.restart().await;
    let pod = world.over("p").await;
    assert_eq!((phase(Some(&pod)), container(&pod).restart_count), (Some("Succeeded"), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_pod_is_not_run_again_by_the_next_start() {
    let mut world = World::new();
    world.script("p", "echo once").await;
    let before = world.over("p").await;
    world.shut_down().await;
    world.restart().await;
    // A second pod shows that the new life has looked at all of them.
    world.script("q", "exit 0").await;
    world.over("q").await;
    let after = world.pods().get("p").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(world.log(&after).await, "once\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_stop_ends_what_runs_and_says_why() {
    let mut world = World::new();
    world.script("p", "sleep 600").await;
    world.until("p", |pod| phase(pod) == Some("Running")).await;
    world.shut_down().await;
    let pod = world.pods().get("p").await.unwrap();
    let status = pod.status.clone().unwrap();
    assert_eq!((phase(Some(&pod)), status.reason.as_deref()), (Some("Failed"), Some("Terminated")));
    assert_eq!(terminated(&pod).exit_code, 143);
    assert!(status.conditions.unwrap().iter().any(|c| c.type_ == "DisruptionTarget" && c.status == "True"));
}

/// Tells the inner test that it is one.
const INNER: &str = "PAWL_TEST_INNER";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the inner half of `a_container_dies_with_pawl`, which runs it in a process of its own"]
async fn runs_until_it_is_killed() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    let world = World::new();
    world.script("p", "sleep 600").await;
    let pod = world.until("p", |pod| phase(pod) == Some("Running")).await.unwrap();
    let records = world.data.path().join("pods").join(pod.metadata.uid.unwrap()).join("records/main.json");
    let record: Value = serde_json::from_slice(&std::fs::read(records).unwrap()).unwrap();
    let keeper = record["process"]["pid"].as_i64().unwrap();
    println!("\nrunning {keeper}");
    std::future::pending::<()>().await;
}

#[test]
fn a_container_dies_with_pawl() {
    let mut pawl = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "faults::runs_until_it_is_killed", "--nocapture"])
        .env(INNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(pawl.stdout.take().unwrap()).lines().map(Result::unwrap);
    let keeper =
        lines.into_iter().find_map(|line| line.strip_prefix("running ")?.parse::<i32>().ok()).unwrap();
    let session = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let stats = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        stats
            .filter(|stat| stat.rsplit_once(") ").unwrap().1.split(' ').nth(3) == Some(&keeper.to_string()))
            .count()
    };
    assert!(session() >= 2, "the keeper and the command");
    pawl.kill().unwrap();
    pawl.wait().unwrap();
    let asked = Instant::now();
    while session() > 0 {
        assert!(asked.elapsed() < crate::BOUND, "a container outlived Pawl");
        std::thread::yield_now();
    }
}
