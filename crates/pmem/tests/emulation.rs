//! Goal: an emulated medium charges the right accesses to the right thread. Method: counts. Delays
//! are tested for their least length alone, because a busy machine lengthens all of them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pmem::{Charged, Emulation, MapOptions, MediumWords, Pmem, ProtectMode};

const KIB: u64 = 1024;

/// Options without protection: stores need no window here.
fn unprotected() -> MapOptions {
    MapOptions {
        protect: ProtectMode::None,
        ..MapOptions::default()
    }
}

fn of(text: &str) -> Emulation {
    text.parse().expect(text)
}

/// An emulation of every property, with negligible delays.
fn counted() -> Pmem {
    Pmem::private(256 * KIB).emulating(of("read=1ns,barrier=1ns,write-bandwidth=1T"))
}

/// The charges for a piece of work.
fn charge(mem: &Pmem, work: impl FnOnce(&Pmem)) -> Charged {
    // The line read last is not charged again, so this reads a line that no test uses.
    mem.load(128 * KIB);
    let before = mem.charged();
    work(mem);
    let after = mem.charged();
    Charged {
        lines_read: after.lines_read - before.lines_read,
        barriers: after.barriers - before.barriers,
        lines_written: after.lines_written - before.lines_written,
        late: 0,
    }
}

fn reads(work: impl FnOnce(&Pmem)) -> u64 {
    let charged = charge(&counted(), work);
    assert_eq!((charged.barriers, charged.lines_written), (0, 0));
    charged.lines_read
}

fn writes(work: impl FnOnce(&Pmem)) -> u64 {
    let charged = charge(&counted(), work);
    assert_eq!((charged.barriers, charged.lines_read), (0, 0));
    charged.lines_written
}

#[test]
fn each_line_that_is_read_is_charged() {
    let copy = |off, len| reads(|mem| mem.copy_out(off, &mut vec![0; len]).expect("memory"));
    assert_eq!(copy(0, 0), 0);
    assert_eq!(copy(0, 1), 1);
    assert_eq!(copy(63, 1), 1);
    assert_eq!(copy(63, 2), 2);
    assert_eq!(copy(1, 64), 2);
    assert_eq!(copy(0, 4096), 64);
    assert_eq!(copy(4000, 100), 3);
    assert_eq!(reads(|mem| _ = mem.load(8)), 1);
    assert_eq!(reads(|mem| _ = mem.load_pair(16)), 1);
    assert_eq!(reads(|mem| _ = mem.read::<8>(64)), 1);
    assert_eq!(reads(|mem| _ = mem.read::<8>(56)), 2);
    assert_eq!(reads(|mem| _ = mem.read::<17>(0)), 3);
    assert_eq!(reads(|mem| _ = mem.load_cached(8)), 0);
}

/// Goal: the line that a thread read last is in its cache and free; an earlier line may be gone,
/// and is charged.
#[test]
fn words_of_one_line_are_charged_once() {
    let one_line = |mem: &Pmem| {
        for word in 0..8 {
            mem.load(word * 8);
        }
    };
    assert_eq!(reads(one_line), 1);
    assert_eq!(
        reads(|mem| {
            one_line(mem);
            mem.read::<16>(0);
        }),
        2,
        "the second line of the two is new"
    );
    assert_eq!(
        reads(|mem| [0, 64, 0, 64]
            .map(|off| mem.load(off))
            .iter()
            .for_each(drop)),
        4
    );
    // Another thread does not have the line.
    let mem = counted();
    mem.load(0);
    let before = mem.charged().lines_read;
    std::thread::scope(|scope| drop(scope.spawn(|| mem.load(0))));
    assert_eq!(mem.charged().lines_read, before + 1);
}

#[test]
fn each_line_that_is_written_is_charged() {
    assert_eq!(writes(|mem| mem.store(0, 1)), 0, "it is in the cache");
    assert_eq!(writes(|mem| mem.flush(0, 1)), 1);
    assert_eq!(writes(|mem| mem.flush(60, 8)), 2);
    assert_eq!(writes(|mem| mem.flush(0, 0)), 0);
    assert_eq!(writes(|mem| mem.zero_nt(0, 4096)), 64);
    assert_eq!(writes(|mem| mem.zero_nt(10, 4096)), 65);
    let write = |off, len| writes(|mem| mem.write_nt(off, &vec![1; len]).expect("memory"));
    assert_eq!(write(0, 64), 1);
    assert_eq!(write(0, 4096), 64);
    assert_eq!(write(32, 64), 2, "two ends, each of one line");
    assert_eq!(write(32, 4096), 65);
    let copied = charge(&counted(), |mem| mem.copy_nt(0, 8192, 640).expect("memory"));
    assert_eq!((copied.lines_read, copied.lines_written), (10, 10));
}

#[test]
fn barriers_are_charged() {
    let charged = charge(&counted(), |mem| (0..7).for_each(|_| mem.fence()));
    assert_eq!(
        charged,
        Charged {
            barriers: 7,
            ..Charged::default()
        }
    );
}

#[test]
fn another_pool_of_the_process_is_as_fast_as_ever() {
    let slow = Pmem::private(64 * KIB).emulating(of("read=1000us,barrier=1000us"));
    let other = Pmem::private(64 * KIB);
    other.load(0);
    other.fence();
    other.zero_nt(0, 4096);
    assert_eq!((other.charged(), slow.charged()), Default::default());
    assert!(other.emulation().is_off() && slow.emulation().read_ns == 1_000_000);
    let off = Pmem::private(64 * KIB).emulating(of("dram"));
    off.fence();
    assert_eq!(off.charged(), Charged::default());
}

/// Goal: all delays together last at least as long as asked for.
#[test]
fn delays_add_up() {
    let mem = Pmem::private(256 * KIB).emulating(of("read=20us,barrier=30us,write-bandwidth=1M"));
    let took = |work: &dyn Fn()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let lines = took(&|| (0..100).for_each(|line| _ = mem.load(line * 64)));
    assert!(lines >= Duration::from_micros(1990), "{lines:?}");
    let block = took(&|| mem.copy_out(0, &mut [0; 4096]).expect("memory"));
    assert!(block >= Duration::from_micros(1270), "{block:?}");
    let barriers = took(&|| (0..100).for_each(|_| mem.fence()));
    assert!(barriers >= Duration::from_micros(2990), "{barriers:?}");
    // The time of 4 KiB at 1 MB/s, less that of the queue.
    let written = took(&|| mem.zero_nt(0, 4096));
    assert!(written >= Duration::from_micros(4094), "{written:?}");
}

/// Goal: two mappings of a file share its bandwidth through a word in it, as two processes do.
#[test]
fn bandwidth_is_shared_by_a_word() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pool");
    let options = MapOptions {
        emulate: of("write-bandwidth=10M"),
        ..unprotected()
    };
    let first = Pmem::create(&path, 256 * KIB, false, true, &options).expect("a pool");
    let second = Pmem::open(&path, &options).expect("the same");
    for mem in [&first, &second] {
        mem.share_bandwidth(Some(&MediumWords {
            busy: 0,
            more: None,
        }));
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (mem, at) in [(&first, 64 * KIB), (&second, 128 * KIB)] {
            scope.spawn(move || (0..10).for_each(|_| mem.zero_nt(at, 4096)));
        }
    });
    // The time of 80 KiB at 10 MB/s.
    let both = start.elapsed();
    assert!(both >= Duration::from_micros(8190), "{both:?}");
    assert!(first.load(0) > 0);
    // A process that no longer shares the bandwidth does not wait for others.
    let busy = first.load(0);
    second.share_bandwidth(None);
    second.zero_nt(4096, 64);
    assert_eq!(first.load(0), busy);
    // A time left over from before a reboot delays nobody.
    first.store(0, u64::MAX / 2);
    first.zero_nt(4096, 64);
    assert!(first.load(0) < u64::MAX / 2);
}

/// Goal: a device charges what figures charge, access by access, and each takes its time at least.
/// Method: a device that is far slower than any machine under this test could be, by its budget and
/// by accesses that wait for the media.
#[test]
fn a_device_takes_its_time() {
    let mem = Pmem::private(64 << 20).emulating(of("device:optane-100,dimms=1"));
    let took = |work: &dyn Fn()| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64
    };
    // 310 ns, and 67 more for the pages beyond 16 MiB.
    let words = took(&|| (0..1000).for_each(|step| _ = mem.load(step * 7919 * 64 % (64 << 20))));
    assert!(words >= 355.0 * 1000.0, "{words} ns");
    // 2.28 GiB/s, but for the queue's 8 KiB.
    let written = took(&|| (0..256).for_each(|block| mem.zero_nt(block * 4096, 4096)));
    assert!(written >= 256.0 * 4096.0 / 2.45 - 10_000.0, "{written} ns");
    // A part of a line, and then as many lines are pushed out: 0.57 GiB/s.
    let parts = took(&|| (0..2000).for_each(|step| mem.flush(step * 8191 * 64 % (64 << 20), 64)));
    assert!(parts >= 1500.0 * 104.0, "{parts} ns");
    // Store, flush and fence: 94 ns.
    let durable = took(&|| {
        for _ in 0..1000 {
            mem.flush(4096, 64);
            mem.fence();
        }
    });
    assert!(durable >= 90.0 * 1000.0, "{durable} ns");
    // 3 GiB/s of one thread.
    let read =
        took(&|| (0..256).for_each(|at| mem.copy_out(at * 4096, &mut [0; 4096]).expect("memory")));
    assert!(read >= 256.0 * 4096.0 / 3.3, "{read} ns");
    let charged = mem.charged();
    assert_eq!(charged.lines_read, 1000 + 256 * 64);
    assert_eq!(charged.lines_written, 256 * 64 + 2000 + 1000);
    assert_eq!(charged.barriers, 1000);
}

/// Goal: the machine's own slowness is told. Method: accesses that a device ends before anybody
/// could ask for the next one, and accesses that take it long.
#[test]
fn what_is_too_fast_is_late() {
    let mem = Pmem::private(64 << 20).emulating(of("device:dram,dimms=16"));
    (0..1000).for_each(|_| mem.copy_out(0, &mut [0; 1]).expect("memory"));
    let late = mem.charged().late;
    assert!(late > 500, "{late} of 1000");
    let slow = Pmem::private(64 << 20).emulating(of("device:optane-100"));
    (0..1000).for_each(|step| _ = slow.load(step * 8192));
    let late = slow.charged().late;
    assert!(late < 500, "{late} of 1000");
}

/// Goal: two mappings of a file share the modules, as two processes do, and one that no longer
/// shares waits for nobody.
#[test]
fn modules_are_shared_by_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pool");
    let options = MapOptions {
        emulate: of("device:optane-100,dimms=2"),
        ..unprotected()
    };
    let first = Pmem::create(&path, 2 << 20, false, true, &options).expect("a pool");
    let second = Pmem::open(&path, &options).expect("the same");
    let words = MediumWords {
        busy: 0,
        more: Some(std::array::from_fn(|word| 8 + 8 * word as u64)),
    };
    for mem in [&first, &second] {
        mem.share_bandwidth(Some(&words));
    }
    // A megabyte of each, by modules that write 4.9 bytes a ns together.
    let start = Instant::now();
    std::thread::scope(|scope| {
        for mem in [&first, &second] {
            scope.spawn(move || (0..256).for_each(|at| mem.zero_nt(65_536 + at * 4096, 4096)));
        }
    });
    let both = start.elapsed().as_nanos() as f64;
    assert!(both >= 2.0 * 1_048_576.0 / 4.9 - 20_000.0, "{both} ns");
    let busy = || [0, 8, 128].map(|word| first.load_cached(word));
    let told = busy();
    assert!(told.iter().all(|word| *word > 0), "{told:?}");
    assert_eq!(first.load_cached(16), 0, "there is no third module");
    second.share_bandwidth(None);
    second.zero_nt(1 << 20, 65_536);
    assert_eq!(busy(), told);
    // Words that make no sense delay nobody for long.
    (0..17).for_each(|word| first.store(word * 8, u64::MAX));
    first.zero_nt(1 << 20, 65_536);
    first.load(1 << 20);
}

/// The pool of the child process, in its environment.
const POOL: &str = "PMEM_TEST_POOL";

/// The modules' words.
fn module_words() -> MediumWords {
    MediumWords {
        busy: 0,
        more: Some(std::array::from_fn(|word| 8 + 8 * word as u64)),
    }
}

fn on_a_module(path: &Path, is_new: bool) -> Pmem {
    let options = MapOptions {
        emulate: of("device:optane-100,dimms=1,power=8W"),
        ..unprotected()
    };
    let mem = match is_new {
        true => Pmem::create(path, 2 << 20, false, true, &options),
        false => Pmem::open(path, &options),
    };
    let mem = mem.expect("a pool");
    mem.share_bandwidth(Some(&module_words()));
    mem
}

/// The word in which the child counts its bytes.
const COUNT: u64 = 1 << 20;

/// Goal: two processes have a module's bandwidth together, not each of them. Method: this test runs
/// itself as a child; both write at once, and the child counts its bytes in the pool. However busy
/// the machine is, the bytes of each two milliseconds fit into these: a module with 8 W writes 0.66
/// bytes a ns, and its queue lets a window have some more. Two of them would write 1.4.
#[test]
fn two_processes_share_a_module() {
    const TIME: Duration = Duration::from_millis(600);
    const WINDOW: Duration = Duration::from_millis(2);
    let write = |mem: &Pmem, step: u64| mem.zero_nt((16 + step % 32) * 4096, 4096);
    let begun = Instant::now();
    if let Some(path) = std::env::var_os(POOL) {
        let mem = on_a_module(Path::new(&path), false);
        let mut step = 0;
        while begun.elapsed() < 4 * TIME {
            write(&mem, step);
            step += 1;
            mem.store(COUNT, step * 4096);
        }
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pool");
    let mem = on_a_module(&path, true);
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "two_processes_share_a_module"])
        .env(POOL, &path)
        .stdout(Stdio::null())
        .spawn()
        .expect("a child");
    while mem.load_cached(COUNT) == 0 && begun.elapsed() < 100 * TIME {
        std::thread::yield_now();
    }
    let (mut step, mut most) = (0, 0.0_f64);
    let mut before = (Instant::now(), mem.load_cached(COUNT));
    let begun = before.0;
    while begun.elapsed() < TIME {
        write(&mem, step);
        step += 1;
        // Times around the counts: a pause between both makes a window longer, never shorter.
        let now = Instant::now();
        if now - before.0 >= WINDOW {
            let all = mem.load_cached(COUNT) + step * 4096;
            let passed = before.0.elapsed().as_nanos() as f64;
            most = most.max((all - before.1) as f64 / passed);
            before = (now, all);
        }
    }
    let other = mem.load_cached(COUNT);
    child.kill().expect("a child");
    child.wait().expect("a child");
    println!("{most:.3} bytes a ns, {other} of the child");
    assert!(step > 0 && other > 0);
    assert!(most <= 0.75, "{most} bytes a ns");
}
