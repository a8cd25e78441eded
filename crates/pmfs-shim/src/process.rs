//! The process as such: fork, threads, its end, who it is.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::dispatch::Verdict;
use crate::entry::{Call, GUEST, word};
use crate::mountless::Refused;
use crate::thread::Inner;
use crate::{
    credentials, cwd, descriptors, exec, gate, kernel, limits, maps, mountless, names, parked,
    pool, program, promote, retire, stats, thread,
};

/// Calls that are none of the others'.
pub(crate) fn serve(call: &mut Call, room: &mut Inner) -> Verdict {
    let args = call.args;
    match call.rax as i64 {
        libc::SYS_umask => {
            let before = kernel::plain(libc::SYS_umask, &args[..1]);
            UMASK.store(args[0] as u32 & 0o777, Ordering::Relaxed);
            Verdict::done(Ok(before as u64))
        }
        libc::SYS_setrlimit | libc::SYS_prlimit64 => limits::change(call),
        libc::SYS_fork => fork(0, call, room),
        libc::SYS_vfork => guest(room),
        libc::SYS_clone => clone(args[0], call, room),
        libc::SYS_clone3 => match program::read::<u64>(args[0]) {
            Ok(flags) => clone(flags, call, room),
            Err(_) => Verdict::Pass,
        },
        libc::SYS_execve => exec::execve(args, room),
        libc::SYS_execveat => exec::execveat(args, room),
        libc::SYS_exit_group => {
            // The gate stays closed: nobody begins anything any more. A pool that others don't let go is left as
            // by a killed process.
            if room.guest_of.is_none() && (pool::attached().is_none() || gate::close()) {
                stats::flush();
                if maps::leave() {
                    pool::leave();
                }
            }
            Verdict::Pass
        }
        libc::SYS_chroot | libc::SYS_setns | libc::SYS_unshare => other_world(call, room),
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
        // Whoever it is afterwards.
        _ => {
            if retire::is_due(call) && !mountless::is() {
                retire::retire(room);
            }
            // SAFETY: the program's own call, as it made it.
            let answer = unsafe { kernel::call(call.rax as i64, args) };
            credentials::forget();
            IDS_AGREE.store(UNKNOWN, Ordering::Relaxed);
            Verdict::done(crate::calls::kernel_answer(answer))
        }
    }
}

const UNKNOWN: u32 = u32::MAX;

static UMASK: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The process's umask.
pub(crate) fn umask() -> u32 {
    let known = UMASK.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let asked = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    let umask = asked.unwrap_or_else(|| {
        // Without /proc: by setting it, and back.
        let before = kernel::plain(libc::SYS_umask, &[0o077]) as u32;
        kernel::plain(libc::SYS_umask, &[before.into()]);
        before
    });
    UMASK.store(umask, Ordering::Relaxed);
    umask
}

static IDS_AGREE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Whether the real user is the effective one, so that access(2) asks for the same as open.
pub(crate) fn ids_agree() -> bool {
    let known = IDS_AGREE.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    let id = |call| kernel::plain(call, &[]);
    let agree = id(libc::SYS_getuid) == id(libc::SYS_geteuid)
        && id(libc::SYS_getgid) == id(libc::SYS_getegid);
    IDS_AGREE.store(u32::from(agree), Ordering::Relaxed);
    agree
}

/// Another root, or other mounts: names are the kernel's from then on, open files stay ours.
fn other_world(call: &Call, room: &mut Inner) -> Verdict {
    const NAMES: u64 = (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) as u64;
    let number = call.rax as i64;
    // Without a mount no other mounts change what names mean.
    if number == libc::SYS_unshare && (call.args[0] & NAMES == 0 || mountless::is()) {
        return Verdict::Pass;
    }
    if mountless::is()
        && number == libc::SYS_chroot
        && let Some(verdict) = crate::calls::cwd::chroot(room, call.args[0])
    {
        return verdict;
    }
    promote::keep_root();
    names::leave_to_kernel();
    Verdict::Pass
}

fn clone(flags: u64, call: &mut Call, room: &mut Inner) -> Verdict {
    let has = |flag: i32| flags & flag as u64 != 0;
    if has(libc::CLONE_FILES) || has(libc::CLONE_VM) && !has(libc::CLONE_VFORK) {
        parked::end_for_good();
    }
    if !has(libc::CLONE_VM) {
        return fork(flags, call, room);
    }
    if has(libc::CLONE_VFORK) {
        return guest(room);
    }
    Verdict::Pass
}

/// A child that shares our memory until it ends or becomes another program: it sees descriptors of its own over ours.
fn guest(room: &mut Inner) -> Verdict {
    if room.guest_of.is_none() {
        room.guest_of = Some(kernel::thread());
        room.overlay = Some(Vec::new());
        room.guest_cwd = Some(cwd::word());
    }
    thread::set(word::AFTERWARDS, GUEST);
    Verdict::Pass
}

/// At the start of each call: whether it is the parent's again.
pub(crate) fn note_guest(room: &mut Inner, killed_inside: bool) {
    let Some(parent) = room.guest_of else {
        return;
    };
    if kernel::thread() != parent {
        thread::set(word::AFTERWARDS, GUEST);
        if room.host.is_none() {
            // It may be killed while it holds something of the pool: that must not look like its parent's.
            room.host = Some(pmem::thread::with(|thread| {
                (thread.tag.replace(0), thread.lane.replace(0))
            }));
        }
        return;
    }
    crate::MEMORY.guest_is_over();
    credentials::forget();
    room.guest_of = None;
    room.guest_cwd = None;
    let held = std::mem::replace(&mut room.guest_cwd_file, 0);
    room.guest_actions = None;
    if let Some((tag, lane)) = room.host.take() {
        let guests = pmem::thread::with(|thread| {
            thread.lane.set(lane);
            thread.leave_call();
            thread.tag.replace(tag)
        });
        if killed_inside
            && guests != 0
            && let Some(fs) = pool::attached()
        {
            fs.clean_after_thread(guests);
        }
    }
    let overlay = room.overlay.take().unwrap_or_default();
    exec::forget(room);
    // What the child opened itself.
    if held != 0
        && let Some(fs) = pool::attached()
    {
        let _ = fs.close_file(pmfs::FileId::from_number(held));
    }
    for (_, descriptor) in overlay {
        if let Some(own) = descriptor
            && !own.borrowed
            && let Some(fs) = pool::attached()
        {
            let _ = fs.close_file(own.file);
        }
    }
}

/// A child with memory of its own: it is made here, so that it can settle before it runs the program's code.
fn fork(flags: u64, call: &mut Call, room: &mut Inner) -> Verdict {
    let alone = gate::close();
    let prepared = match pool::attached() {
        Some(fs) if maps::any() => match fs.before_fork() {
            Ok(prepared) => Some(prepared),
            // The child would have memory of the pool that is not pinned for it.
            Err(_) => {
                if alone {
                    gate::open();
                }
                return Verdict::done(Err(libc::EAGAIN));
            }
        },
        Some(fs) if !descriptors::none() || cwd::is_kept() => fs.before_fork().ok(),
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
            thread::set(word::PROGRAM_STACK, top);
        }
        in_child(prepared, room);
        if elsewhere {
            names::leave_to_kernel();
        }
    } else if answer < 0
        && let Some(prepared) = prepared
        && let Some(fs) = pool::attached()
    {
        fs.cancel_fork(prepared);
    }
    if alone {
        gate::open();
    }
    Verdict::done(crate::calls::kernel_answer(answer))
}

/// Words of struct clone_args that are known here.
const CLONE_WORDS: usize = 11;
const STACK: usize = 5;
const STACK_BYTES: usize = 6;

/// A clone's arguments without the stack that the child is to have: it begins here, on a copy of ours, and goes to its own on leaving.
struct OwnStack {
    args: [u64; 6],
    /// What clone3 reads instead of the program's own structure.
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
    room.guest_of = None;
    match (prepared, pool::attached()) {
        (Some(prepared), Some(fs)) => {
            if let Err(error) = fs.after_fork_in_child(prepared) {
                crate::log::line(format_args!("after fork: {error}"));
            }
        }
        _ => {
            maps::forget();
            pool::forget();
        }
    }
}
