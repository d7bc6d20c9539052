//! Is everything that was acknowledged there after the process is gone?

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pawl_apiserver::{Limits, Options, RealEnv, Server};
use serde_json::json;

use crate::{delete, get, merge, post};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Set in the process that is to be killed: where it writes.
const VICTIM: &str = "PAWL_TEST_VICTIM_DIR";

fn open(dir: &std::path::Path) -> Server {
    // Small logs, so that kills also hit the moments when a snapshot takes over.
    let options = Options { limits: Limits::default(), rotate_bytes: 8_000 };
    Server::open(dir, Arc::new(RealEnv), options).unwrap()
}

#[test]
fn a_server_goes_on_where_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path());
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"color": {"type": "string"}}}}}}}]}});
    server.install_crd(crd).unwrap();
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"color": "red"}});
    let (code, made) = post(&server, things, &thing);
    assert_eq!(code, 201, "{made}");
    for at in 0..50 {
        post(&server, MAPS, &json!({"metadata": {"name": format!("m{at}")}}));
        delete(&server, &format!("{MAPS}/m{at}"));
    }
    let revision = server.revision();
    drop(server);
    let server = open(dir.path());
    assert_eq!(server.revision(), revision, "opening writes nothing");
    assert_eq!(get(&server, &format!("{things}/t")), (200, made));
    let (_, red) = get(&server, &format!("{things}?fieldSelector=spec.color%3Dred"));
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
    let (_, patched) = merge(&server, &format!("{things}/t"), &json!({"spec": {"color": "blue"}}));
    assert_eq!(patched["metadata"]["resourceVersion"], (revision + 1).to_string());
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut acknowledged = 0;
    for round in 0..8 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "durable::a_victim_writes_until_it_is_killed", "--nocapture"])
            .env(VICTIM, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let enough = acknowledged + 1 + rng.u64(..60);
        for line in lines.by_ref() {
            if let Some(count) = line.unwrap().strip_prefix("acknowledged ") {
                acknowledged = count.parse().unwrap();
                if acknowledged >= enough {
                    break;
                }
            }
        }
        std::thread::sleep(Duration::from_micros(rng.u64(..3_000)));
        victim.kill().unwrap();
        // What it still said before it died counts as well.
        for line in lines {
            if let Some(count) = line.unwrap().strip_prefix("acknowledged ") {
                acknowledged = count.parse().unwrap();
            }
        }
        victim.wait().unwrap();
        let server = open(dir.path());
        let (_, counter) = get(&server, &format!("{MAPS}/counter"));
        let kept: u64 = counter["data"]["count"].as_str().unwrap().parse().unwrap();
        assert!(kept >= acknowledged, "round {round}: {acknowledged} were acknowledged, {kept} kept");
        assert!(
            kept <= acknowledged + 1,
            "round {round}: {kept} kept, only {acknowledged} and one more written"
        );
        acknowledged = kept;
    }
}

/// Runs only inside the test above, in a process of its own.
#[test]
fn a_victim_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    let server = open(std::path::Path::new(&dir));
    let path = format!("{MAPS}/counter");
    post(&server, MAPS, &json!({"metadata": {"name": "counter"}, "data": {"count": "0"}}));
    let (_, counter) = get(&server, &path);
    let mut count: u64 = counter["data"]["count"].as_str().unwrap().parse().unwrap();
    loop {
        count += 1;
        let (code, answer) = merge(&server, &path, &json!({"data": {"count": count.to_string()}}));
        assert_eq!(code, 200, "{answer}");
        println!("acknowledged {count}");
    }
}
