//! Several threads on the same files: appends, overwrites under readers, sizes that come and go.

use crate::crew::{Crew, Job, race};
use crate::random::{Random, bytes};
use pmfs::DataMode::{self, Atomic, Ordered};
use pmfs::{FallocateMode, Fs, Ino, SetAttr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const WRITERS: usize = 4;
/// Bytes that the files of appended records may have together.
const APPENDED_MAX: u64 = 48 << 20;

/// A record says whose it is, and which; the rest follows from that.
fn record(writer: u64, number: u64, len: usize) -> Vec<u8> {
    let mut record = bytes(writer << 48 | number, len);
    record[..8].copy_from_slice(&writer.to_le_bytes());
    record[8..16].copy_from_slice(&number.to_le_bytes());
    record
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn assert_is_record(is: &[u8], at: u64) {
    let (writer, number) = (word(is), word(&is[8..]));
    assert!(
        writer < WRITERS as u64 && number < 1 << 48 && is == record(writer, number, is.len()),
        "no whole record at {at}: it begins with {:?}",
        &is[..16]
    );
}

/// A file of records of one length.
struct Log {
    file: Ino,
    len: usize,
    /// The offsets that each writer was told.
    told: [Mutex<Vec<u64>>; WRITERS],
}

impl Log {
    fn append(&self, fs: &Fs, writer: usize) {
        let mut told = self.told[writer].lock().expect("no panic");
        let record = record(writer as u64, told.len() as u64, self.len);
        let (at, len) = fs.append(self.file, &record).expect("append");
        assert_eq!(len, self.len, "at {at}");
        assert_eq!(at % self.len as u64, 0, "an append inside another");
        told.push(at);
    }

    /// The last records, which somebody has just appended.
    fn read_tail(&self, fs: &Fs) {
        let size = fs.getattr(self.file).expect("getattr").size;
        let len = self.len as u64;
        assert_eq!(size % len, 0, "half a record");
        let at = (size / len).saturating_sub(2) * len;
        let mut buffer = vec![0; 6 * self.len];
        let got = fs.read(self.file, at, &mut buffer).expect("read");
        assert!(got as u64 >= size - at, "{got} bytes at {at} of {size}");
        assert_eq!(got % self.len, 0, "half a record");
        for (number, record) in buffer[..got].chunks(self.len).enumerate() {
            assert_is_record(record, at + (number * self.len) as u64);
        }
    }

    fn assert_complete(&self, fs: &Fs) {
        let size = fs.getattr(self.file).expect("getattr").size;
        let mut buffer = vec![0; size as usize];
        assert_eq!(
            fs.read(self.file, 0, &mut buffer).expect("read"),
            buffer.len()
        );
        let mut total = 0;
        for (writer, told) in self.told.iter().enumerate() {
            let told = told.lock().expect("no panic");
            total += told.len();
            for (number, &at) in told.iter().enumerate() {
                let should = record(writer as u64, number as u64, self.len);
                let is = &buffer[at as usize..at as usize + self.len];
                assert!(is == should, "record {number} of {writer} is not at {at}");
            }
        }
        assert_eq!(size, (total * self.len) as u64, "{total} records");
    }
}

fn appends(modes: &[DataMode]) {
    let crew = Crew::new(128 << 20, modes);
    let logs: Vec<Log> = [72, 1000, 4096, 5003]
        .iter()
        .map(|&len| Log {
            file: crew.file(&format!("log-{len}")),
            len,
            told: Default::default(),
        })
        .collect();
    let appended = AtomicU64::new(0);
    let (logs, appended) = (&logs, &appended);
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for writer in 0..WRITERS {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(writer as u64);
            while going.on() && appended.load(SeqCst) < APPENDED_MAX {
                let log = random.pick(logs);
                log.append(fs, writer);
                appended.fetch_add(log.len as u64, SeqCst);
            }
        }));
    }
    for reader in 0..2 {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(100 + reader);
            while going.on() {
                random.pick(logs).read_tail(fs);
            }
        }));
    }
    crew.run(jobs);
    for (log, fs) in logs
        .iter()
        .flat_map(|log| crew.instances.iter().map(move |fs| (log, fs)))
    {
        log.assert_complete(fs);
        let mut told = log.told.iter().map(|told| told.lock().expect("no panic"));
        assert!(told.any(|told| !told.is_empty()), "nobody appended");
    }
}

/// A range that one thread overwrites, always whole, with words that count up.
struct Range {
    file: Ino,
    at: u64,
    len: usize,
    began: AtomicU64,
    ended: AtomicU64,
}

impl Range {
    fn overwrite(&self, fs: &Fs) {
        let stamp = self.began.fetch_add(1, SeqCst) + 1;
        let data = stamp.to_le_bytes().repeat(self.len / 8);
        let written = fs.write(self.file, self.at, &data).expect("write");
        assert_eq!(written, self.len);
        self.ended.store(stamp, SeqCst);
    }

    fn read(&self, fs: &Fs) {
        let mut buffer = vec![0; self.len];
        let oldest = self.ended.load(SeqCst);
        let got = fs.read(self.file, self.at, &mut buffer).expect("read");
        let newest = self.began.load(SeqCst);
        let stamp = word(&buffer);
        let (at, len) = (self.at, self.len);
        assert_eq!(got, len);
        assert!(
            (oldest..=newest).contains(&stamp),
            "{len} bytes at {at}: {stamp}, not one of {oldest} to {newest}"
        );
        if let Some(torn) = buffer.chunks(8).position(|is| word(is) != stamp) {
            let is = word(&buffer[torn * 8..]);
            panic!(
                "{len} bytes at {at}: {stamp} before byte {}, then {is}",
                torn * 8
            );
        }
    }
}

/// Offsets and lengths: a word, a few lines, those across blocks, blocks, and some across blocks.
const RANGES: [(u64, usize); 9] = [
    (0, 8),
    (64, 64),
    (200, 256),
    (4096 - 24, 64),
    (8192, 4096),
    (16384, 12288),
    (32768 - 1000, 4096),
    (49152 + 2048, 12288),
    (512 << 10, 128 << 10),
];

fn overwrites(modes: &[DataMode]) {
    let crew = Crew::new(128 << 20, modes);
    // One file is of blocks, and one of large leaves.
    let files = [
        (crew.file("small"), 64 << 10),
        (crew.file("large"), 4 << 20),
    ];
    for (file, step) in files {
        for at in (0..4 << 20).step_by(step) {
            crew.fs().write(file, at, &vec![0; step]).expect("write");
        }
    }
    let ranges: Vec<Range> = files
        .iter()
        .flat_map(|&(file, _)| RANGES.iter().map(move |&range| (file, range)))
        .map(|(file, (at, len))| Range {
            file,
            at,
            len,
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
        .collect();
    let ranges = &ranges;
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for writer in 0..2 {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(writer);
            let own = ranges.iter().skip(writer as usize).step_by(2);
            let own: Vec<&Range> = own.collect();
            while going.on() {
                random.pick(&own).overwrite(fs);
            }
        }));
    }
    for reader in 0..4 {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(100 + reader);
            while going.on() {
                random.pick(ranges).read(fs);
            }
        }));
    }
    crew.run(jobs);
    for fs in &crew.instances {
        for range in ranges {
            assert!(range.ended.load(SeqCst) > 0, "never overwritten");
            range.read(fs);
        }
    }
}

/// The largest size that the files below get.
const SIZE_MAX: u64 = 80 << 10;

/// The only byte but zero that a file may have at an offset.
fn byte_at(file: Ino, at: u64) -> u8 {
    let mixed = (at ^ file << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 + ((mixed >> 32) % 255) as u8
}

fn pattern(file: Ino, at: u64, len: u64) -> Vec<u8> {
    (at..at + len).map(|at| byte_at(file, at)).collect()
}

fn assert_only_own(fs: &Fs, file: Ino, at: u64, len: u64) {
    let mut buffer = vec![0xff; len as usize];
    let got = fs.read(file, at, &mut buffer).expect("read");
    assert!(at + got as u64 <= SIZE_MAX || got == 0, "past any size");
    for (place, is) in (at..).zip(&buffer[..got]) {
        let should = byte_at(file, place);
        assert!(
            *is == 0 || *is == should,
            "byte {place} is {is}, which nobody wrote: 0 or {should}"
        );
    }
}

fn change_size_or_bytes(fs: &Fs, file: Ino, random: &mut Random) {
    let at = random.below(SIZE_MAX);
    let len = match random.below(3) {
        0 => random.below(100),
        1 => random.below(5000),
        _ => random.below(30_000),
    };
    let len = (1 + len).min(SIZE_MAX - at);
    let (keep, punch, zero) = (
        FallocateMode::KEEP_SIZE,
        FallocateMode::PUNCH_HOLE,
        FallocateMode::ZERO_RANGE,
    );
    match random.below(10) {
        0..4 => {
            let done = fs.write(file, at, &pattern(file, at, len));
            assert_eq!(done.expect("write"), len as usize);
        }
        4..6 => {
            let size = Some(at);
            let set = SetAttr {
                size,
                ..SetAttr::default()
            };
            fs.setattr(file, &set).expect("setattr");
        }
        6 => fs
            .fallocate(file, punch | keep, at, len)
            .expect("punch a hole"),
        7 => fs.fallocate(file, zero, at, len).expect("zero a range"),
        8 => fs
            .fallocate(file, FallocateMode::empty(), at, len)
            .expect("allocate"),
        _ => {
            let size = fs.getattr(file).expect("getattr").size;
            let len = len.min(SIZE_MAX - size.min(SIZE_MAX));
            let done = fs.write(file, size, &pattern(file, size, len));
            assert_eq!(done.expect("write"), len as usize);
        }
    }
}

fn sizes(modes: &[DataMode]) {
    // So small that a freed block soon belongs to somebody else.
    let crew = Crew::new(16 << 20, modes);
    let files: Vec<Ino> = (0..4).map(|n| crew.file(&format!("file-{n}"))).collect();
    let dir = crew.dir("others");
    let files = &files;
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for writer in 0..3 {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(writer);
            while going.on() {
                change_size_or_bytes(fs, *random.pick(files), &mut random);
            }
        }));
    }
    // Files that are written and removed: their blocks hold what no other file may show.
    jobs.push(Box::new(move |fs, going| {
        let mut random = Random::new(50);
        while going.on() {
            let name = format!("{}", random.below(8));
            let node = crate::crew::NODE;
            match race(fs.create(dir, name.as_bytes(), &node)) {
                Some(attr) => {
                    let data = bytes(random.next(), 1 + random.below(200_000) as usize);
                    fs.write(attr.ino, 0, &data).expect("write");
                }
                None => fs.unlink(dir, name.as_bytes()).expect("unlink"),
            }
        }
    }));
    for reader in 0..2 {
        jobs.push(Box::new(move |fs, going| {
            let mut random = Random::new(100 + reader);
            while going.on() {
                let (file, at) = (*random.pick(files), random.below(SIZE_MAX));
                let len = 1 + *random.pick(&[100, 5000, 60_000]);
                assert_only_own(fs, file, at, len);
            }
        }));
    }
    crew.run(jobs);
    for (file, fs) in files
        .iter()
        .flat_map(|&file| crew.instances.iter().map(move |fs| (file, fs)))
    {
        assert_only_own(fs, file, 0, 2 * SIZE_MAX);
    }
}

#[test]
fn appended_records_stay_whole_and_where_they_were_said_to_be() {
    appends(&[Atomic]);
}

#[test]
fn two_instances_append_to_the_same_files() {
    appends(&[Ordered, Atomic]);
}

#[test]
fn readers_see_overwrites_whole_and_in_their_order() {
    overwrites(&[Atomic]);
}

#[test]
fn readers_see_overwrites_of_two_instances_whole() {
    overwrites(&[Atomic, Ordered]);
}

#[test]
fn readers_see_no_byte_that_nobody_wrote() {
    sizes(&[Atomic]);
}

#[test]
fn readers_of_two_instances_see_no_byte_that_nobody_wrote() {
    sizes(&[Ordered, Atomic]);
}
