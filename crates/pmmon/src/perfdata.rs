//! Samples of perf's own files, as `perf record -o FILE` writes them.
//!
//! The form is that of the kernel's `tools/perf/Documentation/perf.data-file-format.txt`, and of
//! `perf_event.h` for records. Every offset and length is checked: a file says nothing of how much
//! memory is used, but by the samples that it really has. Parts that the accounting does not need
//! are left out; compressed files and those of a pipe are refused.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};

use thiserror::Error;

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"PERFILE2";
/// The same on a machine of the other byte order.
const MAGIC_SWAPPED: [u8; 8] = *b"2ELIFREP";
const HEADER_BYTES: u64 = 104;
/// Bytes of a file's header when it was written to a pipe.
const PIPE_HEADER_BYTES: u64 = 16;
/// Bounds of what is kept of a file's events.
const EVENTS_MAX: u64 = 4096;
const IDS_MAX: u64 = 1 << 16;
const ATTRIBUTES_MAX: u64 = 4096;
/// Bytes of `perf_event_attr` that are read: up to its flags.
const ATTRIBUTES_MIN: u64 = 64;

/// Kinds of records (`enum perf_event_type`, and perf's own from 64 on).
mod kind {
    pub const LOST: u32 = 2;
    pub const THROTTLE: u32 = 5;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
    pub const TRACING_DATA: u32 = 66;
    pub const AUXTRACE: u32 = 71;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Fields of samples (`enum perf_event_sample_format`).
mod field {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// A file that can not be read.
#[derive(Debug, Error)]
#[error("offset {offset}: {cause}")]
pub struct BadPerfData {
    /// Bytes from the file's start.
    pub offset: u64,
    /// The cause, and the way out.
    pub cause: String,
}

/// An event that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfEvent {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// The fixed period, or the frequency.
    pub period: u64,
    fields: u64,
}

/// A sample. Fields that were not recorded are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfSample {
    /// The event's place in [`PerfData::events`].
    pub event: usize,
    /// The process and the thread.
    pub thread: Option<(u32, u32)>,
    /// The clock is the recording's.
    pub time_ns: Option<u64>,
    /// The instruction.
    pub ip: Option<u64>,
    /// The data's address.
    pub address: Option<u64>,
    /// The processor.
    pub cpu: Option<u32>,
    /// Events that the sample stands for.
    pub period: u64,
}

/// A file's samples, by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfData {
    /// Events.
    pub events: Vec<PerfEvent>,
    /// Samples.
    pub samples: Vec<PerfSample>,
    /// Samples and other records that the kernel could not deliver.
    pub lost: u64,
    /// Times at which the kernel held samples back.
    pub throttled: u64,
}

struct File<R> {
    from: R,
    at: u64,
    end: u64,
}

impl<R: Read + Seek> File<R> {
    fn bad(&self, cause: impl Into<String>) -> BadPerfData {
        BadPerfData {
            offset: self.at,
            cause: cause.into(),
        }
    }

    fn failed(&self, error: &io::Error) -> BadPerfData {
        self.bad(format!("{error}; see whether the file may be read"))
    }

    fn seek(&mut self, to: u64) -> Result<(), BadPerfData> {
        if to > self.end {
            return Err(self.bad(format!("{to} is behind the end; the file was cut off")));
        }
        self.from
            .seek(SeekFrom::Start(to))
            .map_err(|error| self.failed(&error))?;
        self.at = to;
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), BadPerfData> {
        if buffer.len() as u64 > self.end - self.at {
            return Err(self.bad("the file was cut off; record it again"));
        }
        self.from
            .read_exact(buffer)
            .map_err(|error| self.failed(&error))?;
        self.at += buffer.len() as u64;
        Ok(())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(found.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(found.try_into().ok()?))
}

/// Reads a file.
///
/// # Errors
/// The offset at which the file is no file of perf, or one that is not read.
pub fn read(from: impl Read + Seek) -> Result<PerfData, BadPerfData> {
    let mut file = File {
        from,
        at: 0,
        end: 0,
    };
    let end = file.from.seek(SeekFrom::End(0));
    file.end = end.map_err(|error| file.failed(&error))?;
    file.seek(0)?;
    let mut head = [0; HEADER_BYTES as usize];
    let length = (HEADER_BYTES.min(file.end)) as usize;
    file.fill(&mut head[..length])?;
    file.at = 0;
    let number = |at| u64_at(&head, at).unwrap_or(0);
    if head[..8] == MAGIC_SWAPPED {
        return Err(file.bad("of a machine with the other byte order; read it there"));
    }
    if head[..8] != MAGIC {
        return Err(file.bad("no file of perf; take one of `perf record -o FILE`"));
    }
    if number(8) == PIPE_HEADER_BYTES {
        return Err(file.bad("the form of a pipe; record with `perf record -o FILE`"));
    }
    if number(8) < HEADER_BYTES || (length as u64) < HEADER_BYTES {
        return Err(file.bad("the header is too short; record it again"));
    }
    let mut data = PerfData::default();
    let ids = events(&mut file, &head, &mut data)?;
    file.seek(number(40))?;
    let end = number(40).checked_add(number(48));
    let end = end.filter(|end| *end <= file.end);
    let end = end.ok_or_else(|| file.bad("the data are cut off; record it again"))?;
    while file.at < end {
        record(&mut file, end, &ids, &mut data)?;
    }
    // Stable: samples of one time stay in the file's order.
    data.samples.sort_by_key(|sample| sample.time_ns);
    Ok(data)
}

/// Reads the events and the numbers by which samples name them.
fn events<R: Read + Seek>(
    file: &mut File<R>,
    head: &[u8],
    data: &mut PerfData,
) -> Result<HashMap<u64, usize>, BadPerfData> {
    let number = |at| u64_at(head, at).unwrap_or(0);
    let (each, start, bytes) = (number(16), number(24), number(32));
    if !(ATTRIBUTES_MIN + 16..=ATTRIBUTES_MAX).contains(&each) || bytes % each != 0 {
        return Err(file.bad(format!(
            "events of {each} bytes; take a perf of this machine"
        )));
    }
    if bytes / each > EVENTS_MAX || bytes == 0 {
        return Err(file.bad(format!(
            "{} events; this reads 1 to {EVENTS_MAX}",
            bytes / each
        )));
    }
    let mut ids = HashMap::new();
    for event in 0..bytes / each {
        file.seek(start.saturating_add(event * each))?;
        let mut attributes = vec![0; each as usize];
        file.fill(&mut attributes)?;
        let at = |at: usize| u64_at(&attributes, at).unwrap_or(0);
        data.events.push(PerfEvent {
            kind: u32_at(&attributes, 0).unwrap_or(0),
            config: at(8),
            period: at(16),
            fields: at(24),
        });
        let (ids_start, ids_bytes) = (at(each as usize - 16), at(each as usize - 8));
        if ids_bytes / 8 > IDS_MAX {
            return Err(file.bad(format!(
                "{} numbers of an event are too many",
                ids_bytes / 8
            )));
        }
        file.seek(ids_start)?;
        for _ in 0..ids_bytes / 8 {
            let mut id = [0; 8];
            file.fill(&mut id)?;
            ids.insert(u64::from_le_bytes(id), event as usize);
        }
    }
    Ok(ids)
}

fn record<R: Read + Seek>(
    file: &mut File<R>,
    end: u64,
    ids: &HashMap<u64, usize>,
    data: &mut PerfData,
) -> Result<(), BadPerfData> {
    let start = file.at;
    let mut head = [0; 8];
    file.fill(&mut head)?;
    let kind = u32_at(&head, 0).unwrap_or(0);
    let bytes = u64::from(u16::from_le_bytes([head[6], head[7]]));
    if bytes < 8 || start.saturating_add(bytes) > end {
        file.at = start;
        return Err(file.bad(format!(
            "a record of {bytes} bytes; the file is broken here"
        )));
    }
    let mut body = vec![0; bytes as usize - 8];
    file.fill(&mut body)?;
    let short = || BadPerfData {
        offset: start,
        cause: format!("a record of kind {kind} is too short; the file is broken here"),
    };
    match kind {
        kind::SAMPLE => {
            let found = sample(&body, ids, &data.events).ok_or_else(short)?;
            data.samples.push(found);
        }
        kind::LOST => {
            let lost = u64_at(&body, 8).ok_or_else(short)?;
            data.lost = data.lost.saturating_add(lost);
        }
        kind::LOST_SAMPLES => {
            let lost = u64_at(&body, 0).ok_or_else(short)?;
            data.lost = data.lost.saturating_add(lost);
        }
        kind::THROTTLE => data.throttled += 1,
        kind::COMPRESSED | kind::COMPRESSED2 => {
            file.at = start;
            return Err(file.bad("compressed records; record without -z"));
        }
        // More data follow these records.
        kind::AUXTRACE => {
            let more = u64_at(&body, 0).ok_or_else(short)?;
            file.seek(file.at.saturating_add(more))?;
        }
        kind::TRACING_DATA => {
            let more = u64::from(u32_at(&body, 0).ok_or_else(short)?);
            file.seek(file.at.saturating_add(more.next_multiple_of(8)))?;
        }
        _ => {}
    }
    Ok(())
}

/// Takes fields of a sample one after the other.
struct Fields<'a> {
    body: &'a [u8],
    at: usize,
    has: u64,
}

impl Fields<'_> {
    /// The field, `Some(None)` if samples do not have it, `None` if the record is too short.
    fn next(&mut self, field: u64) -> Option<Option<u64>> {
        if self.has & field == 0 {
            return Some(None);
        }
        let found = u64_at(self.body, self.at)?;
        self.at += 8;
        Some(Some(found))
    }
}

fn low(value: u64) -> u32 {
    (value & u64::from(u32::MAX)) as u32
}

/// Reads a sample; `None` if it is too short, or no event's.
fn sample(body: &[u8], ids: &HashMap<u64, usize>, events: &[PerfEvent]) -> Option<PerfSample> {
    let event = match events {
        [_] => 0,
        // With several events, all samples have their number at one place.
        [first, ..] => {
            let before = [field::IP, field::TID, field::TIME, field::ADDR];
            let before = before
                .iter()
                .filter(|one| first.fields & **one != 0)
                .count();
            let at = match first.fields & (field::IDENTIFIER | field::ID) {
                0 => return None,
                has if has & field::IDENTIFIER != 0 => 0,
                _ => before * 8,
            };
            *ids.get(&u64_at(body, at)?)?
        }
        [] => return None,
    };
    let of = events.get(event)?;
    let mut fields = Fields {
        body,
        at: 0,
        has: of.fields,
    };
    fields.next(field::IDENTIFIER)?;
    let ip = fields.next(field::IP)?;
    let thread = fields.next(field::TID)?;
    let time_ns = fields.next(field::TIME)?;
    let address = fields.next(field::ADDR)?;
    fields.next(field::ID)?;
    fields.next(field::STREAM_ID)?;
    let cpu = fields.next(field::CPU)?;
    let period = fields.next(field::PERIOD)?;
    Some(PerfSample {
        event,
        thread: thread.map(|both| (low(both), low(both >> 32))),
        time_ns,
        ip,
        address,
        cpu: cpu.map(low),
        period: period.unwrap_or(of.period),
    })
}
