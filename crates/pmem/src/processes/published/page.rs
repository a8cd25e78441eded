//! The owner's side of published counts.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{BUSY, BYTES, CALLER, LINES, MAGIC, NAME, NUMBER, OTHERS};
use super::{PROCESS_SHIFT, TICKS, WORDS, header, word};
use crate::address_space::Mapping;
use crate::processes::slots;
use crate::processes::thread;

/// The state of [`Page::number`] in which nothing is published.
const OFF: u64 = 0;
/// The state in which a thread begins or ends publishing.
const CHANGING: u64 = 1;
/// Set in [`thread::Thread::line`] if it is a caller's number.
const FOREIGN: u64 = 1 << 63;
/// Set in [`thread::Thread::line`] if there was no line for the thread.
const NO_LINE: u64 = 1 << 62;
/// Bits of a line's index in [`thread::Thread::line`], below the page's number.
const INDEX_BITS: u32 = 16;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// Calls of a line, of which one looks at the clock.
const ASK_ONE_IN: u64 = 64;
/// Lines of threads that have ended are looked for this often, once there are no others.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Pages that this process has published, plus the two states.
static PAGES: AtomicU64 = AtomicU64::new(CHANGING);

/// Says for whom this thread works from now on: the thread of this number, of which a mount has
/// got a request. Calls of this thread are then published as those of that one. 0 is a request of
/// the kernel's own.
#[inline]
pub fn for_caller(number: u32) {
    thread::with(|thread| thread.line.set(FOREIGN | u64::from(number)));
}

/// Counts of one pool's calls, in memory that stays at its place: a thread that is late stores to
/// what is there instead of the file.
#[derive(Debug)]
pub struct Page {
    memory: Mapping,
    /// Names what is published in [`thread::Thread::line`]: [`OFF`], [`CHANGING`], or more.
    number: AtomicU64,
    file: Mutex<Option<OwnedFd>>,
    swept: Mutex<Option<Instant>>,
}

impl Page {
    /// A page that publishes nothing yet.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Page> {
        Ok(Page {
            memory: Mapping::new(None, BYTES, 0, READ_WRITE, NOWHERE)?,
            number: AtomicU64::new(OFF),
            file: Mutex::new(None),
            swept: Mutex::new(None),
        })
    }

    /// Returns whether counts are published.
    #[inline]
    pub fn is_publishing(&self) -> bool {
        self.number.load(Ordering::Acquire) > CHANGING
    }

    /// Begins to publish, from zero. `pool` is the device and inode of the pool's file. Returns
    /// once some thread has done it.
    ///
    /// # Errors
    /// The kernel gives no memory or no descriptor.
    pub fn begin_publishing(&self, pool: (u64, u64)) -> io::Result<()> {
        while let Err(found) = self.try_change(OFF) {
            if found > CHANGING {
                return Ok(());
            }
            std::thread::yield_now();
        }
        let made = self.put_counts_file(pool);
        let next = match &made {
            Ok(()) => PAGES.fetch_add(1, Ordering::Relaxed) + 1,
            Err(_) => OFF,
        };
        self.number.store(next, Ordering::Release);
        made
    }

    /// Ends publishing. The file is gone unless a monitor has it open.
    pub fn end_publishing(&self) {
        let number = self.number.load(Ordering::Acquire);
        if number > CHANGING && self.try_change(number).is_ok() {
            self.leave_file();
        }
    }

    /// Leaves the parent's file, in a forked child. It has one thread, and whatever others were
    /// about to do in the parent is not done here.
    pub fn leave_parents(&self) {
        self.leave_file();
    }

    fn try_change(&self, from: u64) -> Result<u64, u64> {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Acquire);
        self.number
            .compare_exchange(from, CHANGING, acquire, relaxed)
    }

    fn leave_file(&self) {
        // Memory that cannot be had leaves the file mapped: as wrong as before, and no worse.
        let _ = self.memory.put(None, 0..BYTES, READ_WRITE, NOWHERE);
        // A thread that held this in the parent is not there in the child, but it held it for no
        // more than the store of a number: the parent's file then stays open until exec or exit.
        if let Ok(mut file) = self.file.try_lock() {
            *file = None;
        }
        self.number.store(OFF, Ordering::Release);
    }

    fn put_counts_file(&self, (device, inode): (u64, u64)) -> io::Result<()> {
        let file = sealed()?;
        let flags = libc::MAP_SHARED;
        let put = self
            .memory
            .put(Some(file.as_fd()), 0..BYTES, READ_WRITE, flags);
        if let Err(error) = put {
            // The addresses are reserved and can't be accessed: late threads would fault.
            self.memory.put(None, 0..BYTES, READ_WRITE, NOWHERE)?;
            return Err(error);
        }
        self.cell(0, header::PID)
            .store(std::process::id().into(), Ordering::Relaxed);
        self.cell(0, header::POOL_DEV)
            .store(device, Ordering::Relaxed);
        self.cell(0, header::POOL_INO)
            .store(inode, Ordering::Relaxed);
        self.cell(OTHERS, word::NAME)
            .store(CALLER, Ordering::Relaxed);
        self.cell(0, header::MAGIC).store(MAGIC, Ordering::Release);
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    #[inline(always)]
    fn line(&self, line: usize) -> &[AtomicU64; WORDS] {
        assert!(line < LINES);
        let at = self.memory.base().cast::<[AtomicU64; WORDS]>();
        // SAFETY: inside of the mapping, which is `BYTES` long, aligned, and stays mapped as long
        // as `self`; the file's length is sealed. Words of it are only accessed as atomic ones.
        unsafe { &*at.add(line) }
    }

    #[inline]
    fn cell(&self, line: usize, word: usize) -> &AtomicU64 {
        &self.line(line)[word]
    }

    /// Adds to some counts of the line of this thread, whose tag is given, or of its caller's.
    /// `counts` gives the place of each among [`Counts`] and the amount. Returns whether it is time
    /// to ask if they are still wanted: when the first count was a multiple of [`ASK_ONE_IN`], for
    /// the clock takes longer than the counting.
    #[inline(always)]
    pub fn publish_counts<const N: usize>(&self, tag: u64, counts: [(usize, u64); N]) -> bool {
        let number = self.number.load(Ordering::Acquire);
        let known = thread::with(|thread| thread.line.get());
        if number <= CHANGING || known >> INDEX_BITS != number {
            return self.publish_elsewhere(number, tag, &counts);
        }
        let line = self.line((known & INDEX_MASK) as usize);
        let mut first = None;
        for (place, more) in counts {
            let word = &line[word::COUNTS + place];
            let before = word.load(Ordering::Relaxed);
            word.store(before.wrapping_add(more), Ordering::Relaxed);
            first = first.or(Some(before));
        }
        first.is_some_and(|first| first.is_multiple_of(ASK_ONE_IN))
    }

    /// Adds to counts of a caller, of those without a line, or of a thread that has none yet.
    #[cold]
    #[inline(never)]
    fn publish_elsewhere(&self, number: u64, tag: u64, counts: &[(usize, u64)]) -> bool {
        if number <= CHANGING {
            return false;
        }
        let known = thread::with(|thread| thread.line.get());
        let without = NO_LINE | number << INDEX_BITS;
        let index = if known & FOREIGN != 0 {
            self.line_of(CALLER | known & NUMBER, false)
        } else if known == without {
            OTHERS
        } else {
            let index = self.line_of(tag, known == 0);
            let found = match index {
                OTHERS => without,
                _ => number << INDEX_BITS | index as u64,
            };
            thread::with(|thread| thread.line.set(found));
            index
        };
        let mut first = None;
        for &(place, more) in counts {
            let word = &self.line(index)[word::COUNTS + place];
            first = first.or(Some(word.fetch_add(more, Ordering::Relaxed)));
        }
        first.is_some_and(|first| first.is_multiple_of(ASK_ONE_IN))
    }

    /// The line of this name, which is claimed if there was none; [`OTHERS`] if all are taken.
    /// `is_new`: the thread has had no line of any page yet.
    fn line_of(&self, name: u64, is_new: bool) -> usize {
        if name & NUMBER == 0 {
            return OTHERS;
        }
        let found = self.claim_line(name, is_new);
        match found.is_none() && self.sweep_lines() {
            true => self.claim_line(name, is_new),
            false => found,
        }
        .unwrap_or(OTHERS)
    }

    /// After a sweep a search may end at a line that was made free before the one with this name,
    /// which then has two: readers add them up.
    fn claim_line(&self, name: u64, is_new: bool) -> Option<usize> {
        let first = OTHERS + 1;
        let begin = (name & NUMBER) as usize;
        for step in 0..LINES - first {
            let line = first + (begin + step) % (LINES - first);
            let at = self.cell(line, word::NAME);
            let found = match at.load(Ordering::Acquire) {
                0 => at.compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire),
                other => Err(other),
            };
            match found {
                Ok(_) => {
                    let start = start_of(name).unwrap_or(0);
                    self.cell(line, word::START).store(start, Ordering::Release);
                    return Some(line);
                }
                Err(other) if other == name && is_new => return self.renew_line(line, name),
                // The calls of a caller, and of a thread that uses several pools, come here often.
                Err(other) if other == name => return Some(line),
                Err(_) => {}
            }
        }
        None
    }

    /// Gives this thread a line that has its number: an earlier thread may have had that number,
    /// whose counts then go to the others. `None`: a sweep goes on.
    fn renew_line(&self, line: usize, name: u64) -> Option<usize> {
        let _sweeping = self.swept.try_lock().ok()?;
        let mine = start_of(name)?;
        let start = self.cell(line, word::START);
        if start.load(Ordering::Acquire) != mine {
            self.empty_line(line);
            start.store(mine, Ordering::SeqCst);
            self.cell(line, word::NAME).store(name, Ordering::SeqCst);
        }
        Some(line)
    }

    /// Moves the counts of a line to that of the others; nobody has its name then. The caller has
    /// locked [`Page::swept`].
    fn empty_line(&self, line: usize) {
        let sequence = self.cell(0, header::SEQUENCE);
        sequence.fetch_add(1, Ordering::SeqCst);
        self.cell(line, word::NAME).store(BUSY, Ordering::SeqCst);
        for place in word::COUNTS..WORDS {
            let moved = self.cell(line, place).fetch_and(0, Ordering::SeqCst);
            self.cell(OTHERS, place).fetch_add(moved, Ordering::SeqCst);
        }
        self.cell(line, word::START).store(0, Ordering::SeqCst);
        sequence.fetch_add(1, Ordering::SeqCst);
    }

    /// Empties the lines of threads that have ended into the line of the others; `true` if there
    /// is a free one.
    #[cold]
    fn sweep_lines(&self) -> bool {
        let Ok(mut swept) = self.swept.try_lock() else {
            return false;
        };
        if swept.is_some_and(|at| at.elapsed() < SWEEP_EVERY) {
            return false;
        }
        let mut emptied = false;
        for line in OTHERS + 1..LINES {
            let at = self.cell(line, word::NAME);
            let name = at.load(Ordering::Acquire);
            let start = self.cell(line, word::START).load(Ordering::Acquire);
            if name == BUSY || start == 0 || start_of(name) == Some(start) {
                continue;
            }
            self.empty_line(line);
            at.store(0, Ordering::SeqCst);
            emptied = true;
        }
        *swept = Some(Instant::now());
        emptied
    }
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
/// Flags of memory that nobody else sees.
const NOWHERE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// A file of [`BYTES`] zeros whose length is sealed.
fn sealed() -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(NAME)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a string that ends in NUL; the kernel copies it.
    let made = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor just made, which nobody else knows.
    let file = unsafe { OwnedFd::from_raw_fd(made) };
    let len = libc::off_t::try_from(BYTES).map_err(io::Error::other)?;
    // SAFETY: the call has numbers alone.
    if unsafe { libc::ftruncate(file.as_raw_fd(), len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call has numbers alone.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(slots::keep(file))
}

/// The word of a line that tells the thread's start, in the kernel's ticks since the machine was,
/// and above it the process of a mount's caller, who waits for an answer now and may be gone
/// later. A caller is any thread that `/proc` has. `None`: there is no such thread.
fn start_of(name: u64) -> Option<u64> {
    let number = name & NUMBER;
    if name & CALLER == 0 {
        return ticks(&format!("/proc/self/task/{number}/stat"));
    }
    let ticks = ticks(&format!("/proc/{number}/stat"))?;
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let process: u64 = process
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    Some(ticks & TICKS | process << PROCESS_SHIFT)
}

fn ticks(path: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    // The field 22 of proc(5); the first one behind the name is 3.
    behind.split_whitespace().nth(22 - 3)?.parse().ok()
}
