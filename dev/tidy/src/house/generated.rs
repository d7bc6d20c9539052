//! Is what was generated what would be generated now?
//!
//! `deploy/crds/` holds the CRDs as `pawl_api::crds` describes them, so that a cluster can be given them without
//! building anything; what actions need and are is in `actions.rs`. `PAWL_BLESS=1 make test` writes them anew.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::{Error, Finding, Tree};

/// Where the CRDs stand.
const CRDS: &str = "deploy/crds/";

/// What client-side `kubectl apply` can hold: it keeps the whole manifest in an annotation, and all annotations of an
/// object together have at most 256 KiB.
const MAX_MANIFEST_BYTES: usize = 256 << 10;

/// Files by path, as they should be.
pub type Generated = BTreeMap<String, String>;

/// One file per CRD, named after it.
///
/// # Errors
/// When one cannot be printed.
pub fn crd_files<T: Serialize>(crds: impl IntoIterator<Item = T>) -> Result<Generated, Error> {
    let mut files = Generated::new();
    for crd in crds {
        let crd = serde_json::to_value(&crd)?;
        let name =
            crd.pointer("/metadata/name").and_then(|name| name.as_str()).unwrap_or("unnamed").to_owned();
        let yaml = serde_saphyr::to_string(&crd)
            .map_err(|problem| Error::Yaml { name: name.clone(), problem: problem.to_string() })?;
        let text = format!("# Generated from crates/api. To write it anew: PAWL_BLESS=1 make test\n{yaml}");
        files.insert(format!("{CRDS}{name}.yaml"), text);
    }
    Ok(files)
}

/// Generated files that differ from what would be generated now, are missing, or, in a directory where everything is
/// generated, belong to nothing any more.
pub fn stale(tree: &Tree, generated: &Generated, directory: &str) -> Vec<Finding> {
    let why = "what a cluster is given and what the code expects must be the same: PAWL_BLESS=1 make test";
    let mut findings = Vec::new();
    for (path, text) in generated {
        match tree.get(path) {
            Some(found) if found == text => {}
            Some(found) => {
                let same = found.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
                findings.push(Finding::new(format!("{path}:{}", same + 1), "stale from here on", why));
            }
            None => findings.push(Finding::new(path, "missing", why)),
        }
    }
    for path in forgotten(tree, generated, directory) {
        findings.push(Finding::new(path, "nothing generates it", why));
    }
    findings
}

/// Manifests that a plain `kubectl apply` would refuse.
pub fn too_large(generated: &Generated) -> Vec<Finding> {
    let why = "client-side `kubectl apply` keeps the manifest in an annotation, which holds 256 KiB";
    let large = generated.iter().filter(|(_, text)| text.len() >= MAX_MANIFEST_BYTES);
    large.map(|(path, text)| Finding::new(path, format!("{} bytes", text.len()), why)).collect()
}

fn forgotten<'a>(
    tree: &'a Tree,
    generated: &'a Generated,
    directory: &'a str,
) -> impl Iterator<Item = &'a str> {
    let inside = tree.ours().map(|(path, _)| path).filter(move |path| path.starts_with(directory));
    inside.filter(|path| !generated.contains_key(*path))
}

/// Writes what is generated and removes what is not any more.
///
/// # Errors
/// When a file cannot be written or removed.
pub fn bless(root: &Path, tree: &Tree, generated: &Generated, directory: &str) -> Result<(), Error> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |source| Error::Write { path, source }
    };
    std::fs::create_dir_all(root.join(directory)).map_err(failed(directory))?;
    for (path, text) in generated {
        std::fs::write(root.join(path), text).map_err(failed(path))?;
    }
    for path in forgotten(tree, generated, directory) {
        std::fs::remove_file(root.join(path)).map_err(failed(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;
    use crate::testing::{assert_clean, assert_found, real};
    use serde_json::json;

    #[test]
    fn the_crds_in_the_tree_are_those_of_the_code() {
        let (tree, _) = real();
        let generated = crd_files(pawl_api::crds::all()).unwrap();
        assert!(!generated.is_empty(), "no kind has a CRD");
        assert_clean(&too_large(&generated));
        if std::env::var_os("PAWL_BLESS").is_some_and(|value| value == "1") {
            bless(root(), &tree, &generated, CRDS).unwrap();
        } else {
            assert_clean(&stale(&tree, &generated, CRDS));
        }
    }

    fn one() -> Generated {
        crd_files([json!({"metadata": {"name": "a.pawl.dev"}, "spec": {"group": "pawl.dev"}})]).unwrap()
    }

    #[test]
    fn a_crd_is_a_file_of_its_own_name_that_reads_back_as_the_same_crd() {
        let (path, text) = one().pop_first().unwrap();
        assert_eq!(path, "deploy/crds/a.pawl.dev.yaml");
        let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back["spec"]["group"], "pawl.dev");
    }

    #[test]
    fn a_stale_a_missing_and_a_forgotten_file_are_found() {
        let path = "deploy/crds/a.pawl.dev.yaml";
        let text = one().remove(path).unwrap();
        assert_clean(&stale(&Tree::of([(path, &text)]), &one(), CRDS));
        assert_found(&stale(&Tree::default(), &one(), CRDS), &[path]);
        let old = text.replace("group", "groop");
        let line = 1 + text.lines().position(|line| line.contains("group")).unwrap();
        assert_found(&stale(&Tree::of([(path, &old)]), &one(), CRDS), &[&format!("{path}:{line}")]);
        let forgotten = "deploy/crds/b.pawl.dev.yaml";
        assert_found(&stale(&Tree::of([(path, &text), (forgotten, "")]), &one(), CRDS), &[forgotten]);
    }

    #[test]
    fn blessing_writes_what_is_generated_and_removes_what_is_not() {
        let root = tempfile::tempdir().unwrap();
        let forgotten = "deploy/crds/b.pawl.dev.yaml";
        std::fs::create_dir_all(root.path().join(CRDS)).unwrap();
        std::fs::write(root.path().join(forgotten), "").unwrap();
        bless(root.path(), &Tree::of([(forgotten, "")]), &one(), CRDS).unwrap();
        let (path, text) = one().pop_first().unwrap();
        assert_eq!(std::fs::read_to_string(root.path().join(path)).unwrap(), text);
        assert!(!root.path().join(forgotten).exists());
    }

    #[test]
    fn a_manifest_that_kubectl_could_not_apply_is_found() {
        let large = BTreeMap::from([("a".to_owned(), "x".repeat(MAX_MANIFEST_BYTES))]);
        assert_found(&too_large(&large), &["a"]);
        assert_clean(&too_large(&one()));
    }
}
