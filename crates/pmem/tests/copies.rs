//! Goal: every bulk access does to the pool what it would do to a Vec, at any
//! alignment, and touches nothing beside its range.
//! Method: sweep offsets within a line against lengths around every step of the
//! copy routines, on a pool and a model that hold the same pattern.

use pmem::Pmem;
use pmem::counters;

const POOL: usize = 16 << 10;
const LENGTHS: &[usize] = &[
    0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 255, 256, 257,
    320, 511, 575, 1024, 4095, 4096, 4097, 4160, 4352, 5000,
];

struct Pair {
    mem: Pmem,
    model: Vec<u8>,
    next: u8,
}

impl Pair {
    fn new() -> Pair {
        let mem = Pmem::private(POOL as u64);
        let model: Vec<u8> = (0..POOL).map(|i| (i * 7 + i / 256) as u8).collect();
        mem.write_nt(0, &model).unwrap();
        mem.fence();
        Pair {
            mem,
            model,
            next: 0,
        }
    }

    /// Bytes that differ from those of the previous call.
    fn fresh(&mut self, len: usize) -> Vec<u8> {
        self.next = self.next.wrapping_add(41);
        (0..len)
            .map(|i| (i as u8).wrapping_mul(3).wrapping_add(self.next))
            .collect()
    }

    #[track_caller]
    fn check(&self, what: &str, off: usize, len: usize) {
        let mut found = vec![0; POOL];
        self.mem.copy_out(0, &mut found).unwrap();
        if found != self.model {
            let at = (0..POOL).find(|&i| found[i] != self.model[i]).unwrap();
            panic!("{what} of {len} bytes at {off}: byte {at} differs");
        }
    }
}

fn sweep(mut act: impl FnMut(&mut Pair, usize, usize)) {
    let mut pair = Pair::new();
    for start in 0..70 {
        for &len in LENGTHS {
            act(&mut pair, 4096 - 32 + start, len);
        }
    }
}

#[test]
fn write_nt_as_a_vec() {
    sweep(|pair, off, len| {
        let bytes = pair.fresh(len);
        pair.mem.write_nt(off as u64, &bytes).unwrap();
        pair.model[off..off + len].copy_from_slice(&bytes);
        pair.check("write_nt", off, len);
    });
}

#[test]
fn zero_nt_as_a_vec() {
    sweep(|pair, off, len| {
        let bytes = pair.fresh(POOL);
        pair.mem.write_nt(0, &bytes).unwrap();
        pair.model.copy_from_slice(&bytes);
        pair.mem.zero_nt(off as u64, len as u64);
        pair.model[off..off + len].fill(0);
        pair.check("zero_nt", off, len);
    });
}

#[test]
fn write_bytes_as_a_vec() {
    sweep(|pair, off, len| {
        let bytes = pair.fresh(len);
        pair.mem.write_bytes(off as u64, &bytes);
        pair.model[off..off + len].copy_from_slice(&bytes);
        pair.check("write_bytes", off, len);
    });
}

#[test]
fn copy_nt_as_a_vec() {
    for shift in [0, 1, 8, 37] {
        sweep(|pair, to, len| {
            let bytes = pair.fresh(64);
            pair.mem.write_bytes(shift, &bytes);
            let from = shift as usize;
            pair.model[from..from + 64].copy_from_slice(&bytes);
            let len = len.min(4096 - 32 - from);
            pair.mem.copy_nt(to as u64, shift, len as u64).unwrap();
            pair.model.copy_within(from..from + len, to);
            pair.check("copy_nt", to, len);
        });
    }
}

#[test]
fn copy_out_as_a_vec() {
    sweep(|pair, off, len| {
        // Guard bytes show stores beside the buffer.
        for lead in [0, 1, 16] {
            let mut buffer = vec![0xee; len + 128];
            let to = &mut buffer[64 + lead..][..len];
            pair.mem.copy_out(off as u64, to).unwrap();
            assert_eq!(to, &pair.model[off..off + len], "at {off}");
            // Prefetched ranges: shorter, as long, longer.
            for next in [0..0, 64..164, 4096..8192] {
                to.fill(0xdd);
                pair.mem.copy_out_before(off as u64, to, next).unwrap();
                assert_eq!(to, &pair.model[off..off + len], "at {off}");
            }
            assert!(buffer[..64 + lead].iter().all(|&b| b == 0xee), "at {off}");
            assert!(
                buffer[64 + lead + len..].iter().all(|&b| b == 0xee),
                "at {off}"
            );
        }
    });
}

#[test]
fn words_and_pairs() {
    let mem = Pmem::private(4096);
    mem.store(8, 0x0102_0304_0506_0708);
    mem.write(16, &[1, 2, 3]);
    mem.store_pair(48, [4, 5]);
    assert_eq!(mem.load(8), 0x0102_0304_0506_0708);
    assert_eq!(mem.read::<4>(8), [0x0102_0304_0506_0708, 1, 2, 3]);
    assert_eq!(mem.load_pair(48), [4, 5]);
    assert_eq!(mem.cas(48, 4, 6), Ok(4));
    assert_eq!(mem.cas(48, 4, 7), Err(6));
    assert_eq!(mem.swap(56, 8), 5);
    assert_eq!(mem.load_pair(48), [6, 8]);
    let mut first = [0; 1];
    mem.copy_out(8, &mut first).unwrap();
    assert_eq!(first, [8], "little endian");
    assert_eq!(mem.read::<512>(0)[1], 0x0102_0304_0506_0708);
}

#[test]
fn accesses_outside_or_misaligned_panic() {
    let mem = Pmem::private(4096);
    let refused: &[(&str, &dyn Fn())] = &[
        ("load at the end", &|| {
            let _ = mem.load(4096);
        }),
        ("load misaligned", &|| {
            let _ = mem.load(4);
        }),
        ("load far out", &|| {
            let _ = mem.load(u64::MAX - 7);
        }),
        ("store misaligned", &|| mem.store(1, 0)),
        ("pair misaligned", &|| mem.store_pair(8, [0; 2])),
        ("pair at the end", &|| {
            let _ = mem.load_pair(4096);
        }),
        ("read over the end", &|| {
            let _ = mem.read::<2>(4088);
        }),
        ("write over the end", &|| mem.write(4088, &[0; 2])),
        ("write misaligned", &|| mem.write(4, &[0])),
        ("bytes over the end", &|| mem.write_bytes(4095, &[0; 2])),
        ("copy over the end", &|| {
            let _ = mem.copy_out(4095, &mut [0; 2]);
        }),
        ("nt over the end", &|| {
            let _ = mem.write_nt(4095, &[0; 2]);
        }),
        ("zero over the end", &|| mem.zero_nt(u64::MAX, 2)),
        ("copy_nt source out", &|| {
            let _ = mem.copy_nt(0, 4000, 128);
        }),
        ("copy_nt target out", &|| {
            let _ = mem.copy_nt(4000, 0, 128);
        }),
        ("flush out", &|| mem.flush(4096, 1)),
        ("flush longer than the pool", &|| mem.flush(8, 8192)),
        ("bytes longer than the pool", &|| {
            mem.write_bytes(8, &[0; 5000])
        }),
        ("words longer than the pool", &|| mem.write(8, &[0; 513])),
        ("cas out", &|| {
            let _ = mem.cas(4096, 0, 0);
        }),
        ("swap misaligned", &|| {
            let _ = mem.swap(2, 0);
        }),
        ("prefetch out", &|| mem.prefetch(4096)),
        ("copy before a range out", &|| {
            let _ = mem.copy_out_before(0, &mut [0; 64], 4032..4097);
        }),
    ];
    for (what, act) in refused {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        assert!(outcome.is_err(), "{what} was let through");
    }
    // The last offset of each kind is accepted.
    mem.store(4088, 1);
    mem.store_pair(4080, [1, 2]);
    mem.write(4080, &[3, 4]);
    mem.write_bytes(4095, &[1]);
    mem.flush(4095, 1);
    mem.flush(4096, 0);
    mem.zero_nt(4096, 0);
    assert_eq!(mem.load(4080), 3);
    // A load at any offset returns nothing where there is no word.
    let there = [4080, 4081, 4096, u64::MAX - 7].map(|off| mem.load_if_there(off));
    assert_eq!(there, [3, 0, 0, 0]);
}

#[test]
fn counters_count_what_was_asked_for() {
    let mem = Pmem::private(1 << 20);
    let before = counters::snapshot();
    mem.store(0, 1);
    mem.store_pair(16, [1, 2]);
    mem.write(64, &[0; 4]);
    mem.write_bytes(129, &[0; 16]);
    mem.write_nt(4096, &[0; 4096]).unwrap();
    mem.zero_nt(8192, 128);
    mem.flush(63, 2);
    mem.flush(128, 64);
    mem.fence();
    counters::add_logged(48);
    let used = counters::snapshot() - before;
    assert_eq!(
        used,
        counters::Counters {
            nt_bytes: 4096 + 128,
            lines_flushed: 2 + 1,
            fences: 1,
            logged_bytes: 48,
            windows: 0,
        }
    );
    let other = std::thread::spawn(counters::snapshot).join().unwrap();
    assert_eq!(
        other,
        counters::Counters::default(),
        "counters are a thread's"
    );
}

#[test]
fn futex_wakes_and_times_out() {
    use std::time::{Duration, Instant};
    let mem = Pmem::private(4096);
    // With another value the call returns at once; the high half does not matter.
    let start = Instant::now();
    mem.store(64, 5 << 32 | 1);
    mem.futex_wait(64, 2, Duration::from_secs(20));
    assert!(start.elapsed() < Duration::from_secs(10));
    // With the same value it returns when the time is over.
    let start = Instant::now();
    mem.futex_wait(64, 1, Duration::from_millis(30));
    assert!(start.elapsed() >= Duration::from_millis(25));
    // The waiter returns when woken.
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while mem.load(64) & 0xffff_ffff == 1 {
                mem.futex_wait(64, 1, Duration::from_secs(60));
            }
        });
        std::thread::sleep(Duration::from_millis(30));
        mem.store(64, 0);
        mem.futex_wake(64, 1);
    });
    assert!(start.elapsed() < Duration::from_secs(30));
}
