//! Crash images, decided as they are read.
//!
//! A [`CrashImage`] is a pool in memory whose undecided words get a value when somebody first loads
//! them; the values that a word may have depend on those chosen before in its line, because cached
//! stores to one line persist as a prefix. A [`Chooser`] enumerates the choices depth first, or
//! takes them at random.

mod whole;

use crate::memory::{LINE, Line, Pending, Streamed};
use crate::trace::{Event, Place, Trace};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use whole::{Part, words_of};

const PAGE: u64 = 4096;

/// Loads after which a recovery is taken to be one that never ends.
const LOADS_MAX: u64 = 50_000_000;

/// Depth-first enumeration: a run asks, the next run answers differently at the last place that has
/// more.
#[derive(Clone, Debug, Default)]
pub struct Chooser {
    /// Choice and number of alternatives, in the order in which they came up.
    path: Vec<(u32, u32)>,
    at: usize,
    /// State of the random choices; 0 for an enumeration.
    random: u64,
}

impl Chooser {
    /// Chooses as `choices` says, and 0 from there on.
    #[must_use]
    pub fn replay(choices: &[u32]) -> Chooser {
        Chooser {
            path: choices.iter().map(|&choice| (choice, u32::MAX)).collect(),
            ..Chooser::default()
        }
    }

    /// Chooses at random.
    #[must_use]
    pub fn random(seed: u64) -> Chooser {
        Chooser {
            random: seed | 1,
            ..Chooser::default()
        }
    }

    pub(crate) fn choose(&mut self, alternatives: usize) -> usize {
        let alternatives = alternatives as u32;
        if self.at == self.path.len() {
            let choice = if self.random == 0 {
                0
            } else {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                (self.random >> 33) as u32 % alternatives
            };
            self.path.push((choice, alternatives));
        }
        let (choice, expected) = &mut self.path[self.at];
        if *expected == u32::MAX {
            *expected = alternatives;
        }
        assert_eq!(*expected, alternatives, "recovery is not deterministic");
        self.at += 1;
        (*choice).min(alternatives - 1) as usize
    }

    /// Goes to the next combination; `false` when all were tried.
    pub fn advance(&mut self) -> bool {
        self.at = 0;
        if self.random != 0 {
            self.path.clear();
            return true;
        }
        while let Some((choice, alternatives)) = self.path.pop() {
            if choice + 1 < alternatives {
                self.path.push((choice + 1, alternatives));
                return true;
            }
        }
        false
    }

    /// Returns how many choices were made so far in this run.
    #[must_use]
    pub fn made(&self) -> usize {
        self.at
    }

    /// The choices of the last run: what replays it.
    #[must_use]
    pub fn choices(&self) -> Vec<u32> {
        self.path.iter().map(|&(choice, _)| choice).collect()
    }
}

/// A line in which some words are undecided.
#[derive(Clone)]
pub(crate) struct Open {
    line: Arc<Line>,
    base: [u8; 64],
    under: Option<Box<Open>>,
    /// The numbers of cached stores that may have persisted, as far as the words read so far tell;
    /// `None`: any number.
    prefixes: Option<Vec<u16>>,
    /// Words decided or overwritten.
    decided: u8,
}

impl Open {
    /// The line at `start` of `pending`, nothing of it decided.
    pub fn of(pending: &Pending, start: u64, line: &Arc<Line>) -> Open {
        let base = &pending.durable[start as usize..(start + LINE) as usize];
        Open {
            base: base.try_into().expect("a line"),
            under: line.under.clone(),
            line: line.clone(),
            prefixes: None,
            decided: 0,
        }
    }

    pub fn decided(&self) -> u8 {
        self.decided
    }

    /// Adds all that tells it from others.
    pub fn digest(&self, hasher: &mut impl Hasher) {
        (self.base, &self.prefixes, self.decided).hash(hasher);
        self.line.digest(hasher);
        if let Some(under) = &self.under {
            under.digest(hasher);
        }
    }

    /// The cached value of a word after `prefix` stores.
    fn cached(&self, word: usize, prefix: usize) -> [u8; 8] {
        let from = word * 8;
        let mut value: [u8; 8] = self.base[from..from + 8].try_into().expect("eight bytes");
        for stored in &self.line.cached[..prefix] {
            let (at, len) = (stored.at as usize, stored.len as usize);
            let (start, end) = (at.max(from), (at + len).min(from + 8));
            if start < end {
                value[start - from..end - from]
                    .copy_from_slice(&stored.bytes[start - at..end - at]);
            }
        }
        value
    }

    fn prefixes(&self) -> Vec<u16> {
        match &self.prefixes {
            Some(prefixes) => prefixes.clone(),
            None => (0..=self.line.cached.len() as u16).collect(),
        }
    }

    fn streamed(&self, word: usize) -> impl Iterator<Item = &Streamed> {
        let here = move |streamed: &&Streamed| streamed.word as usize == word;
        self.line.streamed.iter().filter(here)
    }

    fn fix(&mut self, word: usize, value: [u8; 8]) {
        self.base[word * 8..word * 8 + 8].copy_from_slice(&value);
        self.decided |= 1 << word;
    }

    /// Decides a word; answers its value, and the part of bulk data it goes with.
    fn decide(&mut self, word: usize, choices: &mut Choices) -> ([u8; 8], Option<(u32, bool)>) {
        let mut part_below = None;
        if let Some(under) = &mut self.under
            && under.decided >> word & 1 == 0
        {
            let (value, part) = under.decide(word, choices);
            part_below = part;
            self.base[word * 8..word * 8 + 8].copy_from_slice(&value);
        }
        let last = self.streamed(word).last().copied();
        if let Some(Streamed {
            value,
            part: Some(part),
            ..
        }) = last
        {
            let there = choices.part(part);
            let value = if there { value } else { self.cached(word, 0) };
            self.fix(word, value);
            return (value, Some((part, there)));
        }
        let mut values = self.values(word, choices.durable_first);
        let choice = if values.len() > 1 {
            choices.chooser.choose(values.len())
        } else {
            0
        };
        let (value, is_cached) = values.swap_remove(choice);
        if is_cached {
            self.keep(word, value);
        }
        self.fix(word, value);
        (value, part_below)
    }

    /// Returns the values that a word may hold, and whether a cached store may have left each; the
    /// oldest first, or the newest.
    fn values(&self, word: usize, newest_first: bool) -> Vec<([u8; 8], bool)> {
        let prefixes = self.prefixes().into_iter();
        let cached = prefixes.map(|prefix| (self.cached(word, prefix as usize), true));
        let streamed = self.streamed(word).map(|streamed| (streamed.value, false));
        let mut all: Vec<([u8; 8], bool)> = cached.chain(streamed).collect();
        if newest_first {
            all.reverse();
        }
        let mut values: Vec<([u8; 8], bool)> = Vec::new();
        for (value, is_cached) in all {
            match values.iter_mut().find(|(known, _)| *known == value) {
                Some((_, known)) => *known |= is_cached,
                None => values.push((value, is_cached)),
            }
        }
        values
    }

    /// Keeps the prefixes that give `word` this value.
    fn keep(&mut self, word: usize, value: [u8; 8]) {
        let mut prefixes = self.prefixes();
        prefixes.retain(|&prefix| self.cached(word, prefix as usize) == value);
        if !prefixes.is_empty() {
            self.prefixes = Some(prefixes);
        }
    }

    /// Follows a decision that was made in another run.
    pub fn force(&mut self, word: usize, value: [u8; 8], of_part: bool) {
        if let Some(under) = &mut self.under
            && under.decided >> word & 1 == 0
        {
            under.force(word, value, of_part);
            self.base[word * 8..word * 8 + 8].copy_from_slice(&value);
        }
        if !of_part {
            self.keep(word, value);
        }
        self.fix(word, value);
    }

    /// Bytes became durable over whatever the crash had left here.
    pub fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.base[at..at + bytes.len()].copy_from_slice(bytes);
        for word in at.div_ceil(8)..(at + bytes.len()) / 8 {
            self.decided |= 1 << word;
        }
    }
}

/// The questions and answers while a word is decided.
struct Choices {
    chooser: Chooser,
    parts: BTreeMap<u32, bool>,
    /// The newest value of a word is tried first.
    durable_first: bool,
}

impl Choices {
    fn part(&mut self, part: u32) -> bool {
        let there = usize::from(!self.durable_first);
        let chooser = &mut self.chooser;
        *self
            .parts
            .entry(part)
            .or_insert_with(|| chooser.choose(2) == there)
    }
}

struct State {
    open: BTreeMap<u64, Open>,
    choices: Choices,
    /// The trace of recovery, where somebody wants to crash that too.
    trace: Option<Trace>,
}

/// The observer that decides words as they are loaded.
pub struct CrashImage {
    state: Mutex<State>,
    /// One bit a line: it may have undecided words.
    marked: Vec<AtomicU64>,
    /// One bit a page: it has such lines.
    open_pages: Vec<AtomicU64>,
    /// One bit a page: it is not what the durable image has.
    dirty: Vec<AtomicU64>,
    loads: AtomicU64,
    ignored: Range<u64>,
}

#[inline]
fn is_set(map: &[AtomicU64], bit: u64) -> bool {
    map[(bit / 64) as usize].load(Ordering::Relaxed) >> (bit % 64) & 1 == 1
}

fn bitmap(bits: u64) -> Vec<AtomicU64> {
    (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

impl CrashImage {
    /// For pools of `len` bytes; stores to `ignored` (bytes) are no part of a trace.
    #[must_use]
    pub fn new(len: u64, ignored: Range<u64>, durable_first: bool) -> CrashImage {
        CrashImage {
            state: Mutex::new(State {
                open: BTreeMap::new(),
                choices: Choices {
                    chooser: Chooser::default(),
                    parts: BTreeMap::new(),
                    durable_first,
                },
                trace: None,
            }),
            marked: bitmap(len.div_ceil(LINE)),
            open_pages: bitmap(len.div_ceil(PAGE)),
            dirty: bitmap(len.div_ceil(PAGE)),
            loads: AtomicU64::new(0),
            ignored,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A recovery that is not deterministic panics under it; what it holds is then thrown away.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes the image of `pending` that `chooser` says; `mem` holds what is durable.
    pub fn arm(&self, pending: &Pending, chooser: Chooser, trace: bool) {
        for word in self.marked.iter().chain(&self.open_pages) {
            word.store(0, Ordering::Relaxed);
        }
        let mut state = self.lock();
        state.open.clear();
        for (&start, line) in &pending.lines {
            let at = start / LINE;
            self.marked[(at / 64) as usize].fetch_or(1 << (at % 64), Ordering::Relaxed);
            let page = start / PAGE;
            self.open_pages[(page / 64) as usize].fetch_or(1 << (page % 64), Ordering::Relaxed);
            state.open.insert(start, Open::of(pending, start, line));
        }
        state.choices.chooser = chooser;
        state.choices.parts.clone_from(&pending.parts);
        state.trace = trace.then(Trace::default);
        self.loads.store(0, Ordering::Relaxed);
    }

    /// The choices made so far.
    #[must_use]
    pub fn made(&self) -> usize {
        self.lock().choices.chooser.made()
    }

    /// The chooser back, after the run.
    #[must_use]
    pub fn take_chooser(&self) -> Chooser {
        std::mem::take(&mut self.lock().choices.chooser)
    }

    /// Takes the trace of what was done since it was armed, and no more.
    #[must_use]
    pub fn take_trace(&self) -> Option<Trace> {
        self.lock().trace.take()
    }

    /// Notes what is done from here on, or does not.
    pub(crate) fn trace_on(&self, on: bool) {
        self.lock().trace = on.then(Trace::default);
    }

    /// Pages that are not what is durable; they count as clean from here on.
    pub(crate) fn take_dirty(&self) -> Vec<u64> {
        let mut pages = Vec::new();
        for (at, word) in self.dirty.iter().enumerate() {
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                pages.push((at as u64 * 64 + u64::from(bits.trailing_zeros())) * PAGE);
                bits &= bits - 1;
            }
        }
        pages
    }

    /// For each store that was not durable at the crash, whether it is in this image: `None` if
    /// nobody looked.
    #[must_use]
    pub fn stores(&self) -> Vec<(u64, Place, Option<bool>)> {
        let mut stores = Vec::new();
        for (&start, open) in &self.lock().open {
            let prefixes = open.prefixes();
            let (least, most) = (prefixes.iter().min(), prefixes.iter().max());
            for (at, stored) in open.line.cached.iter().enumerate() {
                let there = match (least, most) {
                    (Some(&least), _) if at < least as usize => Some(true),
                    (_, Some(&most)) if at >= most as usize => Some(false),
                    _ => None,
                };
                stores.push((start + u64::from(stored.at), stored.place, there));
            }
            for streamed in &open.line.streamed {
                let at = streamed.word as usize;
                let there = (open.decided >> at & 1 == 1)
                    .then(|| open.base[at * 8..at * 8 + 8] == streamed.value);
                stores.push((start + at as u64 * 8, streamed.place, there));
            }
        }
        stores
    }

    fn mark_dirty(&self, off: u64, len: u64) {
        for page in off / PAGE..=(off + len.max(1) - 1) / PAGE {
            let (word, bit) = (&self.dirty[(page / 64) as usize], 1 << (page % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Decides the undecided words of a range, but those that are `overwritten` whole.
    #[inline]
    fn decide_range(&self, mem: &Pmem, off: u64, len: u64, overwritten: bool) {
        let mut line = off & !(LINE - 1);
        while line < off + len {
            if !is_set(&self.open_pages, line / PAGE) {
                line = (line & !(PAGE - 1)) + PAGE;
                continue;
            }
            if is_set(&self.marked, line / LINE) {
                self.decide_line(mem, line, off..off + len, overwritten);
            }
            line += LINE;
        }
    }

    #[cold]
    fn decide_line(&self, mem: &Pmem, line: u64, range: Range<u64>, overwritten: bool) {
        let mut state = self.lock();
        let State {
            open,
            choices,
            trace,
        } = &mut *state;
        let open = open.get_mut(&line).expect("marked lines are open");
        for word in 0..8 {
            let at = line + word as u64 * 8;
            if at + 8 <= range.start || at >= range.end || open.decided >> word & 1 == 1 {
                continue;
            }
            if overwritten && at >= range.start && at + 8 <= range.end {
                // Its old value matters to nobody.
                open.decided |= 1 << word;
                continue;
            }
            let (value, part) = open.decide(word, choices);
            self.mark_dirty(at, 8);
            mem.poke(at, &value);
            if let Some(trace) = trace {
                let off = at;
                trace.events.push(Event::Decided { off, value, part });
            }
        }
        if open.decided == u8::MAX {
            let at = line / LINE;
            self.marked[(at / 64) as usize].fetch_and(!(1 << (at % 64)), Ordering::Relaxed);
        }
    }

    /// Decides the undecided words of a range that is read under a checksum.
    #[cold]
    fn decide_whole(&self, mem: &Pmem, range: Range<u64>) {
        let mut state = self.lock();
        let State {
            open,
            choices,
            trace,
        } = &mut *state;
        let within = range.start & !(LINE - 1)..range.end;
        let mut lines = Vec::new();
        let mut parts = Vec::new();
        for (&start, open) in open.range_mut(within) {
            let is_asked = |word: &u64| {
                let at = start + word * 8;
                at + 8 > range.start && at < range.end
            };
            let asked = (0..8).filter(is_asked);
            let words = asked.fold(0u8, |words, word| words | 1 << word) & !open.decided;
            if words != 0 {
                lines.push((start, words));
                parts.push(Part { open, words });
            }
        }
        if parts.is_empty() {
            return;
        }
        whole::decide(&mut parts, choices);
        for (&(start, words), part) in lines.iter().zip(&parts) {
            for word in words_of(words) {
                let off = start + word as u64 * 8;
                let value = &part.open.base[word * 8..word * 8 + 8];
                let value: [u8; 8] = value.try_into().expect("eight bytes");
                self.mark_dirty(off, 8);
                mem.poke(off, &value);
                if let Some(trace) = trace {
                    let part = None;
                    trace.events.push(Event::Decided { off, value, part });
                }
            }
            if part.open.decided == u8::MAX {
                let at = start / LINE;
                self.marked[(at / 64) as usize].fetch_and(!(1 << (at % 64)), Ordering::Relaxed);
            }
        }
    }

    fn count_load(&self) {
        let loads = self.loads.load(Ordering::Relaxed) + 1;
        self.loads.store(loads, Ordering::Relaxed);
        assert!(loads < LOADS_MAX, "recovery does not end");
    }

    fn note(&self, event: Event) {
        if let Some(trace) = &mut self.lock().trace {
            trace.events.push(event);
        }
    }
}

impl Observer for CrashImage {
    fn load(&self, mem: &Pmem, off: u64, len: u64) {
        self.count_load();
        self.decide_range(mem, off, len, false);
    }

    fn load_whole(&self, mem: &Pmem, off: u64, len: u64) {
        self.count_load();
        self.decide_whole(mem, off..off + len);
    }

    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        self.decide_range(mem, off, bytes.len() as u64, true);
        self.mark_dirty(off, bytes.len() as u64);
        if !self.ignored.contains(&off)
            && let Some(trace) = &mut self.lock().trace
        {
            trace.store(off, bytes, kind, 0, at);
        }
        Verdict::Do
    }

    fn flush(&self, _mem: &Pmem, line: u64, asked: (u64, u64), at: Place) {
        if !self.ignored.contains(&line) {
            self.note(Event::Flush {
                line,
                asked,
                cpu: 0,
                at,
            });
        }
    }

    fn fence(&self, _mem: &Pmem, at: Place) {
        self.note(Event::Fence { cpu: 0, at });
    }
}
