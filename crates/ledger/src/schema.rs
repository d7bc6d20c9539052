//! What does the database look like, and how did it get there? One list of migrations for both engines.
//!
//! A migration is SQL that both engines understand, with a few words in double braces that each engine says its own
//! way. Only what enforces append-only differs as a whole: triggers have no common spelling.

use std::fmt::Display;

use crate::error::Error;

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

/// All there are, oldest first; the number of a migration is its place, from 1.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_chain.sql")];

/// Remembers which have run.
pub(crate) const TRACK: &str =
    "CREATE TABLE IF NOT EXISTS audit_migrations (version BIGINT PRIMARY KEY, at BIGINT NOT NULL)";
pub(crate) const VERSION: &str = "SELECT COALESCE(MAX(version), 0) FROM audit_migrations";
pub(crate) const REMEMBER: &str = "INSERT INTO audit_migrations (version, at) VALUES ($1, $2)";

/// # Errors
/// When the ledger at `place` is newer than this program.
pub(crate) fn check(found: i64, place: &dyn Display) -> Result<(), Error> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(Error::TooNew { place: place.to_string(), found, known });
    }
    Ok(())
}

/// What is still to be run on a database at `version`, with the numbers to remember.
pub(crate) fn pending(engine: Engine, version: i64) -> Vec<(i64, String)> {
    let numbered = (1..).zip(MIGRATIONS);
    numbered
        .filter(|(number, _)| *number > version)
        .map(|(number, sql)| (number, spoken(engine, sql)))
        .collect()
}

fn spoken(engine: Engine, sql: &str) -> String {
    let words = match engine {
        Engine::Sqlite => [
            ("{{serial_key}}", "INTEGER PRIMARY KEY"),
            ("{{int64}}", "INTEGER"),
            ("{{bytes}}", "BLOB"),
            ("{{append_only}}", include_str!("../migrations/0001_append_only_sqlite.sql")),
        ],
        Engine::Postgres => [
            ("{{serial_key}}", "BIGINT PRIMARY KEY"),
            ("{{int64}}", "BIGINT"),
            ("{{bytes}}", "BYTEA"),
            ("{{append_only}}", include_str!("../migrations/0001_append_only_postgres.sql")),
        ],
    };
    words.iter().fold(sql.to_owned(), |sql, (word, said)| sql.replace(word, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_migration_is_known_to_both_engines() {
        for engine in [Engine::Sqlite, Engine::Postgres] {
            for (number, sql) in pending(engine, 0) {
                assert!(!sql.contains("{{"), "migration {number} for {engine:?}: {sql}");
            }
            assert!(pending(engine, i64::try_from(MIGRATIONS.len()).unwrap()).is_empty());
        }
    }
}
