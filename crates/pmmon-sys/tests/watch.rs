//! Goal: the bytes that `watch` tells of a thread are those it has written, within the interval.
//! Method: a thread of this process makes stores whose number is known, to a mapped file in place
//! of persistent memory, while it is watched.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pmmon::account::{Account, Usage};
use pmmon::{Access, Sampler, Thread, Tid};
use pmmon_sys::{ACCESS_BYTES, Kind, Mapping, Op, Watch, WatchOptions, calibrate, run, supported};

const FILE_BYTES: u64 = 1 << 20;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The cost of a trap, or why nothing can be watched here.
fn trap_ns() -> Option<f64> {
    match calibrate() {
        Ok(cost) => Some(cost),
        Err(error) => {
            eprintln!("skipped: hardware breakpoints: {error}");
            None
        }
    }
}

/// Where this process has the file mapped.
fn region(path: &str) -> std::ops::Range<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps
        .lines()
        .find(|line| line.ends_with(path))
        .expect("the mapping");
    let (start, rest) = line.split_once('-').expect("a range");
    let end = rest.split(' ').next().expect("an end");
    let address = |text| u64::from_str_radix(text, 16).expect("an address");
    address(start)..address(end)
}

/// Random accesses until the end, which are counted.
fn work(mapping: &Mapping, op: Op, bytes: u32, end: &AtomicBool, count: &AtomicU64) {
    let mut random = Random(42);
    let mut offsets = vec![0; 4096];
    while !end.load(Ordering::Acquire) {
        for offset in &mut offsets {
            let place = random.next() % (FILE_BYTES / u64::from(bytes));
            *offset = place as u32 * bytes;
        }
        run(mapping, op, bytes, &offsets);
        count.fetch_add(4096, Ordering::Release);
    }
}

/// A thread that accesses the file until it is told to end, as the monitor sees it, the truth, and
/// the fewest words that were watched at once.
fn watched(op: Op, bytes: u32, trap_ns: f64, time: Duration) -> (Usage, f64, u32) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(FILE_BYTES).expect("its length");
    let mapping = Mapping::new(file.as_file(), FILE_BYTES as usize).expect("a mapping");
    let pid = std::process::id();
    let tid = AtomicU32::new(0);
    let (go, end, count) = (
        AtomicBool::new(false),
        AtomicBool::new(false),
        AtomicU64::new(0),
    );
    let writes = matches!(op, Op::Write(_));
    let mut watch = Watch::new(WatchOptions {
        reads: !writes,
        ..WatchOptions::default()
    });
    let path = file.path().to_str().expect("a path in UTF-8");
    watch.regions(pid, &[region(path)]).expect("own memory");
    let mut account = Account::new(trap_ns);
    let mut fewest = u32::MAX;
    thread::scope(|scope| {
        scope.spawn(|| {
            tid.store(
                rustix::thread::gettid().as_raw_nonzero().get() as Tid,
                Ordering::Release,
            );
            while !go.load(Ordering::Acquire) {
                thread::yield_now();
            }
            work(&mapping, op, bytes, &end, &count);
        });
        while tid.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        let thread = Thread {
            pid,
            tid: tid.load(Ordering::Acquire),
        };
        watch.follow(thread).expect("own threads may be watched");
        go.store(true, Ordering::Release);
        let begin = Instant::now();
        let mut samples = Vec::new();
        while begin.elapsed() < time {
            thread::sleep(Duration::from_millis(5));
            let drained = watch.drain(&mut samples);
            fewest = drained
                .arms
                .iter()
                .fold(fewest, |few, arm| few.min(arm.beside));
            account.add(&samples, &drained);
            samples.clear();
        }
        end.store(true, Ordering::Release);
    });
    let tid = tid.into_inner();
    watch.leave(tid);
    let mut samples = Vec::new();
    let drained = watch.drain(&mut samples);
    assert_eq!(drained.ended, [tid]);
    account.add(&samples, &drained);
    let access = if writes { Access::Write } else { Access::Read };
    let truth = count.into_inner() as f64 * f64::from(bytes);
    (account.usage(&[tid], access), truth, fewest)
}

#[test]
fn watched_bytes_are_those_written() {
    let Some(trap_ns) = trap_ns() else { return };
    let seconds = std::env::var("PMMON_SECONDS").map_or(1.0, |text| text.parse().expect("seconds"));
    println!("a trap costs {trap_ns:.0} ns");
    let kinds = [
        Op::Write(Kind::Temporal),
        Op::Write(Kind::NonTemporal),
        Op::Read,
    ];
    let whole = std::env::var_os("PMMON_MATRIX").is_some();
    let mut outside = 0;
    let mut rows = 0;
    for op in kinds {
        for bytes in ACCESS_BYTES {
            if !supported(op, bytes) || !(whole || matches!(bytes, 8 | 64 | 256)) {
                continue;
            }
            let (usage, truth, fewest) =
                watched(op, bytes, trap_ns, Duration::from_secs_f64(seconds));
            let figure = usage.bytes;
            let off = figure.value / truth - 1.0;
            let half = (figure.high - figure.low) / 2.0 / truth;
            let holds = figure.low <= truth && truth <= figure.high;
            println!(
                "{op:?} {bytes}: off {off:+.4}, half an interval {half:.4}, {} hits, {holds}",
                figure.hits
            );
            rows += 1;
            outside += u32::from(!holds);
            let pieces = bytes.min(64);
            let sizes: Vec<u32> = usage.sizes.keys().copied().collect();
            assert_eq!(sizes, [pieces], "{op:?} of {bytes} bytes");
            assert!(figure.hits > 20, "{figure:?}");
            // A word of this megabyte is hit 5,000 times a second and more.
            assert!(bytes < 256 || op != Op::Read || fewest < 4, "{fewest}");
            // Five half intervals are no matter of luck.
            assert!(
                off.abs() < 5.0 * half,
                "{op:?} of {bytes} bytes: {figure:?} for {truth}"
            );
        }
    }
    println!("{outside} of {rows} outside");
}

/// Goal: a thread that has ended is told as such, and nobody is followed without regions.
#[test]
fn who_is_gone_is_told() {
    let mut watch = Watch::new(WatchOptions::default());
    let pid = std::process::id();
    let nobody = Thread { pid, tid: pid };
    assert!(watch.follow(nobody).is_err());
    let page = 0x1000..0x2000;
    watch
        .regions(pid, std::slice::from_ref(&page))
        .expect("own memory");
    let gone = Thread {
        pid,
        tid: 0x3fff_ffff,
    };
    let lacking = watch.follow(gone).expect_err("no such thread");
    assert!(lacking.gone, "{lacking}");
    let missing = watch
        .regions(0x3fff_ffff, &[])
        .expect_err("no such process");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}
