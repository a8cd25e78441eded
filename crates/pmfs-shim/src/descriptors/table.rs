//! The table of the program's descriptors, and the numbers of this library's own.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use pmfs::Ino;

use crate::own::kernel;
use crate::thread::descriptor::Descriptor;
use crate::thread::guest::{self, overlay};

/// The count of numbers that the library serves; higher ones are left to the mount.
pub(crate) const COUNT: usize = 1 << 20;
/// The count of this library's own numbers, at the top of the limit or of [`OWN_END`].
pub(super) const OWN: u64 = 16;
/// The end of this library's own numbers. `pmfs run` puts the descriptors that it leaves open there
/// (`keeper.rs` of the command). The kernel's table is as long as its highest number: 160 KiB for a
/// limit of 20,000, which was most of the cost of attaching.
const OWN_END: u64 = 1024;

/// The count of numbers that [`has_open`] examines in about a microsecond.
const LOOKED_AT: u32 = 1024;

/// A bit for each number whose calls the entry must not pass on.
pub(crate) static OURS: [AtomicU32; COUNT / 32] = [const { AtomicU32::new(0) }; COUNT / 32];
/// Two words for each number: the open file, and the packed rest.
pub(super) static FILES: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
static FACTS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
/// The highest number that was ever served, plus one.
static END: AtomicU32 = AtomicU32::new(0);

/// The addresses of these tables; most of their pages are never touched.
pub(crate) fn tables() -> [std::ops::Range<u64>; 3] {
    fn of<T>(table: &T) -> std::ops::Range<u64> {
        let start = std::ptr::from_ref(table).expose_provenance() as u64;
        start..start + size_of::<T>() as u64
    }
    [of(&OURS), of(&FILES), of(&FACTS)]
}

/// Bits: the number stays open over exec; and this is known.
const ON_EXEC: u64 = 1 << 36;
const ON_EXEC_KNOWN: u64 = 1 << 37;

/// Returns whether a call is allowed on descriptors opened with O_PATH.
pub(crate) fn serves_place(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_close | libc::SYS_dup | libc::SYS_fcntl | libc::SYS_fstat | libc::SYS_fstatfs
    )
}

/// The descriptor at a number, if it is one of the pool.
#[inline]
pub(crate) fn get(number: u64) -> Option<Descriptor> {
    let at = number as u32 as usize;
    if at >= COUNT {
        return None;
    }
    let overlay = overlay();
    let of_guest = overlay.is_some();
    if let Some(overlay) = overlay
        && let Some((_, seen)) = overlay.iter().find(|(other, _)| *other as usize == at)
    {
        return *seen;
    }
    let file = FILES[at].load(Ordering::Acquire);
    if file == 0 {
        return None;
    }
    let mut found = Descriptor::of(file, FACTS[at].load(Ordering::Relaxed));
    found.borrowed |= of_guest;
    Some(found)
}

/// The inode behind a number at this moment, for a caller that may be wrong.
#[inline]
pub(crate) fn likely_inode(number: u64) -> Option<Ino> {
    let facts = FACTS.get(number as u32 as usize)?.load(Ordering::Relaxed);
    Some(Descriptor::of(0, facts).ino)
}

/// The descriptor ([`get`]) if it stands for an inode of the pool.
pub(crate) fn inode_at(number: u64) -> Option<Descriptor> {
    get(number).filter(|descriptor| !descriptor.is_list())
}

/// Returns whether this process has the inode open at one of its first numbers.
pub(crate) fn has_open(ino: Ino) -> bool {
    let is_it = |number: usize| {
        likely_inode(number as u64) == Some(ino)
            && get(number as u64).is_some_and(|open| open.ino == ino && !open.is_path_only())
    };
    let end = END.load(Ordering::Relaxed).min(LOOKED_AT) as usize;
    let of_guest = |open: &(u32, Option<Descriptor>)| open.1.is_some_and(|open| open.ino == ino);
    (0..end).any(is_it) || overlay().is_some_and(|overlay| overlay.iter().any(of_guest))
}

/// Returns whether the kernel has only a placeholder at a number.
pub(crate) fn is_placeholder(number: u64) -> bool {
    get(number).is_some_and(|descriptor| !descriptor.is_path_only())
}

/// Gives a number its meaning.
pub(crate) fn set(number: i32, descriptor: Descriptor) {
    if let Some(overlay) = overlay() {
        overlay.retain(|(other, _)| *other != number as u32);
        overlay.push((number as u32, Some(descriptor)));
        return;
    }
    let at = number as usize;
    FACTS[at].store(descriptor.facts(), Ordering::Relaxed);
    FILES[at].store(descriptor.file.number(), Ordering::Release);
    END.fetch_max(number as u32 + 1, Ordering::Relaxed);
    watch(number as u32);
}

/// Notes whether a number stays open over exec.
pub(crate) fn set_on_exec(number: u64, stays: bool) {
    let at = number as u32 as usize;
    if at < COUNT && !guest::has_own_table() && get(number).is_some() {
        let facts = FACTS[at].load(Ordering::Relaxed) & !ON_EXEC | ON_EXEC_KNOWN;
        let stays = if stays { ON_EXEC } else { 0 };
        FACTS[at].store(facts | stays, Ordering::Relaxed);
    }
}

/// Returns whether a number stays open over exec, if that is known.
pub(crate) fn on_exec(number: u64) -> Option<bool> {
    let facts = FACTS.get(number as u32 as usize)?.load(Ordering::Relaxed);
    (facts & ON_EXEC_KNOWN != 0).then_some(facts & ON_EXEC != 0)
}

/// Lets the entry check a number that is no descriptor of the pool.
pub(crate) fn watch(number: u32) {
    let at = number as usize;
    OURS[at / 32].fetch_or(1 << (at % 32), Ordering::AcqRel);
}

pub(crate) fn watch_no_more(number: u32) {
    let at = number as usize;
    if !is_kept(number.into()) {
        OURS[at / 32].fetch_and(!(1 << (at % 32)), Ordering::AcqRel);
    }
}

/// Takes a number's meaning away.
pub(crate) fn remove(number: u64) -> Option<Descriptor> {
    let found = get(number)?;
    let at = number as u32 as usize;
    if let Some(overlay) = overlay() {
        overlay.retain(|(other, _)| *other as usize != at);
        overlay.push((at as u32, None));
        return Some(found);
    }
    watch_no_more(at as u32);
    // If two threads close the same number, one of them gets it.
    let file = FILES[at].swap(0, Ordering::AcqRel);
    (file == found.file.number()).then_some(found)
}

/// All descriptors of the pool in this process or guest.
pub(crate) fn all() -> Vec<(i32, Descriptor)> {
    let seen = overlay().map(|overlay| {
        overlay
            .iter()
            .map(|(number, _)| *number)
            .collect::<Vec<_>>()
    });
    let seen = seen.unwrap_or_default();
    let end = seen.iter().map(|number| number + 1).max().unwrap_or(0);
    let end = end.max(END.load(Ordering::Relaxed));
    (0..end)
        .filter_map(|number| Some((number as i32, get(number.into())?)))
        .collect()
}

/// Returns whether there are none.
pub(crate) fn none() -> bool {
    overlay().is_none()
        && (0..END.load(Ordering::Relaxed) as usize)
            .all(|at| FILES[at].load(Ordering::Relaxed) == 0)
}

/// The lowest number of this library's own descriptors.
static FLOOR: AtomicI32 = AtomicI32::new(i32::MAX);
/// The lowest number of this library's own descriptors; `i32::MAX` before it has any.
pub(crate) fn floor() -> i32 {
    FLOOR.load(Ordering::Acquire)
}

/// The lowest of this library's own numbers before the program lowered its limit; some are still
/// there.
pub(super) static FLOOR_BEFORE: AtomicI32 = AtomicI32::new(i32::MAX);

pub(super) fn range_from(floor: i32) -> std::ops::Range<u32> {
    match floor {
        i32::MAX => 0..0,
        floor => floor as u32..floor as u32 + OWN as u32,
    }
}

/// Returns whether a number is in the range of this library's own; most of them are free.
pub(super) fn is_kept(number: u64) -> bool {
    let before = range_from(FLOOR_BEFORE.load(Ordering::Acquire));
    let number = number as u32;
    range_from(floor()).contains(&number) || before.contains(&number)
}

/// Chooses this library's own numbers, at the top of the limit.
pub(crate) fn choose_floor() -> i32 {
    let mut limit = [0u64; 2];
    let at = limit.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the kernel fills a struct rlimit: two words.
    unsafe {
        kernel::call(
            libc::SYS_getrlimit,
            [libc::RLIMIT_NOFILE as u64, at, 0, 0, 0, 0],
        )
    };
    let top = std::hint::black_box(limit)[0].min(OWN_END);
    let known = floor();
    if known != i32::MAX && (known as u64) < top {
        return known;
    }
    let chosen = top.saturating_sub(OWN) as i32;
    FLOOR_BEFORE.store(known, Ordering::Release);
    for number in chosen as usize..(chosen as usize + OWN as usize).min(COUNT) {
        watch(number as u32);
    }
    FLOOR.store(chosen, Ordering::Release);
    chosen
}

/// The descriptor in the kernel's answer.
pub(crate) fn number(answer: i64) -> Result<i32, i32> {
    if answer < 0 {
        Err(-answer as i32)
    } else {
        Ok(answer as i32)
    }
}
