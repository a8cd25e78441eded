//! Paths inside a pool: from names to inodes, symbolic links followed within the pool, whose root
//! is theirs.

use super::Fs;
use crate::types::{Attr, ROOT_INO, mode};
use pm_journal::error::{Error, Result};

/// The number of links that the kernel follows.
const LINKS_MAX: u32 = 40;

/// The place that a path leads to.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory of its last name.
    pub dir: Attr,
    /// The last name; empty for the root itself, ".", and what ends in "..".
    pub name: Vec<u8>,
    /// The attributes of the inode there, if there is one.
    pub attr: Option<Attr>,
    /// A slash stands behind the last name, so that a directory is meant.
    pub slash: bool,
}

/// The links at the end that a walk follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtEnd {
    Follow,
    /// A link at the end only if a slash follows it.
    Stay,
    /// No link at the end, whatever follows it.
    Name,
    /// One at the end, unless a slash stands behind it.
    Make,
}

impl Fs {
    /// The inode at `path`, from the pool's root. `follow`: a symbolic link at its end is followed
    /// too.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::Loop`], those of a lookup.
    pub fn walk(&self, path: &[u8], follow: bool) -> Result<Attr> {
        self.place(path, follow)?.attr.ok_or(Error::NotFound)
    }

    /// The place that `path` leads to: as [`Fs::walk`], but its last name need not be there.
    ///
    /// # Errors
    /// Those of [`Fs::walk`], for the names before the last one.
    pub fn place(&self, path: &[u8], follow: bool) -> Result<Place> {
        let at_end = if follow { AtEnd::Follow } else { AtEnd::Stay };
        let at = self.lead(path, at_end)?;
        match at.attr {
            Some(attr) if at.slash && !is_dir(&attr) => Err(Error::NotDirectory),
            _ => Ok(at),
        }
    }

    /// The place of a name that is to be made, removed or moved: a symbolic link there is meant
    /// itself, also with a slash behind it, and what the slash allows is the caller's to judge
    /// ([`Place::slash`]). `follow`: of a file that is made where a link leads, as O_CREAT has it.
    ///
    /// # Errors
    /// Those of [`Fs::walk`], of what comes before the last name.
    pub fn place_of_name(&self, path: &[u8], follow: bool) -> Result<Place> {
        let at_end = if follow { AtEnd::Make } else { AtEnd::Name };
        self.lead(path, at_end)
    }

    fn lead(&self, path: &[u8], at_end: AtEnd) -> Result<Place> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        let mut left = names(path);
        let mut links = 0;
        let root = self.getattr(ROOT_INO)?;
        let mut at = Place {
            dir: root,
            name: Vec::new(),
            attr: Some(root),
            slash: path.ends_with(b"/"),
        };
        while let Some(name) = left.pop() {
            let dir = at.attr.ok_or(Error::NotFound)?;
            if !is_dir(&dir) {
                return Err(Error::NotDirectory);
            }
            let found = match self.lookup(dir.ino, &name) {
                Ok(found) => Some(found),
                Err(Error::NotFound) => None,
                Err(error) => return Err(error),
            };
            let link = found.filter(|found| found.mode & mode::S_IFMT == mode::S_IFLNK);
            let Some(link) = link.filter(|_| {
                let follows = match at_end {
                    AtEnd::Follow => true,
                    AtEnd::Stay => at.slash,
                    AtEnd::Name => false,
                    AtEnd::Make => !at.slash,
                };
                !left.is_empty() || follows
            }) else {
                let is_name = name != b"." && name != b"..";
                at = Place {
                    dir,
                    name: if is_name { name } else { Vec::new() },
                    attr: found,
                    slash: at.slash,
                };
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::Loop);
            }
            let target = self.readlink(link.ino)?;
            let from = if target.starts_with(b"/") { root } else { dir };
            at = Place {
                dir: from,
                name: Vec::new(),
                attr: Some(from),
                // The slash that a link at the end ends with counts too.
                slash: at.slash || left.is_empty() && target.ends_with(b"/"),
            };
            left.extend(names(&target));
        }
        Ok(at)
    }
}

/// The names of a path, the first one last.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    names.reverse();
    names
}

fn is_dir(attr: &Attr) -> bool {
    attr.mode & mode::S_IFMT == mode::S_IFDIR
}
