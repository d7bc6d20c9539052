//! The server as its clients see it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "all of this is tests, helpers included"
)]

mod access;
mod admission;
mod bad_input;
mod client;
mod conformance;
mod crash;
mod durable;
mod fuzz;
mod limits;
mod openapi;
mod order;
mod refusals;
mod register;
mod replay;
mod semantics;
mod sidelines;
mod sockets;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use pawl_apiserver::{Access, SeededEnv, Server, SigningKey};
use serde_json::Value;

use crate::replay::TOKEN;

/// A fresh server whose time stands still.
fn server() -> Server {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    Server::in_memory(Arc::new(SeededEnv::new(1, now)))
}

/// A fresh server that strangers may come to.
fn guarded() -> Server {
    let_in(server())
}

/// The same server with a door, and the owner's token for it.
fn let_in(server: Server) -> Server {
    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let signing_key = SigningKey::from_pem(&pem).unwrap();
    server.with_access(Access { admin_token: TOKEN.to_owned(), signing_key })
}

/// One request; the status and the body, as text if it is not JSON.
fn send(server: &Server, method: &str, path: &str, media: &str, body: impl Into<Bytes>) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let response = server.call(request.body(body.into()).unwrap());
    let text = String::from_utf8_lossy(response.body()).into_owned();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (response.status().as_u16(), body)
}

fn get(server: &Server, path: &str) -> (u16, Value) {
    send(server, "GET", path, "", "")
}

fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    send(server, "POST", path, "application/json", body.to_string())
}

fn put(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    send(server, "PUT", path, "application/json", body.to_string())
}

fn merge(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    send(server, "PATCH", path, "application/merge-patch+json", body.to_string())
}

fn delete(server: &Server, path: &str) -> (u16, Value) {
    send(server, "DELETE", path, "", "")
}
