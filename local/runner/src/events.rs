//! What is told about a pod in Events?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::images::WhyHost;

/// Reporters as Kubernetes names them, so that `kubectl describe` reads as usual.
const KUBELET: &str = "kubelet";
const SCHEDULER: &str = "default-scheduler";

/// Repeated Events are counted, not added; so many are remembered before the memory starts afresh.
const MAX_REMEMBERED: usize = 4096;

/// An Event of a Pod, with the kubelet's reason and message where the kubelet has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    type_: &'static str,
    reason: &'static str,
    message: String,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: "Normal", reason, message: message.into() }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: "Warning", reason, message: message.into() }
    }

    /// The image is here.
    pub(crate) fn pulled(image: &str) -> Self {
        Self::normal("Pulled", format!("Container image \"{image}\" already present on machine"))
    }

    /// The image is not known here, or cannot be used.
    pub(crate) fn image_ignored(image: &str, why: WhyHost) -> Self {
        let why = match why {
            WhyHost::Unknown => "is not known here",
            WhyHost::NoNamespaces => "needs namespaces, which this machine does not give",
        };
        Self::normal("ImageIgnored", format!("Image \"{image}\" {why}: the host's files are used instead"))
    }

    pub(crate) fn created(container: &str) -> Self {
        Self::normal("Created", format!("Container created: {container}"))
    }

    pub(crate) fn started(container: &str) -> Self {
        Self::normal("Started", format!("Container started: {container}"))
    }

    /// A container that cannot be configured or started.
    pub(crate) fn failed(message: &str) -> Self {
        Self::warning("Failed", format!("Error: {message}"))
    }

    /// The reporting component: the scheduler for scheduling Events, otherwise the kubelet.
    fn component(&self) -> &'static str {
        if matches!(self.reason, "Scheduled" | "FailedScheduling") { SCHEDULER } else { KUBELET }
    }
}

type Seen = BTreeMap<(String, &'static str, String), (String, i32)>;

/// Writes Events; what fails is only logged, an Event is no promise.
#[derive(Clone)]
pub(crate) struct Recorder {
    client: Client,
    node: String,
    seen: Arc<Mutex<Seen>>,
}

impl Recorder {
    pub(crate) fn new(client: Client, node: String) -> Self {
        Self { client, node, seen: Arc::default() }
    }

    pub(crate) async fn note(&self, pod: &Pod, note: &Note, now: Timestamp) {
        let key = (pod.uid().unwrap_or_default(), note.reason, note.message.clone());
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let again = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.get_mut(&key).map(|(name, count)| {
                *count += 1;
                (name.clone(), *count)
            })
        };
        let written = match again {
            Some((name, count)) => {
                let patch = json!({"count": count, "lastTimestamp": Time(now)});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await
            }
            None => {
                let name = format!("{}.{:x}", pod.name_any(), now.as_nanosecond());
                let event = self.event(pod, note, &name, now);
                let created = api.create(&PostParams::default(), &event).await;
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.len() >= MAX_REMEMBERED {
                    seen.clear();
                }
                seen.insert(key, (name, 1));
                created
            }
        };
        if let Err(error) = written {
            tracing::debug!(%error, reason = note.reason, pod = pod.name_any(), "an Event was not written");
        }
    }

    fn event(&self, pod: &Pod, note: &Note, name: &str, now: Timestamp) -> Event {
        let component = note.component();
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: pod.namespace(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                namespace: pod.namespace(),
                uid: pod.uid(),
                ..ObjectReference::default()
            },
            type_: Some(note.type_.to_owned()),
            reason: Some(note.reason.to_owned()),
            message: Some(note.message.clone()),
            source: Some(EventSource {
                component: Some(component.to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some(component.to_owned()),
            reporting_instance: Some(self.node.clone()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        }
    }
}
