//! Actions on a cluster: looked at, tried without effect, kept for their undo, and done.
//!
//! ```text
//! controller ─▶ port ─┬─ look     what is there, without secrets          executor (`pawl act`, in a Job, as the action's
//!                     ├─ access   may the ServiceAccount?                 ServiceAccount) ─▶ carry_out ─▶ Report
//!                     ├─ try_out  what would change, as the ServiceAccount
//!                     └─ capture  what is needed to take it back, into a Secret
//! ```
//! What an action reads, does and keeps is decided in `machines::remedy::action`, as data; here it is sent. Values of
//! Secrets are read and compared here, and leave only into the undo Secret (I6).

mod access;
mod capture;
pub mod carry_out;
mod look;
pub mod port;
mod reading;
mod try_out;
pub mod way;

pub use carry_out::{Errand, carry_out};
pub use port::Port;
pub use way::Way;
