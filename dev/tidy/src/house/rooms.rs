//! Who may know whom?
//!
//! ```text
//! api ◀─ machines ◀─ engine ◀─ { integrations, ledger, policy, actions, runner, dashboard } ◀─ cli
//! apiserver: none of ours    sim: everything but cli and dev    dev: cli and sim    tidy: api, machines, to print what it generates
//! ```

use crate::{Dependency, Finding, Package, Use};

/// What a room may see of ours.
#[derive(Clone, Copy, Debug)]
struct Room {
    name: &'static str,
    sees: &'static [&'static str],
    /// In its tests only.
    tests_see: &'static [&'static str],
}

const fn room(name: &'static str, sees: &'static [&'static str], tests_see: &'static [&'static str]) -> Room {
    Room { name, sees, tests_see }
}

/// The shipped crates, without the executable.
const PRODUCT: &[&str] = &[
    "api",
    "machines",
    "engine",
    "integrations",
    "ledger",
    "policy",
    "actions",
    "runner",
    "dashboard",
    "apiserver",
];

const ROOMS: &[Room] = &[
    room("api", &[], &[]),
    room("machines", &["api"], &["apiserver"]),
    room("engine", &["api", "machines"], &["apiserver"]),
    room("integrations", &["api", "machines", "engine"], &["apiserver"]),
    room("ledger", &["api", "machines", "engine"], &["apiserver"]),
    room("policy", &["api", "machines", "engine"], &[]),
    room("actions", &["api", "machines", "engine"], &["apiserver"]),
    room("runner", &["api", "machines", "engine"], &["apiserver"]),
    room("dashboard", &["api", "machines", "engine"], &["apiserver"]),
    room("apiserver", &[], &[]),
    room("sim", PRODUCT, &[]),
    room("cli", PRODUCT, &[]),
    room(
        "bench",
        &["api", "machines", "engine", "integrations", "ledger", "policy", "apiserver", "cli", "sim"],
        &[],
    ),
    room("tidy", &["api", "machines"], &[]),
];

const WHY_EDGES: &str = "a room that cannot see another cannot lean on it: decisions stay free of IO, the API server \
    stays a fair judge of our controllers, and an edit rebuilds only what follows it";

const WHY_LISTED: &str = "a new crate costs build time and a place in everybody's head: its line in \
    dev/tidy/src/house/rooms.rs and ARCHITECTURE.md says what it may not know";

/// Edges between our crates that are not on the plan.
pub fn forbidden_edges(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let Some(room) = ROOMS.iter().find(|room| room.name == package.room()) else {
            findings.push(Finding::new(
                &package.manifest,
                "a crate that is no room of the house",
                WHY_LISTED,
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(other) = packages.iter().find(|other| other.name == dependency.name) else { continue };
            let other = other.room();
            let allowed = match dependency.for_what {
                Use::Normal | Use::Build => room.sees.contains(&other),
                Use::Dev => room.sees.contains(&other) || room.tests_see.contains(&other),
            };
            if !allowed {
                let what = format!("`{}` may not depend on `{other}`", room.name);
                findings.push(Finding::new(&package.manifest, what, WHY_EDGES));
            }
        }
    }
    findings
}

/// Rooms where nothing may happen but thinking.
const PURE: &[&str] = &["api", "machines"];

/// Crates that bring a runtime, a socket, a clock of their own, or chance.
const IMPURE: &[&str] = &[
    "async-std",
    "axum",
    "fastrand",
    "futures",
    "getrandom",
    "hyper",
    "hyper-util",
    "rand",
    "reqwest",
    "rustls",
    "smol",
    "tempfile",
    "tokio",
    "tower",
];

/// The parts of `kube` that describe, and those alone.
const PURE_KUBE: &[&str] = &["derive", "cel"];

const WHY_PURE: &str = "a decision is a function of what was observed and the time it is given: the simulator replays \
    it, and a crash repeats it";

/// A runtime, a client or randomness where decisions are made.
pub fn impure_dependencies(packages: &[Package]) -> Vec<Finding> {
    let pure = packages.iter().filter(|package| PURE.contains(&package.room()));
    let plain =
        pure.flat_map(|package| package.dependencies.iter().map(move |dependency| (package, dependency)));
    plain
        .filter(|(_, dependency)| dependency.for_what != Use::Dev)
        .filter_map(|(package, dependency)| {
            let what = format!("`{}` depends on {}", package.room(), impurity(dependency)?);
            Some(Finding::new(&package.manifest, what, WHY_PURE))
        })
        .collect()
}

fn impurity(dependency: &Dependency) -> Option<String> {
    if IMPURE.contains(&dependency.name.as_str()) {
        return Some(format!("`{}`", dependency.name));
    }
    let strange = |feature: &&String| !PURE_KUBE.contains(&feature.as_str());
    let feature = dependency.features.iter().find(strange).filter(|_| dependency.name == "kube")?;
    Some(format!("`kube` with feature `{feature}`"))
}

/// What every crate has in common.
pub fn unlike_the_others(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        if package.license.as_deref() != Some("Apache-2.0") {
            let what = format!("license is {:?}, not Apache-2.0", package.license);
            let why = "whoever reuses one crate must know its terms without asking";
            findings.push(Finding::new(&package.manifest, what, why));
        }
        let is = |target: &&crate::Target, kind: &str| target.kind.iter().any(|it| it == kind);
        if package.targets.iter().filter(|target| is(target, "test")).count() > 1 {
            let why = "each integration-test binary links the world again: one per crate, tests/it/main.rs";
            findings.push(Finding::new(&package.manifest, "more than one integration-test binary", why));
        }
        if package.targets.iter().any(|target| is(&target, "lib") && target.doctest) {
            let why = "a doctest is a binary of its own: inside the workspace, `[lib] doctest = false`";
            findings.push(Finding::new(&package.manifest, "doctests are on", why));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use crate::package::tests::package;
    use crate::testing::{assert_clean, assert_found, real};

    #[test]
    fn the_rooms_know_only_whom_they_may() {
        let (_, packages) = real();
        assert!(packages.len() >= 7, "cargo shows too few crates: {packages:#?}");
        assert_clean(&forbidden_edges(&packages));
        assert_clean(&impure_dependencies(&packages));
        assert_clean(&unlike_the_others(&packages));
    }

    #[test]
    fn an_edge_against_the_grain_is_found() {
        let packages = [
            package("api", &["pawl-machines"]),
            package("machines", &["pawl-api"]),
            package("apiserver", &["pawl-api"]),
            package("engine", &["pawl-apiserver"]),
        ];
        let places = ["crates/api/Cargo.toml", "crates/apiserver/Cargo.toml", "crates/engine/Cargo.toml"];
        assert_found(&forbidden_edges(&packages), &places);
    }

    #[test]
    fn tests_of_machines_and_engine_may_run_on_the_api_server_and_nothing_else_of_them_may() {
        for room in ["machines", "engine"] {
            let mut on_it = package(room, &["pawl-apiserver"]);
            let packages = [on_it.clone(), package("apiserver", &[])];
            assert_found(&forbidden_edges(&packages), &[&format!("crates/{room}/Cargo.toml")]);
            on_it.dependencies[0].for_what = Use::Dev;
            assert_clean(&forbidden_edges(&[on_it, package("apiserver", &[])]));
        }
    }

    #[test]
    fn nothing_depends_on_an_executable_the_simulator_or_the_rules_but_dev_on_cli_and_sim() {
        let rooms = ["sim", "tidy"].map(|room| package(room, &[]));
        let cli = package("cli", &["pawl-sim", "pawl-bench"]);
        let dev = package("bench", &["pawl-cli", "pawl-sim", "pawl-tidy"]);
        let engine = package("engine", &["pawl-cli", "pawl-bench", "pawl-sim", "pawl-tidy"]);
        let packages: Vec<Package> = rooms.into_iter().chain([cli, dev, engine]).collect();
        let found = forbidden_edges(&packages);
        let count =
            |room: &str| found.iter().filter(|one| one.at == format!("crates/{room}/Cargo.toml")).count();
        assert_eq!((count("cli"), count("bench"), count("engine")), (2, 1, 4), "{found:#?}");
    }

    #[test]
    fn a_room_nobody_planned_is_found() {
        assert_found(&forbidden_edges(&[package("attic", &[])]), &["crates/attic/Cargo.toml"]);
    }

    #[test]
    fn a_runtime_or_a_client_in_the_thinking_room_is_found() {
        let mut client = package("machines", &["kube"]);
        client.dependencies[0].features = vec!["derive".into(), "client".into()];
        let packages = [package("machines", &["tokio"]), client, package("engine", &["tokio"])];
        let findings = impure_dependencies(&packages);
        assert_found(&findings, &["crates/machines/Cargo.toml"; 2]);
        assert!(findings[1].what.contains("client"), "{}", findings[1]);
    }

    #[test]
    fn another_license_a_second_test_binary_and_doctests_are_found() {
        let mut odd = package("api", &[]);
        odd.license = None;
        odd.targets[0].doctest = true;
        let test = Target { kind: vec!["test".into()], ..Target::default() };
        odd.targets.extend([test.clone(), test]);
        assert_found(&unlike_the_others(&[odd]), &["crates/api/Cargo.toml"; 3]);
    }
}
