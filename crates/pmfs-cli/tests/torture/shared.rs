//! The work that all workers do together, in ways that can be judged afterwards whatever the order
//! was.
//!
//! - Logs: each record that returned stands there once, one that did not at most once,
//!   none torn, each worker's in order.
//! - Names that one at a time can have (a file created, a directory made, a link, a rename without
//!   replacing). A worker that has one counts up a counter, each its own part of it: no count is
//!   lost.
//! - File locks: see [`guards`].
//! - Ranges of a file that are overwritten as a whole, and read without a tear.
//! - Tokens, moved and exchanged between directories: each stays in one place.
//! - A directory in which everything may happen.

use pmfs::RenameFlags;
use rustix::io::Errno;

use crate::face::{Done, Face};
use crate::guards;
use crate::model::content;
use crate::op::{COUNTERS, LOCKS, Op, PLACES, RECORD_BYTES, STAMPS, TOKENS, WORKERS};
use crate::worker::Worker;

const COUNTER_BYTES: usize = (WORKERS + 1) * 8;

pub fn log_path(log: usize) -> String {
    format!("logs/{log}")
}

fn lock_path(lock: usize) -> String {
    format!("locks/{lock}")
}

/// The file of a worker's own that becomes the name, or a second name of it.
fn own_path(worker: usize, lock: usize) -> String {
    format!("own/{worker}-{lock}")
}

pub fn counter_path(lock: usize) -> String {
    format!("counters/{lock}")
}

pub fn token_path(place: usize, token: usize) -> String {
    format!("tokens/{}/{token}", PLACES[place])
}

pub const STAMPED: &str = "stamps";
const RACE: &str = "race";

/// Makes what all share.
pub fn lay_out(face: &dyn Face) -> Done<()> {
    for dir in ["logs", "locks", "own", "counters", "tokens", RACE] {
        face.mkdir(dir, 0o755)?;
    }
    for log in 0..RECORD_BYTES.len() {
        face.create(&log_path(log), 0o644)?;
    }
    for lock in 0..COUNTERS {
        face.create(&counter_path(lock), 0o644)?;
        face.write(
            &counter_path(lock),
            counter_at(lock),
            &packed(&[0; WORKERS]),
        )?;
    }
    for lock in 0..LOCKS {
        for worker in 0..WORKERS {
            face.create(&own_path(worker, lock), brand(worker))?;
        }
    }
    for (place, name) in PLACES.iter().enumerate() {
        face.mkdir(&format!("tokens/{name}"), 0o755)?;
        for token in (0..TOKENS).filter(|token| token % PLACES.len() == place) {
            match token % 2 {
                0 => face.mkdir(&token_path(place, token), 0o755)?,
                _ => face.create(&token_path(place, token), 0o644)?,
            }
        }
    }
    guards::lay_out(face)?;
    face.create(STAMPED, 0o644)?;
    let end = STAMPS
        .iter()
        .map(|(at, len)| at + *len as u64)
        .max()
        .unwrap_or(0);
    face.write(STAMPED, 0, &vec![0; end as usize])
}

/// Permission bits that say whose a name is.
fn brand(worker: usize) -> u32 {
    worker as u32 + 1
}

/// Does an operation among all; what it came to, for [`crate::op::State::apply`].
pub fn call(worker: &Worker<'_>, op: &Op) -> Done<u64> {
    let face = worker.face.as_ref();
    let done = match *op {
        Op::Record { log } => return append(worker, log),
        Op::Acquire { lock } => return acquire(worker, lock),
        Op::Increment { lock } => increment(worker, lock),
        Op::Release { lock } => release(worker, lock),
        Op::Stamp { range } => {
            let (at, len) = STAMPS[range];
            let word = (worker.orders.worker as u64 + 1) << 48 | worker.state.number;
            face.write(STAMPED, at, &word.to_le_bytes().repeat(len / 8))
        }
        Op::MoveToken { token, from, to } => {
            let (from, to) = (token_path(from, token), token_path(to, token));
            allow(
                face.rename(&from, &to, RenameFlags::empty()),
                face.moved_before(),
            )
        }
        Op::ExchangeTokens { one, other } => {
            let (one, other) = (token_path(one.1, one.0), token_path(other.1, other.0));
            allow(
                face.rename(&one, &other, RenameFlags::EXCHANGE),
                face.moved_before(),
            )
        }
        Op::Race { what, racer, other } => race(face, what, racer, other),
        Op::ReadLog { log, place } => read_log(worker, log, place),
        Op::ReadCell { lock } => read_counter(face, lock).map(drop),
        Op::ReadStamp { range } => read_stamp(face, range),
        _ => return guards::call(worker, op),
    };
    done.map(|()| 0)
}

fn allow(done: Done<()>, errors: &[Errno]) -> Done<()> {
    match done {
        Err(errno) if errors.contains(&errno) => Ok(()),
        done => done,
    }
}

/// Finds out what became of the operation that the predecessor was in the middle of.
pub fn resolve(worker: &mut Worker<'_>, op: &Op) {
    match *op {
        Op::Record { log } => resolve_record(worker, log),
        Op::Acquire { lock } | Op::Release { lock } => {
            let mine = has(worker, lock)
                .unwrap_or_else(|errno| panic!("{}: {op:?}: {errno}", worker.name()));
            worker.state.lock = mine.then_some(lock);
        }
        Op::Guarded { guard, .. } => resolve(
            worker,
            &Op::Increment {
                lock: LOCKS + guard,
            },
        ),
        Op::Increment { lock } => {
            let me = worker.orders.worker;
            let is = counter(worker, lock)[me];
            let was = worker.state.counted[lock];
            assert!(
                is == was || is == was + 1,
                "{}: {op:?}: {is}, was {was}",
                worker.name()
            );
            worker.state.counted[lock] = is;
        }
        _ => {}
    }
}

fn counter(worker: &Worker<'_>, lock: usize) -> [u64; WORKERS] {
    let counter = read_counter(worker.face.as_ref(), lock);
    counter.unwrap_or_else(|errno| panic!("{}: counter {lock}: {errno}", worker.name()))
}

/// No count of this worker is lost.
pub fn verify_counters(worker: &Worker<'_>) {
    let me = worker.orders.worker;
    for lock in 0..COUNTERS {
        let (is, should) = (counter(worker, lock)[me], worker.state.counted[lock]);
        assert_eq!(is, should, "{}: counter {lock}", worker.name());
    }
}

/// Says whose it is, and which; the rest follows from that.
fn record(worker: usize, incarnation: u32, number: u64, len: usize) -> Vec<u8> {
    let head = (worker as u64 + 1) << 48 | u64::from(incarnation);
    let mut record = content(head ^ number.rotate_left(20), len);
    record[..8].copy_from_slice(&head.to_le_bytes());
    record[8..16].copy_from_slice(&number.to_le_bytes());
    record
}

/// Returns whose record it is, and its number.
///
/// # Errors
/// The fault, in words.
pub fn whose(bytes: &[u8]) -> Result<(usize, u64), String> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (head, number) = (word(0), word(8));
    let worker = (head >> 48).wrapping_sub(1) as usize;
    if worker >= WORKERS {
        return Err(format!("nobody's: {head:#x} {number:#x}"));
    }
    let should = record(worker, head as u32, number, bytes.len());
    match bytes
        .iter()
        .zip(&should)
        .position(|(is, should)| is != should)
    {
        None => Ok((worker, number)),
        Some(at) => Err(format!("torn at byte {at}: number {number} of {worker}")),
    }
}

/// Returns where the record ends, or before that where the face can't tell; 0 if the log is full.
fn append(worker: &Worker<'_>, log: usize) -> Done<u64> {
    let (me, incarnation) = (worker.orders.worker, worker.orders.incarnation);
    let path = log_path(log);
    let len = RECORD_BYTES[log];
    let size = worker.face.stat(&path)?.size;
    if size >= worker.orders.log_bytes_max {
        return Ok(0);
    }
    let before = worker.state.logs[log].end;
    let record = record(me, incarnation, worker.state.logs[log].next, len);
    let end = worker.face.append(&path, &record)?;
    // At least: others may have been in between.
    let end = end.unwrap_or(before.max(size) + len as u64);
    assert_eq!(
        end % len as u64,
        0,
        "{}: an append inside another",
        worker.name()
    );
    assert!(
        end > before,
        "{}: {end} is not after {before}",
        worker.name()
    );
    Ok(end)
}

/// Looks for the record in flight behind the last one.
fn resolve_record(worker: &mut Worker<'_>, log: usize) {
    let name = worker.name();
    let (me, len) = (worker.orders.worker, RECORD_BYTES[log]);
    let path = log_path(log);
    let next = worker.state.logs[log].next;
    let mut at = worker.state.logs[log].end;
    let mut found = None;
    loop {
        let bytes = worker.face.read(&path, at, len * 1024).expect("read");
        assert_eq!(bytes.len() % len, 0, "{name}: {path} ends inside a record");
        for record in bytes.chunks(len) {
            at += len as u64;
            let (worker, number) =
                whose(record).unwrap_or_else(|text| panic!("{name}: {path}: {text}"));
            // The one before, where the face could not tell its end.
            if worker == me && number + 1 == next && found.is_none() {
                continue;
            }
            if worker == me {
                assert_eq!(number, next, "{name}: {path}: a record from nowhere");
                assert_eq!(
                    found, None,
                    "{name}: {path}: record {number} stands there twice"
                );
                found = Some(at);
            }
        }
        if bytes.len() < len * 1024 {
            break;
        }
    }
    let log = &mut worker.state.logs[log];
    match found {
        Some(end) => log.end = end,
        None => {
            log.lost.push(next);
            log.end = at;
        }
    }
    log.next += 1;
}

/// Some records, wherever, are whole.
fn read_log(worker: &Worker<'_>, log: usize, place: u64) -> Done<()> {
    let len = RECORD_BYTES[log];
    let path = log_path(log);
    let records = worker.face.stat(&path)?.size / len as u64;
    // Half of the time the last ones.
    let first = match place % 2 {
        0 => records.saturating_sub(2),
        _ => place / 2 % (records + 1),
    };
    let bytes = worker.face.read(&path, first * len as u64, 6 * len)?;
    assert_eq!(
        bytes.len() % len,
        0,
        "{}: {path}: half a record",
        worker.name()
    );
    for (at, record) in bytes.chunks(len).enumerate() {
        if let Err(text) = whose(record) {
            panic!(
                "{}: {path}: record {}: {text}",
                worker.name(),
                first + at as u64
            );
        }
    }
    Ok(())
}

/// Returns whether the name is this worker's.
fn has(worker: &Worker<'_>, lock: usize) -> Done<bool> {
    let (me, face) = (worker.orders.worker, worker.face.as_ref());
    let stat = match face.stat(&lock_path(lock)) {
        Err(Errno::NOENT) => return Ok(false),
        stat => stat?,
    };
    Ok(match lock % 4 {
        2 => face.stat(&own_path(me, lock))?.ino == stat.ino,
        _ => stat.mode & 0o777 == brand(me),
    })
}

/// Tries to take the name; tells whether it could be had.
fn acquire(worker: &Worker<'_>, lock: usize) -> Done<u64> {
    let (me, face) = (worker.orders.worker, worker.face.as_ref());
    let (path, own) = (lock_path(lock), own_path(me, lock));
    let got = match lock % 4 {
        0 => face.create(&path, brand(me)),
        1 => face.mkdir(&path, brand(me)),
        2 => face.link(&own, &path),
        _ => face.rename(&own, &path, RenameFlags::NOREPLACE),
    };
    match got {
        Err(Errno::EXIST) => Ok(0),
        Err(errno) => Err(errno),
        Ok(()) => {
            assert!(has(worker, lock)?, "{}: {path} is another's", worker.name());
            Ok(1)
        }
    }
}

fn release(worker: &Worker<'_>, lock: usize) -> Done<()> {
    let (me, face) = (worker.orders.worker, worker.face.as_ref());
    let (path, own) = (lock_path(lock), own_path(me, lock));
    match lock % 4 {
        0 | 2 => face.unlink(&path),
        1 => face.rmdir(&path),
        _ => face.rename(&path, &own, RenameFlags::NOREPLACE),
    }
}

/// Returns where a counter stands in its file.
fn counter_at(lock: usize) -> u64 {
    match lock {
        0 => 0,
        // Across two blocks.
        2 => 4096 - 40,
        // Across two lines.
        _ => 40,
    }
}

fn check(words: &[u64; WORKERS]) -> u64 {
    let fold = |sum: u64, word: &u64| {
        (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    };
    words.iter().fold(1, fold)
}

fn packed(words: &[u64; WORKERS]) -> Vec<u8> {
    let words = words.iter().copied().chain([check(words)]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// The counts, by worker.
pub fn read_counter(face: &dyn Face, lock: usize) -> Done<[u64; WORKERS]> {
    let bytes = face.read(&counter_path(lock), counter_at(lock), COUNTER_BYTES)?;
    assert_eq!(bytes.len(), COUNTER_BYTES, "counter {lock}");
    let mut words = [0; WORKERS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    let sum = &bytes[WORKERS * 8..];
    assert_eq!(
        sum,
        check(&words).to_le_bytes(),
        "counter {lock} is torn: {words:?}"
    );
    Ok(words)
}

/// Counts up: half of the counters in place, the others by a new file renamed over the old one.
pub fn increment(worker: &Worker<'_>, lock: usize) -> Done<()> {
    let (me, face) = (worker.orders.worker, worker.face.as_ref());
    let mut counts = read_counter(face, lock)?;
    assert_eq!(
        counts[me],
        worker.state.counted[lock],
        "{}: counter {lock}",
        worker.name()
    );
    counts[me] += 1;
    let path = counter_path(lock);
    if lock.is_multiple_of(2) {
        face.write(&path, counter_at(lock), &packed(&counts))?;
    } else {
        let draft = format!("counters/draft-{me}");
        allow(face.unlink(&draft), &[Errno::NOENT])?;
        face.create(&draft, 0o644)?;
        face.write(&draft, counter_at(lock), &packed(&counts))?;
        face.rename(&draft, &path, RenameFlags::empty())?;
    }
    let now = read_counter(face, lock)?;
    assert_eq!(
        now,
        counts,
        "{}: counter {lock}: somebody else counts too",
        worker.name()
    );
    Ok(())
}

pub fn read_stamp(face: &dyn Face, range: usize) -> Done<()> {
    let (at, len) = STAMPS[range];
    let bytes = face.read(STAMPED, at, len)?;
    assert_eq!(bytes.len(), len, "range {range}");
    let torn = bytes.chunks(8).position(|word| *word != bytes[..8]);
    if let Some(torn) = torn {
        let (one, other) = (&bytes[..8], &bytes[torn * 8..torn * 8 + 8]);
        panic!(
            "{len} bytes at {at}: {one:?}, from byte {} on {other:?}",
            torn * 8
        );
    }
    Ok(())
}

fn race(face: &dyn Face, what: u64, racer: u64, other: u64) -> Done<()> {
    let path = format!("{RACE}/{racer}");
    let below = format!("{path}/{other}");
    let onto = format!("{RACE}/{other}");
    let lost = [
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTEMPTY,
        Errno::NOTDIR,
        Errno::ISDIR,
    ];
    let done = match what {
        0 => face.mkdir(&path, 0o755),
        1 => face.rmdir(&path),
        2 | 3 => face.create(&below, 0o644),
        4 => face.unlink(&below),
        5 => face.create(&path, 0o644),
        6 => face.unlink(&path),
        _ => face.rename(&path, &onto, RenameFlags::empty()),
    };
    allow(done, &lost)
}
