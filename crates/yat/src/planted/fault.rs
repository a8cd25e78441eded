//! The effects of a planted bug at its sites.

use crate::trace::Place;
use pmem::Pmem;
use pmem::record::{Fault, StoreKind, Verdict, set_fault};
use pmfs::planted::{BUGS, Plant, Rule, Site, What, select};
use pmfs_format::InodeRaw;
use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;

/// Bytes of a cache line, and of a word.
const LINE: u64 = 64;
const WORD: u64 = 8;

thread_local! {
    /// Says whether this thread has come to a flush of a site since its last fence.
    static HAS_FLUSHED: Cell<bool> = const { Cell::new(false) };
    /// Words of a line that wait for its last one: their offsets and what is stored.
    static HELD: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
    static LATE: RefCell<Late> = const { RefCell::new(Late::new()) };
}

/// Accesses of a thread that wait for it to have been at a landmark.
struct Late {
    accesses: Vec<Access>,
    /// The thread is at the landmark.
    is_there: bool,
}

impl Late {
    const fn new() -> Late {
        Late {
            accesses: Vec::new(),
            is_there: false,
        }
    }
}

enum Access {
    Store(u64, Vec<u8>, StoreKind),
    Flush(u64, u64),
    Fence,
}

impl Access {
    fn make(self, mem: &Pmem) {
        match self {
            Access::Store(off, bytes, StoreKind::NonTemporal) => {
                mem.write_nt(off, &bytes)
                    .expect("memory that does not fail");
            }
            Access::Store(off, bytes, StoreKind::Atomic) if bytes.len() == 16 => {
                let (words, _) = bytes.as_chunks::<8>();
                mem.store_pair(off, [words[0], words[1]].map(u64::from_le_bytes));
            }
            Access::Store(off, bytes, _) => mem.write_bytes(off, &bytes),
            Access::Flush(off, len) => mem.flush(off, len),
            Access::Fence => mem.fence(),
        }
    }
}

/// Forgets the accesses that wait: their process dies.
pub(super) fn forget_late() {
    LATE.set(Late::new());
}

/// Makes this bug, and no other, be there from now on; `None`: none.
///
/// # Panics
/// If no bug has that name, or the source no longer has a site of it.
pub(super) fn set(name: Option<&str>) {
    select(name);
    let bug = name.and_then(|name| BUGS.iter().find(|bug| bug.name == name));
    let fault = bug.and_then(|bug| match bug.plant {
        Plant::Sites(sites) => Some(Sites::of(sites)),
        Plant::Inline(_) => None,
    });
    set_fault(fault.map(|fault| -> Box<dyn Fault> { Box::new(fault) }));
}

/// The sites of a bug, each with the file and the lines where it is.
struct Sites {
    sites: Vec<(Site, String, RangeInclusive<u32>)>,
    landmarks: Vec<(String, RangeInclusive<u32>)>,
}

impl Sites {
    fn of(sites: &[Site]) -> Sites {
        let places = |site: &Site| {
            let places = site.places();
            assert!(!places.is_empty(), "the source does not have {site:?}");
            places
        };
        let all = sites.iter().flat_map(|site| {
            let places = places(site).into_iter();
            places.map(|(file, lines)| (*site, file, lines))
        });
        let landmarks = sites.iter().filter_map(Site::landmark);
        Sites {
            sites: all.collect(),
            landmarks: landmarks.flat_map(|site| places(&site)).collect(),
        }
    }

    /// Makes the accesses that waited, if the thread was at their landmark and is not there now.
    fn come_to(&self, mem: &Pmem, at: Place) {
        if self.landmarks.is_empty() {
            return;
        }
        let is_there = |(file, lines): &(String, RangeInclusive<u32>)| {
            lines.contains(&at.line()) && at.file() == file
        };
        let is_there = self.landmarks.iter().any(is_there);
        let due = LATE.with_borrow_mut(|late| match is_there || !late.is_there {
            true => {
                late.is_there |= is_there && !late.accesses.is_empty();
                Vec::new()
            }
            false => std::mem::replace(late, Late::new()).accesses,
        });
        for access in due {
            access.make(mem);
        }
    }

    /// Returns whether an access there waits, and keeps it then.
    fn is_late(&self, mem: &Pmem, at: Place, access: impl FnOnce() -> Access) -> bool {
        self.come_to(mem, at);
        let is_late = self.rules(What::Call, at).next().is_some();
        if is_late {
            LATE.with_borrow_mut(|late| late.accesses.push(access()));
        }
        is_late
    }

    /// Returns the rules by which this goes wrong at that place.
    fn rules(&self, what: What, at: Place) -> impl Iterator<Item = Rule> {
        let is_here = move |(site, file, lines): &&(Site, String, RangeInclusive<u32>)| {
            site.what == what && lines.contains(&at.line()) && at.file() == file
        };
        self.sites
            .iter()
            .filter(is_here)
            .map(|(site, ..)| site.rule)
    }
}

impl Fault for Sites {
    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        if self.is_late(mem, at, || Access::Store(off, bytes.to_vec(), kind)) {
            return Verdict::Skip;
        }
        let mut rules = self.rules(What::Store, at);
        rules
            .next()
            .map_or(Verdict::Do, |rule| store_by(rule, mem, off, (bytes, kind)))
    }

    fn flush(&self, mem: &Pmem, range: (u64, u64), at: Place) -> (u64, u64) {
        if self.is_late(mem, at, || Access::Flush(range.0, range.1)) {
            return (range.0, 0);
        }
        let rules = self.rules(What::Flush, at);
        rules.fold(range, |range, rule| flush_by(rule, range))
    }

    fn fence(&self, mem: &Pmem, at: Place) -> Verdict {
        let is_late = self.is_late(mem, at, || Access::Fence);
        if is_late || self.rules(What::Fence, at).next().is_some() {
            return Verdict::Skip;
        }
        HAS_FLUSHED.set(false);
        Verdict::Do
    }

    fn log(&self, off: u64, at: Place) -> Verdict {
        let is_out = |rule| match rule {
            Rule::Word(word) => off % InodeRaw::SIZE == word * WORD,
            _ => true,
        };
        match self.rules(What::Log, at).any(is_out) {
            true => Verdict::Skip,
            false => Verdict::Do,
        }
    }
}

/// Does a store as a rule has it, and answers whether it is still to be done as it was asked for.
fn store_by(rule: Rule, mem: &Pmem, off: u64, (bytes, kind): (&[u8], StoreKind)) -> Verdict {
    let words = || -> Vec<u64> {
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    match rule {
        Rule::FlushedFirst => {
            mem.flush(off, bytes.len() as u64);
            return Verdict::Do;
        }
        Rule::Cached if kind == StoreKind::Cached => return Verdict::Do,
        Rule::Cached => mem.write_bytes(off, bytes),
        Rule::Torn => mem.write(off, &words()),
        Rule::LastWordFirst if off % LINE == LINE - WORD => {
            mem.write(off, &words());
            for (off, word) in HELD.take() {
                mem.store(off, word);
            }
        }
        Rule::LastWordFirst => {
            let new = words().into_iter().map(|word| (off, word));
            HELD.with_borrow_mut(|held| {
                // A thread that was killed in the middle of a line leaves words.
                held.retain(|_| !off.is_multiple_of(LINE));
                held.extend(new);
            });
        }
        _ => {}
    }
    Verdict::Skip
}

/// Returns what a rule flushes of a range.
fn flush_by(rule: Rule, (off, len): (u64, u64)) -> (u64, u64) {
    let nothing = (off, 0);
    let in_line = (off + len) % LINE;
    match rule {
        Rule::FirstLine => (off, len.min(LINE - off % LINE)),
        Rule::OnlyFirst if !HAS_FLUSHED.replace(true) => (off, len),
        Rule::AllButFirst if HAS_FLUSHED.replace(true) => (off, len),
        Rule::LengthAlone => (off & !(LINE - 1), len),
        Rule::SameOffset if off % LINE == in_line => (off, len - in_line),
        Rule::LastPart if in_line == 0 => (off, len),
        Rule::SameOffset => (off, len),
        _ => nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Recorder};
    use std::sync::Arc;

    #[test]
    fn what_is_flushed_of_a_range() {
        for (rule, range, left) in [
            (Rule::LeftOut, (64, 64), (64, 0)),
            (Rule::FirstLine, (40, 200), (40, 24)),
            (Rule::FirstLine, (64, 8), (64, 8)),
            (Rule::LengthAlone, (60, 8), (0, 8)),
            (Rule::SameOffset, (60, 64), (60, 4)),
            (Rule::SameOffset, (60, 8), (60, 8)),
            (Rule::LastPart, (60, 4), (60, 4)),
            (Rule::LastPart, (128, 8), (128, 0)),
        ] {
            assert_eq!(flush_by(rule, range), left, "{rule:?} {range:?}");
        }
    }

    #[test]
    fn flushes_between_fences() {
        let no_sites = Sites::of(&[]);
        let mem = Pmem::private(4096);
        for (rule, lens) in [(Rule::OnlyFirst, [64, 0]), (Rule::AllButFirst, [0, 64])] {
            no_sites.fence(&mem, std::panic::Location::caller());
            let found = [0, 64].map(|off| flush_by(rule, (off, 64)).1);
            assert_eq!(found, lens, "{rule:?}");
        }
    }

    /// Returns what an observer sees of a store by a rule, and what is stored in the end.
    fn stores(rule: Rule, stored: impl Fn(&Pmem, Rule)) -> (Vec<(u64, StoreKind)>, [u64; 8]) {
        let recorder = Arc::new(Recorder::new(0..0));
        let mut mem = Pmem::private(4096);
        mem.observe(Some(recorder.clone()));
        recorder.start();
        stored(&mem, rule);
        let trace = recorder.stop();
        let seen = trace.events.iter().filter_map(|event| match *event {
            Event::Store { off, kind, .. } => Some((off, kind)),
            _ => None,
        });
        (seen.collect(), mem.read::<8>(0))
    }

    #[test]
    fn how_a_rule_stores() {
        let words: [u64; 8] = std::array::from_fn(|at| at as u64 + 1);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let whole = |kind| {
            let bytes = &bytes;
            move |mem: &Pmem, rule| {
                assert_eq!(store_by(rule, mem, 0, (bytes, kind)), Verdict::Skip);
            }
        };
        let cached =
            |offs: &[u64]| -> Vec<_> { offs.iter().map(|&off| (off, StoreKind::Cached)).collect() };
        let in_order = cached(&[0, 8, 16, 24, 32, 40, 48, 56]);
        let (seen, left) = stores(Rule::LeftOut, whole(StoreKind::Cached));
        assert_eq!((seen, left), (vec![], [0; 8]));
        for (rule, kind) in [
            (Rule::Torn, StoreKind::Atomic),
            (Rule::Cached, StoreKind::NonTemporal),
        ] {
            assert_eq!(stores(rule, whole(kind)), (in_order.clone(), words));
        }
        let last_first = cached(&[56, 0, 8, 16, 24, 32, 40, 48]);
        let one_by_one = |mem: &Pmem, rule| {
            for (off, word) in (0..).step_by(8).zip(bytes.as_chunks::<8>().0) {
                store_by(rule, mem, off, (word, StoreKind::Cached));
            }
        };
        assert_eq!(stores(Rule::LastWordFirst, one_by_one), (last_first, words));
    }

    /// Goal: accesses of a site are made, in their order, when the thread leaves the landmark, and
    /// those of a dead process never. Method: the fault is asked as the memory asks it.
    #[test]
    fn late_accesses_come_behind_their_landmark() {
        let late = std::panic::Location::caller();
        let landmark = std::panic::Location::caller();
        let elsewhere = std::panic::Location::caller();
        let site = Site {
            what: What::Call,
            rule: Rule::Behind("", ""),
            file: "",
            function: "",
            text: "",
        };
        let at = |place: Place| (place.file().to_owned(), place.line()..=place.line());
        let (file, lines) = at(late);
        let sites = Sites {
            sites: vec![(site, file, lines)],
            landmarks: vec![at(landmark)],
        };
        let store = |mem: &Pmem, off, at| sites.store(mem, off, &[7; 8], StoreKind::Cached, at);
        let hold_back = |mem: &Pmem| {
            assert_eq!(store(mem, 0, late), Verdict::Skip);
            assert_eq!(sites.flush(mem, (0, 8), late), (0, 0));
            assert_eq!(sites.fence(mem, late), Verdict::Skip);
            assert_eq!(store(mem, 8, elsewhere), Verdict::Do);
            assert_eq!(store(mem, 16, landmark), Verdict::Do);
            assert_eq!(store(mem, 24, landmark), Verdict::Do);
        };
        let recorder = Arc::new(Recorder::new(0..0));
        let mut mem = Pmem::private(4096);
        mem.observe(Some(recorder.clone()));
        recorder.start();
        hold_back(&mem);
        forget_late();
        assert_eq!(store(&mem, 32, elsewhere), Verdict::Do);
        assert!(recorder.stop().events.is_empty());
        recorder.start();
        hold_back(&mem);
        assert_eq!(mem.load(0), 0);
        assert_eq!(store(&mem, 32, elsewhere), Verdict::Do);
        assert_eq!(store(&mem, 40, elsewhere), Verdict::Do);
        let trace = recorder.stop();
        let made = matches!(
            trace.events[..],
            [
                Event::Store { off: 0, .. },
                Event::Flush { .. },
                Event::Fence { .. }
            ]
        );
        assert!(made && mem.load(0) == u64::from_le_bytes([7; 8]));
    }
}
