//! Who calls whom, and does it end?
//!
//! Functions that call each other without end overflow the stack of whoever evaluates them, and nothing catches that. So
//! the calls of a set of policies are followed before anything is evaluated: rules and functions must not lead back to
//! themselves (Rego forbids it anyway), chains of them must not be long, and what is called must be there. What is
//! unclear counts: a reference to a part of `data` that holds rules is a reference to all of them.
//!
//! Trees are walked with a stack of our own, for expressions may be as deep as a text is long.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{
    AssignOp, BUILTINS, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleHead, Span,
};

use crate::scan::Problem;

/// How many rules and functions may lead to each other in a row. Each takes some frames of the interpreter; a worker's
/// stack has room for ten times as many.
const MAX_CHAIN: usize = 64;

/// Answered from the input: the moment of the decision.
pub(crate) const NOW: &str = "time.now_ns";

/// What would make the same question have two answers, or leave the process.
const REFUSED: &[(&str, &str)] = &[
    ("http.send", "a policy has no network: what it must know is in its input"),
    ("net.lookup_ip_addr", "a policy has no network: what it must know is in its input"),
    ("opa.runtime", "there is no OPA and no environment to be shown"),
    ("rand.intn", "the same input must have the same answer"),
    ("uuid.rfc4122", "the same input must have the same answer"),
];

/// # Errors
/// The first thing that is called and not there, is called in a circle, or too deeply.
pub(crate) fn check(modules: &[Ref<Module>]) -> Result<(), Problem> {
    let mut graph = Graph::default();
    for module in modules {
        let package = package(module);
        for rule in &module.policy {
            let (refr, _) = head(rule);
            let mut path = package.clone();
            path.extend(static_path(refr));
            graph.add(path, refr.span());
        }
    }
    for module in modules {
        graph.connect(module)?;
    }
    graph.ends()
}

/// The components of a module's package, `data` first.
pub(crate) fn package(module: &Module) -> Vec<String> {
    let mut path = vec!["data".to_owned()];
    path.extend(static_path(&module.package.refr));
    path
}

/// The name that a rule has within its package, as far as it is fixed.
pub(crate) fn rule_name(rule: &Rule) -> Vec<String> {
    static_path(head(rule).0)
}

/// All rules and functions, by path. Rules of one path are one.
#[derive(Default)]
struct Graph<'a> {
    by_path: BTreeMap<Vec<String>, usize>,
    nodes: Vec<Node<'a>>,
}

struct Node<'a> {
    path: Vec<String>,
    span: &'a Span,
    /// Whom it mentions, and where.
    leads_to: BTreeMap<usize, &'a Span>,
}

impl<'a> Graph<'a> {
    fn add(&mut self, path: Vec<String>, span: &'a Span) {
        if !self.by_path.contains_key(&path) {
            self.by_path.insert(path.clone(), self.nodes.len());
            self.nodes.push(Node { path, span, leads_to: BTreeMap::new() });
        }
    }

    fn connect(&mut self, module: &'a Module) -> Result<(), Problem> {
        let package = package(module);
        let imports = imports(module);
        for rule in &module.policy {
            let mut path = package.clone();
            path.extend(rule_name(rule));
            let Some(from) = self.by_path.get(&path).copied() else { continue };
            let mentions = mentions(rule);
            let bound: BTreeSet<&str> = mentions.bound.iter().map(String::as_str).collect();
            let mut found: Vec<(Vec<String>, &'a Span)> = Vec::new();
            for Mention { path, span, kind } in mentions.of {
                let first = path.first().map(String::as_str).unwrap_or_default();
                match kind {
                    Kind::Call => {
                        found.extend(self.callee(&package, &imports, path, span)?.map(|to| (to, span)))
                    }
                    // A variable of the rule's own hides a rule of that name; it cannot hide a function.
                    Kind::Value if bound.contains(first) => {}
                    Kind::Value | Kind::Instead => found.push((absolute(&package, &imports, path), span)),
                }
            }
            let all: Vec<(usize, &'a Span)> = found
                .iter()
                .flat_map(|(path, span)| self.meant(path).into_iter().map(|to| (to, *span)))
                .collect();
            if let Some(node) = self.nodes.get_mut(from) {
                for (to, span) in all {
                    node.leads_to.entry(to).or_insert(span);
                }
            }
        }
        Ok(())
    }

    /// What a call means: a function of ours by its path, or `None` for a builtin.
    fn callee(
        &self,
        package: &[String],
        imports: &BTreeMap<String, Vec<String>>,
        path: Vec<String>,
        span: &Span,
    ) -> Result<Option<Vec<String>>, Problem> {
        let name = path.join(".");
        let full = absolute(package, imports, path);
        if self.by_path.contains_key(&full) {
            return Ok(Some(full));
        }
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(at(span, format!("{name} is refused: {why}")));
        }
        if BUILTINS.contains_key(name.as_str()) || name == "print" || name == NOW {
            return Ok(None);
        }
        Err(at(span, format!("there is no function {name}")))
    }

    /// The nodes at a path, above it and below it.
    fn meant(&self, path: &[String]) -> Vec<usize> {
        let mut meant: Vec<usize> = (1..path.len())
            .filter_map(|end| path.get(..end).and_then(|above| self.by_path.get(above)))
            .copied()
            .collect();
        let below = self.by_path.range(path.to_vec()..);
        meant.extend(below.take_while(|(other, _)| other.starts_with(path)).map(|(_, node)| *node));
        meant
    }

    /// Goes to the end of every chain.
    fn ends(&self) -> Result<(), Problem> {
        // For each: not seen, on the way here, or done with so many below.
        let mut seen: Vec<Seen> = vec![Seen::Not; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut way: Vec<(usize, Vec<usize>)> = Vec::new();
            if seen.get(start) == Some(&Seen::Not) {
                way.push((start, self.next(start)));
                set(&mut seen, start, Seen::OnTheWay);
            }
            while let Some((here, next)) = way.last_mut() {
                let here = *here;
                let Some(to) = next.pop() else {
                    let below = self.next(here).into_iter().map(|to| below(&seen, to)).max().unwrap_or(0);
                    let chain = below.saturating_add(1);
                    if chain > MAX_CHAIN {
                        return Err(self.too_long(here));
                    }
                    set(&mut seen, here, Seen::Done(chain));
                    way.pop();
                    continue;
                };
                match seen.get(to) {
                    Some(Seen::Not) => {
                        set(&mut seen, to, Seen::OnTheWay);
                        way.push((to, self.next(to)));
                    }
                    Some(Seen::OnTheWay) => {
                        let circle: Vec<usize> = way
                            .iter()
                            .map(|(node, _)| *node)
                            .skip_while(|node| *node != to)
                            .chain([to])
                            .collect();
                        return Err(self.circle(here, to, &circle));
                    }
                    Some(Seen::Done(_)) | None => {}
                }
            }
        }
        Ok(())
    }

    fn next(&self, node: usize) -> Vec<usize> {
        self.nodes.get(node).map(|node| node.leads_to.keys().copied().collect()).unwrap_or_default()
    }

    fn name(&self, node: usize) -> String {
        self.nodes.get(node).map(|node| node.path.join(".")).unwrap_or_default()
    }

    fn circle(&self, from: usize, to: usize, circle: &[usize]) -> Problem {
        let names: Vec<String> = circle.iter().map(|node| self.name(*node)).collect();
        let message = format!("{} leads back to itself: {}", self.name(to), names.join(" → "));
        let place = self.nodes.get(from).and_then(|node| node.leads_to.get(&to));
        place.map_or_else(|| Problem::whole("", message.clone()), |span| at(span, message.clone()))
    }

    fn too_long(&self, node: usize) -> Problem {
        let message =
            format!("{} leads to more than {MAX_CHAIN} rules and functions in a row", self.name(node));
        self.nodes
            .get(node)
            .map_or_else(|| Problem::whole("", message.clone()), |node| at(node.span, message.clone()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    OnTheWay,
    Done(usize),
}

fn set(seen: &mut [Seen], node: usize, to: Seen) {
    if let Some(slot) = seen.get_mut(node) {
        *slot = to;
    }
}

fn below(seen: &[Seen], node: usize) -> usize {
    match seen.get(node) {
        Some(Seen::Done(chain)) => *chain,
        Some(Seen::Not | Seen::OnTheWay) | None => 0,
    }
}

pub(crate) fn at(span: &Span, message: impl Into<String>) -> Problem {
    Problem {
        file: span.source.get_path().clone(),
        line: span.line,
        column: span.col,
        message: message.into(),
    }
}

/// Where a name leads that is written in a package.
fn absolute(package: &[String], imports: &BTreeMap<String, Vec<String>>, path: Vec<String>) -> Vec<String> {
    let first = path.first().map(String::as_str).unwrap_or_default();
    if first == "data" || first == "input" {
        return path;
    }
    let before = imports.get(first);
    let rest = path.iter().skip(usize::from(before.is_some()));
    before.map_or(package, Vec::as_slice).iter().chain(rest).cloned().collect()
}

/// What a module's imports are called, and mean.
fn imports(module: &Module) -> BTreeMap<String, Vec<String>> {
    let named = module.imports.iter().filter_map(|import| {
        let path = static_path(&import.refr);
        let name = match &import.r#as {
            Some(alias) => alias.text().to_owned(),
            None => path.last()?.clone(),
        };
        Some((name, path))
    });
    named.collect()
}

/// What a rule mentions.
#[derive(Default)]
struct Mentions<'a> {
    of: Vec<Mention<'a>>,
    /// Its own variables.
    bound: Vec<String>,
}

struct Mention<'a> {
    path: Vec<String>,
    span: &'a Span,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Call,
    Value,
    /// `with … as` this: it is called where another is written.
    Instead,
}

/// What is yet to be walked.
enum Part<'a> {
    Expr(&'a Expr),
    Query(&'a Query),
}

fn head(rule: &Rule) -> (&Expr, &[Ref<Expr>]) {
    match rule {
        Rule::Spec { head: RuleHead::Func { refr, args, .. }, .. } => (refr, args),
        Rule::Spec { head: RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. }, .. } => (refr, &[]),
        Rule::Default { refr, args, .. } => (refr, args),
    }
}

fn mentions(rule: &Rule) -> Mentions<'_> {
    let mut mentions = Mentions::default();
    let mut parts: Vec<Part<'_>> = Vec::new();
    let (_, args) = head(rule);
    for arg in args {
        mentions.bound.extend(variables(arg));
    }
    match rule {
        Rule::Default { value, .. } => parts.push(Part::Expr(value)),
        Rule::Spec { head, bodies, .. } => {
            match head {
                RuleHead::Compr { refr, assign, .. } | RuleHead::Func { refr, assign, .. } => {
                    parts.extend(indexes(refr).map(Part::Expr));
                    parts.extend(assign.iter().map(|assign| Part::Expr(&assign.value)));
                }
                RuleHead::Set { refr, key, .. } => {
                    parts.extend(indexes(refr).map(Part::Expr));
                    parts.extend(key.iter().map(|key| Part::Expr(key)));
                }
            }
            for body in bodies {
                parts.push(Part::Query(&body.query));
                parts.extend(body.assign.iter().map(|assign| Part::Expr(&assign.value)));
            }
        }
    }
    while let Some(part) = parts.pop() {
        match part {
            Part::Query(query) => {
                for statement in &query.stmts {
                    walk_statement(statement, &mut parts, &mut mentions);
                }
            }
            Part::Expr(expr) => walk(expr, &mut parts, &mut mentions),
        }
    }
    mentions
}

fn walk_statement<'a>(statement: &'a LiteralStmt, parts: &mut Vec<Part<'a>>, mentions: &mut Mentions<'a>) {
    match &statement.literal {
        Literal::SomeVars { vars, .. } => mentions.bound.extend(vars.iter().map(|var| var.text().to_owned())),
        Literal::SomeIn { key, value, collection, .. } => {
            for pattern in key.iter().chain([value]) {
                mentions.bound.extend(variables(pattern));
                parts.push(Part::Expr(pattern));
            }
            parts.push(Part::Expr(collection));
        }
        Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => parts.push(Part::Expr(expr)),
        Literal::Every { key, value, domain, query, .. } => {
            mentions.bound.extend(key.iter().chain([value]).map(|var| var.text().to_owned()));
            parts.push(Part::Expr(domain));
            parts.push(Part::Query(query));
        }
    }
    for modifier in &statement.with_mods {
        let instead = modifier.r#as.as_ref();
        let path = static_path(instead);
        if path.is_empty() {
            parts.push(Part::Expr(instead));
        } else {
            mentions.of.push(Mention { path, span: instead.span(), kind: Kind::Instead });
            parts.extend(indexes(instead).map(Part::Expr));
        }
    }
}

fn walk<'a>(expr: &'a Expr, parts: &mut Vec<Part<'a>>, mentions: &mut Mentions<'a>) {
    match expr {
        Expr::String { .. }
        | Expr::RawString { .. }
        | Expr::Number { .. }
        | Expr::Bool { .. }
        | Expr::Null { .. } => {}
        Expr::Var { span, .. } => {
            mentions.of.push(Mention { path: vec![span.text().to_owned()], span, kind: Kind::Value });
        }
        Expr::RefDot { span, .. } | Expr::RefBrack { span, .. } => {
            let path = static_path(expr);
            if path.is_empty() {
                parts.push(Part::Expr(base(expr)));
            } else {
                mentions.of.push(Mention { path, span, kind: Kind::Value });
            }
            parts.extend(indexes(expr).map(Part::Expr));
        }
        Expr::Call { fcn, params, .. } => {
            let span = base(fcn).span();
            mentions.of.push(Mention { path: static_path(fcn), span, kind: Kind::Call });
            parts.extend(params.iter().map(|param| Part::Expr(param)));
        }
        Expr::Array { items, .. } | Expr::Set { items, .. } => {
            parts.extend(items.iter().map(|item| Part::Expr(item)));
        }
        Expr::Object { fields, .. } => {
            parts.extend(fields.iter().flat_map(|(_, key, value)| [Part::Expr(key), Part::Expr(value)]));
        }
        Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
            parts.extend([Part::Expr(term), Part::Query(query)]);
        }
        Expr::ObjectCompr { key, value, query, .. } => {
            parts.extend([Part::Expr(key), Part::Expr(value), Part::Query(query)]);
        }
        Expr::UnaryExpr { expr, .. } => parts.push(Part::Expr(expr)),
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. } => {
            parts.extend([Part::Expr(lhs), Part::Expr(rhs)]);
        }
        Expr::AssignExpr { op, lhs, rhs, .. } => {
            if *op == AssignOp::ColEq {
                mentions.bound.extend(variables(lhs));
            }
            parts.extend([Part::Expr(lhs), Part::Expr(rhs)]);
        }
        Expr::Membership { key, value, collection, .. } => {
            parts.extend(key.iter().map(|key| Part::Expr(key)));
            parts.extend([Part::Expr(value), Part::Expr(collection)]);
        }
    }
}

/// What a reference refers into.
fn inner(expr: &Expr) -> Option<&Expr> {
    if let Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } = expr { Some(refr) } else { None }
}

/// The expression that a reference begins with.
fn base(mut expr: &Expr) -> &Expr {
    while let Some(refers_into) = inner(expr) {
        expr = refers_into;
    }
    expr
}

/// The indexes of a reference.
fn indexes(expr: &Expr) -> impl Iterator<Item = &Expr> {
    std::iter::successors(Some(expr), |expr| inner(expr)).filter_map(index)
}

fn index(expr: &Expr) -> Option<&Expr> {
    if let Expr::RefBrack { index, .. } = expr { Some(index) } else { None }
}

/// The components of a reference that are fixed, from its beginning; none where it begins with something computed.
fn static_path(expr: &Expr) -> Vec<String> {
    let Expr::Var { span, .. } = base(expr) else { return Vec::new() };
    let mut path: Vec<Option<String>> = Vec::new();
    let mut here = expr;
    while let Some(refers_into) = inner(here) {
        path.push(component(here));
        here = refers_into;
    }
    let fixed = path.into_iter().rev().map_while(|component| component);
    std::iter::once(span.text().to_owned()).chain(fixed).collect()
}

/// The outermost component of a reference, if it is fixed.
fn component(expr: &Expr) -> Option<String> {
    let value = if let Expr::RefDot { field: (_, value), .. } = expr {
        value
    } else if let Some(Expr::String { value, .. } | Expr::RawString { value, .. }) = index(expr) {
        value
    } else {
        return None;
    };
    value.as_string().ok().map(|name| name.to_string())
}

/// The variables of a pattern.
fn variables(pattern: &Expr) -> Vec<String> {
    let (mut found, mut patterns) = (Vec::new(), vec![pattern]);
    while let Some(pattern) = patterns.pop() {
        if let Expr::Var { span, .. } = pattern {
            found.push(span.text().to_owned());
        } else if let Expr::Array { items, .. } = pattern {
            patterns.extend(items.iter().map(|item| item.as_ref()));
        } else if let Expr::Object { fields, .. } = pattern {
            patterns.extend(fields.iter().map(|(_, _, value)| value.as_ref()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use regorus::Engine;

    fn problem(modules: &[&str]) -> String {
        let mut engine = Engine::new();
        for (n, text) in modules.iter().enumerate() {
            engine.add_policy(format!("{n}.rego"), (*text).to_owned()).unwrap();
        }
        check(engine.get_modules()).err().map(|problem| problem.to_string()).unwrap_or_default()
    }

    #[test]
    fn functions_that_call_each_other_are_refused_with_their_place() {
        let text = "package p\nf(x) := g(x)\ng(x) := f(x)\nallow if f(1)\n";
        let found = problem(&[text]);
        assert!(found.contains("0.rego:") && found.contains("leads back to itself"), "{found}");
        assert!(
            found.contains("data.p.f → data.p.g → data.p.f")
                || found.contains("data.p.g → data.p.f → data.p.g"),
            "{found}"
        );
    }

    #[test]
    fn a_circle_is_found_through_imports_paths_arguments_comprehensions_and_with() {
        for modules in [
            &["package p\nf(x) := f(x - 1)\n"] as &[&str],
            &[
                "package a\nimport data.b\nf(x) := b.g(x)\n",
                "package b\nimport data.a as other\ng(x) := other.f(x)\n",
            ],
            &["package a\nf(x) := data.b.g(x)\n", "package b\ng(x) := data.a.f(x)\n"],
            &["package a\nf(x) := data[\"a\"].f(x)\n"],
            &["package a\nf(x) := [y | y := f(x)]\n"],
            &["package a\nf(x) := abs(f(x))\n"],
            &["package a\nf(x) := 1 if { some y in [f(x)]; y }\n"],
            &["package a\nf(x) := {\"a\": [f(x)]}\n"],
            &["package a\nf(x) := true if { not f(x) }\n"],
            &["package a\nf(x) := y if { every z in [1] { f(z) }; y := 1 } else := 3\n"],
            &["package a\nk(x) := x\nh(x) := k(x)\nf(x) := y if { y := h(x) with k as f }\n"],
            &["package a\nf(x) := q[x]\nq contains y if { y := f(1) }\n"],
            &["package a\nx := data.a\n"],
            &["package a\nf(x) := data[x].f\n"],
            &["package a\nf.g(x) := f.g(x)\n"],
        ] {
            assert!(problem(modules).contains("leads back to itself"), "{modules:?}: {}", problem(modules));
        }
    }

    #[test]
    fn what_does_not_lead_back_may_share_names() {
        for modules in [
            &["package a\nx := 1\nf(x) := x + 1\ny := f(x)\n"] as &[&str],
            &["package a\nmsg := \"m\"\ndeny contains msg if { msg := sprintf(\"%v\", [input.a]) }\n"],
            &["package a\nimport data.b\nx := b.x\n", "package b\nx := 1\n"],
            &["package a\nallow if { some x in input.list; x == 1 }\nx := allow\n"],
            &["package a\nimport input.target as t\ny := t.kind\n"],
            &["package a\nf(x) := x\nf(x) := 2 if { x == 3 }\n"],
        ] {
            assert_eq!(problem(modules), "", "{modules:?}");
        }
    }

    #[test]
    fn chance_the_network_and_unknown_functions_are_refused() {
        for (call, word) in [
            ("rand.intn(\"a\", 3)", "same answer"),
            ("uuid.rfc4122(\"a\")", "same answer"),
            ("http.send({})", "no network"),
            ("opa.runtime()", "no OPA"),
            ("io.jwt.decode(\"x\")", "there is no function io.jwt.decode"),
            ("nobody(1)", "there is no function nobody"),
        ] {
            let found = problem(&[&format!("package p\n\nx := {call}\n")]);
            assert!(found.starts_with("0.rego:3:6: ") && found.contains(word), "{call}: {found}");
        }
        assert_eq!(problem(&["package p\nx := time.now_ns()\ny := count([1])\n"]), "");
    }

    #[test]
    fn a_chain_has_a_limit() {
        let chain = |length: usize| {
            let links = (0..length).map(|n| format!("f{n}(x) := f{}(x)\n", n + 1)).collect::<String>();
            format!("package p\n{links}f{length}(x) := x\n")
        };
        assert_eq!(problem(&[&chain(MAX_CHAIN - 1)]), "");
        assert!(problem(&[&chain(MAX_CHAIN)]).contains("in a row"));
        assert!(problem(&[&chain(5000)]).contains("in a row"));
    }
}
