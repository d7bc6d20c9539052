//! Is the chain what was written? Rows are fed in order; nothing is kept but the last hash.
//!
//! | what somebody did | what is found |
//! |---|---|
//! | changed a row | its hash is not that of its content; if the hash was computed anew, the next row does not follow it |
//! | removed rows | a gap in the numbers |
//! | swapped or renumbered rows | the number is part of what is hashed: each of them is changed |
//! | inserted a row | the row after it does not follow it; at the end, it lies beyond the head |
//! | cut the end off | the head, kept apart from the rows, is further than the last row |
//! | rewrote all rows from one on, and the head | nothing in the database tells: only an anchor does |
//!
//! An *anchor* is a head that was noted outside the database, as `pawl audit verify` prints it and the controllers log
//! it. A chain on which every anchor still stands was not rewritten before the last of them. Whoever can write to the
//! database and knows no anchor's place can still drop rows that no anchor covers: note one as often as it matters.

use crate::row::{Hash, Head, Row};

/// More would not be read; how many there are is counted all the same.
const MAX_FINDINGS: usize = 100;

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The row's content does not have the row's hash.
    Changed { seq: i64 },
    /// The row cannot even be read.
    Unreadable { seq: i64, problem: String },
    /// These rows are not there.
    Missing { from: i64, to: i64 },
    /// The row does not follow the row before it: one of the two was inserted, replaced or moved.
    Unlinked { seq: i64 },
    /// The head says that the chain goes on, but these rows are not there.
    CutOff { from: i64, to: i64 },
    /// There are rows after the head: nobody who appends leaves any.
    Beyond { from: i64, to: i64 },
    /// The last row is not the one that the head names.
    OtherHead { seq: i64 },
    /// There are rows, but no head.
    NoHead,
    /// The row that was noted as the head at that time is another, or gone.
    OffAnchor { seq: i64 },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Changed { seq } => write!(f, "row {seq} was changed: its content does not have its hash"),
            Self::Unreadable { seq, problem } => write!(f, "row {seq} was changed: {problem}"),
            Self::Missing { from, to } if from == to => write!(f, "row {from} was removed"),
            Self::Missing { from, to } => write!(f, "rows {from} to {to} were removed"),
            Self::Unlinked { seq } => {
                write!(
                    f,
                    "row {seq} does not follow the row before it: one of them was inserted, replaced or moved"
                )
            }
            Self::CutOff { from, to } => write!(f, "the end was cut off: rows {from} to {to} are not there"),
            Self::Beyond { from, to } => write!(f, "rows {from} to {to} were inserted after the head"),
            Self::OtherHead { seq } => write!(f, "row {seq} is not the one that the head names"),
            Self::NoHead => f.write_str("there are rows, but the head was removed"),
            Self::OffAnchor { seq } => {
                write!(f, "row {seq} is not the one that was noted as an anchor: the chain was rewritten")
            }
        }
    }
}

/// What verifying came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How many rows were read.
    pub rows: u64,
    /// Where the chain ends now: to be noted as an anchor, if nothing was found.
    pub head: Head,
    /// The first of what was found.
    pub findings: Vec<Finding>,
    /// How much was found in all.
    pub found: u64,
}

impl Verdict {
    pub fn is_sound(&self) -> bool {
        self.found == 0
    }
}

/// A verification under way.
#[derive(Debug)]
pub(crate) struct Checker {
    verdict: Verdict,
    last: Head,
    /// The hash of the last row is not known, so whether the next one follows it cannot be told.
    torn: bool,
    /// What the head table says, read in the same snapshot.
    stored: Option<Head>,
    /// By place, the nearest last.
    anchors: Vec<Head>,
    beyond: Option<(i64, i64)>,
}

impl Checker {
    pub(crate) fn new(stored: Option<Head>, anchors: &[Head]) -> Self {
        let mut anchors: Vec<Head> = anchors.iter().copied().filter(|anchor| anchor.seq > 0).collect();
        anchors.sort_by_key(|anchor| std::cmp::Reverse(anchor.seq));
        Self {
            verdict: Verdict::default(),
            last: Head::default(),
            torn: false,
            stored,
            anchors,
            beyond: None,
        }
    }

    /// Takes the next row, in the order of `seq`; one that cannot be decoded comes as its number and why.
    pub(crate) fn take(&mut self, row: Result<Row, (i64, String)>) {
        self.verdict.rows += 1;
        let seq = row.as_ref().map_or_else(|(seq, _)| *seq, |row| row.seq);
        let expected = self.last.seq.saturating_add(1);
        if seq > expected {
            self.find(Finding::Missing { from: expected, to: seq.saturating_sub(1) });
        }
        let follows = seq == expected && !self.torn;
        if self.stored.is_some_and(|head| seq > head.seq) {
            self.beyond = Some((self.beyond.map_or(seq, |(from, _)| from), seq));
        }
        match row {
            Ok(row) => {
                if row.computed() != row.hash {
                    self.find(Finding::Changed { seq });
                }
                if follows && row.previous != self.last.hash {
                    self.find(Finding::Unlinked { seq });
                }
                self.anchor(seq, Some(row.hash));
                self.last = row.head();
                self.torn = false;
            }
            Err((seq, problem)) => {
                self.find(Finding::Unreadable { seq, problem });
                self.anchor(seq, None);
                self.last = Head { seq, hash: Hash::default() };
                self.torn = true;
            }
        }
    }

    pub(crate) fn finish(mut self) -> Verdict {
        if let Some((from, to)) = self.beyond {
            self.find(Finding::Beyond { from, to });
        }
        match self.stored {
            None if self.last.seq > 0 => self.find(Finding::NoHead),
            Some(head) if head.seq > self.last.seq => {
                self.find(Finding::CutOff { from: self.last.seq.saturating_add(1), to: head.seq });
            }
            Some(head) if head.seq == self.last.seq && head.hash != self.last.hash && !self.torn => {
                self.find(Finding::OtherHead { seq: head.seq });
            }
            Some(_) | None => {}
        }
        for anchor in std::mem::take(&mut self.anchors) {
            self.find(Finding::OffAnchor { seq: anchor.seq });
        }
        self.verdict.head = self.last;
        self.verdict
    }

    /// Compares with the anchors up to this place; those whose row was passed over are gone.
    fn anchor(&mut self, seq: i64, hash: Option<Hash>) {
        while let Some(anchor) = self.anchors.last().copied().filter(|anchor| anchor.seq <= seq) {
            self.anchors.pop();
            if anchor.seq < seq || hash != Some(anchor.hash) {
                self.find(Finding::OffAnchor { seq: anchor.seq });
            }
        }
    }

    fn find(&mut self, finding: Finding) {
        self.verdict.found += 1;
        if self.verdict.findings.len() < MAX_FINDINGS {
            self.verdict.findings.push(finding);
        }
    }
}
