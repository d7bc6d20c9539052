//! Does a rule speak of fields that exist?
//!
//! A misspelled field would make a rule fail on every object, long after its author is gone; like the real
//! server, the schema refuses such a rule. What an expression's parts are is followed as far as the schema
//! tells: through fields, items, loops and bound names. Anything computed may be anything.
//!
//! The same knowledge settles what `==` means between two lists whose items have identities: their order
//! does not matter, so the comparison becomes `sets.equivalent`.

use super::cel::{escape, is_untyped};
use super::{ListType, Node, Types};
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators};
use kube_cel::cel::parser::Expression;

/// What is known of a value.
#[derive(Clone, Copy)]
enum Known<'a> {
    Typed {
        node: &'a Node,
        /// It is a resource, and has `apiVersion`, `kind` and `metadata` besides.
        resource: bool,
    },
    /// The `metadata` of a resource, of which rules see two names.
    Metadata,
    Anything,
}

/// Checks every field that a rule on `node` speaks of.
pub(super) fn check(
    rule: &mut Expression,
    node: &Node,
    resource: bool,
    optional_old: bool,
) -> Result<(), String> {
    let own = Known::Typed { node, resource };
    let old = if optional_old { Known::Anything } else { own };
    let mut scope = vec![("self".to_owned(), own), ("oldSelf".to_owned(), old)];
    infer(rule, &mut scope).map(drop)
}

/// The names in sight, innermost last.
type Scope<'a> = Vec<(String, Known<'a>)>;

fn infer<'a>(expr: &mut Expression, scope: &mut Scope<'a>) -> Result<Known<'a>, String> {
    match &mut expr.expr {
        Expr::Ident(name) => {
            Ok(scope.iter().rev().find(|(n, _)| n == name).map_or(Known::Anything, |(_, known)| *known))
        }
        Expr::Unspecified | Expr::Literal(_) => Ok(Known::Anything),
        Expr::Select(select) => infer(&mut select.operand, scope)?.field(&select.field),
        Expr::List(list) => {
            list.elements.iter_mut().try_for_each(|e| infer(e, scope).map(drop))?;
            Ok(Known::Anything)
        }
        Expr::Map(map) => entries(map.entries.iter_mut().map(|e| &mut e.expr), scope),
        Expr::Struct(s) => entries(s.entries.iter_mut().map(|e| &mut e.expr), scope),
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                infer(target, scope)?;
            }
            let mut args = Vec::with_capacity(call.args.len());
            for arg in &mut call.args {
                args.push(infer(arg, scope)?);
            }
            match (call.func_name.as_str(), args.as_slice()) {
                (operators::INDEX, [of, _]) => Ok(of.element()),
                (operators::EQUALS | operators::NOT_EQUALS, [a, b])
                    if a.is_unordered() && b.is_unordered() =>
                {
                    expr.expr = equivalent(call);
                    Ok(Known::Anything)
                }
                (_, _) => Ok(Known::Anything),
            }
        }
        Expr::Comprehension(c) => comprehension(c, scope),
    }
}

/// `a == b` as `sets.equivalent(a, b)`, and `a != b` as its opposite.
fn equivalent(call: &CallExpr) -> Expr {
    let ided = |expr| Expression { id: 0, expr };
    let sets = Some(Box::new(ided(Expr::Ident("sets".to_owned()))));
    let same = CallExpr { func_name: "equivalent".to_owned(), target: sets, args: call.args.clone() };
    match call.func_name.as_str() {
        operators::NOT_EQUALS => Expr::Call(CallExpr {
            func_name: operators::LOGICAL_NOT.to_owned(),
            target: None,
            args: vec![ided(Expr::Call(same))],
        }),
        _ => Expr::Call(same),
    }
}

fn entries<'a, 'e>(
    entries: impl Iterator<Item = &'e mut EntryExpr>,
    scope: &mut Scope<'a>,
) -> Result<Known<'a>, String> {
    for entry in entries {
        match entry {
            EntryExpr::MapEntry(e) => {
                infer(&mut e.key, scope)?;
                infer(&mut e.value, scope)?;
            }
            EntryExpr::StructField(f) => {
                infer(&mut f.value, scope)?;
            }
        }
    }
    Ok(Known::Anything)
}

fn comprehension<'a>(c: &mut ComprehensionExpr, scope: &mut Scope<'a>) -> Result<Known<'a>, String> {
    let range = infer(&mut c.iter_range, scope)?;
    let start = infer(&mut c.accu_init, scope)?;
    let item = match range {
        Known::Typed { node, .. } if node.types == Types::ARRAY => range.element(),
        // A loop over a map sees its keys.
        Known::Typed { .. } | Known::Metadata | Known::Anything => Known::Anything,
    };
    let depth = scope.len();
    scope.extend([(c.iter_var.clone(), item), (c.accu_var.clone(), start)]);
    infer(&mut c.loop_cond, scope)?;
    infer(&mut c.loop_step, scope)?;
    infer(&mut c.result, scope)?;
    scope.truncate(depth);
    Ok(Known::Anything)
}

impl<'a> Known<'a> {
    fn field(self, name: &str) -> Result<Self, String> {
        let undefined = || Err(format!("undefined field '{name}'"));
        match self {
            Self::Anything => Ok(Self::Anything),
            Self::Metadata if matches!(name, "name" | "generateName") => Ok(Self::Anything),
            Self::Metadata => undefined(),
            Self::Typed { node, .. } if node.types == Types::OBJECT && node.is_map() => Ok(self.element()),
            Self::Typed { resource: true, .. } if matches!(name, "apiVersion" | "kind") => Ok(Self::Anything),
            Self::Typed { resource: true, .. } if name == "metadata" => Ok(Self::Metadata),
            Self::Typed { node, .. } if node.types == Types::OBJECT => {
                let named = node.properties.iter().find(|(n, _)| escape(n).as_deref() == Some(name));
                match named {
                    Some((_, field)) if !is_untyped(field) => {
                        Ok(Self::Typed { node: field, resource: field.embedded_resource })
                    }
                    Some(_) | None => undefined(),
                }
            }
            Self::Typed { node, .. } if node.types.is_none() => Ok(Self::Anything),
            Self::Typed { node, .. } => {
                Err(format!("type '{}' does not support field selection", node.types.names()))
            }
        }
    }

    /// A list whose items have identities: their order says nothing.
    fn is_unordered(self) -> bool {
        matches!(self, Self::Typed { node, .. } if node.types == Types::ARRAY && node.list != ListType::Atomic)
    }

    /// What an index or a loop yields.
    fn element(self) -> Self {
        let Self::Typed { node, .. } = self else { return Self::Anything };
        match (node.items.as_deref(), node.additional.each()) {
            (Some(each), _) | (None, Some(each)) => {
                Self::Typed { node: each, resource: each.embedded_resource }
            }
            (None, None) => Self::Anything,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::{Value, json};

    fn compile(rule: &str) -> Result<(), String> {
        let spec = json!({"type": "object", "properties": {
            "a": {"type": "string"}, "x-y": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"m": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"k": {"type": "string"}}},
            "raw": {"x-kubernetes-preserve-unknown-fields": true}, "ios": {"x-kubernetes-int-or-string": true},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        }, "x-kubernetes-validations": [{"rule": rule}]});
        let schema: Value = json!({"type": "object", "properties": {"spec": spec}});
        match Schema::compile(&schema, "s") {
            Ok(_) => Ok(()),
            Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn rules_on_fields_that_exist_compile() {
        for rule in [
            "self.a == 'x' && has(self.x__dash__y)",
            "self.list.all(i, i.n > 0) && self.list[0].n == 1",
            "self.list.filter(i, i.n > 0).all(i, i.n < 9)",
            "self.map.all(k, self.map[k].m == 'x') && self.map.any.m == 'x'",
            "self.free.k == 'x'",
            "self.pod.kind == 'Pod' && self.pod.metadata.name != ''",
            "cel.bind(l, self.list, l.all(i, i.n == 0))",
            "self.a == oldSelf.a",
            "self.ios == 5 || self.ios == 'x'",
        ] {
            assert_eq!(compile(rule), Ok(()), "{rule}");
        }
    }

    #[test]
    fn rules_on_fields_that_do_not_exist_are_refused() {
        for (rule, field) in [
            ("self.nope == 1", "nope"),
            ("has(self.nope)", "nope"),
            ("self.list.all(i, i.nope > 0)", "nope"),
            ("self.map['k'].nope == 'x'", "nope"),
            ("self.free.unknown == 1", "unknown"),
            ("self.raw == 1", "raw"),
            ("self.pod.metadata.labels == {}", "labels"),
            ("oldSelf.nope == self.a", "nope"),
            ("self.?nope.hasValue()", "nope"),
        ] {
            let error = compile(rule).unwrap_err();
            assert!(error.contains(&format!("undefined field '{field}'")), "{rule}: {error}");
        }
        assert!(compile("self.a.b == 1").unwrap_err().contains("does not support field selection"));
    }
}
