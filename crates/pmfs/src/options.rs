//! The options of open.

use crate::types::{AtimeMode, DataMode, LargePages};
use pm_store::clock::Clock;
use pmem::MapOptions;
pub use pmshare::Stalled;

/// The options of attaching to a pool.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Refuse changes.
    pub read_only: bool,
    /// The promise of a write.
    pub data: DataMode,
    /// The rule by which files take large pages.
    pub large: LargePages,
    /// The rule by which reads update atime.
    pub atime: AtimeMode,
    /// Leave the atime of directories alone, with any value of `atime`.
    pub nodiratime: bool,
    /// The options of its mapping.
    pub map: MapOptions,
    /// Want the pool for this process alone: fails if another process has it open, and lets none
    /// in.
    pub exclusive: bool,
    /// Attach though the journal or the root directory is damaged, throwing away what can't be
    /// undone, and trusting nothing of the runtime area: for fsck, which calls
    /// `Admin::repair` of `pmfs-admin` next.
    pub repair: bool,
    /// Open a pool that was left in use under another name since this machine was started: a copy
    /// of one in use, or a device reached by another node. Safe only if no process uses the pool
    /// any more.
    pub adopt: bool,
    /// Open this file alone, and not another that has its name by now.
    pub only: Option<pmem::Identity>,
    /// The treatment of a process that holds a lock of the pool and does not run.
    pub stalled: Stalled,
    /// The source of times.
    pub clock: Clock,
    /// The observer that sees every access to the pool, from the first one on.
    #[cfg(feature = "record")]
    pub observer: Option<std::sync::Arc<dyn pmem::record::Observer>>,
    /// For a mapping without a file: the machine was off since. The pool is then trusted if it was
    /// left clean, as a file would be; otherwise the runtime area is rebuilt in any case.
    #[cfg(feature = "record")]
    pub rebooted: bool,
}
