//! Retirement of the library: open files become the mount's, names are left to the kernel, and so
//! is every later call. This happens before a program gives up something that the library needs:
//! system calls (seccomp), paths (Landlock), or the pool (another user).

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{AT_EACCESS, AT_FDCWD, R_OK, W_OK};

use crate::call::Call;
use crate::descriptors;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::maps;
use crate::names;
use crate::names::cwd;
use crate::own::config;
use crate::own::kernel::{self, PATH};
use crate::own::log;
use crate::own::stats;
use crate::program;
use crate::program::credentials;
use crate::thread::Inner;
use crate::thread::gate;

static RETIRED: AtomicBool = AtomicBool::new(false);

/// Returns whether calls go to the kernel: all but those about signals, whose handlers stay behind
/// ours, and those that take our completions.
#[inline]
pub(crate) fn passes(number: i64, completions_are_out: impl Fn() -> bool) -> bool {
    // A fork, for one, concerns mappings that still exist.
    RETIRED.load(Ordering::Relaxed) && !maps::any() && !is_still_ours(number, completions_are_out)
}

fn is_still_ours(number: i64, completions_are_out: impl Fn() -> bool) -> bool {
    match number {
        libc::SYS_rt_sigaction
        | libc::SYS_rt_sigprocmask
        | libc::SYS_sigaltstack
        | libc::SYS_execve
        | libc::SYS_execveat => true,
        libc::SYS_io_getevents => completions_are_out(),
        _ => false,
    }
}

pub(crate) fn is_retired() -> bool {
    RETIRED.load(Ordering::Relaxed)
}

/// Returns whether a call that may need retirement does.
pub(crate) fn is_due(call: &Call) -> bool {
    const PR_SET_SECCOMP: u64 = 22;
    let [first, second, third, ..] = call.args;
    let same = u64::from(u32::MAX);
    match call.rax as i64 {
        libc::SYS_seccomp => first <= 1,
        libc::SYS_prctl => first == PR_SET_SECCOMP,
        libc::SYS_landlock_restrict_self => true,
        // Only a final change counts: a program that can return to its user keeps the pool.
        libc::SYS_setuid => is_stranger(first),
        libc::SYS_setreuid => first & same != same && first != 0 && is_stranger(second),
        libc::SYS_setresuid => {
            first & same != same
                && first != 0
                && third & same != same
                && third != 0
                && is_stranger(second)
        }
        _ => false,
    }
}

/// Returns whether anything of the pool is open, which nobody could take over without a mount.
pub(crate) fn has_something(room: &Inner) -> bool {
    maps::any() || cwd::file(room).is_some() || !descriptors::none()
}

/// Returns whether the kernel would install the filter, as far as it can be read.
pub(crate) fn would_filter(call: &Call) -> bool {
    const FILTER: u64 = 1;
    const PRCTL_FILTER: u64 = 2;
    let [first, second, third, ..] = call.args;
    let has_filter = match call.rax as i64 {
        libc::SYS_seccomp => first == FILTER,
        libc::SYS_prctl => second == PRCTL_FILTER,
        _ => false,
    };
    !has_filter || program::read::<[u64; 2]>(third).is_ok()
}

/// Returns whether this program may use the pool and that user may not.
fn is_stranger(uid: u64) -> bool {
    let uid = u64::from(uid as u32);
    if uid == 0 || uid == u64::from(u32::MAX) {
        return false;
    }
    let pool = [config::get().pool.as_slice(), b"\0"].concat();
    let want = (R_OK | W_OK) as u64;
    let args = [AT_FDCWD as u64, PATH, want, AT_EACCESS as u64, 0, 0];
    credentials::as_user(uid, || {
        kernel::with_path(libc::SYS_faccessat2, args, &pool) < 0
    })
}

/// Retires the library. A guest can't, because the library is its parent's.
pub(crate) fn retire(room: &Inner) {
    if room.guest_of.is_some() || is_retired() {
        return;
    }
    let alone = gate::close();
    if is_retired() {
        // Another thread retired it while this one waited.
        if alone {
            gate::open();
        }
        return;
    }
    promote::all(&descriptors::all());
    spare::end();
    names::leave_to_kernel();
    RETIRED.store(true, Ordering::Relaxed);
    log::line(format_args!("the mount serves this process from now on"));
    stats::flush(pool::attached());
    // Mappings stay, and the slot with them, until the process's memory is gone.
    if alone && descriptors::none() && !maps::any() {
        pool::leave();
    }
    if alone {
        gate::open();
    }
}
