//! Builds the requests to an API server. Pure: [`crate::apply`] and [`crate::remedy::action`] build theirs here, others send
//! them.

use http::{Method, Request, Uri, header};
use pawl_api::meta::Kind;
use pawl_api::remedy::actions::PatchType;
use serde_json::{Value, json};

use crate::object::Key;
use crate::plan::Part;

const JSON: &str = "application/json";
/// A server that cannot send only the metadata sends the whole object.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A request whose path is not parsed yet: a name may hold what no URL can.
#[derive(Debug)]
pub(crate) struct Draft {
    method: Method,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    body: Vec<u8>,
}

pub(crate) fn get(kind: &Kind, key: &Key) -> Draft {
    Draft::new(Method::GET, object(kind, key))
}

/// Whether it is there, and in which version: an object may be a megabyte, and its metadata says that too.
pub(crate) fn get_metadata(kind: &Kind, key: &Key) -> Draft {
    get(kind, key).metadata_only()
}

pub(crate) fn list(kind: &Kind, namespace: Option<&str>) -> Draft {
    Draft::new(Method::GET, kind.path(namespace, None))
}

pub(crate) fn create(kind: &Kind, namespace: Option<&str>, manager: &str, manifest: &Value) -> Draft {
    let draft = Draft::new(Method::POST, kind.path(namespace, None)).query("fieldManager", manager);
    draft.body(JSON, manifest)
}

pub(crate) fn patch(
    kind: &Kind,
    key: &Key,
    part: Part,
    type_: PatchType,
    manager: &str,
    body: &Value,
) -> Draft {
    let path = match part {
        Part::Main => object(kind, key),
        Part::Status => object(kind, key) + "/status",
    };
    let content_type = match type_ {
        PatchType::Merge => "application/merge-patch+json",
        PatchType::Strategic => "application/strategic-merge-patch+json",
        PatchType::Json => "application/json-patch+json",
    };
    Draft::new(Method::PATCH, path).query("fieldManager", manager).body(content_type, body)
}

/// Server-side apply.
pub(crate) fn apply(kind: &Kind, key: &Key, manager: &str, force: bool, manifest: &Value) -> Draft {
    let draft = Draft::new(Method::PATCH, object(kind, key)).query("fieldManager", manager);
    // JSON is YAML.
    draft.query("force", &force.to_string()).body("application/apply-patch+yaml", manifest)
}

pub(crate) fn delete(kind: &Kind, key: &Key, options: &Value) -> Draft {
    Draft::new(Method::DELETE, object(kind, key)).body(JSON, options)
}

/// A deletion that a disruption budget may refuse.
pub(crate) fn evict(kind: &Kind, key: &Key, options: &Value) -> Draft {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace}, "deleteOptions": options});
    Draft::new(Method::POST, object(kind, key) + "/eviction").body(JSON, &eviction)
}

/// `finalize` is not patched but put.
pub(crate) fn finalize(kind: &Kind, key: &Key, whole: &Value) -> Draft {
    Draft::new(Method::PUT, object(kind, key) + "/finalize").body(JSON, whole)
}

fn object(kind: &Kind, key: &Key) -> String {
    kind.path(key.namespace.as_deref(), Some(&key.name))
}

impl Draft {
    fn new(method: Method, path: String) -> Self {
        Self { method, path, content_type: JSON, accept: JSON, body: Vec::new() }
    }

    fn body(mut self, content_type: &'static str, body: &Value) -> Self {
        self.content_type = content_type;
        self.body = body.to_string().into_bytes();
        self
    }

    pub(crate) fn metadata_only(mut self) -> Self {
        self.accept = METADATA_ONLY;
        self
    }

    /// Adds a parameter to the query.
    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let encoded =
            |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        let value: String = value.bytes().map(encoded).collect();
        self.path.push_str(&format!("{separator}{name}={value}"));
        self
    }

    /// # Errors
    /// When a name cannot stand in a URL.
    pub(crate) fn build(self) -> Result<Request<Vec<u8>>, http::Error> {
        let uri = self.path.parse::<Uri>()?;
        Ok(self.at(uri))
    }

    /// The request; where a name cannot stand in a URL, one for the root, which answers 404 or 405.
    pub(crate) fn build_or_root(self) -> Request<Vec<u8>> {
        let uri = self.path.parse().unwrap_or_default();
        self.at(uri)
    }

    fn at(self, uri: Uri) -> Request<Vec<u8>> {
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(self.content_type));
        headers.insert(header::ACCEPT, header::HeaderValue::from_static(self.accept));
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::k8s::POD;

    #[test]
    fn queries_are_encoded_and_stand_in_their_order() {
        let draft = list(&POD, Some("n")).query("labelSelector", "a/b in (c)").query("limit", "1");
        let uri = "/api/v1/namespaces/n/pods?labelSelector=a%2Fb%20in%20%28c%29&limit=1";
        assert_eq!(draft.build().unwrap().uri().to_string(), uri);
    }

    #[test]
    fn a_name_that_no_url_can_hold_is_an_error_or_asks_for_the_root_with_the_same_method() {
        let draft = || delete(&POD, &Key::new(Some("n"), "no name at all"), &json!({}));
        assert!(draft().build().is_err());
        let request = draft().build_or_root();
        assert_eq!((request.method(), request.uri().path()), (&Method::DELETE, "/"));
    }
}
