//! Goal: a damaged heap is shown, checked and mended, and what cannot be mended is said. Method:
//! each byte of a heap's own parts is damaged, in a bit and as a whole, also of heaps that grew and
//! that a crash has left; each heap is dumped, checked, repaired, checked again and used.

use pmem::Pmem;
use pmlib::containers::PVec;
use pmlib::{Error, Heap, Inspector, Options, P, Part, Repaired, field};
use pmlib::{PmSafe, RawP};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const BYTES: u64 = 1 << 20;
const ROOM: u64 = 2 << 20;
/// Where the lanes begin.
const LANES: u64 = 12_288;

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Kept {
    numbers: PVec<u64>,
    large: u64,
}

fn options() -> Options {
    Options {
        lanes: 2,
        lane_bytes: 1024,
        seed: 7,
        max: ROOM,
        ..Options::default()
    }
}

/// A heap with objects of several kinds and two named roots; of two spans if it `grows`. Left by a
/// crash, or clean. Answers its bytes, and what is in it.
fn made(clean: bool, grows: bool) -> (Vec<u8>, Vec<u64>) {
    let heap = Heap::private(BYTES, &options()).unwrap();
    let kept = heap.root::<Kept>("kept").unwrap();
    let other = heap.root::<[u64; 4]>("another one").unwrap();
    let large = if grows { 900_000 } else { 100_000 };
    heap.tx(|tx| {
        let root = tx.alloc(500)?;
        tx.edit_bytes(root, 0, 8)?.fill(4);
        tx.set_root(root)?;
        let large = tx.alloc(large)?;
        tx.edit_bytes(large, 70_000, 8)?.fill(9);
        tx.edit(kept)?.large = large;
        tx.edit(other)?.fill(11);
        Ok::<_, Error>(())
    })
    .unwrap();
    for number in 0..20 {
        let numbers = field!(kept, Kept, numbers);
        heap.at_on(number as usize % 2, numbers)
            .push(number)
            .unwrap();
    }
    let seen = content(&heap).unwrap();
    let mem = match clean {
        true => heap.close().unwrap(),
        false => heap.into_memory(),
    };
    let mut bytes = vec![0; mem.len() as usize];
    mem.copy_out(0, &mut bytes).unwrap();
    (bytes, seen)
}

/// All that the program reads: root, vector, large object.
fn content(heap: &Heap) -> Result<Vec<u64>, Error> {
    let mut all = Vec::new();
    let mut word = [0; 8];
    let root = heap.root_offset()?;
    heap.read_bytes(root, 0, &mut word)?;
    all.push(u64::from_le_bytes(word));
    let kept = heap.root::<Kept>("kept")?;
    all.extend(heap.at(field!(kept, Kept, numbers)).to_vec()?);
    let large = heap.read(kept)?.large;
    heap.read_bytes(large, 70_000, &mut word)?;
    all.push(u64::from_le_bytes(word));
    let other: P<[u64; 4]> = heap.root("another one")?;
    all.extend(heap.read(other)?);
    Ok(all)
}

fn memory(bytes: &[u8]) -> Pmem {
    let mem = Pmem::private_within(bytes.len() as u64, ROOM);
    mem.write_nt(0, bytes).unwrap();
    mem
}

/// Every part is shown; no answer is a fault.
fn dumped(bytes: &[u8]) {
    let Ok(heap) = Inspector::over(memory(bytes)) else {
        return;
    };
    let mut parts = vec![Part::Header, Part::Lanes, Part::Chunks, Part::Roots];
    parts.extend((0..3).map(Part::Lane));
    parts.extend((0..20).map(Part::Chunk));
    parts.push(Part::Bytes(8192..8292));
    parts.push(Part::Bytes(u64::MAX - 1..u64::MAX));
    for part in parts {
        let _ = heap.dump(&part);
    }
}

/// Repairs a heap; answers the report, and the heap's memory.
fn repaired(bytes: &[u8]) -> (Result<Repaired, Error>, Vec<u8>) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    std::fs::write(&path, bytes).unwrap();
    let report = Heap::repair(&path, false);
    (report, std::fs::read(&path).unwrap())
}

fn used(bytes: &[u8]) -> Result<Vec<u64>, Error> {
    let heap = Heap::attach(memory(bytes))?;
    heap.check()?;
    let seen = content(&heap)?;
    let objects: Result<Vec<u64>, Error> = [64, 500, 2000, 70_000]
        .into_iter()
        .map(|size| heap.tx(|tx| tx.alloc(size)))
        .collect();
    for object in objects? {
        heap.tx(|tx| tx.free(RawP(object)))?;
    }
    Ok(seen)
}

/// Damages each byte; answers how many damages were mended, did not matter, and are left.
fn each_byte(clean: bool, grows: bool, change: impl Fn(u64) -> u8, step: u64) -> [u64; 3] {
    let (good, seen) = made(clean, grows);
    assert_eq!(used(&good).unwrap(), seen);
    let first = Heap::volatile(&memory(&good[..BYTES as usize]));
    let ends = [0..first.start, BYTES..BYTES + 4096];
    let objects = first.end.next_multiple_of(65_536);
    let ranges = [
        ends,
        [objects..objects + 64, objects + 65_536..objects + 65_600],
    ]
    .concat();
    let mut counts = [0; 3];
    for at in ranges.into_iter().flatten().filter(|at| at % step == 0) {
        if at >= good.len() as u64 || good[at as usize] == 0 && at % 37 != 0 {
            continue;
        }
        let mut bad = good.clone();
        bad[at as usize] ^= change(at);
        dumped(&bad);
        let (report, after) = repaired(&bad);
        let report = match report {
            Ok(report) => report,
            Err(error) => panic!("byte {at:#x}: {error}"),
        };
        // A bitmap has no check, and a record without its check has not happened.
        let is_bitmap = at >= objects && at < BYTES;
        let is_loss = is_bitmap || !clean && at >= LANES && at < first.start;
        if !report.left.is_empty() {
            assert!(is_bitmap, "byte {at:#x}: {report:?}");
            counts[2] += 1;
            continue;
        }
        let (again, _) = repaired(&after);
        let again = again.unwrap();
        assert_eq!(
            (again.left, again.repaired),
            (vec![], vec![]),
            "byte {at:#x}"
        );
        match used(&after) {
            Ok(now) => assert!(now == seen || is_loss, "byte {at:#x}: {now:?}: {report:?}"),
            Err(error) => assert!(is_loss, "byte {at:#x}: {error}: {report:?}"),
        }
        counts[usize::from(report.repaired.is_empty())] += 1;
    }
    println!("clean {clean}, grown {grows}: mended, indifferent, left {counts:?}");
    counts
}

#[test]
fn every_flipped_bit_is_mended() {
    for (clean, grows, step) in [(true, false, 5), (true, true, 1), (false, false, 2)] {
        let [mended, _, left] = each_byte(clean, grows, |at| 1 << (at % 8), step);
        assert!(mended > 20 && left < 10);
    }
}

#[test]
fn every_lost_byte_ends_with_an_answer() {
    for (clean, grows, step) in [(true, true, 2), (false, true, 3)] {
        let [mended, ..] = each_byte(clean, grows, |_| 0xa7, step);
        assert!(mended > 20);
    }
}

/// Goal: an entry of the chunk table that is lost wholly is made by what the chunk shows. Method:
/// each entry becomes nonsense, and so does the check of its group.
#[test]
fn lost_entries_are_made_by_what_chunks_show() {
    let (good, seen) = made(true, true);
    let mut counts = [0; 2];
    for chunk in 0..16u64 {
        for word in [0xffff_ffff_ffff_ffffu64, 0x7, 0xff_ffff_f012] {
            let mut bad = good.clone();
            let at = (8192 + chunk / 15 * 256 + chunk % 15 * 16) as usize;
            bad[at..at + 8].copy_from_slice(&word.to_le_bytes());
            dumped(&bad);
            let (report, after) = repaired(&bad);
            let report = report.unwrap();
            assert_eq!(report.left, [], "chunk {chunk}");
            assert!(!report.repaired.is_empty());
            match used(&after) {
                Ok(now) if now == seen => counts[0] += 1,
                other => {
                    println!("chunk {chunk}, {word:#x}: {other:?}, {:?}", report.repaired);
                    counts[1] += 1;
                }
            }
        }
    }
    println!("as before, otherwise: {counts:?}");
    assert!(counts[0] >= 30);
}

/// Goal: no heap is mended under its users; a dry run changes nothing and says the same.
#[test]
fn users_are_not_disturbed() {
    let (good, _) = made(true, false);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let mut bad = good.clone();
    bad[4096 + 20] ^= 1;
    bad[640] ^= 4;
    std::fs::write(&path, &bad).unwrap();
    let dry = Heap::repair(&path, true).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bad);
    assert_eq!(dry.repaired.len(), 2);
    let heap = Heap::open(&path, &Options::default()).unwrap();
    for is_dry in [true, false] {
        let refused = Heap::repair(&path, is_dry);
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    }
    heap.close().unwrap();
    assert_eq!(Heap::repair(&path, false).unwrap(), dry);
}

/// Goal: a header that both pages have lost is an answer; a truncated file too.
#[test]
fn what_cannot_be_mended_is_said() {
    let (good, _) = made(true, true);
    let mut bad = good.clone();
    for at in [30, 41, 4096 + 40, 4096 + 50] {
        bad[at] ^= 7;
    }
    assert!(matches!(repaired(&bad).0, Err(Error::Damaged { .. })));
    for len in [good.len() - 65_536, 1 << 20] {
        let (report, after) = repaired(&good[..len]);
        let report = report.unwrap();
        assert!(
            report.left.iter().any(|finding| finding.number == 7),
            "{report:?}"
        );
        assert_eq!(after, good[..len], "nothing is changed");
    }
    assert!(repaired(&good[..1 << 19]).0.is_err());
}
