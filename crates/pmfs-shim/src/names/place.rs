//! Places in the pool, the results of walks along paths.

use libc::ENOENT;
use pmfs::{Attr, Fs, Ino};
use pmfs_posix::names::{self as posix, Last};

use crate::descriptors::promote::Way;
use crate::thread::Inner;

/// A name in a directory of the pool, and the inode there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub dir: Ino,
    /// The last name; empty if the path ends in the directory itself ("." and "..", or nothing).
    pub name: &'a [u8],
    /// The end of the path.
    pub last: Last,
    /// The attributes of the inode there, in the thread's room until the next walk.
    pub attr: Option<&'a Attr>,
    /// The path ends with a slash, and so needs a directory.
    pub wants_dir: bool,
    /// The path was the name of a descriptor, for which the kernel has a placeholder.
    pub by_number: bool,
}

/// The meaning of a path's end for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The target of a link there.
    Follow,
    /// The link itself, unless a slash follows it.
    Stay,
    /// The name, which is created, removed or moved. A link is not followed, whatever follows it.
    Name,
    /// A file, created if it is missing (O_CREAT). No slash may follow. A link is followed.
    Make,
    /// A file as for [`AtEnd::Make`], except that a link is not followed.
    MakeNoLink,
}

impl AtEnd {
    /// The meaning for a call with a flag for it.
    pub fn following(follow: bool) -> AtEnd {
        if follow { AtEnd::Follow } else { AtEnd::Stay }
    }

    /// Returns whether a link at the end is followed; `slash` says that one follows it.
    pub fn follows(self, slash: bool) -> bool {
        match self {
            AtEnd::Follow | AtEnd::Make => true,
            AtEnd::Stay => slash,
            AtEnd::Name | AtEnd::MakeNoLink => false,
        }
    }

    /// Returns whether a link at the end is kept ([`AtEnd::follows`]), by the rest behind the last
    /// name: nothing, or slashes. `false` also if more names follow.
    pub fn stays_at(self, rest: &[u8]) -> bool {
        rest.iter().all(|byte| *byte == b'/') && !self.follows(!rest.is_empty())
    }
}

/// The place that a path leads to.
pub(crate) enum Lead<'a> {
    /// Into the pool.
    Pool(&'static Fs, Place<'a>),
    /// A place outside: the kernel executes the call unchanged.
    Kernel,
    /// A place outside again, or one left to the mount: the kernel executes the call with this
    /// path, which ends with NUL.
    Out(&'a [u8]),
}

impl<'a> Place<'a> {
    /// The attributes of the inode there.
    ///
    /// # Errors
    /// ENOENT; ENOTDIR.
    pub fn found(&self) -> Result<&'a Attr, i32> {
        self.attr.ok_or(ENOENT)
    }

    /// The way for the mount to find it.
    pub fn way(&self) -> Way {
        Way::of(self.dir, self.attr)
    }

    /// The end, for the rules about creating, removing and moving.
    pub fn end(&self) -> posix::End<'a> {
        posix::End {
            last: self.last,
            slash: self.wants_dir,
            attr: self.attr,
        }
    }
}

/// The end of a walk: positions in the room's pages instead of references into them.
pub(crate) enum Walked {
    Kernel,
    /// A path outside: its page and its length.
    Out(usize, usize),
    /// A path that ends on this page of the room.
    End(&'static Fs, usize, End),
    /// An inode itself, without a name; its attributes are in the room.
    Whole(&'static Fs, Ino),
}

impl Walked {
    /// Converts positions to references.
    pub fn lead(self, room: &Inner) -> Lead<'_> {
        match self {
            Walked::Kernel => Lead::Kernel,
            Walked::Out(page, len) => Lead::Out(&room.paths[page][..=len]),
            Walked::Whole(fs, ino) => {
                let place = Place {
                    dir: ino,
                    name: &[],
                    last: Last::Root,
                    attr: Some(&room.attr),
                    wants_dir: false,
                    by_number: true,
                };
                Lead::Pool(fs, place)
            }
            Walked::End(fs, page, end) => {
                let place = Place {
                    dir: end.dir,
                    name: &room.paths[page][end.name],
                    last: end.last,
                    attr: end.found.then_some(&room.attr),
                    wants_dir: end.wants_dir,
                    by_number: false,
                };
                Lead::Pool(fs, place)
            }
        }
    }
}

/// The end of a walk: positions in the path instead of references into it.
pub(crate) struct End {
    pub dir: Ino,
    pub name: std::ops::Range<usize>,
    pub last: Last,
    /// Whether there is an inode; its attributes are in the room.
    pub found: bool,
    pub wants_dir: bool,
}
