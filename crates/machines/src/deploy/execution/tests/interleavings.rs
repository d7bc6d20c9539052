//! Whatever people ask for, in whatever order, and wherever the process dies: items start in turn, once per job, and
//! nothing is left behind.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::deploy::execution::*;
use crate::deploy::testing::{Case, key};

/// `i0 i1<i0 …`: an item depends only on items with smaller numbers.
fn line(edges: &[(usize, usize)], size: usize) -> String {
    let mut before = vec![std::collections::BTreeSet::new(); size];
    for (a, b) in edges {
        let (a, b) = (a % size, b % size);
        if a != b {
            before[a.max(b)].insert(format!("i{}", a.min(b)));
        }
    }
    let word = |(at, others): (usize, &std::collections::BTreeSet<String>)| {
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        if others.is_empty() { format!("i{at}") } else { format!("i{at}<{}", others.join(",")) }
    };
    before.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

/// What an item said at some moment.
struct Seen {
    job: Value,
    done: bool,
    deleting: bool,
    depends_on: Vec<String>,
}

fn items_of(case: &Case) -> BTreeMap<String, Seen> {
    let items = case.cluster.world.list(&deploy_item::KIND, None);
    let seen = items.iter().map(|item| {
        let status = item.status();
        let depends_on = item.annotation(annotations::DEPENDS_ON).unwrap_or("[]");
        let seen = Seen {
            job: status["jobID"].clone(),
            done: status["phase"] == "Succeeded" && status["jobIDFinished"] == status["jobID"],
            deleting: item.is_deleting(),
            depends_on: serde_json::from_str(depends_on).unwrap(),
        };
        (item.label(labels::NAME).unwrap().to_owned(), seen)
    });
    seen.collect()
}

/// One look at one object, cut short after so many requests, and whether all that it triggered had its turn.
fn look(case: &mut Case, dice: usize) {
    let places: Vec<(usize, pawl_api::meta::Kind, Key)> = case
        .machines
        .iter()
        .enumerate()
        .filter_map(|(at, machine)| Some((at, machine.description().primary.kind()?.clone())))
        .flat_map(|(at, kind)| {
            let all = case.cluster.world.list(&kind, None);
            all.into_iter().map(move |object| (at, kind.clone(), object.key())).collect::<Vec<_>>()
        })
        .collect();
    let Some((machine, kind, at)) = places.get(dice % places.len().max(1)) else { return };
    let machine = case.machines[*machine].clone();
    let object = case.cluster.world.get(kind, at).unwrap();
    let before = items_of(case);
    let plan = case.cluster.plan(&machine, &object);
    case.cluster.apply(plan, object, 2 + dice / 7 % 9);
    for (name, now) in items_of(case) {
        let was = before.get(&name);
        if now.job.is_null() || was.is_some_and(|was| was.job == now.job) {
            continue;
        }
        // An interrupted item is given the job that it never ran, to say so.
        if case.item(&name).unwrap()["status"]["jobIDFinished"] == now.job {
            continue;
        }
        if now.deleting {
            let held = before.iter().find(|(_, other)| other.depends_on.contains(&name));
            assert!(held.is_none(), "{name} was taken down before {}", held.unwrap().0);
        } else {
            for other in &now.depends_on {
                let other_seen = &before[other];
                assert!(other_seen.done && other_seen.job == now.job, "{name} was started before {other}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn random_interleavings_of_install_change_interrupt_and_delete_keep_order_and_leave_nothing(
        first in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
        second in prop::collection::vec((0..6_usize, 0..6_usize), 0..12),
        acts in prop::collection::vec((0..24_u8, any::<u16>()), 40..160),
        failing in prop::collection::vec(0..8_usize, 0..2),
    ) {
        let configs: Vec<(String, Value)> =
            failing.iter().map(|at| (format!("i{at}"), json!({"failTimes": 1, "delay": "20s"}))).collect();
        let configs: Vec<(&str, Value)> = configs.iter().map(|(name, config)| (name.as_str(), config.clone())).collect();
        let (first, second) = (line(&first, 8), line(&second, 6));
        let mut case = Case::of(&first, &configs);
        let places = acts.len();
        for (at, (act, dice)) in acts.into_iter().enumerate() {
            let there = case.execution().is_some();
            match act {
                0 | 1 if there => _ = case.operation("reconcile"),
                2 if there => _ = case.set_items(&second, &configs),
                3 if there => _ = case.set_items(&first, &configs),
                4 if there => _ = case.operation("interrupt"),
                5 => case.cluster.advance(Duration::from_secs(21)),
                6 if there && at * 2 > places => case.cluster.delete(&KIND, &key("e"), "Background"),
                _ => look(&mut case, usize::from(dice)),
            }
        }
        if case.execution().is_some() {
            case.cluster.delete(&KIND, &key("e"), "Background");
        }
        // Well below the ten minutes after which an item has failed.
        for _ in 0..20 {
            case.settle();
            case.cluster.advance(Duration::from_secs(30));
            if case.execution().is_some_and(|found| found["status"]["phase"] == "DeleteFailed") {
                case.operation("reconcile");
            }
        }
        case.settle();
        prop_assert!(case.execution().is_none(), "{:#}", case.execution().unwrap()["status"]);
        prop_assert_eq!(case.phases(), "");
        prop_assert!(case.cluster.world.list(&SECRET, None).is_empty());
    }
}
