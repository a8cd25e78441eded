//! Leases, for mounts (docs/adr/0015-leases.md).

use crate::fs::Fs;
use pmshare::lease::SingleOpener;

impl Fs {
    /// Since when this process has been alone in the pool: nobody else changes anything before
    /// [`Fs::lease`] is refused. `None`: it is not, or has not looked since the last one left.
    #[must_use]
    pub fn alone(&self) -> Option<SingleOpener> {
        self.pool().single_opener()
    }

    /// Takes the lease, or keeps it: what was read since then may be remembered, and nobody who
    /// arrives gets in before [`Fs::end_lease`]. `false`: somebody has arrived. The caller sees to
    /// it that no lease ends between this call and the answer that it is for.
    #[must_use]
    pub fn lease(&self, since: SingleOpener) -> bool {
        self.pool().take_lease(since)
    }

    /// Returns whether this process has the lease.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.pool().has_lease()
    }

    /// Returns whether somebody waits for the end of this process's lease.
    #[must_use]
    pub fn is_lease_wanted(&self) -> bool {
        self.pool().is_lease_wanted()
    }

    /// Ends this process's lease: nothing is remembered any more.
    pub fn end_lease(&self) {
        let pool = self.pool();
        pool.drop_lease_of(pool.holder().slot);
    }
}
