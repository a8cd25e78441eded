//! mmap, munmap, mprotect, mremap, msync and madvise, as far as they concern the pool's blocks.

use std::sync::MutexGuard;

use libc::{
    EACCES, EFAULT, EINVAL, ENOMEM, MAP_FIXED, MAP_LOCKED, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED,
    MAP_SHARED_VALIDATE, MAP_TYPE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_WRITE,
};
use pmfs::{BlockRun, FallocateMode, Fs};

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::descriptors::pool;
use crate::descriptors::spare;
use crate::maps::apart;
use crate::maps::mapped_size;
use crate::maps::place::{self, How, PAGE};
use crate::maps::shown::{any, table};
use crate::maps::stretch::Stretch;
use crate::maps::table::{Table, let_go};
use crate::own::kernel;
use crate::own::mountless::{self, Refused};
use crate::program::copies;
use crate::thread::descriptor::Descriptor;

/// The most pieces of a mapping; more are left to the mount. A process may have 65,530.
const RUNS_MAX: usize = 4096;

const WRITE: u64 = PROT_WRITE as u64;

/// A program's arguments to mmap(2).
struct Wish {
    at: u64,
    bytes: u64,
    protection: u64,
    flags: u64,
    offset: u64,
    shared: bool,
    writes: bool,
    /// Its stores are kept until msync.
    apart: bool,
}

impl Wish {
    fn of(file: &Descriptor, args: [u64; 6]) -> Result<Wish, i32> {
        let [at, bytes, protection, flags, _, offset] = args;
        let kind = flags & MAP_TYPE as u64;
        let shared = kind == MAP_SHARED as u64 || kind == MAP_SHARED_VALIDATE as u64;
        if bytes == 0 || !offset.is_multiple_of(PAGE) || !shared && kind != MAP_PRIVATE as u64 {
            return Err(EINVAL);
        }
        let apart = apart::wanted(shared && file.writes());
        if kind == MAP_SHARED_VALIDATE as u64 {
            allow_validated(flags, apart)?;
        }
        let stores = shared && protection & WRITE != 0;
        if !file.reads() || stores && !file.writes() {
            return Err(EACCES);
        }
        let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(ENOMEM)?;
        if offset
            .checked_add(bytes)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(libc::EOVERFLOW);
        }
        Ok(Wish {
            at,
            bytes,
            protection,
            flags,
            offset,
            shared,
            writes: shared && file.writes(),
            apart,
        })
    }

    /// Returns whether a medium with large pages can serve it: shared memory of whole pages.
    fn suits_medium(&self) -> bool {
        place::page() == PAGE
            || self.shared && !self.apart && place::are_whole(&[self.at, self.bytes, self.offset])
    }

    /// The flags that ask for all of it at once.
    fn more(&self) -> u64 {
        self.flags & (MAP_POPULATE | MAP_LOCKED) as u64
    }

    /// The stretch that it becomes at `start`; nothing of it is shown yet.
    fn as_stretch(&self, file: &Descriptor, start: u64, lazy: bool) -> Stretch {
        Stretch {
            start,
            end: start + self.bytes,
            ino: file.ino,
            at: self.offset,
            shown: 0,
            protection: self.protection,
            shared: self.shared,
            writes: self.writes,
            apart: self.apart,
            lazy,
        }
    }
}

/// Checks the flags of MAP_SHARED_VALIDATE, of which unknown ones are refused. Known are the old
/// ones, and MAP_SYNC where stores are durable once the program has flushed them.
///
/// # Errors
/// EOPNOTSUPP.
fn allow_validated(flags: u64, apart: bool) -> Result<(), i32> {
    /// LEGACY_MAP_MASK of linux/mman.h. It has only two of the sizes of large pages.
    const KNOWN: i32 = MAP_TYPE
        | MAP_FIXED
        | libc::MAP_ANONYMOUS
        | libc::MAP_DENYWRITE
        | libc::MAP_EXECUTABLE
        | libc::MAP_GROWSDOWN
        | MAP_LOCKED
        | libc::MAP_NORESERVE
        | MAP_POPULATE
        | libc::MAP_NONBLOCK
        | libc::MAP_STACK
        | libc::MAP_HUGETLB
        | libc::MAP_32BIT
        | ABOVE_4G
        | libc::MAP_HUGE_2MB
        | libc::MAP_HUGE_1GB;
    const ABOVE_4G: i32 = 0x80;
    let sync = match place::is_synchronous() && !apart {
        true => libc::MAP_SYNC,
        false => 0,
    };
    match flags & !((KNOWN | sync) as u32 as u64) {
        0 => Ok(()),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// Maps a file of the pool; `None` leaves the call to the mount.
pub(crate) fn mmap(file: &Descriptor, args: [u64; 6]) -> Result<Option<u64>, i32> {
    let wish = Wish::of(file, args)?;
    let fs = pool::get().ok_or(libc::EIO)?;
    if !wish.suits_medium() {
        return if wish.apart {
            Err(libc::ENODEV)
        } else {
            Ok(None)
        };
    }
    let mut table = table();
    let first = !table.shows(file.ino);
    if first {
        fs.hold(file.ino).map_err(errno)?;
    }
    let pinned = if wish.apart {
        // A second private copy of a page would not see the first.
        match table.shows_part(file.ino, wish.offset, wish.bytes) {
            true => Err(pmfs::Error::Mapped),
            false => fs.pin_apart(file.ino),
        }
    } else {
        fs.pin(file.ino, wish.writes)
    };
    let runs = pinned.and_then(|()| runs_of(fs, file, &wish));
    let mapped = match runs {
        Ok((runs, lazy)) if runs.len() <= RUNS_MAX && place::fits(wish.bytes, &runs) => {
            put(&mut table, file, &wish, (&runs, lazy))
        }
        // The pages of a mount would reach the file at any time.
        _ if wish.apart || table.is_apart(file.ino) => Err(libc::ENODEV),
        _ => Ok(None),
    };
    if first && !table.shows(file.ino) {
        let_go(file.ino);
    }
    mapped
}

/// The runs of the file that can be mapped, and whether the holes get memory when they are touched.
/// Those of shared memory do, unless they are small or all of it is wanted at once.
fn runs_of(fs: &Fs, file: &Descriptor, wish: &Wish) -> Result<(Vec<BlockRun>, bool), pmfs::Error> {
    let all = wish.as_stretch(file, 0, false);
    let may_be_lazy = all.may_be_lazy();
    let at_once = match may_be_lazy && wish.more() != 0 {
        true => fs.statfs()?.blocks_free * PAGE,
        false => all.at_once(),
    };
    match fs.blocks(file.ino, wish.offset, wish.bytes, at_once) {
        Err(pmfs::Error::NoSpace) if may_be_lazy => {
            let there = fs.blocks_there(file.ino, wish.offset, wish.bytes)?;
            Ok((there, true))
        }
        runs => Ok((runs?, false)),
    }
}

fn put(
    table: &mut Table,
    file: &Descriptor,
    wish: &Wish,
    (runs, lazy): (&[BlockRun], bool),
) -> Result<Option<u64>, i32> {
    // The longest of several runs decides: a file that grew by large pages began with small ones.
    // Large pieces of a hole will lie in the pool as they do in the file.
    let longest = runs.iter().max_by_key(|run| run.len);
    let first = longest.map(|run| run.off.wrapping_sub(run.at - wish.offset));
    let first = first.or(lazy.then_some(wish.offset));
    let start = place::reserve(wish.at, wish.bytes, wish.flags, first)?;
    // MAP_FIXED replaces the earlier mapping.
    let replaced = table.take(start, start + wish.bytes);
    replaced.iter().for_each(Stretch::touch);
    let shown = runs.last().map_or(0, |run| run.at + run.len - wish.offset);
    let shown = shown.min(wish.bytes);
    let how = How {
        protection: wish.protection,
        shared: wish.shared && !wish.apart,
        more: wish.more(),
    };
    let behind = if lazy { 0 } else { shown };
    let empty = match wish.bytes - behind {
        0 => Ok(start),
        rest => place::nothing(start + behind, rest, wish.protection),
    };
    let placed = empty.and_then(|_| place::blocks(start, (wish.offset, wish.bytes), runs, &how));
    if placed.is_err() {
        if wish.flags & MAP_FIXED as u64 == 0 {
            place::remove(start, wish.bytes);
        }
        table.let_go(&replaced);
        return Ok(None);
    }
    let mut all = wish.as_stretch(file, start, lazy);
    all.shown = shown;
    table.add_all(all, runs);
    table.let_go(&replaced);
    mapped_size::note(file.ino);
    Ok(Some(start))
}

/// Maps private memory with a copy of the file, where the pool's blocks can't be mapped and there
/// is no mount.
///
/// # Errors
/// ENODEV: shared memory.
pub(crate) fn copied(file: &Descriptor, args: [u64; 6]) -> Answer {
    if args[3] & MAP_TYPE as u64 != MAP_PRIVATE as u64 {
        return Err(mountless::refuse(Refused::Mapping, libc::ENODEV));
    }
    let fs = pool::get().ok_or(libc::EIO)?;
    // The length is rounded to whole pages, as by the kernel; a touch behind the file's end is
    // SIGBUS.
    let bytes = args[1].checked_next_multiple_of(PAGE).ok_or(ENOMEM)?;
    let _lent = spare::lend();
    let part = (args[5], bytes);
    let copy = spare::retry(|| copies::of(fs, file.ino, part, b"pmfs-mapped\0"))?;
    let changed = [args[0], args[1], args[2], args[3], copy.0, 0];
    match mmap_of_others(changed) {
        Verdict::Done(rax) => Verdict::answer(rax),
        _ => by_kernel(libc::SYS_mmap, changed),
    }
}

/// Lets the kernel execute the program's own call.
pub(super) fn by_kernel(number: i64, args: [u64; 6]) -> Answer {
    // SAFETY: the program's own call on its own addresses.
    kernel_answer(unsafe { kernel::call(number, args) })
}

/// The end of a range of addresses, as the kernel rounds it.
pub(super) fn end_of(at: u64, bytes: u64) -> u64 {
    at.saturating_add(bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

/// The table and the first addresses of a call, if any of them show a file of the pool.
fn ours(args: [u64; 6]) -> Option<(MutexGuard<'static, Table>, (u64, u64))> {
    if !any() {
        return None;
    }
    let (start, end) = (args[0], end_of(args[0], args[1]));
    let table = table();
    let met = table.overlaps(start, end);
    met.then_some((table, (start, end)))
}

/// Serves mmap(2) of other files and of memory, which may replace a mapping of the pool.
pub(crate) fn mmap_of_others(args: [u64; 6]) -> Verdict {
    let has = |flag: i32| args[3] & flag as u64 != 0;
    if has(MAP_FIXED) {
        return unmap(libc::SYS_mmap, args);
    }
    match args[0] == 0 && has(libc::MAP_GROWSDOWN) && has(libc::MAP_ANONYMOUS) {
        true => with_room_below(args),
        false => Verdict::Pass,
    }
}

/// The most bytes of a stack that grows by itself, as for a first thread.
const GROWS_MAX: u64 = 16 << 20;

/// Serves mmap(2) of memory that grows downwards. The gaps between this library's mappings may be
/// too small to grow in, so an address with room is requested.
fn with_room_below(args: [u64; 6]) -> Verdict {
    let Some(bytes) = args[1].checked_add(GROWS_MAX) else {
        return Verdict::Pass;
    };
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    let Ok(room) = by_kernel(libc::SYS_mmap, [0, bytes, 0, flags, u64::MAX, 0]) else {
        return Verdict::Pass;
    };
    kernel::plain(libc::SYS_munmap, &[room, bytes]);
    let [_, rest @ ..] = args;
    let [bytes, protection, flags, file, offset] = rest;
    let wish = room + GROWS_MAX;
    let args = [wish, bytes, protection, flags, file, offset];
    Verdict::done(by_kernel(libc::SYS_mmap, args))
}

/// Returns whether the loader may be mapping code that must be patched.
pub(crate) fn may_be_loading(args: [u64; 6]) -> bool {
    args[2] & libc::PROT_EXEC as u64 != 0
        && args[3] & libc::MAP_ANONYMOUS as u64 == 0
        && !crate::own::config::get().others.is_empty()
}

/// Serves mmap(2) of such code by the kernel.
pub(crate) fn load(args: [u64; 6]) -> Answer {
    let at = by_kernel(libc::SYS_mmap, args)?;
    crate::stubs::patch::loaded(args[4], at as usize, args[5]);
    Ok(at)
}

/// Serves munmap(2) and other calls that remove the mappings of a range.
pub(crate) fn unmap(number: i64, args: [u64; 6]) -> Verdict {
    unmap_range(number, args, (args[0], end_of(args[0], args[1])))
}

/// Serves such a call for these addresses, which the call names in its own way.
pub(super) fn unmap_range(number: i64, args: [u64; 6], (start, end): (u64, u64)) -> Verdict {
    if !any() {
        return Verdict::Pass;
    }
    let mut table = table();
    if !table.overlaps(start, end) {
        return Verdict::Pass;
    }
    table.within(start, end).for_each(Stretch::touch);
    let answer = by_kernel(number, args);
    if answer.is_ok() {
        let taken = table.take(start, end);
        table.let_go(&taken);
    }
    Verdict::done(answer)
}

/// Serves mprotect(2) and pkey_mprotect(2).
pub(crate) fn change_protection(number: i64, args: [u64; 6]) -> Verdict {
    let Some((mut table, (start, end))) = ours(args) else {
        return Verdict::Pass;
    };
    let refused = |stretch: &Stretch| stretch.shared && !stretch.writes;
    if args[2] & WRITE != 0 && table.within(start, end).any(refused) {
        return Verdict::done(Err(EACCES));
    }
    let answer = by_kernel(number, args);
    if answer.is_ok() {
        for mut stretch in table.take(start, end) {
            stretch.protection = args[2];
            table.add(stretch);
        }
    }
    Verdict::done(answer)
}

/// Serves mremap(2).
pub(crate) fn move_mapping(args: [u64; 6]) -> Verdict {
    if !any() {
        return Verdict::Pass;
    }
    let [old, old_bytes, bytes, flags, to, _] = args;
    let mut table = table();
    let (end, fixed) = (end_of(old, old_bytes), flags & MREMAP_FIXED as u64 != 0);
    if !table.overlaps(old, end) {
        let target = (to, end_of(to, bytes));
        if !fixed || !table.overlaps(target.0, target.1) {
            return Verdict::Pass;
        }
        let answer = by_kernel(libc::SYS_mremap, args);
        if answer.is_ok() {
            let taken = table.take(target.0, target.1);
            table.let_go(&taken);
        }
        return Verdict::done(answer);
    }
    // A length of 0 asks for a second mapping of shared memory.
    let again = old_bytes == 0;
    let looked = if again { old + PAGE } else { end };
    let Some(stretch) = table.whole(old, looked) else {
        return Verdict::done(Err(EFAULT));
    };
    let Some(bytes) = bytes
        .checked_next_multiple_of(PAGE)
        .filter(|&bytes| bytes > 0)
    else {
        return Verdict::done(Err(EINVAL));
    };
    let target = fixed.then_some(to);
    let all = [old, end, bytes, target.unwrap_or(0)];
    let may_move = flags & MREMAP_MAYMOVE as u64 != 0;
    let stays = flags & MREMAP_DONTUNMAP != 0;
    let known = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64 | MREMAP_DONTUNMAP;
    let new_end = target.map_or(Some(0), |to| to.checked_add(bytes));
    let meets_itself =
        target.is_some_and(|to| to < end && new_end.is_some_and(|new_end| new_end > old));
    if flags & !known != 0
        || (fixed || stays || again) && !may_move
        || stays && bytes != end - old
        || again && !stretch.shared
        || !old.is_multiple_of(PAGE)
        || new_end.is_none()
        || meets_itself
        || !place::are_whole(&all)
    {
        return Verdict::done(Err(EINVAL));
    }
    if again || stays && stretch.shared {
        let answer = map_again(table, &stretch, old, (bytes, target));
        return Verdict::done(answer);
    }
    if stays {
        return Verdict::done(move_and_stay(&mut table, stretch, (old, end), target));
    }
    Verdict::done(resize(
        &mut table,
        stretch,
        (old, end),
        bytes,
        (may_move, target),
    ))
}

/// Flag of mremap(2): the old mapping stays too.
const MREMAP_DONTUNMAP: u64 = 4;

/// Maps the file that is shown at an address a second time.
fn map_again(
    table: MutexGuard<'static, Table>,
    stretch: &Stretch,
    old: u64,
    (bytes, target): (u64, Option<u64>),
) -> Answer {
    let at = stretch.at + (old - stretch.start);
    let file = stretch.as_file();
    // The inner call locks the table itself. The file stays shown meanwhile, unless another thread
    // of the program unmaps it, which is a race of the program's own.
    drop(table);
    let fixed = target.map_or(0, |_| MAP_FIXED);
    let flags = (MAP_SHARED | fixed) as u64;
    let wish = [
        target.unwrap_or(0),
        bytes,
        stretch.protection,
        flags,
        u64::MAX,
        at,
    ];
    mmap(&file, wish)?.ok_or(ENOMEM)
}

/// Moves private memory, and lets its old addresses show the file again.
fn move_and_stay(
    table: &mut Table,
    stretch: Stretch,
    (old, end): (u64, u64),
    target: Option<u64>,
) -> Answer {
    let (before, bytes) = (stretch.part(old, end), end - old);
    let to = match target {
        Some(to) => to,
        None => place::reserve(0, bytes, 0, None)?,
    };
    let moved = resize(table, stretch, (old, end), bytes, (true, Some(to)))?;
    let flags = libc::MAP_FIXED_NOREPLACE as u64;
    if place::reserve(old, bytes, flags, None) == Ok(old) {
        place::nothing(old, bytes, before.protection)?;
        let mut again = Stretch { shown: 0, ..before };
        again.follow();
        table.add(again);
    }
    Ok(moved)
}

/// Changes the length of a part of a stretch, and perhaps its place.
fn resize(
    table: &mut Table,
    stretch: Stretch,
    (old, end): (u64, u64),
    bytes: u64,
    (may_move, target): (bool, Option<u64>),
) -> Answer {
    let now = end - old;
    if target.is_none() && bytes <= now {
        place::remove(old + bytes, now - bytes);
        let taken = table.take(old + bytes, end);
        table.let_go(&taken);
        return Ok(old);
    }
    let at = stretch.at + (old - stretch.start);
    let grown = Stretch {
        start: old,
        end: old + bytes,
        at,
        shown: stretch.shown.saturating_sub(old - stretch.start).min(now),
        ..stretch
    };
    if target.is_none() && grow_in_place(table, (old, end), &grown)? {
        return Ok(old);
    }
    if !may_move {
        return Err(ENOMEM);
    }
    let flags = if target.is_some() {
        MAP_FIXED as u64
    } else {
        0
    };
    let start = place::reserve(target.unwrap_or(0), bytes, flags, None)?;
    let covered = table.take(start, start + bytes);
    place::nothing(start, bytes, grown.protection)?;
    if grown.shared && !grown.apart {
        // The same blocks are mapped anew.
        place::remove(old, now);
        let moved = Stretch {
            start,
            end: start + bytes,
            shown: 0,
            ..grown
        };
        let at = replace(table, (old, end), moved);
        table.let_go(&covered);
        return Ok(at);
    }
    let moved = move_private(&grown, (old, now), (start, bytes));
    if moved.is_ok() {
        let there = Stretch {
            start,
            end: start + bytes,
            shown: grown.shown.min(bytes),
            ..grown
        };
        replace(table, (old, end), there);
    } else {
        place::remove(start, bytes);
    }
    table.let_go(&covered);
    moved
}

/// Extends the mapping at these addresses in place. Returns `false` if another mapping follows.
fn grow_in_place(table: &mut Table, (old, end): (u64, u64), grown: &Stretch) -> Result<bool, i32> {
    let flags = libc::MAP_FIXED_NOREPLACE as u64;
    let more = grown.end - end;
    if place::reserve(end, more, flags, None) != Ok(end) {
        return Ok(false);
    }
    place::nothing(end, more, grown.protection)?;
    if grown.lazy {
        table.add(grown.part(end, grown.end));
    } else {
        replace(table, (old, end), grown.clone());
    }
    Ok(true)
}

/// Moves pages that may be private copies, piece by piece as the blocks lie.
fn move_private(stretch: &Stretch, (old, now): (u64, u64), (start, bytes): (u64, u64)) -> Answer {
    let fs = pool::attached().ok_or(libc::EIO)?;
    let shown = stretch.shown.min(bytes);
    let runs = fs
        .blocks(stretch.ino, stretch.at, shown, 0)
        .map_err(errno)?;
    let how = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64;
    for run in runs {
        let before = run.at - stretch.at;
        let len = run.len.min(shown - before);
        let args = [old + before, len, len, how, start + before, 0];
        by_kernel(libc::SYS_mremap, args)?;
    }
    // The part behind the end of the file, and the holes between the pieces.
    place::remove(old, now);
    Ok(start)
}

/// Puts one stretch at these addresses in place of the old ones, and shows all that it can.
fn replace(table: &mut Table, (start, end): (u64, u64), mut with: Stretch) -> u64 {
    let taken = table.take(start, end);
    let at = with.start;
    if with.lazy {
        let fs = pool::attached();
        let runs = fs.and_then(|fs| fs.blocks_there(with.ino, with.at, with.len()).ok());
        let runs = runs.unwrap_or_default();
        let placed = place::blocks(at, (with.at, with.len()), &runs, &with.how());
        table.add_all(with, if placed.is_ok() { &runs } else { &[] });
    } else {
        with.follow();
        table.add(with);
    }
    table.let_go(&taken);
    at
}

/// msync(2).
pub(crate) fn sync(args: [u64; 6]) -> Verdict {
    let Some((table, (start, end))) = ours(args) else {
        return Verdict::Pass;
    };
    let sync = || {
        let fs = pool::attached().ok_or(libc::EIO)?;
        let checked = match by_kernel(libc::SYS_msync, args) {
            Err(EINVAL) if fs.mapping().medium().kind == pmem::MediumKind::DevDax => {
                checked_msync(args)
            }
            answer => answer,
        }?;
        let wanted = (libc::MS_SYNC | libc::MS_ASYNC) as u64;
        if args[2] & wanted != 0 {
            sync_apart(&table, start, end)?;
            let shares = |stretch: &&Stretch| stretch.writes && !stretch.apart;
            for stretch in table.within(start, end).filter(shares) {
                let part = stretch.part(stretch.start.max(start), stretch.end.min(end));
                let all = table.stored_to(stretch.ino);
                fs.flush_stored(stretch.ino, &part.as_shown(), &all)
                    .map_err(errno)?;
            }
        }
        Ok(checked)
    };
    Verdict::done(sync())
}

/// Checks an msync by the kernel, which can't do it for a DAX device, where nothing has to be
/// written: its answer on the range and the flags counts.
fn checked_msync(mut args: [u64; 6]) -> Answer {
    const SYNC: u64 = libc::MS_SYNC as u64;
    const ASYNC: u64 = libc::MS_ASYNC as u64;
    if args[2] & ASYNC == 0 {
        args[2] = args[2] & !SYNC | ASYNC;
    }
    by_kernel(libc::SYS_msync, args)
}

/// Hands over the stores that were kept between two addresses, those of each file at once.
fn sync_apart(table: &Table, start: u64, end: u64) -> Result<(), i32> {
    let parts = table.within(start, end).filter(|stretch| stretch.apart);
    let mut parts: Vec<Stretch> = parts
        .map(|stretch| stretch.part(stretch.start.max(start), stretch.end.min(end)))
        .collect();
    parts.sort_by_key(|part| part.ino);
    for of_one in parts.chunk_by(|one, next| one.ino == next.ino) {
        apart::sync(of_one)?;
    }
    Ok(())
}

/// The bytes of its file that a stretch shows between two addresses.
fn bytes_of(stretch: &Stretch, start: u64, end: u64) -> (u64, u64) {
    let (from, to) = (stretch.start.max(start), stretch.end.min(end));
    (stretch.at + (from - stretch.start), to - from)
}

/// Serves madvise(2): some advice has another meaning here, and the kernel can't populate holes.
pub(crate) fn advise(args: [u64; 6]) -> Verdict {
    let served = [
        libc::MADV_REMOVE,
        libc::MADV_POPULATE_READ,
        libc::MADV_POPULATE_WRITE,
        libc::MADV_DOFORK,
        libc::MADV_DONTNEED,
        MADV_DONTNEED_LOCKED,
    ];
    let advice = args[2] as i32;
    if !served.contains(&advice) {
        return Verdict::Pass;
    }
    let Some((mut table, (start, end))) = ours(args) else {
        return Verdict::Pass;
    };
    match advice {
        libc::MADV_REMOVE => Verdict::done(punch(&table, (start, end), args)),
        libc::MADV_DOFORK => {
            let answer = by_kernel(libc::SYS_madvise, args);
            // A child that is forked without the library has no pin, before and after.
            table.for_children_between(start, end, false);
            Verdict::done(answer)
        }
        // Stores that wait for msync are shared stores for the program, and stay.
        libc::MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
            let kept = table.within(start, end).any(|stretch| stretch.apart);
            match kept && start.is_multiple_of(PAGE) {
                true => Verdict::done(drop_around(&table, (start, end), advice)),
                false => Verdict::Pass,
            }
        }
        _ => {
            table.fill_between(start, end);
            Verdict::Pass
        }
    }
}

const MADV_DONTNEED_LOCKED: i32 = 24;

/// Executes MADV_DONTNEED, except for stores that wait for an msync.
fn drop_around(table: &Table, (start, end): (u64, u64), advice: i32) -> Answer {
    let drop = |from: u64, to: u64| match to > from {
        true => by_kernel(libc::SYS_madvise, [from, to - from, advice as u64, 0, 0, 0]),
        false => Ok(0),
    };
    let mut from = start;
    for kept in table.within(start, end).filter(|stretch| stretch.apart) {
        drop(from, kept.start)?;
        from = kept.end;
    }
    drop(from, end)
}

/// Executes MADV_REMOVE.
fn punch(table: &Table, (start, end): (u64, u64), args: [u64; 6]) -> Answer {
    if !args[0].is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    let punch = |fs: &Fs| {
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        for stretch in table.within(start, end) {
            if !stretch.writes {
                return Err(if stretch.shared { EACCES } else { EINVAL });
            }
            let (at, len) = bytes_of(stretch, start, end);
            let from = stretch.start + (at - stretch.at);
            // The kernel does not age locked pages, and refuses nothing else here with this error.
            let aged = [from, len, libc::MADV_COLD as u64, 0, 0, 0];
            if by_kernel(libc::SYS_madvise, aged) == Err(EINVAL) {
                return Err(EINVAL);
            }
            fs.fallocate(stretch.ino, mode, at, len).map_err(errno)?;
            if stretch.apart {
                // The copies of stored pages are dropped too.
                let args = [from, len, libc::MADV_DONTNEED as u64, 0, 0, 0];
                by_kernel(libc::SYS_madvise, args)?;
            }
        }
        Ok(0)
    };
    pool::attached().ok_or(libc::EIO).and_then(punch)
}
