//! A heap's structures, shown as they stand: also of one that is damaged, or that others change.

use std::ops::Range;

use pmlib_format::chunk::{
    CLASS_BYTES, KIND_FREE, KIND_META, KIND_OBJECTS, KIND_RUN, bitmap_words, first_place, places,
};
use pmlib_format::header::{
    COPY_OFFSET, ERA_OFFSET, NAMES_OFFSET, ROOT_OFFSET, RUN_OFFSET, SPANS_OFFSET, STATE_ACTIVE,
    STATE_CLEAN, STATE_OFFSET,
};
use pmlib_format::lane::CLOSED_OFFSET;
use pmlib_format::{CHUNK_BYTES, LINE_BYTES};

use crate::error::{Error, Result};
use crate::findings::{Inspector, is_possible, named_roots};
use crate::lane::superseded_of;
use crate::packed::{Entry, Ticket, checked_value, closed_of, done_of, root_of};
use crate::record::{Act, steps};
use crate::space::CLASSES;

/// Bytes that one call shows at most.
const SHOWN_BYTES_MAX: u64 = 1 << 20;

/// Fields of a structure, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumped(pub Vec<(&'static str, Value)>);

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count, a stamp, a size.
    Number(u64),
    /// A byte offset, or bits.
    Address(u64),
    /// A word, a name, or what is wrong.
    Text(String),
    /// Structures of one kind.
    List(Vec<Dumped>),
}

/// The part of a heap to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header, the geometry, the spans, the roots.
    Header,
    /// The first line of each lane.
    Lanes,
    /// A lane with its records.
    Lane(u32),
    /// All chunks; neighbours that are alike are one.
    Chunks,
    /// A chunk with its objects.
    Chunk(u64),
    /// Named roots, with their types.
    Roots,
    /// Bytes, in hexadecimal.
    Bytes(Range<u64>),
}

impl Dumped {
    fn number(&mut self, name: &'static str, value: impl Into<u64>) {
        self.0.push((name, Value::Number(value.into())));
    }

    fn address(&mut self, name: &'static str, value: u64) {
        self.0.push((name, Value::Address(value)));
    }

    fn text(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, Value::Text(value.into())));
    }

    fn list(&mut self, name: &'static str, value: Vec<Dumped>) {
        self.0.push((name, Value::List(value)));
    }

    /// A number, or that it is damaged.
    fn checked(&mut self, name: &'static str, value: Option<u64>, word: u64) {
        match value {
            Some(value) => self.number(name, value),
            None => self.text(name, format!("damaged: {word:#018x}")),
        }
    }
}

impl Inspector {
    /// Shows a part of the heap.
    ///
    /// # Errors
    /// `NoSuch`: there is no such lane, chunk or byte; `Lost`.
    pub fn dump(&self, part: &Part) -> Result<Dumped> {
        match part {
            Part::Header => Ok(self.header()),
            Part::Lanes => {
                let mut dumped = Dumped::default();
                let lanes = 0..self.core.header.lanes;
                let shown = lanes.map(|lane| self.lane(lane).0).collect();
                dumped.list("lanes", shown);
                Ok(dumped)
            }
            Part::Lane(lane) => self.lane_with_records(*lane),
            Part::Chunks => Ok(self.chunks()),
            Part::Chunk(chunk) => self.chunk(*chunk),
            Part::Roots => Ok(self.roots()),
            Part::Bytes(bytes) => self.bytes(bytes),
        }
    }

    fn header(&self) -> Dumped {
        let (core, header) = (&self.core, &self.core.header);
        let mem = &core.mem;
        let mut dumped = Dumped::default();
        dumped.text(
            "magic",
            String::from_utf8_lossy(&header.magic.to_le_bytes()),
        );
        dumped.number("version", header.version);
        let uuid: String = header
            .uuid
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        dumped.text("uuid", uuid);
        dumped.address("features compat", header.features_compat);
        dumped.address("features ro", header.features_ro);
        dumped.address("features incompat", header.features_incompat);
        dumped.number("chunk bytes", CHUNK_BYTES);
        dumped.number("chunks", core.spans.chunks());
        dumped.number("bytes", core.spans.chunks() * CHUNK_BYTES);
        dumped.number("file bytes", mem.len());
        dumped.number("lanes", header.lanes);
        dumped.number("lane bytes", header.lane_bytes);
        dumped.number("lock lines", header.lock_lines);
        dumped.number("slots", header.slots);
        let [run, state] = [RUN_OFFSET, STATE_OFFSET].map(|place| {
            let word = mem.load(place);
            (checked_value(word, place), word)
        });
        dumped.checked("run", run.0.map(u64::from), run.1);
        match mem.load(ERA_OFFSET) {
            0 => {}
            word => dumped.checked("era", checked_value(word, ERA_OFFSET).map(u64::from), word),
        }
        dumped.text(
            "state",
            match state.0 {
                Some(STATE_CLEAN) => "clean".to_owned(),
                Some(STATE_ACTIVE) => "in use, or left by a crash".to_owned(),
                Some(other) => format!("unknown: {other}"),
                None => format!("damaged: {:#018x}", state.1),
            },
        );
        for (name, place) in [("root", ROOT_OFFSET), ("named roots", NAMES_OFFSET)] {
            let word = mem.load(place);
            match root_of(word) {
                Some(offset) => dumped.address(name, offset),
                None => dumped.text(name, format!("damaged: {word:#018x}")),
            }
        }
        dumped.address("volatile area", core.places.shared);
        dumped.list("spans", self.spans());
        let faults = self.found.iter().map(|finding| {
            let mut fault = Dumped::default();
            fault.text("fault", finding.to_string());
            fault
        });
        dumped.list("faults", faults.collect());
        dumped
    }

    fn spans(&self) -> Vec<Dumped> {
        let core = &self.core;
        let all = core.spans.iter().enumerate().map(|(index, span)| {
            let mut shown = Dumped::default();
            shown.number("first chunk", span.first);
            shown.number("chunks", span.chunks);
            shown.number("own chunks", span.meta_chunks);
            shown.address("table", span.table);
            let place = SPANS_OFFSET + index as u64 * 8;
            let [word, copy] = [place, COPY_OFFSET + place].map(|at| core.mem.load(at));
            if word != copy {
                shown.text("copy", format!("differs: {copy:#018x}"));
            }
            shown
        });
        all.collect()
    }

    /// A lane by its first line, and the stamp up to which it is closed.
    fn lane(&self, lane: u32) -> (Dumped, u64) {
        let place = self.core.places.lane(lane);
        let word = self.core.mem.load(place + CLOSED_OFFSET);
        let mut shown = Dumped::default();
        shown.number("lane", lane);
        shown.address("offset", place);
        shown.checked("closed", closed_of(word), word);
        (shown, closed_of(word).unwrap_or(0))
    }

    fn lane_with_records(&self, lane: u32) -> Result<Dumped> {
        let core = &self.core;
        if lane >= core.header.lanes {
            return Err(out_of("lane", lane.into(), core.header.lanes.into()));
        }
        let (mut dumped, closed) = self.lane(lane);
        let (mut records, mut record) = (Vec::new(), Vec::new());
        for place in core.places.ring(lane).step_by(LINE_BYTES as usize) {
            let Some(stamp) = core.read_record(lane, place, &mut record)? else {
                continue;
            };
            let is_whole = core.key.hash(place, &record[1..]) == record[0];
            let mut shown = Dumped::default();
            shown.address("offset", place);
            shown.number("stamp", stamp);
            shown.number("words", record.len() as u64);
            shown.number("done", done_of(record[3], stamp, record[2]).unwrap_or(0));
            let state = match (is_whole, stamp <= closed) {
                (false, _) => "torn, or overwritten",
                (true, true) => "closed",
                (true, false) => "open",
            };
            shown.text("state", state);
            if is_whole {
                let tickets = superseded_of(&record).iter().map(|&word| Ticket::of(word));
                let named = tickets.map(|ticket| {
                    let mut shown = Dumped::default();
                    shown.number("lane", ticket.lane);
                    shown.number("stamp", ticket.stamp);
                    shown
                });
                shown.list("supersedes", named.collect());
                shown.list("entries", self.entries(&record)?);
            }
            records.push(shown);
        }
        dumped.list("records", records);
        Ok(dumped)
    }

    fn entries(&self, record: &[u64]) -> Result<Vec<Dumped>> {
        let mut outside = Vec::new();
        let Some(entries) = self.core.entries_of(record, &mut outside)? else {
            let mut shown = Dumped::default();
            shown.text("kind", "elsewhere, and overwritten");
            return Ok(vec![shown]);
        };
        let all = steps(entries).map(|step| {
            let mut shown = Dumped::default();
            let Ok(step) = step else {
                shown.text("kind", "impossible");
                return shown;
            };
            let (kind, value) = match step.act {
                Act::Write(_) => ("write", None),
                Act::Set(bits) => ("set bits", Some(bits)),
                Act::Clear(bits) => ("clear bits", Some(bits)),
                Act::Fresh(..) => ("new object", None),
            };
            shown.text("kind", kind);
            shown.address("offset", step.offset);
            shown.number("bytes", step.bytes());
            match (value, step.act) {
                (Some(bits), _) => shown.address("bits", bits),
                (None, Act::Write(words)) => shown.text("words", hex_words(words)),
                _ => {}
            }
            shown
        });
        Ok(all.collect())
    }

    fn chunks(&self) -> Dumped {
        let mut runs: Vec<(Range<u64>, u64, usize, bool)> = Vec::new();
        for span in self.core.spans.iter() {
            let (mut chunk, end) = (span.first, span.first + span.chunks);
            while chunk < end {
                let entry = Entry::of(self.core.mem.load(span.entry(chunk)));
                let can_be = is_possible(span, chunk, entry);
                let chunks = match entry.kind {
                    KIND_RUN | KIND_OBJECTS if can_be => entry.chunks,
                    KIND_META if can_be => span.meta_chunks.min(end - chunk),
                    _ => 1,
                };
                let class = if entry.kind == KIND_OBJECTS {
                    entry.class
                } else {
                    0
                };
                let joins = !matches!(entry.kind, KIND_RUN | KIND_META) && can_be;
                match runs.last_mut() {
                    Some((last, kind, other, true))
                        if joins && (*kind, *other) == (entry.kind, class) =>
                    {
                        last.end = chunk + chunks;
                    }
                    _ => runs.push((chunk..chunk + chunks, entry.kind, class, can_be)),
                }
                chunk += chunks;
            }
        }
        let all = runs.into_iter().map(|(chunks, kind, class, can_be)| {
            let mut shown = Dumped::default();
            shown.number("chunk", chunks.start);
            shown.number("chunks", chunks.end - chunks.start);
            shown.text("kind", kind_of(kind, can_be));
            if can_be && kind == KIND_OBJECTS {
                shown.number("object bytes", CLASS_BYTES[class]);
            }
            shown
        });
        let mut dumped = Dumped::default();
        dumped.list("chunks", all.collect());
        dumped
    }

    fn chunk(&self, chunk: u64) -> Result<Dumped> {
        let core = &self.core;
        let Some(span) = core.spans.of(chunk) else {
            return Err(out_of("chunk", chunk, core.spans.chunks()));
        };
        let entry = Entry::of(core.mem.load(span.entry(chunk)));
        let can_be = is_possible(span, chunk, entry);
        let mut dumped = Dumped::default();
        dumped.number("chunk", chunk);
        dumped.address("offset", chunk * CHUNK_BYTES);
        dumped.address("entry", span.entry(chunk));
        dumped.text("kind", kind_of(entry.kind, can_be));
        dumped.number("class", entry.class as u64);
        dumped.number("chunks", entry.chunks);
        dumped.number("generation", entry.generation);
        if can_be && entry.kind == KIND_OBJECTS && entry.class < CLASSES {
            let class = entry.class;
            dumped.number("object bytes", CLASS_BYTES[class]);
            dumped.number("places", places(class));
            let start = chunk * CHUNK_BYTES;
            let bitmap = (0..bitmap_words(class)).map(|word| core.mem.load(start + word * 8));
            let bitmap: Vec<u64> = bitmap.collect();
            let live =
                (0..places(class)).filter(|at| bitmap[*at as usize / 64] >> (at % 64) & 1 != 0);
            let objects = live.map(|at| {
                let mut shown = Dumped::default();
                shown.address(
                    "object",
                    start + first_place(class) + at * CLASS_BYTES[class],
                );
                shown
            });
            dumped.list("objects", objects.collect());
        }
        Ok(dumped)
    }

    fn roots(&self) -> Dumped {
        let (roots, fault) = named_roots(&self.core);
        let all = roots.into_iter().map(|(place, head, name)| {
            let mut shown = Dumped::default();
            shown.text("name", String::from_utf8_lossy(&name));
            shown.address("object", head.object);
            shown.address("type", head.fingerprint);
            shown.address("entry", place);
            match self.core.object(head.object) {
                Ok(object) => shown.number("bytes", object.size()),
                Err(_) => shown.text("bytes", "no object is there"),
            }
            shown
        });
        let mut dumped = Dumped::default();
        dumped.list("roots", all.collect());
        if let Some((offset, what)) = fault {
            dumped.text(
                "fault",
                format!("{what} at {offset:#x}: those behind it are not shown"),
            );
        }
        dumped
    }

    fn bytes(&self, bytes: &Range<u64>) -> Result<Dumped> {
        let len = self.core.mem.len();
        let end = bytes.end.min(bytes.start.saturating_add(SHOWN_BYTES_MAX));
        if bytes.start >= end || end > len {
            return Err(out_of("byte", bytes.end.max(bytes.start), len));
        }
        let mut content = vec![0; (end - bytes.start) as usize];
        self.core.mem.copy_out(bytes.start, &mut content)?;
        let lines = content.chunks(32).zip(0..).map(|(line, at)| {
            let mut shown = Dumped::default();
            shown.address("offset", bytes.start + at * 32);
            let groups = line.chunks(8).map(|group| {
                let digits = group.iter().map(|byte| format!("{byte:02x}"));
                digits.collect::<String>()
            });
            shown.text("bytes", groups.collect::<Vec<_>>().join(" "));
            shown
        });
        let mut dumped = Dumped::default();
        dumped.list("bytes", lines.collect());
        Ok(dumped)
    }
}

fn hex_words(words: &[u64]) -> String {
    let shown = words.iter().map(|word| format!("{word:016x}"));
    shown.collect::<Vec<_>>().join(" ")
}

fn kind_of(kind: u64, can_be: bool) -> String {
    match (kind, can_be) {
        (KIND_FREE, true) => "free".to_owned(),
        (KIND_OBJECTS, true) => "objects".to_owned(),
        (KIND_RUN, true) => "run".to_owned(),
        (KIND_META, true) => "the heap's own".to_owned(),
        (kind, _) => format!("impossible ({kind})"),
    }
}

fn out_of(what: &'static str, asked: u64, there: u64) -> Error {
    Error::NoSuch { what, asked, there }
}
