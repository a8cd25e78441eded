//! The table of mappings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use pmfs::{BlockRun, Ino, Shown};

use crate::descriptors::pool;
use crate::maps::apart;
use crate::maps::holes;
use crate::maps::place::{self, PAGE};
use crate::maps::stretch::Stretch;

/// The number of stretches; nearly always 0.
pub(super) static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Stretch {
    /// Lets the stretch show all bytes that the file has now, and no more.
    pub fn follow(&mut self) -> bool {
        let Some(fs) = pool::attached() else {
            return false;
        };
        let Ok(attr) = fs.getattr(self.ino) else {
            return false;
        };
        let there = attr.size.next_multiple_of(PAGE);
        let visible = there.saturating_sub(self.at).min(self.len());
        if visible < self.shown {
            let (from, bytes) = (self.start + visible, self.shown - visible);
            if place::nothing(from, bytes, self.protection).is_ok() {
                self.shown = visible;
            }
            return false;
        }
        if visible == self.shown || self.lazy {
            return false;
        }
        let (at, len) = (self.at + self.shown, visible - self.shown);
        let Ok(runs) = fs.blocks(self.ino, at, len, self.at_once()) else {
            self.lazy = self.may_be_lazy();
            holes::note(self);
            return false;
        };
        let how = self.how();
        if place::blocks(self.start + self.shown, (at, len), &runs, &how).is_err() {
            return false;
        }
        self.shown = visible;
        true
    }

    /// Updates the file's times after stores that were not seen, and hands over stores that were
    /// kept.
    pub fn touch(&self) {
        if self.apart {
            if let Err(errno) = apart::sync(std::slice::from_ref(self)) {
                crate::own::log::line(format_args!("stores to a mapping are lost: errno {errno}"));
            }
            return;
        }
        let stored = self.writes && self.protection & libc::PROT_WRITE as u64 != 0;
        if stored && let Some(fs) = pool::attached() {
            let _ = fs.flush_blocks(self.ino, &[(self.at, self.shown)]);
        }
    }
}

/// The stretches by their first address; none overlaps another.
pub(super) struct Table(BTreeMap<u64, Stretch>);

impl Table {
    pub const fn new() -> Table {
        Table(BTreeMap::new())
    }

    fn count(&self) {
        COUNT.store(self.0.len(), Ordering::Relaxed);
    }

    /// The stretches that overlap these addresses.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = &Stretch> {
        let first = self
            .0
            .range(..=start)
            .next_back()
            .map_or(start, |(&at, _)| at);
        self.0
            .range(first..end.max(first))
            .map(|(_, stretch)| stretch)
            .filter(move |stretch| stretch.end > start && stretch.start < end)
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.within(start, end).next().is_some()
    }

    /// Returns whether any stretch shows the file.
    pub fn shows(&self, ino: Ino) -> bool {
        self.0.values().any(|stretch| stretch.ino == ino)
    }

    /// Returns whether any stretch shows a part of the file.
    pub fn shows_part(&self, ino: Ino, at: u64, bytes: u64) -> bool {
        let meets = |stretch: &Stretch| {
            stretch.ino == ino && stretch.at < at + bytes && at < stretch.at + stretch.len()
        };
        self.0.values().any(meets)
    }

    /// All ranges that show a file and may be stored to.
    pub fn stored_to(&self, ino: Ino) -> Vec<Shown> {
        let all = self.0.values();
        all.filter(|one| one.ino == ino && one.writes)
            .map(Stretch::as_shown)
            .collect()
    }

    /// Returns whether stores to the file wait for msync.
    pub fn is_apart(&self, ino: Ino) -> bool {
        self.0
            .values()
            .any(|stretch| stretch.ino == ino && stretch.apart)
    }

    pub fn add(&mut self, stretch: Stretch) {
        holes::note(&stretch);
        self.0.insert(stretch.start, stretch);
        self.count();
    }

    /// Adds a stretch that shows these blocks of its file, and the holes between them if it is
    /// lazy.
    pub fn add_all(&mut self, stretch: Stretch, runs: &[BlockRun]) {
        if stretch.lazy {
            let parts = stretch.in_parts(runs);
            let parts = parts.into_iter().filter(|part| part.len() > 0);
            parts.for_each(|part| self.add(part));
        } else {
            self.add(stretch);
        }
    }

    /// The stretches that show all of these addresses in a row and in one way, joined. The result
    /// shows the bytes of the first one.
    pub fn whole(&self, start: u64, end: u64) -> Option<Stretch> {
        let mut parts = self.within(start, end);
        let mut whole = parts.next().filter(|first| first.start <= start)?.clone();
        for part in parts.filter(|part| part.lazy) {
            if !whole.is_followed_by(part) {
                return None;
            }
            whole.end = part.end;
        }
        (end <= whole.end).then_some(whole)
    }

    /// Notes that these addresses, of one stretch, show their file. They are joined with adjacent
    /// ones that do.
    pub fn shows_now(&mut self, start: u64, end: u64) {
        for mut part in self.cut(start, end) {
            part.shown = part.len();
            let before = self.0.range(..start).next_back();
            let before = before.map(|(_, before)| before.clone());
            if let Some(before) = before.filter(|before| before.goes_on_in(&part)) {
                part = Stretch {
                    end: part.end,
                    shown: before.shown + part.shown,
                    ..before
                };
            }
            let behind = self.0.get(&end);
            if let Some(behind) = behind.filter(|behind| part.goes_on_in(behind)).cloned() {
                self.0.remove(&end);
                part.end = behind.end;
                part.shown += behind.shown;
            }
            self.add(part);
        }
    }

    /// Notes where holes wait for memory.
    pub fn note_holes(&self) {
        holes::note_all(self.0.values());
    }

    /// Removes these addresses from the table; the parts at the edges stay.
    pub fn take(&mut self, start: u64, end: u64) -> Vec<Stretch> {
        let taken = self.cut(start, end);
        self.count();
        self.note_holes();
        taken
    }

    fn cut(&mut self, start: u64, end: u64) -> Vec<Stretch> {
        let met: Vec<Stretch> = self.within(start, end).cloned().collect();
        let mut taken = Vec::with_capacity(met.len());
        for stretch in met {
            self.0.remove(&stretch.start);
            let (from, to) = (stretch.start.max(start), stretch.end.min(end));
            if stretch.start < from {
                let before = stretch.part(stretch.start, from);
                self.0.insert(before.start, before);
            }
            if to < stretch.end {
                let behind = stretch.part(to, stretch.end);
                self.0.insert(behind.start, behind);
            }
            taken.push(stretch.part(from, to));
        }
        taken
    }

    /// Releases the files of removed stretches that no address shows any more.
    pub fn let_go(&self, taken: &[Stretch]) {
        let mut seen = Vec::new();
        for stretch in taken {
            if !seen.contains(&stretch.ino) && !self.shows(stretch.ino) {
                let_go(stretch.ino);
            }
            seen.push(stretch.ino);
        }
    }

    /// Returns whether a failed access to an address must be repeated.
    pub fn serves(&mut self, address: u64) -> bool {
        let found = self.0.range(..=address).next_back();
        let waited = found.is_some_and(|(_, stretch)| {
            address < stretch.end && apart::was_waiting(stretch, address)
        });
        waited || self.show(address)
    }

    /// Returns whether an address shows its part of the file.
    pub fn is_shown(&self, address: u64) -> bool {
        let shows = |stretch: &Stretch| address < stretch.start + stretch.shown;
        self.within(address, address + 1).any(shows)
    }

    /// Lets an address show its part of the file.
    pub fn show(&mut self, address: u64) -> bool {
        let found = self.0.range_mut(..=address).next_back();
        let Some(stretch) = found.map(|(_, stretch)| stretch) else {
            return false;
        };
        let page = address & !(PAGE - 1);
        if address >= stretch.end || page < stretch.start + stretch.shown {
            // The address is not in the table, or the medium below it is gone.
            return false;
        }
        stretch.follow();
        page < stretch.start + stretch.shown || self.fill(page)
    }

    pub fn follow(&mut self, ino: Ino) -> bool {
        let mut shown = false;
        for stretch in self.0.values_mut().filter(|stretch| stretch.ino == ino) {
            stretch.follow();
            shown = true;
        }
        shown
    }

    pub fn follow_all(&mut self) -> bool {
        let mut more = false;
        for stretch in self.0.values_mut() {
            more |= stretch.follow();
        }
        more
    }

    pub fn for_children(&self, gets: bool) {
        for stretch in self.0.values().filter(|stretch| !stretch.apart) {
            place::for_children(stretch.start, stretch.len(), gets);
        }
    }

    pub fn for_children_between(&self, start: u64, end: u64, gets: bool) {
        for stretch in self.within(start, end) {
            let (from, to) = (stretch.start.max(start), stretch.end.min(end));
            place::for_children(from, to - from, gets);
        }
    }

    pub fn touch_all(&self) {
        self.0.values().for_each(Stretch::touch);
    }

    pub fn unmap_all(&mut self) {
        let taken = self.take(0, u64::MAX);
        for stretch in &taken {
            place::remove(stretch.start, stretch.len());
        }
        self.let_go(&taken);
    }
}

/// Ends the pin and the hold of a file that no address shows any more.
pub(super) fn let_go(ino: Ino) {
    if let Some(fs) = pool::attached() {
        let _ = fs.unpin(ino);
        let _ = fs.release(ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(start: u64, end: u64, at: u64, shown: u64) -> Stretch {
        Stretch {
            start,
            end,
            ino: 7,
            at,
            shown,
            protection: 1,
            shared: true,
            writes: false,
            apart: false,
            lazy: false,
        }
    }

    #[test]
    fn what_is_taken_out_of_the_middle_leaves_both_ends() {
        let mut table = Table::new();
        table.add(stretch(0x1000, 0x9000, 0x10000, 0x5000));
        table.add(stretch(0xa000, 0xb000, 0, 0x1000));
        assert!(table.overlaps(0x8fff, 0x9001) && !table.overlaps(0x9000, 0xa000));
        let taken = table.take(0x3000, 0x7000);
        assert_eq!(taken, [stretch(0x3000, 0x7000, 0x12000, 0x3000)]);
        let left: Vec<_> = table.within(0, u64::MAX).cloned().collect();
        let before = stretch(0x1000, 0x3000, 0x10000, 0x2000);
        let behind = stretch(0x7000, 0x9000, 0x16000, 0);
        assert_eq!(left, [before, behind, stretch(0xa000, 0xb000, 0, 0x1000)]);
        assert_eq!(table.take(0x2000, 0xc000).len(), 3);
        assert!(table.shows(7));
        assert_eq!(table.take(0, u64::MAX).len(), 1);
        assert!(!table.shows(7));
    }

    #[test]
    fn what_is_shown_in_a_row_is_one_stretch() {
        let mut table = Table::new();
        let all = |table: &Table| -> Vec<(u64, u64, u64)> {
            let each = table.within(0, u64::MAX);
            each.map(|one| (one.start, one.end, one.shown)).collect()
        };
        table.add(stretch(0x1000, 0x9000, 0x10000, 0x1000));
        table.add(stretch(0x9000, 0xb000, 0x90000, 0x1000));
        table.shows_now(0x4000, 0x6000);
        let apart = [
            (0x1000, 0x4000, 0x1000),
            (0x4000, 0x9000, 0x2000),
            (0x9000, 0xb000, 0x1000),
        ];
        let before = stretch(0x4000, 0x6000, 0x13000, 0x2000);
        assert!(before.goes_on_in(&stretch(0x6000, 0x9000, 0x15000, 0)));
        assert_eq!(all(&table), apart);
        table.shows_now(0x2000, 0x4000);
        assert_eq!(all(&table)[0], (0x1000, 0x9000, 0x5000));
        // The next stretch shows another place of the file.
        table.shows_now(0x6000, 0x9000);
        assert_eq!(
            all(&table),
            [(0x1000, 0x9000, 0x8000), (0x9000, 0xb000, 0x1000)]
        );
    }
}
