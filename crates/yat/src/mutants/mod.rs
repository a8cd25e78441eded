//! Mutants: the engine with one place in the source changed by a rule, as a programmer might have
//! got it wrong. A place stores, flushes or fences; what a mutant leaves out is left out of the
//! recorded traces. Some workload must then have a crash state that is neither before nor after;
//! else the place is not needed, or what shows it is missing here.

mod hunt;
mod reasons;
mod standing;

pub use hunt::{Verdict, hunt};
pub use reasons::why_unseen;
pub use standing::{Recorded, standing};

use crate::memory::LINE;
use crate::trace::{Event, Place, Trace};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The action of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Stores.
    Store,
    /// Begins the write-back of a line.
    Flush,
    /// Waits for what was flushed and streamed.
    Fence,
}

/// A place that stores, flushes or fences. Sites are sorted by where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The action there.
    pub what: What,
    /// The place in the source.
    pub place: Place,
}

impl Site {
    fn key(&self) -> (&'static str, u32, u32, What) {
        let place = self.place;
        (place.file(), place.line(), place.column(), self.what)
    }
}

impl PartialOrd for Site {
    fn partial_cmp(&self, other: &Site) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Site {
    fn cmp(&self, other: &Site) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The site of an event, if it has one.
pub(crate) fn site_of(event: &Event) -> Option<Site> {
    let (what, place) = match *event {
        Event::Store { at, .. } => (What::Store, at),
        Event::Flush { at, .. } => (What::Flush, at),
        Event::Fence { at, .. } => (What::Fence, at),
        _ => return None,
    };
    Some(Site { what, place })
}

/// The source at a place: two lines, for a call may be spread over them.
#[must_use]
pub fn source(site: &Site) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(site.place.file())).unwrap_or_default();
    let line = site.place.line() as usize;
    let lines = text.lines().skip(line.saturating_sub(1)).take(2);
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The way in which a place is got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// It is left out.
    LeftOut,
    /// The first one alone of several lines in a row is done.
    FirstLine,
    /// All but the last of several lines, or words stored, in a row are done.
    AllButLast,
    /// Lines are counted by the length alone: one too few where a range begins late in its first
    /// line.
    Unaligned,
    /// The part behind the first edge of a block (and so of a node, and of a small leaf) is left
    /// out.
    PastBlock,
    /// The part behind the first edge of a large page is left out.
    PastLargePage,
    /// It is left out in the first call after another thread's.
    AtHandover,
    /// It is left out where the lane's log begins at its start again inside the transaction.
    AtWrap,
    /// Stores of the call before count as durable already: it is left out where it serves nothing
    /// newer.
    OneEarly,
}

/// All rules.
pub const RULES: [Rule; 9] = [
    Rule::LeftOut,
    Rule::FirstLine,
    Rule::AllButLast,
    Rule::Unaligned,
    Rule::PastBlock,
    Rule::PastLargePage,
    Rule::AtHandover,
    Rule::AtWrap,
    Rule::OneEarly,
];

impl Rule {
    /// In words, after the name of a place.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Rule::LeftOut => "left out",
            Rule::FirstLine => "only the first line",
            Rule::AllButLast => "all but the last",
            Rule::Unaligned => "lines counted by length alone",
            Rule::PastBlock => "not past the edge of a block",
            Rule::PastLargePage => "not past the edge of a large page",
            Rule::AtHandover => "not after another thread's call",
            Rule::AtWrap => "not where the lane wraps",
            Rule::OneEarly => "one transaction early",
        }
    }
}

/// The edges that [`Rule::PastBlock`] and [`Rule::PastLargePage`] are about, bytes.
const BLOCK: u64 = 4096;
const LARGE_PAGE: u64 = 2 << 20;

/// A place, and how it is got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mutant {
    /// The place.
    pub site: Site,
    /// The rule.
    pub rule: Rule,
}

/// The part of a trace that a mutant may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of it.
    Whole,
    /// The events after the first return, before which a workload is prepared.
    Prepared,
}

impl Mutant {
    /// Returns which events of a trace it leaves out, by their numbers.
    pub(crate) fn leaves_out(&self, trace: &Trace, scope: Scope) -> Vec<bool> {
        let mut out = vec![false; trace.events.len()];
        let mut follower = Follower::new(self.rule == Rule::OneEarly, &trace.events);
        let mut here = scope == Scope::Whole;
        for (at, event) in trace.events.iter().enumerate() {
            if here && site_of(event) == Some(self.site) {
                out[at] = self.rule.leaves_out(&trace.events, at, &follower);
            }
            here |= matches!(event, Event::Return { .. });
            follower.follow(event);
        }
        out
    }

    /// All that leave something out of what a trace has after its first return.
    pub(crate) fn all_of(trace: &Trace) -> HashSet<Mutant> {
        let mut all = HashSet::new();
        let mut follower = Follower::new(true, &trace.events);
        for (at, event) in trace.events.iter().enumerate() {
            if follower.step > 0
                && let Some(site) = site_of(event)
            {
                let met = |rule: &Rule| rule.leaves_out(&trace.events, at, &follower);
                let rules = RULES.into_iter().filter(met);
                all.extend(rules.map(|rule| Mutant { site, rule }));
            }
            follower.follow(event);
        }
        all
    }
}

impl Rule {
    /// Returns whether an event of the place that is got wrong so is left out.
    fn leaves_out(self, events: &[Event], at: usize, follower: &Follower) -> bool {
        let event = &events[at];
        match self {
            Rule::LeftOut | Rule::AtWrap => true,
            Rule::FirstLine => {
                let first = &events[start_of_run(events, at)];
                line_of(first) != line_of(event)
            }
            Rule::AllButLast => {
                let next = events.get(at + 1);
                let ends = next.is_none_or(|next| !goes_on(event, next));
                ends && start_of_run(events, at) != at
            }
            Rule::Unaligned => asked(event).is_some_and(|(off, len)| {
                let first = off - off % LINE;
                line_of(event) >= Some(first + len.next_multiple_of(LINE))
            }),
            Rule::PastBlock => is_past(event, BLOCK),
            Rule::PastLargePage => is_past(event, LARGE_PAGE),
            Rule::AtHandover => follower.is_handover(),
            Rule::OneEarly => follower.serves_old_alone(event),
        }
    }
}

fn asked(event: &Event) -> Option<(u64, u64)> {
    match *event {
        Event::Flush { asked, .. } => Some(asked),
        _ => None,
    }
}

/// Returns whether a flush of a range has come to a line behind the first edge in it.
fn is_past(event: &Event, edge: u64) -> bool {
    asked(event).is_some_and(|(off, _)| line_of(event) >= Some((off + 1).next_multiple_of(edge)))
}

fn line_of(event: &Event) -> Option<u64> {
    match *event {
        Event::Store { off, .. } => Some(off - off % LINE),
        Event::Flush { line, .. } => Some(line),
        _ => None,
    }
}

/// Returns whether `next` belongs to the same run: flushes of one place, or stores of one place
/// without a gap.
fn goes_on(event: &Event, next: &Event) -> bool {
    match (event, next) {
        (Event::Flush { at, .. }, Event::Flush { at: then, .. }) => at == then,
        (
            Event::Store { off, bytes, at, .. },
            Event::Store {
                off: to, at: then, ..
            },
        ) => at == then && off + u64::from(bytes.1) == *to,
        _ => false,
    }
}

fn start_of_run(events: &[Event], mut at: usize) -> usize {
    while at > 0 && goes_on(&events[at - 1], &events[at]) {
        at -= 1;
    }
    at
}

/// The knowledge that rules need of the events before one.
struct Follower {
    /// The CPU of each step, and of what came before the first one.
    cpus: Vec<u8>,
    step: usize,
    /// The step that last stored to a line.
    stored: HashMap<u64, usize>,
    /// The last step that stored something that each CPU has flushed since its last fence.
    flushed: HashMap<u8, usize>,
    /// Says whether anybody asks for what is old.
    is_needed: bool,
}

impl Follower {
    fn new(is_needed: bool, events: &[Event]) -> Follower {
        let mut cpus = vec![0];
        for event in events {
            match *event {
                Event::Store { cpu, .. } => *cpus.last_mut().expect("never empty") = cpu,
                Event::Return { .. } => cpus.push(0),
                _ => {}
            }
        }
        Follower {
            cpus,
            step: 0,
            stored: HashMap::new(),
            flushed: HashMap::new(),
            is_needed,
        }
    }

    fn follow(&mut self, event: &Event) {
        if matches!(event, Event::Return { .. }) {
            self.step += 1;
        }
        if !self.is_needed {
            return;
        }
        match *event {
            Event::Store {
                off, bytes, cpu, ..
            } => {
                for line in (off - off % LINE..off + u64::from(bytes.1)).step_by(LINE as usize) {
                    self.stored.insert(line, self.step);
                }
                // A streamed store needs no flush: the next fence is its own.
                if bytes.1 > 16 {
                    self.flushed.insert(cpu, self.step);
                }
            }
            Event::Flush { line, cpu, .. } => {
                let stored = self.stored.get(&line).copied().unwrap_or(0);
                let newest = self.flushed.entry(cpu).or_default();
                *newest = (*newest).max(stored);
            }
            Event::Fence { cpu, .. } => drop(self.flushed.remove(&cpu)),
            _ => {}
        }
    }

    fn is_handover(&self) -> bool {
        self.step > 1 && self.cpus[self.step] != self.cpus[self.step - 1]
    }

    /// Returns whether a flush or fence makes durable what the step before stored, and nothing of
    /// this one.
    fn serves_old_alone(&self, event: &Event) -> bool {
        let newest = match *event {
            Event::Flush { line, .. } => self.stored.get(&line),
            Event::Fence { cpu, .. } => self.flushed.get(&cpu),
            _ => None,
        };
        self.step > 1 && newest.is_some_and(|&stored| stored + 1 == self.step)
    }
}
