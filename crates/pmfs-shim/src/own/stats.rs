//! The figures and lines for `pmfs run --stats` and `--trace`.

use pmfs::Fs;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::call::class;
use crate::call::{Call, Verdict};
use crate::own::config;
use crate::own::kernel;
use crate::own::log;

/// The count of words in the shared page: served, passed, promoted, read, written, barriers, lines
/// flushed, processes, and the count of each kind of refusal.
const WORDS: usize = 8 + REFUSALS;

/// The kinds of refusals without a mount.
pub(crate) const REFUSALS: usize = 9;

#[derive(Clone, Copy)]
enum Word {
    Served,
    Passed,
    Promoted,
    Read,
    Written,
    Barriers,
    LinesFlushed,
    Processes,
}

static SHARED: AtomicPtr<AtomicU64> = AtomicPtr::new(null::<AtomicU64>().cast_mut());
static WANTED: AtomicBool = AtomicBool::new(false);

fn add(word: Word, count: u64) {
    add_at(word as usize, count);
}

fn add_at(at: usize, count: u64) {
    let page = SHARED.load(Ordering::Relaxed);
    if !page.is_null() {
        // SAFETY: a page mapped for good, of which these words are used.
        unsafe { &*page.add(at) }.fetch_add(count, Ordering::Relaxed);
    }
}

/// Maps the page that all processes of a run share.
pub(crate) fn start() {
    let config = config::get();
    WANTED.store(
        config.stats.is_some() || config.trace.is_some(),
        Ordering::Relaxed,
    );
    let Some(path) = &config.stats else {
        return;
    };
    let path = [path.as_slice(), b"\0"].concat();
    let here = libc::AT_FDCWD as u64;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
    let file = kernel::with_path(
        libc::SYS_openat,
        [here, kernel::PATH, flags, 0, 0, 0],
        &path,
    );
    if file < 0 {
        return;
    }
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let args = [
        0,
        (WORDS * 8) as u64,
        protection,
        libc::MAP_SHARED as u64,
        file as u64,
        0,
    ];
    // SAFETY: a new mapping.
    let at = unsafe { kernel::call(libc::SYS_mmap, args) };
    kernel::plain(libc::SYS_close, &[file as u64]);
    if at > 0 {
        SHARED.store(
            std::ptr::with_exposed_provenance_mut(at as usize),
            Ordering::Release,
        );
        add(Word::Processes, 1);
    }
}

/// Counts a forked child as a process, and its calls from zero.
pub(crate) fn forked() {
    for told in &TOLD {
        told.store(0, Ordering::Relaxed);
    }
    add(Word::Processes, 1);
}

/// Counts a promoted descriptor.
pub(crate) fn promoted() {
    add(Word::Promoted, 1);
}

/// Counts a refusal that a mount would have served.
pub(crate) fn refused(kind: usize) {
    add_at(Word::Processes as usize + 1 + kind, 1);
}

/// Returns whether figures or traces are wanted.
#[inline]
pub(crate) fn are_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Notes a finished call. `is_ours` is `false` for one that was only checked for parked numbers.
#[cold]
pub(crate) fn note(call: &Call, verdict: &Verdict, is_ours: bool) {
    let number = call.rax as i64;
    let name = class::name(number);
    let a = call.args;
    match verdict {
        Verdict::Done(rax) => {
            let answer = &Verdict::answer(*rax);
            add(Word::Served, 1);
            match (number, answer) {
                (
                    libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv,
                    Ok(bytes),
                ) => {
                    add(Word::Read, *bytes);
                }
                (
                    libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev,
                    Ok(bytes),
                ) => {
                    add(Word::Written, *bytes);
                }
                _ => {}
            }
            match answer {
                Ok(value) => tell(format_args!(
                    "{name}({:#x}, {:#x}, {:#x}, {:#x}) = {value}",
                    a[0], a[1], a[2], a[3]
                )),
                Err(errno) => tell(format_args!(
                    "{name}({:#x}, {:#x}, {:#x}, {:#x}) = -{errno}",
                    a[0], a[1], a[2], a[3]
                )),
            }
        }
        Verdict::Pass if !is_ours => {}
        Verdict::Pass => {
            add(Word::Passed, 1);
            tell(format_args!(
                "{name}({:#x}, {:#x}, {:#x}, {:#x}): passed on",
                a[0], a[1], a[2], a[3]
            ));
        }
        Verdict::Again => {}
    }
}

fn tell(text: std::fmt::Arguments<'_>) {
    if let Some(path) = &config::get().trace {
        log::append(&[path.as_slice(), b"\0"].concat(), text);
    }
}

/// Barriers and flushed lines of this process that were added already.
static TOLD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Adds the work of all threads, before this process ends or calls exec.
pub(crate) fn flush(pool: Option<&Fs>) {
    if are_wanted()
        && let Some(fs) = pool
    {
        let totals = fs.totals();
        let counts = [
            (Word::Barriers, totals.barriers),
            (Word::LinesFlushed, totals.flushed_lines),
        ];
        for ((word, count), told) in counts.into_iter().zip(&TOLD) {
            let before = told.swap(count, Ordering::Relaxed);
            add(word, count.saturating_sub(before));
        }
    }
}
