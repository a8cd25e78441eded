//! The way in: whoever calls the engine, on whatever thread, comes to the pool through here, and may load from it from then on.
//!
//! A thread that is older than the pool's key, and every signal handler, has no right to it at first ([`pmem::Protection::Keys`]).

use crate::pool::Pool;
use std::sync::Arc;

/// A pool that can't be reached but by entering it.
pub(crate) struct Entrance(Arc<Pool>);

impl Entrance {
    /// Around an attached pool.
    pub fn new(pool: Arc<Pool>) -> Entrance {
        Entrance(pool)
    }

    /// The pool, for a call of this thread.
    #[inline(always)]
    pub fn enter(&self) -> &Pool {
        self.0.pm.mapping().enter();
        &self.0
    }

    /// The pool back; `None` while a thread is in the middle of cleaning up after others.
    pub fn into_pool(self) -> Option<Pool> {
        Arc::into_inner(self.0)
    }
}
