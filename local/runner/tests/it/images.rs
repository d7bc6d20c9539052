//! What an image holds is what its container finds, and nothing of the machine. Where the machine gives no user
//! namespaces, the host's files are used, the pod is told so, and there is nothing more to test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use pawl_runner::oci::Digest;
use pawl_runner::oci::testing::{Builder, LAYER_TYPE};
use pawl_runner::{Isolation, LogOptions};
use serde_json::{Value, json};

use crate::isolation::claims;
use crate::{BOUND, World, container, main, phase, spec, terminated, text};

/// Files of an image, in layers.
struct Files {
    layers: Vec<tar::Builder<Vec<u8>>>,
}

impl Files {
    fn new() -> Self {
        Self { layers: vec![tar::Builder::new(Vec::new())] }
    }

    /// A layer with a shell and some programs of this machine, and the libraries that they need.
    fn with_programs(programs: &[&str]) -> Self {
        let mut files = Self::new();
        let mut paths = BTreeSet::new();
        for program in programs {
            let output = Command::new("ldd").arg(program).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            paths.extend(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
            paths.insert(PathBuf::from(program));
        }
        for path in paths {
            let bytes = fs::read(&path).unwrap();
            files.file(path.strip_prefix("/").unwrap(), &bytes, 0o755);
        }
        files
    }

    fn layer(&mut self) -> &mut tar::Builder<Vec<u8>> {
        self.layers.last_mut().unwrap()
    }

    fn next_layer(&mut self) {
        self.layers.push(tar::Builder::new(Vec::new()));
    }

    fn file(&mut self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        self.layer().append_data(&mut header, path, bytes).unwrap();
    }

    /// Writes the layout, as `directory` of the world's images.
    fn save(self, world: &World, directory: &str, name: &str, mut config: Value) {
        let mut builder = Builder::new(world.data.path().join("images").join(directory)).unwrap();
        let tars: Vec<Vec<u8>> = self.layers.into_iter().map(|layer| layer.into_inner().unwrap()).collect();
        let ids: Vec<Digest> = tars.iter().map(|tar| Digest::of(tar)).collect();
        config["rootfs"] = json!({"type": "layers", "diff_ids": ids});
        let layers: Vec<_> = tars.iter().map(|tar| builder.blob(LAYER_TYPE, tar).unwrap()).collect();
        let manifest = builder.image(&config, &layers).unwrap();
        builder.name(manifest, name);
        builder.finish().unwrap();
    }
}

/// A world that can use images; `None` where the machine cannot.
async fn world() -> Option<World> {
    let world = World::new();
    world.script("first", "exit 0").await;
    world.over("first").await;
    let can = claims(&world, "own users").await && claims(&world, "private root view").await;
    can.then_some(world)
}

/// A pod of one container of an image.
fn of(image: &str, container: Value) -> Value {
    let mut container = main(container);
    container["image"] = json!(image);
    json!({"restartPolicy": "Never", "containers": [container]})
}

fn reasons(events: &[(String, String)]) -> Vec<&str> {
    events.iter().map(|(reason, _)| reason.as_str()).collect()
}

fn waiting(pod: Option<&Pod>) -> Option<(String, String)> {
    let waiting = pod?.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone()?.waiting?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_the_root_and_its_config_is_honoured() {
    let Some(world) = world().await else { return };
    let mut files = Files::with_programs(&["/bin/sh", "/bin/cat", "/bin/ls"]);
    files.file("etc/passwd", b"root:x:0:0::/root:\napp:x:700:800::/srv/app:/bin/sh\n", 0o644);
    files.file("gone", b"", 0o644);
    files.next_layer();
    files.file(".wh.gone", b"", 0o644);
    files.file("app/greet", b"#!/bin/sh\necho \"$0 $* $GREETING $OWN $HOME $(pwd)\"; ls /; exec 2>&1; echo x > /app/greet && cat /app/greet\n", 0o755);
    let config = json!({"config": {
        "Env": ["GREETING=hello", "OWN=image", "PATH=/app:/bin"], "Entrypoint": ["greet"], "Cmd": ["world"],
        "WorkingDir": "/app", "User": "app",
    }});
    files.save(&world, "greeter", "example.invalid/greeter:v1", config);
    let env = json!([{"name": "OWN", "value": "pod $(PATH)"}]);
    world.pod("p", of("example.invalid/greeter:v1", json!({"env": env}))).await;
    let pod = world.over("p").await;
    assert_eq!(terminated(&pod).message, None);
    let log = world.log(&pod).await;
    let mut lines = log.lines();
    // `$(PATH)` is the image's, so it means nothing to Kubernetes.
    assert_eq!(lines.next(), Some("/app/greet world hello pod $(PATH) /srv/app /app"), "{log}");
    let seen: BTreeSet<&str> = lines.clone().take_while(|line| *line != "x").collect();
    assert!(!seen.contains("gone") && !seen.contains("srv") && seen.contains("proc"), "{seen:?}");
    // It wrote over its own file, in a layer of its own.
    assert_eq!(lines.last(), Some("x"), "{log}");
    assert!(container(&pod).image_id.starts_with("example.invalid/greeter@sha256:"));
    let events = world.events("p").await;
    assert!(
        reasons(&events).contains(&"Pulled") && !reasons(&events).contains(&"ImageIgnored"),
        "{events:?}"
    );

    // The next container finds the image as it was; `args` take the place of Cmd alone, `command` of both.
    world.pod("q", of("example.invalid/greeter:v1", json!({"args": ["again"]}))).await;
    let pod = world.over("q").await;
    assert_eq!(terminated(&pod).message, None);
    let log = world.log(&pod).await;
    assert!(log.starts_with("/app/greet again hello image /srv/app"), "{log}");
    let command = json!({"command": ["/bin/sh", "-c", "echo $#"], "workingDir": "/made"});
    world.pod("r", of("example.invalid/greeter:v1", command)).await;
    assert_eq!(world.log(&world.over("r").await).await, "0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_words_and_limits_go_with_an_image_too() {
    let Some(world) = world().await else { return };
    // An image whose own places lead elsewhere: what is mounted there stays within it.
    let mut files = Files::with_programs(&["/bin/sh", "/bin/cat"]);
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    files.layer().append_link(&mut header, "data", world.data.path().join("outside")).unwrap();
    files.save(&world, "tools", "v1", json!({}));
    let script = "echo kept > /data/f && cat /data/f && echo x 2>/dev/null > /root-file || echo read-only; \
        [ -c /dev/null ] && echo words > /dev/termination-log; cat /proc/1/comm > /dev/null && exit 3";
    let mut spec = of(
        "tools:v1",
        json!({"command": ["/bin/sh", "-c", script], "volumeMounts": [{"name": "s", "mountPath": "/data"}],
            "securityContext": {"readOnlyRootFilesystem": true}}),
    );
    spec["volumes"] = json!([{"name": "s", "emptyDir": {}}]);
    world.pod("p", spec).await;
    let pod = world.over("p").await;
    assert_eq!(world.log(&pod).await, "kept\nread-only\n");
    let end = terminated(&pod);
    assert_eq!((end.exit_code, end.message.as_deref()), (3, Some("words\n")));
    assert!(!world.data.path().join("outside").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_layer_can_be_laid_the_image_is_copied() {
    let Some(first) = world().await else { return };
    drop(first);
    let found = crate::detected().await;
    let world = World::with(Some(Isolation { overlay: false, ..found }));
    Files::with_programs(&["/bin/sh", "/bin/cat"]).save(&world, "tools", "v1", json!({}));
    for name in ["p", "q"] {
        let script = "[ -e /mark ] && exit 9; echo mine > /mark && cat /mark";
        world.pod(name, of("tools:v1", json!({"command": ["/bin/sh", "-c", script]}))).await;
        assert_eq!(world.log(&world.over(name).await).await, "mine\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_here_is_an_error_only_where_it_must_be_here() {
    let world = World::new();
    let mut never = of("example.invalid/absent:v1", json!({"command": ["true"]}));
    never["containers"][0]["imagePullPolicy"] = json!("Never");
    world.pod("never", never).await;
    let pod = world
        .until("never", |pod| waiting(pod).is_some_and(|(reason, _)| reason == "ErrImageNeverPull"))
        .await;
    let message = "Container image \"example.invalid/absent:v1\" is not present with pull policy of Never";
    assert_eq!(waiting(pod.as_ref()).unwrap().1, message);
    assert_eq!(phase(pod.as_ref()), Some("Pending"));

    world.pod("else", of("example.invalid/absent:v1", json!({"command": ["true"]}))).await;
    assert_eq!(phase(Some(&world.over("else").await)), Some("Succeeded"));
    assert!(reasons(&world.events("else").await).contains(&"ImageIgnored"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_used_says_why_and_is_tried_again() {
    let Some(world) = world().await else { return };
    let mut files = Files::new();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Block);
    header.set_size(0);
    files.layer().append_data(&mut header, "disk", &b""[..]).unwrap();
    files.save(&world, "bad", "v1", json!({}));
    world.pod("p", of("bad:v1", json!({"command": ["/bin/sh", "-c", "echo mended"]}))).await;
    let pod = world.until("p", |pod| waiting(pod).is_some_and(|(reason, _)| reason == "ErrImagePull")).await;
    let message = waiting(pod.as_ref()).unwrap().1;
    assert!(message.contains("disk is refused: it is a block device"), "{message}");
    Files::with_programs(&["/bin/sh"]).save(&world, "bad", "v1", json!({}));
    assert_eq!(world.log(&world.over("p").await).await, "mended\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_namespaces_an_image_is_ignored_and_that_is_said() {
    let world = World::with(Some(Isolation::default()));
    Files::new().save(&world, "tools", "v1", json!({"config": {"Entrypoint": ["/none"]}}));
    world.pod("silent", of("tools:v1", json!({}))).await;
    let message = terminated(&world.over("silent").await).message.unwrap();
    assert!(message.contains("no namespaces"), "{message}");
    world.pod("told", of("tools:v1", json!({"command": ["true"]}))).await;
    assert_eq!(phase(Some(&world.over("told").await)), Some("Succeeded"));
    let events = world.events("told").await;
    let ignored = events.iter().find(|(reason, _)| reason == "ImageIgnored").unwrap();
    assert!(ignored.1.contains("namespaces"), "{ignored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_a_command_fails_clearly() {
    let Some(world) = world().await else { return };
    Files::new().save(&world, "empty", "v1", json!({}));
    world.pod("p", of("empty:v1", json!({}))).await;
    let end = terminated(&world.over("p").await);
    assert_eq!((end.exit_code, end.reason.as_deref()), (128, Some("ContainerCannotRun")));
    assert!(end.message.unwrap().starts_with("no command specified"));
    // What the image lacks is not found on the machine.
    world.pod("q", of("empty:v1", json!({"command": ["/bin/sh", "-c", "true"]}))).await;
    let end = terminated(&world.over("q").await);
    assert_eq!(end.reason.as_deref(), Some("StartError"));
    assert!(end.message.unwrap().contains("/bin/sh"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_says_how_it_wants_to_be_stopped() {
    let Some(world) = world().await else { return };
    let files = Files::with_programs(&["/bin/sh", "/bin/sleep"]);
    files.save(&world, "quit", "v1", json!({"config": {"StopSignal": "SIGQUIT"}}));
    let script = "trap 'echo asked; exit 0' QUIT; trap '' TERM; echo ready; while :; do sleep 0.05; done";
    world.pod("p", of("quit:v1", json!({"command": ["/bin/sh", "-c", script]}))).await;
    let pod = world.until("p", |pod| phase(pod) == Some("Running")).await.unwrap();
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let stream = world.logs.open(&pod.uid().unwrap(), "main", options).await.unwrap();
    let mut stream = std::pin::pin!(stream);
    let ready = tokio::time::timeout(BOUND, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(&ready[..], b"ready\n");
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    let log = tokio::time::timeout(BOUND, text(stream)).await.unwrap();
    // The shell may also tell of the `sleep` that was asked with it.
    assert!(log.contains("asked\n"), "{log}");
    world.until("p", |pod| pod.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_the_pods_where_the_machine_can_and_said_where_not() {
    let found = crate::detected().await;
    for groups in [found.groups, false] {
        let world = World::with(Some(Isolation { groups, ..found }));
        let script = "id -u; id -g; echo \" $(id -G) \"; stat -c '%g %a' /s; echo x > /s/f; stat -c %g /s/f; \
            stat -c %a /c/k";
        let mut pod = spec(json!({"command": ["/bin/sh", "-c", script], "volumeMounts": [
            {"name": "s", "mountPath": "/s"}, {"name": "c", "mountPath": "/c"}]}));
        pod["volumes"] = json!([{"name": "s", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c", "defaultMode": 0o400}}]);
        pod["securityContext"] =
            json!({"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000]});
        let map = json!({"metadata": {"name": "c"}, "data": {"k": "v"}});
        world.create::<ConfigMap>(map).await;
        world.pod("p", pod).await;
        let over = world.over("p").await;
        let log = world.log(&over).await;
        let told = reasons(&world.events("p").await).contains(&"GroupsIgnored");
        if groups {
            let lines: Vec<&str> = log.lines().collect();
            assert_eq!((lines[0], lines[1]), ("1000", "3000"), "{log}");
            assert!([" 3000 ", " 2000 ", " 4000 "].iter().all(|group| lines[2].contains(group)), "{log}");
            assert_eq!(&lines[3..], ["2000 2777", "2000", "440"], "{log}");
            assert!(!told);
        } else if found.nested_user && found.mount {
            let lines: Vec<&str> = log.lines().collect();
            assert_eq!((lines[0], lines[1], lines[3]), ("1000", "3000", "3000 777"), "{log}");
            assert!(told);
        }
    }
}
