//! Every oracle is made to fail once, by a world that deserves it.

use futures::FutureExt as _;
use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use pawl_api::git::repository::AGGREGATE_CHECK;
use pawl_api::git::{branch, workflow};
use pawl_api::k8s::{CONFIG_MAP, JOB};
use pawl_api::meta::Kind;
use pawl_integrations::github::fake::{
    APP_ID, APP_KEY_PKCS8, Applied, Change, Effect, INSTALLATION_ID, TOKEN,
};
use pawl_machines::git::github::{self, Account, Ask, CheckRun, CheckState};
use pawl_machines::machine::{AnyMachine, Depth, Description, Machine, Primary};
use pawl_machines::object::Key;
use pawl_machines::plan::{Plan, Step};
use pawl_machines::view::Context;
use pawl_sim::campaign::Simulator;
use pawl_sim::ground::{Ground, request};
use pawl_sim::hub::Sky;
use pawl_sim::inner::{self, Run, Setup};
use pawl_sim::mutant::{Guard, Guards};
use pawl_sim::oracle::{self, Oracle, Summary};
use pawl_sim::outer;
use pawl_sim::scenario::{Deed, Scenario};
use serde_json::{Value, json};
use std::sync::Arc;

/// A machine with one bad habit.
#[derive(Clone, Copy)]
enum Habit {
    /// Writes at every look.
    Restless,
    /// Writes what it read, and one more, for ever.
    Counts,
}

impl Machine for Habit {
    type Kind = ConfigMap;
    type Status = Value;

    fn description(&self) -> Description {
        Description {
            name: "habit",
            primary: Primary::One(CONFIG_MAP),
            depth: Depth::Full,
            watches: vec![],
            finalizer: None,
            phases: None,
            writes: vec![],
        }
    }

    fn reconcile(&self, cx: &Context<'_, ConfigMap>) -> Plan<Value> {
        let data = cx.typed.data.as_ref();
        let count = data.and_then(|data| data.get("count")).and_then(|count| count.parse::<u64>().ok());
        let data = match self {
            Self::Restless => json!({"a": "b"}),
            Self::Counts => json!({"count": (count.unwrap_or(0) + 1).to_string()}),
        };
        let patch = json!({"data": data});
        Plan::step(Step::patch(cx.object, patch))
    }
}

fn one_config_map() -> Vec<Deed> {
    vec![Deed::create(CONFIG_MAP, json!({"metadata": {"name": "a", "namespace": "default"}}))]
}

fn scenario(machines: fn(Guards) -> Vec<AnyMachine>) -> Scenario {
    Scenario {
        name: "test",
        about: "",
        own_kinds: false,
        timed: false,
        stalls: true,
        alone: true,
        github: None,
        machines,
        script: one_config_map,
        ends_with: |_| Ok(()),
    }
}

fn broken(run: &Run) -> Vec<Oracle> {
    run.violations.iter().map(|violation| violation.oracle).collect()
}

#[test]
fn a_machine_that_never_rests_does_not_converge() {
    let scenario = scenario(|_| vec![AnyMachine::new(Habit::Counts)]);
    assert_eq!(broken(&inner::run(&scenario, &Setup::plain(), None)), [Oracle::Converges]);
}

#[test]
fn a_machine_that_writes_what_is_already_so_is_not_quiet() {
    let scenario = scenario(|_| vec![AnyMachine::new(Habit::Restless)]);
    assert_eq!(broken(&inner::run(&scenario, &Setup::plain(), None)), [Oracle::Quiet]);
    assert_eq!(broken(&outer::run(&scenario, &Setup::plain(), None)), [Oracle::Quiet]);
}

#[test]
fn a_deed_that_never_becomes_possible_is_noticed() {
    let mut scenario = scenario(|_| vec![]);
    scenario.script = || one_config_map().into_iter().map(|deed| deed.when(|_| false)).collect();
    for run in [inner::run, outer::run] {
        assert_eq!(broken(&run(&scenario, &Setup::plain(), None)), [Oracle::Converges]);
    }
}

#[test]
fn another_end_and_other_effects_than_the_plain_runs_are_noticed() {
    let plain = inner::run(&scenario(|_| vec![]), &Setup::plain(), None).summary;
    let mut other = plain.clone();
    let (at, _) = other.end.pop_last().unwrap();
    assert_eq!(oracle::same_as(&plain, &other)[0].oracle, Oracle::SameEnd);
    let mut other = plain.clone();
    other.effects.get_mut(&at).unwrap().0 = 2;
    let violations = oracle::same_as(&plain, &other);
    assert_eq!(violations[0].oracle, Oracle::SameEffects);
    assert!(violations[0].what.contains("in this run:    2"), "{}", violations[0]);
    assert!(oracle::same_as(&plain, &Summary::clone(&plain)).is_empty());
}

#[test]
fn an_orphan_is_noticed() {
    let mut ground = Ground::new(false, false);
    let owner =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "x", "controller": true});
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "ownerReferences": [owner]}});
    let path = CONFIG_MAP.path(Some("default"), None);
    ground.send("test", request(Method::POST, &path, "application/json", &manifest));
    assert_eq!(oracle::no_orphan(&ground)[0].oracle, Oracle::NoOrphan);
}

#[test]
fn an_illegal_phase_move_is_noticed_even_if_somebody_else_made_it() {
    let mut ground = Ground::new(true, false);
    let kind = pawl_api::git::workflow::KIND;
    let spec = json!({"owner": "a", "repository": "r", "branch": "b", "sha": "a".repeat(40), "template": "t", "path": "p"});
    let manifest = json!({"apiVersion": kind.api_version(), "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec});
    let path = kind.path(Some("default"), None);
    let (code, body) = ground.send("test", request(Method::POST, &path, "application/json", &manifest));
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&body));
    for phase in ["Succeeded", "Running"] {
        let path = format!("{path}/w/status");
        let patch = json!({"status": {"phase": phase}});
        let (code, _) =
            ground.send("test", request(Method::PATCH, &path, "application/merge-patch+json", &patch));
        assert_eq!(code, 200);
    }
    let violations = oracle::legal_moves(&ground.history, pawl_api::phases::tables());
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].oracle, Oracle::LegalMoves);
}

#[test]
fn a_scenarios_own_expectation_is_asked() {
    let mut scenario = scenario(|_| vec![]);
    scenario.ends_with = |_| Err("it is not so".to_owned());
    for run in [inner::run, outer::run] {
        assert_eq!(broken(&run(&scenario, &Setup::plain(), None)), [Oracle::EndsWell]);
    }
}

#[test]
fn a_failure_is_reported_with_its_seed_and_the_command_that_replays_it() {
    let scenario = scenario(|_| vec![AnyMachine::new(Habit::Restless)]);
    let report = pawl_sim::campaign::seeds(Simulator::Inner, &scenario, 1..=3, Guards::default(), false);
    let said = report.failure.unwrap().to_string();
    assert!(said.contains("replay: pawl-dev sim --scenario test --seed"), "{said}");
}

/// Decides to go back in time.
struct Backwards;

impl Machine for Backwards {
    type Kind = pawl_api::git::Workflow;
    type Status = Value;

    fn description(&self) -> Description {
        let kind = pawl_api::git::workflow::KIND;
        Description {
            name: "backwards",
            primary: Primary::One(kind.clone()),
            depth: Depth::Full,
            watches: vec![],
            finalizer: None,
            phases: pawl_api::phases::table(&kind).cloned(),
            writes: vec![],
        }
    }

    fn reconcile(&self, cx: &Context<'_, Self::Kind>) -> Plan<Value> {
        let now = cx.now;
        let phase = if now.as_second() % 2 == 0 { "Succeeded" } else { "Pending" };
        Plan::rest().status(json!({"phase": phase})).wake_at(now + jiff::SignedDuration::from_secs(1))
    }
}

#[test]
fn a_decision_that_must_not_be_carried_out_is_noticed_and_not_carried_out() {
    let mut scenario = scenario(|_| vec![AnyMachine::new(Backwards)]);
    scenario.own_kinds = true;
    scenario.script = || {
        let spec = json!({"owner": "a", "repository": "r", "branch": "b", "sha": "a".repeat(40),
            "template": "t", "path": "p"});
        vec![Deed::create(
            pawl_api::git::workflow::KIND,
            json!({"metadata": {"name": "w", "namespace": "default"}, "spec": spec}),
        )]
    };
    let run = inner::run(&scenario, &Setup::plain(), None);
    assert_eq!(run.violations[0].oracle, Oracle::NoFault);
    assert!(run.violations[0].what.contains("Succeeded"), "{}", run.violations[0]);
}

#[test]
fn a_replica_that_forgets_its_own_writes_is_noticed() {
    let guards = Guards::without(Guard::ReadYourWrites);
    let scenario = pawl_sim::scenarios::find("workflow-foreign-job").unwrap();
    let noticed = (1..200).any(|seed| {
        let setup = Setup { seed, guards, ..Setup::plain() };
        broken(&inner::run(&scenario, &setup, None)).contains(&Oracle::KnowsItself)
    });
    assert!(noticed);
}

fn a_world_with_github() -> Ground {
    Ground::new(true, false).with_hub(Some(|hub| {
        hub.fake.create("acme/infra").push("main", &Change::new("begin").put("a/b.tf", "0"));
    }))
}

#[test]
fn a_check_run_made_twice_is_noticed() {
    let created = |external_id: &str| Applied {
        at: Timestamp::UNIX_EPOCH,
        request: 1,
        repository: "acme/infra".to_owned(),
        effect: Effect::CheckRunCreated {
            id: 1,
            external_id: external_id.to_owned(),
            name: "plan".to_owned(),
            sha: "0".repeat(40),
        },
    };
    assert_eq!(oracle::one_check(&[created("a"), created("b")]), []);
    assert_eq!(oracle::one_check(&[created("a"), created("a")])[0].oracle, Oracle::OneCheck);
}

/// Credentials, and a check run of this name on the commit that `main` is at. Returns the commit.
fn queue_check_run(ground: &mut Ground, name: &str) -> String {
    let hub = ground.hub.clone().unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "credentials"},
        "stringData": {"github-app-id": APP_ID.to_string(), "github-installation-id": INSTALLATION_ID.to_string(),
            "github-private-key": APP_KEY_PKCS8}});
    // The second check run finds it there.
    ground.send(
        "person",
        request(Method::POST, "/api/v1/namespaces/default/secrets", "application/json", &secret),
    );
    let weather = Sky::new(&[], &ground.env);
    let ports = hub.ports(&ground.env, &ground.server, weather, ground.trace().clone(), Guards::default());
    let account = Arc::new(Account {
        uid: "u".to_owned(),
        api_url: "https://api.github.com".to_owned(),
        owner: "acme".to_owned(),
        name: "infra".to_owned(),
        secret: Key::new(Some("default"), "credentials"),
    });
    let sha = hub.fake.repository("acme/infra").unwrap().head("main").unwrap();
    let run = CheckRun {
        sha: sha.clone(),
        name: name.to_owned(),
        external_id: name.to_owned(),
        state: CheckState::Queued,
        started_at: None,
        completed_at: None,
        details_url: None,
        title: "queued".to_owned(),
        summary: "waits".to_owned(),
        text: String::new(),
    };
    let call = github::Call::new(&account, Ask::CreateCheckRun(run));
    ports.call(&call.into()).now_or_never().unwrap().unwrap();
    sha
}

#[test]
fn a_check_run_that_never_concludes_is_noticed() {
    let mut ground = a_world_with_github();
    queue_check_run(&mut ground, "plan");
    let hub = ground.hub.as_ref().unwrap();
    assert_eq!(oracle::checks_conclude(hub)[0].oracle, Oracle::ChecksConclude);
    assert_eq!(oracle::contract(hub), []);
}

/// Sends what a person would, and expects it to be taken.
fn done(ground: &mut Ground, method: Method, path: &str, body: &Value) {
    let patches = method == Method::PATCH;
    let content = if patches { "application/merge-patch+json" } else { "application/json" };
    let (code, said) = ground.send("person", request(method, path, content, body));
    assert!(code < 300, "{code}: {}", String::from_utf8_lossy(&said));
}

fn create(ground: &mut Ground, kind: &Kind, name: &str, metadata: &Value, spec: &Value) -> String {
    let mut manifest = json!({"metadata": metadata, "spec": spec});
    if let Some(metadata) = manifest.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.extend([("name".to_owned(), name.into()), ("namespace".to_owned(), "default".into())]);
    }
    Deed::create(kind.clone(), manifest).perform(ground).unwrap();
    ground.get(kind, "default", name).unwrap().uid().to_owned()
}

fn create_branch(ground: &mut Ground, sha: &str) {
    let spec = json!({"owner": "acme", "repository": "infra", "name": "main", "sha": sha});
    create(ground, &branch::KIND, "b", &json!({}), &spec);
}

#[test]
fn a_commit_that_was_evaluated_and_has_no_check_for_all_of_it_is_noticed() {
    let mut ground = a_world_with_github();
    let sha = queue_check_run(&mut ground, "plan");
    create_branch(&mut ground, &sha);
    let missing = |ground: &Ground| oracle::aggregates(&ground.history, ground.hub.as_ref().unwrap());
    assert_eq!(missing(&ground), [], "nothing was evaluated yet");
    let path = format!("{}/status", branch::KIND.path(Some("default"), Some("b")));
    done(&mut ground, Method::PATCH, &path, &json!({"status": {"evaluatedSha": sha}}));
    let told = missing(&ground);
    assert_eq!((told.len(), told[0].oracle), (1, Oracle::ChecksConclude));
    assert!(told[0].what.contains("has no aggregate"), "{}", told[0]);
    queue_check_run(&mut ground, AGGREGATE_CHECK);
    assert_eq!(missing(&ground), []);
}

/// A Job of the Workflow, started; and gone again.
fn run_job(ground: &mut Ground, workflow_uid: &str) {
    let owner = json!({"apiVersion": workflow::KIND.api_version(), "kind": "Workflow", "name": "w",
        "uid": workflow_uid, "controller": true});
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    create(ground, &JOB, "w", &json!({"ownerReferences": [owner]}), &json!({"template": pod}));
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    done(ground, Method::DELETE, &JOB.path(Some("default"), Some("w")), &options);
}

#[test]
fn a_job_that_runs_twice_for_one_visit_of_a_commit_is_noticed() {
    let (first, second) = ("a".repeat(40), "b".repeat(40));
    let mut ground = Ground::new(true, false);
    create_branch(&mut ground, &first);
    let spec = json!({"owner": "acme", "repository": "infra", "branch": "b", "sha": first, "template": "t", "path": "p"});
    let uid = create(&mut ground, &workflow::KIND, "w", &json!({}), &spec);
    run_job(&mut ground, &uid);
    assert_eq!(oracle::one_job(&ground.history), []);
    run_job(&mut ground, &uid);
    let told = oracle::one_job(&ground.history);
    assert_eq!((told.len(), told[0].oracle), (1, Oracle::OneJob));
    assert!(told[0].what.contains("ran 2 times in 1 visits"), "{}", told[0]);
    // A ref that is moved on and back comes to the commit a second time.
    for sha in [&second, &first] {
        let path = branch::KIND.path(Some("default"), Some("b"));
        done(&mut ground, Method::PATCH, &path, &json!({"spec": {"sha": sha}}));
    }
    assert_eq!(oracle::one_job(&ground.history), []);
}

#[test]
fn a_run_that_does_something_once_more_than_the_plain_one_is_noticed() {
    let summary = |times| Summary {
        carried_out: [("PipelineRun made".to_owned(), times)].into_iter().collect(),
        ..Summary::default()
    };
    assert_eq!(oracle::same_amount(&summary(1), &summary(1)), []);
    assert_eq!(oracle::same_amount(&summary(1), &summary(2))[0].oracle, Oracle::SameAmount);
    assert_eq!(oracle::same_amount(&summary(1), &Summary::default())[0].oracle, Oracle::SameAmount);
}

#[test]
fn what_github_does_not_understand_is_noticed() {
    let ground = a_world_with_github();
    let hub = ground.hub.as_ref().unwrap();
    let odd =
        http::Request::get("https://api.github.com/repos/acme/infra/no-such-thing").body(bytes::Bytes::new());
    let _ = tower::ServiceExt::oneshot(hub.transport(), odd.unwrap()).now_or_never().unwrap();
    assert_eq!(oracle::contract(hub)[0].oracle, Oracle::KeepsContract);
}

#[test]
fn i6_a_credential_outside_of_its_secret_is_noticed() {
    let mut ground = a_world_with_github();
    let leak = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "leak"}, "data": {"said": TOKEN}});
    let path = "/api/v1/namespaces/default/configmaps";
    ground.send("person", request(Method::POST, path, "application/json", &leak));
    let hub = ground.hub.clone().unwrap();
    assert_eq!(oracle::no_secret(&ground, &hub)[0].oracle, Oracle::NoSecret);
}

#[test]
fn i6_a_value_of_a_secret_that_is_anywhere_else_is_noticed() {
    let scenario = scenario(|_| vec![]);
    let mut ground = Ground::new(false, false);
    let mut create = |kind: &str, plural: &str, data: Value| {
        let manifest = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, "data": data});
        let path = format!("/api/v1/namespaces/default/{plural}");
        assert_eq!(ground.send("person", request(Method::POST, &path, "application/json", &manifest)).0, 201);
        oracle::no_canary(&scenario, &ground)
    };
    // As Secrets hold it; what follows does not hide it.
    let encoded = "b2J2aW91c2x5LW5vdC1hLXJlYWwtc2VjcmV0LW5ldw==";
    assert_eq!(create("Secret", "secrets", json!({"password": encoded})), []);
    assert_eq!(create("ConfigMap", "configmaps", json!({"said": encoded}))[0].oracle, Oracle::NoSecret);
    ground.send(
        "person",
        request(Method::DELETE, "/api/v1/namespaces/default/configmaps/a", "application/json", &Value::Null),
    );
    let noticed = oracle::no_canary(&scenario, &ground);
    assert_eq!(noticed[0].oracle, Oracle::NoSecret, "what was there for a moment was there");
}

#[test]
fn i6_whoever_is_asked_with_a_secret_in_the_question_is_noticed() {
    let guards = Guards::without(Guard::ShownMask);
    let scenario = pawl_sim::scenarios::find("action-secret").unwrap();
    let run = inner::run(&scenario, &Setup { guards, ..Setup::plain() }, None);
    let leak = run.violations.iter().find(|one| one.oracle == Oracle::NoSecret).unwrap();
    assert!(leak.what.contains("it was told: ask policy"), "{leak}");
}
