//! Does `pawl-dev` do what its help says? Each test starts it as a person would.

#![expect(clippy::unwrap_used, reason = "what helps a test fails as a test does")]

mod bench;
mod sim;

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn pawl_dev(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pawl-dev"));
    command.current_dir(directory).args(words).stdin(Stdio::null()).env_remove("PAWL_LOG");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
