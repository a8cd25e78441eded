//! Block 0 and its copy, as they stand, whether or not they are whole.

use super::{Dumped, Value};
use pm_journal::medium::superblock::{self, State, crc_of, read_at};
use pmem::{MapOptions, Pmem};
use pmfs::{Error, Result};
use pmfs_format::superblock::{MAGIC, STATE_ACTIVE, STATE_OFFSET};
use pmfs_format::{BLOCK_BYTES, SuperblockRaw};
use std::path::Path;

/// Shows both superblocks, the run record and the clean flag. A pool that can't be opened is shown
/// too.
///
/// # Errors
/// The file can't be mapped, or is too short to hold one.
pub fn dump_superblocks(path: &Path) -> Result<Dumped> {
    let map = MapOptions {
        read_only: true,
        ..MapOptions::default()
    };
    let mem = Pmem::open(path, &map)?;
    if mem.len() < 2 * BLOCK_BYTES {
        return Err(Error::not_a_pool("it has no room for a superblock"));
    }
    let primary = read_at(&mem, 0)?;
    let end = mem.len() / BLOCK_BYTES;
    let blocks = if is_whole(&primary) && primary.blocks <= end {
        primary.blocks.max(1)
    } else {
        end
    };
    let at = (blocks - 1) * BLOCK_BYTES;
    let copy = read_at(&mem, at)?;
    let mut shown = Dumped::default();
    let verdict = match superblock::load(&mem) {
        Ok(_) => "usable".to_owned(),
        Err(error) => error.to_string(),
    };
    shown.text("verdict", verdict);
    shown.list("superblocks", vec![one(&primary, 0), one(&copy, at)]);
    shown.text(
        "state",
        match (superblock::state(&mem), mem.load(STATE_OFFSET)) {
            (State::Clean(crc), _) => format!("clean, runtime area of CRC {crc:#010x}"),
            (State::Active, STATE_ACTIVE) => "active: in use, or left by a crash".to_owned(),
            (State::Active, other) => format!("{other:#x}: can't be right"),
        },
    );
    match superblock::run_record(&mem) {
        None => shown.text("run record", "fails its checksum"),
        Some(run) => {
            shown.text("boot id", hex(&run.boot_id));
            shown.number("device", run.dev);
            shown.number("file inode", run.ino);
            shown.number("runtime layout", run.layout);
            shown.number("runs", run.runs);
            shown.number("recoveries", run.recoveries);
        }
    }
    Ok(shown)
}

fn is_whole(raw: &SuperblockRaw) -> bool {
    raw.magic == MAGIC && raw.crc == crc_of(raw)
}

fn one(raw: &SuperblockRaw, at: u64) -> Dumped {
    let mut shown = Dumped::default();
    shown.address("at", at);
    shown.text(
        "checksum",
        match (raw.magic == MAGIC, raw.crc == crc_of(raw)) {
            (true, true) => "good".to_owned(),
            (true, false) => format!("is {:#010x}, should be {:#010x}", raw.crc, crc_of(raw)),
            (false, _) => format!("no superblock: begins with {:#018x}", raw.magic),
        },
    );
    shown.number("version", raw.version);
    shown.number("block shift", raw.block_shift);
    shown.text("uuid", hex(&raw.uuid));
    shown.address("features compat", raw.features_compat);
    shown.address("features ro", raw.features_ro);
    shown.address("features incompat", raw.features_incompat);
    for (name, value) in [
        ("blocks", raw.blocks),
        ("runtime start", raw.runtime_start),
        ("runtime blocks", raw.runtime_blocks),
        ("journal start", raw.journal_start),
        ("journal blocks", raw.journal_blocks),
        ("data start", raw.data_start),
        ("inodes", raw.inodes),
        ("inode table root", raw.inode_table_root),
        ("reserve blocks", raw.reserve_blocks),
        ("lanes", raw.lanes.into()),
        ("lane bytes", raw.lane_bytes.into()),
        ("slots", raw.slots.into()),
        ("locks", raw.locks.into()),
        ("open lines", raw.open_lines.into()),
        ("intents", raw.intents.into()),
    ] {
        shown.0.push((name, Value::Number(value)));
    }
    shown.time("made", raw.crtime_ns);
    shown
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
