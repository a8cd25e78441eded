//! `pmep replay`

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pmep::sim::{FarStreams, MediaCount, Sim};
use pmep::trace::binary::{self, Binary, MAGIC};
use pmep::trace::{LINE_MAX, Step, Trace};
use pmep::{BadInput, Device, Result};
use pmep_cli::Replay;
use serde::Serialize;

use crate::{Outcome, fitting, predict};

/// Lines between two looks at the clock.
const PROGRESS_LINES: u64 = 1 << 20;
/// Streams that the text shows.
const SHOWN_MAX: u32 = 32;

#[derive(Serialize)]
struct Stream {
    stream: u32,
    #[serde(flatten)]
    count: MediaCount,
    write_ratio: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    lines: u64,
    time_ns: f64,
    total: MediaCount,
    write_ratio: Option<f64>,
    buffered_bytes: u64,
    /// Blocks that wear levelling moved.
    moves: u64,
    streams: Vec<Stream>,
}

fn fault(name: &str, error: &std::io::Error) -> BadInput {
    BadInput::new(name, error.to_string(), "give a trace that can be read")
}

/// Reads a line of at most [`LINE_MAX`] bytes. Returns whether there was one.
fn next_line(
    reader: &mut dyn BufRead,
    line: &mut Vec<u8>,
    trace: &Trace,
    name: &str,
) -> Result<bool> {
    line.clear();
    let mut limited = reader.take(LINE_MAX as u64 + 1);
    let read = limited
        .read_until(b'\n', line)
        .map_err(|error| fault(name, &error))?;
    if read > LINE_MAX {
        return Err(BadInput::new(
            format!("{name}, line {}", trace.lines() + 1),
            format!("more than {LINE_MAX} bytes"),
            "give a trace in text, a line an access",
        ));
    }
    Ok(read > 0)
}

/// Fills `bytes` as far as the input has some. Returns how many it had.
fn fill(reader: &mut dyn BufRead, bytes: &mut [u8], name: &str) -> Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match reader.read(&mut bytes[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(fault(name, &error)),
        }
    }
    Ok(count)
}

/// Tells of steps every now and then, if somebody looks on for more than two seconds.
struct Progress {
    begun: Instant,
    shows: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            begun: Instant::now(),
            shows: std::io::stderr().is_terminal(),
        }
    }

    fn tell(&self, count: u64, what: &str) {
        let is_time = self.shows && count.is_multiple_of(PROGRESS_LINES);
        if is_time && self.begun.elapsed() > Duration::from_secs(2) {
            eprintln!("{count} {what}");
        }
    }
}

/// An error with the trace's name before its place.
fn named(name: &str, error: BadInput) -> BadInput {
    BadInput {
        place: format!("{name}, {}", error.place),
        ..error
    }
}

/// Calls `each` for every step of a trace, in text or in the binary form. Returns the number of
/// lines, or of steps.
pub fn steps(path: &Path, mut each: impl FnMut(Step) -> Result<()>) -> Result<u64> {
    let name = path.display().to_string();
    let mut reader: Box<dyn BufRead> = match name.as_str() {
        "-" => Box::new(std::io::stdin().lock()),
        _ => {
            let file = File::open(path).map_err(|error| fault(&name, &error))?;
            Box::new(BufReader::with_capacity(1 << 18, file))
        }
    };
    let mut head = [0; binary::HEADER];
    let count = fill(&mut reader, &mut head[..MAGIC.len()], &name)?;
    if head[..count] == MAGIC {
        let more = fill(&mut reader, &mut head[count..], &name)?;
        return binary_steps(&mut reader, &head[..count + more], &name, each);
    }
    let mut reader = head[..count].chain(reader);
    let mut trace = Trace::default();
    let mut line = Vec::new();
    let progress = Progress::new();
    while next_line(&mut reader, &mut line, &trace, &name)? {
        let text = String::from_utf8_lossy(&line);
        if let Some(step) = trace.step(&text).map_err(|error| named(&name, error))? {
            each(step)?;
        }
        progress.tell(trace.lines(), "lines");
    }
    Ok(trace.lines())
}

fn binary_steps(
    reader: &mut dyn BufRead,
    head: &[u8],
    name: &str,
    mut each: impl FnMut(Step) -> Result<()>,
) -> Result<u64> {
    let mut trace = Binary::new(head).map_err(|error| named(name, error))?;
    let mut bytes = [0; binary::STEP];
    let mut count = 0;
    let progress = Progress::new();
    loop {
        let read = fill(reader, &mut bytes, name)?;
        if read == 0 {
            return Ok(count);
        }
        let step = trace.step(&bytes[..read]);
        each(step.map_err(|error| named(name, error))?)?;
        count += 1;
        progress.tell(count, "steps");
    }
}

fn print(report: &Report) {
    let mib = |bytes: f64| bytes / 1_048_576.0;
    out!("{} lines, {:.3} ms", report.lines, report.time_ns / 1e6);
    let row = |name: &str, count: &MediaCount| {
        out!(
            "{name:<10} asked {:.3} MiB read, {:.3} MiB written; media {:.3} MiB read, {:.3} MiB written",
            mib(count.read),
            mib(count.written),
            mib(count.media_read),
            mib(count.media_written)
        );
    };
    row("all", &report.total);
    for stream in report.streams.iter().take(SHOWN_MAX as usize) {
        row(&format!("stream {}", stream.stream), &stream.count);
    }
    if let Some(ratio) = report.write_ratio {
        out!("EWR {ratio:.3}");
    }
    if report.moves > 0 {
        out!("wear levelling moved a block {} times", report.moves);
    }
}

/// The streams on the other socket.
pub fn far(arguments: &Replay) -> Result<FarStreams> {
    match &arguments.far {
        Some(text) => FarStreams::parse(text),
        None => Ok(FarStreams::default()),
    }
}

/// Refuses memories that have no lines.
pub fn has_lines(device: &Device) -> Result<()> {
    match device.plain {
        None => Ok(()),
        Some(_) => Err(BadInput::new(
            "--device",
            format!("`{}` has no lines and buffers", device.name),
            "give optane-100 or optane-200",
        )),
    }
}

pub fn run(arguments: &Replay) -> Outcome {
    let device = fitting::load(&arguments.machine.device)?;
    let machine = predict::machine(&arguments.machine, &device)?;
    has_lines(&device)?;
    let mut sim = Sim::new(&device.numbers, &machine).with_far(far(arguments)?);
    let mut time_ns = 0.0_f64;
    let lines = steps(&arguments.trace, |step| {
        let done = match step {
            Step::Access(access) => sim.access(&access)?,
            Step::Fence { stream, time_ns } => sim.fence(stream, time_ns)?,
        };
        time_ns = time_ns.max(done.next_ns);
        Ok(())
    })?;
    let stream = |stream: u32| {
        let count = sim.count(stream);
        Stream {
            stream,
            count,
            write_ratio: count.write_ratio(),
        }
    };
    let streams = (0..sim.streams()).map(stream);
    let report = Report {
        lines,
        time_ns,
        total: sim.total(),
        write_ratio: sim.total().write_ratio(),
        buffered_bytes: sim.dirty() * pmep::geometry::LINE,
        moves: sim.moves(),
        streams: streams
            .filter(|it| it.count != MediaCount::default())
            .collect(),
    };
    match arguments.json {
        true => predict::print_json(&report)?,
        false => print(&report),
    }
    Ok(ExitCode::SUCCESS)
}
