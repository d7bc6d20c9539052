//! Does this condition hold for this input?
//!
//! A condition is written in one of two ways: as rules, of which `allow` of package `condition` (which may be left out)
//! is the answer and `message` says more; or as expressions, one after another, all of which must hold and the last of
//! which is the answer. What is undefined does not hold.

use pawl_api::meta::text;
use pawl_machines::remedy::safety::Held;
use regorus::{Engine, Value};

use crate::calls;
use crate::program::{add, engine, evaluate, problem, set_now};
use crate::scan::{Problem, scan};

/// What a problem's place is given in.
const NAME: &str = "condition";
const PACKAGE: &str = "package condition\n";
const ALLOW: &str = "data.condition.allow";
const MESSAGE: &str = "data.condition.message";

/// For a status.
const MAX_MESSAGE_CHARS: usize = 1024;

/// A condition that was understood.
#[derive(Debug)]
pub struct Condition {
    engine: Engine,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Rules { message: bool },
    Expressions(String),
}

impl Condition {
    /// # Errors
    /// With what is wrong, and its place.
    pub fn compile(rego: &str) -> Result<Self, Problem> {
        scan(NAME, rego)?;
        let has_package = rego
            .lines()
            .map(str::trim_start)
            .find(|line| !line.is_empty() && !line.starts_with('#'))
            .is_some_and(|line| line.starts_with("package ") || line.starts_with("package\t"));
        let as_rules = if has_package { rules(rego, 0) } else { rules(&format!("{PACKAGE}{rego}"), 1) };
        match as_rules {
            Ok(Some(condition)) => Ok(condition),
            Ok(None) if has_package => Err(Problem::whole(NAME, format!("it has no rule {ALLOW}"))),
            Err(problem) if has_package || says_allow(rego) => Err(problem),
            // What reads like rules and does not say `allow` may be assignments before an expression.
            Ok(None) | Err(_) => expressions(rego),
        }
    }

    /// Whether it holds for an input, which is JSON.
    pub fn holds(&self, input: &str) -> Held {
        let mut engine = self.engine.clone();
        let input = match Value::from_json_str(input) {
            Ok(input) => input,
            Err(error) => return Held::Error(format!("the input is no JSON: {error}")),
        };
        set_now(&input);
        engine.set_input(input);
        let held = match &self.form {
            Form::Rules { message } => by_rules(&mut engine, *message),
            Form::Expressions(text) => by_expressions(&mut engine, text),
        };
        held.unwrap_or_else(Held::Error)
    }
}

fn by_rules(engine: &mut Engine, message: bool) -> Result<Held, String> {
    let value = evaluate(engine, ALLOW)?;
    let allow = truth(&value).ok_or_else(|| format!("{ALLOW} is {value}, not a boolean"))?;
    let message = if message { said(&evaluate(engine, MESSAGE)?) } else { None };
    Ok(if allow { Held::Yes { message } } else { Held::No { message } })
}

fn by_expressions(engine: &mut Engine, text: &str) -> Result<Held, String> {
    let results =
        engine.eval_query(text.to_owned(), false).map_err(|error| problem(&error.to_string()).to_string())?;
    let Some(first) = results.result.first() else { return Ok(Held::No { message: None }) };
    let message = said(&first.bindings["message"]);
    let falsy = |value: &Value| truth(value) == Some(false);
    // More than one result: there is a binding for which all hold.
    for result in &results.result {
        let Some((last, before)) = result.expressions.split_last() else { continue };
        if before.iter().any(|expression| falsy(&expression.value)) {
            continue;
        }
        match truth(&last.value) {
            Some(true) => return Ok(Held::Yes { message }),
            Some(false) => {}
            None => {
                let (row, column, value) = (last.location.row, last.location.col, &last.value);
                return Err(format!("{NAME}:{row}:{column}: the last expression is {value}, not a boolean"));
            }
        }
    }
    Ok(Held::No { message })
}

/// Whether a line begins with `allow`: whoever writes that means rules.
fn says_allow(text: &str) -> bool {
    let rest = text.lines().filter_map(|line| line.trim_start().strip_prefix("allow"));
    rest.into_iter().any(|rest| rest.starts_with([' ', '\t', '{', ':', '=']))
}

/// Reads rules; `None` where there is no `allow` among them.
fn rules(text: &str, added: u32) -> Result<Option<Condition>, Problem> {
    let moved = |mut problem: Problem| {
        problem.line = problem.line.saturating_sub(added);
        problem
    };
    let mut engine = engine()?;
    add(&mut engine, NAME, text).map_err(moved)?;
    let has = |engine: &mut Engine, name: &str| {
        let is = |module: &regorus::unstable::Ref<regorus::unstable::Module>| {
            calls::package(module) == ["data", NAME]
                && module.policy.iter().any(|rule| calls::rule_name(rule) == [name])
        };
        engine.get_modules().iter().any(is)
    };
    if !has(&mut engine, "allow") {
        return Ok(None);
    }
    let message = has(&mut engine, "message");
    calls::check(engine.get_modules()).map_err(moved)?;
    engine.eval_query("true".to_owned(), false).map_err(|error| moved(problem(&error.to_string())))?;
    Ok(Some(Condition { engine, form: Form::Rules { message } }))
}

/// Reads expressions: as the body of a rule, to see what they call.
fn expressions(text: &str) -> Result<Condition, Problem> {
    let moved = |mut problem: Problem| {
        problem.line = problem.line.saturating_sub(2);
        problem
    };
    let mut checked = engine()?;
    add(&mut checked, NAME, &format!("{PACKAGE}holds if {{\n{text}\n}}\n")).map_err(moved)?;
    calls::check(checked.get_modules()).map_err(moved)?;
    if let Some(name) = assigned_last(text) {
        let message =
            format!("its last expression assigns {name}, which always holds: end with what must be true");
        return Err(Problem::whole(NAME, message));
    }
    Ok(Condition { engine: engine()?, form: Form::Expressions(text.to_owned()) })
}

/// The variable that the last line assigns, if that is all it does.
fn assigned_last(text: &str) -> Option<&str> {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let last = text.lines().rfind(code)?.rsplit(';').find(|part| !part.trim().is_empty())?.trim();
    let end = last.find(|other: char| !other.is_ascii_alphanumeric() && other != '_')?;
    let (name, rest) = last.split_at_checked(end)?;
    let rest = rest.trim_start();
    let assigns = rest.starts_with(":=") || (rest.starts_with('=') && !rest.starts_with("=="));
    (assigns && !name.is_empty()).then_some(name)
}

/// What is undefined does not hold; `None`: it is no boolean.
fn truth(value: &Value) -> Option<bool> {
    if *value == Value::Undefined { Some(false) } else { value.as_bool().ok().copied() }
}

fn said(value: &Value) -> Option<String> {
    if matches!(value, Value::Undefined | Value::Null) {
        return None;
    }
    let message = value.as_string().map_or_else(|_| value.to_string(), |message| message.to_string());
    Some(text::head(message, MAX_MESSAGE_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(rego: &str, input: &str) -> Held {
        Condition::compile(rego).map_or_else(|problem| Held::Error(problem.to_string()), |it| it.holds(input))
    }

    const YES: Held = Held::Yes { message: None };
    const NO: Held = Held::No { message: None };

    #[test]
    fn a_condition_may_be_rules_with_or_without_a_package_in_v0_and_v1() {
        for rego in [
            "package condition\nallow if input.target.spec.replicas >= 3\n",
            "package condition\nallow { input.target.spec.replicas >= 3 }\n",
            "package condition\ndefault allow = false\nallow { input.target.spec.replicas >= 3 }\n",
            "allow if { input.target.spec.replicas >= 3 }",
            "# how many\nallow {\n  input.target.spec.replicas >= 3\n}",
            "allow := input.target.spec.replicas >= 3",
        ] {
            assert_eq!(held(rego, r#"{"target": {"spec": {"replicas": 3}}}"#), YES, "{rego}");
            assert_eq!(held(rego, r#"{"target": {"spec": {"replicas": 2}}}"#), NO, "{rego}");
        }
    }

    #[test]
    fn a_condition_may_be_expressions_of_which_the_last_one_answers() {
        for rego in [
            "input.target.spec.replicas >= 3",
            "replicas := input.target.spec.replicas\nreplicas >= 3",
            "input.target; input.target.spec.replicas >= 3",
            "some name, value in input.target.spec\nname == \"replicas\"\nvalue >= 3",
            "count([1 | input.target.spec.replicas >= 3]) == 1",
        ] {
            assert_eq!(held(rego, r#"{"target": {"spec": {"replicas": 3}}}"#), YES, "{rego}");
            assert_eq!(held(rego, r#"{"target": {"spec": {"replicas": 2}}}"#), NO, "{rego}");
        }
        assert_eq!(held("input.missing.field", "{}"), NO);
        assert_eq!(held("input.a == 1\ninput.b == 1", r#"{"a": 2, "b": 1}"#), NO);
    }

    #[test]
    fn an_assignment_is_never_mistaken_for_an_answer() {
        assert_eq!(held("allow := false", "{}"), NO);
        assert_eq!(held("allow = false", "{}"), NO);
        assert!(matches!(held("ready := false", "{}"), Held::Error(_)), "{:?}", held("ready := false", "{}"));
        assert!(matches!(held("input.a\nready := input.b", r#"{"a": true}"#), Held::Error(_)));
    }

    #[test]
    fn what_is_no_boolean_is_an_error() {
        assert!(matches!(held("allow := 3", "{}"), Held::Error(_)));
        assert!(matches!(held("1 + 1", "{}"), Held::Error(_)));
        assert!(
            matches!(held("package condition\nready := true\n", "{}"), Held::Error(problem) if problem.contains("allow"))
        );
    }

    #[test]
    fn a_condition_may_say_why() {
        let rego = "allow if count(input.pods) > 1\nmessage := sprintf(\"%d pods\", [count(input.pods)])";
        assert_eq!(held(rego, r#"{"pods": [1]}"#), Held::No { message: Some("1 pods".to_owned()) });
        assert_eq!(held(rego, r#"{"pods": [1, 2]}"#), Held::Yes { message: Some("2 pods".to_owned()) });
        let plain = "message := \"all there\"\ninput.ready";
        assert_eq!(held(plain, r#"{"ready": true}"#), Held::Yes { message: Some("all there".to_owned()) });
    }

    #[test]
    fn problems_have_the_place_in_what_was_written() {
        let Held::Error(problem) = held("allow if {\n  input.a ==\n}", "{}") else { panic!() };
        assert!(problem.starts_with("condition:") && !problem.starts_with("condition:4"), "{problem}");
        let Held::Error(problem) = held("input.a == 1\ninput.b ==\ninput.c ! 3", "{}") else { panic!() };
        assert!(problem.starts_with("condition:3:"), "{problem}");
        let Held::Error(problem) = held("input.a == 1\nrand.intn(\"a\", 3) == 1", "{}") else { panic!() };
        assert!(problem.starts_with("condition:2:1: rand.intn is refused"), "{problem}");
        let Held::Error(problem) = held("f(x) := f(x)\nallow if f(1)", "{}") else { panic!() };
        assert!(problem.starts_with("condition:1:") && problem.contains("leads back"), "{problem}");
    }
}
