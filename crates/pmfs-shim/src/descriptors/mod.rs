//! Which of the program's descriptors are open files of the pool.
//!
//! Each is a descriptor of the kernel's too, so that dup, close-on-exec, poll, fork and exec keep
//! their meaning: a *placeholder*, a duplicate of one description of a sealed, empty memory file,
//! open for writing. Whoever reaches it past this library is told so: reading gives EBADF, writing
//! EPERM (docs/adr/0045-placeholders.md).

pub(crate) mod kept;
pub(crate) mod mapped_size;
pub(crate) mod pool;
pub(crate) mod promote;

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use pmfs::{FileId, Ino};

use crate::entry::parked;
use crate::own::config;
use crate::own::kernel;
use crate::own::thread;
use crate::own::words::{self, word};

/// Descriptors that can be ours; those above are left to the mount.
pub(crate) const COUNT: usize = 1 << 20;
/// Numbers that are this library's own: at the top of the limit, or of [`OWN_END`].
const OWN: u64 = 16;
/// `pmfs run` puts there what it leaves open (`keeper.rs` of the command). The kernel's table is as long as the highest number in it:
/// 160 KiB for a limit of 20,000, which took most of attaching.
const OWN_END: u64 = 1024;

/// A bit for each number that the entry must not let pass.
pub(crate) static OURS: [AtomicU32; COUNT / 32] = [const { AtomicU32::new(0) }; COUNT / 32];
/// Two words for each: the file's number, and the packed rest.
static FILES: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
static FACTS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
/// One more than the highest number that was ever ours.
static END: AtomicU32 = AtomicU32::new(0);

/// Where these tables are: nearly all of them is never touched.
pub(crate) fn tables() -> [std::ops::Range<u64>; 3] {
    fn of<T>(table: &T) -> std::ops::Range<u64> {
        let start = std::ptr::from_ref(table).expose_provenance() as u64;
        start..start + size_of::<T>() as u64
    }
    [of(&OURS), of(&FILES), of(&FACTS)]
}

const ACCESS_SHIFT: u32 = 32;
const DIRECTORY: u64 = 1 << 34;
const BORROWED: u64 = 1 << 35;
/// Whether it stays open when the process becomes another program; and whether that is known.
const ON_EXEC: u64 = 1 << 36;
const ON_EXEC_KNOWN: u64 = 1 << 37;

/// The access of a directory that was opened with O_PATH: a descriptor of the mount's, which the kernel serves, but for the names that
/// begin there. Without a mount it is a placeholder like others, and stands for whatever was opened so.
pub(crate) const PATH_ONLY: i32 = libc::O_ACCMODE;

/// One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub file: FileId,
    pub ino: Ino,
    /// O_RDONLY, O_WRONLY or O_RDWR; or [`PATH_ONLY`].
    pub access: i32,
    pub is_dir: bool,
    /// Seen by a child that shares its parent's memory: the reference is the parent's.
    pub borrowed: bool,
}

impl Descriptor {
    /// A directory opened with O_PATH.
    pub fn path_only(ino: Ino) -> Descriptor {
        Descriptor {
            // No open file; any number but 0.
            file: FileId::from_number(u64::MAX),
            ino,
            access: PATH_ONLY,
            is_dir: true,
            borrowed: false,
        }
    }

    /// A directory of the kernel's that lists this process's descriptors.
    pub fn list() -> Descriptor {
        Descriptor {
            is_dir: false,
            ..Descriptor::path_only(0)
        }
    }

    pub fn is_list(&self) -> bool {
        self.is_path_only() && !self.is_dir
    }

    /// Opened with O_PATH.
    pub fn has_path_only(&self) -> bool {
        self.access == PATH_ONLY
    }

    /// The kernel's.
    pub fn is_path_only(&self) -> bool {
        self.access == PATH_ONLY && self.file.number() == u64::MAX
    }

    /// Opened with O_PATH, where there is no mount.
    pub fn is_place(&self) -> bool {
        self.access == PATH_ONLY && self.file.number() != u64::MAX
    }

    pub fn reads(&self) -> bool {
        self.access == libc::O_RDONLY || self.access == libc::O_RDWR
    }

    pub fn writes(&self) -> bool {
        self.access == libc::O_WRONLY || self.access == libc::O_RDWR
    }

    fn facts(&self) -> u64 {
        let mut facts = self.ino | (self.access as u64) << ACCESS_SHIFT;
        if self.is_dir {
            facts |= DIRECTORY;
        }
        if self.borrowed {
            facts |= BORROWED;
        }
        facts
    }

    fn of(file: u64, facts: u64) -> Descriptor {
        Descriptor {
            file: FileId::from_number(file),
            ino: facts & 0xffff_ffff,
            access: (facts >> ACCESS_SHIFT & 3) as i32,
            is_dir: facts & DIRECTORY != 0,
            borrowed: facts & BORROWED != 0,
        }
    }
}

/// Whether a call is for what was opened with O_PATH too.
pub(crate) fn serves_place(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_close | libc::SYS_dup | libc::SYS_fcntl | libc::SYS_fstat | libc::SYS_fstatfs
    )
}

/// How a child that shares its parent's memory sees other descriptors than the parent.
pub(crate) type Overlay = Vec<(u32, Option<Descriptor>)>;

/// Whether this is a child that shares its parent's memory.
pub(crate) fn is_guest() -> bool {
    overlay().is_some()
}

fn overlay() -> Option<&'static mut Overlay> {
    if words::get(word::STACK) == 0 {
        // Before this thread's first call.
        return None;
    }
    // SAFETY: only this thread uses its room, and no two references to the overlay live at a time: each is used within a
    // function of this file.
    unsafe { (*thread::room()).overlay.as_mut() }
}

/// What the program knows by this number, if it is ours.
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

/// The inode that stood behind a number just now, for who may be mistaken.
#[inline]
pub(crate) fn likely_inode(number: u64) -> Option<Ino> {
    let facts = FACTS.get(number as u32 as usize)?.load(Ordering::Relaxed);
    Some(Descriptor::of(0, facts).ino)
}

/// As [`get`], but only what stands for an inode of the pool.
pub(crate) fn inode_at(number: u64) -> Option<Descriptor> {
    get(number).filter(|descriptor| !descriptor.is_list())
}

/// Whether the kernel knows nothing of what stands behind a number.
pub(crate) fn is_placeholder(number: u64) -> bool {
    get(number).is_some_and(|descriptor| !descriptor.is_path_only())
}

/// Gives a number a meaning.
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

/// Says whether a number of ours stays open when the process becomes another program.
pub(crate) fn set_on_exec(number: u64, stays: bool) {
    let at = number as u32 as usize;
    if at < COUNT && !is_guest() && get(number).is_some() {
        let facts = FACTS[at].load(Ordering::Relaxed) & !ON_EXEC | ON_EXEC_KNOWN;
        let stays = if stays { ON_EXEC } else { 0 };
        FACTS[at].store(facts | stays, Ordering::Relaxed);
    }
}

/// Whether it does, if that is known.
pub(crate) fn on_exec(number: u64) -> Option<bool> {
    let facts = FACTS.get(number as u32 as usize)?.load(Ordering::Relaxed);
    (facts & ON_EXEC_KNOWN != 0).then_some(facts & ON_EXEC != 0)
}

/// A number that is none of ours, and must not pass the entry either.
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

/// Takes its meaning away.
pub(crate) fn remove(number: u64) -> Option<Descriptor> {
    let found = get(number)?;
    let at = number as u32 as usize;
    if let Some(overlay) = overlay() {
        overlay.retain(|(other, _)| *other as usize != at);
        overlay.push((at as u32, None));
        return Some(found);
    }
    watch_no_more(at as u32);
    // Of two that close the same number one has it.
    let file = FILES[at].swap(0, Ordering::AcqRel);
    (file == found.file.number()).then_some(found)
}

/// All that this process, or this child, has.
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

/// Whether there is none.
pub(crate) fn none() -> bool {
    overlay().is_none()
        && (0..END.load(Ordering::Relaxed) as usize)
            .all(|at| FILES[at].load(Ordering::Relaxed) == 0)
}

/// The lowest number of this library's own descriptors.
static FLOOR: AtomicI32 = AtomicI32::new(i32::MAX);
/// The description of which placeholders are duplicates.
static ANCHOR: AtomicI32 = AtomicI32::new(-1);

/// Where this library keeps its own descriptors; `i32::MAX` before it has any.
pub(crate) fn floor() -> i32 {
    FLOOR.load(Ordering::Acquire)
}

/// Where they were before the program lowered its limit: some are there still.
static FLOOR_BEFORE: AtomicI32 = AtomicI32::new(i32::MAX);

fn range_from(floor: i32) -> std::ops::Range<u32> {
    match floor {
        i32::MAX => 0..0,
        floor => floor as u32..floor as u32 + OWN as u32,
    }
}

/// Whether a number is among those that this library keeps its own at: most of them are free.
fn is_kept(number: u64) -> bool {
    let before = range_from(FLOOR_BEFORE.load(Ordering::Acquire));
    let number = number as u32;
    range_from(floor()).contains(&number) || before.contains(&number)
}

/// Whether a number is this library's own: for the program it is not open.
pub(crate) fn is_own(number: u64) -> bool {
    is_kept(number) && is_own_among_kept(number)
}

/// The program may have come as far up itself: what the kernel has there tells.
#[cold]
fn is_own_among_kept(number: u64) -> bool {
    let number = number as u32;
    if FILES[number as usize].load(Ordering::Acquire) != 0 {
        return false;
    }
    if ANCHOR.load(Ordering::Acquire) == number as i32
        || config::get().keeper == Some(number)
        || config::get().is_image(number)
        || promote::is_root(number)
        || kept::has(number)
        || pool::attached().is_some_and(|fs| fs.watches_by(number as i32))
    {
        return true;
    }
    let pool = [config::get().pool.as_slice(), b"\0"].concat();
    let here = kernel::file_of(&pool);
    here.is_some() && here == kernel::file_at(number)
}

/// Numbers that this library's own may have, in order.
pub(crate) fn kept() -> impl Iterator<Item = u32> {
    // A limit that was lowered: the later ones are the lower.
    range_from(floor()).chain(range_from(FLOOR_BEFORE.load(Ordering::Acquire)))
}

/// Chooses the numbers for this library's own, at the top of the limit.
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

/// A new placeholder, with the lowest number from `from` on.
///
/// # Errors
/// As `fcntl(2)`: EMFILE.
pub(crate) fn placeholder(from: u64, on_exec: bool) -> Result<i32, i32> {
    if from == 0
        && let Some(parked) = parked::take(on_exec)
    {
        return Ok(parked);
    }
    parked::settle();
    let command = if on_exec {
        libc::F_DUPFD
    } else {
        libc::F_DUPFD_CLOEXEC
    };
    let mut anchor = anchor()?;
    let copy = |anchor| kernel::plain(libc::SYS_fcntl, &[anchor as u64, command as u64, from]);
    let mut answer = copy(anchor);
    if answer == -i64::from(libc::EBADF) && is_guest() {
        // The parent's other threads have made theirs since.
        anchor = make_anchor()?;
        answer = copy(anchor);
    }
    if ANCHOR.load(Ordering::Relaxed) != anchor {
        kernel::plain(libc::SYS_close, &[anchor as u64]);
    }
    if answer >= COUNT as i64 {
        kernel::plain(libc::SYS_close, &[answer as u64]);
        return Err(libc::EMFILE);
    }
    let made = number(answer)?;
    if from == 0 {
        parked::made(made);
    }
    Ok(made)
}

/// What the kernel answered, as a descriptor.
pub(crate) fn number(answer: i64) -> Result<i32, i32> {
    if answer < 0 {
        Err(-answer as i32)
    } else {
        Ok(answer as i32)
    }
}

/// A guest that is the first to need one makes it for this time alone: its number means nothing in the parent.
fn anchor() -> Result<i32, i32> {
    let known = ANCHOR.load(Ordering::Acquire);
    if known >= 0 {
        return Ok(known);
    }
    let made = make_anchor()?;
    if is_guest() {
        return Ok(made);
    }
    match ANCHOR.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made),
        Err(other) => {
            kernel::plain(libc::SYS_close, &[made as u64]);
            Ok(other)
        }
    }
}

#[cold]
fn make_anchor() -> Result<i32, i32> {
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    let file = kernel::with_path(
        libc::SYS_memfd_create,
        [kernel::PATH, flags, 0, 0, 0, 0],
        b"pmfs\0",
    );
    let file = number(file)? as u64;
    let own = format!("/proc/self/fd/{file}\0");
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as u64;
    let here = libc::AT_FDCWD as u64;
    let writer = kernel::with_path(
        libc::SYS_openat,
        [here, kernel::PATH, flags, 0, 0, 0],
        own.as_bytes(),
    );
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    kernel::plain(
        libc::SYS_fcntl,
        &[file, libc::F_ADD_SEALS as u64, seals as u64],
    );
    kernel::plain(libc::SYS_fchmod, &[file, 0]);
    kernel::plain(libc::SYS_close, &[file]);
    let writer = number(writer)? as u64;
    let high = kernel::plain(
        libc::SYS_fcntl,
        &[writer, libc::F_DUPFD_CLOEXEC as u64, choose_floor() as u64],
    );
    kernel::plain(libc::SYS_close, &[writer]);
    number(high)
}
