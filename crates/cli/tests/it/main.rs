//! Does the executable do what its help says? Each test starts it as a person would.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what helps a test fails as a test does"
)]

mod acting;
mod actions;
mod containers;
mod demo;
mod docker;
mod every_action;
mod kubectl;
mod kubectl_replay;
mod match_paths;
mod refused;
mod run;
mod story;
mod tekton;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The executable under test.
const PAWL: &str = env!("CARGO_BIN_EXE_pawl");

fn pawl(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(PAWL);
    command.current_dir(directory).args(words).stdin(Stdio::null()).env_remove("PAWL_LOG");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
