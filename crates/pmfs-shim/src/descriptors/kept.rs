//! Descriptors of this library that are created at their first use and kept, at the top of the
//! limit.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::call::kernel_answer;
use crate::descriptors::spare;
use crate::descriptors::table;
use crate::own::kernel;
use crate::thread::guest;

/// A descriptor that is created at its first use.
pub(crate) struct Kept(AtomicI32);

/// The pool's file, for mappings.
pub(crate) static POOL: Kept = Kept::none_yet();
/// An empty file, which is mapped where there is nothing.
pub(crate) static EMPTY: Kept = Kept::none_yet();
/// /dev/null, for completions of requests that were done here.
pub(crate) static NULL: Kept = Kept::none_yet();

impl Kept {
    const fn none_yet() -> Kept {
        Kept(AtomicI32::new(-1))
    }

    /// The descriptor's number, if it exists.
    pub fn known(&self) -> Option<i32> {
        let known = self.0.load(Ordering::Acquire);
        (known >= 0).then_some(known)
    }

    /// Calls `body` with the descriptor. If no number is free, it is created for this use alone.
    ///
    /// # Errors
    /// Those of both; EMFILE.
    pub fn with<T>(
        &self,
        open: impl Fn() -> Result<i32, i32>,
        body: impl FnOnce(i32) -> Result<T, i32>,
    ) -> Result<T, i32> {
        match self.get(&open) {
            Err(libc::EMFILE) => {
                let _lent = spare::lend();
                let file = spare::retry(open)?;
                let answer = body(file);
                kernel::plain(libc::SYS_close, &[file as u64]);
                answer
            }
            file => body(file?),
        }
    }

    /// Returns the number of the descriptor. A guest creates its own each time, which is closed
    /// with the guest's table: its numbers mean nothing in the parent.
    ///
    /// # Errors
    /// Those of `open`; EMFILE.
    pub fn get(&self, open: impl FnOnce() -> Result<i32, i32>) -> Result<i32, i32> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let low = open()? as u64;
        let (command, floor) = (libc::F_DUPFD_CLOEXEC as u64, table::choose_floor());
        let high = kernel_answer(kernel::plain(
            libc::SYS_fcntl,
            &[low, command, floor as u64],
        ));
        kernel::plain(libc::SYS_close, &[low]);
        let high = high? as i32;
        if guest::has_own_table() {
            return Ok(high);
        }
        match self
            .0
            .compare_exchange(-1, high, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Ok(high),
            Err(first) => {
                kernel::plain(libc::SYS_close, &[high as u64]);
                Ok(first)
            }
        }
    }
}

/// Returns whether a number is one of the kept descriptors.
pub(crate) fn has(number: u32) -> bool {
    [&POOL, &EMPTY, &NULL]
        .iter()
        .any(|kept| kept.known() == Some(number as i32))
}
