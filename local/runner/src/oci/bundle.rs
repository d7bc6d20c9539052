//! What does a Tekton bundle hold under a kind and a name?
//!
//! A bundle is an image whose layers are objects: each layer is a tar with one file, and annotations of its descriptor
//! say what is in it. Nothing is unpacked: the one file is read into memory, whatever it is called.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::{Descriptor, Kind, Layout, Manifest, Platform, Reference, decompressed, members};

const KIND: &str = "dev.tekton.image.kind";
const NAME: &str = "dev.tekton.image.name";

/// Objects of one bundle: Tekton's own figure.
const MAX_OBJECTS: usize = 20;

/// The longest object: what the API server takes, so that whatever can be stored can be bundled.
const MAX_OBJECT_BYTES: u64 = 3 << 19;

/// The longest layer: an object in a tar, whose blocks and directories add a little. Compressed it is shorter.
pub const MAX_LAYER_BYTES: u64 = 2 << 20;

/// Members of a layer that are looked at before its file: directories that lead to it.
const MAX_MEMBERS: usize = 64;

/// Layouts that are looked through for a name: a laptop's images, many times over.
const MAX_LAYOUTS: usize = 4096;

/// Why a bundle does not give what is wanted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot retrieve the oci image: {0}")]
    Layout(#[from] super::Error),
    #[error("not a bundle: it contained more than the maximum {MAX_OBJECTS} allow objects")]
    TooMany,
    #[error("not a bundle: layer {0} does not contain a {1} annotation")]
    NoAnnotation(String, &'static str),
    #[error("could not find object in image with kind: {kind} and name: {name}")]
    NoObject { kind: String, name: String },
    #[error("not a bundle: layer {layer} holds {path:?}, which {why}")]
    Member { layer: String, path: PathBuf, why: &'static str },
    #[error("not a bundle: layer {0} holds no file")]
    Empty(String),
    #[error("layer {layer} cannot be read: {source}")]
    Io { layer: String, source: io::Error },
}

/// The bytes of one object of the bundle that has this name among the layouts and archives in a directory; `None` where
/// nothing there has that name.
///
/// # Errors
/// When it is no bundle, or does not hold that object.
pub fn read(directory: &Path, wanted: &Reference, kind: &str, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_LAYOUTS)
        .map(|it| it.path())
        .collect();
    paths.sort();
    // What is no layout is somebody else's: the directory may hold anything.
    for layout in paths.into_iter().filter_map(|path| Layout::open(path).ok()) {
        if let Some(found) = layout.find(wanted) {
            let image = layout.image(found, &Platform::here())?;
            let layer = layer(&image.manifest, kind, name)?;
            return object(layout.blob(layer)?, layer).map(Some);
        }
    }
    Ok(None)
}

/// The layer of a bundle that holds an object.
///
/// # Errors
/// When it is no bundle, or does not hold that object.
pub fn layer<'a>(manifest: &'a Manifest, kind: &str, name: &str) -> Result<&'a Descriptor, Error> {
    let layers = &manifest.layers;
    if layers.len() > MAX_OBJECTS {
        return Err(Error::TooMany);
    }
    for layer in layers {
        let says = |key: &'static str| {
            let said = layer.annotations.get(key).map(String::as_str);
            said.ok_or_else(|| Error::NoAnnotation(layer.digest.to_string(), key))
        };
        if says(KIND)?.eq_ignore_ascii_case(kind) && says(NAME)? == name {
            return Ok(layer);
        }
    }
    Err(Error::NoObject { kind: kind.to_owned(), name: name.to_owned() })
}

/// The object in a layer's bytes.
///
/// # Errors
/// When it is not the layer of a bundle.
pub fn object(blob: impl Read, layer: &Descriptor) -> Result<Vec<u8>, Error> {
    let layer = layer.digest.to_string();
    let tar = decompressed(blob).map_err(|source| Error::Io { layer: layer.clone(), source })?;
    file(tar, &layer)
}

/// The one file of a layer.
fn file(tar: impl Read, layer: &str) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Io { layer: layer.to_owned(), source };
    let mut archive = tar::Archive::new(tar);
    for member in members(archive.entries().map_err(failed)?).take(MAX_MEMBERS) {
        let mut member = member.map_err(failed)?;
        let refused = |why| Error::Member { layer: layer.to_owned(), path: member.path.clone(), why };
        if !member.path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(refused("leads out of the layer"));
        }
        match &member.kind {
            Kind::Directory => {}
            Kind::File if member.size() > MAX_OBJECT_BYTES => {
                return Err(refused("is too large for an object"));
            }
            Kind::File => {
                let mut bytes = Vec::new();
                (&mut member).take(MAX_OBJECT_BYTES).read_to_end(&mut bytes).map_err(failed)?;
                return Ok(bytes);
            }
            Kind::Symlink(_) | Kind::HardLink(_) | Kind::Other(_) => return Err(refused("is no plain file")),
        }
    }
    Err(Error::Empty(layer.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::testing::Builder;
    use serde_json::json;

    const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

    fn bundle(layers: &[(&str, &str, Vec<u8>)]) -> tempfile::TempDir {
        let images = tempfile::tempdir().unwrap();
        let mut builder = Builder::new(images.path().join("b")).unwrap();
        let layers: Vec<Descriptor> = layers
            .iter()
            .map(|(kind, name, bytes)| {
                let mut layer = builder.blob(LAYER, bytes).unwrap();
                if !kind.is_empty() {
                    layer.annotations.insert(KIND.to_owned(), (*kind).to_owned());
                    layer.annotations.insert(NAME.to_owned(), (*name).to_owned());
                }
                layer
            })
            .collect();
        let image = builder.image(&json!({}), &layers).unwrap();
        builder.name(image, "example.com/flows/mend:1");
        builder.finish().unwrap();
        std::fs::write(images.path().join("README"), "not a layout").unwrap();
        images
    }

    fn check(layers: &[(&str, &str, Vec<u8>)]) -> Result<String, String> {
        let images = bundle(layers);
        let read = read(images.path(), &"example.com/flows/mend:1".parse().unwrap(), "pipeline", "w");
        read.map(|bytes| String::from_utf8(bytes.unwrap()).unwrap()).map_err(|error| error.to_string())
    }

    fn tarred(path: &str, text: &str) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        // Written by hand: the crate's own setter refuses what an attacker would not.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, text.as_bytes()).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn an_object_is_found_by_its_kind_and_name() {
        let layers = [("task", "w", tarred("t", "a task")), ("Pipeline", "w", tarred("p", "a pipeline"))];
        assert_eq!(check(&layers).unwrap(), "a pipeline");
        let missing = check(&layers[..1]).unwrap_err();
        assert_eq!(missing, "could not find object in image with kind: pipeline and name: w");
    }

    #[test]
    fn what_is_no_bundle_is_said_to_be_none() {
        assert!(check(&[("", "", tarred("x", "x"))]).unwrap_err().contains("dev.tekton.image.kind"));
        assert!(check(&[("pipeline", "w", b"no tar at all".to_vec())]).is_err());
        assert!(
            check(&[("pipeline", "w", tar::Builder::new(Vec::new()).into_inner().unwrap())])
                .unwrap_err()
                .contains("no file")
        );
        let many: Vec<_> = (0..21).map(|_| ("task", "x", tarred("x", "x"))).collect();
        assert!(check(&many).unwrap_err().contains("more than the maximum 20"));
        let images = bundle(&[]);
        let unknown = read(images.path(), &"example.com/other:1".parse().unwrap(), "pipeline", "w");
        assert_eq!(unknown.unwrap(), None);
    }

    #[test]
    fn a_layer_that_leads_elsewhere_is_refused() {
        for path in ["../../etc/cron.d/x", "/etc/passwd", "a/../../b"] {
            let refused = check(&[("pipeline", "w", tarred(path, "x"))]).unwrap_err();
            assert!(refused.contains("leads out of the layer"), "{refused}");
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_link(&mut header, "w", "/etc/passwd").unwrap();
        let refused = check(&[("pipeline", "w", builder.into_inner().unwrap())]).unwrap_err();
        assert!(refused.contains("no plain file"), "{refused}");
    }
}
