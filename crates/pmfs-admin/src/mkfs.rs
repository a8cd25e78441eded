//! mkfs: lays out an empty pool with a root directory. The superblock's magic comes last, so that a
//! pool cut short while it was made is no pool.

use crate::info::{PoolInfo, info};
use pm_journal::medium::geometry::{Geometry, Sizing};
use pm_journal::medium::superblock::{self, State};
use pm_store::Restore;
use pm_store::clock::Clock;
use pmem::slots::ByteLock;
use pmem::{MapOptions, Pmem};
use pmfs::OpenOptions;
use pmfs::parts::inode::NewInode;
use pmfs::parts::pool::Pool;
use pmfs::parts::recovery::rebuild;
use pmfs::parts::tree::entry::Entry;
use pmfs::types::mode;
use pmfs::{Error, Result};
use pmfs_format::inode::ROOT_INO;
use pmfs_format::superblock::{FEATURE_SHARED, FEATURE_SHARED_NODES};
use pmfs_format::tree::TABLE_HEIGHT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, InodeRaw, RunRecordRaw};
use pmshare::lock_bytes::{BYTE_POOL, holder_pid};
use std::path::Path;
use zerocopy::FromBytes;

/// The options of making a pool.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Bytes; `None` takes the size that the file or device has.
    pub size: Option<u64>,
    /// Overwrite a pool, or a file that is not empty.
    pub force: bool,
    /// Do not allocate the file's space now.
    pub sparse: bool,
    /// Inode numbers; `None` for two a block.
    pub inodes: Option<u64>,
    /// Open files that the tables begin with room for, and half as many file locks; `None` for one
    /// for each 32 blocks, at most 131,072.
    pub open_files: Option<u64>,
    /// The pool's uuid; `None` for a random one.
    pub uuid: Option<[u8; 16]>,
    /// Key of the hashes; `None` for a random one.
    pub hash_key: Option<[u64; 2]>,
    /// The options of its mapping.
    pub map: MapOptions,
    /// Owner, group and permission bits of the root directory; `None` for the caller's and 0755.
    pub root: Option<(u32, u32, u32)>,
    /// The source of times.
    pub clock: Clock,
}

/// Makes a pool in a file or device.
///
/// # Errors
/// The file has content and `force` is not set, another process holds it, no space, bad geometry.
pub fn mkfs(path: &Path, options: &MkfsOptions) -> Result<PoolInfo> {
    mkfs_watched(path, options, &mut |_, _| ())
}

/// Formats a mapping without a file: for tests and crash images.
///
/// # Errors
/// Bad geometry.
pub fn format_private(mem: Pmem, options: &MkfsOptions) -> Result<Pmem> {
    Ok(format(mem, options)?.into_mapping())
}

/// Makes a pool like [`mkfs`]; `progress` is told, where the kernel has to zero the pool's memory,
/// of bytes done and bytes in all.
///
/// # Errors
/// Those of [`mkfs`].
pub fn mkfs_watched(
    path: &Path,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<PoolInfo> {
    let existing = std::fs::metadata(path).ok();
    let is_file = existing.as_ref().is_none_or(std::fs::Metadata::is_file);
    // A device has bytes, though its stat size is 0.
    let has_bytes = existing
        .as_ref()
        .is_some_and(|meta| meta.len() > 0 || !is_file);
    if existing.is_some() {
        guard(path, options, has_bytes)?;
    }
    let mem = match options.size {
        Some(size) if is_file => {
            let size = size / BLOCK_BYTES * BLOCK_BYTES;
            // A size that can't be a pool must not cost the old file.
            Geometry::plan(&sizing(size / BLOCK_BYTES, options), [0; 2])?;
            if has_bytes {
                // A forced mkfs starts from nothing: no byte of the old file shows.
                std::fs::remove_file(path).map_err(|error| {
                    Error::geometry(format!("can't replace {}: {error}", path.display()))
                })?;
            }
            Pmem::create_watched(path, size, options.sparse, false, &options.map, progress)?
        }
        _ => Pmem::open(path, &options.map)?,
    };
    let pool = format(mem, options)?;
    Ok(info(&pool))
}

/// Refuses to overwrite a pool in use, or a file with content.
///
/// # Errors
/// [`Error::Held`], [`Error::NotEmptyFile`].
pub(crate) fn guard(path: &Path, options: &MkfsOptions, has_bytes: bool) -> Result<()> {
    if let Ok(None) = ByteLock::try_exclusive(path, BYTE_POOL) {
        return Err(Error::Held {
            pid: holder_pid(path),
        });
    }
    if options.force || !has_bytes {
        return Ok(());
    }
    let zeros = Pmem::open(path, &options.map).is_ok_and(|mem| {
        let mut head = vec![0; mem.len().min(1 << 20) as usize];
        !superblock::looks_like_pool(&mem)
            && mem.copy_out(0, &mut head).is_ok()
            && head.iter().all(|&byte| byte == 0)
    });
    if zeros && options.size.is_none() {
        return Ok(());
    }
    Err(Error::NotEmptyFile)
}

fn sizing(blocks: u64, options: &MkfsOptions) -> Sizing {
    Sizing::with_open_files(blocks, options.inodes, options.open_files)
}

/// Formats a mapping.
///
/// # Errors
/// Bad geometry.
fn format(mem: Pmem, options: &MkfsOptions) -> Result<Pool> {
    let blocks = mem.len() / BLOCK_BYTES;
    if blocks > 1 << 32 {
        return Err(Error::geometry("a pool has at most 16 TiB"));
    }
    let key = options.hash_key.unwrap_or_else(|| {
        let bytes = random();
        [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
    });
    let geometry = Geometry::plan(&sizing(blocks, options), key)?;
    let mut raw = superblock::blank();
    raw.uuid = options.uuid.unwrap_or_else(random);
    raw.crtime_ns = options.clock.now_ns();
    raw.features_incompat = FEATURE_SHARED | FEATURE_SHARED_NODES;
    geometry.describe(&mut raw);
    superblock::seal(&mut raw);
    let pool = Pool::new(mem, raw, geometry, None, &OpenOptions::default());
    let restore = Restore::new(&pool.pm);
    // The pool that may have stood here is none from now on.
    restore.zero(0, BLOCK_BYTES);
    restore.barrier();
    restore.zero(
        pool.geometry.journal,
        (pool.geometry.inode_table_root + 1) * BLOCK_BYTES - pool.geometry.journal,
    );
    root(&pool, &restore, options);
    restore.barrier();
    rebuild::rebuild(&pool)?;
    pool.pm.runtime().save();
    superblock::set_run_record(&restore, first_run());
    let crc = superblock::crc_of_range(pool.pm.mapping(), pool.geometry.runtime.clone())?;
    superblock::set_state(&restore, State::Clean(crc));
    superblock::store(&restore, &raw)?;
    Ok(pool)
}

/// The table's first branch and, in it, the root directory.
fn root(pool: &Pool, restore: &Restore<'_>, options: &MkfsOptions) {
    let mut slot = pool.geometry.inode_table_root << BLOCK_SHIFT;
    for (block, level) in (pool.geometry.data_start..).zip((0..TABLE_HEIGHT).rev()) {
        let off = block << BLOCK_SHIFT;
        restore.zero(off, BLOCK_BYTES);
        let entry = if level == 0 {
            Entry::leaf(off)
        } else {
            Entry::node(off)
        };
        restore.words(slot, &[entry.0]);
        slot = off;
    }
    let (uid, gid, bits) = options.root.unwrap_or_else(|| {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        (uid.as_raw(), gid.as_raw(), 0o755)
    });
    let new = NewInode {
        mode: mode::S_IFDIR | bits,
        uid,
        gid,
        parent: ROOT_INO,
        size: 0,
        root: Entry::HOLE,
        xattr: 0,
        inline: &[],
    };
    let mut words = new.words(1, options.clock.now_ns());
    words[InodeRaw::links.word()] = 2;
    restore.words(slot + ROOT_INO * InodeRaw::SIZE, &words);
}

/// The run record of no run: the first opener finds the pool clean.
fn first_run() -> RunRecordRaw {
    let mut raw = RunRecordRaw::read_from_bytes(&[0; 64]).expect("the size is asserted");
    raw.layout = pmfs_format::runtime::LAYOUT;
    raw
}

pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    let got = rustix::rand::getrandom(&mut bytes, flags);
    assert!(
        got.is_ok_and(|got| got == bytes.len()),
        "getrandom gives 16 bytes"
    );
    bytes
}
