//! The oracle of all scenarios with actions: no action starts against policy, rejection or a missing approval.
//!
//! Everything is recomputed from the history of writes: what policy said, what the target was, who had approved or
//! rejected what. The controller's own status is used for one thing: which digest it showed to approvers, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pawl_api::k8s::{CONFIG_MAP, DEPLOYMENT, JOB, LEASE, POD, SECRET};
use pawl_api::meta::Kind;
use pawl_api::pawl::labels::{OWNER_UID, POLICY};
use pawl_api::pawl::{SYSTEM_NAMESPACE, approval};
use pawl_api::remedy::annotations;
use pawl_api::remedy::kubernetes_execution::undo_name;
use pawl_apiserver::ChangeType;
use pawl_machines::held_run;
use pawl_machines::lock::{self, Lock};
use pawl_machines::object::{Key, Object};
use serde_json::Value;

use super::EXECUTION;
use crate::ground::{Ground, Happened};
use crate::oracle;

/// Always holds: nothing is started that policy denies, that was rejected, or that lacks a valid approval
/// where one is required; nothing is done twice; the undo is stored and named before anything is changed; never two act
/// on a target at the same time; and no lock is left.
pub(super) fn safe(ground: &Ground) -> Result<(), String> {
    let mut past = Past::default();
    for happened in &ground.history {
        past.take(happened)?;
    }
    if let Some((uid, jobs)) = past.started.iter().find(|(_, jobs)| jobs.len() > 1) {
        return Err(format!("{uid} was carried out by {jobs:?}"));
    }
    let held = ground.all(&LEASE).filter(|lease| lock::target_hash(lease).is_some());
    match held.filter(|lease| lock::read(Some(lease)) != Lock::Free).count() {
        0 => Ok(()),
        held => Err(format!("{held} locks are left")),
    }
}

/// A value with the revision from which on it held.
type States = Vec<(u64, Value)>;

/// Every value that held at some moment between two revisions.
fn between(states: &[(u64, Value)], since: u64, until: u64) -> impl Iterator<Item = &Value> {
    let first = states.iter().rposition(|(from, _)| *from <= since).unwrap_or_default();
    states.iter().skip(first).filter(move |(from, _)| *from <= until).map(|(_, value)| value)
}

/// The object that an action changes.
type Target = (Kind, Key);

/// What was so at a moment of the history.
#[derive(Default)]
struct Past {
    executions: BTreeMap<String, Arc<Object>>,
    /// Each with the revision of its creation.
    approvals: Vec<(u64, Arc<Object>)>,
    /// All safety policies together.
    policies: States,
    targets: BTreeMap<Target, States>,
    /// Policy and target at the time when an execution showed a digest to approvers; by its UID and the digest.
    shown: BTreeMap<(String, String), (Vec<Value>, Vec<Value>)>,
    undos: BTreeSet<String>,
    /// Per execution, the Jobs that were started, ever.
    started: BTreeMap<String, BTreeSet<String>>,
    /// The execution of each Job that was started and is not over.
    going: BTreeMap<String, String>,
    /// The Job of each Pod that runs.
    pods: BTreeMap<String, String>,
    /// The execution of each Job.
    jobs: BTreeMap<String, String>,
    /// Who has changed a target last.
    changed_by: BTreeMap<String, String>,
}

impl Past {
    fn take(&mut self, happened: &Happened) -> Result<(), String> {
        let Happened { what, object, revision, .. } = happened;
        let gone = *what == ChangeType::Deleted;
        match object.kind() {
            kind if *kind == EXECUTION => self.show(happened),
            kind if *kind == approval::KIND && *what == ChangeType::Added => {
                self.approvals.push((*revision, Arc::clone(object)));
            }
            kind if *kind == CONFIG_MAP && is_policy(object) => {
                let data = if gone { None } else { object.raw().get("data").cloned() };
                self.policies.push((*revision, data.unwrap_or_default()));
            }
            kind if *kind == SECRET && object.name().starts_with("pawl-undo-") => {
                if gone {
                    self.undos.remove(object.name());
                } else {
                    self.undos.insert(object.name().to_owned());
                }
            }
            kind if *kind == JOB => {
                self.take_job(happened, gone)?;
                self.check_targets()?;
            }
            kind if *kind == POD => {
                let job = object.controller().map(|owner| owner.uid.clone()).unwrap_or_default();
                if !gone && object.status().get("phase").and_then(Value::as_str) == Some("Running") {
                    self.pods.insert(object.uid().to_owned(), job);
                } else {
                    self.pods.remove(object.uid());
                }
                self.check_targets()?;
            }
            kind if *kind == DEPLOYMENT || *kind == SECRET => {
                let at = if *kind == DEPLOYMENT { "/spec/replicas" } else { "/data" };
                let value = if gone { None } else { object.raw().pointer(at).cloned() };
                let states = self.targets.entry((kind.clone(), object.key())).or_default();
                states.push((*revision, value.unwrap_or_default()));
                if !gone {
                    self.change(object)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An execution was written: where it names another digest than before, that is what approvers are shown from now on.
    fn show(&mut self, Happened { object, revision, since, .. }: &Happened) {
        let before = self.executions.insert(object.uid().to_owned(), Arc::clone(object));
        let digest = |one: &Object| one.status().get("approvalDigest")?.as_str().map(str::to_owned);
        let Some(now) =
            digest(object).filter(|now| before.and_then(|one| digest(&one)).as_ref() != Some(now))
        else {
            return;
        };
        let policies = self.policies_between(*since, *revision).cloned().collect::<Vec<_>>();
        let targets = self.target_between(object, *since, *revision).cloned().collect::<Vec<_>>();
        let shown = self.shown.entry((object.uid().to_owned(), now)).or_default();
        shown.0.extend(policies);
        shown.1.extend(targets);
    }

    fn policies_between(&self, since: u64, until: u64) -> impl Iterator<Item = &Value> {
        static NONE: Value = Value::Null;
        // Before the first policy there was none.
        let none = self.policies.first().is_none_or(|(from, _)| *from > since).then_some(&NONE);
        none.into_iter().chain(between(&self.policies, since, until))
    }

    fn target_between(&self, execution: &Object, since: u64, until: u64) -> impl Iterator<Item = &Value> {
        let states = target_of(execution).and_then(|target| self.targets.get(&target));
        between(states.map(Vec::as_slice).unwrap_or_default(), since, until)
    }

    fn take_job(&mut self, happened: &Happened, gone: bool) -> Result<(), String> {
        let job = &happened.object;
        let Some(owner) = job.label(OWNER_UID) else { return Ok(()) };
        self.jobs.insert(job.uid().to_owned(), owner.to_owned());
        if gone || held_run::is_finished(job) {
            self.going.remove(job.uid());
        } else if oracle::has_run(job) {
            self.going.insert(job.uid().to_owned(), owner.to_owned());
        }
        if !gone
            && oracle::has_run(job)
            && self.started.entry(owner.to_owned()).or_default().insert(job.uid().to_owned())
        {
            self.may_start(owner, happened)?;
        }
        Ok(())
    }

    /// Never two act on a target at the same time.
    fn check_targets(&self) -> Result<(), String> {
        let running = self.pods.values().filter_map(|job| self.jobs.get(job));
        let acting: BTreeSet<&String> = self.going.values().chain(running).collect();
        let mut taken: BTreeMap<Target, &String> = BTreeMap::new();
        for uid in acting {
            let Some(target) = self.executions.get(uid).and_then(|one| target_of(one)) else { continue };
            if let Some(other) = taken.insert(target, uid) {
                return Err(format!("{other} and {uid} acted on one target at the same time"));
            }
        }
        Ok(())
    }

    /// A Job was started just now, by somebody who had seen all that was so at `since`.
    fn may_start(&self, uid: &str, Happened { revision, since, .. }: &Happened) -> Result<(), String> {
        let Some(execution) = self.executions.get(uid) else { return Err(format!("a Job of nobody: {uid}")) };
        self.is_undoable(uid, execution)?;
        let mut why = String::new();
        for policy in self.policies_between(*since, *revision) {
            let allowed = match word(policy) {
                "deny" => Err("policy denied it".to_owned()),
                "approve" | "approve-soon" => self.is_approved(execution, policy, *since, *revision),
                _ => Ok(()),
            };
            match allowed {
                Ok(()) => return Ok(()),
                Err(not) => why = not,
            }
        }
        Err(format!("{uid} was started, though {why}"))
    }

    /// Somebody other than who asked approved this, under this policy and of the target as it is; and nobody rejected it
    /// in time.
    fn is_approved(&self, execution: &Object, policy: &Value, since: u64, at: u64) -> Result<(), String> {
        let text = |one: &Object, at: &str| one.raw().pointer(at).and_then(Value::as_str).map(str::to_owned);
        let named = self.approvals.iter().filter(|(_, one)| {
            let name = text(one, "/spec/executionRef/name");
            one.namespace() == execution.namespace() && name.as_deref() == Some(execution.name())
        });
        let (no, yes): (Vec<_>, Vec<_>) =
            named.partition(|(_, one)| text(one, "/spec/decision").as_deref() == Some("reject"));
        if let Some((_, no)) = no.iter().find(|(from, _)| *from <= since) {
            return Err(format!("Approval {} had rejected it", no.name()));
        }
        let asked_by = text(execution, "/spec/requestedBy");
        let targets: Vec<&Value> = self.target_between(execution, since, at).collect();
        let counts = |one: &Object| {
            let digest = text(one, "/spec/digest").unwrap_or_default();
            let shown = self.shown.get(&(execution.uid().to_owned(), digest));
            text(one, "/spec/approver/username") != asked_by
                && shown.is_some_and(|(policies, before)| {
                    policies.contains(policy) && before.iter().any(|one| targets.contains(&one))
                })
        };
        if yes.iter().any(|(from, one)| *from <= at && counts(one)) {
            Ok(())
        } else {
            Err(format!("nobody else had approved it with the target at {targets:?} under {policy}"))
        }
    }

    /// Its undo is stored, and its status names it (I4).
    fn is_undoable(&self, uid: &str, execution: &Object) -> Result<(), String> {
        let named = execution.status().pointer("/rollbackInformation/undoRef/name").and_then(Value::as_str);
        let stored = self.undos.contains(&undo_name(uid));
        if stored && named == Some(undo_name(uid).as_str()) {
            Ok(())
        } else {
            Err(format!("{uid} went on with its undo stored: {stored}, named: {named:?}"))
        }
    }

    fn change(&mut self, target: &Object) -> Result<(), String> {
        let Some(by) = target.annotation(annotations::CHANGED_BY) else { return Ok(()) };
        let before = self.changed_by.insert(target.uid().to_owned(), by.to_owned());
        if before.as_deref() == Some(by) {
            return Ok(());
        }
        let Some(execution) = self.executions.get(by) else { return Err(format!("changed by nobody: {by}")) };
        if !self.started.contains_key(by) {
            return Err(format!("{by} changed a target before its Job was started"));
        }
        self.is_undoable(by, execution)
    }
}

fn is_policy(object: &Object) -> bool {
    object.label(POLICY).is_some() && object.namespace() == Some(SYSTEM_NAMESPACE)
}

/// The verdict of a policy in a simulated world: `crate::acting` reads the first of its texts.
fn word(policy: &Value) -> &str {
    let texts = policy.as_object().into_iter().flatten();
    texts.min_by_key(|(name, _)| name.as_str()).and_then(|(_, text)| text.as_str()).unwrap_or("allow")
}

/// The targets that an execution changes.
fn target_of(execution: &Object) -> Option<Target> {
    let parameters = execution.raw().pointer("/spec/parameters")?.as_object()?.values().next()?;
    let text = |field: &str| parameters.get(field).and_then(Value::as_str);
    let (kind, name) = match (text("deployment"), text("secret")) {
        (Some(name), _) => (DEPLOYMENT, name),
        (None, Some(name)) => (SECRET, name),
        (None, None) => return None,
    };
    Some((kind, Key::new(text("namespace"), name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::request;
    use crate::scenario::Deed;
    use http::Method;
    use pawl_api::k8s::NAMESPACE;
    use pawl_api::remedy::EXECUTOR_NAMESPACE;
    use serde_json::json;

    /// A world in which everything is written by hand.
    struct World(Ground);

    impl World {
        /// Two executions want to scale the same Deployment.
        fn with_policy(word: &str) -> Self {
            let mut world = Self(Ground::new(true, false));
            for name in [SYSTEM_NAMESPACE, EXECUTOR_NAMESPACE] {
                world.create(NAMESPACE, json!({"metadata": {"name": name}}));
            }
            let labels = json!({"app": "web"});
            let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            let spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": pod});
            world.create(
                DEPLOYMENT,
                json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}),
            );
            let metadata =
                json!({"name": "policy", "namespace": SYSTEM_NAMESPACE, "labels": {POLICY: "safety"}});
            world.create(CONFIG_MAP, json!({"metadata": metadata, "data": {"a.rego": word}}));
            for name in ["k", "other"] {
                let scale = json!({"deployment": "web", "namespace": "default", "replicas": 5});
                let spec = json!({"action": "scale_deployment", "requestedBy": "ann",
                    "parameters": {"scaleDeployment": scale}});
                world.create(
                    EXECUTION,
                    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}),
                );
                let undo = undo_name(&world.uid(name));
                let metadata = json!({"name": undo, "namespace": EXECUTOR_NAMESPACE});
                world.create(SECRET, json!({"metadata": metadata}));
                let undo = json!({"name": undo, "namespace": EXECUTOR_NAMESPACE, "sha256": "d"});
                let information = json!({"available": true, "undoRef": undo});
                world.says(name, &json!({"rollbackInformation": information, "approvalDigest": "first"}));
            }
            world
        }

        fn create(&mut self, kind: Kind, manifest: Value) {
            Deed::create(kind, manifest).perform(&mut self.0).unwrap();
        }

        fn patch(&mut self, path: &str, patch: &Value) {
            let sent = request(Method::PATCH, path, "application/merge-patch+json", patch);
            let (code, body) = self.0.send("test", sent);
            assert_eq!(code, 200, "{}", String::from_utf8_lossy(&body));
        }

        fn says(&mut self, name: &str, status: &Value) {
            let path = format!("{}/status", EXECUTION.path(Some("default"), Some(name)));
            self.patch(&path, &json!({"status": status}));
        }

        fn uid(&self, name: &str) -> String {
            self.0.get(&EXECUTION, "default", name).unwrap().uid().to_owned()
        }

        fn decide(&mut self, decision: &str, by: &str, digest: &str) {
            let spec = json!({"executionRef": {"name": "k"}, "decision": decision,
                "approver": {"username": by}, "digest": digest});
            let name = format!("{decision}-{by}");
            self.create(
                approval::KIND,
                json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}),
            );
        }

        fn scale(&mut self, replicas: i64) {
            let path = DEPLOYMENT.path(Some("default"), Some("web"));
            self.patch(&path, &json!({"spec": {"replicas": replicas}}));
        }

        /// Starts the Job of an execution, and says what that comes to.
        fn start(&mut self, name: &str) -> Result<(), String> {
            let metadata =
                json!({"name": name, "namespace": EXECUTOR_NAMESPACE, "labels": {OWNER_UID: self.uid(name)}});
            let pod =
                json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
            self.create(JOB, json!({"metadata": metadata, "spec": {"template": pod}}));
            safe(&self.0)
        }
    }

    fn assert_noticed(result: Result<(), String>, what: &str) {
        let told = result.unwrap_err();
        assert!(told.contains(what), "{told}");
    }

    #[test]
    fn what_policy_denies_and_is_started_is_noticed() {
        assert_eq!(World::with_policy("allow").start("k"), Ok(()));
        assert_noticed(World::with_policy("deny").start("k"), "policy denied it");
    }

    #[test]
    fn what_is_started_without_an_approval_of_somebody_else_is_noticed() {
        let mut world = World::with_policy("approve");
        world.decide("approve", "ann", "first");
        assert_noticed(world.start("k"), "nobody else had approved it");
        let mut world = World::with_policy("approve");
        world.decide("approve", "bob", "first");
        assert_eq!(world.start("k"), Ok(()));
    }

    /// Whatever the controller says of the digest in its status.
    #[test]
    fn an_approval_of_another_target_or_policy_or_of_nothing_that_was_shown_counts_for_nothing() {
        let mut world = World::with_policy("approve");
        world.decide("approve", "bob", "first");
        world.scale(9);
        assert_noticed(world.start("k"), "nobody else had approved it");
        let mut world = World::with_policy("approve");
        world.decide("approve", "bob", "first");
        let path = CONFIG_MAP.path(Some(SYSTEM_NAMESPACE), Some("policy"));
        world.patch(&path, &json!({"data": {"b.rego": "another"}}));
        assert_noticed(world.start("k"), "nobody else had approved it");
        let mut world = World::with_policy("approve");
        world.decide("approve", "bob", "second");
        assert_noticed(world.start("k"), "nobody else had approved it");
    }

    #[test]
    fn what_was_rejected_and_is_started_is_noticed() {
        let mut world = World::with_policy("approve");
        world.decide("approve", "bob", "first");
        world.decide("reject", "eve", "any");
        assert_noticed(world.start("k"), "had rejected it");
    }

    #[test]
    fn two_actions_on_one_target_at_the_same_time_are_noticed() {
        let mut world = World::with_policy("allow");
        assert_eq!(world.start("k"), Ok(()));
        assert_noticed(world.start("other"), "at the same time");
        let mut world = World::with_policy("allow");
        assert_eq!(world.start("k"), Ok(()));
        let path = format!("{}/status", JOB.path(Some(EXECUTOR_NAMESPACE), Some("k")));
        world.patch(&path, &json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}));
        assert_eq!(world.start("other"), Ok(()));
    }
}
