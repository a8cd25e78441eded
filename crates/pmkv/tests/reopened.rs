//! Puts to an engine that was opened again: what the first ones do, and the room that they find.

use pmem::counters;
use pmkv::{Kind, Store};
use pmlib::{Heap, Options};
use tempfile::TempDir;

const KINDS: [Kind; 2] = [Kind::Hash, Kind::Tree];

fn key(nth: u64) -> [u8; 16] {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&nth.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn options() -> Options {
    Options {
        seed: 7,
        ..Options::default()
    }
}

/// An engine with so many keys, which was closed.
fn filled(kind: Kind, keys: u64) -> TempDir {
    let dir = TempDir::new().unwrap();
    let heap = Heap::create(&dir.path().join("heap"), 4 << 20, &options()).unwrap();
    let kv = kind.open(&heap, "kv").unwrap();
    for nth in 0..keys {
        kv.put(&key(nth), &[1; 64]).unwrap();
    }
    drop(kv);
    heap.close().unwrap();
    dir
}

/// Opens it again, has it used, and closes it.
fn reopened<T>(dir: &TempDir, kind: Kind, body: impl FnOnce(&dyn Store) -> T) -> T {
    let heap = Heap::open(&dir.path().join("heap"), &options()).unwrap();
    let kv = kind.open(&heap, "kv").unwrap();
    let done = body(&*kv);
    drop(kv);
    heap.close().unwrap();
    done
}

/// Waits and lines written back of a call.
fn costs(call: impl FnOnce()) -> (u64, u64) {
    let before = counters::snapshot();
    call();
    let after = counters::snapshot();
    (
        after.fences - before.fences,
        after.lines_flushed - before.lines_flushed,
    )
}

/// Goal: what a put does after opening has a bound, however many keys there are: no place is found
/// out before it is wanted, and then a few at a time. Method: waits and lines of each put of new
/// keys, of puts over old ones, and of new ones behind these are counted, in engines of two sizes.
#[test]
fn puts_after_opening_do_a_bounded_work() {
    for kind in KINDS {
        for keys in [4_000, 40_000] {
            let dir = filled(kind, keys);
            reopened(&dir, kind, |kv| {
                let put = |nth: u64| costs(|| kv.put(&key(nth), &[2; 64]).unwrap());
                let first = put(keys);
                let most = |numbers: std::ops::Range<u64>| {
                    let all: Vec<(u64, u64)> = numbers.map(put).collect();
                    let waits = all.iter().map(|costs| costs.0).max().unwrap();
                    (waits, all.iter().map(|costs| costs.1).max().unwrap())
                };
                let (new, over) = (most(keys + 1..keys + 2_000), most(0..2_000));
                let behind = most(keys + 2_000..keys + 4_000);
                println!("{kind}, {keys}: {first:?} {new:?} {over:?} {behind:?}");
                for (waits, lines) in [first, new, over, behind] {
                    assert!(
                        waits <= 24 && lines <= 256,
                        "{kind}, {keys}: {waits}, {lines}"
                    );
                }
            });
        }
    }
}

/// Goal: the room of one who puts little each time is not lost. Method: one key is put in each of
/// many runs.
#[test]
fn many_openings_take_no_room() {
    for kind in KINDS {
        let dir = filled(kind, 20_000);
        let bytes = |kv: &dyn Store| kv.stats().unwrap().record_bytes;
        let before = reopened(&dir, kind, bytes);
        for nth in 0..60 {
            reopened(&dir, kind, |kv| {
                kv.put(&key(20_000 + nth), &[2; 64]).unwrap()
            });
        }
        let after = reopened(&dir, kind, bytes);
        assert!(after <= before + (64 << 10), "{kind}: {before} to {after}");
    }
}

/// Goal: places that were freed are used again, in this run and in later ones. Method: all keys are
/// put over ten times in a run; then in each of six runs they are put over or taken away, and put.
#[test]
fn places_of_former_runs_are_found() {
    for kind in KINDS {
        let keys = 20_000;
        let dir = filled(kind, keys);
        let bytes = |kv: &dyn Store| kv.stats().unwrap().record_bytes;
        let first = reopened(&dir, kind, bytes);
        let over = reopened(&dir, kind, |kv| {
            for nth in 0..keys * 10 {
                kv.put(&key(nth % keys), &[8; 64]).unwrap();
            }
            bytes(kv)
        });
        assert!(over * 10 <= first * 14, "{kind}: {first} to {over}");
        let all: Vec<u64> = (0..6)
            .map(|round| {
                reopened(&dir, kind, |kv| {
                    for nth in 0..keys {
                        if round % 3 == 2 {
                            assert!(kv.delete(&key(nth)).unwrap());
                        } else {
                            kv.put(&key(nth), &[round; 64]).unwrap();
                        }
                    }
                    for nth in 0..keys {
                        kv.put(&key(nth), &[9; 64]).unwrap();
                    }
                    bytes(kv)
                })
            })
            .collect();
        let most = all.into_iter().max().unwrap();
        assert!(most * 10 <= first * 22, "{kind}: {first} to {most}");
    }
}
