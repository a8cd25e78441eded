//! Lanes and slots.

use super::Dumped;
use pm_journal::log_entry::{Header, LogEntry};
use pm_space::Zone;
use pmfs::parts::pool::Pool;
use pmfs::parts::purpose::Lane;
use pmfs::{Error, Result};
use pmfs_format::journal::{
    KIND_ABORT, KIND_CHECKSUM, KIND_COMMIT, KIND_DATA, KIND_REDO, KIND_UNDO, KIND_UNDOS,
};
use pmfs_format::runtime::{SLOT_FREE, SLOT_LIVE};
use pmfs_format::{LogEntryRaw, RuntimeHeaderRaw, SlotRaw};
use pmshare::holder::slot_of;

/// All lanes, in a line each.
pub(super) fn lanes(pool: &Pool) -> Dumped {
    let mut shown = Dumped::default();
    shown.number("lanes", pool.geometry.lanes);
    let one = |index| line(pool, index);
    shown.list("lane", (0..pool.geometry.lanes).map(one).collect());
    shown
}

fn line(pool: &Pool, index: u64) -> Dumped {
    let lane = Lane::at(pool, index);
    let scan = lane.scan();
    let mut shown = Dumped::default();
    shown.number("lane", index);
    shown.text("owner", owner(pool.pm.load(pool.geometry.lane_line(index))));
    shown.number("last transaction", scan.id);
    shown.text(
        "log",
        match (scan.id, scan.open.len()) {
            (0, _) => "empty".to_owned(),
            (_, 0) => "closed".to_owned(),
            _ if scan.checksum_matches(pool).unwrap_or(false) => {
                "closed by its checksum".to_owned()
            }
            (_, open) if scan.is_committed_redo() => {
                format!("committed redo: {open} entries, to be applied again")
            }
            (_, open) if scan.redo => {
                format!("open: {open} entries of a redo record that is not whole")
            }
            (_, open) => format!("open: {open} entries to undo"),
        },
    );
    shown.number("intents", lane.intent_count());
    shown
}

/// A lane: its counters, its log, its intents.
pub(super) fn lane(pool: &Pool, index: u64) -> Result<Dumped> {
    if index >= pool.geometry.lanes {
        return Err(Error::Invalid(&"the pool has fewer lanes"));
    }
    let lane = Lane::at(pool, index);
    let (log, entries) = lane.log();
    let mut shown = line(pool, index);
    shown.address("log at", log);
    shown.number("log entries", entries);
    shown.number("data cursor", lane.block_cursor(Zone::Data));
    shown.number("meta cursor", lane.block_cursor(Zone::Meta));
    shown.number("inode cursor", lane.inode_cursor());
    shown.number("spare block", lane.spare().unwrap_or(0));
    shown.number("working on inode", lane.working());
    let used = (0..entries).filter(|at| {
        pool.pm
            .load(LogEntryRaw::id.of(log + at * LogEntryRaw::SIZE))
            != 0
    });
    shown.list(
        "entries",
        used.map(|at| entry(pool, log + at * LogEntryRaw::SIZE))
            .collect(),
    );
    let intents = (0..lane.intent_count()).map(|record| {
        let mut one = Dumped::default();
        one.number("record", record);
        match lane.intent(record) {
            None => one.text("what", "struck out, or unreadable"),
            Some((word, purpose)) => {
                let run = Lane::run_of(word);
                one.text("what", format!("{purpose:?}"));
                one.number("block", run.block);
                one.number("blocks", run.count);
            }
        }
        one
    });
    shown.list("intent records", intents.collect());
    Ok(shown)
}

fn entry(pool: &Pool, at: u64) -> Dumped {
    let line = pool.pm.read::<8>(at);
    let mut shown = Dumped::default();
    shown.address("at", at);
    shown.number("id", line[LogEntryRaw::id.word()]);
    let header = Header::read(&pool.pm, at);
    shown.number("place", header.place());
    let kind = match header.kind() {
        KIND_UNDO | KIND_UNDOS => "undo",
        KIND_REDO => "redo",
        KIND_DATA => "data",
        KIND_COMMIT => "commit",
        KIND_ABORT => "abort",
        KIND_CHECKSUM => "checksum",
        _ => "no kind: can't be right",
    };
    shown.text("kind", kind);
    if kind == "checksum" {
        let hash = format!("{:#018x}{:016x}", line[2], line[1]);
        shown.text("words hash to", hash);
    }
    let Some(entry) = LogEntry::parse(line) else {
        return shown;
    };
    if let Some((off, bytes, from)) = entry.saved() {
        shown.address("of", off);
        shown.address("saved at", from);
        shown.number("bytes", bytes);
    }
    let ranges = entry.ranges().map(|(off, words)| {
        let words: Vec<String> = words.iter().map(|word| format!("{word:#x}")).collect();
        let mut range = Dumped::default();
        range.address("of", off);
        let which = if kind == "undo" { "old" } else { "new" };
        range.text(which, words.join(" "));
        range
    });
    let ranges: Vec<Dumped> = ranges.collect();
    if !ranges.is_empty() {
        shown.list("ranges", ranges);
    }
    shown
}

/// The slots that are not free, and the locks of the header.
pub(super) fn slots(pool: &Pool) -> Dumped {
    let load = |off| pool.pm.load(off);
    let geometry = &pool.geometry;
    let mut shown = Dumped::default();
    shown.number("slots", geometry.slot_count);
    shown.number("runtime layout", load(geometry.header));
    shown.text(
        "recovery lock",
        owner(load(RuntimeHeaderRaw::recovery_owner.of(geometry.header))),
    );
    shown.number(
        "slots recovered",
        load(RuntimeHeaderRaw::recoveries.of(geometry.header)),
    );
    shown.text(
        "rename lock",
        owner(load(RuntimeHeaderRaw::rename_owner.of(geometry.header))),
    );
    shown.text(
        "grow lock",
        owner(load(RuntimeHeaderRaw::grow_owner.of(geometry.header))),
    );
    let taken = (0..geometry.slot_count).filter(|&slot| {
        let off = geometry.slot(slot);
        load(SlotRaw::state.of(off)) != SLOT_FREE || load(SlotRaw::incarnation.of(off)) != 0
    });
    let one = |slot| {
        let off = geometry.slot(slot);
        let mut one = Dumped::default();
        one.number("slot", slot);
        let state = match load(SlotRaw::state.of(off)) {
            SLOT_FREE => "free".to_owned(),
            SLOT_LIVE => "taken".to_owned(),
            other => format!("{other:#x}: can't be right"),
        };
        one.text("state", state);
        one.number("incarnation", load(SlotRaw::incarnation.of(off)));
        one.number("pid", load(SlotRaw::pid.of(off)));
        one
    };
    shown.list("slot", taken.map(one).collect());
    shown
}

fn owner(word: u64) -> String {
    match slot_of(word) {
        _ if word == 0 => "nobody".to_owned(),
        Some(slot) => format!("slot {slot}, thread {}", word & 0xf_ffff),
        None => format!("{word:#x}: can't be right"),
    }
}
