//! How do an image's layers become a directory that can be `/`?
//!
//! Layer after layer, as the OCI specification says: a later entry replaces an earlier one, `.wh.NAME` removes NAME,
//! `.wh..wh..opq` removes all that earlier layers put beside it. A layer is a stranger's: its paths are followed within
//! the directory only, and what could reach beyond it or is no file is refused. Links are made as they are written, even
//! to `/etc` or `../..`: whoever follows them later does so with this directory as `/`.
//!
//! Everything belongs to the user who runs Pawl, because nobody else can be given anything without power over the
//! machine; a container sees its own user as the owner.

mod layer;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::beneath;
use crate::oci::{self, Digest, Image, ImageConfig, Layout};
use crate::worker::remove_dir;
use layer::{Budget, Layer};

/// All that an image may unpack to: twice the largest images in common use (toolkits for machine learning).
const MAX_BYTES: u64 = 32 << 30;
/// Files, directories and links in an image: a desktop's whole system has half as many.
const MAX_ENTRIES: u64 = 1_000_000;

/// Where the kernel's own file systems go: directories in every image, whether it brings them or not.
const KERNEL_DIRECTORIES: &[&str] = &["dev", "proc", "sys"];

/// A draft's name begins so; an image's does not.
const DRAFT: &str = ".new-";

/// Images that were unpacked, by digest.
#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    /// One at a time: two containers of one image must not unpack it twice, and a disk is one disk.
    unpacking: Mutex<()>,
}

/// Why an image cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Layout(#[from] oci::Error),
    #[error("unpacking the image: {path}: {source}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("layer {layer}: {source}")]
    Read { layer: Digest, source: io::Error },
    #[error("layer {layer}: {path}: {source}")]
    Write { layer: Digest, path: PathBuf, source: io::Error },
    #[error("layer {layer}: {path} is refused: {why}")]
    Refused { layer: Digest, path: PathBuf, why: String },
    #[error("layer {layer} unpacks to {found}, but the image's config says {said}")]
    OtherLayer { layer: Digest, found: Digest, said: Digest },
    #[error("the image's config knows {said} layers, its manifest {found}")]
    OtherLayers { said: usize, found: usize },
    #[error("the image's /{0} is no directory")]
    KernelDirectory(&'static str),
}

impl Cache {
    /// Opens a cache; what a crash left half unpacked is removed.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(DRAFT) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self { directory, unpacking: Mutex::default() })
    }

    /// The directory of an image, unpacked if it is not there yet. Blocks for as long as that takes.
    pub(crate) fn get(&self, layout: &Layout, image: &Image, config: &ImageConfig) -> Result<PathBuf, Error> {
        let name = format!("{}-{}", image.digest.algorithm(), image.digest.hex());
        let path = self.directory.join(&name);
        let _one_at_a_time = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        if path.is_dir() {
            return Ok(path);
        }
        let draft = self.directory.join(format!("{DRAFT}{name}"));
        let failed = |source| Error::Directory { path: draft.clone(), source };
        remove_dir(&draft).and_then(|()| fs::create_dir(&draft)).map_err(failed)?;
        let made = unpack(layout, image, config, &draft).and_then(|()| {
            // On disk before it has its name: after a power cut, what has the name is whole.
            let open = fs::File::open(&draft).map_err(failed)?;
            nix::unistd::syncfs(&open).map_err(io::Error::from).map_err(failed)?;
            fs::rename(&draft, &path).map_err(failed)
        });
        if made.is_err() {
            // What is left is removed at the next start.
            let _ = remove_dir(&draft);
        }
        made.map(|()| path)
    }
}

/// Unpacks all layers into an empty directory.
fn unpack(layout: &Layout, image: &Image, config: &ImageConfig, into: &Path) -> Result<(), Error> {
    let layers = &image.manifest.layers;
    let said = &config.rootfs.diff_ids;
    if said.len() != layers.len() {
        return Err(Error::OtherLayers { said: said.len(), found: layers.len() });
    }
    let failed = |path: PathBuf, source| Error::Directory { path, source };
    let root = beneath::open(into).map_err(|errno| failed(into.to_owned(), errno.into()))?;
    let mut budget = Budget { bytes: MAX_BYTES, entries: MAX_ENTRIES };
    for (layer, said) in layers.iter().zip(said) {
        let found = Layer::new(&root, layer.digest.clone(), &mut budget).apply(layout.blob(layer)?, said)?;
        if found != *said {
            return Err(Error::OtherLayer { layer: layer.digest.clone(), found, said: said.clone() });
        }
    }
    for name in KERNEL_DIRECTORIES {
        let path = into.join(name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(Error::KernelDirectory(name)),
            Err(_) => fs::create_dir(&path).map_err(|source| failed(path, source))?,
        }
    }
    Ok(())
}

/// A copy of an unpacked image, for machines where no overlay can be laid over it. Files share their blocks where the
/// file system knows how.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut left = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = left.pop() {
        let meta = fs::symlink_metadata(&from)?;
        if meta.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else if meta.is_dir() {
            if !to.is_dir() {
                fs::create_dir(&to)?;
            }
            fs::set_permissions(&to, meta.permissions())?;
            for entry in fs::read_dir(&from)? {
                let name = entry?.file_name();
                left.push((from.join(&name), to.join(name)));
            }
        } else {
            // With its mode; nothing but files is left.
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
