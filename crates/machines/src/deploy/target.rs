//! Which cluster does an item's Target mean, and what may be asked of it?
//!
//! ```text
//! no Target, or selfConfig ───────────▶ here, as Pawl: steps of the plan, watches of the loop
//! selfConfig with a serviceAccount ───▶ this cluster, as that ServiceAccount ┐ through a port: calls of the plan
//! a kubeconfig, {kubeconfig}, secretRef ▶ another cluster                    ┘ (docs/decisions/0013)
//! ```
//! Credentials never pass through here: a call names the Target, and the port reads it and its Secret (I6).

use std::fmt;
use std::sync::Arc;

use pawl_api::deploy::{Target, target, types};
use pawl_api::meta::{Kind, names};
use serde_json::Value;

use crate::external::Request;
use crate::object::{Key, Object, Reference};
use crate::plan::Step;
use crate::view::View;

/// Which cluster, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cluster {
    /// The one that Pawl runs on, as Pawl itself.
    Own,
    /// What a Target says. The version tells calls before and after a change of it apart.
    Target { key: Key, version: String },
}

/// Something to be asked of a cluster, or done there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub cluster: Arc<Cluster>,
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Which kinds are these (`apiVersion`, `kind`) there?
    Kinds(Vec<(String, String)>),
    /// The objects at these places.
    Read(Vec<Reference>),
    /// Carries out steps, one after the other, until one fails.
    Carry(Steps),
}

/// What came back. It is never shown: objects may hold secrets (I6).
#[derive(Clone, PartialEq)]
pub enum Reply {
    /// In the order of the question; `None` where there is no such kind.
    Kinds(Vec<Option<Kind>>),
    /// In the order of the question; `None` where there is none.
    Objects(Vec<Option<Value>>),
    Carried,
}

/// Steps as part of a call: two lists that say the same are the same.
#[derive(Clone)]
pub struct Steps {
    hash: String,
    steps: Arc<[Step]>,
}

impl Steps {
    pub fn of(steps: Vec<Step>) -> Self {
        let hash = names::hash(&[&format!("{steps:?}")], 32);
        Self { hash, steps: steps.into() }
    }

    pub fn to_vec(&self) -> Vec<Step> {
        self.steps.to_vec()
    }
}

impl PartialEq for Steps {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Steps {}

impl PartialOrd for Steps {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Steps {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.hash.cmp(&other.hash)
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the content: manifests may be Secrets.
        write!(f, "{} steps {}", self.steps.len(), self.hash)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kinds(kinds) => write!(f, "{} kinds", kinds.len()),
            Self::Objects(objects) => write!(f, "{} objects", objects.len()),
            Self::Carried => f.write_str("carried out"),
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("this cluster"),
            Self::Target { key, .. } => write!(f, "Target {key}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.ask {
            Ask::Kinds(kinds) => format!("look up {} kinds", kinds.len()),
            Ask::Read(places) => format!("read {} objects", places.len()),
            Ask::Carry(steps) => format!("carry out {} steps", steps.steps.len()),
        };
        write!(f, "{}: {what}", self.cluster)
    }
}

impl Cluster {
    /// The name of the Target.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Own => None,
            Self::Target { key, .. } => Some(&key.name),
        }
    }
}

impl Request for Call {
    type Reply = Reply;
    const SYSTEM: &'static str = "cluster";

    fn is_write(&self) -> bool {
        match self.ask {
            Ask::Carry(_) => true,
            Ask::Kinds(_) | Ask::Read(_) => false,
        }
    }
}

/// Where an item is deployed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Where Pawl runs, as Pawl.
    Here,
    /// Through a port. `home`: it is the cluster that Pawl runs on, where another namespace must allow it.
    Through { cluster: Arc<Cluster>, home: bool },
    /// The Target that it names is not there.
    Missing(String),
    /// The Target is none that this deployer serves.
    Unusable(String),
}

impl Place {
    /// What the item's Target says.
    pub(super) fn of(view: &dyn View, me: &Object, name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Here };
        let key = Key::new(me.namespace(), name);
        let Some(found) = view.get(&target::KIND, &key) else {
            return Self::Missing(format!("Target {name} is not there"));
        };
        let spec = match found.parse::<Target>() {
            Ok(target) => target.spec.clone(),
            Err(malformed) => return Self::Unusable(malformed.to_string()),
        };
        if spec.type_ != types::KUBERNETES_CLUSTER {
            let known = types::KUBERNETES_CLUSTER;
            return Self::Unusable(format!(
                "Target {name}: spec.type {:?} is no cluster; write {known}",
                spec.type_
            ));
        }
        let version = format!("{}@{}", found.uid(), found.resource_version());
        let through = |home| {
            let cluster = Arc::new(Cluster::Target { key: key.clone(), version: version.clone() });
            Self::Through { cluster, home }
        };
        match (&spec.config, &spec.secret_ref) {
            (Value::Null, Some(_)) => through(false),
            (Value::Null, None) => {
                Self::Unusable(format!("Target {name}: spec.config or spec.secretRef is needed"))
            }
            (config, _) => match config.get("selfConfig") {
                None => through(false),
                Some(own) => match service_account(own) {
                    Some(_) => through(true),
                    None => Self::Here,
                },
            },
        }
    }

    /// Whose word it takes that another namespace may be acted in.
    pub(super) fn is_home(&self) -> bool {
        match self {
            Self::Here => true,
            Self::Through { home, .. } => *home,
            Self::Missing(_) | Self::Unusable(_) => false,
        }
    }
}

/// The ServiceAccount that a `selfConfig` names.
pub fn service_account(own: &Value) -> Option<&str> {
    own.pointer("/serviceAccount/name").and_then(Value::as_str).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Adopt;
    use crate::testing::Cluster as Fake;
    use pawl_api::deploy::deploy_item;
    use serde_json::json;

    #[test]
    fn a_target_is_here_or_elsewhere_or_says_what_is_wrong_with_it() {
        let mut fake = Fake::of(&[target::KIND, deploy_item::KIND], "");
        let me =
            Object::new(deploy_item::KIND, json!({"metadata": {"name": "i", "namespace": "n"}})).unwrap();
        let mut place = |spec: Value| {
            fake.put(json!({"kind": "Target", "metadata": {"name": "t"}, "spec": spec}));
            Place::of(&fake.world, &me, Some("t"))
        };
        let cluster = types::KUBERNETES_CLUSTER;
        assert_eq!(place(json!({"type": cluster, "config": {"selfConfig": {}}})), Place::Here);
        let named = json!({"selfConfig": {"serviceAccount": {"name": "sa"}}});
        assert!(matches!(
            place(json!({"type": cluster, "config": named})),
            Place::Through { home: true, .. }
        ));
        let kubeconfig = json!({"type": cluster, "config": {"kubeconfig": "text"}});
        assert!(matches!(place(kubeconfig), Place::Through { home: false, .. }));
        let secret = json!({"type": cluster, "secretRef": {"name": "s"}});
        assert!(matches!(place(secret), Place::Through { home: false, .. }));
        assert!(matches!(place(json!({"type": "other"})), Place::Unusable(why) if why.contains("other")));
        assert!(matches!(place(json!({"type": cluster})), Place::Unusable(why) if why.contains("secretRef")));
        assert!(matches!(Place::of(&fake.world, &me, Some("x")), Place::Missing(_)));
        assert_eq!(Place::of(&fake.world, &me, None), Place::Here);
    }

    #[test]
    fn i6_what_a_call_carries_is_not_shown() {
        let manifest = json!({"metadata": {"name": "s"}, "stringData": {"k": "not-a-real-secret"}});
        let steps = Steps::of(vec![Step::Create { kind: target::KIND, manifest, adopt: Adopt::Anyones }]);
        let call = Call { cluster: Arc::new(Cluster::Own), ask: Ask::Carry(steps) };
        assert!(!format!("{call} {call:?}").contains("not-a-real-secret"));
        let reply = Reply::Objects(vec![Some(json!({"data": "not-a-real-secret"}))]);
        assert!(!format!("{reply:?}").contains("not-a-real-secret"));
    }
}
