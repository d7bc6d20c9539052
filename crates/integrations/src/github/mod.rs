//! GitHub: what is asked of it, how, and what it is told.
//!
//! ```text
//!  port                                      what plans ask, and where credentials come from
//!        │
//!  reading, writing, checks, trees           one function per question or write
//!        │
//!  client ── limits, pages, budget           may it be sent now; is the answer known; who counts
//!        │      └─ auth                      a token, or an App's, minted once for all who wait
//!  transport                                 HTTPS, or the fake, handed in
//! ```
//! The client is written here because what can go wrong is what matters: a check run is never posted twice by a retry,
//! a page behind `Link` never takes the token to another host, a limit is a time to come back and not a sleep.
//!
//! [`fake`] is a GitHub for tests, simulations and the demo; [`contract`] holds both to GitHub's own description.

pub mod address;
pub mod auth;
pub mod budget;
mod checks;
pub mod client;
pub mod error;
pub mod fake;
pub mod limits;
mod metrics;
mod pages;
pub mod port;
mod reading;
mod trees;
pub mod webhook;
mod wire;
mod writing;

pub use crate::transport::Transport;
pub use address::Address;
pub use auth::Credentials;
pub use budget::{Budget, Endpoint};
pub use client::Client;
pub use error::Error;
pub use fake::contract;
pub use limits::{RateLimit, Urgency};
pub use port::{Port, Secrets};
