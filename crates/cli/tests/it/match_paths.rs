//! `pawl match`: what it prints, and what its exit code says.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::{PAWL, pawl, text};

#[test]
fn the_exit_code_tells_a_match_from_none_and_from_a_malformed_pattern() {
    let here = std::env::temp_dir();
    let found = pawl(&here, &["match", "infra/**", "infra", "infra/a/b.tf", "docs/a.md"]);
    assert_eq!((found.status.code(), text(&found.stdout).as_str()), (Some(0), "infra\ninfra/a/b.tf\n"));
    let none = pawl(&here, &["match", "infra/**", "docs/a.md"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), ""));
    let bad = pawl(&here, &["match", "infra/{a", "infra/a"]);
    assert_eq!(
        (bad.status.code(), text(&bad.stderr).as_str()),
        (
            Some(2),
            "pawl: \"infra/{a\" is not a pattern: character 7: the alternatives that { opens here are never closed\n"
        )
    );
}

#[test]
fn paths_may_come_from_standard_input() {
    let mut child = Command::new(PAWL)
        .args(["match", "*.tf", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a.tf\nb.md\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "a.tf\n"));
}
