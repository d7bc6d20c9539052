//! What names a blob, and does a blob deserve its name?

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

/// The hash of a blob's bytes, such as `sha256:0123…`. Always well-formed, so it may stand in a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

/// The algorithms that OCI registers and that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Algorithm {
    Sha256,
    Sha512,
}

/// Why a text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no digest: sha256: or sha512: and its lower-case hexadecimal digits are")]
pub struct NoDigest(String);

/// Hashes while bytes go by.
#[derive(Clone, Debug)]
pub enum Hasher {
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl Digest {
    /// The digest of some bytes, by the algorithm everybody uses.
    pub fn of(bytes: &[u8]) -> Self {
        Self { algorithm: Algorithm::Sha256, hex: hex::encode(Sha256::digest(bytes)) }
    }

    pub fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// A hasher for what claims to be this.
    pub fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(Box::new(Sha512::new())),
        }
    }
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    pub fn finish(self) -> Digest {
        match self {
            Self::Sha256(hash) => Digest { algorithm: Algorithm::Sha256, hex: hex::encode(hash.finalize()) },
            Self::Sha512(hash) => Digest { algorithm: Algorithm::Sha512, hex: hex::encode(hash.finalize()) },
        }
    }
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn hex_digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let bad = || NoDigest(text.to_owned());
        let (name, hex) = text.split_once(':').ok_or_else(bad)?;
        let algorithm = match name {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return Err(bad()),
        };
        let digits = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !digits || hex.len() != algorithm.hex_digits() {
            return Err(bad());
        }
        Ok(Self { algorithm, hex: hex.to_owned() })
    }
}

impl TryFrom<String> for Digest {
    type Error = NoDigest;

    fn try_from(text: String) -> Result<Self, NoDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), self.hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_never_a_path() {
        let sha256 = Digest::of(b"").to_string();
        assert_eq!(sha256.parse::<Digest>().unwrap().to_string(), sha256);
        let sha512 = format!("sha512:{}", "0f".repeat(64));
        assert_eq!(sha512.parse::<Digest>().unwrap().to_string(), sha512);
        let shouted = sha256.to_uppercase();
        for bad in ["", "sha256:", "sha256:../../x", "md5:00", "sha256", &shouted, &sha256[..70]] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hasher_finds_the_digest_it_was_made_for() {
        let mut hasher = Digest::of(b"ab").hasher();
        hasher.update(b"a");
        hasher.update(b"b");
        assert_eq!(hasher.finish(), Digest::of(b"ab"));
        let long: Digest = format!("sha512:{}", "00".repeat(64)).parse().unwrap();
        assert_eq!(long.hasher().finish().algorithm(), "sha512");
    }
}
