//! What the tests have in common: records, a database of either engine, and a hand that changes it behind the ledger.

use jiff::Timestamp;
use pawl_ledger::store::Access;
use pawl_ledger::{Place, Record, Row, Store};
use tempfile::TempDir;
use uuid::Uuid;

use crate::cluster::Cluster;

/// Both engines, for what must hold on both.
pub(crate) enum World {
    Sqlite(TempDir),
    Postgres(String, tokio_postgres::Client),
}

impl World {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(TempDir::with_prefix("pawl-ledger-").unwrap())
    }

    /// A database of its own.
    pub(crate) async fn postgres(cluster: &Cluster, name: &str) -> Self {
        let url = cluster.database(name);
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        Self::Postgres(url, client)
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Self::Sqlite(directory) => Place::File(directory.path().join("audit.db")),
            Self::Postgres(url, _) => Place::parse(url).unwrap(),
        }
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.place(), Access::Write).await.unwrap()
    }

    /// As somebody with the database's password.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), String> {
        match self {
            Self::Sqlite(directory) => {
                let connection = rusqlite::Connection::open(directory.path().join("audit.db")).unwrap();
                connection.execute_batch(sql).map_err(|error| error.to_string())
            }
            Self::Postgres(_, client) => {
                let said = |error: tokio_postgres::Error| {
                    error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned())
                };
                client.batch_execute(sql).await.map_err(said)
            }
        }
    }

    /// Takes away what keeps the tables append-only, and does it.
    pub(crate) async fn tamper(&self, sql: &str) {
        let free = match self {
            Self::Sqlite(_) => {
                "DROP TRIGGER IF EXISTS audit_log_no_update; DROP TRIGGER IF EXISTS audit_log_no_delete; \
                 DROP TRIGGER IF EXISTS audit_head_forward; DROP TRIGGER IF EXISTS audit_head_no_delete;"
            }
            Self::Postgres(..) => "SET session_replication_role = replica;",
        };
        self.execute(&format!("{free} {sql}")).await.unwrap();
    }

    /// A value of bytes, as this engine writes it.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Sqlite(_) => format!("x'{hex}'"),
            Self::Postgres(..) => format!("'\\x{hex}'::bytea"),
        }
    }
}

pub(crate) const START: i64 = 1_700_000_000_000_000;

/// The n-th record: a second after the one before.
pub(crate) fn record(n: u32) -> Record {
    Record {
        id: Uuid::new_v5(&Uuid::NAMESPACE_OID, &n.to_be_bytes()),
        at: START + i64::from(n) * 1_000_000,
        actor: format!("controller:{}", if n % 2 == 0 { "workflow" } else { "branch" }),
        kind: if n % 2 == 0 { "Workflow" } else { "Branch" }.to_owned(),
        namespace: "team".to_owned(),
        name: format!("object-{}", n % 10),
        uid: format!("uid-{}", n % 10),
        target: if n % 5 == 0 { String::new() } else { format!("prod/deployment/web-{}", n % 5) },
        event: "git.workflow.started".to_owned(),
        outcome: "success".to_owned(),
        correlation: format!("root-{}", n % 3),
        payload: format!(r#"{{"attempt":{n},"words":"naïve ✓"}}"#),
    }
}

pub(crate) fn records(range: std::ops::Range<u32>) -> Vec<Record> {
    range.map(record).collect()
}

pub(crate) fn moment(n: u32) -> Timestamp {
    Timestamp::from_microsecond(record(n).at).unwrap()
}

/// All rows, in the order of the chain.
pub(crate) async fn chain(store: &Store) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let page = store.query(&pawl_ledger::Filter::default(), after, 500).await.unwrap();
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    rows.sort_by_key(|row| row.seq);
    rows
}
