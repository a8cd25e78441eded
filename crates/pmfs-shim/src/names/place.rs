//! Places in the pool, as paths lead to them.

use libc::ENOENT;
use pmfs::{Attr, Fs, Ino};
use pmfs_posix::names::{self as posix, Last};

use crate::descriptors::promote::Way;
use crate::thread::Inner;

/// A name in a directory of the pool, and what stands there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub dir: Ino,
    /// The last name; empty: the path ends in the directory itself ("." and "..", or nothing).
    pub name: &'a [u8],
    /// The end of the path.
    pub last: Last,
    /// The attributes of the inode there: in the thread's room, until the next path is followed.
    pub attr: Option<&'a Attr>,
    /// The path ends with a slash: only a directory will do.
    pub wants_dir: bool,
    /// It was found by the name of a descriptor, by which the kernel would find a placeholder.
    pub by_number: bool,
}

/// The meaning of the end of a path for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The target of a link there.
    Follow,
    /// A link itself, unless a slash stands behind it.
    Stay,
    /// The name: it is made, removed or moved, and a link is not followed, whatever
    /// stands behind it.
    Name,
    /// A file, made if it is not there (O_CREAT): no slash may stand behind. A link is followed.
    Make,
    /// The same, and a link is not followed.
    MakeNoLink,
}

impl AtEnd {
    /// The meaning for a call that has a flag for it.
    pub fn following(follow: bool) -> AtEnd {
        if follow { AtEnd::Follow } else { AtEnd::Stay }
    }

    /// Returns whether a link at the end is followed; `slash`: one stands behind it.
    pub fn follows(self, slash: bool) -> bool {
        match self {
            AtEnd::Follow | AtEnd::Make => true,
            AtEnd::Stay => slash,
            AtEnd::Name | AtEnd::MakeNoLink => false,
        }
    }

    /// Returns whether a link at the end stays ([`AtEnd::follows`]), by the rest behind the last
    /// name: nothing, or slashes. False also where there is more of a path.
    pub fn stays_at(self, rest: &[u8]) -> bool {
        rest.iter().all(|byte| *byte == b'/') && !self.follows(!rest.is_empty())
    }
}

/// The place that a path leads to.
pub(crate) enum Lead<'a> {
    /// Into the pool.
    Pool(&'static Fs, Place<'a>),
    /// A place outside: the call goes to the kernel as it is.
    Kernel,
    /// Out of it again, or left to the mount: the call goes to the kernel with this
    /// path, ended by a NUL.
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

    /// By which the mount finds it.
    pub fn way(&self) -> Way {
        Way::of(self.dir, self.attr)
    }

    /// For the rules of what may be made, removed or moved.
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
    /// The path of this length, on this page.
    Out(usize, usize),
    /// The path ends on this page of the room.
    End(&'static Fs, usize, End),
    /// At an inode itself, without a name; its attributes are in the room.
    Whole(&'static Fs, Ino),
}

impl Walked {
    /// References in place of the positions.
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
    /// True if an inode is there; its attributes are in the room.
    pub found: bool,
    pub wants_dir: bool,
}
