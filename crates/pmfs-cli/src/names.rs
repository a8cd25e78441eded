//! Paths inside a pool, and what is said when one leads nowhere.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pmfs::types::mode;
use pmfs::{Attr, Error, Fs, Ino};

use crate::failure::Failure;

/// A pool and its name, for messages.
pub struct Names<'a> {
    pub fs: &'a Fs,
    pub pool: &'a Path,
}

/// An entry of a directory.
pub struct Child {
    pub name: Vec<u8>,
    pub attr: Attr,
}

impl Names<'_> {
    /// The inode at `path`, from the root. `follow`: a link at its end is followed too.
    pub fn find(&self, path: &Path, follow: bool) -> Result<Attr, Failure> {
        self.walk(path, follow)
            .map_err(|error| self.failed(path, &error))
    }

    /// Finds as [`Names::find`] does; `None` if there is nothing.
    pub fn peek(&self, path: &Path, follow: bool) -> Result<Option<Attr>, Failure> {
        match self.walk(path, follow) {
            Ok(attr) => Ok(Some(attr)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    /// The directory that `path`'s last name is in, and that name.
    pub fn parent<'p>(&self, path: &'p Path) -> Result<(Ino, &'p [u8]), Failure> {
        let name = path.file_name().ok_or_else(|| {
            Failure::new(
                format!("'{}' has no name at its end", path.display()),
                "name the file that is to be made",
            )
        })?;
        let dir = self.find(path.parent().unwrap_or(Path::new("")), true)?;
        if is_dir(&dir) {
            Ok((dir.ino, name.as_bytes()))
        } else {
            Err(self.failed(path, &Error::NotDirectory))
        }
    }

    /// The entries of a directory, by name.
    pub fn children(&self, dir: Ino, path: &Path) -> Result<Vec<Child>, Failure> {
        let mut names = Vec::new();
        let listed = self.fs.readdir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        });
        listed.map_err(|error| self.failed(path, &error))?;
        names.sort();
        let mut children = Vec::with_capacity(names.len());
        let mut dirs = HashSet::new();
        for name in names {
            let failed = |error| self.failed(&below(path, &name), &error);
            let attr = self.fs.lookup(dir, &name).map_err(failed)?;
            if is_dir(&attr) && !dirs.insert(attr.ino) {
                // The engine has each in one directory alone; two names there would
                // double what is below, again and again.
                return Err(failed(Error::corrupt("directory with two names", 0)));
            }
            children.push(Child { name, attr });
        }
        Ok(children)
    }

    /// An engine's error about a path.
    pub fn failed(&self, path: &Path, error: &Error) -> Failure {
        let pool = self.pool.display();
        let way_out = match error {
            Error::NotFound => format!("`pmfs ls -R {pool}` shows what there is"),
            Error::NotDirectory => format!("`pmfs ls -l {pool}` shows what is a directory"),
            Error::IsDirectory => "name a file, or add -r".to_owned(),
            Error::NoSpace | Error::NoInodes => {
                format!("remove files, or make it larger: `pmfs grow {pool} SIZE`")
            }
            Error::NameTooLong => "choose a shorter name".to_owned(),
            Error::Invalid(_) => "check the path".to_owned(),
            _ => return Failure::engine(self.pool, error),
        };
        Failure::new(format!("{pool}: {}: {error}", path.display()), way_out)
    }

    fn walk(&self, path: &Path, follow: bool) -> pmfs::Result<Attr> {
        let path = path.as_os_str().as_bytes();
        self.fs
            .walk(if path.is_empty() { b"/" } else { path }, follow)
    }
}

pub fn is_dir(attr: &Attr) -> bool {
    attr.mode & mode::S_IFMT == mode::S_IFDIR
}

/// `path` with `name` behind it.
pub fn below(path: &Path, name: &[u8]) -> PathBuf {
    path.join(OsStr::from_bytes(name))
}
