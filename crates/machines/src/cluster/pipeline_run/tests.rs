use super::*;
use crate::cluster::task_run::TaskRuns;
use crate::cluster::tekton::origin::BundleEntry;
use crate::external::Reply;
use crate::failure::Failure;
use crate::machine::AnyMachine;
use crate::testing::Cluster;
use crate::view::View;
use pawl_api::k8s::POD;
use std::collections::VecDeque;
use std::time::Duration;

/// A cluster with one PipelineRun, in which the test is the node that runs the Pods. What a Pod does is in its task's name:
/// `fail`, `oom` and `pull` fail, `flaky` does at the first attempt, `hang` never ends, everything else succeeds.
struct Run {
    cluster: Cluster,
    machines: Vec<AnyMachine>,
    key: Key,
    seen: BTreeSet<String>,
    queue: VecDeque<Key>,
    /// The tasks, in the order in which the node saw their Pods.
    order: Vec<String>,
    /// What the steps report, by a word in the name of their task.
    results: Vec<(&'static str, Value)>,
}

impl Run {
    fn new(name: &str, namespace: &str, spec: &Value) -> Self {
        let kinds = [PIPELINE_RUN, TASK_RUN, PIPELINE, TASK, POD, PERSISTENT_VOLUME_CLAIM];
        let mut cluster = Cluster::of(&kinds, "");
        cluster.put(
            json!({"kind": "PipelineRun", "metadata": {"name": name, "namespace": namespace}, "spec": spec}),
        );
        Self {
            cluster,
            machines: vec![AnyMachine::new(PipelineRuns), AnyMachine::new(TaskRuns)],
            key: Key::new(Some(namespace), name),
            seen: BTreeSet::new(),
            queue: VecDeque::new(),
            order: vec![],
            results: vec![],
        }
    }

    fn of(yaml: &str) -> Self {
        Self::new("r", "n", &serde_saphyr::from_str::<Value>(yaml).unwrap())
    }

    /// A pipeline whose tasks are each written as one line of fields; each gets a step.
    fn pipeline(yaml: &str) -> Self {
        let mut spec: Value = serde_saphyr::from_str(yaml).unwrap();
        for part in ["tasks", "finally"] {
            for task in spec.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten() {
                let task = task.as_object_mut().unwrap();
                if !task.contains_key("taskRef") {
                    let spec = task.entry("taskSpec").or_insert_with(|| json!({}));
                    spec.as_object_mut()
                        .unwrap()
                        .entry("steps")
                        .or_insert_with(|| json!([{"name": "s", "image": "i"}]));
                }
            }
        }
        Self::new("r", "n", &json!({"pipelineSpec": spec}))
    }

    fn put(mut self, yaml: &str) -> Self {
        self.cluster.put(serde_saphyr::from_str(yaml).unwrap());
        self
    }

    fn reporting(mut self, task: &'static str, results: Value) -> Self {
        self.results.push((task, results));
        self
    }

    fn settle(&mut self) {
        self.cluster.settle(&self.machines);
    }

    fn raw(&self) -> Value {
        self.cluster.get(&PIPELINE_RUN, &self.key).unwrap()
    }

    fn condition(&self) -> (String, String, String) {
        let raw = self.raw();
        let text =
            |field: &str| raw["status"]["conditions"][0][field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    fn reason(&self) -> String {
        self.condition().1
    }

    fn task_run(&self, task: &str) -> Option<Value> {
        self.cluster
            .get(&TASK_RUN, &Key::new(self.key.namespace.as_deref(), &format!("{}-{task}", self.key.name)))
    }

    fn task_runs(&self) -> Vec<String> {
        self.cluster.world.list(&TASK_RUN, None).iter().map(|run| run.name().to_owned()).collect()
    }

    fn skipped(&self) -> Vec<(String, String)> {
        let status = self.raw()["status"].clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let skipped = status["skippedTasks"].as_array().cloned().unwrap_or_default();
        skipped.iter().map(|task| (text(&task["name"]), text(&task["reason"]))).collect()
    }

    /// The node does something with the Pod that it has known longest; false if there is none.
    fn play(&mut self) -> bool {
        for pod in self.cluster.world.list(&POD, None) {
            if self.seen.insert(pod.uid().to_owned()) {
                self.queue.push_back(pod.key());
                self.order.extend(pod.label(labels::PIPELINE_TASK).map(str::to_owned));
            }
        }
        let Some(key) = self.queue.pop_front() else { return false };
        let Some(pod) = self.cluster.world.get(&POD, &key).filter(|pod| !pod.is_deleting()) else {
            return true;
        };
        let task = pod.label(labels::PIPELINE_TASK).unwrap_or_default();
        let (code, reason) = match task {
            task if task.contains("oom") => (137, "OOMKilled"),
            task if task.contains("fail") => (1, "Error"),
            task if task.contains("flaky") && !pod.name().contains("retry") => (1, "Error"),
            _ => (0, "Completed"),
        };
        let at = self.cluster.now;
        let message = self.results.iter().find(|(word, _)| task.contains(word)).map(|(_, results)| {
            let one = |(key, value): (&String, &Value)| {
                json!({"key": key, "value": value.as_str().map_or_else(|| value.to_string(), str::to_owned), "type": 1})
            };
            Value::Array(results.as_object().unwrap().iter().map(one).collect()).to_string()
        });
        let state = |_: &Value| {
            if task.contains("hang") {
                json!({"running": {"startedAt": at}})
            } else if task.contains("pull") {
                json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}})
            } else {
                json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at, "message": message}})
            }
        };
        let containers = pod.raw()["spec"]["containers"].as_array().unwrap();
        let statuses: Vec<Value> = containers
            .iter()
            .map(|container| {
                json!({"name": container["name"], "image": "i", "imageID": "", "ready": false,
                "restartCount": 0, "state": state(container)})
            })
            .collect();
        let phase = match () {
            () if task.contains("hang") => "Running",
            () if task.contains("pull") => "Pending",
            () if code == 0 => "Succeeded",
            () => "Failed",
        };
        self.cluster.edit(
            &POD,
            &pod.key(),
            &json!({"status": {"phase": phase, "containerStatuses": statuses}}),
        );
        true
    }

    fn reap(&mut self) {
        for pod in self.cluster.world.list(&POD, None) {
            if pod.meta().deletion_grace_period_seconds > Some(0) {
                self.cluster.edit(&POD, &pod.key(), &json!({"metadata": {"deletionGracePeriodSeconds": 0}}));
            }
        }
    }

    fn play_out(mut self) -> Self {
        for _ in 0..100 {
            self.settle();
            self.reap();
            if !self.play() {
                self.settle();
                return self;
            }
        }
        panic!("no end in sight: {:?}", self.raw());
    }

    fn patch(&mut self, spec: &Value) {
        self.cluster.edit(&PIPELINE_RUN, &self.key.clone(), &json!({"spec": spec}));
    }

    /// What the condition said, one after the other, each once.
    fn sequence(&self) -> Vec<Value> {
        let of_run = self.cluster.statuses.iter().filter(|(key, _)| *key == self.key);
        let mut said: Vec<Value> = of_run
            .map(|(_, status)| {
                let condition = &status["conditions"][0];
                json!({"status": condition["status"], "reason": condition["reason"], "message": condition["message"]})
            })
            .collect();
        said.dedup();
        said
    }
}

/// Times and UIDs differ from run to run; copies of specs were left out of the recording.
fn comparable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|key, _| !matches!(key.as_str(), "pipelineSpec" | "taskSpec" | "provenance"));
            for (key, field) in fields {
                let is_time = key.ends_with("Time") || key.ends_with("edAt");
                *field = if is_time { "<time>".into() } else { comparable(field.take()) };
                if key == "tekton.dev/pipelineRunUID" {
                    *field = "<uid>".into();
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = comparable(item.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

#[test]
fn thirteen_kinds_of_run_look_as_recorded_from_tekton() {
    let observed: Value = serde_json::from_str(include_str!("observed.json")).unwrap();
    let observed = observed.as_object().unwrap();
    assert_eq!(observed.len(), 13);
    for (name, recorded) in observed {
        let mut run = Run::new(name, "tkobs", &recorded["spec"]).play_out();
        if let Some(status) = recorded["cancel"].as_str() {
            run.patch(&json!({"status": status}));
            run = run.play_out();
        }
        if recorded["spec"].get("timeouts").is_some() {
            run.cluster.advance(Duration::from_secs(4));
            run = run.play_out();
        }
        assert_eq!(comparable(run.raw()["status"].clone()), recorded["final_status"], "{name}");
        // The recording shows what a watcher saw: all of it happened in this order, and in between there may be more.
        let said = run.sequence();
        let mut left = said.iter();
        for expected in recorded["succeeded_sequence"].as_array().unwrap() {
            assert!(left.any(|one| one == expected), "{name}: {expected} is not among {said:?}");
        }
        let expected = recorded["taskruns"].as_object().unwrap();
        assert_eq!(run.task_runs(), expected.keys().cloned().collect::<Vec<_>>(), "{name}");
        for (task_run, expected) in expected {
            let raw = run.cluster.get(&TASK_RUN, &Key::new(Some("tkobs"), task_run)).unwrap();
            let labels = comparable(raw["metadata"]["labels"].clone());
            assert_eq!(labels, expected["labels"], "{name}: {task_run}");
            assert_eq!(comparable(raw["status"].clone()), expected["status"], "{name}: {task_run}");
        }
    }
}

/// Plays a pipeline to its end and says how it ended.
fn check(yaml: &str, expect: (&str, &str)) -> Run {
    let run = Run::pipeline(yaml).play_out();
    let (status, reason, message) = run.condition();
    assert_eq!((status.as_str(), reason.as_str()), expect, "{message}");
    run
}

#[test]
fn a_diamond_runs_in_order_and_finally_runs_last() {
    let run = Run::pipeline(
        "tasks: [{name: a}, {name: b, runAfter: [a]}, {name: c, runAfter: [a]}, {name: d, runAfter: [b, c]}]\nfinally: [{name: z}]",
    );
    let run = run.play_out();
    assert_eq!(run.reason(), "Succeeded");
    assert_eq!(run.order, ["a", "b", "c", "d", "z"]);
}

#[test]
fn results_flow_into_params_conditions_embedded_tasks_and_the_pipelines_own() {
    let run = Run::pipeline(
        "params: [{name: who, default: me}]
tasks:
- {name: make, taskSpec: {results: [{name: digest}, {name: list, type: array}, {name: map, type: object}]}}
- name: use
  params: [{name: d, value: 'x-$(tasks.make.results.digest)'}, {name: l, value: '$(tasks.make.results.list[*])'}]
  when: [{input: '$(tasks.make.results.digest)', operator: in, values: ['$(tasks.make.results.list[*])']}]
  taskSpec:
    params: [{name: d}, {name: l, type: array}]
    steps: [{name: s, image: i, args: ['$(params.d)', '$(params.l[*])', '$(params.who)', '$(tasks.make.results.map.k)']}]
results: [{name: out, value: '$(tasks.make.results.digest)!'}, {name: first, value: '$(tasks.make.results.list[0])'}]",
    )
    .reporting("make", json!({"digest": "sha", "list": ["sha", "$(params.who)"], "map": {"k": "v$(HOME)"}}))
    .play_out();
    assert_eq!(run.reason(), "Succeeded", "{:?}", run.condition());
    let pod = run.cluster.get(&POD, &Key::new(Some("n"), "r-use-pod")).unwrap();
    let args = &pod["spec"]["containers"][0]["args"];
    assert_eq!(*args, json!(["x-sha", "sha", "$$(params.who)", "me", "v$$(HOME)"]));
    let results = &run.raw()["status"]["results"];
    assert_eq!(*results, json!([{"name": "out", "value": "sha!"}, {"name": "first", "value": "sha"}]));
    let references = &run.raw()["status"]["childReferences"][1]["whenExpressions"][0];
    assert_eq!(references["input"], "sha");
}

#[test]
fn a_task_that_needs_what_a_skipped_one_would_have_found_is_skipped_and_what_only_follows_runs() {
    let run = check(
        "tasks:
- {name: a, taskSpec: {results: [{name: r}]}, when: [{input: x, operator: notin, values: [x]}]}
- {name: needs, params: [{name: p, value: $(tasks.a.results.r)}]}
- {name: after-needs, runAfter: [needs]}
- {name: after, runAfter: [a]}
finally:
- {name: f, params: [{name: p, value: $(tasks.a.results.r)}]}
- {name: g, when: [{input: $(tasks.status), operator: in, values: [Completed]}]}",
        ("True", "Completed"),
    );
    let expected = [
        ("a", "When Expressions evaluated to false"),
        ("needs", "Results were missing"),
        ("after-needs", "Parent Tasks were skipped"),
        ("f", "Results were missing"),
    ];
    assert_eq!(run.skipped(), expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
    assert_eq!(run.task_runs(), ["r-after", "r-g"]);
}

#[test]
fn a_task_whose_failure_is_to_be_ignored_lets_the_rest_go_on() {
    let run = check(
        "tasks: [{name: fail-a, onError: continue}, {name: b, runAfter: [fail-a]}]",
        ("True", "Succeeded"),
    );
    let message = "Tasks Completed: 2 (Failed: 1 (Ignored: 1), Cancelled 0), Skipped: 0";
    assert_eq!(run.condition().2, message);
}

#[test]
fn retries_end_at_their_number_and_every_attempt_is_kept() {
    let run = check("tasks: [{name: fail-a, retries: 2}]", ("False", "Failed"));
    let status = run.task_run("fail-a").unwrap()["status"].clone();
    assert_eq!(status["retriesStatus"].as_array().unwrap().len(), 2);
    assert_eq!(status["podName"], "r-fail-a-pod-retry2");
    let pods = run.cluster.world.list(&POD, None);
    assert_eq!(pods.len(), 3);
}

#[test]
fn a_pending_run_starts_nothing_until_it_may() {
    let mut run = Run::pipeline("tasks: [{name: a}]");
    run.patch(&json!({"status": "PipelineRunPending"}));
    run.settle();
    let expected = ("Unknown".into(), "PipelineRunPending".into(), "PipelineRun \"r\" is pending".into());
    assert_eq!((run.condition(), run.task_runs().len()), (expected, 0));
    assert!(run.raw()["status"].get("startTime").is_none());
    run.patch(&json!({"status": null}));
    assert_eq!(run.play_out().reason(), "Succeeded");
}

#[test]
fn a_stopped_run_lets_its_tasks_end_and_starts_only_the_last_ones() {
    let mut run = Run::pipeline("tasks: [{name: a}, {name: b, runAfter: [a]}]\nfinally: [{name: z}]");
    run.settle();
    run.patch(&json!({"status": "StoppedRunFinally"}));
    run.settle();
    assert_eq!(run.reason(), "StoppedRunningFinally");
    let run = run.play_out();
    assert_eq!(
        (run.reason().as_str(), run.task_runs()),
        ("Cancelled", vec!["r-a".to_owned(), "r-z".to_owned()])
    );
    assert_eq!(run.skipped(), [("b".to_owned(), "PipelineRun was gracefully stopped".to_owned())]);
}

#[test]
fn tasks_that_take_too_long_leave_time_for_the_last_ones() {
    let mut run =
        Run::pipeline("tasks: [{name: hang-a}, {name: b, runAfter: [hang-a]}]\nfinally: [{name: z}]");
    run.patch(&json!({"timeouts": {"pipeline": "1h", "finally": "10m"}}));
    let mut run = run.play_out();
    run.cluster.advance(Duration::from_mins(50));
    let run = run.play_out();
    assert_eq!((run.reason().as_str(), run.task_runs().len()), ("Failed", 2));
    assert!(run.task_run("z").is_some());
}

#[test]
fn a_task_with_a_timeout_of_its_own_fails_by_it() {
    let mut run = Run::pipeline("tasks: [{name: hang-a, timeout: 90s}]").play_out();
    run.cluster.advance(Duration::from_secs(90));
    let run = run.play_out();
    let status = &run.task_run("hang-a").unwrap()["status"];
    assert_eq!(status["conditions"][0]["message"], "TaskRun \"r-hang-a\" failed to finish within \"1m30s\"");
    assert_eq!(
        (run.reason().as_str(), &status["steps"][0]["terminationReason"]),
        ("Failed", &json!("TaskRunTimeout"))
    );
    assert!(run.cluster.world.list(&POD, None).is_empty(), "what hung is gone");
}

#[test]
fn what_is_wrong_with_a_pipeline_is_said_in_tektons_words() {
    for (yaml, reason, words) in [
        ("tasks: [{name: a, runAfter: [b]}, {name: b, runAfter: [a]}]", "PipelineInvalidGraph", "cycle"),
        ("tasks: [{name: a, runAfter: [a]}]", "PipelineInvalidGraph", "cycle"),
        ("tasks: [{name: a, runAfter: [nope]}]", "PipelineInvalidGraph", "nope"),
        ("tasks: [{name: a}, {name: a}]", "PipelineInvalidGraph", "more than once"),
        ("tasks: [{name: a}]\nfinally: [{name: a}]", "PipelineInvalidGraph", "finally"),
        (
            "tasks: [{name: a, params: [{name: p, value: $(tasks.x.results.r)}]}]",
            "PipelineInvalidGraph",
            "\"x\"",
        ),
        ("tasks: []", "PipelineValidationFailed", "spec.tasks"),
        ("tasks: [{name: a, matrix: {params: []}}]", "PipelineValidationFailed", "matrix"),
        (
            "tasks: [{name: a, taskRef: {name: t, apiVersion: example.dev/v1}}]",
            "PipelineValidationFailed",
            "custom",
        ),
        (
            "tasks: [{name: a, taskSpec: {params: [{name: p}]}}]",
            "PipelineValidationFailed",
            "missing values for these params",
        ),
        (
            "tasks: [{name: a}, {name: b, params: [{name: p, value: $(tasks.a.results.r)}]}]",
            "InvalidTaskResultReference",
            "is not a named result",
        ),
        (
            "tasks: [{name: a}]\nresults: [{name: x, value: $(tasks.a.results.r)}]",
            "InvalidTaskResultReference",
            "\"x\"",
        ),
        ("workspaces: [{name: w}]\ntasks: [{name: a}]", "InvalidWorkspaceBindings", "\"w\""),
        (
            "tasks: [{name: a, taskRef: {name: nope}}]",
            "CouldntGetTask",
            "Pipeline n/r can't be Run; it contains Tasks that don't exist: Couldn't retrieve Task \"nope\": \
             tasks.tekton.dev \"nope\" not found",
        ),
        (
            "tasks: [{name: a, taskRef: {resolver: git}}]",
            "CouldntGetTask",
            "resolver type git is not supported",
        ),
    ] {
        let run = check(yaml, ("False", reason));
        assert!(run.condition().2.contains(words), "{}", run.condition().2);
        assert!(run.task_runs().is_empty() && run.raw()["status"]["completionTime"].is_string());
    }
}

#[test]
fn a_script_of_a_megabyte_is_refused_with_what_to_do_instead() {
    let script = "#".repeat(1_000_000);
    let run = check(
        &format!("tasks: [{{name: a, taskSpec: {{steps: [{{name: s, image: i, script: '{script}'}}]}}}}]"),
        ("False", "PipelineValidationFailed"),
    );
    assert!(run.condition().2.contains("ConfigMap"), "{}", run.condition().2);
}

#[test]
fn a_pipeline_and_tasks_are_found_by_name_and_kept_as_they_were() {
    let mut run = Run::of("pipelineRef: {name: p}\nparams: [{name: x, value: '1'}]")
        .put("{kind: Pipeline, metadata: {name: p}, spec: {params: [{name: x}], tasks: [{name: a, taskRef: {name: t}, \
            params: [{name: q, value: $(params.x)}]}, {name: b, runAfter: [a], taskRef: {name: t}, params: [{name: q, value: '2'}]}]}}")
        .put("{kind: Task, metadata: {name: t}, spec: {params: [{name: q}], steps: [{name: s, image: i, args: [$(params.q)]}]}}");
    run.settle();
    run.cluster.edit(&PIPELINE, &Key::new(Some("n"), "p"), &json!({"spec": {"tasks": []}}));
    let run = run.play_out();
    assert_eq!(run.reason(), "Succeeded", "{:?}", run.condition());
    let task_run = run.task_run("a").unwrap();
    assert_eq!(task_run["metadata"]["labels"]["tekton.dev/pipeline"], "p");
    assert_eq!(run.raw()["metadata"]["labels"]["tekton.dev/pipeline"], "p", "and the run is found by it too");
    let pod = run.cluster.get(&POD, &Key::new(Some("n"), "r-a-pod")).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["args"], json!(["1"]));
    assert_eq!(pod["metadata"]["labels"]["tekton.dev/task"], "t");
}

#[test]
fn a_bundle_is_asked_for_once_and_what_is_no_bundle_fails_the_run() {
    let spec = "pipelineRef: {resolver: bundles, params: [{name: bundle, value: 'example.com/b:1'}, {name: name, value: w}, \
        {name: kind, value: pipeline}]}";
    let mut run = Run::of(spec);
    run.cluster.outside = |call| {
        assert!(call.request::<BundleEntry>().is_some_and(|entry| entry.kind == "pipeline"), "{call}");
        Ok(Reply::new::<BundleEntry>(json!({"spec": {
            "tasks": [{"name": "a", "taskSpec": {"steps": [{"name": "s", "image": "i"}]}}]}})))
    };
    let run = run.play_out();
    assert_eq!((run.reason().as_str(), run.cluster.calls.len()), ("Succeeded", 1));
    assert_eq!(run.task_run("a").unwrap()["metadata"]["labels"]["tekton.dev/pipeline"], "w");

    let mut run = Run::of(spec);
    run.cluster.outside = |call| {
        let body = br#"{"kind":"Status","code":422,"reason":"Invalid","message":"not a bundle"}"#;
        Err(Failure::answered(call.to_string(), 422, None, body))
    };
    let run = run.play_out();
    assert_eq!(run.reason(), "CouldntGetPipeline");
    assert!(run.condition().2.ends_with("resolver type bundles: not a bundle"), "{}", run.condition().2);
}

#[test]
fn a_registry_that_does_not_answer_is_waited_for_as_long_as_tekton_would() {
    let spec = "pipelineRef: {resolver: bundles, params: [{name: bundle, value: 'example.com/b:1'}, {name: name, value: w}]}";
    let mut run = Run::of(spec);
    run.cluster.outside = |call| Err(Failure::unanswered(call.to_string(), "cannot connect"));
    run.settle();
    assert_eq!(run.reason(), "ResolvingPipelineRef");
    assert_eq!(run.condition().2, "PipelineRun n/r awaiting remote resource");
    run.cluster.now += Duration::from_secs(59);
    run.settle();
    assert_eq!(run.reason(), "ResolvingPipelineRef");
    run.cluster.now += Duration::from_secs(1);
    run.settle();
    let (_, reason, message) = run.condition();
    assert_eq!(reason, "CouldntGetPipeline");
    let why = "resolution took longer than global timeout of 1m0s: resolver type bundles: cannot connect";
    assert_eq!(message, format!("Error retrieving pipeline for pipelinerun n/r: {why}"));
}

#[test]
fn workspaces_reach_the_tasks_and_a_claim_is_made_of_a_template() {
    let mut run = Run::pipeline(
        "workspaces: [{name: src}, {name: conf, optional: true}]
tasks:
- {name: a, workspaces: [{name: out, workspace: src, subPath: $(context.pipelineRun.name)}], taskSpec: {workspaces: [{name: out}],
   steps: [{name: s, image: i, args: [$(workspaces.out.path), $(workspaces.out.claim)]}]}}
- {name: b, taskSpec: {steps: [{name: s, image: i, args: [$(workspaces.src.path)]}]}}",
    );
    run.patch(&json!({"workspaces": [{"name": "src", "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}]}));
    let run = run.play_out();
    assert_eq!(run.reason(), "Succeeded", "{:?}", run.condition());
    let claims = run.cluster.world.list(&PERSISTENT_VOLUME_CLAIM, None);
    let claim = claims[0].name().to_owned();
    let pod = run.cluster.get(&POD, &Key::new(Some("n"), "r-a-pod")).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["args"], json!(["/workspace/out", claim]));
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["mountPath"] == "/workspace/out").unwrap();
    assert_eq!(mount["subPath"], "r");
    assert_eq!(claims.len(), 1);
}

#[test]
fn i1_a_repeated_decision_makes_the_same_task_runs() {
    let run = Run::pipeline("tasks: [{name: a}, {name: b}]");
    let me = run.cluster.world.get(&PIPELINE_RUN, &run.key).unwrap();
    let [first, second] = [0, 1].map(|_| run.cluster.plan(&run.machines[0], &me).steps);
    assert_eq!(first, second);
    assert_eq!(first.iter().filter(|step| matches!(step, Step::Create { .. })).count(), 2);
}

#[test]
fn i2_a_task_run_that_somebody_deletes_is_not_made_again() {
    let mut run = Run::pipeline("tasks: [{name: hang-a}]").play_out();
    run.cluster.delete(&TASK_RUN, &Key::new(Some("n"), "r-hang-a"), "Background");
    let run = run.play_out();
    assert_eq!((run.reason().as_str(), run.task_runs().len()), ("Failed", 0));
}

#[test]
fn a_run_that_is_over_ends_what_was_made_too_late() {
    let mut run = Run::pipeline("tasks: [{name: a}]");
    run.settle();
    run.patch(&json!({"status": "Cancelled"}));
    let mut run = run.play_out();
    assert_eq!(run.reason(), "Cancelled");
    let mut late = run.task_run("a").unwrap();
    late["metadata"] = json!({"name": "r-late", "namespace": "n", "labels": {"tekton.dev/pipelineTask": "late"},
        "ownerReferences": late["metadata"]["ownerReferences"]});
    late.as_object_mut().unwrap().remove("status");
    late["spec"].as_object_mut().unwrap().remove("status");
    run.cluster.put(late);
    let run = run.play_out();
    assert_eq!(run.task_run("late").unwrap()["status"]["conditions"][0]["reason"], "TaskRunCancelled");
}
