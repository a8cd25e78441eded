//! Mappings of a process, and which of them are persistent memory.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// First bytes of a pool, and of a persistent heap.
const HEADERS: [(&[u8; 8], Why); 2] = [(b"PMFSPOOL", Why::Pool), (b"PMHEAP01", Why::Heap)];

/// The reason for which a mapping counts as persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The file begins as a pool.
    Pool,
    /// The file begins as a persistent heap.
    Heap,
    /// A DAX device.
    DaxDevice,
    /// A file with `STATX_ATTR_DAX`.
    DaxFile,
    /// The user has said so.
    Told,
    /// Code: no persistent memory, but the place of instructions.
    Code,
}

/// A part of a process's memory that a file is behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// The place of the first byte in the file.
    pub offset: u64,
    /// The file, as the process sees it.
    pub path: String,
    /// The reason.
    pub why: Why,
}

impl Region {
    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// A line of `/proc/PID/maps` with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Addresses.
    pub range: Range<u64>,
    /// Stores reach the file.
    pub is_shared: bool,
    /// Code.
    pub is_code: bool,
    /// Place in the file.
    pub offset: u64,
    /// Device, as the line has it.
    pub device: String,
    /// Number of the inode.
    pub inode: u64,
    /// The file.
    pub path: String,
}

/// The mappings of files in the text of `/proc/PID/maps`. Lines of another form are left out.
#[must_use]
pub fn mapped(text: &str) -> Vec<Mapped> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapped> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let range = hexadecimal(start)?..hexadecimal(end)?;
    let rights = words.next()?.as_bytes();
    let offset = hexadecimal(words.next()?)?;
    let device = words.next()?.to_owned();
    let inode = words.next()?.parse().ok()?;
    let path = words.next()?.trim_start();
    if !path.starts_with('/') || range.is_empty() || rights.len() != 4 {
        return None;
    }
    Some(Mapped {
        range,
        is_shared: rights[3] == b's',
        is_code: rights[2] == b'x',
        offset,
        device,
        inode,
        path: path.to_owned(),
    })
}

/// The verdict of the first bytes of a file.
#[must_use]
pub fn by_header(head: &[u8]) -> Option<Why> {
    let found = HEADERS.iter().find(|(magic, _)| head.starts_with(*magic));
    found.map(|(_, why)| *why)
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Pool => "a pool",
            Self::Heap => "a heap",
            Self::DaxDevice => "a DAX device",
            Self::DaxFile => "a DAX file",
            Self::Told => "--as-pm",
            Self::Code => "code",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines of the kernel are read, others are left out. Method: one of each kind.
    #[test]
    fn lines_of_maps() {
        let text = "\
7f00-8f00 rw-s 00001000 00:1a 42                 /dev/shm/a pool (deleted)
7f00-8f00 r-xp 00000000 08:01 7                          /bin/true
1000-2000 rw-p 00000000 00:00 0                          [heap]
1000-2000 rw-p 00000000 00:00 0 
8f00-7f00 rw-s 00000000 00:1a 42 /backward
broken
";
        let found = mapped(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].range, 0x7f00..0x8f00);
        assert_eq!((found[0].offset, found[0].inode), (0x1000, 42));
        assert_eq!(found[0].path, "/dev/shm/a pool (deleted)");
        assert!(found[0].is_shared && !found[0].is_code);
        assert!(!found[1].is_shared && found[1].is_code);
        assert_eq!(by_header(b"PMFSPOOL..."), Some(Why::Pool));
        assert_eq!(by_header(b"PMHEAP01..."), Some(Why::Heap));
        assert_eq!(by_header(b"PMFSPOO"), None);
    }
}
