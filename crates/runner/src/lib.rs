//! Pods as local processes: isolation, volumes, logs, exits.
//!
//! The node of the embedded control plane. Decisions are pure ([`plan`], [`env`], [`life`], [`status`]); what they
//! decide is carried out by `worker` (one task per pod) and [`node`] (the Node object, the watch, the binding).

pub mod env;
mod events;
pub mod images;
mod isolate;
pub mod life;
pub mod logs;
mod machine;
pub mod node;
pub mod plan;
mod process;
mod quantity;
mod records;
pub mod sources;
pub mod status;
mod view;
mod volumes;
mod worker;

pub use isolate::{CANNOT_START, Isolation, init_main};
pub use logs::{LogOptions, Logs};
pub use node::{Error, Options, Runner};
pub use records::{LOST_CODE, LOST_MESSAGE};
