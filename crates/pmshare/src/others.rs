//! A process's knowledge of others in the pool ([`super::lease`]).

use std::sync::atomic::AtomicU64;

/// A process's knowledge of others.
#[derive(Debug, Default)]
pub struct OtherProcesses {
    /// The arrivals, its own included, when the process was last seen to be alone; 0: it was not.
    pub(crate) alone: AtomicU64,
    /// The time of the last check, ns.
    pub(crate) searched_ns: AtomicU64,
}
