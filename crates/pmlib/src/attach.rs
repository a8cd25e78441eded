//! Attaching to a heap and leaving it. The first opener redoes what had committed, and makes the
//! volatile area this run's; those who come while somebody has the heap join; the last one to leave
//! leaves it clean. All of this happens under the attach lock, a byte of the heap's file.
//!
//! A heap that nobody has and that was not left clean is recovered as after power loss, also in the
//! same boot: all that was stored is there then.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pmem::slots::{ByteLock, Probe, Prober};
use pmem::{MediumKind, Pmem};
use pmlib_format::HeaderRaw;
use pmlib_format::header::{STATE_ACTIVE, STATE_CLEAN, STATE_OFFSET};
use pmlib_format::lane::{
    DONE_OFFSET, HEAD_OFFSET, LANE_OWNER_OFFSET, LAST_OFFSET, SETTLED_OFFSET,
};
use pmshare::attach::{self, ATTACH_PATIENCE, keep_apart};
use pmshare::holder::{TAG_MASK, slot_of};
use pmshare::lock_bytes::BYTE_POOL;
use pmshare::owner::mapper::mapper_pid;
use pmshare::{Share, Shared, rescue};

use crate::check::Key;
use crate::counts::Counts;
use crate::engine::{Core, Counted};
use crate::error::{Error, Result};
use crate::heap::{Options, name_run, read_header, set_word};
use crate::layout::{Places, Spans};
use crate::packed::checked_value;
use crate::reader::{Look, PATIENCE, Reader};
use crate::seen::Seen;
use crate::sessions::Sessions;
use crate::shared::{Memory, Record, this_run};
use crate::space::Space;

/// The id of the next heap that this process opens.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The locks of a heap's file by which a process comes in.
pub(crate) struct Entrance<'a> {
    path: &'a Path,
    prober: Prober,
    /// One process at a time attaches or leaves.
    attach: ByteLock,
    /// Every process that has the heap has this one.
    heap: ByteLock,
    /// Somebody else has it, or had it a moment ago.
    others: bool,
}

impl<'a> Entrance<'a> {
    /// Whether another process has the heap, or had it a moment ago.
    pub fn has_others(&self) -> bool {
        self.others
    }

    /// Waits until nobody else attaches or leaves.
    ///
    /// # Errors
    /// `Busy`; the file can't be locked.
    pub fn to(path: &'a Path, options: &Options) -> Result<Entrance<'a>> {
        let prober = Prober::open(path)?;
        let patience = options.patience(ATTACH_PATIENCE);
        let attach = attach::attach_lock_within(&prober, Memory::PROGRAM, patience)?;
        let others = prober.probe(BYTE_POOL)? != Probe::Free;
        let Some(heap) = prober.try_shared(BYTE_POOL)? else {
            return Err(Error::Busy {
                pid: mapper_pid(path),
            });
        };
        Ok(Entrance {
            path,
            prober,
            attach,
            heap,
            others,
        })
    }
}

/// Opens the heap in `mem`, which is mapped without write access.
///
/// # Errors
/// Everything that can be wrong with a heap; `NeedsRecovery`, `Busy`, `Apart`.
pub(crate) fn attach_reader(mem: Pmem, path: &Path, options: &Options) -> Result<Core> {
    mem.enter();
    let header = read_header(&mem)?;
    let reader = Reader::new(Prober::open(path)?, options);
    let mut core = Core::over(
        mem,
        header,
        Some(Prober::open(path)?),
        options,
        Some(reader),
    );
    core.is_open = true;
    loop {
        let look = core.look()?;
        let looked = core.find_spans().and_then(|()| match look {
            // The first of those who have it has looked at the table.
            Look::Rest(_) => core.check_table(),
            _ => Ok(()),
        });
        core.mem.acquire();
        if core.is_same_run(look) {
            looked?;
            return Ok(core);
        }
    }
}

/// Attaches to the heap in `mem`: that of a file by its entrance, or memory that no other process
/// has.
///
/// # Errors
/// Everything that can be wrong with a heap.
pub(crate) fn attach(mem: Pmem, entrance: Option<Entrance<'_>>, options: &Options) -> Result<Core> {
    mem.enter();
    let header = read_header(&mem)?;
    let (prober, locks) = match entrance {
        None => (None, None),
        Some(there) => {
            let locks = (there.path, there.attach, there.heap, there.others);
            (Some(there.prober), Some(locks))
        }
    };
    let mut core = Core::over(mem, header, prober, options, None);
    core.is_open = true;
    core.find_spans()?;
    let window = core.mem.window();
    let (path, others) = match &locks {
        None => (None, false),
        Some((path, _, _, others)) => (Some(*path), *others),
    };
    if !core.may_join(path.is_some(), others, options.adopt)? {
        core.begin_run()?;
    }
    attach::occupy((&core).into(), path)?;
    rescue::recover_dead(&core)?;
    drop(window);
    core.look_for_room();
    core.share_bandwidth();
    if let Some((_, entry, heap, _)) = locks {
        core.keep_lock(heap);
        drop(entry);
    }
    Ok(core)
}

impl Core {
    /// A heap's parts, of a process that has no place yet among those that have it.
    pub fn over(
        mem: Pmem,
        header: HeaderRaw,
        prober: Option<Prober>,
        options: &Options,
        reader: Option<Reader>,
    ) -> Core {
        let places = Places::of(&header);
        let max = match mem.medium().kind {
            // The rest of a device may be meant for something else.
            MediumKind::DevDax => options.max,
            _ => options.max_bytes(),
        };
        let mut mem = mem;
        mem.end_tallies();
        let memory = Memory::new(mem, &header, &places);
        let member = pmshare::Options {
            stalled: options.stalled,
            read_only: reader.is_some(),
            ..pmshare::Options::default()
        };
        Core {
            share: Share::new(memory, prober, member),
            key: Key::new(header.seed),
            seen: Arc::new(Seen::new(header.chunks)),
            header,
            places,
            spans: Spans::new(header),
            space: Mutex::new(Space::default()),
            growing: Mutex::new(()),
            max,
            life: pmem::life::number(),
            broken: AtomicBool::new(false),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            patience: options.patience(PATIENCE),
            counts: Counts::default(),
            sessions: Sessions::default(),
            reader,
            is_open: false,
            _counted: Counted::new(),
        }
    }

    /// Whether the volatile area is that of processes that have the heap now. Under the attach
    /// lock.
    fn may_join(&self, is_file: bool, others: bool, adopt: bool) -> Result<bool> {
        if !is_file {
            return Ok(false);
        }
        let state = checked_value(self.mem.load(STATE_OFFSET), STATE_OFFSET);
        let last = Record::load(&self.mem, &self.places);
        let ours = this_run(&self.mem);
        // A lock alone says little: a child that is made at the moment in which one is taken has a
        // copy of its descriptor, and with it the lock, until it becomes another program.
        if state != Some(STATE_ACTIVE) || last.run.boot_id != ours.boot_id {
            return Ok(false);
        }
        keep_apart(&last.run, &ours, others && last.is_ready, adopt)?;
        Ok(others && last.is_ready)
    }

    /// Redoes what the last run left, and makes all that is volatile this run's.
    fn begin_run(&self) -> Result<()> {
        let state = checked_value(self.mem.load(STATE_OFFSET), STATE_OFFSET);
        // Before anything else changes: from here on the heap is in use. One who only reads looks
        // at the number first: with the new one he finds no state of the old run.
        set_word(&self.mem, STATE_OFFSET, STATE_ACTIVE);
        name_run(&self.mem);
        self.mem.fence();
        self.match_span_words();
        self.clear_volatile();
        let stamp = self.recover(state == Some(STATE_CLEAN))?;
        self.check_table()?;
        self.begin_space()?;
        for lane in 0..self.header.lanes {
            let line = self.places.lane_line(lane);
            for word in [LAST_OFFSET, SETTLED_OFFSET, DONE_OFFSET] {
                self.mem.store(line + word, stamp);
            }
            self.mem
                .store(line + HEAD_OFFSET, self.places.ring(lane).start);
        }
        let record = Record {
            run: this_run(&self.mem),
            is_ready: true,
        };
        record.store(&self.mem, &self.places);
        Ok(())
    }

    /// Nobody holds anything, whatever stands in the volatile area.
    fn clear_volatile(&self) {
        for (index, span) in self.spans.iter().enumerate() {
            let lines = span.lines();
            let start = if index == 0 {
                self.places.shared
            } else {
                lines.start
            };
            // One call for all pages: a fault for each would be half of the time of an opening.
            let pages = start & !4095..lines.end.next_multiple_of(4096);
            let _ = self.mem.back(pages.start, pages.end - pages.start);
            self.mem.zero_nt(start, lines.end - start);
        }
        self.mem.fence();
    }

    /// Leaves the heap, clean if nobody else has it.
    ///
    /// # Errors
    /// `Broken`, `Lost`, `Forked`; the file can't be locked. Others find a dead process then.
    pub fn leave(&self) -> Result<()> {
        self.enter()?;
        if self.reader.is_some() {
            return Ok(());
        }
        let entry = self.lock_to_leave()?;
        self.alive()?;
        let _window = self.mem.window();
        self.end_forgotten();
        let me = self.holder().slot;
        let is_alone = || self.marked_slots() == [me];
        if !is_alone() {
            rescue::recover_dead(self)?;
        }
        let is_last = is_alone();
        // Records left open in lanes are made durable by the lanes' next users.
        for lane in 0..if is_last { self.header.lanes } else { 0 } {
            self.quiet(&mut self.lease(lane), &[])?;
        }
        if let Some(offset) = self.mem.failed() {
            return Err(Error::Lost { offset });
        }
        self.shut_down();
        self.free_slot(me);
        if is_last {
            set_word(&self.mem, STATE_OFFSET, STATE_CLEAN);
            self.mem.fence();
        }
        self.drop_locks();
        drop(entry);
        Ok(())
    }

    /// Transactions that the program has forgotten are undone.
    fn end_forgotten(&self) {
        for lane in 0..self.header.lanes {
            let owner = self.places.lane_line(lane) + LANE_OWNER_OFFSET;
            let owner = self.mem.load_cached(owner);
            if slot_of(owner) == Some(self.holder().slot) {
                rescue::clean_after_thread(self, owner & TAG_MASK);
            }
        }
    }
}
