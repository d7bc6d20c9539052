//! What do these policies say of this input?
//!
//! A program is a set of modules, read and checked once. Each evaluation is given an interpreter of its own that has been
//! warmed: the first one prepares, the others only run.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU32;

use jiff::Timestamp;
use pawl_machines::remedy::safety::Decision;
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};

use crate::scan::{Problem, scan};
use crate::spare::Spare;
use crate::{DEADLINE, calls, decision};

/// Where a decision is looked for.
const DECISION: &[&str] = &["data", "pawl", "safety", "decision"];
const DENY: &str = "deny";

/// Modules of a set, and all their text: what fits into a few ConfigMaps.
const MAX_MODULES: usize = 64;
const MAX_SET_BYTES: usize = 1024 * 1024;

/// How many steps of the interpreter pass before its timer is looked at: some microseconds.
pub(crate) const TIMER_STEPS: NonZeroU32 = NonZeroU32::new(256).unwrap();

/// A set of policies that can be asked.
pub struct Program {
    warm: Engine,
    spare: Spare<Engine>,
    /// The rule whose value is the decision.
    decision: Option<String>,
    /// Rules that are sets of denials, in other packages.
    denials: Vec<String>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("decision", &self.decision)
            .field("denials", &self.denials)
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Reads and checks modules: names and texts.
    ///
    /// # Errors
    /// With the first thing that is wrong, and its place.
    pub fn compile(modules: &[(String, String)]) -> Result<Self, Problem> {
        let bytes: usize = modules.iter().map(|(_, text)| text.len()).sum();
        if modules.len() > MAX_MODULES || bytes > MAX_SET_BYTES {
            let first = modules.first().map(|(name, _)| name.as_str()).unwrap_or_default();
            let message = format!(
                "{} modules of {bytes} bytes in all; there may be {MAX_MODULES} of {MAX_SET_BYTES}",
                modules.len()
            );
            return Err(Problem::whole(first, message));
        }
        let mut engine = engine()?;
        for (name, text) in modules {
            add(&mut engine, name, text)?;
        }
        calls::check(engine.get_modules())?;
        let (decision, denials) = asked(&mut engine);
        if decision.is_none() && denials.is_empty() {
            let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
            let message = "nothing here decides: write data.pawl.safety.decision, or a set named deny";
            return Err(Problem::whole(&names.join(", "), message));
        }
        // Prepares all rules; what is wrong between them is found here.
        engine.eval_query("true".to_owned(), false).map_err(|error| problem(&error.to_string()))?;
        Ok(Self { warm: engine, spare: Spare::default(), decision, denials })
    }

    /// What it says of an input, which is JSON.
    ///
    /// # Errors
    /// When it cannot be evaluated, or says something that is no decision. That denies.
    pub fn decide(&self, input: &str) -> Result<Decision, String> {
        let mut engine = self.spare.take().unwrap_or_else(|| self.warm.clone());
        let decided = self.decide_with(&mut engine, input);
        // What an evaluation left half done is not used again.
        if decided.is_ok() {
            self.spare.give_back(engine);
        }
        decided
    }

    fn decide_with(&self, engine: &mut Engine, input: &str) -> Result<Decision, String> {
        let input = Value::from_json_str(input).map_err(|error| format!("the input is no JSON: {error}"))?;
        set_now(&input);
        engine.set_input(input);
        let mut decided = match &self.decision {
            None => Decision { allow: true, ..Decision::default() },
            Some(rule) => read(rule, &evaluate(engine, rule)?)?,
        };
        for rule in &self.denials {
            let value = evaluate(engine, rule)?;
            if value != Value::Undefined {
                let denied = decision::messages(&json(&value)?);
                decided.deny.extend(denied.map_err(|problem| format!("{rule}: {problem}"))?);
            }
        }
        decided.allow &= decided.deny.is_empty();
        Ok(decided)
    }
}

/// What the value of the rule that decides means.
pub(crate) fn read(rule: &str, value: &Value) -> Result<Decision, String> {
    if *value == Value::Undefined {
        return Err(format!("{rule} is undefined for this input"));
    }
    decision::read(&json(value)?).map_err(|problem| format!("{rule}: {problem}"))
}

thread_local! {
    /// The moment of the evaluation that runs on this thread, in nanoseconds since 1970.
    static MOMENT: Cell<Option<i64>> = const { Cell::new(None) };
}

/// The time of an evaluation is in its input (I8): the same input has the same answer.
pub(crate) fn set_now(input: &Value) {
    let now = input["time"]["now"].as_string().ok().and_then(|now| now.parse::<Timestamp>().ok());
    MOMENT.set(now.and_then(|now| i64::try_from(now.as_nanosecond()).ok()));
}

/// An interpreter without chance, without a clock of its own, and with a timer.
pub(crate) fn engine() -> Result<Engine, Problem> {
    let mut engine = Engine::new();
    // As OPA has it: a builtin that cannot answer is undefined.
    engine.set_strict_builtin_errors(false);
    // What is printed is for nobody: the worker's output is its answers.
    engine.set_gather_prints(true);
    engine.set_execution_timer_config(ExecutionTimerConfig { limit: DEADLINE, check_interval: TIMER_STEPS });
    let now = |_: Vec<Value>| match MOMENT.get() {
        Some(now) => Ok(Value::from(now)),
        None => Ok(Value::Undefined),
    };
    engine
        .add_extension(calls::NOW.to_owned(), 0, Box::new(now))
        .map_err(|error| Problem::whole(calls::NOW, error.to_string()))?;
    Ok(engine)
}

/// Reads a module as Rego v1, and if that cannot be, as v0. Of two problems, the one farther on is the real one: whoever
/// wrote v0 fails as v1 at the first rule.
pub(crate) fn add(engine: &mut Engine, name: &str, text: &str) -> Result<(), Problem> {
    scan(name, text)?;
    engine.set_rego_v0(false);
    let Err(v1) = engine.add_policy(name.to_owned(), text.to_owned()) else { return Ok(()) };
    engine.set_rego_v0(true);
    let Err(v0) = engine.add_policy(name.to_owned(), text.to_owned()) else { return Ok(()) };
    let [v1, v0] = [v1, v0].map(|error| problem(&error.to_string()));
    Err(if (v0.line, v0.column) > (v1.line, v1.column) { v0 } else { v1 })
}

pub(crate) fn evaluate(engine: &mut Engine, rule: &str) -> Result<Value, String> {
    let value = engine.eval_rule(rule.to_owned());
    let printed = engine.take_prints();
    drop(printed);
    value.map_err(|error| problem(&error.to_string()).to_string())
}

pub(crate) fn json(value: &Value) -> Result<serde_json::Value, String> {
    serde_json::to_value(value).map_err(|error| format!("the answer cannot be written as JSON: {error}"))
}

/// The rules to be asked: the decision, and the sets of denials of packages that have none.
fn asked(engine: &mut Engine) -> (Option<String>, Vec<String>) {
    let (mut found, mut denials) = (None, std::collections::BTreeSet::new());
    let mut decides = None;
    for module in engine.get_modules() {
        let package = calls::package(module);
        for rule in &module.policy {
            let mut path = package.clone();
            path.extend(calls::rule_name(rule));
            if path == DECISION {
                found = Some(path_text(&path));
                decides = Some(package.clone());
            } else if calls::rule_name(rule) == [DENY] {
                denials.insert((package.clone(), path_text(&path)));
            }
        }
    }
    // Where there is a decision, the denials beside it are its own business.
    let others = denials.into_iter().filter(|(package, _)| Some(package) != decides.as_ref());
    (found, others.map(|(_, path)| path).collect())
}

/// A path as Rego writes it.
fn path_text(path: &[String]) -> String {
    let mut text = String::new();
    for component in path {
        let mut characters = component.chars();
        let plain = characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && characters.all(|other| other.is_ascii_alphanumeric() || other == '_');
        if text.is_empty() {
            text.push_str(component);
        } else if plain {
            text.push('.');
            text.push_str(component);
        } else {
            text.push_str(&format!("[{}]", serde_json::Value::from(component.as_str())));
        }
    }
    text
}

/// What the interpreter says, with its picture taken apart: `--> file:line:column`, the line, a caret, `error: …`.
pub(crate) fn problem(said: &str) -> Problem {
    let message = said.rsplit_once("error: ").map_or(said, |(_, message)| message).trim();
    let message = message.split_whitespace().collect::<Vec<&str>>().join(" ");
    let place = said.lines().find_map(|line| line.trim().strip_prefix("--> "));
    let mut parts = place.unwrap_or_default().rsplitn(3, ':');
    let column = parts.next().and_then(|column| column.parse().ok());
    let line = parts.next().and_then(|line| line.parse().ok());
    match (parts.next(), line, column) {
        (Some(file), Some(line), Some(column)) => Problem { file: file.to_owned(), line, column, message },
        _ => Problem::whole("policy", message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(texts: &[&str]) -> Result<Program, Problem> {
        let modules: Vec<(String, String)> =
            texts.iter().enumerate().map(|(n, text)| (format!("m{n}.rego"), (*text).to_owned())).collect();
        Program::compile(&modules)
    }

    fn decide(text: &str, input: &str) -> Result<Decision, String> {
        program(&[text]).unwrap().decide(input)
    }

    #[test]
    fn a_decision_object_is_what_policy_says() {
        let text = "package pawl.safety\n\
            decision := {\"allow\": count(deny) == 0, \"deny\": deny, \"require_approval\": input.action == \"drain_node\"}\n\
            deny contains msg if { input.action == \"delete_pod\"; msg := \"no\" }\n";
        let allowed = decide(text, r#"{"action": "drain_node"}"#).unwrap();
        assert!(allowed.allow && allowed.require_approval);
        let denied = decide(text, r#"{"action": "delete_pod"}"#).unwrap();
        assert!(!denied.allow && denied.deny == ["no"]);
    }

    #[test]
    fn plain_deny_sets_of_v0_and_v1_are_understood_beside_each_other() {
        let v0 = "package kubernetes.admission\ndeny[msg] { input.action == \"delete_pod\"; msg := \"old words\" }\n";
        let v1 = "package main\nimport rego.v1\ndeny contains msg if { input.action == \"delete_pod\"; msg := \"new words\" }\n";
        let both = program(&[v0, v1]).unwrap();
        assert_eq!(both.decide(r#"{"action": "delete_pod"}"#).unwrap().deny, ["old words", "new words"]);
        assert!(both.decide(r#"{"action": "scale_deployment"}"#).unwrap().allow);
    }

    #[test]
    fn an_undefined_decision_is_an_error() {
        let text = "package pawl.safety\ndecision := {\"allow\": true} if input.a == 1\n";
        assert!(decide(text, r#"{"a": 1}"#).unwrap().allow);
        assert!(decide(text, "{}").unwrap_err().contains("undefined"));
    }

    #[test]
    fn a_conflict_between_rules_is_an_error_with_its_place() {
        let text = "package pawl.safety\ndecision := {\"allow\": true}\ndecision := {\"allow\": false}\n";
        let problem = match program(&[text]) {
            Ok(program) => program.decide("{}").unwrap_err(),
            Err(rejected) => rejected.to_string(),
        };
        assert!(problem.contains("m0.rego:"), "{problem}");
    }

    #[test]
    fn a_syntax_error_is_told_with_file_line_and_column() {
        let rejected = program(&["package pawl.safety\n\ndecision := {\"allow\": tru e}\n"]).unwrap_err();
        assert!(rejected.to_string().starts_with("m0.rego:3:"), "{rejected}");
        // Of v0, the mistake is told and not that it is v0.
        let rejected =
            program(&["package p\ndeny[msg] { msg := \"a\" }\ndeny[msg] { msg := := }\n"]).unwrap_err();
        assert!(rejected.to_string().starts_with("m0.rego:3:"), "{rejected}");
    }

    #[test]
    fn a_set_that_decides_nothing_is_refused() {
        assert!(
            program(&["package lib\nf(x) := x\n"]).unwrap_err().to_string().contains("nothing here decides")
        );
    }

    #[test]
    fn the_time_of_a_policy_is_that_of_its_input() {
        let text = "package pawl.safety\ndecision := {\"allow\": time.now_ns() == 1767225600000000000}\n";
        assert!(decide(text, r#"{"time": {"now": "2026-01-01T00:00:00Z"}}"#).unwrap().allow);
        assert!(!decide(text, r#"{"time": {"now": "2026-01-01T00:00:01Z"}}"#).unwrap().allow);
        let weekday =
            "package pawl.safety\ndecision := {\"allow\": time.weekday(time.now_ns()) == \"Thursday\"}\n";
        assert!(decide(weekday, r#"{"time": {"now": "2026-01-01T00:00:00Z"}}"#).unwrap().allow);
        assert!(decide(text, "{}").is_err());
    }

    #[test]
    fn an_evaluation_remembers_nothing_of_the_one_before() {
        let text = "package pawl.safety\ndecision := {\"allow\": input.a}\n";
        let program = program(&[text]).unwrap();
        for allow in [true, false, true] {
            assert_eq!(program.decide(&format!(r#"{{"a": {allow}}}"#)).unwrap().allow, allow);
        }
        assert!(program.decide("{").is_err());
        assert!(program.decide(r#"{"a": 1}"#).is_err());
        assert!(program.decide(r#"{"a": true}"#).unwrap().allow);
    }

    #[test]
    fn a_builtin_that_cannot_answer_is_undefined_as_in_opa() {
        let text = "package main\ndeny contains \"bad\" if { to_number(input.a) > 3 }\n";
        assert!(decide(text, r#"{"a": "z"}"#).unwrap().allow);
        assert!(!decide(text, r#"{"a": "4"}"#).unwrap().allow);
    }
}
