//! How long does a template with 100 patterns take over 10,000 changed files? The promise is 20 ms.
//!
//! `cargo run --release --workspace --example match_speed` prints, for several sorts of patterns, the best of some
//! rounds and its part of the promise.

#![expect(clippy::print_stdout, reason = "this prints what it measured")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a measurement needs a clock; the decisions beside it have none"
)]

use std::time::Instant;

use pawl_api::git::WorkflowTemplateSpec;
use pawl_machines::git::matching::{ChangedFile, fan_out};
use serde_json::json;

const PATTERNS: usize = 100;
const FILES: usize = 10_000;
const PROMISED_MS: f64 = 20.0;
const ROUNDS: usize = 7;

fn main() -> Result<(), serde_json::Error> {
    let files: Vec<ChangedFile> = (0..FILES).map(file).collect();
    type Sort = (&'static str, fn(usize) -> String);
    let sorts: [Sort; 5] = [
        ("folders", |n| format!("modules/team-x{n}/**/*.tf")),
        ("anywhere", |n| format!("**/svc-{n}/**/*.tf")),
        ("endings", |n| format!("**/*.ext{n}")),
        ("stars", |n| format!("*/*/*/svc-{n}*/nothing-*.tf")),
        ("alternatives", |n| format!("{{modules,envs,infra}}/team-{n}/**/{{main,outputs}}.{{tf,tfvars}}")),
    ];
    for (name, pattern) in sorts {
        let patterns: Vec<String> = (0..PATTERNS).map(pattern).collect();
        let spec: WorkflowTemplateSpec = serde_json::from_value(
            json!({"displayName": name, "job": {}, "match": {"paths": patterns, "executionUnit": "file"}}),
        )?;
        let mut best = f64::INFINITY;
        let mut found = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let verdicts = fan_out(&files, [(name, &spec)], false);
            best = best.min(start.elapsed().as_secs_f64() * 1000.0);
            found = verdicts.iter().map(|verdict| verdict.targets.len()).sum();
        }
        let part = best / PROMISED_MS * 100.0;
        println!("{name:<14} {best:>7.2} ms  {part:>4.0} % of what is promised  {found:>5} files match");
    }
    Ok(())
}

/// Folders, teams and services repeat with periods that share no factor, so that all combinations come up.
fn file(n: usize) -> ChangedFile {
    const FOLDERS: [&str; 5] = ["modules", "envs", "infra", "services", "docs"];
    const NAMES: [&str; 4] = ["main.tf", "outputs.tf", "values.yaml", "prod.tfvars"];
    let of = |list: &[&'static str], at: usize| list.get(at % list.len()).copied().unwrap_or_default();
    let (folder, name) = (of(&FOLDERS, n), of(&NAMES, n / 5));
    ChangedFile::new(format!("{folder}/team-{}/{}/svc-{}/{name}", n % 37, of(&FOLDERS, n / 7), n % 101))
}
