//! `pmfs put`: files and trees into an unmounted pool. A file gets its name when it is whole.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmfs::types::mode;
use pmfs::{Attr, Error, Ino, NewNode, OpenOptions, RenameFlags, SetAttr, SetTime};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::Outcome;
use crate::cli::Put;
use crate::copied::Copied;
use crate::failure::Failure;
use crate::names::{Names, below, is_dir};
use crate::progress::Progress;
use crate::{pool, report, xattrs};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

pub fn run(arguments: &Put) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let stdin = arguments.src == Path::new("-");
    let source = if stdin {
        None
    } else {
        let looked = if arguments.recursive {
            fs::symlink_metadata(&arguments.src)
        } else {
            fs::metadata(&arguments.src)
        };
        Some(looked.map_err(|error| failed("looking at", &arguments.src, &error))?)
    };
    if source.as_ref().is_some_and(Metadata::is_dir) && !arguments.recursive {
        return Err(Failure::new(
            format!("{} is a directory", arguments.src.display()),
            "add -r to put all of it",
        ));
    }
    let file = source.as_ref().filter(|source| source.is_file());
    let file_bytes = file.map_or(0, Metadata::len);
    let copied = pool::with(&path, &OpenOptions::default(), |fs| {
        let mut putter = Putter {
            names: Names { fs, pool: &path },
            progress: Progress::new(arguments.json, "copying", file_bytes),
            linked: HashMap::new(),
            copied: Copied::new(&path, &arguments.src),
        };
        let dest = putter.destination(arguments)?;
        putter.copied.dest = dest.display().to_string();
        match &source {
            Some(source) => putter.node(&arguments.src, source, &dest)?,
            None => putter.stdin(&dest)?,
        }
        Ok(putter.copied)
    })?;
    report::print(arguments.json, &copied, |copied| copied.text("put"))?;
    Ok(ExitCode::SUCCESS)
}

struct Putter<'a> {
    names: Names<'a>,
    progress: Progress,
    /// The first place of a file with several names, by device and inode.
    linked: HashMap<(u64, u64), Ino>,
    copied: Copied,
}

impl Putter<'_> {
    /// PATH, or SRC's name in it if it is a directory.
    fn destination(&self, arguments: &Put) -> Result<PathBuf, Failure> {
        let there = self.names.peek(&arguments.path, true)?;
        match (there, arguments.src.file_name()) {
            (Some(attr), Some(name)) if is_dir(&attr) => Ok(arguments.path.join(name)),
            _ => Ok(arguments.path.clone()),
        }
    }

    fn node(&mut self, src: &Path, meta: &Metadata, dest: &Path) -> Result<(), Failure> {
        if meta.is_dir() {
            return self.directory(src, meta, dest);
        }
        let key = (meta.dev(), meta.ino());
        if meta.nlink() > 1
            && let Some(first) = self.linked.get(&key).copied()
        {
            self.name(first, dest)?;
            self.copied.files += 1;
            return Ok(());
        }
        let ino = if meta.is_file() {
            let file = File::open(src).map_err(|error| failed("opening", src, &error))?;
            self.file(src, meta, dest, &mut |putter, ino| {
                putter.data(ino, &file, src, dest)
            })?
        } else {
            self.special(src, meta, dest)?
        };
        if meta.nlink() > 1 {
            self.linked.insert(key, ino);
        }
        Ok(())
    }

    fn directory(&mut self, src: &Path, meta: &Metadata, dest: &Path) -> Result<(), Failure> {
        let lost = |names: &Names<'_>, error| names.failed(dest, &error);
        let dir = match self.names.peek(dest, true)? {
            Some(attr) => attr,
            None => {
                let (parent, name) = self.names.parent(dest)?;
                let made = self.names.fs.mkdir(parent, name, &new_node(meta));
                made.map_err(|error| lost(&self.names, error))?
            }
        };
        if !is_dir(&dir) {
            return Err(lost(&self.names, Error::NotDirectory));
        }
        self.copied.directories += 1;
        let unreadable = |error| failed("reading", src, &error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(src).map_err(unreadable)? {
            entries.push(entry.map_err(unreadable)?.file_name());
        }
        entries.sort();
        for name in entries {
            let src = src.join(&name);
            let meta = fs::symlink_metadata(&src);
            let meta = meta.map_err(|error| failed("looking at", &src, &error))?;
            self.node(&src, &meta, &below(dest, name.as_bytes()))?;
        }
        self.attributes(dir.ino, src, meta, dest)
    }

    fn stdin(&mut self, dest: &Path) -> Result<(), Failure> {
        let (parent, _) = self.names.parent(dest)?;
        let node = NewNode {
            mode: 0o644,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: 0,
        };
        self.nameless(parent, &node, dest, &mut |putter, ino| {
            let mut buffer = vec![0; CHUNK];
            let mut offset = 0;
            loop {
                let got = io::stdin().lock().read(&mut buffer);
                let got = got.map_err(|error| failed("reading", Path::new("stdin"), &error))?;
                if got == 0 {
                    return Ok(());
                }
                putter.write(ino, offset, &buffer[..got], dest)?;
                offset += got as u64;
            }
        })?;
        Ok(())
    }

    fn file(
        &mut self,
        src: &Path,
        meta: &Metadata,
        dest: &Path,
        fill: &mut dyn FnMut(&mut Self, Ino) -> Result<(), Failure>,
    ) -> Result<Ino, Failure> {
        let (parent, _) = self.names.parent(dest)?;
        self.nameless(parent, &new_node(meta), dest, &mut |putter, ino| {
            fill(putter, ino)?;
            putter.attributes(ino, src, meta, dest)
        })
    }

    /// A file without a name, filled and then named: if this process is killed, nothing
    /// is left of it.
    fn nameless(
        &mut self,
        parent: Ino,
        node: &NewNode,
        dest: &Path,
        fill: &mut dyn FnMut(&mut Self, Ino) -> Result<(), Failure>,
    ) -> Result<Ino, Failure> {
        let made = self.names.fs.tmpfile(parent, node);
        let ino = made.map_err(|error| self.names.failed(dest, &error))?.ino;
        let named = fill(self, ino).and_then(|()| self.name(ino, dest));
        let released = self.names.fs.release(ino);
        named?;
        released.map_err(|error| self.names.failed(dest, &error))?;
        self.copied.files += 1;
        Ok(ino)
    }

    /// Gives it the name `dest`, in place of what has it.
    fn name(&self, ino: Ino, dest: &Path) -> Result<(), Failure> {
        let fs = self.names.fs;
        let lost = |error| self.names.failed(dest, &error);
        let (parent, name) = self.names.parent(dest)?;
        match fs.link(ino, parent, name) {
            Ok(_) => return Ok(()),
            Err(Error::Exists) => {}
            Err(error) => return Err(lost(error)),
        }
        let there = fs.lookup(parent, name).map_err(lost)?;
        if is_dir(&there) {
            return Err(lost(Error::IsDirectory));
        }
        if there.ino == ino {
            return Ok(());
        }
        let aside = format!(".pmfs-{}-{ino}", std::process::id());
        fs.link(ino, parent, aside.as_bytes()).map_err(lost)?;
        let renamed = fs.rename(parent, aside.as_bytes(), parent, name, RenameFlags::empty());
        if renamed.is_err() {
            let _ = fs.unlink(parent, aside.as_bytes());
        }
        renamed.map_err(lost)
    }

    /// The file's data; its holes stay holes.
    fn data(&mut self, ino: Ino, file: &File, src: &Path, dest: &Path) -> Result<(), Failure> {
        let unreadable = |error| failed("reading", src, &error);
        let len = file.metadata().map_err(unreadable)?.len();
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        let mut hole = 0;
        // A file of /proc has size 0 and content: read to the end at any size.
        loop {
            // SEEK_DATA is called once for each run of data: tmpfs examines each page up to the
            // hole.
            if offset >= hole && offset < len {
                match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                    Ok(data) => offset = data,
                    Err(Errno::NXIO) => break,
                    // Some file systems do not tell.
                    Err(_) => {}
                }
                hole = rustix::fs::seek(file, SeekFrom::Hole(offset)).unwrap_or(len);
            }
            let left = if offset < hole {
                hole - offset
            } else {
                u64::MAX
            };
            let want = left.min(CHUNK as u64) as usize;
            let got = file
                .read_at(&mut buffer[..want], offset)
                .map_err(unreadable)?;
            if got == 0 {
                break;
            }
            self.write(ino, offset, &buffer[..got], dest)?;
            offset += got as u64;
        }
        if offset < len {
            let set = SetAttr {
                size: Some(len),
                ..SetAttr::default()
            };
            let sized = self.names.fs.setattr(ino, &set);
            sized.map_err(|error| self.names.failed(dest, &error))?;
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8], dest: &Path) -> Result<(), Failure> {
        let mut done = 0;
        while done < bytes.len() {
            let written = self
                .names
                .fs
                .write(ino, offset + done as u64, &bytes[done..]);
            done += written.map_err(|error| self.names.failed(dest, &error))?;
        }
        self.copied.bytes += bytes.len() as u64;
        self.progress.at(self.copied.bytes);
        Ok(())
    }

    fn special(&mut self, src: &Path, meta: &Metadata, dest: &Path) -> Result<Ino, Failure> {
        let fs = self.names.fs;
        let lost = |error| self.names.failed(dest, &error);
        let (parent, name) = self.names.parent(dest)?;
        if let Ok(there) = fs.lookup(parent, name) {
            if is_dir(&there) {
                return Err(lost(Error::IsDirectory));
            }
            fs.unlink(parent, name).map_err(lost)?;
        }
        let kind = meta.file_type();
        let made: Attr = if kind.is_symlink() {
            let target = fs::read_link(src).map_err(|error| failed("reading", src, &error))?;
            self.copied.symlinks += 1;
            fs.symlink(parent, name, target.as_os_str().as_bytes(), &new_node(meta))
        } else {
            self.copied.others += 1;
            let device = kind.is_block_device() || kind.is_char_device();
            let rdev = if device { packed(meta.rdev()) } else { 0 };
            let bits = meta.mode() & mode::S_IFMT;
            fs.mknod(parent, name, &new_node(meta), bits, rdev)
        }
        .map_err(lost)?;
        self.attributes(made.ino, src, meta, dest)?;
        Ok(made.ino)
    }

    /// Extended attributes first: an ACL changes the mode, and the times come last.
    fn attributes(
        &self,
        ino: Ino,
        src: &Path,
        meta: &Metadata,
        dest: &Path,
    ) -> Result<(), Failure> {
        let lost = |error| self.names.failed(dest, &error);
        xattrs::put(self.names.fs, src, ino).map_err(lost)?;
        let node = new_node(meta);
        let set = SetAttr {
            mode: (!meta.file_type().is_symlink()).then_some(node.mode),
            uid: Some(node.uid),
            gid: Some(node.gid),
            size: None,
            atime_ns: Some(SetTime::At(nanoseconds(meta.atime(), meta.atime_nsec()))),
            mtime_ns: Some(SetTime::At(nanoseconds(meta.mtime(), meta.mtime_nsec()))),
            ctime_ns: None,
        };
        self.names.fs.setattr(ino, &set).map(drop).map_err(lost)
    }
}

/// Owner and permissions. A file that root puts keeps its owner; one that another user puts becomes
/// that user's.
fn new_node(meta: &Metadata) -> NewNode {
    let root = rustix::process::geteuid().is_root();
    NewNode {
        umask: 0,
        mode: meta.mode() & 0o7777,
        uid: if root {
            meta.uid()
        } else {
            rustix::process::geteuid().as_raw()
        },
        gid: if root {
            meta.gid()
        } else {
            rustix::process::getegid().as_raw()
        },
    }
}

/// The kernel's 32-bit form of a device number.
fn packed(rdev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("{what} {}: {error}", path.display()),
        "check the path and its permissions",
    )
}

/// Since the epoch, kept within what 64 bits hold (the years 1677 to 2262).
fn nanoseconds(seconds: i64, ns: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}
