//! Goal: a medium that vanishes under a mapping is an error of the call and never ends the process,
//! and other signals reach their previous handlers. Method: the pool's file is truncated under its
//! mapping; children fault on purpose.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use pmem::{Fault, MapOptions, Pmem, ProtectMode, Side};

const LEN: u64 = 64 << 10;

/// Options without protection: stores need no window here.
fn unprotected() -> MapOptions {
    MapOptions {
        protect: ProtectMode::None,
        ..MapOptions::default()
    }
}

struct Pool {
    mem: Pmem,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn pool_in(dir: tempfile::TempDir) -> Pool {
    let path = dir.path().join("pool");
    let mem = Pmem::create(&path, LEN, false, true, &unprotected()).unwrap();
    for off in (0..LEN).step_by(8) {
        mem.store(off, off + 1);
    }
    Pool {
        mem,
        path,
        _dir: dir,
    }
}

fn pool() -> Pool {
    pool_in(tempfile::tempdir().unwrap())
}

impl Pool {
    fn cut(&self, len: u64) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.set_len(len).unwrap();
    }
}

#[test]
fn copies_stop_at_the_cut() {
    let pool = pool();
    pool.cut(LEN / 2);
    let mem = &pool.mem;
    for start in [0, 1, 63, 64, 100, 4000] {
        let off = LEN / 2 - start;
        let fault = Fault {
            offset: LEN / 2,
            done: start as usize,
            side: Side::Pool,
        };
        let mut bytes = vec![0; 8192];
        assert_eq!(mem.copy_out(off, &mut bytes), Err(fault), "out, {start}");
        assert_eq!(mem.write_nt(off, &bytes), Err(fault), "in, {start}");
        assert_eq!(mem.copy_nt(off, 0, 8192), Err(fault), "to, {start}");
        assert_eq!(mem.copy_nt(0, off, 8192), Err(fault), "from, {start}");
    }
    assert_eq!(mem.failed(), None, "copies report by themselves");
    // Bytes that were readable still are.
    let mut bytes = [0; 8];
    mem.copy_out(16384, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 16385);
}

#[test]
fn single_loads_and_stores_go_on_with_zeros() {
    type Act = fn(&Pmem, u64);
    let acts: &[(&str, Act)] = &[
        ("load", |m, off| assert_eq!(m.load(off), 0)),
        ("read", |m, off| assert_eq!(m.read::<2>(off), [0; 2])),
        ("load_pair", |m, off| assert_eq!(m.load_pair(off), [0; 2])),
        ("store", |m, off| m.store(off, 1)),
        ("store_pair", |m, off| m.store_pair(off, [1; 2])),
        ("cas", |m, off| assert_eq!(m.cas(off, 0, 1), Ok(0))),
        ("swap", |m, off| assert_eq!(m.swap(off, 1), 0)),
        ("write", |m, off| m.write(off, &[1; 3])),
        ("write_bytes", |m, off| m.write_bytes(off, &[1; 100])),
        ("zero_nt", |m, off| m.zero_nt(off, 128)),
        ("flush", |m, off| {
            m.flush(off, 64);
            m.store(off, 1);
        }),
    ];
    for (what, act) in acts {
        let pool = pool();
        let other = self::pool();
        pool.cut(LEN / 2);
        let off = LEN / 2 + 4096 + 192;
        assert_eq!(pool.mem.failed(), None);
        act(&pool.mem, off);
        assert_eq!(pool.mem.failed(), Some(off), "{what}");
        let loads = ["load", "read", "load_pair"].contains(what);
        assert_eq!(pool.mem.lost_store(), !loads, "{what}");
        // The first failure is the one reported.
        pool.mem.load(LEN - 8);
        assert_eq!(pool.mem.failed(), Some(off), "{what}");
        assert_eq!(pool.mem.load(8), 9, "the rest is still the file");
        assert_eq!(other.mem.failed(), None, "{what} harmed another pool");
    }
}

#[test]
fn a_new_mapping_does_not_inherit_a_failure() {
    let first = pool();
    first.cut(0);
    first.mem.load(0);
    assert!(first.mem.failed().is_some());
    drop(first);
    let second = pool();
    assert_eq!(second.mem.failed(), None);
    assert_eq!(second.mem.load(0), 1);
}

#[test]
fn many_threads_fault_at_once() {
    let pool = pool();
    pool.cut(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mem = &pool.mem;
            scope.spawn(move || {
                for off in (0..LEN).step_by(4096) {
                    mem.load(off + thread * 8);
                    let _ = mem.copy_out(off, &mut [0; 256]);
                }
            });
        }
        // The registry changes at the same time.
        scope.spawn(|| {
            for _ in 0..50 {
                drop(self::pool());
            }
        });
    });
    assert!(pool.mem.failed().is_some());
}

/// Runs one of the ignored tests below as a process of its own.
fn child(test: &str) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--test-threads=1", "-q"])
        .output()
        .unwrap()
        .status
}

#[test]
fn a_fault_elsewhere_kills_as_before() {
    assert_eq!(child("child_bad_pointer").signal(), Some(libc::SIGSEGV));
    assert_eq!(child("child_sent_sigbus").signal(), Some(libc::SIGBUS));
}

#[test]
fn an_older_handler_gets_what_is_not_ours() {
    let status = child("child_older_handler");
    assert!(status.success(), "{status:?}");
}

#[test]
#[ignore = "run as a child"]
fn child_bad_pointer() {
    let _pool = pool();
    let bad = std::hint::black_box(std::ptr::without_provenance::<u64>(8));
    // SAFETY: none: the fault is what is tested.
    unsafe { bad.read_volatile() };
}

#[test]
#[ignore = "run as a child"]
fn child_sent_sigbus() {
    // Rust's own handler ignores a sent signal.
    // SAFETY: the default disposition is always valid.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let _pool = pool();
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    unreachable!("SIGBUS was swallowed");
}

#[test]
fn a_sent_signal_is_never_taken_for_a_fault() {
    let status = child("child_sent_address");
    assert!(status.success(), "{status:?}");
}

#[test]
#[ignore = "run as a child"]
fn child_sent_address() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: an async-signal-safe handler.
    unsafe { libc::signal(libc::SIGBUS, count as *const () as usize) };
    let pool = pool();
    // The kernel's layout of siginfo: signo, errno, code, padding, address.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = pool.path.to_str().unwrap();
    let line = maps.lines().find(|line| line.ends_with(name)).unwrap();
    let base = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let mut info = [0u64; 16];
    info[0] = libc::SIGBUS as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[2] = base;
    // SAFETY: 128 bytes of siginfo; sent to this thread alone.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            libc::getpid(),
            libc::gettid(),
            libc::SIGBUS,
            info.as_ptr(),
        )
    };
    assert_eq!(sent, 0);
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    assert_eq!(pool.mem.failed(), None);
    assert_eq!(pool.mem.load(0), 1);
}

#[test]
#[ignore = "run as a child"]
fn child_older_handler() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn mend(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let page = PAGE.load(Ordering::SeqCst);
        // SAFETY: the kernel gives a valid siginfo.
        assert_eq!(unsafe { (*info).si_addr() }.addr(), page);
        // SAFETY: the page was mapped by the test below.
        unsafe {
            libc::mprotect(
                std::ptr::with_exposed_provenance_mut(page),
                4096,
                libc::PROT_READ,
            );
        }
    }
    // SAFETY: a valid sigaction with an async-signal-safe handler; a mapping
    // at an address of the kernel's choice.
    let page = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = mend as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let _pool = pool();
    PAGE.store(page.expose_provenance(), Ordering::SeqCst);
    // SAFETY: the handler makes the page readable.
    let value = unsafe { page.cast::<u64>().read_volatile() };
    assert_eq!((value, CALLS.load(Ordering::SeqCst)), (0, 1));
    // A bad buffer of a copy is handled here, not by the older handler.
    // SAFETY: takes the right to read away again.
    unsafe { libc::mprotect(page, 4096, libc::PROT_NONE) };
    // SAFETY: no reference to valid memory, as a program's bad pointer is not;
    // only the copy routine, which may fault, looks at it.
    let bad = unsafe { std::slice::from_raw_parts(page.cast::<u8>(), 64) };
    let fault = _pool.mem.write_nt(4096, bad).unwrap_err();
    assert_eq!((fault.done, fault.side), (0, Side::User));
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
}
