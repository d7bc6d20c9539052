//! Does a rule allow a request, and does one rule say at least as much as another?

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Everything, in any list of a rule.
const ALL: &str = "*";

/// One `rbac.authorization.k8s.io/v1 PolicyRule`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    pub(super) verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(super) non_resource_urls: Vec<String>,
}

/// What a request wants to do, as the authorizer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attributes {
    /// With a resource, served or not.
    Resource {
        verb: String,
        group: String,
        resource: String,
        subresource: String,
        /// Empty at the cluster scope.
        namespace: String,
        /// Empty for collections.
        name: String,
    },
    /// With anything else the server says.
    Url { verb: String, path: String },
}

impl Attributes {
    /// Where bindings are looked for besides the cluster.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Attributes::Resource { namespace, .. } => namespace,
            Attributes::Url { .. } => "",
        }
    }

    /// What somebody cannot do, in Kubernetes' words.
    pub(super) fn refused(&self, user: &str) -> String {
        match self {
            Attributes::Url { verb, path } => format!("User {user:?} cannot {verb} path {path:?}"),
            Attributes::Resource { verb, group, resource, subresource, namespace, .. } => {
                let resource = combined(resource, subresource);
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
            }
        }
    }
}

impl Rule {
    /// Whether this rule alone allows a request.
    pub(super) fn allows(&self, asked: &Attributes) -> bool {
        match asked {
            Attributes::Url { verb, path } => {
                has(&self.verbs, verb) && self.non_resource_urls.iter().any(|url| url_covers(url, path))
            }
            Attributes::Resource { verb, group, resource, subresource, name, .. } => {
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && has_resource(&self.resources, &combined(resource, subresource))
                    && (self.resource_names.is_empty() || self.resource_names.contains(name))
            }
        }
    }

    /// Whether this rule alone says at least as much as another.
    pub(super) fn covers(&self, other: &Rule) -> bool {
        let all = |own: &[String], others: &[String]| others.iter().all(|one| has(own, one));
        let names = match (self.resource_names.as_slice(), other.resource_names.as_slice()) {
            ([], _) => true,
            (_, []) => other.resources.is_empty(),
            (own, others) => others.iter().all(|name| own.contains(name)),
        };
        names
            && all(&self.verbs, &other.verbs)
            && all(&self.api_groups, &other.api_groups)
            && other.resources.iter().all(|resource| has_resource(&self.resources, resource))
            && other
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|own| url_covers(own, url)))
    }

    /// How many requests the rule is about, if each list were spelled out.
    pub(super) fn combinations(&self) -> usize {
        let resources = self
            .api_groups
            .len()
            .saturating_mul(self.resources.len())
            .saturating_mul(self.resource_names.len().max(1));
        self.verbs.len().saturating_mul(resources.saturating_add(self.non_resource_urls.len()))
    }

    /// The same as rules about one thing each.
    pub(super) fn spelled_out(&self) -> impl Iterator<Item = Rule> + '_ {
        let names: Vec<Vec<String>> = match self.resource_names.as_slice() {
            [] => vec![Vec::new()],
            names => names.iter().map(|name| vec![name.clone()]).collect(),
        };
        let resources = self.api_groups.iter().flat_map(move |group| {
            let names = names.clone();
            self.resources.iter().flat_map(move |resource| {
                names.clone().into_iter().map(move |resource_names| Rule {
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names,
                    ..Rule::default()
                })
            })
        });
        let urls = self.non_resource_urls.iter();
        let urls = urls.map(|url| Rule { non_resource_urls: vec![url.clone()], ..Rule::default() });
        resources.chain(urls).flat_map(|one| {
            self.verbs.iter().map(move |verb| Rule { verbs: vec![verb.clone()], ..one.clone() })
        })
    }

    /// As Kubernetes writes a rule into a message.
    pub(super) fn compact(&self) -> String {
        let lists = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let said: Vec<String> = lists
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        format!("{{{}}}", said.join(", "))
    }
}

/// A list of texts as Go's `%q` writes it.
pub(super) fn quoted(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// `resource/subresource`, as rules write it.
pub(crate) fn combined<'a>(resource: &'a str, subresource: &str) -> Cow<'a, str> {
    if subresource.is_empty() { resource.into() } else { format!("{resource}/{subresource}").into() }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == ALL || one == wanted)
}

/// `*` is every resource and subresource, `*/scale` one subresource of all.
fn has_resource(list: &[String], wanted: &str) -> bool {
    let subresource = wanted.split_once('/').map(|(_, subresource)| subresource);
    list.iter().any(|one| {
        one == ALL || one == wanted || one.strip_prefix("*/").is_some_and(|any| Some(any) == subresource)
    })
}

/// `/healthz` is itself, `/api/*` everything below.
fn url_covers(rule: &str, path: &str) -> bool {
    rule == ALL || rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rule(rule: Value) -> Rule {
        serde_json::from_value(rule).unwrap()
    }

    fn asked(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes::Resource {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    #[test]
    fn a_rule_allows_what_it_names_and_nothing_else() {
        let named =
            json!({"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "*/scale"]});
        let one =
            json!({"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]});
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        for (rule_text, verb, group, resource, name, allowed) in [
            (&named, "get", "", "pods", "x", true),
            (&named, "list", "", "pods", "", true),
            (&named, "watch", "", "pods", "", false),
            (&named, "get", "batch", "pods", "x", false),
            (&named, "get", "", "pods/log", "x", false),
            (&named, "get", "apps", "deployments/scale", "x", true),
            (&named, "get", "apps", "deployments", "x", false),
            (&one, "get", "", "secrets", "a", true),
            (&one, "get", "", "secrets", "b", false),
            (&one, "list", "", "secrets", "", false),
            (&one, "create", "", "secrets", "", false),
            (&all, "delete", "x.y", "anything/sub", "n", true),
        ] {
            let got = rule(rule_text.clone()).allows(&asked(verb, group, resource, name));
            assert_eq!(got, allowed, "{verb} {resource}.{group} {name:?}");
        }
        let url = |path: &str| Attributes::Url { verb: "get".into(), path: path.into() };
        assert!(!rule(all).allows(&url("/healthz")), "resources are no paths");
        let urls = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}));
        assert!(urls.allows(&url("/healthz")) && urls.allows(&url("/api/v1")));
        assert!(!urls.allows(&url("/api")) && !urls.allows(&url("/healthz/etcd")));
        assert!(!Rule::default().allows(&url("")) && !Rule::default().allows(&asked("", "", "", "")));
    }

    #[test]
    fn a_rule_covers_what_asks_for_no_more() {
        let wide =
            rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/status"]}));
        let named =
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}));
        assert!(wide.covers(&named), "one name is less than all");
        assert!(!named.covers(&rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}))));
        for (other, covered) in [
            (json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}), false),
            (json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["pods"]}), false),
            (json!({"verbs": ["get"], "apiGroups": [""], "resources": ["jobs/status"]}), true),
            (json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*"]}), false),
            (json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), false),
        ] {
            assert_eq!(wide.covers(&rule(other.clone())), covered, "{other}");
        }
        let below = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}));
        assert!(below.covers(&rule(json!({"verbs": ["get"], "nonResourceURLs": ["/api/v1/*"]}))));
        assert!(!below.covers(&rule(json!({"verbs": ["get"], "nonResourceURLs": ["*"]}))));
    }

    #[test]
    fn a_rule_spelled_out_is_one_rule_a_combination() {
        let both =
            rule(json!({"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["a", "b", "c"],
                               "resourceNames": ["x", "y"], "nonResourceURLs": ["/z"]}));
        assert_eq!(both.combinations(), 2 * (2 * 3 * 2 + 1));
        assert_eq!(both.spelled_out().count(), both.combinations());
        assert!(both.spelled_out().all(|one| one.combinations() == 1));
    }

    #[test]
    fn a_rule_is_written_as_kubernetes_writes_it() {
        let rule = rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}));
        assert_eq!(rule.compact(), r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#);
    }
}
