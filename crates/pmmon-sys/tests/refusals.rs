//! Goal: a backend that the kernel refuses says why, and what to do. Method: debug registers that
//! are taken, and a seccomp filter that refuses perf_event_open, both on a thread of the test's.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use perf_event::Builder;
use perf_event::events::Breakpoint;
use pmmon::{Lacking, Sampler, Thread};
use pmmon_sys::{ClockTicks, Watch, WatchOptions, calibrate, probe_pages};

fn own_tid() -> u32 {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    tid.unsigned_abs()
}

/// Follows the calling thread, in which something of the process is persistent memory.
fn follow(mut sampler: impl Sampler) -> Result<(), Lacking> {
    let memory = vec![0_u64; 64];
    let begin = memory.as_ptr() as u64;
    let pid = std::process::id();
    let region = begin..begin + 512;
    let regions = std::slice::from_ref(&region);
    sampler.regions(pid, regions).unwrap();
    sampler.follow(Thread {
        pid,
        tid: own_tid(),
    })
}

/// Goal: no debug register is left (ENOSPC).
#[test]
fn debug_registers_that_others_hold_are_told() {
    let words: [AtomicU64; 5] = Default::default();
    let mut held = Vec::new();
    let mut refused = None;
    for word in &words {
        let mut builder = Builder::new(Breakpoint::write(word.as_ptr() as u64, 8));
        builder.exclude_kernel(true).exclude_hv(true);
        match builder.build() {
            Ok(counter) => held.push(counter),
            Err(error) => refused = Some(error),
        }
    }
    if held.is_empty() {
        eprintln!("skipped: no hardware breakpoints here: {refused:?}");
        return;
    }
    assert_eq!(
        refused.and_then(|error| error.raw_os_error()),
        Some(libc::ENOSPC)
    );
    words[4].store(1, Relaxed);
    let lacking = follow(Watch::new(WatchOptions::default())).unwrap_err();
    assert!(lacking.cause.contains("No space left"), "{lacking:?}");
    assert!(lacking.remedy.contains("debugger"), "{lacking:?}");
    assert!(!lacking.gone);
    assert_eq!(calibrate().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    drop(held);
}

/// Refuses a system call to the calling thread from now on, with an error of the kernel's.
fn refuse(number: libc::c_long, error: i32) -> io::Result<()> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut steps = [
        step(LOAD_NUMBER, 0, 0),
        libc::sock_filter {
            jf: 1,
            ..step(JUMP_IF, 0, number as u32)
        },
        step(ANSWER, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(ANSWER, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the filter lives beyond the calls, which copy it, and change this thread's rights
    // alone.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Goal: no backend can be opened below a filter, as in containers (EPERM, ENOSYS).
#[test]
fn filters_are_told() {
    for (error, way_out) in [
        (libc::EPERM, "perf_event_paranoid"),
        (libc::ENOSYS, "seccomp"),
    ] {
        let thread = std::thread::spawn(move || {
            refuse(libc::SYS_perf_event_open, error).expect("a filter");
            assert_eq!(calibrate().unwrap_err().raw_os_error(), Some(error));
            assert_eq!(ClockTicks::probe().unwrap_err().raw_os_error(), Some(error));
            for lacking in [
                follow(Watch::new(WatchOptions::default())).unwrap_err(),
                follow(ClockTicks::default()).unwrap_err(),
            ] {
                assert!(lacking.remedy.contains(way_out), "{lacking:?}");
                assert!(!lacking.gone);
            }
        });
        thread.join().unwrap();
    }
}

/// Goal: kernels without the tracking of pages, and filters that refuse it, get a way out.
#[test]
fn pages_that_are_not_tracked_are_told() {
    for (number, error, way_out) in [
        (libc::SYS_userfaultfd, libc::ENOSYS, "Linux 6.7"),
        (libc::SYS_userfaultfd, libc::EPERM, "seccomp"),
        (libc::SYS_ioctl, libc::ENOTTY, "Linux 6.7"),
    ] {
        let thread = std::thread::spawn(move || {
            refuse(number, error).expect("a filter");
            let lacking = probe_pages().unwrap_err();
            assert!(lacking.remedy.contains(way_out), "{lacking:?}");
            assert!(lacking.remedy.contains("take watch"), "{lacking:?}");
            assert!(!lacking.gone);
        });
        thread.join().unwrap();
    }
}
