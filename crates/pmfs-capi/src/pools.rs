//! Pools: making, opening, closing. Every pool of the process is known, so that fork
//! can take its children along.

use crate::answer::{Answer, Failure, answer, done};
use crate::handles::Handles;
use crate::pointers::{pool, text};
use pmfs::{DataMode, ForFork, Fs, OpenOptions};
use pmfs_admin::MkfsOptions;
use std::cell::RefCell;
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

const ORDERED: c_int = 1;
const READ_ONLY: c_int = 2;
const EXCLUSIVE: c_int = 4;
const FORCE: c_int = 8;

/// The content of a `pmfs_t`.
pub struct Shared {
    pub fs: Fs,
    pub handles: Mutex<Handles>,
}

impl Shared {
    pub fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool that is open, in the list.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Listed(*const Shared);

// SAFETY: what it points to may be used by all threads (`Fs` and `Mutex` are `Sync`),
// and is there while it is listed.
unsafe impl Send for Listed {}

static POOLS: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

fn pools() -> MutexGuard<'static, Vec<Listed>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locks that this thread holds over a fork: the tables of handles and the list stay unchanged
/// until it is done, so that the child has them whole and unlocked.
struct Forking {
    handles: Vec<MutexGuard<'static, Handles>>,
    pools: MutexGuard<'static, Vec<Listed>>,
    prepared: Vec<Option<ForFork>>,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    let pools = pools();
    let mut handles = Vec::new();
    let mut prepared = Vec::new();
    for listed in pools.iter() {
        // SAFETY: it is listed, and so not closed; nor will it be while the list is locked.
        let shared: &'static Shared = unsafe { &*listed.0 };
        handles.push(shared.handles());
        // Without a free slot the child goes without: it is told at its first call.
        prepared.push(shared.fs.before_fork().ok());
    }
    FORKING.set(Some(Forking {
        handles,
        pools,
        prepared,
    }));
}

extern "C" fn after_fork_in_parent() {
    drop(FORKING.take());
}

extern "C" fn after_fork_in_child() {
    let Some(forking) = FORKING.take() else {
        return;
    };
    let Forking {
        handles,
        pools,
        prepared,
    } = forking;
    for (listed, prepared) in pools.iter().zip(prepared) {
        // SAFETY: it is listed, and so not closed.
        let shared = unsafe { &*listed.0 };
        if let Some(prepared) = prepared {
            // One that fails is told at the child's first call.
            let _ = shared.fs.after_fork_in_child(prepared);
        }
    }
    drop(handles);
}

fn follow_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the three functions are there as long as the library.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
            );
        }
    });
}

fn path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

fn known(flags: c_int, all: c_int) -> Answer<()> {
    if flags & !all != 0 {
        return Err(Failure::Wrong(libc::EINVAL, "a flag that is not known"));
    }
    Ok(())
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_make_pool(file: *const c_char, size: u64, flags: c_int) -> c_int {
    done(|| {
        known(flags, FORCE)?;
        let options = MkfsOptions {
            size: Some(size),
            force: flags & FORCE != 0,
            ..MkfsOptions::default()
        };
        // SAFETY: as the header says.
        pmfs_admin::mkfs(path(unsafe { text(file) }?), &options)?;
        Ok(())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_open_pool(file: *const c_char, flags: c_int) -> *mut Shared {
    answer(null_mut(), || {
        known(flags, ORDERED | READ_ONLY | EXCLUSIVE)?;
        let options = OpenOptions {
            data: if flags & ORDERED != 0 {
                DataMode::Ordered
            } else {
                DataMode::Atomic
            },
            read_only: flags & READ_ONLY != 0,
            exclusive: flags & EXCLUSIVE != 0,
            ..OpenOptions::default()
        };
        // SAFETY: as the header says.
        let fs = Fs::open(path(unsafe { text(file) }?), &options)?;
        follow_forks();
        let shared = Box::into_raw(Box::new(Shared {
            fs,
            handles: Mutex::default(),
        }));
        pools().push(Listed(shared));
        Ok(shared)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_close_pool(closed: *mut Shared) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        unsafe { pool(closed) }?;
        pools().retain(|listed| *listed != Listed(closed));
        // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
        let shared = unsafe { Box::from_raw(closed) };
        shared.fs.detach()?;
        Ok(())
    })
}
