use super::*;
use crate::external::{self, Request};
use crate::git::testing::fake_github::sha;
use crate::object::Key;

fn account() -> Arc<Account> {
    let text = String::from;
    Arc::new(Account {
        uid: text("u"),
        api_url: text("https://api.github.com"),
        owner: text("acme"),
        name: text("infra"),
        secret: Key::new(Some("n"), "s"),
    })
}

fn comment(id: i64, author: &str, body: &str, second: i64) -> Comment {
    let updated_at = Timestamp::from_second(second).unwrap();
    Comment { id, number: 5, author: author.to_owned(), body: body.to_owned(), updated_at }
}

/// What comes of one comment on a fork's pull request at `sha("a")`, with these permissions.
fn check(body: &str, permission: Result<Permission, Category>, expect: &[(&str, &str)]) -> Outcome {
    let (account, head_sha) = (account(), sha("a"));
    let heads = BTreeMap::from([(5, Head { branch: "b", sha: &head_sha, is_fork: true })]);
    let comment = comment(7, "alice", body, 100);
    let mut answers = Answers::default();
    let first = obey(&account, &[&comment], &heads, &answers);
    for call in first.asks {
        let answer = match (&call.ask, permission) {
            (Ask::Permission { .. }, Ok(permission)) => Ok(Reply::Permission(permission)),
            (_, Err(category)) => Err(crate::git::testing::fake_github::failure(category, "HTTP500")),
            (_, Ok(_)) => Ok(Reply::Done),
        };
        answers.put(call.into(), answer.map(external::Reply::new::<Call>));
    }
    let outcome = obey(&account, &[&comment], &heads, &answers);
    let got: Vec<(String, String)> = outcome
        .annotations
        .values()
        .flatten()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    let expect: Vec<(String, String)> =
        expect.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    assert_eq!(got, expect, "{body}");
    outcome
}

#[test]
fn commands_are_lines_outside_quotes_and_code() {
    let body = "Looks good.\r\n/retest\r\n> /cancel\n  /cancel\n```\n/ok-to-test abc\n```\n/help me\n/retest\n/retests";
    assert_eq!(commands(body), [Command::Retest, Command::Help]);
    assert_eq!(commands("/ok-to-test"), [Command::OkToTest(None)]);
    assert_eq!(commands("/ok-to-test  abc  please"), [Command::OkToTest(Some("abc".to_owned()))]);
}

#[test]
fn ok_to_test_is_bound_to_the_whole_sha_of_the_head() {
    let whole = sha("a");
    let value = format!("{whole} by alice");
    check(&format!("/ok-to-test {whole}"), Ok(Permission::Write), &[("pawl.dev/ok-to-test", &value)]);
    check(&format!("/ok-to-test {whole}"), Ok(Permission::Admin), &[("pawl.dev/ok-to-test", &value)]);
    for body in [
        "/ok-to-test".to_owned(),
        format!("/ok-to-test {}", &whole[..10]),
        format!("/ok-to-test {}", sha("b")),
    ] {
        let outcome = check(&body, Ok(Permission::Write), &[]);
        assert!(outcome.asks.iter().any(Request::is_write), "{body} is answered: {outcome:?}");
    }
}

#[test]
fn who_may_not_write_commands_nothing() {
    let whole = sha("a");
    for body in [format!("/ok-to-test {whole}"), "/retest".to_owned(), "/cancel".to_owned()] {
        let outcome = check(&body, Ok(Permission::Read), &[]);
        assert!(outcome.told[0].contains("alice needs write permission"), "{outcome:?}");
        assert!(outcome.asks.is_empty() && !outcome.unheard);
        check(&body, Ok(Permission::None), &[]);
        check(&body, Err(Category::Permanent), &[]);
    }
}

#[test]
fn what_cannot_be_asked_for_now_keeps_the_cursor() {
    assert!(check("/retest", Err(Category::Transient), &[]).unheard);
}

#[test]
fn retest_and_cancel_say_who_and_which_comment() {
    let value = "7@1970-01-01T00:01:40Z by alice";
    check(
        "/retest\n/cancel",
        Ok(Permission::Write),
        &[("pawl.dev/cancel", value), ("pawl.dev/retest", value)],
    );
}

#[test]
fn the_cursor_reads_every_comment_once_even_within_one_second() {
    let mut status = RepositoryStatus {
        comment_cursor: Some(Time(Timestamp::from_second(100).unwrap())),
        ..Default::default()
    };
    let all = [comment(1, "a", "", 100), comment(2, "a", "", 100), comment(3, "a", "", 101)];
    let read = |status: &RepositoryStatus, upto: usize| -> Vec<i64> {
        unread(status, &all[..upto]).iter().map(|comment| comment.id).collect()
    };
    assert_eq!(read(&status, 1), [1]);
    let news = unread(&status, &all[..1]);
    advance(&mut status, &news);
    assert_eq!(read(&status, 2), [2]);
    let news = unread(&status, &all[..2]);
    advance(&mut status, &news);
    assert_eq!(read(&status, 3), [3]);
    let news = unread(&status, &all);
    advance(&mut status, &news);
    assert_eq!(read(&status, 3), Vec::<i64>::new());
    assert_eq!(status.comments_at_cursor, [3]);
}
