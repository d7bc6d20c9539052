//! How does an image get to the engine before its container starts, and what if it does not?
//!
//! ```text
//! wanted ─▶ under way ─▶ here ─▶ started
//!              ▲   │ failed: ErrImagePull
//!   time is up │   ▼
//!              └─ left alone: ImagePullBackOff
//! ```
//! A pull takes minutes: the pod's task goes on meanwhile, and a pod that is deleted takes its pull with it. The words are
//! a kubelet's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use tokio::task::JoinSet;

use super::Worker;
use super::start::Refused;
use crate::docker::{Engine, EngineImage};
use crate::events::Note;
use crate::images::Image;
use crate::oci::Reference;

/// Of the time that an image is left alone after a failed pull, this part says why it failed, the rest that it is left
/// alone: both are to be seen by whoever looks.
const SAID_FIRST: i32 = 10;

/// The pulls of a pod.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    tasks: JoinSet<Pulled>,
    /// By the container that waits.
    of: BTreeMap<usize, Pull>,
}

#[derive(Debug)]
struct Pull {
    /// In a row.
    failures: u32,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    UnderWay,
    Here(EngineImage),
    Failed { until: Timestamp, error: String },
}

/// A pull that has ended.
#[derive(Debug)]
pub(super) struct Pulled {
    index: usize,
    took: Duration,
    image: Result<EngineImage, String>,
}

/// `imagePullPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Always,
    IfNotPresent,
    Never,
}

impl Pulls {
    /// The next pull that ends; `None`: none is under way.
    pub(super) async fn next(&mut self) -> Option<Pulled> {
        // One that broke, or was stopped with its pod, has nothing to say.
        self.tasks.join_next().await?.ok()
    }
}

impl Worker {
    /// The engine's image for a container; if it is not to be had yet, it is on its way when this returns.
    pub(super) async fn engine_image(
        &mut self,
        index: usize,
        container: &Container,
        engine: &Engine,
    ) -> Result<Image, Refused> {
        let name = container.image.clone().unwrap_or_default();
        let reference = reference(&name)?;
        match self.pulls.of.get(&index).map(|pull| &pull.stage) {
            Some(Stage::UnderWay) => return Err(held(Timestamp::MAX)),
            Some(Stage::Here(_)) => {
                if let Some(Pull { stage: Stage::Here(image), .. }) = self.pulls.of.remove(&index) {
                    return Ok(Image::Engine(Arc::new(image)));
                }
            }
            Some(Stage::Failed { until, error }) if self.shared.now() < *until => {
                let message = format!("Back-off pulling image \"{name}\": ErrImagePull: {error}");
                let refused =
                    Refused::Held { reason: "ImagePullBackOff", message: Some(message), until: *until };
                self.note(Note::normal("BackOff", format!("Back-off pulling image \"{name}\""))).await;
                self.note(Note::failed("ImagePullBackOff")).await;
                return Err(refused);
            }
            Some(Stage::Failed { .. }) | None => {}
        }
        let here = engine.image(&reference).await.map_err(|error| {
            let message = format!("Failed to inspect image \"{name}\": {error}");
            Refused::later("ImageInspectError", "InspectFailed", message)
        })?;
        match (policy(container, &reference), here) {
            (Policy::Never | Policy::IfNotPresent, Some(image)) => {
                self.note(Note::pulled(&name)).await;
                Ok(Image::Engine(Arc::new(image)))
            }
            (Policy::Never, None) => Err(Refused::never_pulled(&name)),
            (Policy::Always, _) | (Policy::IfNotPresent, None) => {
                self.note(Note::normal("Pulling", format!("Pulling image \"{name}\""))).await;
                self.begin_pull(index, engine.clone(), reference);
                Err(held(Timestamp::MAX))
            }
        }
    }

    fn begin_pull(&mut self, index: usize, engine: Engine, reference: Reference) {
        let failures = self.pulls.of.get(&index).map_or(0, |pull| pull.failures);
        self.pulls.of.insert(index, Pull { failures, stage: Stage::UnderWay });
        self.pulls.tasks.spawn(async move {
            let begun = Instant::now();
            let image = fetch(&engine, &reference).await;
            Pulled { index, took: begun.elapsed(), image }
        });
    }

    /// A pull has ended: its container is tried again, now or later.
    pub(super) async fn pull_ended(&mut self, pulled: Pulled) {
        let Pulled { index, took, image } = pulled;
        let Some(pull) = self.pulls.of.get_mut(&index) else { return };
        let now = self.shared.now();
        let name = self.life.containers.get(index).map(|life| life.image.clone()).unwrap_or_default();
        match image {
            Ok(image) => {
                let bytes = image.bytes;
                pull.stage = Stage::Here(image);
                self.life.held_up_until(index, "", None, now);
                let took = format!("{}ms", took.as_millis());
                let message = format!(
                    "Successfully pulled image \"{name}\" in {took} ({took} including waiting). Image size: {bytes} bytes."
                );
                self.note(Note::normal("Pulled", message)).await;
            }
            Err(error) => {
                pull.failures = pull.failures.saturating_add(1);
                let delay = self.life.pull_back_off(pull.failures);
                let until = now.checked_add(delay).unwrap_or(now);
                pull.stage = Stage::Failed { until, error: error.clone() };
                let said = now.checked_add(delay / SAID_FIRST).unwrap_or(now);
                self.life.held_up_until(index, "ErrImagePull", Some(error.clone()), said);
                let message = format!("Failed to pull image \"{name}\": {error}");
                self.note(Note::warning("Failed", message)).await;
                self.note(Note::failed("ErrImagePull")).await;
            }
        }
    }
}

async fn fetch(engine: &Engine, reference: &Reference) -> Result<EngineImage, String> {
    engine.pull(reference).await?;
    let image = engine.image(reference).await.map_err(|error| error.to_string())?;
    image.ok_or_else(|| "the engine pulled it, and does not have it".to_owned())
}

/// Nothing is said but that the container is being made.
fn held(until: Timestamp) -> Refused {
    Refused::Held { reason: "", message: None, until }
}

fn reference(name: &str) -> Result<Reference, Refused> {
    name.parse().map_err(|error| {
        let message =
            format!("Failed to apply default image tag \"{name}\": {error}: invalid reference format");
        Refused::later("InvalidImageName", "InspectFailed", message)
    })
}

/// Where a container says nothing, what may change is looked for, and what cannot is not.
fn policy(container: &Container, reference: &Reference) -> Policy {
    match container.image_pull_policy.as_deref() {
        Some("Always") => Policy::Always,
        Some("Never") => Policy::Never,
        Some("IfNotPresent") => Policy::IfNotPresent,
        _ if reference.digest.is_none() && reference.tag.as_deref() == Some("latest") => Policy::Always,
        _ => Policy::IfNotPresent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_may_move_is_always_pulled_and_a_digest_never_again() {
        let digest = format!("x@sha256:{}", "0".repeat(64));
        let both = format!("x:latest@sha256:{}", "0".repeat(64));
        let of = |image: &str, policy: Option<&str>| {
            let container =
                Container { image_pull_policy: policy.map(str::to_owned), ..Container::default() };
            super::policy(&container, &image.parse().unwrap())
        };
        for (image, expect) in [
            ("x", Policy::Always),
            ("x:latest", Policy::Always),
            ("x:1", Policy::IfNotPresent),
            (digest.as_str(), Policy::IfNotPresent),
            (both.as_str(), Policy::IfNotPresent),
        ] {
            assert_eq!(of(image, None), expect, "{image}");
            assert_eq!(of(image, Some("Never")), Policy::Never);
        }
    }
}
