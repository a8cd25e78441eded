//! A process's knowledge of others in the pool ([`super::lease`]).

use std::sync::atomic::AtomicU64;

/// A process's knowledge of others.
#[derive(Debug, Default)]
pub struct OtherProcesses {
    /// Arrivals when it was seen to be alone, its own among them; 0: it was not.
    pub(crate) alone: AtomicU64,
    /// The time of the last look, ns.
    pub(crate) searched_ns: AtomicU64,
}
