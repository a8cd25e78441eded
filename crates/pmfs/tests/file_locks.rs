//! Goal: file locks of all kinds exclude as those of Linux do, whichever instance of the pool they
//! come through, and end with their owner. Method: random requests against a model that knows the
//! owner of every byte; waits in threads.

mod scratch;

use pmfs::{Error, LockClass, LockKind, LockOwner, LockRange, NewNode, ROOT_INO};
use pmfs_admin::Admin;
use scratch::Scratch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};
/// Bytes that the model follows.
const BYTES: u64 = 24;

fn bench() -> Scratch {
    Scratch::new(16 << 20)
}

const fn owner(class: LockClass, id: u64) -> LockOwner {
    LockOwner { class, id }
}

const POSIX: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

fn range(start: u64, end: u64) -> LockRange {
    LockRange { start, end }
}

fn never() -> bool {
    false
}

/// A generator of numbers, one seed one sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The owners of each byte, and their kinds of lock.
type Bytes = Vec<Vec<(usize, LockKind)>>;

/// Owners, each with the instance that it comes through. The last has the number of the third, in
/// the other instance: another owner.
const OWNERS: [(usize, LockOwner); 6] = [
    (0, owner(LockClass::Posix, 0)),
    (1, owner(LockClass::Posix, 0)),
    (0, owner(LockClass::File, 7)),
    (0, owner(LockClass::Flock, 7)),
    (1, owner(LockClass::Flock, 9)),
    (1, owner(LockClass::File, 7)),
];

fn is_flock(who: usize) -> bool {
    OWNERS[who].1.class == LockClass::Flock
}

/// A request at random: who, what for, and the bytes.
fn request(random: &mut Random) -> (usize, LockKind, LockRange) {
    let who = random.below(OWNERS.len() as u64) as usize;
    let (one, two) = (random.below(BYTES), random.below(BYTES));
    let range = if is_flock(who) {
        LockRange::WHOLE
    } else {
        range(one.min(two), one.max(two))
    };
    let kind = [LockKind::Read, LockKind::Write][random.below(2) as usize];
    (who, kind, range)
}

/// Two instances, several owners in each; each step is compared, and then what each owner would
/// meet.
#[test]
fn a_model_of_bytes() {
    let seed = std::env::var("PMFS_LOCK_SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    println!("PMFS_LOCK_SEED={seed}");
    let bench = bench();
    let instances = [bench.open(), bench.open()];
    let inos = [b"one", b"two"].map(|name| {
        let made = instances[0].create(ROOT_INO, name, &NODE);
        made.unwrap().ino
    });
    let mut model: Vec<Bytes> = vec![vec![Vec::new(); BYTES as usize]; inos.len()];
    let mut random = Random(seed);
    let (mut taken, mut refused) = (0, 0);
    for step in 0..20_000 {
        let file = random.below(2) as usize;
        let (who, kind, asked) = request(&mut random);
        let (instance, by) = (&instances[OWNERS[who].0], OWNERS[who].1);
        let bytes = &mut model[file][asked.start as usize..=asked.end.min(BYTES - 1) as usize];
        let blocked = bytes.iter().flatten().any(|&(other, held)| {
            other != who
                && is_flock(other) == is_flock(who)
                && (kind == LockKind::Write || held == LockKind::Write)
        });
        let conflict = instance.lock_conflict(inos[file], by, kind, asked).unwrap();
        assert_eq!(conflict.is_some(), blocked, "step {step}: F_GETLK");
        let gives_up = random.below(3) == 0;
        if gives_up {
            instance.unlock(inos[file], by, asked).unwrap();
        } else {
            match instance.lock(inos[file], by, kind, asked, 1) {
                Ok(()) if !blocked => taken += 1,
                Err(Error::WouldBlock) if blocked => {
                    refused += 1;
                    // flock gives up what it had.
                    let lost =
                        |held: &mut Vec<(usize, LockKind)>| held.retain(|held| held.0 != who);
                    bytes.iter_mut().filter(|_| is_flock(who)).for_each(lost);
                    continue;
                }
                answer => panic!("step {step}: {who} asked for {asked:?}: {answer:?}"),
            }
        }
        for held in bytes {
            held.retain(|held| held.0 != who);
            held.extend((!gives_up).then_some((who, kind)));
        }
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 2000 && refused > 2000);
    for (at, by) in OWNERS {
        for ino in inos {
            instances[at].unlock_all(ino, by).unwrap();
        }
    }
    assert_eq!(instances[0].details().file_locks, 0);
}

/// A lock given up wakes who waits for it; one whose holder is gone does not hold it up.
#[test]
fn waits_end() {
    let bench = bench();
    let (first, second) = (bench.open(), bench.open());
    let ino = first.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let all = LockRange::WHOLE;
    for dies in [false, true] {
        let third = bench.open();
        third.lock(ino, POSIX, LockKind::Write, all, 3).unwrap();
        let waited = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let since = Instant::now();
                let got = second.lock_wait(ino, POSIX, LockKind::Write, all, 2, &never);
                (got.is_ok(), since.elapsed())
            });
            thread::sleep(Duration::from_millis(60));
            if dies {
                // The instance goes as a process that is killed.
                drop(third);
            } else {
                third.unlock_all(ino, POSIX).unwrap();
                third.close().unwrap();
            }
            waiter.join().unwrap()
        });
        assert!(
            waited.0 && waited.1 >= Duration::from_millis(50),
            "{waited:?}"
        );
        assert!(matches!(
            first.lock(ino, POSIX, LockKind::Read, all, 1),
            Err(Error::WouldBlock)
        ));
        second.unlock_all(ino, POSIX).unwrap();
    }
    assert_eq!(first.details().file_locks, 0);
}

#[test]
fn a_wait_is_interrupted() {
    let bench = bench();
    let (first, second) = (bench.open(), bench.open());
    let ino = first.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    first
        .lock(ino, POSIX, LockKind::Read, range(3, 9), 1)
        .unwrap();
    let stop = AtomicBool::new(false);
    let answer = thread::scope(|scope| {
        let wanted = range(0, 100);
        let asked = || stop.load(Ordering::SeqCst);
        let second = &second;
        let waiter =
            scope.spawn(move || second.lock_wait(ino, POSIX, LockKind::Write, wanted, 2, &asked));
        thread::sleep(Duration::from_millis(40));
        stop.store(true, Ordering::SeqCst);
        waiter.join().unwrap()
    });
    assert!(matches!(answer, Err(Error::Interrupted)), "{answer:?}");
    // Nothing of the wait is left.
    assert_eq!(first.details().file_locks, 1);
    let conflict = second.lock_conflict(ino, POSIX, LockKind::Write, range(0, 100));
    let conflict = conflict.unwrap().unwrap();
    assert_eq!((conflict.range, conflict.pid), (range(3, 9), 1));
}

/// Three owners in a circle, on three files: one of them is told, and the others go on when it
/// gives up.
#[test]
fn circles_are_found() {
    let bench = bench();
    let instances = [bench.open(), bench.open(), bench.open()];
    let inos: Vec<u64> = (0..3)
        .map(|at| {
            let made = instances[0].create(ROOT_INO, format!("file-{at}").as_bytes(), &NODE);
            made.unwrap().ino
        })
        .collect();
    let all = LockRange::WHOLE;
    for at in 0..3 {
        let taken = instances[at].lock(inos[at], POSIX, LockKind::Write, all, 0);
        taken.unwrap();
    }
    let told = thread::scope(|scope| {
        let waits: Vec<_> = (0..3)
            .map(|at| {
                let (fs, next, own) = (&instances[at], inos[(at + 1) % 3], inos[at]);
                scope.spawn(move || {
                    let answer = fs.lock_wait(next, POSIX, LockKind::Write, all, 0, &never);
                    fs.unlock_all(own, POSIX).unwrap();
                    fs.unlock_all(next, POSIX).unwrap();
                    matches!(answer, Err(Error::Deadlock))
                })
            })
            .collect();
        waits
            .into_iter()
            .map(|wait| wait.join().unwrap())
            .filter(|&told| told)
            .count()
    });
    assert!((1..3).contains(&told), "{told} were told");
    assert_eq!(instances[0].details().file_locks, 0);
}

/// A full table in a full pool refuses, and loses nothing; giving up a part of a lock is never
/// refused.
#[test]
fn a_full_table() {
    let bench = bench();
    let (first, second) = (bench.open(), bench.open());
    let ino = first.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let mut len = 0;
    for piece in [1 << 20, 4096] {
        while first.write(ino, len, &vec![1; piece]).is_ok() {
            len += piece as u64;
        }
    }
    let mut count = 0;
    loop {
        match first.lock(
            ino,
            POSIX,
            LockKind::Write,
            range(count * 4, count * 4 + 2),
            1,
        ) {
            Ok(()) => count += 1,
            Err(Error::NoLocks) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(count > 30);
    // A call that splits a lock needs a record: some are kept for that, and then blocks of the
    // reserve are taken.
    for at in 0..count {
        first
            .unlock(ino, POSIX, range(at * 4 + 1, at * 4 + 1))
            .unwrap();
    }
    assert_eq!(first.details().file_locks, 2 * count);
    for at in [0, count / 2, count - 1] {
        for byte in [0, 2] {
            let kept = range(at * 4 + byte, at * 4 + byte);
            let refused = second.lock(ino, POSIX, LockKind::Read, kept, 2);
            assert!(matches!(refused, Err(Error::WouldBlock)));
        }
    }
    first.unlock(ino, POSIX, range(0, 3)).unwrap();
    second
        .lock(ino, POSIX, LockKind::Read, range(1, 1), 2)
        .unwrap();
    assert!(first.check().unwrap().is_clean());
    first.unlock_all(ino, POSIX).unwrap();
    second.unlock_all(ino, POSIX).unwrap();
    assert_eq!(first.details().file_locks, 0);
}
