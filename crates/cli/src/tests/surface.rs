//! The recorded hashes of what users see without running anything: every `--help`, CRDs, permissions, manifests.
//!
//! `tests/data/surface.txt` has one line each. `PAWL_BLESS=1 make test` writes it anew; a commit that does says what
//! changed for users.

use std::path::Path;

use clap::CommandFactory as _;
use pawl_api::meta::names;

use crate::{Cli, crds, install, rbac};

const RECORD: &str = "tests/data/surface.txt";

fn line(name: &str, text: &str) -> String {
    format!("{} {name}\n", names::hash(&[text], 16))
}

fn helps(path: &str, command: &clap::Command) -> String {
    // Help shows the value of an environment variable beside its name; the record must not depend on it.
    let mut shown = command.clone().mut_args(|argument| argument.hide_env_values(true));
    let own = line(&format!("{path} --help"), &shown.render_long_help().to_string());
    let below = command.get_subcommands().map(|sub| helps(&format!("{path} {}", sub.get_name()), sub));
    std::iter::once(own).chain(below).collect()
}

fn surface() -> anyhow::Result<String> {
    let mut command = Cli::command();
    command.build();
    let mut lines = helps("pawl", &command);
    for crd in pawl_api::crds::all() {
        let name = format!("crd {}", crd.metadata.name.as_deref().unwrap_or_default());
        lines += &line(&name, &crds::yaml(&crd)?);
    }
    let choices = install::Choices { system_namespace: "pawl-system".to_owned(), image: "pawl".to_owned() };
    for manifest in install::manifests(&choices)? {
        let name = |pointer: &str| manifest.pointer(pointer).and_then(|text| text.as_str());
        let kind = name("/kind").unwrap_or_default();
        if kind != "CustomResourceDefinition" {
            let of = name("/metadata/name").unwrap_or_default();
            lines += &line(&format!("install {kind} {of}"), &crds::yaml(&manifest)?);
        }
    }
    for namespaces in [vec![], vec!["shop".to_owned()]] {
        let manifests = rbac::generate(&rbac::Choices::default(), &namespaces);
        let text: Vec<String> = manifests.iter().map(crds::yaml).collect::<anyhow::Result<_>>()?;
        lines += &line(&format!("rbac generate {}", namespaces.join(" ")), &text.concat());
    }
    Ok(lines)
}

#[test]
fn help_definitions_and_permissions_are_what_was_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD);
    let found = surface().unwrap();
    if std::env::var_os("PAWL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &found).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    let changed: Vec<&str> = found.lines().filter(|line| !recorded.lines().any(|old| old == *line)).collect();
    let gone: Vec<&str> = recorded.lines().filter(|line| !found.lines().any(|new| new == *line)).collect();
    assert!(changed.is_empty() && gone.is_empty(), "now: {changed:#?}\nrecorded: {gone:#?}");
}
