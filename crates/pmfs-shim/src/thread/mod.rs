//! The library's memory for each served thread of the program: a stack, and room that is too large
//! for a stack.
//!
//! A thread can end unnoticed, so the room of a thread that the kernel does not know any more is
//! given to the next thread.

pub(crate) mod descriptor;
pub(crate) mod gate;
pub(crate) mod guest;
pub(crate) mod identity;

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use pmfs::Attr;

use crate::own::kernel::{self, Action};
use crate::own::words::{self, word};
use crate::thread::descriptor::Overlay;
use crate::thread::identity::Known;

/// Bytes of a thread's stack; only used pages take memory.
pub(crate) const STACK_BYTES: usize = 256 << 10;
/// The offset in a page where a room begins. The part of the stack below that a thread's first
/// calls need is in the same page.
const ROOM_WITHIN: usize = 2048;
/// Longest path, with its NUL.
pub(crate) const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A thread's room. Only that thread touches the content of the cell. The order of the fields lets
/// a thread's first call touch one page.
#[repr(C)]
pub(crate) struct Room {
    /// The thread's number; 0 if it has none.
    thread: AtomicU32,
    next: AtomicPtr<Room>,
    /// Not 0 in the middle of a call (`gate.rs`).
    pub busy: AtomicU32,
    /// The thread's identity.
    pub credentials: Known,
    inner: UnsafeCell<Inner>,
}

/// The content of a room.
#[repr(C)]
pub(crate) struct Inner {
    /// The descriptors of a guest that differ.
    pub overlay: Option<Overlay>,
    /// The directory of a guest, as names.rs has it.
    pub guest_cwd: Option<u64>,
    /// The guest's open file that keeps its directory; 0: none.
    pub guest_cwd_file: u64,
    /// The parent's thread whose guest runs on this stack.
    pub guest_of: Option<u32>,
    /// The rest of the guest's state that differs.
    pub guest: Option<Own>,
    /// The parent's tag in owner words, and the lane that it used last, while its guest has others.
    pub host: Option<(u64, u64)>,
    /// The guest's signal actions that differ.
    pub guest_actions: Option<Vec<(i32, Action)>>,
    /// The alternate signal stack: its lowest address and its bytes; 0: none.
    pub signal_stack: [u64; 2],
    /// The address of a mapping that this thread last touched in vain, and the count of such
    /// touches in a row.
    pub fault: (u64, u32),
    /// The environment and arguments for the next program.
    pub given: Option<Given>,
    /// The attributes of the inode at the end of the last walk.
    pub attr: Attr,
    /// Room for two paths, used in turn while links are followed.
    pub paths: [[u8; PATH_MAX]; 3],
}

/// The state of a guest that differs from its parent's, except descriptors, directory and handlers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Its number; 0 before its first call.
    pub number: u32,
    /// Umask, root and directory are its parent's (CLONE_FS).
    pub shares_place: bool,
    /// The umask of `process::umask`.
    pub umask: u32,
    /// Set after chroot: absolute names are left to the kernel.
    pub is_elsewhere: bool,
    /// The mount's root directory, kept before chroot; -1: not kept.
    pub root: i32,
    /// Set once it has asked for POSIX locks.
    pub has_locks: bool,
    /// The parent's alternate signal stack.
    pub signal_stack: [u64; 2],
}

/// The environment and arguments for the next program, kept in the room because a guest can't free
/// them.
#[derive(Default)]
pub(crate) struct Given {
    pub texts: Vec<Vec<u8>>,
    pub pointers: Vec<u64>,
    pub arguments: Vec<u64>,
    pub prepared: Option<pmfs::ForExec>,
    /// The descriptor of the text that it gets about inherited files.
    pub handed: Option<i32>,
}

/// All rooms; the list only grows.
static ROOMS: AtomicPtr<Room> = AtomicPtr::new(null_mut());

/// Gives this thread a stack. Returns whether another thread had one before.
pub(crate) fn begin() -> bool {
    let room = match free() {
        Some(room) => {
            // SAFETY: this thread has just become its owner.
            unsafe {
                forget_guest((*room).inner.get());
                (*room).credentials.forget(false);
            }
            room
        }
        None => make(),
    };
    words::set(word::STACK, room.addr() as u64);
    ANY.swap(true, Ordering::Relaxed)
}

/// Set once a thread has made a call.
static ANY: AtomicBool = AtomicBool::new(false);

/// The room of a thread that has ended.
fn free() -> Option<*mut Room> {
    let me = kernel::thread();
    let process = u64::from(kernel::process());
    let mut at = ROOMS.load(Ordering::Acquire);
    // SAFETY: rooms are never unmapped, so every pointer in the list is valid.
    while let Some(room) = unsafe { at.as_ref() } {
        let owner = room.thread.load(Ordering::Relaxed);
        let gone = owner == 0
            || owner == me
            || kernel::plain(libc::SYS_tgkill, &[process, owner.into(), 0])
                == -i64::from(libc::ESRCH);
        if gone
            && room
                .thread
                .compare_exchange(owner, me, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            return Some(at);
        }
        at = room.next.load(Ordering::Acquire);
    }
    None
}

/// The distance of the other rooms from the first one: farther than programs map.
const APART: usize = 64 << 30;
/// The address below which the next room is placed, once there are two.
static BELOW: AtomicUsize = AtomicUsize::new(0);

/// The best address for a room. The kernel's choice is right below the program's last mapping,
/// which may be the stack of this thread, which grows downwards.
fn wish(bytes: usize) -> usize {
    let first = ROOMS.load(Ordering::Acquire).addr();
    if first == 0 {
        return 0;
    }
    let below = first.saturating_sub(APART) & !4095;
    let order = Ordering::Relaxed;
    let _ = BELOW.compare_exchange(0, below, order, order);
    BELOW.fetch_sub(bytes, order).wrapping_sub(bytes)
}

#[cold]
fn make() -> *mut Room {
    let bytes = (STACK_BYTES + ROOM_WITHIN + size_of::<Room>()).next_multiple_of(4096);
    let flags = libc::MAP_NORESERVE | libc::MAP_STACK;
    let Some(base) = kernel::map_at(wish(bytes), bytes, flags) else {
        // Without a stack nothing can be served or reported.
        kernel::plain(libc::SYS_exit_group, &[127]);
        unreachable!("the process has ended");
    };
    // The lowest page has no access, so that an overflow faults.
    // SAFETY: a page of the mapping just made.
    unsafe { kernel::call(libc::SYS_mprotect, [base.addr() as u64, 4096, 0, 0, 0, 0]) };
    let room = base.wrapping_add(STACK_BYTES + ROOM_WITHIN).cast::<Room>();
    // SAFETY: inside the mapping, aligned as it has to be, all zero, which is a valid
    // room but for the options, which are written.
    unsafe {
        let inner = (*room).inner.get();
        forget_guest(inner);
        (*room).thread.store(kernel::thread(), Ordering::Relaxed);
        let mut first = ROOMS.load(Ordering::Acquire);
        loop {
            (*room).next.store(first, Ordering::Relaxed);
            match ROOMS.compare_exchange(first, room, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return room,
                Err(now) => first = now,
            }
        }
    }
}

/// Clears the state of a guest, or of the thread that had the room before.
///
/// # Safety
/// Memory for an [`Inner`]; what it had is forgotten, not dropped.
unsafe fn forget_guest(inner: *mut Inner) {
    // SAFETY: the caller's promise.
    unsafe {
        (&raw mut (*inner).overlay).write(None);
        (&raw mut (*inner).guest_cwd).write(None);
        (&raw mut (*inner).guest_cwd_file).write(0);
        (&raw mut (*inner).guest_of).write(None);
        (&raw mut (*inner).guest).write(None);
        (&raw mut (*inner).host).write(None);
        (&raw mut (*inner).guest_actions).write(None);
        (&raw mut (*inner).signal_stack).write([0; 2]);
        (&raw mut (*inner).fault).write((0, 0));
        (&raw mut (*inner).given).write(None);
    }
}

/// This thread's room, as others see it.
pub(crate) fn own_room() -> &'static Room {
    let room = std::ptr::with_exposed_provenance::<Room>(words::get(word::STACK) as usize);
    // SAFETY: set by `begin` before any dispatch; rooms are never unmapped.
    unsafe { &*room }
}

/// Returns whether other threads of this process are in the middle of calls.
pub(crate) fn others_are_busy(own: &Room) -> bool {
    let mut at = ROOMS.load(Ordering::Acquire);
    // SAFETY: as in `free`.
    while let Some(room) = unsafe { at.as_ref() } {
        if !std::ptr::eq(room, own) && room.busy.load(Ordering::Acquire) != 0 {
            return true;
        }
        at = room.next.load(Ordering::Acquire);
    }
    false
}

/// This thread's room, for the time of one dispatch.
pub(crate) fn room() -> *mut Inner {
    let room = std::ptr::with_exposed_provenance_mut::<Room>(words::get(word::STACK) as usize);
    // SAFETY: set by `begin` before any dispatch; rooms are never unmapped.
    unsafe { (*room).inner.get() }
}

/// Resets the rooms in a forked child, where this thread is the only one and has another number.
pub(crate) fn forked() {
    let me = words::get(word::STACK) as usize;
    let mut at = ROOMS.load(Ordering::Acquire);
    // SAFETY: as in `free`.
    while let Some(room) = unsafe { at.as_ref() } {
        let mine = at.addr() == me;
        if !mine {
            room.busy.store(0, Ordering::Relaxed);
        }
        room.thread
            .store(if mine { kernel::thread() } else { 0 }, Ordering::Relaxed);
        at = room.next.load(Ordering::Acquire);
    }
}
