//! Does a client that asks too much, or takes too long, lose its own place and nobody else's?

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pawl_apiserver::{Bounds, Limits, SeededEnv, Server, serve_within};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::wire::Wire;
use crate::{TOKEN, guarded, let_in, post};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What a client has for everything here; what is not cut off within many times that, never is.
const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(10);

async fn bounded(server: Server) -> SocketAddr {
    let short = Bounds { head: SHORT, body: SHORT, stall: SHORT, watches_per_client: 3, ..Bounds::default() };
    within(short, server).await
}

async fn within(bounds: Bounds, server: Server) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_within(bounds, listener, server, None, std::future::pending()));
    address
}

/// A request's head, with whatever headers.
fn head(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n{more}\r\n")
}

/// Everything until the other end closes, and how long that took.
async fn rest(stream: &mut TcpStream) -> (String, Duration) {
    let began = Instant::now();
    let mut answer = Vec::new();
    // A connection may also be reset: what came before counts.
    tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await.expect("it is cut off").ok();
    (String::from_utf8_lossy(&answer).into_owned(), began.elapsed())
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

#[tokio::test]
async fn a_body_over_three_mebibytes_is_refused_with_a_status() {
    let address = bounded(guarded()).await;
    for size in [(3 << 20) + 1, 9 << 20] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length =
            format!("content-type: application/json\r\ncontent-length: {size}\r\nconnection: close\r\n");
        stream.write_all(head("POST", MAPS, &length).as_bytes()).await.unwrap();
        // It is sent whole before anything is read, as most clients do.
        stream.write_all(&vec![b' '; size]).await.unwrap();
        let (answer, _) = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        let status = body(&answer);
        assert_eq!(status["reason"], "RequestEntityTooLarge");
        assert_eq!(status["message"], "Request entity too large: limit is 3145728");
    }
    // At the limit it is read.
    let mut wire = Wire::open(address).await.unwrap();
    let name = json!({"metadata": {"name": "x"}, "data": {"k": "x".repeat(3_145_000)}});
    let (code, status) = wire.ask("POST", MAPS, Some(("application/json", &name))).await.unwrap();
    assert_eq!(
        (code, &status["reason"]),
        (422, &json!("Invalid")),
        "read, and then too much for a ConfigMap"
    );
}

#[tokio::test]
async fn a_document_nested_too_deep_is_refused_and_says_how_deep_is_too_deep() {
    let mut wire = Wire::open(bounded(guarded()).await).await.unwrap();
    let mut deep = json!("x");
    for _ in 0..130 {
        deep = json!([deep]);
    }
    let (code, status) = wire.ask("POST", MAPS, Some(("application/json", &deep))).await.unwrap();
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    assert!(status["message"].as_str().unwrap().contains("128 levels"), "{status}");
}

#[tokio::test]
async fn a_client_with_too_many_watches_is_told_so_and_may_come_again() {
    let address = bounded(guarded()).await;
    let path = format!("{MAPS}?watch=1");
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(Wire::open(address).await.unwrap().watch(&path).await.unwrap());
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head("GET", &path, "connection: close\r\n").as_bytes()).await.unwrap();
    let (answer, _) = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("\r\nretry-after: 5\r\n"), "{answer}");
    let status = body(&answer);
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(status["details"], json!({"retryAfterSeconds": 5}));
    assert!(status["message"].as_str().unwrap().contains("one client may have 3"), "{status}");
    let (code, _) = Wire::open(address).await.unwrap().ask("GET", MAPS, None).await.unwrap();
    assert_eq!(code, 200, "watches alone are counted");
    drop(open.pop());
    let until = Instant::now() + LONG;
    loop {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head("GET", &path, "").as_bytes()).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        if first == *b"HTTP/1.1 200" {
            break;
        }
        assert!(Instant::now() < until, "a closed watch makes room");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let address = bounded(guarded()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (answer, took) = rest(&mut stream).await;
    assert_eq!(answer, "");
    assert!(took >= SHORT, "{took:?}");
    // Nor may one say a little after each answer.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head("GET", "/healthz", "").as_bytes()).await.unwrap();
    let (answer, took) = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(took >= SHORT, "{took:?}");
}

#[tokio::test]
async fn a_client_that_sends_byte_by_byte_is_cut_off() {
    let address = bounded(guarded()).await;
    for (said, drips) in [
        (String::new(), "GET /healthz HTTP/1.1\r\nhost: a-name-that-takes-its-time-to-be-said-in-full\r\n"),
        (
            head("POST", MAPS, "content-length: 1000\r\n"),
            "{\"metadata\":                                          ",
        ),
    ] {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        writing.write_all(said.as_bytes()).await.unwrap();
        let began = Instant::now();
        let dripping = tokio::spawn(async move {
            for byte in drips.bytes().cycle() {
                if writing.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(SHORT / 20).await;
            }
        });
        let mut answer = Vec::new();
        tokio::time::timeout(LONG, reading.read_to_end(&mut answer)).await.expect("it is cut off").ok();
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
        let answer = String::from_utf8_lossy(&answer);
        assert!(said.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
        dripping.abort();
    }
}

/// A connection that can hold little on its way.
async fn narrow(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(address).await.unwrap()
}

fn with_big_objects(count: usize) -> Server {
    let server = guarded();
    for at in 0..count {
        let map = json!({"metadata": {"name": format!("big-{at}")}, "data": {"k": "x".repeat(1 << 20)}});
        assert_eq!(post(&server, MAPS, &map).0, 201);
    }
    server
}

#[tokio::test]
async fn a_reader_that_stalls_in_the_middle_of_a_list_is_cut_off() {
    let address = bounded(with_big_objects(10)).await;
    let mut stream = narrow(address).await;
    stream.write_all(head("GET", MAPS, "").as_bytes()).await.unwrap();
    let mut start = [0; 1_000];
    stream.read_exact(&mut start).await.unwrap();
    tokio::time::sleep(SHORT * 4).await;
    let (answer, _) = rest(&mut stream).await;
    assert!(answer.len() < 10 << 20, "{} bytes came: the list was not cut off", answer.len());
    // One that is slow all the time, but reads, gets everything.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head("GET", MAPS, "connection: close\r\n").as_bytes()).await.unwrap();
    let mut read = 0;
    let mut piece = vec![0; 256 << 10];
    let began = Instant::now();
    loop {
        match stream.read(&mut piece).await.unwrap() {
            0 => break,
            more => read += more,
        }
        tokio::time::sleep(SHORT / 20).await;
    }
    assert!(read > 10 << 20, "{read} bytes");
    assert!(began.elapsed() > SHORT, "it took longer than anyone may be silent");
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off_and_the_others_see_everything() {
    let server = guarded();
    let address = bounded(server.clone()).await;
    let path = format!("{MAPS}?watch=1");
    let mut lazy = narrow(address).await;
    lazy.write_all(head("GET", &path, "").as_bytes()).await.unwrap();
    let mut first = [0; 12];
    lazy.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut eager = Wire::open(address).await.unwrap().watch(&path).await.unwrap();
    // Far more than what the machine holds for a connection.
    let writing = tokio::task::spawn_blocking(move || {
        for at in 0..10 {
            let map = json!({"metadata": {"name": format!("big-{at}")}, "data": {"k": "x".repeat(1 << 20)}});
            assert_eq!(post(&server, MAPS, &map).0, 201);
        }
    });
    for at in 0..10 {
        let event = tokio::time::timeout(LONG, eager.next()).await.unwrap().unwrap();
        assert_eq!(event["object"]["metadata"]["name"], format!("big-{at}"));
    }
    writing.await.unwrap();
    tokio::time::sleep(SHORT * 4).await;
    let (answer, _) = rest(&mut lazy).await;
    assert!(answer.len() < 10 << 20, "{} bytes came: it was not cut off", answer.len());
    // A quiet watch that reads stays open for much longer than any of these limits.
    assert!(
        tokio::time::timeout(SHORT * 4, eager.next()).await.is_err(),
        "nothing happens, and nobody hangs up"
    );
}

#[tokio::test]
async fn headers_without_end_are_refused_and_hold_no_memory() {
    let address = bounded(guarded()).await;
    // One header that is too long, too many headers, and a path that is too long.
    let long = format!("x-long: {}\r\n", "y".repeat(300 << 10));
    let many: String = (0..200).map(|at| format!("x-{at}: y\r\n")).collect();
    for (path, more, code) in
        [("/healthz", long.as_str(), "431"), ("/healthz", &many, "431"), (&"/x".repeat(200 << 10), "", "4")]
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // It may be refused before all of it is sent.
        stream.write_all(head("GET", path, more).as_bytes()).await.ok();
        let (answer, _) = rest(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
    }
    let (code, _) = Wire::open(address).await.unwrap().ask("GET", MAPS, None).await.unwrap();
    assert_eq!(code, 200, "nobody else notices");
}

#[tokio::test]
async fn silent_connections_make_room_for_whoever_has_something_to_say() {
    let server = guarded();
    let address = within(Bounds { connections: 3, ..Bounds::default() }, server.clone()).await;
    let mut watch = Wire::open(address).await.unwrap().watch(&format!("{MAPS}?watch=1")).await.unwrap();
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut drips = TcpStream::connect(address).await.unwrap();
    drips.write_all(b"GET /healthz HTTP/1.1\r\nhost: some").await.unwrap();
    for _ in 0..5 {
        let asked = async { Wire::open(address).await.unwrap().ask("GET", MAPS, None).await.unwrap().0 };
        assert_eq!(tokio::time::timeout(LONG, asked).await.expect("there is room"), 200);
    }
    for stream in [&mut silent, &mut drips] {
        let (answer, _) = rest(stream).await;
        assert_eq!(answer, "", "it had to go, long before its time was over");
    }
    post(&server, MAPS, &json!({"metadata": {"name": "seen"}}));
    let event = tokio::time::timeout(LONG, watch.next()).await.unwrap().unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "seen", "a watch holds its place");
}

#[tokio::test]
async fn where_everybody_is_busy_a_newcomer_waits_for_the_first_to_leave() {
    let address = within(Bounds { connections: 2, ..Bounds::default() }, guarded()).await;
    let path = format!("{MAPS}?watch=1");
    let first = Wire::open(address).await.unwrap().watch(&path).await.unwrap();
    let _second = Wire::open(address).await.unwrap().watch(&path).await.unwrap();
    let waiting =
        tokio::spawn(
            async move { Wire::open(address).await.unwrap().ask("GET", MAPS, None).await.unwrap().0 },
        );
    tokio::time::sleep(SHORT).await;
    assert!(!waiting.is_finished(), "nobody is cut off for it");
    drop(first);
    assert_eq!(tokio::time::timeout(LONG, waiting).await.unwrap().unwrap(), 200);
}

#[tokio::test]
async fn a_watcher_that_falls_behind_the_log_is_told_so_and_ends() {
    let limits = Limits { log_events: 20, ..Limits::default() };
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let server = let_in(Server::in_memory_with(Arc::new(SeededEnv::new(1, now)), limits));
    let address = within(Bounds::default(), server.clone()).await;
    let path = format!("{MAPS}?watch=1");
    let mut lazy = narrow(address).await;
    lazy.write_all(head("GET", &path, "connection: close\r\n").as_bytes()).await.unwrap();
    let mut first = [0; 12];
    lazy.read_exact(&mut first).await.unwrap();
    // More than a connection holds, and more events than are kept.
    for at in 0..60 {
        let map = json!({"metadata": {"name": format!("big-{at}")}, "data": {"k": "x".repeat(1 << 19)}});
        assert_eq!(post(&server, MAPS, &map).0, 201);
    }
    let (answer, _) = rest(&mut lazy).await;
    let last = answer.lines().rev().find(|line| line.contains("\"type\"")).unwrap_or_default();
    assert!(last.contains("\"ERROR\"") && last.contains("410"), "{}", &last[..last.len().min(300)]);
}
