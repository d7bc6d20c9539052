//! Each test is a story about `acme/infra`, told to both machines until nothing is written any more.

use std::time::Duration;

use pawl_api::git::{branch, finalizers, repository, workflow, workflow_template};
use pawl_api::k8s::PERSISTENT_VOLUME_CLAIM;
use serde_json::{Value, json};

use super::Branches;
use crate::failure::{Category, Failure};
use crate::git::github::{ChangedFile, Identity, StatusState};
use crate::git::testing::fake_github::{self, changed, failure, sha};
use crate::git::testing::fixtures::{
    branch_of, branches, condition, end, following, machines, settle, status_of, sync, template, workflows,
};
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::testing::Cluster;
use crate::view::View;

/// A ref `f` at commit 2 that changed these files, and one template for all of them.
fn on_a_branch(files: &[&str], repository: &str, of_template: &str) -> Cluster {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.heads.insert("f".to_owned(), sha("1"));
        github.push("f", "2", files);
    });
    let mut cluster = following(repository);
    template(&mut cluster, "plan", &["**"], of_template);
    settle(&mut cluster);
    cluster
}

fn on_main(files: &[&str], repository: &str) -> Cluster {
    fake_github::with(|github| github.push("main", "1", files));
    let mut cluster = following(repository);
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    cluster
}

fn fork(repository: &str) -> Cluster {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.open(5, "mallory/infra", "f", "2", &["a/x"]);
    });
    let mut cluster = following(repository);
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    cluster
}

fn annotation(cluster: &Cluster, reference: &str, key: &str) -> Value {
    let raw = cluster.get(&branch::KIND, &branch_of(cluster, reference)).unwrap();
    raw["metadata"]["annotations"][key].clone()
}

fn checks(at: &str) -> Vec<String> {
    fake_github::with(|github| github.checks_of(at))
}

fn told(cluster: &Cluster, note: &str) -> usize {
    cluster.events.iter().filter(|(_, _, text)| text.contains(note)).count()
}

#[test]
fn a_branch_without_its_finalizer_gets_it_first() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    let key = branch_of(&cluster, "f");
    cluster.edit(&branch::KIND, &key, &json!({"metadata": {"finalizers": null}}));
    let outcome = cluster.step(&AnyMachine::new(Branches), &branch::KIND, &key);
    assert_eq!(outcome.writes.len(), 1);
    let raw = cluster.get(&branch::KIND, &key).unwrap();
    assert_eq!(raw["metadata"]["finalizers"], json!([finalizers::BRANCH]));
}

#[test]
fn workflows_carry_all_that_their_machine_needs_from_the_start() {
    let mut cluster = on_a_branch(&[], "{}", "{}");
    cluster.edit(
        &workflow_template::KIND,
        &Key::new(Some("n"), "plan"),
        &json!({"metadata": {"annotations": {"pawl.dev/targets": "prod/deployment/web"}}}),
    );
    fake_github::with(|github| github.push("f", "3", &["a/$(SECRET)/x"]));
    sync(&mut cluster);
    let all = cluster.world.list(&workflow::KIND, None);
    let raw = all[0].raw();
    assert_eq!(raw["metadata"]["finalizers"], json!([finalizers::WORKFLOW]));
    assert_eq!(raw["metadata"]["annotations"]["pawl.dev/targets"], "prod/deployment/web");
    assert_eq!(raw["metadata"]["labels"]["terrakojo.io/sha"], json!(sha("3")));
    assert_eq!(raw["metadata"]["labels"]["terrakojo.io/template"], "plan");
    assert_eq!(raw["metadata"]["ownerReferences"][0]["kind"], "Branch");
    assert_eq!(raw["spec"]["path"], "a/$(SECRET)");
    assert_eq!(raw["spec"]["parameters"], json!({"isDefaultBranch": "false", "executionUnit": "folder"}));
    let status = status_of(&cluster, "f");
    assert_eq!(status["workflows"], json!([all[0].name()]));
    assert_eq!(
        (&status["changedFiles"], &status["changedFileCount"]),
        (&json!(["a/$(SECRET)/x"]), &json!(1))
    );
    assert_eq!(condition(&status, "WorkflowReady"), "True WorkflowCreated");
    assert_eq!(told(&cluster, "Created Workflow for Branch"), 1);
}

#[test]
fn one_workflow_for_each_folder_file_or_the_whole_repository() {
    let files = ["a/x", "a/y", "b/z", "root"];
    for (unit, expect) in [
        ("folder", vec!["plan a 2 1", "plan b 2 1"]),
        ("repository", vec!["plan . 2 1"]),
        ("file", vec!["plan a/x 2 1", "plan a/y 2 1", "plan b/z 2 1", "plan root 2 1"]),
    ] {
        let cluster = on_a_branch(&files, "{}", &format!("{{match: {{executionUnit: {unit}}}}}"));
        assert_eq!(workflows(&cluster), expect, "{unit}");
    }
    let cluster = on_a_branch(&files, "{}", "{rootFiles: run}");
    assert_eq!(workflows(&cluster), ["plan . 2 1", "plan a 2 1", "plan b 2 1"]);
}

#[test]
fn root_files_alone_lead_to_nothing_and_the_branch_says_why_i3() {
    let cluster = on_a_branch(&["README.md"], "{}", "{}");
    assert!(workflows(&cluster).is_empty());
    let status = status_of(&cluster, "f");
    assert_eq!(status["evaluations"][0]["reason"], "RootFilesIgnored");
    assert_eq!(annotation(&cluster, "f", "terrakojo.io/last-sha"), json!(sha("2")));
    assert_eq!(told(&cluster, "No matching WorkflowTemplate found for Branch"), 1);
}

#[test]
fn no_change_and_no_match_advance_last_sha_and_conclude_the_check() {
    let cluster = on_a_branch(&[], "{}", "{}");
    assert_eq!(annotation(&cluster, "f", "terrakojo.io/last-sha"), json!(sha("2")));
    assert_eq!(checks("2"), ["pawl completed/success"]);
    assert!(told(&cluster, "No changed files for Branch") > 0);
}

#[test]
fn a_commit_of_the_default_branch_that_leads_to_nothing_goes_at_once_after_its_check() {
    let cluster = on_main(&["root"], "{}");
    assert!(branches(&cluster).is_empty());
    assert_eq!(checks("1"), ["pawl completed/success"]);
}

#[test]
fn the_default_branch_goes_after_completion_and_others_stay() {
    fake_github::with(|github| github.push("f", "2", &["a/x"]));
    let mut cluster = on_main(&["a/x"], "{}");
    assert_eq!(branches(&cluster), ["f 2", "main 1@1"]);
    end(&mut cluster, "plan", "Running");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["f 2", "main 1@1"]);
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["f 2"]);
    assert_eq!((checks("1"), checks("2")), (vec!["pawl completed/success".to_owned()], checks("1")));
    assert_eq!(told(&cluster, "Deleted Branch after all workflows completed"), 1);
    assert_eq!(told(&cluster, "All workflows completed; keeping Branch"), 1);
}

#[test]
fn deletion_waits_for_the_workflows_and_then_concludes_the_check() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    assert_eq!(checks("2"), ["pawl in_progress"]);
    let key = branch_of(&cluster, "f");
    fake_github::with(|github| github.heads.remove("f"));
    cluster.delete(&branch::KIND, &key, "Background");
    cluster.settle(&machines());
    assert!(cluster.get(&branch::KIND, &key).is_some(), "a Workflow is still there");
    assert_eq!(told(&cluster, "Waiting for workflows to finish before deleting branch"), 1);
    assert_eq!(checks("2"), ["pawl in_progress"]);
    settle(&mut cluster);
    assert!(cluster.get(&branch::KIND, &key).is_none());
    assert_eq!(checks("2"), ["pawl completed/cancelled"]);
}

#[test]
fn a_branch_whose_repository_is_gone_goes_and_one_of_a_persons_own_stays() {
    let mut cluster = Cluster::of(&crate::git::testing::fixtures::KINDS, "");
    let spec = json!({"owner": "acme", "repository": "infra", "name": "f", "sha": sha("2")});
    let owner = json!([{"apiVersion": "terrakojo.io/v1alpha1", "kind": "Repository", "name": "r", "uid": "gone",
        "controller": true}]);
    cluster.put(json!({"kind": "Branch", "spec": spec, "metadata": {"name": "b", "ownerReferences": owner,
        "finalizers": [finalizers::BRANCH]}}));
    cluster.put(json!({"kind": "Branch", "spec": spec, "metadata": {"name": "mine"}}));
    settle(&mut cluster);
    let left = cluster.world.list(&branch::KIND, None);
    assert_eq!(left.iter().map(|one| one.name()).collect::<Vec<_>>(), ["mine"]);
    assert_eq!(told(&cluster, "Repository not found for branch; deleting branch"), 1);
}

#[test]
fn a_new_sha_replaces_the_workflows_and_the_check_of_the_old_one_is_concluded() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    end(&mut cluster, "plan", "Running");
    fake_github::with(|github| github.push("f", "3", &["b/x"]));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan b 3 1"]);
    assert_eq!(annotation(&cluster, "f", "terrakojo.io/last-sha"), json!(sha("3")));
    assert_eq!(
        (checks("2").concat(), checks("3").concat()),
        ("pawl completed/cancelled".into(), "pawl in_progress".into())
    );
    assert_eq!(told(&cluster, "Deleted existing workflows for branch due to SHA change"), 1);
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    fake_github::with(|github| github.push("f", "4", &["c/x"]));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan c 4 1"], "also after completion");
    assert_eq!(checks("3"), ["pawl completed/success"], "what was concluded stays so");
}

#[test]
fn supersede_finish_lets_a_running_workflow_end_first() {
    let mut cluster = on_a_branch(&["a/x", "b/x"], "{}", "{supersede: finish}");
    end(&mut cluster, "plan a", "Running");
    end(&mut cluster, "plan b", "Succeeded");
    fake_github::with(|github| github.push("f", "3", &["c/x"]));
    sync(&mut cluster);
    assert_eq!(
        workflows(&cluster),
        ["plan a 2 1", "plan b 2 1", "plan c 3 1"],
        "its result is still to be told"
    );
    assert_eq!(checks("2"), ["pawl in_progress"]);
    end(&mut cluster, "plan a", "Succeeded");
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan c 3 1"]);
    assert_eq!(checks("2"), ["pawl completed/success"], "it finished, though the ref moved on");
}

#[test]
fn a_failure_of_what_may_finish_is_told_although_the_ref_moved_on() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{supersede: finish}");
    end(&mut cluster, "plan a", "Running");
    fake_github::with(|github| github.push("f", "3", &["c/x"]));
    sync(&mut cluster);
    end(&mut cluster, "plan a", "Failed");
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/failure"]);
}

#[test]
fn a_pull_request_that_is_aimed_at_another_base_is_a_new_evaluation() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    fake_github::with(|github| github.open(5, "acme/infra", "f", "2", &["a/x"]));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    fake_github::with(|github| {
        github.pulls[0].base_ref = "release".to_owned();
        github.pull_files.insert(5, vec![changed("a/x"), changed("b/x")]);
    });
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1", "plan b 2 1"]);
}

#[test]
fn a_pull_request_counts_its_own_files_and_push_then_pull_request_is_a_new_evaluation() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    let before = cluster.world.list(&workflow::KIND, None)[0].uid().to_owned();
    fake_github::with(|github| github.open(5, "acme/infra", "f", "2", &["a/x", "b/x"]));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1", "plan b 2 1"]);
    let all = cluster.world.list(&workflow::KIND, None);
    assert!(all.iter().any(|one| one.uid() == before), "what ran for the push is not run again (I2)");
    assert_eq!(annotation(&cluster, "f", "terrakojo.io/last-sha"), json!(sha("2")), "still the plain SHA");
    assert_eq!(checks("2"), ["pawl in_progress"]);
    end(&mut cluster, "plan b", "Failed");
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/failure"]);
    fake_github::with(|github| github.pulls.clear());
    sync(&mut cluster);
    assert_eq!(workflows(&cluster).len(), 2, "closing it changes nothing");
}

#[test]
fn renames_count_both_names_and_removed_files_count() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &[]);
        let renamed =
            ChangedFile { path: "new/x".into(), previous_path: Some("old/x".into()), removed: false };
        let removed = ChangedFile { removed: true, ..changed("gone/x") };
        github.commits.get_mut(&sha("2")).unwrap().files = vec![renamed, removed];
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan gone 2 1", "plan new 2 1", "plan old 2 1"]);
}

#[test]
fn thousands_of_changed_files_all_count_and_two_hundred_are_shown() {
    for count in [301_usize, 2999, 3500] {
        let paths: Vec<String> = (0..count).map(|at| format!("d{}/f{at}", at % 7)).collect();
        let files: Vec<&str> = paths.iter().map(String::as_str).collect();
        let cluster = on_a_branch(&files, "{}", "{}");
        assert_eq!(workflows(&cluster).len(), 7);
        let status = status_of(&cluster, "f");
        assert_eq!(status["changedFileCount"], count);
        assert_eq!(status["changedFiles"].as_array().unwrap().len(), 200);
    }
}

#[test]
fn branch_diff_merge_base_counts_all_commits_of_a_branch() {
    for (diff, expect) in [("commit", vec!["plan b 3 1"]), ("mergeBase", vec!["plan a 3 1", "plan b 3 1"])] {
        fake_github::with(|github| {
            github.heads.clear();
            github.push("main", "1", &[]);
            github.heads.insert("f".to_owned(), sha("1"));
            github.push("f", "2", &["a/x"]);
            github.push("f", "3", &["b/x"]);
        });
        let mut cluster = following(&format!("{{branchDiff: {diff}}}"));
        template(&mut cluster, "plan", &["**"], "{}");
        settle(&mut cluster);
        assert_eq!(workflows(&cluster), expect, "{diff}");
    }
}

#[test]
fn a_fork_waits_for_approval_is_denied_or_runs() {
    let mut cluster = fork("{}");
    assert!(workflows(&cluster).is_empty());
    assert_eq!(checks("2"), ["pawl completed/action_required"]);
    assert_eq!(condition(&status_of(&cluster, "f"), "Trusted"), "False ForkNotApproved");
    let summary = fake_github::with(|github| github.checks.last().unwrap().summary.clone());
    assert!(summary.contains(&format!("/ok-to-test {}", sha("2"))), "{summary}");
    let ok = json!({"metadata": {"annotations": {"pawl.dev/ok-to-test": format!("{} by alice", sha("2"))}}});
    let key = branch_of(&cluster, "f");
    cluster.edit(&branch::KIND, &key, &ok);
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    assert_eq!(condition(&status_of(&cluster, "f"), "Trusted"), "True ForkApproved");
    assert_eq!(checks("2"), ["pawl in_progress"]);
}

#[test]
fn a_denied_fork_gets_a_neutral_check_and_nothing_runs() {
    let cluster = fork("{forks: deny}");
    assert!(workflows(&cluster).is_empty());
    assert_eq!(checks("2"), ["pawl completed/neutral"]);
}

#[test]
fn an_allowed_fork_runs_and_a_rule_that_changes_counts_at_once() {
    let cluster = fork("{forks: allow}");
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    fake_github::with(|github| github.pulls.clear());
    let mut cluster = fork("{forks: deny}");
    cluster.edit(&repository::KIND, &Key::new(Some("n"), "r"), &json!({"spec": {"forks": "allow"}}));
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
}

#[test]
fn a_draft_is_skipped_until_it_is_ready() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
        github.open(5, "acme/infra", "f", "2", &["a/x"]);
        github.pulls[0].draft = true;
    });
    let mut cluster = following("{drafts: skip}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert!(workflows(&cluster).is_empty());
    assert_eq!(checks("2"), ["pawl completed/skipped"]);
    fake_github::with(|github| github.pulls[0].draft = false);
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    fake_github::with(|github| github.pulls[0].draft = true);
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"], "what runs goes on");
}

#[test]
fn skip_ci_in_the_heads_message_skips() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
        github.commits.get_mut(&sha("2")).unwrap().message = "docs [skip ci]".to_owned();
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert!(workflows(&cluster).is_empty());
    assert_eq!(checks("2"), ["pawl completed/skipped"]);
    let calls = cluster.calls.len();
    settle(&mut cluster);
    assert_eq!(cluster.calls.len(), calls, "and is not asked about again");
}

#[test]
fn a_workspace_is_a_volume_of_the_branch() {
    let cluster = on_a_branch(
        &["a/x", "b/x"],
        "{}",
        "{workspace: {enabled: true, storageClassName: fast, mountPath: /ws}}",
    );
    let claims = cluster.world.list(&PERSISTENT_VOLUME_CLAIM, None);
    assert_eq!(claims.len(), 1);
    let raw = claims[0].raw();
    assert!(claims[0].name().starts_with("ws-") && claims[0].name().len() == 23);
    assert_eq!(raw["spec"]["resources"]["requests"]["storage"], "5Gi");
    assert_eq!(
        (&raw["spec"]["storageClassName"], &raw["spec"]["accessModes"]),
        (&json!("fast"), &json!(["ReadWriteOnce"]))
    );
    assert_eq!(raw["metadata"]["ownerReferences"][0]["kind"], "Branch");
    for workflow in cluster.world.list(&workflow::KIND, None) {
        let given = &workflow.raw()["spec"]["parameters"];
        assert_eq!(
            (&given["workspaceClaimName"], &given["workspaceMountPath"]),
            (&json!(claims[0].name()), &json!("/ws"))
        );
    }
    let cluster = on_a_branch(&["a/x"], "{}", "{workspace: {enabled: false}}");
    assert!(cluster.world.list(&PERSISTENT_VOLUME_CLAIM, None).is_empty());
}

#[test]
fn a_rerun_makes_one_more_attempt_and_a_doubled_delivery_none() {
    let mut cluster = on_a_branch(&["a/x", "b/x"], "{}", "{}");
    end(&mut cluster, "plan a", "Failed");
    end(&mut cluster, "plan b", "Succeeded");
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/failure"]);
    let first = cluster.world.list(&workflow::KIND, None);
    let failed = first.iter().find(|one| one.raw()["spec"]["path"] == "a").unwrap().key();
    let ask = |cluster: &mut Cluster, delivery: &str| {
        let rerun = json!({"metadata": {"annotations": {"terrakojo.io/rerun": format!("77@{delivery}")}}});
        cluster.edit(&workflow::KIND, &failed, &rerun);
        settle(cluster);
    };
    for delivery in ["d1", "d1", "d2"] {
        ask(&mut cluster, delivery);
        // The last one waits until the second attempt is over.
        assert_eq!(workflows(&cluster), ["plan a 2 1", "plan a 2 2", "plan b 2 1"], "{delivery}");
    }
    ask(&mut cluster, "d1");
    assert_eq!(checks("2"), ["pawl in_progress"], "it is open again");
    end(&mut cluster, "plan a 2000000000000000000000000000000000000000 2", "Succeeded");
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/success"], "the last attempt counts");
}

#[test]
fn retest_runs_only_what_failed_or_was_cancelled() {
    let mut cluster = on_a_branch(&["a/x", "b/x", "c/x"], "{}", "{}");
    end(&mut cluster, "plan a", "Failed");
    end(&mut cluster, "plan b", "Cancelled");
    end(&mut cluster, "plan c", "Succeeded");
    let retest = json!({"metadata": {"annotations": {"pawl.dev/retest": "7"}}});
    let key = branch_of(&cluster, "f");
    cluster.edit(&branch::KIND, &key, &retest);
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1", "plan a 2 2", "plan b 2 1", "plan b 2 2", "plan c 2 1"]);
    end(&mut cluster, "plan a", "Failed");
    settle(&mut cluster);
    assert_eq!(workflows(&cluster).len(), 5, "one request is one attempt");
    assert_eq!(status_of(&cluster, "f")["handledRetest"], "7");
}

#[test]
fn a_crash_at_any_write_of_an_evaluation_changes_nothing_i1() {
    for requests in 0..7 {
        fake_github::with(|github| {
            github.heads.clear();
            github.checks.clear();
            github.push("main", "1", &[]);
        });
        let mut cluster = following("{}");
        template(&mut cluster, "plan", &["**"], "{workspace: {}}");
        settle(&mut cluster);
        fake_github::with(|github| github.push("f", "2", &["a/x", "b/x"]));
        sync_only(&mut cluster);
        let key = branch_of(&cluster, "f");
        cluster.step_dying_at_a_write(&AnyMachine::new(Branches), &branch::KIND, &key, requests);
        settle(&mut cluster);
        assert_eq!(workflows(&cluster), ["plan a 2 1", "plan b 2 1"], "after {requests}");
        assert_eq!(checks("2"), ["pawl in_progress"], "after {requests}");
        let status = status_of(&cluster, "f");
        assert_eq!(status["workflows"].as_array().unwrap().len(), 2, "after {requests}");
        assert_eq!(condition(&status, "WorkflowReady"), "True WorkflowCreated");
    }
}

/// The Repository alone looks.
fn sync_only(cluster: &mut Cluster) {
    let nudge = json!({"metadata": {"annotations": {"terrakojo.io/sync-requested-at": "again"}}});
    cluster.edit(&repository::KIND, &Key::new(Some("n"), "r"), &nudge);
    cluster.step(&machines()[0], &repository::KIND, &Key::new(Some("n"), "r"));
}

#[test]
fn two_refs_at_one_commit_share_one_check_that_the_last_concludes() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
        github.heads.insert("g".to_owned(), sha("2"));
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl in_progress"]);
    let all = cluster.world.list(&workflow::KIND, None);
    cluster.edit(&workflow::KIND, &all[0].key(), &json!({"status": {"phase": "Failed"}}));
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl in_progress"]);
    cluster.edit(&workflow::KIND, &all[1].key(), &json!({"status": {"phase": "Succeeded"}}));
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/failure"]);
    let key = branch_of(&cluster, "f");
    fake_github::with(|github| github.heads.remove("f"));
    cluster.delete(&branch::KIND, &key, "Background");
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/failure"], "a Branch that goes changes no verdict");
}

#[test]
fn a_merged_commit_opens_the_check_again_and_its_end_stands() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/success"]);
    fake_github::with(|github| github.heads.insert("main".to_owned(), sha("2")));
    sync(&mut cluster);
    assert_eq!(checks("2"), ["pawl in_progress"]);
    let all = cluster.world.list(&workflow::KIND, None);
    let on_main =
        all.iter().find(|one| one.raw()["spec"]["parameters"]["isDefaultBranch"] == "true").unwrap();
    cluster.edit(&workflow::KIND, &on_main.key(), &json!({"status": {"phase": "Failed"}}));
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["f 2"]);
    assert_eq!(checks("2"), ["pawl completed/failure"]);
}

#[test]
fn with_a_token_the_check_is_a_commit_status() {
    fake_github::with(|github| github.identity = Identity::Token);
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    end(&mut cluster, "plan", "Failed");
    settle(&mut cluster);
    let of_two = |github: &mut fake_github::FakeGithub| -> Vec<StatusState> {
        github.statuses.iter().filter(|one| one.sha == sha("2")).map(|one| one.state).collect()
    };
    assert_eq!(fake_github::with(of_two), [StatusState::Pending, StatusState::Failure]);
    assert!(fake_github::with(|github| github.checks.is_empty()));
}

#[test]
fn i12_a_finished_branch_writes_and_asks_nothing_after_a_restart() {
    let paths: Vec<String> = (0..50).map(|at| format!("d{at}/x")).collect();
    let files: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut cluster = on_a_branch(&files, "{}", "{}");
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    let (calls, events) = (cluster.calls.len(), cluster.events.len());
    let key = branch_of(&cluster, "f");
    let before = cluster.get(&branch::KIND, &key);
    let outcome = cluster.step(&AnyMachine::new(Branches), &branch::KIND, &key);
    assert!(outcome.writes.is_empty());
    assert_eq!((cluster.calls.len(), cluster.events.len()), (calls, events));
    assert_eq!(cluster.get(&branch::KIND, &key), before);
}

#[test]
fn a_check_is_sent_when_it_starts_and_when_it_ends_whatever_happens_in_between() {
    let mut cluster = on_a_branch(&["a/x", "b/x", "c/x"], "{}", "{}");
    for which in ["plan a", "plan b", "plan c"] {
        end(&mut cluster, which, "Running");
        settle(&mut cluster);
        end(&mut cluster, which, "Succeeded");
        settle(&mut cluster);
    }
    let sent = cluster.calls.iter().filter(|call| {
        call.is_write() && call.to_string().contains("check run") && format!("{call:?}").contains(&sha("2"))
    });
    assert_eq!(sent.count(), 2);
}

#[test]
fn a_lost_reply_of_the_first_report_leaves_one_check_that_is_concluded() {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    // Made, and the answer never came.
    cluster.outside = |call| {
        let answer = fake_github::answer(call);
        if call.is_write() { Err(failure(Category::Transient, "NoAnswer")) } else { answer }
    };
    fake_github::with(|github| github.push("f", "2", &["a/x"]));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"], "the work does not wait for it");
    cluster.outside = fake_github::answer;
    fake_github::with(|github| github.heads.remove("f"));
    sync(&mut cluster);
    assert_eq!(checks("2"), ["pawl completed/cancelled"]);
}

#[test]
fn github_down_during_an_evaluation_is_said_and_tried_again() {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    fake_github::with(|github| {
        github.push("f", "2", &["a/x"]);
        github.failing.push(("read commit", failure(Category::Transient, "HTTP500")));
    });
    sync(&mut cluster);
    assert_eq!(condition(&status_of(&cluster, "f"), "WorkflowReady"), "False ChangedFilesFailed");
    assert_eq!(annotation(&cluster, "f", "terrakojo.io/last-sha"), Value::Null);
    fake_github::with(|github| github.failing.clear());
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
}

/// A push to `f` whose commit cannot be read: it is not lost, and runs once it can be.
fn waits_for_its_files(failing: &'static str, failed: Failure, reason: &str, said: &str) {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    fake_github::with(|github| {
        github.push("f", "2", &["a/x"]);
        github.failing.push((failing, failed));
    });
    sync(&mut cluster);
    cluster.advance(Duration::from_hours(1));
    settle(&mut cluster);
    assert_eq!(condition(&status_of(&cluster, "f"), "WorkflowReady"), format!("False {reason}"));
    assert_eq!(annotation(&cluster, "f", "terrakojo.io/last-sha"), Value::Null);
    let told: Vec<_> = cluster.events.iter().filter(|(_, one, _)| one == reason).collect();
    assert!(matches!(told.as_slice(), [(_, _, message)] if message.contains(said)), "{told:?}");
    fake_github::with(|github| github.failing.clear());
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
}

#[test]
fn a_commit_that_github_does_not_show_yet_is_not_lost() {
    let failed = |reason| failure(Category::NotFound, reason);
    waits_for_its_files("read commit", failed("HTTP404"), "ChangedFilesFailed", "GitHub said so");
    fake_github::with(|github| github.heads.clear());
    waits_for_its_files("read commit", failed("HTTP422"), "ChangedFilesFailed", "GitHub said so");
}

#[test]
fn a_missing_secret_is_not_a_missing_commit() {
    let failed = Failure::without_credentials("GET /x", "CredentialsMissing", "Secret n/s does not exist");
    waits_for_its_files("read commit", failed, "CredentialsMissing", "Secret n/s");
}

#[test]
fn a_commit_that_github_lost_holds_up_nobody() {
    fake_github::with(|github| github.push("main", "1", &["a/x"]));
    fake_github::with(|github| {
        github.failing.push(("read commit 1", failure(Category::NotFound, "HTTP404")))
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["main 1@1"], "it is the head, so it is there");
    fake_github::with(|github| {
        github.push("main", "2", &["a/x"]);
        github.commits.remove(&sha("1"));
    });
    sync(&mut cluster);
    assert_eq!(branches(&cluster), ["main 2@2"]);
    assert_eq!(checks("1"), ["pawl completed/cancelled"]);
    assert!(cluster.events.iter().any(|(_, reason, _)| reason == "CommitGone"));
}

#[test]
fn a_template_counts_from_the_next_sha_unless_it_backfills() {
    let mut cluster = on_a_branch(&["a/x"], "{}", "{}");
    fake_github::with(|github| github.open(5, "acme/infra", "f", "2", &["a/x", "b/x"]));
    sync(&mut cluster);
    template(&mut cluster, "later", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1", "plan b 2 1"]);
    template(&mut cluster, "lint", &["b/**"], "{backfill: true}");
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["lint b 2 1", "plan a 2 1", "plan b 2 1"]);
    end(&mut cluster, "lint", "Failed");
    settle(&mut cluster);
    let edit = json!({"spec": {"match": {"paths": ["**"]}}});
    cluster.edit(&workflow_template::KIND, &Key::new(Some("n"), "lint"), &edit);
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["lint a 2 1", "lint b 2 1", "lint b 2 2", "plan a 2 1", "plan b 2 1"]);
    let calls = cluster.calls.len();
    settle(&mut cluster);
    assert_eq!(cluster.calls.len(), calls);
}

#[test]
fn a_bad_glob_skips_that_template_alone_and_a_fix_counts_from_the_next_sha() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "bad", &["a/["], "{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    assert_eq!(status_of(&cluster, "f")["evaluations"][0]["reason"], "BadGlob");
    template(&mut cluster, "bad", &["a/*"], "{}");
    fake_github::with(|github| github.push("f", "3", &["a/x"]));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["bad a 3 1", "plan a 3 1"]);
}

#[test]
fn templates_in_a_cycle_do_not_run_and_say_so() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "one", &["**"], "{dependsOn: [two]}");
    template(&mut cluster, "two", &["**"], "{dependsOn: [one]}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    let evaluations = status_of(&cluster, "f")["evaluations"].clone();
    assert_eq!(evaluations[0]["reason"], "DependencyCycle");
}

#[test]
fn a_workflow_of_that_name_that_is_somebody_elses_stops_no_other() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &[]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    let uid = cluster.world.get(&branch::KIND, &branch_of(&cluster, "f")).unwrap().uid().to_owned();
    let name = workflow::name(&uid, &sha("3"), "plan", "a", 1);
    let spec = json!({"owner": "acme", "repository": "infra", "branch": "x", "sha": sha("9"), "template": "plan",
        "path": "a"});
    cluster.put(json!({"kind": "Workflow", "metadata": {"name": name}, "spec": spec}));
    fake_github::with(|github| github.push("f", "3", &["a/x", "b/x"]));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 9 1", "plan b 3 1"]);
    assert_eq!(condition(&status_of(&cluster, "f"), "WorkflowCreateFailed"), "False Invalid");
}

#[test]
fn a_quota_is_said_and_waited_for() {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    let body =
        json!({"kind": "Status", "reason": "Forbidden", "code": 403, "message": "exceeded quota: few"});
    cluster.refuse_create = Some((workflow::KIND, 403, body));
    fake_github::with(|github| github.push("f", "2", &["a/x"]));
    sync_only(&mut cluster);
    let (machine, key) = (AnyMachine::new(Branches), branch_of(&cluster, "f"));
    for _ in 0..3 {
        cluster.step(&machine, &branch::KIND, &key);
    }
    assert_eq!(condition(&status_of(&cluster, "f"), "WorkflowCreateFailed"), "False QuotaExceeded");
    cluster.refuse_create = None;
    cluster.advance(Duration::from_secs(31));
    settle(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    assert_eq!(condition(&status_of(&cluster, "f"), "WorkflowCreateFailed"), "");
}
