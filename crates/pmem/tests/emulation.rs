//! Goal: an emulated medium charges the right accesses to the right thread. Method: counts. Delays
//! are tested for their least length alone, because a busy machine lengthens all of them.

use std::time::{Duration, Instant};

use pmem::{Charged, Emulation, MapOptions, Pmem, ProtectMode};

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
        mem.share_bandwidth(Some(0));
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
