//! What does cargo see? Packages, what they depend on, and what they build.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::Error;

/// A crate of the workspace.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Package {
    pub name: String,
    /// Relative to the root.
    #[serde(rename = "manifest_path")]
    pub manifest: String,
    pub license: Option<String>,
    #[serde(default)]
    pub dependencies: Vec<Dependency>,
    #[serde(default)]
    pub targets: Vec<Target>,
}

/// Something a package depends on.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Dependency {
    pub name: String,
    #[serde(default, rename = "kind", deserialize_with = "or_default")]
    pub for_what: Use,
    #[serde(default)]
    pub features: Vec<String>,
}

/// What a dependency is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    #[default]
    Normal,
    Dev,
    Build,
}

/// Something a package builds: a library, an executable, a test.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Target {
    pub name: String,
    pub kind: Vec<String>,
    /// Its root file, relative to the workspace's root.
    pub src_path: String,
    #[serde(default)]
    pub doctest: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The workspace's packages.
///
/// # Errors
/// When cargo cannot read the manifests.
pub fn packages(root: &Path) -> Result<Vec<Package>, Error> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let failed = |problem: String| Error::Run { command: format!("cargo {}", arguments.join(" ")), problem };
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let Metadata { mut packages } = serde_json::from_slice(&output.stdout)?;
    for package in &mut packages {
        package.manifest = relative(root, &package.manifest);
        for target in &mut package.targets {
            target.src_path = relative(root, &target.src_path);
        }
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

impl Package {
    /// The name of its room: `<group>/<room>/Cargo.toml`.
    pub fn room(&self) -> &str {
        self.manifest.rsplit('/').nth(1).unwrap_or(&self.name)
    }
}

fn relative(root: &Path, path: &str) -> String {
    Path::new(path).strip_prefix(root).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

/// Cargo writes a plain dependency's kind as `null`.
fn or_default<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Use, D::Error> {
    Option::<Use>::deserialize(from).map(Option::unwrap_or_default)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A package made up for a test: `crates/<room>` with these plain dependencies.
    pub(crate) fn package(room: &str, dependencies: &[&str]) -> Package {
        Package {
            name: format!("pawl-{room}"),
            manifest: format!("crates/{room}/Cargo.toml"),
            license: Some("Apache-2.0".to_owned()),
            dependencies: dependencies
                .iter()
                .map(|name| Dependency { name: (*name).to_owned(), ..Dependency::default() })
                .collect(),
            targets: vec![Target {
                name: format!("pawl_{room}"),
                kind: vec!["lib".to_owned()],
                src_path: format!("crates/{room}/src/lib.rs"),
                doctest: false,
            }],
        }
    }

    #[test]
    fn cargo_tells_plain_from_test_dependencies() {
        let json = r#"{"packages": [{"name": "a", "manifest_path": "crates/a/Cargo.toml", "license": null,
            "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]}]}"#;
        let Metadata { packages } = serde_json::from_str(json).unwrap();
        let uses: Vec<Use> = packages[0].dependencies.iter().map(|dependency| dependency.for_what).collect();
        assert_eq!((uses.as_slice(), packages[0].room()), (&[Use::Normal, Use::Dev][..], "a"));
    }
}
