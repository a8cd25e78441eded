//! Making a pool from the stream. Block 0 is stored last, and a file gets its name after that: what
//! goes wrong before leaves no pool.

use super::{HEADER_BYTES, Header, RUN_BLOCKS_MAX, RUN_BYTES, RunHeader, bad, fill};
use crate::Admin;
use crate::dump_stream::new_file::NewFile;
use crate::info::PoolInfo;
use crate::mkfs::{self, MkfsOptions};
use pm_store::{Pm, Restore};
use pmem::Pmem;
use pmfs::Fs;
use pmfs::OpenOptions;
use pmfs::{Error, Result};
use pmfs_format::BLOCK_BYTES;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The way to make the pool.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Overwrite a pool, or any other file that is not empty.
    pub force: bool,
    /// Do not allocate the file's space now.
    pub sparse: bool,
}

/// The result of loading.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// The new pool.
    pub info: PoolInfo,
    /// Blocks with content.
    pub blocks: u64,
    /// The time when it was saved, ns since the epoch.
    pub time_ns: i64,
    /// Structures that can't be right: the pool was saved like that.
    pub damage: u64,
}

/// Makes the pool at `path` from a stream of `save`, and recovers it, so that it is clean.
/// `progress` gets the bytes done and the bytes in all.
///
/// # Errors
/// [`Error::BadImage`]: the stream is damaged; [`Error::NotEmptyFile`], [`Error::Held`]; those of
/// mkfs. Nothing is left at `path` then, or what was there (a device is left without a pool).
pub fn load(
    input: &mut dyn Read,
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<LoadReport> {
    let mut bytes = [0; HEADER_BYTES];
    fill(input, &mut bytes, 0)?;
    let header = Header::decode(&bytes)?;
    let len = header.blocks * BLOCK_BYTES;
    let there = std::fs::metadata(path).ok();
    let has_bytes = there.as_ref().is_some_and(|file| file.len() > 0);
    let device = there.is_some_and(|file| file.file_type().is_char_device());
    let guard = MkfsOptions {
        force: options.force,
        size: Some(len),
        ..MkfsOptions::default()
    };
    if has_bytes || device {
        mkfs::guard(path, &guard, has_bytes)?;
    }
    let mut loader = Loader {
        input,
        header,
        at: HEADER_BYTES as u64,
        blocks: 0,
    };
    if device {
        let mem = Pmem::create(path, len, true, !options.force, &guard.map)?;
        loader.device(&Pm::new(mem, 0..0), progress)?;
        return loader.open(path);
    }
    let file = |source| Error::file("making the pool", source);
    let new = NewFile::create(path).map_err(file)?;
    let inner = new.path();
    {
        let mem = Pmem::create(&inner, len, options.sparse, false, &guard.map)?;
        let pm = Pm::new(mem, 0..0);
        let first = loader.blocks(&pm, progress)?;
        first_block(&pm, &first)?;
    }
    let report = loader.open(&inner)?;
    if has_bytes {
        // A process that has opened it since keeps it.
        mkfs::guard(path, &guard, has_bytes)?;
    }
    match new.publish(options.force || !has_bytes) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::NotEmptyFile),
        other => other.map(|()| report).map_err(file),
    }
}

/// Makes a pool on the file or device, with its first block.
fn first_block(pm: &Pm, first: &[u8]) -> Result<()> {
    let restore = Restore::new(pm);
    restore.barrier();
    restore.bytes(0, first)?;
    restore.barrier();
    Ok(())
}

struct Loader<'a> {
    input: &'a mut dyn Read,
    header: Header,
    /// Bytes read.
    at: u64,
    blocks: u64,
}

impl Loader<'_> {
    /// Stores all blocks but the first, which it answers, once the trailer was seen.
    fn blocks(&mut self, pm: &Pm, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<u8>> {
        let restore = Restore::new(pm);
        let mut buffer = vec![0; (RUN_BLOCKS_MAX * BLOCK_BYTES) as usize];
        let mut first = None;
        let mut headers_crc = 0;
        let mut next = 0;
        for place in 0.. {
            let mut bytes = [0; RUN_BYTES];
            fill(self.input, &mut bytes, self.at)?;
            let run = RunHeader::decode(&bytes, self.at)?;
            let count = u64::from(run.count);
            if run.place != place {
                return Err(bad("a run is missing or out of place", self.at));
            }
            if count == 0 {
                if run.block != self.blocks || run.crc != headers_crc {
                    return Err(bad("runs are missing", self.at));
                }
                break;
            }
            let fits = count <= RUN_BLOCKS_MAX && run.block < self.header.blocks;
            if !fits || run.block < next || run.block + count > self.header.blocks {
                return Err(bad("a run that does not fit the pool", self.at));
            }
            headers_crc = crc32c::crc32c_append(headers_crc, &bytes);
            self.at += RUN_BYTES as u64;
            let content = &mut buffer[..(count * BLOCK_BYTES) as usize];
            fill(self.input, content, self.at)?;
            if crc32c::crc32c(content) != run.crc {
                return Err(bad("a run's content is damaged", self.at));
            }
            self.at += content.len() as u64;
            let mut content = &content[..];
            let mut block = run.block;
            if block == 0 {
                let (head, rest) = content.split_at(BLOCK_BYTES as usize);
                first = Some(head.to_vec());
                (content, block) = (rest, 1);
            }
            restore.bytes(block * BLOCK_BYTES, content)?;
            next = run.block + count;
            self.blocks += count;
            progress(
                self.blocks * BLOCK_BYTES,
                self.header.used.max(self.blocks) * BLOCK_BYTES,
            );
        }
        self.at += RUN_BYTES as u64;
        match self.input.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(bad("something follows its end", self.at)),
            Err(source) => {
                return Err(Error::file("reading", source));
            }
        }
        first.ok_or_else(|| bad("it has no superblock", self.at))
    }

    /// A device can't be given its content under another name: it is no pool from the start on
    /// until the end.
    fn device(&mut self, pm: &Pm, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let restore = Restore::new(pm);
        restore.zero(0, BLOCK_BYTES);
        restore.barrier();
        restore.zero(0, self.header.blocks * BLOCK_BYTES);
        let first = self.blocks(pm, progress);
        if first.is_err() {
            // The copy of the superblock would make it one.
            restore.zero((self.header.blocks - 1) * BLOCK_BYTES, BLOCK_BYTES);
            restore.barrier();
        }
        first_block(pm, &first?)
    }

    /// Opens what was loaded, which rebuilds its runtime area, and leaves it clean.
    fn open(&self, path: &Path) -> Result<LoadReport> {
        let options = OpenOptions {
            exclusive: true,
            adopt: true,
            ..OpenOptions::default()
        };
        let fs = Fs::open(path, &options)?;
        let report = LoadReport {
            info: fs.info(),
            blocks: self.blocks,
            time_ns: self.header.time_ns,
            damage: fs.recovery().damage,
        };
        fs.close()?;
        Ok(report)
    }
}
