//! Does the server together with the controllers answer as a real control plane did?
//!
//! The recorded conversations of pawl-apiserver, replayed while the real loop runs every machine of the embedded
//! control plane beside: what is garbage goes, a namespace that ends is emptied, and nothing else changes.

use pawl_machines::cluster;
use tokio::time::{Duration, sleep};

use crate::lab::Lab;
use crate::replay::{data, replay};

/// Conversations about who may do what: pawl-apiserver replays them on a server that asks.
const ELSEWHERE: &[&str] = &["access"];

#[test]
fn conversations_are_answered_as_recorded_while_the_controllers_run() {
    let mut wrong = Vec::new();
    let mut names: Vec<String> = ["scenarios", "ownership"].into_iter().flat_map(conversations).collect();
    names.sort();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        wrong.extend(runtime.block_on(beside_controllers(&name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn conversations(kind: &str) -> Vec<String> {
    let files = std::fs::read_dir(data().join(kind)).unwrap();
    let stems = files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    stems.filter(|stem| !ELSEWHERE.contains(&stem.as_str())).map(|stem| format!("{kind}/{stem}")).collect()
}

async fn beside_controllers(name: &str) -> Vec<String> {
    let lab = Lab::new();
    let engine = lab.engine(cluster::machines()).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    let (_, problems) = replay(&lab.server.service(), name).await;
    // Whatever it was about, the controllers come to rest.
    sleep(Duration::from_mins(30)).await;
    let writes = lab.writes().len();
    sleep(Duration::from_hours(2)).await;
    let late = lab.writes().get(writes..).unwrap_or_default().to_vec();
    running.stop().await;
    problems
        .into_iter()
        .chain(late.into_iter().map(|write| format!("{name}: a late write: {write}")))
        .collect()
}
