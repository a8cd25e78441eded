//! Goal: an observer sees every access, in order and before it is done, and decides whether it is
//! done.
#![cfg(feature = "record")]

use std::panic::Location;
use std::sync::{Arc, Mutex};

use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};

#[derive(Debug, Clone, PartialEq)]
enum Event {
    Load(u64, u64),
    Store(u64, Vec<u8>, StoreKind),
    Flush(u64),
    Fence,
    Window(bool),
}
use Event::{Fence, Flush, Load, Store, Window};

#[derive(Default)]
struct Log {
    events: Mutex<Vec<Event>>,
    lines: Mutex<Vec<u32>>,
    skip: bool,
    poke: Option<(u64, u64)>,
}

impl Log {
    fn push(&self, event: Event, at: &'static Location<'static>) {
        assert!(at.file().ends_with("tests/record.rs"), "{at}");
        self.events.lock().unwrap().push(event);
        self.lines.lock().unwrap().push(at.line());
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

impl Observer for Log {
    fn load(&self, mem: &Pmem, off: u64, len: u64) {
        self.events.lock().unwrap().push(Load(off, len));
        if let Some((at, value)) = self.poke {
            mem.poke(at, &value.to_le_bytes());
        }
    }

    fn store(
        &self,
        mem: &Pmem,
        off: u64,
        bytes: &[u8],
        kind: StoreKind,
        at: &'static Location<'static>,
    ) -> Verdict {
        let mut now = vec![0; bytes.len()];
        mem.peek(off, &mut now);
        assert_ne!(now, bytes, "shown after it was done");
        self.push(Store(off, bytes.to_vec(), kind), at);
        if self.skip {
            Verdict::Skip
        } else {
            Verdict::Do
        }
    }

    fn flush(&self, _: &Pmem, line: u64, _: (u64, u64), at: &'static Location<'static>) {
        self.push(Flush(line), at);
    }

    fn fence(&self, _: &Pmem, at: &'static Location<'static>) {
        self.push(Fence, at);
    }

    fn window(&self, _: &Pmem, open: bool, _: &'static Location<'static>) {
        self.events.lock().unwrap().push(Window(open));
    }
}

fn observed(log: Log) -> (Pmem, Arc<Log>) {
    let log = Arc::new(log);
    let mut mem = Pmem::private(64 << 10);
    mem.observe(Some(log.clone()));
    (mem, log)
}

fn cached(off: u64, bytes: &[u8]) -> Event {
    Store(off, bytes.to_vec(), StoreKind::Cached)
}

fn atomic(off: u64, words: &[u64]) -> Event {
    let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    Store(off, bytes, StoreKind::Atomic)
}

#[test]
fn words_in_order_with_their_place() {
    let (mem, log) = observed(Log::default());
    {
        let _window = mem.window();
        mem.store(8, 1);
        mem.write(16, &[2, 3]);
        mem.store_pair(32, [4, 5]);
        mem.flush(60, 8);
        mem.fence();
    }
    let first = line!() - 6;
    assert_eq!(
        log.take(),
        [
            Window(true),
            cached(8, &1u64.to_le_bytes()),
            cached(16, &2u64.to_le_bytes()),
            cached(24, &3u64.to_le_bytes()),
            atomic(32, &[4, 5]),
            Flush(0),
            Flush(64),
            Fence,
            Window(false),
        ]
    );
    let lines: Vec<u32> = log
        .lines
        .lock()
        .unwrap()
        .iter()
        .map(|l| l - first)
        .collect();
    assert_eq!(lines, [0, 1, 1, 2, 3, 3, 4], "the caller's lines");
    assert_eq!(mem.read::<5>(8), [1, 2, 3, 4, 5]);
    assert_eq!(log.take(), [Load(8, 40)]);
}

#[test]
fn bytes_by_word() {
    let (mem, log) = observed(Log::default());
    mem.write_bytes(5, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(
        log.take(),
        [
            cached(5, &[1, 2, 3]),
            cached(8, &[4, 5, 6, 7, 8, 9, 10, 11]),
            cached(16, &[12]),
        ]
    );
    mem.write_bytes(26, &[1, 2]);
    assert_eq!(log.take(), [cached(26, &[1, 2])]);
}

#[test]
fn non_temporal_in_its_pieces() {
    let (mem, log) = observed(Log::default());
    let bytes: Vec<u8> = (1..=150).collect();
    mem.write_nt(60, &bytes).unwrap();
    let expected = [
        cached(60, &bytes[..4]),
        Flush(0),
        Store(64, bytes[4..132].to_vec(), StoreKind::NonTemporal),
        cached(192, &bytes[132..140]),
        cached(200, &bytes[140..148]),
        cached(208, &bytes[148..]),
        Flush(192),
    ];
    assert_eq!(log.take(), expected);
    mem.copy_nt(60 + 4096, 60, 150).unwrap();
    let mut copied = vec![Load(60, 150)];
    copied.extend(expected.iter().map(|event| match event.clone() {
        Store(off, bytes, kind) => Store(off + 4096, bytes, kind),
        Flush(line) => Flush(line + 4096),
        other => other,
    }));
    assert_eq!(log.take(), copied);
    mem.zero_nt(64, 128);
    assert_eq!(
        log.take(),
        [Store(64, vec![0; 128], StoreKind::NonTemporal)]
    );
    let mut found = [9; 128];
    mem.peek(64, &mut found);
    assert_eq!(found, [0; 128]);
    assert_eq!(log.take(), [], "peek is not observed");
}

#[test]
fn compare_and_swap() {
    let (mem, log) = observed(Log::default());
    assert_eq!(mem.cas(8, 1, 2), Err(0));
    assert_eq!(log.take(), [Load(8, 8)], "a failing cas stores nothing");
    assert_eq!(mem.cas(8, 0, 2), Ok(0));
    assert_eq!(log.take(), [Load(8, 8), atomic(8, &[2])]);
    assert_eq!(mem.swap(8, 3), 2);
    assert_eq!(log.take(), [Load(8, 8), atomic(8, &[3])]);
    assert_eq!(mem.load(8), 3);
}

#[test]
fn skipped_stores_are_not_done() {
    let (mem, log) = observed(Log {
        skip: true,
        ..Log::default()
    });
    mem.store(0, 1);
    mem.store_pair(16, [1, 2]);
    mem.write(32, &[1]);
    mem.write_bytes(41, &[1; 20]);
    mem.write_nt(100, &[1; 200]).unwrap();
    assert_eq!(mem.cas(400, 0, 1), Ok(0), "as if it had been done");
    assert_eq!(mem.swap(408, 1), 0);
    mem.poke(512, &[7]);
    mem.copy_nt(1024, 512, 64).unwrap();
    assert_eq!(log.take().len(), 1 + 1 + 1 + 3 + 13 + 2 + 2 + 2);
    let mut expected = vec![0; 64 << 10];
    expected[512] = 7;
    assert!(mem.snapshot_image() == expected);
}

#[test]
fn a_poke_before_the_load_is_loaded() {
    let poke = Log {
        poke: Some((64, 42)),
        ..Log::default()
    };
    let (mem, log) = observed(poke);
    assert_eq!(mem.load(64), 42);
    let (mem, _) = observed(Log {
        poke: Some((64, 43)),
        ..Log::default()
    });
    let mut bytes = [0; 8];
    mem.copy_out(64, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 43);
    let (mem, _) = observed(Log {
        poke: Some((64, 44)),
        ..Log::default()
    });
    assert_eq!(mem.load_pair(64), [44, 0]);
    assert_eq!(mem.cas(64, 44, 1), Ok(44));
    assert_eq!(log.take(), [Load(64, 8)]);
}

#[test]
fn an_observer_may_panic_and_be_taken_away() {
    struct Crash;
    impl Observer for Crash {
        fn store(
            &self,
            _: &Pmem,
            _: u64,
            _: &[u8],
            _: StoreKind,
            _: &'static Location<'static>,
        ) -> Verdict {
            panic!("crash here");
        }
    }
    let mut mem = Pmem::private(4096);
    mem.observe(Some(Arc::new(Crash)));
    let store = std::panic::AssertUnwindSafe(|| mem.store(0, 1));
    assert!(std::panic::catch_unwind(store).is_err());
    assert_eq!(mem.load(0), 0, "not done");
    mem.observe(None);
    mem.store(0, 1);
    assert_eq!(mem.load(0), 1);
}
