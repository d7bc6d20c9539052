//! Does a path match a pattern? The answers are those of Go's doublestar v4, to the last oddity: templates written for
//! Terrakojo must mean here what they meant there.
//!
//! ```text
//! *      any part of one segment          [a-z] [^a] [!a]   one character; a negated class matches `/` too
//! ?      one character but `/`            {a,b}             either, nested as you like
//! **/    any number of folders            \c                the character c itself
//! X/**   all below X, and X itself        `**` beside anything but `/` is `*`
//! ```
//!
//! A pattern is compiled into *variants*: what is left of it when each `{…}` is replaced by one of its alternatives. A
//! variant is matched by one walk along the path that remembers only the last `*` and the last `**/`, as the original
//! does, so the work is bounded by path length times pattern length and nothing can blow up. What the original finds
//! depends on how far it has looked: it meets braces on its way, and until it has met one, a `*` before it does not
//! see what is in it. So a variant remembers where its braces opened, and the walk which of them it has met.

mod compile;

use std::fmt;

/// As many characters as the CRD allows in `match.paths[]`.
pub const MAX_CHARS: usize = 1024;
/// How many combinations of alternatives a pattern may have. Ten folders times ten environments times ten file types
/// are that many, and are better written as two patterns.
pub const MAX_VARIANTS: usize = 1000;
/// How much there may be in all variants together. It bounds the work for one path of 4,096 characters, the longest
/// there is on Linux, to 4,096 × 16,384 steps, a fraction of a second for the worst pattern there can be.
pub const MAX_TOKENS: usize = 16_384;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: String,
    variants: Vec<Variant>,
    /// What all variants need.
    needs: Fingerprint,
}

/// Why a pattern is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is not a pattern: character {position}: {problem}")]
pub struct BadPattern {
    pub pattern: String,
    /// Which character is at fault; the first is 1.
    pub position: usize,
    pub problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the class that [ opens here is never closed")]
    ClassNotClosed,
    #[error("the class that [ opens here has nothing in it; write \\] for the character ]")]
    EmptyClass,
    #[error("the alternatives that {{ opens here are never closed")]
    BraceNotClosed,
    #[error("}} closes nothing here; write \\}} for the character }}")]
    BraceNotOpened,
    #[error("\\ stands before nothing; write \\\\ for the character \\")]
    EscapesNothing,
    #[error("the pattern has more than {MAX_CHARS} characters")]
    TooLong,
    #[error("the alternatives up to here can be combined in too many ways; write several patterns")]
    TooManyAlternatives,
}

/// A path made ready for being matched with many patterns.
#[derive(Clone, Debug)]
pub struct Subject {
    name: Vec<char>,
    has: Fingerprint,
}

impl Subject {
    pub fn new(path: &str) -> Self {
        let name: Vec<char> = path.chars().collect();
        let mut has = Fingerprint::default();
        let mut before = None;
        for &c in &name {
            has.add(before, c);
            before = Some(c);
        }
        Self { name, has }
    }
}

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// When it is malformed (by doublestar's `ValidatePattern`), or has more alternatives than anybody could mean.
    pub fn new(pattern: &str) -> Result<Self, BadPattern> {
        match compile::variants(pattern) {
            Ok(variants) => {
                let needs = Fingerprint::common(variants.iter().map(|variant| variant.needs));
                Ok(Self { pattern: pattern.to_owned(), variants, needs })
            }
            Err((at, problem)) => {
                Err(BadPattern { pattern: pattern.to_owned(), position: at.saturating_add(1), problem })
            }
        }
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether all of a path matches, not just a part of it.
    pub fn matches(&self, path: &str) -> bool {
        self.matches_subject(&Subject::new(path))
    }

    /// The same for a path that is compared with many patterns.
    pub fn matches_subject(&self, subject: &Subject) -> bool {
        subject.has.contains(&self.needs)
            && self.variants.iter().any(|variant| {
                subject.has.contains(&variant.needs) && Walk::new(variant, &subject.name).reaches_the_end()
            })
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

/// A pattern with one alternative of each of its braces in their place.
#[derive(Clone, Debug)]
struct Variant {
    tokens: Vec<Token>,
    /// Before which token each brace opened, in the order in which a walk meets them.
    braces: Vec<usize>,
    /// What every path that matches has.
    needs: Fingerprint,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// `\/`: it ends a segment of the path, but is no part of a `**/`.
    EscapedSlash,
    /// `?`
    One,
    /// `*`; what two of them mean is seen on the walk.
    Star,
    Class(Box<Class>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    negated: bool,
    /// From, to. A range the wrong way round holds nothing.
    ranges: Vec<(char, char)>,
}

impl Class {
    fn has(&self, c: char) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != self.negated
    }
}

const SLASH: Token = Token::Literal('/');

/// One attempt at one variant.
struct Walk<'a> {
    variant: &'a Variant,
    name: &'a [char],
    /// The next token, and the next character.
    token: usize,
    at: usize,
    /// How many braces were met.
    met: usize,
    /// Whether `**` here would be one of folders.
    segment_starts: bool,
    /// Where to go on after the last `*`, and what it has not swallowed yet.
    star: Option<(usize, usize)>,
    /// The same for the last `**/`.
    folders: Option<(usize, usize)>,
}

enum Next {
    Onward,
    Stuck,
    Done,
}

impl<'a> Walk<'a> {
    fn new(variant: &'a Variant, name: &'a [char]) -> Self {
        Self { variant, name, token: 0, at: 0, met: 0, segment_starts: true, star: None, folders: None }
    }

    fn reaches_the_end(mut self) -> bool {
        while let Some(c) = self.name.get(self.at) {
            match self.step(*c) {
                Next::Onward => {}
                Next::Done => return true,
                Next::Stuck => {
                    if !self.back_to_star() && !self.back_to_folders() {
                        return false;
                    }
                }
            }
        }
        self.rest_may_be_nothing()
    }

    fn step(&mut self, c: char) -> Next {
        if self.is_at_brace() {
            self.met += 1;
            // The original starts afresh with each alternative, and so takes it for the start of a segment.
            self.segment_starts = true;
            return Next::Onward;
        }
        let fits = match self.variant.tokens.get(self.token) {
            None => return Next::Stuck,
            Some(Token::Star) => return self.star(),
            Some(Token::One) => c != '/',
            Some(Token::Class(class)) => class.has(c),
            Some(Token::Literal(literal)) => *literal == c,
            Some(Token::EscapedSlash) => c == '/',
        };
        if !fits {
            return Next::Stuck;
        }
        // A class that matches `/` does not start a segment.
        self.segment_starts = c == '/'
            && matches!(self.variant.tokens.get(self.token), Some(Token::Literal(_) | Token::EscapedSlash));
        self.token += 1;
        self.at += 1;
        Next::Onward
    }

    fn star(&mut self) -> Next {
        self.token += 1;
        if self.sees() == Some(&Token::Star) {
            self.token += 1;
            if self.segment_starts && !self.is_at_brace() {
                match self.variant.tokens.get(self.token) {
                    None => return Next::Done,
                    Some(&SLASH) => {
                        self.token += 1;
                        self.folders = Some((self.token, self.at));
                        self.star = None;
                        return Next::Onward;
                    }
                    Some(_) => {}
                }
            }
        }
        self.segment_starts = false;
        self.star = Some((self.token, self.at));
        Next::Onward
    }

    /// The next token, unless it is in a brace that was not met yet.
    fn sees(&self) -> Option<&Token> {
        self.variant.tokens.get(self.token).filter(|_| !self.is_at_brace())
    }

    fn is_at_brace(&self) -> bool {
        self.variant.braces.get(self.met) == Some(&self.token)
    }

    /// The last `*` swallows one more character, but no `/`.
    fn back_to_star(&mut self) -> bool {
        let Some((token, swallowed)) = self.star else { return false };
        if self.name.get(swallowed) == Some(&'/') {
            return false;
        }
        self.at = swallowed + 1;
        self.star = Some((token, self.at));
        self.token = token;
        self.segment_starts = false;
        true
    }

    /// The last `**/` swallows one more folder.
    fn back_to_folders(&mut self) -> bool {
        let Some((token, swallowed)) = self.folders else { return false };
        let rest = self.name.get(swallowed..).unwrap_or_default();
        let Some(slash) = rest.iter().position(|c| *c == '/') else { return false };
        self.at = swallowed + slash + 1;
        self.folders = Some((token, self.at));
        self.token = token;
        self.segment_starts = true;
        true
    }

    /// At the end of the path: whether what is left of the pattern is satisfied with nothing. `a/**` is, after `a`.
    fn rest_may_be_nothing(&mut self) -> bool {
        while self.is_at_brace() {
            self.met += 1;
        }
        let rest = self.variant.tokens.get(self.token..).unwrap_or_default();
        self.met == self.variant.braces.len()
            && matches!(
                rest,
                [] | [Token::Star]
                    | [Token::Star, Token::Star]
                    | [SLASH, Token::Star, Token::Star]
                    | [Token::Star, Token::Star, SLASH]
                    | [SLASH, Token::Star, Token::Star, SLASH]
            )
    }
}

/// Which characters and pairs of neighbours a text has, hashed. A variant's is compared with a path's before a walk is
/// tried: almost every pattern that does not match is told by this, for the price of four comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fingerprint([u64; 4]);

impl Fingerprint {
    fn add(&mut self, before: Option<char>, c: char) {
        self.set(u32::from(c));
        if let Some(before) = before {
            // Past all characters, so that a pair is told from a single one.
            self.set(
                u32::from(before).wrapping_add(1).wrapping_mul(0x0020_0000 + 31).wrapping_add(u32::from(c)),
            );
        }
    }

    fn set(&mut self, value: u32) {
        // Multiplicative hashing: the highest bits are the best mixed.
        let hash = value.wrapping_mul(0x9E37_79B1) >> 24;
        if let Some(word) = self.0.get_mut((hash / 64) as usize) {
            *word |= 1 << (hash % 64);
        }
    }

    fn contains(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| theirs & !mine == 0)
    }

    fn common(all: impl Iterator<Item = Self>) -> Self {
        let both = |Self(one): Self, Self(other): Self| {
            Self(std::array::from_fn(|at| {
                one.get(at).copied().unwrap_or_default() & other.get(at).copied().unwrap_or_default()
            }))
        };
        all.reduce(both).unwrap_or_default()
    }

    /// What a path cannot do without if these tokens are to match it.
    fn needed_by(tokens: &[Token]) -> Self {
        // `/**` and `/**/` at the end match nothing too.
        let tokens = match tokens {
            [needed @ .., SLASH, Token::Star, Token::Star]
            | [needed @ .., SLASH, Token::Star, Token::Star, SLASH] => needed,
            all => all,
        };
        let mut needs = Self::default();
        let mut before: Option<&Token> = None;
        for token in tokens {
            let literal = match (before, token) {
                // It may be that of a `**/`, which matches nothing too.
                (Some(Token::Star), &SLASH) => None,
                (_, Token::Literal(c)) => Some(*c),
                (_, Token::EscapedSlash) => Some('/'),
                (_, Token::One | Token::Star | Token::Class(_)) => None,
            };
            let neighbour = match before {
                Some(Token::Literal(c)) => Some(*c),
                Some(Token::EscapedSlash) => Some('/'),
                Some(Token::One | Token::Star | Token::Class(_)) | None => None,
            };
            if let Some(c) = literal {
                needs.add(neighbour, c);
            }
            // What a `**/` swallows stands between its slash and what comes next, so they are no neighbours.
            before = if literal.is_none() { Some(&Token::Star) } else { Some(token) };
        }
        needs
    }
}

#[cfg(test)]
mod tests;
