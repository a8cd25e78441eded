//! The umask. The kernel keeps it for each process, and a guest may have its own (`vfork.rs`).

use std::sync::atomic::{AtomicU32, Ordering};

use crate::own::kernel;
use crate::thread::guest;

const UNKNOWN: u32 = u32::MAX;

static UMASK: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The umask, if it is known.
pub(crate) fn known() -> u32 {
    UMASK.load(Ordering::Relaxed)
}

/// The umask of the process, or of a guest; `read` reads a file of the kernel.
pub(crate) fn get(read: fn(&str) -> String) -> u32 {
    let own = guest::own_place();
    let known = own.as_ref().map_or_else(known, |own| own.umask);
    if known != UNKNOWN {
        return known;
    }
    let umask = ask(read);
    set(umask);
    umask
}

/// Sets the umask of the process, or of a guest.
pub(crate) fn set(umask: u32) {
    match guest::own_place() {
        Some(own) => own.umask = umask,
        None => set_for_process(umask),
    }
}

/// Sets the umask of the process, even from a guest.
pub(crate) fn set_for_process(umask: u32) {
    UMASK.store(umask, Ordering::Relaxed);
}

fn ask(read: fn(&str) -> String) -> u32 {
    let status = read("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let asked = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    asked.unwrap_or_else(|| {
        // Without /proc the umask is read by setting it twice.
        let before = kernel::plain(libc::SYS_umask, &[0o077]) as u32;
        kernel::plain(libc::SYS_umask, &[before.into()]);
        before
    })
}
