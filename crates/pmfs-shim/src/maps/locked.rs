//! mlockall(2): the program's memory must stay in memory. The pool's mapping and this library's
//! tables are excepted: otherwise all of the pool would be read in and locked, far above an
//! ordinary user's limit. So each of the program's mappings is locked by itself.
//!
//! The kernel locks later mappings. So the pool is attached before: its mapping would be one of
//! them.

use std::ops::Range;

use libc::{ENOMEM, EPERM, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MCL_CURRENT, MCL_FUTURE};

use crate::call::{Answer, Verdict, kernel_answer};
use crate::descriptors;
use crate::descriptors::pool;
use crate::descriptors::spare;
use crate::maps::shown::{any, table};
use crate::own::kernel;
use crate::program::credentials::{self, capability};
use crate::thread::guest;

const CURRENT: u64 = MCL_CURRENT as u64;
const FUTURE: u64 = MCL_FUTURE as u64;
const ON_FAULT: u64 = 4;

/// One line of /proc/self/maps.
struct Mapped {
    addresses: Range<u64>,
    /// A store copies the page for this process.
    is_copied: bool,
}

pub(crate) fn lock_all(args: [u64; 6]) -> Verdict {
    let flags = args[0];
    let is_valid = flags & !(CURRENT | FUTURE | ON_FAULT) == 0 && flags & (CURRENT | FUTURE) != 0;
    if !is_valid || guest::own().is_some() {
        return Verdict::Pass;
    }
    if flags & FUTURE != 0 {
        // Without the pool there is nothing of it to lock.
        let _ = pool::get();
    }
    let Some(all) = mapped() else {
        return Verdict::Pass;
    };
    Verdict::done(lock(flags, &all))
}

fn lock(flags: u64, all: &[Mapped]) -> Answer {
    if flags & CURRENT != 0 {
        allow(all)?;
    }
    // This also cancels the locking of later mappings.
    kernel::plain(libc::SYS_munlockall, &[]);
    if flags & FUTURE != 0 {
        kernel_answer(kernel::plain(libc::SYS_mlockall, &[flags & !CURRENT]))?;
    }
    if flags & CURRENT == 0 {
        return Ok(0);
    }
    let at_once = flags & ON_FAULT == 0;
    if at_once && any() {
        table().fill_between(0, u64::MAX);
    }
    for Mapped {
        addresses,
        is_copied,
    } in all
    {
        let (start, bytes) = (addresses.start, addresses.end - addresses.start);
        let on_fault = libc::MLOCK_ONFAULT.into();
        // The kernel does the same: it reports no mapping that can't be locked or read in.
        kernel::plain(libc::SYS_mlock2, &[start, bytes, on_fault]);
        if at_once {
            let advice = if *is_copied {
                MADV_POPULATE_WRITE
            } else {
                MADV_POPULATE_READ
            };
            kernel::plain(libc::SYS_madvise, &[start, bytes, advice as u64]);
        }
    }
    Ok(0)
}

/// Checks as the kernel would.
///
/// # Errors
/// EPERM, ENOMEM.
fn allow(all: &[Mapped]) -> Result<(), i32> {
    let mut limit = [0u64; 2];
    let at = (&raw mut limit).expose_provenance() as u64;
    let resource = u64::from(libc::RLIMIT_MEMLOCK);
    // SAFETY: the kernel fills a struct rlimit: two words.
    unsafe { kernel::call(libc::SYS_getrlimit, [resource, at, 0, 0, 0, 0]) };
    let limit = std::hint::black_box(limit)[0];
    if credentials::with(|me| me.has(capability::IPC_LOCK)) {
        return Ok(());
    }
    let bytes: u64 = all
        .iter()
        .map(|one| one.addresses.end - one.addresses.start)
        .sum();
    match limit {
        0 => Err(EPERM),
        limit if bytes > limit => Err(ENOMEM),
        _ => Ok(()),
    }
}

/// The mappings of this process without the pool and this library's tables; `None` if they can't be
/// read.
fn mapped() -> Option<Vec<Mapped>> {
    let text = spare::text_of("/proc/self/maps");
    if text.is_empty() {
        return None;
    }
    let tables = descriptors::tables();
    let pool = pool::attached().map(|fs| fs.mapping().addresses());
    let is_ours = |addresses: &Range<u64>| {
        let meets = |other: &Range<u64>| addresses.start < other.end && other.start < addresses.end;
        pool.as_ref().is_some_and(meets) || tables.iter().any(meets)
    };
    let parsed = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let rights = words.next()?.as_bytes();
        Some(Mapped {
            addresses: number(start)?..number(end)?,
            is_copied: rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b'p'),
        })
    });
    Some(parsed.filter(|one| !is_ours(&one.addresses)).collect())
}
