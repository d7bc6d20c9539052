//! How does a container of a pod get going, and what if it cannot?

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::Api;

use super::{Control, End, Running, Worker, remove_dir};
use crate::access;
use crate::cgroup::{Cgroup, Limits};
use crate::env::{self, Context};
use crate::events::Note;
use crate::identity::{self, Identity};
use crate::images::{Image, WhyHost};
use crate::isolate::{Bind, CANNOT_START, ContainerSpec, ImageRoot};
use crate::life::Exit;
use crate::mapping::GROUP_BASE;
use crate::node::hostname;
use crate::plan::{self, How, Launch, Refusal};
use crate::records::Process;
use crate::rootfs;
use crate::sources::{self, Sources};
use crate::volumes::{self, Gift, Ready};

/// The pod asks for groups that the machine cannot give.
const GROUPS_IGNORED: &str = "This machine lets Pawl map one group only: fsGroup and supplementalGroups are not seen, \
    volumes belong to the container's own user and group";
/// The pod asks for volumes of a group, and Pawl may not give them away.
const VOLUMES_NOT_GIVEN: &str =
    "Pawl does not run as root, so volumes are not given to fsGroup: they stay its own";

/// Why a container does not start now.
pub(super) enum Refused {
    Later {
        reason: &'static str,
        message: String,
        note: Note,
    },
    /// Until a time, or something else happens; all has been said.
    Held {
        reason: &'static str,
        message: Option<String>,
        until: Timestamp,
    },
    Cannot {
        reason: &'static str,
        message: String,
    },
}

impl Refused {
    /// Tried again; the Event says what the status says.
    pub(super) fn later(reason: &'static str, event: &'static str, message: String) -> Self {
        Self::Later { reason, note: Note::warning(event, message.clone()), message }
    }

    /// The image is not here, and may not be pulled.
    pub(super) fn never_pulled(image: &str) -> Self {
        let message = format!("Container image \"{image}\" is not present with pull policy of Never");
        Self::later("ErrImageNeverPull", "ErrImageNeverPull", message)
    }
}

impl Worker {
    pub(super) async fn start(&mut self, index: usize) {
        let Some(container) = self.container(index).cloned() else { return };
        let refused = match self.try_start(index, &container).await {
            Ok(()) => return,
            Err(refused) => refused,
        };
        let now = self.shared.now();
        match refused {
            Refused::Later { reason, message, note } => {
                self.life.held_up(index, reason, message, now);
                self.note(note).await;
            }
            Refused::Held { reason, message, until } => {
                self.life.held_up_until(index, reason, message, until);
            }
            Refused::Cannot { reason, message } => {
                self.note(Note::failed(&message)).await;
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

    async fn try_start(&mut self, index: usize, container: &Container) -> Result<(), Refused> {
        let image = self.image(index, container).await?;
        if let Some(life) = self.life.containers.get_mut(index) {
            life.image_id = image.id();
        }
        let (launch, ready) = self.prepare(container, &image).await?;
        self.tell_of_compromises(container, &image, &launch).await;
        match launch.how.clone() {
            How::Process(identity) => {
                let launched = self.launch(index, container, &image, launch, &identity, &ready).await;
                launched.map_err(|error| Refused::Cannot { reason: "StartError", message: error.to_string() })
            }
            How::Engine(terms) => self.launch_in_engine(index, container, launch, &terms, &ready).await,
        }
    }

    /// What the container's image stands for.
    async fn image(&mut self, index: usize, container: &Container) -> Result<Image, Refused> {
        let own = self.shared.images.own(container.image.as_deref().unwrap_or_default());
        match (self.shared.engine.clone(), own) {
            // An image that is the running executable is in no engine: it is a process of this machine, as ever.
            (_, Some(own)) => Ok(own),
            (Some(engine), None) => self.engine_image(index, container, &engine).await,
            (None, None) => self.image_here(container).await,
        }
    }

    /// What is known by that name without an engine.
    async fn image_here(&self, container: &Container) -> Result<Image, Refused> {
        let name = container.image.clone().unwrap_or_default();
        let images = self.shared.images.clone();
        let resolve = {
            let name = name.clone();
            tokio::task::spawn_blocking(move || images.resolve(&name))
        };
        let found = match resolve.await {
            Ok(found) => found.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let image = found.map_err(|error| {
            let message = format!("Failed to pull image \"{name}\": {error}");
            Refused::Later { reason: "ErrImagePull", note: Note::warning("Failed", message), message: error }
        })?;
        let never = container.image_pull_policy.as_deref() == Some("Never");
        if never && image == Image::Host(WhyHost::Unknown) {
            return Err(Refused::never_pulled(&name));
        }
        Ok(image)
    }

    /// Everything a container needs before its process: objects, volumes, the plan.
    async fn prepare(
        &self,
        container: &Container,
        image: &Image,
    ) -> Result<(Launch, BTreeMap<String, Ready>), Refused> {
        let shared = &self.shared;
        let mount = |message: String| Refused::later("ContainerCreating", "FailedMount", message);
        let pod = self.with_access().await;
        let pod = pod.map_err(|error| mount(format!("reading the pod's ServiceAccount: {error}")))?;
        let found = sources::collect(&shared.client, &pod, &shared.claims).await;
        let sources = found.map_err(|error| mount(format!("reading what the pod refers to: {error}")))?;
        let (defaults, runtime) = (shared.service_env(), shared.runtime_env(&self.pod));
        let context = self.context(&pod, &sources, &defaults, &runtime);
        // Containers are planned from the pod that has its account's volume.
        let container = all_containers(&pod).find(|other| other.name == container.name).unwrap_or(container);
        let plans = plan::volumes(&context, shared.options.allow_host_path);
        let plans = plans.map_err(|error| mount(error.to_string()))?;
        let launch = plan::container(&context, container, image).map_err(|refusal| match refusal {
            Refusal::Config(error) => Refused::Later {
                reason: "CreateContainerConfigError",
                note: Note::failed(&error.to_string()),
                message: error.to_string(),
            },
            Refusal::NoCommand(message) => Refused::Cannot { reason: "ContainerCannotRun", message },
        })?;
        let directory = shared.home(&self.uid).join("volumes");
        let gift =
            self.volume_group(image).map(|group| Gift { group, claims: shared.claims.directory.clone() });
        let ready =
            tokio::task::spawn_blocking(move || volumes::set_up(&directory, &plans, gift.as_ref())).await;
        let ready = ready.map_err(io::Error::other).flatten();
        Ok((launch, ready.map_err(|error| mount(format!("setting up volumes: {error}")))?))
    }

    fn context<'a>(
        &'a self,
        pod: &'a Pod,
        sources: &'a Sources,
        defaults: &'a [(String, String)],
        runtime: &'a [(String, String)],
    ) -> Context<'a> {
        let shared = &self.shared;
        let (node, capacity) = (&shared.options.node_name, shared.capacity);
        Context { pod, sources, node, capacity, defaults, runtime }
    }

    /// What is to be masked in the output of a container that runs already; `None`: that is no longer known.
    pub(super) async fn secrets(&self, container: &Container) -> Option<Vec<String>> {
        let shared = &self.shared;
        let sources = sources::collect(&shared.client, &self.pod, &shared.claims).await.ok()?;
        let (defaults, runtime) = (shared.service_env(), shared.runtime_env(&self.pod));
        let context = self.context(&self.pod, &sources, &defaults, &runtime);
        env::resolve(&context, container).ok().map(|environment| environment.secrets)
    }

    /// The pod, with what it needs to talk to the API server, if there is one to talk to and a place to put it.
    async fn with_access(&self) -> Result<Pod, kube::Error> {
        let shared = &self.shared;
        let place = shared.isolation.mount || shared.engine.is_some();
        if shared.options.service.is_none() || !place {
            return Ok(self.pod.clone());
        }
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
        let namespace = self.pod.namespace().unwrap_or_default();
        let api: Api<ServiceAccount> = Api::namespaced(shared.client.clone(), &namespace);
        Ok(access::with_access(&self.pod, api.get_opt(&account).await?.as_ref()))
    }

    /// The machine's number of the group that volumes are given to; `None` where it cannot be, or need not.
    fn volume_group(&self, image: &Image) -> Option<u32> {
        let group = self.pod.spec.as_ref().and_then(identity::fs_group)?;
        let group = u32::try_from(group).ok()?;
        match image {
            // An engine's groups are the machine's own, and only root may give to them.
            Image::Engine(_) => return Some(group).filter(|_| nix::unistd::geteuid().is_root()),
            Image::Own { .. } | Image::Unpacked(_) | Image::Host(_) => {}
        }
        match Some(group).filter(|_| self.shared.isolation.groups)? {
            0 => Some(nix::unistd::getegid().as_raw()),
            group => group.checked_add(GROUP_BASE),
        }
    }

    /// What the machine does otherwise than the pod asks, each said once.
    async fn tell_of_compromises(&mut self, container: &Container, image: &Image, launch: &Launch) {
        let name = container.image.clone().unwrap_or_default();
        match image {
            Image::Host(why) if self.told.insert("image") => {
                self.note(Note::image_ignored(&name, *why)).await;
            }
            Image::Unpacked(_) => self.note(Note::pulled(&name)).await,
            // An engine's image was told of when it was found.
            Image::Host(_) | Image::Own { .. } | Image::Engine(_) => {}
        }
        let given = || {
            self.pod.spec.as_ref().and_then(identity::fs_group).is_none()
                || self.volume_group(image).is_some()
        };
        let note = match &launch.how {
            How::Process(identity) if !identity.groups.is_empty() && !self.shared.isolation.groups => {
                Some(GROUPS_IGNORED)
            }
            How::Engine(_) if !given() => Some(VOLUMES_NOT_GIVEN),
            How::Process(_) | How::Engine(_) => None,
        };
        if let Some(message) = note
            && self.told.insert("groups")
        {
            self.note(Note::warning("GroupsIgnored", message)).await;
        }
    }

    async fn launch(
        &mut self,
        index: usize,
        container: &Container,
        image: &Image,
        launch: Launch,
        identity: &Identity,
        ready: &BTreeMap<String, Ready>,
    ) -> Result<(), crate::process::Error> {
        let mut spec = self.spec(&container.name, image, &launch, identity, ready).await?;
        let mut record = self.record(index, self.id(index));
        let restarts = record.restarts;
        // On disk before anything runs: after a crash in between, the container counts as begun.
        self.records.write(&container.name, &record)?;
        let writer = self.shared.logs.writer(&self.uid, &container.name, restarts)?;
        let cgroup = self.limit(&mut spec, &container.name, restarts, &launch).await?;
        self.note(Note::created(&container.name)).await;
        let mut process = match self.shared.spawner.start(&spec, writer).await {
            Ok(process) => process,
            Err(error) => {
                leave(cgroup).await;
                return Err(error);
            }
        };
        record.process = Process::of(process.handle.pid);
        self.records.write(&container.name, &record)?;
        self.life.started(index, record.id, record.started_at);
        let control = Control::Process(process.handle.clone());
        self.runs(index, Running::of(control, launch), async move {
            let code = process.wait().await;
            End::Exited { code, oom_killed: leave(cgroup).await, finished_at: None }
        });
        self.note(Note::started(&container.name)).await;
        Ok(())
    }

    /// Limits of the container as a whole, where the machine keeps them.
    async fn limit(
        &self,
        spec: &mut ContainerSpec,
        name: &str,
        restarts: u32,
        launch: &Launch,
    ) -> io::Result<Option<Cgroup>> {
        let Ok(cgroups) = &self.shared.cgroups else { return Ok(None) };
        let limits = Limits { memory_bytes: launch.memory_bytes, cpu_milli: launch.cpu_milli };
        let (cgroups, name) = (cgroups.clone(), format!("{}-{name}-{restarts}", self.uid));
        let made = tokio::task::spawn_blocking(move || cgroups.make(&name, &limits)).await;
        let cgroup = made.map_err(io::Error::other).flatten()?;
        spec.memory_bytes = None;
        spec.cgroup_procs = Some(cgroup.procs());
        Ok(Some(cgroup))
    }

    async fn spec(
        &self,
        name: &str,
        image: &Image,
        launch: &Launch,
        identity: &Identity,
        ready: &BTreeMap<String, Ready>,
    ) -> io::Result<ContainerSpec> {
        let shared = &self.shared;
        let place = shared.home(&self.uid).join("roots").join(name);
        let message = self.message_path(name);
        let files = image.unpacked().map(|image| image.directory.clone());
        let image = files.as_ref().map(|lower| match shared.isolation.overlay {
            true => ImageRoot::Overlay {
                lower: lower.clone(),
                upper: place.join("upper"),
                work: place.join("work"),
            },
            false => ImageRoot::Copied,
        });
        let root = place.join("root");
        let fresh = {
            let (image, root) = (image.clone(), root.clone());
            move || {
                remove_dir(&place)?;
                for directory in ["root", "upper", "work"] {
                    std::fs::create_dir_all(place.join(directory))?;
                }
                std::fs::create_dir_all(message.parent().unwrap_or(&place))?;
                std::fs::write(&message, "")?;
                match (files, image) {
                    (Some(files), Some(ImageRoot::Copied)) => rootfs::copy(&files, &root),
                    (Some(_) | None, Some(ImageRoot::Overlay { .. } | ImageRoot::Copied) | None) => Ok(()),
                }
            }
        };
        tokio::task::spawn_blocking(fresh).await.map_err(io::Error::other).flatten()?;
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
            hostname: hostname(&self.pod),
            root,
            image,
            binds,
            read_only_root: launch.read_only_root,
            memory_bytes: launch.memory_bytes,
            cgroup_procs: None,
            user: identity.user,
            group: identity.group,
            groups: identity.groups.clone(),
        })
    }
}

fn all_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
}

/// Removes an ended container's cgroup; whether something in it was killed for want of memory.
async fn leave(cgroup: Option<Cgroup>) -> bool {
    let Some(cgroup) = cgroup else { return false };
    let left = tokio::task::spawn_blocking(move || {
        let oom_killed = cgroup.oom_killed();
        cgroup.remove();
        oom_killed
    });
    left.await.unwrap_or(false)
}
