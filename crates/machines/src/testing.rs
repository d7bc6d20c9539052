//! A cluster small enough to read, for tests of decisions: it takes the requests that applying makes and answers as an
//! API server would, with optimistic concurrency, finalizers and graceful deletion, and nothing else.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use jiff::Timestamp;
use pawl_api::meta::Kind;
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
    revision: u64,
    refusals: Vec<(Kind, Key, Vec<Refusal>)>,
}

impl Cluster {
    /// Takes documents of YAML. UIDs that are not given are `<kind>-<name>` in small letters.
    pub(crate) fn of(kinds: &[Kind], yaml: &str) -> Self {
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
            revision: 0,
            refusals: vec![],
        };
        for kind in kinds {
            cluster.world.cache(kind);
        }
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            cluster.put(document);
        }
        cluster
    }

    pub(crate) fn put(&mut self, mut raw: Value) {
        let word = raw["kind"].as_str().unwrap().to_owned();
        let kind = self.kinds.iter().find(|kind| kind.kind == word).expect("a kind this cluster has").clone();
        let name = raw["metadata"]["name"].as_str().unwrap().to_owned();
        let metadata = raw["metadata"].as_object_mut().unwrap();
        metadata.entry("uid").or_insert_with(|| format!("{}-{name}", word.to_lowercase()).into());
        metadata.entry("creationTimestamp").or_insert_with(|| START.into());
        metadata.entry("generation").or_insert_with(|| 1.into());
        if kind.namespaced {
            metadata.entry("namespace").or_insert_with(|| "n".into());
        }
        self.store(&kind, raw);
    }

    /// Changes an object as somebody else would.
    pub(crate) fn edit(&mut self, kind: &Kind, key: &Key, patch: &Value) {
        let mut raw = self.get(kind, key).expect("an object to edit");
        merge(&mut raw, patch);
        self.store(kind, raw);
    }

    pub(crate) fn get(&self, kind: &Kind, key: &Key) -> Option<Value> {
        Some(self.world.get(kind, key)?.raw().clone())
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// A person's delete.
    pub(crate) fn delete(&mut self, kind: &Kind, key: &Key, propagation: &str) {
        let body = json!({"propagationPolicy": propagation});
        assert!(self.answer_delete(kind, key, &body).0 < 300);
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
            let before = self.revision;
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
            if self.revision == before && self.refusals.len() == refused {
                return;
            }
        }
        panic!("still writing after {MAX_ROUNDS} rounds");
    }

    fn store(&mut self, kind: &Kind, mut raw: Value) {
        self.revision += 1;
        raw["apiVersion"] = kind.api_version().into();
        raw["kind"] = kind.kind.as_ref().into();
        raw["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Object::new(kind.clone(), raw).unwrap();
        let held_by_spec = object.raw().pointer("/spec/finalizers").is_some_and(|held| *held != json!([]));
        let graceful = object.meta().deletion_grace_period_seconds.unwrap_or_default() > 0;
        if object.is_deleting() && object.finalizers().is_empty() && !held_by_spec && !graceful {
            self.world.remove(kind, &object.key());
        } else {
            self.world.put(object);
        }
    }

    pub(crate) fn answer(&mut self, request: &Request<Vec<u8>>) -> (u16, Value) {
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        if request.uri().path().contains("/events.k8s.io/") {
            let text = |field: &str| body[field].as_str().unwrap().to_owned();
            let event = (text("type"), text("reason"), text("note"));
            if !self.events.contains(&event) {
                self.events.push(event);
            }
            return (201, body);
        }
        let (kind, key, part) = self.route(request.uri().path());
        if request
            .headers()
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|type_| type_ == "application/apply-patch+yaml")
        {
            return match self.get(&kind, &key) {
                Some(_) => self.answer_patch(&kind, &key, "", body),
                None => self.answer_create(&kind, key.namespace.as_deref(), body),
            };
        }
        match (request.method(), part.as_str()) {
            (&Method::POST, _) => self.answer_create(&kind, key.namespace.as_deref(), body),
            (&Method::GET, _) if key.name.is_empty() => self.answer_list(&kind, &key, request.uri().query()),
            (&Method::GET, _) => self.get(&kind, &key).map_or_else(not_found, |found| (200, found)),
            (&Method::PATCH, part) => self.answer_patch(&kind, &key, part, body),
            (&Method::PUT, "finalize") => {
                let finalizers = body["spec"]["finalizers"].clone();
                let swap = json!({"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]},
                    "spec": {"finalizers": finalizers}});
                self.answer_patch(&kind, &key, "", swap)
            }
            (&Method::DELETE, _) => self.answer_delete(&kind, &key, &body),
            other => panic!("no answer to {other:?}"),
        }
    }

    fn route(&self, path: &str) -> (Kind, Key, String) {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, rest) = if parts[0] == "api" { ("", &parts[2..]) } else { (parts[1], &parts[3..]) };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => {
                (Some(*namespace), rest)
            }
            rest => (None, rest),
        };
        let kind = self.kinds.iter().find(|kind| kind.group == group && kind.plural == rest[0]);
        let key = Key::new(namespace, rest.get(1).copied().unwrap_or_default());
        (kind.expect("a kind this cluster has").clone(), key, rest.get(2).unwrap_or(&"").to_string())
    }

    fn answer_list(&self, kind: &Kind, within: &Key, query: Option<&str>) -> (u16, Value) {
        let selector =
            query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("labelSelector="));
        let wanted = selector.map(|text| text.replace("%2F", "/").replace("%3D", "="));
        let matches = |object: &Arc<Object>| match wanted.as_deref().and_then(|text| text.split_once('=')) {
            Some((label, value)) => object.label(label) == Some(value),
            None => true,
        };
        let all = self.world.list(kind, within.namespace.as_deref());
        let items: Vec<Value> = all.iter().filter(|one| matches(one)).map(|one| one.raw().clone()).collect();
        (200, json!({"kind": "List", "items": items}))
    }

    fn answer_create(&mut self, kind: &Kind, namespace: Option<&str>, mut raw: Value) -> (u16, Value) {
        if let Some((refused, code, body)) = &self.refuse_create
            && refused == kind
        {
            return (*code, body.clone());
        }
        let key = Key::new(namespace, raw["metadata"]["name"].as_str().unwrap());
        if self.get(kind, &key).is_some() {
            return failed(409, "AlreadyExists");
        }
        let uid = format!("{}-{}-{}", kind.kind.to_lowercase(), key.name, self.revision);
        merge(&mut raw, &json!({"metadata": {"uid": uid, "creationTimestamp": self.now, "generation": 1}}));
        self.store(kind, raw);
        (201, self.get(kind, &key).unwrap())
    }

    fn answer_patch(&mut self, kind: &Kind, key: &Key, part: &str, mut patch: Value) -> (u16, Value) {
        let Some(mut raw) = self.get(kind, key) else { return not_found() };
        for field in ["uid", "resourceVersion"] {
            if patch["metadata"].get(field).is_some_and(|wanted| *wanted != raw["metadata"][field]) {
                return failed(409, "Conflict");
            }
        }
        let before = raw.clone();
        if part == "status" {
            merge(&mut raw, &json!({"status": patch["status"]}));
        } else {
            patch.as_object_mut().unwrap().remove("status");
            merge(&mut raw, &patch);
        }
        if raw != before {
            if part == "status" {
                self.statuses.push((key.clone(), raw["status"].clone()));
            }
            self.store(kind, raw.clone());
        }
        (200, self.get(kind, key).unwrap_or(raw))
    }

    fn answer_delete(&mut self, kind: &Kind, key: &Key, options: &Value) -> (u16, Value) {
        let Some(mut raw) = self.get(kind, key) else { return not_found() };
        for field in ["uid", "resourceVersion"] {
            let wanted = options["preconditions"].get(field);
            if wanted.is_some_and(|wanted| *wanted != raw["metadata"][field]) {
                return failed(409, "Conflict");
            }
        }
        let finalizer = match options["propagationPolicy"].as_str() {
            Some("Foreground") => Some("foregroundDeletion"),
            Some("Orphan") => Some("orphan"),
            _ => None,
        };
        let mut finalizers = raw["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if let Some(finalizer) = finalizer.filter(|finalizer| !finalizers.contains(&json!(finalizer))) {
            finalizers.push(finalizer.into());
        }
        // What runs on a node ends when its node says so.
        let grace = if kind.kind == "Pod" && raw["status"]["phase"] == "Running" { 30 } else { 0 };
        let deleting = raw["metadata"].get("deletionTimestamp").is_some();
        merge(&mut raw, &json!({"metadata": {"finalizers": finalizers}}));
        if !deleting {
            merge(
                &mut raw,
                &json!({"metadata": {"deletionTimestamp": self.now, "deletionGracePeriodSeconds": grace}}),
            );
        }
        if kind.kind == "Namespace" {
            merge(&mut raw, &json!({"status": {"phase": "Terminating"}}));
        }
        if Some(&raw) != self.get(kind, key).as_ref() {
            self.store(kind, raw.clone());
        }
        (200, raw)
    }
}

fn not_found() -> (u16, Value) {
    failed(404, "NotFound")
}

fn failed(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "reason": reason, "message": "because", "code": code}))
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
