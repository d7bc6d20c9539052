mod failing;

use serde_json::json;

use super::*;

pub(super) fn draft(name: &str, data: &str) -> Draft {
    let ids = Ids {
        group: "".into(),
        version: "v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
        namespaced: true,
    };
    let value = json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "data": data});
    Draft::new(Arc::new(ids), &value, Vec::new())
}

pub(super) fn table() -> Arc<str> {
    "things".into()
}

fn put(store: &Store, name: &str, data: &str) -> u64 {
    let expect = match store.head(&table(), &key("n", name)) {
        None => Expect::Absent,
        Some(head) => Expect::Revision(head.revision),
    };
    store.put(&table(), expect, draft(name, data)).unwrap().revision
}

/// A journal that never publishes by itself: the test says when.
#[derive(Debug)]
struct Held;

impl Journal for Held {
    fn append(&self, _: &Event) {}
}

fn held() -> Store {
    let shared = Arc::new(Shared::new(Limits::default()));
    Store { shared, journal: Some(Box::new(Held)) }
}

#[test]
fn a_write_is_invisible_until_it_is_durable_but_the_next_writer_sees_it() {
    let store = held();
    let first = put(&store, "a", "1");
    assert!(store.get("things", "n/a").is_none());
    assert_eq!((store.revision(), store.head_revision()), (0, 1));
    let again = store.put(&table(), Expect::Absent, draft("a", "2"));
    assert!(matches!(again, Err(CommitError::Raced(_))));
    let second = put(&store, "a", "2");
    assert!(!store.head_is_empty(&table()));
    store.shared.publish_through(first);
    assert_eq!(store.get("things", "n/a").unwrap().value()["data"], "1");
    assert_eq!(store.head(&table(), "n/a").unwrap().value()["data"], "2");
    store.wait(first).unwrap();
    store.shared.publish_through(second);
    assert_eq!(store.get("things", "n/a").unwrap().value()["data"], "2");
    assert!(store.shared.writer().overlay.is_empty());
}

#[test]
fn a_pending_deletion_empties_the_head_alone() {
    let store = held();
    let at = put(&store, "a", "1");
    store.shared.publish_through(at);
    store.delete(&table(), "n/a", at, None).unwrap();
    assert!(store.head_is_empty(&table()));
    assert!(store.head(&table(), "n/a").is_none());
    assert!(store.get("things", "n/a").is_some());
}

#[tokio::test]
async fn a_failed_journal_fails_who_waits_and_refuses_who_comes() {
    let store = held();
    let at = put(&store, "a", "1");
    store.shared.fail(JournalFailed("disk full".into()));
    assert!(store.wait(at).is_err());
    assert!(store.wait_async(at).await.is_err());
    let refused = store.put(&table(), Expect::Absent, draft("b", "1"));
    assert!(matches!(refused, Err(CommitError::Failed(_))));
    assert!(store.get("things", "n/a").is_none());
}

#[test]
fn a_stale_writer_loses() {
    let store = Store::in_memory(Limits::default());
    let first = put(&store, "a", "1");
    put(&store, "a", "2");
    let stale = store.put(&table(), Expect::Revision(first), draft("a", "3"));
    assert!(matches!(stale, Err(CommitError::Raced(_))));
    let stale = store.delete(&table(), "n/a", first, None);
    assert!(matches!(stale, Err(CommitError::Raced(_))));
}

#[test]
fn history_is_bounded_and_says_so() {
    let store = Store::in_memory(Limits { log_events: 3, log_bytes: usize::MAX });
    for at in 0..10 {
        put(&store, "a", &at.to_string());
    }
    assert_eq!(store.changes(7).unwrap().len(), 3);
    assert_eq!(store.changes(6).unwrap_err(), Compacted { asked: 6, oldest: 7 });
    assert!(store.events("things", 6, 10).is_err());
    assert!(store.list_at("things", "", 6).is_err());
    assert_eq!(store.list_at("things", "", 8).unwrap().objects[0].value()["data"], "7");
    let small = Store::in_memory(Limits { log_events: 100, log_bytes: 1 });
    put(&small, "a", "1");
    assert!(small.changes(0).is_err());
}

#[test]
fn a_page_holds_what_is_in_its_namespace_and_counts_what_follows() {
    let store = Store::in_memory(Limits::default());
    for name in ["a", "b", "c", "d"] {
        put(&store, name, "1");
    }
    let page = |prefix: &str, after: &str| {
        let (snapshot, following) = store.page("things", prefix, after, 2, None, None).unwrap();
        let names = snapshot.objects.iter().map(|o| o.name().to_owned()).collect::<String>();
        (names, following)
    };
    assert_eq!(page("n/", ""), ("ab".to_owned(), 2));
    assert_eq!(page("", "n/b"), ("cd".to_owned(), 0));
    assert_eq!(page("n/", "n/c"), ("d".to_owned(), 0));
    let told = |after, known| store.page("things", "n/", after, 1, None, Some(known)).unwrap().1;
    assert_eq!((told("n/a", 3), told("n/c", 3)), (2, 0), "what is known is not counted");
    assert_eq!((told("n/a", 0), told("n/a", usize::MAX)), (1, usize::MAX - 1), "nor does it matter");
    for (prefix, after) in [("n/", "o/a"), ("n/", "n0"), ("m/", ""), ("m/", "n/a"), ("n.x/", "")] {
        assert_eq!(page(prefix, after), (String::new(), 0), "{prefix} after {after}");
    }
}

#[test]
fn a_list_in_the_past_undoes_what_came_after() {
    let store = Store::in_memory(Limits::default());
    put(&store, "a", "1");
    let b = put(&store, "b", "1");
    put(&store, "a", "2");
    store.delete(&table(), "n/b", b, None).unwrap();
    put(&store, "c", "1");
    let then = store.list_at("things", "n/", b).unwrap();
    let told: Vec<_> =
        then.objects.iter().map(|o| (o.name().to_owned(), o.value()["data"].clone())).collect();
    assert_eq!(told, [("a".to_owned(), json!("1")), ("b".to_owned(), json!("1"))]);
    assert_eq!(store.list("things", "n/").objects.len(), 2);
    assert_eq!(store.list("things", "other/").objects.len(), 0);
    assert_eq!(store.list("things", "m/").objects.len(), 0);
}
