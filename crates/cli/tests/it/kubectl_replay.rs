//! Does kubectl print with `pawl up` what it printed with a real cluster?
//!
//! `tests/data/kubectl` holds sessions recorded with a kube-apiserver 1.36. A session is a list of commands, each with
//! its exit code and what it printed; `{ns}` is a fresh namespace (already current), `{nonce}` a fresh word. What
//! differs from run to run is masked as the recorder did it: ages, uids, versions, times, tokens, runs of spaces.

use std::io::Write as _;
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::Value;

use crate::kubectl::Up;
use crate::text;

/// Any word will do: every session has a control plane of its own.
const NONCE: &str = "5eed5eed";
const NAMESPACE: &str = "k-5eed5eed";

/// What is masked, in this order, and by what.
const MASKS: [(&str, &str); 14] = [
    (r"/\S*/(LIVE|MERGED)-\d+", "$1"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}", "<time>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
    (r#"resourceVersion: "\d+""#, r#"resourceVersion: "<rv>""#),
    (r#""resourceVersion": ?"\d+""#, r#""resourceVersion":"<rv>""#),
    (r"(Resource Version: +|resourceVersion:)\d+", "$1<rv>"),
    (r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b", "<age>"),
    (r"\b\d+[mhd]\b", "<age>"),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
    (r"https://127\.0\.0\.1:\d+", "<server>"),
    (r"v1\.\d+\.\d+[\w.+-]*", "<version>"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} [+-]\d{4}", "<time>"),
    (r"[ \t]+", " "),
];

#[test]
fn a_recorded_session_about_access_prints_what_a_real_cluster_printed() {
    replay(include_str!("../data/kubectl/access.json"));
}

#[test]
fn a_recorded_session_about_config_maps_prints_what_a_real_cluster_printed() {
    replay(include_str!("../data/kubectl/configmap.json"));
}

#[test]
fn a_recorded_session_about_a_custom_resource_prints_what_a_real_cluster_printed() {
    replay(include_str!("../data/kubectl/custom.json"));
}

fn replay(session: &str) {
    let session: Value = serde_json::from_str(session).unwrap();
    // What was recorded within a second of a definition must be so here however slow the machine is.
    let Some(up) = Up::with(&["--schemas-after", "3600"]) else { return };
    let masks: Vec<(Regex, &str)> =
        MASKS.iter().map(|(pattern, word)| (Regex::new(pattern).unwrap(), *word)).collect();
    for (name, content) in session["files"].as_object().unwrap() {
        std::fs::write(up.home.path().join(name), filled(content.as_str().unwrap())).unwrap();
    }
    let (code, said) = run(up.command(&["create", "namespace", NAMESPACE]), "");
    assert_eq!(code, 0, "{said}");
    let mut wrong = Vec::new();
    for (at, step) in session["steps"].as_array().unwrap().iter().enumerate() {
        let written = step["cmd"].as_str().unwrap();
        let mut words = vec!["-n".to_owned(), NAMESPACE.to_owned()];
        words.extend(split(&filled(written)));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, said) = run(up.command(&words), &filled(step["stdin"].as_str().unwrap_or_default()));
        let said = entries_in_order(&masked(&said, &masks));
        let (recorded_code, recorded) =
            (step["rc"].as_i64().unwrap(), entries_in_order(step["out"].as_str().unwrap()));
        if (i64::from(code), &said) != (recorded_code, &recorded) {
            wrong.push(format!(
                "step {at}: kubectl {written}\n--- a real cluster (exit {recorded_code})\n{recorded}\n--- pawl up (exit {code})\n{said}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn filled(text: &str) -> String {
    text.replace("{ns}", NAMESPACE).replace("{nonce}", NONCE)
}

/// The exit code, and everything printed: first what was meant, then what was complained of.
fn run(mut command: Command, stdin: &str) -> (i32, String) {
    let stdin_kind = if stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
    let mut child = command.stdin(stdin_kind).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if let Some(mut pipe) = child.stdin.take() {
        // It may have seen enough before the end.
        pipe.write_all(stdin.as_bytes()).ok();
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), text(&output.stdout) + &text(&output.stderr))
}

fn masked(said: &str, masks: &[(Regex, &str)]) -> String {
    let mut said = said.replace(NAMESPACE, "{ns}").replace(NONCE, "{nonce}");
    for (pattern, word) in masks {
        said = pattern.replace_all(&said, *word).into_owned();
    }
    let lines = said.lines().map(str::trim_end);
    let noise = |line: &str| line.starts_with("Warning: version difference") || line.contains("memcache.go");
    lines.filter(|line| !noise(line)).collect::<Vec<_>>().join("\n")
}

/// `kubectl describe configmap` goes over a map of Go: the entries come in another order each time, from any server.
fn entries_in_order(said: &str) -> String {
    const BEGIN: &str = "\nData\n====\n";
    const END: &str = "\n\n\nBinaryData\n";
    let Some((before, (entries, after))) =
        said.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)))
    else {
        return said.to_owned();
    };
    let mut entries: Vec<&str> = entries.split("\n\n").collect();
    entries.sort_unstable();
    [before, BEGIN, &entries.join("\n\n"), END, after].concat()
}

#[test]
fn entries_of_a_described_config_map_may_come_in_any_order_and_nothing_else_may() {
    let described = |entries: &str| format!("Name: c\n\nData\n====\n{entries}\n\n\nBinaryData\n====\n");
    let (k, n) = ("k:\n----\nv", "n:\n----\n1");
    let both = described(&format!("{k}\n\n{n}"));
    assert_eq!(entries_in_order(&both), both);
    assert_eq!(entries_in_order(&described(&format!("{n}\n\n{k}"))), both);
    assert_ne!(entries_in_order(&described(k)), both);
    assert_eq!(entries_in_order("b\n\na"), "b\n\na");
}

/// Words as a shell splits them; single quotes are all that recorded commands use.
fn split(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quoted, mut begun) = (false, false);
    for character in command.chars() {
        match character {
            '\'' => (quoted, begun) = (!quoted, true),
            ' ' if !quoted => {
                if begun {
                    words.push(String::new());
                }
                begun = false;
            }
            other => {
                words.last_mut().unwrap().push(other);
                begun = true;
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn a_command_is_split_as_a_shell_splits_it() {
    assert_eq!(split("patch cm c  -p '{\"a\": \"b c\"}'"), ["patch", "cm", "c", "-p", "{\"a\": \"b c\"}"]);
}
