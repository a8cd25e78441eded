//! A reader of the results may stop reading (`pmbench list | head`): that is the end, and no
//! failure.
//!
//! `println!` panics then, in many places. The panic is let through, so that what was mounted is
//! taken down, but it says nothing.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Does the work, whose results go to standard output.
pub fn until_it_stops(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let stopped = Arc::new(AtomicBool::new(false));
    let (others, seen) = (take_hook(), Arc::clone(&stopped));
    set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or("");
        if text.starts_with("failed printing to stdout: Broken pipe") {
            seen.store(true, Ordering::Relaxed);
        } else {
            others(panic);
        }
    }));
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(ended) => ended,
        Err(_) if stopped.load(Ordering::Relaxed) => Ok(()),
        Err(panic) => resume_unwind(panic),
    }
}
