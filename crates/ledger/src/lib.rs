//! Who did what, to what, and what came of it? An append-only chain of rows on SQLite or PostgreSQL.
//!
//! ```text
//! entries (pawl_machines::audit) ─▶ recorder ─▶ store (group commit)       query, verify ◀── `pawl audit`
//!                                      └─ store down ─▶ outbox ─▶ drained in order when it is back
//! ```
//! Each row's hash covers the row and the hash before it ([`row`]), so that a row changed, removed, inserted or moved
//! breaks the chain ([`verify`] says what can be found, and what cannot). A row is stored once, by the id of its entry:
//! offering it again is harmless, and everybody who is not sure offers again.

mod error;
pub mod outbox;
mod postgres;
pub mod query;
pub mod recorder;
pub mod row;
mod schema;
mod sqlite;
pub mod store;
mod tls;
pub mod verify;

pub use error::Error;
pub use query::{Cursor, Filter, Page};
pub use recorder::Recorder;
pub use row::{Head, Record, Row};
pub use store::{Appended, Place, Store};
pub use verify::{Finding, Verdict};
