//! Which rows does somebody ask for, and how does a page go on where the last one ended?
//!
//! Newest first, by time and then by place in the chain. A page ends with a [`Cursor`]; the next one begins after it,
//! however many rows came meanwhile. Every filter has an index that ends in that same order, so a page costs what it
//! shows and not what there is.

use std::fmt::Display;

use jiff::Timestamp;

use crate::error::Error;
use crate::row::Row;

/// What a person reads at once; a program asks for page after page.
pub const MAX_LIMIT: usize = 10_000;

/// All of a row, in the order in which the stores read it.
pub(crate) const COLUMNS: &str = "seq, id, at, actor, kind, namespace, name, uid, target, event, outcome, \
    correlation, payload, previous, hash";

/// What a row must have; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub target: Option<String>,
    pub actor: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub correlation: Option<String>,
    /// From this moment on.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
}

/// Where a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub at: i64,
    pub seq: i64,
}

/// Some rows, and where more begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// `None`: there are no more.
    pub next: Option<Cursor>,
}

/// A value for a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Int(i64),
    Text(String),
}

/// SQL that both engines understand: placeholders are numbered in the order in which they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) args: Vec<Arg>,
}

impl Filter {
    pub(crate) fn statement(&self, after: Option<Cursor>, limit: usize) -> Statement {
        let Self { target, actor, kind, namespace, name, correlation, since, until } = self;
        let mut wanted = Wanted::default();
        if target.is_some() {
            // The index leaves out rows without a target; saying so lets it be used.
            wanted.conditions.push("target <> ''".to_owned());
        }
        let texts = [
            ("target", target),
            ("actor", actor),
            ("kind", kind),
            ("namespace", namespace),
            ("name", name),
            ("correlation", correlation),
        ];
        for (column, text) in texts {
            if let Some(text) = text {
                let place = wanted.place(Arg::Text(text.clone()));
                wanted.conditions.push(format!("{column} = {place}"));
            }
        }
        for (comparison, moment) in [("at >=", since), ("at <", until)] {
            if let Some(moment) = moment {
                let place = wanted.place(Arg::Int(moment.as_microsecond()));
                wanted.conditions.push(format!("{comparison} {place}"));
            }
        }
        if let Some(Cursor { at, seq }) = after {
            let (at, seq) = (wanted.place(Arg::Int(at)), wanted.place(Arg::Int(seq)));
            wanted.conditions.push(format!("(at, seq) < ({at}, {seq})"));
        }
        // One more than is shown tells whether there is a next page.
        let limit = limit.clamp(1, MAX_LIMIT).saturating_add(1);
        let limit = wanted.place(Arg::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
        let Wanted { conditions, args } = wanted;
        let conditions = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
        let sql = format!(
            "SELECT {COLUMNS} FROM audit_log WHERE {conditions} ORDER BY at DESC, seq DESC LIMIT {limit}"
        );
        Statement { sql, args }
    }
}

impl Page {
    /// A page of at most `limit`, from rows of which one more was asked for.
    ///
    /// # Errors
    /// With the first row that cannot be read.
    pub(crate) fn of(
        rows: impl Iterator<Item = Result<Row, (i64, String)>>,
        limit: usize,
        place: &dyn Display,
    ) -> Result<Self, Error> {
        let rows = rows.collect::<Result<Vec<Row>, _>>();
        let mut rows = rows.map_err(|(seq, problem)| Error::Unreadable {
            place: place.to_string(),
            problem: format!("row {seq}: {problem}"),
        })?;
        let limit = limit.clamp(1, MAX_LIMIT);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more);
        let next = last.map(|row| Cursor { at: row.record.at, seq: row.seq });
        Ok(Self { rows, next })
    }
}

#[derive(Debug, Default)]
struct Wanted {
    conditions: Vec<String>,
    args: Vec<Arg>,
}

impl Wanted {
    fn place(&mut self, arg: Arg) -> String {
        self.args.push(arg);
        format!("${}", self.args.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_never_becomes_part_of_the_statement() {
        let evil = "x'; DROP TABLE audit_log; --".to_owned();
        let filter = Filter { target: Some(evil.clone()), name: Some(evil.clone()), ..Filter::default() };
        let Statement { sql, args } = filter.statement(Some(Cursor { at: 7, seq: 8 }), 10);
        assert!(!sql.contains("DROP"), "{sql}");
        assert!(sql.contains("name = $2") && sql.contains("(at, seq) < ($3, $4)"), "{sql}");
        let (text, int) = (Arg::Text(evil), |value| Arg::Int(value));
        assert_eq!(args, [text.clone(), text, int(7), int(8), int(11)]);
    }
}
