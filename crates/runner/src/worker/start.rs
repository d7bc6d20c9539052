//! How does a container of a pod get going, and what if it cannot?

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Container;
use kube::ResourceExt;

use super::{Worker, remove_dir};
use crate::env::Context;
use crate::events::Note;
use crate::images::Image;
use crate::isolate::{Bind, CANNOT_START, ContainerSpec};
use crate::life::Exit;
use crate::plan::{self, Launch, Refusal};
use crate::records::{Process, Record};
use crate::sources;
use crate::volumes::{self, Ready};

/// Why a container does not start now.
enum Refused {
    Later { reason: &'static str, message: String, note: Note },
    Cannot { reason: &'static str, message: String },
}

impl Worker {
    pub(super) async fn start(&mut self, index: usize) {
        let Some(container) = self.container(index).cloned() else { return };
        let image = self.shared.images.resolve(container.image.as_deref().unwrap_or_default());
        if let Some(life) = self.life.containers.get_mut(index) {
            image.id().clone_into(&mut life.image_id);
        }
        let refused = match self.prepare(&container, &image).await {
            Ok((launch, ready)) => match self.launch(index, &container, &image, launch, &ready).await {
                Ok(()) => return,
                Err(error) => Refused::Cannot { reason: "StartError", message: error.to_string() },
            },
            Err(refused) => refused,
        };
        let now = self.shared.now();
        match refused {
            Refused::Later { reason, message, note } => {
                self.life.held_up(index, reason, message, now);
                self.note(note).await;
            }
            Refused::Cannot { reason, message } => {
                self.note(Note::Failed { message: message.clone() }).await;
                let exit = Exit {
                    code: i32::from(CANNOT_START),
                    reason: reason.to_owned(),
                    message: Some(message),
                    started_at: None,
                    finished_at: now,
                    id: self.id(index),
                };
                self.life.started(index, exit.id.clone(), now);
                self.ended(index, exit);
            }
        }
    }

    /// Everything a container needs before its process: objects, volumes, the plan.
    async fn prepare(
        &self,
        container: &Container,
        image: &Image,
    ) -> Result<(Launch, BTreeMap<String, Ready>), Refused> {
        let shared = &self.shared;
        let mount = |message: String| Refused::Later {
            reason: "ContainerCreating",
            note: Note::FailedMount { message: message.clone() },
            message,
        };
        let found = sources::collect(&shared.client, &self.pod, &shared.claims).await;
        let sources = found.map_err(|error| mount(format!("reading what the pod refers to: {error}")))?;
        let defaults = shared.environment(&self.pod);
        let context = Context {
            pod: &self.pod,
            sources: &sources,
            node: &shared.options.node_name,
            capacity: shared.capacity,
            defaults: &defaults,
        };
        let plans = plan::volumes(&context, shared.options.allow_host_path);
        let plans = plans.map_err(|error| mount(error.to_string()))?;
        let launch = plan::container(&context, container, image).map_err(|refusal| match refusal {
            Refusal::Config(error) => Refused::Later {
                reason: "CreateContainerConfigError",
                note: Note::Failed { message: error.to_string() },
                message: error.to_string(),
            },
            Refusal::NoCommand(message) => Refused::Cannot { reason: "ContainerCannotRun", message },
        })?;
        let directory = shared.home(&self.uid).join("volumes");
        let ready = tokio::task::spawn_blocking(move || volumes::set_up(&directory, &plans)).await;
        let ready = ready.map_err(io::Error::other).flatten();
        Ok((launch, ready.map_err(|error| mount(format!("setting up volumes: {error}")))?))
    }

    async fn launch(
        &mut self,
        index: usize,
        container: &Container,
        image: &Image,
        launch: Launch,
        ready: &BTreeMap<String, Ready>,
    ) -> Result<(), crate::process::Error> {
        if *image == Image::Host && !std::mem::replace(&mut self.image_ignored_told, true) {
            self.note(Note::ImageIgnored { image: container.image.clone().unwrap_or_default() }).await;
        }
        let spec = self.spec(&container.name, &launch, ready).await?;
        let id = self.id(index);
        let restarts = self.restarts(index);
        let mut record = Record {
            id: id.clone(),
            restarts,
            ends_in_row: self.life.containers.get(index).map_or(0, |c| c.ends_in_row),
            started_at: self.shared.now(),
            process: None,
            exit: None,
        };
        // On disk before anything runs: after a crash in between, the container counts as begun.
        self.records.write(&container.name, &record)?;
        let writer = self.shared.logs.writer(&self.uid, &container.name, restarts)?;
        self.note(Note::Created { container: container.name.clone() }).await;
        let mut process = self.shared.spawner.start(&spec, writer).await?;
        record.process = Process::of(process.handle.pid);
        self.records.write(&container.name, &record)?;
        self.running.insert(index, (process.handle.clone(), launch));
        self.life.started(index, id, record.started_at);
        self.waits.spawn(async move { (index, process.wait().await) });
        self.note(Note::Started { container: container.name.clone() }).await;
        Ok(())
    }

    async fn spec(
        &self,
        name: &str,
        launch: &Launch,
        ready: &BTreeMap<String, Ready>,
    ) -> io::Result<ContainerSpec> {
        let shared = &self.shared;
        let home = shared.home(&self.uid);
        let (root, message) = (home.join("roots").join(name), self.message_path(name));
        let fresh = root.clone();
        let empty = tokio::task::spawn_blocking(move || {
            remove_dir(&fresh)?;
            std::fs::create_dir_all(&fresh)?;
            std::fs::create_dir_all(message.parent().unwrap_or(&fresh))?;
            std::fs::write(&message, "")
        });
        empty.await.map_err(io::Error::other).flatten()?;
        let mut binds: Vec<Bind> = launch
            .mounts
            .iter()
            .filter_map(|mount| Some((mount, ready.get(&mount.volume)?)))
            .map(|(mount, volume)| Bind {
                source: volume.source.clone(),
                sub_path: mount.sub_path.clone(),
                target: mount.target.clone(),
                read_only: mount.read_only || volume.read_only,
            })
            .collect();
        if shared.isolation.mount {
            let target = PathBuf::from(&launch.termination_path);
            binds.push(Bind { source: self.message_path(name), sub_path: None, target, read_only: false });
        }
        Ok(ContainerSpec {
            runner: std::process::id().cast_signed(),
            executable: shared.options.own_executable.clone(),
            isolation: shared.isolation,
            argv: launch.argv.clone(),
            env: launch.env.clone(),
            working_dir: PathBuf::from(&launch.working_dir),
            hostname: self.pod.name_any(),
            root,
            binds,
            read_only_root: launch.read_only_root,
            memory_bytes: launch.memory_bytes,
            user: launch.user,
        })
    }
}
