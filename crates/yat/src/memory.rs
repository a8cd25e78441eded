//! The memory model: what is durable for certain, and what may be durable beside it.
//!
//! Cached stores to one line persist as a prefix in program order; lines persist in any
//! combination, and any line may be evicted at any time. A flush alone guarantees nothing: what a
//! CPU flushed, or stored non-temporally, is durable after that CPU's next fence. Non-temporal
//! stores tear at words, in any order; those of bulk data into a few parts of whole lines, since
//! its words are more than could be combined. A non-temporal store throws its line out of all
//! caches: once it is durable, nothing that was stored there before it persists over it.

use crate::crash_image::Open;
use crate::explore::When;
use crate::mutants::{Mutant, Scope};
use crate::trace::{CPUS, Cpu, Event, Place, Trace};
use pmem::record::StoreKind;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

pub(crate) const LINE: u64 = 64;

/// A non-temporal store of more bytes than this is bulk data.
const BULK_BYTES: usize = 128;
/// Parts into which bulk data tears.
const BULK_PARTS: usize = 4;

/// A cached store that is not known to be durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    /// Offset in the line, length.
    pub at: u8,
    pub len: u8,
    pub bytes: [u8; 16],
    /// Its place in the order of all stores.
    pub nth: u32,
    pub place: Place,
}

/// A word stored non-temporally, not known to be durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streamed {
    /// The index of the word among the line's eight.
    pub word: u8,
    pub value: [u8; 8],
    /// The part of bulk data that it persists with.
    pub part: Option<u32>,
    pub cpu: Cpu,
    pub nth: u32,
    pub place: Place,
}

/// A line that may hold one of several things.
#[derive(Clone, Default)]
pub(crate) struct Line {
    /// The cached stores, in program order.
    pub cached: Vec<Stored>,
    /// The number of them that each CPU has flushed since.
    flushed: [u16; CPUS],
    pub streamed: Vec<Streamed>,
    /// The words that an earlier crash left undecided under them.
    pub under: Option<Box<Open>>,
}

/// A durable image and what may be durable beside it.
#[derive(Clone)]
pub struct Pending {
    /// The bytes that are durable for certain; where an earlier crash left words undecided, they
    /// are not in it.
    pub durable: Vec<u8>,
    pub(crate) lines: BTreeMap<u64, Arc<Line>>,
    /// Parts of bulk data that an earlier crash has decided.
    pub(crate) parts: BTreeMap<u32, bool>,
    next_part: u32,
    nth: u32,
    /// Lines of `durable` that changed since they were last asked for.
    changed: Vec<u64>,
}

impl Pending {
    /// Everything in `durable` is durable, and nothing pending.
    #[must_use]
    pub fn new(durable: Vec<u8>) -> Pending {
        Pending {
            durable,
            lines: BTreeMap::new(),
            parts: BTreeMap::new(),
            next_part: 0,
            nth: 0,
            changed: Vec::new(),
        }
    }

    /// Returns what a crash of `before` left, as far as nothing of it was looked at.
    #[must_use]
    pub fn after_crash(before: &Pending) -> Pending {
        let lines = before.lines.iter().map(|(&start, line)| {
            let under = Some(Box::new(Open::of(before, start, line)));
            (
                start,
                Arc::new(Line {
                    under,
                    ..Line::default()
                }),
            )
        });
        Pending {
            durable: before.durable.clone(),
            lines: lines.collect(),
            parts: before.parts.clone(),
            next_part: before.next_part,
            nth: 0,
            changed: Vec::new(),
        }
    }

    /// Images that the model allows here, if every line were to be decided: a product, so it may be
    /// huge.
    #[must_use]
    pub fn allowed(&self) -> f64 {
        let mut parts = Vec::new();
        let mut product = 1.0;
        for line in self.lines.values() {
            product *= (line.cached.len() + 1) as f64;
            for streamed in &line.streamed {
                match streamed.part {
                    Some(part) => parts.push(part),
                    None => product *= 2.0,
                }
            }
        }
        parts.dedup();
        parts.iter().fold(product, |product, _| product * 2.0)
    }

    /// Lines of the durable image that changed since this was last called.
    pub(crate) fn take_changed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.changed)
    }

    /// A number that tells apart what may be durable.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for part in self.durable.chunks(self.durable.len().div_ceil(4)) {
            crc32c::crc32c(part).hash(&mut hasher);
        }
        for (start, line) in &self.lines {
            start.hash(&mut hasher);
            line.digest(&mut hasher);
        }
        self.parts.hash(&mut hasher);
        hasher.finish()
    }

    /// Follows a whole trace.
    pub fn apply_all(&mut self, trace: &Trace) {
        for event in &trace.events {
            self.apply(trace, event);
        }
    }

    /// Follows one event.
    pub fn apply(&mut self, trace: &Trace, event: &Event) {
        match *event {
            Event::Store {
                off,
                bytes,
                kind,
                cpu,
                at,
            } => {
                let bytes = trace.bytes(bytes);
                self.nth += 1;
                if kind == StoreKind::NonTemporal {
                    self.stream(off, bytes, cpu, at);
                } else {
                    self.store(off, bytes, at);
                }
            }
            Event::Flush { line, cpu, .. } => {
                if let Some(line) = self.lines.get_mut(&line) {
                    let line = Arc::make_mut(line);
                    line.flushed[cpu as usize] = line.cached.len() as u16;
                }
            }
            Event::Fence { cpu, .. } => self.fence(cpu),
            Event::Return { .. } => {}
            Event::Decided { off, value, part } => {
                if let Some((part, there)) = part {
                    self.parts.insert(part, there);
                }
                let start = off & !(LINE - 1);
                self.durable[off as usize..off as usize + 8].copy_from_slice(&value);
                self.changed.push(start);
                if let Some(line) = self.lines.get_mut(&start) {
                    let under = Arc::make_mut(line).under.as_mut();
                    under.expect("only undecided words are decided").force(
                        (off % LINE / 8) as usize,
                        value,
                        part.is_some(),
                    );
                }
            }
        }
    }

    /// Follows a trace, as a mutant does it, until power fails in it; answers where in the source
    /// that was, if it was at a fence.
    pub(crate) fn follow(
        &mut self,
        trace: &Trace,
        when: When,
        mutant: Option<Mutant>,
    ) -> Option<Place> {
        let mut fence = 0;
        for event in trace.without(mutant, Scope::Whole) {
            if let Event::Fence { at, .. } = *event {
                if when == When::Fence(fence) {
                    return Some(at);
                }
                fence += 1;
            }
            self.apply(trace, event);
        }
        None
    }

    /// Time passed, and every line was evicted: all is durable.
    pub fn drain(&mut self) {
        for line in self.lines.values_mut() {
            let line = Arc::make_mut(line);
            line.flushed = [line.cached.len() as u16; CPUS];
        }
        for cpu in 0..CPUS {
            self.fence(cpu as Cpu);
        }
    }

    fn line(&mut self, off: u64) -> &mut Line {
        Arc::make_mut(self.lines.entry(off & !(LINE - 1)).or_default())
    }

    fn store(&mut self, off: u64, bytes: &[u8], place: Place) {
        let mut stored = Stored {
            at: (off % LINE) as u8,
            len: bytes.len() as u8,
            bytes: [0; 16],
            nth: self.nth,
            place,
        };
        stored.bytes[..bytes.len()].copy_from_slice(bytes);
        self.line(off).cached.push(stored);
    }

    fn stream(&mut self, off: u64, bytes: &[u8], cpu: Cpu, place: Place) {
        let lines = bytes.len().div_ceil(LINE as usize);
        let first_part = self.next_part;
        let bulk = bytes.len() > BULK_BYTES;
        if bulk {
            self.next_part += BULK_PARTS as u32;
        }
        let nth = self.nth;
        for (at, word) in bytes.chunks(8).enumerate() {
            let part = first_part + (at / 8 * BULK_PARTS / lines) as u32;
            let here = off + at as u64 * 8;
            let mut value = [0; 8];
            value[..word.len()].copy_from_slice(word);
            self.line(here).streamed.push(Streamed {
                word: (here % LINE / 8) as u8,
                value,
                part: bulk.then_some(part),
                cpu,
                nth,
                place,
            });
        }
    }

    fn fence(&mut self, cpu: Cpu) {
        let Pending {
            durable,
            lines,
            changed,
            ..
        } = self;
        lines.retain(|&start, line| {
            let flushed = line.flushed[cpu as usize];
            let streams = line.streamed.iter().any(|streamed| streamed.cpu == cpu);
            if flushed == 0 && !streams {
                return true;
            }
            let line = Arc::make_mut(line);
            changed.push(start);
            line.drain(cpu, &mut durable[start as usize..(start + LINE) as usize]);
            !line.cached.is_empty() || !line.streamed.is_empty() || line.undecided() != 0
        });
    }
}

impl Line {
    /// Adds all that tells it from others.
    pub fn digest(&self, hasher: &mut impl Hasher) {
        for stored in &self.cached {
            (stored.at, stored.len, stored.bytes).hash(hasher);
        }
        self.flushed.hash(hasher);
        for streamed in &self.streamed {
            (streamed.word, streamed.value, streamed.part, streamed.cpu).hash(hasher);
        }
        if let Some(under) = &self.under {
            under.digest(hasher);
        }
    }

    /// Words that an earlier crash left undecided, a bit each.
    fn undecided(&self) -> u8 {
        self.under.as_ref().map_or(0, |under| !under.decided())
    }

    /// No store that came before a streamed word, which is durable, persists over it.
    fn cover(&mut self, over: Streamed) {
        let (from, to) = (over.word as usize * 8, over.word as usize * 8 + 8);
        for stored in self.cached.iter_mut().filter(|older| older.nth < over.nth) {
            let (at, len) = (stored.at as usize, stored.len as usize);
            let (start, end) = (at.max(from), (at + len).min(to));
            if start < end {
                stored.bytes[start - at..end - at]
                    .copy_from_slice(&over.value[start - from..end - from]);
            }
        }
        let same = |older: &&mut Streamed| older.word == over.word && older.nth < over.nth;
        for older in self.streamed.iter_mut().filter(same) {
            older.value = over.value;
        }
    }

    /// Makes durable what `cpu` flushed and streamed.
    fn drain(&mut self, cpu: Cpu, durable: &mut [u8]) {
        let flushed = std::mem::take(&mut self.flushed[cpu as usize]);
        for other in &mut self.flushed {
            *other = other.saturating_sub(flushed);
        }
        let mut done: Vec<(u32, usize, Vec<u8>)> = Vec::new();
        for at in 0..self.streamed.len() {
            if self.streamed[at].cpu == cpu {
                self.cover(self.streamed[at]);
            }
        }
        for stored in self.cached.drain(..flushed as usize) {
            let bytes = stored.bytes[..stored.len as usize].to_vec();
            done.push((stored.nth, stored.at as usize, bytes));
        }
        self.streamed.retain(|streamed| {
            if streamed.cpu == cpu {
                let at = streamed.word as usize * 8;
                done.push((streamed.nth, at, streamed.value.to_vec()));
            }
            streamed.cpu != cpu
        });
        done.sort_by_key(|&(nth, _, _)| nth);
        for (_, at, bytes) in done {
            durable[at..at + bytes.len()].copy_from_slice(&bytes);
            if let Some(under) = &mut self.under {
                under.overwrite(at, &bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    fn store(trace: &mut Trace, off: u64, value: u64, kind: StoreKind, cpu: Cpu) {
        trace.store(off, &value.to_le_bytes(), kind, cpu, Location::caller());
    }

    fn word(pending: &Pending, off: u64) -> u64 {
        let bytes = &pending.durable[off as usize..off as usize + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Goal: a CPU keeps the order of the stores to one word. Method: one CPU stores to a line and
    /// flushes nothing; another streams over one of its words and fences; then all lines are
    /// evicted.
    #[test]
    fn older_stores_do_not_persist_over_a_streamed_word() {
        let (mut trace, at) = (Trace::default(), Location::caller());
        store(&mut trace, 64, 1, StoreKind::Cached, 1);
        store(&mut trace, 72, 2, StoreKind::Cached, 1);
        store(&mut trace, 80, 9, StoreKind::NonTemporal, 1);
        store(&mut trace, 64, 3, StoreKind::NonTemporal, 0);
        store(&mut trace, 80, 4, StoreKind::NonTemporal, 0);
        trace.events.push(Event::Fence { cpu: 0, at });
        let mut pending = Pending::new(vec![0; 128]);
        pending.apply_all(&trace);
        let seen = [64, 72, 80].map(|off| word(&pending, off));
        assert_eq!(seen, [3, 0, 4], "after the fence");
        let mut later = Trace::default();
        store(&mut later, 64, 5, StoreKind::Cached, 1);
        for (stored, expected) in [(false, [3, 2, 4]), (true, [5, 2, 4])] {
            let mut pending = pending.clone();
            if stored {
                pending.apply(&later, &later.events[0]);
            }
            pending.drain();
            let seen = [64, 72, 80].map(|off| word(&pending, off));
            assert_eq!(seen, expected, "after eviction");
        }
    }
}
