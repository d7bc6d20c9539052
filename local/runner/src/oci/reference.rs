//! Do two names mean the same image?
//!
//! `busybox`, `library/busybox:latest` and `docker.io/library/busybox` do: a name without a registry is Docker's, a
//! name without an owner there is the library's, a name without a tag is the latest.

use std::fmt;
use std::str::FromStr;

use super::Digest;

const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_OWNER: &str = "library";
const DEFAULT_TAG: &str = "latest";

/// The full name of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// With registry and owner.
    pub repository: String,
    /// `latest` where neither tag nor digest is given.
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

/// Why a text names no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name \"{0}\"")]
pub struct NoReference(String);

impl Reference {
    /// Whether something of this name is what is wanted. A digest says more than any tag: where one is wanted, no name
    /// suffices.
    pub fn names(&self, wanted: &Self) -> bool {
        wanted.digest.is_none() && self.repository == wanted.repository && self.tag == wanted.tag
    }
}

impl FromStr for Reference {
    type Err = NoReference;

    fn from_str(text: &str) -> Result<Self, NoReference> {
        let bad = || NoReference(text.to_owned());
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        // A colon before the last slash belongs to a registry's port.
        let colon = name.rfind(':').filter(|colon| name.rfind('/').is_none_or(|slash| slash < *colon));
        let (path, tag) = match colon {
            Some(at) => (name.get(..at).unwrap_or_default(), name.get(at + 1..)),
            None => (name, None),
        };
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let parts_fit =
            path.split('/').all(|part| !part.is_empty() && part.chars().all(|c| word(c) || c == ':'));
        if !parts_fit || tag.is_some_and(|tag| tag.is_empty() || !tag.chars().all(word)) {
            return Err(bad());
        }
        // Only a first part that looks like a host is one.
        let host =
            path.split_once('/').filter(|(first, _)| first.contains(['.', ':']) || *first == "localhost");
        let (registry, rest) = host.unwrap_or((DEFAULT_REGISTRY, path));
        let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
        let owner = registry == DEFAULT_REGISTRY && !rest.contains('/');
        let owner = if owner { format!("{DEFAULT_OWNER}/") } else { String::new() };
        let tag = tag.or(digest.is_none().then_some(DEFAULT_TAG));
        Ok(Self { repository: format!("{registry}/{owner}{rest}"), tag: tag.map(str::to_owned), digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_what_docker_means_by_them() {
        let digest = Digest::of(b"x");
        let table = [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("library/busybox", "docker.io/library/busybox:latest"),
            ("docker.io/busybox", "docker.io/library/busybox:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("a/b", "docker.io/a/b:latest"),
            ("localhost/b", "localhost/b:latest"),
            ("localhost:5000/b", "localhost:5000/b:latest"),
            ("example.invalid:5000/a/b:v1", "example.invalid:5000/a/b:v1"),
        ];
        for (short, full) in table {
            assert_eq!(short.parse::<Reference>().unwrap().to_string(), full, "{short}");
        }
        let pinned: Reference = format!("a/b:v1@{digest}").parse().unwrap();
        assert_eq!(pinned.to_string(), format!("docker.io/a/b:v1@{digest}"));
        for bad in ["", "/", "a//b", "a:", "a b", "a@sha256:0", "../x y", "a/b:v 1", "ü"] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tag_does_not_stand_in_for_a_digest() {
        let tagged: Reference = "a/b:v1".parse().unwrap();
        assert!(tagged.names(&"docker.io/a/b:v1".parse().unwrap()));
        assert!(!tagged.names(&"a/b:v2".parse().unwrap()) && !tagged.names(&"a/c:v1".parse().unwrap()));
        assert!(!tagged.names(&format!("a/b:v1@{}", Digest::of(b"x")).parse().unwrap()));
    }
}
