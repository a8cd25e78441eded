//! The entrance to the engine: every call on every thread passes it, and may load from the pool
//! afterwards.
//!
//! A thread older than the pool's key, and every signal handler, begins without this right
//! ([`pmem::Protection::Keys`]).

use crate::pool::Pool;

/// A pool that can only be reached by entering it.
pub(crate) struct Entrance(Pool);

impl Entrance {
    /// Wraps an attached pool.
    pub fn new(pool: Pool) -> Entrance {
        Entrance(pool)
    }

    /// Enters the pool, for a call of this thread.
    #[inline(always)]
    pub fn enter(&self) -> &Pool {
        self.0.pm.mapping().enter();
        &self.0
    }

    /// Unwraps the pool.
    pub fn into_pool(self) -> Pool {
        self.0
    }
}
