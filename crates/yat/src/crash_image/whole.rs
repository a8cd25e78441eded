//! Ranges that are read under a checksum, decided at once. Word by word, a record of two lines that
//! was stored non-temporally is 2^16 images, and all but two of them fail its checksum alike.
//!
//! Tried are: what stood in the range after each of its stores, in program order, the first and the
//! last state among them; each line old by itself, and new by itself; and of at most
//! [`PREFIX_LINES_MAX`] lines each number of first lines new. `docs/YAT.md` says why that is
//! enough.

use super::{Choices, Open};
use crate::memory::Streamed;
use std::collections::BTreeMap;

/// More lines than these are not tried in part from the first one on.
const PREFIX_LINES_MAX: usize = 16;

/// A cut before all stores, and one behind all.
const OLD: u32 = 0;
const NEW: u32 = u32::MAX;

/// The words of a line that are to be decided, a bit each.
pub(super) struct Part<'a> {
    pub open: &'a mut Open,
    pub words: u8,
}

/// The numbers of a line's words.
pub(super) fn words_of(words: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |word| words >> word & 1 == 1)
}

/// Decides them all: first what earlier crashes left below them, then what was stored since.
pub(super) fn decide(parts: &mut [Part<'_>], choices: &mut Choices) {
    let mut below: Vec<Part<'_>> = parts.iter_mut().filter_map(below).collect();
    if !below.is_empty() {
        decide(&mut below, choices);
        for part in parts.iter_mut() {
            take_from_below(part);
        }
    }
    let mut images: Vec<Vec<[u8; 8]>> = Vec::new();
    let mut plans: Vec<Vec<u32>> = Vec::new();
    for plan in plans_of(parts, choices.durable_first) {
        let image: Vec<[u8; 8]> = parts
            .iter()
            .zip(&plan)
            .flat_map(|(part, &cut)| {
                let words = words_of(part.words);
                words.map(move |word| (part, word, cut))
            })
            .map(|(part, word, cut)| part.open.value_at(word, cut, &choices.parts).0)
            .collect();
        if !images.contains(&image) {
            images.push(image);
            plans.push(plan);
        }
    }
    let choice = match plans.len() {
        0 | 1 => 0,
        several => choices.chooser.choose(several),
    };
    for (part, &cut) in parts.iter_mut().zip(&plans[choice]) {
        let values: Vec<_> = words_of(part.words)
            .map(|word| (word, part.open.value_at(word, cut, &choices.parts)))
            .collect();
        for (word, (value, is_cached)) in values {
            if is_cached {
                part.open.keep(word, value);
            }
            part.open.fix(word, value);
        }
    }
}

/// Returns what an earlier crash left undecided there.
fn below<'a>(part: &'a mut Part<'_>) -> Option<Part<'a>> {
    let under = part.open.under.as_deref_mut()?;
    let words = part.words & !under.decided;
    (words != 0).then_some(Part { open: under, words })
}

fn take_from_below(part: &mut Part<'_>) {
    let Some(under) = &part.open.under else {
        return;
    };
    for word in words_of(part.words & under.decided & !part.open.decided) {
        let at = word * 8..word * 8 + 8;
        part.open.base[at.clone()].copy_from_slice(&under.base[at]);
    }
}

/// Returns which stores each line has, by the number of the last one: the oldest state first, or
/// the newest.
fn plans_of(parts: &[Part<'_>], newest_first: bool) -> Vec<Vec<u32>> {
    let count = parts.len();
    let mut times: Vec<u32> = parts.iter().flat_map(times_of).collect();
    times.sort_unstable();
    times.dedup();
    let mut plans = vec![vec![OLD; count]];
    plans.extend(times.iter().map(|&time| vec![time; count]));
    for line in 0..count {
        for (here, elsewhere) in [(NEW, OLD), (OLD, NEW)] {
            let mut plan = vec![elsewhere; count];
            plan[line] = here;
            plans.push(plan);
        }
    }
    if count <= PREFIX_LINES_MAX {
        plans.extend((1..count).map(|first| {
            let cut = |line| if line < first { NEW } else { OLD };
            (0..count).map(cut).collect()
        }));
    }
    plans.push(vec![NEW; count]);
    if newest_first {
        plans.reverse();
    }
    plans
}

/// The numbers of the stores to what is to be decided of a line.
fn times_of(part: &Part<'_>) -> Vec<u32> {
    let line = &part.open.line;
    let streamed = line.streamed.iter();
    let streamed = streamed.filter(|streamed| part.words >> streamed.word & 1 == 1);
    let cached = line.cached.iter().filter(|stored| {
        let (first, last) = (stored.at / 8, (stored.at + stored.len - 1) / 8);
        (first..=last).any(|word| part.words >> word & 1 == 1)
    });
    let cached = cached.map(|stored| stored.nth);
    streamed
        .map(|streamed| streamed.nth)
        .chain(cached)
        .collect()
}

impl Open {
    /// Returns what a word holds after the stores up to number `cut`, as far as what was decided
    /// before lets it; and whether a cached store left that.
    fn value_at(&self, word: usize, cut: u32, parts: &BTreeMap<u32, bool>) -> ([u8; 8], bool) {
        let prefixes = self.prefixes();
        let is_before = |prefix: &&u16| match **prefix {
            0 => true,
            many => self.line.cached[many as usize - 1].nth <= cut,
        };
        let prefix = prefixes.iter().filter(is_before).max();
        let prefix = prefix
            .or(prefixes.first())
            .map_or(0, |&prefix| prefix as usize);
        let is_there = |streamed: &&Streamed| {
            let decided = streamed.part.and_then(|part| parts.get(&part));
            decided.copied().unwrap_or(streamed.nth <= cut)
        };
        let streamed = self.streamed(word).filter(is_there).last();
        let covers = |stored: &&crate::memory::Stored| {
            let (at, len) = (stored.at as usize, stored.len as usize);
            at < word * 8 + 8 && at + len > word * 8
        };
        let cached = self.line.cached[..prefix].iter().rfind(covers);
        match (streamed, cached) {
            (Some(streamed), None) => (streamed.value, false),
            (Some(streamed), Some(stored)) if streamed.nth > stored.nth => (streamed.value, false),
            _ => (self.cached(word, prefix), true),
        }
    }
}
