//! The monitor's side of published counts. The file is another process's, which may be hostile:
//! it is read by pread(2), which no length and no hole makes fault, and only if it is sealed at
//! the one length that there is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::{
    BUSY, BYTES, CALLER, Counts, LINES, MAGIC, NUMBER, OTHERS, PROCESS_SHIFT, TICKS, WORDS, header,
    word,
};

/// Reads until two agree.
const TRIES: usize = 8;

/// The line of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Tells this line from others of the same process, also after its thread has ended.
    pub name: u64,
    /// The thread's number as the owner sees it; 0: threads without a line of their own.
    pub number: u32,
    /// The thread is a caller of the owner, which is a mount, and not one of the owner's.
    pub is_caller: bool,
    /// When the thread was started, in ticks of the kernel; 0: unknown.
    pub start: u64,
    /// A caller's process as the owner sees it; 0: unknown.
    pub process: u32,
    /// Its counts.
    pub counts: Counts,
}

/// The content of a file at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The owner's number as it sees itself.
    pub pid: u32,
    /// Device and inode of the pool, as the owner sees them.
    pub pool: (u64, u64),
    /// The lines that are in use.
    pub lines: Vec<Line>,
}

/// Reads a file of published counts.
///
/// # Errors
/// It is none, or its length is not sealed.
pub fn read(file: &File) -> io::Result<Snapshot> {
    check(file)?;
    let mut one = words(file)?;
    for _ in 0..TRIES {
        let other = words(file)?;
        let (before, after) = (&one[0..WORDS], &other[0..WORDS]);
        let rests = before[header::SEQUENCE] == after[header::SEQUENCE]
            && after[header::SEQUENCE].is_multiple_of(2);
        if rests {
            return snapshot(&one, &other);
        }
        one = other;
    }
    Err(io::Error::from(io::ErrorKind::WouldBlock))
}

fn check(file: &File) -> io::Result<()> {
    let wanted = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: the call has numbers alone.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    let len = file.metadata()?.len();
    if seals < 0 || seals & wanted != wanted || len != BYTES as u64 {
        return Err(io::Error::other("no sealed file of counts"));
    }
    Ok(())
}

fn words(file: &File) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// The lines that are the same threads' in both. The later counts are taken, since one may have
/// changed between: the copy of an aligned word is whole on this machine.
fn snapshot(one: &[u64], other: &[u64]) -> io::Result<Snapshot> {
    if other[header::MAGIC] != MAGIC {
        return Err(io::Error::other("no file of counts"));
    }
    let mut lines = Vec::new();
    for number in OTHERS..LINES {
        let line = |all: &[u64]| -> [u64; WORDS] {
            std::array::from_fn(|place| all[number * WORDS + place])
        };
        let (one, other) = (line(one), line(other));
        let name = other[word::NAME];
        let is_same = name == one[word::NAME] && other[word::START] == one[word::START];
        if name == 0 || name == BUSY || !is_same {
            continue;
        }
        lines.push(Line {
            name,
            number: u32::try_from(name & NUMBER).unwrap_or(0),
            is_caller: name & CALLER != 0 && number != OTHERS,
            start: other[word::START] & TICKS,
            process: u32::try_from(other[word::START] >> PROCESS_SHIFT).unwrap_or(0),
            counts: Counts::of(std::array::from_fn(|at| other[word::COUNTS + at])),
        });
    }
    Ok(Snapshot {
        pid: u32::try_from(other[header::PID]).unwrap_or(0),
        pool: (other[header::POOL_DEV], other[header::POOL_INO]),
        lines,
    })
}
