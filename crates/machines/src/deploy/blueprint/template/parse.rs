//! What does a template mean? Tokens to [`Node`]s, with every mistake that can be seen without values.
//!
//! Names of functions and variables are checked here: a template that is never rendered is still known to be wrong.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a parser has rules for the few tokens it awaits, and one for all the others"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::ast::{Branch, Command, Node, Operand, Pipe, is_blank};
use super::lex::{Kind, Token, lex};
use super::{MAX_DEPTH, Outcome, Place, fault, funcs, literal, over_limit};

/// The trees of a template: its own under its name, and those it defines.
pub(super) fn parse(name: &str, text: &str) -> Outcome<BTreeMap<String, Vec<Node>>> {
    let tokens = lex(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        trees: BTreeMap::new(),
        variables: vec![Arc::from("$")],
        loops: 0,
        depth: 0,
    };
    let main = parser.top()?;
    parser.add(name, main)?;
    Ok(parser.trees)
}

/// How a list of nodes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    End,
    Else,
}

enum Item {
    Node(Node),
    Ending(Ending),
}

/// Where a pipeline stands, for its messages and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Action,
    If,
    With,
    Range,
    Template,
    Block,
    Paren,
}

impl Context {
    fn name(self) -> &'static str {
        match self {
            Self::Action => "command",
            Self::If => "if",
            Self::With => "with",
            Self::Range => "range",
            Self::Template => "template clause",
            Self::Block => "block clause",
            Self::Paren => "parenthesized pipeline",
        }
    }

    fn end(self) -> Kind {
        if self == Self::Paren { Kind::RightParen } else { Kind::RightDelim }
    }
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    trees: BTreeMap<String, Vec<Node>>,
    variables: Vec<Arc<str>>,
    /// Loops around this place: `break` and `continue` need one.
    loops: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn top(&mut self) -> Outcome<Vec<Node>> {
        let mut nodes = Vec::new();
        while self.peek().kind != Kind::Eof {
            let start = self.at;
            if self.next().kind == Kind::LeftDelim && self.next_word().kind == Kind::Define {
                self.definition()?;
                continue;
            }
            self.at = start;
            let line = self.peek().line;
            match self.item()? {
                Item::Node(node) => nodes.push(node),
                Item::Ending(Ending::End) => return fault("unexpected {{end}}").at(line),
                Item::Ending(Ending::Else) => return fault("unexpected {{else}}").at(line),
            }
        }
        Ok(nodes)
    }

    /// `{{define "name"}} … {{end}}`
    fn definition(&mut self) -> Outcome<()> {
        let line = self.peek().line;
        let name = self.template_name("define clause")?;
        self.expect(Kind::RightDelim, "define clause")?;
        let body = self.separate("define clause")?;
        self.add(&name, body).at(line)
    }

    /// A template of its own: the variables and loops around it are not its own.
    fn separate(&mut self, context: &str) -> Outcome<Vec<Node>> {
        let variables = std::mem::replace(&mut self.variables, vec![Arc::from("$")]);
        let loops = std::mem::take(&mut self.loops);
        let (body, ending) = self.list()?;
        self.variables = variables;
        self.loops = loops;
        match ending {
            Ending::End => Ok(body),
            Ending::Else => fault(format_args!("unexpected {{{{else}}}} in {context}")).at(self.line()),
        }
    }

    fn add(&mut self, name: &str, body: Vec<Node>) -> Outcome<()> {
        match self.trees.get(name) {
            Some(existing) if !is_blank(existing) => {
                if is_blank(&body) {
                    return Ok(());
                }
                fault(format_args!("template {name:?} is defined more than once"))
            }
            Some(_) | None => {
                self.trees.insert(name.to_owned(), body);
                Ok(())
            }
        }
    }

    /// Nodes up to the `end` or `else` that closes them.
    fn list(&mut self) -> Outcome<(Vec<Node>, Ending)> {
        self.enter()?;
        let opened = self.line();
        let mut nodes = Vec::new();
        while self.peek_word().kind != Kind::Eof {
            match self.item()? {
                Item::Node(node) => nodes.push(node),
                Item::Ending(ending) => {
                    self.depth -= 1;
                    return Ok((nodes, ending));
                }
            }
        }
        fault("a block is not closed: unexpected end of the template").at(opened)
    }

    fn item(&mut self) -> Outcome<Item> {
        let token = self.next_word();
        match token.kind {
            Kind::Text => Ok(Item::Node(Node::Text(Arc::from(token.text)))),
            Kind::LeftDelim => self.action(),
            _ => unexpected(token, "input"),
        }
    }

    fn action(&mut self) -> Outcome<Item> {
        let start = self.at;
        let token = self.next_word();
        let node = match token.kind {
            Kind::Block => self.block()?,
            Kind::Break => self.jump(token, Node::Break)?,
            Kind::Continue => self.jump(token, Node::Continue)?,
            Kind::Else => {
                // `{{else if}}` is read as `{{else}}{{if}}` by whoever this ending is handed to.
                if !matches!(self.peek_word().kind, Kind::If | Kind::With) {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Item::Ending(Ending::Else));
            }
            Kind::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Item::Ending(Ending::End));
            }
            Kind::If => Node::If(self.control(Context::If)?),
            Kind::Range => Node::Range(self.control(Context::Range)?),
            Kind::With => Node::With(self.control(Context::With)?),
            Kind::Template => self.template_call()?,
            _ => {
                self.at = start;
                Node::Action(self.pipeline(Context::Action)?)
            }
        };
        Ok(Item::Node(node))
    }

    fn jump(&mut self, token: Token<'_>, node: Node) -> Outcome<Node> {
        self.expect(Kind::RightDelim, token.text)?;
        if self.loops == 0 {
            return fault(format_args!("{{{{{}}}}} outside of a range", token.text)).at(token.line);
        }
        Ok(node)
    }

    /// What `if`, `with` and `range` have in common.
    fn control(&mut self, context: Context) -> Outcome<Branch> {
        let scope = self.variables.len();
        let pipe = self.pipeline(context)?;
        let loops = usize::from(context == Context::Range);
        self.loops += loops;
        let (body, ending) = self.list()?;
        self.loops -= loops;
        let otherwise = match ending {
            Ending::End => Vec::new(),
            Ending::Else => self.otherwise(context)?,
        };
        self.variables.truncate(scope);
        Ok(Branch { pipe, body, otherwise })
    }

    fn otherwise(&mut self, context: Context) -> Outcome<Vec<Node>> {
        let chained: Option<fn(Branch) -> Node> = match (self.peek_word().kind, context) {
            (Kind::If, Context::If) => Some(Node::If),
            (Kind::With, Context::With) => Some(Node::With),
            _ => None,
        };
        if let Some(node) = chained {
            self.next();
            self.enter()?;
            let node = node(self.control(context)?);
            self.depth -= 1;
            return Ok(vec![node]);
        }
        let (nodes, ending) = self.list()?;
        match ending {
            Ending::End => Ok(nodes),
            Ending::Else => fault("expected {{end}}, found a second {{else}}").at(self.line()),
        }
    }

    /// `{{block "name" pipeline}} … {{end}}`: a definition and a call of it.
    fn block(&mut self) -> Outcome<Node> {
        let line = self.line();
        let name = self.template_name(Context::Block.name())?;
        let pipe = self.pipeline(Context::Block)?;
        let body = self.separate(Context::Block.name())?;
        self.add(&name, body).at(line)?;
        Ok(Node::Call { line, name: Arc::from(name), pipe: Some(pipe) })
    }

    fn template_call(&mut self) -> Outcome<Node> {
        let line = self.line();
        let name = self.template_name(Context::Template.name())?;
        let pipe = if self.peek_word().kind == Kind::RightDelim {
            self.next();
            None
        } else {
            Some(self.pipeline(Context::Template)?)
        };
        Ok(Node::Call { line, name: Arc::from(name), pipe })
    }

    fn template_name(&mut self, context: &str) -> Outcome<String> {
        let token = self.next_word();
        match token.kind {
            Kind::Quoted => literal::quoted(token.text).at(token.line),
            Kind::Raw => Ok(token.text.trim_matches('`').to_owned()),
            _ => unexpected(token, context),
        }
    }

    fn pipeline(&mut self, context: Context) -> Outcome<Pipe> {
        self.enter()?;
        let line = self.peek_word().line;
        let mut pipe = Pipe { line, variables: Vec::new(), assigns: false, commands: Vec::new() };
        self.declarations(&mut pipe, context)?;
        loop {
            let start = self.at;
            let token = self.next_word();
            if token.kind == context.end() {
                break;
            }
            if !starts_operand(token.kind) {
                return unexpected(token, context.name());
            }
            self.at = start;
            pipe.commands.push(self.command()?);
        }
        if pipe.commands.is_empty() {
            return fault(format_args!("missing value for {}", context.name())).at(line);
        }
        let behind_a_pipe = pipe.commands.iter().skip(1);
        if let Some(command) = behind_a_pipe.into_iter().find(|command| !command.first.takes_input()) {
            let shown = command.first.shown();
            return fault(format_args!("{shown} takes no input: it cannot stand behind a |"))
                .at(command.line);
        }
        self.depth -= 1;
        Ok(pipe)
    }

    /// `$x :=`, `$x =`, and for a range `$k, $v :=`.
    fn declarations(&mut self, pipe: &mut Pipe, context: Context) -> Outcome<()> {
        while self.peek_word().kind == Kind::Variable {
            let start = self.at;
            let variable = self.next();
            match self.peek_word().kind {
                Kind::Assign | Kind::Declare => {
                    pipe.assigns = self.next_word().kind == Kind::Assign;
                    self.declare(pipe, variable);
                    return Ok(());
                }
                Kind::Comma => {
                    self.next_word();
                    self.declare(pipe, variable);
                    if context != Context::Range || pipe.variables.len() >= 2 {
                        return fault(format_args!("too many declarations in {}", context.name()))
                            .at(variable.line);
                    }
                    let next = self.peek_word().kind;
                    if !matches!(next, Kind::Variable | Kind::RightDelim | Kind::RightParen) {
                        return fault("a range can only set variables").at(variable.line);
                    }
                }
                _ => {
                    self.at = start;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn declare(&mut self, pipe: &mut Pipe, variable: Token<'_>) {
        let name: Arc<str> = Arc::from(variable.text);
        self.variables.push(Arc::clone(&name));
        pipe.variables.push(name);
    }

    /// Operands up to a `|`, which is taken, or the end of the pipeline, which is not.
    fn command(&mut self) -> Outcome<Command> {
        let line = self.peek_word().line;
        let mut operands = Vec::new();
        loop {
            self.peek_word();
            operands.extend(self.operand()?);
            let start = self.at;
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::RightDelim | Kind::RightParen => {
                    self.at = start;
                    break;
                }
                Kind::Pipe => break,
                _ => return unexpected(token, "operand"),
            }
        }
        let mut operands = operands.into_iter();
        match operands.next() {
            Some(first) => Ok(Command { line, first, rest: operands.collect() }),
            None => fault("empty command").at(line),
        }
    }

    /// A term and the fields behind it.
    fn operand(&mut self) -> Outcome<Option<Operand>> {
        let Some(term) = self.term()? else { return Ok(None) };
        let line = self.line();
        let mut fields: Vec<Arc<str>> = Vec::new();
        while self.peek().kind == Kind::Field {
            fields.push(Arc::from(self.next().text.trim_start_matches('.')));
        }
        if fields.is_empty() {
            return Ok(Some(term));
        }
        Ok(Some(match term {
            Operand::Field(mut path) => {
                path.extend(fields);
                Operand::Field(path)
            }
            Operand::Variable(name, mut path) => {
                path.extend(fields);
                Operand::Variable(name, path)
            }
            Operand::Function(_) | Operand::Paren(_) | Operand::Chain(..) => {
                Operand::Chain(Box::new(term), fields)
            }
            Operand::Dot
            | Operand::Nil
            | Operand::Bool(_)
            | Operand::Int(_)
            | Operand::Float(_)
            | Operand::TooLarge(_)
            | Operand::Text(_) => {
                return fault(format_args!("unexpected . after {}", term.shown())).at(line);
            }
        }))
    }

    fn term(&mut self) -> Outcome<Option<Operand>> {
        let start = self.at;
        let token = self.next_word();
        let operand = match token.kind {
            Kind::Identifier => funcs::find(token.text).map(Operand::Function),
            Kind::Dot => Ok(Operand::Dot),
            Kind::Nil => Ok(Operand::Nil),
            Kind::Variable => {
                if self.variables.iter().any(|known| known.as_ref() == token.text) {
                    Ok(Operand::Variable(Arc::from(token.text), Vec::new()))
                } else {
                    fault(format_args!("the variable {} is not defined", token.text))
                }
            }
            Kind::Field => Ok(Operand::Field(vec![Arc::from(token.text.trim_start_matches('.'))])),
            Kind::Bool => Ok(Operand::Bool(token.text == "true")),
            Kind::Character => literal::character(token.text).map(Operand::Int),
            Kind::Number => literal::number(token.text),
            Kind::Quoted => literal::quoted(token.text).map(|text| Operand::Text(Arc::from(text))),
            // A carriage return is no part of a raw string in Go.
            Kind::Raw => Ok(Operand::Text(Arc::from(token.text.trim_matches('`').replace('\r', "")))),
            Kind::LeftParen => self.pipeline(Context::Paren).map(|pipe| Operand::Paren(Box::new(pipe))),
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        operand.map(Some).at(token.line)
    }

    fn enter(&mut self) -> Outcome<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return over_limit(format_args!("nested more than {MAX_DEPTH} deep")).at(self.line());
        }
        Ok(())
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Outcome<()> {
        let token = self.next_word();
        if token.kind == kind { Ok(()) } else { unexpected(token, context) }
    }

    fn line(&self) -> usize {
        self.peek().line
    }

    fn peek(&self) -> Token<'a> {
        // The last token is the end, and nothing goes past it.
        let end = Token { kind: Kind::Eof, text: "", line: self.tokens.last().map_or(1, |token| token.line) };
        self.tokens.get(self.at).copied().unwrap_or(end)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// Skips spaces, for good.
    fn peek_word(&mut self) -> Token<'a> {
        while self.peek().kind == Kind::Space {
            self.at += 1;
        }
        self.peek()
    }

    fn next_word(&mut self) -> Token<'a> {
        self.peek_word();
        self.next()
    }
}

fn starts_operand(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Bool
            | Kind::Character
            | Kind::Dot
            | Kind::Field
            | Kind::Identifier
            | Kind::Number
            | Kind::Nil
            | Kind::Raw
            | Kind::Quoted
            | Kind::Variable
            | Kind::LeftParen
    )
}

fn unexpected<T>(token: Token<'_>, context: impl fmt::Display) -> Outcome<T> {
    let what = match token.kind {
        Kind::Eof => "the end of the template".to_owned(),
        Kind::RightDelim => "}}".to_owned(),
        _ => format!("{:?}", token.text),
    };
    fault(format_args!("unexpected {what} in {context}")).at(token.line)
}
