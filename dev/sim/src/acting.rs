//! Actions in a simulated world: what is asked about them, and the executor that carries them out on the store.
//!
//! ```text
//!  machines ──▶ port ──(faults)──▶ the registry of actions, on the store      policy: what a ConfigMap says in a word
//!  node ──▶ executor ──▶ one write at a time, then the report
//! ```
//! The registry decides here what it decides in `pawl act`; only the way to the API server is shorter. Policies are words:
//! `allow`, `deny`, `approve` (one approval), `approve-soon` (within ten minutes), `dry-run`; a condition is
//! `/spec/replicas == 5` of the target.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request};
use jiff::SignedDuration;
use pawl_api::k8s::{SECRET, SERVICE_ACCOUNT};
use pawl_api::remedy::kubernetes_execution::{self, DryRunResults, EstimatedImpact};
use pawl_apiserver::{Env as _, Server};
use pawl_engine::Ports;
use pawl_machines::external;
use pawl_machines::failure::Failure;
use pawl_machines::logs::Logs;
use pawl_machines::object::{Key, Object, Reference};
use pawl_machines::remedy::action::course::{Course, Write};
use pawl_machines::remedy::action::executor::{CONTAINER, ORDER_KEY};
use pawl_machines::remedy::action::kept::{self, Kept};
use pawl_machines::remedy::action::report::Outcome;
use pawl_machines::remedy::action::seen::{Read, Seen};
use pawl_machines::remedy::action::{
    self, Access, Ask, Captured, Context, Definition, Looked, Order, Report, definition, diff,
};
use pawl_machines::remedy::safety::{Answer, Decision, Held, Policies, Question, Verdict};
use serde_json::Value;

use crate::fault::Fault;
use crate::ground::{Ground, SharedTrace, SimEnv, request, request_line};
use crate::hub::Weather;
use crate::mutant::{Guard, Guards};

/// A value that stands in Secrets, and may stand nowhere else (I6).
pub const CANARY: &str = "obviously-not-a-real-secret";

/// Whether a text has the canary in it, as it is or as a Secret holds it. Its length divides by three, so that whatever
/// follows it does not change how it is encoded.
pub fn sings(text: &str) -> bool {
    text.contains(CANARY) || text.contains(&STANDARD.encode(CANARY))
}

/// Answers about actions, policies and logs, for one replica.
#[derive(Debug)]
struct Port {
    server: Server,
    env: Arc<SimEnv>,
    weather: Arc<dyn Weather>,
    trace: SharedTrace,
    guards: Guards,
}

/// The ports of one replica.
pub fn ports(
    server: &Server,
    env: &Arc<SimEnv>,
    weather: Arc<dyn Weather>,
    trace: SharedTrace,
    guards: Guards,
) -> Ports {
    let port = Arc::new(Port { server: server.clone(), env: Arc::clone(env), weather, trace, guards });
    Ports::default().with::<action::Call>(port.clone()).with::<Question>(port.clone()).with::<Logs>(port)
}

impl Port {
    fn store(&self) -> Store<'_> {
        Store { server: &self.server, trace: &self.trace, now: self.env.now(), guards: self.guards }
    }

    async fn through_the_weather<R: external::Request>(
        &self,
        call: &R,
        answer: impl Fn() -> Result<R::Reply, Failure>,
    ) -> Result<R::Reply, Failure> {
        let lost = |why: &str| Err(Failure::unanswered(call.to_string(), why));
        let fault = self.weather.strike();
        if let Some(fault) = fault {
            self.trace.strike(fault, call.to_string());
        }
        if sings(&format!("{call:?}")) {
            self.trace.leak(call.to_string());
        }
        self.trace.line(|| match fault {
            Some(fault) => format!("{call} (fault: {fault})"),
            None => call.to_string(),
        });
        match fault {
            None | Some(Fault::Gone | Fault::Duplicate) => answer(),
            Some(Fault::ClockJump { seconds }) => {
                self.weather.jump(SignedDuration::from_secs(seconds.into()));
                answer()
            }
            Some(Fault::CrashBefore) => {
                self.weather.crash().await;
                lost("the process died")
            }
            Some(Fault::CrashAfter) => {
                let _ = answer();
                self.weather.crash().await;
                lost("the process died")
            }
            Some(Fault::ReplyLost | Fault::ServerErrorAfterwards) => {
                let _ = answer();
                lost("injected: the answer is lost")
            }
            Some(Fault::Timeout | Fault::TooManyRequests | Fault::ServerError | Fault::Conflict) => {
                lost("injected")
            }
        }
    }
}

impl pawl_engine::Port<action::Call> for Port {
    fn call<'a>(&'a self, call: &'a action::Call) -> BoxFuture<'a, Result<action::Reply, Failure>> {
        Box::pin(self.through_the_weather(call, || self.store().answer(call)))
    }
}

impl pawl_engine::Port<Question> for Port {
    fn call<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(self.through_the_weather(question, || {
            Ok(match question {
                Question::Safety { policies, .. } => Answer::Safety(verdict(policies)),
                Question::Condition { rego, input } => Answer::Condition(held(rego, input)),
                Question::Check { .. } => Answer::Check(Ok(())),
            })
        }))
    }
}

impl pawl_engine::Port<Logs> for Port {
    fn call<'a>(&'a self, logs: &'a Logs) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(self.through_the_weather(logs, || Ok(String::new())))
    }
}

fn verdict(policies: &Policies) -> Verdict {
    let word = policies.modules.first().map_or("allow", |(_, text)| text.as_str());
    let denies = word == "deny";
    let decision = Decision {
        allow: !denies,
        deny: denies.then(|| "not now".to_owned()).into_iter().collect(),
        require_approval: matches!(word, "approve" | "approve-soon"),
        approver_count: 1,
        approval_timeout: (word == "approve-soon").then(|| pawl_api::meta::Duration::from_mins(10)),
        require_dry_run: word == "dry-run",
        ..Decision::default()
    };
    Verdict {
        policy: word.to_owned(),
        digest: policies.digest.clone(),
        decision: Ok(decision),
        outdated: None,
    }
}

fn held(rego: &str, input: &str) -> Held {
    let Some((pointer, value)) = rego.split_once(" == ") else {
        return Held::Error("no such rule".to_owned());
    };
    let input: Value = serde_json::from_str(input).unwrap_or_default();
    let found = input.get("target").and_then(|target| target.pointer(pointer)).map(ToString::to_string);
    if found.as_deref() == Some(value) { Held::Yes { message: None } } else { Held::No { message: None } }
}

/// What the executor in a Pod would do next: one write, or its last words and with what it ends.
#[derive(Debug)]
pub enum Move {
    Write(Box<Request<Vec<u8>>>),
    End { code: i64, message: String },
}

/// The next move of the executor in a Pod; `None` for Pods of others.
pub fn next_move(ground: &Ground, pod: &Object) -> Option<Move> {
    let containers = pod.raw().pointer("/spec/containers")?.as_array()?;
    if containers.first()?.get("name")?.as_str() != Some(CONTAINER) {
        return None;
    }
    let volumes = pod.raw().pointer("/spec/volumes")?.as_array()?;
    let input = volumes.first()?.pointer("/secret/secretName")?.as_str()?;
    let store =
        Store { server: &ground.server, trace: ground.trace(), now: ground.now(), guards: Guards::default() };
    let secret = store.get(&SECRET, &Key::new(pod.namespace(), input))?;
    let order = Order::from_json(&decoded(&secret, ORDER_KEY)?).ok()?;
    let course = store.asked(&order, |definition, context, seen| definition.course(context, seen))?;
    let (outcome, said) = match course {
        Course::Finish(writes) | Course::Step(writes) => {
            return writes
                .first()
                .and_then(|write: &Write| write.request(false).ok())
                .map(|request| Move::Write(Box::new(request)));
        }
        Course::Done(said) => (Outcome::Done, said),
        Course::Refuse(said) => (Outcome::Refused, said),
        Course::Wait(said) => (Outcome::Failed, said),
    };
    let code = i64::from(outcome != Outcome::Done);
    let message = Report::new(&order.uid, order.action, outcome, said).render();
    Some(Move::End { code, message })
}

/// The store, as the registry of actions looks at it.
struct Store<'a> {
    server: &'a Server,
    trace: &'a SharedTrace,
    now: jiff::Timestamp,
    guards: Guards,
}

impl Store<'_> {
    fn answer(&self, call: &action::Call) -> Result<action::Reply, Failure> {
        let gone = || Failure::unanswered(call.to_string(), "its order cannot be read");
        Ok(match &call.ask {
            Ask::Look => action::Reply::Looked(self.look(&call.order).ok_or_else(gone)?),
            Ask::Access { service_account } => {
                // Rights are no subject here; whether there is an account is.
                let exists = self.get(&SERVICE_ACCOUNT, service_account).is_some();
                action::Reply::Access(Access { exists, missing: Vec::new() })
            }
            Ask::DryRun { .. } => {
                let looked = self.look(&call.order).ok_or_else(gone)?;
                let description =
                    looked.described.iter().map(|one| one.before.as_str()).collect::<Vec<_>>().join("; ");
                let impact = EstimatedImpact { resources_affected: 1, replicas_changed: None, description };
                action::Reply::DryRun(DryRunResults {
                    performed: true,
                    success: true,
                    estimated_impact: Some(impact),
                    ..DryRunResults::default()
                })
            }
            Ask::Capture { secret, .. } => {
                action::Reply::Captured(self.capture(&call.order, secret).ok_or_else(gone)?)
            }
        })
    }

    fn look(&self, order: &Order) -> Option<Looked> {
        self.asked(order, |definition, context, seen| {
            let before = definition.before(context, seen);
            let targets = definition.targets(order, context.parameters).into_iter().map(|place| {
                let masks = self.guards.has(Guard::ShownMask);
                let shown = |object: &Value| if masks { diff::shown(object) } else { object.clone() };
                let object = seen.object(&place).map(|object| Arc::new(shown(object)));
                let uid = object.as_deref().and_then(|object| object.pointer("/metadata/uid")?.as_str());
                let uid = uid.unwrap_or_default().to_owned();
                (Reference { kind: place.kind.clone(), key: place.key.clone(), uid }, object)
            });
            Looked {
                targets: targets.collect(),
                digest: self.left_by(order).unwrap_or_else(|| kept::digest(&before)),
                described: before.iter().map(|one| kept::describe(definition.action, one)).collect(),
                ..Looked::default()
            }
        })
    }

    /// Without the guard, a target seems to be what the execution of this order left.
    fn left_by(&self, order: &Order) -> Option<String> {
        if self.guards.has(Guard::Freshness) {
            return None;
        }
        let execution = self.get(&kubernetes_execution::KIND, &order.execution)?;
        execution.pointer("/status/rollbackInformation/changedDigest")?.as_str().map(str::to_owned)
    }

    /// The undo is stored once: who comes second finds it.
    fn capture(&self, order: &Order, secret: &Key) -> Option<Captured> {
        if let Some(stored) = self.kept(secret) {
            return Some(stored.told(secret, "sha"));
        }
        let kept = self.asked(order, |definition, context, seen| {
            let undo = definition.undo(context, seen, seen);
            Kept::new(order, definition.before(context, seen), undo)
        })?;
        let manifest = kept::manifest(order, secret, &serde_json::to_vec(&kept).ok()?);
        let path = SECRET.path(secret.namespace.as_deref(), None);
        let made = request(Method::POST, &path, "application/json", &manifest);
        self.trace.line(|| request_line("undo", made.method(), made.uri(), made.body()));
        self.server.call(made.map(Bytes::from));
        // Whoever was faster stored what counts.
        self.kept(secret).map(|stored| stored.told(secret, "sha"))
    }

    fn kept(&self, secret: &Key) -> Option<Kept> {
        serde_json::from_str(&decoded(&self.get(&SECRET, secret)?, kept::KEY)?).ok()
    }

    fn asked<T>(&self, order: &Order, ask: impl FnOnce(&Definition, &Context<'_>, &Seen) -> T) -> Option<T> {
        let parameters = order.parameters().ok()?;
        let executor = pawl_api::remedy::EXECUTOR_NAMESPACE;
        let own = self.kept(&kept::secret(executor, &order.uid));
        let undone = order.undoes.as_deref().and_then(|uid| self.kept(&kept::secret(executor, uid)));
        let context = Context {
            order,
            parameters: &parameters,
            kept: own.as_ref(),
            undone: undone.as_ref(),
            now: self.now,
        };
        let definition = definition(order.action);
        let mut seen = Seen::default();
        loop {
            let reads = definition.reads(&context, &seen);
            if reads.is_empty() {
                return Some(ask(definition, &context, &seen));
            }
            for read in reads {
                match read {
                    Read::Object(place) => {
                        let found = self.get(&place.kind, &place.key);
                        seen.put(place, found);
                    }
                    // No action of a simulated world needs a list.
                    Read::List(listing) => seen.put_list(listing, Vec::new()),
                }
            }
        }
    }

    fn get(&self, kind: &pawl_api::meta::Kind, key: &Key) -> Option<Value> {
        let path = kind.path(key.namespace.as_deref(), Some(&key.name));
        let asked = request(Method::GET, &path, "application/json", &Value::Null);
        let response = self.server.call(asked.map(Bytes::from));
        if response.status() != 200 {
            return None;
        }
        serde_json::from_slice(response.body()).ok()
    }
}

fn decoded(secret: &Value, key: &str) -> Option<String> {
    let text = secret.get("data")?.get(key)?.as_str()?;
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}
