//! Reading a heap without the right to write: no slot, no lock, no store
//! (`docs/adr/0066-readers-without-a-slot.md`).
//!
//! The run's number is the version under which everything is read. It is looked at before and
//! after; what was read is believed if it is the same. It is advanced before the heap is recovered,
//! or the volatile area means something else. Under one number a heap is in one of three states:
//!
//! - *At rest*: it was left clean and nobody has come since. Nothing changes, and the volatile area
//!   is not looked at.
//! - *In use*: the volatile area is of this boot and ready, and somebody has the heap. A change is
//!   seen by the sequences of its chunks, as by any reader.
//! - Left by a crash, or by processes that were all killed: it needs recovery, and is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pm_store::clock::now_ns;
use pmem::slots::{Probe, Prober};
use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{OWNER_OFFSET, SEQUENCE_OFFSET};
use pmlib_format::header::{
    ERA_OFFSET, RUN_OFFSET, SPANS_OFFSET, STATE_ACTIVE, STATE_CLEAN, STATE_OFFSET,
};
use pmshare::Shared;
use pmshare::attach::keep_apart;
use pmshare::holder::slot_of;
use pmshare::lock_bytes::{BYTE_ATTACH, BYTE_POOL};
use pmshare::owner::mapper::mapper_pid;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::heap::Options;
use crate::packed::checked_value;
use crate::shared::{Record, this_run};

/// Somebody who had the heap so long ago is asked for again.
const ASKED_NS: u64 = 10_000_000;
/// Looks at a chunk that is being changed before the reader sleeps.
const SPINS: u32 = 200;
/// The sleep of such a reader, and of one who waits for a process that attaches.
const NAP: Duration = Duration::from_micros(100);
/// A dead process in the middle of a commit is left to those who go on for so long.
const DEAD_PATIENCE: Duration = Duration::from_secs(1);
/// The wait for a process, if none is said.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How a look at the heap is known to be of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// By the sequences alone: this process is a member.
    Member,
    /// By the run's number: nobody has the heap.
    Rest(u64),
    /// By both.
    Use(u64),
}

/// A process that only reads.
pub(crate) struct Reader {
    prober: Prober,
    /// A heap of another place is known to be nobody's.
    adopt: bool,
    /// A process that attaches, or that stands in the middle of a commit, is waited for so long.
    patience: Duration,
    /// The run under which the spans were compared last.
    compared: AtomicU64,
    /// When somebody had the heap, ns of CLOCK_MONOTONIC.
    asked: AtomicU64,
    /// Under a run at rest: where the records of a log's segment end.
    ends: Mutex<Option<(u64, u64, u64)>>,
}

impl Reader {
    pub fn new(prober: Prober, options: &Options) -> Reader {
        Reader {
            prober,
            adopt: options.adopt,
            patience: options.patience(PATIENCE),
            compared: AtomicU64::new(u64::MAX),
            asked: AtomicU64::new(0),
            ends: Mutex::new(None),
        }
    }

    pub fn has(&self, byte: u64) -> Result<bool> {
        Ok(self.prober.probe(byte)? != Probe::Free)
    }

    /// Whether somebody has the heap, or had it a moment ago.
    fn has_members(&self) -> Result<bool> {
        let now = now_ns();
        if now.wrapping_sub(self.asked.load(Ordering::Relaxed)) < ASKED_NS {
            return Ok(true);
        }
        let is_held = self.has(BYTE_POOL)?;
        if is_held {
            self.asked.store(now, Ordering::Relaxed);
        }
        Ok(is_held)
    }

    /// Where a segment's records end, under a run at rest, if that was looked for last.
    pub fn end_of(&self, run: u64, segment: u64) -> Option<u64> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ends.filter(|known| (known.0, known.1) == (run, segment));
        known.map(|(_, _, filled)| filled)
    }

    pub fn note_end(&self, run: u64, segment: u64, filled: u64) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = Some((run, segment, filled));
    }
}

impl Core {
    /// Begins a look.
    ///
    /// # Errors
    /// `NeedsRecovery`, `Busy`, `Apart`, `Shorter`: of one who only reads.
    #[inline]
    pub fn look(&self) -> Result<Look> {
        match &self.reader {
            None => Ok(Look::Member),
            Some(reader) => self.look_as(reader),
        }
    }

    /// Whether the look is still of the same run.
    #[inline]
    pub fn is_same_run(&self, look: Look) -> bool {
        match look {
            Look::Member => true,
            Look::Rest(run) | Look::Use(run) => self.is_run(run),
        }
    }

    fn is_run(&self, run: u64) -> bool {
        self.run_name() == run
    }

    /// The name of the run: its number below its era.
    #[inline]
    fn run_name(&self) -> u64 {
        let [run, era] = [RUN_OFFSET, ERA_OFFSET].map(|word| self.mem.load_cached(word));
        era << 32 | u64::from(run as u32)
    }

    fn look_as(&self, reader: &Reader) -> Result<Look> {
        let since = Instant::now();
        let mut before = None;
        loop {
            // The number first: whoever comes says that the heap is in use before he counts.
            let run = self.run_name();
            let word = self.mem.load_cached(STATE_OFFSET);
            let state = checked_value(word, STATE_OFFSET);
            if state == Some(STATE_CLEAN) {
                self.compare_spans(reader, run)?;
                return Ok(Look::Rest(run));
            }
            let record = Record::load(&self.mem, &self.places);
            let ours = this_run(&self.mem);
            let is_ready = state == Some(STATE_ACTIVE)
                && record.is_ready
                && record.run.boot_id == ours.boot_id;
            let has_members = is_ready && reader.has_members()?;
            let is_apart = match is_ready {
                true => keep_apart(&record.run, &ours, has_members, reader.adopt),
                false => Ok(()),
            };
            if has_members && is_apart.is_ok() {
                self.compare_spans(reader, run)?;
                return Ok(Look::Use(run));
            }
            if reader.has(BYTE_ATTACH)? {
                // Somebody comes, and recovers it, or goes.
                if since.elapsed() > reader.patience {
                    let pid = mapper_pid(reader.prober.path());
                    return Err(Error::Busy { pid });
                }
                std::thread::sleep(NAP);
                before = None;
                continue;
            }
            // Somebody may have come and gone between the looks above: nothing changed since one.
            if before.replace((run, word)) == Some((run, word)) {
                is_apart?;
                return Err(Error::NeedsRecovery {
                    why: match (state, is_ready) {
                        (None, _) => "the word that says whether it is in use is damaged",
                        (_, true) => "all processes that had it were killed",
                        (_, false) => "a crash has left it",
                    },
                });
            }
        }
    }

    /// That the heap has the spans that this process knows: in a later run it may have become
    /// shorter.
    fn compare_spans(&self, reader: &Reader, run: u64) -> Result<()> {
        if reader.compared.load(Ordering::Relaxed) == run {
            return Ok(());
        }
        for (index, span) in self.spans.iter().enumerate() {
            let place = SPANS_OFFSET + index as u64 * 8;
            let [word, copy] = self.span_words(place);
            let chunks = checked_value(word, place).or_else(|| checked_value(copy, place));
            if chunks.map(u64::from) != Some(span.chunks) {
                return Err(match word {
                    0 => Error::Shorter,
                    _ => Error::Damaged {
                        what: "the list of spans",
                        offset: place,
                    },
                });
            }
        }
        reader.compared.store(run, Ordering::Relaxed);
        Ok(())
    }

    /// The sequence of a chunk in use. It may be odd if the look has come to nothing.
    pub fn sequence_in(&self, run: u64, chunk: u64) -> Result<u64> {
        let line = self.line(chunk);
        let Some(reader) = &self.reader else {
            return self.sequence(line);
        };
        let (mut spins, mut since) = (0, None);
        loop {
            let sequence = self.mem.load_cached(line + SEQUENCE_OFFSET);
            if sequence & 1 == 0 || !self.is_run(run) {
                return Ok(sequence);
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            self.enter()?;
            std::thread::sleep(NAP);
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            let wait = self.waits_for_member(reader, line, waited);
            // Its member may have ended the change, and have left, before it was asked for.
            if self.mem.load_cached(line + SEQUENCE_OFFSET) == sequence && self.is_run(run) {
                wait?;
            }
        }
    }

    /// That somebody is going to end the change of a chunk.
    fn waits_for_member(&self, reader: &Reader, line: u64, waited: Duration) -> Result<()> {
        if !reader.has(BYTE_POOL)? {
            return Err(Error::NeedsRecovery {
                why: "the last process that had it was killed in the middle of a commit",
            });
        }
        let owner = self.mem.load_cached(line + OWNER_OFFSET);
        let slot = slot_of(owner).filter(|&slot| slot < self.layout().slot_count);
        let is_alive = slot.is_some_and(|slot| self.slot_locked(slot));
        if waited > DEAD_PATIENCE && !is_alive {
            return Err(Error::NeedsRecovery {
                why: "a process was killed in the middle of a commit, and no other has met that",
            });
        }
        if waited > reader.patience {
            let pid = slot.map_or(0, |slot| self.slot_pid(slot) as u32);
            return Err(Error::Busy { pid });
        }
        Ok(())
    }

    /// Copies bytes as they were at one moment, as one who only reads.
    pub fn read_as_reader(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let (first, last) = (
            offset / CHUNK_BYTES,
            (offset + to.len() as u64 - 1) / CHUNK_BYTES,
        );
        loop {
            let look = self.look()?;
            let mut before = Vec::new();
            if let Look::Use(run) = look {
                for chunk in first..=last {
                    before.push((chunk, self.sequence_in(run, chunk)?));
                }
            }
            self.mem.copy_out(offset, to)?;
            if self.is_unchanged(&before) && self.is_same_run(look) {
                return Ok(());
            }
        }
    }
}
