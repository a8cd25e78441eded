//! Crash images, decided as they are read.
//!
//! A [`Pending`] knows, for every line with unfenced stores, what it may hold. A [`CrashImage`] is a pool in
//! memory whose undecided words get a value when somebody first loads them; the values that a word may have
//! depend on those chosen before in its line, because cached stores to one line persist as a prefix. A
//! [`Chooser`] enumerates the choices depth first.

use crate::trace::Event;
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const LINE: u64 = 64;

/// Stores to one line that are not known to be durable.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Cached stores in program order: offset in the line, bytes.
    cached: Vec<(usize, Vec<u8>)>,
    /// How many of them were flushed since.
    flushed: usize,
    /// Non-temporal words: place in the line, values in program order.
    streamed: BTreeMap<usize, Vec<Streamed>>,
}

/// A word stored non-temporally.
#[derive(Clone, Copy, Debug)]
struct Streamed {
    value: [u8; 8],
    /// The part of its store that it persists with, where tearing is coarse.
    part: Option<usize>,
}

/// Parts into which a non-temporal store of file data tears where its words are not told apart.
const COARSE_PARTS: usize = 4;

/// A durable image and what may be durable beside it.
#[derive(Clone)]
pub struct Pending {
    /// What is durable for certain.
    pub durable: Vec<u8>,
    lines: BTreeMap<u64, Line>,
    /// Non-temporal stores tear into a few parts only: for calls that may tear data anyway, and have more
    /// words than could ever be combined.
    coarse: bool,
    parts: usize,
}

impl Pending {
    /// Everything in `durable` is durable, and nothing pending.
    #[must_use]
    pub fn new(durable: Vec<u8>, coarse: bool) -> Pending {
        Pending {
            durable,
            lines: BTreeMap::new(),
            coarse,
            parts: 0,
        }
    }

    /// Lines with unfenced stores.
    #[must_use]
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// Follows one event.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Store {
                off, bytes, kind, ..
            } => self.store(*off, bytes, *kind),
            Event::Flush { line, .. } => {
                if let Some(line) = self.lines.get_mut(line) {
                    line.flushed = line.cached.len();
                }
            }
            Event::Fence { .. } => self.fence(),
            Event::Death => {
                for line in self.lines.values_mut() {
                    line.flushed = 0;
                    line.streamed.clear();
                }
            }
        }
    }

    fn store(&mut self, off: u64, bytes: &[u8], kind: StoreKind) {
        if kind == StoreKind::NonTemporal {
            let words = bytes.len().div_ceil(8);
            self.parts += COARSE_PARTS;
            for (at, word) in bytes.chunks(8).enumerate() {
                let part = self.parts + at * COARSE_PARTS / words;
                let part = self.coarse.then_some(part);
                let here = off + at as u64 * 8;
                let mut value = [0; 8];
                value[..word.len()].copy_from_slice(word);
                let line = self.lines.entry(here & !(LINE - 1)).or_default();
                let place = (here % LINE / 8) as usize;
                line.streamed
                    .entry(place)
                    .or_default()
                    .push(Streamed { value, part });
            }
            return;
        }
        let line = self.lines.entry(off & !(LINE - 1)).or_default();
        line.cached.push(((off % LINE) as usize, bytes.to_vec()));
    }

    fn fence(&mut self) {
        let durable = &mut self.durable;
        self.lines.retain(|&start, line| {
            let start = start as usize;
            for (at, bytes) in line.cached.drain(..line.flushed) {
                durable[start + at..start + at + bytes.len()].copy_from_slice(&bytes);
            }
            line.flushed = 0;
            for (place, values) in std::mem::take(&mut line.streamed) {
                let last = values.last().expect("a value was stored");
                let at = start + place * 8;
                durable[at..at + 8].copy_from_slice(&last.value);
            }
            !line.cached.is_empty()
        });
    }
}

/// Depth-first enumeration: a run asks, the next run answers differently at the last place that has more.
#[derive(Debug, Default)]
pub struct Chooser {
    /// Choice and number of alternatives, in the order in which they came up.
    path: Vec<(usize, usize)>,
    at: usize,
}

impl Chooser {
    fn choose(&mut self, alternatives: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, alternatives));
        }
        let (choice, expected) = self.path[self.at];
        assert_eq!(expected, alternatives, "recovery is not deterministic");
        self.at += 1;
        choice
    }

    /// Goes to the next combination; `false` when all were tried.
    pub fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, alternatives)) = self.path.pop() {
            if choice + 1 < alternatives {
                self.path.push((choice + 1, alternatives));
                return true;
            }
        }
        false
    }

    /// The choices of the last run: what replays it.
    #[must_use]
    pub fn choices(&self) -> Vec<usize> {
        self.path.iter().map(|&(choice, _)| choice).collect()
    }
}

/// A line in which some words are undecided.
struct Open {
    line: Line,
    base: [u8; 64],
    /// How many cached stores may have persisted, as far as the words read so far tell.
    prefixes: Vec<usize>,
    /// Words decided or overwritten.
    settled: u8,
}

impl Open {
    /// The cached value of a word after `prefix` stores.
    fn cached(&self, word: usize, prefix: usize) -> [u8; 8] {
        let mut line = self.base;
        for (at, bytes) in &self.line.cached[..prefix] {
            line[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        line[word * 8..word * 8 + 8]
            .try_into()
            .expect("eight bytes")
    }

    /// Decides a word.
    fn decide(
        &mut self,
        word: usize,
        chooser: &mut Chooser,
        parts: &mut BTreeMap<usize, bool>,
    ) -> [u8; 8] {
        if let Some(
            [
                ..,
                Streamed {
                    value,
                    part: Some(part),
                },
            ],
        ) = self.line.streamed.get(&word).map(Vec::as_slice)
        {
            self.settled |= 1 << word;
            let there = *parts.entry(*part).or_insert_with(|| chooser.choose(2) == 1);
            return if there { *value } else { self.cached(word, 0) };
        }
        let mut values: Vec<[u8; 8]> = Vec::new();
        for &prefix in &self.prefixes {
            let value = self.cached(word, prefix);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let from_cached = values.len();
        for streamed in self.line.streamed.get(&word).into_iter().flatten() {
            if !values.contains(&streamed.value) {
                values.push(streamed.value);
            }
        }
        let choice = if values.len() > 1 {
            chooser.choose(values.len())
        } else {
            0
        };
        let value = values[choice];
        if choice < from_cached {
            let kept = |&prefix: &usize| self.cached(word, prefix) == value;
            self.prefixes = self.prefixes.iter().copied().filter(kept).collect();
        }
        self.settled |= 1 << word;
        value
    }
}

struct State {
    open: BTreeMap<u64, Open>,
    chooser: Chooser,
    /// Coarse parts decided so far.
    parts: BTreeMap<usize, bool>,
}

/// Answers what an undecided word is, and remembers it.
type Decide<'a> = &'a mut dyn FnMut(&mut Open, usize) -> [u8; 8];

/// The observer that decides words as they are loaded.
pub struct CrashImage {
    state: Mutex<State>,
    /// One bit a line: it may have undecided words.
    marked: Vec<AtomicU64>,
}

impl CrashImage {
    /// A pool in memory that holds one of the images of `pending`: which, `chooser` says.
    #[must_use]
    pub fn new(pending: &Pending, chooser: Chooser) -> (Pmem, Arc<CrashImage>) {
        let len = pending.durable.len() as u64;
        let mem = Pmem::private(len);
        mem.poke(0, &pending.durable);
        let marked: Vec<AtomicU64> = (0..len.div_ceil(LINE * 64))
            .map(|_| AtomicU64::new(0))
            .collect();
        let mut open = BTreeMap::new();
        for (&start, line) in &pending.lines {
            let at = start as usize;
            marked[at / 64 / 64].fetch_or(1 << (at / 64 % 64), Ordering::Relaxed);
            open.insert(
                start,
                Open {
                    base: pending.durable[at..at + 64].try_into().expect("a line"),
                    prefixes: (0..=line.cached.len()).collect(),
                    line: line.clone(),
                    settled: 0,
                },
            );
        }
        let image = CrashImage {
            state: Mutex::new(State {
                open,
                chooser,
                parts: BTreeMap::new(),
            }),
            marked,
        };
        (mem, Arc::new(image))
    }

    /// Gives the chooser back after the run.
    #[must_use]
    pub fn into_chooser(&self) -> Chooser {
        std::mem::take(
            &mut self
                .state
                .lock()
                .expect("no panic while it is held")
                .chooser,
        )
    }

    fn is_marked(&self, line: u64) -> bool {
        let at = line / LINE;
        self.marked[(at / 64) as usize].load(Ordering::Relaxed) >> (at % 64) & 1 == 1
    }

    /// Visits the undecided words of a range.
    fn undecided(
        &self,
        off: u64,
        len: u64,
        mut visit: impl FnMut(&mut Open, usize, Decide<'_>, u64),
    ) {
        let mut line = off & !(LINE - 1);
        while line < off + len {
            if self.is_marked(line) {
                let mut state = self.state.lock().expect("no panic while it is held");
                let State {
                    open,
                    chooser,
                    parts,
                } = &mut *state;
                let mut decide = |open: &mut Open, word: usize| open.decide(word, chooser, parts);
                let open = open.get_mut(&line).expect("marked lines are open");
                for word in 0..8 {
                    let at = line + word as u64 * 8;
                    let touched = at + 8 > off && at < off + len;
                    if touched && open.settled >> word & 1 == 0 {
                        visit(open, word, &mut decide, at);
                    }
                }
            }
            line += LINE;
        }
    }
}

impl Observer for CrashImage {
    fn load(&self, mem: &Pmem, off: u64, len: u64) {
        self.undecided(off, len, |open, word, decide, at| {
            mem.poke(at, &decide(open, word));
        });
    }

    fn store(
        &self,
        mem: &Pmem,
        off: u64,
        bytes: &[u8],
        _kind: StoreKind,
        _at: &'static Location<'static>,
    ) -> Verdict {
        let len = bytes.len() as u64;
        self.undecided(off, len, |open, word, decide, at| {
            if at >= off && at + 8 <= off + len {
                // Overwritten whole: what it was matters to nobody.
                open.settled |= 1 << word;
            } else {
                mem.poke(at, &decide(open, word));
            }
        });
        Verdict::Do
    }
}
