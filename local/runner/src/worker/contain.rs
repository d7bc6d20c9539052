//! How does an engine come to run a container, and what of those that it ran while Pawl did not?
//!
//! ```text
//! made ──▶ on our disk ──▶ started ──▶ followed to its end ──▶ end on our disk ──▶ removed
//! ```
//! In this order, a crash at any point leaves something that the next start can tell: what is made and not on disk never
//! ran; what is on disk and not ended is taken up by its name, whether it runs, has ended, or was not started yet.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;
use kube::ResourceExt;

use super::start::Refused;
use super::{Control, Running, Worker};
use crate::beneath::{self, Links, Missing, by_fd};
use crate::docker::{self, Engine, Error, Found, Mounted, Order, Stage, container_name};
use crate::events::Note;
use crate::node::hostname;
use crate::plan::{self, EngineTerms, Launch, Mount};
use crate::volumes::Ready;

/// Whoever a container runs as may leave last words.
const MESSAGE_MODE: u32 = 0o666;

/// A container that the engine has for us.
struct Had {
    id: String,
    /// It was there already, and has run: it is taken up, not started.
    begun: Option<Found>,
}

impl Worker {
    /// Takes up what an earlier life of Pawl left with the engine, and has what is over removed.
    pub(super) async fn take_up(&mut self) {
        let Some(engine) = self.shared.engine.clone() else { return };
        for left in self.shared.leftovers.take(&self.uid) {
            let over = self.records.read(&left.container).is_some_and(|record| {
                left.run < record.restarts || (left.run == record.restarts && record.exit.is_some())
            });
            // What no record knows was made and never started, or its record is gone: whoever makes it again finds it.
            if over {
                self.remove_from(&engine, left.id);
            }
        }
        for index in 0..self.life.containers.len() {
            let Some(container) = self.container(index).cloned() else { continue };
            let Some(record) = self.records.read(&container.name).filter(|record| record.exit.is_none())
            else {
                continue;
            };
            let Some(name) = record.container else { continue };
            let log = match self.shared.logs.resume(&self.uid, &container.name, record.restarts) {
                Ok(log) => log,
                Err(error) => {
                    tracing::error!(%error, container = name, "a container's log cannot be gone on with");
                    continue;
                }
            };
            let found = engine.inspect(&name).await.ok();
            let (handle, end) = docker::follow(engine.clone(), name, log);
            let running = Running {
                control: Control::Engine(handle),
                stop_signal: found.and_then(|found| found.stop_signal),
                fallback_to_logs: plan::falls_back(&container),
                secrets: self.secrets(&container).await,
            };
            self.life.taken_up(index, record.id, record.started_at);
            self.runs(index, running, end);
        }
    }

    /// Has the engine run a container.
    pub(super) async fn launch_in_engine(
        &mut self,
        index: usize,
        container: &Container,
        launch: Launch,
        terms: &EngineTerms,
        ready: &BTreeMap<String, Ready>,
    ) -> Result<(), Refused> {
        let Some(engine) = self.shared.engine.clone() else { return Err(not_made("there is no engine")) };
        let restarts = self.restarts(index);
        let name = container_name(&self.uid, &container.name, restarts);
        let mounts = self.mounts(&container.name, &launch, ready).await;
        let mounts = mounts.map_err(|error| not_made(&format!("mounting volumes: {error}")))?;
        let pod = format!("{}/{}", self.pod.namespace().unwrap_or_default(), self.pod.name_any());
        let order = Order {
            pod_uid: &self.uid,
            pod: &pod,
            container: &container.name,
            hostname: &hostname(&self.pod),
            launch: &launch,
            terms,
            mounts: &mounts,
            network: self.shared.options.network,
        };
        let had = self.make(&engine, &name, &order).await?;
        let mut record = self.record(index, format!("{}://{}", engine.kind(), had.id));
        record.container = Some(name.clone());
        if let Some(started_at) = had.begun.as_ref().and_then(|found| found.started_at) {
            record.started_at = started_at;
        }
        let cannot = |message: String| Refused::Cannot { reason: "StartError", message };
        self.records.write(&container.name, &record).map_err(|error| cannot(error.to_string()))?;
        let log = self.shared.logs.resume(&self.uid, &container.name, restarts);
        let log = log.map_err(|error| cannot(error.to_string()))?;
        self.note(Note::created(&container.name)).await;
        if had.begun.is_none()
            && let Err(error) = engine.start(&name).await
            // Where there is no answer it may run: whoever follows it finds out.
            && error.is_refusal()
        {
            self.remove_from(&engine, name);
            return Err(cannot(error.to_string()));
        }
        self.life.started(index, record.id, record.started_at);
        let (handle, end) = docker::follow(engine, name, log);
        self.runs(index, Running::of(Control::Engine(handle), launch), end);
        self.note(Note::started(&container.name)).await;
        Ok(())
    }

    /// A container of that name: a new one, or the one that there is.
    async fn make(&self, engine: &Engine, name: &str, order: &Order<'_>) -> Result<Had, Refused> {
        let error = match engine.make(name, order).await {
            Ok(id) => return Ok(Had { id, begun: None }),
            Err(error) => error,
        };
        // Whether the name is taken is asked, not read from the answer: engines say it in several ways.
        let Ok(found) = engine.inspect(name).await else { return Err(not_made(&error.to_string())) };
        if !found.is_of(engine, order.pod_uid, order.container) {
            return Err(not_made(&format!("the name {name} is taken by a container of somebody else's")));
        }
        if found.stage != Stage::Made {
            return Ok(Had { id: found.id.clone(), begun: Some(found) });
        }
        // Made before a crash, perhaps from what the pod's Secrets were then.
        let made = async {
            engine.remove(&found.id).await?;
            engine.make(name, order).await
        };
        let id = made.await.map_err(|error: Error| not_made(&error.to_string()))?;
        Ok(Had { id, begun: None })
    }

    /// What the container sees of this machine: volumes, and the place for its last words.
    async fn mounts(
        &self,
        container: &str,
        launch: &Launch,
        ready: &BTreeMap<String, Ready>,
    ) -> io::Result<Vec<Mounted>> {
        let volumes: Vec<(Mount, Ready)> = launch
            .mounts
            .iter()
            .filter_map(|mount| Some((mount.clone(), ready.get(&mount.volume)?.clone())))
            .collect();
        let (message, target) = (self.message_path(container), PathBuf::from(&launch.termination_path));
        let made = tokio::task::spawn_blocking(move || {
            let mut mounts = volumes.iter().map(mounted).collect::<io::Result<Vec<_>>>()?;
            write_message(&message)?;
            mounts.push(Mounted { source: message, target, read_only: false });
            Ok(mounts)
        });
        made.await.map_err(io::Error::other).flatten()
    }

    /// Removes a container that is of no more use; whoever waits for this pod's end waits for that too.
    pub(super) fn remove_from(&mut self, engine: &Engine, name: String) {
        let engine = engine.clone();
        self.removals.spawn(async move {
            // The next start removes what is left.
            if let Err(error) = engine.remove(&name).await {
                tracing::warn!(%error, container = name, "a container that has ended is left with the engine");
            }
        });
    }
}

/// A kubelet's reason for a container that the runtime would not make; tried again.
fn not_made(message: &str) -> Refused {
    Refused::Later {
        reason: "CreateContainerError",
        note: Note::failed(message),
        message: message.to_owned(),
    }
}

/// Where a volume, or a part of it, lies. The part is found without leaving the volume, and named by what was found: a
/// link in it that leads elsewhere is an error.
fn mounted((mount, ready): &(Mount, Ready)) -> io::Result<Mounted> {
    let source = match &mount.sub_path {
        None => ready.source.clone(),
        Some(path) => {
            let base = beneath::open(&ready.source)?;
            let part = beneath::make(&base, path, Links::Stay, Missing::Directory)?;
            std::fs::read_link(by_fd(&part))?
        }
    };
    Ok(Mounted { source, target: mount.target.clone(), read_only: mount.read_only || ready.read_only })
}

fn write_message(path: &Path) -> io::Result<()> {
    path.parent().map(std::fs::create_dir_all).transpose()?;
    std::fs::write(path, "")?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MESSAGE_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_volume_is_made_and_no_link_leads_out_of_it() {
        let home = tempfile::tempdir().unwrap();
        let volume = home.path().canonicalize().unwrap().join("v");
        std::fs::create_dir(&volume).unwrap();
        std::os::unix::fs::symlink("/etc", volume.join("out")).unwrap();
        std::fs::create_dir(volume.join("real")).unwrap();
        std::os::unix::fs::symlink("real", volume.join("in")).unwrap();
        let at = |sub: &str| {
            let mount = Mount {
                volume: "v".to_owned(),
                sub_path: Some(sub.into()),
                target: "/t".into(),
                read_only: false,
            };
            mounted(&(mount, Ready { source: volume.clone(), read_only: true }))
        };
        let made = at("a/b").unwrap();
        assert_eq!((made.source, made.read_only), (volume.join("a/b"), true));
        assert!(volume.join("a/b").is_dir());
        assert_eq!(at("in").unwrap().source, volume.join("real"));
        assert!(at("out").is_err() && at("out/x").is_err());
    }
}
