//! Do policies say what somebody wrote down?
//!
//! A file of fixtures is a list in YAML: a name, an input, and what is expected. Only what is written is compared. Each
//! text under `deny` must be part of a message; an empty list means that nothing is denied.

use pawl_api::meta::Duration;
use pawl_machines::remedy::safety::Decision;
use serde::Deserialize;
use serde_json::Value;

/// One question and what should come of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    pub name: String,
    pub input: Value,
    pub expect: Expect,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    pub allow: Option<bool>,
    pub deny: Option<Vec<String>>,
    pub require_approval: Option<bool>,
    pub require_dry_run: Option<bool>,
    pub approvers: Option<Approvers>,
    pub approval_timeout: Option<Duration>,
    pub risk: Option<String>,
    pub allow_gitops: Option<bool>,
    /// It cannot be evaluated, and says this.
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Approvers {
    pub groups: Option<Vec<String>>,
    pub count: Option<u32>,
}

/// Reads a file of fixtures.
///
/// # Errors
/// With what is wrong, and the place that the reader of YAML gives.
pub fn read(yaml: &str) -> Result<Vec<Fixture>, String> {
    serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
}

impl Fixture {
    /// How what was said differs from what was expected: nothing where it does not.
    pub fn compare(&self, said: &Result<Decision, String>) -> Vec<String> {
        let expect = &self.expect;
        let decision = match (said, &expect.error) {
            (Err(problem), Some(part)) if problem.contains(part) => return Vec::new(),
            (Err(problem), _) => return vec![format!("it cannot be evaluated: {problem}")],
            (Ok(_), Some(part)) => return vec![format!("expected the error {part:?}, and it was evaluated")],
            (Ok(decision), None) => decision,
        };
        let mut found = Vec::new();
        let mut same = |what: &str, expected: Option<String>, actual: String| {
            if let Some(expected) = expected.filter(|expected| *expected != actual) {
                found.push(format!("{what}: expected {expected}, got {actual}"));
            }
        };
        let flag = |flag: Option<bool>| flag.map(|flag| flag.to_string());
        same("allow", flag(expect.allow), decision.allow.to_string());
        same("require_approval", flag(expect.require_approval), decision.require_approval.to_string());
        same("require_dry_run", flag(expect.require_dry_run), decision.require_dry_run.to_string());
        same("allow_gitops", flag(expect.allow_gitops), decision.allow_gitops.to_string());
        let words = |words: &Option<String>| words.clone().unwrap_or_else(|| "none".to_owned());
        same("risk", expect.risk.clone(), words(&decision.risk));
        let timeout = decision.approval_timeout.map(|timeout| timeout.to_string());
        same("approval_timeout", expect.approval_timeout.map(|timeout| timeout.to_string()), words(&timeout));
        if let Some(Approvers { groups, count }) = &expect.approvers {
            let list = |groups: &[String]| format!("[{}]", groups.join(", "));
            same("approvers.groups", groups.as_deref().map(list), list(&decision.approver_groups));
            same(
                "approvers.count",
                count.map(|count| count.to_string()),
                decision.approver_count.to_string(),
            );
        }
        found.extend(self.compare_denials(&decision.deny));
        found
    }

    fn compare_denials(&self, denied: &[String]) -> Vec<String> {
        let Some(expected) = &self.expect.deny else { return Vec::new() };
        if expected.is_empty() && !denied.is_empty() {
            return vec![format!("deny: expected nothing, got {}", denied.join("; "))];
        }
        let missing = expected.iter().filter(|part| !denied.iter().any(|message| message.contains(*part)));
        missing.map(|part| format!("deny: expected {part:?} in [{}]", denied.join("; "))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BUILT_IN, Program, built_in};

    #[test]
    fn the_built_in_policy_says_what_its_fixtures_expect() {
        let fixtures = read(include_str!("../default/fixtures.yaml")).unwrap();
        assert!(fixtures.len() > 20);
        // Compiled, as it is asked here; and interpreted, as a copy of it is in a worker.
        let (name, text) = BUILT_IN;
        let copy = Program::compile(&[(name.to_owned(), text.to_owned())]).unwrap();
        let compiled = built_in().unwrap();
        let wrong: Vec<String> = fixtures
            .iter()
            .flat_map(|fixture| {
                let input = fixture.input.to_string();
                let (said, copied) = (compiled.decide(&input), copy.decide(&input));
                assert_eq!(said, copied, "{}", fixture.name);
                fixture.compare(&said).into_iter().map(|what| format!("{}: {what}", fixture.name))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn whatever_differs_is_told() {
        let fixture = &read(
            "- name: n\n  input: {}\n  expect: {allow: true, deny: [a], risk: low, approvers: {groups: [sre], count: 2}, approval_timeout: 30m}\n",
        )
        .unwrap()[0];
        let decision = Decision { deny: vec!["xay".to_owned()], ..Decision::default() };
        let found = fixture.compare(&Ok(decision));
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!(fixture.compare(&Err("no".to_owned())).len(), 1);
    }

    #[test]
    fn an_expected_error_must_come() {
        let fixture = &read("- {name: n, input: {}, expect: {error: undefined}}\n").unwrap()[0];
        assert!(fixture.compare(&Err("x is undefined".to_owned())).is_empty());
        assert_eq!(fixture.compare(&Ok(Decision::default())).len(), 1);
    }

    #[test]
    fn a_slip_in_a_fixture_is_told_with_its_place() {
        let problem = read("- name: n\n  input: {}\n  expect: {alow: true}\n").unwrap_err();
        assert!(problem.contains("alow"), "{problem}");
    }
}
