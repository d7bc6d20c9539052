//! How is a file read back with all processors?
//!
//! ```text
//! frames ──checksums, in order──▶ a batch ──a part of it for each thread──▶ records, in order again
//! ```
//! Batches are bounded: what a record replaces is dropped before much more is read.

use std::num::NonZero;
use std::thread;

use super::record::{self, Damage, Known, Record};

/// How much of a file is decoded before it is taken over: enough for a thread to be worth its start.
const BATCH_BYTES: usize = 8 << 20;
/// Less than this is decoded where it is.
const ALONE_BYTES: usize = 256 << 10;
/// More threads than this wait for memory.
const MAX_THREADS: usize = 4;

/// Whole frames that follow each other.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    /// Where each begins, and what is in it.
    frames: Vec<(usize, &'a [u8])>,
    /// Where the last one ends.
    pub(super) end: usize,
    /// Why there are no more of them, if that is not the end of the file or of the batch.
    pub(super) damage: Option<Damage>,
    /// An empty frame came: nothing should follow.
    pub(super) ended: bool,
}

/// The frames from `at` on, as many as go into a batch.
pub(super) fn batch(bytes: &[u8], at: usize) -> Batch<'_> {
    let mut batch = Batch { frames: Vec::new(), end: at, damage: None, ended: false };
    while batch.end < bytes.len() && batch.end - at < BATCH_BYTES {
        match record::frame(bytes.get(batch.end..).unwrap_or_default()) {
            Ok((payload, len)) => {
                batch.ended = payload.is_empty();
                batch.frames.push((batch.end, payload));
                batch.end += len;
                if batch.ended {
                    break;
                }
            }
            Err(damage) => {
                batch.damage = Some(damage);
                break;
            }
        }
    }
    batch
}

/// What was learnt by each thread, from batch to batch.
#[derive(Debug)]
pub(super) struct Decoder {
    known: Vec<Known>,
}

/// The records of one frame, and where it begins.
pub(super) type Decoded = (usize, Result<Vec<Record>, Damage>);

impl Default for Decoder {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        Decoder { known: (0..threads).map(|_| Known::default()).collect() }
    }
}

impl Decoder {
    /// The records of every frame, in order.
    pub(super) fn decode(&mut self, batch: &Batch<'_>) -> Vec<Decoded> {
        let bytes: usize = batch.frames.iter().map(|(_, payload)| payload.len()).sum();
        let threads = if bytes < ALONE_BYTES { 1 } else { self.known.len() };
        let mut rest = batch.frames.as_slice();
        let mut parts = Vec::new();
        for (at, known) in self.known.iter_mut().take(threads).enumerate() {
            let mut taken = 0;
            let part = rest.iter().take_while(|(_, payload)| {
                let wanted = at + 1 == threads || taken < bytes / threads;
                taken += payload.len();
                wanted
            });
            let (part, after) = rest.split_at(part.count());
            rest = after;
            parts.push((known, part));
        }
        let mut parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
        let Some((known, first)) = parts.next() else { return Vec::new() };
        thread::scope(|scope| {
            let others: Vec<_> =
                parts.map(|(known, part)| scope.spawn(move || decode_part(known, part))).collect();
            let mut decoded = decode_part(known, first);
            for other in others {
                match other.join() {
                    Ok(part) => decoded.extend(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            decoded
        })
    }
}

fn decode_part(known: &mut Known, frames: &[(usize, &[u8])]) -> Vec<Decoded> {
    frames.iter().map(|(at, payload)| (*at, record::records(payload, known))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::{Change, FrameBuilder};
    use super::super::tests::draft;
    use super::*;

    /// Frames of about 100 KiB, three records in each, then an empty one.
    fn file(frames: usize) -> Vec<u8> {
        let (mut bytes, mut builder) = (Vec::new(), FrameBuilder::default());
        for at in 0..frames {
            for one in 0..3 {
                let object = draft(&format!("o{at}-{one}"), &"x".repeat(33_000)).at(7);
                builder.record("things", Change::Put, &object);
            }
            bytes.extend(builder.finish());
        }
        bytes.extend(builder.finish());
        bytes
    }

    #[test]
    fn records_come_in_order_however_many_threads_decode_them() {
        for (frames, threads) in [(0, 1), (1, 3), (2, 4), (5, 2), (120, 1), (120, 2), (120, 4)] {
            let bytes = file(frames);
            let mut decoder = Decoder { known: (0..threads).map(|_| Known::default()).collect() };
            let (mut names, mut at, mut batches) = (Vec::new(), 0, 0);
            loop {
                let batch = batch(&bytes, at);
                assert_eq!(batch.damage, None);
                for (_, records) in decoder.decode(&batch) {
                    names.extend(records.unwrap().iter().map(|record| record.object.name().to_owned()));
                }
                (at, batches) = (batch.end, batches + 1);
                if batch.ended {
                    break;
                }
            }
            let want = (0..frames).flat_map(|at| (0..3).map(move |one| format!("o{at}-{one}")));
            assert!(names.into_iter().eq(want), "{frames} frames, {threads} threads");
            assert_eq!((at, batches), (bytes.len(), 1 + frames / 84));
        }
    }

    #[test]
    fn a_batch_ends_before_a_frame_that_is_no_frame() {
        let bytes = file(3);
        let whole = batch(&bytes, 0);
        let (third, _) = whole.frames[2];
        let cut = batch(&bytes[..third + 5], 0);
        assert_eq!((cut.end, cut.damage, cut.ended), (third, Some(Damage::Cut), false));
    }
}
