//! The same operations on tmpfs, by system calls.

use crate::random::Random;
use crate::rows::{Candidate, Row};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::fs::{CWD, fstat, ftruncate, open, openat, renameat, statat, unlinkat};
use rustix::io::{pread, pwrite, write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Files on the same tmpfs as the pool.
pub struct Tmpfs {
    file: OwnedFd,
    log: OwnedFd,
    dir: OwnedFd,
    bytes: u64,
    random: Random,
    buffer: Vec<u8>,
    made: u64,
    renamed: u64,
    gone: u64,
}

const RW: OFlags = OFlags::RDWR.union(OFlags::CREATE);

impl Tmpfs {
    /// A file of `bytes` bytes and a directory of 10 k.
    pub fn new(ground: &Path, bytes: u64) -> anyhow::Result<Tmpfs> {
        let mode = Mode::from_raw_mode(0o644);
        let file = open(ground.join("file"), RW, mode)?;
        let buffer = vec![7u8; 1 << 20];
        for at in (0..bytes).step_by(buffer.len()) {
            pwrite(&file, &buffer, at)?;
        }
        let log = open(ground.join("log"), RW.union(OFlags::APPEND), mode)?;
        rustix::fs::mkdirat(CWD, ground.join("dir"), Mode::from_raw_mode(0o755))?;
        let dir = open(
            ground.join("dir"),
            OFlags::DIRECTORY | OFlags::RDONLY,
            Mode::empty(),
        )?;
        for n in 0..10_000 {
            openat(&dir, format!("file-{n:08}"), RW, mode)?;
        }
        Ok(Tmpfs {
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
}

impl Candidate for Tmpfs {
    fn run(&mut self, row: Row, count: u64) -> anyhow::Result<()> {
        let mode = Mode::from_raw_mode(0o644);
        let blocks = self.bytes / 4096;
        let mut small = [1u8; 64];
        for n in 0..count {
            match row {
                Row::Read4kRandom => {
                    let at = self.random.below(blocks) * 4096;
                    pread(&self.file, &mut self.buffer[..4096], at)?;
                }
                Row::Read64Random => {
                    let at = self.random.below(self.bytes / 64) * 64;
                    pread(&self.file, &mut small, at)?;
                }
                Row::Read4kHot => {
                    pread(&self.file, &mut self.buffer[..4096], 4096)?;
                }
                Row::Write4kRandom => {
                    let at = self.random.below(blocks) * 4096;
                    pwrite(&self.file, &self.buffer[..4096], at)?;
                }
                Row::Write64Random => {
                    let at = self.random.below(self.bytes / 64) * 64;
                    pwrite(&self.file, &small, at)?;
                }
                Row::Append64 | Row::Append4k => {
                    if n == 0 {
                        ftruncate(&self.log, 0)?;
                    }
                    let len = if row == Row::Append64 { 64 } else { 4096 };
                    write(&self.log, &self.buffer[..len])?;
                }
                Row::Fstat => {
                    fstat(&self.log)?;
                }
                Row::Stat => {
                    let name = format!("file-{:08}", self.random.below(10_000));
                    statat(&self.dir, name, AtFlags::empty())?;
                }
                Row::OpenClose => {
                    let name = format!("file-{:08}", self.random.below(10_000));
                    openat(&self.dir, name, OFlags::RDWR, Mode::empty())?;
                }
                Row::CreateClose => {
                    self.made += 1;
                    openat(&self.dir, format!("new-{:08}", self.made), RW, mode)?;
                }
                Row::Rename => {
                    self.renamed += 1;
                    let old = format!("new-{:08}", self.renamed);
                    let new = format!("old-{:08}", self.renamed);
                    renameat(&self.dir, old, &self.dir, new)?;
                }
                Row::Unlink => {
                    self.gone += 1;
                    let name = format!("old-{:08}", self.gone);
                    unlinkat(&self.dir, name, AtFlags::empty())?;
                }
            }
        }
        Ok(())
    }
}
