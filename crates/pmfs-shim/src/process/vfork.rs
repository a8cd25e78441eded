//! A child that shares its parent's memory until it ends or calls exec (vfork, posix_spawn): a
//! *guest*. The kernel gives it descriptors, a working directory, signal handlers, a mask and
//! limits of its own; this library's knowledge of them is in memory that is the parent's too. So a
//! guest notes its differences in the room that it shares with the parent's thread, which forgets
//! all of them when it runs again.
//!
//! A guest owns POSIX locks by itself, like any process. It does not attach: the attachment's
//! descriptors would be in its table and their numbers in the parent's memory. With a mount, the
//! mount serves it; without one its parent attaches before.

use pmfs::FileId;

use crate::call::Verdict;
use crate::descriptors;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::names;
use crate::names::cwd;
use crate::own::kernel;
use crate::own::mountless;
use crate::own::words::{self, GUEST, word};
use crate::process::exec;
use crate::process::retire;
use crate::program::credentials;
use crate::program::limits;
use crate::program::umask;
use crate::thread::descriptor::{Descriptor, Overlay};
use crate::thread::guest;
use crate::thread::{self, Inner, Own};

/// Serves vfork and the like: the next call on this thread is the guest's, or the parent's again.
pub(crate) fn begin(flags: u64, room: &mut Inner) -> Verdict {
    let has = |flag: i32| flags & flag as u64 != 0;
    if room.guest_of.is_none() {
        let shares_table = has(libc::CLONE_FILES);
        if mountless::is() && !shares_table {
            // Without the pool, the guest finds nothing either.
            let _ = pool::get();
        }
        room.guest_of = Some(kernel::thread());
        room.overlay = (!shares_table).then(Overlay::new);
        room.guest_cwd = (!has(libc::CLONE_FS)).then(cwd::word);
        room.guest = Some(Own {
            number: 0,
            shares_place: has(libc::CLONE_FS),
            umask: umask::known(),
            is_elsewhere: false,
            root: -1,
            has_locks: false,
            signal_stack: room.signal_stack,
        });
    }
    words::set(word::AFTERWARDS, GUEST);
    Verdict::Pass
}

/// Finds out at the start of each call whether it is the parent's again.
#[inline(always)]
pub(crate) fn note(room: &mut Inner, killed_inside: bool) {
    if let Some(parent) = room.guest_of {
        note_guest(room, parent, killed_inside);
    }
}

/// This is a separate function, because it would enlarge the frames of other calls.
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
            // The guest may be killed while it holds something of the pool, which must not look
            // like its parent's.
            room.host = Some(pmem::thread::with(|thread| {
                (thread.tag.replace(0), thread.lane.replace(0))
            }));
        }
        return;
    }
    is_over(room, killed_inside);
}

/// Forgets the guest, when the parent runs again.
fn is_over(room: &mut Inner, killed_inside: bool) {
    crate::MEMORY.guest_is_over();
    credentials::forget_ids();
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
    // These files were opened by the guest itself.
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

/// Makes the guest's state the process's, in a child that the guest has forked.
pub(crate) fn apply_guest(room: &mut Inner) {
    room.guest_of = None;
    let place = room.guest.take().filter(|own| !own.shares_place);
    if let Some(place) = place {
        take_over(&place);
    }
    cwd::apply_guest(room);
    for (number, descriptor) in room.overlay.take().unwrap_or_default() {
        match descriptor {
            Some(descriptor) => descriptors::set(
                number as i32,
                Descriptor {
                    borrowed: false,
                    ..descriptor
                },
            ),
            None => drop(descriptors::remove(number.into())),
        }
    }
}

/// Stops the service before a child shares the descriptors but not the memory that describes them,
/// or the memory but not the descriptors.
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

/// Stops the service ([`part`]) for a thread that leaves the shared table of descriptors.
pub(crate) fn leave_table() -> Result<(), i32> {
    if guest::own().is_some() || !has_threads() {
        return Ok(());
    }
    // SAFETY: this thread's room, which is only read.
    part(unsafe { &*thread::room() })
}

/// Returns whether there are, or were, other threads.
fn has_threads() -> bool {
    use std::os::unix::fs::MetadataExt;
    /// The link count of a directory without subdirectories.
    const LINKS: u64 = 2;
    std::fs::metadata("/proc/self/task").map_or(true, |tasks| tasks.nlink() > LINKS + 1)
}

/// Makes a guest's place the process's, in a child that the guest has forked.
fn take_over(place: &Own) {
    umask::set_for_process(place.umask);
    if place.is_elsewhere {
        names::leave_to_kernel();
        promote::take_root(place.root);
    }
}
