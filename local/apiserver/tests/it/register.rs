//! Is one object under compare-and-swap a register that 64 clients cannot tell from one that does one thing at a time?
//!
//! Every success says which version it replaced, and every version has one author, so the order of writes is not to be
//! searched for: it is a chain. What remains is whether every read, refusal and real-time order fits the chain.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use pawl_apiserver::{Access, Options, RealEnv, Server, SigningKey};
use serde_json::json;

use crate::TOKEN;
use crate::wire::{Wire, listening, revision};

const CLIENTS: u64 = 64;
const TRIES: u64 = 12;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// One request and its answer, with when it was sent and when it was answered.
#[derive(Debug, Clone)]
struct Operation {
    sent: u64,
    answered: u64,
    did: Did,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Did {
    /// It was seen at a version, with a value.
    Read { version: u64, value: String },
    /// A value took the place of a version, under a new one.
    Swapped { from: u64, to: u64, value: String },
    /// Refused: the version was no longer the current one.
    Refused { from: u64 },
}

/// Whether the operations could have happened one at a time, each at some moment between being sent and being answered.
/// The register begins as `first`.
fn linearizable(first: (u64, &str), operations: &[Operation]) -> Result<(), String> {
    let chain = chain(first, operations)?;
    // Where in the chain each operation must stand: a write at its own place, a read at the write it saw.
    let mut placed = Vec::new();
    for operation in operations {
        match &operation.did {
            Did::Read { version, value } => match chain.get(version) {
                Some(link) if link.value == *value => placed.push((operation, link.place, false)),
                Some(_) => return Err(format!("another value was read: {operation:?}")),
                None => return Err(format!("nobody wrote what was read: {operation:?}")),
            },
            Did::Swapped { to, .. } => placed.push((operation, chain[to].place, true)),
            Did::Refused { from } => {
                let link =
                    chain.get(from).ok_or_else(|| format!("nobody wrote that version: {operation:?}"))?;
                // The version was current until the next write, which cannot have happened before it was sent.
                if link.replaced.is_none_or(|sent| sent > operation.answered) {
                    return Err(format!("refused, though nothing had changed: {operation:?}"));
                }
            }
        }
    }
    // Whatever was answered before an operation was sent stands before it.
    let mut by_answer = placed.clone();
    by_answer.sort_by_key(|(operation, ..)| operation.answered);
    placed.sort_by_key(|(operation, ..)| operation.sent);
    let mut before = by_answer.iter().peekable();
    let mut highest: Option<usize> = None;
    for (operation, place, writes) in placed {
        while let Some((_, place, _)) = before.next_if(|(other, ..)| other.answered < operation.sent) {
            highest = highest.max(Some(*place));
        }
        if highest.is_some_and(|highest| highest > place || (writes && highest == place)) {
            return Err(format!("something later was answered before it was sent: {operation:?}"));
        }
    }
    Ok(())
}

struct Link {
    place: usize,
    value: String,
    /// When the write that replaced it was sent.
    replaced: Option<u64>,
}

/// The writes in their order, by version.
fn chain(first: (u64, &str), operations: &[Operation]) -> Result<HashMap<u64, Link>, String> {
    let mut writes: Vec<(u64, u64, &str, u64)> = operations
        .iter()
        .filter_map(|operation| match &operation.did {
            Did::Swapped { from, to, value } => Some((*to, *from, value.as_str(), operation.sent)),
            Did::Read { .. } | Did::Refused { .. } => None,
        })
        .collect();
    writes.sort_unstable();
    let mut chain = HashMap::from([(first.0, Link { place: 0, value: first.1.to_owned(), replaced: None })]);
    let mut last = first.0;
    for (at, (to, from, value, sent)) in writes.into_iter().enumerate() {
        if from != last {
            return Err(format!("{to} took the place of {from}, but the current version was {last}"));
        }
        if to <= from {
            return Err(format!("{to} follows {from}"));
        }
        if let Some(link) = chain.get_mut(&from) {
            link.replaced = Some(sent);
        }
        chain.insert(to, Link { place: at + 1, value: value.to_owned(), replaced: None });
        last = to;
    }
    Ok(chain)
}

async fn client(address: SocketAddr, id: u64, start: Instant) -> Vec<Operation> {
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap();
    let mut wire = Wire::open(address).await.unwrap();
    let mut operations = Vec::new();
    let path = format!("{MAPS}/register");
    for attempt in 0..TRIES {
        let sent = now();
        let (code, read) = wire.ask("GET", &path, None).await.unwrap();
        assert_eq!(code, 200, "{read}");
        let (from, value) = (revision(&read), read["data"]["value"].as_str().unwrap().to_owned());
        operations.push(Operation { sent, answered: now(), did: Did::Read { version: from, value } });
        let value = format!("{id}/{attempt}");
        let mut next = read;
        next["data"]["value"] = value.clone().into();
        let sent = now();
        let (code, answer) = wire.ask("PUT", &path, Some(("application/json", &next))).await.unwrap();
        let did = match code {
            200 => Did::Swapped { from, to: revision(&answer), value },
            409 => Did::Refused { from },
            _ => panic!("{answer}"),
        };
        operations.push(Operation { sent, answered: now(), did });
    }
    operations
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compare_and_swap_from_64_clients_is_linearizable() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let access = Access { admin_token: TOKEN.to_owned(), signing_key: SigningKey::from_pem(&key).unwrap() };
    let server = Server::open(dir.path(), Arc::new(RealEnv), Options::default()).unwrap().with_access(access);
    let address = listening(server).await;
    let register = json!({"metadata": {"name": "register"}, "data": {"value": "first"}});
    let mut wire = Wire::open(address).await.unwrap();
    let (_, made) = wire.ask("POST", MAPS, Some(("application/json", &register))).await.unwrap();
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS).map(|id| tokio::spawn(client(address, id, start))).collect();
    let mut operations = Vec::new();
    for client in clients {
        operations.extend(client.await.unwrap());
    }
    linearizable((revision(&made), "first"), &operations).unwrap();
    let count = |want: fn(&Did) -> bool| operations.iter().filter(|o| want(&o.did)).count() as u64;
    let (swaps, refusals) =
        (count(|d| matches!(d, Did::Swapped { .. })), count(|d| matches!(d, Did::Refused { .. })));
    assert_eq!(swaps + refusals, CLIENTS * TRIES);
    assert!(swaps >= TRIES && refusals >= CLIENTS, "{swaps} swaps, {refusals} refusals: they did not meet");
}

fn operation(sent: u64, answered: u64, did: Did) -> Operation {
    Operation { sent, answered, did }
}

fn swapped(from: u64, to: u64) -> Did {
    Did::Swapped { from, to, value: to.to_string() }
}

fn read(version: u64) -> Did {
    Did::Read { version, value: version.to_string() }
}

#[test]
fn the_checker_takes_what_overlaps_and_fits() {
    let good = [
        operation(0, 10, swapped(1, 2)),
        operation(5, 8, read(1)),
        operation(6, 20, Did::Refused { from: 1 }),
        operation(5, 7, read(2)),
        operation(11, 30, swapped(2, 5)),
        operation(12, 14, read(2)),
    ];
    assert_eq!(linearizable((1, "1"), &good), Ok(()));
}

#[test]
fn the_checker_refuses_histories_that_no_register_has() {
    let written = operation(0, 10, swapped(1, 2));
    let bad: [(&str, Vec<Operation>); 8] = [
        ("two take the place of one", vec![written.clone(), operation(0, 10, swapped(1, 3))]),
        ("a version goes back", vec![operation(0, 10, swapped(1, 1))]),
        ("a stale read", vec![written.clone(), operation(11, 12, read(1))]),
        ("a read from the future", vec![operation(20, 30, swapped(1, 2)), operation(5, 6, read(2))]),
        ("a read of nothing", vec![written.clone(), operation(0, 12, read(7))]),
        (
            "a wrong value",
            vec![written.clone(), operation(0, 12, Did::Read { version: 2, value: "other".into() })],
        ),
        ("a refusal for nothing", vec![written.clone(), operation(11, 12, Did::Refused { from: 2 })]),
        ("writes against the clock", vec![operation(20, 30, swapped(1, 2)), operation(0, 10, swapped(2, 3))]),
    ];
    for (what, history) in bad {
        assert!(linearizable((1, "1"), &history).is_err(), "{what}");
    }
}
