//! System calls of the library, made directly, with the kernel's results (-errno).

use std::arch::asm;

/// Makes a system call.
///
/// # Safety
/// The rules of that call: the kernel reads and writes the memory that its pointers point to.
#[inline]
pub(crate) unsafe fn call(number: i64, args: [u64; 6]) -> i64 {
    let answer;
    // SAFETY: the kernel keeps all registers but these; the rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Makes a call that neither reads nor writes memory of this process.
pub(crate) fn plain(number: i64, args: &[u64]) -> i64 {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    // SAFETY: callers name calls on numbers alone (descriptors, signals, flags).
    unsafe { call(number, all) }
}

/// Makes a call whose only pointer is a path, ended by NUL.
pub(crate) fn with_path(number: i64, args: [u64; 6], path: &[u8]) -> i64 {
    assert!(path.ends_with(&[0]), "a path for the kernel ends with NUL");
    let mut all = args;
    for arg in &mut all {
        if *arg == PATH {
            *arg = path.as_ptr().expose_provenance() as u64;
        }
    }
    // SAFETY: the kernel reads the path up to its NUL.
    unsafe { call(number, all) }
}

/// The stand-in for the path's address in [`with_path`].
pub(crate) const PATH: u64 = 0x5041_5448_5041_5448;

/// This thread's number.
pub(crate) fn thread() -> u32 {
    plain(libc::SYS_gettid, &[]) as u32
}

/// This process's number.
pub(crate) fn process() -> u32 {
    plain(libc::SYS_getpid, &[]) as u32
}

/// Maps fresh memory; `None` if there is none.
pub(crate) fn map(bytes: usize, flags: i32) -> Option<*mut u8> {
    map_at(0, bytes, flags)
}

/// Maps fresh memory ([`map`]) at that address if it is free; 0: at any address.
pub(crate) fn map_at(wish: usize, bytes: usize, flags: i32) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags) as u64;
    // SAFETY: a new anonymous mapping where there was none.
    let at = unsafe {
        call(
            libc::SYS_mmap,
            [wish as u64, bytes as u64, protection, flags, u64::MAX, 0],
        )
    };
    (at > 0).then(|| std::ptr::with_exposed_provenance_mut(at as usize))
}

/// Device and inode at a path, which ends with NUL.
pub(crate) fn file_of(path: &[u8]) -> Option<(u64, u64)> {
    status(path, libc::AT_FDCWD as u64, 0).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Device and inode of the file at a descriptor.
pub(crate) fn file_at(number: u32) -> Option<(u64, u64)> {
    let stat = status(b"\0", number.into(), libc::AT_EMPTY_PATH as u64)?;
    Some((stat.st_dev, stat.st_ino))
}

/// The identity (pmem's `Identity`) of the file at a descriptor.
pub(crate) fn pool_at(number: u32) -> Option<(u64, u64)> {
    let stat = status(b"\0", number.into(), libc::AT_EMPTY_PATH as u64)?;
    let device = stat.st_mode & libc::S_IFMT == libc::S_IFCHR;
    let dev = if device { stat.st_rdev } else { stat.st_dev };
    Some((dev, stat.st_ino))
}

fn status(path: &[u8], dirfd: u64, flags: u64) -> Option<libc::stat> {
    // SAFETY: a structure of numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let at = (&raw mut stat).expose_provenance() as u64;
    let answer = with_path(libc::SYS_newfstatat, [dirfd, PATH, at, flags, 0, 0], path);
    let stat = std::hint::black_box(stat);
    (answer == 0).then_some(stat)
}

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}
