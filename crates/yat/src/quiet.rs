//! Panics of what is being checked are findings: kept for the report, not shown as they happen.

use crate::trace::{Cpu, on_cpu};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

thread_local! {
    static QUIET: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`; a panic in it is an error that says what and where.
///
/// # Errors
/// The panic, in words.
pub fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_quiet = QUIET.with_borrow_mut(|place| match place {
                Some(place) => {
                    *place = info.location().map(ToString::to_string).unwrap_or_default();
                    true
                }
                None => false,
            });
            if !is_quiet {
                usual(info);
            }
        }));
    });
    QUIET.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(work));
    let place = QUIET.take().unwrap_or_default();
    result.map_err(|payload| format!("a panic at {place}: {}", words(payload.as_ref())))
}

/// Runs `work` on a thread of its own, which is another CPU of a trace ([`on_cpu`]), and waits for
/// it: its panics are this thread's.
pub fn elsewhere<T: Send>(cpu: Cpu, work: impl FnOnce() -> T + Send) -> T {
    let quiet = QUIET.take();
    let there = || {
        QUIET.set(quiet);
        on_cpu(cpu);
        (catch_unwind(AssertUnwindSafe(work)), QUIET.take())
    };
    let ended = std::thread::scope(|scope| scope.spawn(there).join());
    let (answer, quiet) = ended.expect("its panics are caught");
    QUIET.set(quiet);
    answer.unwrap_or_else(|panic| resume_unwind(panic))
}

fn words(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}
