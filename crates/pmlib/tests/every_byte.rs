//! Goal: whatever byte of a heap is damaged, opening, checking, repairing and using it end with an
//! answer. Method: a heap that grew, with named roots, objects of several sizes and every
//! container, left clean or by a crash. One bit of a byte is flipped, or all of them; the heap is
//! opened, checked and used; then the damaged bytes are repaired, and what is left is opened,
//! checked and used. A panic fails the test, and so does a call that does not end. Lines of zeros
//! mean nothing but in the header: of their bytes one in 61 is tried.
//!
//! `PMLIB_FLIPS_ONE_IN` says how many bytes are left out (1: none), `PMLIB_FLIPS_SEED` which.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pmem::Pmem;
use pmlib::containers::{PBytes, PLog, PMap, PQueue, PStr, PString, PTree, PVec};
use pmlib::{Error, Field, Heap, Options, P, PmSafe, Tx, field};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const FIRST_BYTES: u64 = 768 << 10;
const BYTES: u64 = 2 << 20;
/// A longer call is one that does not end.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Kept {
    words: PVec<u64>,
    jobs: PQueue<u64>,
    owned: PVec<PBytes>,
    log: PLog,
    ring: PLog,
    text: PString,
    numbers: PMap<u64, u64>,
    names: PMap<PStr, PBytes>,
    narrow: PTree<u64, u64>,
    texts: PTree<PStr, u64>,
    single: P<[u64; 200]>,
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn options() -> Options {
    Options {
        lanes: 2,
        lane_bytes: 4096,
        processes: 4,
        seed: 7,
        max: BYTES,
        ..Options::default()
    }
}

fn fill(heap: &Heap, kept: P<Kept>, from: u64) -> Result<(), Error> {
    for nth in from..from + 40 {
        heap.at(field!(kept, Kept, words)).push(nth)?;
        heap.at(field!(kept, Kept, jobs)).push(nth)?;
        heap.at(field!(kept, Kept, owned)).push_bytes(&[7; 20])?;
        heap.at(field!(kept, Kept, log)).append(b"a record")?;
        heap.at(field!(kept, Kept, numbers)).insert(&nth, nth)?;
        heap.at(field!(kept, Kept, narrow)).insert(&nth, nth)?;
        let name = format!("a name that is long {nth}");
        heap.at(field!(kept, Kept, texts)).insert(&name, nth)?;
        heap.at(field!(kept, Kept, names))
            .set_bytes(&name, &[nth as u8; 30])?;
    }
    heap.at(field!(kept, Kept, ring))
        .append(b"round and round")?;
    heap.at(field!(kept, Kept, text))
        .push_str("a text that has an object")
}

/// The bytes of a heap that was left clean, or is as a crash leaves it.
fn made(clean: bool) -> Vec<u8> {
    let heap = Heap::private(FIRST_BYTES, &options()).unwrap();
    let kept = heap.root::<Kept>("all of them").unwrap();
    heap.root::<PString>("another").unwrap();
    heap.tx(|tx| {
        tx.write(field!(kept, Kept, ring), &PLog::ring(4096))?;
        let single = tx.new([9; 200])?;
        tx.edit(kept)?.single = single;
        let root = tx.alloc(100_000)?;
        tx.set_root(root)?;
        for size in [16, 500, 9000, 70_000] {
            let freed = tx.alloc(size)?;
            tx.free(freed)?;
            tx.alloc(size)?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    fill(&heap, kept, 0).unwrap();
    // It grows, and objects are in what was added.
    heap.tx(|tx| tx.alloc(FIRST_BYTES / 2)).unwrap();
    heap.tx(|tx| tx.alloc(FIRST_BYTES / 2)).unwrap();
    assert!(heap.size() > FIRST_BYTES);
    fill(&heap, kept, 40).unwrap();
    let memory = match clean {
        true => heap.close().unwrap(),
        false => heap.into_memory(),
    };
    let mut bytes = vec![0; memory.len() as usize];
    memory.copy_out(0, &mut bytes).unwrap();
    bytes
}

fn every<T>(mut entries: impl Iterator<Item = Result<T, Error>>) -> Result<(), Error> {
    entries.try_for_each(|entry| entry.map(drop))
}

/// All that can be asked of the heap, and then done to it. Each answer is one.
fn used(heap: &Heap) -> Vec<Result<(), Error>> {
    let kept = match heap.root::<Kept>("all of them") {
        Ok(kept) => kept,
        Err(error) => return vec![Err(error)],
    };
    let (words, jobs) = (field!(kept, Kept, words), field!(kept, Kept, jobs));
    let (names, texts) = (field!(kept, Kept, names), field!(kept, Kept, texts));
    let (numbers, narrow) = (field!(kept, Kept, numbers), field!(kept, Kept, narrow));
    let (log, ring) = (field!(kept, Kept, log), field!(kept, Kept, ring));
    let owned = field!(kept, Kept, owned);
    let mut done = vec![
        heap.stats().map(drop),
        heap.root_offset()
            .and_then(|root| heap.read_bytes(root, 0, &mut [0; 64])),
        heap.read(kept)
            .and_then(|kept| heap.read(kept.single))
            .map(drop),
        every(heap.at(words).iter()),
        every(heap.at(log).iter()),
        every(heap.at(ring).iter()),
        every(heap.at(numbers).iter()),
        every(heap.at(names).iter()),
        every(heap.at(narrow).iter()),
        every(heap.at(texts).iter().rev()),
        heap.at(owned).get_bytes(3).map(drop),
        heap.at(field!(kept, Kept, text)).get().map(drop),
        heap.at(jobs).pop().map(drop),
        heap.at(owned).pop_bytes().map(drop),
        heap.at(words).pop().map(drop),
        heap.at(numbers).remove(&5).map(drop),
        heap.at(narrow).remove(&5).map(drop),
        heap.at(names)
            .remove_bytes("a name that is long 5")
            .map(drop),
        heap.at(texts).remove("a name that is long 5").map(drop),
        fill(heap, kept, 100),
    ];
    for size in [16, 64, 3000, 40_000, 150_000] {
        done.push(
            heap.tx(|tx| tx.alloc(size))
                .and_then(|object| heap.tx(|tx| tx.free(object))),
        );
    }
    done.push(cleared(heap, kept));
    done
}

fn cleared(heap: &Heap, kept: P<Kept>) -> Result<(), Error> {
    heap.tx(|tx: &mut Tx<'_>| {
        tx.at(field!(kept, Kept, words)).clear()?;
        tx.at(field!(kept, Kept, owned)).clear_bytes()?;
        tx.at(field!(kept, Kept, narrow)).clear()?;
        let numbers: Field<PMap<u64, u64>> = field!(kept, Kept, numbers);
        tx.at(numbers).clear()
    })
}

fn memory(bytes: &[u8]) -> Pmem {
    let mem = Pmem::private(bytes.len() as u64);
    mem.write_nt(0, bytes).unwrap();
    mem
}

/// How much of the work was refused.
#[derive(Default)]
struct Answers {
    refused: u64,
    left: u64,
    tried: u64,
}

/// Opens, checks and uses; then repairs the same bytes, opens, checks and uses.
fn answers(bad: &[u8], is_sound: bool, into: &mut Answers) {
    into.tried += 1;
    let mut is_refused = false;
    match Heap::attach(memory(bad)) {
        Err(_) => is_refused = true,
        Ok(heap) => {
            is_refused |= heap.check().is_err();
            let mut errors = used(&heap).into_iter().filter_map(Result::err);
            // The heap is small.
            let refused = errors.find(|error| !matches!(error, Error::Full { .. }));
            if let (Some(error), true) = (&refused, is_sound) {
                panic!("a sound heap: {error}");
            }
            is_refused |= refused.is_some();
        }
    }
    into.refused += u64::from(is_refused);
    let Ok((report, mem)) = Heap::repair_in(memory(bad)) else {
        into.left += 1;
        return;
    };
    if !report.left.is_empty() {
        into.left += 1;
        return;
    }
    let heap = Heap::attach(mem).expect("a repaired heap opens");
    heap.check().expect("a repaired heap is sound");
    used(&heap);
}

/// Ends this process if one byte takes too long.
fn watch(at: &'static AtomicU64) {
    std::thread::spawn(move || {
        let mut last = (u64::MAX, 0);
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = at.load(Ordering::Relaxed);
            last = if now == last.0 {
                (now, last.1 + 1)
            } else {
                (now, 0)
            };
            if now != u64::MAX && last.1 > LONGEST.as_secs() {
                eprintln!("byte {now:#x}: a call does not end");
                std::process::abort();
            }
        }
    });
}

/// Whether a byte is one of those that are tried: it may mean something, or is one of the rest.
fn is_tried(good: &[u8], at: usize) -> bool {
    let line = &good[at & !63..][..64];
    at < 8192 || line.iter().any(|&byte| byte != 0) || at.is_multiple_of(61)
}

#[test]
fn every_byte_ends_with_an_answer() {
    static AT: AtomicU64 = AtomicU64::new(u64::MAX);
    let one_in = number("PMLIB_FLIPS_ONE_IN", 400);
    let today = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs()
        / 86_400;
    let seed = number("PMLIB_FLIPS_SEED", today);
    println!("PMLIB_FLIPS_SEED={seed}");
    watch(&AT);
    for clean in [true, false] {
        let good = made(clean);
        let mut sound = Answers::default();
        answers(&good, true, &mut sound);
        assert_eq!((sound.refused, sound.left), (0, 0));
        let mut all = Answers::default();
        let tried = (0..good.len()).filter(|&at| is_tried(&good, at));
        for (nth, at) in tried.enumerate() {
            if !(nth as u64 + seed).is_multiple_of(one_in) {
                continue;
            }
            AT.store(at as u64, Ordering::Relaxed);
            for mask in [1 << (at % 8), 0xff] {
                let mut bad = good.clone();
                bad[at] ^= mask;
                let answered = catch_unwind(AssertUnwindSafe(|| answers(&bad, false, &mut all)));
                assert!(answered.is_ok(), "clean {clean}, byte {at:#x} by {mask:#x}");
            }
        }
        AT.store(u64::MAX, Ordering::Relaxed);
        println!(
            "{} flips, left clean: {clean}; {} refused, {} not mended",
            all.tried, all.refused, all.left
        );
        assert!(all.refused > all.tried / 100 && all.refused < all.tried);
    }
}
