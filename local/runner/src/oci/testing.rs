//! Writes OCI layouts: tests of every crate make their images and bundles with this.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Descriptor, Digest, REF_NAME};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
/// Layers are tars; whether they are compressed, readers see for themselves.
pub const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";

/// A layout in the making.
#[derive(Debug)]
pub struct Builder {
    directory: PathBuf,
    index: Vec<Descriptor>,
}

impl Builder {
    /// Begins a layout in a directory, which is made.
    pub fn new(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(directory.join("blobs/sha256"))?;
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(Self { directory, index: Vec::new() })
    }

    pub fn blob(&self, media_type: &str, bytes: &[u8]) -> io::Result<Descriptor> {
        let digest = Digest::of(bytes);
        fs::write(self.directory.join("blobs/sha256").join(digest.hex()), bytes)?;
        Ok(Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size: bytes.len() as u64,
            annotations: BTreeMap::new(),
            platform: None,
        })
    }

    /// A manifest of layers that were written with [`Builder::blob`] (and annotated as the caller likes).
    pub fn image(&self, config: &Value, layers: &[Descriptor]) -> io::Result<Descriptor> {
        let config = self.blob(CONFIG_TYPE, config.to_string().as_bytes())?;
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers});
        self.blob(MANIFEST_TYPE, manifest.to_string().as_bytes())
    }

    /// Lists a manifest in the index, under a name or a tag.
    pub fn name(&mut self, mut manifest: Descriptor, name: &str) {
        manifest.annotations.insert(REF_NAME.to_owned(), name.to_owned());
        self.index.push(manifest);
    }

    /// Writes the index: now it is a layout.
    pub fn finish(self) -> io::Result<PathBuf> {
        let index = json!({"schemaVersion": 2, "manifests": self.index});
        fs::write(self.directory.join("index.json"), index.to_string())?;
        Ok(self.directory)
    }
}
