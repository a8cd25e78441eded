//! Goal: a closed pool can be stored to only inside a write window: not from another thread, a
//! handler, a child, or by way of the kernel; each refusal is reported. Method: stores that may be
//! refused have a landing behind their instruction; the same tests run with each protection.
//! Without one the stores succeed, which shows that they happen. Children make stray stores that
//! kill them.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use pmem::{Fault, MapOptions, Pmem, ProtectMode, Protection, Side, counters, life, program};

const LEN: u64 = 4 << 20;

struct Pool {
    mem: Pmem,
    /// The address of the mapping.
    base: usize,
}

/// The file has no name any more, so that a killed child leaves nothing.
fn pool(protect: ProtectMode) -> Pool {
    pool_in(tempfile::tempdir().unwrap().path(), protect)
}

fn pool_in(dir: &Path, protect: ProtectMode) -> Pool {
    let path = dir.join("pool");
    let options = MapOptions {
        protect,
        ..MapOptions::default()
    };
    let mem = Pmem::create(&path, LEN, false, true, &options).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = path.to_str().unwrap();
    let line = maps.lines().find(|line| line.ends_with(name)).unwrap();
    let base = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    Pool { mem, base }
}

/// Returns whether a store by the program, outside of the crate, reaches the pool.
fn stores(base: usize, off: usize) -> bool {
    // SAFETY: nothing but a pool lies there, whose accesses are atomic or assembly.
    unsafe { program::copy_out(base + off, &[0xa5; 8]) }.is_ok()
}

fn loads(base: usize, off: usize) -> bool {
    program::copy_in(&mut [0; 8], base + off).is_ok()
}

/// Goal: this thread's stores succeed only in windows, which nest.
fn windows_open_and_close(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    assert_eq!(stores(pool.base, 0), open);
    assert_eq!(pool.mem.load(0) != 0, open);
    let before = counters::snapshot();
    let whole = pool.mem.writable();
    {
        let inner = pool.mem.window();
        pool.mem.store(8, 1);
        drop(inner);
    }
    pool.mem.store(16, 2);
    pool.mem.zero_nt(4096, 4096);
    assert!(stores(pool.base, 8192));
    drop(whole);
    let windows = (counters::snapshot() - before).windows;
    assert_eq!(windows, u64::from(!open), "the outermost alone");
    for off in (0..LEN as usize).step_by(4096) {
        assert_eq!(stores(pool.base, off), open, "{off:#x}");
    }
    assert!(loads(pool.base, 8));
    assert_eq!(pool.mem.load(8), 1);
}

/// Goal: calls in a burst share one window, after which the pool is closed, also after a panic.
fn a_burst_is_one_window(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    let before = counters::snapshot();
    let burst = pool.mem.burst();
    for call in 0..5 {
        let _window = pool.mem.window();
        pool.mem.store(call * 8, call + 1);
    }
    let inner = pool.mem.burst();
    drop(inner);
    pool.mem.store(64, 9);
    assert!(stores(pool.base, 8192), "the program's stores arrive too");
    drop(burst);
    let windows = (counters::snapshot() - before).windows;
    assert_eq!(windows, u64::from(!open));
    assert_eq!((stores(pool.base, 0), pool.mem.load(32)), (open, 5));
    let broken = std::panic::AssertUnwindSafe(|| {
        let _burst = pool.mem.burst();
        drop(pool.mem.window());
        pool.mem.store(LEN, 0);
    });
    assert!(std::panic::catch_unwind(broken).is_err());
    assert_eq!(stores(pool.base, 0), open);
}

/// Goal: the part by which a pool has grown is closed like the rest, also while a thread is in a
/// window. That thread may use all of it.
fn what_it_grows_by_is_closed(protect: ProtectMode) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = MapOptions {
        protect,
        reserve: 4 * LEN,
        ..MapOptions::default()
    };
    let path = dir.path().join("pool");
    let mem = Pmem::create(&path, LEN, false, true, &options).unwrap();
    let base = mem.addresses().start as usize;
    let open = mem.protection() == Protection::None;
    // The file is sparse: space is given in a window, whose end closes all.
    mem.lengthen(2 * LEN, true).unwrap();
    for off in (0..2 * LEN as usize).step_by(4096) {
        assert_eq!(stores(base, off), open, "{off:#x}");
        assert!(loads(base, off), "{off:#x}");
    }
    assert!(!loads(base, 2 * LEN as usize), "nothing behind it");
    let window = mem.window();
    mem.store(2 * LEN - 8, 1);
    std::thread::scope(|scope| {
        let grow = scope.spawn(|| mem.lengthen(3 * LEN, false));
        grow.join().unwrap().unwrap();
    });
    mem.store(0, 2);
    mem.store(3 * LEN - 8, 3);
    mem.write_nt(3 * LEN - 4096, &[7; 64]).unwrap();
    drop(window);
    assert_eq!(stores(base, 3 * LEN as usize - 4096), open);
    assert_eq!(stores(base, 0), open);
    assert_eq!((mem.load(3 * LEN - 8), mem.failed()), (3, None));
}

/// Goal: a panic in a window closes it.
fn a_window_ends_with_a_panic(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    let broken = std::panic::AssertUnwindSafe(|| {
        let _window = pool.mem.window();
        pool.mem.store(LEN, 0);
    });
    assert!(std::panic::catch_unwind(broken).is_err());
    assert_eq!(stores(pool.base, 0), open);
}

/// Goal: no thread can store, older or younger than the pool. With keys, an older thread that has
/// not entered can't load either.
fn no_thread_stores(protect: ProtectMode) {
    let (tell, told) = mpsc::channel::<usize>();
    let (enter, entered) = mpsc::channel::<&'static Pmem>();
    let (answer, answers) = mpsc::channel::<(bool, bool)>();
    let older = std::thread::spawn(move || {
        let base = told.recv().unwrap();
        let seen = (loads(base, 0), stores(base, 0));
        answer.send(seen).unwrap();
        entered.recv().unwrap().enter();
        answer.send((loads(base, 0), stores(base, 0))).unwrap();
    });
    let pool: &'static Pool = Box::leak(Box::new(pool(protect)));
    let open = pool.mem.protection() == Protection::None;
    let keys = pool.mem.protection() == Protection::Keys;
    tell.send(pool.base).unwrap();
    assert_eq!(answers.recv().unwrap(), (!keys, open), "an older thread");
    enter.send(&pool.mem).unwrap();
    assert_eq!(answers.recv().unwrap(), (true, open), "after it entered");
    older.join().unwrap();
    let base = pool.base;
    let younger = std::thread::spawn(move || {
        let before = (loads(base, 0), stores(base, 0));
        pool.mem.enter();
        let _window = pool.mem.window();
        pool.mem.store(64, 7);
        before
    });
    assert_eq!(younger.join().unwrap(), (true, open), "a younger thread");
    assert_eq!(pool.mem.load(64), 7);
}

/// Goal: a thread that has left its window can't store while another is still in one, and does not
/// close that one. (A thread made in a window inherits its maker's rights; the engine makes none
/// there that outlives the window.)
fn a_window_is_its_threads_own(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    let (opened, is_open) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (mem, base) = (&pool.mem, pool.base);
        let stray = scope.spawn(move || {
            is_open.recv().unwrap();
            mem.enter();
            drop(mem.window());
            stores(base, 0)
        });
        let _window = pool.mem.window();
        opened.send(()).unwrap();
        assert_eq!(stray.join().unwrap(), open);
        pool.mem.store(0, 1);
    });
    assert_eq!(pool.mem.load(0), 1);
}

static BASE: AtomicUsize = AtomicUsize::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    let base = BASE.load(Ordering::SeqCst);
    let seen = u64::from(loads(base, 0)) | u64::from(stores(base, 0)) << 1;
    SEEN.store(seen, Ordering::SeqCst);
}

/// Goal: a handler that interrupts a window has no right to the pool, by keys; the window continues
/// behind it.
fn a_handler_is_outside(protect: ProtectMode) {
    // Handlers belong to the whole process, so this test has a child of its own.
    let status = life::in_child(|| {
        let pool = pool(protect);
        BASE.store(pool.base, Ordering::SeqCst);
        // SAFETY: the handler stores to a pool and to atomic words.
        unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as usize) };
        let window = pool.mem.window();
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGUSR1) };
        let inside = SEEN.load(Ordering::SeqCst);
        pool.mem.store(0, 1);
        drop(window);
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGUSR1) };
        let outside = SEEN.load(Ordering::SeqCst);
        let wanted = match pool.mem.protection() {
            Protection::None => (3, 3),
            // One window opens the pages for all.
            Protection::Pages => (3, 1),
            Protection::Keys => (0, 0),
        };
        u8::from((inside, outside) != wanted || !loads(pool.base, 0))
    });
    assert_eq!(status, 0);
}

static MEM: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal_store(_: libc::c_int) {
    // SAFETY: the test's pool lives until its process ends.
    let mem = unsafe { &*std::ptr::with_exposed_provenance::<Pmem>(MEM.load(Ordering::SeqCst)) };
    mem.enter();
    let _outer = mem.window();
    let _inner = mem.window();
    mem.store(256, mem.load(256) + 1);
}

/// Goal: a handler that interrupts a window and calls the engine has windows of its own, and leaves
/// the interrupted one unchanged. Method: it runs twice in a window, with an inner window between;
/// then the pool is closed.
fn a_handler_has_its_own_windows(protect: ProtectMode) {
    let status = life::in_child(|| {
        let pool: &'static Pool = Box::leak(Box::new(pool(protect)));
        let at: *const Pmem = &pool.mem;
        MEM.store(at.expose_provenance(), Ordering::SeqCst);
        // SAFETY: the handler stores to the pool, and takes no lock.
        unsafe { libc::signal(libc::SIGUSR1, on_signal_store as *const () as usize) };
        let window = pool.mem.window();
        for round in 1..=2 {
            // SAFETY: sends a signal to this thread.
            unsafe { libc::raise(libc::SIGUSR1) };
            pool.mem.store(128, round);
            drop(pool.mem.window());
            pool.mem.store(128, round);
        }
        drop(window);
        let open = pool.mem.protection() == Protection::None;
        let seen = (pool.mem.load(128), pool.mem.load(256));
        u8::from(seen != (2, 2) || stores(pool.base, 0) != open)
    });
    assert_eq!(status, 0);
}

/// Goal: the kernel does not store to the pool for the program either.
fn system_calls_get_efault(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let read = || {
        let to = std::ptr::with_exposed_provenance_mut(pool.base + 4096);
        // SAFETY: the kernel stores to the pool, or refuses.
        let read = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&zeros), to, 4096) };
        (read == 4096)
            .then_some(())
            .ok_or_else(|| std::io::Error::last_os_error().raw_os_error())
    };
    let refused = Err(Some(libc::EFAULT));
    assert_eq!(read(), if open { Ok(()) } else { refused });
    let window = pool.mem.window();
    assert_eq!(read(), Ok(()));
    drop(window);
    assert_eq!(read(), if open { Ok(()) } else { refused });
}

/// Goal: a copy out to a buffer inside the pool is the program's bad address.
fn a_copy_out_into_the_pool_is_a_bad_address(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    for off in [0, 4096, 4096 + 64, 1 << 20] {
        let to = std::ptr::with_exposed_provenance_mut(pool.base + 4096);
        // SAFETY: none but the copy routine looks at it, as at a program's bad pointer.
        let to = unsafe { std::slice::from_raw_parts_mut(to, 1000) };
        let fault = Fault {
            offset: off,
            done: 0,
            side: Side::User,
        };
        let copied = pool.mem.copy_out(off, to);
        assert_eq!(copied, if open { Ok(()) } else { Err(fault) }, "{off:#x}");
    }
}

/// Goal: a forked child has the pool closed, opens and closes it by itself, and changes no window
/// of its parent.
fn a_child_is_closed(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    let window = pool.mem.window();
    let (parked, go_on) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    std::thread::scope(|scope| {
        // The fork happens while another thread is in a window.
        let mem = &pool.mem;
        scope.spawn(move || {
            mem.enter();
            let _other = mem.window();
            parked.0.send(()).unwrap();
            go_on.1.recv().unwrap();
        });
        parked.1.recv().unwrap();
        drop(window);
        let status = life::in_child(|| {
            // The child's first window closes those of threads that it does not have.
            drop(pool.mem.window());
            let before = stores(pool.base, 0);
            let window = pool.mem.window();
            pool.mem.store(128, 3);
            drop(window);
            u8::from((before, stores(pool.base, 0)) != (open, open))
        });
        assert_eq!(status, 0);
        go_on.0.send(()).unwrap();
    });
    assert_eq!(pool.mem.load(128), 3);
    assert_eq!(stores(pool.base, 0), open);
}

/// Goal: threads that open and close windows all the time never find them closed, and at the end
/// the pool is closed.
fn many_threads_at_once(protect: ProtectMode) {
    let pool = pool(protect);
    let open = pool.mem.protection() == Protection::None;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let mem = &pool.mem;
            scope.spawn(move || {
                mem.enter();
                for round in 0..2000 {
                    let _window = mem.window();
                    mem.store(thread * 64, round);
                }
            });
        }
    });
    for thread in 0..4 {
        assert_eq!(pool.mem.load(thread * 64), 1999);
    }
    assert_eq!(stores(pool.base, 0), open);
}

/// Goal: a stray store ends the process, with a message.
fn a_stray_store_kills_and_says_so(protect: ProtectMode) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_stray_store", "--ignored"])
        .args(["--test-threads=1", "-q", "--nocapture"])
        .env("PMEM_TEST_PROTECT", protect.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    if protect == ProtectMode::None {
        assert!(child.status.success() && !said.contains("stray"), "{said}");
        return;
    }
    assert_eq!(child.status.signal(), Some(libc::SIGSEGV), "{said}");
    for part in [
        "pmfs: process ",
        "a stray store to offset 0x12348 of a pool",
        "the pool is unharmed\n",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
#[ignore = "run as a child"]
fn child_stray_store() {
    let protect = std::env::var("PMEM_TEST_PROTECT").unwrap();
    let pool = pool(protect.parse().unwrap());
    let at = std::ptr::with_exposed_provenance_mut::<u64>(pool.base + 0x12348);
    // SAFETY: where the pool is not closed, an aligned word of it; else the fault is what is
    // tested.
    unsafe { at.write_volatile(1) };
}

macro_rules! for_each_protection {
    ($($test:ident),* $(,)?) => {
        for_each_protection!(none None $($test)*);
        for_each_protection!(pages Pages $($test)*);
        for_each_protection!(keys Keys $($test)*);
    };
    ($protection:ident $mode:ident $($test:ident)*) => {
        mod $protection {
            $(
                #[test]
                fn $test() {
                    if super::ProtectMode::$mode == super::ProtectMode::Keys
                        && let Err(error) = pmem::protection::keys()
                    {
                        println!("skipped: {error}");
                        return;
                    }
                    super::$test(super::ProtectMode::$mode);
                }
            )*
        }
    };
}

for_each_protection!(
    windows_open_and_close,
    a_burst_is_one_window,
    what_it_grows_by_is_closed,
    a_window_ends_with_a_panic,
    no_thread_stores,
    a_window_is_its_threads_own,
    a_handler_is_outside,
    a_handler_has_its_own_windows,
    system_calls_get_efault,
    a_copy_out_into_the_pool_is_a_bad_address,
    a_child_is_closed,
    many_threads_at_once,
    a_stray_store_kills_and_says_so,
);

/// Goal: a requested protection that is not available is an error that says so; `auto` takes what
/// there is.
#[test]
fn auto_takes_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool_in(dir.path(), ProtectMode::Auto);
    let there = pmem::protection::keys().is_ok();
    let wanted = if there {
        Protection::Keys
    } else {
        Protection::None
    };
    assert_eq!(pool.mem.protection(), wanted);
    if !there {
        let path = pool.mem.path().unwrap();
        let options = MapOptions {
            protect: ProtectMode::Keys,
            ..MapOptions::default()
        };
        let refused = Pmem::open(path, &options).unwrap_err().to_string();
        assert!(refused.contains("can't be protected as asked"), "{refused}");
    }
}
