//! The ledger in PostgreSQL: whoever appends holds the head's row until the commit, so that two replicas that both
//! believe to lead cannot fork the chain.
//!
//! One connection for appending and one for reading, made when first needed and made anew when lost. Every call has a
//! time limit of its own: a server that hangs is a server that is down.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, IsolationLevel, Transaction};
use uuid::Uuid;

use crate::error::Error;
use crate::query::{Arg, COLUMNS, Cursor, Filter, Page, Statement};
use crate::row::{Hash, Head, Record, Row};
use crate::schema::{self, Engine};
use crate::store::{Access, Appended, VERIFY_PAGE};
use crate::tls::{self, Tls};
use crate::verify::{Checker, Verdict};

/// A database next door answers in milliseconds; one that is failing over is better asked again.
const CONNECT: Duration = Duration::from_secs(5);
/// A batch of a thousand rows is stored in tens of milliseconds, on a slow disk in a second.
const ANSWER: Duration = Duration::from_secs(15);

/// Held while migrations run, so that two processes that start together do not both run them. Any number that nobody
/// else uses for this database: the first bytes of SHA-256("pawl-audit").
const MIGRATION_LOCK: i64 = 0x3d6c_91e4_0b5a_7f12;

#[derive(Debug)]
pub(crate) struct Postgres {
    /// As it may be shown: without user and password.
    place: String,
    config: Config,
    tls: Tls,
    access: Access,
    writer: Mutex<Option<Connected>>,
    reader: Mutex<Option<Connected>>,
}

#[derive(Debug)]
struct Connected {
    client: Client,
    driver: JoinHandle<()>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Postgres {
    /// Connects once, to say early what is wrong.
    pub(crate) async fn open(url: &str, access: Access) -> Result<Self, Error> {
        let (config, tls) = tls::settings(url)?;
        let this = Self {
            place: shown(&config),
            config,
            tls,
            access,
            writer: Mutex::default(),
            reader: Mutex::default(),
        };
        this.on(&this.reader, "read the version", async |client| {
            client.query_one(schema::VERSION, &[]).await
        })
        .await
        .and_then(|row| schema::check(row.get(0), &this.place))?;
        Ok(this)
    }

    pub(crate) async fn append(&self, records: &[Record]) -> Result<Appended, Error> {
        self.on(&self.writer, "append", async |client| append(client, records).await).await
    }

    pub(crate) async fn query(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let Statement { sql, args } = filter.statement(after, limit);
        let rows = self
            .on(&self.reader, "read", async |client| {
                let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(Arg::sql).collect();
                client.query(&sql, &args).await
            })
            .await?;
        Page::of(rows.iter().map(decode), limit, &self.place)
    }

    pub(crate) async fn head(&self) -> Result<Head, Error> {
        let head = self.on(&self.reader, "read the head", async |client| {
            let rows = client.query("SELECT seq, hash FROM audit_head WHERE one = 1", &[]).await?;
            Ok(rows.first().map(read_head))
        });
        Ok(head.await?.unwrap_or_default())
    }

    pub(crate) async fn verify(&self, anchors: &[Head]) -> Result<Verdict, Error> {
        let mut connected = self.connected(&self.reader).await?;
        let failed = |source| self.failed("verify", source);
        let Some(Connected { client, .. }) = connected.as_mut() else {
            return Err(self.timed_out("connect", CONNECT));
        };
        // One snapshot: whoever appends meanwhile does not disturb.
        let snapshot =
            client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
        let snapshot = self.within("verify", snapshot.start()).await?;
        let head = self
            .within("verify", snapshot.query("SELECT seq, hash FROM audit_head WHERE one = 1", &[]))
            .await?;
        let mut checker = Checker::new(head.first().map(read_head), anchors);
        let page = format!("SELECT {COLUMNS} FROM audit_log WHERE seq > $1 ORDER BY seq LIMIT {VERIFY_PAGE}");
        let page = snapshot.prepare(&page).await.map_err(failed)?;
        let mut last = i64::MIN;
        loop {
            let rows = self.within("verify", snapshot.query(&page, &[&last])).await?;
            let Some(end) = rows.last() else { break };
            last = end.get(0);
            rows.iter().for_each(|row| checker.take(decode(row)));
        }
        snapshot.rollback().await.map_err(failed)?;
        Ok(checker.finish())
    }

    /// Does something on a connection, and drops the connection if that failed: what state it is in is not known.
    async fn on<T>(
        &self,
        slot: &Mutex<Option<Connected>>,
        attempt: &'static str,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        let mut connected = self.connected(slot).await?;
        let Some(Connected { client, .. }) = connected.as_mut() else {
            return Err(self.timed_out("connect", CONNECT));
        };
        let result = self.within(attempt, work(client)).await;
        if result.is_err() {
            *connected = None;
        }
        result
    }

    async fn within<T>(
        &self,
        attempt: &'static str,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        match timeout(ANSWER, work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(self.failed(attempt, source)),
            Err(_) => Err(self.timed_out(attempt, ANSWER)),
        }
    }

    /// The connection in this slot, made if there is none that lives.
    async fn connected<'a>(
        &self,
        slot: &'a Mutex<Option<Connected>>,
    ) -> Result<MutexGuard<'a, Option<Connected>>, Error> {
        let mut slot = slot.lock().await;
        if slot.as_ref().is_none_or(|connected| connected.client.is_closed()) {
            *slot = None;
            let connecting = timeout(CONNECT, self.config.connect(self.tls.clone()));
            let connected = connecting.await.map_err(|_| self.timed_out("connect", CONNECT))?;
            let (client, connection) = connected.map_err(|source| self.failed("connect", source))?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "the connection to the ledger ended");
                }
            });
            let mut connected = Connected { client, driver };
            if self.access == Access::Write {
                self.migrate(&mut connected.client).await?;
            }
            *slot = Some(connected);
        }
        Ok(slot)
    }

    async fn migrate(&self, client: &mut Client) -> Result<(), Error> {
        let work = async {
            let transaction = client.transaction().await?;
            transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
            transaction.batch_execute(schema::TRACK).await?;
            let version: i64 = transaction.query_one(schema::VERSION, &[]).await?.get(0);
            for (number, sql) in schema::pending(Engine::Postgres, version) {
                transaction.batch_execute(&sql).await?;
                let now = jiff::Timestamp::now().as_microsecond();
                transaction.execute(schema::REMEMBER, &[&number, &now]).await?;
            }
            transaction.commit().await?;
            Ok(version)
        };
        let version = self.within("migrate", work).await?;
        schema::check(version, &self.place)
    }

    fn failed(&self, attempt: &'static str, source: tokio_postgres::Error) -> Error {
        Error::Postgres { attempt, place: self.place.clone(), source }
    }

    fn timed_out(&self, attempt: &'static str, limit: Duration) -> Error {
        Error::TimedOut { attempt, place: self.place.clone(), seconds: limit.as_secs() }
    }
}

/// Where it is, without who and with what password.
fn shown(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let host = config.get_hosts().first().map_or_else(String::new, |host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().map_or_else(String::new, |port| format!(":{port}"));
    let secure = if config.get_ssl_mode() == SslMode::Disable { "" } else { " with TLS" };
    format!("postgres://{host}{port}/{}{secure}", config.get_dbname().unwrap_or_default())
}

async fn append(client: &mut Client, records: &[Record]) -> Result<Appended, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let before = locked_head(&transaction).await?;
    let known = known(&transaction, records).await?;
    let mut head = before;
    let mut rows: Vec<Row> = Vec::with_capacity(records.len());
    let mut seen = known;
    for record in records {
        if seen.insert(record.id) {
            let row = record.clone().after(&head);
            head = row.head();
            rows.push(row);
        }
    }
    if rows.is_empty() {
        transaction.rollback().await?;
    } else {
        insert(&transaction, &rows).await?;
        let moved = "UPDATE audit_head SET seq = $1, hash = $2 WHERE one = 1";
        transaction.execute(moved, &[&head.seq, &head.hash.as_slice()]).await?;
        transaction.commit().await?;
    }
    Ok(Appended { stored: rows.len(), head })
}

/// The head, held until the transaction ends: whoever else appends waits here, and then sees what was appended.
async fn locked_head(transaction: &Transaction<'_>) -> Result<Head, tokio_postgres::Error> {
    let first = "INSERT INTO audit_head (one, seq, hash) VALUES (1, 0, $1) ON CONFLICT (one) DO NOTHING";
    let locked = "SELECT seq, hash FROM audit_head WHERE one = 1 FOR UPDATE";
    let rows = transaction.query(locked, &[]).await?;
    if let Some(row) = rows.first() {
        return Ok(read_head(row));
    }
    transaction.execute(first, &[&Hash::default().as_slice()]).await?;
    Ok(read_head(&transaction.query_one(locked, &[]).await?))
}

async fn known(
    transaction: &Transaction<'_>,
    records: &[Record],
) -> Result<std::collections::BTreeSet<Uuid>, tokio_postgres::Error> {
    let ids: Vec<&[u8]> = records.iter().map(|record| record.id.as_bytes().as_slice()).collect();
    let rows = transaction.query("SELECT id FROM audit_log WHERE id = ANY($1)", &[&ids]).await?;
    Ok(rows.iter().filter_map(|row| Uuid::from_slice(row.get(0)).ok()).collect())
}

/// All rows in one statement, column by column: one round trip, however many there are.
async fn insert(transaction: &Transaction<'_>, rows: &[Row]) -> Result<(), tokio_postgres::Error> {
    let sql = format!(
        "INSERT INTO audit_log ({COLUMNS}) SELECT * FROM UNNEST($1::BIGINT[], $2::BYTEA[], $3::BIGINT[], $4::TEXT[], \
         $5::TEXT[], $6::TEXT[], $7::TEXT[], $8::TEXT[], $9::TEXT[], $10::TEXT[], $11::TEXT[], $12::TEXT[], $13::TEXT[], \
         $14::BYTEA[], $15::BYTEA[])"
    );
    let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
    let ids: Vec<&[u8]> = rows.iter().map(|row| row.record.id.as_bytes().as_slice()).collect();
    let times: Vec<i64> = rows.iter().map(|row| row.record.at).collect();
    let previous: Vec<&[u8]> = rows.iter().map(|row| row.previous.as_slice()).collect();
    let hashes: Vec<&[u8]> = rows.iter().map(|row| row.hash.as_slice()).collect();
    let mut texts: [Vec<&str>; 10] = Default::default();
    for row in rows {
        texts.iter_mut().zip(row.record.texts()).for_each(|(column, text)| column.push(text));
    }
    let mut args: Vec<&(dyn ToSql + Sync)> = vec![&seqs, &ids, &times];
    args.extend(texts.iter().map(|column| column as &(dyn ToSql + Sync)));
    args.push(&previous);
    args.push(&hashes);
    transaction.execute(&sql, &args).await.map(|_| ())
}

fn read_head(row: &tokio_postgres::Row) -> Head {
    let hash: Vec<u8> = row.get(1);
    Head { seq: row.get(0), hash: hash.try_into().unwrap_or_default() }
}

/// The columns' types are the table's, so only lengths can be wrong.
fn decode(row: &tokio_postgres::Row) -> Result<Row, (i64, String)> {
    let seq: i64 = row.get(0);
    let bytes = |column: usize| -> Vec<u8> { row.get(column) };
    let hash = |column: usize, what: &str| -> Result<Hash, (i64, String)> {
        bytes(column).try_into().map_err(|_| (seq, format!("its {what} has a wrong length")))
    };
    let id = Uuid::from_slice(&bytes(1)).map_err(|error| (seq, error.to_string()))?;
    let record = Record::stored(id, row.get(2), std::array::from_fn(|text| row.get(3 + text)));
    Ok(Row { seq, record, previous: hash(13, "previous hash")?, hash: hash(14, "hash")? })
}

impl Arg {
    fn sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(value) => value,
            Self::Text(text) => text,
        }
    }
}
