//! What holds on SQLite and on PostgreSQL alike.

use pawl_ledger::row::Hash;
use pawl_ledger::{Filter, Finding, Head, Record, Row, Store};

use crate::cluster::{Cluster, private};
use crate::world::{World, chain, moment, record, records};

/// Runs a check on SQLite, and on a PostgreSQL of its own.
macro_rules! on_both {
    ($($check:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $check() {
                checks::$check(World::sqlite()).await;
            }
        )*

        /// One server for all of them: starting one takes longer than they do.
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn all_of_it_holds_on_postgresql() {
            let Some(cluster) = Cluster::start() else { return };
            $(
                println!("{}", stringify!($check));
                checks::$check(World::postgres(&cluster, stringify!($check)).await).await;
            )*
        }
    };
}

on_both!(
    a_row_is_stored_once_however_often_it_is_appended,
    every_filter_finds_its_rows_and_pages_neither_repeat_nor_skip,
    the_database_itself_refuses_to_change_or_remove_rows,
    a_changed_row_is_found,
    a_removed_row_is_found,
    reordered_rows_are_found,
    an_inserted_row_is_found,
    a_cut_off_end_is_found,
    a_chain_rewritten_as_a_whole_is_found_by_an_anchor_alone,
    writers_at_the_same_time_make_one_chain,
    a_verification_is_not_disturbed_by_appending,
    texts_of_all_kinds_come_back_as_they_were,
    a_ledger_that_is_newer_than_the_program_is_refused,
);

mod checks {
    use super::*;

    pub(super) async fn a_row_is_stored_once_however_often_it_is_appended(world: World) {
        let store = world.open().await;
        assert_eq!(store.head().await.unwrap(), Head::default());
        let first = store.append(records(0..10)).await.unwrap();
        assert_eq!((first.stored, first.head.seq), (10, 10));
        // Half known, and one of the new ones twice.
        let mut again = records(5..15);
        again.push(record(14));
        let second = store.append(again).await.unwrap();
        assert_eq!((second.stored, second.head.seq), (5, 15));
        let third = store.append(records(0..15)).await.unwrap();
        assert_eq!((third.stored, third.head), (0, second.head));
        let rows = chain(&store).await;
        assert_eq!(rows.iter().map(|row| row.record.clone()).collect::<Vec<_>>(), records(0..15));
        let verdict = store.verify(&[first.head, second.head]).await.unwrap();
        assert!(verdict.is_sound() && verdict.rows == 15 && verdict.head == second.head, "{verdict:?}");
        // Opening it again finds it as it was.
        assert_eq!(world.open().await.append(vec![record(15)]).await.unwrap().head.seq, 16);
    }

    pub(super) async fn every_filter_finds_its_rows_and_pages_neither_repeat_nor_skip(world: World) {
        let store = world.open().await;
        // Many at the same moment: the place in the chain decides then.
        let all: Vec<Record> = records(0..200)
            .into_iter()
            .map(|it| Record { at: it.at / 10_000_000 * 10_000_000, ..it })
            .collect();
        store.append(all.clone()).await.unwrap();
        let text = |text: &str| Some(text.to_owned());
        let none = Filter::default;
        type Matches = fn(&Record) -> bool;
        let cases: Vec<(Filter, Matches)> = vec![
            (none(), |_| true),
            (Filter { target: text("prod/deployment/web-2"), ..none() }, |it| it.target.ends_with("web-2")),
            (Filter { actor: text("controller:branch"), ..none() }, |it| it.actor.ends_with("branch")),
            (Filter { kind: text("Branch"), ..none() }, |it| it.kind == "Branch"),
            (Filter { kind: text("Branch"), name: text("object-3"), ..none() }, |it| it.name == "object-3"),
            (Filter { namespace: text("elsewhere"), ..none() }, |_| false),
            (Filter { correlation: text("root-1"), ..none() }, |it| it.correlation == "root-1"),
            (Filter { since: Some(moment(50)), until: Some(moment(100)), ..none() }, |it| {
                (record(50).at..record(100).at).contains(&it.at)
            }),
            (Filter { target: text(""), ..none() }, |_| false),
        ];
        for (filter, matches) in cases {
            let mut wanted: Vec<(usize, Record)> =
                all.iter().cloned().enumerate().filter(|(_, it)| matches(it)).collect();
            wanted.sort_by_key(|(place, it)| std::cmp::Reverse((it.at, *place)));
            let wanted: Vec<Record> = wanted.into_iter().map(|(_, it)| it).collect();
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = store.query(&filter, after, 7).await.unwrap();
                assert!(page.rows.len() <= 7);
                found.extend(page.rows.into_iter().map(|row| row.record));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, wanted, "{filter:?}");
        }
    }

    pub(super) async fn the_database_itself_refuses_to_change_or_remove_rows(world: World) {
        let store = world.open().await;
        store.append(records(0..3)).await.unwrap();
        for sql in [
            "UPDATE audit_log SET actor = 'nobody'",
            "DELETE FROM audit_log WHERE seq = 2",
            "UPDATE audit_head SET seq = 1",
            "DELETE FROM audit_head",
        ] {
            let refused = world.execute(sql).await.unwrap_err();
            assert!(refused.contains("append-only") || refused.contains("forward"), "{sql}: {refused}");
        }
        if matches!(world, World::Postgres(..)) {
            world.execute("TRUNCATE audit_log").await.unwrap_err();
        }
        assert!(store.verify(&[]).await.unwrap().is_sound());
    }

    pub(super) async fn a_changed_row_is_found(world: World) {
        let store = world.open().await;
        store.append(records(0..20)).await.unwrap();
        world.tamper("UPDATE audit_log SET outcome = 'failure' WHERE seq = 7").await;
        assert_eq!(findings(&store).await, [Finding::Changed { seq: 7 }]);
        // Whoever computes the row's hash anew breaks the link to the next one.
        let mut row = chain(&store).await.remove(6);
        row.hash = row.computed();
        world.tamper(&format!("UPDATE audit_log SET hash = {} WHERE seq = 7", world.bytes(&row.hash))).await;
        assert_eq!(findings(&store).await, [Finding::Unlinked { seq: 8 }]);
        world.tamper(&format!("UPDATE audit_log SET hash = {} WHERE seq = 3", world.bytes(b"short"))).await;
        let found = findings(&store).await;
        assert!(
            matches!(found.as_slice(), [Finding::Unreadable { seq: 3, .. }, Finding::Unlinked { seq: 8 }]),
            "{found:?}"
        );
    }

    pub(super) async fn a_removed_row_is_found(world: World) {
        let store = world.open().await;
        store.append(records(0..20)).await.unwrap();
        world.tamper("DELETE FROM audit_log WHERE seq = 1 OR seq BETWEEN 9 AND 11").await;
        assert_eq!(
            findings(&store).await,
            [Finding::Missing { from: 1, to: 1 }, Finding::Missing { from: 9, to: 11 }]
        );
        // Closing the gap by renumbering does not help: the number is hashed too.
        world.tamper("DELETE FROM audit_log WHERE seq < 12; UPDATE audit_log SET seq = seq - 100; UPDATE audit_log SET seq = seq + 89").await;
        let found = findings(&store).await;
        assert_eq!(found.first(), Some(&Finding::Changed { seq: 1 }), "{found:?}");
    }

    pub(super) async fn reordered_rows_are_found(world: World) {
        let store = world.open().await;
        store.append(records(0..20)).await.unwrap();
        let swap = "UPDATE audit_log SET seq = -1 WHERE seq = 4; UPDATE audit_log SET seq = 4 WHERE seq = 5; \
            UPDATE audit_log SET seq = 5 WHERE seq = -1";
        world.tamper(swap).await;
        let found = findings(&store).await;
        assert!(
            found.contains(&Finding::Changed { seq: 4 }) && found.contains(&Finding::Changed { seq: 5 }),
            "{found:?}"
        );
    }

    pub(super) async fn an_inserted_row_is_found(world: World) {
        let store = world.open().await;
        let head = store.append(records(0..5)).await.unwrap().head;
        // At the end, with all the right hashes.
        insert(&world, &record(90).after(&head)).await;
        assert_eq!(findings(&store).await, [Finding::Beyond { from: 6, to: 6 }]);
        // In the middle, in the place of another.
        let rows = chain(&store).await;
        world.tamper("DELETE FROM audit_log WHERE seq = 3 OR seq = 6").await;
        insert(&world, &record(91).after(&rows[1].head())).await;
        assert_eq!(findings(&store).await, [Finding::Unlinked { seq: 4 }]);
    }

    pub(super) async fn a_cut_off_end_is_found(world: World) {
        let store = world.open().await;
        store.append(records(0..20)).await.unwrap();
        world.tamper("DELETE FROM audit_log WHERE seq > 15").await;
        assert_eq!(findings(&store).await, [Finding::CutOff { from: 16, to: 20 }]);
        world.tamper("DELETE FROM audit_head").await;
        assert_eq!(findings(&store).await, [Finding::NoHead]);
    }

    pub(super) async fn a_chain_rewritten_as_a_whole_is_found_by_an_anchor_alone(world: World) {
        let store = world.open().await;
        let anchor = store.append(records(0..10)).await.unwrap().head;
        world.tamper("DELETE FROM audit_log; DELETE FROM audit_head").await;
        let forged = records(0..10).into_iter().filter(|record| record.id != super::record(4).id).collect();
        store.append(forged).await.unwrap();
        assert!(
            store.verify(&[]).await.unwrap().is_sound(),
            "what this cannot find is said in the documentation"
        );
        let found = store.verify(&[anchor]).await.unwrap().findings;
        assert_eq!(found, [Finding::OffAnchor { seq: 10 }]);
        store.append(records(10..20)).await.unwrap();
        assert_eq!(store.verify(&[anchor]).await.unwrap().findings, [Finding::OffAnchor { seq: 10 }]);
    }

    pub(super) async fn writers_at_the_same_time_make_one_chain(world: World) {
        let stores = [world.open().await, world.open().await, world.open().await];
        // Each has rows of its own, and all of them have some in common.
        let writers = (0_u32..).zip(stores.clone()).map(|(writer, store)| {
            tokio::spawn(async move {
                for batch in 0..10 {
                    let own = 1_000 * (writer + 1) + batch * 10;
                    let rows = records(own..own + 8).into_iter().chain(records(batch * 2..batch * 2 + 2));
                    store.append(rows.collect()).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let verdict = stores[0].verify(&[]).await.unwrap();
        assert!(verdict.is_sound() && verdict.rows == 3 * 80 + 20, "{verdict:?}");
    }

    pub(super) async fn a_verification_is_not_disturbed_by_appending(world: World) {
        let store = world.open().await;
        store.append(records(0..3_000)).await.unwrap();
        let other = world.open().await;
        let appending = tokio::spawn(async move {
            for n in 0..20_u32 {
                other.append(records(10_000 + n * 10..10_010 + n * 10)).await.unwrap();
            }
        });
        for _ in 0..5 {
            let verdict = store.verify(&[]).await.unwrap();
            assert!(verdict.is_sound() && verdict.rows >= 3_000, "{verdict:?}");
        }
        appending.await.unwrap();
    }

    pub(super) async fn texts_of_all_kinds_come_back_as_they_were(world: World) {
        let store = world.open().await;
        let odd =
            ["", "'; DROP TABLE audit_log; --", "a\nb\tc\u{1}", "🦀 ↯ é", r"\x00 $1 %s", &"x".repeat(2_000)];
        let rows: Vec<Record> = (0_u32..)
            .zip(odd)
            .map(|(n, text)| Record {
                target: text.to_owned(),
                payload: format!("{text:?}"),
                at: -i64::from(n),
                ..record(n)
            })
            .collect();
        store.append(rows.clone()).await.unwrap();
        let mut found: Vec<Record> = chain(&store).await.into_iter().map(|row| row.record).collect();
        found.sort_by_key(|record| std::cmp::Reverse(record.at));
        assert_eq!(found, rows);
        assert!(store.verify(&[]).await.unwrap().is_sound());
    }

    pub(super) async fn a_ledger_that_is_newer_than_the_program_is_refused(world: World) {
        drop(world.open().await);
        world.execute("INSERT INTO audit_migrations (version, at) VALUES (99, 0)").await.unwrap();
        let error =
            Store::open(&world.place(), pawl_ledger::store::Access::Write).await.unwrap_err().to_string();
        assert!(error.contains("99") && error.contains("newer"), "{error}");
    }
}

#[tokio::test]
async fn a_ledger_that_is_read_is_neither_made_nor_changed() {
    let world = World::sqlite();
    assert!(Store::open(&world.place(), pawl_ledger::store::Access::Read).await.is_err());
    let store = world.open().await;
    store.append(records(0..3)).await.unwrap();
    // While somebody writes.
    let reader = Store::open(&world.place(), pawl_ledger::store::Access::Read).await.unwrap();
    assert_eq!(chain(&reader).await.len(), 3);
    assert!(reader.append(records(3..4)).await.is_err());
    store.append(records(3..4)).await.unwrap();
    assert_eq!(chain(&reader).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_is_reached_over_tls_and_its_certificate_is_checked() {
    let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut root = std::path::PathBuf::new();
    let cluster = Cluster::start_with(|directory| {
        root = directory.join("server.crt");
        private(&root, &authority.cert.pem());
        private(&directory.join("server.key"), &authority.signing_key.serialize_pem());
        let files = [("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key")];
        let files = files.map(|(setting, file)| format!("{setting}={}", directory.join(file).display()));
        let mut settings =
            vec!["ssl=on".to_owned(), format!("port={port}"), "listen_addresses=127.0.0.1".to_owned()];
        settings.extend(files);
        settings
    });
    let Some(_cluster) = cluster else { return };
    let at =
        |options: &str| format!("postgres://pawl@localhost:{port}/postgres?hostaddr=127.0.0.1&{options}");
    let open = async |options: &str| {
        let place = pawl_ledger::Place::parse(&at(options)).unwrap();
        Store::open(&place, pawl_ledger::store::Access::Write).await
    };
    let trusting = format!("sslmode=verify-full&sslrootcert={}", root.display());
    let store = open(&trusting).await.unwrap();
    store.append(records(0..3)).await.unwrap();
    assert!(store.verify(&[]).await.unwrap().is_sound());
    let error = open("sslmode=require").await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
}

async fn findings(store: &Store) -> Vec<Finding> {
    store.verify(&[]).await.unwrap().findings
}

async fn insert(world: &World, row: &Row) {
    let Row { seq, record, previous, hash } = row;
    let Record { id, at, actor, kind, namespace, name, uid, target, event, outcome, correlation, payload } =
        record;
    let hash_of = |hash: &Hash| world.bytes(hash);
    world
        .tamper(&format!(
            "INSERT INTO audit_log VALUES ({seq}, {}, {at}, '{actor}', '{kind}', '{namespace}', '{name}', '{uid}', \
             '{target}', '{event}', '{outcome}', '{correlation}', '{payload}', {}, {})",
            world.bytes(id.as_bytes()),
            hash_of(previous),
            hash_of(hash),
        ))
        .await;
}
