//! The way that a program will be loaded, from its file's first bytes: whether it can have the
//! preloaded library at all, and the libraries that have to come before that. Core and alloc only:
//! the preloaded library compiles this very file, by path.

/// The program interpreter of those that can.
const INTERPRETER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
/// Sanitizers whose runtime refuses to come second.
const SANITIZERS: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];

/// Bytes read at once of a program's beginning, which usually has the names of its libraries too.
const HEAD: usize = 8192;
/// Bytes read at once of a program's tables.
const TABLE: u64 = 4096;
/// Longest name of a library that is looked at.
const NAME_MAX: usize = 64;
/// Bytes of a script's first line that the kernel reads.
const LINE_MAX: usize = 256;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// The way that a program is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loading {
    /// By a loader that takes the preloaded library; behind the library of this name,
    /// if it says one.
    Preloads(Option<Vec<u8>>),
    /// By none: nothing is preloaded, nor does a variable that asks for it do harm.
    Static,
    /// By a loader that would stumble over the library, or to be a program that makes
    /// system calls of its own all the time.
    Foreign,
    /// By another program, of this path, which gets this argument before the script's own name.
    Script(Vec<u8>, Option<Vec<u8>>),
}

/// Says how; `read` fills a buffer from an offset of the file on and answers the bytes
/// that are there.
pub fn of(read: impl Fn(u64, &mut [u8]) -> usize) -> Loading {
    let mut head = vec![0; HEAD];
    let len = read(0, &mut head);
    head.truncate(len);
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line);
    }
    if !head.starts_with(b"\x7fELF") {
        // The kernel decides on it.
        return Loading::Preloads(None);
    }
    // 64-bit x86 alone.
    if head.get(4) != Some(&2) || number(&head, 18, 2) != Some(62) {
        return Loading::Foreign;
    }
    let segments = segments(&head);
    // Most of what is asked for stands there.
    let read = |at: u64, bytes: &mut [u8]| {
        let there = usize::try_from(at).ok().and_then(|from| {
            let end = from.checked_add(bytes.len())?;
            head.get(from..end)
        });
        let Some(there) = there else {
            return read(at, bytes);
        };
        bytes.copy_from_slice(there);
        bytes.len()
    };
    let Some(interpreter) = segments.iter().find(|segment| segment.kind == PT_INTERP) else {
        return Loading::Static;
    };
    let mut name = [0; INTERPRETER.len()];
    read(interpreter.offset, &mut name);
    if name != INTERPRETER {
        return Loading::Foreign;
    }
    if is_go(&segments, &read) {
        return Loading::Foreign;
    }
    Loading::Preloads(sanitizer(&segments, &read))
}

/// Go's runtime makes its own system calls, also in a program that is linked to libc:
/// that libc is served would help it with nothing.
fn is_go(segments: &[Segment], read: &impl Fn(u64, &mut [u8]) -> usize) -> bool {
    let mut notes = segments.iter().filter(|segment| segment.kind == PT_NOTE);
    notes.any(|segment| {
        let mut room = vec![0; segment.bytes.min(TABLE) as usize];
        let len = read(segment.offset, &mut room);
        names_go(&room[..len]).unwrap_or(false)
    })
}

/// Returns whether one of these notes is Go's; `None` where they end before it is found.
fn names_go(mut notes: &[u8]) -> Option<bool> {
    loop {
        let name_bytes = number(notes, 0, 4)?;
        let padded = |bytes: u64| usize::try_from(bytes.next_multiple_of(4)).ok();
        let text_bytes = padded(number(notes, 4, 4)?)?;
        let name = notes.get(12..)?;
        if name_bytes == 4 && name.starts_with(b"Go\0\0") {
            return Some(true);
        }
        let next = padded(name_bytes)?.checked_add(text_bytes)?;
        notes = name.get(next..)?;
    }
}

fn script(line: &[u8]) -> Loading {
    let line = &line[..line.len().min(LINE_MAX)];
    let is_blank = |byte: &u8| b" \t".contains(byte);
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(0);
    let ends = |byte: &u8| is_blank(byte) || *byte == b'\n' || *byte == 0;
    let path = line[start..].split(ends).next().unwrap_or_default();
    let rest = &line[start + path.len()..];
    let rest = rest.split(|byte| *byte == b'\n' || *byte == 0).next();
    // A single argument, with the blanks in it but without those at its ends.
    let argument = rest.unwrap_or_default().trim_ascii();
    let argument = (!argument.is_empty()).then(|| argument.to_vec());
    Loading::Script(path.to_vec(), argument)
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

fn segments(head: &[u8]) -> Vec<Segment> {
    let (Some(table), Some(size), Some(count)) = (
        number(head, 32, 8),
        number(head, 54, 2),
        number(head, 56, 2),
    ) else {
        return Vec::new();
    };
    let segment = |index: u64| {
        let at = usize::try_from(table.checked_add(index * size)?).ok()?;
        Some(Segment {
            kind: number(head, at, 4)? as u32,
            offset: number(head, at.checked_add(8)?, 8)?,
            address: number(head, at.checked_add(16)?, 8)?,
            bytes: number(head, at.checked_add(32)?, 8)?,
        })
    };
    (0..count).map_while(segment).collect()
}

/// The sanitizer's library that a program is linked to.
fn sanitizer(segments: &[Segment], read: &impl Fn(u64, &mut [u8]) -> usize) -> Option<Vec<u8>> {
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let mut table = vec![0; dynamic.bytes.min(TABLE) as usize];
    let len = read(dynamic.offset, &mut table);
    let entries = || {
        (0..len / 16).filter_map(|index| {
            let tag = number(&table, index * 16, 8)?;
            Some((tag, number(&table, index * 16 + 8, 8)?))
        })
    };
    let (_, strings) = entries().find(|(tag, _)| *tag == DT_STRTAB)?;
    let holds = |segment: &&Segment| {
        let inside = strings.checked_sub(segment.address);
        segment.kind == PT_LOAD && inside.is_some_and(|inside| inside < segment.bytes)
    };
    let around = segments.iter().find(holds)?;
    let strings = around.offset.checked_add(strings - around.address)?;
    let needed = entries().filter(|(tag, _)| *tag == DT_NEEDED);
    needed.into_iter().find_map(|(_, at)| {
        let mut name = [0; NAME_MAX];
        let len = read(strings.checked_add(at)?, &mut name);
        let name = name[..len].split(|byte| *byte == 0).next()?;
        is_sanitizer(name).then(|| name.to_vec())
    })
}

/// Returns whether a library is such a one, by its name.
#[must_use]
pub fn is_sanitizer(name: &[u8]) -> bool {
    SANITIZERS.iter().any(|known| name.starts_with(known))
}

/// A little-endian number of so many bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(word))
}
