//! The library: names are walked, and what others may delete meanwhile is held and looked up again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::SeekFrom;
use std::path::Path;

use pmfs::types::mode::{S_IFDIR, S_IFLNK, S_IFMT};
use pmfs::{
    Error, FallocateMode, FileId, Fs, Ino, LockClass, LockKind, LockOwner, LockRange, NewNode,
    OpenOptions, ROOT_INO, RenameFlags, SetAttr, XattrFlags,
};
use rustix::io::Errno;

use super::{Done, Face, Handle, Range, Stat};
use crate::model::Kind;

pub struct Library {
    fs: Fs,
    /// The files that are open, by number.
    open: RefCell<BTreeMap<Handle, (FileId, Ino)>>,
    next: Cell<Handle>,
}

/// This process, as an owner of locks.
const PROCESS: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

/// An inode that can't go away.
struct Node<'a> {
    fs: &'a Fs,
    ino: Ino,
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        if self.ino != ROOT_INO && !std::thread::panicking() {
            self.fs.release(self.ino).expect("it was held");
        }
    }
}

fn number(error: Error) -> Errno {
    let errno = error.errno();
    if matches!(errno, Errno::IO | Errno::NOSPC | Errno::INVAL | Errno::ROFS) {
        eprintln!("{error}");
    }
    errno
}

fn new_node(mode: u32) -> NewNode {
    NewNode {
        mode,
        umask: 0,
        uid: 0,
        gid: 0,
    }
}

fn whole(done: usize, asked: usize) -> Done<()> {
    if done == asked {
        return Ok(());
    }
    eprintln!("{done} of {asked} bytes written");
    Err(Errno::NOSPC)
}

fn lock_range((start, len): Range) -> LockRange {
    let end = match len {
        0 => u64::MAX,
        len => start + len - 1,
    };
    LockRange { start, end }
}

impl Library {
    pub fn attach(path: &Path) -> pmfs::Result<Library> {
        let fs = Fs::open(path, &OpenOptions::default())?;
        Ok(Library {
            fs,
            open: RefCell::default(),
            next: Cell::new(0),
        })
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// The inode under a name, held, and still under it then.
    fn child(&self, dir: &Node<'_>, name: &str) -> Done<Node<'_>> {
        loop {
            let ino = self
                .fs
                .lookup(dir.ino, name.as_bytes())
                .map_err(number)?
                .ino;
            match self.fs.hold(ino) {
                Ok(_) => {}
                Err(Error::Stale) => continue,
                Err(error) => return Err(number(error)),
            }
            let node = Node { fs: &self.fs, ino };
            match self.fs.lookup(dir.ino, name.as_bytes()) {
                Ok(attr) if attr.ino == ino => return Ok(node),
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(number(error)),
            }
        }
    }

    fn node(&self, path: &str) -> Done<Node<'_>> {
        let mut node = Node {
            fs: &self.fs,
            ino: ROOT_INO,
        };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            node = self.child(&node, name)?;
        }
        Ok(node)
    }

    /// The directory that a path's last name is in, and that name.
    fn parent<'p>(&self, path: &'p str) -> Done<(Node<'_>, &'p [u8])> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.node(dir)?, name.as_bytes()))
    }

    fn add(&self, file: FileId, ino: Ino) -> Handle {
        self.next.set(self.next.get() + 1);
        self.open.borrow_mut().insert(self.next.get(), (file, ino));
        self.next.get()
    }

    fn opened(&self, handle: Handle) -> (FileId, Ino) {
        self.open.borrow()[&handle]
    }

    fn read_ino(&self, ino: Ino, at: u64, len: usize) -> Done<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = self.fs.read(ino, at, &mut bytes).map_err(number)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    fn set(&self, path: &str, set: &SetAttr) -> Done<()> {
        let node = self.node(path)?;
        self.fs.setattr(node.ino, set).map(drop).map_err(number)
    }
}

impl Face for Library {
    fn create(&self, path: &str, mode: u32) -> Done<()> {
        let (dir, name) = self.parent(path)?;
        let made = self.fs.create(dir.ino, name, &new_node(mode));
        made.map(drop).map_err(number)
    }

    fn mkdir(&self, path: &str, mode: u32) -> Done<()> {
        let (dir, name) = self.parent(path)?;
        let made = self.fs.mkdir(dir.ino, name, &new_node(mode));
        made.map(drop).map_err(number)
    }

    fn symlink(&self, target: &str, path: &str) -> Done<()> {
        let (dir, name) = self.parent(path)?;
        let node = new_node(0o777);
        let made = self.fs.symlink(dir.ino, name, target.as_bytes(), &node);
        made.map(drop).map_err(number)
    }

    fn link(&self, from: &str, to: &str) -> Done<()> {
        let node = self.node(from)?;
        let (dir, name) = self.parent(to)?;
        self.fs
            .link(node.ino, dir.ino, name)
            .map(drop)
            .map_err(number)
    }

    fn unlink(&self, path: &str) -> Done<()> {
        let (dir, name) = self.parent(path)?;
        self.fs.unlink(dir.ino, name).map_err(number)
    }

    fn rmdir(&self, path: &str) -> Done<()> {
        let (dir, name) = self.parent(path)?;
        self.fs.rmdir(dir.ino, name).map_err(number)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done<()> {
        let (dir, name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let renamed = self.fs.rename(dir.ino, name, to_dir.ino, to_name, flags);
        renamed.map_err(number)
    }

    fn truncate(&self, path: &str, len: u64) -> Done<()> {
        self.set(
            path,
            &SetAttr {
                size: Some(len),
                ..SetAttr::default()
            },
        )
    }

    fn chmod(&self, path: &str, mode: u32) -> Done<()> {
        self.set(
            path,
            &SetAttr {
                mode: Some(mode),
                ..SetAttr::default()
            },
        )
    }

    fn punch(&self, path: &str, at: u64, len: u64) -> Done<()> {
        let node = self.node(path)?;
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        self.fs.fallocate(node.ino, mode, at, len).map_err(number)
    }

    fn setxattr(&self, path: &str, name: &str, value: &[u8]) -> Done<()> {
        let node = self.node(path)?;
        let set = self
            .fs
            .setxattr(node.ino, name.as_bytes(), value, XattrFlags::empty());
        set.map_err(number)
    }

    fn removexattr(&self, path: &str, name: &str) -> Done<()> {
        let node = self.node(path)?;
        self.fs
            .removexattr(node.ino, name.as_bytes())
            .map_err(number)
    }

    fn xattrs(&self, path: &str) -> Done<BTreeMap<String, Vec<u8>>> {
        let node = self.node(path)?;
        let names = self.fs.listxattr(node.ino).map_err(number)?;
        let values = names.into_iter().map(|name| {
            let value = self.fs.getxattr(node.ino, &name).map_err(number)?;
            Ok((String::from_utf8_lossy(&name).into_owned(), value))
        });
        values.collect()
    }

    fn stat(&self, path: &str) -> Done<Stat> {
        let node = self.node(path)?;
        let attr = self.fs.getattr(node.ino).map_err(number)?;
        Ok(Stat {
            ino: attr.ino,
            mode: attr.mode,
            links: u64::from(attr.links),
            size: attr.size,
        })
    }

    fn kind(&self, path: &str, stat: &Stat) -> Done<Kind> {
        Ok(match stat.mode & S_IFMT {
            S_IFDIR => Kind::Dir,
            S_IFLNK => {
                let node = self.node(path)?;
                let target = self.fs.readlink(node.ino).map_err(number)?;
                Kind::Symlink(String::from_utf8_lossy(&target).into_owned())
            }
            _ => Kind::File,
        })
    }

    fn list(&self, path: &str) -> Done<Vec<String>> {
        let node = self.node(path)?;
        let mut names = Vec::new();
        let listed = self.fs.readdir(node.ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
            }
            true
        });
        listed.map_err(number)?;
        Ok(names)
    }

    fn write(&self, path: &str, at: u64, bytes: &[u8]) -> Done<()> {
        let node = self.node(path)?;
        let done = self.fs.write(node.ino, at, bytes).map_err(number)?;
        whole(done, bytes.len())
    }

    fn append(&self, path: &str, bytes: &[u8]) -> Done<Option<u64>> {
        let node = self.node(path)?;
        let (at, done) = self.fs.append(node.ino, bytes).map_err(number)?;
        whole(done, bytes.len())?;
        Ok(Some(at + done as u64))
    }

    fn read(&self, path: &str, at: u64, len: usize) -> Done<Vec<u8>> {
        let node = self.node(path)?;
        self.read_ino(node.ino, at, len)
    }

    fn open(&self, path: &str) -> Done<Handle> {
        let node = self.node(path)?;
        let file = self.fs.open_file(node.ino, 2).map_err(number)?;
        Ok(self.add(file, node.ino))
    }

    /// Closes a handle as POSIX has it: with any handle of a file the process's locks of it go.
    fn close(&self, handle: Handle) -> Done<()> {
        let (file, ino) = self.opened(handle);
        self.open.borrow_mut().remove(&handle);
        self.fs.unlock_all(ino, PROCESS).map_err(number)?;
        self.fs.close_file(file).map_err(number)
    }

    fn write_open(&self, handle: Handle, at: u64, bytes: &[u8]) -> Done<()> {
        let (_, ino) = self.opened(handle);
        let done = self.fs.write(ino, at, bytes).map_err(number)?;
        whole(done, bytes.len())
    }

    fn read_open(&self, handle: Handle, at: u64, len: usize) -> Done<Vec<u8>> {
        self.read_ino(self.opened(handle).1, at, len)
    }

    fn dup(&self, handle: Handle) -> Done<Handle> {
        let (file, ino) = self.opened(handle);
        self.fs.dup_file(file).map_err(number)?;
        Ok(self.add(file, ino))
    }

    fn seek(&self, handle: Handle, to: u64) -> Done<()> {
        let (file, _) = self.opened(handle);
        let sought = self.fs.seek_file(file, SeekFrom::Start(to));
        sought.map(drop).map_err(number)
    }

    fn write_next(&self, handle: Handle, bytes: &[u8]) -> Done<()> {
        let (file, _) = self.opened(handle);
        let done = self.fs.write_file(file, bytes, |_| false).map_err(number)?;
        whole(done, bytes.len())
    }

    fn read_next(&self, handle: Handle, len: usize) -> Done<Vec<u8>> {
        let (file, _) = self.opened(handle);
        let mut bytes = vec![0; len];
        let got = self.fs.read_file(file, &mut bytes).map_err(number)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    fn lock(
        &self,
        handle: Handle,
        lock: LockClass,
        kind: LockKind,
        range: Range,
        waits: bool,
    ) -> Done<()> {
        let ((file, ino), range) = (self.opened(handle), lock_range(range));
        let (pid, never) = (std::process::id(), || false);
        let fs = &self.fs;
        match (lock, waits) {
            (LockClass::Posix, false) => fs.lock(ino, PROCESS, kind, range, pid),
            (LockClass::Posix, true) => fs.lock_wait(ino, PROCESS, kind, range, pid, &never),
            (class, false) => fs.lock_file(file, class, kind, range),
            (class, true) => fs.lock_file_wait(file, class, kind, range, &never),
        }
        .map_err(number)
    }

    fn unlock(&self, handle: Handle, lock: LockClass, range: Range) -> Done<()> {
        let ((file, ino), range) = (self.opened(handle), lock_range(range));
        match lock {
            LockClass::Posix => self.fs.unlock(ino, PROCESS, range),
            class => self.fs.unlock_file(file, class, range),
        }
        .map_err(number)
    }

    fn leave(&self) -> Done<()> {
        self.fs.detach().map_err(number)
    }
}
