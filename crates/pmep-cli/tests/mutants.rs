//! Goal: no input makes the model panic, or answer with what is no number. Method: whole inputs of
//! each kind are damaged at random, by a seed; a damaged one is refused with its place, or answered
//! with finite numbers. `PMEP_MUTANTS` counts them, `PMEP_SEED` begins. `-- --ignored` does a
//! million of each kind.

use std::path::Path;

use pmep::Device;
use pmep::device::Numbers;
use pmep::points::{Assumed, answer};
use pmep::sim::Sim;
use pmep::trace::binary::{self, Binary};
use pmep::trace::{Step, Trace};
use pmep_cli::table;

const POINTS: &str = "\
id,tier,figure,machine,media,dimms,interleaved,op,pattern,access_B,stride_B,threads,power_mW,metric,rep,value,note
a,C,sweep,ucsd-aep1,optane,6,1,load,rand,256,,4,15000,bandwidth,1,7,
b,C,sweep,ucsd-aep2,optane,1,0,ntstore,strided,64,16384,8,12500,bandwidth,1,1,
c,A,perma-seqwrite,perma-barlow-256,optane,8,1,store,seq,64,64,2,,bandwidth,1,3,numa near
d,A,fast20-10,ucsd,optane,1,0,\"store 128B halves, two passes\",region,32768,,1,,write_amplification,1,2,
e,A,vans-chase6,ucsd-aep2,optane,6,1,ptr-chase load,x,65536,,1,,latency_per_64B,1,200,
f,B,fast20-6-loaded,ucsd,optane,6,1,ntstore,seq; injected delay M300,64,,16,,loaded_latency,1,200,
g,B,fast20-6-mix,ucsd,optane,6,1,load+ntstore mix,read-write threads 12-4,,,16,,bandwidth,1,8000,
h,B,fast20-18,ucsd,optane-remote,6,1,mix R:W (3:1),,,,4,,bandwidth,1,2,
j,A,fast20-3,ucsd,optane,,,ntstore,hotspot,512,,1,,latency_p99.99,1,3,
k,A,fast20-14,ucsd,optane,1,0,ntstore,seq; fence interval=access_B,512,,1,,bandwidth,1,3,
l,B,fast20-16,ucsd,optane,6,1,load,rand; threads-per-DIMM spread 2 thread(s) per DIMM,256,,24,,bandwidth,1,3,
i,D,sweep,ucsd-aep1,optane,6,1,store+clwb,rand,128,,4,15000,EWR,1,0.5,
";

const TRACE: &str = "\
# a trace
0 0 nt 0x1000 256
10 1 r 4096 64
10 0 clwb 0x40 128
12.5 2 w 0xffffff00 4096
13 0 fence
20 1 r 8192 64
";

/// A generator of random numbers that is enough here.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % limit.max(1)
    }

    /// The text with one to four damages.
    fn damaged(&mut self, whole: &[u8]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().max(1));
            let word: &[u8] = match self.below(12) {
                0 => b"NaN",
                1 => b"inf",
                2 => b"-1",
                3 => b"0",
                4 => b"99999999999999999999999",
                5 => b"1e308",
                6 => b"\xff\xfe",
                7 => b",",
                8 => b"\n",
                9 => b"\"",
                _ => b"",
            };
            match self.below(4) {
                0 => bytes.truncate(at),
                1 if !bytes.is_empty() => bytes[at] = self.below(256) as u8,
                2 if at < bytes.len() => {
                    let end = (at + 1 + self.below(6)).min(bytes.len());
                    bytes.splice(at..end, word.iter().copied());
                }
                _ => {
                    bytes.splice(
                        at.min(bytes.len())..at.min(bytes.len()),
                        word.iter().copied(),
                    );
                }
            }
        }
        bytes
    }
}

fn variable(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The damaged inputs of each kind in a short run, and in a long one.
const SHORT: u64 = 4000;
const LONG: u64 = 1_000_000;

fn mutants(count: u64) -> (u64, Random) {
    let seed = variable("PMEP_SEED", 1);
    println!("PMEP_SEED={seed}");
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (variable("PMEP_MUTANTS", count), Random(seed))
}

fn numbers() -> Numbers {
    Device::named("optane-100").unwrap().numbers
}

/// Points, parsed from bytes.
fn parse(bytes: &[u8]) -> pmep::Result<Vec<table::Row>> {
    table::parse(Path::new("p.csv"), bytes, Assumed::default(), true)
}

/// Each row that is answered has a finite answer above 0.
fn answers_are_numbers(rows: &[table::Row], numbers: &Numbers) {
    for question in rows.iter().filter_map(|row| row.question.as_ref().ok()) {
        let said = answer(numbers, question);
        assert!(said.is_finite() && said > 0.0, "{question:?}: {said}");
    }
}

fn points(count: u64) {
    let numbers = numbers();
    let whole = parse(POINTS.as_bytes()).unwrap();
    assert!(whole.iter().all(|row| row.question.is_ok()));
    let (count, mut random) = mutants(count);
    let mut refused = 0;
    for _ in 0..count {
        match parse(&random.damaged(POINTS.as_bytes())) {
            Err(error) => {
                assert!(error.place.contains("line "), "{error}");
                refused += 1;
            }
            Ok(rows) => answers_are_numbers(&rows, &numbers),
        }
    }
    assert!(refused > count / 10 && refused < count);
}

fn devices(count: u64) {
    let text = Device::named("optane-100").unwrap().to_toml().unwrap();
    let rows = parse(POINTS.as_bytes()).unwrap();
    let (count, mut random) = mutants(count);
    let mut refused = 0;
    for _ in 0..count {
        let bytes = random.damaged(text.as_bytes());
        match Device::parse(&String::from_utf8_lossy(&bytes), "d.toml") {
            Err(error) => {
                // A number that is missing has no line.
                let is_missing = error.place == "d.toml" && error.cause.contains("is missing");
                let has_line = error.place.starts_with("d.toml, line ");
                assert!(has_line || is_missing, "{error}");
                refused += 1;
            }
            Ok(device) => answers_are_numbers(&rows, &device.numbers),
        }
    }
    assert!(refused > count / 10);
}

/// An access of a gibibyte takes the model a while, and is no other case.
const BYTES_MAX: u64 = 1 << 20;

/// Replays the steps until the first that is none; its error's place begins with `place`.
fn replayed(steps: impl Iterator<Item = pmep::Result<Option<Step>>>, place: &str) -> bool {
    let mut sim = Sim::new(&numbers(), &pmep::Machine::plain(6, 4096).unwrap());
    let mut is_whole = true;
    for step in steps {
        let done = match step {
            Ok(Some(Step::Access(access))) if access.bytes > BYTES_MAX => continue,
            Ok(Some(Step::Access(access))) => sim.access(&access).unwrap(),
            Ok(Some(Step::Fence { stream, time_ns })) => sim.fence(stream, time_ns).unwrap(),
            Ok(None) => continue,
            Err(error) => {
                assert!(error.place.starts_with(place), "{error}");
                is_whole = false;
                break;
            }
        };
        assert!(done.next_ns.is_finite() && done.next_ns >= 0.0);
    }
    let total = sim.total();
    assert!(total.media_written.is_finite() && total.media_read.is_finite());
    is_whole
}

fn traces(count: u64) {
    let (count, mut random) = mutants(count);
    let mut refused = 0;
    for _ in 0..count {
        let bytes = random.damaged(TRACE.as_bytes());
        let text = String::from_utf8_lossy(&bytes);
        let mut trace = Trace::default();
        let steps = text.lines().map(|line| trace.step(line));
        refused += u64::from(!replayed(steps, "line "));
    }
    assert!(refused > count / 10 && refused < count);
}

fn binary_traces(count: u64) {
    let mut whole = binary::header().to_vec();
    let mut text = Trace::default();
    for step in TRACE.lines().filter_map(|line| text.step(line).unwrap()) {
        whole.extend(binary::encode(&step));
    }
    let (count, mut random) = mutants(count);
    let mut refused = 0;
    for _ in 0..count {
        let bytes = random.damaged(&whole);
        let (head, rest) = bytes.split_at(bytes.len().min(binary::HEADER));
        let is_whole = match Binary::new(head) {
            Ok(mut trace) => {
                let steps = rest.chunks(binary::STEP);
                replayed(steps.map(|step| trace.step(step).map(Some)), "offset ")
            }
            Err(error) => {
                assert!(error.place.starts_with("offset "), "{error}");
                false
            }
        };
        refused += u64::from(!is_whole);
    }
    assert!(refused > count / 10 && refused < count);
}

#[test]
fn damaged_points() {
    points(SHORT);
}

#[test]
fn damaged_devices() {
    devices(SHORT / 4);
}

#[test]
fn damaged_traces() {
    traces(SHORT);
}

#[test]
fn damaged_binary_traces() {
    binary_traces(SHORT);
}

#[test]
#[ignore = "minutes, even optimised"]
fn a_million_of_each_kind() {
    points(LONG);
    devices(LONG);
    traces(LONG);
    binary_traces(LONG);
}
