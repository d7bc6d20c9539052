//! What do a policy's expressions say of a write?

use kube_cel::cel::objects::{Key, Map as CelMap};
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, Value as Cel};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

use crate::schema::{Budget, FUNCTIONS, execute, expression, untyped, usable};
use crate::validation::FieldError;

/// What every expression of a policy may speak of.
const NAMES: [&str; 6] = ["object", "oldObject", "request", "params", "namespaceObject", "variables"];

/// A policy's expressions, compiled.
#[derive(Debug)]
pub(super) struct Program {
    conditions: Vec<Compiled>,
    variables: Vec<(String, Compiled)>,
    validations: Vec<Validation>,
}

#[derive(Debug)]
struct Validation {
    expression: Compiled,
    message: Option<String>,
    message_expression: Option<Compiled>,
    reason: String,
}

/// An expression with its text: `Err` where it could not be parsed, which writing the policy refuses.
#[derive(Debug)]
struct Compiled {
    source: String,
    parsed: Result<Expression, String>,
    /// Which variables it needs, in the order in which they are declared.
    variables: Vec<usize>,
}

/// What expressions see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) object: &'a Value,
    pub(super) old: &'a Value,
    pub(super) request: &'a Value,
    pub(super) params: &'a Value,
    pub(super) namespace: &'a Value,
}

/// One thing a policy has against a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) message: String,
    pub(super) reason: String,
}

impl Finding {
    pub(super) fn error(message: String) -> Finding {
        Finding { message, reason: "Invalid".to_owned() }
    }
}

impl Program {
    pub(super) fn compile(spec: &Value) -> Program {
        let entries = |key: &str| spec.get(key).and_then(Value::as_array).into_iter().flatten();
        let mut variables: Vec<(String, Compiled)> = Vec::new();
        for entry in entries("variables") {
            let compiled = Compiled::new(text(entry, "expression").unwrap_or_default(), &variables);
            variables.push((text(entry, "name").unwrap_or_default().to_owned(), compiled));
        }
        let compiled = |source: &str| Compiled::new(source, &variables);
        let conditions = entries("matchConditions");
        let conditions = conditions.map(|c| compiled(text(c, "expression").unwrap_or_default())).collect();
        let validations = entries("validations")
            .map(|v| Validation {
                expression: compiled(text(v, "expression").unwrap_or_default()),
                message: text(v, "message").map(|message| message.trim().to_owned()),
                message_expression: text(v, "messageExpression").map(compiled),
                reason: text(v, "reason").unwrap_or("Invalid").to_owned(),
            })
            .collect();
        Program { conditions, variables, validations }
    }

    /// Everything the policy has against it. Errors count under `fails`, and are passed over otherwise.
    pub(super) fn run(&self, scene: &Scene<'_>, fails: bool, budget: &mut Budget) -> Vec<Finding> {
        FUNCTIONS.with(|functions| {
            let mut scope = functions.new_inner_scope();
            for (name, value) in scene.names() {
                scope.add_variable_from_value(name, untyped(value, 0));
            }
            let mut run = Run { program: self, scene, scope: &scope, budget, known: HashMap::new() };
            match run.conditions() {
                Ok(true) => run.validations(fails),
                Ok(false) => Vec::new(),
                Err(why) if fails => vec![Finding::error(why)],
                Err(_) => Vec::new(),
            }
        })
    }
}

/// What is wrong with a policy's expressions, for the answer to whoever writes it.
pub(crate) fn compile_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |field: String, source: &str| {
        if source.trim().is_empty() {
            errors.push(FieldError::required(field, "expression is not specified"));
        } else if let Err(why) = expression(source, &NAMES) {
            errors.push(FieldError::invalid(field, &json!(source), format!("compilation failed: {why}")));
        }
    };
    for (list, keys) in [
        ("matchConditions", &["expression"][..]),
        ("variables", &["expression"]),
        ("validations", &["expression", "messageExpression"]),
        ("auditAnnotations", &["valueExpression"]),
    ] {
        let entries = spec.get(list).and_then(Value::as_array).into_iter().flatten();
        for (at, entry) in entries.enumerate() {
            for &key in keys {
                let source = entry.get(key).and_then(Value::as_str).unwrap_or_default();
                // A message may be left out; what is to be judged may not.
                if !(key == "messageExpression" && source.is_empty()) {
                    check(format!("spec.{list}[{at}].{key}"), source);
                }
            }
        }
    }
    errors
}

impl Scene<'_> {
    fn names(&self) -> [(&'static str, &Value); 5] {
        let [object, old, request, params, namespace, _] = NAMES;
        [
            (object, self.object),
            (old, self.old),
            (request, self.request),
            (params, self.params),
            (namespace, self.namespace),
        ]
    }
}

impl Compiled {
    fn new(source: &str, declared: &[(String, Compiled)]) -> Compiled {
        let parsed = expression(source, &NAMES);
        // By its text: a variable too many costs a little time, one too few would be missed.
        let named = |name: &str| source.contains("variables") && source.contains(name);
        let mut needed: Vec<usize> = Vec::new();
        for (at, (name, variable)) in declared.iter().enumerate() {
            if named(name) {
                needed.extend(&variable.variables);
                needed.push(at);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Compiled { source: source.trim().to_owned(), parsed, variables: needed }
    }
}

/// One evaluation of a program.
struct Run<'a> {
    program: &'a Program,
    scene: &'a Scene<'a>,
    scope: &'a Context<'a>,
    budget: &'a mut Budget,
    /// Variables are computed when first needed; those that failed are absent to whoever asks.
    known: HashMap<usize, Option<Cel>>,
}

impl Run<'_> {
    /// Whether the policy speaks of this write at all. One that says no counts for more than one that fails.
    fn conditions(&mut self) -> Result<bool, String> {
        let mut failed = None;
        for condition in &self.program.conditions {
            match self.evaluate(condition) {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(_) => failed = Some(format!("expression '{}' did not yield a bool", condition.source)),
                Err(why) => {
                    failed = Some(format!("expression '{}' resulted in error: {why}", condition.source))
                }
            }
        }
        failed.map_or(Ok(true), Err)
    }

    fn validations(&mut self, fails: bool) -> Vec<Finding> {
        let mut found = Vec::new();
        for validation in &self.program.validations {
            let source = &validation.expression.source;
            match self.evaluate(&validation.expression) {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => {
                    let message = self.message(validation);
                    found.push(Finding { message, reason: validation.reason.clone() });
                }
                Ok(_) if fails => {
                    found.push(Finding::error(format!("expression '{source}' did not yield a bool")))
                }
                Err(why) if fails => {
                    found.push(Finding::error(format!("expression '{source}' resulted in error: {why}")));
                }
                Ok(_) | Err(_) => {}
            }
        }
        found
    }

    fn message(&mut self, validation: &Validation) -> String {
        let computed = validation.message_expression.as_ref().and_then(|m| self.evaluate(m).ok());
        match computed {
            Some(Cel::String(text)) if usable(&text) => text.trim().to_owned(),
            Some(_) | None => {
                let said = validation.message.clone().filter(|message| !message.is_empty());
                said.unwrap_or_else(|| format!("failed expression: {}", validation.expression.source))
            }
        }
    }

    fn evaluate(&mut self, compiled: &Compiled) -> Result<Cel, String> {
        for &at in &compiled.variables {
            if !self.known.contains_key(&at) {
                let value =
                    self.program.variables.get(at).and_then(|(_, variable)| self.compute(variable).ok());
                self.known.insert(at, value);
            }
        }
        self.compute(compiled)
    }

    /// Evaluates with the variables known so far.
    fn compute(&mut self, compiled: &Compiled) -> Result<Cel, String> {
        let parsed = compiled.parsed.as_ref().map_err(Clone::clone)?;
        if !self.budget.spend(parsed, &self.scene.names()) {
            return Err("operation cancelled: actual cost limit exceeded".to_owned());
        }
        let mut scope = self.scope.new_inner_scope();
        let variables: HashMap<Key, Cel> = compiled
            .variables
            .iter()
            .filter_map(|at| {
                let (name, _) = self.program.variables.get(*at)?;
                Some((Key::from(name.as_str()), self.known.get(at)?.clone()?))
            })
            .collect();
        scope.add_variable_from_value("variables", Cel::Map(CelMap { map: Arc::new(variables) }));
        execute(parsed, &scope)
    }
}

fn text<'a>(entry: &'a Value, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(spec: &Value, object: &Value, fails: bool) -> Vec<String> {
        let request = json!({"operation": "CREATE", "userInfo": {"username": "eve", "groups": ["dev"]}});
        let null = Value::Null;
        let scene = Scene { object, old: &null, request: &request, params: &null, namespace: &null };
        let found = Program::compile(spec).run(&scene, fails, &mut Budget::default());
        found.into_iter().map(|finding| finding.message).collect()
    }

    fn validation(expression: &str) -> Value {
        json!({"validations": [{"expression": expression}]})
    }

    #[test]
    fn an_expression_sees_the_object_as_it_is_and_who_asks() {
        let object =
            json!({"metadata": {"namespace": "n", "labels": {"a.b/c": "d"}}, "spec": {"replicas": 3}});
        for (expression, want) in [
            ("object.spec.replicas <= 5", true),
            ("object.spec.replicas > 5", false),
            ("object.metadata.namespace == 'n'", true),
            ("object.metadata.labels['a.b/c'] == 'd'", true),
            ("oldObject == null", true),
            ("request.userInfo.username == 'eve' && 'dev' in request.userInfo.groups", true),
            ("has(object.spec.absent)", false),
            ("object.?spec.?absent.orValue(1) == 1", true),
        ] {
            let found = findings(&validation(expression), &object, true);
            assert_eq!(found.is_empty(), want, "{expression}: {found:?}");
        }
    }

    #[test]
    fn variables_build_on_each_other_and_fail_only_those_who_ask() {
        let spec = json!({
            "variables": [
                {"name": "broken", "expression": "object.nothing.there"},
                {"name": "size", "expression": "object.spec.items.size()"},
                {"name": "twice", "expression": "variables.size * 2"},
            ],
            "validations": [{"expression": "variables.twice == 4"}],
        });
        let object = json!({"spec": {"items": [1, 2]}});
        assert_eq!(findings(&spec, &object, true), Vec::<String>::new());
        let spec =
            json!({"variables": spec["variables"], "validations": [{"expression": "variables.broken == 1"}]});
        assert_eq!(findings(&spec, &object, true).len(), 1);
        assert_eq!(findings(&spec, &object, false), Vec::<String>::new());
    }

    #[test]
    fn a_condition_that_does_not_hold_silences_the_policy() {
        let mut spec = validation("false");
        spec["matchConditions"] =
            json!([{"name": "n", "expression": "object.absent.field"}, {"name": "m", "expression": "false"}]);
        assert_eq!(findings(&spec, &json!({}), true), Vec::<String>::new());
        spec["matchConditions"] = json!([{"name": "n", "expression": "object.absent.field"}]);
        assert!(
            findings(&spec, &json!({}), true)[0]
                .starts_with("expression 'object.absent.field' resulted in error")
        );
    }

    #[test]
    fn messages_are_computed_said_or_made_from_the_expression() {
        let spec = json!({"validations": [
            {"expression": "object.n < 1", "messageExpression": "'n is ' + string(object.n)", "message": "unused"},
            {"expression": "object.n < 1", "messageExpression": "object.absent", "message": " too many "},
            {"expression": " object.n < 1 "},
        ]});
        let found = findings(&spec, &json!({"n": 2}), true);
        assert_eq!(found, ["n is 2", "too many", "failed expression: object.n < 1"]);
    }

    #[test]
    fn loops_in_loops_are_stopped_before_they_start() {
        let object = json!({"l": (0..2000).collect::<Vec<_>>()});
        let spec = validation("object.l.all(a, object.l.all(b, a + b >= 0))");
        assert!(findings(&spec, &object, true)[0].contains("cost limit"));
    }

    #[test]
    fn an_expression_that_cannot_be_compiled_is_refused_by_field() {
        let spec = json!({
            "matchConditions": [{"name": "c", "expression": "object."}],
            "variables": [{"name": "v", "expression": "nobody.knows"}],
            "validations": [{"expression": "authorizer.group('') != null", "messageExpression": "'"}, {}],
        });
        let fields: Vec<String> = compile_errors(&spec).into_iter().map(|error| error.field).collect();
        assert_eq!(
            fields,
            [
                "spec.matchConditions[0].expression",
                "spec.variables[0].expression",
                "spec.validations[0].expression",
                "spec.validations[0].messageExpression",
                "spec.validations[1].expression",
            ]
        );
    }
}
