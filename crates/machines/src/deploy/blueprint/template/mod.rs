//! What does a Go template say, given these values?
//!
//! ```text
//! text ─ lex ─▶ tokens ─ parse ─▶ Template ─ eval (+ bindings) ─▶ text
//!                                              └─ funcs: text/template's own, Sprig's, Landscaper's
//! ```
//!
//! The language is that of Go's `text/template`: what it prints, what it takes for true, what it compares and what it
//! refuses. Three things differ, because a blueprint is somebody else's program that runs inside a decision: it is
//! bounded (steps, memory, output, depth), it can reach neither a clock nor chance nor the environment, and a key that
//! is missing is told by its name instead of being printed as `<no value>`.

mod ast;
mod eval;
mod format;
mod funcs;
mod lex;
mod literal;
mod parse;
mod printf;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::fmt;

use pawl_api::deploy::installation::Filesystem;
use serde_json::Value as Json;

/// Actions, calls and loop rounds of one rendering. An Execution of 10,000 items, the most there may be, has two hundred
/// for each; a loop without end is stopped within a second.
pub const MAX_STEPS: u64 = 2_000_000;

/// What one rendering may print: 10,000 items of 1.6 KiB. Ten times what one object holds, since items are compressed.
pub const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// What the values made during one rendering may take together, freed or not: four times the output, as each byte of it
/// passes through a few functions (`toYaml`, `nindent`, `include`).
pub const MAX_MEMORY_BYTES: usize = 64 * 1024 * 1024;

/// Nested blocks, parentheses and template calls. Written templates stay under 20; each level takes some kilobytes of
/// a stack of 2 MiB.
pub const MAX_DEPTH: usize = 100;

/// What a rendering may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub steps: u64,
    pub output_bytes: usize,
    pub memory_bytes: usize,
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: MAX_STEPS,
            output_bytes: MAX_OUTPUT_BYTES,
            memory_bytes: MAX_MEMORY_BYTES,
            depth: MAX_DEPTH,
        }
    }
}

/// What becomes of a key that a map does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// It is nothing, and may be tested or defaulted; where it would be printed, the rendering fails with its name.
    #[default]
    Refuse,
    /// It is nothing, and is printed as `<no value>`: Go's `missingkey=zero`.
    Zero,
}

/// How to render.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    pub limits: Limits,
    pub missing_key: MissingKey,
    /// What `readFile`, `readDir` and `include` see.
    pub files: Option<&'a Filesystem>,
}

/// A template that was understood.
#[derive(Clone, Debug)]
pub struct Template {
    name: String,
    /// The template itself under its own name, and what it defines.
    trees: BTreeMap<String, Vec<ast::Node>>,
}

impl Template {
    /// Errors name the template and the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, TemplateError> {
        let trees = parse::parse(name, text).map_err(|fault| TemplateError::new(name, Stage::Parse, fault))?;
        Ok(Self { name: name.to_owned(), trees })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Errors name the template, the line, and the key or the function.
    pub fn render(&self, bindings: &Json, options: &Options<'_>) -> Result<String, TemplateError> {
        let mut output = String::new();
        self.render_into(&mut output, bindings, options)?;
        Ok(output)
    }

    /// As [`Template::render`]; what was printed before an error stays in `output`.
    fn render_into(
        &self,
        output: &mut String,
        bindings: &Json,
        options: &Options<'_>,
    ) -> Result<(), TemplateError> {
        eval::execute(self, output, bindings, options)
            .map_err(|fault| TemplateError::new(&self.name, Stage::Execute, fault))
    }
}

/// When a template failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Parse,
    Execute,
}

/// Why a template could not be understood or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template {template:?}, line {line}: {message}")]
pub struct TemplateError {
    /// The template, or the file it included.
    pub template: String,
    pub line: usize,
    pub stage: Stage,
    pub message: String,
    /// Whether one of the [`Limits`] was reached.
    pub limit: bool,
}

impl TemplateError {
    fn new(template: &str, stage: Stage, fault: Box<Fault>) -> Self {
        let Fault { message, at, limit } = *fault;
        let (template, line) = match at {
            Some(At { template: Some(included), line }) => (included, line),
            Some(At { template: None, line }) => (template.to_owned(), line),
            None => (template.to_owned(), 1),
        };
        Self { template, line, stage, message, limit }
    }
}

/// What went wrong, before it is known everywhere where.
#[derive(Debug)]
struct Fault {
    message: String,
    at: Option<At>,
    limit: bool,
}

/// Where: the innermost place is the one that is told.
#[derive(Debug)]
struct At {
    /// Only if it is not the template that is rendered.
    template: Option<String>,
    line: usize,
}

type Outcome<T> = Result<T, Box<Fault>>;

fn fault<T>(message: impl fmt::Display) -> Outcome<T> {
    Err(Box::new(Fault { message: message.to_string(), at: None, limit: false }))
}

fn over_limit<T>(message: impl fmt::Display) -> Outcome<T> {
    Err(Box::new(Fault { message: message.to_string(), at: None, limit: true }))
}

/// Says where, if nobody closer has.
trait Place<T> {
    fn at(self, line: usize) -> Outcome<T>;
}

impl<T> Place<T> for Outcome<T> {
    fn at(mut self, line: usize) -> Outcome<T> {
        if let Err(fault) = &mut self {
            fault.at.get_or_insert(At { template: None, line });
        }
        self
    }
}
