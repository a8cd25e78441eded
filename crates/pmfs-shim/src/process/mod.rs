//! The process as such: fork, threads, its end, its identity.

pub(crate) mod exec;
pub(crate) mod programs;
pub(crate) mod retire;
pub(crate) mod target;
pub(crate) mod vfork;

use crate::call::{Call, Verdict, errno};
use crate::descriptors;
use crate::descriptors::parked;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::maps;
use crate::names;
use crate::names::cwd;
use crate::own::kernel;
use crate::own::log;
use crate::own::mountless::{self, Refused};
use crate::own::stats;
use crate::own::words::{self, word};
use crate::program;
use crate::program::credentials;
use crate::program::limits;
use crate::program::umask;
use crate::thread::gate;
use crate::thread::guest;
use crate::thread::{self, Inner};

/// Serves calls about the process.
pub(crate) fn serve(call: &mut Call, room: &mut Inner) -> Verdict {
    let args = call.args;
    match call.rax as i64 {
        libc::SYS_umask => {
            let before = kernel::plain(libc::SYS_umask, &args[..1]);
            umask::set(args[0] as u32 & 0o777);
            Verdict::done(Ok(before as u64))
        }
        libc::SYS_setrlimit | libc::SYS_prlimit64 => {
            let changed = limits::change(call);
            if limits::sets(call, libc::RLIMIT_NOFILE) {
                spare::renew();
            }
            changed
        }
        libc::SYS_fork => fork(0, call, room),
        libc::SYS_vfork => vfork::begin(0, room),
        libc::SYS_clone => clone(args[0], call, room),
        libc::SYS_clone3 => match program::read::<u64>(args[0]) {
            Ok(flags) => clone(flags, call, room),
            Err(_) => Verdict::Pass,
        },
        libc::SYS_execve => exec::execve(args, room),
        libc::SYS_execveat => exec::execveat(args, room),
        libc::SYS_exit_group => {
            // The gate stays closed: no thread begins a call any more. A pool that other threads
            // still use is left as by a killed process.
            if room.guest_of.is_none() && (pool::attached().is_none() || gate::close()) {
                stats::flush(pool::attached());
                if maps::leave() {
                    pool::leave();
                }
            }
            Verdict::Pass
        }
        libc::SYS_chroot | libc::SYS_setns | libc::SYS_unshare => other_world(call),
        libc::SYS_prctl | libc::SYS_seccomp | libc::SYS_landlock_restrict_self => {
            if retire::is_due(call) {
                if mountless::is() && retire::has_something(room) {
                    if !retire::would_filter(call) {
                        return Verdict::Pass;
                    }
                    let errno = mountless::refuse(Refused::Filter, libc::EOPNOTSUPP);
                    return Verdict::done(Err(errno));
                }
                retire::retire(room);
            }
            Verdict::Pass
        }
        // The process may have another user afterwards.
        _ => {
            if retire::is_due(call) && !mountless::is() {
                retire::retire(room);
            }
            // SAFETY: the program's own call, as it made it.
            let answer = unsafe { kernel::call(call.rax as i64, args) };
            credentials::forget();
            credentials::ids_may_differ(room.guest_of.is_some());
            Verdict::done(crate::call::kernel_answer(answer))
        }
    }
}

/// Serves a change of the root or the mounts: from then on names go to the kernel, and open files
/// are still served.
fn other_world(call: &Call) -> Verdict {
    const NAMES: u64 = (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) as u64;
    let number = call.rax as i64;
    if number == libc::SYS_unshare
        && call.args[0] & libc::CLONE_FILES as u64 != 0
        && let Err(errno) = vfork::leave_table()
    {
        return Verdict::done(Err(errno));
    }
    // Without a mount, other mounts do not change the meaning of names.
    if number == libc::SYS_unshare && (call.args[0] & NAMES == 0 || mountless::is()) {
        return Verdict::Pass;
    }
    promote::keep_root();
    // SAFETY: the program's own call, as it made it.
    let answer = unsafe { kernel::call(number, call.args) };
    if answer == 0 {
        match guest::own_place() {
            Some(own) => names::leave_to_kernel_for_guest(own),
            None => names::leave_to_kernel(),
        }
    }
    Verdict::done(crate::call::kernel_answer(answer))
}

fn clone(flags: u64, call: &mut Call, room: &mut Inner) -> Verdict {
    let has = |flag: i32| flags & flag as u64 != 0;
    if has(libc::CLONE_FILES) || has(libc::CLONE_VM) && !has(libc::CLONE_VFORK) {
        parked::end_for_good();
    }
    if has(libc::CLONE_VM) && has(libc::CLONE_VFORK) {
        return vfork::begin(flags, room);
    }
    if has(libc::CLONE_FILES) != has(libc::CLONE_VM)
        && let Err(errno) = vfork::part(room)
    {
        return Verdict::done(Err(errno));
    }
    if has(libc::CLONE_VM) {
        return Verdict::Pass;
    }
    fork(flags, call, room)
}

/// Makes a child with memory of its own. The child attaches before it runs the program's code.
fn fork(flags: u64, call: &mut Call, room: &mut Inner) -> Verdict {
    let alone = gate::close();
    let lent = spare::lend();
    let prepare = |fs: &pmfs::Fs| spare::retry(|| fs.before_fork().map_err(errno));
    let mut prepared = match pool::attached() {
        Some(fs) if maps::any() => match prepare(fs) {
            Ok(prepared) => Some(prepared),
            // The child would have memory of the pool without a pin.
            Err(_) => {
                if alone {
                    gate::open();
                }
                return Verdict::done(Err(libc::EAGAIN));
            }
        },
        Some(fs) if !descriptors::none() || cwd::is_kept() => prepare(fs)
            .inspect_err(|errno| log::line(format_args!("fork: no place for the child ({errno})")))
            .ok(),
        _ => None,
    };
    let mut own = OwnStack::of(call);
    let elsewhere =
        flags & (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) as u64 != 0 && !mountless::is();
    if elsewhere {
        promote::keep_root();
    }
    maps::for_children(true);
    // SAFETY: the program's own call; both return here, each on its own copy of this stack.
    let answer = unsafe { kernel::call(call.rax as i64, own.args) };
    maps::for_children(false);
    if answer == 0 {
        if let Some(top) = own.top.take() {
            words::set(word::PROGRAM_STACK, top);
        }
        in_child(prepared.take(), room);
        if elsewhere {
            names::leave_to_kernel();
        }
    } else if answer < 0
        && let Some(prepared) = prepared.take()
        && let Some(fs) = pool::attached()
    {
        fs.cancel_fork(prepared);
    }
    drop(prepared);
    drop(lent);
    if alone {
        gate::open();
    }
    Verdict::done(crate::call::kernel_answer(answer))
}

/// Words of struct clone_args that are known here.
const CLONE_WORDS: usize = 11;
const STACK: usize = 5;
const STACK_BYTES: usize = 6;

/// A clone's arguments without the child's stack: the child begins here, on a copy of our stack,
/// and changes to its own on leaving.
struct OwnStack {
    args: [u64; 6],
    /// The words that clone3 reads in place of the program's structure.
    _words: Box<[u64; CLONE_WORDS]>,
    top: Option<u64>,
}

impl OwnStack {
    fn of(call: &Call) -> OwnStack {
        let mut args = call.args;
        let mut words = Box::new([0; CLONE_WORDS]);
        let mut top = None;
        match call.rax as i64 {
            libc::SYS_clone if args[1] != 0 => {
                top = Some(args[1]);
                args[1] = 0;
            }
            libc::SYS_clone3 if args[1] as usize <= size_of_val(&*words) => {
                let count = args[1] as usize / 8;
                let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut words[..count]);
                if program::read_bytes(args[0], bytes).is_ok()
                    && words[STACK] != 0
                    && words[STACK_BYTES] != 0
                {
                    top = Some(words[STACK] + words[STACK_BYTES]);
                    words[STACK] = 0;
                    words[STACK_BYTES] = 0;
                    args[0] = words.as_ptr().expose_provenance() as u64;
                }
            }
            _ => {}
        }
        OwnStack {
            args,
            _words: words,
            top,
        }
    }
}

fn in_child(prepared: Option<pmfs::ForFork>, room: &mut Inner) {
    thread::forked();
    stats::forked();
    let was_guest = room.guest_of.is_some();
    vfork::apply_guest(room);
    match (prepared, pool::attached()) {
        (Some(prepared), Some(fs)) => {
            if let Err(error) = fs.after_fork_in_child(prepared) {
                crate::own::log::line(format_args!("after fork: {error}"));
            }
        }
        _ => {
            maps::forget();
            pool::forget();
        }
    }
    if was_guest {
        spare::find_again();
    }
}
