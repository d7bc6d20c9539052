//! How do this process and a worker talk?
//!
//! Frames over the worker's standard input and output: four bytes of length, most significant first, then JSON. One
//! request, one response, and then the next.

use std::borrow::Cow;

use pawl_machines::remedy::safety::{Decision, Held};
use serde::{Deserialize, Serialize};

use crate::scan::Problem;

/// An input is an object, its Pods and a dry run: a few objects, each of a megabyte and a half at the most.
pub(crate) const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
pub(crate) const LENGTH_BYTES: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// To be read and kept under this digest.
    Load {
        digest: Cow<'a, str>,
        modules: Cow<'a, [(String, String)]>,
    },
    /// Of a set that was loaded.
    Decide {
        digest: Cow<'a, str>,
        input: Cow<'a, str>,
    },
    Condition {
        rego: Cow<'a, str>,
        input: Cow<'a, str>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Loaded,
    Rejected(Problem),
    /// There is no set of that digest.
    Unknown,
    Decided(Result<Decision, String>),
    Held(Held),
}

/// A frame, ready to be written.
///
/// # Errors
/// When it is too long.
pub(crate) fn frame(message: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message).map_err(|error| error.to_string())?;
    let length = bytes.len().saturating_sub(LENGTH_BYTES);
    let head = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME_BYTES);
    let head =
        head.ok_or_else(|| format!("{length} bytes are too many to be evaluated: {MAX_FRAME_BYTES} may be"))?;
    if let Some(start) = bytes.first_chunk_mut::<LENGTH_BYTES>() {
        *start = head.to_be_bytes();
    }
    Ok(bytes)
}

/// How long the frame is that begins so.
///
/// # Errors
/// When it is too long.
pub(crate) fn length(head: [u8; LENGTH_BYTES]) -> Result<usize, String> {
    let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if length > MAX_FRAME_BYTES { Err(format!("a frame of {length} bytes")) } else { Ok(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_its_length_and_has_a_limit() {
        let bytes = frame(&Request::Decide { digest: "d".into(), input: "{}".into() }).unwrap();
        let (head, body) = bytes.split_first_chunk::<LENGTH_BYTES>().unwrap();
        assert_eq!(length(*head), Ok(body.len()));
        assert!(matches!(serde_json::from_slice(body), Ok(Request::Decide { .. })));
        assert!(frame(&"x".repeat(MAX_FRAME_BYTES)).is_err());
        assert!(length(u32::MAX.to_be_bytes()).is_err());
    }
}
