//! The processes that have a heap, and what they do with it: read from outside, without a slot, a
//! lock or a store. No process is asked or slowed down. The counts go on while they are read.

use std::path::Path;

use pmem::Pmem;
use pmem::slots::Prober;
use pmlib_format::header::{STATE_ACTIVE, STATE_OFFSET};
use pmshare::attach::keep_apart;
use pmshare::holder::Holder;
use pmshare::lock_bytes::BYTE_POOL;

use crate::counts::owner_word;
use crate::engine::Core;
use crate::error::Result;
use crate::heap::{Options, read_header};
use crate::packed::checked_value;
use crate::reader::Reader;
use crate::shared::{Record, this_run};

/// Looks at a slot whose process changes.
const LOOKS: u32 = 16;

/// The calls of a process since it opened the heap. Each count has 64 bits, and begins at 0 again
/// behind the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Keys that it looked for: those that were there, and others.
    pub gets: u64,
    /// Values that it put, in batches too.
    pub puts: u64,
    /// Bytes of values that it found, by walks too.
    pub got_bytes: u64,
    /// Bytes of values that it put.
    pub put_bytes: u64,
    /// Keys that it was to take away, in batches too, and such as had expired.
    pub deletes: u64,
    /// Walks over keys that it began.
    pub walks: u64,
    /// Batches that it did.
    pub batches: u64,
    /// Waits for a lock or a lane that another thread had.
    pub waits: u64,
    /// Time of these waits, ns.
    pub waited_ns: u64,
    /// Dead processes that it cleaned up after.
    pub recoveries: u64,
}

impl Totals {
    fn add(&mut self, counts: [u64; pmlib_format::shared::COUNTS]) {
        let sums = [
            &mut self.gets,
            &mut self.puts,
            &mut self.got_bytes,
            &mut self.put_bytes,
            &mut self.deletes,
            &mut self.walks,
            &mut self.batches,
        ];
        for (sum, more) in sums.into_iter().zip(counts) {
            *sum = sum.wrapping_add(more);
        }
    }
}

/// A process that has a heap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// Its slot.
    pub slot: u64,
    /// Process id, as it calls itself.
    pub pid: u64,
    /// The name of its program, at most 16 bytes.
    pub command: String,
    /// When it opened the heap, ns since the epoch.
    pub since_ns: i64,
    /// False: it died, and the next process that meets what it held cleans up.
    pub is_alive: bool,
    /// Its calls.
    pub totals: Totals,
}

/// The processes that have a heap ([`Users::now`]).
pub struct Users {
    core: Core,
    reader: Reader,
}

impl Users {
    /// Opens a heap to look at its processes. One that needs recovery, or that nobody has, can be
    /// opened too. The right to read it is enough.
    ///
    /// # Errors
    /// Those of [`Pmem::open`]; `Foreign`, `Version`, `Features`, `TooSmall`, `Damaged`.
    pub fn of(path: &Path) -> Result<Users> {
        let options = Options::read_only();
        let mem = Pmem::open(path, &options.mapping())?;
        mem.enter();
        let header = read_header(&mem)?;
        let reader = || Ok::<_, pmem::Error>(Reader::new(Prober::open(path)?, &options));
        let prober = Some(Prober::open(path)?);
        Ok(Users {
            core: Core::over(mem, header, prober, &options, Some(reader()?)),
            reader: reader()?,
        })
    }

    /// Those that have it now, in the order of their slots, and dead ones that nobody has cleaned
    /// up after.
    ///
    /// # Errors
    /// `Apart`: processes have it whose locks can't be seen from here, or of an unlike build;
    /// `Lost`.
    pub fn now(&self) -> Result<Vec<User>> {
        let core = &self.core;
        core.enter()?;
        let state = checked_value(core.mem.load_cached(STATE_OFFSET), STATE_OFFSET);
        let record = Record::load(&core.mem, &core.places);
        let ours = this_run(&core.mem);
        if state != Some(STATE_ACTIVE) || !record.is_ready || record.run.boot_id != ours.boot_id {
            return Ok(Vec::new());
        }
        let others = self.reader.has(BYTE_POOL)?;
        keep_apart(&record.run, &ours, others, true)?;
        if record.run != ours {
            return Ok(Vec::new());
        }
        let users = core.slots().filter_map(|slot| self.user_in(slot)).collect();
        // Nothing counts that was read of a file that has become shorter.
        core.enter()?;
        Ok(users)
    }

    /// The process in a slot, as it was at one moment but for its counts; `None`: there is none.
    fn user_in(&self, slot: u64) -> Option<User> {
        let core = &self.core;
        for _ in 0..LOOKS {
            let incarnation = core.slot_incarnation(slot);
            let holder = Holder { slot, incarnation };
            if !core.is_marked(slot) {
                return None;
            }
            let user = User {
                slot,
                pid: core.slot_pid(slot),
                command: core.slot_command(slot),
                since_ns: core.slot_since_ns(slot),
                is_alive: core.slot_locked(slot),
                totals: self.totals_of(holder),
            };
            if core.is_held_as(holder) {
                return Some(user);
            }
        }
        None
    }

    fn totals_of(&self, holder: Holder) -> Totals {
        let slot = self.core.totals_of(holder.slot);
        let mut totals = Totals {
            waits: slot.waits,
            waited_ns: slot.waited_ns,
            recoveries: slot.recoveries,
            ..Totals::default()
        };
        // The file system's names of the words, which a heap's counts have in their order.
        totals.add([
            slot.reads,
            slot.changes,
            slot.read_bytes,
            slot.written_bytes,
            slot.barriers,
            slot.flushed_lines,
            slot.logged_bytes,
        ]);
        let me = owner_word(holder);
        let lines = self.core.counted().into_iter();
        lines
            .filter(|&(owner, _)| owner == me)
            .for_each(|(_, counts)| totals.add(counts));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Heap;
    use crate::ground::Count;
    use pmem::{MapOptions, ProtectMode};
    use pmlib_format::shared::{COUNTS_BYTES, SLOT_BYTES};

    fn heap_in(dir: &tempfile::TempDir, options: &Options) -> Heap {
        Heap::create(&dir.path().join("heap"), 1 << 20, options).unwrap()
    }

    fn users_of(dir: &tempfile::TempDir) -> Users {
        Users::of(&dir.path().join("heap")).unwrap()
    }

    /// Goal: no count is lost, whichever line a thread has or has not, with page permissions too.
    /// Method: more threads at once than there are lines, twice, so that threads come in the place
    /// of others; the last gets of a thread may be kept where stores need a window.
    #[test]
    fn counts_of_all_threads_are_added_up() {
        for protect in [ProtectMode::None, ProtectMode::Pages] {
            let dir = tempfile::tempdir().unwrap();
            let map = MapOptions {
                protect,
                ..MapOptions::default()
            };
            let options = Options {
                map,
                ..Options::default()
            };
            let heap = heap_in(&dir, &options);
            let all = || {
                for _ in 0..100 {
                    heap.ground().count_get(3);
                }
                let _window = heap.ground().mem().window();
                heap.ground()
                    .count(|| [(Count::Puts, 1), (Count::PutBytes, 5)]);
            };
            for _ in 0..2 {
                std::thread::scope(|scope| (0..100).for_each(|_| drop(scope.spawn(all))));
            }
            heap.ground().count_walk();
            let _window = heap.ground().mem().window();
            heap.ground()
                .count(|| [(Count::Deletes, 2), (Count::Batches, 1)]);
            let user = users_of(&dir).now().unwrap().pop().unwrap();
            let expected = Totals {
                gets: 20_000,
                got_bytes: 60_000,
                puts: 200,
                put_bytes: 1000,
                deletes: 2,
                walks: 1,
                batches: 1,
                ..Totals::default()
            };
            assert_eq!(user.totals, expected, "{protect}");
            assert_eq!((user.pid, user.is_alive), (std::process::id().into(), true));
        }
    }

    /// Goal: a child of fork adds nothing to its parent's counts. Method: one that begins a walk,
    /// which no call has refused yet, by the thread that has its parent's line.
    #[test]
    fn a_child_counts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let heap = heap_in(&dir, &Options::default());
        heap.ground().count_walk();
        let walks = || users_of(&dir).now().unwrap()[0].totals.walks;
        let before = walks();
        let child = pmem::life::in_child(|| {
            heap.ground().count_walk();
            0
        });
        assert_eq!((child, before, walks()), (0, 1, 1));
    }

    /// Goal: what stands in the words of a heap in use is shown, and is no panic. Method: words of
    /// each kind in all slots and lines.
    #[test]
    fn words_of_any_value_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let heap = heap_in(&dir, &Options::default());
        let users = users_of(&dir);
        let core = heap.core();
        let slots = u64::from(core.header.slots);
        let area = core.places.slots..core.places.slots + slots * (SLOT_BYTES + COUNTS_BYTES);
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for kind in [u64::MAX, 1 << 63, 0x1001, 0x1000_0000_1000, 0] {
            for at in area.clone().step_by(8) {
                word = word.wrapping_mul(0xd134_2543_de82_ef95) | 1;
                let value = if kind == 0 { word } else { kind };
                let _window = core.mem.window();
                core.mem.store(at, value);
            }
            let marked = users.now().unwrap();
            assert!(marked.len() as u64 <= slots);
        }
        // It can't be left as it is.
        drop(heap.into_memory());
    }

    /// Goal: a heap that nobody has shows nobody, and one whose processes were all killed shows
    /// these. Method: a heap that is left, and one that is as a kill leaves it.
    #[test]
    fn nobody_and_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let heap = heap_in(&dir, &Options::default());
        heap.close().unwrap();
        let users = users_of(&dir);
        assert_eq!(users.now().unwrap(), []);
        let heap = Heap::open(&dir.path().join("heap"), &Options::default()).unwrap();
        heap.ground().count_get(7);
        drop(heap.into_memory());
        let dead = users.now().unwrap().pop().unwrap();
        assert_eq!((dead.is_alive, dead.totals.gets), (false, 1));
    }
}
