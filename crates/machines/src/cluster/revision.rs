//! Which templates has a StatefulSet or DaemonSet had, and under which names are they kept?
//!
//! A ControllerRevision holds one template, so that a Pod below a partition is made again as it was and
//! `kubectl rollout history` and `undo` have something to show and to go back to.

use std::collections::BTreeSet;
use std::sync::Arc;

use pawl_api::meta::{Kind, names};
use serde_json::{Value, json};

use crate::json::object;
use crate::object::Object;
use crate::plan::Step;
use crate::view::Context;

pub(super) const CONTROLLER_REVISION: Kind =
    Kind::of("apps", "v1", "ControllerRevision", "controllerrevisions", true);

/// Kubernetes' number of old revisions that are kept.
const HISTORY: i32 = 10;

/// 40 bits: a set would need a million templates for an even chance of two with the same name.
const HASH_HEX: usize = 10;

/// The revisions of one object, oldest first.
#[derive(Debug)]
pub(super) struct Revisions {
    owner: Arc<Object>,
    kept: Vec<Arc<Object>>,
    /// Somebody else's revision has the name that ours should have.
    pub(super) collides: bool,
}

impl Revisions {
    pub(super) fn of<K>(cx: &Context<'_, K>) -> Self {
        let owner = Arc::clone(cx.object);
        let mut kept = cx.view.controlled(&CONTROLLER_REVISION, &owner);
        kept.sort_by_key(|one| (number(one), one.name().to_owned()));
        let refused = cx.refused(&CONTROLLER_REVISION);
        let collides = refused.is_some_and(|refused| refused.is("OwnershipMismatch"));
        Self { owner, kept, collides }
    }

    /// The name of the template as it is now, once it is kept as the newest; until then, how it comes to be.
    pub(super) fn current(&self, collisions: i32) -> Result<&str, Vec<Step>> {
        let data = data(&self.owner);
        let next = self.kept.last().map(|one| number(one)).unwrap_or_default().saturating_add(1);
        let Some(found) = self.kept.iter().rfind(|one| one.raw().get("data") == Some(&data)) else {
            return Err(vec![self.create(&data, next, collisions)]);
        };
        if self.kept.last().is_some_and(|newest| newest.uid() == found.uid()) {
            return Ok(found.name());
        }
        // It was there before: an undo makes it the newest again.
        let confirm = Step::confirm_unchanged(&self.owner);
        let newest = Step::patch_unchanged(found, json!({"revision": next}));
        Err(vec![confirm, newest])
    }

    /// The template that is kept under this name.
    pub(super) fn template(&self, name: &str) -> Option<Value> {
        let found = self.kept.iter().find(|one| one.name() == name)?;
        let mut template = found.raw().pointer("/data/spec/template")?.clone();
        template.as_object_mut()?.remove("$patch");
        Some(template)
    }

    /// Deletes what is kept beyond the limit, but nothing that is in use.
    pub(super) fn forget(&self, limit: Option<i32>, in_use: &BTreeSet<&str>) -> Vec<Step> {
        let limit = usize::try_from(limit.unwrap_or(HISTORY)).unwrap_or_default();
        let idle: Vec<_> = self.kept.iter().filter(|one| !in_use.contains(one.name())).collect();
        let surplus = idle.len().saturating_sub(limit);
        let delete = |one: &Arc<Object>| Step::delete_unchanged(one);
        idle.into_iter().take(surplus).map(delete).collect()
    }

    fn create(&self, data: &Value, revision: i64, collisions: i32) -> Step {
        let hash = names::hash(&[&data.to_string(), &collisions.to_string()], HASH_HEX);
        let mut labels = self.owner.raw().pointer("/spec/template/metadata").cloned().unwrap_or_default();
        let labels = object(&mut labels, "labels");
        labels["controller.kubernetes.io/hash"] = hash.as_str().into();
        let metadata = json!({"name": format!("{}-{hash}", self.owner.name()), "labels": labels});
        let manifest = json!({"metadata": metadata, "data": data, "revision": revision});
        Step::create_child(&self.owner, CONTROLLER_REVISION, manifest)
    }
}

/// The last part of a revision's name: what DaemonSets label their Pods with.
pub(super) fn hash_of(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(_, hash)| hash)
}

fn number(revision: &Object) -> i64 {
    revision.raw().get("revision").and_then(Value::as_i64).unwrap_or_default()
}

/// What a revision holds: a patch that puts the template back, as `kubectl rollout undo` sends it.
fn data(owner: &Object) -> Value {
    let mut template = owner.raw().pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(template) = template.as_object_mut() {
        template.insert("$patch".to_owned(), "replace".into());
    }
    json!({"spec": {"template": template}})
}
