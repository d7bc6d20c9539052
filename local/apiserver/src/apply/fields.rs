//! Which fields does somebody own?
//!
//! A [`FieldSet`] is a trie of path elements: `members` are owned themselves, `children` lead to owned ones
//! below. The wire form is `FieldsV1`, where `.` says that an element with children is owned too:
//!
//! ```text
//! {"f:spec": {"f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}, "f:set": {"v:\"x\"": {}}}}
//! ```

use crate::schema::{MAX_DEPTH, canonical};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One step of a path. Keys and values are kept as canonical JSON text: they are compared far more often
/// than they are read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Element {
    /// A field of an object or a key of a map.
    Field(Box<str>),
    /// An item of a keyed list: `{"name":"a"}`.
    Key(Box<str>),
    /// An item of a set.
    Item(Box<str>),
    /// A position, for lists without identity. Nothing here makes these; they are kept when read.
    Index(i64),
}

impl Element {
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    pub(crate) fn key(key: Map<String, Value>) -> Self {
        Self::Key(canonical(&Value::Object(key)).into())
    }

    pub(crate) fn item(value: &Value) -> Self {
        Self::Item(canonical(value).into())
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => format!("k:{key}"),
            Self::Item(value) => format!("v:{value}"),
            Self::Index(i) => format!("i:{i}"),
        }
    }

    /// `Ok(None)` for a kind of element that is not known: newer servers may write some.
    fn decode(text: &str) -> Result<Option<Self>, FieldsError> {
        let bad = || FieldsError::Element(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(bad)?;
        let json = || serde_json::from_str::<Value>(rest).map_err(|_| bad());
        Ok(match kind {
            "f" => Some(Self::field(rest)),
            "k" => match json()? {
                Value::Object(key) => Some(Self::key(key)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err(bad());
                }
            },
            "v" => Some(Self::item(&json()?)),
            "i" => Some(Self::Index(rest.parse().map_err(|_| bad())?)),
            _ => None,
        })
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Item(value) => write!(f, "[={value}]"),
            Self::Index(i) => write!(f, "[{i}]"),
            Self::Key(key) => {
                let key: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
                let parts: Vec<String> = key.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", parts.join(","))
            }
        }
    }
}

/// Why a `fieldsV1` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    #[error("invalid path element {0:?}")]
    Element(String),
    #[error("field set nested too deep")]
    Depth,
    #[error("field set is not an object")]
    Shape,
}

/// A set of paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSet {
    members: BTreeSet<Element>,
    children: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// Reads the wire form.
    pub(crate) fn decode(fields: &Value) -> Result<Self, FieldsError> {
        Self::decode_at(fields, 0)
    }

    fn decode_at(fields: &Value, depth: usize) -> Result<Self, FieldsError> {
        if depth > MAX_DEPTH {
            return Err(FieldsError::Depth);
        }
        let mut set = Self::default();
        for (text, below) in fields.as_object().ok_or(FieldsError::Shape)? {
            if text == "." {
                continue;
            }
            let Some(element) = Element::decode(text)? else { continue };
            let map = below.as_object().ok_or(FieldsError::Shape)?;
            if map.is_empty() || map.contains_key(".") {
                set.members.insert(element.clone());
            }
            let child = Self::decode_at(below, depth + 1)?;
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        Ok(set)
    }

    /// Writes the wire form.
    pub(crate) fn encode(&self) -> Value {
        let mut out = Map::new();
        for member in self.members.iter().filter(|m| !self.children.contains_key(*m)) {
            out.insert(member.encode(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let mut below = child.encode();
            if let (true, Value::Object(map)) = (self.members.contains(element), &mut below) {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), below);
        }
        Value::Object(out)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => _ = self.members.insert(last.clone()),
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(crate) fn has(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// What the set says below an element.
    pub(crate) fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element).filter(|c| !c.is_empty())
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = (&Element, &Self)> {
        self.children.iter()
    }

    /// Says of one step whether it is owned, and adds what is owned below it.
    pub(crate) fn place(&mut self, element: &Element, member: bool, below: Self) {
        if member {
            self.members.insert(element.clone());
        }
        if !below.is_empty() {
            self.children.entry(element.clone()).or_default().absorb(below);
        }
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.absorb(other.clone());
        out
    }

    /// Takes in all paths of another set.
    pub(crate) fn absorb(&mut self, other: Self) {
        if self.members.is_empty() && self.children.is_empty() {
            *self = other;
            return;
        }
        self.members.extend(other.members);
        for (element, child) in other.children {
            self.children.entry(element).or_default().absorb(child);
        }
    }

    /// Whether some path is in both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let both = |(element, child): (&Element, &Self)| {
            other.children.get(element).is_some_and(|theirs| child.meets(theirs))
        };
        !self.members.is_disjoint(&other.members) || self.children.iter().any(both)
    }

    /// Whether every path is in the other set too.
    pub(crate) fn within(&self, other: &Self) -> bool {
        let inside = |(element, child): (&Element, &Self)| match other.children.get(element) {
            Some(theirs) => child.within(theirs),
            None => child.is_empty(),
        };
        self.members.is_subset(&other.members) && self.children.iter().all(inside)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let both = |(element, child): (&Element, &Self)| {
            let common = child.intersection(other.children.get(element)?);
            (!common.is_empty()).then(|| (element.clone(), common))
        };
        Self { members, children: self.children.iter().filter_map(both).collect() }
    }

    /// Exactly the paths of `other` go; what is below them stays.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let left = |(element, child): (&Element, &Self)| {
            let child = match other.children.get(element) {
                Some(theirs) => child.difference(theirs),
                None => child.clone(),
            };
            (!child.is_empty()).then(|| (element.clone(), child))
        };
        Self { members, children: self.children.iter().filter_map(left).collect() }
    }

    /// The same in place.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for member in &other.members {
            self.members.remove(member);
        }
        for (element, theirs) in &other.children {
            if let Some(child) = self.children.get_mut(element) {
                child.subtract(theirs);
                if child.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// The paths of `other` go with everything below them.
    pub(crate) fn remove_trees(&mut self, other: &Self) {
        for member in &other.members {
            self.members.remove(member);
            self.children.remove(member);
        }
        for (element, theirs) in &other.children {
            if let Some(child) = self.children.get_mut(element) {
                child.remove_trees(theirs);
                if child.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// The set with its members and children replaced, level by level.
    pub(crate) fn rebuild(members: BTreeSet<Element>, children: BTreeMap<Element, Self>) -> Self {
        Self { members, children }
    }

    pub(crate) fn members(&self) -> &BTreeSet<Element> {
        &self.members
    }

    /// Every owned path as text, in order: `.spec.items[name="a"].port`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect("", &mut out);
        out
    }

    fn collect(&self, prefix: &str, out: &mut Vec<String>) {
        out.extend(self.members.iter().map(|m| format!("{prefix}{m}")));
        for (element, child) in &self.children {
            child.collect(&format!("{prefix}{element}"), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn element() -> impl Strategy<Value = Element> {
        prop_oneof![
            "[a-c.:\"é]{1,3}".prop_map(|s| Element::field(&s)),
            ("[a-b]", 0..3_i32)
                .prop_map(|(k, v)| Element::key(json!({"name": k, "port": v}).as_object().unwrap().clone())),
            "[x-z]{1,2}".prop_map(|s| Element::item(&json!(s))),
            (0..4_i64).prop_map(Element::Index),
        ]
    }

    prop_compose! {
        fn set()(paths in prop::collection::vec(prop::collection::vec(element(), 1..4), 0..12)) -> FieldSet {
            let mut set = FieldSet::default();
            for path in &paths {
                set.insert(path);
            }
            set
        }
    }

    #[test]
    fn the_wire_form_is_that_of_kubernetes() {
        let wire = json!({"f:spec": {
            "f:a": {}, "f:set": {"v:\"x\"": {}},
            "f:items": {".": {}, "k:{\"name\":\"k\"}": {".": {}, "f:name": {}}},
        }});
        let set = FieldSet::decode(&wire).unwrap();
        assert_eq!(set.encode(), wire);
        let paths = [
            ".spec.a",
            ".spec.items",
            ".spec.items[name=\"k\"]",
            ".spec.items[name=\"k\"].name",
            ".spec.set[=\"x\"]",
        ];
        assert_eq!(set.paths(), paths);
    }

    #[test]
    fn unreadable_sets_are_errors_and_unknown_elements_are_skipped() {
        for bad in [
            json!([]),
            json!({"f:a": 1}),
            json!({"nocolon": {}}),
            json!({"k:[1]": {}}),
            json!({"v:{": {}}),
            json!({"i:x": {}}),
        ] {
            assert!(FieldSet::decode(&bad).is_err(), "{bad}");
        }
        assert!(FieldSet::decode(&json!({"z:new": {}})).unwrap().is_empty());
        let mut deep = json!({});
        for _ in 0..110 {
            deep = json!({"f:a": deep});
        }
        assert_eq!(FieldSet::decode(&deep), Err(FieldsError::Depth));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(set in set()) {
            prop_assert_eq!(FieldSet::decode(&set.encode()).unwrap(), set);
        }

        #[test]
        fn sets_obey_the_laws_of_sets(a in set(), b in set()) {
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert!(a.difference(&a).is_empty());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            let (mut subtracted, mut pruned) = (a.clone(), a.clone());
            subtracted.subtract(&b);
            prop_assert_eq!(&subtracted, &a.difference(&b));
            pruned.remove_trees(&b);
            prop_assert!(pruned.within(&subtracted) && !pruned.meets(&b));
            prop_assert_eq!(a.meets(&b), !a.intersection(&b).is_empty());
            prop_assert_eq!(a.within(&b), a.difference(&b).is_empty());
            let mut absorbed = a.clone();
            absorbed.absorb(b.clone());
            prop_assert!(a.within(&absorbed) && b.within(&absorbed));
            prop_assert!(absorbed.difference(&a).within(&b));
        }
    }
}
