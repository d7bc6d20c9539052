//! The ledger in a file: SQLite with a write-ahead log, every commit on disk before it is acknowledged.
//!
//! One connection writes and one reads, so a long verification holds up nobody who appends. Everything here blocks;
//! [`crate::store`] calls it from a thread that may.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, ToSql, TransactionBehavior, params, params_from_iter,
};
use uuid::Uuid;

use crate::error::Error;
use crate::query::{Arg, COLUMNS, Cursor, Filter, Page, Statement};
use crate::row::{Head, Record, Row};
use crate::schema::{self, Engine};
use crate::store::{Access, Appended, VERIFY_PAGE};
use crate::verify::{Checker, Verdict};

/// Another process that writes (a second `pawl` on the same file) is waited for so long; then the batch goes to the
/// outbox, where it is as safe.
const BUSY: Duration = Duration::from_secs(5);

/// Pages kept in memory, in KiB (negative by SQLite's convention): the upper levels of seven B-trees over a million rows
/// are about 20 MB.
const CACHE_KIB: i64 = -64 * 1024;

/// The log is folded into the database after so many pages (64 MiB). Rows touch the same index pages again and again, and
/// folding writes each of them once: with 16 MiB a quarter more was written, and the slowest batches took three times as
/// long.
const CHECKPOINT_PAGES: i64 = 16_000;

#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    writer: Option<Mutex<Connection>>,
    reader: Mutex<Connection>,
}

impl Sqlite {
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self, Error> {
        let failed =
            |attempt| move |source| Error::Sqlite { attempt, place: path.display().to_string(), source };
        let writer = match access {
            Access::Read => None,
            Access::Write => {
                let mut writer = Connection::open(path).map_err(failed("open"))?;
                configure(&writer, access).map_err(failed("set up"))?;
                migrate(&mut writer, path)?;
                Some(Mutex::new(writer))
            }
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let reader = Connection::open_with_flags(path, flags).map_err(failed("open"))?;
        configure(&reader, Access::Read).map_err(failed("set up"))?;
        let this = Self { path: path.to_owned(), writer, reader: Mutex::new(reader) };
        let version =
            this.read("read the version", |reader| reader.query_row(schema::VERSION, [], |row| row.get(0)))?;
        schema::check(version, &path.display())?;
        Ok(this)
    }

    pub(crate) fn append(&self, records: &[Record]) -> Result<Appended, Error> {
        let Some(writer) = &self.writer else {
            let problem = "it was opened for reading".to_owned();
            return Err(Error::Address { place: self.path.display().to_string(), problem });
        };
        let mut writer = lock(writer);
        let mut work = || {
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let before = stored_head(&transaction)?.unwrap_or_default();
            let mut head = before;
            {
                let mut insert = transaction.prepare_cached(&format!(
                    "INSERT INTO audit_log ({COLUMNS}) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (id) DO NOTHING"
                ))?;
                for record in records {
                    let row = record.clone().after(&head);
                    if insert_row(&mut insert, &row)? {
                        head = row.head();
                    }
                }
            }
            if head != before {
                let moved = "INSERT INTO audit_head (one, seq, hash) VALUES (1, $1, $2) \
                    ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash";
                transaction.prepare_cached(moved)?.execute(params![head.seq, head.hash.as_slice()])?;
                transaction.commit()?;
            }
            let stored = usize::try_from(head.seq.saturating_sub(before.seq)).unwrap_or_default();
            Ok(Appended { stored, head })
        };
        work().map_err(|source| self.failed("append", source))
    }

    pub(crate) fn query(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        let Statement { sql, args } = filter.statement(after, limit);
        let rows = self.read("read", |reader| {
            let mut statement = reader.prepare_cached(&sql)?;
            let rows = statement.query_map(params_from_iter(&args), |row| Ok(decode(row)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        Page::of(rows.into_iter(), limit, &self.path.display())
    }

    pub(crate) fn head(&self) -> Result<Head, Error> {
        Ok(self.read("read the head", stored_head)?.unwrap_or_default())
    }

    pub(crate) fn verify(&self, anchors: &[Head]) -> Result<Verdict, Error> {
        self.read("verify", |reader| {
            // One snapshot: whoever appends meanwhile does not disturb, nor is disturbed.
            let snapshot = reader.unchecked_transaction()?;
            let mut checker = Checker::new(stored_head(&snapshot)?, anchors);
            let page = format!("SELECT {COLUMNS} FROM audit_log WHERE seq > $1 ORDER BY seq LIMIT $2");
            let mut statement = snapshot.prepare(&page)?;
            let mut last = i64::MIN;
            loop {
                let before = last;
                let mut rows = statement.query(params![last, VERIFY_PAGE])?;
                while let Some(row) = rows.next()? {
                    last = row.get(0)?;
                    checker.take(decode(row));
                }
                if last == before {
                    return Ok(checker.finish());
                }
            }
        })
    }

    fn read<T>(
        &self,
        attempt: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        work(&lock(&self.reader)).map_err(|source| self.failed(attempt, source))
    }

    fn failed(&self, attempt: &'static str, source: rusqlite::Error) -> Error {
        Error::Sqlite { attempt, place: self.path.display().to_string(), source }
    }
}

/// A thread that panicked inside left a transaction that SQLite has rolled back.
fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

fn configure(connection: &Connection, access: Access) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    match access {
        Access::Write => {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // Each commit is on disk when it returns: a row that was acknowledged outlives a power cut.
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
        }
        Access::Read => connection.pragma_update(None, "query_only", true),
    }
}

fn migrate(writer: &mut Connection, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Sqlite { attempt: "migrate", place: path.display().to_string(), source };
    // All or nothing, and one process at a time.
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    transaction.execute_batch(schema::TRACK).map_err(failed)?;
    let version: i64 = transaction.query_row(schema::VERSION, [], |row| row.get(0)).map_err(failed)?;
    schema::check(version, &path.display())?;
    for (number, sql) in schema::pending(Engine::Sqlite, version) {
        transaction.execute_batch(&sql).map_err(failed)?;
        let now = jiff::Timestamp::now().as_microsecond();
        transaction.execute(schema::REMEMBER, params![number, now]).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn stored_head(connection: &Connection) -> rusqlite::Result<Option<Head>> {
    let mut statement = connection.prepare_cached("SELECT seq, hash FROM audit_head WHERE one = 1")?;
    statement.query_row([], |row| Ok(Head { seq: row.get(0)?, hash: row.get(1)? })).optional()
}

/// Whether it was new.
fn insert_row(insert: &mut rusqlite::Statement<'_>, row: &Row) -> rusqlite::Result<bool> {
    let Row { seq, record, previous, hash } = row;
    let (id, texts) = (record.id.as_bytes(), record.texts());
    let mut values: Vec<&dyn ToSql> = vec![seq, id, &record.at];
    values.extend(texts.iter().map(|text| text as &dyn ToSql));
    values.extend([previous as &dyn ToSql, hash]);
    let inserted = insert.execute(values.as_slice())?;
    Ok(inserted > 0)
}

/// The number of a row that cannot be read is still known: it is the table's key.
fn decode(row: &rusqlite::Row<'_>) -> Result<Row, (i64, String)> {
    let seq: i64 = row.get(0).unwrap_or_default();
    let decoded = || -> rusqlite::Result<Row> {
        let mut texts: [String; 10] = Default::default();
        for (text, column) in texts.iter_mut().zip(3..) {
            *text = row.get(column)?;
        }
        let record = Record::stored(Uuid::from_bytes(row.get(1)?), row.get(2)?, texts);
        Ok(Row { seq, record, previous: row.get(13)?, hash: row.get(14)? })
    };
    decoded().map_err(|error| (seq, error.to_string()))
}

impl ToSql for Arg {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Int(value) => ToSqlOutput::from(*value),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}
