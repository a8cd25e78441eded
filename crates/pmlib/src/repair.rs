//! Repair: what is damaged is made anew from what tells of it, and nothing that can be read is
//! dropped (docs/HEAP-CHECK.md).
//!
//! Nobody else has the heap meanwhile. In this order:
//! 1. The header, the words of the spans, the lanes' first lines, records that can't be. Each is a
//!    word, or has a copy that stays until it is durable. The state is still needed here.
//! 2. The heap is in use from here on, and what had committed is redone.
//! 3. The chunk table and the bitmaps, which the records may have changed.
//! 4. The heap is opened as by anybody. The roots are mended by a transaction.
//!
//! A crash in it leaves damage that is mended in the same way by the next repair: each step looks
//! at what there is then.

use std::path::Path;

use pmem::slots::{Probe, Prober};
use pmem::{MapOptions, Pmem};
use pmlib_format::chunk::{
    CLASS_BYTES, GROUP_BYTES, GROUP_CHUNKS, KIND_FREE, KIND_META, KIND_OBJECTS, KIND_RUN,
    bitmap_words, class_chunks, first_place, places,
};
use pmlib_format::header::{
    COPY_OFFSET, NAMES_OFFSET, ROOT_OFFSET, SPANS_MAX, SPANS_OFFSET, STATE_ACTIVE, STATE_CLEAN,
    STATE_OFFSET,
};
use pmlib_format::lane::{CLOSED_OFFSET, STAMP_END};
use pmlib_format::{CHUNK_BYTES, HeaderRaw, LINE_BYTES, NamedRaw};
use pmshare::lock_bytes::BYTE_POOL;
use pmshare::owner::mapper::mapper_pid;
use zerocopy::{FromBytes, IntoBytes};

use crate::attach::Entrance;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::findings::{
    BITMAP, COPY, ENTRY, Finding, GROUP, HEADER, Inspector, LANE, NAMES, RECORD, ROOT, ROOT_OBJECT,
    SPAN, headers, is_possible, named_roots,
};
use crate::heap::{Heap, Options, header_of, name_run, set_word};
use crate::lane::{GROUP_WORDS, group_check, superseded_of};
use crate::layout::{CHUNKS_MAX, Span};
use crate::packed::{
    Entry, Ticket, checked_value, checked_word, closed_of, closed_word, done_of, root_of,
};
use crate::record::{Act, Step, steps};
use crate::roots::{entry_at, entry_bytes, mended_entry};
use crate::space::{CLASSES, valid_bits};
use crate::stats::Census;

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Faults that are mended now.
    pub repaired: Vec<Finding>,
    /// Those that are left.
    pub left: Vec<Finding>,
    /// The heap's content, if it could be opened.
    pub census: Option<Census>,
}

impl Heap {
    /// Mends what is damaged in the heap of a file that nobody has. `is_dry`: in a copy, in memory.
    ///
    /// # Errors
    /// `Busy`: somebody has it; those of [`Heap::open`], but for damage; `Damaged`: the header and
    /// its copy.
    pub fn repair(path: &Path, is_dry: bool) -> Result<Repaired> {
        let options = Options::default();
        if is_dry {
            return Ok(repair(copied(path)?, None)?.0);
        }
        let mem = Pmem::open(path, &options.mapping())?;
        let entrance = Entrance::to(path, &options)?;
        if entrance.has_others() {
            let pid = mapper_pid(path);
            return Err(Error::Busy { pid });
        }
        Ok(repair(mem, Some(entrance))?.0)
    }

    /// Mends what is damaged in a heap in memory, in place; answers the memory too.
    ///
    /// # Errors
    /// Those of [`Heap::repair`].
    #[doc(hidden)]
    pub fn repair_in(mem: Pmem) -> Result<(Repaired, Pmem)> {
        repair(mem, None)
    }
}

/// A copy of a heap that nobody has, in memory.
fn copied(path: &Path) -> Result<Pmem> {
    let options = MapOptions {
        read_only: true,
        ..MapOptions::default()
    };
    let file = Pmem::open(path, &options)?;
    if Prober::open(path)?.probe(BYTE_POOL)? != Probe::Free {
        let pid = mapper_pid(path);
        return Err(Error::Busy { pid });
    }
    let copy = Pmem::private(file.len());
    let mut bytes = vec![0; CHUNK_BYTES as usize];
    for at in (0..file.len()).step_by(bytes.len()) {
        let here = (file.len() - at).min(CHUNK_BYTES) as usize;
        file.copy_out(at, &mut bytes[..here])?;
        if bytes[..here].iter().any(|&byte| byte != 0) {
            copy.write_nt(at, &bytes[..here])?;
        }
    }
    Ok(copy)
}

fn repair(mem: Pmem, entrance: Option<Entrance<'_>>) -> Result<(Repaired, Pmem)> {
    mem.enter();
    let window = mem.window();
    let mut done = Vec::new();
    let header = mend_headers(&mem, &mut done)?;
    drop(window);
    let core = Core::over(mem, header, None, &Options::default(), None);
    let mender = Mender { core };
    if !mender.before_recovery(&mut done)? {
        let heap = Inspector::over(mender.core.into_memory())?;
        let report = Repaired {
            repaired: done,
            left: heap.findings()?,
            census: None,
        };
        return Ok((report, heap.into_memory()));
    }
    mender.recover()?;
    mender.after_recovery(&mut done)?;
    // Its last user had it by another name, perhaps, or it is a copy.
    let options = Options {
        adopt: true,
        ..Options::default()
    };
    let heap = Heap::attach_by(mender.core.into_memory(), entrance, &options)?;
    mend_roots(&heap, &mut done)?;
    let (census, left) = heap.findings()?;
    let report = Repaired {
        repaired: done,
        left,
        census: Some(census),
    };
    Ok((report, heap.close()?))
}

/// Stores and flushes a word.
fn put(mem: &Pmem, place: u64, word: u64) {
    mem.store(place, word);
    if !planted!("bug-mended-unflushed") {
        mem.flush(place, 8);
    }
}

/// Writes the one of the two headers that is damaged anew.
fn mend_headers(mem: &Pmem, done: &mut Vec<Finding>) -> Result<HeaderRaw> {
    let (header, found) = match headers(mem) {
        Err(error @ (Error::Damaged { .. } | Error::Foreign { .. })) => {
            flipped_header(mem).ok_or(error)?
        }
        found => found?,
    };
    for finding in found {
        for (at, word) in words_of(&header).into_iter().enumerate() {
            put(mem, finding.offset + at as u64 * 8, word);
        }
        mem.fence();
        done.push(finding);
    }
    Ok(header)
}

fn words_of(header: &HeaderRaw) -> Vec<u64> {
    let (words, _) = header.as_bytes().as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The header of which one byte is another, if the copy is damaged too.
fn flipped_header(mem: &Pmem) -> Option<(HeaderRaw, Vec<Finding>)> {
    for page in [0, COPY_OFFSET] {
        let mut bytes = [0; size_of::<HeaderRaw>()];
        mem.copy_out(page, &mut bytes).ok()?;
        for (at, change) in changes(bytes.len()) {
            bytes[at] ^= change;
            let header = HeaderRaw::read_from_bytes(&bytes).ok()?;
            bytes[at] ^= change;
            if header_of(mem, header, page).is_ok() {
                let both = [(HEADER, 0), (COPY, COPY_OFFSET)];
                let found = both.map(|(number, at)| {
                    Finding::new(number, at, "the header and its copy are damaged")
                });
                return Some((header, found.into()));
            }
        }
    }
    None
}

/// Each way in which one of some bytes may have changed.
pub(crate) fn changes(bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    (0..bytes).flat_map(|at| (1..=u8::MAX).map(move |change| (at, change)))
}

/// The word of which one byte is another, if there is one alone for which `holds` says yes.
fn flipped<T>(word: u64, holds: impl Fn(u64) -> Option<T>) -> Option<T> {
    let other = |(at, change)| word ^ u64::from(change) << (8 * at);
    let mut all = changes(8).filter_map(|change| holds(other(change)));
    let found = all.next()?;
    all.next().is_none().then_some(found)
}

/// A whole record of a lane.
struct Whole {
    stamp: u64,
    done: u64,
    superseded: Vec<Ticket>,
    entries: Vec<u64>,
    /// All that it says stands there.
    is_in_place: bool,
}

struct Mender {
    core: Core,
}

impl Mender {
    /// Step 1. `false`: the heap's end is not known, and nothing more can be done.
    fn before_recovery(&self, done: &mut Vec<Finding>) -> Result<bool> {
        let _window = self.core.mem.window();
        let is_whole = self.spans(done)?;
        self.core.mem.fence();
        if !is_whole {
            return Ok(false);
        }
        self.lanes(done)?;
        self.core.mem.fence();
        Ok(true)
    }

    /// Whether nobody had the heap, and every lane was closed.
    fn is_clean(&self) -> bool {
        let word = self.core.mem.load(STATE_OFFSET);
        checked_value(word, STATE_OFFSET) == Some(STATE_CLEAN)
    }

    /// Finds the spans, and has both words of each say the same.
    fn spans(&self, done: &mut Vec<Finding>) -> Result<bool> {
        let core = &self.core;
        for index in 0..SPANS_MAX {
            let place = SPANS_OFFSET + index * 8;
            let [word, copy] = core.span_words(place);
            let of = |word| checked_value(word, place).map(u64::from);
            let chunks = match (index, of(word), of(copy)) {
                (0, _, _) => core.header.chunks,
                (_, Some(chunks), _) => chunks,
                (_, None, Some(chunks)) if word != 0 => chunks,
                // One that was being added, or taken away.
                (_, None, _) if word == 0 => return Ok(true),
                (_, None, _) => match self.last_span(place)? {
                    Some(chunks) => chunks,
                    None if copy == 0 && self.chunks_there() <= core.spans.chunks() => {
                        // It is the list's end.
                        put(&core.mem, place, 0);
                        let text = "the end of the list of spans is damaged";
                        done.push(Finding::new(SPAN, place, text));
                        return Ok(true);
                    }
                    None => return Ok(false),
                },
            };
            if index > 0 {
                let end = core.spans.chunks() + chunks;
                let fits = end <= CHUNKS_MAX && core.spans.next(chunks).meta_chunks < chunks;
                if !fits || core.mem.extend(end * CHUNK_BYTES).is_err() {
                    return Ok(false);
                }
                core.spans.push(chunks);
            }
            for (said, at) in [(of(word), place), (of(copy), COPY_OFFSET + place)] {
                if said != Some(chunks) {
                    put(&core.mem, at, checked_word(chunks as u32, place));
                    done.push(Finding::new(SPAN, at, "the length of a span is damaged"));
                }
            }
        }
        Ok(true)
    }

    /// Chunks that the file, or the memory, has bytes for.
    fn chunks_there(&self) -> u64 {
        let mem = &self.core.mem;
        let len = match mem.path().map(Path::metadata) {
            Some(Ok(file)) if file.is_file() => file.len(),
            _ => mem.len(),
        };
        len / CHUNK_BYTES
    }

    /// The chunks of a span of which both words are damaged, if it is the last one and its table
    /// stands where it would.
    fn last_span(&self, place: u64) -> Result<Option<u64>> {
        let core = &self.core;
        let is_last =
            place + 8 == SPANS_OFFSET + SPANS_MAX * 8 || core.span_words(place + 8) == [0, 0];
        let chunks = self.chunks_there().saturating_sub(core.spans.chunks());
        if !is_last || chunks == 0 || chunks > CHUNKS_MAX {
            return Ok(None);
        }
        let span = core.spans.next(chunks);
        let end = (span.first + chunks) * CHUNK_BYTES;
        if span.meta_chunks >= chunks || core.mem.extend(end).is_err() {
            return Ok(None);
        }
        let mut words = [0; GROUP_WORDS];
        core.mem.copy_out(span.table, words.as_mut_bytes())?;
        let entry = Entry::of(words[0]);
        let is_table = entry.kind == KIND_META
            && entry.chunks == span.meta_chunks
            && words[2 * GROUP_CHUNKS as usize] == group_check(&words);
        Ok(is_table.then_some(chunks))
    }

    /// The whole records of a lane; those that can't be are none from now on.
    fn records(&self, lane: u32, done: &mut Vec<Finding>) -> Result<Vec<Whole>> {
        let core = &self.core;
        let (mut all, mut record) = (Vec::new(), Vec::new());
        for place in core.places.ring(lane).step_by(LINE_BYTES as usize) {
            let Some(stamp) = core.read_record(lane, place, &mut record)? else {
                continue;
            };
            if core.key.hash(place, &record[1..]) != record[0] {
                continue;
            }
            let ends = done_of(record[3], stamp, record[2]).unwrap_or(u64::MAX);
            let mut outside = Vec::new();
            let entries = core.entries_of(&record, &mut outside)?.unwrap_or(&[]);
            let len = core.mem.len();
            let fits = |step: std::result::Result<Step<'_>, ()>| {
                step.is_ok_and(|step| step.is_within(len))
            };
            if stamp >= STAMP_END || ends >= stamp || !steps(entries).all(fits) {
                put(&core.mem, place, record[0] ^ 1);
                let text = format!("a redo record of lane {lane} is impossible: it is dropped");
                done.push(Finding::new(RECORD, place, text));
                continue;
            }
            all.push(Whole {
                stamp,
                done: ends,
                superseded: superseded_of(&record)
                    .iter()
                    .map(|&word| Ticket::of(word))
                    .collect(),
                is_in_place: steps(entries).flatten().all(|step| self.is_in_place(&step)),
                entries: entries.to_vec(),
            });
        }
        Ok(all)
    }

    /// Flushes what a record has stored, and waits.
    fn flush(&self, entries: &[u64]) {
        for step in steps(entries).flatten().filter(Step::stores) {
            self.core.mem.flush(step.offset, step.bytes());
        }
        self.core.mem.fence();
    }

    fn is_in_place(&self, step: &Step<'_>) -> bool {
        let load = |at: usize| self.core.mem.load(step.offset + at as u64 * 8);
        match step.act {
            Act::Write(words) => words.iter().enumerate().all(|(at, &word)| load(at) == word),
            Act::Set(bits) => load(0) & bits == bits,
            Act::Clear(bits) => load(0) & bits == 0,
            Act::Fresh(..) => true,
        }
    }

    /// Has each lane say up to which stamp it is closed.
    fn lanes(&self, done: &mut Vec<Finding>) -> Result<()> {
        let core = &self.core;
        let lanes = 0..core.header.lanes;
        let records: Result<Vec<Vec<Whole>>> =
            lanes.clone().map(|lane| self.records(lane, done)).collect();
        let records = records?;
        let closed = |lane: u32| {
            let word = core.mem.load(core.places.lane(lane) + CLOSED_OFFSET);
            closed_of(word).filter(|&stamp| stamp < STAMP_END)
        };
        for lane in lanes {
            if closed(lane).is_some() {
                continue;
            }
            let place = core.places.lane(lane) + CLOSED_OFFSET;
            let of = &records[lane as usize];
            let Some(last) = of.iter().max_by_key(|record| record.stamp) else {
                let stamp = flipped(core.mem.load(place), closed_of).unwrap_or(0);
                put(&core.mem, place, closed_word(stamp.min(STAMP_END - 1)));
                let text = format!("the first line of lane {lane} is damaged");
                done.push(Finding::new(LANE, place, text));
                continue;
            };
            let least = of.iter().map(|record| record.done).max().unwrap_or(0);
            let can_be =
                |word| closed_of(word).filter(|stamp| (least..=last.stamp).contains(stamp));
            let exact = flipped(core.mem.load(place), can_be);
            // Redone over a later record that is closed, it would undo that one.
            let is_followed = (0..core.header.lanes)
                .filter(|&other| other != lane)
                .any(|other| {
                    let until = closed(other).unwrap_or(0);
                    let named = records[other as usize].iter().any(|record| {
                        let names =
                            |ticket: &Ticket| ticket.lane == lane && ticket.stamp >= last.stamp;
                        record.stamp <= until && record.superseded.iter().any(names)
                    });
                    until >= last.stamp || named
                });
            let mut text = format!("the first line of lane {lane} is damaged");
            let stamp = if self.is_clean() {
                last.stamp
            } else if let Some(stamp) = exact {
                stamp
            } else if is_followed && !last.is_in_place {
                text += &format!(
                    "; it is not known whether record {} was in place",
                    last.stamp
                );
                self.flush(&last.entries);
                last.stamp
            } else {
                // If it is in place, it is stored again: it may not have been flushed.
                least
            };
            put(&core.mem, place, closed_word(stamp));
            done.push(Finding::new(LANE, place, text));
        }
        Ok(())
    }

    /// Step 2.
    fn recover(&self) -> Result<()> {
        let mem = &self.core.mem;
        let _window = mem.window();
        let is_clean = self.is_clean();
        set_word(mem, STATE_OFFSET, STATE_ACTIVE);
        name_run(mem);
        mem.fence();
        self.core.recover(is_clean)?;
        Ok(())
    }

    /// Step 3.
    fn after_recovery(&self, done: &mut Vec<Finding>) -> Result<()> {
        let _window = self.core.mem.window();
        for span in self.core.spans.iter() {
            for group in 0..span.groups() {
                self.group(span, group, done)?;
            }
            self.core.mem.fence();
            self.runs(span, done)?;
            self.core.mem.fence();
            self.bitmaps(span, done);
        }
        self.core.mem.fence();
        Ok(())
    }

    /// Makes a group of the chunk table one that can be.
    fn group(&self, span: &Span, group: u64, done: &mut Vec<Finding>) -> Result<()> {
        let mem = &self.core.mem;
        let place = span.table + group * GROUP_BYTES;
        let mut words = [0; GROUP_WORDS];
        mem.copy_out(place, words.as_mut_bytes())?;
        let check = 2 * GROUP_CHUNKS as usize;
        let first = span.first + group * GROUP_CHUNKS;
        let chunks = first..(first + GROUP_CHUNKS).min(span.first + span.chunks);
        let can_be = |words: &[u64; GROUP_WORDS]| {
            chunks.clone().all(|chunk| {
                let at = 2 * (chunk - first) as usize;
                is_possible_pair(span, chunk, [words[at], words[at + 1]])
            })
        };
        let holds = words[check] == group_check(&words);
        if holds && can_be(&words) {
            return Ok(());
        }
        if !holds {
            let text = "the check of a group of the chunk table does not hold";
            done.push(Finding::new(GROUP, place, text));
            if let Some((at, word)) = flipped_group(&words, can_be) {
                put(mem, place + at as u64 * 8, word);
                return Ok(());
            }
        }
        for chunk in chunks {
            let at = 2 * (chunk - first) as usize;
            let entry = Entry::of(words[at]);
            if is_possible_pair(span, chunk, [words[at], words[at + 1]]) {
                continue;
            }
            let (made, text) = self.rebuilt(span, chunk, entry);
            words[at..at + 2].copy_from_slice(&made.words());
            put(mem, span.entry(chunk), words[at]);
            put(mem, span.entry(chunk) + 8, words[at + 1]);
            done.push(Finding::new(ENTRY, span.entry(chunk), text));
        }
        mem.fence();
        put(mem, place + check as u64 * 8, group_check(&words));
        Ok(())
    }

    /// The entry of a chunk by what the chunk shows: bitmaps of a class that can be, or else a run,
    /// so that its bytes stay.
    fn rebuilt(&self, span: &Span, chunk: u64, damaged: Entry) -> (Entry, String) {
        let entry = |kind, class, chunks| Entry {
            kind,
            class,
            chunks,
            generation: damaged.generation,
            owner: 0,
        };
        if chunk == span.first {
            let text = format!("the entry of chunk {chunk} is impossible: it is the heap's own");
            return (entry(KIND_META, 0, span.meta_chunks), text);
        }
        let is_own = chunk < span.first + span.meta_chunks;
        let is_inside = (span.first..chunk).rev().find_map(|head| {
            let entry = Entry::of(self.core.mem.load(span.entry(head)));
            match entry.kind {
                KIND_FREE => None,
                KIND_RUN | KIND_OBJECTS => {
                    Some(is_possible(span, head, entry) && head + entry.chunks > chunk)
                }
                _ => Some(false),
            }
        });
        if is_own || is_inside == Some(true) {
            let text = format!("the entry of chunk {chunk} is impossible: another one has it");
            return (entry(KIND_FREE, 0, 1), text);
        }
        let mut words = (0..CHUNK_BYTES)
            .step_by(8)
            .map(|at| chunk * CHUNK_BYTES + at);
        if words.all(|place| self.core.mem.load(place) == 0) {
            let text = format!("the entry of chunk {chunk} is impossible: nothing is in it");
            return (entry(KIND_FREE, 0, 1), text);
        }
        let fits: Vec<usize> = (0..CLASSES)
            .filter(|&class| self.looks_like(span, chunk, class))
            .collect();
        let class = match fits[..] {
            [class] => Some(class),
            _ => fits.into_iter().find(|&class| class == damaged.class),
        };
        match class {
            Some(class) => {
                let bytes = CLASS_BYTES[class];
                let text = format!(
                    "the entry of chunk {chunk} is impossible: it has objects of {bytes} bytes"
                );
                (entry(KIND_OBJECTS, class, class_chunks(class)), text)
            }
            None => {
                let text = format!(
                    "the entry of chunk {chunk} is impossible, and its content is not known: it is kept as a whole"
                );
                (entry(KIND_RUN, 0, 1), text)
            }
        }
    }

    /// Whether a chunk begins with the bitmaps of this class, and has an object.
    fn looks_like(&self, span: &Span, chunk: u64, class: usize) -> bool {
        let end = chunk + class_chunks(class);
        let is_free = |chunk| Entry::of(self.core.mem.load(span.entry(chunk))).kind == KIND_FREE;
        if end > span.first + span.chunks || !(chunk + 1..end).all(is_free) {
            return false;
        }
        let (start, words) = (chunk * CHUNK_BYTES, bitmap_words(class));
        let load = |word: u64| self.core.mem.load(start + word * 8);
        let has_object = (0..words).any(|word| load(word) != 0);
        has_object
            && (0..words).all(|word| {
                // All that is allocated is not to be given out.
                let (bits, taken) = (load(word), load(words + word));
                (bits | taken) & !valid_bits(class, word) == 0 && bits & !taken == 0
            })
    }

    /// No chunk that belongs to an earlier one has an entry of its own.
    fn runs(&self, span: &Span, done: &mut Vec<Finding>) -> Result<()> {
        let mem = &self.core.mem;
        let (mut chunk, end) = (span.first + span.meta_chunks, span.first + span.chunks);
        while chunk < end {
            let head = Entry::of(mem.load(span.entry(chunk)));
            let inner = (chunk + 1..chunk + head.extent())
                .find(|&inner| Entry::of(mem.load(span.entry(inner))).kind != KIND_FREE);
            let Some(inner) = inner else {
                chunk += head.extent();
                continue;
            };
            // Both can be read: the earlier one, as a whole, as far as the other one.
            let cut = Entry {
                kind: KIND_RUN,
                class: 0,
                chunks: inner - chunk,
                ..head
            };
            let text = format!(
                "chunk {inner} belongs to an earlier one, and has an entry: that ends there"
            );
            done.push(Finding::new(ENTRY, span.entry(chunk), text));
            let at = chunk - span.first;
            let place = span.table + at / GROUP_CHUNKS * GROUP_BYTES;
            let mut words = [0; GROUP_WORDS];
            mem.copy_out(place, words.as_mut_bytes())?;
            words[2 * (at % GROUP_CHUNKS) as usize] = cut.words()[0];
            put(mem, span.entry(chunk), cut.words()[0]);
            mem.fence();
            put(mem, place + GROUP_CHUNKS * 16, group_check(&words));
            chunk = inner;
        }
        Ok(())
    }

    /// No bit stands for what is no place.
    fn bitmaps(&self, span: &Span, done: &mut Vec<Finding>) {
        let mem = &self.core.mem;
        for chunk in span.first + span.meta_chunks..span.first + span.chunks {
            let entry = Entry::of(mem.load(span.entry(chunk)));
            if entry.kind != KIND_OBJECTS || entry.class >= CLASSES {
                continue;
            }
            for word in 0..bitmap_words(entry.class) {
                let place = chunk * CHUNK_BYTES + word * 8;
                let (bits, valid) = (mem.load(place), valid_bits(entry.class, word));
                if bits & !valid != 0 {
                    put(mem, place, bits & valid);
                    let text = "a bitmap of objects has bits that are no places";
                    done.push(Finding::new(BITMAP, place, text));
                }
            }
        }
    }
}

/// The only word of a group, and its place in it, of which one byte is to be another for the check
/// to hold.
fn flipped_group(
    words: &[u64; GROUP_WORDS],
    can_be: impl Fn(&[u64; GROUP_WORDS]) -> bool,
) -> Option<(usize, u64)> {
    let check = 2 * GROUP_CHUNKS as usize;
    let mut found = None;
    let mut other = *words;
    for (at, change) in changes((check + 1) * 8) {
        let change = u64::from(change) << (at % 8 * 8);
        other[at / 8] ^= change;
        let fits = other[check] == group_check(&other) && can_be(&other);
        if fits && found.replace((at / 8, other[at / 8])).is_some() {
            return None;
        }
        other[at / 8] ^= change;
    }
    found
}

/// Has the roots lead to objects, in a transaction.
fn mend_roots(heap: &Heap, done: &mut Vec<Finding>) -> Result<()> {
    let core = heap.core();
    let word = core.mem.load(ROOT_OFFSET);
    let is_object = |offset: u64| (offset == 0 || core.object(offset).is_ok()).then_some(offset);
    let root = match root_of(word) {
        Some(offset) if is_object(offset).is_some() => None,
        Some(offset) => Some((
            Some(0),
            ROOT_OBJECT,
            format!("the root pointer leads to {offset:#x}, where no object is"),
        )),
        None => Some((
            flipped(word, |word| root_of(word).and_then(is_object)),
            ROOT,
            "the root pointer is damaged".to_owned(),
        )),
    };
    if let Some((to, number, mut text)) = root {
        if to.is_none() {
            text += ", and its object is not known: there is no root";
        }
        heap.tx(|tx| tx.set_root(to.unwrap_or(0)))?;
        done.push(Finding::new(number, ROOT_OFFSET, text));
    }
    let (_, fault) = named_roots(core);
    if let Some((offset, what)) = fault {
        mend_names(heap)?;
        done.push(Finding::new(NAMES, offset, what));
    }
    Ok(())
}

/// Shows each object that shares a chunk.
fn objects(core: &Core, show: &mut impl FnMut(u64)) {
    core.walk(|chunk, entry| {
        if entry.kind != KIND_OBJECTS || entry.class >= CLASSES {
            return;
        }
        for index in 0..places(entry.class) {
            let word = core.mem.load(chunk * CHUNK_BYTES + index / 64 * 8);
            if word >> (index % 64) & 1 != 0 {
                show(
                    chunk * CHUNK_BYTES
                        + first_place(entry.class)
                        + index * CLASS_BYTES[entry.class],
                );
            }
        }
    });
}

/// Makes the list of named roots anew from the entries that are found in the heap.
fn mend_names(heap: &Heap) -> Result<()> {
    let core = heap.core();
    let mut all: Vec<(u64, NamedRaw, Vec<u8>)> = Vec::new();
    let mut also = vec![root_of(core.mem.load(NAMES_OFFSET)).unwrap_or(0)];
    objects(core, &mut |offset| {
        if let Some((head, name)) = entry_at(core, offset) {
            also.push(head.next);
            all.push((offset, head, name));
        }
    });
    for offset in also {
        let is_known = all.iter().any(|&(place, ..)| place == offset);
        if offset != 0
            && !is_known
            && let Some((head, name)) = mended_entry(core, offset)
        {
            all.push((offset, head, name));
        }
    }
    // The oldest first.
    all.sort_by_key(|(offset, head, _)| (head.left, *offset));
    heap.tx(|tx| {
        let mut next = 0;
        for ((offset, mut head, name), left) in all.into_iter().zip(1..) {
            (head.next, head.left) = (next, left);
            let bytes = entry_bytes(offset, head, &name);
            tx.edit_bytes(offset, 0, bytes.len() as u64)?
                .copy_from_slice(&bytes);
            next = offset;
        }
        tx.set_names(next);
        Ok::<_, Error>(())
    })
}

/// Whether both words of an entry can be: runs alone have an owner.
fn is_possible_pair(span: &Span, chunk: u64, [word, owner]: [u64; 2]) -> bool {
    let entry = Entry::of(word);
    is_possible(span, chunk, entry) && (owner == 0 || entry.kind == KIND_RUN)
}
