//! Every scenario under faults, the promise that a seed decides everything, the guards taken away one by one, and the
//! oracles made to fail.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what helps a test fails as a test does")]

mod crashes;
mod determinism;
mod faults;
mod moves;
mod mutants;
mod oracles;
mod permissions;
mod regressions;
