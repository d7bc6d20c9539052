//! Which resource does a path name?

use std::sync::Arc;

use http::Method;

use super::query::decode;
use super::{Query, discovery};
use crate::resources::{Registry, Resource};
use crate::status::Status;
use crate::verbs::{Subresource, Verb};

/// What a request is about.
#[derive(Debug)]
pub(crate) enum Target {
    /// A resource.
    Resource(Box<Addressed>),
    /// A document of the server about itself.
    Document(discovery::Document),
    /// Nothing: `404 page not found`, in plain text.
    Nothing,
}

/// A resource and what to do with it.
#[derive(Debug)]
pub(crate) struct Addressed {
    pub(crate) verb: Verb,
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: Subresource,
}

/// Reads a path.
pub(crate) fn find(
    method: &Method,
    path: &str,
    query: &Query,
    registry: &Registry,
) -> Result<Target, Status> {
    let parts = segments(path)?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        other => {
            return Ok(discovery::Document::at(other, registry).map_or(Target::Nothing, Target::Document));
        }
    };
    if registry.version(group, version).is_none() {
        return Ok(Target::Nothing);
    }
    if rest.is_empty() {
        return Ok(discovery::Document::at(&parts, registry).map_or(Target::Nothing, Target::Document));
    }
    address(method, rest, query, |plural| registry.find(group, version, plural).cloned())
        .map(|addressed| Target::Resource(Box::new(addressed)))
}

/// A path's segments, decoded. Empty ones do not count.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, Status> {
    path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect()
}

fn address(
    method: &Method,
    rest: &[&str],
    query: &Query,
    find: impl Fn(&str) -> Option<Arc<Resource>>,
) -> Result<Addressed, Status> {
    let (namespace, plural, tail) = match rest {
        // A namespace's own subresources, not a resource in it.
        ["namespaces", name, sub @ ("status" | "finalize")] => {
            let resource = find("namespaces").ok_or_else(Status::no_such_resource)?;
            return addressed(method, resource, "", &[name, sub], query);
        }
        ["namespaces", namespace, plural, tail @ ..] => (*namespace, *plural, tail),
        [plural, tail @ ..] => ("", *plural, tail),
        [] => return Err(Status::no_such_resource()),
    };
    let resource = find(plural).ok_or_else(Status::no_such_resource)?;
    let scoped = !namespace.is_empty();
    if scoped && !resource.ids.namespaced || (!scoped && resource.ids.namespaced && !tail.is_empty()) {
        return Err(Status::no_such_resource());
    }
    addressed(method, resource, namespace, tail, query)
}

fn addressed(
    method: &Method,
    resource: Arc<Resource>,
    namespace: &str,
    tail: &[&str],
    query: &Query,
) -> Result<Addressed, Status> {
    let (name, subresource) = match tail {
        [] => ("", Subresource::Whole),
        [name] => (*name, Subresource::Whole),
        [name, sub] => (*name, subresource(&resource, name, sub)?),
        _ => return Err(Status::no_such_resource()),
    };
    let watching = query.flag("watch") == Some(true);
    let verb = match (method, name.is_empty()) {
        (&Method::GET, true) if watching => Verb::Watch,
        (&Method::GET, false) if watching && subresource == Subresource::Whole => Verb::Watch,
        (&Method::GET, true) => Verb::List,
        (&Method::GET, false) => Verb::Get,
        (&Method::POST, true) => Verb::Create,
        (&Method::POST, false)
            if matches!(subresource, Subresource::Token | Subresource::Eviction | Subresource::Binding) =>
        {
            Verb::Create
        }
        (&Method::PUT, false) => Verb::Update,
        (&Method::PATCH, false) => Verb::Patch,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        (&Method::DELETE, false) => Verb::Delete,
        _ => return Err(Status::method_not_allowed()),
    };
    if !resource.allows(verb) {
        return Err(Status::method_not_allowed());
    }
    // What is in namespaces is deleted in one of them, never in all.
    let everywhere = resource.ids.namespaced && namespace.is_empty();
    if verb == Verb::DeleteCollection && (everywhere || resource.is("", "namespaces")) {
        return Err(Status::method_not_allowed());
    }
    Ok(Addressed { verb, resource, namespace: namespace.to_owned(), name: name.to_owned(), subresource })
}

fn subresource(resource: &Resource, name: &str, sub: &str) -> Result<Subresource, Status> {
    match sub {
        "status" if resource.status => Ok(Subresource::Status),
        "scale" if resource.scale.is_some() => Ok(Subresource::Scale),
        "token" if resource.is("", "serviceaccounts") => Ok(Subresource::Token),
        "finalize" if resource.is("", "namespaces") => Ok(Subresource::Finalize),
        "eviction" if resource.is("", "pods") => Ok(Subresource::Eviction),
        "binding" if resource.is("", "pods") => Ok(Subresource::Binding),
        "ephemeralcontainers" if resource.is("", "pods") => Ok(Subresource::EphemeralContainers),
        "approval" if resource.is("certificates.k8s.io", "certificatesigningrequests") => {
            Ok(Subresource::Approval)
        }
        // Known, and not to be had: whoever asks should learn why.
        "exec" | "attach" | "portforward" | "proxy" if resource.is("", "pods") => {
            Err(Status::bad_request(format!(
                "pods/{sub} is not served: pods run as processes of this machine, where they can be reached directly"
            )))
        }
        // A custom resource answers for its subresources itself, and so names the object.
        "status" | "scale" if matches!(resource.content, crate::resources::Content::Custom(_)) => {
            Err(Status::not_found(resource, name))
        }
        _ => Err(Status::no_such_resource()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Attributes, attributes};
    use http::Request;

    /// Whoever is allowed what a request seems to be must not get something else done by it.
    #[test]
    fn what_is_done_is_what_permission_was_asked_for() {
        let registry = Registry::new(Default::default(), 0);
        let mut seen = 0;
        for (group, found) in registry.groups() {
            for version in &found.versions {
                for plural in version.resources.keys() {
                    let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
                    for place in ["", "/namespaces/ns", "//namespaces/%6es"] {
                        for tail in [
                            "",
                            "/",
                            "/x",
                            "/%78",
                            "/x/status",
                            "/x/scale",
                            "/x/finalize",
                            "/x/token",
                            "/x/ephemeralcontainers",
                            "/x/approval",
                        ] {
                            for query in ["", "?watch=1", "?watch=false"] {
                                let path = format!("{root}/{}{place}/{plural}{tail}{query}", version.name);
                                seen += compare(&path, &registry);
                            }
                        }
                    }
                }
            }
        }
        assert!(seen > 1_000, "{seen} requests lead somewhere");
    }

    fn compare(path: &str, registry: &Registry) -> usize {
        let mut seen = 0;
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            let (parts, ()) = request.into_parts();
            let query = Query::parse(parts.uri.query().unwrap_or_default()).unwrap();
            let Ok(Target::Resource(done)) = find(&parts.method, parts.uri.path(), &query, registry) else {
                continue;
            };
            let ids = &done.resource.ids;
            // A namespace counts as being in itself.
            let own = if ids.plural.as_ref() == "namespaces" { &done.name } else { &done.namespace };
            let want = Attributes::Resource {
                verb: format!("{:?}", done.verb).to_lowercase(),
                group: ids.group.to_string(),
                resource: ids.plural.to_string(),
                subresource: done.subresource.as_str().to_owned(),
                namespace: own.clone(),
                name: done.name.clone(),
            };
            assert_eq!(attributes(&parts).unwrap(), want, "{method} {path}");
            seen += 1;
        }
        seen
    }
}
