//! The phase tables of all kinds, for those who see objects without their types: the simulator, the engine's
//! assertions, the dashboard.

use std::sync::LazyLock;

use crate::meta::Kind;
use crate::meta::phase::Table;
use crate::{deploy, git, remedy};

const PHASE: [&str; 2] = ["status", "phase"];
const OVERALL_PHASE: [&str; 2] = ["status", "overallPhase"];

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    vec![
        Table::of::<git::WorkflowPhase>(git::workflow::KIND, PHASE),
        Table::of::<deploy::InstallationPhase>(deploy::installation::KIND, PHASE),
        Table::of::<deploy::ExecutionPhase>(deploy::execution::KIND, PHASE),
        Table::of::<deploy::DeployItemPhase>(deploy::deploy_item::KIND, PHASE),
        Table::of::<remedy::WorkflowExecutionPhase>(remedy::workflow_execution::KIND, PHASE),
        Table::of::<remedy::KubernetesExecutionPhase>(remedy::kubernetes_execution::KIND, PHASE),
        Table::of::<remedy::RemediationPhase>(remedy::remediation_request::KIND, OVERALL_PHASE),
    ]
});

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_can_be_judged_without_types() {
        let older = Kind::of(git::GROUP, "v1alpha0", "Workflow", "workflows", true);
        assert_eq!(legal(&older, Some("Pending"), "Running"), Some(true));
        assert_eq!(legal(&git::workflow::KIND, Some("Succeeded"), "Running"), Some(false));
        assert_eq!(legal(&git::branch::KIND, None, "Running"), None);
        let request = table(&remedy::remediation_request::KIND).unwrap();
        assert_eq!(request.field, ["status", "overallPhase"]);
    }
}
