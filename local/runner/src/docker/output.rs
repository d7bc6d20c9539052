//! How does what an engine has of a container's output get into the log, each line once?
//!
//! An engine sends frames: which output, how long, then a time and a line. Where a connection breaks, or Pawl did, the
//! engine is asked for what came since the last line that is in the log; what is there already is known by its time, and
//! where several lines have one time (Podman's have whole seconds) by how many of them there are.
//!
//! A following stream may leave lines out (Podman's, see [`Engine::skips_lines`]) or end before the last line comes (Docker's
//! does, for one without a line feed), so when the container has ended, what is left is asked for once more.

use bytes::{Buf, BytesMut};
use http::Method;
use jiff::{SignedDuration, Timestamp};

use super::Engine;
use super::http::{Ask, Error};
use crate::logs::{Channel, Marks, Resumed};

/// Which output, three zeros, and the length of what follows.
const HEAD_BYTES: usize = 8;
/// Engines send a line, or 16 KiB of one, at a time; who sends more than this speaks something else.
const MAX_FRAME_BYTES: usize = 1 << 20;
/// Engines may leave out lines of the very moment that is asked for; a little more is asked, and known again.
const OVERLAP: SignedDuration = SignedDuration::from_secs(1);

/// Whether to wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Ends when the engine has no more.
    Now,
    /// Ends when the container does.
    End,
}

impl Engine {
    /// Copies a container's output to its log.
    pub(crate) async fn copy_output(&self, name: &str, log: &mut Resumed, until: Until) -> Result<(), Error> {
        let since = log.newest().map_or(0, |at| at.saturating_sub(OVERLAP).map_or(0, Timestamp::as_second));
        let since = since.to_string();
        let follow = match until {
            Until::Now => "0",
            Until::End => "1",
        };
        let path = format!("/containers/{name}/logs");
        let query =
            [("stdout", "1"), ("stderr", "1"), ("timestamps", "1"), ("follow", follow), ("since", &since)];
        let mut answer = self.client.stream(Ask::new(Method::GET, &path).query(&query)).await?;
        let mut again = log.again();
        let mut held = BytesMut::new();
        while let Some(piece) = answer.next().await? {
            held.extend_from_slice(&piece);
            let taken = take_frames(&mut held, log, &mut again);
            // Also before what is strange: nothing waits between a line that counts as written and its writing.
            log.flush();
            taken?;
        }
        Ok(())
    }
}

fn take_frames(held: &mut BytesMut, log: &mut Resumed, again: &mut Marks) -> Result<(), Error> {
    while let Some((channel, line)) = frame(held)? {
        let (at, text) = split(&line);
        log.add(channel, at, text, again);
    }
    Ok(())
}

/// Takes the first whole frame.
fn frame(held: &mut BytesMut) -> Result<Option<(Channel, BytesMut)>, Error> {
    let Some((&[kind, _, _, _, a, b, c, d], rest)) = held.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let channel = match kind {
        0 | 1 => Channel::Stdout,
        2 => Channel::Stderr,
        _ => return Err(strange("a frame of an unknown kind")),
    };
    if length > MAX_FRAME_BYTES {
        return Err(strange("a frame that is too long"));
    }
    if rest.len() < length {
        return Ok(None);
    }
    held.advance(HEAD_BYTES);
    Ok(Some((channel, held.split_to(length))))
}

fn strange(what: &str) -> Error {
    Error::Answer { what: "a container's output".to_owned(), source: what.into() }
}

/// A line's time and text. A line without a time is all text, of now.
fn split(line: &[u8]) -> (Timestamp, &[u8]) {
    let timed = line.iter().position(|byte| *byte == b' ').and_then(|space| {
        let (time, text) = line.split_at_checked(space)?;
        Some((std::str::from_utf8(time).ok()?.parse().ok()?, text.get(1..)?))
    });
    timed.unwrap_or_else(|| (Timestamp::now(), line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_whole_and_what_is_none_is_refused() {
        let mut held = BytesMut::from(&b"\x01\0\0\0\0\0\0\x03abc\x02\0\0\0\0\0\0\x02d"[..]);
        assert_eq!(frame(&mut held).unwrap().unwrap(), (Channel::Stdout, BytesMut::from("abc")));
        assert!(frame(&mut held).unwrap().is_none());
        held.extend_from_slice(b"e");
        assert_eq!(frame(&mut held).unwrap().unwrap(), (Channel::Stderr, BytesMut::from("de")));
        assert!(held.is_empty() && frame(&mut held).unwrap().is_none());
        for bad in [&b"\x07\0\0\0\0\0\0\0"[..], b"\x01\0\0\0\xff\0\0\0"] {
            assert!(frame(&mut BytesMut::from(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_line_has_its_time_before_its_text() {
        let at: Timestamp = "2026-11-16T12:00:00.5Z".parse().unwrap();
        assert_eq!(split(b"2026-11-16T12:00:00.500000000Z two words\n"), (at, &b"two words\n"[..]));
        assert_eq!(split(b"2026-11-16T12:00:00.5Z "), (at, &b""[..]));
        assert_eq!(split(b"no time at all").1, b"no time at all");
    }
}
