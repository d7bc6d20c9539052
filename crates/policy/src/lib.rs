//! Rego, treated as hostile: read with care, evaluated in a process that can be killed.
//!
//! ```text
//! question ─▶ port ─no policies of the user─▶ the built-in program, in this process
//!                  ─policies, conditions────▶ a worker process: bounded memory, bounded time, killed when it is over
//!                     bad set ─▶ the last good one is asked, and the verdict says so
//! ```
//! Three things in Rego can take a process down: functions that call each other for ever overflow its stack, nested
//! literals parse in two to the power of their depth, and a builtin may fill the memory before any timer is looked at.
//! So text is scanned before it is parsed, its calls are checked before it is evaluated, and all of that, too, happens in
//! the worker. Whatever goes wrong is a no.
//!
//! | file | question |
//! |---|---|
//! | `scan` | may this text be parsed at all? |
//! | `calls` | who calls whom, and does it end? |
//! | `program` | what do these policies say of this input? |
//! | `built_in` | what does our own policy say of it, and fast? |
//! | `spare` | which interpreters serve the next evaluation? |
//! | `decision` | what does a policy's answer mean? |
//! | `condition` | does this condition hold for this input? |
//! | `wire` | how do this process and a worker talk? |
//! | `worker` | what does a worker do? |
//! | `pool` | who asks the workers, and ends them? |
//! | `evaluator` | where is it evaluated? |
//! | `port` | what do machines hear? |
//! | `metrics` | what did policies say, for whoever watches? |
//! | `fixtures` | do policies say what somebody wrote down? |

mod built_in;
mod calls;
pub mod condition;
mod decision;
pub mod evaluator;
pub mod fixtures;
mod metrics;
mod pool;
mod port;
mod program;
mod scan;
mod spare;
mod wire;
mod worker;

pub use built_in::{BUILT_IN, BuiltIn, built_in};
pub use evaluator::Evaluator;
pub use pool::Workers;
pub use port::Port;
pub use program::Program;
pub use scan::Problem;
pub use worker::worker_main;

/// The hidden subcommand that makes this executable a worker.
pub const WORKER: &str = "policy-worker";

/// How long one evaluation, or one reading of a set of policies, may take.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);
