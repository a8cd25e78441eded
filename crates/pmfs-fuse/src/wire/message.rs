//! A message of the kernel, read piece by piece. No length or offset in a message leads outside of
//! it; one that is too short is malformed.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::request::InHeader;

/// The message is shorter than its kind has to be, or a name has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The bytes after the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a>(&'a [u8]);

/// Splits a message. The length it gives has to be its own.
pub(crate) fn split(message: &[u8]) -> Result<(InHeader, Body<'_>), Malformed> {
    let (header, rest) = InHeader::read_from_prefix(message).map_err(|_| Malformed)?;
    // Extensions stand at the end; none is asked for, so none is expected.
    let extensions = usize::from(header.total_extlen) * 8;
    match rest.len().checked_sub(extensions) {
        Some(len) if header.len as usize == message.len() => Ok((header, Body(&rest[..len]))),
        _ => Err(Malformed),
    }
}

impl<'a> Body<'a> {
    /// The next structure.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(value)
    }

    /// The next name, up to its NUL.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|&byte| byte == 0);
        let end = end.ok_or(Malformed)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::request::{BatchForgetIn, ForgetOne, WriteIn};
    use zerocopy::IntoBytes;

    fn message(extensions: u16, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: 16,
            unique: 2,
            nodeid: 1,
            uid: 0,
            gid: 0,
            pid: 0,
            total_extlen: extensions,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn the_length_has_to_be_right() {
        let whole = message(0, b"name\0");
        assert_eq!(split(&whole).unwrap().1.name(), Ok(&b"name"[..]));
        for len in 0..whole.len() {
            assert_eq!(split(&whole[..len]).unwrap_err(), Malformed);
        }
        let longer = [&whole[..], b"x"].concat();
        assert_eq!(split(&longer).unwrap_err(), Malformed);
    }

    #[test]
    fn extensions_are_no_part_of_the_body() {
        let with = message(1, b"a\0\x08\0\0\0\0\0\0\0");
        assert_eq!(split(&with).unwrap().1.0, b"a\0");
        assert_eq!(split(&message(2, b"a\0")).unwrap_err(), Malformed);
    }

    /// Goal: every prefix of a body is refused, for each kind of request.
    #[test]
    fn short_bodies_are_malformed() {
        let bytes = [0x41; 39];
        for len in 0..bytes.len() {
            let mut body = Body(&bytes[..len]);
            assert_eq!(body.take::<WriteIn>().unwrap_err(), Malformed);
            assert_eq!(body.name(), Err(Malformed), "a name without an end");
            assert_eq!(body.bytes(len + 1), Err(Malformed));
            assert_eq!(body.bytes(len).map(<[u8]>::len), Ok(len));
        }
        let mut list = Body(&bytes[..30]);
        assert!(list.take::<BatchForgetIn>().is_ok());
        assert!(list.take::<ForgetOne>().is_ok());
        assert_eq!(list.take::<ForgetOne>().unwrap_err(), Malformed);
    }
}
