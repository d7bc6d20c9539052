use super::orphans::OrphanPods;
use super::*;
use crate::cluster::garbage::Garbage;
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::object::Object;
use crate::testing::Cluster;
use crate::view::{Input, View};
use serde_json::{Value, json};
use std::sync::Arc;

/// A cluster with one Job, in which the test is the node that runs the Pods.
struct Run {
    cluster: Cluster,
    machines: Vec<AnyMachine>,
    key: Key,
    /// What becomes of the Pods, in the order in which they are made.
    outcomes: Vec<String>,
    played: BTreeSet<String>,
}

impl Run {
    fn new(name: &str, mut job: Value, outcomes: &[&str]) -> Self {
        // What an API server fills in.
        for (field, value) in [("parallelism", 1), ("backoffLimit", 6)] {
            job["spec"].as_object_mut().unwrap().entry(field).or_insert_with(|| value.into());
        }
        let parallel = job["spec"].get("parallelism") != Some(&json!(1));
        if job["spec"].get("completions").is_none() && !parallel {
            job["spec"]["completions"] = 1.into();
        }
        job["kind"] = "Job".into();
        job["metadata"] = json!({"name": name});
        let mut cluster = Cluster::of(&[JOB, POD], "");
        cluster.put(job);
        Self {
            cluster,
            machines: vec![AnyMachine::new(Jobs), AnyMachine::new(OrphanPods), AnyMachine::new(Garbage)],
            key: Key::new(Some("n"), name),
            outcomes: outcomes.iter().rev().map(|&text| text.to_owned()).collect(),
            played: BTreeSet::new(),
        }
    }

    fn job(&self) -> Option<Value> {
        self.cluster.get(&JOB, &self.key)
    }

    fn pods(&self) -> Vec<Arc<Object>> {
        self.cluster.world.list(&POD, None)
    }

    fn settle(&mut self) {
        self.cluster.settle(&self.machines);
    }

    /// The node does what it was told with the Pods it has not seen yet; true if there were any.
    fn play(&mut self) -> bool {
        let mut played = false;
        for pod in self.pods() {
            if !self.played.insert(pod.uid().to_owned()) {
                continue;
            }
            let Some(outcome) = self.outcomes.pop() else { continue };
            let (phase, code) = outcome.split_once(':').unwrap_or((&outcome, "0"));
            let code: i32 = code.parse().unwrap();
            let ended = json!({"name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "finishedAt": self.cluster.now}}});
            let status = match phase {
                "Running" => json!({"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}),
                _ => json!({"phase": phase, "containerStatuses": [ended]}),
            };
            self.cluster.node_runs(&pod.key(), &status);
            played = true;
        }
        played
    }

    /// The node finishes what was deleted; true if there was something.
    fn reap(&mut self) -> bool {
        let pods = self.pods();
        let leaving = pods.iter().filter(|pod| pod.meta().deletion_grace_period_seconds > Some(0));
        let keys: Vec<Key> = leaving.map(|pod| pod.key()).collect();
        for key in &keys {
            self.cluster.node_ends(key);
        }
        !keys.is_empty()
    }

    /// Goes to the next moment that the Job waits for; false if it waits for none.
    fn wait(&mut self) -> bool {
        let Some(job) = self.cluster.world.get(&JOB, &self.key) else { return false };
        match self.cluster.plan(&self.machines[0], &job).wake {
            crate::plan::Wake::At(at) => self.cluster.now = at,
            crate::plan::Wake::OnChange => return false,
        }
        true
    }

    fn play_out(mut self) -> Self {
        for _ in 0..100 {
            self.settle();
            if !self.play() && !self.reap() && !self.wait() {
                return self;
            }
        }
        panic!("no end in sight: {:?}", self.job());
    }

    /// The statuses as the recording shows them: without those that only say what is about to be counted.
    fn statuses(&self) -> Vec<Value> {
        let counted = |status: &&Value| status["uncountedTerminatedPods"] == json!({});
        let all = self.cluster.statuses.iter().filter(|(key, _)| *key == self.key).map(|(_, status)| status);
        let mut seen: Vec<Value> = all.filter(counted).map(|status| comparable(status.clone())).collect();
        if self.job().is_none() {
            seen.push("gone".into());
        }
        seen
    }

    fn events(&self) -> BTreeSet<(String, String)> {
        self.cluster.events.iter().map(|(severity, reason, _)| (severity.clone(), reason.clone())).collect()
    }
}

/// Times and names of Pods differ from run to run.
fn comparable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (key, field) in fields {
                *field = if key.ends_with("Time") { "<time>".into() } else { comparable(field.take()) };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = comparable(item.take())),
        Value::String(text) => {
            let words = text
                .split(' ')
                .map(|word| if word.contains("/pod-failure-policy-") { "<pod>" } else { word });
            *text = words.collect::<Vec<_>>().join(" ");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

#[test]
fn ten_kinds_of_run_look_as_recorded_from_kubernetes() {
    let observed: Value = serde_json::from_str(include_str!("observed.json")).unwrap();
    let observed = observed.as_object().unwrap();
    assert_eq!(observed.len(), 10);
    for (name, recorded) in observed {
        let outcomes: Vec<&str> =
            recorded["pods"].as_array().unwrap().iter().map(|pod| pod.as_str().unwrap()).collect();
        let run = Run::new(name, recorded["job"].clone(), &outcomes).play_out();
        let expected: Vec<Value> = recorded["status_sequence"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|status| **status != json!({}))
            .map(|status| comparable(status.clone()))
            .collect();
        assert_eq!(json!(run.statuses()), json!(expected), "{name}");
        let events = recorded["events"].as_array().unwrap().iter();
        let events: BTreeSet<(String, String)> =
            events.map(|event| serde_json::from_value(event.clone()).unwrap()).collect();
        assert_eq!(run.events(), events, "{name}");
        assert!(run.outcomes.is_empty(), "{name}: every recorded Pod was made");
    }
}

fn job(yaml: &str) -> Value {
    let containers = json!([{"name": "main", "image": "i"}]);
    let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
    crate::testing::merge(&mut spec, &serde_saphyr::from_str(yaml).unwrap());
    json!({"spec": spec})
}

/// Plays a Job to its end and says how it ended and how many Pods it took.
fn check(spec: &str, outcomes: &[&str], expect: (&str, usize)) -> Run {
    let run = Run::new("j", job(spec), outcomes).play_out();
    let status = &run.job().unwrap()["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let last = conditions
        .last()
        .map(|one| format!("{} {}", one["type"].as_str().unwrap(), one["reason"].as_str().unwrap()));
    assert_eq!((last.unwrap_or_default().as_str(), run.played.len()), expect, "{status}");
    run
}

#[test]
fn a_failed_pod_is_replaced_until_the_limit_and_every_wait_doubles() {
    let run = check("backoffLimit: 3", &["Failed:1"; 4], ("Failed BackoffLimitExceeded", 4));
    let waited = run.cluster.now.duration_since(crate::testing::START.parse().unwrap());
    assert_eq!(waited.as_secs(), 10 + 20 + 40);
}

#[test]
fn an_ignored_failure_does_not_count_and_a_listed_one_ends_the_job() {
    let policy = "backoffLimit: 0\npodFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [7]}}, \
        {action: FailJob, onExitCodes: {operator: NotIn, values: [1]}}]}";
    check(policy, &["Failed:7", "Failed:7", "Succeeded"], ("Complete CompletionsReached", 3));
    check(policy, &["Failed:9"], ("Failed PodFailurePolicy", 1));
    check(policy, &["Failed:1"], ("Failed BackoffLimitExceeded", 1));
}

#[test]
fn workers_on_a_queue_end_when_one_has_succeeded_and_none_is_left() {
    check("parallelism: 3", &["Succeeded"; 3], ("Complete CompletionsReached", 3));
}

#[test]
fn indexes_are_each_completed_once_and_a_failed_one_is_tried_again() {
    let run = check(
        "{completions: 3, parallelism: 2, completionMode: Indexed}",
        &["Succeeded", "Failed:1", "Succeeded", "Succeeded"],
        ("Complete CompletionsReached", 4),
    );
    assert_eq!(run.job().unwrap()["status"]["completedIndexes"], "0-2");
    let pod = &run.pods()[0];
    assert_eq!(pod.raw()["spec"]["hostname"], "j-0");
    assert_eq!(pod.raw()["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
}

const THREE: &str = "completions: 3\nparallelism: 3\ncompletionMode: Indexed\n";

#[test]
fn a_success_policy_is_content_with_the_indexes_it_names_and_the_others_are_stopped() {
    let policy = format!(
        "{THREE}successPolicy: {{rules: [{{succeededIndexes: '2'}}, {{succeededIndexes: '0-1', succeededCount: 1}}]}}"
    );
    let run = check(&policy, &["Running", "Succeeded", "Running"], ("Complete SuccessPolicy", 3));
    let status = run.job().unwrap()["status"].clone();
    assert_eq!((&status["completedIndexes"], &status["succeeded"]), (&json!("1"), &json!(1)));
    assert_eq!(status["conditions"][0]["type"], "SuccessCriteriaMet");
    for condition in status["conditions"].as_array().unwrap() {
        assert_eq!(condition["message"], "Matched rules at index 1");
    }
    assert!(status.get("active").is_none() && status["terminating"] == 0);
    let left: Vec<Value> = run.pods().iter().map(|pod| pod.status()["phase"].clone()).collect();
    assert_eq!(left, ["Succeeded"], "what still ran is gone");
    assert!(run.events().contains(&("Normal".into(), "Completed".into())));
}

#[test]
fn a_success_policy_may_count_and_what_it_does_not_match_changes_nothing() {
    let counting = format!("{THREE}successPolicy: {{rules: [{{succeededCount: 2}}]}}");
    check(&counting, &["Succeeded", "Running", "Succeeded"], ("Complete SuccessPolicy", 3));
    let picky = format!("{THREE}backoffLimit: 0\nsuccessPolicy: {{rules: [{{succeededIndexes: '0,1'}}]}}");
    check(&picky, &["Succeeded", "Failed:1", "Running"], ("Failed BackoffLimitExceeded", 3));
    let all = format!("{THREE}successPolicy: {{rules: [{{succeededIndexes: '0-2'}}]}}");
    check(&all, &["Succeeded"; 3], ("Complete SuccessPolicy", 3));
}

#[test]
fn each_index_fails_on_its_own_and_the_others_go_on() {
    let spec = format!("{THREE}backoffLimitPerIndex: 1");
    let mut run = check(&spec, &["Failed:1", "Succeeded", "Running", "Failed:1"], ("", 4));
    let status = run.job().unwrap()["status"].clone();
    assert_eq!((&status["failedIndexes"], &status["completedIndexes"]), (&json!("0"), &json!("1")));
    // Once the last index is through, the Job is over: not all of them made it.
    let running = run.pods().iter().find(|pod| pod.status()["phase"] == "Running").unwrap().key();
    run.cluster.edit(&POD, &running, &json!({"status": {"phase": "Succeeded"}}));
    let run = run.play_out();
    let status = run.job().unwrap()["status"].clone();
    let last = status["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["reason"]), (&json!("Failed"), &json!("FailedIndexes")));
    assert_eq!((&status["failed"], &status["succeeded"]), (&json!(2), &json!(2)));
    assert!(run.events().contains(&("Warning".into(), "FailedIndexes".into())));
}

#[test]
fn a_failed_index_waits_alone_and_its_next_pod_carries_its_tally() {
    let spec = format!("{THREE}backoffLimitPerIndex: 2");
    let mut run = Run::new("j", job(&spec), &["Failed:1", "Running", "Running"]);
    run.settle();
    run.play();
    run.settle();
    assert_eq!(run.pods().len(), 3, "the next Pod of index 0 backs off");
    let failed = run.pods().into_iter().find(|pod| pod.status()["phase"] == "Failed").unwrap();
    assert!(failed.has_finalizer(TRACKING), "nobody carries its tally on yet");
    assert_eq!(failed.annotation("batch.kubernetes.io/job-index-failure-count"), Some("0"));
    assert!(run.wait());
    run.settle();
    let pods = run.pods();
    assert_eq!(pods.len(), 4);
    let next =
        pods.iter().find(|pod| pod.annotation("batch.kubernetes.io/job-index-failure-count") == Some("1"));
    assert_eq!(next.unwrap().annotation("batch.kubernetes.io/job-completion-index"), Some("0"));
    let failed = pods.iter().find(|pod| pod.uid() == failed.uid()).unwrap();
    assert!(!failed.has_finalizer(TRACKING), "it is counted");
    assert_eq!(run.job().unwrap()["status"]["failed"], 1);
    let waited = run.cluster.now.duration_since(crate::testing::START.parse().unwrap());
    assert_eq!(waited.as_secs(), 10);
}

#[test]
fn a_policy_gives_an_index_up_or_forgives_it_and_too_many_end_the_job() {
    let policy = "podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {operator: In, values: [3]}}, \
        {action: Ignore, onExitCodes: {operator: In, values: [7]}}]}";
    let given_up = format!("{THREE}backoffLimitPerIndex: 5\n{policy}");
    let run = check(&given_up, &["Failed:3", "Succeeded", "Succeeded"], ("Failed FailedIndexes", 3));
    assert_eq!(run.job().unwrap()["status"]["failedIndexes"], "0");
    let forgiven = format!("{THREE}backoffLimitPerIndex: 0\n{policy}");
    let run = check(
        &forgiven,
        &["Failed:7", "Succeeded", "Succeeded", "Failed:7", "Succeeded"],
        ("Complete CompletionsReached", 5),
    );
    assert_eq!(run.job().unwrap()["status"]["failedIndexes"], "");
    let last = "batch.kubernetes.io/job-index-ignored-failure-count";
    assert!(run.pods().iter().any(|pod| pod.annotation(last) == Some("2")));
    let strict = format!("{THREE}backoffLimitPerIndex: 0\nmaxFailedIndexes: 1");
    check(&strict, &["Failed:1", "Failed:1", "Running"], ("Failed MaxFailedIndexesExceeded", 3));
}

#[test]
fn suspending_stops_pods_without_counting_them_and_resuming_starts_the_clock_anew() {
    let mut run = Run::new("j", job("backoffLimit: 0"), &["Running", "Succeeded"]);
    run.settle();
    run.play();
    run.settle();
    run.cluster.edit(&JOB, &run.key.clone(), &json!({"spec": {"suspend": true}}));
    run.settle();
    assert!(run.reap());
    run.settle();
    let status = run.job().unwrap()["status"].clone();
    assert_eq!(
        (&status["conditions"][0]["reason"], status.get("startTime"), status.get("failed")),
        (&json!("JobSuspended"), None, None)
    );
    assert!(run.pods().is_empty());
    run.cluster.advance(Duration::from_mins(1));
    run.cluster.edit(&JOB, &run.key.clone(), &json!({"spec": {"suspend": false}}));
    let run = run.play_out();
    let status = run.job().unwrap()["status"].clone();
    assert_eq!((&status["startTime"], &status["succeeded"]), (&json!("2026-01-01T00:01:00Z"), &json!(1)));
    assert!(run.events().contains(&("Normal".into(), "Resumed".into())));
}

#[test]
fn fewer_workers_are_wanted_so_the_ones_that_did_least_go() {
    let mut run = Run::new("j", job("{parallelism: 3, completions: 9}"), &["Running"]);
    run.settle();
    run.play();
    run.settle();
    let running = run.pods().iter().find(|pod| pod.status()["phase"] == "Running").unwrap().key();
    run.cluster.edit(&JOB, &run.key.clone(), &json!({"spec": {"parallelism": 1}}));
    run.settle();
    assert_eq!(run.pods().iter().map(|pod| pod.key()).collect::<Vec<_>>(), [running]);
}

#[test]
fn a_deleted_job_lets_its_pods_go() {
    for propagation in ["Foreground", "Background"] {
        let mut run = Run::new("j", job("backoffLimit: 0"), &["Running"]);
        run.settle();
        run.play();
        run.cluster.delete(&JOB, &run.key.clone(), propagation);
        run.settle();
        assert_eq!(run.job().is_some(), propagation == "Foreground", "only the foreground waits for the Pod");
        assert!(run.reap());
        run.settle();
        assert!(run.job().is_none() && run.pods().is_empty(), "{propagation}");
    }
}

#[test]
fn i1_a_repeated_decision_makes_the_same_pod() {
    let run = Run::new("j", job("backoffLimit: 0"), &[]);
    let me = run.cluster.world.get(&JOB, &run.key).unwrap();
    let [first, second] = [0, 1].map(|_| run.cluster.plan(&run.machines[0], &me).steps);
    assert_eq!(first, second);
    assert!(matches!(first.as_slice(), [Step::Create { .. }]));
}

#[test]
fn a_result_is_counted_once_whichever_write_is_the_last_before_a_crash() {
    // The status says that it is about to be counted, and the finalizer is gone: only the count is missing.
    let mut run = Run::new("j", job("backoffLimit: 0"), &["Succeeded"]);
    run.settle();
    run.play();
    let uid = run.pods()[0].uid().to_owned();
    run.cluster.step(&run.machines[0].clone(), &JOB, &run.key.clone());
    assert_eq!(run.job().unwrap()["status"]["uncountedTerminatedPods"]["succeeded"], json!([uid]));
    let pod = run.pods()[0].key();
    run.cluster.edit(&POD, &pod, &json!({"metadata": {"finalizers": null}}));
    let run = run.play_out();
    assert_eq!(run.job().unwrap()["status"]["succeeded"], 1);
}

#[test]
fn a_pod_that_is_refused_is_said_and_tried_again_later() {
    let mut run = Run::new("j", job("backoffLimit: 0"), &["Succeeded"]);
    let refusal = json!({"kind": "Status", "reason": "Forbidden", "message": "not here"});
    run.cluster.refuse_create = Some((POD, 403, refusal));
    run.cluster.step(&run.machines[0].clone(), &JOB, &run.key.clone());
    run.cluster.step(&run.machines[0].clone(), &JOB, &run.key.clone());
    assert_eq!(
        run.cluster.events,
        [("Warning".into(), "FailedCreate".into(), "Error creating: not here".into())]
    );
    run.cluster.refuse_create = None;
    run.cluster.advance(REFUSED_RETRY);
    let run = run.play_out();
    assert_eq!(run.job().unwrap()["status"]["succeeded"], 1);
}

#[test]
fn a_job_managed_by_somebody_else_is_left_alone() {
    let mut run = Run::new("j", job("managedBy: example.com/other"), &[]);
    run.settle();
    assert!(run.pods().is_empty() && run.job().unwrap()["status"] == json!({}));
}

#[test]
fn a_replica_that_sees_the_job_before_its_pods_does_not_count_a_result_twice() {
    let mut run = Run::new("j", job("{completions: 2, parallelism: 1}"), &["Succeeded"]);
    run.settle();
    run.play();
    let late_pod = run.pods()[0].clone();
    run.settle();
    assert_eq!(run.job().unwrap()["status"]["succeeded"], 1);
    // Another replica has the Job as it is now, and the Pod as it was before it was counted.
    let mut view = run.cluster.world.clone();
    view.put(late_pod);
    let me = view.get(&JOB, &run.key).unwrap();
    let input = Input { view: &view, me: &me, refusals: &[], answers: &Arc::default() };
    let plan = run.machines[0].plan(&input, run.cluster.now).unwrap();
    let outcome = run.cluster.apply(plan, me, usize::MAX);
    assert_eq!(outcome.failure.unwrap().reason, "Outdated");
    assert_eq!(run.job().unwrap()["status"]["uncountedTerminatedPods"], json!({}));
}
