//! Addresses that show a file of the pool.

use pmfs::{FileId, Ino, Shown};

use crate::maps::place::{self, How, PAGE};
use crate::thread::descriptor::Descriptor;

/// Addresses that show a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub start: u64,
    pub end: u64,
    pub ino: Ino,
    /// The byte of the file at `start`.
    pub at: u64,
    /// Bytes from the start that show blocks; the rest is behind the end of the file.
    pub shown: u64,
    /// PROT_*.
    pub protection: u64,
    pub shared: bool,
    /// Stores reach the file, or may be allowed to later.
    pub writes: bool,
    /// Stores reach the file at msync.
    pub apart: bool,
    /// Holes get memory when they are touched; bytes that are not shown may be holes too.
    pub lazy: bool,
}

impl Stretch {
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The part between two addresses.
    pub fn part(&self, start: u64, end: u64) -> Stretch {
        let before = start - self.start;
        Stretch {
            start,
            end,
            at: self.at + before,
            shown: self.shown.saturating_sub(before).min(end - start),
            ..self.clone()
        }
    }

    /// Returns whether holes may get memory later: not where pages may be private copies.
    pub fn may_be_lazy(&self) -> bool {
        self.shared && !self.apart && place::page() == PAGE
    }

    /// Returns whether `next` shows the following bytes at the following addresses in the same way.
    pub fn goes_on_in(&self, next: &Stretch) -> bool {
        self.shown == self.len() && self.is_followed_by(next)
    }

    /// Returns whether `next` belongs to the following bytes at the following addresses in the same
    /// way.
    pub fn is_followed_by(&self, next: &Stretch) -> bool {
        let as_if = Stretch {
            shown: next.shown,
            end: next.end,
            ..self.part(self.end, self.end)
        };
        as_if == *next
    }

    /// The stretch in the engine's terms.
    pub fn as_shown(&self) -> Shown {
        Shown {
            address: self.start as usize,
            at: self.at,
            len: self.shown,
        }
    }

    /// The file, as a descriptor with which it could be mapped so.
    pub fn as_file(&self) -> Descriptor {
        Descriptor {
            // There is no open file: any number but 0.
            file: FileId::from_number(u64::MAX),
            ino: self.ino,
            access: if self.writes {
                libc::O_RDWR
            } else {
                libc::O_RDONLY
            },
            is_dir: false,
            borrowed: false,
        }
    }

    /// The arguments of the mapping.
    pub fn how(&self) -> How {
        How {
            protection: self.protection,
            shared: self.shared && !self.apart,
            more: 0,
        }
    }
}
