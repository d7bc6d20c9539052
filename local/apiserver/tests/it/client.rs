//! Do kube's client, watcher, finalizer helper and event recorder work against the server in process?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Resource as _};
use serde_json::json;

use crate::server;

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("k".into(), "v".into())])),
        ..ConfigMap::default()
    }
}

fn api() -> Api<ConfigMap> {
    Api::default_namespaced(Client::new(server().service(), "default"))
}

#[tokio::test(start_paused = true)]
async fn a_typed_client_reads_what_it_writes() {
    let api = api();
    let made = api.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!(api.get("a").await.unwrap(), made);
    assert!(api.create(&PostParams::default(), &map("a")).await.is_err());
    let patch = Patch::Merge(json!({"data": {"k": "2"}}));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data.unwrap()["k"], "2");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(api.get_opt("a").await.unwrap(), None);
}

async fn seen(config: watcher::Config) -> Vec<String> {
    let api = api();
    api.create(&PostParams::default(), &map("first")).await.unwrap();
    let mut events = watcher(api.clone(), config).boxed();
    let mut seen = Vec::new();
    let mut written = false;
    while seen.len() < 6 {
        let event =
            tokio::time::timeout(Duration::from_secs(5), events.try_next()).await.unwrap().unwrap().unwrap();
        seen.push(match event {
            watcher::Event::Init => "init".to_owned(),
            watcher::Event::InitApply(o) => format!("init {}", o.metadata.name.unwrap()),
            watcher::Event::InitDone => "done".to_owned(),
            watcher::Event::Apply(o) => format!("apply {}", o.metadata.name.unwrap()),
            watcher::Event::Delete(o) => format!("delete {}", o.metadata.name.unwrap()),
        });
        if seen.last().is_some_and(|s| s == "done") && !written {
            written = true;
            api.create(&PostParams::default(), &map("second")).await.unwrap();
            let patch = Patch::Merge(json!({"data": {"k": "2"}}));
            api.patch("second", &PatchParams::default(), &patch).await.unwrap();
            api.delete("first", &DeleteParams::default()).await.unwrap();
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_the_list_and_then_every_change() {
    let want = ["init", "init first", "done", "apply second", "apply second", "delete first"];
    assert_eq!(seen(watcher::Config::default()).await, want);
    assert_eq!(seen(watcher::Config::default().streaming_lists()).await, want);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_lives_through_a_day_of_timeouts() {
    let api = api();
    let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
    for _ in 0..2 {
        events.try_next().await.unwrap().unwrap();
    }
    let writer = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        api.create(&PostParams::default(), &map("late")).await.unwrap();
    });
    let event = events.try_next().await.unwrap().unwrap();
    assert!(matches!(event, watcher::Event::Apply(o) if o.metadata.name.as_deref() == Some("late")));
    writer.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_metadata_watch_shows_metadata_alone() {
    let client = Client::new(server().service(), "default");
    let full: Api<ConfigMap> = Api::default_namespaced(client.clone());
    full.create(&PostParams::default(), &map("a")).await.unwrap();
    let partial: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(client);
    let mut events = watcher(partial, watcher::Config::default()).boxed();
    events.try_next().await.unwrap();
    let Some(watcher::Event::InitApply(first)) = events.try_next().await.unwrap() else {
        panic!("no object")
    };
    assert_eq!(first.metadata.name.as_deref(), Some("a"));
    events.try_next().await.unwrap();
    full.create(&PostParams::default(), &map("b")).await.unwrap();
    let Some(watcher::Event::Apply(second)) = events.try_next().await.unwrap() else { panic!("no object") };
    assert_eq!(second.metadata.name.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_helper_installs_and_removes_its_finalizer() {
    let api = api();
    let made = Arc::new(api.create(&PostParams::default(), &map("a")).await.unwrap());
    let run = |object: Arc<ConfigMap>| {
        let api = api.clone();
        async move {
            finalizer(&api, "example.com/f", object, |event| async move {
                match event {
                    Finalizer::Apply(_) => Err(std::io::Error::other("applied")),
                    Finalizer::Cleanup(_) => Ok(kube::runtime::controller::Action::await_change()),
                }
            })
            .await
        }
    };
    run(made).await.unwrap();
    let held = Arc::new(api.get("a").await.unwrap());
    assert_eq!(held.metadata.finalizers.as_deref(), Some(&["example.com/f".to_owned()][..]));
    assert!(run(held).await.is_err(), "the object has its finalizer: it is applied");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let going = Arc::new(api.get("a").await.unwrap());
    assert!(going.metadata.deletion_timestamp.is_some());
    run(going).await.unwrap();
    assert_eq!(api.get_opt("a").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn the_recorder_makes_an_event_and_then_counts() {
    let client = Client::new(server().service(), "default");
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = api.create(&PostParams::default(), &map("a")).await.unwrap();
    let reporter = Reporter { controller: "test".into(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let event = Event {
        type_: EventType::Normal,
        reason: "Tested".into(),
        note: Some("again".into()),
        action: "Test".into(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder.publish(&event, &made.object_ref(&())).await.unwrap();
    }
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(client.clone());
    let told = events.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].series.as_ref().map(|s| s.count), Some(3));
    let core: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(client);
    let params = ListParams::default().fields("involvedObject.name=a");
    assert_eq!(core.list(&params).await.unwrap().items.len(), 1);
}
