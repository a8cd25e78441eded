//! The way in: whoever calls the engine, on whatever thread, comes to the pool through here, and
//! may load from it from then on.
//!
//! A thread that is older than the pool's key, and every signal handler, has no right to it at
//! first ([`pmem::Protection::Keys`]).

use crate::pool::Pool;

/// A pool that can't be reached but by entering it.
pub(crate) struct Entrance(Pool);

impl Entrance {
    /// Around an attached pool.
    pub fn new(pool: Pool) -> Entrance {
        Entrance(pool)
    }

    /// The pool, for a call of this thread.
    #[inline(always)]
    pub fn enter(&self) -> &Pool {
        self.0.pm.mapping().enter();
        &self.0
    }

    /// The pool back.
    pub fn into_pool(self) -> Pool {
        self.0
    }
}
