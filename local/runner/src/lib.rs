//! Pods as local processes: isolation, volumes, logs, exits.
//!
//! The node of the embedded control plane. Decisions are pure ([`plan`], [`env`], [`life`], [`status`]); what they
//! decide is carried out by `worker` (one task per pod) and [`node`] (the Node object, the watch, the binding).
//!
//! A container is a process of this machine, or, with [`Options::engine`], one of a Docker Engine's ([`docker`]): its plan
//! says which ([`plan::How`]), and everything around it is the same.
//!
//! Unlike a kubelet, and on purpose for now:
//! - Images are not pulled: those in a directory are used ([`images`]); for others the host's files are, and the pod is
//!   told so. All files of an image belong to the container's user.
//! - Where no cgroup can be had, a memory limit bounds private writable memory of each process (`RLIMIT_DATA`), not of
//!   the container as a whole; exceeding it is a failed allocation, so nothing is `OOMKilled`, and a CPU limit is not
//!   kept. The Node says which it is.
//! - Probes and lifecycle hooks are not run: a container that runs is ready; a skipped `preStop` is said by an Event.
//! - All pods share the machine's network and its address, unless [`Options::network`] takes the network away.
//! - A stop signals all processes of a container, not its first alone: on a laptop `sh -c` is the first too often.
//! - `runAsUser` is what the process sees; on the machine everything is done as the user who started Pawl. Groups besides
//!   the first need power over groups on the machine (root); elsewhere the pod is told that they are not seen.

mod access;
mod beneath;
mod cgroup;
pub mod docker;
pub mod env;
mod events;
pub mod identity;
pub mod images;
mod isolate;
pub mod life;
pub mod logs;
mod machine;
mod mapping;
pub mod node;
pub mod oci;
pub mod options;
mod order;
pub mod plan;
mod process;
mod records;
mod rootfs;
mod schedule;
pub mod sources;
pub mod status;
mod view;
mod volumes;
mod worker;

pub use isolate::{CANNOT_START, Isolation, init_main};
pub use logs::{LogOptions, Logs};
pub use node::{Error, Runner};
pub use options::{Clock, Options};
pub use records::{LOST_CODE, LOST_MESSAGE};
