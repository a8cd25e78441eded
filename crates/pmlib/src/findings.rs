//! The faults of a heap, each by the number that it has in docs/HEAP-CHECK.md.

use std::fmt;
use std::path::Path;

use pmem::{MapOptions, Pmem};
use pmlib_format::NamedRaw;
use pmlib_format::chunk::{
    CLASS_BYTES, ENTRY_BYTES, GROUP_BYTES, GROUP_CHUNKS, KIND_FREE, KIND_META, KIND_OBJECTS,
    KIND_RUN, bitmap_words, class_chunks,
};
use pmlib_format::header::{
    COPY_OFFSET, ERA_OFFSET, NAMES_OFFSET, ROOT_OFFSET, RUN_OFFSET, SPANS_MAX, SPANS_OFFSET,
    STATE_OFFSET,
};
use pmlib_format::lane::{CLOSED_OFFSET, STAMP_END};
use pmlib_format::{CHUNK_BYTES, HeaderRaw};
use zerocopy::IntoBytes;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::heap::{Heap, Options, read_one};
use crate::lane::{GROUP_WORDS, group_check};
use crate::layout::Span;
use crate::packed::{Entry, checked_value, closed_of, root_of};
use crate::roots::entry_at;
use crate::space::{is_shared, valid_bits};
use crate::stats::Census;

/// The header, of which the copy serves.
pub(crate) const HEADER: u32 = 1;
/// The header's copy.
pub(crate) const COPY: u32 = 2;
const RUN: u32 = 3;
const STATE: u32 = 4;
/// One of the two words of a span.
pub(crate) const SPAN: u32 = 5;
/// Both of them.
pub(crate) const SPAN_LOST: u32 = 6;
/// The file is shorter than its heap.
pub(crate) const TRUNCATED: u32 = 7;
/// The header and its copy.
pub(crate) const HEADERS: u32 = 8;
/// A group of the chunk table, and its check.
pub(crate) const GROUP: u32 = 10;
/// An entry of the chunk table.
pub(crate) const ENTRY: u32 = 11;
/// A lane's first line.
pub(crate) const LANE: u32 = 20;
/// A redo record that can't be.
pub(crate) const RECORD: u32 = 21;
/// The root pointer.
pub(crate) const ROOT: u32 = 30;
/// A root that is no object.
pub(crate) const ROOT_OBJECT: u32 = 31;
/// The list of named roots.
pub(crate) const NAMES: u32 = 32;
/// A bitmap of objects.
pub(crate) const BITMAP: u32 = 40;

/// One thing that is wrong with a heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its number in docs/HEAP-CHECK.md. Numbers are permanent.
    pub number: u32,
    /// Where it is, bytes from the heap's start.
    pub offset: u64,
    /// The same in words.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(number: u32, offset: u64, text: impl Into<String>) -> Finding {
        Finding {
            number,
            offset,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "H{:04} {}, at offset {:#x}",
            self.number, self.text, self.offset
        )
    }
}

/// A heap that is looked at as it stands, without being opened: one that is damaged, or in use.
pub struct Inspector {
    pub(crate) core: Core,
    /// Faults of the header and of the list of spans.
    pub(crate) found: Vec<Finding>,
}

impl Inspector {
    /// Looks at a heap's file.
    ///
    /// # Errors
    /// Those of [`Pmem::open`]; `Foreign`, `Version`, `Features`, `TooSmall`; `Damaged`: the header
    /// and its copy.
    pub fn open(path: &Path) -> Result<Inspector> {
        let options = MapOptions {
            read_only: true,
            ..Options::default().mapping()
        };
        Inspector::over(Pmem::open(path, &options)?)
    }

    /// Looks at a heap in memory.
    ///
    /// # Errors
    /// Those of [`Inspector::open`].
    #[doc(hidden)]
    pub fn over(mem: Pmem) -> Result<Inspector> {
        mem.enter();
        let (header, mut found) = headers(&mem)?;
        let core = Core::over(mem, header, None, &Options::default(), None);
        spans(&core, &mut found);
        Ok(Inspector { core, found })
    }

    /// The memory back.
    #[doc(hidden)]
    #[must_use]
    pub fn into_memory(self) -> Pmem {
        self.core.into_memory()
    }

    /// All faults that there are. A heap that a crash has left is to be recovered before: what a
    /// commit was changing is no fault.
    ///
    /// # Errors
    /// `Lost`.
    pub fn findings(&self) -> Result<Vec<Finding>> {
        let mut found = self.found.clone();
        found.extend(survey(&self.core)?.0);
        Ok(found)
    }
}

/// The finding that an error is which keeps a heap from being looked at; `None`: it is no damage.
#[must_use]
pub fn finding_of(error: &Error) -> Option<Finding> {
    match error {
        Error::Damaged { offset, .. } => Some(Finding::new(
            HEADERS,
            *offset,
            "the header and its copy are damaged",
        )),
        Error::TooSmall { len, min } => Some(Finding::new(
            TRUNCATED,
            *len,
            format!("the file has {len} bytes, and its heap needs {min}"),
        )),
        _ => None,
    }
}

impl Heap {
    /// Looks at everything that the heap's own parts say; counts every byte, and answers faults.
    /// No transaction should go on meanwhile.
    ///
    /// # Errors
    /// Those of [`Heap::check`], but for damage.
    pub fn findings(&self) -> Result<(Census, Vec<Finding>)> {
        self.core().find_spans()?;
        self.in_one_run(|| {
            let core = self.core();
            let mut found = headers(&core.mem)?.1;
            spans_said(core, &mut found);
            let (more, census) = survey(core)?;
            found.extend(more);
            Ok((census, found))
        })
    }
}

/// The header that serves, and what is wrong with the two.
pub(crate) fn headers(mem: &Pmem) -> Result<(HeaderRaw, Vec<Finding>)> {
    let bad = |number, page, text| vec![Finding::new(number, page, text)];
    match (read_one(mem, 0), read_one(mem, COPY_OFFSET)) {
        (Ok(header), Ok(copy)) if header == copy => Ok((header, Vec::new())),
        (Ok(header), Ok(_) | Err(Error::Damaged { .. } | Error::Foreign { .. })) => Ok((
            header,
            bad(COPY, COPY_OFFSET, "the header's copy is damaged"),
        )),
        (Ok(_), Err(error)) => Err(error),
        (Err(Error::Damaged { .. } | Error::Foreign { .. }), Ok(copy)) => Ok((
            copy,
            bad(HEADER, 0, "the header is damaged; its copy serves"),
        )),
        (Err(error), _) => Err(error),
    }
}

/// Makes all spans known that can be, and says what is wrong with their list.
fn spans(core: &Core, found: &mut Vec<Finding>) {
    if core.find_spans().is_err() {
        let at = SPANS_OFFSET + core.spans.count() * 8;
        let said = core.span_after(core.spans.count());
        found.push(match said {
            Ok(_) => Finding::new(TRUNCATED, at, "the file is shorter than its heap"),
            Err(_) => Finding::new(SPAN_LOST, at, "the length of a span is damaged, twice"),
        });
    }
    spans_said(core, found);
}

/// Compares the words of the spans that are known with those of the copy.
fn spans_said(core: &Core, found: &mut Vec<Finding>) {
    let count = core.spans.count();
    for index in 0..SPANS_MAX.min(count + 1) {
        let place = SPANS_OFFSET + index * 8;
        let [word, copy] = core.span_words(place);
        if index == count {
            // No fault of the list's end: a copy that a crash has stored, or left to be erased.
            continue;
        }
        let chunks = Some(core.spans.get(index).chunks);
        let of = |word| checked_value(word, place).map(u64::from);
        for (said, at) in [(of(word), place), (of(copy), COPY_OFFSET + place)] {
            if said != chunks {
                found.push(Finding::new(SPAN, at, "the length of a span is damaged"));
            }
        }
    }
}

/// Looks at what the heap's own parts say.
fn survey(core: &Core) -> Result<(Vec<Finding>, Census)> {
    let mut found = Vec::new();
    for (place, number, what) in [
        (RUN_OFFSET, RUN, "the run's number is damaged"),
        (STATE_OFFSET, STATE, "the state is damaged"),
    ] {
        if checked_value(core.mem.load(place), place).is_none() {
            found.push(Finding::new(number, place, what));
        }
    }
    let era = core.mem.load(ERA_OFFSET);
    if era != 0 && checked_value(era, ERA_OFFSET).is_none() {
        found.push(Finding::new(RUN, ERA_OFFSET, "the era of runs is damaged"));
    }
    for lane in 0..core.header.lanes {
        let offset = core.places.lane(lane) + CLOSED_OFFSET;
        if closed_of(core.mem.load(offset)).is_none_or(|stamp| stamp >= STAMP_END) {
            let text = format!("the first line of lane {lane} is damaged");
            found.push(Finding::new(LANE, offset, text));
        }
    }
    let mut census = Census::default();
    for span in core.spans.iter() {
        table(core, span, &mut found)?;
        chunks(core, span, &mut found, &mut census);
    }
    roots(core, &mut found);
    Ok((found, census))
}

/// The words of a group of the chunk table, as they were between two commits.
pub(crate) fn group_words(core: &Core, offset: u64) -> Result<[u64; GROUP_WORDS]> {
    let mut words = [0; GROUP_WORDS];
    if core.is_open {
        core.read_stable(offset, words.as_mut_bytes())?;
    } else {
        core.mem.copy_out(offset, words.as_mut_bytes())?;
    }
    Ok(words)
}

fn table(core: &Core, span: &Span, found: &mut Vec<Finding>) -> Result<()> {
    for group in 0..span.groups() {
        let offset = span.table + group * GROUP_BYTES;
        let words = group_words(core, offset)?;
        if words[2 * GROUP_CHUNKS as usize] != group_check(&words) {
            let text = "the check of a group of the chunk table does not hold";
            found.push(Finding::new(GROUP, offset, text));
        }
    }
    Ok(())
}

/// Whether a chunk can be what its entry says.
pub(crate) fn is_possible(span: &Span, chunk: u64, entry: Entry) -> bool {
    let is_own = chunk < span.first + span.meta_chunks;
    let rest = span.first + span.chunks - chunk;
    match entry.kind {
        KIND_META => chunk == span.first,
        KIND_FREE => chunk != span.first,
        KIND_OBJECTS => !is_own && is_shared(entry) && entry.chunks <= rest,
        KIND_RUN => !is_own && (1..=rest).contains(&entry.chunks),
        _ => false,
    }
}

/// Chunks, and the objects in them.
fn chunks(core: &Core, span: &Span, found: &mut Vec<Finding>, census: &mut Census) {
    census.own_bytes += span.meta_chunks * CHUNK_BYTES;
    let (mut chunk, end) = (span.first, span.first + span.chunks);
    while chunk < end {
        let entry = Entry::of(core.mem.load(span.entry(chunk)));
        if !is_possible(span, chunk, entry) {
            let text = format!("the entry of chunk {chunk} is impossible");
            found.push(Finding::new(ENTRY, span.entry(chunk), text));
            chunk += 1;
            continue;
        }
        let is_own = chunk < span.first + span.meta_chunks;
        for inner in chunk + 1..chunk + entry.extent() {
            if Entry::of(core.mem.load(span.entry(inner))).kind != KIND_FREE {
                let text = format!("chunk {inner} belongs to an earlier one, and has an entry");
                found.push(Finding::new(ENTRY, span.entry(inner), text));
            }
        }
        match entry.kind {
            KIND_OBJECTS => objects(core, chunk, entry.class, found, census),
            KIND_RUN => {
                census.objects += 1;
                census.object_bytes += entry.chunks * CHUNK_BYTES;
            }
            _ if !is_own => census.free_bytes += CHUNK_BYTES,
            _ => {}
        }
        chunk += entry.extent();
    }
}

fn objects(core: &Core, chunk: u64, class: usize, found: &mut Vec<Finding>, census: &mut Census) {
    let (start, mut live) = (chunk * CHUNK_BYTES, 0);
    for word in 0..bitmap_words(class) {
        let bits = core.mem.load(start + word * 8);
        let valid = valid_bits(class, word);
        if bits & !valid != 0 {
            let text = "a bitmap of objects has bits that are no places";
            found.push(Finding::new(BITMAP, start + word * 8, text));
        }
        live += u64::from((bits & valid).count_ones());
    }
    let bytes = live * CLASS_BYTES[class];
    census.objects += live;
    census.object_bytes += bytes;
    census.spare_bytes += class_chunks(class) * CHUNK_BYTES - bytes;
}

fn roots(core: &Core, found: &mut Vec<Finding>) {
    match root_of(core.mem.load(ROOT_OFFSET)) {
        None => found.push(Finding::new(
            ROOT,
            ROOT_OFFSET,
            "the root pointer is damaged",
        )),
        Some(0) => {}
        Some(offset) => {
            if core.object(offset).is_err() {
                let text = format!("the root pointer leads to {offset:#x}, where no object is");
                found.push(Finding::new(ROOT_OBJECT, ROOT_OFFSET, text));
            }
        }
    }
    let (roots, fault) = named_roots(core);
    if let Some((offset, text)) = fault {
        found.push(Finding::new(NAMES, offset, text));
    }
    for (place, head, name) in roots {
        if core.object(head.object).is_err() {
            let name = String::from_utf8_lossy(&name).into_owned();
            let text = format!(
                "the root {name:?} leads to {:#x}, where no object is",
                head.object
            );
            found.push(Finding::new(ROOT_OBJECT, place, text));
        }
    }
}

/// Entries of the list of named roots up to a fault, each with its place and its name; the fault.
#[expect(clippy::type_complexity, reason = "two lists of one walk")]
pub(crate) fn named_roots(
    core: &Core,
) -> (Vec<(u64, NamedRaw, Vec<u8>)>, Option<(u64, &'static str)>) {
    let mut roots = Vec::new();
    let Some(mut offset) = root_of(core.mem.load(NAMES_OFFSET)) else {
        return (
            roots,
            Some((NAMES_OFFSET, "the pointer to named roots is damaged")),
        );
    };
    let mut left = None;
    while offset != 0 {
        let damaged = Some((offset, "a named root is damaged"));
        let Some((head, name)) = entry_at(core, offset) else {
            return (roots, damaged);
        };
        // Fewer are left with each step, so that a circle ends.
        let expected = *left.get_or_insert(head.left);
        if head.left != expected || head.left == 0 || (head.next == 0) != (head.left == 1) {
            return (roots, damaged);
        }
        left = Some(expected - 1);
        let next = head.next;
        roots.push((offset, head, name));
        offset = next;
    }
    (roots, None)
}

const _: () = assert!(ENTRY_BYTES == 16);
