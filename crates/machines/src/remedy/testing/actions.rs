//! A small cluster with the machines of this door, in which actions are carried out: the ports and the executor are played
//! by the real registry on the cluster's own objects, policy and conditions by what the test says.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pawl_api::k8s::{CONFIG_MAP, DEPLOYMENT, NODE, REPLICA_SET, SECRET};
use pawl_api::meta::Kind;
use pawl_api::pawl::approval;
use pawl_api::remedy::kubernetes_execution::{self, DryRunResults, EstimatedImpact};
use pawl_api::remedy::{KubernetesExecution, remediation_request, workflow_execution};
use pawl_api::tekton::{PIPELINE_RUN, TASK_RUN};
use serde_json::{Map, Value, json};

use crate::cluster::garbage::Garbage;
use crate::cluster::job::orphans::OrphanPods;
use crate::cluster::job::{JOB, Jobs, POD};
use crate::cluster::namespace::NAMESPACE;
use crate::external::{Call, Reply};
use crate::failure::Failure;
use crate::lock::{self, LEASE, Lock, reaper::Reaper};
use crate::logs::Logs;
use crate::machine::AnyMachine;
use crate::object::{Key, Reference};
use crate::remedy::action::course::Course;
use crate::remedy::action::kept::{self, Kept};
use crate::remedy::action::report::Outcome;
use crate::remedy::action::seen::{Read, Seen};
use crate::remedy::action::{self, Access, Ask, Captured, Context, Looked, Order, Report, definition};
use crate::remedy::identity::{self, BINDING, POLICY};
use crate::remedy::kubernetes_execution::{KubernetesExecutions, rollback};
use crate::remedy::remediation_request::RemediationRequests;
use crate::remedy::safety::{Answer, Decision, Held, Question, Verdict};
use crate::remedy::strays;
use crate::remedy::workflow_execution::WorkflowExecutions;
use crate::testing::{Cluster, merge};
use crate::view::View as _;

const KINDS: [Kind; 18] = [
    NAMESPACE,
    kubernetes_execution::KIND,
    workflow_execution::KIND,
    remediation_request::KIND,
    approval::KIND,
    JOB,
    POD,
    LEASE,
    SECRET,
    CONFIG_MAP,
    DEPLOYMENT,
    REPLICA_SET,
    NODE,
    POLICY,
    BINDING,
    PIPELINE_RUN,
    TASK_RUN,
    pawl_api::pawl::freeze::KIND,
];

pub(crate) const EXECUTOR: &str = "kubernaut-executor";

/// The answers of the fake ports, set by tests.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) access: Access,
    pub(crate) policy: Result<Decision, String>,
    /// Of the policy; another one is another policy.
    pub(crate) digest: String,
    pub(crate) dry_run_errors: Vec<String>,
    /// The ports that are down.
    pub(crate) down: Option<&'static str>,
    /// Who else changes the target just before its undo is captured.
    pub(crate) meanwhile: Option<i64>,
}

pub(crate) struct Acts {
    pub(crate) cluster: Cluster,
    pub(crate) machines: Vec<AnyMachine>,
    pub(crate) rules: Rc<RefCell<Rules>>,
}

impl Acts {
    pub(crate) fn new() -> Self {
        let mut machines = vec![
            AnyMachine::new(KubernetesExecutions::default()),
            AnyMachine::new(RemediationRequests::default()),
            AnyMachine::new(WorkflowExecutions::default()),
            AnyMachine::new(Garbage),
            AnyMachine::new(Jobs),
            AnyMachine::new(OrphanPods),
            AnyMachine::new(Reaper),
        ];
        machines.extend(strays::machines(EXECUTOR));
        let rules = Rc::new(RefCell::new(Rules {
            access: Access { exists: true, missing: vec![] },
            policy: Ok(Decision { allow: true, ..Decision::default() }),
            digest: "p1".to_owned(),
            dry_run_errors: vec![],
            down: None,
            meanwhile: None,
        }));
        let mut cluster = Cluster::of(&KINDS, "");
        let said = Rc::clone(&rules);
        cluster.port = Some(Rc::new(move |cluster, call| answer(cluster, call, &said.borrow().clone())));
        for name in ["n", "pawl-system", EXECUTOR, "kube-system"] {
            cluster.put(json!({"kind": "Namespace", "metadata": {"name": name}}));
        }
        // The one who asks in process is the server itself: it may say for whom, but not that somebody else approves.
        for manifest in identity::manifests(&["system:apiserver".to_owned()], &json!({})) {
            if manifest["metadata"]["name"] == identity::APPROVER {
                cluster.cache_only(manifest);
            } else {
                cluster.put(manifest);
            }
        }
        let mut acts = Self { cluster, machines, rules };
        acts.deployment("web", 3);
        acts
    }

    pub(crate) fn deployment(&mut self, name: &str, replicas: i64) -> &mut Self {
        self.cluster.put(json!({"kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
        self
    }

    pub(crate) fn replicas(&self, name: &str) -> i64 {
        let found = self.cluster.get(&DEPLOYMENT, &key(name)).expect("the Deployment");
        found["spec"]["replicas"].as_i64().unwrap()
    }

    pub(crate) fn scale(&mut self, name: &str, replicas: i64) -> &mut Self {
        self.cluster.edit(&DEPLOYMENT, &key(name), &json!({"spec": {"replicas": replicas}}));
        self.settle()
    }

    /// An execution that scales `n/web` to 5, changed as the patch says.
    #[expect(clippy::needless_pass_by_value, reason = "it is written in place, as json!")]
    pub(crate) fn execution(&mut self, name: &str, patch: Value) -> &mut Self {
        let mut raw = json!({"kind": "KubernetesExecution", "metadata": {"name": name}, "spec": {
            "action": "scale_deployment", "requestedBy": "ann",
            "parameters": {"scaleDeployment": {"deployment": "web", "namespace": "n", "replicas": 5}},
        }});
        merge(&mut raw, &patch);
        self.cluster.put(raw);
        self.settle()
    }

    pub(crate) fn rule(&mut self, change: impl FnOnce(&mut Decision)) -> &mut Self {
        if let Ok(decision) = &mut self.rules.borrow_mut().policy {
            change(decision);
        }
        self
    }

    /// Policy asks for so many approvals, of these groups.
    pub(crate) fn needs_approval(&mut self, count: u32, groups: &[&str]) -> &mut Self {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.rule(|decision| {
            decision.require_approval = true;
            decision.approver_count = count;
            decision.approver_groups = groups;
        })
    }

    pub(crate) fn digest_of(&self, name: &str) -> String {
        self.status(name)["approvalDigest"].as_str().unwrap_or("none").to_owned()
    }

    pub(crate) fn approve(&mut self, name: &str, who: &str, groups: &[&str]) -> &mut Self {
        let digest = self.digest_of(name);
        self.says(name, who, groups, "approve", &digest)
    }

    pub(crate) fn says(
        &mut self,
        name: &str,
        who: &str,
        groups: &[&str],
        word: &str,
        digest: &str,
    ) -> &mut Self {
        let at = self.cluster.now;
        let object = format!("{name}-{who}-{word}-{}", digest.get(..4).unwrap_or("none"));
        self.cluster.put(
            json!({"kind": "Approval", "metadata": {"name": object, "creationTimestamp": at}, "spec": {
            "executionRef": {"name": name}, "decision": word, "digest": digest, "reason": "because",
            "approver": {"username": who, "groups": groups}}}),
        );
        self.settle()
    }

    pub(crate) fn settle(&mut self) -> &mut Self {
        self.cluster.settle(&self.machines);
        self
    }

    pub(crate) fn wait(&mut self, by: Duration) -> &mut Self {
        self.cluster.advance(by);
        self.settle()
    }

    pub(crate) fn get(&self, name: &str) -> Value {
        self.cluster.get(&kubernetes_execution::KIND, &key(name)).expect("the execution")
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        self.get(name)["status"].clone()
    }

    #[track_caller]
    pub(crate) fn check(&mut self, name: &str, phase: &str, reason: &str) -> &mut Self {
        let status = self.status(name);
        assert_eq!((&status["phase"], &status["reason"]), (&json!(phase), &json!(reason)), "{status:#}");
        self
    }

    #[track_caller]
    pub(crate) fn gate(&self, name: &str, gate: &str) -> String {
        let status = self.status(name);
        let found = status["gates"].as_array().unwrap().iter().find(|one| one["gate"] == gate);
        let found = found.unwrap_or_else(|| panic!("no gate {gate}: {status:#}"));
        format!("{} {}", found["verdict"].as_str().unwrap(), found["reason"].as_str().unwrap())
    }

    pub(crate) fn jobs(&self) -> Vec<Value> {
        self.cluster.world.list(&JOB, None).iter().map(|job| job.raw().clone()).collect()
    }

    /// The Jobs that were let go and are not over, each by the execution it is of.
    pub(crate) fn going(&self) -> Vec<Key> {
        let jobs = self.jobs();
        let is_over = |job: &Value| {
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions
                .iter()
                .any(|one| one["status"] == "True" && (one["type"] == "Complete" || one["type"] == "Failed"))
        };
        let going = jobs.iter().filter(|job| job["spec"]["suspend"] == false && !is_over(job));
        going.map(|job| Key::new(Some(EXECUTOR), job["metadata"]["name"].as_str().unwrap())).collect()
    }

    /// The executors do their work: every Job that was let go carries out its order on the cluster, and ends.
    pub(crate) fn act(&mut self) -> &mut Self {
        for job in self.going() {
            let order = self.order_of(&job);
            let outcome = carry_out(&mut self.cluster, &order);
            let code = if outcome.outcome == Outcome::Done { 0 } else { 1 };
            self.pod_ends(&job, code, &outcome.render());
        }
        self.settle()
    }

    /// As `pawl rollback` does: creates the execution that takes this one back, and gives its name.
    pub(crate) fn roll_back(&mut self, name: &str) -> String {
        let first: KubernetesExecution = serde_json::from_value(self.get(name)).unwrap();
        let manifest = rollback::manifest(&first, Some("ann"), 1, serde_json::Map::new()).unwrap();
        let back = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        self.cluster.put(manifest);
        self.settle();
        back
    }

    /// The executors end otherwise.
    pub(crate) fn end(&mut self, code: i32, message: &str) -> &mut Self {
        for job in self.going() {
            self.pod_ends(&job, code, message);
        }
        self.settle()
    }

    fn order_of(&self, job: &Key) -> Order {
        let name = Key::new(Some(EXECUTOR), &format!("{}-in", job.name));
        let input = self.cluster.get(&SECRET, &name).expect("the input");
        let order = STANDARD.decode(input["data"]["order.json"].as_str().unwrap()).unwrap();
        Order::from_json(std::str::from_utf8(&order).unwrap()).unwrap()
    }

    fn pod_ends(&mut self, job: &Key, code: i32, message: &str) {
        let uid = self.cluster.get(&JOB, job).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let pods = self.cluster.world.owned(&POD, &uid);
        let pod = pods.last().expect("its Pod").key();
        let at = self.cluster.now;
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let ended = json!({"exitCode": code, "reason": if code == 137 { "OOMKilled" } else { "Error" },
            "message": message, "finishedAt": at});
        self.cluster.edit(
            &POD,
            &pod,
            &json!({"status": {"phase": phase, "containerStatuses": [
            {"name": "act", "ready": false, "restartCount": 0, "image": "pawl", "imageID": "pawl",
                "state": {"terminated": ended}}]}}),
        );
    }

    pub(crate) fn undo(&self, name: &str) -> Option<Value> {
        let uid = self.get(name)["metadata"]["uid"].as_str().unwrap().to_owned();
        self.cluster.get(&SECRET, &kept::secret(EXECUTOR, &uid))
    }

    /// Who holds a target, as the Leases say.
    pub(crate) fn holders(&self) -> Vec<String> {
        let leases = self.cluster.world.list(&LEASE, None);
        let held = leases.iter().filter_map(|lease| match lock::read(Some(lease)) {
            Lock::Held(holder) => Some(holder.unit.key.name.clone()),
            Lock::Free => None,
            Lock::Unreadable(identity) => Some(identity),
        });
        held.collect()
    }

    pub(crate) fn event(&self, reason: &str) -> bool {
        self.cluster.events.iter().any(|(_, one, _)| one == reason)
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(Some("n"), name)
}

/// A condition that the ports below understand: `/spec/replicas == 5` of the target.
pub(crate) fn condition(type_: &str, rego: &str, required: bool, timeout: &str) -> Value {
    json!({"type": type_, "rego": rego, "required": required, "timeout": timeout})
}

fn answer(cluster: &mut Cluster, call: &Call, rules: &Rules) -> Option<Result<Reply, Failure>> {
    if rules.down == Some(call.system()) {
        return Some(Err(Failure::unanswered(call.to_string(), "it is down")));
    }
    if let Some(call) = call.request() {
        return Some(Ok(Reply::new::<action::Call>(of_action(cluster, call, rules))));
    }
    if call.request::<Logs>().is_some() {
        return Some(Ok(Reply::new::<Logs>("scaled, and told so".to_owned())));
    }
    let answer = match call.request()? {
        Question::Safety { .. } => Answer::Safety(Verdict {
            policy: "test".to_owned(),
            digest: rules.digest.clone(),
            decision: rules.policy.clone(),
            outdated: None,
        }),
        Question::Condition { rego, input } => Answer::Condition(held(rego, input)),
        Question::Check { .. } => return None,
    };
    Some(Ok(Reply::new::<Question>(answer)))
}

fn held(rego: &str, input: &str) -> Held {
    let Some((pointer, value)) = rego.split_once(" == ") else {
        return Held::Error("no such rule".to_owned());
    };
    let input: Value = serde_json::from_str(input).unwrap();
    let found = input["target"].pointer(pointer).map(ToString::to_string).unwrap_or_default();
    let message = Some(format!("{pointer} is {found}"));
    if found == value { Held::Yes { message } } else { Held::No { message } }
}

fn of_action(cluster: &mut Cluster, call: &action::Call, rules: &Rules) -> action::Reply {
    match &call.ask {
        Ask::Look => action::Reply::Looked(look(cluster, &call.order)),
        Ask::Access { .. } => action::Reply::Access(rules.access.clone()),
        Ask::DryRun { .. } => {
            let looked = look(cluster, &call.order);
            let errors = rules.dry_run_errors.clone();
            let description =
                looked.described.iter().map(|one| one.before.clone()).collect::<Vec<_>>().join("; ");
            let impact = EstimatedImpact { resources_affected: 1, replicas_changed: None, description };
            action::Reply::DryRun(DryRunResults {
                performed: true,
                success: errors.is_empty(),
                estimated_impact: Some(impact),
                errors,
                ..DryRunResults::default()
            })
        }
        Ask::Capture { secret, .. } => {
            if let Some(replicas) = rules.meanwhile {
                cluster.edit(&DEPLOYMENT, &key("web"), &json!({"spec": {"replicas": replicas}}));
            }
            action::Reply::Captured(capture(cluster, &call.order, secret))
        }
    }
}

fn capture(cluster: &mut Cluster, order: &Order, secret: &Key) -> Captured {
    let stored = cluster.get(&SECRET, secret).map(|found| {
        let text = STANDARD.decode(found["data"][kept::KEY].as_str().unwrap()).unwrap();
        serde_json::from_slice::<Kept>(&text).unwrap()
    });
    let kept = stored.unwrap_or_else(|| {
        let kept = asked(cluster, order, |definition, context, seen| {
            let undo = definition.undo(context, seen, seen);
            Kept::new(order, definition.before(context, seen), undo)
        });
        cluster.put(kept::manifest(order, secret, &serde_json::to_vec(&kept).unwrap()));
        kept
    });
    kept.told(secret, "sha")
}

fn look(cluster: &Cluster, order: &Order) -> Looked {
    asked(cluster, order, |definition, context, seen| {
        let before = definition.before(context, seen);
        let targets = definition.targets(order, context.parameters).into_iter().map(|place| {
            let object = seen.object(&place).cloned().map(std::sync::Arc::new);
            let uid =
                object.as_deref().and_then(|object| object["metadata"]["uid"].as_str()).unwrap_or_default();
            (Reference { kind: place.kind.clone(), key: place.key.clone(), uid: uid.to_owned() }, object)
        });
        Looked {
            targets: targets.collect(),
            digest: kept::digest(&before),
            described: before.iter().map(|one| kept::describe(definition.action, one)).collect(),
            facts: Map::from_iter([("nodes".to_owned(), json!(3))]),
            refusal: match definition.course(context, seen) {
                Course::Refuse(why) => Some(why),
                Course::Step(_) | Course::Finish(_) | Course::Wait(_) | Course::Done(_) => None,
            },
            ..Looked::default()
        }
    })
}

/// What `pawl act` does, on this cluster.
fn carry_out(cluster: &mut Cluster, order: &Order) -> Report {
    let course = asked(cluster, order, |definition, context, seen| definition.course(context, seen));
    let (outcome, message) = match course {
        Course::Finish(writes) | Course::Step(writes) => {
            let mut outcome = Outcome::Done;
            for write in &writes {
                let (code, _) = cluster.answer(&write.request(false).unwrap());
                if code >= 300 {
                    outcome = Outcome::Failed;
                }
            }
            (outcome, "done".to_owned())
        }
        Course::Done(why) => (Outcome::Done, why),
        Course::Refuse(why) => (Outcome::Refused, why),
        Course::Wait(why) => (Outcome::Failed, why),
    };
    Report::new(&order.uid, order.action, outcome, message)
}

fn asked<T>(
    cluster: &Cluster,
    order: &Order,
    ask: impl FnOnce(&action::Definition, &Context<'_>, &Seen) -> T,
) -> T {
    let parameters = order.parameters().unwrap();
    let kept_by = |uid: &str| -> Option<Kept> {
        let found = cluster.get(&SECRET, &kept::secret(EXECUTOR, uid))?;
        let text = STANDARD.decode(found["data"][kept::KEY].as_str()?).ok()?;
        serde_json::from_slice(&text).ok()
    };
    let (kept, undone) = (kept_by(&order.uid), order.undoes.as_deref().and_then(kept_by));
    let context = Context {
        order,
        parameters: &parameters,
        kept: kept.as_ref(),
        undone: undone.as_ref(),
        now: cluster.now,
    };
    let definition = definition(order.action);
    let mut seen = Seen::default();
    loop {
        let reads = definition.reads(&context, &seen);
        if reads.is_empty() {
            return ask(definition, &context, &seen);
        }
        for read in reads {
            match read {
                Read::Object(place) => {
                    let found = cluster.get(&place.kind, &place.key);
                    seen.put(place, found);
                }
                Read::List(listing) => {
                    let all = cluster.world.list(&listing.kind, listing.namespace.as_deref());
                    seen.put_list(listing, all.iter().map(|one| one.raw().clone()).collect());
                }
            }
        }
    }
}
