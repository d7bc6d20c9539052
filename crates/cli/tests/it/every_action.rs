//! Every action there is, on one `pawl up`: a KubernetesExecution, a real Job as the action's ServiceAccount, what it left
//! behind; and where it has an undo, a second execution after which the target is what it was.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use pawl_api::k8s::{
    CONFIG_MAP, DEPLOYMENT, EVENTS_EVENT, HORIZONTAL_POD_AUTOSCALER, JOB, NAMESPACE, NODE,
    PERSISTENT_VOLUME_CLAIM, POD, SECRET, STATEFUL_SET,
};
use pawl_api::meta::Kind;
use pawl_api::remedy::annotations::CHANGED_BY;
use pawl_api::remedy::kubernetes_execution::KIND;
use pawl_api::remedy::{Action, KubernetesExecution};
use pawl_machines::remedy::action::definition::UndoKind;
use pawl_machines::remedy::action::{definition, diff};
use pawl_machines::remedy::kubernetes_execution::rollback;
use serde_json::{Map, Value, json};

use crate::actions::{BOUND, MAPS, Person, Up};

/// So many at a time: each starts a process, and two cores have enough to do with these.
const AT_ONCE: usize = 6;

/// Everything may be done, and is tried first where it can be.
const POLICY: &str = r#"package pawl.safety
decision := {"allow": true, "deny": [], "require_approval": false, "risk": "low",
    "require_dry_run": input.action != "notify_only"}
"#;

/// Text that becomes the UID of the object that was made before.
const UID: &str = "$(uid)";

/// One action, and what it is expected to do.
struct Case {
    action: Action,
    /// What is there before, in a namespace of its own; the last one is the target.
    world: Vec<(Kind, Value)>,
    /// What happens to a Deployment before: its second revision.
    revised: Option<Value>,
    /// Its parameters, but for the namespace.
    parameters: Value,
    /// The target before and after, in words.
    words: (&'static str, &'static str),
}

fn meta(name: &str, spec: Value) -> Value {
    let mut manifest = spec;
    manifest["metadata"] = json!({"name": name});
    manifest
}

fn workload(replicas: i32) -> Value {
    let containers = json!([{"name": "app", "image": "app:1", "resources": {"limits": {"memory": "512Mi"}}}]);
    meta(
        "web",
        json!({"spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}}}),
    )
}

/// A Pod that nobody runs, and that somebody owns.
fn pod(spec: &Value) -> Value {
    let mut pod = meta("p", json!({"spec": {"containers": [{"name": "app", "image": "app:1"}]}}));
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": UID, "controller": true}]);
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

fn owner() -> (Kind, Value) {
    (CONFIG_MAP, meta("owner", json!({})))
}

fn case(
    action: Action,
    world: Vec<(Kind, Value)>,
    parameters: Value,
    words: (&'static str, &'static str),
) -> Case {
    Case { action, world, revised: None, parameters, words }
}

fn of_workloads() -> Vec<Case> {
    let mut stateful = workload(1);
    stateful["spec"]["serviceName"] = "web".into();
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}"#;
    let hpa = meta(
        "web",
        json!({"spec": {"maxReplicas": 10,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
    );
    vec![
        case(
            Action::ScaleDeployment,
            vec![(DEPLOYMENT, workload(1))],
            json!({"deployment": "web", "replicas": 3}),
            ("replicas: 1", "replicas: 3"),
        ),
        case(
            Action::ScaleStatefulset,
            vec![(STATEFUL_SET, stateful)],
            json!({"statefulset": "web", "replicas": 2}),
            ("replicas: 1", "replicas: 2"),
        ),
        case(
            Action::RolloutRestart,
            vec![(DEPLOYMENT, workload(1))],
            json!({"kind": "deployment", "name": "web"}),
            ("not restarted", "restarted by: "),
        ),
        Case {
            revised: Some(json!({"spec": {"template": {"metadata": {"annotations": {"bad": "idea"}}}}})),
            ..case(
                Action::RollbackDeployment,
                vec![(DEPLOYMENT, workload(0))],
                json!({"deployment": "web"}),
                ("revision: 2", "app=app:1"),
            )
        },
        case(
            Action::PatchDeployment,
            vec![(DEPLOYMENT, workload(1))],
            json!({"deployment": "web", "patch": patch}),
            ("app:1", "app:2"),
        ),
        case(
            Action::IncreaseResources,
            vec![(DEPLOYMENT, workload(1))],
            json!({"name": "web", "container": "app", "limits": {"memory": "1Gi"}}),
            ("limits.memory: 512Mi", "limits.memory: 1Gi"),
        ),
        case(
            Action::UpdateHpa,
            vec![(HORIZONTAL_POD_AUTOSCALER, hpa)],
            json!({"hpa": "web", "minReplicas": 4, "maxReplicas": 20}),
            ("minReplicas: 1, maxReplicas: 10", "minReplicas: 4, maxReplicas: 20"),
        ),
    ]
}

fn of_pods_and_nodes() -> Vec<Case> {
    let gated = json!({"schedulingGates": [{"name": "example.com/nobody-runs-it"}]});
    let node = |name: &str, spec: Value| (NODE, meta(name, json!({"spec": spec})));
    let tainted = json!({"taints": [{"key": "k", "value": "old", "effect": "NoSchedule"}]});
    vec![
        case(
            Action::DeletePod,
            vec![owner(), (POD, pod(&gated))],
            json!({"pod": "p", "gracePeriodSeconds": 0}),
            ("", ""),
        ),
        case(
            Action::QuarantinePod,
            vec![owner(), (POD, pod(&gated))],
            json!({"pod": "p"}),
            ("owner: ConfigMap/owner, labels: app=web", "owner: none, labels: pawl.dev/quarantined=true"),
        ),
        case(
            Action::CordonNode,
            vec![node("to-cordon", json!({}))],
            json!({"node": "to-cordon"}),
            ("unschedulable: false", "unschedulable: true"),
        ),
        case(
            Action::UncordonNode,
            vec![node("to-uncordon", json!({"unschedulable": true}))],
            json!({"node": "to-uncordon"}),
            ("unschedulable: true", "unschedulable: false"),
        ),
        case(
            Action::DrainNode,
            vec![owner(), (POD, pod(&json!({"nodeName": "to-drain"}))), node("to-drain", json!({}))],
            json!({"node": "to-drain", "gracePeriodSeconds": 0}),
            ("unschedulable: false, pods: 1", "unschedulable: true, pods: 0"),
        ),
        case(
            Action::TaintNode,
            vec![node("to-taint", tainted.clone())],
            json!({"node": "to-taint", "key": "k", "value": "new", "effect": "NoSchedule"}),
            ("k=old:NoSchedule", "k=new:NoSchedule"),
        ),
        case(
            Action::UntaintNode,
            vec![node("to-untaint", tainted)],
            json!({"node": "to-untaint", "key": "k"}),
            ("k=old:NoSchedule", "no taint k"),
        ),
    ]
}

fn of_the_rest() -> Vec<Case> {
    let map = || (CONFIG_MAP, meta("c", json!({"data": {"a": "1", "b": "2"}})));
    let (old, new) = ("b2J2aW91c2x5LWZha2Utb2xk", "b2J2aW91c2x5LWZha2UtbmV3");
    let rotated = (SECRET, meta("rotated", json!({"data": {"p": new}})));
    let db = (SECRET, meta("db", json!({"data": {"password": old, "other": "AA=="}})));
    let from = json!({"valueFrom": {"secretKeyRef": {"name": "rotated", "key": "p"}}});
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
        "status": {"phase": "Bound"}});
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '9', new: x}\n---\n\
        apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fresh}\ndata: {k: v}\n";
    vec![
        case(
            Action::UpdateConfigmap,
            vec![map()],
            json!({"configMap": "c", "data": {"a": "9", "new": "x"}, "removeKeys": ["b"]}),
            (r#"a: "1", new: absent, b: "2""#, r#"a: "9", new: "x", b: absent"#),
        ),
        case(
            Action::UpdateSecret,
            vec![rotated, db],
            json!({"secret": "db", "data": {"password": from, "added": from}}),
            ("added: absent, password: ***", "added: ***, password: ***"),
        ),
        case(
            Action::ExpandPvc,
            vec![(PERSISTENT_VOLUME_CLAIM, meta("data", claim))],
            json!({"pvc": "data", "size": "20Gi"}),
            ("storage: 10Gi", "storage: 20Gi"),
        ),
        case(Action::ApplyManifest, vec![map()], json!({"manifest": manifest}), ("", "")),
        case(
            Action::NotifyOnly,
            vec![(DEPLOYMENT, workload(0))],
            json!({"message": "look at this", "target": "act-notify-only/deployment/web"}),
            ("", ""),
        ),
    ]
}

/// A control plane on which one of them is tried.
struct Trial<'a> {
    ann: &'a Person,
    case: &'a Case,
    /// The namespace of its objects.
    namespace: String,
}

impl<'a> Trial<'a> {
    fn new(ann: &'a Person, case: &'a Case) -> Self {
        Self { ann, case, namespace: format!("act-{}", case.action.as_str().replace('_', "-")) }
    }

    fn is_of_a_node(&self) -> bool {
        self.target().0 == NODE
    }

    /// Where its executions are: only the system's namespace acts on what is in none.
    fn home(&self) -> &str {
        if self.is_of_a_node() { "pawl-system" } else { &self.namespace }
    }

    fn target(&self) -> (Kind, String) {
        let (kind, manifest) = self.case.world.last().unwrap();
        (kind.clone(), manifest["metadata"]["name"].as_str().unwrap().to_owned())
    }

    fn place(&self, kind: &Kind, name: Option<&str>) -> String {
        kind.path(if kind.namespaced { Some(&self.namespace) } else { None }, name)
    }

    async fn find(&self, kind: &Kind, name: &str) -> Option<Value> {
        self.ann.send("GET", &self.place(kind, Some(name)), &Value::Null).await.ok()
    }

    /// The world as it is before.
    async fn prepare(&self) {
        let namespace = json!({"metadata": {"name": self.namespace}});
        self.ann.send("POST", &NAMESPACE.path(None, None), &namespace).await.unwrap();
        let mut uid = String::new();
        for (kind, manifest) in &self.case.world {
            let manifest = serde_json::from_str(&manifest.to_string().replace(UID, &uid)).unwrap();
            let made = self.ann.send("POST", &self.place(kind, None), &manifest).await.unwrap();
            uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
            if let Some(status) = manifest.get("status") {
                let path = format!("{}/status", self.place(kind, manifest["metadata"]["name"].as_str()));
                self.ann.send("PATCH", &path, &json!({"status": status})).await.unwrap();
            }
        }
        if let Some(patch) = &self.case.revised {
            self.until_revision("1").await;
            self.ann.send("PATCH", &self.place(&DEPLOYMENT, Some("web")), patch).await.unwrap();
            self.until_revision("2").await;
        }
    }

    async fn until_revision(&self, wanted: &str) {
        let started = Instant::now();
        loop {
            let found = self.find(&DEPLOYMENT, "web").await.unwrap();
            if found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == wanted {
                return;
            }
            assert!(started.elapsed() < BOUND, "{found:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Makes an execution, waits for its end, and gives it.
    async fn carry_out(&self, manifest: &Value) -> KubernetesExecution {
        let all = KIND.path(Some(self.home()), None);
        let made = self.ann.send("POST", &all, manifest).await.unwrap();
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        let started = Instant::now();
        loop {
            let found = self.ann.get(&KIND.path(Some(self.home()), Some(&name))).await;
            let phase = found["status"]["phase"].as_str().unwrap_or_default();
            assert_ne!(phase, "failed", "{}: {:#}", self.case.action, found["status"]);
            if matches!(phase, "rollback_ready" | "completed") {
                return serde_json::from_value(found).unwrap();
            }
            assert!(started.elapsed() < BOUND, "{}: {:#}", self.case.action, found["status"]);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn manifest(&self) -> Value {
        let mut parameters = self.case.parameters.clone();
        if !self.is_of_a_node() && self.case.action != Action::NotifyOnly {
            parameters["namespace"] = json!(self.namespace);
        }
        let name = self.case.action.as_str().replace('_', "-");
        json!({"apiVersion": KIND.api_version(), "kind": KIND.kind, "metadata": {"name": name}, "spec": {
            "action": self.case.action, "requestedBy": "ann", "parameters": {self.case.action.member(): parameters}}})
    }

    /// It changed what it should, and says what was and what is.
    async fn is_done(&self, execution: &KubernetesExecution, before: &Value) {
        let (action, (kind, name)) = (self.case.action, self.target());
        let status = execution.status.as_ref().unwrap();
        let results = status.execution_results.as_ref().unwrap();
        assert!(results.success && results.job_name.is_some(), "{action}: {results:?}");
        let validated = status.validation_results.as_ref().unwrap();
        let tried = validated.dry_run_results.as_ref().is_some_and(|tried| tried.performed && tried.success);
        assert_eq!(tried, action != Action::NotifyOnly, "{action}: {validated:?}");
        let affected = results.resources_affected.iter().find(|one| one.name == name);
        let (was, is) = self.case.words;
        if !was.is_empty() {
            let affected = affected.unwrap_or_else(|| panic!("{action}: {results:?}"));
            assert!(affected.before.contains(was) && affected.after.contains(is), "{action}: {affected:?}");
        }
        match (action, self.find(&kind, &name).await) {
            (Action::DeletePod, found) => assert_eq!(found, None),
            (Action::NotifyOnly, found) => {
                assert_eq!(diff::plain(&found.unwrap()), diff::plain(before), "nothing is changed");
                let events = self.ann.get(&self.place(&EVENTS_EVENT, None)).await;
                let told = events["items"].as_array().unwrap();
                let told = told.iter().filter(|event| event["note"] == "look at this").count();
                assert_eq!(told, 1, "{events:#}");
            }
            (_, found) => {
                let found = found.unwrap();
                assert_ne!(diff::plain(&found), diff::plain(before), "{action} changed nothing");
                let mark = &found["metadata"]["annotations"][CHANGED_BY];
                assert_eq!(mark.as_str(), execution.metadata.uid.as_deref(), "{action}");
            }
        }
    }

    async fn run(&self) {
        self.prepare().await;
        let (action, (kind, name)) = (self.case.action, self.target());
        let before = self.find(&kind, &name).await.unwrap();
        let first = self.carry_out(&self.manifest()).await;
        self.is_done(&first, &before).await;
        let information = first.status.as_ref().unwrap().rollback_information.as_ref().unwrap();
        if matches!(definition(action).undo, UndoKind::Never(_)) {
            assert!(!information.unavailable_reason.is_empty(), "{action}: {information:?}");
            return;
        }
        let back = rollback::manifest(&first, Some("ann"), 1, Map::new()).unwrap();
        let second = self.carry_out(&back).await;
        let restored = self.find(&kind, &name).await.unwrap();
        assert_eq!(
            diff::plain(&restored),
            diff::plain(&before),
            "{action}: as it was, but for counters and times"
        );
        if action == Action::ApplyManifest {
            assert_eq!(self.find(&CONFIG_MAP, "fresh").await, None, "what was made is gone");
        }
        let status = second.status.as_ref().unwrap();
        assert!(status.execution_results.as_ref().is_some_and(|results| results.job_name.is_some()));
    }
}

#[tokio::test]
async fn every_action_is_done_by_a_job_and_what_can_be_taken_back_is_as_it_was() {
    let up = Up::start();
    let ann = up.person("ann").await;
    let policy = json!({"metadata": {"name": "open", "labels": {"pawl.dev/policy": "safety"}},
        "data": {"safety.rego": POLICY}});
    ann.send("POST", MAPS, &policy).await.unwrap();
    let cases: Vec<Case> =
        [of_workloads(), of_pods_and_nodes(), of_the_rest()].into_iter().flatten().collect();
    let tried: BTreeSet<Action> = cases.iter().map(|case| case.action).collect();
    assert_eq!(tried, Action::ALL.iter().copied().collect(), "each of them has its case");
    stream::iter(&cases)
        .map(|case| {
            let ann = &ann;
            async move { Trial::new(ann, case).run().await }
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    secrets_are_nowhere(&up, &ann).await;
}

/// I6: what update_secret moved is in the Secrets, and in nothing that was written or said about it.
async fn secrets_are_nowhere(up: &Up, ann: &Person) {
    let namespaces = [Some("act-update-secret"), Some("kubernaut-executor")];
    let mut told = String::new();
    for kind in [KIND, EVENTS_EVENT, JOB, POD] {
        for namespace in namespaces {
            told.push_str(&ann.get(&kind.path(namespace, None)).await.to_string());
        }
    }
    let ledger =
        crate::pawl(up.home(), &["audit", "--data-dir", "data", "-o", "json", "-n", "act-update-secret"]);
    told.push_str(&crate::text(&ledger.stdout));
    assert!(told.contains("kubernetesexecution.undo.stored"), "{told}");
    for canary in ["obviously-fake", "b2J2aW91c2x5LWZha2"] {
        assert!(!told.contains(canary), "{canary} in {told}");
    }
}
