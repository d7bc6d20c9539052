//! A cluster in this process: its API server, its controllers, every action's ServiceAccount, and the port.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use pawl_actions::way::Door;
use pawl_actions::{Errand, Port, Way, carry_out};
use pawl_api::k8s::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT};
use pawl_api::meta::Kind;
use pawl_api::remedy::{Action, DryRunResults};
use pawl_apiserver::{Access, RealEnv, Server, SigningKey};
use pawl_engine::wire::Wire;
use pawl_engine::{Engine, SystemClock};
use pawl_machines::failure::Failure;
use pawl_machines::object::Key;
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::kept::{self, Kept};
use pawl_machines::remedy::action::{self, Ask, Call, Captured, Looked, Order, Reply, Report, rbac};
use serde_json::{Value, json};

/// Far longer than anything here takes, and shorter than a person's patience.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) executor: Executor,
    own: Wire,
    door: Door,
    port: Port,
    /// Everything the executor has said.
    pub(crate) told: Mutex<Vec<String>>,
}

impl World {
    /// A cluster with a namespace `shop`, and every action's ServiceAccount.
    pub(crate) fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let access = Access {
            admin_token: "obviously-not-a-real-token".to_owned(),
            signing_key: SigningKey::from_pem(&key).unwrap(),
        };
        let server = Server::in_memory(Arc::new(RealEnv)).with_access(access);
        let executor = Executor::default();
        let own = Wire::new(kube::Client::new(server.service(), "default"));
        let door = Door::Guarded(Wire::new(kube::Client::new(server.guarded_service(), "default")));
        let port = Port::new(own.clone(), door.clone(), executor.clone(), Arc::new(SystemClock));
        let world = Self { server, executor, own, door, port, told: Mutex::default() };
        for manifest in rbac::manifests(&world.executor, &[]) {
            world.put(&kind_of(&manifest), manifest);
        }
        for namespace in ["shop", "home"] {
            world.put(&NAMESPACE, json!({"metadata": {"name": namespace, "labels": {"team": namespace}}}));
        }
        world
    }

    /// Starts the cluster's own controllers: Deployments make ReplicaSets, and those make Pods.
    pub(crate) fn with_controllers(self) -> Self {
        let client = kube::Client::new(self.server.service(), "default");
        let engine = Engine::builder(client).machines(pawl_machines::cluster::machines()).build().unwrap();
        tokio::spawn(async move { engine.run(std::future::pending()).await });
        self
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let type_ = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", type_);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.server.call(request.body(Bytes::from(body)).unwrap());
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    pub(crate) fn put(&self, kind: &Kind, mut manifest: Value) -> Value {
        manifest["apiVersion"] = kind.api_version().into();
        manifest["kind"] = kind.kind.as_ref().into();
        let namespace = manifest["metadata"]["namespace"].as_str().map(str::to_owned);
        let namespace = namespace.or_else(|| kind.namespaced.then(|| "shop".to_owned()));
        let (code, answer) = self.send("POST", &kind.path(namespace.as_deref(), None), &manifest);
        assert_eq!(code, 201, "{answer}");
        answer
    }

    pub(crate) fn find(&self, kind: &Kind, name: &str) -> Option<Value> {
        let namespace = kind.namespaced.then_some("shop");
        let (code, found) = self.send("GET", &kind.path(namespace, Some(name)), &Value::Null);
        (code == 200).then_some(found)
    }

    pub(crate) fn get(&self, kind: &Kind, name: &str) -> Value {
        self.find(kind, name).unwrap_or_else(|| panic!("{kind} {name} is not there"))
    }

    pub(crate) fn patch(&self, kind: &Kind, name: &str, part: &str, patch: &Value) {
        let path = format!("{}{part}", kind.path(kind.namespaced.then_some("shop"), Some(name)));
        let (code, answer) = self.send("PATCH", &path, patch);
        assert_eq!(code, 200, "{answer}");
    }

    pub(crate) async fn until<T>(&self, what: &str, found: impl Fn(&Self) -> Option<T>) -> T {
        let started = tokio::time::Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(started.elapsed() < PATIENCE, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn ask(&self, order: &Order, ask: Ask) -> Result<Reply, Failure> {
        self.port.ask(&Call { order: order.clone(), ask }).await
    }

    pub(crate) async fn look(&self, order: &Order) -> Looked {
        let reply = self.ask(order, Ask::Look).await.unwrap();
        let Reply::Looked(looked) = reply else { panic!("{reply:?}") };
        looked
    }

    pub(crate) async fn access(&self, order: &Order) -> action::Access {
        let service_account = self.executor.service_account(order);
        let reply = self.ask(order, Ask::Access { service_account }).await.unwrap();
        let Reply::Access(access) = reply else { panic!("{reply:?}") };
        access
    }

    pub(crate) async fn try_out(&self, order: &Order) -> DryRunResults {
        let service_account = self.executor.service_account(order);
        let reply = self.ask(order, Ask::DryRun { service_account }).await.unwrap();
        let Reply::DryRun(results) = reply else { panic!("{reply:?}") };
        results
    }

    pub(crate) async fn capture(&self, order: &Order) -> Result<Captured, Failure> {
        let service_account = self.executor.service_account(order);
        let secret = self.executor.undo_secret(&order.uid);
        let reply = self.ask(order, Ask::Capture { secret, service_account }).await?;
        let Reply::Captured(captured) = reply else { panic!("{reply:?}") };
        Ok(captured)
    }

    /// What is mounted into the executor's Pod of this execution.
    pub(crate) fn kept(&self, uid: &str) -> Option<Kept> {
        let Key { namespace, name } = self.executor.undo_secret(uid);
        let (code, secret) = self.send("GET", &SECRET.path(namespace.as_deref(), Some(&name)), &Value::Null);
        let text = (code == 200).then(|| secret["data"][kept::KEY].as_str().unwrap().to_owned())?;
        Some(serde_json::from_slice(&decoded(&text)).unwrap())
    }

    /// Does what a Job would do: as the action's ServiceAccount, with what is mounted.
    pub(crate) async fn act(&self, order: &Order) -> Report {
        let own = Way::new(self.own.clone());
        let way = self.door.enter(&own, &self.executor.service_account(order)).await.unwrap();
        let errand = Errand {
            order: order.clone(),
            kept: self.kept(&order.uid),
            undone: order.undoes.as_deref().and_then(|uid| self.kept(uid)),
        };
        let tell = |line: &str| self.told.lock().unwrap().push(line.to_owned());
        carry_out(&way, errand, &SystemClock, &tell).await
    }

    /// Everything that was ever written and is no Secret, with all that was said.
    pub(crate) fn everything_told(&self) -> String {
        let changes = self.server.changes(0).unwrap();
        let shown = changes.iter().filter(|change| change.ids().kind.to_string() != "Secret");
        let shown: Vec<String> = shown.map(|change| change.value().to_string()).collect();
        format!("{}\n{}", shown.join("\n"), self.told.lock().unwrap().join("\n"))
    }
}

/// An order for an action with the value of its member; `number` makes its UID.
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
pub(crate) fn order(word: &str, member: Value, number: u32) -> Order {
    let action: Action = serde_json::from_value(word.into()).unwrap();
    Order {
        execution: Key::new(Some("home"), "x"),
        uid: format!("00000000-0000-4000-8000-{number:012}"),
        action,
        parameters: json!({action.member(): member}).to_string().into(),
        undoes: None,
    }
}

/// The order that takes another back, as its status says how.
pub(crate) fn undoing(order: &Order, captured: &Captured, number: u32) -> Order {
    let information = &captured.information;
    assert!(information.available, "{information:?}");
    Order {
        action: information.rollback_action.unwrap(),
        parameters: Value::Object(information.rollback_parameters.clone()).to_string().into(),
        uid: format!("00000000-0000-4000-8000-{number:012}"),
        undoes: Some(order.uid.clone()),
        ..order.clone()
    }
}

pub(crate) fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

pub(crate) fn encoded(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn kind_of(manifest: &Value) -> Kind {
    let kinds = [NAMESPACE, SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING];
    kinds.into_iter().find(|kind| manifest["kind"] == *kind.kind).unwrap()
}
