use super::*;
use crate::machine::AnyMachine;
use crate::testing::Cluster;
use crate::view::{Input, View};
use std::time::Duration;

/// A cluster with one TaskRun, in which the test is the node that runs the Pods.
struct Run {
    cluster: Cluster,
    machines: Vec<AnyMachine>,
    key: Key,
}

impl Run {
    fn new(yaml: &str) -> Self {
        let mut cluster = Cluster::of(&[TASK_RUN, TASK, POD, PERSISTENT_VOLUME_CLAIM], "");
        let spec: Value = serde_saphyr::from_str(yaml).unwrap();
        cluster.put(
            json!({"kind": "TaskRun", "metadata": {"name": "r", "labels": {"team": "x"}}, "spec": spec}),
        );
        Self { cluster, machines: vec![AnyMachine::new(TaskRuns)], key: Key::new(Some("n"), "r") }
    }

    /// A run of one task with these steps.
    fn steps(steps: &str) -> Self {
        Self::new(&format!("taskSpec: {{steps: {steps}}}")).settled()
    }

    fn settled(mut self) -> Self {
        self.cluster.settle(&self.machines);
        self
    }

    fn status(&self) -> Value {
        self.cluster.get(&TASK_RUN, &self.key).unwrap()["status"].clone()
    }

    fn says(&self) -> (String, String) {
        let condition = self.status()["conditions"][0].clone();
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    fn reason(&self) -> String {
        self.says().0
    }

    fn pod(&self) -> Value {
        let name = self.status()["podName"].as_str().unwrap().to_owned();
        self.cluster.get(&POD, &Key::new(Some("n"), &name)).unwrap()
    }

    /// The node says how the containers of the Pod are: `code`, `code message`, `running`, or `waiting reason`.
    fn node_says(mut self, phase: &str, containers: &[&str]) -> Self {
        let pod = self.pod();
        let at = self.cluster.now;
        let state = |said: &str| match said.split_once(' ').unwrap_or((said, "")) {
            ("running", _) => json!({"running": {"startedAt": at}}),
            ("waiting", reason) => json!({"waiting": {"reason": reason, "message": "because"}}),
            (code, message) => {
                let code: i32 = code.parse().unwrap();
                let reason = if code == 0 { "Completed" } else { "Error" };
                json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at, "message": message}})
            }
        };
        let names =
            pod["spec"]["containers"].as_array().unwrap().iter().map(|container| container["name"].clone());
        let statuses: Vec<Value> = names
            .zip(containers)
            .map(|(name, said)| {
                json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": state(said)})
            })
            .collect();
        let key = Key::new(Some("n"), pod["metadata"]["name"].as_str().unwrap());
        self.cluster.edit(&POD, &key, &json!({"status": {"phase": phase, "containerStatuses": statuses}}));
        self.settled()
    }

    fn step(&self, at: usize) -> (String, i64) {
        let step = self.status()["steps"][at].clone();
        let reason = step["terminationReason"].as_str().unwrap_or_default().to_owned();
        (reason, step["terminated"]["exitCode"].as_i64().unwrap_or(-1))
    }
}

#[test]
fn steps_become_containers_that_run_in_order_and_scripts_become_files() {
    let run = Run::new(
        "params: [{name: p, value: 'a\"$(HOME)'}]
podTemplate: {env: [{name: SHARED, value: s}], nodeSelector: {disk: ssd}}
taskSpec:
  params: [{name: p}]
  results: [{name: out}]
  stepTemplate: {image: base, env: [{name: A, value: '1'}, {name: B, value: '1'}]}
  volumes: [{name: v, emptyDir: {}}]
  steps:
  - {name: one, onError: continue, script: 'echo $(params.p)', env: [{name: B, value: '2'}]}
  - {image: own, script: \"#!/usr/bin/env python3\\nprint(1)\", volumeMounts: [{name: v, mountPath: /workspace}]}
  - {name: three, command: [c], args: [$(params.p), $(results.out.path)], computeResources: {limits: {memory: 1Mi}}}",
    )
    .settled();
    let pod = run.pod();
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let names: Vec<&str> = containers.iter().map(|container| container["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["step-one", "step-unnamed-1", "step-three"]);
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["pawl.dev/script-0"], "#!/bin/sh\nset -e\necho a\"$(HOME)");
    assert_eq!(annotations["pawl.dev/script-1"], "#!/usr/bin/env python3\nprint(1)");
    assert_eq!(containers[0]["command"], json!(["/tekton/scripts/script-0"]));
    let env =
        json!([{"name": "SHARED", "value": "s"}, {"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    assert_eq!((&containers[0]["env"], &containers[0]["image"]), (&env, &json!("base")));
    assert_eq!(containers[2]["args"], json!(["a\"$$(HOME)", "/tekton/results/out"]));
    assert_eq!(
        containers[2]["resources"],
        json!({"limits": {"memory": "1Mi"}, "requests": {"memory": "1Mi"}})
    );
    let at_workspace = containers[1]["volumeMounts"].as_array().unwrap().iter();
    let at_workspace: Vec<&Value> = at_workspace.filter(|mount| mount["mountPath"] == "/workspace").collect();
    assert_eq!(at_workspace, [&json!({"name": "v", "mountPath": "/workspace"})], "the step's own mount wins");
    let order: Value = serde_json::from_str(annotations["pawl.dev/run-in-order"].as_str().unwrap()).unwrap();
    let expected = json!({"goOnAfter": ["step-one"], "exitCodes": "tekton-internal-steps",
        "report": {"volume": "tekton-internal-results", "files": ["out"]}});
    assert_eq!(order, expected);
    assert_eq!(
        (&pod["spec"]["nodeSelector"]["disk"], &pod["metadata"]["labels"]["team"]),
        (&json!("ssd"), &json!("x"))
    );
    for left_over in ["script", "onError", "computeResources"] {
        assert!(containers.iter().all(|container| container.get(left_over).is_none()), "{left_over}");
    }
}

#[test]
fn a_failed_step_skips_the_rest_and_a_forgiven_one_does_not() {
    let steps = "[{name: a, image: i, onError: continue}, {name: b, image: i}, {name: c, image: i}]";
    let run = Run::steps(steps).node_says("Running", &["5", "running", "waiting PodInitializing"]);
    assert_eq!((run.reason().as_str(), run.step(0)), ("Running", ("Continued".to_owned(), 5)));
    assert!(
        run.status()["steps"][1]["running"].is_object() && run.status()["steps"][2]["waiting"].is_object()
    );
    let run = run.node_says("Failed", &["5", "2", "waiting PodInitializing"]);
    let said = ("StepFailed".to_owned(), "\"step-b\" exited with code 2: Error".to_owned());
    assert_eq!(run.says(), said);
    assert_eq!((run.step(1), run.step(2)), (("Error".to_owned(), 2), ("Skipped".to_owned(), 1)));
    let run = Run::steps(steps).node_says("Succeeded", &["5", "0", "0"]);
    assert_eq!(run.reason(), "Succeeded");
}

#[test]
fn results_are_of_the_kind_that_was_promised_and_the_latest_counts() {
    let spec = "taskSpec: {results: [{name: t}, {name: l, type: array}], steps: [{name: a, image: i}, {name: b, image: i}]}";
    let first = r#"0 [{"key":"t","value":"1","type":1},{"key":"l","value":"[\"x\"]","type":1}]"#;
    let second = r#"0 [{"key":"t","value":"2\n","type":1},{"key":"undeclared","value":"x","type":1}]"#;
    let run = Run::new(spec).settled().node_says("Succeeded", &[first, second]);
    let expected = json!([{"name": "l", "type": "array", "value": ["x"]}, {"name": "t", "type": "string", "value": "2\n"}]);
    assert_eq!((run.reason().as_str(), &run.status()["results"]), ("Succeeded", &expected));
    let run =
        Run::new(spec).settled().node_says("Succeeded", &[r#"0 [{"key":"l","value":"x","type":1}]"#, "0"]);
    assert_eq!(run.reason(), "TaskRunValidationFailed");
    assert!(run.says().1.contains("expected to be \"array\" type"), "{:?}", run.says());
}

#[test]
fn what_is_wrong_with_a_run_is_said_before_anything_starts() {
    let steps = "steps: [{name: s, image: i}]";
    for (spec, reason, words) in [
        (format!("taskSpec: {{params: [{{name: p}}], {steps}}}"), "TaskRunValidationFailed", "[p]"),
        (
            format!(
                "taskSpec: {{params: [{{name: p, type: array}}], {steps}}}\nparams: [{{name: p, value: x}}]"
            ),
            "TaskRunValidationFailed",
            "[p]",
        ),
        (
            format!("taskSpec: {{workspaces: [{{name: w}}], {steps}}}"),
            "TaskRunValidationFailed",
            "\"w\" is required",
        ),
        (format!("taskSpec: {{{steps}}}\nworkspaces: [{{name: w}}]"), "TaskRunValidationFailed", "got none"),
        (
            format!("taskSpec: {{{steps}}}\nworkspaces: [{{name: w, csi: {{}}}}]"),
            "TaskRunValidationFailed",
            "csi",
        ),
        ("taskSpec: {}".to_owned(), "TaskValidationFailed", "steps"),
        (
            "taskRef: {name: nope}".to_owned(),
            "TaskRunResolutionFailed",
            "tasks.tekton.dev \"nope\" not found",
        ),
        (
            "taskRef: {resolver: hub}".to_owned(),
            "TaskRunResolutionFailed",
            "resolver type hub is not supported",
        ),
        ("taskRef: {resolver: bundles}".to_owned(), "TaskRunResolutionFailed", "`bundle` and `name`"),
        ("{}".to_owned(), "TaskRunResolutionFailed", "got neither"),
    ] {
        let run = Run::new(&spec).settled();
        assert_eq!(run.reason(), reason, "{spec}: {:?}", run.says());
        assert!(run.says().1.contains(words), "{:?}", run.says());
        assert!(run.cluster.world.list(&POD, None).is_empty());
    }
}

#[test]
fn a_task_that_is_only_not_seen_yet_fails_nothing() {
    let mut run = Run::new("taskRef: {name: t}");
    run.cluster.put(
        json!({"kind": "Task", "metadata": {"name": "t"}, "spec": {"steps": [{"name": "s", "image": "i"}]}}),
    );
    let task = run.cluster.world.get(&TASK, &Key::new(Some("n"), "t")).unwrap();
    let me = run.cluster.world.get(&TASK_RUN, &run.key).unwrap();
    let mut late = run.cluster.world.clone();
    late.remove(&TASK, &task.key());
    let input = Input { view: &late, me: &me, refusals: &[], answers: &Arc::default() };
    let plan = run.machines[0].plan(&input, run.cluster.now).unwrap();
    let outcome = run.cluster.apply(plan, me, usize::MAX);
    assert!(outcome.failure.is_some(), "the server says that it is there");
    assert_eq!(run.settled().reason(), "Pending");
}

#[test]
fn i2_a_pod_that_somebody_deletes_is_a_failed_attempt() {
    for (retries, reason) in [(0, "PodDeleted"), (1, "Pending")] {
        let mut run =
            Run::new(&format!("{{retries: {retries}, taskSpec: {{steps: [{{name: s, image: i}}]}}}}"))
                .settled();
        run.cluster.delete(&POD, &Key::new(Some("n"), "r-pod"), "Background");
        let run = run.settled();
        assert_eq!(run.reason(), reason);
        assert_eq!(run.cluster.world.list(&POD, None).len(), retries);
    }
}

#[test]
fn what_will_never_start_is_taken_away() {
    let run =
        Run::steps("[{name: s, image: i}]").node_says("Pending", &["waiting CreateContainerConfigError"]);
    assert_eq!(run.says().1, "Failed to create pod due to config error");
    assert!(run.cluster.world.list(&POD, None).is_empty());
    let run = Run::steps("[{name: s, image: i}]").node_says("Pending", &["waiting ContainerCreating"]);
    assert_eq!(
        run.says(),
        ("Pending".into(), "build step \"step-s\" is pending with reason \"because\"".into())
    );
}

#[test]
fn a_cancelled_run_is_over_at_once_and_its_time_no_longer_counts() {
    let mut run = Run::new("{retries: 3, taskSpec: {steps: [{name: s, image: i}]}}").settled();
    run.cluster.edit(&TASK_RUN, &run.key.clone(), &json!({"spec": {"status": "TaskRunCancelled"}}));
    let mut run = run.settled();
    assert_eq!(run.says(), ("TaskRunCancelled".into(), "TaskRun \"r\" was cancelled.".into()));
    assert!(run.cluster.world.list(&POD, None).is_empty());
    run.cluster.advance(Duration::from_hours(2));
    let before = run.status();
    assert_eq!(run.settled().status(), before);
}

#[test]
fn a_run_without_a_limit_of_its_own_has_an_hour_and_zero_means_forever() {
    for (timeout, reason) in [("", "TaskRunTimeout"), ("timeout: '0s', ", "Pending")] {
        let mut run =
            Run::new(&format!("{{{timeout}taskSpec: {{steps: [{{name: s, image: i}}]}}}}")).settled();
        run.cluster.advance(Duration::from_hours(1));
        assert_eq!(run.settled().reason(), reason, "{timeout}");
    }
}

#[test]
fn a_pod_that_is_refused_fails_the_run_in_the_servers_words() {
    let mut run = Run::new("taskSpec: {steps: [{name: s, image: i}]}");
    run.cluster.refuse_create =
        Some((POD, 403, json!({"kind": "Status", "reason": "Forbidden", "message": "not here"})));
    let run = run.settled();
    assert_eq!(run.reason(), "PodCreationFailed");
    assert!(run.says().1.contains("not here"), "{:?}", run.says());
}

#[test]
fn an_evicted_pod_says_why() {
    let mut run = Run::steps("[{name: s, image: i}]");
    let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "the disk is full"}});
    run.cluster.edit(&POD, &Key::new(Some("n"), "r-pod"), &evicted);
    assert_eq!(run.settled().says(), ("PodEvicted".into(), "the disk is full".into()));
}
