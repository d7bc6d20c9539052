//! Which kinds an API server serves, asked of its discovery documents.
//!
//! Nothing is concluded from silence or from a page that some proxy sent: a kind is absent only if a document that
//! speaks Kubernetes does not name it.

use std::collections::BTreeSet;

use http::{Request, header};
use pawl_api::meta::Kind;
use pawl_machines::failure::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::wire::Wire;

/// Definitions of kinds: what changes when a kind comes or goes.
pub const CRD: Kind =
    Kind::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false);

/// Never looked at as part of "every kind": there are thousands, they come and go, and they own nothing.
const NOT_EVERY: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// All kinds that can be listed, watched and deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Every {
    /// One version of each.
    pub kinds: BTreeSet<Kind>,
    /// Groups that did not answer (an aggregated server that is down): what is known of them stays.
    pub silent: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    versions: Vec<Version>,
    #[serde(default)]
    preferred_version: Option<Version>,
}

#[derive(Clone, Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Whether a kind is served.
///
/// # Errors
/// When the API server did not say so, one way or the other.
pub async fn serves(wire: &Wire, kind: &Kind) -> Result<bool, Failure> {
    if !kind.group.is_empty() {
        let groups = ask::<Groups>(wire, "/apis").await?.groups;
        let group = groups.iter().find(|group| group.name == kind.group);
        if !group.is_some_and(|group| group.versions.iter().any(|served| served.version == kind.version)) {
            return Ok(false);
        }
    }
    let resources = ask::<Resources>(wire, &path(&kind.group, &kind.version)).await?.resources;
    Ok(resources.iter().any(|resource| resource.name == kind.plural))
}

/// All there is.
///
/// # Errors
/// When the API server did not answer at all.
pub async fn every(wire: &Wire) -> Result<Every, Failure> {
    let mut every = Every::default();
    let core = ask::<Resources>(wire, &path("", "v1")).await?;
    take(&mut every.kinds, "", "v1", core);
    for Group { name, versions, preferred_version } in ask::<Groups>(wire, "/apis").await?.groups {
        // The preferred version first: a kind is watched in one version only.
        let preferred = preferred_version.iter().map(|preferred| preferred.version.clone());
        let mut asked = BTreeSet::new();
        for version in preferred.chain(versions.iter().map(|version| version.version.clone())) {
            if !asked.insert(version.clone()) {
                continue;
            }
            match ask::<Resources>(wire, &path(&name, &version)).await {
                Ok(resources) => take(&mut every.kinds, &name, &version, resources),
                Err(failure) => {
                    tracing::warn!(group = name, version, %failure, "a group does not say what it serves");
                    every.silent.insert(name.clone());
                }
            }
        }
    }
    Ok(every)
}

fn take(kinds: &mut BTreeSet<Kind>, group: &str, version: &str, Resources { resources }: Resources) {
    for Resource { name, kind, namespaced, verbs } in resources {
        let can = |verb: &str| verbs.iter().any(|known| known == verb);
        let wanted = can("list") && can("watch") && can("delete");
        // A subresource has a slash in its name.
        if !wanted || name.contains('/') || NOT_EVERY.contains(&(group, name.as_str())) {
            continue;
        }
        if !kinds.iter().any(|known| known.group == group && known.plural == name) {
            let (group, version) = (group.to_owned().into(), version.to_owned().into());
            kinds.insert(Kind { group, version, kind: kind.into(), plural: name.into(), namespaced });
        }
    }
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

async fn ask<T: DeserializeOwned>(wire: &Wire, path: &str) -> Result<T, Failure> {
    let attempt = format!("discover {path}");
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = path.parse().unwrap_or_default();
    request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
    let reply = wire.ask(request, &attempt).await?;
    serde_json::from_slice(&reply.body)
        .map_err(|error| Failure::unanswered(attempt, format!("not a discovery document: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_is_taken_once_without_subresources_and_events() {
        let document = |verbs: &[&str]| {
            serde_json::from_value(json!({"resources": [
                {"name": "jobs", "kind": "Job", "namespaced": true, "verbs": verbs},
                {"name": "jobs/status", "kind": "Job", "namespaced": true, "verbs": verbs},
            ]}))
            .unwrap()
        };
        let mut kinds = BTreeSet::new();
        let events = json!({"resources": [{"name": "events", "kind": "Event", "namespaced": true,
            "verbs": ["list", "watch", "delete"]}]});
        take(&mut kinds, "", "v1", serde_json::from_value(events).unwrap());
        take(&mut kinds, "batch", "v0", document(&["get", "list"]));
        assert!(kinds.is_empty());
        take(&mut kinds, "batch", "v2", document(&["list", "watch", "delete"]));
        take(&mut kinds, "batch", "v1", document(&["list", "watch", "delete"]));
        assert_eq!(kinds.len(), 1);
        assert_eq!(kinds.first().unwrap().api_version(), "batch/v2");
    }
}
