//! From which phase may an object move to which? One table per kind, asserted when planning, when writing,
//! and by the simulator.
//!
//! Facts decide, phases report: a table says which moves a reader may ever see, so it also holds the moves
//! that skip a phase which was over before anybody looked (a Job that is done when it is first seen).

use std::fmt;

use super::kind::Kind;

/// The phases of one kind and their legal moves.
pub trait Phase: Copy + Eq + Ord + fmt::Debug + 'static {
    /// Every phase, in the order in which an object usually passes them.
    const ALL: &'static [Self];
    /// Where an object without a phase may start.
    const FIRST: &'static [Self];
    /// The moves between different phases. Staying is always legal and not listed.
    const MOVES: &'static [(Self, Self)];
    /// The phases in which the work is over; a new job may still leave them where `MOVES` says so.
    const TERMINAL: &'static [Self];

    /// As it stands in the status.
    fn as_str(self) -> &'static str;

    fn is_terminal(self) -> bool {
        Self::TERMINAL.contains(&self)
    }

    fn may_move(from: Option<Self>, to: Self) -> bool {
        match from {
            None => Self::FIRST.contains(&to),
            Some(from) => from == to || Self::MOVES.contains(&(from, to)),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|phase| phase.as_str() == text)
    }
}

/// The phases of a kind as a table: each with its word in the status and the phases it may move to, in the order in which
/// an object usually passes them.
macro_rules! phases {
    (
        $(#[$doc:meta])*
        pub enum $name:ident { $($phase:ident = $word:literal => [$($to:ident),*],)+ }
        first: [$($first:ident),+],
        terminal: [$($terminal:ident),+],
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $(#[serde(rename = $word)] $phase,)+ }

        impl $crate::meta::Phase for $name {
            const ALL: &'static [Self] = &[$(Self::$phase,)+];
            const FIRST: &'static [Self] = &[$(Self::$first,)+];
            const MOVES: &'static [(Self, Self)] = &[$($((Self::$phase, Self::$to),)*)+];
            const TERMINAL: &'static [Self] = &[$(Self::$terminal,)+];

            fn as_str(self) -> &'static str {
                match self { $(Self::$phase => $word,)+ }
            }
        }
    };
}
pub(crate) use phases;

/// The same table as text, for those who see objects without their types.
#[derive(Clone, Debug)]
pub struct Table {
    pub kind: Kind,
    /// Where the phase is, from the root of the object.
    pub field: [&'static str; 2],
    pub all: Vec<&'static str>,
    pub first: Vec<&'static str>,
    pub moves: Vec<(&'static str, &'static str)>,
    pub terminal: Vec<&'static str>,
}

impl Table {
    pub fn of<P: Phase>(kind: Kind, field: [&'static str; 2]) -> Self {
        let words = |phases: &[P]| phases.iter().map(|phase| phase.as_str()).collect();
        Self {
            kind,
            field,
            all: words(P::ALL),
            first: words(P::FIRST),
            moves: P::MOVES.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect(),
            terminal: words(P::TERMINAL),
        }
    }

    /// Whether an object may go from one phase (or none) to another.
    pub fn legal(&self, from: Option<&str>, to: &str) -> bool {
        match from {
            None => self.first.contains(&to),
            Some(from) if from == to => self.all.contains(&to),
            Some(from) => self.moves.contains(&(from, to)),
        }
    }
}

/// Checks that a table makes sense: used by the test beside each phase enum.
#[cfg(test)]
pub(crate) fn check<P: Phase + serde::Serialize>() {
    for (at, phase) in P::ALL.iter().enumerate() {
        assert!(!P::ALL[..at].contains(phase), "{phase:?} is listed twice");
        assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str(), "as_str and serde agree");
        assert_eq!(P::parse(phase.as_str()), Some(*phase));
        assert!(P::may_move(Some(*phase), *phase), "staying is legal");
        let reached = P::FIRST.contains(phase) || P::MOVES.iter().any(|(_, to)| to == phase);
        assert!(reached, "{phase:?} cannot be reached");
        let leaves = P::MOVES.iter().any(|(from, _)| from == phase);
        assert!(leaves || phase.is_terminal(), "{phase:?} is a trap");
    }
    for (at, (from, to)) in P::MOVES.iter().enumerate() {
        assert!(from != to, "staying at {from:?} is not listed");
        assert!(!P::MOVES[..at].contains(&(*from, *to)), "{from:?} to {to:?} is listed twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
    enum Light {
        Red,
        Green,
    }

    impl Phase for Light {
        const ALL: &'static [Self] = &[Self::Red, Self::Green];
        const FIRST: &'static [Self] = &[Self::Red];
        const MOVES: &'static [(Self, Self)] = &[(Self::Red, Self::Green)];
        const TERMINAL: &'static [Self] = &[Self::Green];

        fn as_str(self) -> &'static str {
            match self {
                Self::Red => "Red",
                Self::Green => "Green",
            }
        }
    }

    #[test]
    fn the_typed_and_the_untyped_table_agree() {
        check::<Light>();
        let table = Table::of::<Light>(Kind::of("", "v1", "Light", "lights", true), ["status", "phase"]);
        let mut options: Vec<Option<Light>> = Light::ALL.iter().copied().map(Some).collect();
        options.push(None);
        for from in options {
            for to in Light::ALL {
                assert_eq!(
                    Light::may_move(from, *to),
                    table.legal(from.map(Light::as_str), to.as_str()),
                    "{from:?} to {to:?}"
                );
            }
        }
        assert!(!Light::may_move(None, Light::Green));
        assert!(!Light::may_move(Some(Light::Green), Light::Red));
        assert!(!table.legal(Some("Blue"), "Blue"), "an unknown phase is not legal");
    }
}
