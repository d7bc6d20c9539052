//! What is in an OCI layout or an image archive?
//!
//! ```text
//! reference ──index.json──▶ descriptor ──platform──▶ manifest ──▶ config
//!                                                       └──────▶ layers: tars, plain or compressed
//! ```
//! Read from a directory (`oci-layout`, `index.json`, `blobs/`), from the same in a tar, or from what `docker save`
//! writes. Every byte is checked against the digest that names it before it counts (a [`Blob`] fails at its end if it is
//! not what was asked for), and everything has a limit. Plain blocking IO, no network, nothing is unpacked here; what
//! others fetched from a registry is kept by a [`Fetched`].

mod blob;
pub mod bundle;
mod digest;
mod fetched;
mod platform;
mod reference;
mod store;
mod tar;
pub mod testing;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use blob::{Blob, decompressed};
pub use digest::{Digest, Hasher};
pub use fetched::{Fetched, Mismatch};
pub use platform::Platform;
pub use reference::{NoReference, Reference};
pub use tar::{Kind, Member, members};

use store::Store;

/// The longest manifest, index or config that is read: what registries accept for a manifest.
pub const MAX_JSON_BYTES: u64 = 4 << 20;
/// An index within an index within …: one level is usual (platforms), a second is a bundle of such images.
pub const MAX_INDEX_DEPTH: usize = 4;
/// Layers of one manifest: container runtimes stop at 127 because overlayfs once did; bundles have at most 20.
const MAX_LAYERS: usize = 128;
/// Descriptors of one index: far more than there are platforms; a bundle's tool writes one image.
const MAX_MANIFESTS: usize = 4096;

/// The full name of an image, as containerd and Docker annotate it.
const IMAGE_NAME: &str = "io.containerd.image.name";
/// A name or, as often, a tag alone.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

const INDEX_TYPES: &[&str] =
    &["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

/// A layout, in a directory or an archive.
#[derive(Debug)]
pub struct Layout {
    path: PathBuf,
    store: Store,
    index: Index,
    /// Blobs that lie elsewhere than their digest says: in archives of older Docker.
    elsewhere: BTreeMap<Digest, String>,
}

/// What points at a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub platform: Option<Platform>,
}

/// What an image is made of.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub config: Descriptor,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// An image's config: what to run, and what its layers unpack to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageConfig {
    #[serde(default, deserialize_with = "null_is_default")]
    pub config: RunConfig,
    #[serde(default, deserialize_with = "null_is_default")]
    pub rootfs: RootFs,
}

/// How an image wants to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RunConfig {
    #[serde(deserialize_with = "null_is_default")]
    pub user: String,
    #[serde(deserialize_with = "null_is_default")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub working_dir: String,
    #[serde(deserialize_with = "null_is_default")]
    pub stop_signal: String,
}

/// The digests of the layers' uncompressed tars, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RootFs {
    #[serde(default, deserialize_with = "null_is_default")]
    pub diff_ids: Vec<Digest>,
}

/// A manifest, known by its digest, for one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub digest: Digest,
    pub manifest: Manifest,
}

/// Why a layout cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: neither an OCI layout nor an image archive: {why}")]
    NoLayout { path: PathBuf, why: &'static str },
    #[error("{path}: {file}: {why}")]
    Malformed { path: PathBuf, file: String, why: String },
    #[error("{path}: blob {digest}: {source}")]
    Blob { path: PathBuf, digest: Digest, source: io::Error },
    #[error("{path}: {source}")]
    NoPlatform { path: PathBuf, source: Astray },
}

/// Where a manifest or an index leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leads {
    /// It is the image.
    Here(Box<Manifest>),
    /// It lists images; this is the one for the platform.
    To(Descriptor),
}

/// Why a manifest or an index leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Astray {
    #[error("{0}")]
    Malformed(String),
    #[error("nothing for platform {platform} (there is: {there})")]
    NoPlatform { platform: Platform, there: String },
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

/// One image in the `manifest.json` of an archive by older Docker.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default, deserialize_with = "null_is_default")]
    repo_tags: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    layers: Vec<String>,
}

impl Layout {
    /// Reads the index of a layout directory or an archive; no blob yet.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let store = Store::open(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let mut layout = Self { path, store, index: Index::default(), elsewhere: BTreeMap::new() };
        if layout.store.has("index.json") {
            layout.index = layout.file("index.json")?;
        } else if layout.store.has("manifest.json") {
            layout.read_saved()?;
        } else {
            let why = "no index.json and no manifest.json in it";
            return Err(Error::NoLayout { path: layout.path, why });
        }
        if layout.index.manifests.len() > MAX_MANIFESTS {
            let why = format!("more than {MAX_MANIFESTS} manifests");
            return Err(layout.malformed("index.json", why));
        }
        Ok(layout)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the index lists, in its order.
    pub fn entries(&self) -> &[Descriptor] {
        &self.index.manifests
    }

    /// What the index has under a name or digest. A layout that gives no full names is known by its file's or
    /// directory's name.
    pub fn find(&self, wanted: &Reference) -> Option<&Descriptor> {
        let own = self.own_name();
        self.index.manifests.iter().find(|descriptor| {
            names(descriptor, &own).iter().any(|name| name.names(wanted))
                || wanted.digest.as_ref() == Some(&descriptor.digest)
        })
    }

    /// The names that the index gives.
    pub fn names(&self) -> Vec<Reference> {
        let own = self.own_name();
        self.index.manifests.iter().flat_map(|descriptor| names(descriptor, &own)).collect()
    }

    /// Follows a descriptor to the manifest for a platform.
    pub fn image(&self, descriptor: &Descriptor, platform: &Platform) -> Result<Image, Error> {
        let mut at = descriptor.clone();
        for _ in 0..MAX_INDEX_DEPTH {
            let bytes = self.read(&at, MAX_JSON_BYTES)?;
            match follow(&at.media_type, &bytes, platform) {
                Ok(Leads::Here(manifest)) => return Ok(Image { digest: at.digest, manifest: *manifest }),
                Ok(Leads::To(chosen)) => at = chosen,
                Err(Astray::Malformed(why)) => return Err(self.malformed(&at.digest.to_string(), why)),
                Err(source @ Astray::NoPlatform { .. }) => {
                    return Err(Error::NoPlatform { path: self.path.clone(), source });
                }
            }
        }
        Err(self.malformed(&descriptor.digest.to_string(), "indexes within indexes".to_owned()))
    }

    /// An image's config.
    pub fn config(&self, image: &Image) -> Result<ImageConfig, Error> {
        let bytes = self.read(&image.manifest.config, MAX_JSON_BYTES)?;
        self.parsed(&image.manifest.config, &bytes)
    }

    /// A blob as a whole, checked. `limit`: no more bytes than this are read.
    pub fn read(&self, descriptor: &Descriptor, limit: u64) -> Result<Vec<u8>, Error> {
        let failed = |source| self.blob_error(&descriptor.digest, source);
        if descriptor.size > limit {
            let why = format!("{} bytes, and at most {limit} are read", descriptor.size);
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut self.blob(descriptor)?, &mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// A blob to read through: its end is an error if size or digest are not as said.
    pub fn blob(&self, descriptor: &Descriptor) -> Result<Blob, Error> {
        let Descriptor { digest, size, .. } = descriptor;
        let default = || format!("blobs/{}/{}", digest.algorithm(), digest.hex());
        let name = self.elsewhere.get(digest).cloned().unwrap_or_else(default);
        let (source, length) = self.store.open_file(&name).map_err(|e| self.blob_error(digest, e))?;
        // Older Docker does not say how long its layers are.
        let size = if self.elsewhere.contains_key(digest) { length } else { *size };
        Ok(Blob::new(source, digest.clone(), size))
    }

    /// The name of the file or directory, without `.tar`: what a layout is called that does not say.
    fn own_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_suffix(".tar").unwrap_or(&name).to_owned()
    }

    /// `docker save` before version 25: configs and layers by path, named by nothing but the config's own digests.
    fn read_saved(&mut self) -> Result<(), Error> {
        let saved: Vec<Saved> = self.file("manifest.json")?;
        for Saved { config: config_name, repo_tags, layers } in saved {
            let bytes = self.bytes(&config_name)?;
            let config: ImageConfig = parse(&bytes).map_err(|why| self.malformed(&config_name, why))?;
            if config.rootfs.diff_ids.len() != layers.len() {
                let why = "as many diff_ids as layers are needed".to_owned();
                return Err(self.malformed(&config_name, why));
            }
            let layer = |(digest, name): (&Digest, &String)| {
                self.elsewhere.insert(digest.clone(), name.clone());
                serde_json::json!({"digest": digest, "size": 0})
            };
            let layers: Vec<_> = config.rootfs.diff_ids.iter().zip(&layers).map(layer).collect();
            let digest = Digest::of(&bytes);
            let config = serde_json::json!({"digest": digest, "size": bytes.len()});
            self.elsewhere.insert(digest, config_name);
            let manifest = serde_json::json!({"config": config, "layers": layers}).to_string().into_bytes();
            let digest = Digest::of(&manifest);
            let mut descriptor = Descriptor {
                media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
                size: manifest.len() as u64,
                digest: digest.clone(),
                annotations: BTreeMap::new(),
                platform: None,
            };
            let made = format!("(made: {digest})");
            self.store.add(made.clone(), manifest);
            self.elsewhere.insert(digest, made);
            for tag in &repo_tags {
                descriptor.annotations.insert(IMAGE_NAME.to_owned(), tag.clone());
                self.index.manifests.push(descriptor.clone());
            }
            if repo_tags.is_empty() {
                self.index.manifests.push(descriptor);
            }
        }
        Ok(())
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, Error> {
        let failed = |source| Error::Io { path: self.path.join(name), source };
        let (mut source, length) = self.store.open_file(name).map_err(failed)?;
        if length > MAX_JSON_BYTES {
            return Err(self.malformed(name, format!("longer than {MAX_JSON_BYTES} bytes")));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut source, &mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    fn file<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        parse(&self.bytes(name)?).map_err(|why| self.malformed(name, why))
    }

    fn parsed<T: DeserializeOwned>(&self, descriptor: &Descriptor, bytes: &[u8]) -> Result<T, Error> {
        parse(bytes).map_err(|why| self.malformed(&descriptor.digest.to_string(), why))
    }

    fn malformed(&self, file: &str, why: String) -> Error {
        Error::Malformed { path: self.path.clone(), file: file.to_owned(), why }
    }

    fn blob_error(&self, digest: &Digest, source: io::Error) -> Error {
        Error::Blob { path: self.path.clone(), digest: digest.clone(), source }
    }
}

/// What the bytes of a manifest or index say. Where its media type is not known (some tools leave it out), what has a
/// config is an image.
pub fn follow(media_type: &str, bytes: &[u8], platform: &Platform) -> Result<Leads, Astray> {
    let manifest = parse::<Manifest>(bytes);
    let is_index = INDEX_TYPES.contains(&media_type) || (media_type.is_empty() && manifest.is_err());
    if !is_index {
        let manifest = manifest.map_err(Astray::Malformed)?;
        if manifest.layers.len() > MAX_LAYERS {
            return Err(Astray::Malformed(format!("more than {MAX_LAYERS} layers")));
        }
        return Ok(Leads::Here(Box::new(manifest)));
    }
    let Index { manifests } = parse(bytes).map_err(Astray::Malformed)?;
    if manifests.is_empty() {
        return Err(Astray::Malformed("neither the manifest of an image nor a list of some".to_owned()));
    }
    let of = |d: &&Descriptor| d.platform.as_ref().is_none_or(|p| p == platform);
    manifests.iter().find(of).cloned().map(Leads::To).ok_or_else(|| {
        let there: Vec<String> =
            manifests.iter().filter_map(|d| Some(d.platform.as_ref()?.to_string())).collect();
        Astray::NoPlatform { platform: platform.clone(), there: there.join(", ") }
    })
}

/// What an entry of an index is called. A tag alone belongs to the layout's own name.
fn names(descriptor: &Descriptor, own: &str) -> Vec<Reference> {
    let full = descriptor.annotations.get(IMAGE_NAME).and_then(|name| name.parse().ok());
    let name = descriptor.annotations.get(REF_NAME);
    let named = name.filter(|name| name.contains(['/', ':', '@'])).and_then(|name| name.parse().ok());
    let tagged = name.filter(|name| !name.contains(['/', ':', '@'])).map(|tag| format!("{own}:{tag}"));
    let tagged = tagged.and_then(|name| name.parse().ok());
    let found: Vec<Reference> = [full, named, tagged].into_iter().flatten().collect();
    if found.is_empty() { own.parse().into_iter().collect() } else { found }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// Go writes an empty list as `null`.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
pub(crate) mod tests;
