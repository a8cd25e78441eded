//! Calls on addresses that few programs make. The kernel would execute a call on an address of the
//! pool at an offset of the pool's file, of which the program knows nothing. So each call is
//! served, or passed because it does no harm, or refused.
//!
//! Passed, because they change how memory is provided and not its content: mbind,
//! set_mempolicy_home_node, move_pages, migrate_pages, mincore, munlock, get_mempolicy, userfaultfd
//! (the program may store to the memory that it fills), map_shadow_stack (never over another
//! mapping), process_vm_readv and process_vm_writev, futexes. Calls that lock are in `locked`;
//! io_uring is refused when it is set up.

use libc::{EINVAL, ENOMEM, ENOSYS, MAP_FIXED, MAP_SHARED};

use crate::call::{Answer, Call, Verdict};
use crate::descriptors::spare;
use crate::maps::calls::{advise, by_kernel, end_of, mmap, unmap_range};
use crate::maps::place::PAGE;
use crate::maps::shown::{any, table};
use crate::own::kernel;
use crate::program;

/// The most vectors that the kernel takes.
const VECTORS_MAX: u64 = 1024;

/// Returns whether any of these addresses show a file of the pool.
fn meets(at: u64, bytes: u64) -> bool {
    any() && table().overlaps(at, end_of(at, bytes))
}

/// Serves remap_file_pages(2): other bytes of the file that is mapped there.
pub(crate) fn remap(args: [u64; 6]) -> Verdict {
    let [at, bytes, protection, page, ..] = args;
    let (at, bytes) = (at / PAGE * PAGE, bytes / PAGE * PAGE);
    if !meets(at, bytes) {
        return Verdict::Pass;
    }
    let remapped = || {
        let whole = table().whole(at, at.checked_add(bytes).ok_or(EINVAL)?);
        let stretch = whole.filter(|stretch| stretch.shared).ok_or(EINVAL)?;
        if protection != 0 || bytes == 0 {
            return Err(EINVAL);
        }
        let file = stretch.as_file();
        let offset = page.checked_mul(PAGE).ok_or(EINVAL)?;
        let flags = (MAP_SHARED | MAP_FIXED) as u64;
        let wish = [at, bytes, stretch.protection, flags, u64::MAX, offset];
        // Pages of the mount beside the pool's own would be another copy of the file.
        mmap(&file, wish)?.map(|_| 0).ok_or(ENOMEM)
    };
    Verdict::done(remapped())
}

/// Refuses mseal(2): the library could no longer unmap blocks that the file has given up.
pub(crate) fn seal(args: [u64; 6]) -> Verdict {
    match meets(args[0], args[1]) {
        true => Verdict::done(Err(ENOSYS)),
        false => Verdict::Pass,
    }
}

/// Serves shmat(2), which may replace a mapping of the pool.
pub(crate) fn attach_segment(args: [u64; 6]) -> Verdict {
    /// The words of struct shmid64_ds, and the one with the segment's bytes.
    const WORDS: usize = 14;
    const BYTES: usize = 6;
    let [segment, at, flags, ..] = args;
    if flags & libc::SHM_REMAP as u64 == 0 || !any() {
        return Verdict::Pass;
    }
    let mut about = [0u64; WORDS];
    let to = about.as_mut_ptr().expose_provenance() as u64;
    let asked = [segment, libc::IPC_STAT as u64, to, 0, 0, 0];
    // SAFETY: the kernel fills the structure.
    let known = unsafe { kernel::call(libc::SYS_shmctl, asked) } == 0;
    let at = match flags & libc::SHM_RND as u64 {
        0 => at,
        _ => at / PAGE * PAGE,
    };
    let bytes = std::hint::black_box(about)[BYTES];
    if !known || !meets(at, bytes) {
        return Verdict::Pass;
    }
    unmap_range(libc::SYS_shmat, args, (at, end_of(at, bytes)))
}

/// The vectors of a call.
fn vectors(at: u64, count: u64) -> Result<Vec<[u64; 2]>, i32> {
    if count > VECTORS_MAX {
        return Err(EINVAL);
    }
    let vector = |index| program::read::<[u64; 2]>(at.wrapping_add(index * 16));
    (0..count).map(vector).collect()
}

/// Serves vmsplice(2) into a pipe with a copy: the pool's own pages would stay in the pipe after
/// another file has got them.
pub(crate) fn give_to_pipe(call: &mut Call) -> Verdict {
    const RWF_NOWAIT: u64 = 8;
    if !any() {
        return Verdict::Pass;
    }
    let [pipe, at, count, flags, ..] = call.args;
    let ours = vectors(at, count)
        .is_ok_and(|all| all.iter().any(|&[address, bytes]| meets(address, bytes)));
    let access = kernel::plain(libc::SYS_fcntl, &[pipe, libc::F_GETFL as u64]);
    let gives = access >= 0 && access & i64::from(libc::O_ACCMODE) == i64::from(libc::O_WRONLY);
    if !ours || !gives {
        return Verdict::Pass;
    }
    let waits = flags & u64::from(libc::SPLICE_F_NONBLOCK) == 0;
    // pwritev2 writes at the pipe's own place.
    call.rax = libc::SYS_pwritev2 as u64;
    call.args = [
        pipe,
        at,
        count,
        u64::MAX,
        u64::MAX,
        if waits { 0 } else { RWF_NOWAIT },
    ];
    Verdict::Pass
}

/// Serves process_madvise(2) of this process's own memory, as madvise for each vector.
pub(crate) fn advise_by_vectors(args: [u64; 6]) -> Verdict {
    let [process, at, count, advice, flags, _] = args;
    if !any() || flags != 0 || !is_this_process(process) {
        return Verdict::Pass;
    }
    let Ok(all) = vectors(at, count) else {
        return Verdict::Pass;
    };
    if !all.iter().any(|&[address, bytes]| meets(address, bytes)) {
        return Verdict::Pass;
    }
    let one = |[address, bytes]: [u64; 2]| -> Answer {
        let args = [address, bytes, advice, 0, 0, 0];
        match advise(args) {
            Verdict::Done(rax) => Verdict::answer(rax),
            _ => by_kernel(libc::SYS_madvise, args),
        }
    };
    let mut done = 0;
    for vector in all {
        match one(vector) {
            Ok(_) => done += vector[1],
            Err(_) if done > 0 => break,
            Err(errno) => return Verdict::done(Err(errno)),
        }
    }
    Verdict::done(Ok(done))
}

/// Returns whether a descriptor of a process stands for this process.
fn is_this_process(process: u64) -> bool {
    /// PIDFD_SELF_THREAD_GROUP and PIDFD_SELF_THREAD.
    const SELF: std::ops::RangeInclusive<i32> = -10001..=-10000;
    if SELF.contains(&(process as i32)) {
        return true;
    }
    let pid = spare::text_of(&format!("/proc/self/fdinfo/{}", process as i32));
    let pid = pid.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse().ok()) == Some(kernel::process())
}
