//! Which CEL rules does the object break?
//!
//! `x-kubernetes-validations` are parsed when the schema is compiled and run here, with the functions
//! Kubernetes adds to CEL (kube-cel). A rule that cannot be evaluated refuses the object, and says why.
//!
//! Two guards stand around an interpreter that knows no budget: `cost` refuses a rule whose loops would run
//! too often on this object, and a panic inside it is an error of the rule.

use super::at::At;
use super::cel::{FUNCTIONS, execute, expression, to_cel};
use super::validate::{correlate, item_key};
use super::{ListType, MAX_DEPTH, Node, child, cost, typecheck};
use crate::validation::{CauseReason, FieldError};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, Value as Cel};
use serde_json::{Value, json};
use std::sync::Arc;

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    source: String,
    expression: Expression,
    message: Option<String>,
    message_expression: Option<Expression>,
    reason: CauseReason,
    /// `fieldPath` in the dotted form of error fields.
    field: Option<String>,
    /// The rule speaks of `oldSelf`: it runs on updates only, unless `optional_old`.
    pub(super) transition: bool,
    optional_old: bool,
}

/// A message longer than this is not used: kube-apiserver's limit for `messageExpression`.
const MESSAGE_MAX_BYTES: usize = 5 << 10;

/// Evaluates every rule of the schema on a whole resource.
pub(super) fn evaluate(node: &Node, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut budget = cost::Budget::default();
    let visit = Visit { node, value: object, old, root: true };
    visit.walk(&At::ROOT, 0, &mut budget, errors);
}

impl Rule {
    /// Compiles one entry of `x-kubernetes-validations`; `at` is the path of the entry.
    pub(super) fn compile(raw: &Value, at: &str) -> Result<Self, Vec<FieldError>> {
        let text = |key: &str| raw.get(key).and_then(Value::as_str).filter(|s| !s.trim().is_empty());
        let Some(source) = text("rule") else {
            return Err(vec![FieldError::required(child(at, "rule"), "rule is not specified")]);
        };
        let parse = |source: &str, key: &str| {
            expression(source, &["self", "oldSelf"]).map_err(|why| {
                vec![FieldError::invalid(
                    child(at, key),
                    &json!(source),
                    format!("compilation failed: {why}"),
                )]
            })
        };
        let parsed = parse(source, "rule")?;
        let message_expression =
            text("messageExpression").map(|s| parse(s, "messageExpression")).transpose()?;
        let reason = match text("reason") {
            None | Some("FieldValueInvalid") => CauseReason::Invalid,
            Some("FieldValueForbidden") => CauseReason::Forbidden,
            Some("FieldValueRequired") => CauseReason::Required,
            Some("FieldValueDuplicate") => CauseReason::Duplicate,
            Some(other) => {
                let known =
                    ["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"];
                return Err(vec![FieldError::not_supported(child(at, "reason"), &json!(other), &known)]);
            }
        };
        let field = match text("fieldPath") {
            None => None,
            Some(path) => Some(field_path(path).ok_or_else(|| {
                vec![FieldError::invalid(child(at, "fieldPath"), &json!(path), "must be a valid field path")]
            })?),
        };
        Ok(Self {
            transition: parsed.references().has_variable("oldSelf"),
            source: source.to_owned(),
            expression: parsed,
            message: text("message").map(str::to_owned),
            message_expression,
            reason,
            field,
            optional_old: raw.get("optionalOldSelf") == Some(&Value::Bool(true)),
        })
    }

    /// Fits the rule to the node it stands on. The answer is why it makes no sense there, with the key that says it.
    pub(super) fn misfit(&mut self, node: &Node, resource: bool) -> Option<(&'static str, String)> {
        let optional_old = self.optional_old;
        let check = |expression: &mut Expression| typecheck::check(expression, node, resource, optional_old);
        let failed = |why: String| format!("compilation failed: {why}");
        if let Err(why) = check(&mut self.expression) {
            return Some(("rule", failed(why)));
        }
        let message = self.message_expression.as_mut().map(check);
        message.and_then(Result::err).map(|why| ("messageExpression", failed(why)))
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The field the rule blames, if it names one below its own.
    pub(super) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }
}

/// One node of the schema next to the value it describes.
struct Visit<'a> {
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    root: bool,
}

impl Visit<'_> {
    fn walk(&self, path: &At<'_>, depth: usize, budget: &mut cost::Budget, errors: &mut Vec<FieldError>) {
        if !self.node.has_rules || depth > MAX_DEPTH || self.value.is_null() {
            return;
        }
        if !self.node.rules.is_empty() {
            self.judge(path, budget, errors);
        }
        let mut below = |node: &Node, value: &Value, old: Option<&Value>, path: &At<'_>| {
            Visit { node, value, old, root: false }.walk(path, depth + 1, budget, errors);
        };
        match self.value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let Some(field) = self.node.field(name) {
                        below(field, value, self.old.and_then(|o| o.get(name)), &path.field(name));
                    }
                }
            }
            Value::Array(items) => {
                let Some(node) = &self.node.items else { return };
                let before = correlate(self.node, self.old);
                for (i, item) in items.iter().enumerate() {
                    let old = match self.node.list {
                        ListType::Map(_) => before.get(&item_key(self.node, item)).copied(),
                        ListType::Atomic | ListType::Set => None,
                    };
                    below(node, item, old, &path.item(i));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn judge(&self, path: &At<'_>, budget: &mut cost::Budget, errors: &mut Vec<FieldError>) {
        FUNCTIONS.with(|functions| {
            let mut scope = functions.new_inner_scope();
            scope.add_variable_from_value("self", to_cel(self.node, self.value, self.root, 0));
            let old = self.old.filter(|o| !o.is_null());
            let old_value = old.map(|o| to_cel(self.node, o, self.root, 0));
            let unchanged = self.old == Some(self.value);
            for rule in &self.node.rules {
                if rule.transition && old.is_none() && !rule.optional_old {
                    continue;
                }
                // An untouched value is not judged again, but what may not change is always compared.
                if unchanged && !rule.transition {
                    continue;
                }
                let mut scope = scope.new_inner_scope();
                match (&old_value, rule.optional_old) {
                    (Some(v), false) => scope.add_variable_from_value("oldSelf", v.clone()),
                    (Some(v), true) => {
                        scope.add_variable_from_value("oldSelf", optional(OptionalValue::of(v.clone())))
                    }
                    (None, true) => scope.add_variable_from_value("oldSelf", optional(OptionalValue::none())),
                    (None, false) => {}
                }
                if let Err(detail) = self.run(rule, &scope, budget) {
                    errors.push(self.error(rule, path, &detail));
                }
            }
        });
    }

    fn run(&self, rule: &Rule, scope: &Context<'_>, budget: &mut cost::Budget) -> Result<(), String> {
        let message =
            || rule.message.clone().unwrap_or_else(|| format!("failed rule: {}", rule.source.trim()));
        let new = [("self", self.value)];
        let both = self.old.map(|old| [("self", self.value), ("oldSelf", old)]);
        if !budget.spend(&rule.expression, both.as_ref().map_or(&new[..], |both| &both[..])) {
            return Err(
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned(),
            );
        }
        match execute(&rule.expression, scope) {
            Ok(Cel::Bool(true)) => Ok(()),
            Ok(Cel::Bool(false)) => Err(match &rule.message_expression {
                Some(expression) => match execute(expression, scope) {
                    Ok(Cel::String(text)) if usable(&text) => text.trim().to_owned(),
                    Ok(_) | Err(_) => message(),
                },
                None => message(),
            }),
            Ok(_) => Err("rule did not evaluate to a bool".to_owned()),
            Err(why) => Err(format!("{why} evaluating rule: {}", message())),
        }
    }

    fn error(&self, rule: &Rule, path: &At<'_>, detail: &str) -> FieldError {
        let field = match rule.field() {
            Some(field) => String::from(&path.field(field)),
            None => String::from(path),
        };
        // Composite values are named by their type: showing them whole would bury the message.
        let shown = match self.value {
            Value::Object(_) => json!("object"),
            Value::Array(_) => json!("array"),
            scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar.clone(),
        };
        FieldError::with_reason(field, rule.reason, &shown, detail)
    }
}

/// Whether what a message expression made can be shown to someone.
pub(crate) fn usable(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= MESSAGE_MAX_BYTES && !text.trim().contains('\n')
}

fn optional(value: OptionalValue) -> Cel {
    Cel::Opaque(Arc::new(value))
}

/// `.a.b['c']` as `a.b.c`; `None` for anything that is not a plain path.
fn field_path(path: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        let (name, after) = if let Some(quoted) = rest.strip_prefix("['") {
            let (name, after) = quoted.split_once("']")?;
            (name, after)
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            plain.split_at(end)
        };
        if name.is_empty() {
            return None;
        }
        out = child(&out, name);
        rest = after;
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn errors(schema: Value, spec: Value, old: Option<Value>) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": schema}});
        let schema = Schema::compile(&schema, "s").unwrap();
        let object =
            |spec| json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec});
        let found = schema.validate(&object(spec), old.map(object).as_ref());
        found.iter().map(|e| format!("{} {}", e.reason, e)).collect()
    }

    fn spec(properties: Value, rule: Value) -> Value {
        json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]})
    }

    #[test]
    fn a_broken_rule_names_its_field_reason_and_message() {
        let numbers = json!({"lo": {"type": "integer"}, "hi": {"type": "integer"}});
        let rule = json!({"rule": "!has(self.lo) || !has(self.hi) || self.lo <= self.hi", "message": "lo must not exceed hi"});
        let schema = spec(numbers.clone(), rule);
        assert_eq!(errors(schema.clone(), json!({"lo": 1, "hi": 2}), None), Vec::<String>::new());
        assert_eq!(errors(schema.clone(), json!({"hi": 2}), None), Vec::<String>::new());
        let found = errors(schema, json!({"lo": 5, "hi": 2}), None);
        assert_eq!(found, ["FieldValueInvalid spec: Invalid value: \"object\": lo must not exceed hi"]);

        let rule = json!({"rule": "self.lo <= self.hi", "messageExpression": "'lo ' + string(self.lo) + ' is too much'",
            "fieldPath": ".lo", "reason": "FieldValueForbidden"});
        let found = errors(spec(numbers.clone(), rule), json!({"lo": 5, "hi": 2}), None);
        assert_eq!(found, ["FieldValueForbidden spec.lo: Forbidden: lo 5 is too much"]);

        let found =
            errors(spec(numbers, json!({"rule": "self.lo <= self.hi"})), json!({"lo": 5, "hi": 2}), None);
        assert_eq!(
            found,
            ["FieldValueInvalid spec: Invalid value: \"object\": failed rule: self.lo <= self.hi"]
        );
    }

    #[test]
    fn transition_rules_compare_with_what_was_stored() {
        let schema = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]});
        assert_eq!(errors(schema.clone(), json!("a"), None), Vec::<String>::new());
        assert_eq!(errors(schema.clone(), json!("a"), Some(json!("a"))), Vec::<String>::new());
        let found = errors(schema, json!("b"), Some(json!("a")));
        assert_eq!(found, ["FieldValueInvalid spec: Invalid value: \"b\": immutable"]);
    }

    #[test]
    fn an_optional_old_self_lets_creation_be_judged() {
        let rule = json!({"rule": "oldSelf.hasValue() || self.a == 'first'", "optionalOldSelf": true, "message": "m"});
        let schema = spec(json!({"a": {"type": "string"}}), rule);
        assert_eq!(errors(schema.clone(), json!({"a": "first"}), None), Vec::<String>::new());
        assert_eq!(errors(schema.clone(), json!({"a": "x"}), None).len(), 1);
        assert_eq!(errors(schema, json!({"a": "x"}), Some(json!({"a": "first"}))), Vec::<String>::new());
    }

    #[test]
    fn items_of_keyed_lists_meet_their_old_selves() {
        let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {
                "n": {"type": "string"},
                "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only up"}]}}}});
        let old = json!([{"n": "a", "v": 5}, {"n": "b", "v": 1}]);
        let new = json!([{"n": "b", "v": 2}, {"n": "a", "v": 4}, {"n": "c", "v": 0}]);
        assert_eq!(
            errors(schema, new, Some(old)),
            ["FieldValueInvalid spec[1].v: Invalid value: 4: only up"]
        );
    }

    #[test]
    fn rules_speak_the_dialect_of_kubernetes() {
        let properties = json!({
            "a": {"type": "string"}, "x-y": {"type": "string"}, "a__b": {"type": "string"}, "namespace": {"type": "string"},
            "list": {"type": "array", "items": {"type": "string"}, "maxItems": 9},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "at": {"type": "string", "format": "date-time"}, "for": {"type": "string", "format": "duration"},
            "raw": {"type": "string", "format": "byte"}, "ratio": {"type": "number"},
            "ios": {"x-kubernetes-int-or-string": true}, "inner": {"type": "object", "properties": {"z": {"type": "string"}, "absent": {"type": "string"}}},
            "gone": {"type": "string"},
        });
        let value = json!({
            "a": "abc", "x-y": "dash", "a__b": "under", "namespace": "ns", "list": ["b", "a"], "map": {"k.l": 1},
            "at": "2026-01-02T03:04:05Z", "for": "90s", "raw": "aGk=", "ratio": 1, "ios": "50%", "inner": {"z": "q"},
        });
        let mut wrong = Vec::new();
        for rule in [
            "self.x__dash__y == 'dash' && self.a__underscores__b == 'under' && self.__namespace__ == 'ns'",
            "self.list.all(x, x.size() == 1) && self.list.exists(x, x == 'a')",
            "self.map['k.l'] == 1 && 'k.l' in self.map",
            "self.at < timestamp('2027-01-01T00:00:00Z')",
            "self.__for__ == duration('1m30s')",
            "size(self.raw) == 2",
            "self.ratio == 1.0 && type(self.ratio) == double",
            "type(self.ios) == string && self.ios == '50%'",
            "self.a.matches('^a.c$')",
            "quantity('1Gi').isGreaterThan(quantity('1G'))",
            "cel.bind(n, self.list.size(), n == 2 && n < 3)",
            "self.?inner.?z.orValue('none') == 'q'",
            "self.inner.?absent.orValue('none') == 'none'",
            "self.?inner.?absent.orValue('none') == 'none'",
            "!self.?gone.hasValue()",
            "self.list.map(x, x + '!') == ['b!', 'a!']",
            "self.list.filter(x, x == 'a').size() == 1",
            "self.list.isSorted() == false",
        ] {
            let schema = spec(properties.clone(), json!({"rule": rule}));
            wrong.extend(errors(schema, value.clone(), None));
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn lists_with_identities_are_equal_in_any_order() {
        let set = |kind: &str, rule: &str| {
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": kind,
                "x-kubernetes-validations": [{"rule": rule, "message": "m"}]})
        };
        let (new, old) = (json!(["a", "b"]), json!(["b", "a"]));
        for (kind, rule, holds) in [
            ("set", "self == oldSelf", true),
            ("set", "self != oldSelf", false),
            ("atomic", "self == oldSelf", false),
            ("set", "self.size() == oldSelf.size() && self == oldSelf", true),
        ] {
            let found = errors(set(kind, rule), new.clone(), Some(old.clone()));
            assert_eq!(found.is_empty(), holds, "{kind} {rule} {found:?}");
        }
    }

    #[test]
    fn the_root_sees_its_name() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a') && self.kind == 'K'"}]});
        let schema = Schema::compile(&schema, "s").unwrap();
        let object = |name: &str| json!({"kind": "K", "metadata": {"name": name}});
        assert_eq!(schema.validate(&object("abc"), None), []);
        assert_eq!(schema.validate(&object("xyz"), None)[0].field, "<nil>");
    }

    #[test]
    fn rules_that_cannot_be_compiled_are_refused_with_their_path() {
        let refused = |rule: Value| {
            let schema = spec(json!({"a": {"type": "string"}}), rule);
            let schema = json!({"type": "object", "properties": {"spec": schema}});
            Schema::compile(&schema, "s").unwrap_err().remove(0)
        };
        let at = "s.properties[spec].x-kubernetes-validations[0]";
        for (rule, field) in [
            (json!({"rule": "self.a =="}), "rule"),
            (json!({"rule": ""}), "rule"),
            (json!({"rule": "other.a == 'x'"}), "rule"),
            (json!({"rule": "Pod{name: 'x'} == self"}), "rule"),
            (json!({"rule": "true", "messageExpression": "'"}), "messageExpression"),
            (json!({"rule": "true", "reason": "Whatever"}), "reason"),
            (json!({"rule": "true", "fieldPath": "a"}), "fieldPath"),
            (json!({"rule": "true", "fieldPath": ".nope"}), "fieldPath"),
        ] {
            assert_eq!(refused(rule).field, format!("{at}.{field}"));
        }
    }

    #[test]
    fn a_rule_that_fails_to_run_refuses_the_object() {
        let schema = spec(json!({"a": {"type": "string"}}), json!({"rule": "self.a == 'x'", "message": "m"}));
        let found = errors(schema, json!({}), None);
        assert!(found[0].ends_with("evaluating rule: m"), "{found:?}");
    }

    #[test]
    fn loops_in_loops_in_loops_are_refused_before_they_start() {
        let list = json!({"l": {"type": "array", "items": {"type": "integer"}}});
        let rule =
            json!({"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))", "message": "m"});
        let schema = spec(list, rule);
        assert_eq!(errors(schema.clone(), json!({"l": [1, 2, 3]}), None), Vec::<String>::new());
        let big: Vec<i32> = (0..1000).collect();
        let found = errors(schema, json!({ "l": big }), None);
        assert!(found[0].contains("cost budget"), "{found:?}");
    }
}
