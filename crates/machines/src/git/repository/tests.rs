//! Each test is a story about `acme/infra`, told to both machines until nothing is written any more.

use std::time::Duration;

use pawl_api::git::{branch, finalizers, repository, workflow};
use serde_json::json;

use super::Repositories;
use crate::failure::{Category, Failure};
use crate::git::github::Identity;
use crate::git::testing::fake_github::{self, failure, sha};
use crate::git::testing::fixtures::{
    branch_of, branches, condition, end, following, machines, repository as manifest, repository_status,
    settle, status_of, sync, template, workflows,
};
use crate::machine::AnyMachine;
use crate::object::Key;
use crate::testing::Cluster;
use crate::view::View;

fn key() -> Key {
    Key::new(Some("n"), "r")
}

fn ready(cluster: &Cluster) -> String {
    condition(&repository_status(cluster), "Ready")
}

fn revision(cluster: &Cluster) -> Vec<String> {
    let kinds = [repository::KIND, branch::KIND, workflow::KIND];
    let all = kinds.iter().flat_map(|kind| cluster.world.list(kind, None));
    all.map(|object| format!("{}@{}", object.key(), object.resource_version())).collect()
}

#[test]
fn the_first_write_is_the_finalizer_with_the_labels() {
    let mut cluster = following("{}");
    let outcome = cluster.step(&AnyMachine::new(Repositories), &repository::KIND, &key());
    assert_eq!(outcome.writes.len(), 1);
    let raw = cluster.get(&repository::KIND, &key()).unwrap();
    assert_eq!(raw["metadata"]["finalizers"], json!([finalizers::REPOSITORY]));
    assert_eq!(raw["metadata"]["labels"]["terrakojo.io/repo-name"], "infra");
    assert!(cluster.calls.is_empty());
}

#[test]
fn the_first_sync_runs_the_head_of_every_ref() {
    fake_github::with(|github| {
        github.push("main", "1", &["a/x"]);
        github.push("main", "2", &["b/x"]);
        github.push("feature/x", "3", &["c/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["feature/x 3", "main 2@1"]);
    assert_eq!(workflows(&cluster), ["plan b 2 1", "plan c 3 1"]);
    let status = repository_status(&cluster);
    assert_eq!(status["lastDefaultBranchHeadSha"], json!(sha("2")));
    assert_eq!((status["synced"].clone(), ready(&cluster)), (json!(true), "True Synced".to_owned()));
    assert_eq!(condition(&status, "GitHubReachable"), "True GitHubReachable");
    assert_eq!(condition(&status, "CheckRuns"), "True CheckRunsUsed");
}

#[test]
fn bootstrap_cursor_records_where_all_is_and_runs_only_what_comes_after() {
    fake_github::with(|github| {
        github.push("main", "1", &["a/x"]);
        github.push("f", "2", &["b/x"]);
        github.open(5, "acme/infra", "g", "3", &["c/x"]);
        github.push("g", "3", &["c/x"]);
    });
    let mut cluster = following("{bootstrap: cursor}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["f 2", "g 3#5"]);
    assert!(workflows(&cluster).is_empty());
    assert!(fake_github::with(|github| github.checks.is_empty()));
    fake_github::with(|github| {
        github.push("main", "4", &["d/x"]);
        github.push("f", "5", &["e/x"]);
    });
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan d 4 1", "plan e 5 1"]);
}

#[test]
fn each_commit_of_the_default_branch_gets_a_branch_oldest_first_600_commits_behind() {
    fake_github::with(|github| github.push("main", "a0", &[]));
    let mut cluster = following("{historyLimit: 0}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert!(branches(&cluster).is_empty(), "nothing changed, so nothing is left");
    fake_github::with(|github| {
        for at in 0..600 {
            github.push("main", &format!("b{at:03}1"), &["a/x"]);
        }
    });
    sync(&mut cluster);
    let got = branches(&cluster);
    assert_eq!(got.len(), 600);
    assert_eq!((got[0].as_str(), got[599].as_str()), ("main b0001@2", "main b5991@601"));
    assert_eq!(repository_status(&cluster)["nextSequence"], 602);
}

#[test]
fn a_crash_at_any_write_of_a_sync_changes_nothing_i1() {
    fake_github::with(|github| {
        github.push("main", "1", &["a/x"]);
        github.push("f", "2", &["b/x"]);
    });
    let whole = {
        let mut cluster = following("{}");
        template(&mut cluster, "plan", &["**"], "{}");
        settle(&mut cluster);
        fake_github::with(|github| {
            github.push("main", "3", &["a/x"]);
            github.push("main", "4", &["a/x"]);
        });
        cluster
    };
    for requests in 0..8 {
        let mut cluster = following("{}");
        template(&mut cluster, "plan", &["**"], "{}");
        fake_github::with(|github| {
            github.heads.insert("main".to_owned(), sha("1"));
        });
        settle(&mut cluster);
        fake_github::with(|github| github.heads.insert("main".to_owned(), sha("4")));
        // The plan after all was heard, of which only so many requests are sent.
        let machine = AnyMachine::new(Repositories);
        let nudge = json!({"metadata": {"annotations": {"terrakojo.io/sync-requested-at": "x"}}});
        cluster.edit(&repository::KIND, &key(), &nudge);
        cluster.step_dying_at_a_write(&machine, &repository::KIND, &key(), requests);
        settle(&mut cluster);
        assert_eq!(branches(&cluster), ["f 2", "main 1@1", "main 3@2", "main 4@3"], "after {requests}");
        assert_eq!(workflows(&cluster).len(), 4, "after {requests}");
    }
    drop(whole);
}

#[test]
fn a_commit_that_is_done_waits_for_the_cursor_so_that_it_is_not_run_twice() {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    let machine = AnyMachine::new(Repositories);
    cluster.step(&machine, &repository::KIND, &key());
    // The Branch is made, and the process dies before the cursor is saved.
    cluster.step_dying_at_a_write(&machine, &repository::KIND, &key(), 2);
    assert_eq!(branches(&cluster), ["main 1@1"]);
    assert_eq!(repository_status(&cluster), json!(null));
    for _ in 0..5 {
        cluster.step(&machines()[1], &branch::KIND, &branch_of(&cluster, "main"));
    }
    assert_eq!(branches(&cluster), ["main 1@1"], "it is evaluated, and stays");
    settle(&mut cluster);
    assert!(branches(&cluster).is_empty());
    assert_eq!(fake_github::with(|github| github.checks_of("1")), ["pawl completed/success"]);
}

fn lost(spoil: fn()) {
    fake_github::with(|github| github.push("main", "1", &["a/x"]));
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    fake_github::with(|github| {
        github.push("main", "2", &["a/x"]);
        github.push("main", "3", &["a/x"]);
    });
    spoil();
    sync(&mut cluster);
    assert_eq!(branches(&cluster), ["main 1@1", "main 3@2"]);
    assert_eq!(repository_status(&cluster)["lastDefaultBranchHeadSha"], json!(sha("3")));
    assert!(cluster.events.iter().any(|(_, reason, _)| reason == "CursorLost"));
}

#[test]
fn a_cursor_lost_with_404_or_422_or_left_behind_means_the_head_only() {
    lost(|| {
        fake_github::with(|github| {
            github.failing.push(("list the commits", failure(Category::NotFound, "HTTP404")))
        })
    });
    fake_github::with(|github| github.failing.clear());
    lost(|| {
        fake_github::with(|github| {
            github.failing.push(("list the commits", failure(Category::NotFound, "HTTP422")))
        })
    });
    fake_github::with(|github| github.failing.clear());
    lost(|| {
        fake_github::with(|github| {
            // A history of its own.
            let three = sha("3");
            if let Some(commit) = github.commits.get_mut(&three) {
                commit.parent = None;
            }
        });
    });
}

#[test]
fn a_force_push_from_a_to_b_and_back_works() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "a", &["a/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    let key = branch_of(&cluster, "f");
    for (at, name) in [("b", "b/x"), ("a", "a/x")] {
        fake_github::with(|github| {
            github.heads.remove("f");
            github.push("f", at, &[name])
        });
        sync(&mut cluster);
        assert_eq!(workflows(&cluster), [format!("plan {} {at} 1", &name[..1])]);
        assert_eq!(branch_of(&cluster, "f"), key, "it is moved in place");
    }
}

#[test]
fn a_name_that_is_on_its_way_out_is_waited_for() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "a", &["a/x"]);
    });
    let mut cluster = following("{}");
    settle(&mut cluster);
    let (old, leaving) = (branch_of(&cluster, "f"), json!({"metadata": {"finalizers": ["slow"]}}));
    cluster.edit(&branch::KIND, &old, &leaving);
    cluster.delete(&branch::KIND, &old, "Background");
    sync(&mut cluster);
    assert!(repository_status(&cluster)["nextSyncAt"].is_string());
    cluster.edit(&branch::KIND, &old, &json!({"metadata": {"finalizers": null}}));
    cluster.advance(Duration::from_secs(3));
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["f a"]);
    assert!(repository_status(&cluster).get("nextSyncAt").is_none());
}

#[test]
fn a_ref_has_its_pull_request_and_goes_when_it_is_gone() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
    });
    let mut cluster = following("{}");
    settle(&mut cluster);
    fake_github::with(|github| github.open(5, "acme/infra", "f", "2", &["a/x"]));
    sync(&mut cluster);
    assert_eq!(branches(&cluster), ["f 2#5"]);
    fake_github::with(|github| {
        github.pulls.clear();
        github.heads.remove("f");
    });
    sync(&mut cluster);
    assert!(branches(&cluster).is_empty());
}

#[test]
fn fork_refs_never_shadow_ours_and_a_forks_main_is_like_any_other() {
    fake_github::with(|github| {
        github.push("main", "1", &["a/x"]);
        github.push("x", "2", &["a/x"]);
        github.open(5, "mallory/infra", "x", "3", &["a/x"]);
        github.open(6, "mallory/infra", "main", "4", &["a/x"]);
    });
    let mut cluster = following("{forks: allow}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["main 1@1", "mallory/infra:main 4#6", "mallory/infra:x 3#5", "x 2"]);
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    assert_eq!(
        branches(&cluster),
        ["mallory/infra:main 4#6", "mallory/infra:x 3#5", "x 2"],
        "a fork's main is not our default branch"
    );
}

#[test]
fn a_hundred_and_one_branches_and_pull_requests_are_all_followed() {
    fake_github::with(|github| {
        github.push("main", "f", &[]);
        for number in 0..101 {
            github.push(&format!("b{number}"), &format!("a{number:03}1"), &[]);
            github.open(number + 1, "mallory/infra", &format!("p{number}"), &format!("b{number:03}1"), &[]);
        }
    });
    let mut cluster = following("{}");
    settle(&mut cluster);
    assert_eq!(branches(&cluster).len(), 202);
}

#[test]
fn odd_names_of_repositories_and_refs_make_valid_branches() {
    for name in ["My_Repo", ".github", &"x".repeat(100)] {
        fake_github::with(|github| {
            github.heads.clear();
            github.push("main", "1", &["a/x"]);
            github.push("feature/$(SECRET) ü", "2", &["a/x"]);
        });
        let mut cluster = following(&format!("{{name: {name}}}"));
        template(&mut cluster, "plan", &["**"], "{}");
        settle(&mut cluster);
        assert_eq!(branches(&cluster), ["feature/$(SECRET) ü 2", "main 1@1"]);
        for object in cluster.world.list(&branch::KIND, None) {
            assert!(pawl_api::meta::names::is_label(object.name()), "{}", object.name());
            for (_, value) in object.labels() {
                assert!(pawl_api::meta::names::is_label_value(value), "{value}");
            }
        }
    }
}

#[test]
fn one_bad_ref_does_not_stop_the_others() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("good", "2", &[]);
        github.push("taken", "3", &[]);
        github.heads.insert("odd".to_owned(), "no sha".to_owned());
    });
    let mut cluster = following("{}");
    let name = branch::name("infra", "acme/infra", "taken");
    let spec = json!({"owner": "acme", "repository": "infra", "name": "taken", "sha": sha("9")});
    cluster.put(json!({"kind": "Branch", "metadata": {"name": name}, "spec": spec}));
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["good 2", "taken 9"]);
    let raw = repository_status(&cluster).to_string();
    assert!(raw.contains("belongs to somebody else") && raw.contains("is no SHA"), "{raw}");
    assert_eq!(cluster.events.iter().filter(|(_, reason, _)| reason == "BadRef").count(), 2);
}

fn fails(part: &'static str, failure: Failure, expect: &str) {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.failing.push((part, failure));
    });
    let mut cluster = following("{}");
    settle(&mut cluster);
    let status = repository_status(&cluster);
    assert_eq!(condition(&status, "GitHubReachable"), format!("False {expect}"));
    assert_eq!(condition(&status, "Ready"), format!("False {expect}"));
    assert!(status.to_string().contains("GET /x"), "it names what failed: {status}");
    assert!(status["nextSyncAt"].is_string());
    let calls = cluster.calls.len();
    settle(&mut cluster);
    assert_eq!(cluster.calls.len(), calls, "not before the time that stands in the status");
    fake_github::with(|github| github.failing.clear());
    cluster.advance(Duration::from_secs(10));
    settle(&mut cluster);
    assert_eq!(ready(&cluster), "True Synced");
    assert!(repository_status(&cluster).get("nextSyncAt").is_none());
}

#[test]
fn a_github_that_refuses_or_fails_is_named_and_asked_again_later() {
    use Category::{MissingCredentials, NotFound, Permanent, Transient};
    fails("list the branches", failure(Transient, "HTTP401"), "Unauthorized");
    fails("list the branches", failure(Permanent, "HTTP403"), "Forbidden");
    fails("list the pull requests", failure(NotFound, "HTTP404"), "RepositoryNotFound");
    fails("list the branches", failure(Transient, "RateLimited"), "RateLimited");
    fails("list the branches", failure(Transient, "SecondaryRateLimited"), "RateLimited");
    fails("list the branches", failure(Transient, "NoAnswer"), "GitHubUnreachable");
    fails("list the branches", failure(MissingCredentials, "BadCredentials"), "CredentialsInvalid");
    fails("list the branches", failure(MissingCredentials, "CredentialsMissing"), "CredentialsMissing");
}

#[test]
fn comments_that_cannot_be_read_do_not_stop_the_sync() {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    settle(&mut cluster);
    fake_github::with(|github| {
        github.failing.push(("read comments", failure(Category::Permanent, "HTTP403")));
        github.push("f", "2", &[]);
    });
    sync(&mut cluster);
    assert_eq!(branches(&cluster), ["f 2"]);
}

#[test]
fn a_token_means_commit_statuses_and_a_condition_says_so() {
    fake_github::with(|github| {
        github.identity = Identity::Token;
        github.push("main", "1", &[]);
    });
    let mut cluster = following("{}");
    settle(&mut cluster);
    assert_eq!(condition(&repository_status(&cluster), "CheckRuns"), "False CommitStatusesOnly");
    let told = fake_github::with(|github| (github.checks.len(), github.statuses.clone()));
    assert_eq!((told.0, told.1.len()), (0, 1));
    assert_eq!(
        (told.1[0].context.as_str(), told.1[0].state),
        ("pawl", crate::git::github::StatusState::Success)
    );
}

#[test]
fn a_secret_that_is_not_lent_is_not_used() {
    let mut cluster = following("{githubSecretRef: {name: s, namespace: vault}}");
    settle(&mut cluster);
    assert_eq!(ready(&cluster), "False SecretRefNotAllowed");
    assert!(cluster.calls.is_empty());
    fake_github::with(|github| github.push("main", "1", &[]));
    let label = json!({"kind": "Namespace", "metadata": {"name": "vault",
        "labels": {"pawl.dev/allow-secret-refs": "n"}}});
    cluster.put(label);
    settle(&mut cluster);
    assert_eq!(ready(&cluster), "True Synced");
}

#[test]
fn two_repositories_for_one_repository_do_not_fight() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
    });
    let mut cluster = following("{}");
    let mut second = manifest("s", "{owner: ACME}");
    second["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z".into();
    let mut elsewhere = second.clone();
    elsewhere["metadata"]["namespace"] = "m".into();
    elsewhere["metadata"]["uid"] = "elsewhere".into();
    cluster.put(second);
    cluster.put(elsewhere);
    settle(&mut cluster);
    let second = cluster.get(&repository::KIND, &Key::new(Some("n"), "s")).unwrap();
    assert_eq!(condition(&second["status"], "Ready"), "False DuplicateRepository");
    assert_eq!(branches(&cluster), ["f 2", "f 2"], "one in each namespace");
    assert_eq!(
        fake_github::with(|github| github.checks_of("2")),
        ["pawl (m/s) completed/success", "pawl completed/success"],
        "each namespace has its own check"
    );
    cluster.delete(&repository::KIND, &key(), "Background");
    settle(&mut cluster);
    let second = cluster.get(&repository::KIND, &Key::new(Some("n"), "s")).unwrap();
    assert_eq!(condition(&second["status"], "Ready"), "True Synced", "it steps in");
}

#[test]
fn a_suspended_repository_asks_nothing() {
    let mut cluster = following("{suspend: true}");
    settle(&mut cluster);
    assert_eq!(ready(&cluster), "False Suspended");
    assert!(cluster.calls.is_empty());
}

#[test]
fn i12_an_unchanged_poll_writes_nothing_and_a_restart_asks_nothing() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.push("f", "2", &["a/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    // Out of the first slot's window, and to where all is quiet.
    cluster.advance(Duration::from_secs(30));
    settle(&mut cluster);
    let (before, calls) = (revision(&cluster), cluster.calls.len());
    settle(&mut cluster);
    assert_eq!(cluster.calls.len(), calls, "a restart in between asks nothing");
    let plan = cluster.plan(&machines()[0], &cluster.world.get(&repository::KIND, &key()).unwrap());
    let crate::plan::Wake::At(slot) = plan.wake else { panic!("a poll is to come") };
    assert!(slot.duration_since(cluster.now).as_secs() <= 300);
    cluster.now = slot;
    cluster.settle(&machines());
    assert!(cluster.calls.len() > calls, "the poll itself asks");
    assert_eq!(revision(&cluster), before);
}

#[test]
fn a_nudge_is_handled_once() {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    settle(&mut cluster);
    cluster.advance(Duration::from_secs(30));
    sync(&mut cluster);
    let calls = cluster.calls.len();
    settle(&mut cluster);
    assert_eq!(cluster.calls.len(), calls);
    let status = repository_status(&cluster);
    assert_eq!(status["handledSyncRequest"], status["webhook"]["lastDeliveryAt"]);
}

#[test]
fn deletion_waits_for_the_branches_and_needs_no_github_i5() {
    fake_github::with(|github| {
        github.push("main", "1", &["a/x"]);
        github.push("f", "2", &["a/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    fake_github::with(|github| github.failing.push(("infra", failure(Category::Permanent, "SecretMissing"))));
    cluster.delete(&repository::KIND, &key(), "Background");
    cluster.settle(&machines());
    assert!(cluster.get(&repository::KIND, &key()).is_some(), "Workflows are still there");
    cluster.advance(Duration::from_mins(3));
    settle(&mut cluster);
    assert!(cluster.get(&repository::KIND, &key()).is_none());
    assert!(cluster.events.iter().any(|(_, reason, _)| reason == "CleanupIncomplete"), "the loss is told");
}

#[test]
fn history_limit_keeps_the_newest_commits() {
    fake_github::with(|github| github.push("main", "1", &["a/x"]));
    let mut cluster = following("{historyLimit: 2}");
    template(&mut cluster, "plan", &["a/**"], "{}");
    settle(&mut cluster);
    fake_github::with(|github| {
        github.push("main", "2", &["a/x"]);
        github.push("main", "3", &["a/x"]);
        github.push("main", "4", &["elsewhere"]);
    });
    sync(&mut cluster);
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    cluster.advance(Duration::from_secs(30));
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["main 2@2", "main 3@3"]);
    let known = repository_status(&cluster)["aggregateChecks"].to_string();
    assert!(known.contains(&sha("1")), "the check of what went is remembered: {known}");
}

#[test]
fn comments_approve_retest_and_cancel_and_are_read_once() {
    fake_github::with(|github| {
        github.push("main", "1", &[]);
        github.open(5, "mallory/infra", "f", "2", &["a/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    let later = "2026-01-01T00:01:00Z";
    fake_github::with(|github| {
        github.comment(5, "mallory", &format!("/ok-to-test {}", sha("2")), later);
        github.comment(5, "alice", &format!("/ok-to-test {}", sha("3")), later);
        github.comment(99, "alice", "/cancel", later);
    });
    sync(&mut cluster);
    assert!(workflows(&cluster).is_empty(), "neither a stranger nor another commit counts");
    assert_eq!(fake_github::with(|github| github.said.len()), 1);
    fake_github::with(|github| {
        github.comment(5, "alice", &format!("/ok-to-test {}\n/help", sha("2")), later)
    });
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1"]);
    assert_eq!(status_of(&cluster, "f")["approved"]["by"], "alice");
    end(&mut cluster, "plan", "Failed");
    fake_github::with(|github| github.comment(5, "alice", "/retest", "2026-01-01T00:02:00Z"));
    sync(&mut cluster);
    assert_eq!(workflows(&cluster), ["plan a 2 1", "plan a 2 2"]);
    fake_github::with(|github| github.comment(5, "alice", "/cancel", "2026-01-01T00:03:00Z"));
    sync(&mut cluster);
    let annotated = cluster.world.list(&workflow::KIND, None);
    let cancelled: Vec<_> = annotated.iter().map(|one| one.annotation("pawl.dev/cancel").is_some()).collect();
    assert_eq!(cancelled.iter().filter(|yes| **yes).count(), 1, "only what runs");
    sync(&mut cluster);
    assert_eq!(workflows(&cluster).len(), 2, "what was read is not obeyed again");
    fake_github::with(|github| github.open(5, "mallory/infra", "f", "7", &["a/x"]));
    fake_github::with(|github| github.pulls.remove(0));
    sync(&mut cluster);
    assert!(workflows(&cluster).is_empty(), "another commit is not approved");
}

#[test]
fn a_finished_commit_of_the_default_branch_can_be_run_again_and_nothing_else() {
    fake_github::with(|github| {
        github.push("main", "1", &["a/x"]);
        github.push("main", "2", &[]);
        github.push("f", "3", &[]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    let ask = |cluster: &mut Cluster, what: &str| {
        let rerun = json!({"metadata": {"annotations": {"terrakojo.io/rerun": what}}});
        cluster.edit(&repository::KIND, &key(), &rerun);
        settle(cluster);
    };
    ask(&mut cluster, &format!("{}@d1", sha("3")));
    ask(&mut cluster, "$(rm)@d2");
    assert_eq!(branches(&cluster), ["f 3"]);
    ask(&mut cluster, &format!("{}@d3", sha("1")));
    assert_eq!(branches(&cluster), ["f 3", "main 1@2"]);
    assert_eq!(workflows(&cluster), ["plan a 1 1"]);
    end(&mut cluster, "plan", "Succeeded");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["f 3"], "once");
}

#[test]
fn another_default_branch_starts_at_its_head() {
    fake_github::with(|github| {
        github.push("main", "1", &["a/x"]);
        github.heads.insert("next".to_owned(), sha("1"));
        github.push("next", "2", &["a/x"]);
        github.push("next", "3", &["a/x"]);
    });
    let mut cluster = following("{}");
    template(&mut cluster, "plan", &["**"], "{}");
    settle(&mut cluster);
    cluster.edit(&repository::KIND, &key(), &json!({"spec": {"defaultBranch": "next"}}));
    settle(&mut cluster);
    let got = branches(&cluster);
    assert!(got.contains(&"next 3@2".to_owned()) && !got.contains(&"next 2@2".to_owned()), "{got:?}");
}

#[test]
fn a_missing_default_branch_is_said_and_stops_no_other_ref() {
    fake_github::with(|github| github.push("f", "1", &[]));
    let mut cluster = following("{}");
    settle(&mut cluster);
    assert_eq!(branches(&cluster), ["f 1"]);
    assert_eq!(ready(&cluster), "False DefaultBranchMissing");
}

#[test]
fn the_rate_limit_is_told_when_it_gets_short_and_not_with_every_poll() {
    fake_github::with(|github| github.push("main", "1", &[]));
    let mut cluster = following("{}");
    settle(&mut cluster);
    cluster.advance(Duration::from_secs(30));
    let poll = |cluster: &mut Cluster, remaining: i64| {
        fake_github::with(|github| github.remaining = remaining);
        let plan = cluster.plan(&machines()[0], &cluster.world.get(&repository::KIND, &key()).unwrap());
        let crate::plan::Wake::At(slot) = plan.wake else { panic!("a poll is to come") };
        cluster.now = slot;
        cluster.settle(&machines());
        cluster.advance(Duration::from_secs(30));
        repository_status(cluster)["rateLimit"]["remaining"].clone()
    };
    assert_eq!(poll(&mut cluster, 4900), 5000, "as it was when something happened");
    assert_eq!(poll(&mut cluster, 800), 800);
    assert_eq!(poll(&mut cluster, 790), 800);
    assert_eq!(poll(&mut cluster, 400), 400);
}
