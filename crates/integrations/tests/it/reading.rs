//! What is read is complete and true.

use bytes::Bytes;
use http::header::LINK;
use http::{Request, Response};
use pawl_integrations::github::auth::Secret;
use pawl_integrations::github::client::MAX_PAGES;
use pawl_integrations::github::fake::{Change, Fault, Role, Trouble};
use pawl_integrations::github::{Credentials, Error, Transport};
use pawl_integrations::transport::Broken;
use pawl_machines::failure::Category;
use pawl_machines::git::github::{ChangedFile, Files, Permission, Relation};

use crate::ground::{API, Ground, app, now};

fn paths(files: &Files) -> Vec<&str> {
    files.files.iter().map(|file| file.path.as_str()).collect()
}

/// A commit with so many files below `a/` and `b/`.
fn many(count: usize) -> Change {
    (0..count).fold(Change::new("many"), |change, n| {
        change.put(&format!("{}/{n:05}.tf", if n % 2 == 0 { "a" } else { "b" }), &format!("{n}\n"))
    })
}

#[test]
fn a_hundred_and_one_branches_are_all_seen() {
    let ground = Ground::new();
    for n in 0..100 {
        ground.repo.set_branch(&format!("feature/{n}"), &ground.head());
    }
    let branches = now(ground.client().branches()).unwrap();
    assert_eq!(branches.len(), 101);
    assert!(branches.iter().all(|branch| branch.sha == ground.head()));
    assert_eq!(ground.fake.requests(), 3, "a token and two pages");
}

#[test]
fn a_hundred_and_one_pull_requests_are_all_seen_with_where_they_come_from() {
    let ground = Ground::new();
    let fork = ground.repo.fork("mallory");
    for n in 0..100 {
        let branch = format!("b{n}");
        ground.repo.set_branch(&branch, &ground.head());
        ground.repo.open_pull(&ground.repo, &branch, "main", "alice", n == 0).unwrap();
    }
    let sha = fork.push("main", &Change::new("from a fork").by("mallory").put("x.tf", "1"));
    let number = ground.repo.open_pull(&fork, "main", "main", "mallory", false).unwrap();
    let pulls = now(ground.client().pull_requests()).unwrap();
    assert_eq!(pulls.len(), 101);
    let from_fork = pulls.iter().find(|pull| pull.number == number).unwrap();
    assert_eq!(from_fork.head_repository.as_deref(), Some("mallory/infra"));
    assert_eq!((from_fork.head_ref.as_str(), from_fork.head_sha.as_str()), ("main", sha.as_str()));
    assert_eq!((from_fork.author.as_str(), from_fork.base_sha == ground.head()), ("mallory", true));
    assert_eq!(pulls.iter().filter(|pull| pull.draft).count(), 1);
    fork.delete();
    let pulls = now(ground.client().pull_requests()).unwrap();
    assert_eq!(pulls.iter().find(|pull| pull.number == number).unwrap().head_repository, None);
}

#[test]
fn six_hundred_commits_come_in_order() {
    let ground = Ground::new();
    let base = ground.head();
    let made: Vec<String> = (0..600)
        .map(|n| ground.repo.push("main", &Change::new(&format!("c{n}")).put("n", &n.to_string())))
        .collect();
    let commits = now(ground.client().commits(&base, &ground.head())).unwrap();
    assert_eq!(commits.relation, Relation::Ahead);
    let seen: Vec<String> = commits.commits.iter().map(|commit| commit.sha.clone()).collect();
    assert_eq!(seen, made);
    assert_eq!(commits.commits[0].message, "c0");
    assert_eq!(commits.commits[0].author.as_deref(), Some("alice"));
}

#[test]
fn of_a_merge_only_first_parents_are_followed() {
    let ground = Ground::new();
    let base = ground.head();
    ground.repo.push("side", &Change::new("aside").put("side", "1"));
    let direct = ground.repo.push("main", &Change::new("direct").put("main", "1"));
    let merged = ground.repo.merge("main", "side", "merge side").unwrap();
    let commits = now(ground.client().commits(&base, "main")).unwrap();
    let seen: Vec<&str> = commits.commits.iter().map(|commit| commit.sha.as_str()).collect();
    assert_eq!(seen, [direct.as_str(), merged.as_str()]);
}

#[test]
fn how_a_head_stands_to_a_cursor_is_told() {
    let ground = Ground::new();
    let first = ground.head();
    let second = ground.repo.push("main", &Change::new("2").put("n", "2"));
    let client = ground.client();
    let relation = |base: &str, head: &str| now(client.commits(base, head)).unwrap().relation;
    assert_eq!(relation(&second, &second), Relation::Identical);
    assert_eq!(relation(&second, &first), Relation::Behind);
    ground.repo.set_branch("main", &first);
    let other = ground.repo.push("main", &Change::new("other").put("n", "3"));
    assert_eq!(relation(&second, &other), Relation::Diverged);
}

#[test]
fn a_cursor_that_is_gone_is_gone_with_404_and_with_422() {
    let ground = Ground::new();
    let gone = ground.repo.push("main", &Change::new("2").put("n", "2"));
    let head = ground.repo.push("main", &Change::new("3").put("n", "3"));
    let client = ground.client();
    ground.repo.set_branch("main", &head);
    ground.repo.forget_commit(&gone);
    let error = now(client.commits(&gone, &head)).unwrap_err();
    assert!(matches!(error, Error::NotFound { status: 404, .. }), "{error}");
    ground.fake.order(Fault::next(Trouble::Before(422)));
    let error = now(client.commits(&gone, &head)).unwrap_err();
    assert_eq!(
        (error.category(), matches!(error, Error::NotFound { status: 422, .. })),
        (Category::NotFound, true)
    );
    let error = now(client.commit(&gone)).unwrap_err();
    assert!(matches!(error, Error::NotFound { status: 422, .. }), "{error}");
}

#[test]
fn a_rename_has_both_names_and_a_removal_counts() {
    let ground = Ground::new();
    ground.repo.push("main", &Change::new("some").put("a/x.tf", "x\n").put("b/y.tf", "y\n"));
    let sha = ground.repo.push("main", &Change::new("move").rename("a/x.tf", "c/x.tf").remove("b/y.tf"));
    let commit = now(ground.client().commit(&sha)).unwrap();
    let expected = [
        ChangedFile { path: "b/y.tf".to_owned(), previous_path: None, removed: true },
        ChangedFile { path: "c/x.tf".to_owned(), previous_path: Some("a/x.tf".to_owned()), removed: false },
    ];
    assert_eq!(commit.files.files, expected);
    assert_eq!((commit.brief.message.as_str(), commit.brief.author.as_deref()), ("move", Some("alice")));
}

#[test]
fn three_hundred_and_one_files_of_a_commit_are_all_seen() {
    let ground = Ground::new();
    let sha = ground.repo.push("main", &many(301));
    assert_eq!(now(ground.client().commit(&sha)).unwrap().files.files.len(), 301);
}

#[test]
fn files_of_a_commit_and_of_a_pull_request_beyond_what_is_listed_are_found_by_their_trees() {
    for count in [2999, 3500] {
        let ground = Ground::new();
        let sha = ground.repo.push("side", &many(count));
        let number = ground.repo.open_pull(&ground.repo, "side", "main", "alice", false).unwrap();
        ground.repo.push("main", &Change::new("main goes on").put("other", "1"));
        let client = ground.client();
        let of_commit = now(client.commit(&sha)).unwrap().files;
        assert_eq!(of_commit.files.len(), count);
        let mut of_pull = now(client.pull_files(number)).unwrap();
        of_pull.files.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(paths(&of_pull), paths(&of_commit), "what main did since is not the pull request's");
    }
}

#[test]
fn a_tree_that_is_cut_short_is_walked_where_it_differs() {
    let ground = Ground::new();
    ground.repo.push("main", &many(400).put("same/deep/x", "1").put("gone/z", "1"));
    let sha = ground.repo.push("main", &many(3500).remove("a/00000.tf").remove("gone/z"));
    ground.fake.set_max_tree_entries(2000);
    let files = now(ground.client().commit(&sha)).unwrap().files;
    // 3,100 are new, one is gone with its directory; the 400 that were there before did not change, but one came back.
    assert_eq!(files.files.len(), 3101);
    assert!(files.files.iter().any(|file| file.path == "gone/z" && file.removed));
    assert!(files.files.iter().all(|file| !file.path.starts_with("same/")));
}

#[test]
fn a_first_commit_beyond_what_is_listed_shows_all_its_files() {
    let ground = Ground::new();
    let fresh = ground.fake.create("acme/fresh");
    let sha = fresh.push("main", &many(3200));
    let client = ground.client_of("acme", "fresh", ground.transport.clone(), app());
    assert_eq!(now(client.commit(&sha)).unwrap().files.files.len(), 3200);
}

#[test]
fn since_the_merge_base_counts_everything_of_the_branch_and_nothing_of_the_base() {
    let ground = Ground::new();
    ground.repo.push("side", &Change::new("one").put("a/1", "1"));
    ground.repo.push("side", &Change::new("two").put("b/2", "2"));
    ground.repo.push("main", &Change::new("elsewhere").put("c/3", "3"));
    let client = ground.client();
    assert_eq!(paths(&now(client.since_merge_base("main", "side")).unwrap()), ["a/1", "b/2"]);
    ground.repo.push("side", &many(350));
    let files = now(client.since_merge_base("main", "side")).unwrap();
    assert_eq!(files.files.len(), 352);
}

#[test]
fn a_ref_with_a_slash_and_odd_characters_is_one_ref() {
    let ground = Ground::new();
    ground.repo.push("feature/$(SECRET) ä?#%2F", &Change::new("odd").put("a/1", "1"));
    let files = now(ground.client().since_merge_base("main", "feature/$(SECRET) ä?#%2F")).unwrap();
    assert_eq!(paths(&files), ["a/1"]);
}

#[test]
fn comments_come_since_a_moment_oldest_first_edits_included() {
    let ground = Ground::new();
    let number = ground.repo.open_pull(&ground.repo, "main", "main", "alice", false).unwrap();
    let first = ground.repo.comment(number, "alice", "first");
    ground.clock.pass(10);
    let since = pawl_engine::Clock::now(&*ground.clock);
    ground.repo.comment(number, "bob", "/retest");
    ground.clock.pass(10);
    ground.repo.edit_comment(first, "first, edited");
    let comments = now(ground.client().comments(since)).unwrap();
    let said: Vec<(&str, &str)> =
        comments.iter().map(|comment| (comment.author.as_str(), comment.body.as_str())).collect();
    assert_eq!(said, [("bob", "/retest"), ("alice", "first, edited")]);
    assert_eq!(comments[0].number, number);
}

#[test]
fn permissions_are_told_and_a_stranger_has_none_to_write() {
    let ground = Ground::new();
    ground.repo.permit("maria", Role::Maintain);
    ground.repo.permit("tom", Role::Triage);
    ground.repo.push("main", &Change::new("x").by("passer-by").put("x", "1"));
    let client = ground.client();
    let of = |login: &str| now(client.permission(login)).unwrap();
    assert_eq!(
        [of("acme"), of("maria"), of("Maria")],
        [Permission::Admin, Permission::Write, Permission::Write]
    );
    assert_eq!(
        [of("tom"), of("passer-by"), of("nobody")],
        [Permission::Read, Permission::Read, Permission::None]
    );
}

#[test]
fn more_pages_than_we_read_is_an_error_and_never_a_shorter_list() {
    let ground = Ground::new();
    let endless = Transport::new(tower::service_fn(|_: Request<Bytes>| {
        let mut answer = Response::new(Bytes::from_static(b"[]"));
        let next = format!("<{API}/repositories/1/branches?page=2>; rel=\"next\"");
        answer.headers_mut().insert(LINK, next.parse().unwrap());
        std::future::ready(Ok::<_, Broken>(answer))
    }));
    let client = ground.client_through(endless, Credentials::Token(Secret::new("fake")));
    let error = now(client.branches()).unwrap_err();
    assert!(matches!(error, Error::TooManyPages { pages: MAX_PAGES, .. }), "{error}");
    assert_eq!(error.category(), Category::Permanent);
    assert_eq!(client.budget().total().sent, MAX_PAGES as u64);
}
