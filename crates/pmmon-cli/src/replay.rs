//! `pmmon report` of a trace as `pmep replay` reads it: every access is in it, so that bytes are
//! exact, and media bytes are the device model's for the stream as it is. A stream is a thread.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use pm_cli::Failure;
use pmep::sim::Access as Step;
use pmep::trace::binary::{self, Binary, MAGIC};
use pmep::trace::{self, LINE_MAX, Trace};
use pmep::{BadInput, Op};
use pmmon::ledger::By;
use pmmon::{Access, Drained, Event, Exposure, Ledger, Origin, Sample};

const NAME: &str = "replay";
/// The process of all streams: no process has this number.
const PID: u32 = 0;
/// Samples that are told at once.
const BATCH: usize = 4096;

/// Whether a file is a trace, binary or as text. Recordings begin with a brace.
pub(crate) fn is_one(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    match file.read(&mut head) {
        Ok(1..) => head == MAGIC || head[0] == b'#' || head[0].is_ascii_digit(),
        _ => false,
    }
}

/// The ledger, and what was not told to it yet.
struct Told {
    ledger: Ledger,
    streams: BTreeSet<u32>,
    samples: Vec<Sample>,
    time_ns: u64,
}

impl Told {
    fn new(by: By) -> Self {
        let mut ledger = Ledger::new(by);
        ledger.take(&Event::Begin {
            schema: pmmon::event::SCHEMA,
            backend: NAME.to_owned(),
            reads: true,
            counts: true,
            trap_ns: 0.0,
            time_ns: 0,
        });
        ledger.take(&Event::Process {
            pid: PID,
            start_ns: 0,
            command: "trace".to_owned(),
            inner_pid: None,
            was_running: false,
        });
        Self {
            ledger,
            streams: BTreeSet::new(),
            samples: Vec::new(),
            time_ns: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        if self.streams.insert(step.stream) {
            let tid = step.stream;
            self.ledger.take(&Event::Thread { pid: PID, tid });
        }
        self.time_ns = self.time_ns.max(step.time_ns as u64);
        self.samples.push(Sample {
            tid: step.stream,
            time_ns: step.time_ns as u64,
            ip: 0,
            address: step.address,
            access: match step.op {
                Op::Load => Access::Read,
                _ => Access::Write,
            },
            bytes: u32::try_from(step.bytes).unwrap_or(u32::MAX),
            exposure: Exposure::Probability(1.0),
            origin: Origin::Mapped,
        });
        if self.samples.len() == BATCH {
            self.batch();
        }
    }

    fn batch(&mut self) {
        let samples = std::mem::take(&mut self.samples);
        self.ledger.take(&Event::Batch {
            time_ns: self.time_ns,
            samples,
            drained: Drained::default(),
        });
    }
}

/// Reads a trace.
pub(crate) fn read(path: &Path, by: By) -> Result<Ledger, Failure> {
    let shown = path.display();
    let broken = |error: &BadInput| Failure::whole(format!("{shown}: {error}"));
    let failed = |error: std::io::Error| {
        Failure::new(format!("{shown}: {error}"), "give a trace that can be read")
    };
    let mut told = Told::new(by);
    let mut take = |step| {
        if let trace::Step::Access(access) = step {
            told.take(&access);
        }
    };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let is_binary = file.fill_buf().map_err(failed)?.starts_with(&MAGIC);
    if is_binary {
        let mut head = [0; binary::HEADER];
        let count = fill(&mut file, &mut head).map_err(failed)?;
        let mut steps = Binary::new(&head[..count]).map_err(|error| broken(&error))?;
        let mut bytes = [0; binary::STEP];
        loop {
            let count = fill(&mut file, &mut bytes).map_err(failed)?;
            if count == 0 {
                break;
            }
            take(
                steps
                    .step(&bytes[..count])
                    .map_err(|error| broken(&error))?,
            );
        }
    } else {
        let (mut lines, mut line) = (Trace::default(), Vec::new());
        loop {
            line.clear();
            let mut limited = (&mut file).take(LINE_MAX as u64);
            if limited.read_until(b'\n', &mut line).map_err(failed)? == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            if let Some(step) = lines.step(&text).map_err(|error| broken(&error))? {
                take(step);
            }
        }
    }
    told.batch();
    let time_ns = told.time_ns;
    told.ledger.take(&Event::End { time_ns });
    Ok(told.ledger)
}

/// Fills `bytes` as far as the file has some. Returns how many it had.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match from.read(&mut bytes[count..])? {
            0 => break,
            read => count += read,
        }
    }
    Ok(count)
}
