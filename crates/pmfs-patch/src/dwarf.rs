//! Reading DWARF's numbers: fixed, LEB128, and pointers in the encodings of exception tables.

/// The encoding byte of a pointer that isn't there.
pub(crate) const ENCODING_OMIT: u8 = 0xff;

/// Bytes that stand at an address. Every read is checked; `None` is the end, or an
/// encoding that isn't known.
#[derive(Clone)]
pub(crate) struct Reader<'data> {
    rest: &'data [u8],
    address: u64,
}

impl<'data> Reader<'data> {
    pub(crate) fn new(rest: &'data [u8], address: u64) -> Self {
        Reader { rest, address }
    }

    /// The address of the next byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, len: u64) -> Option<&'data [u8]> {
        let len_here = usize::try_from(len).ok()?;
        let (taken, rest) = self.rest.split_at_checked(len_here)?;
        self.rest = rest;
        self.address += len;
        Some(taken)
    }

    /// The next bytes as a reader of their own.
    pub(crate) fn part(&mut self, len: u64) -> Option<Reader<'data>> {
        let address = self.address;
        Some(Reader::new(self.take(len)?, address))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N as u64)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn half(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A signed number that is only passed over: its end is found as an unsigned one's is.
    pub(crate) fn skip_leb(&mut self) -> Option<()> {
        while self.byte()? & 0x80 != 0 {}
        Some(())
    }

    pub(crate) fn c_string(&mut self) -> Option<&'data [u8]> {
        let len = self.rest.iter().position(|byte| *byte == 0)?;
        let string = self.take(len as u64)?;
        self.byte()?;
        Some(string)
    }

    /// A number in the format of a pointer encoding (its low four bits).
    pub(crate) fn value(&mut self, encoding: u8) -> Option<u64> {
        Some(match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.long()?,
            0x01 => self.uleb()?,
            0x02 => u64::from(self.half()?),
            0x03 => u64::from(self.word()?),
            0x0a => i64::from(self.half()? as i16) as u64,
            0x0b => i64::from(self.word()? as i32) as u64,
            _ => return None,
        })
    }

    /// A pointer, absolute or relative to its own place; those two and the table's base
    /// (`data_base`) are what linkers write for x86-64.
    pub(crate) fn pointer(&mut self, encoding: u8, data_base: u64) -> Option<u64> {
        let place = self.address;
        let value = self.value(encoding)?;
        let base = match encoding & 0xf0 {
            0x00 => 0,
            0x10 => place,
            0x30 => data_base,
            _ => return None,
        };
        Some(value.wrapping_add(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut reader = Reader::new(&[0xe5, 0x8e, 0x26, 0xff, 0x7f, b'z', 0, 9], 0x100);
        assert_eq!(reader.uleb(), Some(624_485));
        assert_eq!(reader.skip_leb(), Some(()));
        assert_eq!(reader.c_string(), Some(&b"z"[..]));
        assert_eq!(reader.address(), 0x107);
        assert_eq!(reader.word(), None);
        assert_eq!(reader.byte(), Some(9));
        assert!(reader.is_empty());
    }

    /// Relative to its place, signed; relative to the table; an encoding that is not known.
    #[test]
    fn pointers() {
        let bytes = (-0x20i32).to_le_bytes();
        assert_eq!(Reader::new(&bytes, 0x100).pointer(0x1b, 0), Some(0xe0));
        assert_eq!(Reader::new(&bytes, 0x100).pointer(0x3b, 0x40), Some(0x20));
        assert_eq!(Reader::new(&bytes, 0x100).pointer(0x50, 0), None);
    }
}
