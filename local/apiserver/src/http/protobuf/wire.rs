//! Which numbered values does a message consist of?

use super::ProtobufError;

/// A varint has seven bits in each byte.
const MAX_VARINT_BYTES: usize = 10;

/// A value as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    /// A varint: numbers and booleans.
    Number(u64),
    /// Eight bytes: doubles.
    Eight(u64),
    /// Four bytes: nothing that Kubernetes sends.
    Four,
    /// Texts, bytes, messages.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub(super) fn number(self, name: &str) -> Result<u64, ProtobufError> {
        match self {
            Wire::Number(number) => Ok(number),
            Wire::Eight(_) | Wire::Four | Wire::Bytes(_) => Err(ProtobufError::WrongType(name.to_owned())),
        }
    }

    pub(super) fn bytes(self, name: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            Wire::Number(_) | Wire::Eight(_) | Wire::Four => Err(ProtobufError::WrongType(name.to_owned())),
        }
    }
}

/// Goes through a message, field by field.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Packed numbers.
    pub(super) fn numbers(bytes: &'a [u8]) -> impl Iterator<Item = Result<u64, ProtobufError>> + 'a {
        let mut reader = Reader::new(bytes);
        std::iter::from_fn(move || (!reader.rest.is_empty()).then(|| reader.until_error(Reader::varint)))
    }

    fn field(&mut self) -> Result<(u64, Wire<'a>), ProtobufError> {
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                Wire::Eight(bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
            }
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(usize::try_from(length).map_err(|_| ProtobufError::CutOff)?)?)
            }
            5 => {
                self.take(4)?;
                Wire::Four
            }
            other => return Err(ProtobufError::WireType(other)),
        };
        Ok((key >> 3, wire))
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0;
        for (at, byte) in self.rest.iter().enumerate().take(MAX_VARINT_BYTES) {
            // The tenth byte has one bit left; what is above it is dropped, as everywhere.
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.take(at + 1)?;
                return Ok(number);
            }
        }
        Err(if self.rest.len() < MAX_VARINT_BYTES {
            ProtobufError::CutOff
        } else {
            ProtobufError::LongNumber
        })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::CutOff)?;
        self.rest = rest;
        Ok(taken)
    }

    /// After an error there is nothing more to read.
    fn until_error<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ProtobufError>,
    ) -> Result<T, ProtobufError> {
        read(self).inspect_err(|_| self.rest = &[])
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.until_error(Reader::field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>, ProtobufError> {
        Reader::new(bytes).collect()
    }

    #[test]
    fn every_wire_type_is_read() {
        let bytes = b"\x08\x96\x01\x12\x02hi\x19\x00\x00\x00\x00\x00\x00\xf0\x3f\x25\x01\x02\x03\x04";
        let want = [
            (1, Wire::Number(150)),
            (2, Wire::Bytes(b"hi")),
            (3, Wire::Eight(1.0_f64.to_bits())),
            (4, Wire::Four),
        ];
        assert_eq!(read(bytes).unwrap(), want);
        assert_eq!(
            read(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").unwrap(),
            [(1, Wire::Number(u64::MAX))]
        );
        assert_eq!(Reader::numbers(b"\x01\x96\x01").collect::<Result<Vec<_>, _>>(), Ok(vec![1, 150]));
    }

    #[test]
    fn what_is_cut_off_is_an_error_and_the_end() {
        for (bytes, error) in [
            (&b"\x08"[..], ProtobufError::CutOff),
            (b"\x08\x96", ProtobufError::CutOff),
            (b"\x12\x05hi", ProtobufError::CutOff),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", ProtobufError::CutOff),
            (b"\x19\x00", ProtobufError::CutOff),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", ProtobufError::LongNumber),
            (b"\x0b", ProtobufError::WireType(3)),
        ] {
            assert_eq!(read(bytes), Err(error), "{bytes:?}");
            assert_eq!(Reader::new(bytes).count(), 1);
        }
    }
}
