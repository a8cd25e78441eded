//! A pool that processes have mapped, and the words in it by which they are asked for counts.
//!
//! Words are stored by pwrite(2), which a mapping of the same file sees. Nothing else of a pool is
//! changed, and a file that is none is left alone: its superblock has to be whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use pm_journal::medium::geometry::Geometry;
use pm_journal::medium::superblock::crc_of;
use pmfs_format::runtime::SLOT_LIVE;
use pmfs_format::superblock::MAGIC;
use pmfs_format::{RuntimeHeaderRaw, SlotRaw, SuperblockRaw};
use zerocopy::FromBytes;

/// A process is asked for this long.
const ASKED_NS: u64 = 3_000_000_000;
/// A process is asked again where less than this is left.
const AGAIN_NS: u64 = 2_000_000_000;

/// The second of a slot's words, where counts are published.
const UNSEEN: u64 = 2;
const SEEN: u64 = 1;

/// An open pool.
#[derive(Debug)]
pub(super) struct Pool {
    file: File,
    can_write: bool,
}

/// A process in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// Its slot.
    pub slot: u64,
    /// Its number in its own namespace.
    pub pid: u32,
    /// It is wanted, or a mount. Others wait for other monitors.
    pub is_of_interest: bool,
    /// It publishes counts that no monitor has opened yet, and may wait for that.
    pub is_unseen: bool,
    /// It is asked, or need not be. `false`: the pool may not be written.
    pub is_asked: bool,
}

impl Pool {
    /// Opens the first of the paths that is a pool with this inode.
    pub fn open(inode: u64, paths: &[String]) -> io::Result<Pool> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for path in paths {
            for can_write in [true, false] {
                match open(path, inode, can_write) {
                    Ok(file) => return Ok(Pool { file, can_write }),
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    /// Device and inode.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let data = self.file.metadata()?;
        Ok((data.dev(), data.ino()))
    }

    /// The processes in the pool. Those that are wanted, by their numbers in their own namespaces,
    /// and mounts are asked.
    pub fn ask(&self, now_ns: u64, wanted: impl Fn(u32) -> bool) -> io::Result<Vec<Seat>> {
        let geometry = self.geometry()?;
        let end = self.word(RuntimeHeaderRaw::slots_end.of(geometry.header))?;
        let count = end.min(geometry.slot_count);
        let len = usize::try_from(count * SlotRaw::SIZE).map_err(io::Error::other)?;
        let mut slots = vec![0; len];
        self.file.read_exact_at(&mut slots, geometry.slot(0))?;
        let mut seats = Vec::new();
        for (slot, bytes) in slots.chunks_exact(SlotRaw::SIZE as usize).enumerate() {
            let slot = slot as u64;
            if word_of(bytes, SlotRaw::state.offset()) != SLOT_LIVE {
                continue;
            }
            let pid = u32::try_from(word_of(bytes, SlotRaw::pid.offset())).unwrap_or(0);
            let is_mount = word_of(bytes, SlotRaw::asked.offset()) != 0;
            let until = word_of(bytes, SlotRaw::sessions.offset());
            let is_of_interest = is_mount || wanted(pid);
            let needs_asking = is_of_interest && until < now_ns + AGAIN_NS;
            if needs_asking && self.can_write {
                let until = (now_ns + ASKED_NS).to_le_bytes();
                let off = SlotRaw::sessions.of(geometry.slot(slot));
                self.file.write_all_at(&until, off)?;
            }
            seats.push(Seat {
                slot,
                pid,
                is_of_interest,
                is_unseen: word_of(bytes, SlotRaw::sessions.offset() + 8) == UNSEEN,
                is_asked: !needs_asking || self.can_write,
            });
        }
        Ok(seats)
    }

    /// Says that a process's counts are opened.
    pub fn has_seen(&self, slot: u64) -> io::Result<()> {
        if !self.can_write {
            return Ok(());
        }
        let off = SlotRaw::sessions.of(self.geometry()?.slot(slot)) + 8;
        self.file.write_all_at(&SEEN.to_le_bytes(), off)
    }

    /// The places in the pool, of this moment: it may grow.
    fn geometry(&self) -> io::Result<Geometry> {
        let mut bytes = [0; size_of::<SuperblockRaw>()];
        self.file.read_exact_at(&mut bytes, 0)?;
        let raw = SuperblockRaw::read_from_bytes(&bytes).map_err(|_| not_a_pool())?;
        if raw.magic != MAGIC || raw.crc != crc_of(&raw) {
            return Err(not_a_pool());
        }
        let len = self.file.metadata()?.len();
        Geometry::of(&raw, len).map_err(io::Error::other)
    }

    fn word(&self, off: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, off)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

fn word_of(bytes: &[u8], off: u64) -> u64 {
    let at = off as usize;
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

fn open(path: &str, inode: u64, can_write: bool) -> io::Result<File> {
    // Another file may have the name meanwhile; opening a device or a pipe may do something.
    let data = std::fs::metadata(path)?;
    if data.ino() != inode || !data.is_file() {
        return Err(not_a_pool());
    }
    let mut options = File::options();
    options.read(true).write(can_write);
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = options.custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    let mut head = [0; 8];
    file.read_exact_at(&mut head, 0)?;
    match data.ino() == inode && data.is_file() && u64::from_le_bytes(head) == MAGIC {
        true => Ok(file),
        false => Err(not_a_pool()),
    }
}

fn not_a_pool() -> io::Error {
    io::Error::other("no pool whose places are known")
}
