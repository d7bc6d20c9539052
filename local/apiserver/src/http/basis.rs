//! On which object, in which version, was a write decided?
//!
//! ```text
//! Pawl-If-Unchanged: /apis/batch/v1/namespaces/n/jobs/work 42
//! ```
//! Kubernetes compares the version of the object that is written. What a controller makes or removes is another object
//! than the one it decided on, and between its last look at that one and its write anything can happen: a process that
//! was stopped for an hour still sends its create. With this header a create or delete counts only while the object it
//! names has that version, compared and written at once. Only the server's own controllers may send it: whether it
//! holds tells something of an object that a stranger may not be allowed to read.

use http::Method;
use http::header::{HeaderMap, HeaderName};

use super::target::{self, Target};
use super::{Query, header};
use crate::access::Identity;
use crate::resources::Registry;
use crate::status::Status;
use crate::store::{Basis, key};

/// The header that names it.
static IF_UNCHANGED: HeaderName = HeaderName::from_static("pawl-if-unchanged");

/// The basis that a request names, if it names one.
pub(super) fn read(
    headers: &HeaderMap,
    who: &Identity,
    registry: &Registry,
) -> Result<Option<Basis>, Status> {
    if !headers.contains_key(&IF_UNCHANGED) {
        return Ok(None);
    }
    if !who.is_master() {
        return Err(Status::bad_request("Pawl-If-Unchanged is for the server's own controllers"));
    }
    let said = header(headers, &IF_UNCHANGED);
    let malformed =
        || Status::bad_request(format!("Pawl-If-Unchanged: {said:?} names no object and version"));
    let (path, version) = said.split_once(' ').ok_or_else(malformed)?;
    let revision = version.parse().map_err(|_| malformed())?;
    match target::find(&Method::GET, path, &Query::default(), registry)? {
        Target::Resource(named) if !named.name.is_empty() => {
            let key = key(&named.namespace, &named.name);
            Ok(Some(Basis { table: named.resource.table.clone(), key, revision }))
        }
        Target::Resource(_) | Target::Document(_) | Target::Nothing => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SeededEnv;
    use crate::server::Server;
    use bytes::Bytes;
    use http::Request;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn ask(server: &Server, method: Method, path: &str, basis: Option<&str>, body: &Value) -> (u16, Value) {
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(basis) = basis {
            request = request.header("Pawl-If-Unchanged", basis);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = server.call(request.body(body).unwrap());
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
    }

    fn make(server: &Server, name: &str, basis: Option<&str>) -> (u16, Value) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        ask(server, Method::POST, MAPS, basis, &map)
    }

    fn owner(server: &Server) -> String {
        let (_, made) = make(server, "owner", None);
        format!("{MAPS}/owner {}", made["metadata"]["resourceVersion"].as_str().unwrap())
    }

    #[test]
    fn a_create_counts_while_its_basis_is_as_it_was_and_not_after() {
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, jiff::Timestamp::UNIX_EPOCH)));
        let basis = owner(&server);
        assert_eq!(make(&server, "in-time", Some(&basis)).0, 201);
        ask(&server, Method::DELETE, &format!("{MAPS}/owner"), None, &Value::Null);
        let (code, said) = make(&server, "late", Some(&basis));
        assert_eq!((code, said["reason"].as_str()), (409, Some("Conflict")));
        // A namesake is another object.
        make(&server, "owner", None);
        assert_eq!(make(&server, "late", Some(&basis)).0, 409);
        assert_eq!(make(&server, "late", None).0, 201);
    }

    #[test]
    fn a_delete_counts_while_its_basis_is_as_it_was_and_not_after() {
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, jiff::Timestamp::UNIX_EPOCH)));
        let basis = owner(&server);
        make(&server, "a", None);
        make(&server, "b", None);
        let delete = |name: &str| {
            ask(&server, Method::DELETE, &format!("{MAPS}/{name}"), Some(&basis), &Value::Null).0
        };
        assert_eq!(delete("a"), 200);
        let path = format!("{MAPS}/owner");
        ask(
            &server,
            Method::PUT,
            &path,
            None,
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}, "data": {"k": "v"}}),
        );
        assert_eq!(delete("b"), 409);
    }

    #[test]
    fn a_basis_that_names_nothing_is_refused_and_strangers_may_name_none() {
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, jiff::Timestamp::UNIX_EPOCH)));
        for odd in [
            "",
            "x",
            "/api/v1/namespaces/default/configmaps/owner",
            "/healthz 1",
            "/api/v1/pods 1",
            "/api/v1/namespaces/default/configmaps/owner one",
        ] {
            assert_eq!(make(&server, "a", Some(odd)).0, 400, "{odd:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            &IF_UNCHANGED,
            http::HeaderValue::from_static("/api/v1/namespaces/default/configmaps/a 1"),
        );
        let stranger = Identity { name: "somebody".to_owned(), ..Identity::default() };
        let registry = Registry::new(Default::default(), 0);
        assert_eq!(read(&headers, &stranger, &registry).unwrap_err().code, 400);
        assert!(read(&headers, &Identity::server(), &registry).unwrap().is_some());
    }
}
