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

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Scheduled {
        node: String,
    },
    FailedScheduling {
        message: String,
    },
    ImageIgnored {
        image: String,
        why: WhyHost,
    },
    /// The image is here.
    Pulled {
        image: String,
    },
    /// The image is being fetched.
    Pulling {
        image: String,
    },
    /// The image was fetched.
    Fetched {
        image: String,
        took: std::time::Duration,
        bytes: u64,
    },
    /// Fetching the image failed, and is tried again later.
    PullBackOff {
        image: String,
    },
    /// The image cannot be looked at, or its name is none.
    ImageUnfit {
        reason: &'static str,
        message: String,
    },
    /// The image is here, but cannot be used.
    FailedPull {
        message: String,
    },
    /// The image is not here, and must not be looked for elsewhere.
    NeverPull {
        message: String,
    },
    /// The pod asks for groups that the machine cannot give.
    GroupsIgnored,
    /// The pod asks for volumes of a group, and Pawl may not give them away.
    VolumesNotGiven,
    Created {
        container: String,
    },
    Started {
        container: String,
    },
    Killing {
        container: String,
    },
    PreStopSkipped {
        container: String,
    },
    BackOff {
        message: String,
    },
    FailedMount {
        message: String,
    },
    /// A container that cannot be configured or started.
    Failed {
        message: String,
    },
    DeadlineExceeded,
}

impl Note {
    fn words(&self, pod: &Pod) -> (&'static str, &'static str, String) {
        let (normal, warning) = ("Normal", "Warning");
        match self {
            Self::Scheduled { node } => {
                let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
                (normal, "Scheduled", format!("Successfully assigned {namespace}/{name} to {node}"))
            }
            Self::FailedScheduling { message } => (warning, "FailedScheduling", message.clone()),
            Self::ImageIgnored { image, why } => {
                let why = match why {
                    WhyHost::Unknown => "is not known here",
                    WhyHost::NoNamespaces => "needs namespaces, which this machine does not give",
                };
                let message = format!("Image \"{image}\" {why}: the host's files are used instead");
                (normal, "ImageIgnored", message)
            }
            Self::Pulled { image } => {
                (normal, "Pulled", format!("Container image \"{image}\" already present on machine"))
            }
            Self::Pulling { image } => (normal, "Pulling", format!("Pulling image \"{image}\"")),
            Self::Fetched { image, took, bytes } => {
                let took = format!("{}ms", took.as_millis());
                let message = format!(
                    "Successfully pulled image \"{image}\" in {took} ({took} including waiting). Image size: {bytes} \
                     bytes."
                );
                (normal, "Pulled", message)
            }
            Self::PullBackOff { image } => (normal, "BackOff", format!("Back-off pulling image \"{image}\"")),
            Self::ImageUnfit { reason, message } => (warning, *reason, message.clone()),
            Self::FailedPull { message } => (warning, "Failed", message.clone()),
            Self::NeverPull { message } => (warning, "ErrImageNeverPull", message.clone()),
            Self::GroupsIgnored => {
                let message = "This machine lets Pawl map one group only: fsGroup and supplementalGroups are not \
                    seen, volumes belong to the container's own user and group";
                (warning, "GroupsIgnored", message.to_owned())
            }
            Self::VolumesNotGiven => {
                let message =
                    "Pawl does not run as root, so volumes are not given to fsGroup: they stay its own";
                (warning, "GroupsIgnored", message.to_owned())
            }
            Self::Created { container } => (normal, "Created", format!("Container created: {container}")),
            Self::Started { container } => (normal, "Started", format!("Container started: {container}")),
            Self::Killing { container } => (normal, "Killing", format!("Stopping container {container}")),
            Self::PreStopSkipped { container } => {
                let message = format!("Container {container} has a preStop hook, which is not run here");
                (warning, "PreStopSkipped", message)
            }
            Self::BackOff { message } => {
                let message = message.strip_prefix("back-off").map_or(message.clone(), |_| {
                    let container =
                        message.split("container=").nth(1).and_then(|rest| rest.split(' ').next());
                    let pod = message.split("pod=").nth(1).unwrap_or_default();
                    format!(
                        "Back-off restarting failed container {} in pod {pod}",
                        container.unwrap_or_default()
                    )
                });
                (warning, "BackOff", message)
            }
            Self::FailedMount { message } => (warning, "FailedMount", message.clone()),
            Self::Failed { message } => (warning, "Failed", format!("Error: {message}")),
            Self::DeadlineExceeded => {
                let message = "Pod was active on the node longer than the specified deadline";
                (normal, "DeadlineExceeded", message.to_owned())
            }
        }
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
        let (type_, reason, message) = note.words(pod);
        let key = (pod.uid().unwrap_or_default(), reason, message.clone());
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
                let event = self.event(pod, note, &name, type_, reason, &message, now);
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
            tracing::debug!(%error, reason, pod = pod.name_any(), "an Event was not written");
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one object, named at the only call")]
    fn event(
        &self,
        pod: &Pod,
        note: &Note,
        name: &str,
        type_: &str,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Event {
        let scheduling = matches!(note, Note::Scheduled { .. } | Note::FailedScheduling { .. });
        let component = if scheduling { SCHEDULER } else { KUBELET };
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
            type_: Some(type_.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
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
