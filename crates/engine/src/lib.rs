//! The only loop: wake → observe → decide → apply → report.
//!
//! ```text
//!  API server ──list/watch──▶ informer ──▶ caches ──┐
//!      ▲                         │ change           │ view
//!      │                         ▼                  ▼
//!      │                      routing ──▶ queue ──▶ reconcile (observe, decide)
//!      │                                    ▲           │ plan
//!      └──────────── wire ◀── applying ◀────┼───────────┘
//!                                           └── expectations: not again before the caches have seen what was written
//! ```
//! The loop knows no kind of its own: machines say what they are about, and it compiles once. Given one seed and one
//! thread of paused time, the same cluster gets the same requests in the same order.

pub mod caches;
mod census;
pub mod clock;
pub mod discovery;
pub mod engine;
pub mod error;
pub mod expectations;
pub mod health;
pub mod informer;
mod kinds;
pub mod leader;
pub mod ledger;
mod listing;
mod manifest;
pub mod metrics;
mod outcomes;
mod outline;
pub mod ports;
pub mod queue;
pub mod reconcile;
pub mod report;
pub mod routing;
mod scribe;
mod telling;
pub mod wire;

pub use clock::{Clock, SystemClock, VirtualClock};
pub use engine::{Engine, Stopped};
pub use error::Error;
pub use ledger::Ledger;
pub use ports::{Port, Ports};
