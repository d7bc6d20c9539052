//! What is a template once it was understood? Immutable, and free of references to its text.

use std::sync::Arc;

use super::funcs::Function;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Text(Arc<str>),
    /// Prints what the pipeline yields, or sets variables.
    Action(Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    /// Renders a defined template with what the pipeline yields.
    Call {
        line: usize,
        name: Arc<str>,
        pipe: Option<Pipe>,
    },
    Break,
    Continue,
}

#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Commands, each given what the one before it yielded; then variables, set to what the last one did.
#[derive(Clone, Debug)]
pub(super) struct Pipe {
    pub(super) line: usize,
    pub(super) variables: Vec<Arc<str>>,
    /// `=` rather than `:=`.
    pub(super) assigns: bool,
    pub(super) commands: Vec<Command>,
}

#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) first: Operand,
    pub(super) rest: Vec<Operand>,
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A whole number that no `int` holds. An error, but only where it is reached.
    TooLarge(Arc<str>),
    Text(Arc<str>),
    /// `.a.b`
    Field(Vec<Arc<str>>),
    /// `$x.a.b`
    Variable(Arc<str>, Vec<Arc<str>>),
    Function(&'static Function),
    Paren(Box<Pipe>),
    /// `(…).a.b`
    Chain(Box<Operand>, Vec<Arc<str>>),
}

impl Operand {
    /// Whether it can stand behind a `|`.
    pub(super) fn takes_input(&self) -> bool {
        match self {
            Self::Dot
            | Self::Nil
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::TooLarge(_)
            | Self::Text(_) => false,
            Self::Field(_)
            | Self::Variable(..)
            | Self::Function(_)
            | Self::Paren(_)
            | Self::Chain(..) => true,
        }
    }

    /// As a person wrote it, for messages.
    pub(super) fn shown(&self) -> String {
        let path = |fields: &[Arc<str>]| fields.iter().map(|field| format!(".{field}")).collect::<String>();
        match self {
            Self::Dot => ".".to_owned(),
            Self::Nil => "nil".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::TooLarge(text) => text.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Field(fields) => path(fields),
            Self::Variable(name, fields) => format!("{name}{}", path(fields)),
            Self::Function(function) => function.name.to_owned(),
            Self::Paren(_) => "(…)".to_owned(),
            Self::Chain(inner, fields) => format!("{}{}", inner.shown(), path(fields)),
        }
    }
}

/// Whether a template prints nothing but white space: such a one may be defined again.
pub(super) fn is_blank(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()))
}
