//! What is left of a pattern when each of its braces is replaced by one of its alternatives?
//!
//! Alternatives are put in place as text, before it is looked at further: that is what the original does, and it shows
//! where braces and classes cross, as in `{[a,b}]`. So each character carries its place in the pattern along, for the
//! error message.

use super::{Class, Fingerprint, MAX_CHARS, MAX_TOKENS, MAX_VARIANTS, Problem, Token, Variant};

/// A character and where it stands in the pattern.
type Char = (char, usize);
/// What is wrong, and with which character.
type Fault = (usize, Problem);

/// A brace, and what may take its place.
struct Brace {
    opened: usize,
    /// Each alternative with all that follows.
    alternatives: Vec<Vec<Char>>,
}

/// A variant in the making.
struct Unfinished {
    tokens: Vec<Token>,
    braces: Vec<usize>,
    /// What is not looked at yet.
    rest: Vec<Char>,
}

pub(super) fn variants(pattern: &str) -> Result<Vec<Variant>, Fault> {
    let text: Vec<Char> = pattern.chars().enumerate().map(|(at, c)| (c, at)).collect();
    if text.len() > MAX_CHARS {
        return Err((MAX_CHARS, Problem::TooLong));
    }
    validate(&text)?;
    let mut variants: Vec<Variant> = Vec::new();
    let mut size = 0_usize;
    let mut unfinished = vec![Unfinished { tokens: vec![], braces: vec![], rest: text }];
    while let Some(mut next) = unfinished.pop() {
        let Some(Brace { opened, alternatives }) = next.up_to_brace()? else {
            size = size.saturating_add(next.tokens.len()).saturating_add(next.braces.len());
            variants.push(Variant {
                needs: Fingerprint::needed_by(&next.tokens),
                tokens: next.tokens,
                braces: next.braces,
            });
            continue;
        };
        let promised = variants.len() + unfinished.len() + alternatives.len();
        if promised > MAX_VARIANTS || size > MAX_TOKENS {
            return Err((opened, Problem::TooManyAlternatives));
        }
        // The first is to be popped first, so that variants stand in the order of writing.
        unfinished.extend(alternatives.into_iter().rev().map(|rest| Unfinished {
            tokens: next.tokens.clone(),
            braces: next.braces.clone(),
            rest,
        }));
    }
    Ok(variants)
}

/// What doublestar's `ValidatePattern` refuses.
fn validate(text: &[Char]) -> Result<(), Fault> {
    let mut open = Vec::new();
    let mut chars = text.iter();
    while let Some(&(c, at)) = chars.next() {
        match c {
            '\\' if chars.next().is_none() => return Err((at, Problem::EscapesNothing)),
            '[' => chars = class(chars.as_slice(), at)?.1.iter(),
            '{' => open.push(at),
            '}' if open.pop().is_none() => return Err((at, Problem::BraceNotOpened)),
            _ => {}
        }
    }
    match open.pop() {
        Some(at) => Err((at, Problem::BraceNotClosed)),
        None => Ok(()),
    }
}

impl Unfinished {
    /// Makes tokens of the text up to the next brace.
    fn up_to_brace(&mut self) -> Result<Option<Brace>, Fault> {
        let text = std::mem::take(&mut self.rest);
        let mut rest = text.as_slice();
        while let Some((&(c, at), after)) = rest.split_first() {
            rest = after;
            let token = match c {
                '*' => Token::Star,
                '?' => Token::One,
                '[' => {
                    let (class, after) = class(rest, at)?;
                    rest = after;
                    Token::Class(Box::new(class))
                }
                '\\' => {
                    let (&(escaped, _), after) = rest.split_first().ok_or((at, Problem::EscapesNothing))?;
                    rest = after;
                    if escaped == '/' { Token::EscapedSlash } else { Token::Literal(escaped) }
                }
                '{' => {
                    self.braces.push(self.tokens.len());
                    let alternatives = alternatives(rest).ok_or((at, Problem::BraceNotClosed))?;
                    return Ok(Some(Brace { opened: at, alternatives }));
                }
                // A stray one can only come from a brace that a class hides from one reader and not from the other.
                '}' => return Err((at, Problem::BraceNotOpened)),
                literal => Token::Literal(literal),
            };
            self.tokens.push(token);
        }
        Ok(None)
    }
}

/// Reads a class whose `[` is behind us; returns what comes after its `]`.
fn class(text: &[Char], opened: usize) -> Result<(Class, &[Char]), Fault> {
    let unclosed = (opened, Problem::ClassNotClosed);
    let (negated, text) = match text {
        [('^' | '!', _), rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if let [(']', _), ..] = text {
        return Err((opened, Problem::EmptyClass));
    }
    let mut ranges = Vec::new();
    // What a `-` would start a range from. The last character there is cannot: the original uses it for "none".
    let mut start: Option<char> = None;
    let mut chars = text.iter();
    while let Some((c, _)) = chars.next() {
        match (c, start.filter(|c| *c != char::MAX)) {
            (']', _) => return Ok((Class { negated, ranges }, chars.as_slice())),
            ('-', Some(from)) if !matches!(chars.as_slice(), [] | [(']', _), ..]) => {
                let to = chars.next().and_then(|(c, _)| unescaped(*c, &mut chars)).ok_or(unclosed)?;
                // The first of a range is there by itself too, so it matches even where the range is the wrong way
                // round.
                ranges.push((from, to));
                start = None;
            }
            (c, _) => {
                let c = unescaped(*c, &mut chars).ok_or(unclosed)?;
                ranges.push((c, c));
                start = Some(c);
            }
        }
    }
    Err(unclosed)
}

fn unescaped(c: char, after: &mut std::slice::Iter<'_, Char>) -> Option<char> {
    if c == '\\' { after.next().map(|(c, _)| *c) } else { Some(c) }
}

/// What a brace whose `{` is behind us may be replaced by: each alternative with all that follows its `}`.
fn alternatives(text: &[Char]) -> Option<Vec<Vec<Char>>> {
    let (mut inside, after) = text.split_at_checked(closing_brace(text)?)?;
    let after = after.split_first().map(|(_, after)| after).unwrap_or_default();
    let mut all = Vec::new();
    while let Some((alternative, others)) = next_comma(inside).and_then(|at| inside.split_at_checked(at)) {
        all.push([alternative, after].concat());
        inside = others.split_first().map(|(_, others)| others).unwrap_or_default();
    }
    all.push([inside, after].concat());
    Some(all)
}

/// Braces are counted wherever they stand, even in a class.
fn closing_brace(text: &[Char]) -> Option<usize> {
    let mut depth = 1_usize;
    let mut chars = text.iter().enumerate();
    while let Some((at, (c, _))) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The next comma that is neither in a class nor in an inner brace.
fn next_comma(text: &[Char]) -> Option<usize> {
    let mut depth = 1_isize;
    let mut in_class = false;
    let mut chars = text.iter().enumerate();
    while let Some((at, (c, _))) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            ']' if in_class => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => return Some(at),
            _ => {}
        }
    }
    None
}
