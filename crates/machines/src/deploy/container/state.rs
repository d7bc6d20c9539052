//! What an image wants to find again: a directory of files, packed into a Secret.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// A Secret holds 1 MiB in all: so much of it is state, when packed …
pub const MAX_STATE_BYTES: usize = 700 * 1024;
/// … and so much is what the image exports.
pub const MAX_EXPORT_BYTES: usize = 256 * 1024;
/// What packed state may unpack to: what was packed by a factor of some forty-five. More is a bomb.
const MAX_UNPACKED_BYTES: usize = 32 * 1024 * 1024;
/// Files of a state; each has a name of its own in the packed form.
pub const MAX_FILES: usize = 10_000;

/// Files by their path below the state's directory.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Why files cannot be kept, or not be found again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("{0} files are too many; at most {MAX_FILES} are kept")]
    TooMany(usize),
    #[error("the state has {0} bytes when packed; at most {MAX_STATE_BYTES} are kept")]
    TooLarge(usize),
    #[error("the kept state is damaged: {0}")]
    Damaged(String),
}

/// Packs files so that they fit into a Secret.
///
/// # Errors
/// When they do not.
pub fn pack(files: &Files) -> Result<Vec<u8>, StateError> {
    if files.len() > MAX_FILES {
        return Err(StateError::TooMany(files.len()));
    }
    let text: BTreeMap<&str, String> =
        files.iter().map(|(path, bytes)| (path.as_str(), STANDARD.encode(bytes))).collect();
    let damaged = |error: &dyn std::fmt::Display| StateError::Damaged(error.to_string());
    let text = serde_json::to_vec(&text).map_err(|error| damaged(&error))?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&text).map_err(|error| damaged(&error))?;
    let packed = encoder.finish().map_err(|error| damaged(&error))?;
    if packed.len() > MAX_STATE_BYTES {
        return Err(StateError::TooLarge(packed.len()));
    }
    Ok(packed)
}

/// Unpacks what [`pack`] packed. Every path is a plain one below the directory.
///
/// # Errors
/// When it is something else.
pub fn unpack(packed: &[u8]) -> Result<Files, StateError> {
    unpack_within(packed, MAX_UNPACKED_BYTES)
}

fn unpack_within(packed: &[u8], limit: usize) -> Result<Files, StateError> {
    if packed.is_empty() {
        return Ok(Files::new());
    }
    let damaged = |error: &dyn std::fmt::Display| StateError::Damaged(error.to_string());
    let mut text = Vec::new();
    GzDecoder::new(packed).take(limit as u64 + 1).read_to_end(&mut text).map_err(|error| damaged(&error))?;
    if text.len() > limit {
        return Err(StateError::Damaged(format!("it unpacks to more than {limit} bytes")));
    }
    let files: BTreeMap<String, String> = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
    let unpack = |(path, text): (String, String)| {
        if !is_plain(&path) {
            return Err(StateError::Damaged(format!("{path:?} leads elsewhere")));
        }
        Ok((path, STANDARD.decode(text).map_err(|error| damaged(&error))?))
    };
    files.into_iter().map(unpack).collect()
}

fn is_plain(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | "..")) && !path.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_are_found_again() {
        let files: Files = [("a/b.json".to_owned(), b"{}".to_vec()), ("c".to_owned(), vec![0, 255])].into();
        assert_eq!(unpack(&pack(&files).unwrap()), Ok(files));
        assert_eq!(unpack(b""), Ok(Files::new()));
    }

    #[test]
    fn what_leads_elsewhere_or_is_too_large_is_refused() {
        for path in ["../x", "/etc/passwd", "a//b", "a/./b", ""] {
            let files: Files = [(path.to_owned(), vec![])].into();
            assert!(unpack(&pack(&files).unwrap()).is_err(), "{path}");
        }
        let noise: Vec<u8> =
            (0..300_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        assert!(matches!(pack(&[("a".to_owned(), noise)].into()), Err(StateError::TooLarge(_))));
        let many: Files = (0..=MAX_FILES).map(|n| (n.to_string(), vec![])).collect();
        assert_eq!(pack(&many), Err(StateError::TooMany(MAX_FILES + 1)));
        let zeros: Files = [("a".to_owned(), vec![0; 10_000])].into();
        assert!(unpack_within(&pack(&zeros).unwrap(), 10_000).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack(&bytes);
        }
    }
}
