//! Calls that mean a file as such, of whose content the library knows nothing. The mount's
//! descriptor replaces the pool's for the time of the call. Without a mount they are refused: on a
//! placeholder the call would succeed and mean nothing.

use libc::{ENOSYS, EOPNOTSUPP};

use crate::call::class::{PROMOTES, numbers};
use crate::call::{Answer, Verdict, kernel_answer};
use crate::descriptors;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::own::kernel;
use crate::own::mountless;
use crate::program;
use crate::thread::descriptor::Descriptor;

/// Returns whether a call is promoted.
#[inline(always)]
pub(crate) fn is(number: i64) -> bool {
    PROMOTES[number as usize] != 0
}

/// The open file or directory of the pool at a number, if the kernel has only a placeholder there.
fn ours(number: u64) -> Option<Descriptor> {
    descriptors::get(number).filter(|file| !file.is_path_only())
}

/// Executes the call with the mount's descriptors in place of the pool's.
pub(crate) fn serve(number: i64, args: [u64; 6]) -> Verdict {
    let which = PROMOTES[number as usize];
    // This argument of fsconfig(2) is a descriptor with FSCONFIG_SET_PATH, _SET_PATH_EMPTY and
    // _SET_FD alone.
    let has = number != libc::SYS_fsconfig || (3..=5).contains(&args[1]);
    let which: Vec<usize> = (0..args.len())
        .filter(|at| which >> at & 1 == 1 && has && ours(args[*at]).is_some())
        .collect();
    if which.is_empty() {
        return Verdict::Pass;
    }
    if mountless::is() {
        let attributes = [numbers::SYS_file_getattr, numbers::SYS_file_setattr];
        let handles = [libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at];
        // A file system without these calls gives this error.
        let known = attributes.iter().chain(&handles).any(|it| *it == number);
        return Err(if known { EOPNOTSUPP } else { ENOSYS }).into();
    }
    with_mounts(args, &which, |args| {
        // SAFETY: the program's own call, with other descriptors.
        kernel_answer(unsafe { kernel::call(number, args) })
    })
    .into()
}

fn with_mounts(
    mut args: [u64; 6],
    which: &[usize],
    call: impl FnOnce([u64; 6]) -> Answer,
) -> Answer {
    let _lent = spare::lend();
    let mut opened = Vec::with_capacity(which.len());
    let mut open = || {
        for at in which {
            let file = ours(args[*at]).ok_or(libc::EBADF)?;
            args[*at] = promote::open(&file)? as u64;
            opened.push(args[*at]);
        }
        Ok(())
    };
    let answer = open().and_then(|()| call(args));
    for number in opened {
        kernel::plain(libc::SYS_close, &[number]);
    }
    answer
}

/// Requests to devices that carry a file, such as `losetup` of a file of the pool.
pub(crate) fn ioctl(args: [u64; 6]) -> Option<Verdict> {
    const LOOP_SET_FD: u64 = 0x4c00;
    const LOOP_CHANGE_FD: u64 = 0x4c06;
    const LOOP_CONFIGURE: u64 = 0x4c0a;
    /// struct loop_config, which begins with the descriptor.
    const BYTES: usize = 304;
    if descriptors::get(args[0]).is_some() {
        return None;
    }
    let number = match args[1] {
        LOOP_SET_FD | LOOP_CHANGE_FD => args[2],
        LOOP_CONFIGURE => program::read::<u32>(args[2]).ok()?.into(),
        _ => return None,
    };
    let file = ours(number)?;
    if mountless::is() {
        return Some(Err(EOPNOTSUPP).into());
    }
    let request = || {
        let mut config = [0u8; BYTES];
        if args[1] == LOOP_CONFIGURE {
            program::read_bytes(args[2], &mut config)?;
        }
        let _lent = spare::lend();
        let through = promote::open(&file)?;
        config[..4].copy_from_slice(&through.to_le_bytes());
        let argument = match args[1] {
            LOOP_CONFIGURE => config.as_ptr().expose_provenance() as u64,
            _ => through as u64,
        };
        let args = [args[0], args[1], argument, 0, 0, 0];
        // SAFETY: the program's own request, with a copy of its structure, which stays
        // until it is over.
        let answer = kernel_answer(unsafe { kernel::call(libc::SYS_ioctl, args) });
        kernel::plain(libc::SYS_close, &[through as u64]);
        answer
    };
    Some(request().into())
}

/// Serves landlock_add_rule(2) for a directory of the pool.
pub(crate) fn landlock_rule(args: [u64; 6]) -> Verdict {
    const PATH_BENEATH: u64 = 1;
    /// struct landlock_path_beneath_attr, packed: u64 of rights, then the descriptor.
    const BYTES: usize = 12;
    let mut rule = [0u8; BYTES];
    if args[1] != PATH_BENEATH || program::read_bytes(args[2], &mut rule).is_err() {
        return Verdict::Pass;
    }
    let number = u32::from_le_bytes([rule[8], rule[9], rule[10], rule[11]]);
    let Some(parent) = ours(number.into()) else {
        return Verdict::Pass;
    };
    if mountless::is() {
        return Err(EOPNOTSUPP).into();
    }
    let mut add = || {
        let _lent = spare::lend();
        let through = promote::open(&parent)?;
        rule[8..].copy_from_slice(&through.to_le_bytes());
        let at = rule.as_ptr().expose_provenance() as u64;
        let args = [args[0], args[1], at, args[3], 0, 0];
        // SAFETY: the program's own call, with a copy of its rule, which stays until it is over.
        let answer = kernel_answer(unsafe { kernel::call(libc::SYS_landlock_add_rule, args) });
        kernel::plain(libc::SYS_close, &[through as u64]);
        answer
    };
    add().into()
}

/// Serves kcmp(2). The kernel does not know which of the pool's descriptors are one open file, so
/// the call fails, and programs manage without it.
pub(crate) fn compare(args: [u64; 6]) -> Verdict {
    const FILE: u64 = 0;
    const EPOLL_TARGET: u64 = 7;
    let own = u64::from(kernel::process());
    let is_own = |process: u64, number: u64| process == own && ours(number).is_some();
    match args[2] {
        FILE if is_own(args[0], args[3]) || is_own(args[1], args[4]) => Err(ENOSYS).into(),
        EPOLL_TARGET if is_own(args[0], args[3]) => Err(ENOSYS).into(),
        _ => Verdict::Pass,
    }
}
