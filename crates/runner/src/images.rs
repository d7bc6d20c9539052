//! What does `image` mean here?

use std::path::PathBuf;

/// What an image name stands for on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Pawl itself: the running executable is the entrypoint.
    Own { executable: PathBuf },
    /// Nothing known by that name: the host's files are used, and the pod is told so by an Event.
    Host,
}

impl Image {
    /// What runs where a container gives no `command`.
    pub fn entrypoint(&self) -> Vec<String> {
        match self {
            Self::Own { executable } => vec![executable.to_string_lossy().into_owned()],
            Self::Host => Vec::new(),
        }
    }

    /// The `imageID` of a container's status.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Own { .. } => "pawl://own-executable",
            Self::Host => "pawl://host-files",
        }
    }
}

/// Who knows images.
pub trait Images: Send + Sync + std::fmt::Debug {
    fn resolve(&self, image: &str) -> Image;
}

/// Knows one image: our own.
#[derive(Clone, Debug)]
pub struct OwnImage {
    /// Names without tag or digest, such as `example.invalid/pawl`.
    pub names: Vec<String>,
    pub executable: PathBuf,
}

impl Images for OwnImage {
    fn resolve(&self, image: &str) -> Image {
        let name = image.split('@').next().unwrap_or(image);
        // A colon before the last slash belongs to a registry's port.
        let tag = name.rfind(':').filter(|colon| name.rfind('/').is_none_or(|slash| slash < *colon));
        let name = tag.and_then(|colon| name.get(..colon)).unwrap_or(name);
        if self.names.iter().any(|own| own == name) {
            Image::Own { executable: self.executable.clone() }
        } else {
            Image::Host
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_image_is_known_by_any_tag_and_no_other_is() {
        let images = OwnImage { names: vec!["host:5000/x/pawl".to_owned()], executable: PathBuf::from("p") };
        for ours in [
            "host:5000/x/pawl",
            "host:5000/x/pawl:v1",
            "host:5000/x/pawl@sha256:0",
            "host:5000/x/pawl:v1@sha256:0",
        ] {
            assert_ne!(images.resolve(ours), Image::Host, "{ours}");
        }
        for other in ["host:5000/x/pawls", "busybox", "", "host", "x/pawl"] {
            assert_eq!(images.resolve(other), Image::Host, "{other}");
        }
    }
}
