//! What did a container write last? The end of its log, without what Secrets hold (I6).
//!
//! Everything is masked before it is cut: a value that is cut in two is found by nobody.

use std::sync::Arc;

use futures::future::{BoxFuture, try_join_all};
use pawl_engine::wire::Wire;
use pawl_machines::failure::{Category, Failure};
use pawl_machines::logs::Logs;
use pawl_machines::object::Key;

use crate::github::port::Secrets;
use crate::mask::Mask;

/// What is shown of a log at most, whoever asks for more (I6).
pub const MAX_TAIL_BYTES: usize = 16 * 1024;

/// Lines asked for: 16 KiB of lines of some sixteen characters each.
const TAIL_LINES: usize = 1000;

/// What is read at most: a thousand lines of 4 KiB. Whoever writes longer ones sees the middle of them.
const MAX_READ_BYTES: usize = 4 * 1024 * 1024;

/// The port to the logs of Pods, through the API server.
#[derive(Debug)]
pub struct Port {
    wire: Wire,
    secrets: Arc<dyn Secrets>,
}

impl Port {
    pub fn new(wire: Wire, secrets: Arc<dyn Secrets>) -> Self {
        Self { wire, secrets }
    }

    /// The masked end of a log.
    ///
    /// # Errors
    /// When the log, or a Secret whose values may stand in it, could not be read: then nothing is shown.
    pub async fn tail(&self, logs: &Logs) -> Result<String, Failure> {
        let mask = self.mask(&logs.mask).await?;
        let attempt = format!("read the log of {} {}", logs.pod, logs.container);
        let request = http::Request::get(path(&logs.pod, &logs.container))
            .body(Vec::new())
            .map_err(|error| Failure::unanswered(&attempt, error))?;
        let reply = self.wire.ask(request, &attempt).await?;
        Ok(shown(&reply.body, &mask, logs.tail_bytes))
    }

    async fn mask(&self, secrets: &[Key]) -> Result<Mask, Failure> {
        let read = secrets.iter().map(|key| async move {
            match self.secrets.read(key).await {
                Ok(secret) => Ok(secret.data),
                // An optional Secret that was never there has no values.
                Err(failure) if failure.category == Category::NotFound => Ok(Default::default()),
                Err(failure) => Err(failure),
            }
        });
        let all = try_join_all(read).await?;
        Ok(Mask::of(all.iter().flat_map(|data| data.values()).map(Vec::as_slice)))
    }
}

impl pawl_engine::Port<Logs> for Port {
    fn call<'a>(&'a self, logs: &'a Logs) -> BoxFuture<'a, Result<String, Failure>> {
        Box::pin(self.tail(logs))
    }
}

fn path(pod: &Key, container: &str) -> String {
    let escaped = crate::github::address::escaped;
    format!(
        "/api/v1/namespaces/{}/pods/{}/log?container={}&tailLines={TAIL_LINES}&limitBytes={MAX_READ_BYTES}",
        escaped(pod.namespace.as_deref().unwrap_or("default")),
        escaped(&pod.name),
        escaped(container)
    )
}

/// What of a log may be seen.
pub fn shown(log: &[u8], mask: &Mask, tail_bytes: usize) -> String {
    // An answer that was cut ends anywhere, perhaps inside a value.
    let whole = if log.len() >= MAX_READ_BYTES {
        let end = log.iter().rposition(|byte| *byte == b'\n').unwrap_or_default();
        log.get(..end).unwrap_or_default()
    } else {
        log
    };
    let text = mask.apply(&plain(&String::from_utf8_lossy(whole)));
    pawl_api::meta::text::tail(&text, tail_bytes.min(MAX_TAIL_BYTES))
}

/// Text without what steers a terminal: it is noise elsewhere, and may stand in the middle of a value.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\n' | '\t' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// After an escape: `[` and what follows up to a letter, `]` and what follows up to a bell, or one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            while chars.next_if(|c| !('@'..='~').contains(c) && *c != '\n').is_some() {}
            chars.next_if(|c| *c != '\n');
        }
        Some(']') => {
            while chars.next_if(|c| *c != '\u{7}' && *c != '\n').is_some() {}
            chars.next_if_eq(&'\u{7}');
        }
        Some('\n') | None => {}
        // Which characters are meant: one more follows.
        Some('(' | ')') => {
            chars.next();
            chars.next_if(|c| *c != '\n');
        }
        Some(_) => {
            chars.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::github::port::SecretData;
    use bytes::Bytes;
    use http::{Request, Response};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    const PASSWORD: &str = "not-a-real-password-42";

    /// Secrets as a test sets them.
    #[derive(Debug)]
    struct Vault(BTreeMap<&'static str, Result<&'static str, u16>>);

    impl Secrets for Vault {
        fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<SecretData, Failure>> {
            let found = match self.0.get(key.name.as_str()) {
                Some(Ok(value)) => {
                    let data = BTreeMap::from([("key".to_owned(), value.as_bytes().to_vec())]);
                    Ok(SecretData { version: String::new(), data })
                }
                Some(Err(code)) => Err(Failure::answered("get", *code, None, br#"{"kind":"Status"}"#)),
                None => Err(Failure::answered("get", 404, None, b"")),
            };
            Box::pin(std::future::ready(found))
        }
    }

    type Asked = Arc<Mutex<Vec<String>>>;

    fn port(code: u16, log: &str, secrets: &[(&'static str, Result<&'static str, u16>)]) -> (Port, Asked) {
        let asked = Asked::default();
        let (log, record) = (log.to_owned(), Arc::clone(&asked));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            record.lock().unwrap().push(request.uri().to_string());
            let body = http_body_util::Full::new(Bytes::from(log.clone()));
            let response = Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        let wire = Wire::new(kube::Client::new(service, "default"));
        (Port::new(wire, Arc::new(Vault(secrets.iter().copied().collect()))), asked)
    }

    fn wanted(tail_bytes: usize, secrets: &[&str]) -> Logs {
        let mask = secrets.iter().map(|name| Key::new(Some("n"), name)).collect();
        let (pod, container) = (Key::new(Some("n"), "p"), "main".to_owned());
        Logs { pod, container, tail_bytes, mask }
    }

    #[tokio::test]
    async fn i6_what_the_jobs_secrets_hold_is_masked() {
        let log = format!("plan\nuses {PASSWORD} and ghp_{}\n", "0".repeat(36));
        let (port, asked) = port(200, &log, &[("cloud", Ok(PASSWORD))]);
        assert_eq!(port.tail(&wanted(1000, &["cloud", "absent"])).await.unwrap(), "plan\nuses *** and ***\n");
        assert_eq!(
            *asked.lock().unwrap(),
            ["/api/v1/namespaces/n/pods/p/log?container=main&tailLines=1000&limitBytes=4194304"]
        );
    }

    #[tokio::test]
    async fn i6_nothing_is_shown_while_a_secret_cannot_be_read() {
        let (port, asked) = port(200, PASSWORD, &[("cloud", Err(503))]);
        assert_eq!(port.tail(&wanted(1000, &["cloud"])).await.unwrap_err().category, Category::Transient);
        assert!(asked.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_log_that_is_gone_is_said_so() {
        let (port, _) = port(404, r#"{"kind":"Status","reason":"NotFound"}"#, &[]);
        assert_eq!(port.tail(&wanted(1000, &[])).await.unwrap_err().category, Category::NotFound);
    }

    #[test]
    fn the_end_is_kept_in_whole_characters_and_never_more_than_the_cap() {
        let log = "ä".repeat(40_000);
        for asked in [0, 7, 100, MAX_TAIL_BYTES, usize::MAX] {
            let text = shown(log.as_bytes(), &Mask::default(), asked);
            assert!(text.len() <= asked.min(MAX_TAIL_BYTES), "{asked}");
        }
        assert!(shown(b"first\nlast\n", &Mask::default(), 100).ends_with("last\n"));
    }

    #[test]
    fn a_value_is_found_before_anything_is_cut() {
        let mask = Mask::of([PASSWORD.as_bytes()]);
        for tail in 0..60 {
            let text = shown(format!("{}{PASSWORD}\nend", "x".repeat(50)).as_bytes(), &mask, tail);
            assert!(!text.contains("password") && !text.contains("word-42"), "{text}");
        }
        let cut = format!("{}\n{}", "x".repeat(MAX_READ_BYTES), &PASSWORD[..12]);
        assert!(!shown(cut.as_bytes(), &mask, 100).contains("not-a-real"));
    }

    #[test]
    fn colours_and_titles_are_no_part_of_a_log() {
        assert_eq!(plain("\u{1b}[1;31mError\u{1b}[0m: \u{1b}]0;title\u{7}x\r\n\u{1b}(B\ty"), "Error: x\n\ty");
        let mask = Mask::of([PASSWORD.as_bytes()]);
        assert_eq!(shown("not-a-\u{1b}[1mreal-password-42".as_bytes(), &mask, 100), "***");
        for odd in ["\u{1b}", "\u{1b}[", "\u{1b}[1", "\u{1b}]", "\u{1b}[\n", "\u{1b}\n"] {
            plain(odd);
        }
    }
}
