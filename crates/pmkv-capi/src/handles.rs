//! Things of the process that C names by a number, which is looked up: one that was made up or
//! closed is told.

use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use pmlib::Error;

use crate::answer::{Answer, Failure, NULL};

/// Things of a kind that a process may have.
const MAX: usize = 256;

/// A thing that is open. Calls that last longer than a look have a share of it.
struct Open<T> {
    handle: u64,
    thing: Arc<T>,
}

struct Slot<T> {
    /// The process that opened it: in a forked child the lock may be held by a thread that is not
    /// there.
    opener: AtomicU32,
    open: RwLock<Option<Open<T>>>,
}

impl<T> Slot<T> {
    fn is_forked(&self) -> bool {
        self.opener.load(Ordering::Relaxed) != std::process::id()
    }

    fn read(&self) -> Answer<RwLockReadGuard<'_, Option<Open<T>>>> {
        loop {
            match self.open.try_read() {
                Ok(open) => return Ok(open),
                Err(TryLockError::Poisoned(open)) => return Ok(open.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_forked() => {
                    return Err(Error::Forked.into());
                }
                // Somebody opens or closes, which waits for nothing under this lock.
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

/// How a kind of things is named, and told about.
pub struct Kind {
    /// The low four bits of its handles; the place follows in eight, and a count in 52.
    pub bits: u64,
    /// No such thing.
    pub none: Failure,
    /// There are 256.
    pub many: Failure,
    /// It can't be closed now.
    pub in_use: Failure,
}

/// The process's things of a kind.
pub struct Table<T> {
    kind: Kind,
    slots: [Slot<T>; MAX],
}

impl<T> Table<T> {
    pub const fn of(kind: Kind) -> Table<T> {
        Table {
            kind,
            slots: [const {
                Slot {
                    opener: AtomicU32::new(0),
                    open: RwLock::new(None),
                }
            }; MAX],
        }
    }

    fn slot(&self, handle: u64) -> Answer<&Slot<T>> {
        match handle & 0xf {
            _ if handle == 0 => Err(NULL),
            bits if bits == self.kind.bits => Ok(&self.slots[(handle >> 4) as usize % MAX]),
            _ => Err(self.kind.none.again()),
        }
    }

    /// Keeps a thing that was opened; answers its handle.
    pub fn keep<H>(&self, thing: Arc<T>) -> Answer<*mut H> {
        // 52 bits: with a million things a second a handle is another one's after 142 years.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        for (index, slot) in self.slots.iter().enumerate() {
            // One that is locked is somebody's.
            let Ok(mut open) = slot.open.try_write() else {
                continue;
            };
            if open.is_none() {
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let handle = count << 12 | (index as u64) << 4 | self.kind.bits;
                slot.opener.store(std::process::id(), Ordering::Relaxed);
                *open = Some(Open { handle, thing });
                return Ok(without_provenance_mut(handle as usize));
            }
        }
        Err(self.kind.many.again())
    }

    /// Does something with a thing. It must not call the program, which may close the thing.
    pub fn with<H, R>(
        &self,
        handle: *const H,
        body: impl FnOnce(&Arc<T>) -> Answer<R>,
    ) -> Answer<R> {
        let handle = handle.addr() as u64;
        let open = self.slot(handle)?.read()?;
        match &*open {
            Some(open) if open.handle == handle => body(&open.thing),
            _ => Err(self.kind.none.again()),
        }
    }

    /// Takes a thing out, if nobody has a share of it.
    pub fn take<H>(&self, handle: *const H) -> Answer<T> {
        let handle = handle.addr() as u64;
        let slot = self.slot(handle)?;
        let mut open = if slot.is_forked() {
            let open = slot.open.try_write();
            open.map_err(|_| Error::Forked)?
        } else {
            slot.open.write().unwrap_or_else(PoisonError::into_inner)
        };
        match open.take() {
            Some(there) if there.handle == handle => {
                Arc::try_unwrap(there.thing).map_err(|thing| {
                    *open = Some(Open { handle, thing });
                    self.kind.in_use.again()
                })
            }
            other => {
                *open = other;
                Err(self.kind.none.again())
            }
        }
    }
}
