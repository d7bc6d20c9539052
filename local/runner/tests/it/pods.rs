//! What a pod says, a process gets; what a process does, the status says.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::api::{Api, DeleteParams};
use kube::{Resource, ResourceExt};
use pawl_runner::LogOptions;
use serde_json::json;

use crate::{BOUND, World, container, main, phase, spec, terminated};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_and_all_of_it_is_told() {
    let world = World::new();
    world.script("p", "echo out; echo err >&2; printf 'all went well' > /dev/termination-log").await;
    let pod = world.over("p").await;
    assert_eq!(phase(Some(&pod)), Some("Succeeded"));
    let end = terminated(&pod);
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")));
    assert_eq!(end.message.as_deref(), Some("all went well"));
    assert!(end.container_id.unwrap().starts_with("pawl://"));
    let status = pod.status.as_ref().unwrap();
    assert_eq!((status.pod_ip.as_deref(), status.start_time.is_some()), (Some("127.0.0.1"), true));
    assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("pawl"));
    let log = world.log(&pod).await;
    assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
    let reasons: Vec<String> = world.events("p").await.into_iter().map(|(reason, _)| reason).collect();
    for reason in ["Scheduled", "ImageIgnored", "Created", "Started"] {
        assert_eq!(reasons.iter().filter(|r| *r == reason).count(), 1, "{reason} in {reasons:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_signals_come_through() {
    let world = World::new();
    world.script("code", "exit 42").await;
    world.script("signal", "kill -KILL $$$$").await;
    let words = json!({"command": ["/bin/sh", "-c", "echo last words; exit 1"],
        "terminationMessagePolicy": "FallbackToLogsOnError"});
    world.pod("words", spec(words)).await;
    for (name, code) in [("code", 42), ("signal", 137), ("words", 1)] {
        let pod = world.over(name).await;
        let end = terminated(&pod);
        assert_eq!(
            (phase(Some(&pod)), end.exit_code, end.reason.as_deref()),
            (Some("Failed"), code, Some("Error"))
        );
        let message = (name == "words").then_some("last words\n");
        assert_eq!(end.message.as_deref(), message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_arguments_and_working_directory_are_the_pods() {
    let world = World::new();
    world
        .create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"k": "not-a-real-secret"}}))
        .await;
    let script = r#"echo "$A|$FROM|$POD|$1|$2|$(pwd)|$HOSTNAME"; echo "$FROM" > /dev/termination-log"#;
    let container = json!({
    "command": ["/bin/sh", "-c", script, "sh"], "args": ["$(A) x", "$$(A)"], "workingDir": "/job/here",
    "env": [
        {"name": "A", "value": "1"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]});
    world.pod("p", spec(container)).await;
    let pod = world.over("p").await;
    assert_eq!(world.log(&pod).await, "1|not-a-real-secret|p|1 x|$(A)|/job/here|p\n");
    // The container knows its secret; the status does not.
    assert_eq!(terminated(&pod).message.as_deref(), Some("***\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_where_the_pod_wants_them() {
    let world = World::new();
    world.create::<ConfigMap>(json!({"metadata": {"name": "c"}, "data": {"key": "value"}})).await;
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.create::<PersistentVolumeClaim>(claim).await;
    let volumes = json!([
        {"name": "shared", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
    ]);
    let init = json!({"name": "first", "image": "x", "command": ["/bin/sh", "-c", "echo from init > /shared/f"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
    let script = "cat /data/deep/f /etc/app/config/key /only; echo kept > /claim/f;
        echo x 2>/dev/null > /etc/app/config/key || echo read-only; echo y > /data/deep/f && ls /etc/passwd";
    let container = main(json!({"command": ["/bin/sh", "-c", script], "volumeMounts": [
        {"name": "shared", "mountPath": "/data/deep"}, {"name": "config", "mountPath": "/etc/app/config"},
        {"name": "config", "mountPath": "/only", "subPath": "key"}, {"name": "claim", "mountPath": "/claim", "subPath": "a/b"},
    ]}));
    world.pod("p", json!({"restartPolicy": "Never", "initContainers": [init], "containers": [container], "volumes": volumes})).await;
    let pod = world.over("p").await;
    assert_eq!(world.log(&pod).await, "from init\nvaluevalueread-only\n/etc/passwd\n");
    assert_eq!(phase(Some(&pod)), Some("Succeeded"));
    // Another pod finds what the claim keeps.
    let container = main(
        json!({"command": ["cat", "/c/a/b/f"], "volumeMounts": [{"name": "claim", "mountPath": "/c", "readOnly": true}]}),
    );
    let claim_only = json!([{"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}}]);
    world.pod("q", json!({"restartPolicy": "Never", "containers": [container], "volumes": claim_only})).await;
    assert_eq!(world.log(&world.over("q").await).await, "kept\n");
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    assert_eq!(claims.get("claim").await.unwrap().status.unwrap().phase.as_deref(), Some("Bound"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_is_named_and_waited_for() {
    let world = World::new();
    let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "later", "key": "k"}}}]);
    world.pod("p", spec(json!({"command": ["/bin/sh", "-c", "exit 0"], "env": env}))).await;
    let waiting = |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
        let status = pod?.status.as_ref()?.container_statuses.as_ref()?.first()?.clone();
        status.state?.waiting
    };
    let reason = Some("CreateContainerConfigError".to_owned());
    let pod = world.until("p", |pod| waiting(pod).is_some_and(|w| w.reason == reason)).await;
    assert_eq!(waiting(pod.as_ref()).unwrap().message.as_deref(), Some("secret \"later\" not found"));
    assert_eq!(phase(pod.as_ref()), Some("Pending"));
    world
        .create::<Secret>(json!({"metadata": {"name": "later"}, "stringData": {"k": "not-a-real-secret"}}))
        .await;
    assert_eq!(phase(Some(&world.over("p").await)), Some("Succeeded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_says_why() {
    let world = World::new();
    world.pod("absent", spec(json!({"command": ["no-such-program"]}))).await;
    world.pod("silent", spec(json!({}))).await;
    for (name, reason, part) in
        [("absent", "StartError", "no-such-program"), ("silent", "ContainerCannotRun", "command")]
    {
        let pod = world.over(name).await;
        let end = terminated(&pod);
        assert_eq!(
            (end.exit_code, end.reason.as_deref(), phase(Some(&pod))),
            (128, Some(reason), Some("Failed"))
        );
        let message = end.message.unwrap();
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_container_runs_again_and_its_first_words_are_kept() {
    let world = World::new();
    let script = "if [ -e /s/again ]; then echo second; else touch /s/again; echo first; exit 1; fi";
    let again = main(
        json!({"command": ["/bin/sh", "-c", script], "volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
    );
    world.pod("p", json!({"restartPolicy": "OnFailure", "containers": [again], "volumes": [{"name": "s", "emptyDir": {}}]})).await;
    let pod = world.over("p").await;
    assert_eq!(phase(Some(&pod)), Some("Succeeded"));
    let status = container(&pod);
    assert_eq!(status.restart_count, 1);
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 1);
    assert_eq!(world.log(&pod).await, "second\n");
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    assert_eq!(world.output(&pod, "main", previous).await, "first\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_asks_first_and_the_pod_goes_when_its_process_has() {
    let world = World::new();
    world.script("p", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done").await;
    let pod = world.until("p", |pod| phase(pod) == Some("Running")).await.unwrap();
    let follow = LogOptions { follow: true, ..LogOptions::default() };
    let mut log = Box::pin(world.logs.open(&pod.uid().unwrap(), "main", follow).await.unwrap());
    assert_eq!(tokio::time::timeout(BOUND, log.next()).await.unwrap().unwrap().unwrap(), "ready\n");
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    // The whole group is asked, so the shell may tell of its child's end too.
    let rest = tokio::time::timeout(BOUND, crate::text(log)).await.unwrap();
    assert!(rest.contains("bye\n"), "{rest}");
    world.until("p", |pod| pod.is_none()).await;
    assert!(world.events("p").await.iter().any(|(reason, _)| reason == "Killing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_listen_is_killed_after_the_grace() {
    let world = World::new();
    let mut stubborn =
        spec(json!({"command": ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]}));
    stubborn["terminationGracePeriodSeconds"] = json!(1);
    let object = json!({"metadata": {"name": "p", "finalizers": ["example.invalid/look"]}, "spec": stubborn});
    world.create::<k8s_openapi::api::core::v1::Pod>(object).await;
    let pod = world.until("p", |pod| phase(pod) == Some("Running")).await.unwrap();
    let follow = LogOptions { follow: true, ..LogOptions::default() };
    let mut log = Box::pin(world.logs.open(&pod.uid().unwrap(), "main", follow).await.unwrap());
    assert_eq!(tokio::time::timeout(BOUND, log.next()).await.unwrap().unwrap().unwrap(), "ready\n");
    let asked = std::time::Instant::now();
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    let pod = world.over("p").await;
    assert_eq!(terminated(&pod).exit_code, 137);
    assert!(asked.elapsed() >= Duration::from_millis(900), "it had a second");
    assert!(pod.meta().deletion_timestamp.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_pod() {
    let world = World::new();
    let mut long = spec(json!({"command": ["sleep", "600"]}));
    long["activeDeadlineSeconds"] = json!(1);
    world.pod("p", long).await;
    let pod = world.over("p").await;
    let status = pod.status.clone().unwrap();
    assert_eq!((phase(Some(&pod)), status.reason.as_deref()), (Some("Failed"), Some("DeadlineExceeded")));
    assert_eq!(terminated(&pod).exit_code, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_is_asked_to_stop_when_the_work_is_done() {
    let world = World::new();
    let script = "trap 'echo asked; exit 0' TERM; touch /s/up; while :; do sleep 0.02; done";
    let mounts = json!([{"name": "s", "mountPath": "/s"}]);
    let sidecar = json!({"name": "side", "image": "x", "restartPolicy": "Always",
        "command": ["/bin/sh", "-c", script], "volumeMounts": mounts});
    let work = main(
        json!({"command": ["/bin/sh", "-c", "while [ ! -e /s/up ]; do sleep 0.02; done"], "volumeMounts": mounts}),
    );
    let volumes = json!([{"name": "s", "emptyDir": {}}]);
    world.pod("p", json!({"restartPolicy": "Never", "initContainers": [sidecar], "containers": [work], "volumes": volumes})).await;
    let pod = world.over("p").await;
    assert_eq!(phase(Some(&pod)), Some("Succeeded"));
    assert!(world.output(&pod, "side", LogOptions::default()).await.contains("asked\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_said_to_run_and_has_no_process() {
    let world = World::new();
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    let object = json!({"metadata": {"name": "p", "ownerReferences": owner}, "spec": {"containers": [main(json!({}))]}});
    world.create::<k8s_openapi::api::core::v1::Pod>(object).await;
    let pod = world.until("p", |pod| phase(pod) == Some("Running")).await.unwrap();
    assert!(container(&pod).ready);
    assert!(world.logs.open(&pod.uid().unwrap(), "main", LogOptions::default()).await.is_err());
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.until("p", |pod| pod.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_image_is_the_running_executable() {
    let world = World::new();
    // The hidden entry point tells what it may do; inside a container too.
    let mut own = spec(json!({"args": ["--probe"]}));
    own["containers"][0]["image"] = json!("example.invalid/pawl:v1");
    world.pod("p", own).await;
    let pod = world.over("p").await;
    assert_eq!(phase(Some(&pod)), Some("Succeeded"), "{}", json!(pod.status));
    assert!(world.log(&pod).await.contains("\"user\""));
    assert!(!world.events("p").await.iter().any(|(reason, _)| reason == "ImageIgnored"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_takes_no_pods_until_it_is_let_go() {
    let world = World::new();
    world.script("before", "exit 0").await;
    world.over("before").await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.client.clone());
    nodes.cordon("pawl").await.unwrap();
    let message = "0/1 nodes are available: 1 node(s) were unschedulable.";
    // The watch may be a moment behind the cordon: the pod that shows it works is the one that waits.
    let held = |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
        let conditions = pod?.status.as_ref()?.conditions.clone()?;
        conditions.into_iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?.message
    };
    let mut waits = None;
    for attempt in 0..100 {
        let name = format!("p{attempt}");
        world.script(&name, "exit 0").await;
        let pod = world.until(&name, |pod| held(pod).is_some() || phase(pod) == Some("Succeeded")).await;
        if held(pod.as_ref()).as_deref() == Some(message) {
            waits = Some(name);
            break;
        }
    }
    let name = waits.unwrap();
    world.pods().get(&name).await.unwrap();
    let told = |(reason, text): &(String, String)| reason == "FailedScheduling" && text == message;
    while !world.events(&name).await.iter().any(told) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    nodes.uncordon("pawl").await.unwrap();
    assert_eq!(phase(Some(&world.over(&name).await)), Some("Succeeded"));
}
