//! What does a request want to do? Derived from its line alone, before anyone looks whether such a thing is served.

use http::Method;
use http::request::Parts;

use super::rules::Attributes;
use crate::http::{Query, segments};
use crate::status::Status;

/// The attributes of a request, as Kubernetes derives them.
///
/// Paths are taken apart by the same function that routes them: what is asked about is what will be done.
pub(crate) fn attributes(request: &Parts) -> Result<Attributes, Status> {
    let path = request.uri.path();
    let parts = segments(path)?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] if !rest.is_empty() => ("", rest),
        ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
        _ => {
            let verb = request.method.as_str().to_ascii_lowercase();
            return Ok(Attributes::Url { verb, path: path.to_owned() });
        }
    };
    let (namespace, tail) = match rest {
        ["namespaces", namespace, "status" | "finalize"] => (*namespace, rest),
        ["namespaces", namespace, tail @ ..] if !tail.is_empty() => (*namespace, tail),
        ["namespaces", namespace] => (*namespace, rest),
        _ => ("", rest),
    };
    let part = |at: usize| tail.get(at).copied().unwrap_or_default();
    let (resource, name, subresource) = (part(0), part(1), part(2));
    let query = Query::parse(request.uri.query().unwrap_or_default())?;
    let verb = verb(&request.method, name.is_empty(), subresource, &query);
    // A list of one name is what a rule for that name allows.
    let name = match (name, verb) {
        ("", "list" | "watch" | "deletecollection") => {
            selected(query.get("fieldSelector")).unwrap_or_default()
        }
        (name, _) => name,
    };
    Ok(Attributes::Resource {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn verb(method: &Method, collection: bool, subresource: &str, query: &Query) -> &'static str {
    let watching = query.flag("watch") == Some(true) && subresource.is_empty();
    match *method {
        Method::GET | Method::HEAD if watching => "watch",
        Method::GET | Method::HEAD if collection => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The name a field selector demands.
fn selected(selector: Option<&str>) -> Option<&str> {
    let terms = selector?.split(',');
    terms
        .filter_map(|term| term.trim().strip_prefix("metadata.name="))
        .map(|name| name.trim_start_matches('='))
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn said(method: &str, path: &str) -> String {
        let (parts, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
        attributes(&parts).unwrap().refused("x").strip_prefix("User \"x\" cannot ").unwrap().to_owned()
    }

    #[test]
    fn a_request_is_named_by_verb_resource_and_place() {
        for (method, path, want) in [
            ("GET", "/healthz", r#"get path "/healthz""#),
            ("POST", "/apis", r#"post path "/apis""#),
            ("GET", "/apis/apps/v1", r#"get path "/apis/apps/v1""#),
            ("GET", "/api/v1/nodes", r#"list resource "nodes" in API group "" at the cluster scope"#),
            ("GET", "/api/v1/nodes/n", r#"get resource "nodes" in API group "" at the cluster scope"#),
            ("GET", "/api/v1/pods?watch=1", r#"watch resource "pods" in API group "" at the cluster scope"#),
            ("HEAD", "/api/v1/nodes/n", r#"get resource "nodes" in API group "" at the cluster scope"#),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/n/deployments",
                r#"deletecollection resource "deployments" in API group "apps" in the namespace "n""#,
            ),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                r#"patch resource "deployments/scale" in API group "apps" in the namespace "n""#,
            ),
            (
                "GET",
                "/api/v1/namespaces/n",
                r#"get resource "namespaces" in API group "" in the namespace "n""#,
            ),
            (
                "PUT",
                "/api/v1/namespaces/n/finalize",
                r#"update resource "namespaces/finalize" in API group "" in the namespace "n""#,
            ),
            (
                "POST",
                "/api/v1/namespaces/n/serviceaccounts/a/token",
                r#"create resource "serviceaccounts/token" in API group "" in the namespace "n""#,
            ),
            (
                "GET",
                "/api/v1/namespaces/n/nothing/x",
                r#"get resource "nothing" in API group "" in the namespace "n""#,
            ),
        ] {
            assert_eq!(said(method, path), want, "{method} {path}");
        }
    }

    #[test]
    fn a_list_of_one_name_is_about_that_name() {
        let path = "/api/v1/namespaces/n/secrets?fieldSelector=type%3Da,metadata.name%3Dx&watch=true";
        let (parts, ()) = Request::get(path).body(()).unwrap().into_parts();
        let Attributes::Resource { verb, name, .. } = attributes(&parts).unwrap() else {
            panic!("a resource")
        };
        assert_eq!((verb.as_str(), name.as_str()), ("watch", "x"));
    }

    #[test]
    fn an_escaped_path_is_about_what_it_says() {
        let plain = said("GET", "/api/v1/namespaces/n/secrets/s");
        assert_eq!(said("GET", "/api/v1/namespaces/n/%73ecrets/s"), plain);
        assert_eq!(said("GET", "//api//v1/namespaces/n/secrets/s/"), plain);
        let (parts, ()) = Request::get("/api/v1/%zz").body(()).unwrap().into_parts();
        assert_eq!(attributes(&parts).unwrap_err().code, 400);
    }
}
