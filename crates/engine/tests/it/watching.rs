//! Informers when the server, the network or an object misbehaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kube::core::DynamicObject;
use pawl_api::meta::Kind;
use pawl_engine::caches::Standing;
use pawl_machines::machine::{AnyMachine, Depth, Description, Machine, Primary, Watch};
use pawl_machines::object::Key;
use pawl_machines::plan::{Adopt, Plan, Step};
use pawl_machines::view::{Context, Served};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::{CONFIG_MAP, Lab, SECRET, Spoil, eventually, keeper};

const WIDGET: Kind = Kind::of("toys.example", "v1", "Widget", "widgets", true);

fn widget_definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.toys.example"},
        "spec": {"group": "toys.example", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[tokio::test(start_paused = true)]
async fn history_that_is_gone_is_made_up_for_by_a_list_with_all_ends() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the child", || lab.secrets() == ["a-0"]).await;
    sleep(Duration::from_secs(1)).await;
    // Nothing can be watched while the child goes; and then its end is no longer in the history.
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let mut expired = false;
    lab.spoil(move |asked| {
        if !asked.is_watch("secrets") || expired {
            return Spoil::Nothing;
        }
        if is_down.load(Ordering::SeqCst) {
            return Spoil::Say(503, "{}".into());
        }
        expired = true;
        Spoil::Say(410, json!({"kind": "Status", "code": 410, "reason": "Expired"}).to_string())
    });
    lab.cut();
    sleep(Duration::from_secs(1)).await;
    lab.call("DELETE", "/api/v1/namespaces/default/secrets/a-0", &Value::Null);
    sleep(Duration::from_secs(1)).await;
    down.store(false, Ordering::SeqCst);
    eventually("the child again", || lab.secrets() == ["a-0"]).await;
    assert!(engine.metrics().exposition().contains("reason=\"expired\""));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_inside_an_event_goes_on_from_before_it() {
    let lab = Lab::new();
    lab.spoil(|asked| if asked.is_watch("configmaps") { Spoil::CutInside(1) } else { Spoil::Nothing });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    for name in ["a", "b", "c", "d"] {
        lab.config_map(name, json!({}));
        sleep(Duration::from_secs(2)).await;
    }
    eventually("all four", || lab.secrets().len() == 4).await;
    let lists = lab.log().iter().filter(|line| line.contains("/configmaps?limit")).count();
    assert_eq!(lists, 1, "resuming needs no list");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_proxy_are_waited_out_at_every_request() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let mut bad = 12;
    lab.spoil(move |_| {
        bad -= 1;
        match bad {
            8..=12 => Spoil::Say(200, "<html><body>Sign in</body></html>".into()),
            0..8 => Spoil::Say(404, "<html><body>Not here</body></html>".into()),
            _ => Spoil::Nothing,
        }
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the child", || lab.secrets() == ["a-0"]).await;
    assert_eq!(engine.view().serves(&CONFIG_MAP), Served::Yes);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxys_404_ends_nothing_that_was_seen() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the child", || lab.secrets() == ["a-0"]).await;
    lab.spoil(|_| Spoil::Say(404, "<html></html>".into()));
    lab.cut();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(engine.view().list(&CONFIG_MAP, None).len(), 1);
    assert_eq!(engine.view().serves(&CONFIG_MAP), Served::Yes);
    lab.spoil(|_| Spoil::Nothing);
    lab.config_map("b", json!({}));
    eventually("the other child", || lab.secrets().len() == 2).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_skipped_and_counted() {
    const POISON: &str =
        r#"{"type":"ADDED","object":{"metadata":{"name":"poison","labels":7,"resourceVersion":"3"}}}"#;
    let lab = Lab::new();
    lab.spoil(|asked| if asked.is_watch("configmaps") { Spoil::Babble(0, POISON) } else { Spoil::Nothing });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    lab.config_map("a", json!({}));
    eventually("the child of the sound one", || lab.secrets() == ["a-0"]).await;
    assert!(engine.metrics().exposition().contains("pawl_malformed_objects_total{kind=\"ConfigMap\"} 1"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_nested_too_deep_to_be_read_hides_no_other() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let lab = Lab::new();
    let sound = lab.config_map("a", json!({}));
    let version = &sound["metadata"]["resourceVersion"];
    let metadata = json!({"name": "deep", "namespace": "default", "uid": "d", "resourceVersion": version});
    let poison = format!(r#"{{"metadata": {metadata}, "data": {}}}"#, deep(5_000));
    let event: &'static str = format!(r#"{{"type": "ADDED", "object": {poison}}}"#).leak();
    let list = format!(r#"{{"metadata": {{"resourceVersion": {version}}}, "items": [{poison}, {sound}]}}"#);
    lab.spoil(move |asked| {
        if asked.uri.contains("/configmaps?limit") {
            return Spoil::Say(200, list.clone());
        }
        if asked.is_watch("configmaps") { Spoil::Babble(0, event) } else { Spoil::Nothing }
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    eventually("the child of the listed one", || lab.secrets() == ["a-0"]).await;
    lab.config_map("b", json!({}));
    eventually("the child of the watched one", || lab.secrets().len() == 2).await;
    assert!(engine.metrics().exposition().contains("pawl_malformed_objects_total{kind=\"ConfigMap\"} 2"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_no_event_costs_a_list_and_nothing_else() {
    let lab = Lab::new();
    let mut first = true;
    lab.spoil(move |asked| {
        if asked.is_watch("configmaps") && std::mem::take(&mut first) {
            return Spoil::Babble(0, "<html>");
        }
        Spoil::Nothing
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    lab.config_map("a", json!({}));
    eventually("the child", || lab.secrets() == ["a-0"]).await;
    running.stop().await;
}

/// Makes a Widget for every ConfigMap, if there are such things.
struct Toys;

impl Machine for Toys {
    type Kind = Value;
    type Status = Value;

    fn description(&self) -> Description {
        Description {
            name: "toys",
            primary: Primary::One(CONFIG_MAP),
            depth: Depth::Metadata,
            watches: vec![Watch::owned(WIDGET)],
            finalizer: None,
            phases: None,
            writes: vec![],
        }
    }

    fn reconcile(&self, cx: &Context<'_, Value>) -> Plan<Value> {
        let me = cx.object;
        let made = !cx.view.owned(&WIDGET, me.uid()).is_empty();
        match (cx.view.serves(&WIDGET), made) {
            (Served::No, _) => Plan::rest(),
            (Served::Yes, true) => Plan::rest(),
            (Served::Yes, false) => {
                let manifest = json!({"metadata": {"name": me.name(), "namespace": me.namespace(),
                    "ownerReferences": [me.controller_reference()]}});
                Plan::step(Step::Create { kind: WIDGET, manifest, adopt: Adopt::Anyones })
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_absent_kind_is_waited_for_visibly_and_picked_up_when_it_is_defined() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let engine = lab.engine([AnyMachine::new(Toys)]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    eventually("its absence", || engine.standings().contains(&(WIDGET, Standing::Absent))).await;
    let state = "pawl_watch_state{kind=\"Widget.toys.example\",state=\"absent\"} 1";
    assert!(engine.metrics().exposition().contains(state));
    sleep(Duration::from_secs(20)).await;
    lab.server.install_crd(widget_definition()).unwrap();
    let defined = lab.log().len();
    eventually("the widget", || engine.view().list(&WIDGET, None).len() == 1).await;
    assert!(lab.log().len() - defined < 12, "found by watching, not by asking: {:?}", lab.log());
    lab.call(
        "DELETE",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.toys.example",
        &Value::Null,
    );
    eventually("its absence", || engine.view().serves(&WIDGET) == Served::No).await;
    assert!(engine.view().list(&WIDGET, None).is_empty());
    running.stop().await;
}

/// Deletes what names an owner that is gone.
struct Sweeper;

impl Machine for Sweeper {
    type Kind = Value;
    type Status = Value;

    fn description(&self) -> Description {
        Description {
            name: "sweeper",
            primary: Primary::Every,
            depth: Depth::Metadata,
            watches: vec![],
            finalizer: None,
            phases: None,
            writes: vec![],
        }
    }

    fn reconcile(&self, cx: &Context<'_, Value>) -> Plan<Value> {
        let Some(owner) = cx.object.owners().first() else { return Plan::rest() };
        let Some(kind) = cx.view.resolve(&owner.api_version, &owner.kind) else { return Plan::rest() };
        let key = Key::new(cx.object.namespace().filter(|_| kind.namespaced), &owner.name);
        if cx.view.get(&kind, &key).is_some_and(|found| found.uid() == owner.uid) {
            return Plan::rest();
        }
        Plan::step(Step::Delete {
            target: cx.object.reference(),
            resource_version: None,
            propagation: pawl_machines::plan::Propagation::Background,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_watched_and_new_ones_as_they_come() {
    let lab = Lab::new();
    let engine = lab.engine([AnyMachine::new(Sweeper)]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    assert!(engine.view().kinds().contains(&SECRET));
    assert!(!engine.view().kinds().iter().any(|kind| kind.plural == "events"));
    lab.server.install_crd(widget_definition()).unwrap();
    eventually("the new kind", || engine.view().kinds().contains(&WIDGET)).await;
    let owner = lab.call(
        "POST",
        "/apis/toys.example/v1/namespaces/default/widgets",
        &json!({"apiVersion": "toys.example/v1", "kind": "Widget", "metadata": {"name": "w"}}),
    );
    let reference = json!({"apiVersion": "toys.example/v1", "kind": "Widget", "name": "w",
        "uid": owner["metadata"]["uid"]});
    let child = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "child", "ownerReferences": [reference]}});
    lab.call("POST", "/api/v1/namespaces/default/secrets", &child);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lab.secrets(), ["child"]);
    lab.call("DELETE", "/apis/toys.example/v1/namespaces/default/widgets/w", &Value::Null);
    eventually("the child's end", || lab.secrets().is_empty()).await;
    lab.call(
        "DELETE",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.toys.example",
        &Value::Null,
    );
    eventually("the kind's end", || !engine.standings().iter().any(|(kind, _)| *kind == WIDGET)).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_namespaces_asked_for_are_watched() {
    let lab = Lab::new();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    lab.call("POST", "/api/v1/namespaces", &namespace);
    let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    lab.call("POST", "/api/v1/namespaces/other/configmaps", &elsewhere);
    lab.config_map("a", json!({}));
    let namespaces = ["default".to_owned(), "kube-system".to_owned()];
    let engine = lab.engine([keeper()]).namespaces(namespaces).build().unwrap();
    let running = lab.run(&engine);
    eventually("the child", || lab.secrets() == ["a-0"]).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(engine.view().list(&CONFIG_MAP, None).len(), 1);
    assert!(engine.is_idle());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_comes_in_pages_and_starts_over_when_they_expire() {
    let lab = Lab::new();
    for number in 0..1_100 {
        lab.config_map(&format!("m{number:04}"), json!({"wants": "0"}));
    }
    let mut expired = false;
    lab.spoil(move |asked| {
        if asked.uri.contains("continue=") && !expired {
            expired = true;
            return Spoil::Say(410, json!({"kind": "Status", "code": 410, "reason": "Expired"}).to_string());
        }
        Spoil::Nothing
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    assert_eq!(engine.view().list(&CONFIG_MAP, None).len(), 1_100);
    running.stop().await;
}

/// On several threads: pages are read side by side with the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pages_are_taken_whole_and_in_order_and_one_that_is_no_list_fails_all_of_them() {
    let lab = Lab::new();
    for number in 0..4_200 {
        lab.config_map(&format!("m{number:04}"), json!({"wants": "0"}));
    }
    let pages = Arc::new(AtomicUsize::new(0));
    lab.spoil({
        let pages = Arc::clone(&pages);
        move |asked| {
            let follows = asked.uri.contains("/configmaps?limit") && asked.uri.contains("continue=");
            if follows && pages.fetch_add(1, Ordering::SeqCst) == 5 {
                return Spoil::Say(200, json!({"metadata": {"resourceVersion": "1"}}).to_string());
            }
            Spoil::Nothing
        }
    });
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    let listed = engine.view().list(&CONFIG_MAP, None);
    assert!(listed.iter().map(|map| map.name().to_owned()).eq((0..4_200).map(|at| format!("m{at:04}"))));
    assert!(pages.load(Ordering::SeqCst) >= 6 + 8, "it began again after the page that was none");
    running.stop().await;
}

/// `DynamicObject` reads what the caches keep: apiVersion and kind are there even for items of a list.
#[tokio::test(start_paused = true)]
async fn what_is_kept_says_what_it_is() {
    let lab = Lab::new();
    lab.config_map("a", json!({}));
    let engine = lab.engine([keeper()]).build().unwrap();
    let running = lab.run(&engine);
    engine.ready().await;
    let object = engine.view().get(&CONFIG_MAP, &Key::new(Some("default"), "a")).unwrap();
    let typed = object.parse::<DynamicObject>().unwrap();
    assert_eq!(typed.types.as_ref().unwrap().kind, "ConfigMap");
    assert!(typed.metadata.managed_fields.is_none());
    running.stop().await;
}
