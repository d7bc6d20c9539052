//! One request to a program of ours on this machine, and its whole answer.

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sends a request and returns the answer's body. Without a body it is a GET.
///
/// # Errors
/// When nobody answers, or not with success: then with what was said.
pub async fn ask(address: &str, path: &str, body: Option<&str>) -> anyhow::Result<String> {
    match body {
        Some(body) => send(address, &format!("POST {path}"), "", body).await,
        None => send(address, &format!("GET {path}"), "", "").await,
    }
}

/// Sends JSON as whoever has this token, and returns the answer's body.
///
/// # Errors
/// When nobody answers, or not with success: then with what was said.
pub(crate) async fn post_as(address: &str, path: &str, token: &str, json: &str) -> anyhow::Result<String> {
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    send(address, &format!("POST {path}"), &headers, json).await
}

async fn send(address: &str, what: &str, headers: &str, body: &str) -> anyhow::Result<String> {
    let mut stream =
        TcpStream::connect(address).await.with_context(|| format!("nobody answers at {address}"))?;
    let head =
        format!("{what} HTTP/1.0\r\nHost: {address}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    match head.split_ascii_whitespace().nth(1) {
        Some(code) if code.starts_with('2') => Ok(body.to_owned()),
        Some(_) | None => bail!("{}", body.trim()),
    }
}
