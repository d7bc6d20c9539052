//! What does the server tell of itself in the form of objects?
//!
//! A kube-apiserver keeps an APIService for every group version and asks its neighbours how they are. Here both follow
//! from what is served, and are made when they are asked for: nothing to keep, nothing to fall out of date.

use std::sync::Arc;

use serde_json::{Value, json};

use super::read::ListOptions;
use super::{Answer, Call, Core, List, Verb};
use crate::resources::builtin::Told;
use crate::resources::{Content, Version};
use crate::status::Status;
use crate::store::Object;

/// In which order clients try groups and versions, by Kubernetes' numbers for its own and for definitions.
const CORE_PRIORITY: u32 = 18_000;
const BUILTIN_PRIORITY: u32 = 17_000;
const CUSTOM_PRIORITY: u32 = 1_000;
const BUILTIN_VERSION_PRIORITY: u32 = 15;
const CUSTOM_VERSION_PRIORITY: u32 = 100;

/// The parts of a control plane, by the names they go by on a cluster. They are one process here: whoever can ask is
/// answered by all of them.
const COMPONENTS: [&str; 3] = ["controller-manager", "etcd-0", "scheduler"];

/// GET of one or all.
pub(super) fn answer(core: &Core, call: &Call<'_>, told: Told) -> Result<Answer, Status> {
    let revision = core.store.revision();
    let objects = match told {
        Told::ApiServices => api_services(core),
        Told::Components => COMPONENTS.iter().map(|name| component(name)).collect(),
    };
    let objects = objects.iter().map(|object| Arc::new(call.resource.draft(object).at(revision)));
    match call.verb {
        Verb::Get => {
            let found = objects.into_iter().find(|object| *object.name() == *call.name);
            let found: Arc<Object> = found.ok_or_else(|| Status::not_found(call.resource, call.name))?;
            Ok(Answer::Object(200, found))
        }
        Verb::List => {
            let options = ListOptions::read(call, false)?;
            let items = objects.filter(|object| options.selector.matches(object)).collect();
            Ok(Answer::List(List { revision, items, next: None, remaining: None }))
        }
        Verb::Watch | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            Err(Status::method_not_allowed())
        }
    }
}

fn api_services(core: &Core) -> Vec<Value> {
    let registry = core.registry();
    let mut out: Vec<Value> = registry
        .groups()
        .flat_map(|(group, found)| found.versions.iter().map(|version| api_service(group, version)))
        .collect();
    out.sort_by_key(|service| service.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned));
    out
}

fn api_service(group: &str, version: &Version) -> Value {
    let custom = version.resources.values().all(|r| matches!(r.content, Content::Custom(_)));
    let (managed, group_priority, version_priority) = match (custom, group) {
        (true, _) => ("true", CUSTOM_PRIORITY, CUSTOM_VERSION_PRIORITY),
        (false, "") => ("onstart", CORE_PRIORITY, BUILTIN_VERSION_PRIORITY),
        (false, _) => ("onstart", BUILTIN_PRIORITY, BUILTIN_VERSION_PRIORITY),
    };
    let mut spec = json!({
        "version": &*version.name, "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
    });
    if let (false, Some(spec)) = (group.is_empty(), spec.as_object_mut()) {
        spec.insert("group".into(), group.into());
    }
    json!({
        "metadata": {
            "name": format!("{}.{group}", version.name),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": managed},
        },
        "spec": spec,
        "status": {"conditions": [{
            "type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available",
        }]},
    })
}

fn component(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
    })
}
