//! Completions of requests that were done here, in the kernel's own ring.
//!
//! For each, the library submits a request of its own, a write of as many bytes to /dev/null, which
//! the kernel completes at once. The completion has the address of that request; io_getevents(2)
//! replaces it by the address of the program's request on return. The program's structure is never
//! touched: as soon as there is a completion, another thread may have taken it and reused the
//! structure.
//!
//! A program that reads completions from the ring in its own memory sees a copy of its request, at
//! another address.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{EAGAIN, EINTR, ENOMEM, ENOSYS};

use crate::call::class::numbers::SYS_io_pgetevents;
use crate::call::{Answer, Verdict, kernel_answer};
use crate::descriptors;
use crate::descriptors::kept;
use crate::own::kernel::{self, PATH};
use crate::program;
use crate::signals;
use crate::thread::gate;

/// The kernel's struct iocb.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Request {
    data: u64,
    key: u32,
    pub rw_flags: u32,
    pub operation: u16,
    priority: u16,
    pub file: u32,
    pub buffer: u64,
    pub bytes: u64,
    pub offset: u64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// The operation that writes.
pub(super) const WRITE: u16 = 1;

/// The kernel's struct io_event: data, object, two results.
const EVENT: u64 = 32;
const OBJECT: u64 = 8;

/// The most completions that can wait, of all contexts together. The kernel has the same limit
/// (fs.aio-max-nr).
const PLACES: usize = 1 << 16;

/// A request of this library, whose address identifies its completion.
#[repr(C)]
struct Stand {
    _request: Request,
    /// The address of the program's request; 0 if the place is free.
    at: u64,
    context: u64,
}

/// The address of [`PLACES`] places, mapped at the first use.
static STANDS: AtomicUsize = AtomicUsize::new(0);
static PLACES_OF: Mutex<Free> = Mutex::new(Free {
    given_back: Vec::new(),
    next: 0,
});

struct Free {
    given_back: Vec<u32>,
    /// No place from here on was ever used.
    next: u32,
}

fn places() -> MutexGuard<'static, Free> {
    PLACES_OF.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Free {
    /// Puts a request into a free place.
    fn put(&mut self, new: Stand) -> Result<u32, i32> {
        let place = self.free()?;
        // SAFETY: a place that nobody has, until there is a completion.
        unsafe { stand(place).write(new) };
        Ok(place)
    }

    fn free(&mut self) -> Result<u32, i32> {
        if STANDS.load(Ordering::Acquire) == 0 {
            let at = kernel::map(PLACES * size_of::<Stand>(), libc::MAP_NORESERVE);
            STANDS.store(at.ok_or(ENOMEM)?.expose_provenance(), Ordering::Release);
        }
        if let Some(place) = self.given_back.pop() {
            return Ok(place);
        }
        if self.next as usize == PLACES {
            return Err(EAGAIN);
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    fn give_back(&mut self, place: u32) {
        // SAFETY: a place that was taken; the lock is held.
        unsafe { (*stand(place)).at = 0 };
        self.given_back.push(place);
    }
}

fn stand(place: u32) -> *mut Stand {
    let first = STANDS.load(Ordering::Acquire);
    std::ptr::with_exposed_provenance_mut(first + place as usize * size_of::<Stand>())
}

/// The place that a completion's object stands for, if it is one.
fn place_of(object: u64) -> Option<u32> {
    let first = STANDS.load(Ordering::Acquire);
    let behind = (object as usize).wrapping_sub(first);
    let one = size_of::<Stand>();
    (first != 0 && behind < PLACES * one && behind.is_multiple_of(one))
        .then_some((behind / one) as u32)
}

/// Adds the completion of the program's request at `at`, which has moved `moved` bytes.
pub(super) fn add(context: u64, at: u64, asked: &Request, moved: u64) -> Answer {
    kept::NULL.with(null, |null| add_to(null, context, at, asked, moved))
}

fn add_to(null: i32, context: u64, at: u64, asked: &Request, moved: u64) -> Answer {
    let request = Request {
        key: 0,
        rw_flags: 0,
        operation: WRITE,
        file: null as u32,
        bytes: moved,
        offset: 0,
        ..*asked
    };
    let place = places().put(Stand {
        _request: request,
        at,
        context,
    })?;
    let answer = pass(context, stand(place).expose_provenance() as u64);
    if answer.is_err() {
        places().give_back(place);
    }
    answer
}

/// Passes a request on unchanged.
pub(super) fn pass(context: u64, at: u64) -> Answer {
    let list = (&raw const at).expose_provenance() as u64;
    // SAFETY: the kernel reads one address, and what the program, or this library, has there.
    kernel_answer(unsafe { kernel::call(libc::SYS_io_submit, [context, 1, list, 0, 0, 0]) })
}

/// /dev/null, which takes every byte.
fn null() -> Result<i32, i32> {
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as u64;
    let args = [libc::AT_FDCWD as u64, PATH, flags, 0, 0, 0];
    descriptors::number(kernel::with_path(libc::SYS_openat, args, b"/dev/null\0"))
}

/// Serves io_getevents(2) and io_pgetevents(2): context, least count, greatest count, events, time,
/// and a mask for the latter.
pub(crate) fn take(number: i64, args: [u64; 6]) -> Verdict {
    let [context, least, most, events, time, masks] = args;
    if number == SYS_io_pgetevents && masks != 0 {
        match program::read::<[u64; 2]>(masks) {
            Ok([0, _]) => {}
            // A signal during the wait is put off to the end of the call, when the program's own
            // mask is back.
            Ok([_, _]) => return Verdict::done(Err(ENOSYS)),
            Err(errno) => return Verdict::done(Err(errno)),
        }
    }
    if least as i64 > most as i64 || (least as i64) < 0 {
        // The kernel refuses the call.
        return Verdict::Pass;
    }
    let at_once = match time {
        0 => Ok(false),
        time => program::read(time).map(|time: [u64; 2]| time == [0, 0]),
    };
    let at_once = match at_once {
        Ok(at_once) => at_once,
        Err(errno) => return Verdict::done(Err(errno)),
    };
    let no_time = [0u64; 2];
    let now = (&raw const no_time).expose_provenance() as u64;
    let there = [context, 0, most, events, now, 0];
    // SAFETY: the program's own call, and a time of ours.
    let first = unsafe { kernel::call(libc::SYS_io_getevents, there) };
    let ready = match kernel_answer(first) {
        Ok(ready) => ready,
        Err(errno) => return Verdict::done(Err(errno)),
    };
    let enough = ready as i64 >= least as i64;
    let mut answer = Ok(ready);
    if !enough && !at_once {
        let behind = events + ready * EVENT;
        answer = match wait([context, least - ready, most - ready, behind, time]) {
            Err(errno) if ready == 0 => Err(errno),
            more => Ok(ready + more.unwrap_or(0)),
        };
    }
    Verdict::done(answer.and_then(|all| name(events, all)))
}

/// Waits as the program asked; a signal ends the wait.
fn wait([context, least, most, events, time]: [u64; 5]) -> Answer {
    let waited = signals::wait_with(|mask| {
        let masks = [mask, size_of::<u64>() as u64];
        let masks = masks.as_ptr().expose_provenance() as u64;
        let args = [context, least, most, events, time, masks];
        // SAFETY: the program's own call, with a mask of this thread's.
        kernel_answer(gate::away(|| unsafe {
            kernel::call(SYS_io_pgetevents, args)
        }))
    });
    waited.unwrap_or(Err(EINTR))
}

/// Replaces the objects by the program's.
fn name(events: u64, count: u64) -> Answer {
    for index in 0..count {
        let at = events + index * EVENT + OBJECT;
        let Some(place) = place_of(program::read(at)?) else {
            continue;
        };
        let mut places = places();
        // SAFETY: a place that was taken; the lock is held.
        let own = unsafe { (*stand(place)).at };
        places.give_back(place);
        drop(places);
        program::write(at, &own)?;
    }
    Ok(count)
}

/// Returns whether there are completions that were not taken yet.
pub(crate) fn are_out() -> bool {
    let places = places();
    places.next as usize > places.given_back.len()
}

/// Serves io_destroy(2): the remaining completions are dropped.
pub(crate) fn destroy(args: [u64; 6]) -> Verdict {
    // SAFETY: the program's own call.
    let answer = gate::away(|| unsafe { kernel::call(libc::SYS_io_destroy, args) });
    if answer == 0 {
        let mut places = places();
        for place in 0..places.next {
            // SAFETY: as in `name`.
            let (at, context) = unsafe { ((*stand(place)).at, (*stand(place)).context) };
            if at != 0 && context == args[0] {
                places.give_back(place);
            }
        }
    }
    kernel_answer(answer).into()
}
