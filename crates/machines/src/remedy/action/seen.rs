//! What does an action look at, and what was there?

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::Request;
use pawl_api::meta::target::ParseError;
use pawl_api::meta::{Kind, Target};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::Key;
use crate::request;

/// Objects of one page of a list: an API server answers so many in one go without strain.
const PAGE: usize = 250;

/// Where an object is, or should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub kind: Kind,
    #[serde(flatten)]
    pub key: Key,
}

impl Place {
    pub fn namespaced(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, key: Key::new(Some(namespace), name) }
    }

    pub fn cluster(kind: Kind, name: &str) -> Self {
        Self { kind, key: Key::new(None, name) }
    }

    /// The same, as a lock names it.
    pub fn target(&self) -> Result<Target, ParseError> {
        Target::of_kind(&self.kind, self.key.namespace.as_deref(), &self.key.name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.key)
    }
}

/// Objects of a kind that have something in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listing {
    pub kind: Kind,
    /// `None`: everywhere.
    pub namespace: Option<String>,
    /// A label selector, as the API server reads it; empty for all.
    pub labels: String,
    /// A field selector; empty for all.
    pub fields: String,
}

/// Something to be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    Object(Place),
    List(Listing),
}

impl Read {
    /// The request, for a list that of the page after `next`.
    ///
    /// # Errors
    /// When a name cannot stand in a URL: there is no such object.
    pub fn request(&self, next: Option<&str>) -> Result<Request<Vec<u8>>, http::Error> {
        let draft = match self {
            Self::Object(Place { kind, key }) => request::get(kind, key),
            Self::List(Listing { kind, namespace, labels, fields }) => {
                let mut draft = request::list(kind, namespace.as_deref()).query("limit", &PAGE.to_string());
                for (name, value) in [
                    ("labelSelector", labels.as_str()),
                    ("fieldSelector", fields),
                    ("continue", next.unwrap_or_default()),
                ] {
                    if !value.is_empty() {
                        draft = draft.query(name, value);
                    }
                }
                draft
            }
        };
        draft.build()
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(place) => write!(f, "get {place}"),
            Self::List(listing) => write!(f, "list {}", listing.kind.plural),
        }
    }
}

/// What was read. Objects may be Secrets: it is never shown (I6).
#[derive(Clone, Default, PartialEq)]
pub struct Seen {
    objects: BTreeMap<Place, Option<Arc<Value>>>,
    lists: BTreeMap<Listing, Vec<Arc<Value>>>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.objects.keys()).finish()
    }
}

impl Seen {
    pub fn put(&mut self, place: Place, object: Option<Value>) {
        self.objects.insert(place, object.map(Arc::new));
    }

    pub fn put_list(&mut self, listing: Listing, objects: Vec<Value>) {
        self.lists.insert(listing, objects.into_iter().map(Arc::new).collect());
    }

    pub fn has(&self, read: &Read) -> bool {
        match read {
            Read::Object(place) => self.objects.contains_key(place),
            Read::List(listing) => self.lists.contains_key(listing),
        }
    }

    /// `None`: there is none, or nobody looked.
    pub fn object(&self, place: &Place) -> Option<&Value> {
        self.objects.get(place).and_then(Option::as_deref)
    }

    pub fn list(&self, listing: &Listing) -> &[Arc<Value>] {
        self.lists.get(listing).map(Vec::as_slice).unwrap_or_default()
    }
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid").unwrap_or_default()
}

pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion").unwrap_or_default()
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// A selector of labels, as a URL writes it; `None` where it cannot select anything.
pub fn label_selector(selector: &Value) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        for (key, value) in labels {
            parts.push(format!("{key}={}", value.as_str()?));
        }
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression.get("key")?.as_str()?;
        let values = expression.get("values").and_then(Value::as_array);
        let values: Vec<&str> = values.into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match expression.get("operator")?.as_str()? {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::k8s::POD;
    use serde_json::json;

    #[test]
    fn a_list_is_asked_for_page_by_page_with_its_selectors_encoded() {
        let listing = Listing {
            kind: POD,
            namespace: Some("n".to_owned()),
            labels: "a in (b,c)".to_owned(),
            fields: String::new(),
        };
        let request = Read::List(listing).request(Some("x=")).unwrap();
        assert_eq!(
            request.uri().to_string(),
            "/api/v1/namespaces/n/pods?limit=250&labelSelector=a%20in%20%28b%2Cc%29&continue=x%3D"
        );
        assert!(Read::Object(Place::cluster(POD, "no name at all")).request(None).is_err());
    }

    #[test]
    fn selectors_are_written_as_the_api_server_reads_them() {
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["a", "b"]}, {"key": "x", "operator": "DoesNotExist"}]});
        assert_eq!(label_selector(&selector).unwrap(), "app=web,tier notin (a,b),!x");
        assert_eq!(label_selector(&json!({})), None, "an empty selector of a workload is no selector");
    }

    #[test]
    fn a_place_that_was_kept_is_found_again() {
        let place = Place::namespaced(POD, "n", "p");
        let kept = serde_json::to_value(&place).unwrap();
        assert_eq!(serde_json::from_value::<Place>(kept).unwrap(), place);
    }
}
