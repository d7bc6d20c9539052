//! What does `image` mean here?
//!
//! ```text
//! our own name ─────────────────────────────▶ the running executable
//! a layout or archive of that name is here ─▶ its layers, unpacked once, are `/`
//! with an engine, any other ─────────────────▶ what the engine has or pulls ([`crate::docker`])
//! neither ──────────────────────────────────▶ the host's files, said by an Event; with `Never`, an error
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;

use crate::beneath::{self, Links};
use crate::docker::EngineImage;
use crate::identity::Accounts;
use crate::oci::{self, Layout, Platform, Reference, RunConfig};
use crate::rootfs::{self, Cache};

/// Layouts and archives that are looked at: a laptop's images, many times over.
const MAX_LAYOUTS: usize = 1024;
/// The longest `/etc/passwd` that is read: ten thousand users.
const MAX_ACCOUNTS_BYTES: u64 = 1 << 20;

/// What an image name stands for on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Pawl itself: the running executable is the entrypoint.
    Own { executable: PathBuf },
    /// The files of an image, and how it wants to be run.
    Unpacked(Arc<Unpacked>),
    /// The engine's, which runs it.
    Engine(Arc<EngineImage>),
    /// The host's files are used, and the pod is told so by an Event.
    Host(WhyHost),
}

/// Why the host's files are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyHost {
    /// Nothing is known by that name.
    Unknown,
    /// The image is here, but the machine gives no namespace in which its files could be `/`.
    NoNamespaces,
}

/// An image that can be `/`.
#[derive(Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Its repository and digest, for the status.
    pub id: String,
    pub directory: PathBuf,
    pub config: RunConfig,
    pub accounts: Accounts,
}

/// Why an image that is here cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read image \"{image}\": {source}")]
    Layout { image: String, source: Box<oci::Error> },
    #[error("failed to unpack image \"{image}\": {source}")]
    Unpack { image: String, source: Box<rootfs::Error> },
    #[error("failed to read image \"{image}\": its /etc/passwd or /etc/group: {source}")]
    Accounts { image: String, source: io::Error },
}

impl Image {
    /// What runs where a container gives no `command`; what follows it where it gives no `args` either.
    pub fn entrypoint(&self) -> (Vec<String>, Vec<String>) {
        match self {
            Self::Own { executable } => (vec![executable.to_string_lossy().into_owned()], Vec::new()),
            Self::Unpacked(_) | Self::Engine(_) | Self::Host(_) => {
                let words = |config: &RunConfig| (config.entrypoint.clone(), config.cmd.clone());
                self.config().map(words).unwrap_or_default()
            }
        }
    }

    /// The `imageID` of a container's status.
    pub fn id(&self) -> String {
        match self {
            Self::Own { .. } => "pawl://own-executable".to_owned(),
            Self::Unpacked(image) => image.id.clone(),
            Self::Engine(image) => image.shown.clone(),
            Self::Host(_) => "pawl://host-files".to_owned(),
        }
    }

    /// The variables that an image sets; an entry without `=` sets nothing.
    pub fn env(&self) -> Vec<(String, String)> {
        let pairs = self.config().into_iter().flat_map(|config| &config.env);
        let pairs = pairs.filter_map(|text| text.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    pub fn unpacked(&self) -> Option<&Unpacked> {
        match self {
            Self::Unpacked(image) => Some(image),
            Self::Own { .. } | Self::Engine(_) | Self::Host(_) => None,
        }
    }

    /// How the image wants to be run, if it says so.
    pub fn config(&self) -> Option<&RunConfig> {
        match self {
            Self::Unpacked(image) => Some(&image.config),
            Self::Engine(image) => Some(&image.config),
            Self::Own { .. } | Self::Host(_) => None,
        }
    }
}

/// Who knows images.
#[derive(Debug)]
pub(crate) struct Images {
    /// Our own, without tag or digest, such as `example.invalid/pawl`.
    pub(crate) own_names: Vec<String>,
    pub(crate) executable: PathBuf,
    /// Layouts and archives; it need not exist.
    pub(crate) directory: PathBuf,
    pub(crate) cache: Cache,
    /// Whether an image's files can be `/` on this machine.
    pub(crate) usable: bool,
}

impl Images {
    /// Pawl itself, if that is meant.
    pub(crate) fn own(&self, image: &str) -> Option<Image> {
        let ours = self.own_names.iter().any(|own| own == repository(image));
        ours.then(|| Image::Own { executable: self.executable.clone() })
    }

    /// Looks a name up, unpacking what is found. Blocks.
    pub(crate) fn resolve(&self, image: &str) -> Result<Image, Error> {
        if let Some(own) = self.own(image) {
            return Ok(own);
        }
        // What is no name is the name of nothing.
        let Ok(wanted) = image.parse::<Reference>() else { return Ok(Image::Host(WhyHost::Unknown)) };
        let Some((layout, descriptor)) = self.find(image, &wanted)? else {
            return Ok(Image::Host(WhyHost::Unknown));
        };
        if !self.usable {
            return Ok(Image::Host(WhyHost::NoNamespaces));
        }
        let read = |source| Error::Layout { image: image.to_owned(), source: Box::new(source) };
        let found = layout.image(&descriptor, &Platform::here()).map_err(read)?;
        let config = layout.config(&found).map_err(read)?;
        let unpacked = self.cache.get(&layout, &found, &config);
        let directory =
            unpacked.map_err(|source| Error::Unpack { image: image.to_owned(), source: Box::new(source) })?;
        let accounts = accounts(&directory);
        Ok(Image::Unpacked(Arc::new(Unpacked {
            id: format!("{}@{}", wanted.repository, found.digest),
            directory,
            config: config.config,
            accounts: accounts.map_err(|source| Error::Accounts { image: image.to_owned(), source })?,
        })))
    }

    /// The first layout, by name, that has the image. One that cannot be read is passed over, with a warning, unless it
    /// is the one that is wanted by its file's name.
    fn find(&self, image: &str, wanted: &Reference) -> Result<Option<(Layout, oci::Descriptor)>, Error> {
        for (path, is_layout) in candidates(&self.directory) {
            let layout = match Layout::open(&path) {
                Ok(layout) => layout,
                Err(source) if is_layout && named_by(&path, wanted) => {
                    return Err(Error::Layout { image: image.to_owned(), source: Box::new(source) });
                }
                Err(error) => {
                    if is_layout {
                        tracing::warn!(%error, "what looks like an image cannot be read");
                    }
                    continue;
                }
            };
            if let Some(descriptor) = layout.find(wanted).cloned() {
                return Ok(Some((layout, descriptor)));
            }
        }
        Ok(None)
    }
}

/// A name without tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    // A colon before the last slash belongs to a registry's port.
    let tag = name.rfind(':').filter(|colon| name.rfind('/').is_none_or(|slash| slash < *colon));
    tag.and_then(|colon| name.get(..colon)).unwrap_or(name)
}

/// What may be a layout, in the order of names, and whether it surely means to be one.
fn candidates(directory: &Path) -> BTreeMap<PathBuf, bool> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden && (path.is_dir() || path.extension().is_some_and(|extension| extension == "tar"))
    });
    let certain = |path: &Path| !path.is_dir() || path.join("index.json").exists();
    paths.take(MAX_LAYOUTS).map(|path| (path.clone(), certain(&path))).collect()
}

fn named_by(path: &Path, wanted: &Reference) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name.parse::<Reference>().is_ok_and(|own| own.repository == wanted.repository)
}

/// The users and groups that an image knows.
fn accounts(root: &Path) -> io::Result<Accounts> {
    let root = beneath::open(root)?;
    Ok(Accounts { passwd: text(&root, "etc/passwd")?, group: text(&root, "etc/group")? })
}

fn text(root: &OwnedFd, path: &str) -> io::Result<String> {
    let file = match beneath::find(root, Path::new(path), Links::AsRoot, OFlag::O_RDONLY) {
        Ok(file) => fs::File::from(file),
        // Images of one program have neither.
        Err(_) => return Ok(String::new()),
    };
    let mut bytes = Vec::new();
    file.take(MAX_ACCOUNTS_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::Digest;
    use crate::oci::testing::{Builder, LAYER_TYPE};
    use crate::oci::tests::tarred;
    use serde_json::json;

    fn images(home: &Path, usable: bool) -> Images {
        Images {
            own_names: vec!["host:5000/x/pawl".to_owned()],
            executable: PathBuf::from("p"),
            directory: home.join("images"),
            cache: Cache::open(home.join("cache")).unwrap(),
            usable,
        }
    }

    fn add(home: &Path, directory: &str, name: &str, files: &[(&str, &str)]) {
        let mut builder = Builder::new(home.join("images").join(directory)).unwrap();
        let tar = tarred(files);
        let layer = builder.blob(LAYER_TYPE, &tar).unwrap();
        let config = json!({"config": {"Env": ["A=1=2", "odd"], "Entrypoint": ["/e"], "Cmd": ["c"]},
            "rootfs": {"diff_ids": [Digest::of(&tar)]}});
        let manifest = builder.image(&config, &[layer]).unwrap();
        builder.name(manifest, name);
        builder.finish().unwrap();
    }

    #[test]
    fn our_image_is_known_by_any_tag_and_no_other_is() {
        let home = tempfile::tempdir().unwrap();
        let images = images(home.path(), true);
        for ours in [
            "host:5000/x/pawl",
            "host:5000/x/pawl:v1",
            "host:5000/x/pawl@sha256:0",
            "host:5000/x/pawl:v1@sha256:0",
        ] {
            assert!(matches!(images.resolve(ours).unwrap(), Image::Own { .. }), "{ours}");
        }
        for other in ["host:5000/x/pawls", "busybox", "", "host", "x/pawl", "no name at all"] {
            assert_eq!(images.resolve(other).unwrap(), Image::Host(WhyHost::Unknown), "{other}");
        }
    }

    #[test]
    fn an_image_that_is_here_brings_its_files_and_how_to_run_them() {
        let home = tempfile::tempdir().unwrap();
        add(home.path(), "tools", "example.invalid/tools:v1", &[("etc/passwd", "app:x:7:8::/srv/app:\n")]);
        add(home.path(), "named", "v2", &[("etc/group", "g:x:9:\n")]);
        let images = images(home.path(), true);
        let image = images.resolve("example.invalid/tools:v1").unwrap();
        let unpacked = image.unpacked().unwrap();
        assert!(unpacked.directory.join("etc/passwd").is_file());
        assert!(unpacked.id.starts_with("example.invalid/tools@sha256:"), "{}", unpacked.id);
        assert_eq!(image.env(), [("A".to_owned(), "1=2".to_owned())]);
        assert_eq!(image.entrypoint(), (vec!["/e".to_owned()], vec!["c".to_owned()]));
        assert!(unpacked.accounts.passwd.contains("app"));
        assert!(images.resolve("named:v2").unwrap().unpacked().unwrap().accounts.group.contains("g:x"));
        for other in ["example.invalid/tools", "named", "named:v1"] {
            assert_eq!(images.resolve(other).unwrap(), Image::Host(WhyHost::Unknown), "{other}");
        }
        let pinned = format!("anything@{}", unpacked.id.split_once('@').unwrap().1);
        assert!(images.resolve(&pinned).unwrap().unpacked().is_some());
    }

    #[test]
    fn without_namespaces_an_image_is_known_but_not_used() {
        let home = tempfile::tempdir().unwrap();
        add(home.path(), "x", "v1", &[]);
        let images = images(home.path(), false);
        assert_eq!(images.resolve("x:v1").unwrap(), Image::Host(WhyHost::NoNamespaces));
        assert_eq!(fs::read_dir(home.path().join("cache")).unwrap().count(), 0);
    }

    #[test]
    fn a_broken_image_breaks_only_those_who_want_it() {
        let home = tempfile::tempdir().unwrap();
        add(home.path(), "good", "v1", &[]);
        fs::write(home.path().join("images/bad.tar"), [0x1f, 0x8b, 0, 0]).unwrap();
        fs::create_dir(home.path().join("images/nothing")).unwrap();
        let images = images(home.path(), true);
        assert!(images.resolve("good:v1").unwrap().unpacked().is_some());
        let error = images.resolve("bad:v1").unwrap_err().to_string();
        assert!(error.contains("bad:v1") && error.contains("decompress"), "{error}");
        assert_eq!(images.resolve("nothing").unwrap(), Image::Host(WhyHost::Unknown));
    }
}
