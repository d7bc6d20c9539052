//! What a container cannot see, and cannot do. Where the machine gives no isolation, the Node says so, and there is
//! nothing to test.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::Api;
use pawl_runner::Isolation;
use serde_json::json;

use crate::{World, main, phase, spec};

/// Whether the Node claims something.
pub(crate) async fn claims(world: &World, what: &str) -> bool {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = nodes.get("pawl").await.unwrap();
    let text = node.annotations()["pawl.dev/isolation"].clone();
    text.split("; not: ").next().unwrap().contains(what)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_is_real_and_ready() {
    let world = World::new();
    world.script("p", "exit 0").await;
    world.over("p").await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let status = nodes.get("pawl").await.unwrap().status.unwrap();
    let ready = status.conditions.unwrap().into_iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "True");
    let memory = status.capacity.unwrap()["memory"].0.clone();
    assert!(memory.trim_end_matches("Ki").parse::<u64>().unwrap() > 1024, "{memory}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_sees_a_system_it_cannot_change_and_nothing_else() {
    let world = World::new();
    let data = world.data.path().display().to_string();
    let script = format!(
        "ls {data} 2>/dev/null && echo SEES DATA
        touch /usr/x 2>/dev/null && echo WRITES SYSTEM
        mount -o remount,rw /usr 2>/dev/null && touch /usr/x 2>/dev/null && echo REMOUNTS
        [ -z \"$(ls -A /tmp /root /home 2>/dev/null | grep -v :)\" ] || echo SEES HOMES
        [ -s /etc/shadow ] && cat /etc/shadow 2>/dev/null && echo SEES SHADOW
        echo x > /tmp/own && cat /tmp/own; hostname 2>/dev/null || cat /proc/sys/kernel/hostname"
    );
    world.script("p", &script).await;
    let pod = world.over("p").await;
    if claims(&world, "private root view").await {
        assert_eq!(world.log(&pod).await, "x\np\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_container_leaves_behind_dies_with_it() {
    let world = World::new();
    // The child holds no output open, so only its own end can stop it from writing.
    let script = "(while :; do sleep 0.02; echo x >> /s/alive; done) >/dev/null 2>&1 & while [ ! -e /s/alive ]; do sleep 0.02; done";
    let leaves = main(
        json!({"command": ["/bin/sh", "-c", script], "volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
    );
    let look = main(
        json!({"command": ["/bin/sh", "-c", "a=$(wc -c < /s/alive); sleep 0.3; b=$(wc -c < /s/alive); [ $a = $b ]"],
        "volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
    );
    let mut first = leaves;
    first["name"] = json!("first");
    let spec = json!({"restartPolicy": "Never", "initContainers": [first], "containers": [look], "volumes": [{"name": "s", "emptyDir": {}}]});
    world.pod("p", spec).await;
    assert_eq!(phase(Some(&world.over("p").await)), Some("Succeeded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_volume_leads_nowhere_outside_it() {
    let world = World::new();
    let mounts = json!([{"name": "s", "mountPath": "/s"}]);
    let init = json!({"name": "plant", "image": "x", "command": ["ln", "-s", "/etc", "/s/link"], "volumeMounts": mounts});
    let main = main(
        json!({"command": ["ls", "/seen"], "volumeMounts": [{"name": "s", "mountPath": "/seen", "subPath": "link"}]}),
    );
    let spec = json!({"restartPolicy": "Never", "initContainers": [init], "containers": [main], "volumes": [{"name": "s", "emptyDir": {}}]});
    world.pod("p", spec).await;
    let pod = world.over("p").await;
    assert_eq!(phase(Some(&pod)), Some("Failed"));
    assert_eq!(crate::terminated(&pod).reason.as_deref(), Some("StartError"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_root_leaves_volumes_writable() {
    let world = World::new();
    let script = "echo x 2>/dev/null > /tmp/x && echo WRITES ROOT; echo x > /s/x && echo y > /dev/termination-log && cat /s/x";
    let mut pod = spec(
        json!({"command": ["/bin/sh", "-c", script], "securityContext": {"readOnlyRootFilesystem": true},
        "volumeMounts": [{"name": "s", "mountPath": "/s"}]}),
    );
    pod["volumes"] = json!([{"name": "s", "emptyDir": {}}]);
    world.pod("p", pod).await;
    let pod = world.over("p").await;
    if claims(&world, "private root view").await {
        assert_eq!(world.log(&pod).await, "x\n");
        assert_eq!(crate::terminated(&pod).message.as_deref(), Some("y\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_says_how_limits_are_kept() {
    let world = World::new();
    world.script("p", "exit 0").await;
    world.over("p").await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = nodes.get("pawl").await.unwrap();
    let limits = node.annotations()["pawl.dev/limits"].clone();
    assert!(limits.contains("cgroup v2") && limits.contains("memory"), "{limits}");
    let ready = node.status.unwrap().conditions.unwrap().into_iter().find(|c| c.type_ == "Ready").unwrap();
    assert!(ready.message.unwrap().contains(&limits));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_limit_holds() {
    let world = World::new();
    // The shell grows a string until it may not.
    let script = "x=0123456789abcdef; while :; do x=$x$x; done";
    let limits = json!({"limits": {"memory": "64Mi"}});
    world.pod("p", spec(json!({"command": ["/bin/sh", "-c", script], "resources": limits}))).await;
    assert_eq!(phase(Some(&world.over("p").await)), Some("Failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_namespace_pods_still_run_and_end_and_leave_nothing() {
    let world = World::with(Some(Isolation::default()));
    let file = world.data.path().join("alive");
    let script = format!(
        "(while :; do sleep 0.02; echo x >> {0}; done) & while [ ! -e {0} ]; do sleep 0.02; done; exit 7",
        file.display()
    );
    world.script("p", &script).await;
    let pod = world.over("p").await;
    assert_eq!(crate::terminated(&pod).exit_code, 7);
    let size = || std::fs::metadata(&file).unwrap().len();
    let before = size();
    world.script("wait", "sleep 0.2").await;
    world.over("wait").await;
    assert_eq!(size(), before);

    world.script("asked", "sleep 600").await;
    world.until("asked", |pod| phase(pod) == Some("Running")).await;
    world.pods().delete("asked", &kube::api::DeleteParams::default()).await.unwrap();
    world.until("asked", |pod| pod.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mounts_a_volume_is_refused_plainly() {
    let world = World::with(Some(Isolation::default()));
    let mounts = json!([{"name": "s", "mountPath": "/s"}]);
    let container = main(json!({"command": ["true"], "volumeMounts": mounts}));
    world.pod("p", json!({"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "s", "emptyDir": {}}]})).await;
    let message = crate::terminated(&world.over("p").await).message.unwrap();
    assert!(message.contains("no mount namespace") && message.contains("/s"), "{message}");
}
