//! Do pods run as they should where an engine runs them? The engine is strict, and ours.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt;
use kube::api::DeleteParams;
use pawl_runner::docker::{Engine, Surroundings};
use pawl_runner::{LOST_MESSAGE, LogOptions, Options, Runner};
use serde_json::{Value, json};

use crate::engine::{FakeEngine, Manners};
use crate::{BOUND, World, container, container_executable, phase, start, terminated};

const IMAGE: &str = "example.invalid/tools:1";

async fn spoken(fake: &FakeEngine) -> Engine {
    let docker_host = Some(format!("unix://{}", fake.socket().display()));
    Engine::find(&Surroundings { docker_host, runtime_dir: None }).await.unwrap()
}

/// A world whose containers an engine runs, which has one image.
async fn world(manners: Manners) -> (World, FakeEngine) {
    let fake = FakeEngine::new(manners);
    fake.has_image(IMAGE, json!({"Entrypoint": ["script", "say entry"], "Cmd": ["say cmd"]}));
    let engine = spoken(&fake).await;
    // The world's own runner, of processes, makes way for one with an engine.
    let mut world = World::new();
    world.shut_down().await;
    let (logs, stop, runner) = start(&world.client, world.data.path().to_owned(), None, Some(engine.clone()));
    (world.logs, world.stop, world.runner, world.engine) = (logs, Some(stop), runner, Some(engine));
    (world, fake)
}

fn pod_of(mut container: Value) -> Value {
    for (field, value) in [("name", "main"), ("image", IMAGE)] {
        if container[field].is_null() {
            container[field] = json!(value);
        }
    }
    json!({"restartPolicy": "Never", "containers": [container]})
}

fn script(words: &[&str]) -> Value {
    let words: Vec<&str> = ["script"].iter().chain(words).copied().collect();
    pod_of(json!({"command": words}))
}

fn name(pod: &Pod, run: u32) -> String {
    format!("pawl-{}-main-{run}", pod.uid().unwrap())
}

async fn runs(world: &World, pod: &str) -> Pod {
    world.until(pod, |pod| phase(pod) == Some("Running")).await.unwrap()
}

async fn says(world: &World, pod: &Pod, line: &str) {
    let options = LogOptions { follow: true, limit_bytes: Some(line.len() as u64), ..LogOptions::default() };
    assert_eq!(world.output(pod, "main", options).await, line);
}

fn no_complaints(fake: &FakeEngine) {
    assert_eq!(fake.look(|state| state.complaints.clone()), Vec::<String>::new());
}

/// Until the engine has so many containers.
async fn until_left(fake: &FakeEngine, count: usize) {
    until(|| fake.names().len() == count).await;
}

/// The engine tells nobody of its changes: it is looked at until it is so.
async fn until(so: impl Fn() -> bool) {
    let looked = async {
        while !so() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, looked).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_told_all_that_a_pod_says() {
    let (world, fake) = world(Manners::Docker).await;
    world.create::<ConfigMap>(json!({"metadata": {"name": "c"}, "data": {"k": "v"}})).await;
    let container = json!({
        "command": ["script", "say $(GREETING)"], "args": ["err bad", "message last words", "exit 3"],
        "env": [{"name": "WHO", "value": "you"}, {"name": "GREETING", "value": "hello $(WHO)"}],
        "workingDir": "/work",
        "volumeMounts": [
            {"name": "e", "mountPath": "/e", "subPath": "a/b"}, {"name": "c", "mountPath": "/c"},
            {"name": "e", "mountPath": "/ro", "readOnly": true},
        ],
        "resources": {"limits": {"memory": "64Mi", "cpu": "1.5"}},
        "securityContext": {
            "runAsUser": 1000, "runAsGroup": 5, "readOnlyRootFilesystem": true,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        },
    });
    let mut spec = pod_of(container);
    spec["volumes"] = json!([{"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}]);
    spec["securityContext"] = json!({"supplementalGroups": [77]});
    spec["hostname"] = json!("web-0");
    world.pod("p", spec).await;
    let pod = world.over("p").await;
    assert_eq!((terminated(&pod).exit_code, terminated(&pod).message.as_deref()), (3, Some("last words")));
    assert!(self::container(&pod).container_id.unwrap().starts_with("docker://"));
    assert_eq!(world.log(&pod).await, "hello you\nbad\n");
    let body = fake.look(|state| state.bodies[&name(&pod, 0)].clone());
    assert_eq!(
        body["Entrypoint"],
        json!(["script", "say hello you", "err bad", "message last words", "exit 3"])
    );
    assert_eq!(body["Env"], json!(["GREETING=hello you", "WHO=you"]));
    assert_eq!(
        (&body["WorkingDir"], &body["User"], &body["Hostname"]),
        (&json!("/work"), &json!("1000:5"), &json!("web-0"))
    );
    let host = &body["HostConfig"];
    assert_eq!((&host["Memory"], &host["MemorySwap"]), (&json!(64 << 20), &json!(64 << 20)));
    assert_eq!((&host["CpuPeriod"], &host["CpuQuota"]), (&json!(100_000), &json!(150_000)));
    assert_eq!((&host["CapAdd"], &host["CapDrop"]), (&json!(["NET_BIND_SERVICE"]), &json!(["ALL"])));
    assert_eq!(
        (&host["SecurityOpt"], &host["ReadonlyRootfs"]),
        (&json!(["no-new-privileges"]), &json!(true))
    );
    assert_eq!((&host["NetworkMode"], &host["GroupAdd"]), (&json!("host"), &json!(["77"])));
    let mounts: Vec<(&str, bool, bool)> = host["Mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| {
            let of = |field: &str| mount[field].as_str().unwrap();
            (of("Target"), mount["ReadOnly"].as_bool().unwrap(), of("Source").ends_with("volumes/e/a/b"))
        })
        .collect();
    let expect = [
        ("/e", false, true),
        ("/c", true, false),
        ("/ro", true, false),
        ("/dev/termination-log", false, false),
    ];
    assert_eq!(mounts, expect);
    until_left(&fake, 0).await;
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_brings_its_own_command_and_arguments() {
    let (world, fake) = world(Manners::Docker).await;
    world.pod("both", pod_of(json!({}))).await;
    assert_eq!(world.log(&world.over("both").await).await, "entry\ncmd\n");
    world.pod("args", pod_of(json!({"args": ["say other"]}))).await;
    assert_eq!(world.log(&world.over("args").await).await, "entry\nother\n");
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_pulled_when_its_policy_says_so_and_the_pod_is_told() {
    let (world, fake) = world(Manners::Docker).await;
    let image = || Ok(json!({"Entrypoint": ["script", "say pulled"]}));
    fake.registry_has("example.invalid/far:1", image());
    fake.registry_has(IMAGE, image());
    world.pod("absent", pod_of(json!({"image": "example.invalid/far:1"}))).await;
    let pod = world.over("absent").await;
    assert_eq!(world.log(&pod).await, "pulled\n");
    let events = world.events("absent").await;
    assert!(
        events
            .iter()
            .any(|(reason, message)| reason == "Pulling"
                && message == "Pulling image \"example.invalid/far:1\"")
    );
    assert!(events.iter().any(|(reason, message)| reason == "Pulled"
        && message.starts_with("Successfully pulled image \"example.invalid/far:1\" in ")));
    world.pod("present", pod_of(json!({}))).await;
    world.over("present").await;
    let events = world.events("present").await;
    assert!(events.iter().any(|(_, message)| *message == format!("Container image \"{IMAGE}\" already present on machine")));
    world.pod("always", pod_of(json!({"imagePullPolicy": "Always"}))).await;
    assert_eq!(world.log(&world.over("always").await).await, "pulled\n");
    assert_eq!(fake.look(|state| state.pulls.clone()), ["example.invalid/far:1", IMAGE]);
    world.pod("never", pod_of(json!({"image": "example.invalid/no:1", "imagePullPolicy": "Never"}))).await;
    world.until("never", |pod| waits(pod) == Some("ErrImageNeverPull".to_owned())).await;
    assert_eq!(fake.look(|state| state.pulls.len()), 2);
    no_complaints(&fake);
}

fn waits(pod: Option<&Pod>) -> Option<String> {
    container_of(pod?)?.state?.waiting?.reason
}

fn container_of(pod: &Pod) -> Option<k8s_openapi::api::core::v1::ContainerStatus> {
    pod.status.clone()?.container_statuses?.into_iter().next()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_cannot_be_pulled_is_left_alone_for_longer_and_longer_and_then_had() {
    let (world, fake) = world(Manners::Docker).await;
    fake.registry_has("example.invalid/far:1", Err("manifest unknown"));
    world.pod("p", pod_of(json!({"image": "example.invalid/far:1"}))).await;
    world.until("p", |pod| waits(pod) == Some("ErrImagePull".to_owned())).await;
    let left = world.until("p", |pod| waits(pod) == Some("ImagePullBackOff".to_owned())).await.unwrap();
    let message = container(&left).state.unwrap().waiting.unwrap().message.unwrap();
    assert_eq!(message, "Back-off pulling image \"example.invalid/far:1\": ErrImagePull: manifest unknown");
    fake.registry_has("example.invalid/far:1", Ok(json!({"Entrypoint": ["script", "say at last"]})));
    assert_eq!(world.log(&world.over("p").await).await, "at last\n");
    let events = world.events("p").await;
    for expect in [
        ("Failed", "Failed to pull image \"example.invalid/far:1\": manifest unknown"),
        ("Failed", "Error: ErrImagePull"),
        ("BackOff", "Back-off pulling image \"example.invalid/far:1\""),
        ("Failed", "Error: ImagePullBackOff"),
    ] {
        assert!(
            events.iter().any(|(reason, message)| (reason.as_str(), message.as_str()) == expect),
            "{expect:?}"
        );
    }
    world.pod("odd", pod_of(json!({"image": "No such name!"}))).await;
    world.until("odd", |pod| waits(pod) == Some("InvalidImageName".to_owned())).await;
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_deleted_takes_its_pull_with_it() {
    let (world, fake) = world(Manners::Docker).await;
    fake.registry_has("example.invalid/slow:1", Err("never"));
    world.pod("p", pod_of(json!({"image": "example.invalid/slow:1"}))).await;
    world.until("p", |pod| waits(pod) == Some("ContainerCreating".to_owned())).await;
    until(|| fake.look(|state| state.hung) == 1).await;
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.until("p", |pod| pod.is_none()).await;
    until(|| fake.look(|state| state.hung) == 0).await;
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_containers_come_first_and_a_failed_one_runs_again() {
    let (world, fake) = world(Manners::Podman).await;
    let one = |name: &str, words: Value| json!({"name": name, "image": IMAGE, "command": words});
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [one("first", json!(["script", "exit 0"])), one("second", json!(["script"]))],
        "containers": [one("main", json!(["script", "say done"]))],
    });
    world.pod("inits", spec).await;
    assert_eq!(phase(Some(&world.over("inits").await)), Some("Succeeded"));
    let order: Vec<String> =
        fake.look(|state| state.starts.iter().map(|n| n.rsplit('-').nth(1).unwrap().to_owned()).collect());
    assert_eq!(order, ["first", "second", "main"]);
    let mut again = script(&["say once", "exit 7"]);
    again["restartPolicy"] = json!("OnFailure");
    world.pod("again", again).await;
    let pod = world
        .until("again", |pod| pod.and_then(container_of).is_some_and(|c| c.restart_count >= 2))
        .await
        .unwrap();
    let starts = fake.look(|state| state.starts.clone());
    for run in 0..2 {
        assert_eq!(starts.iter().filter(|start| **start == name(&pod, run)).count(), 1, "{starts:?}");
    }
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_pod_is_asked_to_stop_then_killed_and_nothing_of_it_is_left() {
    let (world, fake) = world(Manners::Docker).await;
    for (pod, word, grace, signals) in
        [("polite", "hang", 30, vec!["SIGTERM"]), ("deaf", "deaf", 1, vec!["SIGTERM", "SIGKILL"])]
    {
        world.pod(pod, script(&["say up", word])).await;
        let running = runs(&world, pod).await;
        says(&world, &running, "up\n").await;
        let params = DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() };
        world.pods().delete(pod, &params).await.unwrap();
        let seen = tokio::spawn({
            let (fake, name) = (fake.clone(), name(&running, 0));
            async move {
                let mut seen = Vec::new();
                while fake.names().contains(&name) {
                    seen = fake.signals(&name);
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                seen
            }
        });
        world.until(pod, |pod| pod.is_none()).await;
        assert_eq!(seen.await.unwrap(), signals, "{pod}");
    }
    until_left(&fake, 0).await;
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_stops_a_container_and_want_of_memory_is_said() {
    let (world, fake) = world(Manners::Docker).await;
    let mut late = script(&["hang"]);
    late["activeDeadlineSeconds"] = json!(1);
    world.pod("late", late).await;
    let pod = world.over("late").await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("DeadlineExceeded"));
    world.pod("hungry", script(&["oom"])).await;
    let pod = world.over("hungry").await;
    assert_eq!((terminated(&pod).exit_code, terminated(&pod).reason.as_deref()), (137, Some("OOMKilled")));
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_when_pawl_dies_is_taken_up_and_runs_once() {
    for manners in [Manners::Docker, Manners::Podman] {
        let (mut world, fake) = world(manners).await;
        world
            .create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"k": "not-a-real-secret"}}))
            .await;
        let mut spec = script(&["say one", "err two", "wait", "say not-a-real-secret", "part end", "exit 4"]);
        spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        spec["containers"][0]["env"] =
            json!([{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        world.pod("p", spec).await;
        let pod = runs(&world, "p").await;
        says(&world, &pod, "one\ntwo\n").await;
        world.crash().await;
        world.restart().await;
        // It is followed again: what it says from now on is heard.
        fake.go_on(&name(&pod, 0));
        let pod = world.over("p").await;
        assert_eq!(terminated(&pod).exit_code, 4);
        assert_eq!(terminated(&pod).message.as_deref(), Some("one\ntwo\n***\nend"));
        assert_eq!(world.log(&pod).await, "one\ntwo\nnot-a-real-secret\nend");
        assert_eq!(container(&pod).restart_count, 0);
        assert_eq!(fake.look(|state| state.starts.clone()), [name(&pod, 0)]);
        until_left(&fake, 0).await;
        no_complaints(&fake);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_while_pawl_was_away_has_its_own_end_and_what_was_removed_is_lost() {
    let (mut world, fake) = world(Manners::Docker).await;
    world.pod("ends", script(&["say a", "wait", "say b", "message bye", "exit 5"])).await;
    world.pod("vanishes", script(&["say a", "hang"])).await;
    let (ends, vanishes) = (runs(&world, "ends").await, runs(&world, "vanishes").await);
    says(&world, &ends, "a\n").await;
    says(&world, &vanishes, "a\n").await;
    world.crash().await;
    fake.go_on(&name(&ends, 0));
    fake.remove(&name(&vanishes, 0));
    world.restart().await;
    let pod = world.over("ends").await;
    assert_eq!((terminated(&pod).exit_code, terminated(&pod).message.as_deref()), (5, Some("bye")));
    assert_eq!(world.log(&pod).await, "a\nb\n");
    let pod = world.over("vanishes").await;
    assert_eq!((terminated(&pod).exit_code, terminated(&pod).message.as_deref()), (137, Some(LOST_MESSAGE)));
    assert_eq!(fake.look(|state| state.starts.len()), 2);
    until_left(&fake, 0).await;
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_before_a_crash_and_never_started_is_made_anew_and_runs_once() {
    for manners in [Manners::Docker, Manners::Podman] {
        let (mut world, fake) = world(manners).await;
        // A first pod, so that the data directory has its number.
        world.pod("first", script(&[])).await;
        world.over("first").await;
        until_left(&fake, 0).await;
        let node =
            fake.look(|state| state.bodies.values().next().unwrap()["Labels"]["dev.pawl.node"].clone());
        world.crash().await;
        world.pod("p", script(&["say x"])).await;
        let pod = world.pods().get("p").await.unwrap();
        let labels = |pod: &Pod| json!({"dev.pawl.node": node, "dev.pawl.pod-uid": pod.uid(), "dev.pawl.container": "main"});
        fake.add(&name(&pod, 0), &labels(&pod));
        world.restart().await;
        assert_eq!(world.log(&world.over("p").await).await, "x\n");
        assert_eq!(
            fake.look(|state| state.starts.iter().filter(|start| **start == name(&pod, 0)).count()),
            1
        );
        until_left(&fake, 0).await;
        no_complaints(&fake);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_no_pod_are_removed_and_strangers_are_left_alone() {
    let (mut world, fake) = world(Manners::Docker).await;
    world.pod("first", script(&[])).await;
    world.over("first").await;
    until_left(&fake, 0).await;
    let node = fake.look(|state| state.bodies.values().next().unwrap()["Labels"]["dev.pawl.node"].clone());
    world.crash().await;
    fake.add(
        "orphan",
        &json!({"dev.pawl.node": node, "dev.pawl.pod-uid": "gone", "dev.pawl.container": "main"}),
    );
    fake.add(
        "other-pawls",
        &json!({"dev.pawl.node": "another", "dev.pawl.pod-uid": "gone", "dev.pawl.container": "main"}),
    );
    fake.add("strangers", &json!({}));
    world.restart().await;
    until_left(&fake, 2).await;
    assert_eq!(fake.names(), ["other-pawls", "strangers"]);
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_loses_no_line_and_starts_nothing() {
    let (world, fake) = world(Manners::Docker).await;
    world.pod("p", script(&["say one", "wait", "say two", "exit 9"])).await;
    let pod = runs(&world, "p").await;
    says(&world, &pod, "one\n").await;
    fake.hang_up();
    fake.go_on(&name(&pod, 0));
    let pod = world.over("p").await;
    assert_eq!((terminated(&pod).exit_code, world.log(&pod).await.as_str()), (9, "one\ntwo\n"));
    assert_eq!(fake.look(|state| state.starts.len()), 1);
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_an_engine_skipped_are_in_the_log_in_their_places() {
    let (world, fake) = world(Manners::Podman).await;
    world
        .pod("p", script(&["say one", "say fast 1", "say two", "err fast 2", "say three", "part end"]))
        .await;
    let pod = world.over("p").await;
    assert_eq!(world.log(&pod).await, "one\nfast 1\ntwo\nfast 2\nthree\nend");
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_start_says_why_and_privileges_are_not_given() {
    let (world, fake) = world(Manners::Docker).await;
    world.pod("no", pod_of(json!({"command": ["no-such-program"]}))).await;
    let pod = world.over("no").await;
    assert_eq!((terminated(&pod).exit_code, terminated(&pod).reason.as_deref()), (128, Some("StartError")));
    assert!(terminated(&pod).message.unwrap().contains("executable file not found"));
    until_left(&fake, 0).await;
    world.pod("root", pod_of(json!({"securityContext": {"privileged": true}}))).await;
    world.until("root", |pod| waits(pod) == Some("CreateContainerConfigError".to_owned())).await;
    assert!(fake.look(|state| state.starts.is_empty()));
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_image_is_a_process_of_this_machine_beside_an_engine() {
    let (world, fake) = world(Manners::Docker).await;
    let own = json!({"name": "main", "image": "example.invalid/pawl", "command": ["/bin/sh", "-c", "echo a process"]});
    world.pod("own", json!({"restartPolicy": "Never", "containers": [own]})).await;
    assert_eq!(world.log(&world.over("own").await).await, "a process\n");
    assert!(fake.look(|state| state.starts.is_empty() && state.pulls.is_empty()));
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_pawl_stops_its_containers_and_removes_them() {
    let (mut world, fake) = world(Manners::Docker).await;
    world.pod("p", script(&["hang"])).await;
    runs(&world, "p").await;
    world.shut_down().await;
    assert_eq!(fake.names(), Vec::<String>::new());
    let pod = world.pods().get("p").await.unwrap();
    assert_eq!((phase(Some(&pod)), terminated(&pod).exit_code), (Some("Failed"), 143));
    no_complaints(&fake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_engine_may_still_run_is_not_run_beside_it() {
    let (mut world, fake) = world(Manners::Docker).await;
    world.pod("p", script(&["hang"])).await;
    let pod = runs(&world, "p").await;
    world.crash().await;
    let options = Options::new(world.data.path(), container_executable());
    let refused = Runner::new(world.client.clone(), options).run(std::future::pending()).await.unwrap_err();
    let message = refused.to_string();
    assert!(message.contains(&name(&pod, 0)) && message.contains("--runner docker"), "{message}");
    assert_eq!(fake.signals(&name(&pod, 0)), Vec::<String>::new());
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_named_by_its_socket() {
    let home = tempfile::tempdir().unwrap();
    let runtime_dir = Some(home.path().to_owned());
    let docker_host = Some(format!("unix://{}/none.sock", home.path().display()));
    let error = Engine::find(&Surroundings { docker_host, runtime_dir }).await.unwrap_err().to_string();
    assert!(error.contains("none.sock: No such file or directory"), "{error}");
}
