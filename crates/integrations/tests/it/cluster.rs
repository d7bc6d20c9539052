//! Items on other clusters: two API servers in one process, one of them known only by a Target.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use pawl_api::deploy::{annotations, deploy_item, target, types};
use pawl_api::k8s::{
    CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, DEPLOYMENT, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT,
};
use pawl_api::meta::Kind;
use pawl_apiserver::{Access, RealEnv, Server, SigningKey};
use pawl_engine::wire::Wire;
use pawl_engine::{Engine, Ports, SystemClock};
use pawl_integrations::cluster::Port;
use pawl_machines::cluster::garbage::Garbage;
use pawl_machines::deploy;
use pawl_machines::deploy::target::Call;
use pawl_machines::machine::AnyMachine;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const TOKEN: &str = "obviously-not-a-real-token";
/// Far longer than anything here takes, and shorter than a person's patience.
const PATIENCE: Duration = Duration::from_secs(60);
const WIDGET: Kind = Kind::of("example.com", "v1", "Widget", "widgets", true);

/// A cluster: its API server, and what collects garbage in it.
struct Cluster {
    server: Server,
    client: kube::Client,
}

impl Cluster {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let access =
            Access { admin_token: TOKEN.to_owned(), signing_key: SigningKey::from_pem(&key).unwrap() };
        let server = Server::in_memory(Arc::new(RealEnv)).with_access(access);
        let client = kube::Client::new(server.service(), "default");
        Self { server, client }
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let type_ = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", type_);
        let response = self.server.call(request.body(Bytes::from(body.to_string())).unwrap());
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    fn put(&self, kind: &Kind, mut manifest: Value) {
        manifest["apiVersion"] = kind.api_version().into();
        manifest["kind"] = kind.kind.as_ref().into();
        let namespace = kind.namespaced.then_some("default");
        let (code, answer) = self.send("POST", &kind.path(namespace, None), &manifest);
        assert_eq!(code, 201, "{answer}");
    }

    fn get(&self, kind: &Kind, name: &str) -> Option<Value> {
        let namespace = kind.namespaced.then_some("default");
        let (code, found) = self.send("GET", &kind.path(namespace, Some(name)), &Value::Null);
        (code == 200).then_some(found)
    }

    fn patch(&self, kind: &Kind, name: &str, part: &str, patch: &Value) {
        let path = format!("{}{part}", kind.path(Some("default"), Some(name)));
        let (code, answer) = self.send("PATCH", &path, patch);
        assert_eq!(code, 200, "{answer}");
    }

    /// Waits until something is so, and gives it.
    async fn until<T>(&self, what: &str, found: impl Fn(&Self) -> Option<T>) -> T {
        let started = tokio::time::Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            let item = self.get(&deploy_item::KIND, "i");
            assert!(started.elapsed() < PATIENCE, "{what}: {:#}", item.unwrap_or_default()["status"]);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn run(cluster: &Cluster, machines: Vec<AnyMachine>, port: Option<Port>) {
    let mut builder = Engine::builder(cluster.client.clone()).machines(machines);
    if let Some(port) = port {
        builder = builder.ports(Ports::default().with::<Call>(Arc::new(port)));
    }
    let engine = builder.build().unwrap();
    tokio::spawn(async move { engine.run(std::future::pending()).await });
}

/// A cluster with Pawl on it.
fn home() -> Cluster {
    let home = Cluster::new();
    for crd in pawl_api::crds::all() {
        home.server.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
    }
    home.send(
        "POST",
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pawl-system"}}),
    );
    let wire = Wire::new(home.client.clone());
    let port = Port::new(wire.clone(), Arc::new(wire), Arc::new(SystemClock));
    let guarded = Wire::new(kube::Client::new(home.server.guarded_service(), "default"));
    let port = port.acting_as_others(guarded, TOKEN).unwrap();
    let machines = deploy::machines("pawl-system").into_iter().chain([AnyMachine::new(Garbage)]).collect();
    run(&home, machines, Some(port));
    home
}

/// Another cluster over TLS: itself, and a kubeconfig for it.
async fn away() -> (Cluster, Value) {
    let away = Cluster::new();
    run(&away, vec![AnyMachine::new(Garbage)], None);
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(issued.cert.der().to_vec());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let served = away.server.clone();
    tokio::spawn(pawl_apiserver::serve(listener, served, Some(Arc::new(tls)), std::future::pending()));
    let authority = STANDARD.encode(issued.cert.pem());
    (away, kubeconfig(&server, &authority, json!({"token": TOKEN})))
}

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
fn kubeconfig(server: &str, authority: &str, user: Value) -> Value {
    json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": user}]})
}

fn item(home: &Cluster, config: &Value, manifests: &[Value], more: Value) {
    home.put(
        &target::KIND,
        json!({"metadata": {"name": "t"},
        "spec": {"type": types::KUBERNETES_CLUSTER, "config": config}}),
    );
    named_item(home, manifests, more);
}

fn named_item(home: &Cluster, manifests: &[Value], more: Value) {
    let manifests: Vec<Value> = manifests.iter().map(|manifest| json!({"manifest": manifest})).collect();
    let mut config = json!({"manifests": manifests});
    if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
        config.extend(more);
    }
    home.put(
        &deploy_item::KIND,
        json!({"metadata": {"name": "i", "annotations": {annotations::OPERATION: "reconcile"}},
        "spec": {"type": types::MANIFEST, "target": {"name": "t"}, "config": config}}),
    );
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
}

fn phase(home: &Cluster) -> Option<String> {
    home.get(&deploy_item::KIND, "i")?["status"]["phase"].as_str().map(str::to_owned)
}

fn ended(home: &Cluster) -> Option<Value> {
    let status = home.get(&deploy_item::KIND, "i")?["status"].clone();
    (!status["jobIDFinished"].is_null()).then_some(status)
}

/// Everything that people can see and that is no Secret or Target holds no credential (I6).
fn told_nothing(home: &Cluster) {
    for change in home.server.changes(0).unwrap() {
        let kind = change.ids().kind.to_string();
        let text = change.value().to_string();
        assert!(matches!(kind.as_str(), "Target" | "Secret") || !text.contains(TOKEN), "{kind}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_is_deployed_to_another_cluster_waited_for_exported_and_taken_down() {
    let (home, (away, config)) = (home(), away().await);
    away.put(
        &CUSTOM_RESOURCE_DEFINITION,
        json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
    );
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"n": 1}});
    let place =
        |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name});
    let more = json!({
        "readinessChecks": {"custom": [{"name": "n", "resourceSelector": [place("example.com/v1", "Widget", "w")],
            "requirements": [{"jsonPath": ".spec.n", "operator": "==", "values": [{"value": 1}]}]}]},
        "exports": {"exports": [{"key": "k", "jsonPath": ".data.k", "fromResource": place("v1", "ConfigMap", "a")}]},
    });
    item(&home, &config, &[deployment, widget, config_map()], more);
    away.until("the Deployment is there", |away| away.get(&DEPLOYMENT, "web")).await;
    home.until("it waits for the Deployment", |home| {
        let managed = home.get(&deploy_item::KIND, "i")?["status"]["providerStatus"]["appliedIn"].clone();
        (!managed.is_null()).then_some(())
    })
    .await;
    assert_eq!(phase(&home).as_deref(), Some("Progressing"));
    let ready = json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}});
    away.patch(&DEPLOYMENT, "web", "/status", &ready);
    let status = home.until("it has ended", ended).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert!(home.get(&CONFIG_MAP, "a").is_none() && away.get(&WIDGET, "w").is_some());
    let export = home.get(&SECRET, status["exportRef"]["name"].as_str().unwrap()).unwrap();
    let text = STANDARD.decode(export["data"]["config"].as_str().unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), json!({"k": "v"}));

    home.send("DELETE", &deploy_item::KIND.path(Some("default"), Some("i")), &json!({}));
    home.until("it is gone", |home| home.get(&deploy_item::KIND, "i").is_none().then_some(())).await;
    for (kind, name) in [(DEPLOYMENT, "web"), (CONFIG_MAP, "a"), (WIDGET, "w")] {
        assert!(away.get(&kind, name).is_none(), "{kind} {name} is left");
    }
    told_nothing(&home);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_in_a_secret_is_used_as_it_is_now() {
    let (home, (away, config)) = (home(), away().await);
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"config": config.to_string()}});
    home.put(&SECRET, secret);
    home.put(
        &target::KIND,
        json!({"metadata": {"name": "t"},
        "spec": {"type": types::KUBERNETES_CLUSTER, "secretRef": {"name": "s", "key": "config"}}}),
    );
    named_item(&home, &[config_map()], Value::Null);
    let status = home.until("it has ended", ended).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert!(away.get(&CONFIG_MAP, "a").is_some());
    // Without the Secret nobody can get there any more: the item goes, and the loss is told (I5).
    home.send("DELETE", &SECRET.path(Some("default"), Some("s")), &json!({}));
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    home.send("DELETE", &deploy_item::KIND.path(Some("default"), Some("i")), &json!({}));
    home.until("it is gone", |home| home.get(&deploy_item::KIND, "i").is_none().then_some(())).await;
    let (_, events) = home.send("GET", "/apis/events.k8s.io/v1/namespaces/default/events", &Value::Null);
    assert!(events.to_string().contains("CleanupIncomplete"), "{events:#}");
    told_nothing(&home);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_cannot_be_used_is_a_clear_failure() {
    let (_away, good) = away().await;
    let server = good["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let stranger =
        STANDARD.encode(rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem());
    let exec = kubeconfig("https://localhost:1", "", json!({"exec": {"command": "true"}, "token": TOKEN}));
    let cases = [
        (json!("not: [a kubeconfig"), "not YAML"),
        (json!({"unknown": true}), "neither a kubeconfig"),
        (exec, "user.exec"),
        (kubeconfig(server, &stranger, json!({"token": TOKEN})), "certificate"),
    ];
    for (config, words) in cases {
        let home = home();
        item(&home, &config, &[config_map()], Value::Null);
        let status = home.until("it has ended", ended).await;
        let error = &status["lastError"];
        assert_eq!(
            (&status["phase"], &error["reason"]),
            (&json!("Failed"), &json!("TargetInvalid")),
            "{status:#}"
        );
        assert!(error["message"].as_str().unwrap().contains(words), "{error:#}");
        home.send("DELETE", &deploy_item::KIND.path(Some("default"), Some("i")), &json!({}));
        home.until("it is gone", |home| home.get(&deploy_item::KIND, "i").is_none().then_some(())).await;
        told_nothing(&home);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_does_not_answer_is_told_and_tried_again() {
    let home = home();
    // A port that nobody listens on: it was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let config = kubeconfig(&format!("https://localhost:{free}"), "", json!({"token": TOKEN}));
    item(&home, &config, &[config_map()], Value::Null);
    let error = home
        .until("it says so", |home| {
            let status = home.get(&deploy_item::KIND, "i")?["status"].clone();
            (!status["lastError"].is_null()).then_some(status)
        })
        .await;
    assert_eq!(error["phase"], "Progressing", "it may come back: {error:#}");
    assert!(error["lastError"]["message"].as_str().unwrap().contains("Target default/t"), "{error:#}");
    told_nothing(&home);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_account_may_do_what_its_roles_say_and_no_more() {
    let home = home();
    home.put(&SERVICE_ACCOUNT, json!({"metadata": {"name": "sa"}}));
    let own = json!({"selfConfig": {"serviceAccount": {"name": "sa"}}});
    item(&home, &own, &[config_map()], Value::Null);
    let status = home.until("it has ended", ended).await;
    assert_eq!(status["lastError"]["reason"], "Forbidden", "{status:#}");
    assert!(home.get(&CONFIG_MAP, "a").is_none());
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]}]);
    home.put(&ROLE, json!({"metadata": {"name": "r"}, "rules": rules}));
    home.put(
        &ROLE_BINDING,
        json!({"metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "default"}]}),
    );
    let again = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
    home.patch(&deploy_item::KIND, "i", "", &again);
    home.until("it is deployed", |home| (phase(home)? == "Succeeded").then_some(())).await;
    let made = home.get(&CONFIG_MAP, "a").unwrap();
    assert_eq!(made["data"]["k"], "v");
}
