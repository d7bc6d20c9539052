//! What is to be done for an item that is a list of Kubernetes objects?
//!
//! ```text
//! write down what will be made ─▶ delete what left the list, apply the rest (CRDs, cluster-scoped, namespaced) ─▶ ready?
//! ```
//! What is made is written to `providerStatus` before it is made, so that nothing is ever left behind. Objects are
//! applied by server-side apply once per job; after that their own changes wake the item, where their kind is one that
//! is watched in full ([`WATCHED`]). Taking down goes backwards, and is over when the API server says that all are gone.
//!
//! Only the cluster that Pawl runs on is served so far (docs/decisions/0009).

mod config;
mod readiness;

use std::collections::BTreeMap;
use std::sync::Arc;

use pawl_api::deploy::{DeployItem, DeployItemPhase, DeployItemStatus, Target, labels, target};
use pawl_api::k8s::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, CONFIG_MAP, CRON_JOB, CUSTOM_RESOURCE_DEFINITION, DAEMON_SET,
    DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, JOB, LEASE, NAMESPACE, PERSISTENT_VOLUME_CLAIM, POD,
    POD_DISRUPTION_BUDGET, REPLICA_SET, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT, STATEFUL_SET,
};
use pawl_api::meta::{Kind, Reason};
use pawl_api::pawl::labels::ALLOW_FROM;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::config::{Config, MAX_MANIFESTS, Place, Policy};
use self::readiness::Ready;
use super::deploy_item::{Come, Observed, Work};
use super::item_job::Flow;
use super::json_path::Path;
use crate::cluster::namespace::lets_in;
use crate::object::{Key, Object, Reference};
use crate::plan::{Adopt, Propagation, Step, Waiting};
use crate::view::{View, group_of};

/// The kinds of which the whole object is seen: those that can be not ready yet, and those that hold what is exported.
pub(super) const WATCHED: &[Kind] =
    &[DEPLOYMENT, STATEFUL_SET, DAEMON_SET, REPLICA_SET, POD, JOB, SECRET, CONFIG_MAP, SERVICE];

/// Kubernetes' own kinds; those of others are known by their definitions.
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
    Kind::of("networking.k8s.io", "v1", "Ingress", "ingresses", true),
    Kind::of("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true),
    Kind::of("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false),
    Kind::of("storage.k8s.io", "v1", "StorageClass", "storageclasses", false),
];

/// What an item of this deployer depends on.
#[derive(Debug)]
pub(super) struct Facts {
    config: Result<Config, String>,
    objects: Vec<Fact>,
    elsewhere: Option<String>,
    /// What the readiness checks and exports look at, by place.
    seen: BTreeMap<Place, Option<Arc<Object>>>,
    /// The objects that each custom check selects by labels.
    selected: Vec<Vec<Arc<Object>>>,
}

/// One object that is to be there.
#[derive(Debug)]
struct Fact {
    policy: Policy,
    manifest: Value,
    /// Or why it cannot be.
    managed: Result<Managed, (Reason, String)>,
    found: Option<Arc<Object>>,
}

/// An object that was, or is about to be, applied: as it stands in `providerStatus`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Managed {
    #[serde(flatten)]
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    policy: Policy,
}

impl Managed {
    fn reference(&self) -> Reference {
        let key = Key { namespace: self.namespace.clone(), name: self.name.clone() };
        Reference { kind: self.kind.clone(), key, uid: String::new() }
    }

    /// The order in which objects are made; they go in the other.
    fn class(&self) -> u8 {
        match (&self.kind, self.kind.namespaced) {
            (kind, _) if kind.same_kind(&CUSTOM_RESOURCE_DEFINITION) => 0,
            (_, false) => 1,
            (_, true) => 2,
        }
    }

    fn same_object(&self, other: &Self) -> bool {
        self.kind.same_kind(&other.kind) && self.namespace == other.namespace && self.name == other.name
    }
}

/// What this deployer keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    managed_resources: Vec<Managed>,
    /// The job in which they were applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_in: Option<String>,
}

impl Kept {
    fn written(&self) -> Option<Map<String, Value>> {
        serde_json::to_value(self).ok()?.as_object().cloned()
    }
}

/// Reads what the item depends on.
pub(super) fn observe(view: &dyn View, me: &Object, item: &DeployItem, system_namespace: &str) -> Facts {
    let config =
        Config::deserialize(Value::Object(item.spec.config.clone())).map_err(|error| error.to_string());
    let mut facts = Facts {
        elsewhere: elsewhere(view, me, item),
        objects: Vec::new(),
        seen: BTreeMap::new(),
        selected: Vec::new(),
        config: Err(String::new()),
    };
    if let Ok(config) = &config {
        let definitions: Vec<&Value> = config.manifests.iter().map(|entry| entry.parts().1).collect();
        let fact = |(at, entry): (usize, &config::Entry)| {
            let (policy, manifest) = entry.parts();
            fact(view, me, system_namespace, at, policy, manifest, &definitions)
        };
        facts.objects = config.manifests.iter().take(MAX_MANIFESTS).enumerate().map(fact).collect();
        let checks = config.readiness_checks.custom.iter();
        let exports = config.exports.exports.iter().filter_map(|export| export.from_resource.as_ref());
        for place in checks.flat_map(|check| &check.resource_selector).chain(exports) {
            facts.seen.insert(place.clone(), look_up(view, me, place));
        }
        for export in &config.exports.exports {
            let named = export.from_object_ref.as_ref().zip(export.from_resource.as_ref());
            let Some(place) = named.and_then(|(by, from)| named_by(view, me, by, from)) else { continue };
            facts.seen.insert(place.clone(), look_up(view, me, &place));
        }
        let selected = config.readiness_checks.custom.iter().map(|check| match &check.label_selector {
            Some(by) => select(view, me, by),
            None => Vec::new(),
        });
        facts.selected = selected.collect();
    }
    facts.config = config;
    facts
}

/// What has come of an item whose job was picked up.
pub(super) fn work(observed: &Observed, facts: &Facts, flow: Flow, status: &DeployItemStatus) -> Work {
    let kept = Kept::deserialize(Value::Object(status.provider_status.clone())).unwrap_or_default();
    match flow {
        Flow::Remove => remove(&kept, status.phase),
        Flow::Install => match wanted(facts) {
            Ok(wanted) => install(observed, facts, &kept, &wanted, status),
            Err((reason, message)) => Work::come(Come::Hopeless(reason, message)),
        },
    }
}

fn install(
    observed: &Observed,
    facts: &Facts,
    kept: &Kept,
    wanted: &[Managed],
    status: &DeployItemStatus,
) -> Work {
    let known = |one: &Managed| kept.managed_resources.iter().any(|other| other.same_object(one));
    if !wanted.iter().all(known) {
        let news = wanted.iter().filter(|one| !known(one)).cloned();
        let managed_resources = kept.managed_resources.iter().cloned().chain(news).collect();
        let kept = Kept { managed_resources, applied_in: kept.applied_in.clone() };
        return Work { provider_status: kept.written(), ..Work::default() };
    }
    if kept.applied_in != status.job_id {
        let stays = |one: &&Managed| wanted.iter().any(|other| other.same_object(one));
        let gone: Vec<&Managed> = kept.managed_resources.iter().filter(|one| !stays(one)).collect();
        let mut steps = take_down(&gone);
        let mut making: Vec<(&Fact, &Managed)> =
            facts.objects.iter().filter_map(|fact| Some((fact, fact.managed.as_ref().ok()?))).collect();
        making.sort_by_key(|(_, managed)| managed.class());
        let first = kept.applied_in.is_none();
        steps.extend(
            making.into_iter().filter_map(|(fact, managed)| make(observed, facts, fact, managed, first)),
        );
        let kept = Kept { managed_resources: wanted.to_vec(), applied_in: status.job_id.clone() };
        return Work { steps, provider_status: kept.written(), ..Work::default() };
    }
    match ready(facts) {
        Ready::Yes => match exports(observed, facts) {
            Ok(export) => {
                let message = format!("{} objects are deployed", wanted.len());
                Work { export, ..Work::come(Come::Done(message)) }
            }
            Err(why) => waits(wanted, why),
        },
        Ready::NotYet(why) => waits(wanted, why),
        Ready::Never(why) => Work::come(Come::Failed(Reason::NotReady, why)),
    }
}

fn waits(wanted: &[Managed], why: String) -> Work {
    let first = wanted.first().map(Managed::reference);
    let waiting = first.map(|Reference { kind, key, .. }| Waiting::Object { kind, key, until: why });
    Work { waiting: waiting.into_iter().collect(), ..Work::default() }
}

fn remove(kept: &Kept, phase: Option<DeployItemPhase>) -> Work {
    // People see that it is at it, however long it takes.
    if phase == Some(DeployItemPhase::InitDelete) && !kept.managed_resources.is_empty() {
        return Work::default();
    }
    let all: Vec<&Managed> = kept.managed_resources.iter().collect();
    let message = format!("{} objects are gone", kept.managed_resources.len());
    Work { steps: take_down(&all), ..Work::come(Come::Done(message)) }
}

/// Backwards, class by class: what the next one needs goes only when this one is gone.
fn take_down(those: &[&Managed]) -> Vec<Step> {
    let mut going: Vec<&Managed> = those
        .iter()
        .copied()
        .filter(|one| !matches!(one.policy, Policy::Keep | Policy::Ignore))
        .rev()
        .collect();
    going.sort_by_key(|one| std::cmp::Reverse(one.class()));
    let classes = going.chunk_by(|a, b| a.class() == b.class());
    let steps = classes.flat_map(|class| {
        let deletes = class.iter().map(|one| Step::Delete {
            target: one.reference(),
            resource_version: None,
            propagation: Propagation::Foreground,
            only_if_gone: vec![],
        });
        deletes.chain(class.iter().map(|one| Step::ConfirmGone(one.reference())))
    });
    steps.collect()
}

fn make(observed: &Observed, facts: &Facts, fact: &Fact, managed: &Managed, first: bool) -> Option<Step> {
    let mut manifest = fact.manifest.clone();
    let marks = json!({labels::DEPLOY_ITEM: observed.me.name(),
        labels::DEPLOY_ITEM_NAMESPACE: observed.me.namespace().unwrap_or_default()});
    let metadata =
        manifest.as_object_mut()?.entry("metadata").or_insert_with(|| json!({})).as_object_mut()?;
    metadata.insert("name".to_owned(), managed.name.clone().into());
    if let Some(namespace) = &managed.namespace {
        metadata.insert("namespace".to_owned(), namespace.clone().into());
    }
    let own = metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut()?;
    own.extend(marks.as_object().cloned().unwrap_or_default());
    let force = facts.config.as_ref().is_ok_and(|config| config.update_strategy.force());
    let theirs =
        fact.found.as_ref().is_some_and(|found| found.label(labels::DEPLOY_ITEM) != Some(observed.me.name()));
    match fact.policy {
        Policy::Ignore => None,
        Policy::Fallback if theirs => None,
        Policy::Immutable if !first => None,
        Policy::Immutable => {
            Some(Step::Create { kind: managed.kind.clone(), manifest, adopt: Adopt::Anyones })
        }
        Policy::Manage | Policy::Keep | Policy::Fallback => {
            Some(Step::Apply { kind: managed.kind.clone(), manifest, force })
        }
    }
}

/// The objects to be made, or all that is wrong with them at once.
fn wanted(facts: &Facts) -> Result<Vec<Managed>, (Reason, String)> {
    let config = facts
        .config
        .as_ref()
        .map_err(|problem| (Reason::ConfigurationError, format!("spec.config: {problem}")))?;
    if let Some(elsewhere) = &facts.elsewhere {
        return Err((Reason::TargetInvalid, elsewhere.clone()));
    }
    if config.manifests.len() > MAX_MANIFESTS {
        let message =
            format!("{} objects are too many; at most {MAX_MANIFESTS} are allowed", config.manifests.len());
        return Err((Reason::ConfigurationError, message));
    }
    let of_interest = facts.objects.iter().filter(|fact| fact.policy != Policy::Ignore);
    let (mut wanted, mut problems) = (Vec::new(), Vec::new());
    for fact in of_interest {
        match &fact.managed {
            Ok(managed) => wanted.push(managed.clone()),
            Err(problem) => problems.push(problem.clone()),
        }
    }
    match problems.first() {
        None => Ok(wanted),
        Some((reason, _)) => {
            let told = problems.iter().take(10).map(|(_, message)| message.as_str()).collect::<Vec<_>>();
            Err((*reason, told.join("; ")))
        }
    }
}

fn ready(facts: &Facts) -> Ready {
    let Ok(config) = &facts.config else { return Ready::Yes };
    for fact in &facts.objects {
        let Ok(managed) = &fact.managed else { continue };
        if config.readiness_checks.disable_default
            || fact.policy == Policy::Ignore
            || !WATCHED.iter().any(|kind| kind.same_kind(&managed.kind))
        {
            continue;
        }
        let Some(found) = &fact.found else {
            return Ready::NotYet(format!("{} is not seen yet", managed.reference()));
        };
        match readiness::default(found) {
            Ready::Yes => {}
            Ready::NotYet(why) => return Ready::NotYet(format!("{}: {why}", managed.reference())),
            Ready::Never(why) => return Ready::Never(format!("{}: {why}", managed.reference())),
        }
    }
    for (check, selected) in config.readiness_checks.custom.iter().zip(&facts.selected) {
        if check.disabled {
            continue;
        }
        let mut objects: Vec<&Arc<Object>> = selected.iter().collect();
        for place in &check.resource_selector {
            match facts.seen.get(place) {
                Some(Some(object)) => objects.push(object),
                _ => {
                    return Ready::NotYet(format!(
                        "check {}: {} {} is not seen",
                        check.name, place.kind, place.name
                    ));
                }
            }
        }
        if objects.is_empty() {
            return Ready::NotYet(format!("check {}: nothing is selected", check.name));
        }
        for object in objects {
            match readiness::custom(object, &check.requirements) {
                Ready::Yes => {}
                Ready::NotYet(why) => return Ready::NotYet(format!("check {}: {why}", check.name)),
                Ready::Never(why) => return Ready::Never(format!("check {}: {why}", check.name)),
            }
        }
    }
    Ready::Yes
}

/// What is exported, by key; or what is still missing.
fn exports(observed: &Observed, facts: &Facts) -> Result<Option<Value>, String> {
    let Ok(config) = &facts.config else { return Ok(None) };
    let mut all = Map::new();
    for export in &config.exports.exports {
        let missing = |what: &str| format!("export {}: {what}", export.key);
        let from = export.from_resource.as_ref().ok_or_else(|| missing("fromResource is missing"))?;
        let seen = |place: &Place| facts.seen.get(place).and_then(Option::as_ref);
        let mut object = seen(from).ok_or_else(|| missing("its object is not seen"))?;
        if let Some(by) = &export.from_object_ref {
            let place =
                place_named(&observed.me, by, object, from).ok_or_else(|| missing("it names no object"))?;
            object = seen(&place).ok_or_else(|| missing("the object it names is not seen"))?;
        }
        let path = Path::parse(&export.json_path).map_err(|bad| missing(&bad.to_string()))?;
        let value = path
            .find(object.raw())
            .first()
            .copied()
            .cloned()
            .ok_or_else(|| missing("there is no such field"))?;
        all.insert(export.key.clone(), value);
    }
    Ok((!all.is_empty()).then_some(Value::Object(all)))
}

fn fact(
    view: &dyn View,
    me: &Object,
    system_namespace: &str,
    at: usize,
    policy: Policy,
    manifest: &Value,
    definitions: &[&Value],
) -> Fact {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let place = format!("spec.config.manifests[{at}]");
    let managed = match (text("/apiVersion"), text("/kind"), text("/metadata/name")) {
        (Some(version), Some(kind), Some(name)) => match resolve(view, version, kind, definitions) {
            Some(kind) => {
                let namespace = kind
                    .namespaced
                    .then(|| text("/metadata/namespace").or(me.namespace()).unwrap_or_default().to_owned());
                allowed(view, me, system_namespace, &kind, namespace.as_deref())
                    .map(|()| Managed { kind, namespace, name: name.to_owned(), policy })
                    .map_err(|problem| (Reason::NamespaceNotAllowed, format!("{place}: {problem}")))
            }
            None => {
                Err((Reason::NotFound, format!("{place}: the kind {kind} of {version} is not known here")))
            }
        },
        _ => Err((Reason::Invalid, format!("{place}: apiVersion, kind and metadata.name are needed"))),
    };
    let found = managed.as_ref().ok().and_then(|managed| {
        let watched = WATCHED.iter().find(|kind| kind.same_kind(&managed.kind))?;
        view.get(watched, &managed.reference().key)
    });
    Fact { policy, manifest: manifest.clone(), managed, found }
}

/// A unit acts in its own namespace; elsewhere only where that namespace says so, and on what belongs to no namespace
/// only from the system's.
fn allowed(
    view: &dyn View,
    me: &Object,
    system_namespace: &str,
    kind: &Kind,
    namespace: Option<&str>,
) -> Result<(), String> {
    let home = me.namespace().unwrap_or_default();
    match namespace {
        _ if home == system_namespace => Ok(()),
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

fn resolve(view: &dyn View, api_version: &str, kind: &str, definitions: &[&Value]) -> Option<Kind> {
    let group = group_of(api_version);
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let built_in = BUILT_IN.iter().find(|known| known.group == group && known.kind == kind).cloned();
    let defined = || {
        let installed = view.list(&CUSTOM_RESOURCE_DEFINITION, None);
        let mut all = installed.iter().map(|object| object.raw()).chain(definitions.iter().copied());
        all.find_map(|definition| {
            let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
            let it = text("/spec/group") == Some(group) && text("/spec/names/kind") == Some(kind);
            let plural = text("/spec/names/plural").filter(|_| it)?.to_owned();
            let namespaced = text("/spec/scope") == Some("Namespaced");
            Some(Kind {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: kind.to_owned().into(),
                plural: plural.into(),
                namespaced,
            })
        })
    };
    let found = built_in.or_else(defined).or_else(|| view.resolve(api_version, kind))?;
    Some(Kind { version: version.to_owned().into(), ..found })
}

/// Why the item's Target is none that is served here.
fn elsewhere(view: &dyn View, me: &Object, item: &DeployItem) -> Option<String> {
    let wanted = item.spec.target.as_ref()?;
    let found = view.get(&target::KIND, &Key::new(me.namespace(), &wanted.name))?;
    let spec = found.parse::<Target>().ok().map(|target| target.spec.clone())?;
    if spec.config.get("selfConfig").is_some() {
        return None;
    }
    Some(format!(
        "Target {} is another cluster; so far only the one that Pawl runs on is served: write config.selfConfig",
        wanted.name
    ))
}

fn look_up(view: &dyn View, me: &Object, place: &Place) -> Option<Arc<Object>> {
    let watched =
        WATCHED.iter().find(|kind| kind.group == group_of(&place.api_version) && kind.kind == place.kind)?;
    let namespace = place.namespace.as_deref().or(me.namespace());
    view.get(watched, &Key::new(namespace.filter(|_| watched.namespaced), &place.name))
}

fn named_by(view: &dyn View, me: &Object, by: &config::FromObjectRef, from: &Place) -> Option<Place> {
    let object = look_up(view, me, from)?;
    place_named(me, by, &object, from)
}

/// The place that a field `{name, namespace}` of an object names.
fn place_named(me: &Object, by: &config::FromObjectRef, object: &Object, from: &Place) -> Option<Place> {
    let path = Path::parse(&by.json_path).ok()?;
    let named = path.find(object.raw()).first().copied()?;
    let text = |field: &str| named.get(field).and_then(Value::as_str).map(str::to_owned);
    let namespace =
        text("namespace").or_else(|| from.namespace.clone()).or_else(|| me.namespace().map(str::to_owned));
    Some(Place { api_version: by.api_version.clone(), kind: by.kind.clone(), name: text("name")?, namespace })
}

fn select(view: &dyn View, me: &Object, by: &config::LabelSelector) -> Vec<Arc<Object>> {
    let kind = WATCHED.iter().find(|kind| kind.group == group_of(&by.api_version) && kind.kind == by.kind);
    let all = kind.map(|kind| view.list(kind, me.namespace())).unwrap_or_default();
    let matches = |object: &Arc<Object>| {
        by.match_labels.iter().all(|(label, value)| object.label(label) == Some(value.as_str()))
    };
    all.into_iter().filter(matches).collect()
}

#[cfg(test)]
mod tests;
