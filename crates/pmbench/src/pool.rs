//! PMFS as a library.

use crate::random::Random;
use crate::rows::{Candidate, Row};
use pmfs::{
    FlushMode, Fs, Ino, MapOptions, NewNode, OpenOptions, ProtectMode, ROOT_INO, RenameFlags,
};
use pmfs_admin::Admin;
use pmfs_admin::MkfsOptions;
use std::path::Path;

/// The user who makes the files.
pub const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 0,
    gid: 0,
};

/// An instance on a pool of its own.
pub struct Pool {
    fs: Fs,
    file: Ino,
    log: Ino,
    dir: Ino,
    bytes: u64,
    random: Random,
    buffer: Vec<u8>,
    made: u64,
    renamed: u64,
    gone: u64,
}

/// Returns the options that [`map_options`] does, for stores that are made without windows.
pub fn unprotected() -> MapOptions {
    MapOptions {
        protect: ProtectMode::None,
        ..map_options()
    }
}

/// Mapped as on persistent memory: everything is flushed.
pub fn map_options() -> MapOptions {
    MapOptions {
        flush: FlushMode::Always,
        ..MapOptions::default()
    }
}

impl Pool {
    /// A pool with a file of `bytes` bytes in it.
    pub fn new(ground: &Path, bytes: u64) -> anyhow::Result<Pool> {
        let path = ground.join("pool");
        let mkfs = MkfsOptions {
            size: Some(bytes + (3 << 30)),
            map: map_options(),
            ..MkfsOptions::default()
        };
        pmfs_admin::mkfs(&path, &mkfs)?;
        let open = OpenOptions {
            map: map_options(),
            atime: pmfs::AtimeMode::Noatime,
            ..OpenOptions::default()
        };
        let fs = Fs::open(&path, &open)?;
        let file = fs.create(ROOT_INO, b"file", &NODE)?.ino;
        fs.hold(file)?;
        let buffer = vec![7u8; 1 << 20];
        // By single blocks, as random writes leave a file: 4 KiB leaves throughout.
        for at in (0..bytes).step_by(4096) {
            fs.write(file, at, &buffer[..4096])?;
        }
        let log = fs.create(ROOT_INO, b"log", &NODE)?.ino;
        let dir = fs.mkdir(ROOT_INO, b"dir", &NODE)?.ino;
        for n in 0..10_000 {
            fs.create(dir, format!("file-{n:08}").as_bytes(), &NODE)?;
        }
        Ok(Pool {
            fs,
            file,
            log,
            dir,
            bytes,
            random: Random(1),
            buffer,
            made: 0,
            renamed: 0,
            gone: 0,
        })
    }

    /// Medium and flush instruction.
    pub fn describe(&self) -> String {
        let info = self.fs.info();
        format!("pool on {}, flushed by {}", info.medium, info.flush)
    }
}

impl Pool {
    /// Makes, renames or removes the next name.
    fn name(&mut self, row: Row) -> anyhow::Result<()> {
        let fs = &self.fs;
        match row {
            Row::CreateClose => {
                self.made += 1;
                let name = format!("new-{:08}", self.made);
                let ino = fs.create(self.dir, name.as_bytes(), &NODE)?.ino;
                fs.hold(ino)?;
                fs.release(ino)?;
            }
            Row::Rename => {
                self.renamed += 1;
                let old = format!("new-{:08}", self.renamed);
                let new = format!("old-{:08}", self.renamed);
                let (old, new) = (old.as_bytes(), new.as_bytes());
                fs.rename(self.dir, old, self.dir, new, RenameFlags::empty())?;
            }
            Row::Unlink => {
                self.gone += 1;
                let name = format!("old-{:08}", self.gone);
                fs.unlink(self.dir, name.as_bytes())?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Candidate for Pool {
    fn run(&mut self, row: Row, count: u64) -> anyhow::Result<()> {
        let named = matches!(row, Row::CreateClose | Row::Rename | Row::Unlink);
        for _ in 0..if named { count } else { 0 } {
            self.name(row)?;
        }
        let fs = &self.fs;
        let blocks = self.bytes / 4096;
        let mut small = [1u8; 64];
        for n in 0..count {
            match row {
                Row::Read4kRandom => {
                    let at = self.random.below(blocks) * 4096;
                    fs.read(self.file, at, &mut self.buffer[..4096])?;
                }
                Row::Read64Random => {
                    let at = self.random.below(self.bytes / 64) * 64;
                    fs.read(self.file, at, &mut small)?;
                }
                Row::Read4kHot => {
                    fs.read(self.file, 4096, &mut self.buffer[..4096])?;
                }
                Row::Write4kRandom => {
                    let at = self.random.below(blocks) * 4096;
                    fs.write(self.file, at, &self.buffer[..4096])?;
                }
                Row::Write64Random => {
                    let at = self.random.below(self.bytes / 64) * 64;
                    fs.write(self.file, at, &small)?;
                }
                Row::Append64 | Row::Append4k => {
                    if n == 0 {
                        let empty = pmfs::SetAttr {
                            size: Some(0),
                            ..pmfs::SetAttr::default()
                        };
                        fs.setattr(self.log, &empty)?;
                    }
                    let len = if row == Row::Append64 { 64 } else { 4096 };
                    fs.append(self.log, &self.buffer[..len])?;
                }
                Row::Fstat => {
                    fs.getattr(self.log)?;
                }
                Row::Stat => {
                    let name = format!("file-{:08}", self.random.below(10_000));
                    fs.lookup(self.dir, name.as_bytes())?;
                }
                Row::OpenClose => {
                    let name = format!("file-{:08}", self.random.below(10_000));
                    let ino = fs.lookup(self.dir, name.as_bytes())?.ino;
                    fs.hold(ino)?;
                    fs.release(ino)?;
                }
                Row::CreateClose | Row::Rename | Row::Unlink => return Ok(()),
            }
        }
        Ok(())
    }
}
