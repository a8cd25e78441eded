//! Leases, for mounts (docs/adr/0015-leases.md).

use crate::fs::Fs;
use pmshare::lease::SingleOpener;

impl Fs {
    /// The time since which this process has been the only one in the pool: no other process
    /// changes anything before [`Fs::lease`] is refused. `None` if it is not alone, or has not
    /// checked since the last process left.
    #[must_use]
    pub fn alone(&self) -> Option<SingleOpener> {
        self.pool().single_opener()
    }

    /// Takes or keeps the lease. Results read since `since` may then be cached, and a process that
    /// arrives waits for [`Fs::end_lease`]. `false`: another process has arrived. The caller
    /// ensures that no lease ends between this call and the answer that it is for.
    #[must_use]
    pub fn lease(&self, since: SingleOpener) -> bool {
        self.pool().take_lease(since)
    }

    /// Returns whether this process has the lease.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.pool().has_lease()
    }

    /// Returns whether another process waits for the end of this process's lease.
    #[must_use]
    pub fn is_lease_wanted(&self) -> bool {
        self.pool().is_lease_wanted()
    }

    /// Ends this process's lease; the caller has dropped all cached results.
    pub fn end_lease(&self) {
        let pool = self.pool();
        pool.drop_lease_of(pool.holder().slot);
    }
}
