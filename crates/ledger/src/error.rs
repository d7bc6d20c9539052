//! Why a ledger could not do what it was asked.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {attempt} in the ledger {place}: {source}")]
    Sqlite { attempt: &'static str, place: String, source: rusqlite::Error },
    #[error("cannot {attempt} in the ledger {place}: {}", told(.source))]
    Postgres { attempt: &'static str, place: String, source: tokio_postgres::Error },
    #[error("cannot {attempt} in the ledger {place}: no answer within {seconds} s")]
    TimedOut { attempt: &'static str, place: String, seconds: u64 },
    #[error("{place} is no address of a ledger: {problem}")]
    Address { place: String, problem: String },
    #[error(
        "the ledger {place} has migration {found}, and this program knows {known}: it is newer than this program"
    )]
    TooNew { place: String, found: i64, known: i64 },
    #[error("a row of the ledger {place} cannot be read: {problem}")]
    Unreadable { place: String, problem: String },
    #[error("cannot {attempt} the outbox {}: {source}", path.display())]
    Outbox { attempt: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the outbox {} is full ({bytes} bytes)", path.display())]
    OutboxFull { path: PathBuf, bytes: u64 },
    #[error("the ledger's thread ended: {problem}")]
    Ended { problem: String },
}

/// What PostgreSQL says is in the cause; the error itself only says "db error".
fn told(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(said), _) => format!("{} (SQLSTATE {})", said.message(), said.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
