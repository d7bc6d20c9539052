//! Where in an object is this?
//!
//! Walks go down every object that is written and complain about few of them, so a place is a chain on the
//! stack and becomes text only when there is something to say.

use crate::validation::NO_FIELD;
use std::fmt;

/// A place in an object, as a chain of steps from where the walk began.
#[derive(Clone, Copy)]
pub(crate) enum At<'a> {
    Start(&'a str),
    Field(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl<'a> At<'a> {
    /// The whole object.
    pub(crate) const ROOT: At<'static> = At::Start("");

    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    pub(crate) fn item(&'a self, i: usize) -> Self {
        Self::Item(self, i)
    }

    fn is_root(&self) -> bool {
        matches!(self, Self::Start(""))
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(text) => f.write_str(text),
            Self::Field(above, name) if above.is_root() => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
            Self::Item(above, i) => write!(f, "{above}[{i}]"),
        }
    }
}

/// As the field of an error, where the whole object has a name of its own.
impl From<&At<'_>> for String {
    fn from(at: &At<'_>) -> Self {
        if at.is_root() { NO_FIELD.to_owned() } else { at.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_kubernetes_writes_them() {
        let (spec, list) = (At::ROOT.field("spec"), At::ROOT.item(2));
        assert_eq!(spec.field("tags").item(0).field("x").to_string(), "spec.tags[0].x");
        assert_eq!(list.to_string(), "[2]");
        assert_eq!(At::Start("s.default").field("a").to_string(), "s.default.a");
        assert_eq!(String::from(&At::ROOT), "<nil>");
    }
}
