//! A measurement is worth something when everything that it measures came to its end.

use serde_json::Value;

use crate::{pawl_dev, text};

#[test]
fn bench_remedy_runs_every_execution_to_its_end_and_tells_figures_with_their_budgets() {
    let home = tempfile::tempdir().unwrap();
    let output = pawl_dev(home.path(), &["bench", "remedy", "--executions", "12", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (figure, budget) in [("executionsPerSecond", 150.0), ("phaseP99Ms", 250.0)] {
        let figure = &told["figures"][figure];
        assert!(figure["value"].as_f64().unwrap() > 0.0 && figure["holds"].is_boolean(), "{told:#}");
        assert_eq!(figure["budget"], budget);
    }
    assert_eq!(told["what"], "12 WorkflowExecutions with engine job");
    // The lock, the Job made and let go, two statuses and the release, at the very least.
    assert!(told["writesPerExecution"].as_f64().unwrap() >= 5.0, "{told:#}");
    let machines: Vec<&str> =
        told["requests"].as_array().unwrap().iter().filter_map(|row| row["machine"].as_str()).collect();
    assert!(machines.contains(&"workflowexecution"), "{machines:?}");
}
