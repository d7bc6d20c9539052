//! A client that does exactly what it is told: one connection, no retries, so that a history of requests is the truth.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use pawl_apiserver::{Server, serve};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use crate::TOKEN;

/// What goes wrong on a connection whose other end may be killed.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

/// One connection as the server's owner.
pub(crate) struct Wire {
    sender: SendRequest<Full<Bytes>>,
}

/// The events of a watch.
pub(crate) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    _connection: Wire,
}

/// A server of this process on a socket of its own, until the runtime ends.
pub(crate) async fn listening(server: Server) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, server, None, std::future::pending()));
    address
}

impl Wire {
    pub(crate) async fn open(address: SocketAddr) -> Result<Wire, Broken> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Wire { sender })
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<http::Response<Incoming>, Broken> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {TOKEN}"));
        let mut sent = Bytes::new();
        if let Some((media, body)) = body {
            request = request.header("content-type", media);
            sent = body.to_string().into();
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(sent))?).await?)
    }

    /// One request and its whole answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<(u16, Value), Broken> {
        let response = self.send(method, path, body).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body)?))
    }

    /// A watch, for which the connection is given up.
    pub(crate) async fn watch(mut self, path: &str) -> Result<Events, Broken> {
        let response = self.send("GET", path, None).await?;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        Ok(Events { body: response.into_body(), buffer: Vec::new(), _connection: self })
    }
}

impl Events {
    /// The next whole event; `None` once the other end is gone.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.ok()?;
            self.buffer.extend_from_slice(frame.data_ref()?);
        }
    }
}

/// An object's revision.
pub(crate) fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
