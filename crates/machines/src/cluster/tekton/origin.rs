//! Where does a pipeline or task come from: an object of the same namespace, or a bundle?
//!
//! A bundle is read by an external call ([`crate::external`]); what came back is kept in the run's status, so it is
//! asked for once. A registry that does not answer is asked again, for as long as Tekton would.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use pawl_api::meta::Kind;
use pawl_api::tekton::{PIPELINE, Param, PipelineRef, TASK, TaskRef};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::go_duration;
use super::substitute::plain;
use crate::external::Request;
use crate::failure::Category;
use crate::object::{Key, Reference};
use crate::time::later;
use crate::view::Context;

/// How long Tekton waits for a resolver before the run fails.
const RESOLUTION_TIMEOUT: Duration = Duration::from_mins(1);

/// Reads one pipeline or task of a Tekton bundle, an OCI image whose layers are manifests; the reply is the manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BundleEntry {
    /// As images are named.
    pub bundle: String,
    /// `pipeline` or `task`.
    pub kind: String,
    pub name: String,
}

impl Request for BundleEntry {
    type Reply = Value;
    const SYSTEM: &'static str = "bundles";
}

impl fmt::Display for BundleEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bundle, kind, name } = self;
        write!(f, "read {kind} {name} of bundle {bundle}")
    }
}

/// A pipeline or task, as far as it is known in this look.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Origin<T> {
    Found(Box<T>),
    /// To be asked for first.
    Ask(BundleEntry),
    /// Asked for, and not answered for now, and why: the look is repeated by itself.
    Later(String),
    /// No such object is known. A cache that has not seen it is no proof: to be confirmed.
    Absent(Reference),
    /// Nothing that could be run, and why.
    Refused(String),
}

/// What a reference says, whichever kind it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    kind: &'static Kind,
    name: Option<&'a str>,
    resolver: Option<&'a str>,
    params: &'a [Param],
}

const PIPELINES: &Kind = &PIPELINE;
const TASKS: &Kind = &TASK;

impl<'a> From<&'a PipelineRef> for Wanted<'a> {
    fn from(it: &'a PipelineRef) -> Self {
        let (name, resolver) = (it.name.as_deref(), it.resolver.as_deref());
        Self { kind: PIPELINES, name, resolver, params: &it.params }
    }
}

impl<'a> From<&'a TaskRef> for Wanted<'a> {
    fn from(it: &'a TaskRef) -> Self {
        let (name, resolver) = (it.name.as_deref(), it.resolver.as_deref());
        Self { kind: TASKS, name, resolver, params: &it.params }
    }
}

impl<'a> Wanted<'a> {
    /// The name of the object, or that in the bundle.
    pub(crate) fn target_name(&self) -> Option<&'a str> {
        self.name.or_else(|| self.params.iter().find(|param| param.name == "name")?.value.as_str())
    }

    /// Finds it, or says what is in the way.
    pub(crate) fn find<T: DeserializeOwned, K>(&self, cx: &Context<'_, K>) -> Origin<T> {
        match self.resolver.filter(|resolver| !resolver.is_empty()) {
            None => self.find_object(cx),
            Some("bundles") => self.find_in_bundle(cx),
            Some(other) => Origin::Refused(format!(
                "resolver type {other} is not supported by the embedded runner: name an object of this namespace, or \
                 use the bundles resolver"
            )),
        }
    }

    fn find_object<T: DeserializeOwned, K>(&self, cx: &Context<'_, K>) -> Origin<T> {
        let Some(name) = self.name.filter(|name| !name.is_empty()) else {
            return Origin::Refused(
                "the reference names nothing: neither `name` nor `resolver` is set".to_owned(),
            );
        };
        let key = Key::new(cx.object.namespace(), name);
        match cx.view.get(self.kind, &key) {
            Some(object) => read(name, object.raw()),
            None => Origin::Absent(Reference { kind: self.kind.clone(), key, uid: String::new() }),
        }
    }

    fn find_in_bundle<T: DeserializeOwned, K>(&self, cx: &Context<'_, K>) -> Origin<T> {
        let param =
            |name: &str| self.params.iter().find(|param| param.name == name).map(|param| plain(&param.value));
        let default_kind = if *self.kind == PIPELINE { "pipeline" } else { "task" };
        let kind = param("kind").unwrap_or_else(|| default_kind.to_owned());
        let (Some(bundle), Some(name)) = (param("bundle"), param("name")) else {
            return Origin::Refused(
                "resolver type bundles: the parameters `bundle` and `name` are needed".to_owned(),
            );
        };
        if !kind.eq_ignore_ascii_case(default_kind) {
            let wanted =
                format!("resolver type bundles: kind {kind:?} is given where a {default_kind} is needed");
            return Origin::Refused(wanted);
        }
        let entry = BundleEntry { bundle, kind: default_kind.to_owned(), name };
        match cx.answers.get(&entry) {
            None => Origin::Ask(entry),
            Some(Ok(manifest)) => read(&entry.name, manifest),
            Some(Err(failure)) => match failure.category {
                Category::Transient | Category::Conflict => {
                    Origin::Later(format!("resolver type bundles: {}", failure.message))
                }
                Category::Permanent | Category::NotFound | Category::MissingCredentials => {
                    Origin::Refused(format!("resolver type bundles: {}", failure.message))
                }
            },
        }
    }
}

/// Until when a run that began then waits for an answer; and, once that has passed, what it says in Tekton's words.
pub(crate) fn patience(began: Timestamp, now: Timestamp, why: &str) -> Result<Timestamp, String> {
    let until = later(began, RESOLUTION_TIMEOUT);
    if now < until {
        return Ok(until);
    }
    let limit = go_duration(RESOLUTION_TIMEOUT);
    Err(format!("resolution took longer than global timeout of {limit}: {why}"))
}

fn read<T: DeserializeOwned>(name: &str, object: &Value) -> Origin<T> {
    let spec = object.get("spec").cloned().unwrap_or(Value::Null);
    match serde_json::from_value(spec) {
        Ok(spec) => Origin::Found(Box::new(spec)),
        Err(problem) => Origin::Refused(format!("{name:?} does not have the shape of its kind: {problem}")),
    }
}
