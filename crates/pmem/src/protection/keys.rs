//! Protection keys (pkeys(7); Intel SDM 3A 4.6.2): a key in the page-table entries, and each
//! thread's right to it in the register PKRU, which programs can change without a call.
//!
//! A process has one key for all its pools. There are only fifteen, and a key that was freed would
//! leave threads with rights to the memory that gets it next.
//!
//! The register has a thread's rights. The right to store is also noted in memory, for windows
//! inside another window ([`Thread::depth`](crate::processes::thread::Thread)). The note is set
//! after the store to the register that opens, and cleared before the one that closes. The kernel
//! saves PKRU for a signal handler, which starts without any right and may leave by a jump; so an
//! entry without the right to load clears the note. After such a handler the thread may store
//! without the note, and reads the register again.

use std::arch::asm;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::address_space::Mapping;
use crate::cpu::cpu;
use crate::processes::counters;
use crate::processes::thread;

/// The process's key, as the position of its two bits in PKRU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    shift: u32,
}

static KEY: Mutex<Option<Key>> = Mutex::new(None);

/// pkey_alloc(2): the calling thread may load and not store.
const PKEY_DISABLE_WRITE: libc::c_ulong = 2;

impl Key {
    /// The key, allocated at the first call.
    ///
    /// # Errors
    /// The CPU or the kernel has none (`Unsupported`), or none is left.
    pub(crate) fn of_process() -> io::Result<Key> {
        let mut there = KEY.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = *there {
            return Ok(key);
        }
        if !cpu().keys {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the CPU has no protection keys, or the kernel does not use them",
            ));
        }
        // SAFETY: no memory is involved.
        let number = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, PKEY_DISABLE_WRITE) };
        let Ok(number) = u32::try_from(number) else {
            return Err(io::Error::last_os_error());
        };
        let key = Key { shift: number * 2 };
        *there = Some(key);
        Ok(key)
    }

    /// Gives these bytes of a mapping, whole pages, this key; a thread with the key's right can
    /// store to them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn give(self, mapping: &Mapping, bytes: Range<usize>) -> io::Result<()> {
        let may = libc::PROT_READ | libc::PROT_WRITE;
        let (at, key) = (mapping.base().wrapping_add(bytes.start), self.shift / 2);
        let len = bytes.len();
        // SAFETY: part of a mapping of ours, which stays readable and writable for who has the
        // right: every access by this crate is made with it, and no reference into the mapping
        // exists.
        match unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, len, may, key) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// PKRU's bit that denies all access.
    #[inline(always)]
    fn access(self) -> u32 {
        1 << self.shift
    }

    /// PKRU's bit that denies stores.
    #[inline(always)]
    fn write(self) -> u32 {
        2 << self.shift
    }

    /// Lets this thread load. A thread that could store still can.
    #[inline(always)]
    pub(crate) fn admit(self) {
        let now = rights();
        if now & self.access() != 0 {
            // This may be a handler that interrupted an open window.
            thread::with(|thread| thread.depth.set(0));
            set_rights(now & !self.access() | self.write());
        }
    }

    /// Lets this thread load and store. Returns `false` if it already could.
    #[inline(always)]
    pub(crate) fn open(self) -> bool {
        thread::with(|thread| {
            // Most windows are inside another one, and this load is faster than a read of the
            // register.
            if thread.depth.get() != 0 {
                return false;
            }
            let now = rights();
            let denied = self.access() | self.write();
            if now & denied == 0 {
                return false;
            }
            set_rights(now & !denied);
            thread.depth.set(1);
            counters::opened();
            true
        })
    }

    /// Lets this thread load but not store.
    #[inline(always)]
    pub(crate) fn shut(self) {
        thread::with(|thread| thread.depth.set(0));
        set_rights(rights() & !self.access() | self.write());
    }
}

/// The value of PKRU.
#[inline(always)]
fn rights() -> u32 {
    let now: u32;
    // SAFETY: a `Key` exists only where OSPKE is set, so the instruction does; it reads a register
    // of this thread's and needs ecx = 0. Not pure: the kernel's and this module's changes to the
    // register must be seen.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") now, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    now
}

/// Sets PKRU. No access to the pool is moved across it: the compiler sees memory clobbered, and the
/// CPU executes no access that depends on the register before it (SDM 2B, WRPKRU).
#[inline(always)]
fn set_rights(rights: u32) {
    // SAFETY: as in `rights`; ecx and edx are 0 as the instruction wants. Only the bits of this
    // crate's key differ from what the register had, so the rights to all other memory stay.
    unsafe {
        asm!("wrpkru", in("ecx") 0, in("eax") rights, in("edx") 0, options(nostack, preserves_flags));
    }
}
