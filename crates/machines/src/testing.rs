//! A cluster for tests of decisions: the embedded API server, and the caches a controller would have of it.
//!
//! Every request of a plan goes to the server, which defaults, validates and refuses as it always does; after each request
//! the caches get what changed. The clock stands still until a test moves it.

#![expect(
    clippy::disallowed_types,
    reason = "tests run side by side, and a server takes requests from any thread"
)]

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use pawl_api::k8s::{NAMESPACE, POD};
use pawl_api::meta::Kind;
use pawl_api::pawl::SYSTEM_NAMESPACE;
use pawl_apiserver::{ChangeType, Env, Server};
use serde_json::{Value, json};

use crate::apply::{Answer, Applying, Outcome};
use crate::cache::World;
use crate::external::{Answers, Call, Reply};
use crate::failure::Failure;
use crate::machine::{AnyMachine, BoundPlan};
use crate::object::{Key, Object};
use crate::plan::Refusal;
use crate::view::{Input, View};

pub(crate) const CONFIG_MAP: Kind = Kind::of("", "v1", "ConfigMap", "configmaps", true);
pub(crate) const NODE: Kind = Kind::of("", "v1", "Node", "nodes", false);

/// When every test begins.
pub(crate) const START: &str = "2026-01-01T00:00:00Z";

/// Far more rounds than any test needs: reaching it means that the machines chase each other.
const MAX_ROUNDS: usize = 200;

/// A fake external system that works on the cluster; `None`: the call is for another one.
pub(crate) type Port = dyn Fn(&mut Cluster, &Call) -> Option<Result<Reply, Failure>>;

pub(crate) struct Cluster {
    /// The caches. They show what the server has, unless a test changes them to let them lag.
    pub(crate) world: World,
    pub(crate) now: Timestamp,
    /// `type`, `reason` and `note` of every Event, as written.
    pub(crate) events: Vec<(String, String, String)>,
    /// Every status that was written, with its object.
    pub(crate) statuses: Vec<(Key, Value)>,
    /// Answers to give instead of creating an object of this kind.
    pub(crate) refuse_create: Option<(Kind, u16, Value)>,
    /// Every external call, in order.
    pub(crate) calls: Vec<Call>,
    /// Answers the calls that `port` does not.
    pub(crate) outside: fn(&Call) -> Result<Reply, Failure>,
    /// Who is asked first, and may look at the cluster and change it.
    pub(crate) port: Option<Rc<Port>>,
    kinds: Vec<Kind>,
    server: Server,
    env: Arc<TestEnv>,
    /// The last revision of the server that the caches have seen.
    revision: u64,
    refusals: Vec<(Kind, Key, Vec<Refusal>)>,
}

impl Cluster {
    /// A server that has these kinds, with the objects in these documents of YAML.
    #[track_caller]
    pub(crate) fn of(kinds: &[Kind], yaml: &str) -> Self {
        let env = Arc::new(TestEnv::default());
        let server = server_with(kinds).fork(Arc::clone(&env) as Arc<dyn Env>);
        let mut cluster = Self {
            world: World::default(),
            now: START.parse().unwrap(),
            events: vec![],
            statuses: vec![],
            refuse_create: None,
            calls: vec![],
            outside: |call| Err(Failure::unanswered(call.to_string(), "nobody is there")),
            port: None,
            kinds: kinds.to_vec(),
            revision: server.revision(),
            server,
            env,
            refusals: vec![],
        };
        for kind in kinds {
            cluster.world.cache(kind);
        }
        cluster.ensure_namespace(SYSTEM_NAMESPACE);
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            cluster.put(document);
        }
        cluster
    }

    /// Creates an object, or replaces the one of its name, with its status and in its namespace (`n`, if it names none).
    /// `uid` and `creationTimestamp` are as the document says, otherwise `<kind>-<name>` and the start of the test; with a
    /// `deletionTimestamp` the object is deleted then.
    #[track_caller]
    pub(crate) fn put(&mut self, mut raw: Value) {
        let word = raw["kind"].as_str().unwrap().to_owned();
        let kind = self.kinds.iter().find(|kind| kind.kind == word).expect("a kind this cluster has").clone();
        let name = raw["metadata"]["name"].as_str().unwrap().to_owned();
        raw["apiVersion"] = kind.api_version().into();
        let metadata = raw["metadata"].as_object_mut().unwrap();
        if kind.namespaced {
            metadata.entry("namespace").or_insert_with(|| "n".into());
        }
        let uid = metadata.remove("uid").unwrap_or_else(|| format!("{}-{name}", word.to_lowercase()).into());
        let created = metadata.remove("creationTimestamp").unwrap_or_else(|| START.into());
        let deleted = metadata.remove("deletionTimestamp");
        metadata.remove("resourceVersion");
        let grace = metadata.remove("deletionGracePeriodSeconds").and_then(|grace| grace.as_i64());
        let key = Key::new(raw["metadata"]["namespace"].as_str(), &name);
        if let Some(namespace) = &key.namespace {
            self.ensure_namespace(namespace);
        }
        let path = path(&kind, &key);
        if let Some(before) = self.read(&path) {
            raw["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            self.must(self.now, &Method::PUT, &path, &raw);
        } else {
            self.env.lock().uid = uid.as_str().map(str::to_owned);
            self.must(timestamp(&created), &Method::POST, &kind.path(key.namespace.as_deref(), None), &raw);
        }
        // An object that the server has from its beginning is in no cache before a test puts it.
        let mut whole = self.read(&path).unwrap();
        self.world.put(cached(&kind, whole.clone()));
        if let Some(status) = raw.get("status").filter(|status| **status != whole["status"]) {
            whole["status"] = status.clone();
            self.must(self.now, &Method::PUT, &(path.clone() + "/status"), &whole);
        }
        if let Some(deleted) = deleted {
            let grace = grace.unwrap_or_default();
            let at = timestamp(&deleted) - SignedDuration::from_secs(grace);
            self.must(at, &Method::DELETE, &path, &json!({"gracePeriodSeconds": grace}));
        }
    }

    /// Replaces the definition of a kind by one without rules, as an old one may be: a controller may meet objects that
    /// today's definition refuses.
    pub(crate) fn relax(&mut self, kind: &Kind) {
        self.server.install_crd(open_definition(kind)).unwrap();
    }

    fn ensure_namespace(&mut self, name: &str) {
        if self.read(&NAMESPACE.path(None, Some(name))).is_none() {
            self.env.lock().uid = Some(format!("namespace-{name}"));
            let manifest = json!({"metadata": {"name": name}});
            self.must(START.parse().unwrap(), &Method::POST, &NAMESPACE.path(None, None), &manifest);
        }
    }

    /// Changes an object as somebody else would: its author all but the status, its controller the status.
    #[track_caller]
    pub(crate) fn edit(&mut self, kind: &Kind, key: &Key, patch: &Value) {
        let mut patch = patch.clone();
        let status = patch.as_object_mut().unwrap().remove("status");
        if patch != json!({}) {
            self.must(self.now, &Method::PATCH, &path(kind, key), &patch);
        }
        if let Some(status) = status {
            let path = path(kind, key) + "/status";
            self.must(self.now, &Method::PATCH, &path, &json!({"status": status}));
        }
    }

    pub(crate) fn get(&self, kind: &Kind, key: &Key) -> Option<Value> {
        Some(self.world.get(kind, key)?.raw().clone())
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// A person's delete.
    #[track_caller]
    pub(crate) fn delete(&mut self, kind: &Kind, key: &Key, propagation: &str) {
        self.must(self.now, &Method::DELETE, &path(kind, key), &json!({"propagationPolicy": propagation}));
    }

    /// Deletes an object at once, whatever holds it.
    #[track_caller]
    pub(crate) fn remove(&mut self, kind: &Kind, key: &Key) {
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        self.must(self.now, &Method::DELETE, &path(kind, key), &at_once);
        if self.read(&path(kind, key)).is_some() {
            self.edit(kind, key, &json!({"metadata": {"finalizers": null}}));
        }
    }

    /// A node takes a Pod that none has yet, and reports its status.
    #[track_caller]
    pub(crate) fn node_runs(&mut self, key: &Key, status: &Value) {
        if self.get(&POD, key).unwrap()["spec"].get("nodeName").is_none() {
            let binding = json!({"metadata": {"name": key.name}, "target": {"kind": "Node", "name": "node"}});
            self.must(self.now, &Method::POST, &(path(&POD, key) + "/binding"), &binding);
        }
        self.edit(&POD, key, &json!({"status": status}));
    }

    /// The node reports that a Pod which is being deleted has ended.
    #[track_caller]
    pub(crate) fn node_ends(&mut self, key: &Key) {
        self.must(self.now, &Method::DELETE, &path(&POD, key), &json!({"gracePeriodSeconds": 0}));
    }

    /// Puts an object into the caches alone, for one that no server would take.
    pub(crate) fn cache_only(&mut self, raw: Value) {
        let word = raw["kind"].as_str().unwrap();
        let kind = self.kinds.iter().find(|kind| kind.kind == word).expect("a kind this cluster has").clone();
        self.world.put(cached(&kind, raw));
    }

    pub(crate) fn plan(&self, machine: &AnyMachine, object: &Arc<Object>) -> BoundPlan {
        self.plan_hearing(machine, object, &Arc::default())
    }

    fn plan_hearing(&self, machine: &AnyMachine, object: &Arc<Object>, answers: &Arc<Answers>) -> BoundPlan {
        let refusals = self
            .refusals
            .iter()
            .find(|(kind, key, _)| kind == object.kind() && *key == object.key())
            .map(|(_, _, refusals)| refusals.as_slice())
            .unwrap_or_default();
        let input = Input { view: &self.world, me: object, refusals, answers };
        machine.plan(&input, self.now).unwrap()
    }

    /// Observes, decides and applies once for one object.
    pub(crate) fn step(&mut self, machine: &AnyMachine, kind: &Kind, key: &Key) -> Outcome {
        let mut answers = Answers::default();
        for _ in 0..MAX_ROUNDS {
            let Some(me) = self.world.get(kind, key) else { return Outcome::default() };
            let plan = self.plan_hearing(machine, &me, &Arc::new(answers.clone()));
            let asks = plan.asks.clone();
            let outcome = self.apply(plan, me, usize::MAX);
            // What was refused is known until the look ends.
            let over = asks.is_empty() || outcome.failure.is_some() || !outcome.refusals.is_empty();
            if over {
                self.refusals.retain(|(of, at, _)| (of, at) != (kind, key));
                if !outcome.refusals.is_empty() {
                    self.refusals.push((kind.clone(), key.clone(), outcome.refusals.clone()));
                }
                return outcome;
            }
            for call in asks {
                assert!(!answers.contains(&call), "asked twice in one look: {call}");
                self.calls.push(call.clone());
                let answer = self.call(&call);
                answers.put(call, answer);
            }
        }
        panic!("still asking after {MAX_ROUNDS} rounds");
    }

    /// Like `step`, but dies at the first plan that writes anything, after so many of its requests.
    pub(crate) fn step_dying_at_a_write(
        &mut self,
        machine: &AnyMachine,
        kind: &Kind,
        key: &Key,
        requests: usize,
    ) {
        let mut answers = Answers::default();
        for _ in 0..MAX_ROUNDS {
            let Some(me) = self.world.get(kind, key) else { return };
            let plan = self.plan_hearing(machine, &me, &Arc::new(answers.clone()));
            let asks = plan.asks.clone();
            if asks.is_empty() || !plan.steps.is_empty() {
                self.apply(plan, me, requests);
                return;
            }
            for call in asks {
                let answer = self.call(&call);
                answers.put(call, answer);
            }
        }
        panic!("still asking after {MAX_ROUNDS} rounds");
    }

    fn call(&mut self, call: &Call) -> Result<Reply, Failure> {
        let port = self.port.clone();
        port.and_then(|port| port(self, call)).unwrap_or_else(|| (self.outside)(call))
    }

    /// Carries a plan out, and dies after so many requests.
    pub(crate) fn apply(&mut self, plan: BoundPlan, me: Arc<Object>, requests: usize) -> Outcome {
        let mut applying = Applying::new(plan, me, self.now);
        for _ in 0..requests {
            let Some(request) = applying.ask() else { break };
            let (code, body) = self.answer(&request);
            applying.answer(Answer::Received { code, retry_after: None, body: body.to_string().as_bytes() });
        }
        applying.finish()
    }

    /// Runs the machines on all they are about until nothing is written any more.
    pub(crate) fn settle(&mut self, machines: &[AnyMachine]) {
        for _ in 0..MAX_ROUNDS {
            let before = self.server.revision();
            let refused = self.refusals.len();
            for machine in machines {
                let kinds = match machine.description().primary.kind() {
                    Some(kind) => vec![kind.clone()],
                    None => self.world.kinds(),
                };
                for kind in kinds {
                    for object in self.world.list(&kind, None) {
                        if self.world.get(&kind, &object.key()).is_some() {
                            self.step(machine, &kind, &object.key());
                        }
                    }
                }
            }
            if self.server.revision() == before && self.refusals.len() == refused {
                return;
            }
        }
        panic!("still writing after {MAX_ROUNDS} rounds");
    }

    /// Sends a request of a controller.
    pub(crate) fn answer(&mut self, request: &Request<Vec<u8>>) -> (u16, Value) {
        let sent: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let path = request.uri().path();
        let is_status = path.ends_with("/status");
        if let Some((kind, code, body)) = &self.refuse_create
            && request.method() == Method::POST
            && path == kind.path(sent["metadata"]["namespace"].as_str(), None)
        {
            return (*code, body.clone());
        }
        if path.contains("/events.k8s.io/") && request.method() == Method::POST {
            let text = |field: &str| sent[field].as_str().unwrap().to_owned();
            let event = (text("type"), text("reason"), text("note"));
            if !self.events.contains(&event) {
                self.events.push(event);
            }
        }
        let before = self.server.revision();
        let (code, body) = self.send(request.clone());
        if is_status && code < 300 && self.server.revision() > before {
            let metadata = &body["metadata"];
            let key = Key::new(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap());
            self.statuses.push((key, body["status"].clone()));
        }
        (code, body)
    }

    /// Sends what the server must not refuse, at this time.
    #[track_caller]
    fn must(&mut self, at: Timestamp, method: &Method, path: &str, body: &Value) {
        let now = std::mem::replace(&mut self.now, at);
        let (code, answer) = self.send(request(method.clone(), path, body));
        self.now = now;
        assert!(
            code < 300,
            "{code} {}\n{method} {path} {body}",
            answer["message"].as_str().unwrap_or_default()
        );
    }

    /// The object as the server stores it.
    fn read(&mut self, path: &str) -> Option<Value> {
        let (code, found) = self.send(request(Method::GET, path, &Value::Null));
        (code == 200).then_some(found)
    }

    fn send(&mut self, request: Request<Vec<u8>>) -> (u16, Value) {
        self.env.lock().now = self.now;
        let response = self.server.call(request.map(Into::into));
        self.env.lock().uid = None;
        self.catch_up();
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    /// Gives the caches what changed on the server, as its watches would.
    fn catch_up(&mut self) {
        for change in self.server.changes(self.revision).unwrap() {
            self.revision = change.revision();
            let ids = change.ids();
            let is_of = |kind: &&Kind| *kind.group == *ids.group && *kind.plural == *ids.plural;
            let Some(kind) = self.kinds.iter().find(is_of) else { continue };
            let object = cached(kind, change.value());
            match change.change() {
                ChangeType::Added | ChangeType::Modified => self.world.put(object),
                ChangeType::Deleted => drop(self.world.remove(kind, &object.key())),
            }
        }
    }
}

/// A server that has these kinds. Tests of one process share what it takes to compile their definitions.
fn server_with(kinds: &[Kind]) -> Server {
    static SERVERS: LazyLock<Mutex<BTreeMap<Vec<Kind>, Server>>> = LazyLock::new(Mutex::default);
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let server = Server::in_memory(Arc::new(TestEnv::default()));
        for kind in kinds {
            let path = kind.path(None, None);
            if !server.call(request(Method::GET, &path, &Value::Null).map(Into::into)).status().is_success() {
                server.install_crd(definition(kind).unwrap_or_else(|| open_definition(kind))).unwrap();
            }
        }
        server
    };
    servers.entry(kinds.to_vec()).or_insert_with(make).clone()
}

/// The definition of a kind of ours or Tekton's. One at a time: to derive them all takes longer than most tests.
fn definition(kind: &Kind) -> Option<Value> {
    use pawl_api::crds::of;
    use pawl_api::{deploy, git, pawl, remedy};
    let derive: fn() -> CustomResourceDefinition = match &*kind.kind {
        "Repository" => of::<git::Repository>,
        "Branch" => of::<git::Branch>,
        "WorkflowTemplate" => of::<git::WorkflowTemplate>,
        "Workflow" => of::<git::Workflow>,
        "Installation" => of::<deploy::Installation>,
        "Execution" => of::<deploy::Execution>,
        "DeployItem" => of::<deploy::DeployItem>,
        "Target" => of::<deploy::Target>,
        "DataObject" => of::<deploy::DataObject>,
        "RemediationPlaybook" => of::<remedy::RemediationPlaybook>,
        "RemediationRequest" => of::<remedy::RemediationRequest>,
        "WorkflowExecution" => of::<remedy::WorkflowExecution>,
        "KubernetesExecution" => of::<remedy::KubernetesExecution>,
        "Freeze" => of::<pawl::Freeze>,
        "Approval" => of::<pawl::Approval>,
        word => {
            let mut tekton = pawl_api::tekton::crds::all().into_iter();
            return tekton
                .find(|crd| crd["spec"]["group"] == *kind.group && crd["spec"]["names"]["kind"] == word);
        }
    };
    Some(serde_json::to_value(derive()).unwrap()).filter(|crd| crd["spec"]["group"] == *kind.group)
}

#[test]
fn every_kind_of_ours_has_its_own_definition() {
    for crd in pawl_api::crds::all() {
        let names = crd.spec.names.clone();
        let kind = Kind { group: crd.spec.group.clone().into(), kind: names.kind.into(), ..CONFIG_MAP };
        assert_eq!(definition(&kind), Some(serde_json::to_value(crd).unwrap()));
    }
}

/// An object as informers keep it: without its field owners.
fn cached(kind: &Kind, mut raw: Value) -> Arc<Object> {
    raw["metadata"].as_object_mut().unwrap().remove("managedFields");
    Object::new(kind.clone(), raw).unwrap()
}

/// Time and identities for the server, as a test gives them.
#[derive(Debug)]
struct TestEnv(Mutex<Given>);

#[derive(Debug)]
struct Given {
    now: Timestamp,
    /// Of the object that is created next.
    uid: Option<String>,
    created: u32,
}

impl Default for TestEnv {
    fn default() -> Self {
        Self(Mutex::new(Given { now: START.parse().unwrap(), uid: None, created: 0 }))
    }
}

impl TestEnv {
    fn lock(&self) -> std::sync::MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Env for TestEnv {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn uid(&self, object: &str) -> String {
        let mut given = self.lock();
        given.created += 1;
        let numbered = format!("{}-{}", object.replace('/', "-"), given.created);
        given.uid.take().unwrap_or(numbered)
    }

    fn suffix(&self) -> String {
        let mut given = self.lock();
        given.created += 1;
        format!("{:05}", given.created)
    }
}

/// A definition of somebody else's kind, which may hold anything.
fn open_definition(kind: &Kind) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {
            "group": kind.group,
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.to_lowercase()},
            "versions": [{"name": kind.version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}],
        },
    })
}

fn timestamp(text: &Value) -> Timestamp {
    serde_json::from_value(text.clone()).unwrap()
}

fn path(kind: &Kind, key: &Key) -> String {
    kind.path(key.namespace.as_deref(), Some(&key.name))
}

fn request(method: Method, path: &str, body: &Value) -> Request<Vec<u8>> {
    let content_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { vec![] } else { body.to_string().into_bytes() };
    Request::builder().method(method).uri(path).header("content-type", content_type).body(body).unwrap()
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
