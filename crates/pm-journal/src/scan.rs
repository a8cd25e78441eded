//! The scan of a lane's log: its last transaction, and the state of that
//! (docs/adr/0019-log-validity.md).

use crate::checksum::CommitChecksum;
use crate::error::Result;
use crate::log_entry::{Header, LogEntry};
use crate::medium::store::Store;
use pm_store::Pm;
use pmfs_format::LogEntryRaw;
use pmfs_format::journal::{KIND_ABORT, KIND_CHECKSUM, KIND_COMMIT, KIND_REDO};
use std::collections::BTreeMap;

/// The state of a lane's log.
pub struct Scan {
    /// The greatest transaction id.
    pub id: u64,
    /// The index behind the last entry of that transaction.
    pub(super) head: u64,
    /// Its entries of old or new words, as offsets, by place; empty if it is closed.
    pub open: Vec<u64>,
    /// Those entries of the transaction before it, if that is a committed redo record that is not
    /// closed.
    pub(super) before: Vec<u64>,
    /// The offset of its closing entry.
    pub(super) closing: Option<u64>,
    /// The offset of a commit checksum, which closes the transaction if the hash matches.
    pub(super) checksum: Option<u64>,
    /// Whether the entries have new words.
    pub redo: bool,
    /// Whether all entries of new words are there.
    pub last: bool,
}

/// Reads a lane's log: `entries` lines from byte `log` on.
pub(super) fn scan(pm: &Pm, log: u64, entries: u64) -> Scan {
    let ids: Vec<u64> = (0..entries)
        .map(|at| pm.load(LogEntryRaw::id.of(log + at * LogEntryRaw::SIZE)))
        .collect();
    let id = ids.iter().copied().max().unwrap_or(0);
    let mut scan = Scan {
        id,
        head: 0,
        open: Vec::new(),
        before: Vec::new(),
        closing: None,
        checksum: None,
        redo: false,
        last: false,
    };
    if id == 0 {
        return scan;
    }
    let mut places = Vec::new();
    let accepted = |found: u64| found == id || planted!("bug-two-ids-accepted") && found + 1 == id;
    for at in (0..entries).filter(|&at| accepted(ids[at as usize])) {
        let entry = log + at * 64;
        let header = Header::read(pm, entry);
        match header.kind() {
            KIND_COMMIT | KIND_ABORT => scan.closing = Some(entry),
            KIND_CHECKSUM => scan.checksum = Some(entry),
            kind => {
                scan.redo |= kind == KIND_REDO;
                scan.last |= header.is_last_of_new();
                places.push((header.place(), entry));
            }
        }
        // The transaction's entries are neighbours, around the end of the ring too.
        if ids[((at + 1) % entries) as usize] != id {
            scan.head = at + 1;
        }
    }
    if scan.closing.is_none() {
        places.sort_unstable();
        let whole = (0..).zip(&places).all(|(at, &(place, _))| at == place);
        scan.last &= whole || planted!("bug-redo-with-gaps");
        scan.open = places.into_iter().map(|(_, off)| off).collect();
        scan.before = redo_before(pm, log, &ids, id);
    }
    scan
}

/// The entries by place of the transaction before `id`, if it has new words, all entries are there,
/// and it is not closed.
fn redo_before(pm: &Pm, log: u64, ids: &[u64], id: u64) -> Vec<u64> {
    let before = ids.iter().copied().filter(|&found| found < id).max();
    let its = (log..).step_by(64).zip(ids);
    let its = its.filter(|&(_, &found)| found != 0 && Some(found) == before);
    let mut entries: Vec<(Header, u64)> =
        its.map(|(off, _)| (Header::read(pm, off), off)).collect();
    entries.sort_unstable_by_key(|(header, _)| header.place());
    let mut places = (0..).zip(&entries);
    let whole = places.all(|(at, (header, _))| header.kind() == KIND_REDO && header.place() == at);
    let ended = entries
        .last()
        .is_some_and(|(header, _)| header.is_last_of_new());
    match whole && ended && !planted!("bug-redo-before-forgotten") {
        true => entries.into_iter().map(|(_, off)| off).collect(),
        false => Vec::new(),
    }
}

impl Scan {
    /// Drops the transaction before the last one, for a log of a build that waited for each
    /// transaction's words: it is durable, and its words may have other owners since.
    pub fn forget_before(&mut self) {
        self.before.clear();
    }

    /// Returns whether the last transaction is a whole redo record that is not closed: recovery
    /// applies it again.
    pub fn is_committed_redo(&self) -> bool {
        self.redo && self.last && !self.open.is_empty()
    }

    /// The new values of all words in the last committed redo records, each word once: others may
    /// read them at the same time, and must not see the older record's value of a word that the
    /// last one has changed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an entry can't be right.
    pub fn redo_words(&self, store: &Store) -> Result<BTreeMap<u64, u64>> {
        let last: &[u64] = if self.last { &self.open } else { &[] };
        let mut words = BTreeMap::new();
        for &entry in self.before.iter().chain(last) {
            for (off, new) in LogEntry::read(store, entry)?.ranges() {
                words.extend((off..).step_by(8).zip(new.iter().copied()));
            }
        }
        Ok(words)
    }

    /// Returns whether a commit checksum shows that the open transaction is complete: the words
    /// that it logged have their new values.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an entry can't be right.
    pub fn checksum_matches(&self, store: &Store) -> Result<bool> {
        let Some(checksum) = self.checksum.filter(|_| !self.open.is_empty()) else {
            return Ok(false);
        };
        let mut found = CommitChecksum::default();
        for &entry in &self.open {
            let entry = LogEntry::read(store, entry)?;
            if entry.saved().is_some() {
                return Ok(false);
            }
            for (off, old) in entry.ranges() {
                let words = (off..).step_by(8).take(old.len());
                words.for_each(|word| found.add(store.pm.load(word)));
            }
        }
        let holds = store.pm.read::<2>(LogEntryRaw::old.of(checksum)) == found.words();
        Ok(holds || planted!("bug-checksum-not-compared"))
    }
}
