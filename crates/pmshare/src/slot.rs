//! A process's slot: the mark that it is attached, its name among the owners of locks, and its
//! counters.
//!
//! A slot is alive while its byte of the pool file is locked, which lasts as long as the address
//! space that took it (docs/adr/0025-life-of-a-process.md).

use crate::counters::Totals;
use crate::error::{Error, Result};
use crate::holder::{Holder, slot_of};
use crate::layout::Shared;
use crate::lock_bytes::slot_byte;
use crate::member::Share;
use pmem::slots::{ByteLock, Probe};
use pmem::{Emulation, MediumWords, Modules, Protection};
use pmfs_format::SlotRaw;
use pmfs_format::runtime::{SLOT_FREE, SLOT_LIVE};
use std::path::Path;
use std::sync::LazyLock;

/// A slot that was taken, and the lock that keeps it.
pub struct Taken {
    /// The slot and its incarnation.
    pub holder: Holder,
    /// The lock, if there is a file.
    pub lock: Option<ByteLock>,
}

impl<S: Shared> Share<S> {
    /// Takes a free slot of these under the attach lock. `for_child` makes the lock inheritable,
    /// for the child or the next program of this process.
    ///
    /// # Errors
    /// [`Error::TooManyProcesses`]; locking failed.
    pub fn take_slot(
        &self,
        path: Option<&Path>,
        among: std::ops::Range<u64>,
        for_child: bool,
    ) -> Result<Taken> {
        let slots = among.end;
        for slot in among {
            let off = self.layout().slot(slot);
            let runtime = self.runtime();
            if runtime.load(SlotRaw::state.of(off)) != SLOT_FREE {
                continue;
            }
            let mut lock = None;
            if let Some(path) = path {
                let byte = slot_byte(slot);
                let taken = match &self.prober {
                    _ if for_child => ByteLock::try_exclusive_inherited(path, byte)?,
                    Some(prober) => prober.try_exclusive(byte)?,
                    None => ByteLock::try_exclusive(path, byte)?,
                };
                let Some(taken) = taken else {
                    continue;
                };
                lock = Some(taken);
            }
            let holder = Holder {
                slot,
                incarnation: runtime.load(SlotRaw::incarnation.of(off)) + 1,
            };
            return Ok(Taken { holder, lock });
        }
        Err(Error::TooManyProcesses { slots })
    }

    /// Fills a slot and marks it as attached. `token` is that of the process that hands its locks
    /// over; 0 for a new one.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn mark_slot(&self, holder: Holder, token: u64) {
        let off = self.layout().slot(holder.slot);
        let runtime = self.runtime();
        let token = if token == 0 { self.new_token() } else { token };
        let [first, second] = command_words();
        runtime.store(SlotRaw::incarnation.of(off), holder.incarnation);
        runtime.write(
            SlotRaw::pid.of(off),
            &[
                u64::from(std::process::id()),
                token,
                first,
                second,
                self.clock.now_ns() as u64,
                0,
            ],
        );
        runtime.write(SlotRaw::reads.of(off), &[0; Totals::WORDS]);
        let asked = self.mem().emulation();
        runtime.write(
            SlotRaw::emulates.of(off),
            &[
                asked.read_ns,
                asked.barrier_ns,
                asked.write_bytes_per_s,
                asked.device.map_or(0, |modules| modules.packed()),
            ],
        );
        runtime.write(SlotRaw::sessions.of(off), &[Self::asked_at_start(), 0]);
        // This precedes the mark, which no process may overlook.
        self.reach_slot(holder.slot);
        runtime.store(SlotRaw::state.of(off), SLOT_LIVE);
        self.count_arrival();
    }

    /// Counts an arrival, which ends the single opener's time.
    fn count_arrival(&self) {
        let word = self.layout().arrivals;
        let runtime = self.runtime();
        let mut count = runtime.load(word);
        while let Err(found) = runtime.cas(word, count, count + 1) {
            count = found;
        }
    }

    /// Gives a slot back.
    pub fn free_slot(&self, slot: u64) {
        let off = self.layout().slot(slot);
        self.runtime().store(SlotRaw::state.of(off), SLOT_FREE);
    }

    /// Lets later searches for processes include this slot.
    fn reach_slot(&self, slot: u64) {
        let off = self.layout().slots_end;
        let runtime = self.runtime();
        let mut end = runtime.load(off);
        while end <= slot {
            match runtime.cas(off, end, slot + 1) {
                Ok(_) => return,
                Err(found) => end = found,
            }
        }
    }

    /// The slots that may be marked.
    pub fn slots(&self) -> std::ops::Range<u64> {
        let end = self.mem().load(self.layout().slots_end);
        0..end.min(self.layout().slot_count)
    }

    /// Corrects the process in a slot after fork or exec.
    pub fn rename_slot(&self, slot: u64) {
        let off = self.layout().slot(slot);
        let runtime = self.runtime();
        let [first, second] = command_words();
        runtime.store(SlotRaw::pid.of(off), u64::from(std::process::id()));
        runtime.write(SlotRaw::command.of(off), &[first, second]);
    }

    /// The medium that the process in a slot emulates.
    pub fn slot_emulates(&self, slot: u64) -> Emulation {
        let off = SlotRaw::emulates.of(self.layout().slot(slot));
        let [read_ns, barrier_ns, write_bytes_per_s, device] = self.mem().read(off);
        Emulation {
            read_ns,
            barrier_ns,
            write_bytes_per_s,
            device: Modules::unpacked(device),
        }
    }

    /// Shares an emulated medium's bandwidth with all processes in the pool.
    pub fn share_bandwidth(&self) {
        let mut words = self.medium_words();
        // With page permissions a window is a system call, which takes longer than an access.
        if self.mem().protection() == Protection::Pages {
            words.more = None;
        }
        self.mem().share_bandwidth(Some(&words));
    }

    /// Ends the sharing of bandwidth, before the runtime area is saved. `is_last`: no other process
    /// has the pool.
    pub fn keep_bandwidth(&self, is_last: bool) {
        self.mem().share_bandwidth(None);
        if !is_last {
            return;
        }
        let MediumWords { busy, more } = self.medium_words();
        for word in std::iter::once(busy).chain(more.into_iter().flatten()) {
            if self.mem().load_cached(word) != 0 {
                self.runtime().store(word, 0);
            }
        }
    }

    fn medium_words(&self) -> MediumWords {
        MediumWords {
            busy: self.layout().busy_until,
            more: self.layout().busy_more,
        }
    }

    fn new_token(&self) -> u64 {
        let off = self.layout().tokens;
        let runtime = self.runtime();
        let mut last = runtime.load(off);
        loop {
            match runtime.cas(off, last, last + 1) {
                Ok(_) => return last + 1,
                Err(found) => last = found,
            }
        }
    }
    /// The process id that a slot's holder wrote.
    pub fn slot_pid(&self, slot: u64) -> u64 {
        if slot >= self.layout().slot_count {
            return 0;
        }
        self.mem().load(SlotRaw::pid.of(self.layout().slot(slot)))
    }

    /// When a slot's holder attached, ns since the epoch.
    pub fn slot_since_ns(&self, slot: u64) -> i64 {
        let off = SlotRaw::since_ns.of(self.layout().slot(slot));
        self.mem().load(off) as i64
    }

    /// Which one of a slot's holders has it, or had it last.
    pub fn slot_incarnation(&self, slot: u64) -> u64 {
        let off = SlotRaw::incarnation.of(self.layout().slot(slot));
        self.mem().load(off)
    }

    /// The token of a slot's process, as an owner of locks.
    pub fn slot_token(&self, slot: u64) -> u64 {
        self.mem().load(SlotRaw::token.of(self.layout().slot(slot)))
    }

    /// The name of the program in a slot.
    pub fn slot_command(&self, slot: u64) -> String {
        let words = self
            .mem()
            .read::<2>(SlotRaw::command.of(self.layout().slot(slot)));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
    }

    /// A living process other than `slot`'s to which that process's locks were handed over.
    pub fn heir_of(&self, slot: u64, token: u64) -> Option<u64> {
        self.slots().find(|&other| {
            other != slot
                && self.is_marked(other)
                && self.slot_token(other) == token
                && !self.slot_dead(other)
        })
    }

    /// Returns whether a slot still has this holder.
    pub fn is_held_as(&self, holder: Holder) -> bool {
        self.is_marked(holder.slot) && self.slot_incarnation(holder.slot) == holder.incarnation
    }

    /// Returns whether a slot is marked as attached.
    pub fn is_marked(&self, slot: u64) -> bool {
        self.mem().load(SlotRaw::state.of(self.layout().slot(slot))) != SLOT_FREE
    }

    /// Returns whether a slot is marked and its process is gone.
    pub fn slot_dead(&self, slot: u64) -> bool {
        if slot >= self.layout().slot_count || slot == self.holder().slot {
            return false;
        }
        self.is_marked(slot) && !self.slot_locked(slot)
    }

    /// Returns whether a slot's byte is locked. Without a file there are no locks, and the caller
    /// is alone.
    pub fn slot_locked(&self, slot: u64) -> bool {
        self.prober
            .as_ref()
            .is_some_and(|prober| !matches!(prober.probe(slot_byte(slot)), Ok(Probe::Free)))
    }

    /// Wakes the thread of a slot's process that gives records or its lease back, or that must end.
    pub fn wake_revoker(&self, slot: u64) {
        let asked = SlotRaw::asked.of(self.layout().slot(slot));
        let runtime = self.runtime();
        let mut count = runtime.load(asked);
        while let Err(found) = runtime.cas(asked, count, count.wrapping_add(1)) {
            count = found;
        }
        runtime.wake_all(asked);
    }

    /// Returns whether the slot is a mount's.
    pub fn is_mount(&self, slot: u64) -> bool {
        slot < self.layout().slot_count
            && self.mem().load(SlotRaw::asked.of(self.layout().slot(slot))) != 0
    }

    /// Returns whether the holder of an owner word is gone.
    pub fn owner_dead(&self, owner: u64) -> bool {
        slot_of(owner).is_some_and(|slot| self.slot_dead(slot))
    }

    /// The marked slots.
    pub fn marked_slots(&self) -> Vec<u64> {
        self.slots().filter(|&slot| self.is_marked(slot)).collect()
    }

    /// The marked slots whose processes are gone.
    pub fn dead_slots(&self) -> Vec<u64> {
        self.slots().filter(|&slot| self.slot_dead(slot)).collect()
    }
}

/// The program's name in the kernel, in two words.
fn command_words() -> [u64; 2] {
    static NAME: LazyLock<[u64; 2]> = LazyLock::new(|| {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(command().trim_ascii_end()) {
            *to = *from;
        }
        let (first, second) = bytes.split_at(8);
        [first, second].map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes")))
    });
    *NAME
}

/// The first thread's name is the process's.
fn command() -> Vec<u8> {
    let is_first = rustix::thread::gettid() == rustix::process::getpid();
    match rustix::thread::name() {
        Ok(name) if is_first => name.into_bytes(),
        _ => std::fs::read("/proc/self/comm").unwrap_or_default(),
    }
}
