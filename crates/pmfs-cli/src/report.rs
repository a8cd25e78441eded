//! Results, for people and as JSON. The JSON is an interface: fields may be added, not renamed.

use std::path::Path;

use pmfs::{Protection, RecoveryReport};
use pmfs_admin::PoolInfo;
use serde::{Deserialize, Serialize};

use pm_cli::Size;
pub use pm_cli::print;

const SHM_NOTE: &str =
    "/dev/shm is emptied at reboot, and perhaps at logout (RemoveIPC= in logind.conf)";

/// A part of a whole, for people; nothing of nothing is all.
pub fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 {
        1.0
    } else {
        part as f64 / whole as f64
    };
    format!("{:.1} %", share * 100.0)
}

/// The report of `mkfs` and `info` on a pool.
#[derive(Serialize)]
pub struct PoolReport {
    pool: String,
    uuid: String,
    version: u32,
    size_bytes: u64,
    block_bytes: u64,
    blocks: u64,
    blocks_free: u64,
    inodes: u64,
    inodes_free: u64,
    lanes: u32,
    lane_bytes: u64,
    processes_max: u64,
    open_files_max: u64,
    file_locks_max: u64,
    overhead_bytes: u64,
    medium: String,
    durability: String,
    flush: String,
    /// The protection against stray stores of this machine's programs, if they do not ask for
    /// another.
    protection: String,
    /// The consequence of the pool's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

/// The protection that `--protect=auto` gives here.
fn usual_protection() -> Protection {
    match pmem::protection::keys() {
        Ok(()) => Protection::Keys,
        Err(_) => Protection::None,
    }
}

impl PoolReport {
    /// The report on a pool at `path`.
    pub fn new(path: &Path, info: &PoolInfo) -> PoolReport {
        PoolReport {
            pool: path.display().to_string(),
            uuid: uuid(&info.uuid),
            version: info.version,
            size_bytes: info.size,
            block_bytes: 4096,
            blocks: info.blocks,
            blocks_free: info.blocks_free,
            inodes: info.inodes,
            inodes_free: info.inodes_free,
            lanes: info.lanes,
            lane_bytes: info.lane_bytes,
            processes_max: info.processes,
            open_files_max: info.open_files,
            file_locks_max: info.file_locks,
            overhead_bytes: info.overhead_bytes,
            medium: info.medium.clone(),
            durability: info.durability.clone(),
            flush: info.flush.clone(),
            protection: usual_protection().to_string(),
            note: path.starts_with("/dev/shm").then_some(SHM_NOTE),
        }
    }

    /// A few lines for people.
    pub fn text(&self) -> String {
        let overhead_percent = self.overhead_bytes as f64 * 100.0 / self.size_bytes.max(1) as f64;
        let mut lines = vec![
            format!("pool        {}", self.pool),
            format!(
                "uuid        {} (format version {})",
                self.uuid, self.version
            ),
            format!("medium      {}", self.medium),
            format!("durability  {}", self.durability),
            format!("flush       {}", self.flush),
            format!("protection  {}", self.protection),
            format!(
                "size        {} ({} blocks of 4 KiB)",
                Size(self.size_bytes),
                self.blocks
            ),
            format!("free        {}", Size(self.blocks_free * self.block_bytes)),
            format!("inodes      {} ({} free)", self.inodes, self.inodes_free),
            format!("lanes       {} of {}", self.lanes, Size(self.lane_bytes)),
            format!(
                "tables      {} processes, {} open files, {} file locks",
                self.processes_max, self.open_files_max, self.file_locks_max
            ),
            format!(
                "overhead    {} ({overhead_percent:.2} %)",
                Size(self.overhead_bytes)
            ),
        ];
        lines.extend(self.note.map(|note| format!("note        {note}")));
        lines.join("\n")
    }
}

/// The work of attaching.
#[derive(Clone, Serialize, Deserialize)]
pub struct Recovery {
    kind: String,
    pub sentence: String,
    transactions_undone: u64,
    entries_undone: u64,
    calls_interrupted: u64,
    intents_resolved: u64,
    orphans: u64,
    inodes: u64,
    blocks: u64,
    /// Structures that can't be right; the pool is then read-only.
    pub damage: u64,
    elapsed_us: u64,
}

impl From<&RecoveryReport> for Recovery {
    fn from(report: &RecoveryReport) -> Recovery {
        Recovery {
            kind: format!("{:?}", report.kind).to_lowercase(),
            sentence: report.to_string(),
            transactions_undone: report.transactions_undone,
            entries_undone: report.entries_undone,
            calls_interrupted: report.calls_interrupted,
            intents_resolved: report.intents_resolved,
            orphans: report.orphans,
            inodes: report.inodes,
            blocks: report.blocks,
            damage: report.damage,
            elapsed_us: report.elapsed.as_micros() as u64,
        }
    }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn uuid_has_the_usual_shape() {
        let bytes = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(super::uuid(&bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
