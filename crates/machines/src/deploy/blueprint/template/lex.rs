//! Which tokens is a template made of?
//!
//! Outside of `{{ }}` there is text. Inside, spaces are tokens too: they separate arguments, and `.a .b` is not `.a.b`.
//! `{{- ` and ` -}}` take the white space on their side of the text away.

use super::{At, Fault, Outcome};

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const COMMENT: (&str, &str) = ("/*", "*/");
/// `- ` and ` -`: the space belongs to the marker.
const TRIM_MARKER: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    LeftDelim,
    RightDelim,
    Space,
    Assign,
    Declare,
    Pipe,
    LeftParen,
    RightParen,
    Comma,
    /// Any other printable character.
    Other,
    /// With its quotes and escapes, as written.
    Quoted,
    Raw,
    Character,
    Number,
    Bool,
    Nil,
    Dot,
    /// With its dot.
    Field,
    /// With its dollar sign.
    Variable,
    Identifier,
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Range,
    Template,
    With,
    Eof,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) line: usize,
}

pub(super) fn lex(text: &str) -> Outcome<Vec<Token<'_>>> {
    let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new() };
    while lexer.text() {
        if !lexer.comment()? {
            lexer.action()?;
        }
    }
    lexer.push(Kind::Eof, "");
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    /// Takes the text before the next action; false at the end.
    fn text(&mut self) -> bool {
        let (text, found) = match self.rest.split_once(LEFT) {
            Some((text, after)) => {
                (if after_left_trim(after).is_some() { text.trim_end_matches(is_space) } else { text }, true)
            }
            None => (self.rest, false),
        };
        if !text.is_empty() {
            self.push(Kind::Text, text);
        }
        let length = self.rest.find(LEFT).unwrap_or(self.rest.len());
        self.skip(length);
        found
    }

    /// Takes `{{/* … */}}`; false if there is none.
    fn comment(&mut self) -> Outcome<bool> {
        let inside = self.rest.strip_prefix(LEFT).unwrap_or_default();
        let inside = after_left_trim(inside).unwrap_or(inside);
        let Some(comment) = inside.strip_prefix(COMMENT.0) else { return Ok(false) };
        let Some((_, after)) = comment.split_once(COMMENT.1) else {
            return self.fault("the comment is not closed");
        };
        let Some((after, trims)) = after_right(after) else {
            return self.fault("the comment ends before its action does");
        };
        self.skip(self.rest.len() - after.len());
        if trims {
            self.trim();
        }
        Ok(true)
    }

    /// Takes one `{{ … }}`.
    fn action(&mut self) -> Outcome<()> {
        let start = self.line;
        self.push(Kind::LeftDelim, LEFT);
        self.skip(LEFT.len());
        if after_left_trim(self.rest).is_some() {
            self.skip(TRIM_MARKER);
        }
        let mut parens = 0_usize;
        loop {
            if let Some((after, trims)) = after_right(self.rest) {
                if parens > 0 {
                    return self.fault("a left parenthesis is not closed");
                }
                self.push(Kind::RightDelim, RIGHT);
                self.skip(self.rest.len() - after.len());
                if trims {
                    self.trim();
                }
                return Ok(());
            }
            let Some(next) = self.rest.chars().next() else {
                self.line = start;
                return self.fault("the action is not closed");
            };
            let (kind, length) = self.token(next)?;
            if kind == Kind::LeftParen {
                parens += 1;
            } else if kind == Kind::RightParen {
                let Some(left) = parens.checked_sub(1) else {
                    return self.fault("a right parenthesis closes nothing");
                };
                parens = left;
            }
            let text = self.rest.get(..length).unwrap_or(self.rest);
            self.push(kind, text);
            self.skip(text.len());
        }
    }

    /// The kind and length of the token that starts with `next`.
    fn token(&self, next: char) -> Outcome<(Kind, usize)> {
        let rest = self.rest;
        Ok(match next {
            next if is_space(next) => (Kind::Space, self.spaces()),
            '=' => (Kind::Assign, 1),
            ':' if rest.starts_with(":=") => (Kind::Declare, 2),
            ':' => return self.fault("expected :="),
            '|' => (Kind::Pipe, 1),
            '(' => (Kind::LeftParen, 1),
            ')' => (Kind::RightParen, 1),
            ',' => (Kind::Comma, 1),
            '"' => (Kind::Quoted, self.quoted('"', "string")?),
            '\'' => (Kind::Character, self.quoted('\'', "character")?),
            '`' => match rest.get(1..).and_then(|inside| inside.find('`')) {
                Some(length) => (Kind::Raw, length + 2),
                None => return self.fault("the raw string is not closed"),
            },
            '$' => {
                let length = 1 + word(rest.get(1..).unwrap_or_default());
                (Kind::Variable, self.terminated(length)?)
            }
            '.' if !rest.get(1..).unwrap_or_default().starts_with(|next: char| next.is_ascii_digit()) => {
                let length = 1 + word(rest.get(1..).unwrap_or_default());
                let kind = if length == 1 { Kind::Dot } else { Kind::Field };
                (kind, self.terminated(length)?)
            }
            '.' | '+' | '-' | '0'..='9' => (Kind::Number, self.number()?),
            next if is_alphanumeric(next) => {
                let length = self.terminated(word(rest))?;
                (keyword(rest.get(..length).unwrap_or_default()), length)
            }
            next if next.is_ascii_graphic() => (Kind::Other, 1),
            next => return self.fault(format_args!("the character {next:?} means nothing in an action")),
        })
    }

    /// How many spaces; the last one may belong to ` -}}`.
    fn spaces(&self) -> usize {
        let all = self.rest.len() - self.rest.trim_start_matches(is_space).len();
        let last = all.saturating_sub(1);
        match self.rest.get(last..).map(after_right) {
            Some(Some((_, true))) => last,
            _ => all,
        }
    }

    fn quoted(&self, quote: char, what: &str) -> Outcome<usize> {
        let mut escaped = false;
        for (at, next) in self.rest.char_indices().skip(1) {
            match next {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                next if next == quote => return Ok(at + 1),
                _ => {}
            }
        }
        self.fault(format_args!("the {what} is not closed"))
    }

    /// Go's scanner of numbers: it only finds the end; whether it is a number is seen when it is read.
    fn number(&self) -> Outcome<usize> {
        let mut rest = self.rest;
        accept(&mut rest, "+-");
        let mut digits = "0123456789_";
        if accept(&mut rest, "0") {
            if accept(&mut rest, "xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if accept(&mut rest, "oO") {
                digits = "01234567_";
            } else if accept(&mut rest, "bB") {
                digits = "01_";
            }
        }
        accept_run(&mut rest, digits);
        if accept(&mut rest, ".") {
            accept_run(&mut rest, digits);
        }
        let exponent = match digits.len() {
            11 => "eE",
            23 => "pP",
            _ => "",
        };
        if accept(&mut rest, exponent) {
            accept(&mut rest, "+-");
            accept_run(&mut rest, "0123456789_");
        }
        let length = self.rest.len() - rest.len();
        // Complex numbers (`1+2i`) are numbers in Go; no blueprint has any.
        if rest.starts_with(|next| is_alphanumeric(next) || next == '+' || next == '-') {
            return self.fault(format_args!("bad number {:?}", self.rest.get(..length + 1).unwrap_or_default()));
        }
        Ok(length)
    }

    /// A name ends where something else can begin: `.a"b"` is a mistake, not two arguments.
    fn terminated(&self, length: usize) -> Outcome<usize> {
        let after = self.rest.get(length..).unwrap_or_default();
        let ends = |next: char| is_space(next) || matches!(next, '.' | ',' | '|' | ':' | ')' | '(');
        if after.is_empty() || after.starts_with(ends) || after.starts_with(RIGHT) {
            return Ok(length);
        }
        let name = self.rest.get(..length).unwrap_or_default();
        self.fault(format_args!("bad character {:?} after {name}", after.chars().next().unwrap_or_default()))
    }

    fn push(&mut self, kind: Kind, text: &'a str) {
        self.tokens.push(Token { kind, text, line: self.line });
    }

    fn skip(&mut self, length: usize) {
        let (skipped, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }

    fn trim(&mut self) {
        self.skip(self.rest.len() - self.rest.trim_start_matches(is_space).len());
    }

    fn fault<T>(&self, message: impl std::fmt::Display) -> Outcome<T> {
        let at = Some(At { template: None, line: self.line });
        Err(Box::new(Fault { message: message.to_string(), at, limit: false }))
    }
}

/// What follows `- `.
fn after_left_trim(rest: &str) -> Option<&str> {
    let after = rest.strip_prefix('-')?;
    after.starts_with(is_space).then(|| after.get(1..).unwrap_or_default())
}

/// What follows `}}` or ` -}}`, and whether it is to be trimmed.
fn after_right(rest: &str) -> Option<(&str, bool)> {
    if let Some(after) = rest.strip_prefix(RIGHT) {
        return Some((after, false));
    }
    let after = rest.strip_prefix(is_space)?.strip_prefix('-')?.strip_prefix(RIGHT)?;
    Some((after, true))
}

fn keyword(word: &str) -> Kind {
    match word {
        "block" => Kind::Block,
        "break" => Kind::Break,
        "continue" => Kind::Continue,
        "define" => Kind::Define,
        "else" => Kind::Else,
        "end" => Kind::End,
        "if" => Kind::If,
        "range" => Kind::Range,
        "nil" => Kind::Nil,
        "template" => Kind::Template,
        "with" => Kind::With,
        "true" | "false" => Kind::Bool,
        _ => Kind::Identifier,
    }
}

fn accept(rest: &mut &str, any: &str) -> bool {
    let found = rest.strip_prefix(|next| any.contains(next));
    *rest = found.unwrap_or(rest);
    found.is_some()
}

fn accept_run(rest: &mut &str, any: &str) {
    *rest = rest.trim_start_matches(|next| any.contains(next));
}

fn word(rest: &str) -> usize {
    rest.find(|next| !is_alphanumeric(next)).unwrap_or(rest.len())
}

fn is_alphanumeric(next: char) -> bool {
    next == '_' || next.is_alphanumeric()
}

/// The white space of Go's templates.
pub(super) fn is_space(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r' | '\n')
}
