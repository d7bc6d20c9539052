//! Who goes before whom: locks, earlier commits, dependencies, places.

use super::*;
use crate::failure::Failure;
use crate::view::View;
use pawl_api::git::workflow::HELD;

fn repository(limit: u32) -> String {
    format!(
        "\nkind: Repository\nmetadata: {{name: r}}\nspec: {{owner: acme, name: infra, maxConcurrent: {limit}, githubSecretRef: {{name: s}}}}\n---"
    )
}

/// A commit of the default branch, evaluated or not.
fn commit(name: &str, sequence: u32, evaluated: bool) -> String {
    let sha = sequence.to_string().repeat(40);
    let last = if evaluated { sha.as_str() } else { "" };
    format!(
        "
kind: Branch
metadata:
  name: {name}
  annotations: {{terrakojo.io/last-sha: '{last}'}}
  ownerReferences: [{{apiVersion: terrakojo.io/v1alpha1, kind: Repository, name: r, uid: repository-r, controller: true}}]
spec: {{owner: acme, repository: infra, name: main, sha: '{sha}', sequence: {sequence}}}
---"
    )
}

/// A Workflow of a commit's Branch.
fn of_commit(name: &str, branch: &str, sequence: u32, template: &str, more: &str) -> String {
    let sha = sequence.to_string().repeat(40);
    format!(
        "
kind: Workflow
metadata:
  name: {name}
  finalizers: [terrakojo.io/cleanup-checkrun]
  ownerReferences: [{{apiVersion: terrakojo.io/v1alpha1, kind: Branch, name: {branch}, uid: branch-{branch}, controller: true}}]
spec: {{owner: acme, repository: infra, branch: {branch}, sha: '{sha}', template: {template}, path: envs/prod,
  parameters: {{isDefaultBranch: 'true'}}{more}}}
---"
    )
}

fn template(name: &str, depends_on: &str) -> String {
    TEMPLATE
        .replace("name: plan", &format!("name: {name}"))
        .replace("displayName: Plan", &format!("displayName: {name}, dependsOn: {depends_on}"))
}

fn says(case: &Case, name: &str) -> (String, String) {
    let workflow = case.cluster.get(&workflow::KIND, &Key::new(Some("n"), name)).unwrap();
    let text = |field: &str| workflow["status"][field].as_str().unwrap_or_default().to_owned();
    (text("phase"), text("reason"))
}

fn message(case: &Case, name: &str) -> String {
    let workflow = case.cluster.get(&workflow::KIND, &Key::new(Some("n"), name)).unwrap();
    workflow["status"]["message"].as_str().unwrap().to_owned()
}

fn has_job(case: &Case, name: &str) -> bool {
    case.cluster.get(&JOB, &Key::new(Some("n"), name)).is_some()
}

/// Ends a Job, and lets everybody look.
fn finish(mut case: Case, name: &str, how: &str) -> Case {
    let status = json!({"status": {"conditions": [{"type": how, "status": "True"}]}});
    case.cluster.edit(&JOB, &Key::new(Some("n"), name), &status);
    case.settle()
}

/// Lets one Workflow look until its Job runs, before the others do.
fn ahead(mut case: Case, name: &str) -> Case {
    for _ in 0..3 {
        case.cluster.step(&case.machine.clone(), &workflow::KIND, &Key::new(Some("n"), name));
    }
    case
}

/// Lets the time pass in which nothing is said.
fn patient(mut case: Case) -> Case {
    case = case.settle();
    case.cluster.advance(QUIET);
    case.settle()
}

fn quiet_outside(mut case: Case) -> Case {
    case.cluster.outside = |call| {
        let category = crate::failure::Category::Permanent;
        let (reason, message) = ("NoPort".to_owned(), "nobody".to_owned());
        Err(Failure { attempt: call.to_string(), category, reason, message, retry_after: None })
    };
    case
}

fn case(documents: &[String]) -> Case {
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    quiet_outside(Case::new(&documents))
}

#[test]
fn a_job_runs_only_after_its_uid_is_recorded() {
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW]);
    let mut step = || {
        case.cluster.step(&case.machine.clone(), &workflow::KIND, &key());
        let job = case.job().unwrap();
        let recorded = case.workflow().unwrap()["status"]["jobRef"]["uid"] == job["metadata"]["uid"];
        (job["spec"]["suspend"] == true, recorded)
    };
    assert_eq!([step(), step(), step()], [(true, false), (true, true), (false, true)]);
    assert!(case.job().unwrap()["metadata"]["annotations"].get(HELD).is_none());
}

#[test]
fn a_job_that_a_person_suspends_stays_suspended() {
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW]).settle();
    case.cluster.edit(&JOB, &key(), &json!({"spec": {"suspend": true}}));
    let case = finish(case, "w", "Suspended");
    assert_eq!(case.job().unwrap()["spec"]["suspend"], true);
    assert_eq!(case.says(), ("Pending".into(), "Suspended".into()));
}

#[test]
fn i2_a_job_that_was_made_too_late_is_removed_and_never_runs() {
    let held =
        job("workflow-w", "{}").replace("name: w\n", "name: w\n  annotations: {pawl.dev/held: 'false'}\n");
    let started = WORKFLOW.replace("---", "status: {phase: Running, jobRef: {name: w, uid: first}}\n---");
    for (workflow, expect) in [(FINISHED, "Succeeded"), (started.as_str(), "Failed")] {
        let mut case = Case::new(&[BRANCH, TEMPLATE, workflow, &held]);
        case.cluster.edit(&JOB, &key(), &json!({"metadata": {"uid": "late"}, "spec": {"suspend": true}}));
        let machines = [AnyMachine::new(Garbage), case.machine.clone()];
        case.cluster.settle(&machines);
        assert!(case.job().is_none());
        assert_eq!(case.says().0, expect);
    }
}

#[test]
fn the_lock_names_its_holder_and_goes_with_the_run() {
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW]).settle();
    let locks = case.cluster.world.list(&LEASE, None);
    let target = "git:github.com/acme/infra//envs/prod#plan@feature/x";
    assert_eq!(locks[0].annotation(crate::lock::TARGET), Some(target));
    assert_eq!(locks[0].namespace(), Some(SYSTEM_NAMESPACE));
    assert_eq!(case.workflow().unwrap()["status"]["target"], target);
    let crate::lock::Lock::Held(holder) = crate::lock::read(Some(&locks[0])) else { panic!("it is held") };
    let run = holder.run.unwrap();
    let made = case.job().unwrap()["metadata"]["uid"].clone();
    assert_eq!((&run.kind, run.key.to_string().as_str()), (&JOB, "n/w"));
    assert_eq!(json!(run.uid), made, "the lock names its run, with its UID");
    let gates = case.workflow().unwrap()["status"]["gates"].clone();
    assert_eq!((&gates[1]["gate"], &gates[1]["verdict"]), (&json!("Lock"), &json!("Passed")));
    // Failing is not yet over: a Pod may still act on the target.
    case = finish(case, "w", "FailureTarget");
    assert_eq!(case.says().0, "Failed");
    assert_eq!(case.cluster.world.list(&LEASE, None).len(), 1);
    case = finish(case, "w", "Failed");
    assert!(case.cluster.world.list(&LEASE, None).is_empty());
}

#[test]
fn who_finds_its_target_taken_waits_names_the_holder_and_goes_on_when_it_is_free() {
    let second = WORKFLOW.replace("name: w,", "name: x,");
    let case = patient(ahead(Case::new(&[BRANCH, TEMPLATE, WORKFLOW, &second]), "w"));
    assert!(has_job(&case, "w") && !has_job(&case, "x"));
    assert_eq!(says(&case, "x"), ("Pending".into(), "TargetLocked".into()));
    assert!(message(&case, "x").ends_with("is held by Workflow.terrakojo.io n/w"), "{}", message(&case, "x"));
    let at = Key::new(Some("n"), "x");
    let waits = case.cluster.world.get(&workflow::KIND, &at).unwrap();
    let locked = condition::get(
        &waits.parse::<Workflow>().unwrap().status.as_ref().unwrap().conditions,
        TARGET_LOCKED,
    )
    .cloned();
    assert_eq!(locked.unwrap().status, "True");
    let lease = case.cluster.world.list(&LEASE, None)[0].clone();
    let mut freed = case.cluster.world.clone();
    freed.remove(&LEASE, &lease.key());
    assert!(wakes::of_the_lock(&lease, &freed).contains(&at), "the release wakes it");
    let case = finish(case, "w", "Complete");
    assert!(has_job(&case, "x"));
    let done = case.cluster.get(&workflow::KIND, &at).unwrap();
    assert!(done["status"]["conditions"].as_array().unwrap().iter().all(|one| one["type"] != TARGET_LOCKED));
}

#[test]
fn of_two_that_made_their_jobs_at_the_same_time_one_runs_and_the_other_follows() {
    let second = WORKFLOW.replace("name: w,", "name: x,");
    let mut case = Case::new(&[BRANCH, TEMPLATE, WORKFLOW, &second]);
    for name in ["w", "x"] {
        case.cluster.step(&case.machine.clone(), &workflow::KIND, &Key::new(Some("n"), name));
    }
    let case = case.settle();
    let running = |case: &Case| {
        let jobs = case.cluster.world.list(&JOB, None);
        let going = jobs.iter().filter(|job| job.raw()["spec"]["suspend"] == false && job.status().is_null());
        going.map(|job| job.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(running(&case), ["w"]);
    assert_eq!(says(&case, "x"), ("Pending".into(), "TargetLocked".into()));
    assert_eq!(running(&finish(case, "w", "Complete")), ["x"]);
}

#[test]
fn a_wait_that_passes_soon_is_not_worth_a_write() {
    let second = WORKFLOW.replace("name: w,", "name: x,");
    // It must be found by whoever lets go; that is all.
    let case = ahead(Case::new(&[BRANCH, TEMPLATE, WORKFLOW, &second]), "w").settle();
    assert_eq!(says(&case, "x"), (String::new(), String::new()));
}

#[test]
fn more_targets_are_locked_with_it_all_or_none() {
    let first =
        WORKFLOW.replace("finalizers:", "annotations: {pawl.dev/targets: prod/deployment/web}, finalizers:");
    let other = "path: envs/other";
    let second = first.replace("name: w,", "name: x,").replace("path: envs/prod", other);
    let case = patient(ahead(Case::new(&[BRANCH, TEMPLATE, &first, &second]), "w"));
    assert!(has_job(&case, "w") && !has_job(&case, "x"));
    assert_eq!(case.cluster.world.list(&LEASE, None).len(), 2, "what waits holds nothing");
    assert!(message(&case, "x").starts_with("prod/deployment/web is held by"), "{}", message(&case, "x"));
    assert!(has_job(&finish(case, "w", "Complete"), "x"));
    let bad = WORKFLOW.replace("finalizers:", "annotations: {pawl.dev/targets: 'a/b/c/d'}, finalizers:");
    check(&[BRANCH, TEMPLATE, &bad], ("Failed", "TargetInvalid"));
}

#[test]
fn a_forks_ref_never_shares_a_lock_with_the_ref_of_the_same_name() {
    let fork = BRANCH.replace("sha: SHA", "headRepository: someone/infra, sha: SHA");
    let case = Case::new(&[&fork, TEMPLATE, WORKFLOW]).settle();
    let target = case.workflow().unwrap()["status"]["target"].as_str().unwrap().to_owned();
    assert!(target.ends_with("@someone/infra/feature/x"), "{target}");
}

#[test]
fn two_commits_of_the_default_branch_run_one_after_the_other_in_their_order() {
    let case = patient(case(&[
        repository(20),
        commit("a", 2, true),
        commit("b", 1, true),
        template("plan", "[]"),
        of_commit("later", "a", 2, "plan", ""),
        of_commit("sooner", "b", 1, "plan", ""),
    ]));
    assert!(has_job(&case, "sooner") && !has_job(&case, "later"));
    assert_eq!(says(&case, "later"), ("Pending".into(), "WaitingForEarlierCommit".into()));
    let sooner = case.cluster.world.get(&workflow::KIND, &Key::new(Some("n"), "sooner")).unwrap();
    let case = finish(case, "sooner", "Complete");
    assert!(has_job(&case, "later"));
    let over = case.cluster.world.get(&workflow::KIND, &sooner.key()).unwrap();
    assert!(wakes::after_a_workflow(&sooner, &case.cluster.world).is_empty(), "it ran on");
    assert!(wakes::after_a_workflow(&over, &case.cluster.world).is_empty(), "nobody waits any more");
}

#[test]
fn a_commit_waits_while_an_earlier_one_is_not_evaluated() {
    let mut case = patient(case(&[
        repository(20),
        commit("a", 2, true),
        commit("b", 1, false),
        template("plan", "[]"),
        of_commit("later", "a", 2, "plan", ""),
    ]));
    assert_eq!(says(&case, "later"), ("Pending".into(), "WaitingForEarlierCommit".into()));
    assert!(message(&case, "later").contains("is not evaluated yet"));
    let evaluated = json!({"metadata": {"annotations": {annotations::LAST_SHA: "1".repeat(40)}}});
    case.cluster.edit(&branch::KIND, &Key::new(Some("n"), "b"), &evaluated);
    let earlier = case.cluster.world.get(&branch::KIND, &Key::new(Some("n"), "b")).unwrap();
    assert_eq!(wakes::of_the_branch(&earlier, &case.cluster.world), [Key::new(Some("n"), "later")]);
    assert!(has_job(&case.settle(), "later"));
}

#[test]
fn a_dependency_is_waited_for_and_its_failure_cancels() {
    let documents = [
        repository(20),
        commit("a", 1, true),
        template("plan", "[]"),
        template("apply", "[plan]"),
        of_commit("apply-1", "a", 1, "apply", ""),
        of_commit("plan-1", "a", 1, "plan", ""),
    ];
    let first = patient(case(&documents));
    assert_eq!(says(&first, "apply-1"), ("Pending".into(), "WaitingForDependency".into()));
    let first = finish(first, "plan-1", "Complete");
    assert!(has_job(&first, "apply-1"));
    let gates =
        first.cluster.get(&workflow::KIND, &Key::new(Some("n"), "apply-1")).unwrap()["status"]["gates"]
            .clone();
    assert_eq!((&gates[1]["gate"], &gates[1]["verdict"]), (&json!("Preconditions"), &json!("Passed")));
    let second = finish(patient(case(&documents)), "plan-1", "Failed");
    assert_eq!(says(&second, "apply-1"), ("Cancelled".into(), "DependencyFailed".into()));
    assert!(!has_job(&second, "apply-1"));
}

#[test]
fn of_a_dependency_the_newest_attempt_counts() {
    let failed = of_commit("plan-1", "a", 1, "plan", "").replace("---", "status: {phase: Failed}\n---");
    let again =
        of_commit("plan-2", "a", 1, "plan", ", attempt: 2").replace("---", "status: {phase: Succeeded}\n---");
    let case = case(&[
        repository(20),
        commit("a", 1, true),
        template("plan", "[]"),
        template("apply", "[plan]"),
        of_commit("apply-1", "a", 1, "apply", ""),
        failed,
        again,
    ]);
    assert!(has_job(&case.settle(), "apply-1"));
}

#[test]
fn a_dependency_that_did_not_match_is_not_waited_for_once_the_branch_is_evaluated() {
    let documents = |evaluated| {
        [
            repository(20),
            commit("a", 1, evaluated),
            template("plan", "[]"),
            template("apply", "[plan]"),
            of_commit("apply-1", "a", 1, "apply", ""),
        ]
    };
    let early = patient(case(&documents(false)));
    assert_eq!(says(&early, "apply-1"), ("Pending".into(), "WaitingForDependency".into()));
    let case = case(&documents(true)).settle();
    assert!(has_job(&case, "apply-1"));
    let gates =
        case.cluster.get(&workflow::KIND, &Key::new(Some("n"), "apply-1")).unwrap()["status"]["gates"]
            .clone();
    assert_eq!(gates[1]["lookedAt"], "template plan did not match this path");
}

#[test]
fn no_more_than_max_concurrent_run_and_the_rest_say_their_number() {
    let path = |number: u32| {
        of_commit(&format!("w{number}"), "a", 1, "plan", "").replace("envs/prod", &format!("envs/{number}"))
    };
    let mut documents = vec![repository(2), commit("a", 1, true), template("plan", "[]")];
    documents.extend((1..=4).map(path));
    let case = patient(case(&documents));
    let running = |case: &Case| (1..=4).filter(|n| has_job(case, &format!("w{n}"))).collect::<Vec<_>>();
    assert_eq!(running(&case), [1, 2]);
    assert_eq!(says(&case, "w4"), ("Pending".into(), "Queued".into()));
    assert_eq!(
        message(&case, "w4"),
        "queued as number 2: at most 2 Workflows of the Repository run at a time"
    );
    let lease = case.cluster.world.list(&LEASE, None)[0].clone();
    let mut freed = case.cluster.world.clone();
    freed.remove(&LEASE, &lease.key());
    let woken = wakes::of_the_lock(&lease, &freed);
    assert!(
        woken.contains(&Key::new(Some("n"), "w3")) && !woken.contains(&Key::new(Some("n"), "w4")),
        "{woken:?}"
    );
    let case = finish(case, "w1", "Complete");
    assert_eq!(running(&case).len(), 3);
}

#[test]
fn a_run_that_lost_the_race_for_the_last_place_waits_although_its_job_is_made() {
    let mut case = case(&[
        repository(1),
        commit("a", 1, true),
        template("plan", "[]"),
        of_commit("w", "a", 1, "plan", ""),
        of_commit("x", "a", 1, "plan", "").replace("envs/prod", "envs/other"),
    ]);
    // Both look before the cache shows what the other made.
    let before: Vec<_> = ["w", "x"]
        .map(|name| case.cluster.world.get(&workflow::KIND, &Key::new(Some("n"), name)).unwrap())
        .into_iter()
        .map(|me| (case.cluster.plan(&case.machine, &me), me))
        .collect();
    assert!(before.iter().all(|(plan, _)| !plan.asks.is_empty()));
    case.cluster.step(&case.machine.clone(), &workflow::KIND, &Key::new(Some("n"), "w"));
    let held = case.cluster.world.get(&JOB, &Key::new(Some("n"), "w")).unwrap();
    case.cluster.world.remove(&JOB, &held.key());
    case.cluster.step(&case.machine.clone(), &workflow::KIND, &Key::new(Some("n"), "x"));
    case.cluster.world.put(held);
    let case = case.settle();
    let suspended =
        |name: &str| case.cluster.get(&JOB, &Key::new(Some("n"), name)).unwrap()["spec"]["suspend"].clone();
    assert_eq!((suspended("w"), suspended("x")), (json!(false), json!(true)));
    let case = finish(case, "w", "Complete");
    assert_eq!(case.cluster.get(&JOB, &Key::new(Some("n"), "x")).unwrap()["spec"]["suspend"], false);
}

#[test]
fn a_run_that_has_not_started_when_its_ref_moves_on_never_starts() {
    let moved = BRANCH.replace("sha: SHA", &format!("sha: {}", "b".repeat(40)));
    let case = check(&[&moved, TEMPLATE, WORKFLOW], ("Cancelled", "Superseded"));
    assert!(case.job().is_none());
    let started = WORKFLOW.replace("---", "status: {phase: Running, jobRef: {name: w, uid: job-w}}\n---");
    let case =
        check(&[&moved, TEMPLATE, &started, &job("workflow-w", "{active: 1}")], ("Running", "Running"));
    assert!(case.job().unwrap()["metadata"].get("deletionTimestamp").is_none(), "supersede: finish");
}
