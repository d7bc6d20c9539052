//! What does a CEL expression see, and what does it mean?
//!
//! Expressions are parsed here, and what the interpreter lacks is rewritten into what it has: `cel.bind`,
//! `a.?b`, `type(x) == string`. Values are converted as their schema types them: unknown fields are out of
//! sight, nulls are absent, dates are timestamps, names are escaped.

use super::format::Format;
use super::validate::is_integral;
use super::{MAX_DEPTH, Node, Types};
use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, SelectExpr, operators,
};
use kube_cel::cel::objects::{Key, Map as CelMap};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

mod depth;

/// The parser goes down a dozen functions for each bracket: without optimization, 64 brackets take several MiB, and a
/// thread has 2.
const PARSING_STACK_BYTES: usize = 32 << 20;

/// What the interpreter needs for a rule as deep as may be ([`depth`]: 64 brackets, and 100 operators leaning on one
/// another within them). Measured where it is deepest, at opt-level 3: nested `map` macros take 2.8 KiB a bracket, 166 KiB
/// for 61 of them; nested `filter` with a call 3.6 KiB, 105 KiB; operators 0.8 KiB each, 72 KiB for 98. The worst mix is
/// below 300 KiB, so a release has more than three times what it needs. Without optimization the same take 110, 149 and
/// 36 KiB: 6.6 MiB for nested `map` and 3.6 MiB for the operators, some 10 MiB together. A thread that has as much left
/// gets no more: rules run often, and a stack takes a few microseconds.
const RESOLVING_STACK_BYTES: usize = if cfg!(debug_assertions) { 16 << 20 } else { 1 << 20 };

thread_local! {
    /// Standard functions and Kubernetes' own: registering them costs more than running most rules.
    pub(crate) static FUNCTIONS: Context<'static> = {
        let mut context = Context::default().with_all();
        context.add_function("type", type_name);
        context
    };
    static TIMESTAMP: Option<Expression> = Parser::default().parse("timestamp(x)").ok();
    static DURATION: Option<Expression> = Parser::default().parse("duration(x)").ok();
}

pub(crate) fn execute(expression: &Expression, scope: &Context<'_>) -> Result<Cel, String> {
    // The interpreter has assertions of its own; an object must not be able to take the server down with one.
    let resolve = || catch_unwind(AssertUnwindSafe(|| Cel::resolve(expression, scope)));
    match stacker::maybe_grow(RESOLVING_STACK_BYTES, 2 * RESOLVING_STACK_BYTES, resolve) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err("internal error".to_owned()),
    }
}

/// Parses a rule that may speak of `names`, with optional syntax, and rewrites what the interpreter does not have.
pub(crate) fn expression(source: &str, names: &[&str]) -> Result<Expression, String> {
    if let Some(problem) = depth::problem(source) {
        return Err(problem);
    }
    let parse = || Parser::default().enable_optional_syntax(true).parse(source);
    let mut parsed = stacker::maybe_grow(PARSING_STACK_BYTES, PARSING_STACK_BYTES, parse)
        .map_err(|errors| errors.to_string())?;
    rewrite(&mut parsed, &mut names.iter().map(|&name| name.to_owned()).collect())?;
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
    if let Some(replacement) = optional_select(call) {
        expr.expr = replacement;
        return rewrite(expr, scope);
    }
    // `optional.of(x)` parses as a method on a name that is no variable.
    let is_namespace = |t: &Expression| matches!(&t.expr, Expr::Ident(name) if !scope.contains(name) && NAMESPACES.contains(&name.as_str()));
    if let Some(target) = call.target.as_deref_mut().filter(|t| !is_namespace(t)) {
        rewrite(target, scope)?;
    }
    call.args.iter_mut().try_for_each(|a| rewrite(a, scope))?;
    Ok(())
}

/// What functions are grouped under in names such as `math.greatest`.
const NAMESPACES: [&str; 9] =
    ["base64", "cel", "format", "ip", "jsonpatch", "math", "optional", "sets", "strings"];

/// `a.?b.?c` as `has(a.b) && has(a.b.c) ? optional.of(a.b.c) : optional.none()`: the interpreter's own fails on
/// absence at the first `.?`, and makes a value of it at the second.
fn optional_select(call: &CallExpr) -> Option<Expr> {
    let (guards, value) = optional_path(call)?;
    let ided = |expr| Expression { id: 0, expr };
    let called = |func: &str, args| CallExpr { func_name: func.to_owned(), target: None, args };
    let optional = |func: &str, args| {
        let target = Some(Box::new(ided(Expr::Ident("optional".to_owned()))));
        ided(Expr::Call(CallExpr { target, ..called(func, args) }))
    };
    let all =
        guards.into_iter().reduce(|a, b| ided(Expr::Call(called(operators::LOGICAL_AND, vec![a, b]))))?;
    let args = vec![all, optional("of", vec![value]), optional("none", Vec::new())];
    Some(Expr::Call(called(operators::CONDITIONAL, args)))
}

/// What must be there, and what is then selected, for a chain of `.?`. Once a selection is optional, all after it are.
fn optional_path(call: &CallExpr) -> Option<(Vec<Expression>, Expression)> {
    let (operators::OPT_SELECT, [operand, field]) = (call.func_name.as_str(), call.args.as_slice()) else {
        return None;
    };
    let Expr::Literal(LiteralValue::String(name)) = &field.expr else { return None };
    selected(operand, name.inner())
}

fn selected(operand: &Expression, field: &str) -> Option<(Vec<Expression>, Expression)> {
    let (mut guards, operand) = match &operand.expr {
        Expr::Call(call) if call.func_name == operators::OPT_SELECT => optional_path(call)?,
        Expr::Select(below) if !below.test => match selected(&below.operand, &below.field) {
            Some((guards, value)) if is_optional(&below.operand) => (guards, value),
            Some(_) | None => (Vec::new(), operand.clone()),
        },
        Expr::Ident(_) => (Vec::new(), operand.clone()),
        Expr::Unspecified
        | Expr::Literal(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Struct(_)
        | Expr::Select(_)
        | Expr::Call(_)
        | Expr::Comprehension(_) => return None,
    };
    let select = |test| {
        let operand = Box::new(operand.clone());
        Expression { id: 0, expr: Expr::Select(SelectExpr { operand, field: field.to_owned(), test }) }
    };
    guards.push(select(true));
    Some((guards, select(false)))
}

/// Whether this is `a.?b`, or something plainly selected below it.
fn is_optional(expr: &Expression) -> bool {
    match &expr.expr {
        Expr::Select(select) => !select.test && is_optional(&select.operand),
        Expr::Call(call) => call.func_name == operators::OPT_SELECT,
        Expr::Unspecified
        | Expr::Ident(_)
        | Expr::Literal(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Struct(_)
        | Expr::Comprehension(_) => false,
    }
}

/// `cel.bind(name, value, body)` is a loop over nothing whose accumulator is the value.
fn bind_macro(call: &CallExpr) -> Option<ComprehensionExpr> {
    let target = call.target.as_deref()?;
    let [name, value, body] = call.args.as_slice() else { return None };
    let (Expr::Ident(cel), Expr::Ident(name), "bind") = (&target.expr, &name.expr, call.func_name.as_str())
    else {
        return None;
    };
    (cel == "cel").then(|| bound(name, value.clone(), body.clone()))
}

/// `body` where `name` stands for `value`.
fn bound(name: &str, value: Expression, body: Expression) -> ComprehensionExpr {
    let ident = || Expression { id: 0, expr: Expr::Ident(name.to_owned()) };
    ComprehensionExpr {
        iter_range: Expression { id: 0, expr: Expr::List(ListExpr::default()) },
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: ident(),
        loop_step: ident(),
        result: body,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the interpreter hands functions their arguments by value")]
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
    matches!(name, "bool" | "int" | "uint" | "double" | "string" | "bytes")
        || matches!(name, "list" | "map" | "null_type" | "type" | "optional_type")
}

/// A JSON value as the rule's author sees it: typed by the schema, unknown fields out of sight.
pub(super) fn to_cel(node: &Node, value: &Value, resource: bool, depth: usize) -> Cel {
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

/// A JSON value as it is, for expressions that know no schema.
pub(crate) fn untyped(value: &Value, depth: usize) -> Cel {
    match value {
        _ if depth > MAX_DEPTH => Cel::Null,
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(i), _) => Cel::Int(i),
            (None, Some(f)) => Cel::Float(f),
            (None, None) => Cel::Null,
        },
        Value::String(s) => Cel::from(s.as_str()),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(|i| untyped(i, depth + 1)).collect())),
        Value::Object(map) => {
            let fields = map.iter().map(|(name, v)| (Key::from(name.as_str()), untyped(v, depth + 1)));
            Cel::Map(CelMap { map: Arc::new(fields.collect()) })
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
pub(super) fn is_untyped(node: &Node) -> bool {
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

fn is_reserved(name: &str) -> bool {
    matches!(name, "true" | "false" | "null" | "in" | "as" | "break" | "const" | "continue" | "else" | "for")
        || matches!(name, "function" | "if" | "import" | "let" | "loop" | "package" | "namespace" | "return")
}

/// A field's name as a CEL identifier; `None` for names that cannot be one.
pub(super) fn escape(name: &str) -> Option<String> {
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    if first.is_ascii_digit() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c)) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_nested_or_chained_without_end_is_answered_not_fatal() {
        let nested = |open: &str, inner: &str, close: &str, times: usize| {
            format!("{}{inner}{}", open.repeat(times), close.repeat(times))
        };
        for times in [60, 98, 1_000, 4_000] {
            for rule in [
                nested("(", "true", ")", times),
                nested("[", "1", "]", times),
                nested("{1: ", "1", "}", times),
                nested("!", "true", "", times),
                nested("-", "1", "", times),
                nested("true ? ", "1", " : 2", times),
                nested("size(", "'a'", ")", times),
                nested("[1].map(x, ", "1", ")", times),
                nested("[1].filter(x, size(", "[1]", ") > 0)", times),
                nested("[1].all(x, ", "true", ")", times),
                nested("", "1", " + 1", times),
                nested("", "true", " && true", times),
                nested("", "self", ".a", times),
                nested("", "self", "[0]", times),
                nested("(\u{0}", "true", "", times),
            ] {
                let scope = Context::default();
                if let Ok(expression) = expression(&rule, &["self"]) {
                    let _answered = execute(&expression, &scope);
                }
            }
        }
    }
}
