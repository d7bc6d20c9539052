//! What may not be done on `pawl up` is not done: each is told with its reason, and no Job is ever made for it.

use std::time::{Duration, Instant};

use pawl_api::k8s::{CLUSTER_ROLE, DEPLOYMENT, JOB, NAMESPACE, NODE, SERVICE_ACCOUNT};
use pawl_api::meta::Kind;
use pawl_api::remedy::kubernetes_execution::KIND;
use pawl_api::remedy::remediation_request;
use serde_json::{Value, json};

use crate::actions::{BOUND, MAPS, Person, Up};

const EXECUTOR: &str = "kubernaut-executor";
const SYSTEM: &str = "pawl-system";

/// Never comes to its end: 10^24 rounds.
fn loops() -> String {
    let nested = (0..8).map(|n| format!("  some x{n} in numbers.range(1, 1000)\n")).collect::<String>();
    format!("package pawl.safety\ndecision := {{\"allow\": true}} if {{\n{nested}  x0 + x7 < 0\n}}\n")
}

fn deployment(name: &str, marks: &Value) -> Value {
    let mut manifest = json!({"metadata": marks, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web"}]}}}});
    manifest["metadata"]["name"] = json!(name);
    manifest
}

fn execution(name: &str, spec: &Value) -> Value {
    let mut manifest = json!({"apiVersion": KIND.api_version(), "kind": KIND.kind, "metadata": {"name": name}, "spec": spec});
    if manifest["spec"].get("requestedBy").is_none() {
        manifest["spec"]["requestedBy"] = json!("ann");
    }
    manifest
}

fn scale(namespace: &str, name: &str, replicas: i64) -> Value {
    json!({"action": "scale_deployment", "parameters": {"scaleDeployment":
        {"namespace": namespace, "deployment": name, "replicas": replicas}}})
}

fn cordon(node: &str) -> Value {
    json!({"action": "cordon_node", "parameters": {"cordonNode": {"node": node}}})
}

impl Person {
    async fn make(&self, kind: &Kind, namespace: Option<&str>, manifest: &Value) {
        self.send("POST", &kind.path(namespace, None), manifest).await.unwrap();
    }

    /// The status of an execution that has come to its end.
    async fn ended(&self, home: &str, name: &str) -> Value {
        let started = Instant::now();
        loop {
            let status = self.get(&KIND.path(Some(home), Some(name))).await["status"].clone();
            let phase = status["phase"].as_str().unwrap_or_default();
            if matches!(phase, "failed" | "completed" | "rollback_ready") {
                return status;
            }
            assert!(started.elapsed() < BOUND, "{home}/{name}: {status:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn jobs(&self) -> usize {
        self.get(&JOB.path(Some(EXECUTOR), None)).await["items"].as_array().unwrap().len()
    }
}

/// A cluster with things that may be touched, and things that may not.
async fn world(ann: &Person) {
    let open = json!({"metadata": {"name": "open", "labels": {"pawl.dev/allow-from": "mine"}}});
    for namespace in [json!({"metadata": {"name": "mine"}}), json!({"metadata": {"name": "theirs"}}), open] {
        ann.make(&NAMESPACE, None, &namespace).await;
    }
    for namespace in ["mine", "theirs", "open"] {
        ann.make(&DEPLOYMENT, Some(namespace), &deployment("web", &json!({}))).await;
    }
    let managed = json!({"labels": {"argocd.argoproj.io/instance": "shop"}});
    ann.make(&DEPLOYMENT, Some("mine"), &deployment("managed", &managed)).await;
    let kept = json!({"annotations": {"pawl.dev/protected": "true"}});
    ann.make(&DEPLOYMENT, Some("mine"), &deployment("kept", &kept)).await;
    let control = json!({"metadata": {"name": "control", "labels": {"node-role.kubernetes.io/control-plane": ""}},
        "spec": {"unschedulable": true}});
    ann.make(&NODE, None, &control).await;
    // One action has nobody to do it, and the one of another lacks a verb.
    let gone = SERVICE_ACCOUNT.path(Some(EXECUTOR), Some("kubernaut-action-rollout-restart"));
    ann.send("DELETE", &gone, &json!({})).await.unwrap();
    let reads = json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    let role = CLUSTER_ROLE.path(None, Some("kubernaut-action-update-configmap"));
    ann.send("PATCH", &role, &reads).await.unwrap();
}

#[tokio::test]
async fn what_may_not_be_done_fails_with_its_reason_and_no_job_is_made() {
    let up = Up::start();
    let ann = up.person("ann").await;
    world(&ann).await;
    let nodes = ann.get(&NODE.path(None, None)).await;
    let nodes =
        nodes["items"].as_array().unwrap().iter().map(|node| node["metadata"]["name"].as_str().unwrap());
    let last = nodes.clone().find(|name| *name != "control").unwrap();
    let restart = json!({"action": "rollout_restart", "parameters": {"rolloutRestart": {"namespace": "mine", "name": "web"}}});
    let update = json!({"action": "update_configmap", "parameters": {"updateConfigmap":
        {"namespace": "mine", "configMap": "c", "data": {"a": "b"}}}});
    let patch = json!({"action": "patch_deployment", "parameters": {"patchDeployment":
        {"namespace": "mine", "deployment": "web", "patchType": "merge", "patch": "spec: {replicas: -1}"}}});
    let mut early = scale("mine", "web", 3);
    early["preConditions"] = json!([{"type": "calm", "rego": "input.target.spec.replicas > 7"}]);
    let cases = [
        ("elsewhere", "mine", scale("theirs", "web", 3), "namespace_not_allowed", "theirs"),
        ("node-from-here", "mine", cordon(last), "namespace_not_allowed", SYSTEM),
        ("cluster-s-own", SYSTEM, scale("kube-system", "web", 3), "protected_resource", "kube-system"),
        ("control-plane", SYSTEM, cordon("control"), "protected_resource", "control"),
        ("last-node", SYSTEM, cordon(last), "policy_denied", "last node that takes new pods"),
        ("by-argo", "mine", scale("mine", "managed", 3), "gitops_managed", "Argo CD"),
        ("marked", "mine", scale("mine", "kept", 3), "policy_denied", "pawl.dev/protected"),
        ("too-many", "mine", scale("mine", "web", 101), "policy_denied", "more than the 100"),
        ("nowhere", "mine", scale("mine", "absent", 3), "resource_not_found", "absent"),
        ("untakeable", "mine", patch, "dry_run_failed", "replicas"),
        ("too-early", "mine", early, "precondition_failed", "calm"),
        ("nobody-to", "mine", restart, "rbac_denied", "there is no ServiceAccount"),
        ("no-right-to", "mine", update, "rbac_denied", "patch configmaps"),
    ];
    for (name, home, spec, ..) in &cases {
        ann.make(&KIND, Some(*home), &execution(name, spec)).await;
    }
    for (name, home, _, reason, words) in &cases {
        let status = ann.ended(home, name).await;
        assert_eq!(status["reason"], *reason, "{name}: {status:#}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(words), "{name}: {words} in {message}");
        assert!(
            status["gates"]
                .as_array()
                .is_some_and(|gates| gates.iter().any(|gate| gate["verdict"] == "Stopped"))
        );
    }
    let mut dry = scale("mine", "web", 3);
    dry["dryRun"] = json!(true);
    ann.make(&KIND, Some("mine"), &execution("only-tried", &dry)).await;
    let tried = ann.ended("mine", "only-tried").await;
    assert!(tried["phase"] == "completed" && tried["message"].as_str().unwrap().contains("nothing was done"));
    assert_eq!(ann.jobs().await, 0);
    // The door next to them is open: a namespace that lets it in is acted on.
    ann.make(&KIND, Some("mine"), &execution("let-in", &scale("open", "web", 3))).await;
    assert_eq!(ann.ended("mine", "let-in").await["phase"], "rollback_ready");
}

#[tokio::test]
async fn what_is_asked_for_wrongly_or_in_somebody_elses_name_is_refused_by_the_api_server() {
    let up = Up::start();
    let ann = up.person("ann").await;
    let with = |more: Value| {
        let mut spec = scale("default", "web", 3);
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let hpa = json!({"namespace": "default", "hpa": "web", "maxReplicas": 3});
    let web = json!({"namespace": "default", "deployment": "web", "replicas": 3});
    for (spec, words) in [
        (with(json!({"action": "format_disk"})), "format_disk"),
        (with(json!({"parameters": {"updateHpa": hpa}})), "exactly the member"),
        (with(json!({"parameters": {"updateHpa": hpa, "scaleDeployment": web}})), "exactly the member"),
        (with(json!({"parameters": {}})), "exactly the member"),
        (scale("default", "web", 1001), "1000"),
        (scale("default", "web", -1), "0"),
        (with(json!({"maxRetries": 6})), "maxRetries"),
        (with(json!({"requestedBy": "bob"})), "requestedBy"),
    ] {
        let refused = ann.send("POST", &KIND.path(Some("default"), None), &execution("x", &spec)).await;
        let refused = refused.unwrap_err();
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let kind = remediation_request::KIND;
    let request = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "r"}, "spec": {
        "requestedBy": "bob", "targetResource": {"kind": "Deployment", "name": "web", "namespace": "default"},
        "plan": {"steps": [{"name": "a", "action": scale("default", "web", 3)}]}}});
    let refused = ann.send("POST", &kind.path(Some("default"), None), &request).await.unwrap_err();
    assert!(refused.contains("requestedBy"), "{refused}");
    ann.make(&KIND, Some("default"), &execution("mine", &scale("default", "web", 3))).await;
    let changed = json!({"spec": scale("default", "web", 9)});
    let refused = ann.send("PATCH", &KIND.path(Some("default"), Some("mine")), &changed).await.unwrap_err();
    assert!(refused.contains("immutable"), "{refused}");
}

#[tokio::test]
async fn policies_are_swapped_while_it_runs_and_neither_broken_nor_endless_ones_let_anything_through() {
    let up = Up::start();
    let ann = up.person("ann").await;
    ann.make(&DEPLOYMENT, Some("default"), &deployment("web", &json!({}))).await;
    let map = format!("{MAPS}/mine");
    let labels = json!({"name": "mine", "labels": {"pawl.dev/policy": "safety"}});
    let say = async |text: &str| {
        let manifest = json!({"metadata": labels, "data": {"safety.rego": text}});
        if ann.send("PATCH", &map, &manifest).await.is_err() {
            ann.send("POST", MAPS, &manifest).await.unwrap();
        }
    };
    let try_it = async |name: &str| {
        ann.make(&KIND, Some("default"), &execution(name, &scale("default", "web", 3))).await;
        ann.ended("default", name).await
    };
    // What policies say is read from a cache: it is asked until they are those that are meant.
    let until = async |name: &str, reason: &str, words: &str| {
        let started = Instant::now();
        for attempt in 0.. {
            let status = try_it(&format!("{name}-{attempt}")).await;
            if status["reason"] == reason && status["message"].as_str().unwrap().contains(words) {
                return;
            }
            assert_eq!(status["phase"], "failed", "{name}: {status:#}");
            assert!(started.elapsed() < BOUND, "{name}: {status:#}");
        }
    };
    say("package pawl.safety\ndecision := {\"allow\": false, \"deny\": [\"not today\"]}\n").await;
    until("denied", "policy_denied", "not today").await;
    say("package pawl.safety\ndecision := {").await;
    until("kept", "policy_denied", "not today").await;
    say(&loops()).await;
    until("endless", "policy_error", "took longer").await;
    assert_eq!(ann.jobs().await, 0);
    say("package pawl.safety\ndecision := {\"allow\": true}\n").await;
    let done = try_it("allowed").await;
    assert_eq!(done["phase"], "rollback_ready", "{done:#}");
}
