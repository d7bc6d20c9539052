//! What do the stored roles and bindings allow?
//!
//! Compiled once and kept as long as none of them changes. When one does, only that one is read again:
//!
//! ```text
//! Roles, ClusterRoles ──read──▶ rules by role ─┐
//! their Bindings ───────read──▶ bound ─────────┴─▶ rules by namespace and subject
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::identity::{Identity, account_name};
use super::rules::{Attributes, Rule};
use crate::selector::Requirement;
use crate::store::{Labels, Object, Parsed, Store};

/// The group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const TABLES: [&str; 4] = [ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS];

/// All roles and bindings at some moment.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// The revisions of the tables this was made from.
    made_from: [u64; 4],
    roles: Parsed<Role>,
    cluster_roles: Parsed<Role>,
    bindings: Parsed<Bound>,
    cluster_bindings: Parsed<Bound>,
    /// By namespace; those under the empty one hold everywhere.
    granted: HashMap<String, Granted>,
    /// What each ClusterRole comes to, aggregated or not.
    cluster_rules: HashMap<Box<str>, Arc<[Rule]>>,
}

/// A Role or a ClusterRole.
#[derive(Debug)]
struct Role {
    rules: Arc<[Rule]>,
    labels: Labels,
    /// ClusterRoles: the rules are those of the roles that one of these selects.
    aggregates: Option<Vec<Vec<Requirement>>>,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Debug)]
struct Bound {
    namespace: String,
    name: String,
    /// A ClusterRole, not a Role.
    cluster_role: bool,
    role: String,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    group: bool,
    name: String,
    said: String,
}

#[derive(Debug, Default)]
struct Granted {
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

/// What one binding gives one subject.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) rules: Arc<[Rule]>,
    /// `RoleBinding "a/ns" of Role "r" to User "u"`
    why: Arc<str>,
}

impl Policy {
    /// The same if the store has nothing new, or what the store says now.
    pub(crate) fn current(store: &Store, known: &Arc<Policy>) -> Arc<Policy> {
        // Asked before reading: a write in between makes the next question read again.
        let now = TABLES.map(|table| store.table_revision(table));
        if known.made_from == now { known.clone() } else { Arc::new(Policy::read(store, now, known)) }
    }

    fn read(store: &Store, made_from: [u64; 4], before: &Policy) -> Policy {
        let mut policy = Policy {
            made_from,
            roles: store.parsed(ROLES, &before.roles, role),
            cluster_roles: store.parsed(CLUSTER_ROLES, &before.cluster_roles, role),
            bindings: store.parsed(BINDINGS, &before.bindings, bound),
            cluster_bindings: store.parsed(CLUSTER_BINDINGS, &before.cluster_bindings, bound),
            ..Policy::default()
        };
        policy.cluster_rules =
            policy.cluster_roles.keys().map(|name| (name.clone(), policy.effective(name))).collect();
        let mut granted: HashMap<String, Granted> = HashMap::new();
        for (_, bound) in policy.bindings.values().chain(policy.cluster_bindings.values()) {
            let Some(rules) = policy.role_rules(bound.cluster_role, &bound.namespace, &bound.role) else {
                continue;
            };
            let granted = granted.entry(bound.namespace.clone()).or_default();
            for subject in &bound.subjects {
                let held = if subject.group { &mut granted.groups } else { &mut granted.users };
                let grant = Grant { rules: rules.clone(), why: bound.why(subject).into() };
                held.entry(subject.name.clone()).or_default().push(grant);
            }
        }
        policy.granted = granted;
        policy
    }

    /// Why somebody may do something; `None` if nothing says they may.
    pub(super) fn allows(&self, who: &Identity, asked: &Attributes) -> Option<String> {
        if who.is_master() {
            return Some(String::new());
        }
        self.grants(who, asked.namespace())
            .find(|grant| grant.rules.iter().any(|rule| rule.allows(asked)))
            .map(|grant| format!("RBAC: allowed by {}", grant.why))
    }

    /// Everything somebody is given in a namespace, the cluster's bindings first.
    pub(super) fn grants<'a>(
        &'a self,
        who: &'a Identity,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Grant> {
        let own = (!namespace.is_empty()).then_some(namespace);
        let granted = [Some(""), own].into_iter().flatten().filter_map(|scope| self.granted.get(scope));
        granted.flat_map(|granted| {
            let groups = who.groups.iter().filter_map(|group| granted.groups.get(group));
            granted.users.get(&who.name).into_iter().chain(groups).flatten()
        })
    }

    /// The rules of a role, if there is such a role.
    pub(super) fn role_rules(&self, cluster_role: bool, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        if cluster_role {
            return self.cluster_rules.get(name).cloned();
        }
        // A Role is in a namespace, and a binding reaches no other one by the name it writes.
        if namespace.is_empty() || name.contains('/') {
            return None;
        }
        let (_, role) = self.roles.get(&crate::store::key(namespace, name))?;
        Some(role.rules.clone())
    }

    /// What a ClusterRole comes to: its own rules, or those of all it selects, however far that leads.
    fn effective(&self, name: &str) -> Arc<[Rule]> {
        let Some((_, role)) = self.cluster_roles.get(name) else { return Arc::default() };
        if role.aggregates.is_none() {
            return role.rules.clone();
        }
        let mut seen = BTreeSet::from([name]);
        let (mut queue, mut rules) = (vec![role], Vec::new());
        while let Some(role) = queue.pop() {
            let Some(selectors) = &role.aggregates else {
                rules.extend(role.rules.iter().cloned());
                continue;
            };
            for (other, (_, candidate)) in &self.cluster_roles {
                let chosen = selectors.iter().any(|s| s.iter().all(|r| r.matches(&candidate.labels)));
                if chosen && seen.insert(other) {
                    queue.push(candidate);
                }
            }
        }
        rules.into()
    }
}

impl Bound {
    fn why(&self, subject: &Subject) -> String {
        let role = if self.cluster_role { "ClusterRole" } else { "Role" };
        let binding = if self.namespace.is_empty() {
            format!("ClusterRoleBinding {:?}", self.name)
        } else {
            format!("RoleBinding {:?}", format!("{}/{}", self.name, self.namespace))
        };
        format!("{binding} of {role} {:?} to {}", self.role, subject.said)
    }
}

fn role(object: &Object) -> Role {
    let value = object.value();
    let selectors = value.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
    Role {
        rules: rules(&value).into(),
        labels: object.meta.labels.clone(),
        aggregates: selectors.map(|list| list.iter().filter_map(requirements).collect()),
    }
}

/// The rules in a role. One that cannot be read allows nothing.
pub(super) fn rules(role: &Value) -> Vec<Rule> {
    let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
    rules.filter_map(|rule| serde_json::from_value(rule.clone()).ok()).collect()
}

/// A `metav1.LabelSelector`; `None` if it cannot be understood, and so must select nothing.
fn requirements(selector: &Value) -> Option<Vec<Requirement>> {
    let mut out = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        out.push(Requirement::In(key.clone(), vec![value.as_str()?.to_owned()]));
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression.get("key")?.as_str()?.to_owned();
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values: Option<Vec<String>> = values.map(|v| v.as_str().map(str::to_owned)).collect();
        out.push(match expression.get("operator")?.as_str()? {
            "In" => Requirement::In(key, values?),
            "NotIn" => Requirement::NotIn(key, values?),
            "Exists" => Requirement::Exists(key),
            "DoesNotExist" => Requirement::Absent(key),
            _ => return None,
        });
    }
    Some(out)
}

fn bound(object: &Object) -> Bound {
    let value = object.value();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let subjects = value.get("subjects").and_then(Value::as_array).into_iter().flatten();
    Bound {
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        cluster_role: text("/roleRef/kind") == "ClusterRole",
        role: text("/roleRef/name"),
        subjects: subjects.filter_map(|subject| read_subject(subject, object.namespace())).collect(),
    }
}

fn read_subject(subject: &Value, binding_namespace: &str) -> Option<Subject> {
    let text = |key: &str| subject.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (kind, name) = (text("kind")?, text("name")?);
    let said = format!("{kind} {name:?}");
    match kind {
        "User" => Some(Subject { group: false, name: name.to_owned(), said }),
        "Group" => Some(Subject { group: true, name: name.to_owned(), said }),
        "ServiceAccount" => {
            let namespace = text("namespace").unwrap_or(binding_namespace);
            let said = format!("{kind} {:?}", format!("{name}/{namespace}"));
            let named = || Subject { group: false, name: account_name(namespace, name), said };
            (!namespace.is_empty()).then(named)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::policy;
    use crate::access::tests::{guarded, post};
    use serde_json::json;

    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

    fn user(name: &str, groups: &[&str]) -> Identity {
        Identity {
            name: name.into(),
            groups: groups.iter().map(|&g| g.into()).collect(),
            ..Identity::default()
        }
    }

    fn asked(verb: &str, resource: &str, namespace: &str) -> Attributes {
        Attributes::Resource {
            verb: verb.into(),
            group: String::new(),
            resource: resource.into(),
            subresource: String::new(),
            namespace: namespace.into(),
            name: String::new(),
        }
    }

    #[test]
    fn bindings_give_their_subjects_the_role_where_they_are() {
        let server = guarded();
        let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
        let make = |path: &str, body: Value| {
            let (code, body) = post(&server, &format!("{RBAC}/{path}"), &body);
            assert_eq!(code, 201, "{body}");
        };
        make("namespaces/default/roles", json!({"metadata": {"name": "r"}, "rules": rules}));
        make("clusterroles", json!({"metadata": {"name": "c"}, "rules": rules}));
        let subjects = json!([
            {"kind": "User", "name": "ann"}, {"kind": "Group", "name": "devs"}, {"kind": "ServiceAccount", "name": "bot"},
            {"kind": "ServiceAccount", "name": "far", "namespace": "kube-system"},
        ]);
        make(
            "namespaces/default/rolebindings",
            json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects}),
        );
        make(
            "namespaces/kube-public/rolebindings",
            json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "c"},
                   "subjects": [{"kind": "User", "name": "bea"}]}),
        );
        make(
            "clusterrolebindings",
            json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "c"},
                   "subjects": [{"kind": "User", "name": "cleo"}]}),
        );
        make(
            "clusterrolebindings",
            json!({"metadata": {"name": "dangling"}, "roleRef": {"kind": "ClusterRole", "name": "absent"},
                   "subjects": [{"kind": "User", "name": "dan"}]}),
        );
        let policy = server.core().policy();
        assert!(
            policy.role_rules(false, "", "default/r").is_none(),
            "a Role is reached from its namespace alone"
        );
        for (who, namespace, allowed) in [
            (user("ann", &[]), "default", true),
            (user("ann", &[]), "kube-public", false),
            (user("ann", &[]), "", false),
            (user("x", &["devs"]), "default", true),
            (user("devs", &["ann"]), "default", false),
            (user("system:serviceaccount:default:bot", &[]), "default", true),
            (user("system:serviceaccount:kube-system:far", &[]), "default", true),
            (user("system:serviceaccount:default:far", &[]), "default", false),
            (user("bea", &[]), "kube-public", true),
            (user("bea", &[]), "default", false),
            (user("cleo", &[]), "default", true),
            (user("cleo", &[]), "", true),
            (user("dan", &[]), "default", false),
            (user("", &[]), "default", false),
            (user("root", &["system:masters"]), "", true),
        ] {
            let got = policy.allows(&who, &asked("list", "pods", namespace)).is_some();
            assert_eq!(got, allowed, "{} in {namespace:?}", who.name);
            let more = policy.allows(&who, &asked("delete", "pods", namespace)).is_some();
            assert_eq!(more, who.is_master(), "{} deletes in {namespace:?}", who.name);
        }
        let why = policy.allows(&user("ann", &[]), &asked("list", "pods", "default")).unwrap();
        assert_eq!(why, r#"RBAC: allowed by RoleBinding "b/default" of Role "r" to User "ann""#);
    }

    #[test]
    fn nothing_is_read_again_while_nothing_changes() {
        let server = guarded();
        let first = server.core().policy();
        assert!(Arc::ptr_eq(&first, &server.core().policy()));
        post(&server, "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "a"}}));
        assert!(Arc::ptr_eq(&first, &server.core().policy()), "no role, no binding");
        let role = json!({"metadata": {"name": "r"}, "rules": []});
        post(&server, &format!("{RBAC}/namespaces/default/roles"), &role);
        let second = server.core().policy();
        assert!(!Arc::ptr_eq(&first, &second));
        let of = |policy: &policy::Policy| policy.cluster_roles["view"].1.clone();
        assert!(Arc::ptr_eq(&of(&first), &of(&second)), "a role that did not change is not read again");
    }

    #[test]
    fn an_aggregated_role_is_what_it_selects() {
        let server = guarded();
        let make = |name: &str, extra: Value| {
            let mut role = json!({"metadata": {"name": name}});
            role.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            role["metadata"]["labels"] = extra["labels"].clone();
            role.as_object_mut().unwrap().remove("labels");
            let (code, body) = post(&server, &format!("{RBAC}/clusterroles"), &role);
            assert_eq!(code, 201, "{body}");
        };
        let select = |label: &str| json!({"clusterRoleSelectors": [{"matchLabels": {label: "yes"}}]});
        let rules = |verb: &str| json!([{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]);
        make(
            "outer",
            json!({"aggregationRule": select("in-outer"), "rules": rules("ignored"), "labels": {"in-inner": "yes"}}),
        );
        make("inner", json!({"aggregationRule": select("in-inner"), "labels": {"in-outer": "yes"}}));
        make("leaf", json!({"rules": rules("get"), "labels": {"in-inner": "yes"}}));
        let policy = server.core().policy();
        for name in ["outer", "inner"] {
            let rules = policy.role_rules(true, "", name).unwrap();
            assert_eq!(rules.iter().map(|r| r.verbs.join(",")).collect::<Vec<_>>(), ["get"], "{name}");
        }
    }
}
