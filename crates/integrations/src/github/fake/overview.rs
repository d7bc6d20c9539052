//! What does somebody see who looks at the web pages? All of it at once, as JSON.

use serde_json::{Value, json};

use super::Fake;
use super::world::{CheckRun, Pull, Repository};
use crate::github::client::lock;

impl Fake {
    /// Every repository with its branches, pull requests and check runs, oldest first.
    pub fn overview(&self) -> Value {
        let world = lock(&self.world);
        json!({"repositories": world.repositories.values().map(shown).collect::<Vec<_>>()})
    }
}

fn shown(repository: &Repository) -> Value {
    json!({
        "name": repository.full_name(), "branches": repository.branches,
        "pulls": repository.pulls.values().map(pull).collect::<Vec<_>>(),
        "checkRuns": repository.check_runs.values().map(check_run).collect::<Vec<_>>(),
    })
}

fn pull(pull: &Pull) -> Value {
    json!({"number": pull.number, "author": pull.author, "open": pull.open, "head": pull.head,
        "headOwner": pull.head_owner, "sha": pull.head_sha})
}

fn check_run(run: &CheckRun) -> Value {
    json!({"id": run.id, "name": run.name, "sha": run.head_sha, "status": run.status,
        "conclusion": run.conclusion, "title": run.title})
}
