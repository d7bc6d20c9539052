//! The phase tables of all kinds, for those who see objects without their types: the simulator, the engine's
//! assertions, the dashboard.

use std::sync::LazyLock;

use crate::git;
use crate::meta::Kind;
use crate::meta::phase::Table;

const PHASE: [&str; 2] = ["status", "phase"];

static TABLES: LazyLock<Vec<Table>> =
    LazyLock::new(|| vec![Table::of::<git::WorkflowPhase>(git::workflow::KIND, PHASE)]);

/// One table per kind that has phases.
pub fn tables() -> &'static [Table] {
    &TABLES
}

/// The table of a kind, in whatever version.
pub fn table(kind: &Kind) -> Option<&'static Table> {
    tables().iter().find(|table| table.kind.same_kind(kind))
}

/// Whether an object of that kind may move so; `None` for a kind without phases.
pub fn legal(kind: &Kind, from: Option<&str>, to: &str) -> Option<bool> {
    table(kind).map(|table| table.legal(from, to))
}
