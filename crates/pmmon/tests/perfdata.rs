//! Goal: files of perf are read field by field, and broken ones get an error with an offset and
//! never a panic. Method: files made here, also such as only a PMU would make, cut at each length,
//! and changed at random, seeded (`PMMON_SEED`, `PMMON_MUTATIONS`). Files of the kernel are
//! compared with `perf script` by the tests of `pmmon-cli`.

use std::env;
use std::io::Cursor;

use pmmon::account::Account;
use pmmon::perfdata::{BadPerfData, PerfData, PerfSample, read};
use pmmon::{Access, Drained, Exposure, Origin, Sample};

const ATTRIBUTES: u64 = 136;
const EACH: u64 = ATTRIBUTES + 16;
/// IDENTIFIER, IP, TID, TIME, ADDR, CPU, PERIOD.
const PEBS: u64 = 1 << 16 | 0b11_1000_1111 & !(1 << 9) & !(1 << 6);
/// `mem_inst_retired.all_stores` and `all_loads` of Intel's cores.
const STORES: u64 = 0x82d0;
const LOADS: u64 = 0x81d0;
const SAMPLE: u32 = 9;

fn words(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(2u16.to_le_bytes());
    bytes.extend((body.len() as u16 + 8).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn pebs(id: u64, time_ns: u64, period: u64) -> Vec<u8> {
    let thread = 8 << 32 | 7;
    let ip = 0x40_1000 + id;
    record(
        SAMPLE,
        &words(&[id, ip, thread, time_ns, 0x7f00_0000_0040, 3, period]),
    )
}

/// A file of two events, whose samples are numbered 100 and 200.
fn file(records: &[Vec<u8>]) -> Vec<u8> {
    let data: Vec<u8> = records.concat();
    let (ids, attributes) = (104, 104 + 16);
    let start = attributes + 2 * EACH;
    let mut bytes = b"PERFILE2".to_vec();
    let length = data.len() as u64;
    bytes.extend(words(&[
        104,
        EACH,
        attributes,
        2 * EACH,
        start,
        length,
        0,
        0,
        0,
        0,
        0,
        0,
    ]));
    bytes.extend(words(&[100, 200]));
    for (event, config) in [STORES, LOADS].into_iter().enumerate() {
        let mut one = words(&[4 | ATTRIBUTES << 32, config, 2503, PEBS]);
        one.resize(ATTRIBUTES as usize, 0);
        one.extend(words(&[ids + 8 * event as u64, 8]));
        bytes.extend(one);
    }
    bytes.extend(data);
    bytes
}

fn parsed(bytes: &[u8]) -> Result<PerfData, BadPerfData> {
    read(Cursor::new(bytes))
}

fn good() -> Vec<u8> {
    file(&[
        pebs(200, 30, 5107),
        record(2, &words(&[100, 17])),
        // AUXTRACE: eight bytes more follow, which look like a broken record.
        record(71, &words(&[8, 0, 0, 0, 0])),
        words(&[0]),
        pebs(100, 20, 2503),
        record(13, &words(&[4])),
        record(5, &words(&[20, 100, 0])),
    ])
}

#[test]
fn fields_are_read() {
    let data = parsed(&good()).unwrap();
    assert_eq!(data.events.len(), 2);
    let event = &data.events[0];
    assert_eq!((event.kind, event.config, event.period), (4, STORES, 2503));
    assert_eq!((data.lost, data.throttled), (21, 1));
    let sample = |event, ip, time_ns, period| PerfSample {
        event,
        thread: Some((7, 8)),
        time_ns: Some(time_ns),
        ip: Some(ip),
        address: Some(0x7f00_0000_0040),
        cpu: Some(3),
        period,
    };
    let expected = [
        sample(0, 0x40_1064, 20, 2503),
        sample(1, 0x40_10c8, 30, 5107),
    ];
    assert_eq!(data.samples, expected, "by time");
}

/// Goal: a PMU's samples give the number of accesses. Method: a simulated PMU counts the stores of
/// a loop, and takes one at the end of each period, which is drawn anew; the file goes through the
/// reader and the accounting, and one sample in four is lost.
#[test]
fn a_simulated_pmu_is_accounted() {
    let (mut random, mut records) = (Random(number("PMMON_SEED", 1)), Vec::new());
    let (mut stores, mut lost) = (0u64, 0u64);
    for turn in 0..20_000 {
        let period = [2503, 5107, 9973][random.below(3) as usize];
        stores += period;
        if turn % 4 == 3 {
            lost += 1;
        } else {
            records.push(pebs(100, turn, period));
        }
    }
    records.push(record(2, &words(&[100, lost])));
    let data = parsed(&file(&records)).unwrap();
    let samples = data.samples.iter().map(|one| Sample {
        tid: one.thread.unwrap().1,
        time_ns: one.time_ns.unwrap(),
        ip: one.ip.unwrap(),
        address: one.address.unwrap(),
        access: Access::Write,
        bytes: 64,
        exposure: Exposure::Probability(1.0 / one.period as f64),
        origin: Origin::Mapped,
    });
    let mut account = Account::new(0.0);
    let drained = Drained {
        lost: data.lost,
        ..Drained::default()
    };
    account.add(&samples.collect::<Vec<_>>(), &drained);
    let usage = account.usage(&[8], Access::Write);
    let truth = stores as f64;
    let off = usage.accesses.value / truth - 1.0;
    println!("{off:+.4} of {truth} stores");
    assert!(off.abs() < 0.02, "{off}");
    assert!(usage.bytes.low <= truth * 64.0 && truth * 64.0 <= usage.bytes.high);
}

#[test]
fn what_is_not_read_is_answered() {
    let mut pipe = good();
    pipe[8] = 16;
    let mut swapped = good();
    swapped[..8].reverse();
    let compressed = file(&[record(81, &[0; 16])]);
    let unknown = file(&[pebs(300, 1, 1)]);
    let short = file(&[record(SAMPLE, &words(&[100, 1]))]);
    for (bytes, says) in [
        (&pipe[..], "form of a pipe"),
        (&swapped, "other byte order"),
        (&compressed, "without -z"),
        (&unknown, "too short"),
        (&short, "too short"),
        (b"PERFILE2", "header is too short"),
        (b"", "header is too short"),
        (&[0; 200], "no file of perf"),
    ] {
        let error = parsed(bytes).unwrap_err().to_string();
        assert!(error.contains("offset "), "{error}");
        let empty = bytes.is_empty() && error.contains("no file of perf");
        assert!(error.contains(says) || empty, "{error}, not {says}");
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn broken_files_do_no_harm() {
    let good = good();
    for length in 0..good.len() {
        let Err(error) = parsed(&good[..length]) else {
            panic!("{length} of {} bytes are no file", good.len());
        };
        assert!(error.offset <= length as u64, "{error}");
    }
    let mutations = number("PMMON_MUTATIONS", 100_000);
    let seed = number("PMMON_SEED", 1);
    println!("PMMON_SEED={seed} PMMON_MUTATIONS={mutations}");
    let (mut random, mut refused) = (Random(seed), 0);
    for _ in 0..mutations {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => bytes[at] = [0, 0xff, 0x80, 1][random.below(4) as usize],
                _ => {
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].fill(0xff);
                }
            }
        }
        refused += u64::from(parsed(&bytes).is_err());
    }
    println!("{refused} of {mutations} refused");
    assert!(refused > mutations / 10 && refused < mutations, "{refused}");
}
