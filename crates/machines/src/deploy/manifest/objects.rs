//! Which objects does an item mean: of which kind, where, and may it?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pawl_api::k8s::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, CONFIG_MAP, CRON_JOB, CUSTOM_RESOURCE_DEFINITION, DAEMON_SET,
    DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INGRESS, JOB, LEASE, NAMESPACE, NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM, POD, POD_DISRUPTION_BUDGET, REPLICA_SET, ROLE, ROLE_BINDING, SECRET, SERVICE,
    SERVICE_ACCOUNT, STATEFUL_SET,
};
use pawl_api::meta::{Kind, Reason, Target};
use pawl_api::pawl::labels::ALLOW_FROM;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::config::{self, Config, Policy};
use crate::cluster::namespace::lets_in;
use crate::deploy::target::{Ask, Call, Cluster, Place, Reply};
use crate::external::Answers;
use crate::failure::Failure;
use crate::object::{Key, Object, Reference};
use crate::view::{View, group_of};

/// Kubernetes' own kinds; those of others are known by their definitions, or asked for.
const BUILT_IN: &[Kind] = &[
    NAMESPACE,
    POD,
    SERVICE,
    SECRET,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    PERSISTENT_VOLUME_CLAIM,
    JOB,
    CRON_JOB,
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    REPLICA_SET,
    HORIZONTAL_POD_AUTOSCALER,
    LEASE,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    INGRESS,
    NETWORK_POLICY,
    Kind::of("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false),
    Kind::of("storage.k8s.io", "v1", "StorageClass", "storageclasses", false),
];

/// One object that is to be there.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) policy: Policy,
    pub(super) manifest: Value,
    /// Or why it cannot be.
    pub(super) managed: Result<Managed, (Reason, String)>,
}

/// An object that was, or is about to be, applied: as it stands in `providerStatus`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Managed {
    #[serde(flatten)]
    pub(super) kind: Kind,
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) policy: Policy,
}

impl Managed {
    pub(super) fn reference(&self) -> Reference {
        Reference { kind: self.kind.clone(), key: self.key.clone(), uid: String::new() }
    }

    /// The order in which objects are made; they go in the other.
    pub(super) fn class(&self) -> u8 {
        match (&self.kind, self.kind.namespaced) {
            (kind, _) if kind.same_kind(&CUSTOM_RESOURCE_DEFINITION) => 0,
            (_, false) => 1,
            (_, true) => 2,
        }
    }

    pub(super) fn same_object(&self, other: &Self) -> bool {
        self.kind.same_kind(&other.kind) && self.key == other.key
    }

    /// What it is called among the targets of all units; `None` where a name is none that can be locked.
    pub(super) fn target(&self) -> Option<Target> {
        let kind = match self.kind.group.as_ref() {
            "" => self.kind.kind.to_string(),
            group => format!("{}.{group}", self.kind.kind),
        };
        Target::object(self.key.namespace.as_deref(), &kind, &self.key.name).ok()
    }
}

/// What this deployer keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Kept {
    pub(super) managed_resources: Vec<Managed>,
    /// The job in which they were applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) applied_in: Option<String>,
    /// The Target through which they were made; none where Pawl made them itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
}

impl Kept {
    pub(super) fn of(provider_status: &Map<String, Value>) -> Self {
        Self::deserialize(Value::Object(provider_status.clone())).unwrap_or_default()
    }

    pub(super) fn written(&self) -> Option<Map<String, Value>> {
        serde_json::to_value(self).ok()?.as_object().cloned()
    }
}

/// Knows the kinds of the cluster that an item is deployed to.
pub(super) struct Kinds<'a> {
    view: &'a dyn View,
    place: &'a Place,
    /// What the item brings itself.
    definitions: Vec<&'a Value>,
    heard: BTreeMap<(String, String), Option<Kind>>,
    /// What is to be asked first.
    pub(super) pending: Option<Call>,
    /// Why the question was not answered.
    pub(super) failed: Option<Failure>,
}

impl<'a> Kinds<'a> {
    pub(super) fn of(view: &'a dyn View, answers: &Answers, place: &'a Place, config: &'a Config) -> Self {
        let definitions = config.manifests.iter().map(|entry| entry.parts().1).collect();
        let mut kinds =
            Self { view, place, definitions, heard: BTreeMap::new(), pending: None, failed: None };
        let Place::Through { cluster, home: false } = place else { return kinds };
        let unknown: BTreeSet<(String, String)> =
            named(config).filter(|(version, kind)| kinds.known(version, kind).is_none()).collect();
        if unknown.is_empty() {
            return kinds;
        }
        let unknown: Vec<(String, String)> = unknown.into_iter().collect();
        let call = Call { cluster: Arc::clone(cluster), ask: Ask::Kinds(unknown.clone()) };
        match answers.get(&call) {
            None => kinds.pending = Some(call),
            Some(Err(failure)) => kinds.failed = Some(failure.clone()),
            Some(Ok(Reply::Kinds(found))) => {
                kinds.heard = unknown.into_iter().zip(found.iter().cloned()).collect();
            }
            Some(Ok(Reply::Objects(_) | Reply::Carried)) => {}
        }
        kinds
    }

    pub(super) fn resolve(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let heard = || self.heard.get(&(api_version.to_owned(), kind.to_owned())).cloned().flatten();
        let here = || self.view.resolve(api_version, kind).filter(|_| self.place.is_home());
        let found = self.known(api_version, kind).or_else(heard).or_else(here)?;
        Some(Kind { version: version.to_owned().into(), ..found })
    }

    /// Without asking anybody.
    fn known(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let group = group_of(api_version);
        let built_in = BUILT_IN.iter().find(|known| known.group == group && known.kind == kind).cloned();
        let brought = || self.definitions.iter().find_map(|raw| defined(raw, api_version, kind));
        let installed = || {
            let installed = self.view.list(&CUSTOM_RESOURCE_DEFINITION, None);
            installed.iter().find_map(|object| defined(object.raw(), api_version, kind))
        };
        let found = built_in.or_else(brought);
        if self.place.is_home() { found.or_else(installed) } else { found }
    }
}

/// Every kind that a configuration names.
fn named(config: &Config) -> impl Iterator<Item = (String, String)> + '_ {
    let manifests = config.manifests.iter().filter_map(|entry| {
        let text = |field: &str| entry.parts().1.get(field).and_then(Value::as_str).map(str::to_owned);
        Some((text("apiVersion")?, text("kind")?))
    });
    let places = config.places().map(|place| (place.api_version.clone(), place.kind.clone()));
    let by = config.exports.exports.iter().filter_map(|export| export.from_object_ref.as_ref());
    manifests.chain(places).chain(by.map(|by| (by.api_version.clone(), by.kind.clone())))
}

/// The kind that a definition defines, if it is this one.
fn defined(definition: &Value, api_version: &str, kind: &str) -> Option<Kind> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
    let it = text("/spec/group") == Some(group_of(api_version)) && text("/spec/names/kind") == Some(kind);
    let plural = text("/spec/names/plural").filter(|_| it)?.to_owned();
    Some(Kind {
        group: group_of(api_version).to_owned().into(),
        version: api_version.rsplit('/').next().unwrap_or_default().to_owned().into(),
        kind: kind.to_owned().into(),
        plural: plural.into(),
        namespaced: text("/spec/scope") == Some("Namespaced"),
    })
}

/// Who an item is, as far as its power goes.
#[derive(Clone, Copy)]
pub(super) struct Power<'a> {
    pub(super) view: &'a dyn View,
    pub(super) home: &'a str,
    pub(super) system_namespace: &'a str,
    pub(super) place: &'a Place,
}

impl Power<'_> {
    /// A unit acts in its own namespace; elsewhere only where that namespace says so, and on what belongs to no namespace
    /// only from the system's. On another cluster its credentials say what it may.
    pub(super) fn over(&self, kind: &Kind, namespace: Option<&str>) -> Result<(), String> {
        let Self { view, home, system_namespace, place } = *self;
        match namespace {
            _ if !place.is_home() || home == system_namespace => Ok(()),
            None => Err(format!(
                "{} belongs to no namespace; only items in {system_namespace} may deploy it",
                kind.kind
            )),
            Some(namespace) if namespace == home => Ok(()),
            Some(namespace) => {
                let there = view.get(&NAMESPACE, &Key::new(None, namespace));
                if lets_in(there.as_deref(), home) {
                    return Ok(());
                }
                Err(format!("the namespace {namespace} is not labelled {ALLOW_FROM}: {home}"))
            }
        }
    }
}

pub(super) fn wanted(kinds: &Kinds<'_>, power: Power<'_>, at: usize, entry: &config::Entry) -> Wanted {
    let (policy, manifest) = entry.parts();
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let place = format!("spec.config.manifests[{at}]");
    let managed = match (text("/apiVersion"), text("/kind"), text("/metadata/name")) {
        (Some(version), Some(kind), Some(name)) => match kinds.resolve(version, kind) {
            Some(kind) => {
                let namespace =
                    kind.namespaced.then(|| text("/metadata/namespace").unwrap_or(power.home).to_owned());
                power
                    .over(&kind, namespace.as_deref())
                    .map(|()| Managed { kind, key: Key { namespace, name: name.to_owned() }, policy })
                    .map_err(|problem| (Reason::NamespaceNotAllowed, format!("{place}: {problem}")))
            }
            None => {
                Err((Reason::NotFound, format!("{place}: the kind {kind} of {version} is not known there")))
            }
        },
        _ => Err((Reason::Invalid, format!("{place}: apiVersion, kind and metadata.name are needed"))),
    };
    Wanted { policy, manifest: manifest.clone(), managed }
}

/// Where a place of the configuration is, if the item may look there.
pub(super) fn located(
    kinds: &Kinds<'_>,
    power: Power<'_>,
    place: &config::Place,
) -> Result<Reference, String> {
    let kind = kinds
        .resolve(&place.api_version, &place.kind)
        .ok_or_else(|| format!("the kind {} of {} is not known there", place.kind, place.api_version))?;
    let namespace = kind.namespaced.then(|| place.namespace.as_deref().unwrap_or(power.home).to_owned());
    power.over(&kind, namespace.as_deref())?;
    let key = Key { namespace, name: place.name.clone() };
    Ok(Reference { kind, key, uid: String::new() })
}

/// The call that reads these, wherever the item is deployed to.
pub(super) fn read(place: &Place, places: Vec<Reference>) -> Call {
    let cluster = match place {
        Place::Through { cluster, .. } => Arc::clone(cluster),
        Place::Here | Place::Missing(_) | Place::Unusable(_) => Arc::new(Cluster::Own),
    };
    Call { cluster, ask: Ask::Read(places) }
}

/// An object that was read, as a cache would hold it.
pub(super) fn object(reference: &Reference, raw: &Value) -> Option<Arc<Object>> {
    Object::new(reference.kind.clone(), raw.clone()).ok()
}
