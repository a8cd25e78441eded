//! A child that shares its parent's memory until it ends or becomes another program (vfork, posix_spawn): a *guest*. The kernel has given it
//! descriptors, a working directory, signals' handlers, a mask and limits of its own; what this library knows of those stands in memory that is the
//! parent's too. So a guest notes what it has otherwise in the room that it shares with the parent's thread, which forgets it all when it runs again.
//!
//! A guest is an owner of POSIX locks of its own, as any process is. It attaches nothing, for the attachment's descriptors would be in its table
//! and their numbers in the parent's memory: with a mount that serves it, and without one its parent attaches before.

use crate::call::Verdict;
use crate::descriptors::pool;
use crate::descriptors::{self, Overlay};
use crate::names::cwd;
use crate::own::kernel;
use crate::own::mountless;
use crate::own::thread::{self, Inner};
use crate::own::words::{self, GUEST, word};
use crate::process;
use crate::process::exec;
use crate::process::retire;
use crate::program::credentials;
use crate::program::limits;
use pmfs::{FileId, LockClass, LockOwner};

/// What a guest has otherwise than its parent, beside descriptors, directory, and handlers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Its number; 0: it has not made a call yet.
    number: u32,
    /// Umask, root and directory are its parent's (CLONE_FS).
    shares_place: bool,
    /// As [`process::umask`] has it.
    pub umask: u32,
    /// Absolute names are the kernel's (chroot).
    pub is_elsewhere: bool,
    /// The mount's root directory, kept before that; -1: not.
    pub root: i32,
    /// It has asked for POSIX locks.
    has_locks: bool,
    /// The parent's alternate signal stack.
    signal_stack: [u64; 2],
}

impl Own {
    fn as_owner(&self) -> LockOwner {
        LockOwner {
            class: LockClass::Posix,
            id: self.number.into(),
        }
    }
}

/// What this guest has; `None`: this is none.
pub(crate) fn own() -> Option<&'static mut Own> {
    if words::get(word::STACK) == 0 {
        // Before this thread's first call.
        return None;
    }
    // SAFETY: only this thread uses its room, and no two references to this part of it live at a time: each is used within one
    // expression.
    unsafe { (*thread::room()).guest.as_mut() }
}

/// The same, of a guest whose umask and root are not its parent's.
pub(crate) fn own_place() -> Option<&'static mut Own> {
    own().filter(|own| !own.shares_place)
}

/// This process as an owner of POSIX locks.
const PROCESS: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

/// This process, or this guest, as an owner of POSIX locks. Who shares the table of descriptors shares these, too.
pub(crate) fn lock_owner() -> LockOwner {
    if !descriptors::is_guest() {
        return PROCESS;
    }
    own().map_or(PROCESS, |own| own.as_owner())
}

/// It is about to lock something.
pub(crate) fn locks() {
    own().into_iter().for_each(|own| own.has_locks = true);
}

/// The guest of which the next program inherits; `None`: this is none. Locks that it shares with its parent stay that one's: it is
/// nobody by its own number then.
pub(crate) fn heir() -> Option<LockOwner> {
    own().map(|own| own.as_owner())
}

/// vfork and its like: the next call on this thread is the guest's, or the parent's again.
pub(crate) fn begin(flags: u64, room: &mut Inner) -> Verdict {
    let has = |flag: i32| flags & flag as u64 != 0;
    if room.guest_of.is_none() {
        let shares_table = has(libc::CLONE_FILES);
        if mountless::is() && !shares_table {
            // If it can't be had, the guest finds nothing either.
            let _ = pool::get();
        }
        room.guest_of = Some(kernel::thread());
        room.overlay = (!shares_table).then(Overlay::new);
        room.guest_cwd = (!has(libc::CLONE_FS)).then(cwd::word);
        room.guest = Some(Own {
            number: 0,
            shares_place: has(libc::CLONE_FS),
            umask: process::known_umask(),
            is_elsewhere: false,
            root: -1,
            has_locks: false,
            signal_stack: room.signal_stack,
        });
    }
    words::set(word::AFTERWARDS, GUEST);
    Verdict::Pass
}

/// At the start of each call: whether it is the parent's again.
#[inline(always)]
pub(crate) fn note(room: &mut Inner, killed_inside: bool) {
    if let Some(parent) = room.guest_of {
        note_guest(room, parent, killed_inside);
    }
}

/// Apart from the others' calls, whose frames would be larger for it.
#[cold]
#[inline(never)]
fn note_guest(room: &mut Inner, parent: u32, killed_inside: bool) {
    let me = kernel::thread();
    if me != parent {
        words::set(word::AFTERWARDS, GUEST);
        if let Some(own) = &mut room.guest
            && own.number == 0
        {
            own.number = me;
        }
        if room.host.is_none() {
            // It may be killed while it holds something of the pool: that must not look like its parent's.
            room.host = Some(pmem::thread::with(|thread| {
                (thread.tag.replace(0), thread.lane.replace(0))
            }));
        }
        return;
    }
    is_over(room, killed_inside);
}

/// The parent runs again.
fn is_over(room: &mut Inner, killed_inside: bool) {
    crate::MEMORY.guest_is_over();
    process::forget_ids();
    limits::guest_is_over();
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
    let overlay = room.overlay.take();
    exec::forget(room, overlay.is_none());
    let own = room.guest.take();
    credentials::forget();
    room.signal_stack = own.map_or(room.signal_stack, |own| own.signal_stack);
    let Some(fs) = pool::attached() else {
        return;
    };
    if let Some(own) = own
        && own.has_locks
    {
        let _ = fs.end_lock_owner(own.as_owner());
    }
    // What the child opened itself.
    if held != 0 {
        let _ = fs.close_file(FileId::from_number(held));
    }
    for (_, descriptor) in overlay.unwrap_or_default() {
        if let Some(own) = descriptor
            && !own.borrowed
        {
            let _ = fs.close_file(own.file);
        }
    }
}

/// A guest has forked: this process has memory of its own, and what the guest had otherwise is what it has.
pub(crate) fn settle(room: &mut Inner) {
    room.guest_of = None;
    let place = room.guest.take().filter(|own| !own.shares_place);
    if let Some(place) = place {
        process::take_over(&place);
    }
    cwd::settle(room);
    for (number, descriptor) in room.overlay.take().unwrap_or_default() {
        match descriptor {
            Some(descriptor) => descriptors::set(
                number as i32,
                descriptors::Descriptor {
                    borrowed: false,
                    ..descriptor
                },
            ),
            None => drop(descriptors::remove(number.into())),
        }
    }
}

/// Who is about to share a part of this process and not the rest: descriptors without the memory in which it stands whose they are, or
/// the memory without the descriptors. Nothing may be served here then.
///
/// # Errors
/// EOPNOTSUPP where there is no mount to serve them.
pub(crate) fn part(room: &Inner) -> Result<(), i32> {
    if mountless::is() {
        return Err(mountless::refuse(
            mountless::Refused::Part,
            libc::EOPNOTSUPP,
        ));
    }
    retire::retire(room);
    Ok(())
}

/// As [`part`], of a thread that leaves the others' table of descriptors.
pub(crate) fn leave_table() -> Result<(), i32> {
    if own().is_some() || !process::has_threads() {
        return Ok(());
    }
    // SAFETY: this thread's room, which is only read.
    part(unsafe { &*thread::room() })
}
