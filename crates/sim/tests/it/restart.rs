//! A process that starts where everything is done has nothing to do.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use jiff::SignedDuration;
use pawl_api::git::{branch, repository, workflow};
use pawl_api::meta::Kind;
use pawl_engine::routing::Router;
use pawl_machines::object::Key;
use pawl_sim::campaign::{self, Simulator};
use pawl_sim::ground::{Ground, request};
use pawl_sim::hub::Sky;
use pawl_sim::mutant::Guards;
use pawl_sim::replica::Replica;
use pawl_sim::scenarios;
use serde_json::{Value, json};

const WORKFLOWS: usize = 1_000;

/// Writes an object as it was, status and all.
fn put(ground: &mut Ground, kind: &Kind, key: &Key, object: &Value) {
    let mut manifest = object.clone();
    manifest["apiVersion"] = kind.api_version().into();
    manifest["kind"] = kind.kind.as_ref().into();
    let path = kind.path(key.namespace.as_deref(), None);
    let (code, body) = ground.send("test", request(Method::POST, &path, "application/json", &manifest));
    assert!(code == 201 || code == 409, "{code} {}", String::from_utf8_lossy(&body));
    if let Some(status) = object.get("status") {
        let path = format!("{}/status", kind.path(key.namespace.as_deref(), Some(&key.name)));
        let patch = json!({"status": status});
        let (code, body) =
            ground.send("test", request(Method::PATCH, &path, "application/merge-patch+json", &patch));
        assert_eq!(code, 200, "{}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn i12_a_restart_with_a_thousand_finished_workflows_sends_nothing() {
    let scenario = scenarios::find("git-pull-request").unwrap();
    let Ok((end, _)) = campaign::base(Simulator::Inner, &scenario) else { panic!("the plain run fails") };
    let mut ground = Ground::new(true, false).with_hub(scenario.github);
    let finished = |(kind, key): &(Kind, Key), object: &Value| {
        assert_eq!(object["status"]["phase"], "Succeeded", "{kind} {key}");
        object.clone()
    };
    let mut example = None;
    for (at @ (kind, key), object) in &end.end {
        let counts = kind.group == workflow::KIND.group || kind.plural == "secrets";
        if counts {
            put(&mut ground, kind, key, object);
        }
        if *kind == workflow::KIND {
            example = Some(finished(at, object));
        }
    }
    let example = example.unwrap();
    for number in 0..WORKFLOWS {
        let mut copy = example.clone();
        let name = format!("copy-{number}");
        copy["metadata"]["name"] = name.as_str().into();
        let key = Key::new(copy["metadata"]["namespace"].as_str(), &name);
        put(&mut ground, &workflow::KIND, &key, &copy);
    }
    assert!(ground.all(&workflow::KIND).count() > WORKFLOWS);
    // Not at a moment at which GitHub is polled anyway.
    ground.env.set(ground.now() + SignedDuration::from_mins(10));
    let guards = Guards::default();
    let router = Arc::new(Router::new((scenario.machines)(guards)));
    let hub = ground.hub.as_ref().unwrap();
    let sky = Sky::new(&[], &ground.env);
    let outside = hub.port(&ground.env, &ground.server, sky, ground.trace().clone(), guards);
    let mut replica = Replica::start(&router, guards, &ground, outside);
    let items: Vec<_> = replica.startable().cloned().collect();
    let looked: BTreeSet<_> = items.iter().map(|item| item.kind.clone()).collect();
    assert!(looked.is_superset(&[workflow::KIND, branch::KIND, repository::KIND].into()), "{looked:?}");
    for item in items {
        replica.look(&item, ground.now()).unwrap();
        let asked = replica.applying(0).and_then(|applying| applying.ask());
        assert!(asked.is_none(), "{item:?}: {asked:?}");
        assert_eq!(replica.running(), 0, "{item:?} asks outside");
    }
}
