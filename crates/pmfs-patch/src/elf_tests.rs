//! Goal: what can't be patched is refused with its cause, and damage never panics.
//! Method: this process's libc, with bytes of its headers changed.

use std::fs;

use super::*;
use crate::patched_text::{PatchedText, tests::libc_path};
use crate::unwind::functions;

const E_TYPE: usize = 16;
const E_MACHINE: usize = 18;
const E_SHOFF: usize = 40;
const E_SHNUM: usize = 60;
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const P_FLAGS: usize = 4;
const P_OFFSET: usize = 8;
const P_VADDR: usize = 16;
const P_MEMSZ: usize = 40;
const SECTION_BYTES: usize = 64;
const SH_TYPE: usize = 4;
const SH_OFFSET: usize = 24;

fn libc() -> Vec<u8> {
    fs::read(libc_path()).expect("libc")
}

fn cause(bytes: &[u8]) -> PatchError {
    PatchedText::make(bytes).expect_err("refused")
}

/// File offsets of the program headers of a type, and their flags.
fn segments(bytes: &[u8], kind: u32) -> Vec<(usize, u32)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let count = usize::from(bytes[56]);
    (0..count)
        .map(|at| HEADER_BYTES + at * SEGMENT_BYTES)
        .filter(|at| word(*at) == kind)
        .map(|at| (at, word(at + P_FLAGS)))
        .collect()
}

fn executable(bytes: &[u8]) -> usize {
    let loads = segments(bytes, 1);
    let found = loads.iter().find(|(_, flags)| flags & 1 != 0);
    found.expect("an executable segment").0
}

#[test]
fn what_is_no_library() {
    assert!(matches!(cause(b""), PatchError::Malformed { .. }));
    assert!(matches!(cause(&[0; 64]), PatchError::Malformed { .. }));
    let mut bytes = libc();
    bytes[E_MACHINE] = 183;
    assert!(matches!(cause(&bytes), PatchError::Machine));
    let mut bytes = libc();
    bytes[4] = 1;
    assert!(matches!(cause(&bytes), PatchError::Machine));
    let mut bytes = libc();
    bytes[E_TYPE] = 2;
    assert!(matches!(cause(&bytes), PatchError::NotShared { found: 2 }));
}

#[test]
fn without_a_build_id() {
    let mut bytes = libc();
    let note = bytes
        .windows(8)
        .position(|at| at == [3, 0, 0, 0, b'G', b'N', b'U', 0])
        .expect("the note");
    bytes[note] = 0x77;
    assert!(matches!(cause(&bytes), PatchError::NoBuildId));
}

#[test]
fn without_sections() {
    let mut bytes = libc();
    bytes[E_SHOFF..E_SHOFF + 8].fill(0);
    bytes[E_SHNUM..E_SHNUM + 4].fill(0);
    assert!(matches!(cause(&bytes), PatchError::NoSections));
}

#[test]
fn several_executable_segments_or_none() {
    let mut bytes = libc();
    let (data, _) = segments(&bytes, 1)[0];
    bytes[data + P_FLAGS] |= 1;
    assert!(matches!(cause(&bytes), PatchError::Segments { count: 2 }));
    let mut bytes = libc();
    let text = executable(&bytes);
    bytes[text + P_FLAGS] &= !1;
    assert!(matches!(cause(&bytes), PatchError::Segments { count: 0 }));
}

#[test]
fn text_that_is_not_pages_of_the_file() {
    for (field, change) in [(P_OFFSET, 0x10), (P_MEMSZ, 0x10), (P_FLAGS, 2)] {
        let mut bytes = libc();
        let text = executable(&bytes);
        bytes[text + field] ^= change;
        let cause = cause(&bytes);
        assert!(matches!(cause, PatchError::Alignment { .. }), "{cause}");
    }
}

#[test]
fn out_of_reach() {
    let mut bytes = libc();
    let text = executable(&bytes);
    // Address, length in the file and in memory: 2 GiB - 512 MiB.
    for field in [P_MEMSZ, P_MEMSZ - 8] {
        bytes[text + field..text + field + 8].copy_from_slice(&0x6000_0000u64.to_le_bytes());
    }
    assert!(matches!(cause(&bytes), PatchError::TooLarge { .. }));
}

/// A relocation of the first section of them made to write into the text.
#[test]
fn text_that_is_relocated() {
    let mut bytes = libc();
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let text = executable(&bytes);
    let place = long(text + P_VADDR) + 0x100;
    let first_section = long(E_SHOFF) as usize;
    let sections = (first_section..bytes.len() - SECTION_BYTES).step_by(SECTION_BYTES);
    let is_rela = |at: &usize| bytes[at + SH_TYPE] == 4;
    let relocations = sections.into_iter().find(is_rela).expect("relocations");
    let first = long(relocations + SH_OFFSET) as usize;
    bytes[first..first + 8].copy_from_slice(&place.to_le_bytes());
    let cause = cause(&bytes);
    assert!(
        matches!(cause, PatchError::TextRelocation { place: found } if found == place),
        "{cause}"
    );
}

#[test]
fn cut_off() {
    let bytes = libc();
    for len in [63, 64, 1000, bytes.len() / 2, bytes.len() - 1] {
        assert!(PatchedText::make(&bytes[..len]).is_err(), "{len} bytes");
    }
}

/// Bytes of headers, symbols, relocations and unwind tables flipped, one at a time. Any result is
/// right, as long as there is one.
#[test]
fn damage_is_no_panic() {
    let good = libc();
    let library = Library::parse(&good).expect("libc");
    let text = library.text.file_offset as usize;
    let behind = text + library.text.bytes.len();
    let frames = library.eh_frame_hdr.expect("unwind tables") as usize;
    let headers = (0..0x400).step_by(3);
    let tables = (0x400..text).step_by(text / 60);
    let unwind = (frames..frames + 0x2c000).step_by(0x2c000 / 150);
    let sections = (behind..good.len()).step_by((good.len() - behind) / 60);
    let mut bytes = good.clone();
    let mut refused = 0;
    for at in headers.chain(tables).chain(unwind).chain(sections) {
        for change in [0x01, 0x80] {
            bytes[at] ^= change;
            let parsed = Library::parse(&bytes);
            refused += u32::from(parsed.is_ok_and(|library| functions(&library).is_err()));
            bytes[at] ^= change;
        }
    }
    println!("unwind tables refused {refused} times");
    // A few changes then stay to the end.
    for at in (0..0x340).step_by(40) {
        bytes[at] ^= 0x04;
        let _ = PatchedText::make(&bytes);
        bytes[at] ^= 0x04;
    }
}
