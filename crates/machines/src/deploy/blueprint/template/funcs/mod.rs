//! Which functions can a template call, and with what?
//!
//! Those of `text/template`, those of Sprig that are functions of their arguments alone, and Landscaper's own on files
//! and image references. What needs a clock, chance, the environment or a network is refused by its name.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a function takes one kind of value, and refuses all the others alike"
)]

mod builtin;
mod dicts;
mod encoding;
mod lists;
mod math;
mod regexps;
mod strings;

use std::rc::Rc;
use std::sync::Arc;

use super::value::{Heap, MapId, Value};
use super::{Outcome, fault, format};

#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) name: &'static str,
    least: usize,
    most: Option<usize>,
    pub(super) run: Run,
}

/// A function of its arguments alone.
type Plain = fn(&mut Heap, &[Value]) -> Outcome<Value>;

#[derive(Clone, Copy)]
pub(super) enum Run {
    Plain(Plain),
    /// These look at their arguments one after the other.
    And,
    Or,
    /// These need more than their arguments.
    Include,
    ReadFile,
    ReadDir,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Function {
    pub(super) fn check_count(&self, given: usize) -> Outcome<()> {
        let (name, least) = (self.name, self.least);
        match self.most {
            _ if given < least => {
                fault(format_args!("{name} takes at least {least} arguments, and got {given}"))
            }
            Some(most) if given > most => {
                fault(format_args!("{name} takes at most {most} arguments, and got {given}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A function that takes so many arguments.
const fn exactly(name: &'static str, count: usize, run: Plain) -> Function {
    Function { name, least: count, most: Some(count), run: Run::Plain(run) }
}

const fn between(name: &'static str, least: usize, most: usize, run: Plain) -> Function {
    Function { name, least, most: Some(most), run: Run::Plain(run) }
}

const fn at_least(name: &'static str, least: usize, run: Plain) -> Function {
    Function { name, least, most: None, run: Run::Plain(run) }
}

const SPECIAL: &[Function] = &[
    Function { name: "and", least: 1, most: None, run: Run::And },
    Function { name: "or", least: 1, most: None, run: Run::Or },
    Function { name: "include", least: 2, most: Some(2), run: Run::Include },
    Function { name: "readFile", least: 1, most: Some(1), run: Run::ReadFile },
    Function { name: "readDir", least: 1, most: Some(1), run: Run::ReadDir },
];

const TABLES: &[&[Function]] = &[
    SPECIAL,
    builtin::FUNCTIONS,
    strings::FUNCTIONS,
    regexps::FUNCTIONS,
    lists::FUNCTIONS,
    dicts::FUNCTIONS,
    encoding::FUNCTIONS,
    math::FUNCTIONS,
];

const CLOCK: &str = "rendering must give the same each time, so there is no clock";
const CHANCE: &str = "rendering must give the same each time, so there is no chance";
const OUTSIDE: &str = "rendering sees nothing but the blueprint and its imports";
const COMPONENTS: &str = "there are no component descriptors: blueprints are inline";

/// Functions that others have and we do not, with the reason.
const REFUSED: &[(&str, &[&str])] = &[
    (
        CLOCK,
        &[
            "ago",
            "date",
            "dateInZone",
            "dateModify",
            "date_in_zone",
            "date_modify",
            "duration",
            "durationRound",
            "htmlDate",
            "htmlDateInZone",
            "mustDateModify",
            "must_date_modify",
            "mustToDate",
            "now",
            "toDate",
            "unixEpoch",
        ],
    ),
    (
        CHANCE,
        &[
            "bcrypt",
            "derivePassword",
            "encryptAES",
            "genCA",
            "genCAWithKey",
            "genPrivateKey",
            "genSelfSignedCert",
            "genSelfSignedCertWithKey",
            "genSignedCert",
            "genSignedCertWithKey",
            "htpasswd",
            "randAlpha",
            "randAlphaNum",
            "randAscii",
            "randBytes",
            "randInt",
            "randNumeric",
            "shuffle",
            "uuidv4",
        ],
    ),
    (
        OUTSIDE,
        &[
            "env",
            "expandenv",
            "getHostByName",
            "getOidcKubeconfig",
            "getServiceAccountKubeconfig",
            "getServiceAccountKubeconfigWithExpirationTimestamp",
            "getShootAdminKubeconfig",
            "getShootAdminKubeconfigWithExpirationTimestamp",
            "lookup",
            "resolve",
        ],
    ),
    (COMPONENTS, &["getComponent", "getRepositoryContext", "getResource", "getResourceKey", "getResources"]),
];

pub(super) fn find(name: &str) -> Outcome<&'static Function> {
    if let Some(function) =
        TABLES.iter().flat_map(|table| table.iter()).find(|function| function.name == name)
    {
        return Ok(function);
    }
    match REFUSED.iter().find(|(_, names)| names.contains(&name)) {
        Some((why, _)) => fault(format_args!("the function {name:?} is refused: {why}")),
        None => fault(format_args!("the function {name:?} is not defined")),
    }
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter()).map(|function| function.name)
}

/// The argument at a place; its count was checked before.
fn argument(arguments: &[Value], at: usize) -> &Value {
    arguments.get(at).unwrap_or(&Value::NIL)
}

fn text(arguments: &[Value], at: usize) -> Outcome<Arc<str>> {
    match argument(arguments, at) {
        Value::Text(text) => Ok(Arc::clone(text)),
        other => wrong(at, "a string", other),
    }
}

/// A whole number, also one that came as a `float64` from the values.
fn int(arguments: &[Value], at: usize) -> Outcome<i64> {
    match argument(arguments, at) {
        Value::Int(value) => Ok(*value),
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Ok(*value as i64),
        other => wrong(at, "a whole number", other),
    }
}

fn list(heap: &Heap, arguments: &[Value], at: usize) -> Outcome<Rc<[Value]>> {
    match argument(arguments, at) {
        Value::List(list) => Ok(heap.list(*list)),
        other => wrong(at, "a list", other),
    }
}

fn map(arguments: &[Value], at: usize) -> Outcome<MapId> {
    match argument(arguments, at) {
        Value::Map(map) => Ok(*map),
        other => wrong(at, "a map", other),
    }
}

/// Sprig's `strval`: anything as text.
fn string(heap: &mut Heap, value: &Value) -> Outcome<String> {
    heap.refuse_nothing(value)?;
    format::plain(heap, value)
}

/// Sprig's `strslice`: a list, or one thing, as texts without those that are nothing.
fn strings(heap: &mut Heap, value: &Value) -> Outcome<Vec<String>> {
    let items: Rc<[Value]> = match value {
        Value::List(list) => heap.list(*list),
        Value::Nil(_) => return Ok(Vec::new()),
        other => Rc::from([other.clone()]),
    };
    heap.step(items.len())?;
    items.iter().filter(|item| !item.is_nil()).map(|item| format::plain(heap, item)).collect()
}

fn texts(heap: &mut Heap, texts: impl IntoIterator<Item = String>) -> Outcome<Value> {
    let texts: Outcome<Vec<Value>> = texts.into_iter().map(|text| heap.text(text)).collect();
    heap.new_list(texts?)
}

fn wrong<T>(at: usize, wanted: &str, found: &Value) -> Outcome<T> {
    fault(format_args!("argument {} must be {wanted}, and is {}", at + 1, found.described()))
}
