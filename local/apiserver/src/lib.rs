//! A Kubernetes API server that knows none of our kinds.
//!
//! ```text
//! http ──▶ verbs ──▶ store ──▶ watch
//!            │ rules as data
//!        resources ◀── stored CustomResourceDefinitions
//! ```
//!
//! [`Server`] is all there is to hold: [`Server::call`] answers one request without a runtime,
//! [`Server::service`] is a tower service for `kube::Client` in process and for sockets.

mod access;
mod admission;
pub mod apply;
mod env;
mod http;
mod patch;
mod resources;
pub mod schema;
mod selector;
mod server;
mod status;
mod store;
pub mod validation;
mod verbs;
mod watch;

pub use access::{Access, SigningKey, SigningKeyError};
pub use env::{Env, RealEnv, SeededEnv};
pub use http::{Bounds, LogRequest, PodLogs, ResponseBody, ServeError, Service, serve, serve_within};
pub use server::{Change, Server};
pub use status::{Cause, Details, Status};
pub use store::{
    ChangeType, Compacted, Ids, JournalFailed, Labels, Limits, Meta, Object, OpenError, Options,
};
