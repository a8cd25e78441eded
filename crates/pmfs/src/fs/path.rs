//! Paths inside a pool. Symbolic links are followed within the pool, from its root.

use super::Fs;
use crate::types::{Attr, ROOT_INO, mode};
use pm_journal::error::{Error, Result};

/// The number of links that the kernel follows.
const LINKS_MAX: u32 = 40;

/// The place that a path leads to.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory that contains the last name.
    pub dir: Attr,
    /// The last name; empty for the root, ".", and paths that end in "..".
    pub name: Vec<u8>,
    /// The attributes of the inode there, if it exists.
    pub attr: Option<Attr>,
    /// A slash follows the last name, so a directory is meant.
    pub slash: bool,
}

/// The treatment of a link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtEnd {
    Follow,
    /// A link is followed only if a slash follows it.
    Stay,
    /// No link is followed.
    Name,
    /// A link is followed unless a slash follows it.
    Make,
}

impl Fs {
    /// Finds the inode at `path`, from the pool's root. With `follow`, a symbolic link at its end
    /// is followed too.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::Loop`], those of [`Fs::lookup`].
    pub fn walk(&self, path: &[u8], follow: bool) -> Result<Attr> {
        self.place(path, follow)?.attr.ok_or(Error::NotFound)
    }

    /// Finds the place of `path` as [`Fs::walk`] does; the last name need not exist.
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

    /// Finds the place of a name that will be created, removed or renamed. A symbolic link there is
    /// not followed, even before a slash; the caller decides what the slash allows
    /// ([`Place::slash`]). With `follow`, a link is followed, as O_CREAT does.
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
                // A slash at the end of the link's target counts too.
                slash: at.slash || left.is_empty() && target.ends_with(b"/"),
            };
            left.extend(names(&target));
        }
        Ok(at)
    }
}

/// The names of a path, in reverse order.
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
