//! The program's numbers of open files of the pool.

use pmfs::{FileId, Ino};

const ACCESS_SHIFT: u32 = 32;
const DIRECTORY: u64 = 1 << 34;
const BORROWED: u64 = 1 << 35;

/// The access of a directory opened with O_PATH: the mount's descriptor, served by the kernel
/// except for names that begin there. Without a mount it is a placeholder, of any file opened so.
pub(crate) const PATH_ONLY: i32 = libc::O_ACCMODE;

/// One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub file: FileId,
    pub ino: Ino,
    /// O_RDONLY, O_WRONLY or O_RDWR; or [`PATH_ONLY`].
    pub access: i32,
    pub is_dir: bool,
    /// Set in a guest: the reference is the parent's.
    pub borrowed: bool,
}

impl Descriptor {
    /// A directory opened with O_PATH.
    pub fn path_only(ino: Ino) -> Descriptor {
        Descriptor {
            // There is no open file: any number but 0.
            file: FileId::from_number(u64::MAX),
            ino,
            access: PATH_ONLY,
            is_dir: true,
            borrowed: false,
        }
    }

    /// A directory of the kernel's that lists this process's descriptors.
    pub fn list() -> Descriptor {
        Descriptor {
            is_dir: false,
            ..Descriptor::path_only(0)
        }
    }

    pub fn is_list(&self) -> bool {
        self.is_path_only() && !self.is_dir
    }

    /// Returns whether it was opened with O_PATH.
    pub fn has_path_only(&self) -> bool {
        self.access == PATH_ONLY
    }

    /// Returns whether it was opened with O_PATH and is a descriptor of the kernel.
    pub fn is_path_only(&self) -> bool {
        self.access == PATH_ONLY && self.file.number() == u64::MAX
    }

    /// Returns whether it was opened with O_PATH without a mount.
    pub fn is_place(&self) -> bool {
        self.access == PATH_ONLY && self.file.number() != u64::MAX
    }

    pub fn reads(&self) -> bool {
        self.access == libc::O_RDONLY || self.access == libc::O_RDWR
    }

    pub fn writes(&self) -> bool {
        self.access == libc::O_WRONLY || self.access == libc::O_RDWR
    }

    /// All of it but the file, packed into 36 bits.
    pub fn facts(&self) -> u64 {
        let mut facts = self.ino | (self.access as u64) << ACCESS_SHIFT;
        if self.is_dir {
            facts |= DIRECTORY;
        }
        if self.borrowed {
            facts |= BORROWED;
        }
        facts
    }

    pub fn of(file: u64, facts: u64) -> Descriptor {
        Descriptor {
            file: FileId::from_number(file),
            ino: facts & 0xffff_ffff,
            access: (facts >> ACCESS_SHIFT & 3) as i32,
            is_dir: facts & DIRECTORY != 0,
            borrowed: facts & BORROWED != 0,
        }
    }
}

/// The descriptors that differ between a guest and its parent.
pub(crate) type Overlay = Vec<(u32, Option<Descriptor>)>;
