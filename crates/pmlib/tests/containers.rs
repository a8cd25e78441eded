//! Goal: containers do what their documentation says, also for many threads and on a damaged heap.
//! Method: heaps in private memory, through the public face, in a crate without unsafe code.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use pmem::{Pmem, counters};
use pmlib::containers::{PLog, PQueue, PStr, PString, PVec};
use pmlib::{Error, Heap, Options, P, PmSafe, RawP, field};
use pmlib_format::container::{VEC_NEAR, VecRaw};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const BYTES: u64 = 1 << 20;

#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Shop {
    name: PString,
    prices: PVec<u64>,
    orders: PQueue<[u64; 2]>,
    journal: PLog,
    owner: PStr,
}

fn options() -> Options {
    Options {
        lanes: 4,
        lane_bytes: 4096,
        seed: 7,
        ..Options::default()
    }
}

fn heap() -> Heap {
    Heap::private(BYTES, &options()).unwrap()
}

fn reopened(heap: Heap) -> Heap {
    Heap::attach(heap.into_memory()).unwrap()
}

/// A shop with something in each container.
fn shop(heap: &Heap) -> P<Shop> {
    let shop = heap.root::<Shop>("shop").unwrap();
    heap.tx(|tx| {
        let owner = tx.new_str("somebody with a long name")?;
        tx.edit(shop)?.owner = owner;
        tx.at(field!(shop, Shop, name))
            .set_text("a shop with a long name")?;
        tx.at(field!(shop, Shop, prices)).extend(&[5; 20])?;
        tx.at(field!(shop, Shop, orders)).push([1, 2])?;
        tx.at(field!(shop, Shop, journal))
            .append(b"opened")
            .map(drop)
    })
    .unwrap();
    for nth in 0..20u64 {
        heap.at(field!(shop, Shop, journal))
            .append(&nth.to_le_bytes())
            .unwrap();
        heap.at(field!(shop, Shop, orders))
            .push([nth, nth])
            .unwrap();
    }
    shop
}

#[test]
fn containers_are_fields_of_structs() {
    let heap = heap();
    let shop = shop(&heap);
    let heap = reopened(heap);
    assert_eq!(
        heap.at(field!(shop, Shop, name)).get().unwrap(),
        "a shop with a long name"
    );
    assert_eq!(
        heap.at(field!(shop, Shop, prices)).to_vec().unwrap(),
        [5; 20]
    );
    assert_eq!(
        heap.at(field!(shop, Shop, orders)).pop().unwrap(),
        Some([1, 2])
    );
    let records = heap.at(field!(shop, Shop, journal)).iter();
    let records: Result<Vec<_>, Error> = records.collect();
    let records = records.unwrap();
    assert_eq!(
        (records.len(), records[0].1.as_slice()),
        (21, &b"opened"[..])
    );
    let owner = heap.read(shop).unwrap().owner;
    assert_eq!(heap.read_str(owner).unwrap(), "somebody with a long name");
    // A struct shows what it points to.
    let mut places = Vec::new();
    heap.read(shop)
        .unwrap()
        .trace(&mut |RawP(offset)| places.push(offset));
    assert_eq!(places.len(), 1 + 2 + 2 + 2 + 1);
    assert!(places.iter().all(|&offset| heap.size_of(offset).is_ok()));
    heap.tx(|tx| tx.free_str(owner)).unwrap();
    assert!(matches!(heap.read_str(owner), Err(Error::Damaged { .. })));
}

/// Waits for the medium, and lines that are flushed or go past the caches.
#[test]
fn a_call_waits_once() {
    let heap = heap();
    let shop = shop(&heap);
    let counted = |body: &mut dyn FnMut()| {
        let before = counters::snapshot();
        body();
        counters::snapshot() - before
    };
    for nth in 0..5u64 {
        let log = counted(&mut || {
            heap.at(field!(shop, Shop, journal)).append(&[]).unwrap();
        });
        assert_eq!(log.fences, 1, "an append");
        let put = counted(&mut || heap.at(field!(shop, Shop, orders)).push([nth, 0]).unwrap());
        // A segment's first value has one more.
        assert!(put.fences <= 2, "a put: {}", put.fences);
        let push = counted(&mut || {
            heap.at(field!(shop, Shop, prices)).push(nth).unwrap();
        });
        assert_eq!(push.fences, 1, "a push");
        let take = counted(&mut || {
            heap.at(field!(shop, Shop, orders)).pop().unwrap();
        });
        assert_eq!(take.fences, 1, "a take");
        let look = counted(&mut || {
            heap.at(field!(shop, Shop, journal)).end().unwrap();
            heap.at(field!(shop, Shop, prices)).get(3).unwrap();
            heap.at(field!(shop, Shop, name)).get().unwrap();
        });
        assert_eq!(look.fences, 0, "a look");
    }
}

#[test]
fn a_vector_goes_on_in_further_segments() {
    let heap = Heap::private(4 << 20, &options()).unwrap();
    let words = heap.root::<PVec<u64>>("words").unwrap();
    let all: Vec<u64> = (0..10_000).collect();
    for part in all.chunks(999) {
        heap.at(words).extend(part).unwrap();
    }
    let wide = heap.root::<PVec<[u8; 1000]>>("wide").unwrap();
    heap.at(wide).extend(&[[7; 1000]; 100]).unwrap();
    let heap = reopened(heap);
    assert_eq!(heap.at(words).to_vec().unwrap(), all);
    assert_eq!(heap.at(words).read_range(500..520).unwrap(), all[500..520]);
    assert_eq!(heap.at(words).get(9_999).unwrap(), Some(9_999));
    assert_eq!(heap.at(words).get(10_000).unwrap(), None);
    let each: Result<Vec<u64>, Error> = heap.at(words).iter().collect();
    assert_eq!(each.unwrap(), all);
    assert_eq!(heap.at(wide).to_vec().unwrap(), [[7; 1000]; 100]);
    let full = heap.at(wide).extend(&vec![[0; 1000]; 20_000]);
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    assert_eq!(heap.at(wide).len().unwrap(), 100);
    for range in [0..101, 101..101, u64::MAX..u64::MAX] {
        let wrong = heap.at(wide).read_range(range);
        assert!(matches!(wrong, Err(Error::Index { .. })), "{wrong:?}");
    }
    heap.at(words).truncate(700).unwrap();
    assert_eq!(heap.at(words).to_vec().unwrap(), all[..700]);
    heap.at(words).clear().unwrap();
    heap.at(wide).clear().unwrap();
    assert_eq!(
        heap.check().unwrap().objects,
        4,
        "two roots and their names"
    );
}

#[test]
fn a_ring_keeps_its_last_records() {
    let heap = heap();
    let log = heap.tx(|tx| tx.new(PLog::ring(4096))).unwrap();
    for nth in 0..10_000u64 {
        let position = heap.at(log).append(&nth.to_le_bytes()).unwrap();
        assert_eq!(position, nth * 24);
        let kept = heap.at(log).end().unwrap() - heap.at(log).front().unwrap();
        let whole = (nth + 1) * 24;
        assert!(kept >= whole.min(4096) && kept <= 4096 + 2 * 1024, "{kept}");
    }
    let front = heap.at(log).front().unwrap();
    let first = heap.at(log).iter().next().unwrap().unwrap();
    assert_eq!(first, (front, (front / 24).to_le_bytes().to_vec()));
    assert!(heap.check().unwrap().objects < 10);
}

#[test]
fn records_are_found_by_their_position() {
    let heap = heap();
    let log = heap.root::<PLog>("log").unwrap();
    assert_eq!(heap.at(log).read(0).unwrap(), None);
    let mut places = Vec::new();
    for len in [0, 1, 8, 100, 5000, 70_000, 3, 300_000, 0, 9] {
        places.push((heap.at(log).append(&vec![len as u8; len]).unwrap(), len));
    }
    let look = |heap: &Heap| {
        for &(position, len) in &places {
            let found = heap.at(log).read(position).unwrap();
            assert_eq!(found.unwrap(), vec![len as u8; len]);
            let wrong = heap.at(log).read(position + 1);
            assert!(matches!(wrong, Err(Error::NoRecord { .. })), "{position}");
        }
        let third = heap.at(log).iter_from(places[2].0).next().unwrap();
        assert_eq!(third.unwrap(), (places[2].0, vec![8; 8]));
    };
    look(&heap);
    let heap = reopened(heap);
    look(&heap);
    let end = heap.at(log).end().unwrap();
    for wrong in [places[4].0 + 8, end + 8, u64::MAX] {
        let trimmed = heap.at(log).trim(wrong);
        assert!(matches!(trimmed, Err(Error::NoRecord { .. })), "{wrong}");
    }
    heap.at(log).trim(places[6].0).unwrap();
    assert!(matches!(heap.at(log).read(0), Err(Error::NoRecord { .. })));
    heap.at(log).trim(0).unwrap();
    assert_eq!(heap.at(log).iter().count(), 4);
    heap.at(log).trim(end).unwrap();
    assert_eq!(heap.at(log).iter().count(), 0);
    assert_eq!(heap.at(log).append(b"next").unwrap(), end);
}

fn memory(bytes: &[u8]) -> Pmem {
    let mem = Pmem::private(BYTES);
    mem.write_nt(0, bytes).unwrap();
    mem
}

/// Goal: an iterator keeps what it says while others change what it goes through.
#[test]
fn iterators_go_on_under_change() {
    let heap = heap();
    let log = heap.root::<PLog>("log").unwrap();
    let words = heap.root::<PVec<u64>>("words").unwrap();
    for nth in 0..100u64 {
        heap.at(log).append(&nth.to_le_bytes()).unwrap();
        heap.at(words).push(nth).unwrap();
    }
    let mut records = heap.at(log).iter();
    assert_eq!(records.next().unwrap().unwrap().0, 0);
    heap.at(log).trim(24 * 50).unwrap();
    assert_eq!(
        records.next().unwrap().unwrap().0,
        24 * 50,
        "those between are gone"
    );
    heap.at(log).append(b"more").unwrap();
    assert_eq!(records.by_ref().count(), 50, "and one that came");
    assert!(records.next().is_none());
    let mut records = heap.at(log).iter();
    records.next();
    heap.at(log).clear().unwrap();
    assert!(records.next().is_none());
    let mut elements = heap.at(words).iter();
    assert_eq!(elements.next().unwrap().unwrap(), 0);
    heap.at(words).truncate(20).unwrap();
    let rest: Result<Vec<u64>, Error> = elements.collect();
    let rest = rest.unwrap();
    assert!(rest.len() >= 7 && rest.iter().zip(1..).all(|(&word, nth)| word == nth));
}

/// Goal: many threads use containers at once; readers without locks see whole records, in order.
#[test]
fn threads_share_containers() {
    const EACH: u64 = 300;
    let heap = Heap::private(16 << 20, &options()).unwrap();
    let log = heap.root::<PLog>("log").unwrap();
    let jobs = heap.root::<PQueue<u64>>("jobs").unwrap();
    let words = heap.root::<PVec<u64>>("words").unwrap();
    let is_over = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        let (heap, is_over) = (&heap, &is_over);
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| read_on(heap, log, words, is_over)))
            .collect();
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    for nth in 0..EACH {
                        let value = writer * EACH + nth;
                        heap.at(log).append(&value.to_le_bytes()).unwrap();
                        heap.at(jobs).push(value).unwrap();
                        heap.tx(|tx| {
                            tx.at(words).push(value)?;
                            tx.at(log).append(&value.to_le_bytes()).map(drop)
                        })
                        .unwrap();
                        taken.extend(heap.at(jobs).pop().unwrap());
                    }
                    taken
                })
            })
            .collect();
        let taken: Vec<u64> = writers
            .into_iter()
            .flat_map(|each| each.join().unwrap())
            .collect();
        is_over.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        taken
    });
    let all: Vec<u64> = (0..3 * EACH).collect();
    let sorted = |mut values: Vec<u64>| {
        values.sort_unstable();
        values
    };
    assert_eq!(sorted(taken), all, "each value is taken once");
    assert_eq!(sorted(heap.at(words).to_vec().unwrap()), all);
    let heap = reopened(heap);
    assert_eq!(heap.at(log).iter().count() as u64, 6 * EACH);
    assert!(heap.at(jobs).is_empty().unwrap());
}

/// Reads until the others have ended: nothing that was seen goes away.
fn read_on(heap: &Heap, log: P<PLog>, words: P<PVec<u64>>, is_over: &AtomicBool) {
    let mut before = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut count = 0;
        for (record, nth) in heap.at(log).iter().zip(0..) {
            let (position, bytes) = record.unwrap();
            assert_eq!((position, bytes.len()), (nth * 24, 8));
            count = nth + 1;
        }
        assert!(count >= before, "{count} after {before}");
        before = count;
        let seen = heap.at(words).to_vec().unwrap();
        assert!(seen.iter().all(|&word| word < 900));
    }
}

/// Everything that can be asked of a shop, and then done to it.
fn used(heap: &Heap, shop: P<Shop>) -> Vec<Result<(), Error>> {
    let (name, prices) = (field!(shop, Shop, name), field!(shop, Shop, prices));
    let (orders, journal) = (field!(shop, Shop, orders), field!(shop, Shop, journal));
    let all = |records: &mut dyn Iterator<Item = Result<(), Error>>| records.collect();
    let mut done = vec![
        heap.at(name).get().map(drop),
        heap.at(prices).to_vec().map(drop),
        heap.at(prices).get(19).map(drop),
        all(&mut heap.at(prices).iter().map(|each| each.map(drop))),
        heap.at(orders).peek().map(drop),
        heap.at(orders).len().map(drop),
        all(&mut heap.at(journal).iter().map(|each| each.map(drop))),
        heap.at(journal).read(48).map(drop),
    ];
    done.extend([
        heap.at(name).push_str("and more of it, and more"),
        heap.at(prices).extend(&[1; 30]).map(drop),
        heap.at(prices).truncate(2),
        heap.at(orders).push([1, 1]),
        heap.at(orders).pop().map(drop),
        heap.at(journal).append(&[0; 100]).map(drop),
        heap.at(journal).trim(48),
        heap.at(name).clear(),
        heap.at(prices).clear(),
        heap.at(orders).clear(),
        heap.at(journal).clear(),
    ]);
    done
}

/// Goal: damaged containers end with answers. Method: each byte of the objects is changed in a few
/// ways, each in a heap of its own, whose containers are read and changed.
#[test]
fn every_damaged_byte_ends_with_an_answer() {
    let made = heap();
    let shop = shop(&made);
    let mut good = vec![0; BYTES as usize];
    made.into_memory().copy_out(0, &mut good).unwrap();
    let heap = Heap::attach(memory(&good)).unwrap();
    assert!(used(&heap, shop).iter().all(Result::is_ok));
    let objects = objects_of(&good, shop);
    let (mut refused, mut worked) = (0, 0);
    for at in objects.into_iter().flatten() {
        for change in [1 << (at % 8), 0xff] {
            let mut bad = good.clone();
            bad[at as usize] ^= change;
            let heap = Heap::attach(memory(&bad)).unwrap();
            for answer in used(&heap, shop) {
                match answer {
                    Ok(()) => worked += 1,
                    Err(Error::Damaged { offset, .. }) if offset < BYTES => refused += 1,
                    // The damage led to the shop itself, and it was freed as a segment.
                    Err(Error::NoObject { offset }) if offset == RawP::from(shop).0 => {}
                    // A position of before that the damage has moved; a length that is too long.
                    Err(Error::NoRecord { .. } | Error::Full { .. } | Error::Size { .. }) => {}
                    Err(error) => panic!("byte {at:#x}: {error}"),
                }
            }
        }
    }
    println!("{refused} refused, {worked} worked");
    assert!(refused > 1000 && worked > 1000);
}

/// The bytes of the shop and of all that it leads to.
fn objects_of(bytes: &[u8], shop: P<Shop>) -> Vec<std::ops::Range<u64>> {
    let heap = Heap::attach(memory(bytes)).unwrap();
    let mut objects = vec![RawP::from(shop).0];
    heap.read(shop)
        .unwrap()
        .trace(&mut |RawP(offset)| objects.push(offset));
    objects.dedup();
    let range = |offset: u64| offset..offset + heap.size_of(offset).unwrap();
    objects.into_iter().map(range).collect()
}

/// Goal: a damaged record is told from the end of the log, if another one follows.
#[test]
fn a_damaged_record_is_not_the_end() {
    let heap = heap();
    let log = heap.root::<PLog>("log").unwrap();
    for nth in 0..3u64 {
        heap.at(log).append(&[nth as u8 + 1; 8]).unwrap();
    }
    let mut bytes = vec![0; BYTES as usize];
    heap.into_memory().copy_out(0, &mut bytes).unwrap();
    let second = bytes
        .windows(8)
        .rposition(|window| window == [2; 8])
        .unwrap();
    for at in second - 16..second + 8 {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        let heap = Heap::attach(memory(&bad)).unwrap();
        let seen: Result<Vec<_>, Error> = heap.at(log).iter().collect();
        assert!(
            matches!(seen, Err(Error::Damaged { .. })),
            "{at:#x}: {seen:?}"
        );
        let more = heap.at(log).append(b"more");
        assert!(
            matches!(more, Err(Error::Damaged { .. })),
            "{at:#x}: {more:?}"
        );
    }
}

#[test]
fn heads_of_zeros_are_empty() {
    let heap = heap();
    let shop = heap.tx(|tx| tx.new(Shop::new_zeroed())).unwrap();
    assert!(heap.at(field!(shop, Shop, prices)).is_empty().unwrap());
    assert!(heap.at(field!(shop, Shop, orders)).is_empty().unwrap());
    assert_eq!(heap.at(field!(shop, Shop, orders)).pop().unwrap(), None);
    assert_eq!(heap.at(field!(shop, Shop, prices)).pop().unwrap(), None);
    assert_eq!(heap.at(field!(shop, Shop, name)).get().unwrap(), "");
    assert_eq!(heap.at(field!(shop, Shop, journal)).iter().count(), 0);
    assert!(heap.read(shop).unwrap().owner.is_empty());
    assert_eq!(
        PStr::short("fifteen letters").map(|text| text.len()),
        Some(15)
    );
    assert!(PStr::short("sixteen letters!").is_none());
}

/// Goal: a damaged pointer of a vector or a text frees nothing that can't be theirs. Method: each
/// pointer of a vector names another live object, and a text's one that is shorter.
#[test]
fn a_damaged_pointer_frees_no_other_object() {
    let heap = heap();
    let words = heap.root::<PVec<u64>>("words").unwrap();
    let text = heap.root::<PString>("text").unwrap();
    heap.at(words).extend(&[5; 5000]).unwrap();
    heap.at(text).set_text(&"long ".repeat(20)).unwrap();
    let other = heap.tx(|tx| tx.alloc(16)).unwrap();
    let damage = |of: RawP, at: u64| {
        heap.tx(|tx| {
            let word = tx.edit_bytes(of.0, at, 8)?;
            let mut old = [0; 8];
            old.copy_from_slice(word);
            word.copy_from_slice(&other.to_le_bytes());
            Ok::<_, Error>(old)
        })
        .unwrap()
    };
    let is_damage = |done: Result<(), Error>| assert!(matches!(done, Err(Error::Damaged { .. })));
    let near = std::mem::offset_of!(VecRaw, near) as u64;
    let far = std::mem::offset_of!(VecRaw, far) as u64;
    for at in (near..near + 8 * VEC_NEAR as u64).step_by(8).chain([far]) {
        let old = damage(words.into(), at);
        is_damage(heap.at(words).clear());
        assert!(heap.read_bytes(other, 0, &mut [0]).is_ok(), "it is there");
        heap.tx(|tx| {
            let RawP(of) = words.into();
            tx.edit_bytes(of, at, 8)?.copy_from_slice(&old);
            Ok::<_, Error>(())
        })
        .unwrap();
    }
    heap.at(words).clear().unwrap();
    // A text's offset is a part of its first word or of its second: each is tried.
    for at in [0, 8] {
        let mut before = [0; 16];
        let RawP(of) = text.into();
        heap.read_bytes(of, 0, &mut before).unwrap();
        damage(text.into(), at);
        let _ = heap.at(text).clear();
        assert!(heap.read_bytes(other, 0, &mut [0]).is_ok(), "it is there");
        heap.tx(|tx| {
            tx.edit_bytes(of, 0, 16)?.copy_from_slice(&before);
            Ok::<_, Error>(())
        })
        .unwrap();
    }
}
