//! How a request gets to an API server and its answer back: raw, bounded in time and size, nothing decoded.
//!
//! What an answer means is decided elsewhere; here a proxy's page, half an answer and no answer are all just bytes or
//! their absence.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use memchr::memchr;
use pawl_machines::failure::Failure;

/// The longest a single request may take. An API server lets a webhook take 30 s, and then still has to answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);

/// The largest answer that is read. An object is at most some 3 MiB, so even a page of a few dozen of the largest fits;
/// whoever lists asks for smaller pages if one does not.
const MAX_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// The longest line of a watch: an API server takes requests of 3 MiB, and an object grows by its metadata.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// An answer, whatever it is.
#[derive(Clone, Debug)]
pub struct Reply {
    pub code: u16,
    /// In seconds, as the header says.
    pub retry_after: Option<u32>,
    /// What the server warns of, as the headers say.
    pub warnings: Vec<String>,
    pub body: Bytes,
}

/// What asking for a watch gave.
#[derive(Debug)]
pub enum Opened {
    Lines(Lines),
    Refused(Reply),
}

/// Why there is no answer, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("more than {0} bytes")]
    TooLong(usize),
    #[error("{0}")]
    Broken(String),
}

/// A way to an API server.
#[derive(Clone)]
pub struct Wire {
    client: Client,
    limits: Limits,
}

/// How much of an API server's time and words is taken.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a whole request.
    pub timeout: Duration,
    pub answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: REQUEST_TIMEOUT, answer_bytes: MAX_ANSWER_BYTES }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    pub fn new(client: Client) -> Self {
        Self::bounded(client, Limits::default())
    }

    /// To a server that is trusted less than one's own.
    pub fn bounded(client: Client, limits: Limits) -> Self {
        Self { client, limits }
    }

    /// Sends a request and reads all of the answer.
    ///
    /// # Errors
    /// When no complete answer came: whether the request was carried out is then not known.
    pub async fn send(&self, request: Request<Vec<u8>>) -> Result<Reply, Lost> {
        let exchange = async {
            let response = self.client.send(request.map(Body::from)).await.map_err(|error| broken(&error))?;
            read_all(response, self.limits.answer_bytes).await
        };
        let limit = self.limits.timeout;
        tokio::time::timeout(limit, exchange).await.unwrap_or(Err(Lost::Timeout(limit)))
    }

    /// Sends a request that must succeed; `attempt` says what for.
    ///
    /// # Errors
    /// When no complete answer came, or the answer is a refusal.
    pub async fn ask(&self, request: Request<Vec<u8>>, attempt: &str) -> Result<Reply, Failure> {
        let reply = self.send(request).await.map_err(|lost| Failure::unanswered(attempt, lost))?;
        if (200..300).contains(&reply.code) {
            return Ok(reply);
        }
        Err(Failure::answered(attempt, reply.code, reply.retry_after, &reply.body))
    }

    /// Sends a request whose answer goes on and on.
    ///
    /// # Errors
    /// When no answer came.
    pub async fn open(&self, request: Request<Vec<u8>>) -> Result<Opened, Lost> {
        let exchange = async {
            let response = self.client.send(request.map(Body::from)).await.map_err(|error| broken(&error))?;
            if response.status().is_success() {
                return Ok(Opened::Lines(Lines {
                    body: response.into_body(),
                    buffer: BytesMut::new(),
                    searched: 0,
                }));
            }
            read_all(response, self.limits.answer_bytes).await.map(Opened::Refused)
        };
        let limit = self.limits.timeout;
        tokio::time::timeout(limit, exchange).await.unwrap_or(Err(Lost::Timeout(limit)))
    }
}

/// The lines of an answer, as they come.
#[derive(Debug)]
pub struct Lines {
    body: Body,
    buffer: BytesMut,
    /// How much of the buffer is known to have no line end.
    searched: usize,
}

impl Lines {
    /// The next whole line; `None` at the end. What stands after the last line end is half an event, and dropped.
    /// Cancelling loses nothing.
    ///
    /// # Errors
    /// When the stream broke, was silent for longer than `patience`, or never ends a line.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Bytes>, Lost> {
        loop {
            if let Some(line) = self.buffered_line() {
                return Ok(Some(line));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(Lost::TooLong(MAX_LINE_BYTES));
            }
            let frame = tokio::time::timeout(patience, self.body.frame());
            match frame.await.map_err(|_| Lost::Timeout(patience))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(&error)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    fn buffered_line(&mut self) -> Option<Bytes> {
        loop {
            let unsearched = self.buffer.get(self.searched..)?;
            let Some(end) = memchr(b'\n', unsearched) else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}

async fn read_all(response: http::Response<Body>, limit: usize) -> Result<Reply, Lost> {
    let code = response.status().as_u16();
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    let warnings = response.headers().get_all(header::WARNING).iter().filter_map(warning).collect();
    let (mut body, mut read) = (response.into_body(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.map_err(|error| broken(&error))?.data_ref() {
            read.extend_from_slice(data);
        }
        if read.len() > limit {
            return Err(Lost::TooLong(limit));
        }
    }
    Ok(Reply { code, retry_after, warnings, body: read.freeze() })
}

/// The text of `299 - "text"`.
fn warning(value: &http::HeaderValue) -> Option<String> {
    let (_, quoted) = value.to_str().ok()?.split_once('"')?;
    let text = quoted.rsplit_once('"').map_or(quoted, |(text, _)| text);
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

fn broken(error: &kube::Error) -> Lost {
    // The outermost text alone often says only "service error"; the cause says what happened.
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    Lost::Broken(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&'static str]) -> Lines {
        let mut lines = Lines { body: Body::empty(), buffer: BytesMut::new(), searched: 0 };
        for chunk in chunks {
            lines.buffer.extend_from_slice(chunk.as_bytes());
        }
        lines
    }

    #[test]
    fn a_warning_is_read_as_it_was_meant() {
        let value = http::HeaderValue::from_static(r#"299 - "unknown field \"spec.x\"""#);
        assert_eq!(warning(&value).unwrap(), r#"unknown field "spec.x""#);
        assert_eq!(warning(&http::HeaderValue::from_static("299")), None);
    }

    #[tokio::test]
    async fn half_a_line_at_the_end_is_dropped_and_empty_lines_are_skipped() {
        let mut lines = lines(&["{\"a\":1}\n\n", "{\"b\"", ":2}\r\n", "{\"half"]);
        let mut read = Vec::new();
        while let Some(line) = lines.next(Duration::from_secs(1)).await.unwrap() {
            read.push(String::from_utf8(line.trim_ascii().to_vec()).unwrap());
        }
        assert_eq!(read, ["{\"a\":1}", "{\"b\":2}"]);
    }
}
