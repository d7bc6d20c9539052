//! Where is the ledger, and what can be done with it? The same three things on both engines: append, query, verify.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::postgres::Postgres;
use crate::query::{Cursor, Filter, Page};
use crate::row::{Head, Record};
use crate::sqlite::Sqlite;
use crate::tls;
use crate::verify::Verdict;

/// Rows read at once while verifying: 1,000 of the largest are 16 MiB.
pub(crate) const VERIFY_PAGE: i64 = 1_000;

/// Where a ledger is.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    File(PathBuf),
    /// A URL as libpq reads it; it may hold a password.
    Postgres(String),
}

impl Place {
    /// What `--audit-url` says: `postgres://…`, `sqlite:PATH`, or a path.
    ///
    /// # Errors
    /// When it is a URL of something else.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        if let Some(path) = text.strip_prefix("sqlite:") {
            return Ok(Self::File(path.strip_prefix("//").unwrap_or(path).into()));
        }
        if text.is_empty() || text.contains("://") {
            let problem = "it is neither postgres://…, nor sqlite:PATH, nor a path".to_owned();
            return Err(Error::Address { place: tls::without_secrets(text), problem });
        }
        Ok(Self::File(text.into()))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(url) => f.write_str(&tls::without_secrets(url)),
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({self})")
    }
}

/// What may be done with an open ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing is made or migrated.
    Read,
    Write,
}

/// What appending came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// How many rows were new.
    pub stored: usize,
    pub head: Head,
}

/// An open ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

impl Store {
    /// Opens a ledger, and for writing makes and migrates it where needed.
    ///
    /// # Errors
    /// When it cannot be reached, or is newer than this program.
    pub async fn open(place: &Place, access: Access) -> Result<Self, Error> {
        Ok(Self(match place {
            Place::File(path) => {
                let path: Box<Path> = path.as_path().into();
                Kind::Sqlite(Arc::new(blocking(move || Sqlite::open(&path, access)).await?))
            }
            Place::Postgres(url) => Kind::Postgres(Arc::new(Postgres::open(url, access).await?)),
        }))
    }

    /// Appends what is new, in order, in one transaction: when it returns, the rows are on disk. A record whose id is
    /// there already is left out, so appending again what may have been appended is harmless.
    ///
    /// # Errors
    /// When it is not known that the rows are stored. They may be.
    pub async fn append(&self, records: Vec<Record>) -> Result<Appended, Error> {
        match &self.0 {
            Kind::Sqlite(sqlite) => {
                let sqlite = Arc::clone(sqlite);
                blocking(move || sqlite.append(&records)).await
            }
            Kind::Postgres(postgres) => postgres.append(&records).await,
        }
    }

    /// Rows that match, newest first, at most `limit`, beginning after a page that ended at `after`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn query(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        match &self.0 {
            Kind::Sqlite(sqlite) => {
                let (sqlite, filter) = (Arc::clone(sqlite), filter.clone());
                blocking(move || sqlite.query(&filter, after, limit)).await
            }
            Kind::Postgres(postgres) => postgres.query(filter, after, limit).await,
        }
    }

    /// Where the chain ends.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn head(&self) -> Result<Head, Error> {
        match &self.0 {
            Kind::Sqlite(sqlite) => {
                let sqlite = Arc::clone(sqlite);
                blocking(move || sqlite.head()).await
            }
            Kind::Postgres(postgres) => postgres.head().await,
        }
    }

    /// Reads every row and says what is wrong. `anchors` are heads that were noted earlier, outside of the ledger.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub async fn verify(&self, anchors: &[Head]) -> Result<Verdict, Error> {
        match &self.0 {
            Kind::Sqlite(sqlite) => {
                let (sqlite, anchors) = (Arc::clone(sqlite), anchors.to_vec());
                blocking(move || sqlite.verify(&anchors)).await
            }
            Kind::Postgres(postgres) => postgres.verify(anchors).await,
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|ended| Err(Error::Ended { problem: ended.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_or_one_of_two_urls() {
        let file = |path: &str| Place::File(path.into());
        assert_eq!(Place::parse("a/b.db").unwrap(), file("a/b.db"));
        assert_eq!(Place::parse("sqlite:/a/b.db").unwrap(), file("/a/b.db"));
        assert_eq!(Place::parse("sqlite:///a/b.db").unwrap(), file("/a/b.db"));
        assert!(matches!(Place::parse("postgresql://h/d").unwrap(), Place::Postgres(_)));
        assert!(Place::parse("mysql://user:made-up@h/d").is_err());
        let shown = format!("{:?}", Place::parse("postgres://u:made-up@h/d").unwrap());
        assert_eq!(shown, "Place(postgres://h/d)");
    }
}
