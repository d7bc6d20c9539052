//! What are a container's last words?

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::{Running, Worker};
use crate::order;

/// A kubelet's limit for a termination message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4096;
/// A kubelet's limits for a termination message taken from the log.
const MAX_FALLBACK_BYTES: usize = 2048;
const MAX_FALLBACK_LINES: u64 = 80;
/// Shorter secrets are not masked: a message full of stars for every `1` in it helps nobody.
const MIN_MASKED_BYTES: usize = 4;
/// A container that ran while Pawl did not, and whose Secrets are gone: nobody can tell what to mask.
const UNSAID: &str = "its last words are not shown: what to mask in them can no longer be read";

impl Worker {
    /// The termination message: what the container left at its path, or the end of its log.
    pub(super) async fn last_words(&self, name: &str, running: &Running, code: u8) -> Option<String> {
        let Some(secrets) = &running.secrets else { return Some(UNSAID.to_owned()) };
        // A secret that the cut would tear must be known for one: so much more is read, and cut off when it is masked.
        let more = secrets.iter().map(String::len).max().unwrap_or(0);
        let text = tail(&self.message_path(name), MAX_MESSAGE_BYTES + more).await;
        let mut words = last(&masked(text, secrets), MAX_MESSAGE_BYTES);
        if words.is_empty() && running.fallback_to_logs && code != 0 {
            let bytes = MAX_FALLBACK_BYTES + more;
            let log = self.shared.logs.tail(&self.uid, name, MAX_FALLBACK_LINES, bytes).await;
            words = last(&masked(log, secrets), MAX_FALLBACK_BYTES);
        }
        Some(words).filter(|words| !words.is_empty())
    }

    /// What a container that runs in its turn leaves for those after it: its exit code, and files. `None`: nobody asked
    /// for a report.
    pub(super) async fn report(
        &self,
        name: &str,
        running: &Running,
        code: u8,
    ) -> Option<(u8, Option<String>)> {
        let order = self.life.order.clone()?;
        let (volumes, name) = (self.shared.home(&self.uid).join("volumes"), name.to_owned());
        let secrets = running.secrets.clone();
        let told = tokio::task::spawn_blocking(move || {
            if let Err(error) = order::leave_exit_code(&volumes, &order, &name, code) {
                tracing::warn!(%error, container = name, "an exit code cannot be left for the next container");
            }
            let report = order.report?;
            let secrets = secrets.ok_or_else(|| UNSAID.to_owned());
            Some(secrets.and_then(|secrets| {
                let told = order::report(&volumes, &report, &|text| masked(text, &secrets));
                told.map_err(|error| error.to_string())
            }))
        });
        match told.await.ok()?? {
            Ok(message) => Some((code, message)),
            Err(error) => Some((code.max(1), Some(error))),
        }
    }
}

/// The last bytes of a file, however long a container made it.
async fn tail(path: &Path, bytes: usize) -> String {
    let read = async {
        let mut file = tokio::fs::File::open(path).await?;
        let start = file.metadata().await?.len().saturating_sub(bytes as u64);
        file.seek(io::SeekFrom::Start(start)).await?;
        let mut end = Vec::new();
        file.take(bytes as u64).read_to_end(&mut end).await?;
        Ok::<_, io::Error>(end)
    };
    String::from_utf8_lossy(&read.await.unwrap_or_default()).into_owned()
}

/// The end of a text, at most so many bytes of it.
fn last(text: &str, bytes: usize) -> String {
    let start = text.ceil_char_boundary(text.len().saturating_sub(bytes));
    text.get(start..).unwrap_or_default().to_owned()
}

/// Captured output never shows a secret that the container was given (I6).
fn masked(text: String, secrets: &[String]) -> String {
    let mut worth: Vec<&String> = secrets.iter().filter(|secret| secret.len() >= MIN_MASKED_BYTES).collect();
    // The longest first: one that holds another must not be known by what is left of it.
    worth.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    worth.into_iter().fold(text, |text, secret| text.replace(secret.as_str(), "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_long_message_is_kept_and_no_more_is_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("message");
        std::fs::write(&path, format!("{}end", "ü".repeat(100_000))).unwrap();
        assert_eq!(tail(&path, 4).await, "\u{fffd}end");
        assert_eq!(tail(&home.path().join("absent"), 4).await, "");
        assert_eq!(
            (last("üend", 4).as_str(), last("üend", 5).as_str(), last("a", 9).as_str()),
            ("end", "üend", "a")
        );
    }

    #[test]
    fn captured_words_hold_no_secret() {
        let secrets = ["not-a-real-secret".to_owned(), "1".to_owned()];
        let nested = ["abcd".to_owned(), "abcdefgh".to_owned()];
        assert_eq!(masked("abcdefgh abcd".to_owned(), &nested), "*** ***");
        assert_eq!(masked("1: not-a-real-secret!".to_owned(), &secrets), "1: ***!");
    }
}
