//! Are these bytes the ones that were asked for, and what do they unpack to?

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Digest, Hasher};

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A zstd stream may also begin with a frame to be skipped: 0x184D2A50 to …5F, least byte first.
const ZSTD_SKIPPED: &[u8] = &[0x2a, 0x4d, 0x18];

/// A blob that is checked as it is read: after its last byte comes its end or, if it is not what it was called, an error.
pub struct Blob {
    source: Box<dyn Read + Send>,
    digest: Digest,
    hasher: Option<Hasher>,
    /// Bytes still to come.
    left: u64,
}

impl Blob {
    pub(super) fn new(source: Box<dyn Read + Send>, digest: Digest, size: u64) -> Self {
        let hasher = Some(digest.hasher());
        Self { source, digest, hasher, left: size }
    }

    fn verify(&mut self) -> io::Result<()> {
        // Once: what was good stays good.
        let Some(found) = self.hasher.take().map(Hasher::finish) else { return Ok(()) };
        if found == self.digest {
            return Ok(());
        }
        Err(invalid(format!("its bytes have digest {found}")))
    }
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.source.read(buffer)?;
        if read == 0 {
            return match self.left {
                0 => self.verify().map(|()| 0),
                left => Err(invalid(format!("{left} bytes are missing"))),
            };
        }
        self.left =
            self.left.checked_sub(read as u64).ok_or_else(|| invalid("longer than it says".to_owned()))?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(buffer.get(..read).unwrap_or_default());
        }
        Ok(read)
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blob").field("digest", &self.digest).field("left", &self.left).finish_non_exhaustive()
    }
}

/// A blob as it was before it was compressed: by gzip, by zstd, or not at all. What it is, its first bytes say: media
/// types are written by hand too often.
pub fn decompressed<'a>(blob: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut blob = BufReader::new(blob);
    let begins = blob.fill_buf()?;
    Ok(if begins.starts_with(GZIP_MAGIC) {
        Box::new(flate2::bufread::MultiGzDecoder::new(blob))
    } else if is_zstd(begins) {
        Box::new(Frames { source: blob, decoder: FrameDecoder::new(), within: false })
    } else {
        Box::new(blob)
    })
}

pub(super) fn is_compressed(begins: &[u8]) -> bool {
    begins.starts_with(GZIP_MAGIC) || is_zstd(begins)
}

fn is_zstd(begins: &[u8]) -> bool {
    let skipped = begins.first().is_some_and(|byte| byte & 0xf0 == 0x50)
        && begins.get(1..).is_some_and(|rest| rest.starts_with(ZSTD_SKIPPED));
    begins.starts_with(ZSTD_MAGIC) || skipped
}

/// All frames of a zstd stream, one after another. The decoder knows one frame only, and tools that let layers be
/// fetched in parts write many.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> Frames<R> {
    /// Begins the next frame; whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut frame = (&mut self.source).take(u64::from(length));
                    if io::copy(&mut frame, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error.to_string())),
            }
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.within && !self.begin()? {
                return Ok(0);
            }
            self.within = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(|e| invalid(e.to_string()))?;
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            self.within = false;
        }
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
