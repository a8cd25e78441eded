//! Goal: a flipped bit in a record is an error of its key alone, by every face, and a scrub finds
//! every one of 10,000. Method: bits are flipped in the heap's file, first one, then one in each
//! record; every face reads all keys.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use pmkv::{Kind, OnDamage, Store};
use pmlib::{Heap, Options};

use crate::model::{EACH, value};
use crate::worker::{Face, name};
use crate::{KINDS, Random, number};

const RECORDS: u64 = 10_000;
/// The worker whose values these are: none of a campaign.
const OWNER: u64 = 200;
/// The bytes of a record before its key.
const HEAD: usize = 24;

fn key(nth: u64) -> Vec<u8> {
    format!("d{nth}").into_bytes()
}

/// The first byte and the length of each record in the file. A record stands at a multiple of 16.
fn records(file: &File) -> Vec<(u64, u64)> {
    let mut all = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut all, 0).unwrap();
    let mut found = vec![(0, 0); RECORDS as usize];
    for at in (0..all.len() - 64).step_by(16) {
        let text = &all[at + HEAD..(at + HEAD + 6)];
        let digits = text.strip_prefix(b"d").unwrap_or_default();
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let most = count.count();
        // A digit may be the value's first byte.
        for count in 1..=most {
            let nth = std::str::from_utf8(&digits[..count]).unwrap();
            let nth: u64 = nth.parse().unwrap();
            let rest = &all[at + HEAD + 1 + count..];
            if nth < RECORDS && rest.starts_with(&value(OWNER, nth)) {
                let len = HEAD + 1 + count + value(OWNER, nth).len();
                found[nth as usize] = (at as u64, len as u64);
            }
        }
    }
    assert!(found.iter().all(|record| record.1 > 0));
    found
}

fn flip(file: &File, (at, len): (u64, u64), random: &mut Random) {
    let (byte, bit) = (at + random.below(len), random.below(8));
    let mut one = [0];
    file.read_exact_at(&mut one, byte).unwrap();
    file.write_all_at(&[one[0] ^ 1 << bit], byte).unwrap();
}

/// The keys that are not as they were put, as each face tells them: all tell the same.
fn told(path: &Path, kind: Kind) -> Vec<String> {
    let (owner, keys, kind) = (OWNER.to_string(), RECORDS.to_string(), kind.to_string());
    let words = ["read", path.to_str().unwrap(), &owner, &kind, &keys];
    let all = (0..EACH).map(|face| {
        let ran = Face::of(face).command(words).output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        let why = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{:?}: {said} {why}", Face::of(face));
        let is_line = |line: &&str| line.starts_with("missing ") || line.starts_with("damaged ");
        let lines: Vec<String> = said.lines().filter(is_line).map(str::to_owned).collect();
        assert!(said.contains("end\n"), "{said}");
        lines
    });
    let all: Vec<Vec<String>> = all.collect();
    for (face, lines) in (0..).zip(&all) {
        assert!(lines == &all[0], "{:?} says otherwise", Face::of(face));
    }
    all[0].clone()
}

/// How many damaged records a scrub finds.
fn scrubbed(engine: &dyn Store, on_damage: OnDamage) -> usize {
    let steps = engine.scrub(on_damage);
    steps.map(|step| step.unwrap().damaged.len()).sum()
}

fn all_said(what: &str) -> Vec<String> {
    (0..RECORDS).map(|nth| format!("{what} {nth}")).collect()
}

#[test]
fn damage_is_told_by_every_face() {
    KINDS.into_iter().for_each(damaged);
}

fn damaged(kind: Kind) {
    let seed = number("PMKV_FACES_SEED", u64::from(std::process::id()) * 77 + 1);
    println!("PMKV_FACES_SEED={seed}");
    let mut random = Random(seed.max(1));
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("heap");
    let heap = Heap::create(&path, 64 << 20, &Options::default()).unwrap();
    let engine = kind.open(&heap, name(kind)).unwrap();
    for nth in 0..RECORDS {
        engine.put(&key(nth), &value(OWNER, nth)).unwrap();
    }
    drop(engine);
    heap.close().unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let file = file.unwrap();
    let records = records(&file);

    let one = random.below(RECORDS);
    let place = records[one as usize];
    let mut before = vec![0; place.1 as usize];
    file.read_exact_at(&mut before, place.0).unwrap();
    flip(&file, place, &mut random);
    assert_eq!(told(&path, kind), [format!("damaged {one}")]);
    file.write_all_at(&before, place.0).unwrap();
    assert_eq!(told(&path, kind), [""; 0]);

    for &place in &records {
        flip(&file, place, &mut random);
    }
    assert!(told(&path, kind) == all_said("damaged"));
    let heap = Heap::open(&path, &Options::default()).unwrap();
    let engine = kind.open(&heap, name(kind)).unwrap();
    assert_eq!(scrubbed(&*engine, OnDamage::Keep), RECORDS as usize);
    assert_eq!(scrubbed(&*engine, OnDamage::Drop), RECORDS as usize);
    assert_eq!(scrubbed(&*engine, OnDamage::Keep), 0);
    drop(engine);
    heap.close().unwrap();
    assert!(told(&path, kind) == all_said("missing"));
    println!("{RECORDS} bits flipped, all found, {kind}");
}
