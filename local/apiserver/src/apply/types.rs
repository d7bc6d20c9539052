//! What is this value to its schema: a map, a list with or without identities, or a leaf?
//!
//! A [`Type`] is a place in the schema. Where the schema ends (preserved fields, unknown ones) the value's own
//! shape decides: objects are maps of anything, lists are one value each.

use super::fields::Element;
use crate::schema::{Additional, ListType, Node, Types, object_meta};
use serde_json::{Map, Value};

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type<'a> {
    node: Option<&'a Node>,
    /// The place holds a resource: `metadata` below it is an ObjectMeta, whatever the schema says.
    resource: bool,
}

/// How values at a place are compared and merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape<'a> {
    /// Field by field.
    Map,
    /// Item by item.
    List(&'a ListType),
    /// As a whole: scalars, atomic maps and atomic lists.
    Leaf,
}

impl<'a> Type<'a> {
    pub(crate) fn resource(node: &'a Node) -> Self {
        Self { node: Some(node), resource: true }
    }

    /// The shape of a value here; where there are two values they are asked in order.
    pub(crate) fn shape(self, value: Option<&Value>) -> Shape<'a> {
        let typed = self.node.filter(|n| !n.types.is_none() || n.int_or_string);
        match typed {
            Some(node) if node.types == Types::OBJECT => {
                if node.atomic_map {
                    Shape::Leaf
                } else {
                    Shape::Map
                }
            }
            Some(node) if node.types == Types::ARRAY => match &node.list {
                ListType::Atomic => Shape::Leaf,
                list @ (ListType::Set | ListType::Map(_)) => Shape::List(list),
            },
            Some(_) => Shape::Leaf,
            None => match value {
                Some(Value::Object(_)) => Shape::Map,
                Some(
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
                )
                | None => Shape::Leaf,
            },
        }
    }

    /// Whether the schema says that values here are one piece, whatever they look like.
    pub(crate) fn is_whole(self) -> bool {
        self.node.is_some_and(|n| !n.types.is_none() || n.int_or_string) && self.shape(None) == Shape::Leaf
    }

    /// Whether this is the ledger of ownership itself, which nobody owns.
    pub(crate) fn is_ledger(self, field: &str) -> bool {
        field == "managedFields" && self.node.is_some_and(|n| std::ptr::eq(n, object_meta()))
    }

    /// Whether the schema names this field, as opposed to its being the key of a map.
    pub(crate) fn names(self, field: &str) -> bool {
        (self.resource && is_resource_field(field))
            || self.node.is_some_and(|n| n.properties.contains_key(field))
    }

    pub(crate) fn field(self, name: &str) -> Self {
        if self.resource && name == "metadata" {
            return Self { node: Some(object_meta()), resource: false };
        }
        let node = self.node.and_then(|n| n.field(name));
        Self { node, resource: node.is_some_and(|n| n.embedded_resource) }
    }

    pub(crate) fn items(self) -> Self {
        let node = self.node.and_then(|n| n.items.as_deref());
        Self { node, resource: node.is_some_and(|n| n.embedded_resource) }
    }

    /// The type below a path element.
    pub(crate) fn below(self, element: &Element) -> Self {
        match element {
            Element::Field(name) => self.field(name),
            Element::Key(_) | Element::Item(_) | Element::Index(_) => self.items(),
        }
    }

    /// What tells this item from the others. `Err` says why nothing does.
    pub(crate) fn identity(self, list: &ListType, item: &Value) -> Result<Element, String> {
        match list {
            ListType::Set | ListType::Atomic => Ok(Element::item(item)),
            ListType::Map(keys) => {
                let mut identity = Map::new();
                for key in keys {
                    let value = item.get(key.as_ref()).filter(|v| !v.is_null()).cloned();
                    let default = || self.items().field(key).node.and_then(|n| n.default.clone());
                    if let Some(value) = value.or_else(default) {
                        identity.insert(key.to_string(), value);
                    }
                }
                if identity.is_empty() {
                    return Err("associative list with keys has an element that omits key field".to_owned()
                        + &keys
                            .first()
                            .map(|k| format!(" {k:?} (and doesn't have default value)"))
                            .unwrap_or_default());
                }
                Ok(Element::key(identity))
            }
        }
    }

    /// Why a value does not belong here, if it does not.
    pub(crate) fn mismatch(self, value: &Value) -> Option<String> {
        let node = self.node?;
        let want = node.types;
        let fits = match value {
            Value::Null => true,
            _ if node.int_or_string => value.is_string() || value.is_number(),
            Value::Object(_) => want.has(Types::OBJECT),
            Value::Array(_) => want.has(Types::ARRAY),
            Value::String(_) => want.has(Types::STRING),
            Value::Number(_) => want.has(Types::INTEGER.and(Types::NUMBER)),
            Value::Bool(_) => want.has(Types::BOOLEAN),
        };
        if want.is_none() || fits {
            return None;
        }
        let expected = match want {
            Types::OBJECT => "map",
            Types::ARRAY => "list",
            Types::STRING => "string",
            Types::BOOLEAN => "boolean",
            _ => "numeric (int or float)",
        };
        Some(format!("expected {expected}, got {value}"))
    }

    /// Whether a field that the schema does not name may be here all the same.
    pub(crate) fn takes(self, field: &str) -> bool {
        match self.node {
            None => true,
            Some(node) => {
                self.names(field)
                    || node.preserve_unknown
                    || node.types.is_none()
                    || matches!(node.additional, Additional::Each(_) | Additional::Anything)
            }
        }
    }
}

fn is_resource_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}
