//! Would a rule take too long on this object?
//!
//! The CEL interpreter has no step limit, and three nested loops over 300 items take seconds. Before a rule
//! runs, its loops are counted against the very values they would walk: the answer is an upper bound of the
//! iterations, exact for the usual `self.a.b.all(x, …)` and pessimistic for computed lists.

use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, operators};
use kube_cel::cel::parser::Expression;
use serde_json::Value;

/// Iterations all rules of one write may take together. An iteration costs about half a microsecond, so
/// this is half a second; kube-apiserver's per-object budget is of the same order.
const MAX_ITERATIONS: u64 = 1_000_000;

/// Values looked at while bounding one loop; beyond it, the largest collection stands for all.
const MAX_TRACKED: usize = 10_000;

/// What is left of the iterations for one write.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: MAX_ITERATIONS }
    }
}

impl Budget {
    /// Takes what `rule` needs when its names stand for these values; false when there is not enough left.
    pub(crate) fn spend(&mut self, rule: &Expression, names: &[(&str, &Value)]) -> bool {
        let mut largest = None;
        let mut scope = Scope {
            names: names.iter().map(|&(name, value)| (name, Seen::one(value))).collect(),
            whole: names,
            largest: &mut largest,
        };
        let needed = scope.cost(rule);
        match self.left.checked_sub(needed) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// The values an expression may have, where that can be told.
#[derive(Debug, Clone)]
enum Seen<'a> {
    Known(Vec<&'a Value>),
    Unknown,
}

impl<'a> Seen<'a> {
    fn one(value: &'a Value) -> Self {
        Self::Known(vec![value])
    }

    fn each(&self, step: impl Fn(&'a Value) -> Vec<&'a Value>) -> Self {
        let Self::Known(values) = self else { return Self::Unknown };
        let mut out = Vec::new();
        for value in values {
            out.extend(step(value));
            if out.len() > MAX_TRACKED {
                return Self::Unknown;
            }
        }
        Self::Known(out)
    }
}

struct Scope<'a, 'e> {
    names: Vec<(&'e str, Seen<'a>)>,
    whole: &'e [(&'e str, &'a Value)],
    /// The longest collection or string anywhere in the values; found when first needed.
    largest: &'e mut Option<u64>,
}

impl<'a, 'e> Scope<'a, 'e> {
    /// An upper bound of the iterations that evaluating `expr` takes; at least one for its own step.
    fn cost(&mut self, expr: &'e Expression) -> u64 {
        match &expr.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
            Expr::Select(select) => self.cost(&select.operand),
            Expr::List(list) => self.sum(list.elements.iter()),
            Expr::Map(map) => {
                map.entries.iter().fold(0, |sum: u64, e| sum.saturating_add(self.entry(&e.expr)))
            }
            Expr::Struct(s) => {
                s.entries.iter().fold(0, |sum: u64, e| sum.saturating_add(self.entry(&e.expr)))
            }
            Expr::Call(call) => {
                let target = call.target.as_deref().map_or(0, |t| self.cost(t));
                target.saturating_add(self.sum(call.args.iter()))
            }
            Expr::Comprehension(c) => {
                let outside = self.cost(&c.iter_range).saturating_add(self.cost(&c.accu_init));
                let range = self.seen(&c.iter_range);
                let rounds = self.rounds(&range, &c.iter_range);
                let bound = self.seen(&c.accu_init);
                let depth = self.names.len();
                self.names.push((&c.iter_var, range.each(elements)));
                // A bound name (`cel.bind`) keeps its value; a real accumulator's is not known.
                self.names.push((&c.accu_var, if rounds == 0 { bound } else { Seen::Unknown }));
                let step = self.cost(&c.loop_cond).saturating_add(self.cost(&c.loop_step)).saturating_add(1);
                let result = self.cost(&c.result);
                self.names.truncate(depth);
                outside.saturating_add(rounds.saturating_mul(step)).saturating_add(result)
            }
        }
    }

    fn sum(&mut self, exprs: impl Iterator<Item = &'e Expression>) -> u64 {
        exprs.fold(0, |sum: u64, e| sum.saturating_add(self.cost(e)))
    }

    fn entry(&mut self, entry: &'e EntryExpr) -> u64 {
        match entry {
            EntryExpr::MapEntry(e) => self.cost(&e.key).saturating_add(self.cost(&e.value)),
            EntryExpr::StructField(f) => self.cost(&f.value),
        }
    }

    fn rounds(&mut self, range: &Seen<'a>, expr: &Expression) -> u64 {
        match (range, &expr.expr) {
            (Seen::Known(values), _) => values.iter().map(|v| length(v)).max().unwrap_or(0),
            (Seen::Unknown, Expr::List(list)) => list.elements.len() as u64,
            // What `map` yields is not told, but it is as many as it was given.
            (Seen::Unknown, Expr::Comprehension(c)) if matches!(c.accu_init.expr, Expr::List(_)) => {
                self.rounds(&self.seen(&c.iter_range), &c.iter_range)
            }
            (Seen::Unknown, _) => self.largest(),
        }
    }

    fn largest(&mut self) -> u64 {
        let whole = self.whole;
        *self.largest.get_or_insert_with(|| whole.iter().map(|(_, value)| longest(value)).max().unwrap_or(0))
    }

    /// The values an expression may have.
    fn seen(&self, expr: &Expression) -> Seen<'a> {
        match &expr.expr {
            Expr::Ident(name) => self
                .names
                .iter()
                .rev()
                .find(|(n, _)| n == name)
                .map_or(Seen::Unknown, |(_, seen)| seen.clone()),
            // Escaped names (`x__dash__y`) are not undone: their values are then unknown, and the bound is
            // pessimistic.
            Expr::Select(select) if !select.field.contains("__") => {
                self.seen(&select.operand).each(|v| v.get(&select.field).into_iter().collect())
            }
            Expr::Comprehension(c) if is_filter(c) => self.seen(&c.iter_range),
            Expr::Select(_)
            | Expr::Comprehension(_)
            | Expr::Unspecified
            | Expr::Literal(_)
            | Expr::List(_)
            | Expr::Map(_)
            | Expr::Struct(_)
            | Expr::Call(_) => Seen::Unknown,
        }
    }
}

/// `filter` adds the very items it was given, some of them.
fn is_filter(c: &ComprehensionExpr) -> bool {
    let Expr::Call(step) = &c.loop_step.expr else { return false };
    let (operators::CONDITIONAL, Some(Expr::Call(add))) =
        (step.func_name.as_str(), step.args.get(1).map(|then| &then.expr))
    else {
        return false;
    };
    let Some(Expr::List(added)) = add.args.get(1).map(|list| &list.expr) else { return false };
    matches!(added.elements.as_slice(), [only] if only.expr == Expr::Ident(c.iter_var.clone()))
}

fn elements(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        // A loop over a map sees its keys, in which there is nothing to loop over.
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn length(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.len() as u64,
        Value::Object(map) => map.len() as u64,
        Value::String(s) => s.len() as u64,
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Iterative: objects kept whole by `preserve-unknown-fields` may nest as deep as JSON does.
fn longest(value: &Value) -> u64 {
    let mut longest = 0;
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        longest = longest.max(length(value));
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(map) => left.extend(map.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::cel::parser::Parser;
    use serde_json::json;

    fn needed(rule: &str, value: &Value) -> u64 {
        let parsed = Parser::default().parse(rule).unwrap();
        let mut budget = Budget { left: u64::MAX };
        assert!(budget.spend(&parsed, &[("self", value)]));
        u64::MAX - budget.left
    }

    #[test]
    fn loops_are_counted_on_the_lists_they_walk() {
        let value = json!({"a": [{"b": [1, 2, 3]}, {"b": [1]}], "big": (0..500).collect::<Vec<_>>()});
        assert_eq!(needed("self.a == self.big", &value), 0);
        assert_eq!(needed("self.a.all(x, true)", &value), 2);
        assert_eq!(needed("self.a.all(x, x.b.all(y, y > 0))", &value), 2 * (1 + 3));
        assert_eq!(needed("self.a.all(x, self.a.all(y, x != y))", &value), 2 * (1 + 2));
        assert_eq!(needed("self.missing.all(x, true)", &value), 0);
    }

    #[test]
    fn what_cannot_be_told_counts_as_the_largest() {
        let value = json!({"s": "a,b", "big": (0..500).collect::<Vec<_>>()});
        assert_eq!(needed("self.s.split(',').all(x, true)", &value), 500);
        let lists = json!({"l": [[1], [2]], "big": (0..500).collect::<Vec<_>>()});
        assert_eq!(needed("self.l.filter(x, true).all(y, y.all(z, true))", &lists), 2 + 2 * (1 + 1));
        assert_eq!(needed("self.l.map(x, self.big).all(y, y.all(z, true))", &lists), 2 + 2 * (1 + 500));
    }

    #[test]
    fn a_budget_is_shared_by_all_rules_of_a_write() {
        let rule = Parser::default().parse("self.all(x, self.all(y, x != y))").unwrap();
        let value = json!((0..800).collect::<Vec<_>>());
        let mut budget = Budget::default();
        assert!(budget.spend(&rule, &[("self", &value)]));
        assert!(!budget.spend(&rule, &[("self", &value)]));
    }
}
