//! Records, put together and read again.

use pmfs::types::{SetTime, mode};
use pmfs::{Attr, Damage, Error, Fs, Ino, Result, SetAttr, XattrFlags};
use std::io::{self, Read, Write};

/// The first bytes of the header's payload, behind its tag.
const MAGIC: [u8; 8] = *b"PMFSDIFF";
const VERSION: u32 = 1;
/// The longest payload that is read: a name, and attributes or a piece of content.
const PAYLOAD_MAX: usize = 4 << 20;
/// Bytes of content in a record.
pub(super) const PIECE: usize = 1 << 20;

/// The attributes of an inode that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Kept {
    pub fn of(attr: &Attr, attributes: Vec<(Vec<u8>, Vec<u8>)>) -> Kept {
        Kept {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            atime_ns: attr.atime_ns,
            mtime_ns: attr.mtime_ns,
            attributes,
        }
    }

    /// Gives them to an inode. Extended attributes first: an ACL changes the mode.
    pub fn apply(&self, fs: &Fs, ino: Ino) -> Result<()> {
        for (name, value) in &self.attributes {
            fs.setxattr(ino, name, value, XattrFlags::empty())?;
        }
        let is_link = self.mode & mode::S_IFMT == mode::S_IFLNK;
        let set = SetAttr {
            mode: (!is_link).then_some(self.mode & 0o7777),
            uid: Some(self.uid),
            gid: Some(self.gid),
            atime_ns: Some(SetTime::At(self.atime_ns)),
            mtime_ns: Some(SetTime::At(self.mtime_ns)),
            ..SetAttr::default()
        };
        fs.setattr(ino, &set).map(drop)
    }
}

/// The head of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// The base's identity, and its name where the stream was made; `None`: the stream has all.
    pub base: Option<([u8; 16], Vec<u8>)>,
    pub id: [u8; 16],
    pub name: Vec<u8>,
    /// The path that its source had.
    pub origin: Vec<u8>,
    /// Names in it, for a bar.
    pub nodes: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Header(Header),
    /// A directory, and from here on what is in it.
    Directory(Vec<u8>, Kept),
    /// The end of a directory.
    Up,
    /// A file: its size, and a number if it has several names; 0: one.
    File(Vec<u8>, Kept, u64, u32),
    /// Content of the last file, from an offset on.
    Data(u64, Vec<u8>),
    /// Content of the last file that a file of the base has: which, where from, where to, bytes.
    Same(u32, u64, u64, u64),
    /// One more name of the file with that number.
    Link(Vec<u8>, u32),
    Symlink(Vec<u8>, Kept, Vec<u8>),
    /// A device, FIFO or socket: its device's number.
    Special(Vec<u8>, Kept, u32),
    /// A name of the base, with all below it.
    Unchanged(u32),
    /// The end: names that were sent or are unchanged.
    End(u64),
}

/// An error of a stream at a place of it.
pub(super) fn bad(what: &'static str, offset: u64) -> Error {
    Error::BadImage(Box::new(Damage { what, offset }))
}

/// Fields, one behind the other.
struct Fields(Vec<u8>);

impl Fields {
    fn u32(&mut self, value: u32) -> &mut Fields {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Fields {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Fields {
        self.u32(bytes.len() as u32).0.extend(bytes);
        self
    }

    fn kept(&mut self, kept: &Kept) -> &mut Fields {
        self.u32(kept.mode).u32(kept.uid).u32(kept.gid);
        self.u64(kept.atime_ns as u64).u64(kept.mtime_ns as u64);
        self.u32(kept.attributes.len() as u32);
        for (name, value) in &kept.attributes {
            self.bytes(name).bytes(value);
        }
        self
    }
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut to = Fields(Vec::new());
        match self {
            Record::Header(header) => {
                to.0.push(1);
                to.0.extend(MAGIC);
                to.u32(VERSION);
                let (id, name) = header.base.clone().unwrap_or_default();
                to.u32(header.base.is_some().into());
                to.bytes(&id).bytes(&name);
                to.bytes(&header.id).bytes(&header.name);
                to.bytes(&header.origin).u64(header.nodes);
            }
            Record::Directory(name, kept) => {
                to.0.push(2);
                to.bytes(name).kept(kept);
            }
            Record::Up => to.0.push(3),
            Record::File(name, kept, size, group) => {
                to.0.push(4);
                to.bytes(name).kept(kept).u64(*size).u32(*group);
            }
            Record::Data(at, bytes) => {
                to.0.push(5);
                to.u64(*at).bytes(bytes);
            }
            Record::Same(node, from, at, len) => {
                to.0.push(6);
                to.u32(*node).u64(*from).u64(*at).u64(*len);
            }
            Record::Link(name, group) => {
                to.0.push(7);
                to.bytes(name).u32(*group);
            }
            Record::Symlink(name, kept, target) => {
                to.0.push(8);
                to.bytes(name).kept(kept).bytes(target);
            }
            Record::Special(name, kept, device) => {
                to.0.push(9);
                to.bytes(name).kept(kept).u32(*device);
            }
            Record::Unchanged(node) => {
                to.0.push(10);
                to.u32(*node);
            }
            Record::End(nodes) => {
                to.0.push(11);
                to.u64(*nodes);
            }
        }
        to.0
    }

    /// `None`: it makes no sense.
    fn decode(payload: &[u8]) -> Option<Record> {
        let (&tag, rest) = payload.split_first()?;
        let mut from = Rest(rest);
        let record = match tag {
            1 => Record::Header(from.header()?),
            2 => Record::Directory(from.bytes()?, from.kept()?),
            3 => Record::Up,
            4 => Record::File(from.bytes()?, from.kept()?, from.u64()?, from.u32()?),
            5 => Record::Data(from.u64()?, from.bytes()?),
            6 => Record::Same(from.u32()?, from.u64()?, from.u64()?, from.u64()?),
            7 => Record::Link(from.bytes()?, from.u32()?),
            8 => Record::Symlink(from.bytes()?, from.kept()?, from.bytes()?),
            9 => Record::Special(from.bytes()?, from.kept()?, from.u32()?),
            10 => Record::Unchanged(from.u32()?),
            11 => Record::End(from.u64()?),
            _ => return None,
        };
        from.0.is_empty().then_some(record)
    }
}

/// Bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn kept(&mut self) -> Option<Kept> {
        let [mode, uid, gid] = [self.u32()?, self.u32()?, self.u32()?];
        let (atime_ns, mtime_ns) = (self.u64()? as i64, self.u64()? as i64);
        let mut attributes = Vec::new();
        for _ in 0..self.u32()? {
            attributes.push((self.bytes()?, self.bytes()?));
        }
        Some(Kept {
            mode,
            uid,
            gid,
            atime_ns,
            mtime_ns,
            attributes,
        })
    }

    fn header(&mut self) -> Option<Header> {
        if self.array()? != MAGIC || self.u32()? != VERSION {
            return None;
        }
        let has_base = self.u32()? != 0;
        let (id, name) = (self.id()?, self.bytes()?);
        Some(Header {
            base: has_base.then_some((id, name)),
            id: self.id()?,
            name: self.bytes()?,
            origin: self.bytes()?,
            nodes: self.u64()?,
        })
    }

    fn id(&mut self) -> Option<[u8; 16]> {
        self.bytes()?.try_into().ok()
    }
}

fn check(number: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), payload)
}

/// Records on their way out.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    number: u64,
    pub bytes: u64,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut dyn Write) -> Writer<'a> {
        Writer {
            out,
            number: 0,
            bytes: 0,
        }
    }

    pub fn put(&mut self, record: &Record) -> Result<()> {
        let payload = record.encode();
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&check(self.number, &payload).to_le_bytes());
        let failed = |source| Error::file("writing", source);
        self.out.write_all(&head).map_err(failed)?;
        self.out.write_all(&payload).map_err(failed)?;
        self.number += 1;
        self.bytes += (head.len() + payload.len()) as u64;
        Ok(())
    }

    pub fn end(self) -> Result<u64> {
        let flushed = self.out.flush();
        flushed.map_err(|source| Error::file("writing", source))?;
        Ok(self.bytes)
    }
}

/// Records on their way in.
pub(super) struct Reader<'a> {
    input: &'a mut dyn Read,
    number: u64,
    /// The place of the next one.
    pub at: u64,
}

impl<'a> Reader<'a> {
    pub fn new(input: &'a mut dyn Read) -> Reader<'a> {
        Reader {
            input,
            number: 0,
            at: 0,
        }
    }

    pub fn next(&mut self) -> Result<Record> {
        let mut head = [0; 8];
        self.fill(&mut head)?;
        let [len, crc] = [0, 4].map(|at| {
            let bytes: [u8; 4] = head[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        });
        let is_first = self.number == 0;
        let damaged = match is_first {
            true => "it does not begin as a saved snapshot",
            false => "a record is damaged",
        };
        if len as usize > PAYLOAD_MAX {
            return Err(bad(damaged, self.at));
        }
        let mut payload = vec![0; len as usize];
        self.fill(&mut payload)?;
        if check(self.number, &payload) != crc {
            return Err(bad(damaged, self.at));
        }
        let record = Record::decode(&payload).ok_or_else(|| {
            let newer = "made by a newer pmfs, or no saved snapshot";
            bad(if is_first { newer } else { damaged }, self.at)
        })?;
        self.number += 1;
        self.at += 8 + u64::from(len);
        Ok(record)
    }

    fn fill(&mut self, to: &mut [u8]) -> Result<()> {
        let at = self.at;
        let filled = self.input.read_exact(to);
        filled.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => bad("it ends too early", at),
            _ => Error::file("reading", source),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        Kept {
            mode: 0o100644,
            mtime_ns: -1,
            attributes: vec![
                (b"user.a".to_vec(), vec![]),
                (b"user.b".to_vec(), vec![7; 300]),
            ],
            ..Kept::default()
        }
    }

    fn all() -> Vec<Record> {
        let header = Header {
            base: Some(([1; 16], b"monday".to_vec())),
            id: [2; 16],
            name: b"tuesday".to_vec(),
            origin: b"/".to_vec(),
            nodes: 9,
        };
        vec![
            Record::Header(header.clone()),
            Record::Header(Header {
                base: None,
                ..header
            }),
            Record::Directory(b"d".to_vec(), kept()),
            Record::Up,
            Record::File(b"f".to_vec(), kept(), 1 << 40, 3),
            Record::Data(4096, vec![1; 5000]),
            Record::Same(1, 2, 3, 4),
            Record::Link(b"l".to_vec(), 3),
            Record::Symlink(b"s".to_vec(), kept(), b"target".to_vec()),
            Record::Special(b"c".to_vec(), kept(), 259),
            Record::Unchanged(17),
            Record::End(9),
        ]
    }

    #[test]
    fn records_come_back() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        all().iter().for_each(|record| writer.put(record).unwrap());
        assert_eq!(writer.end().unwrap() as usize, bytes.len());
        let mut input = &bytes[..];
        let mut reader = Reader::new(&mut input);
        for record in all() {
            assert_eq!(reader.next().unwrap(), record);
        }
        assert!(matches!(reader.next(), Err(Error::BadImage(_))));
    }

    /// No flipped bit goes through, and no missing, doubled or swapped record.
    #[test]
    fn damage_is_found() {
        let mut parts = Vec::new();
        for (number, record) in all().iter().enumerate() {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            writer.number = number as u64;
            writer.put(record).unwrap();
            parts.push(bytes);
        }
        let read = |bytes: &[u8]| {
            let mut input = bytes;
            let mut reader = Reader::new(&mut input);
            (0..parts.len()).try_for_each(|_| reader.next().map(drop))
        };
        read(&parts.concat()).unwrap();
        let whole = parts.concat();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
        for at in 1..parts.len() {
            let mut swapped = parts.clone();
            swapped.swap(at - 1, at);
            assert!(read(&swapped.concat()).is_err(), "record {at}");
            // The reader stops after so many records as there were.
            let mut doubled = parts.clone();
            doubled.insert(at, parts[at - 1].clone());
            assert!(read(&doubled.concat()).is_err(), "record {at}");
        }
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err());
        }
    }

    /// Records whose check fits, and that make no sense.
    #[test]
    fn nonsense_is_refused() {
        for payload in [&[][..], &[0], &[12], &[3, 0], &[5, 1, 2], &[10, 1, 0, 0]] {
            assert_eq!(Record::decode(payload), None, "{payload:?}");
        }
        let long = [&[5][..], &[0; 8], &u32::MAX.to_le_bytes(), &[1]].concat();
        assert_eq!(Record::decode(&long), None);
    }
}
