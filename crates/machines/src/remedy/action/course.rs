//! What is to be done, as data, and how each part of it is asked of an API server?
//!
//! A write carries who did it (`pawl.dev/changed-by`, I7) in the very request that changes something, and applies only to
//! the version that was looked at: repeated, it finds its own mark; overtaken, it conflicts and is thought through again.

use std::fmt;

use http::Request;
use pawl_api::remedy::actions::PatchType;
use pawl_api::remedy::annotations::CHANGED_BY;
use serde_json::{Value, json};

use super::Order;
use super::definition::Context;
use super::seen::{self, Place, Seen};
use crate::json::merge;
use crate::plan::Part;
use crate::request;

/// Who applies what `apply_manifest` applies.
pub const FIELD_MANAGER: &str = "pawl-act";

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Course {
    /// These, one after the other; then look again.
    Step(Vec<Write>),
    /// These, one after the other, and that was all.
    Finish(Vec<Write>),
    /// Look again in a while: what is waited for.
    Wait(String),
    /// Nothing is left to do, and why.
    Done(String),
    /// It cannot be done to what is there.
    Refuse(String),
}

/// One request that changes something.
#[derive(Clone, PartialEq)]
pub struct Write {
    pub place: Place,
    pub how: How,
}

#[derive(Clone, PartialEq)]
pub enum How {
    Patch {
        type_: PatchType,
        body: Value,
    },
    /// Server-side apply of a whole manifest.
    Apply(Value),
    Create(Value),
    Delete {
        uid: String,
        grace_period_seconds: Option<i64>,
    },
    /// A deletion that a disruption budget may refuse.
    Evict {
        uid: String,
        grace_period_seconds: Option<i64>,
    },
}

impl How {
    fn verb(&self) -> &'static str {
        match self {
            Self::Patch { .. } => "patch",
            Self::Apply(_) => "apply",
            Self::Create(_) => "create",
            Self::Delete { .. } => "delete",
            Self::Evict { .. } => "evict",
        }
    }
}

impl Write {
    /// A merge patch of the object that was seen, and of no later one, as part of more that is to come.
    pub(super) fn unmarked(place: &Place, object: &Value, mut body: Value) -> Self {
        merge(
            &mut body,
            json!({"metadata": {"uid": seen::uid(object), "resourceVersion": seen::resource_version(object)}}),
        );
        Self { place: place.clone(), how: How::Patch { type_: PatchType::Merge, body } }
    }

    /// A patch of the object that was seen, and of no later one, with the mark of who patches.
    pub(super) fn marked(
        order: &Order,
        place: &Place,
        object: &Value,
        type_: PatchType,
        body: Value,
    ) -> Self {
        let body = match type_ {
            PatchType::Merge | PatchType::Strategic => {
                let mut body = body;
                merge(
                    &mut body,
                    json!({"metadata": {
                        "uid": seen::uid(object), "resourceVersion": seen::resource_version(object),
                        "annotations": {CHANGED_BY: order.uid},
                    }}),
                );
                body
            }
            PatchType::Json => {
                let mark = match object.pointer("/metadata/annotations") {
                    Some(_) => {
                        json!({"op": "add", "path": format!("/metadata/annotations/{}", escaped(CHANGED_BY)),
                        "value": order.uid})
                    }
                    None => {
                        json!({"op": "add", "path": "/metadata/annotations", "value": {CHANGED_BY: order.uid}})
                    }
                };
                // Not `test`: an API server answers a replaced version like any other conflict.
                let mut steps = vec![
                    json!({"op": "replace", "path": "/metadata/uid", "value": seen::uid(object)}),
                    json!({"op": "replace", "path": "/metadata/resourceVersion",
                        "value": seen::resource_version(object)}),
                    mark,
                ];
                if let Value::Array(rest) = body {
                    steps.extend(rest);
                }
                Value::Array(steps)
            }
        };
        Self { place: place.clone(), how: How::Patch { type_, body } }
    }

    pub(super) fn delete(place: &Place, object: &Value, grace_period_seconds: Option<i64>) -> Self {
        let uid = seen::uid(object).to_owned();
        Self { place: place.clone(), how: How::Delete { uid, grace_period_seconds } }
    }

    /// What it does, in a word.
    pub fn verb(&self) -> &'static str {
        self.how.verb()
    }

    /// The request; with `dry_run` the API server only says what would come of it.
    ///
    /// # Errors
    /// When a name cannot stand in a URL.
    pub fn request(&self, dry_run: bool) -> Result<Request<Vec<u8>>, http::Error> {
        let Place { kind, key } = &self.place;
        let options = |uid: &str, grace: Option<i64>| {
            let mut options = json!({"preconditions": {"uid": uid}});
            if let (Some(options), Some(grace)) = (options.as_object_mut(), grace) {
                options.insert("gracePeriodSeconds".to_owned(), grace.into());
            }
            options
        };
        let draft = match &self.how {
            How::Patch { type_, body } => request::patch(kind, key, Part::Main, *type_, FIELD_MANAGER, body),
            How::Apply(manifest) => request::apply(kind, key, FIELD_MANAGER, true, manifest),
            How::Create(manifest) => request::create(kind, key.namespace.as_deref(), FIELD_MANAGER, manifest),
            How::Delete { uid, grace_period_seconds } => {
                request::delete(kind, key, &options(uid, *grace_period_seconds))
            }
            How::Evict { uid, grace_period_seconds } => {
                request::evict(kind, key, &options(uid, *grace_period_seconds))
            }
        };
        let draft = if dry_run { draft.query("dryRun", "All") } else { draft };
        draft.build()
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.place)
    }
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the body: it may be a Secret's (I6).
        f.write_str(self.verb())
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The object that is meant, if there is something left to do to it.
///
/// # Errors
/// What comes of it otherwise.
pub(super) fn meant<'a>(context: &Context<'_>, seen: &'a Seen, place: &Place) -> Result<&'a Value, Course> {
    let Some(object) = seen.object(place) else {
        return Err(Course::Refuse(format!("{place} is not there")));
    };
    if is_marked(context, object) {
        return Err(Course::Done(format!("{place} was changed by this execution before")));
    }
    match context.kept.and_then(|kept| kept.of(place)).and_then(|target| target.uid.as_deref()) {
        Some(kept) if kept != seen::uid(object) => {
            Err(Course::Refuse(format!("{place} is another one than when the execution began")))
        }
        _ => Ok(object),
    }
}

/// Whether this execution has changed the object before.
pub(super) fn is_marked(context: &Context<'_>, object: &Value) -> bool {
    seen::annotation(object, CHANGED_BY) == Some(&context.order.uid)
}

/// A key as part of a JSON pointer.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::super::testing::order;
    use super::*;
    use pawl_api::k8s::{DEPLOYMENT, POD};

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn object(annotations: Value) -> Value {
        json!({"metadata": {"uid": "u", "resourceVersion": "7", "annotations": annotations}})
    }

    #[test]
    fn a_patch_is_of_the_version_that_was_seen_and_says_who_made_it() {
        let place = Place::namespaced(DEPLOYMENT, "n", "d");
        let order = order("scale_deployment", json!({}));
        let write = Write::marked(
            &order,
            &place,
            &object(json!({})),
            PatchType::Merge,
            json!({"spec": {"replicas": 3}}),
        );
        let request = write.request(true).unwrap();
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(
            body,
            json!({"spec": {"replicas": 3}, "metadata": {"uid": "u", "resourceVersion": "7",
                "annotations": {CHANGED_BY: order.uid}}})
        );
        assert_eq!(
            request.uri().to_string(),
            "/apis/apps/v1/namespaces/n/deployments/d?fieldManager=pawl-act&dryRun=All"
        );
        let steps =
            Write::marked(&order, &place, &object(Value::Null), PatchType::Json, json!([{"op": "remove"}]));
        let How::Patch { body, .. } = steps.how else { panic!("a patch") };
        assert_eq!(body[2]["path"], "/metadata/annotations/pawl.dev~1changed-by");
        assert_eq!(body[3], json!({"op": "remove"}));
    }

    #[test]
    fn deletions_and_evictions_are_of_one_pod_and_not_of_its_namesake() {
        let place = Place::namespaced(POD, "n", "p");
        let write = Write { place, how: How::Evict { uid: "u".to_owned(), grace_period_seconds: Some(0) } };
        let request = write.request(false).unwrap();
        assert_eq!(request.uri().path(), "/api/v1/namespaces/n/pods/p/eviction");
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["deleteOptions"], json!({"preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}));
    }
}
