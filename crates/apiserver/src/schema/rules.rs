//! Which CEL rules does the object break?
//!
//! `x-kubernetes-validations` are parsed when the schema is compiled and run here, with the functions
//! Kubernetes adds to CEL (kube-cel). What the interpreter lacks is either rewritten while compiling
//! (`cel.bind`, `a.?b`) or fails closed: a rule that cannot be evaluated refuses the object, and says why.
//!
//! Two guards stand around an interpreter that knows no budget: `cost` refuses a rule whose loops would run
//! too often on this object, and a panic inside it is an error of the rule.

use super::validate::{correlate, is_integral, item_key};
use super::{ListType, MAX_DEPTH, Node, Types, child, cost, index};
use crate::schema::format::Format;
use crate::validation::{CauseReason, FieldError};
use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, SelectExpr, operators,
};
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    visit.walk("", 0, &mut budget, errors);
}

impl Rule {
    /// Compiles one entry of `x-kubernetes-validations`; `at` is the path of the entry.
    pub(super) fn compile(raw: &Value, at: &str) -> Result<Self, Vec<FieldError>> {
        let text = |key: &str| raw.get(key).and_then(Value::as_str).filter(|s| !s.trim().is_empty());
        let Some(source) = text("rule") else {
            return Err(vec![FieldError::required(child(at, "rule"), "rule is not specified")]);
        };
        let parse = |source: &str, key: &str| {
            expression(source).map_err(|why| {
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
    fn walk(&self, path: &str, depth: usize, budget: &mut cost::Budget, errors: &mut Vec<FieldError>) {
        if !self.node.has_rules || depth > MAX_DEPTH || self.value.is_null() {
            return;
        }
        if !self.node.rules.is_empty() {
            self.judge(path, budget, errors);
        }
        let mut below = |node: &Node, value: &Value, old: Option<&Value>, path: String| {
            Visit { node, value, old, root: false }.walk(&path, depth + 1, budget, errors);
        };
        match self.value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let Some(field) = self.node.field(name) {
                        below(field, value, self.old.and_then(|o| o.get(name)), child(path, name));
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
                    below(node, item, old, index(path, i));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn judge(&self, path: &str, budget: &mut cost::Budget, errors: &mut Vec<FieldError>) {
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
        if !budget.spend(&rule.expression, self.value, self.old) {
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

    fn error(&self, rule: &Rule, path: &str, detail: &str) -> FieldError {
        let field = match (rule.field(), path) {
            (Some(field), _) => child(path, field),
            (None, "") => crate::validation::NO_FIELD.to_owned(),
            (None, path) => path.to_owned(),
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

fn usable(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= MESSAGE_MAX_BYTES && !text.trim().contains('\n')
}

fn optional(value: OptionalValue) -> Cel {
    Cel::Opaque(Arc::new(value))
}

thread_local! {
    /// Standard functions and Kubernetes' own: registering them costs more than running most rules.
    static FUNCTIONS: Context<'static> = {
        let mut context = Context::default().with_all();
        context.add_function("type", type_name);
        context
    };
    static TIMESTAMP: Option<Expression> = Parser::default().parse("timestamp(x)").ok();
    static DURATION: Option<Expression> = Parser::default().parse("duration(x)").ok();
}

fn execute(expression: &Expression, scope: &Context<'_>) -> Result<Cel, String> {
    // The interpreter has assertions of its own; an object must not be able to take the server down with one.
    match catch_unwind(AssertUnwindSafe(|| Cel::resolve(expression, scope))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err("internal error".to_owned()),
    }
}

/// Parses a rule, with optional syntax, and rewrites what the interpreter does not have.
fn expression(source: &str) -> Result<Expression, String> {
    let mut parsed =
        Parser::default().enable_optional_syntax(true).parse(source).map_err(|errors| errors.to_string())?;
    rewrite(&mut parsed, &mut vec!["self".to_owned(), "oldSelf".to_owned()])?;
    Ok(parsed)
}

/// Rewrites `cel.bind` and `a.?b`, and refuses names nobody declared. `scope` holds the names in sight.
fn rewrite(expr: &mut Expression, scope: &mut Vec<String>) -> Result<(), String> {
    match &mut expr.expr {
        Expr::Ident(name) if scope.contains(name) => {}
        // The interpreter has no values for types: `type(x) == string` compares names instead.
        Expr::Ident(name) if is_type_name(name) => {
            expr.expr = Expr::Literal(LiteralValue::String(name.as_str().into()));
        }
        Expr::Ident(name) => return Err(format!("undeclared reference to '{name}' (in container '')")),
        Expr::Literal(_) => {}
        Expr::Unspecified => return Err("empty expression".to_owned()),
        Expr::Struct(s) => {
            return Err(format!("undeclared reference to '{}' (in container '')", s.type_name));
        }
        Expr::Select(select) => rewrite(&mut select.operand, scope)?,
        Expr::List(list) => list.elements.iter_mut().try_for_each(|e| rewrite(e, scope))?,
        Expr::Map(map) => {
            for entry in &mut map.entries {
                match &mut entry.expr {
                    EntryExpr::MapEntry(e) => {
                        rewrite(&mut e.key, scope)?;
                        rewrite(&mut e.value, scope)?;
                    }
                    EntryExpr::StructField(f) => rewrite(&mut f.value, scope)?,
                }
            }
        }
        Expr::Comprehension(c) => {
            rewrite(&mut c.iter_range, scope)?;
            rewrite(&mut c.accu_init, scope)?;
            let before = scope.len();
            scope.extend([c.iter_var.clone(), c.accu_var.clone()]);
            scope.extend(c.iter_var2.clone());
            for part in [&mut c.loop_cond, &mut c.loop_step, &mut c.result] {
                rewrite(part, scope)?;
            }
            scope.truncate(before);
        }
        Expr::Call(_) => return rewrite_call(expr, scope),
    }
    Ok(())
}

fn rewrite_call(expr: &mut Expression, scope: &mut Vec<String>) -> Result<(), String> {
    let Expr::Call(call) = &mut expr.expr else { return Ok(()) };
    if let Some(bound) = bind_macro(call) {
        expr.expr = Expr::Comprehension(Box::new(bound));
        return rewrite(expr, scope);
    }
    // `optional.of(x)` parses as a method on a name that is no variable; so do `sets`, `math`, `format`…
    let namespace = call.target.as_deref().and_then(|t| match &t.expr {
        Expr::Ident(name) if !scope.contains(name) => Some(name.clone()),
        _ => None,
    });
    if let (None, Some(target)) = (&namespace, &mut call.target) {
        rewrite(target, scope)?;
    }
    call.args.iter_mut().try_for_each(|a| rewrite(a, scope))?;
    if let Some(replacement) = optional_select(call) {
        expr.expr = replacement;
    }
    Ok(())
}

/// `cel.bind(name, value, body)` is a loop over nothing whose accumulator is the value.
fn bind_macro(call: &CallExpr) -> Option<ComprehensionExpr> {
    let target = call.target.as_deref()?;
    let [name, value, body] = call.args.as_slice() else { return None };
    let (Expr::Ident(cel), Expr::Ident(name), "bind") = (&target.expr, &name.expr, call.func_name.as_str())
    else {
        return None;
    };
    let ident = |name: &str| Expression { id: 0, expr: Expr::Ident(name.to_owned()) };
    (cel == "cel").then(|| ComprehensionExpr {
        iter_range: Expression { id: 0, expr: Expr::List(ListExpr::default()) },
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.clone(),
        accu_init: value.clone(),
        loop_cond: ident(name),
        loop_step: ident(name),
        result: body.clone(),
    })
}

/// `a.?b` as `has(a.b) ? optional.of(a.b) : optional.none()`: the interpreter's own fails on absence.
/// Below another optional (`a.?b.?c`) its own already does the right thing.
fn optional_select(call: &CallExpr) -> Option<Expr> {
    let (operators::OPT_SELECT, [operand, field]) = (call.func_name.as_str(), call.args.as_slice()) else {
        return None;
    };
    let name = match &field.expr {
        Expr::Literal(LiteralValue::String(s)) => s.inner().to_owned(),
        _ => return None,
    };
    if !matches!(operand.expr, Expr::Ident(_) | Expr::Select(_)) {
        return None;
    }
    let ided = |expr| Expression { id: 0, expr };
    let select = |test| {
        ided(Expr::Select(SelectExpr { operand: Box::new(operand.clone()), field: name.clone(), test }))
    };
    let optional = |func: &str, args| {
        let target = Some(Box::new(ided(Expr::Ident("optional".to_owned()))));
        ided(Expr::Call(CallExpr { func_name: func.to_owned(), target, args }))
    };
    let args = vec![select(true), optional("of", vec![select(false)]), optional("none", Vec::new())];
    Some(Expr::Call(CallExpr { func_name: operators::CONDITIONAL.to_owned(), target: None, args }))
}

fn type_name(value: Cel) -> Result<Cel, ExecutionError> {
    Ok(Cel::from(match value {
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Opaque(_) => "optional_type",
        Cel::Null => "null_type",
        Cel::Function(_, _) => "function",
    }))
}

fn is_type_name(name: &str) -> bool {
    const TYPES: [&str; 11] = [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
    ];
    TYPES.contains(&name)
}

/// A JSON value as the rule's author sees it: typed by the schema, unknown fields out of sight.
fn to_cel(node: &Node, value: &Value, resource: bool, depth: usize) -> Cel {
    if depth > MAX_DEPTH {
        return Cel::Null;
    }
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => {
            let float = node.types == Types::NUMBER;
            match (n.as_i64(), n.as_f64()) {
                (Some(i), _) if !float => Cel::Int(i),
                (_, Some(f)) if !float && is_integral(n) => Cel::Int(f as i64),
                (_, Some(f)) => Cel::Float(f),
                (_, None) => Cel::Null,
            }
        }
        Value::String(s) => string_to_cel(node, s),
        Value::Array(items) => {
            let items = match &node.items {
                Some(node) => {
                    items.iter().map(|i| to_cel(node, i, node.embedded_resource, depth + 1)).collect()
                }
                None => Vec::new(),
            };
            Cel::List(Arc::new(items))
        }
        Value::Object(map) => {
            let mut fields: HashMap<Key, Cel> = HashMap::with_capacity(map.len());
            for (name, value) in map {
                let key = if node.is_map() { Some(name.clone()) } else { escape(name) };
                let (Some(key), Some(field)) = (key, node.field(name)) else { continue };
                // Null is absence, except where the schema says that it is a value.
                if is_untyped(field) || (value.is_null() && !field.nullable) {
                    continue;
                }
                fields.insert(Key::from(key), to_cel(field, value, field.embedded_resource, depth + 1));
            }
            if resource {
                resource_fields(value, &mut fields);
            }
            Cel::Map(CelMap { map: Arc::new(fields) })
        }
    }
}

/// Of a resource's own fields rules see these, whatever the schema says.
fn resource_fields(object: &Value, fields: &mut HashMap<Key, Cel>) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    for key in ["apiVersion", "kind"] {
        if let Some(s) = text(&format!("/{key}")) {
            fields.insert(Key::from(key), Cel::from(s));
        }
    }
    let names: HashMap<&str, &str> = ["name", "generateName"]
        .into_iter()
        .filter_map(|key| text(&format!("/metadata/{key}")).map(|v| (key, v)))
        .collect();
    fields.insert(Key::from("metadata"), Cel::from(names));
}

/// Of unknown type: preserved whole, and not for rules to look into.
fn is_untyped(node: &Node) -> bool {
    let bare = node.types.is_none() && !node.int_or_string;
    bare || node.items.as_deref().is_some_and(is_untyped) || node.additional.each().is_some_and(is_untyped)
}

fn string_to_cel(node: &Node, s: &str) -> Cel {
    let convert = |program: &'static std::thread::LocalKey<Option<Expression>>, text: String| {
        let converted = program.with(|p| {
            FUNCTIONS.with(|functions| {
                let mut scope = functions.new_inner_scope();
                scope.add_variable_from_value("x", text);
                p.as_ref().and_then(|p| execute(p, &scope).ok())
            })
        });
        converted.unwrap_or_else(|| Cel::from(s))
    };
    match node.limits.as_ref().and_then(|l| l.format) {
        Some(Format::DateTime) => convert(&TIMESTAMP, s.to_owned()),
        Some(Format::Date) => convert(&TIMESTAMP, format!("{s}T00:00:00Z")),
        Some(Format::Duration) => convert(&DURATION, s.to_owned()),
        Some(Format::Byte) => {
            use base64::Engine as _;
            let decoded = base64::engine::general_purpose::STANDARD.decode(s);
            decoded.map_or_else(|_| Cel::from(s), |bytes| Cel::Bytes(Arc::new(bytes)))
        }
        Some(_) | None => Cel::from(s),
    }
}

const RESERVED: [&str; 18] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
];

/// A field's name as a CEL identifier; `None` for names that cannot be one.
fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    if first.is_ascii_digit() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c)) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
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
            "ios": {"x-kubernetes-int-or-string": true}, "inner": {"type": "object", "properties": {"z": {"type": "string"}}},
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
            "self.inner.?nope.orValue('none') == 'none'",
            "!self.?nope.hasValue()",
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
