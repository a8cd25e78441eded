//! Method: programs of this machine, and bytes that are none.

use std::os::unix::fs::FileExt;

use crate::loading::{Loading, of};

fn of_file(path: &str) -> Loading {
    let file = std::fs::File::open(path).expect(path);
    of(|at, bytes| file.read_at(bytes, at).unwrap_or(0))
}

fn of_bytes(bytes: &[u8]) -> Loading {
    of(|at, room| {
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        len
    })
}

#[test]
fn programs_of_this_machine() {
    assert_eq!(of_file("/bin/sh"), Loading::Preloads(None));
    assert_eq!(of_file("/lib64/ld-linux-x86-64.so.2"), Loading::Static);
}

#[test]
fn scripts_name_their_interpreter() {
    let of_line = |line: &str| of_bytes(line.as_bytes());
    let named = |path: &str| Loading::Script(path.as_bytes().to_vec(), None);
    assert_eq!(of_line("#!/bin/sh\necho"), named("/bin/sh"));
    let with =
        |argument: &str| Loading::Script(b"/bin/sh".to_vec(), Some(argument.as_bytes().to_vec()));
    assert_eq!(of_line("#! \t/bin/sh -e\n"), with("-e"));
    assert_eq!(of_line("#!/bin/sh  -e  x \t\nmore"), with("-e  x"));
    assert_eq!(of_line("#!/bin/sh"), named("/bin/sh"));
    assert_eq!(of_line("#!\n"), named(""));
}

/// A program with these notes at an offset of its file.
fn with_notes(at: usize, notes: &[u8]) -> Vec<u8> {
    let loader = b"/lib64/ld-linux-x86-64.so.2\0";
    let mut bytes = vec![0; at.max(1000)];
    let mut put = |at: usize, value: u64, size: usize| {
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    };
    put(0, 0x0002_464c_457f, 6);
    put(18, 62, 2);
    put(32, 64, 8);
    put(54, 56, 2);
    put(56, 2, 2);
    for (index, kind, offset, len) in [(0, 3, 500, loader.len()), (1, 4, at, notes.len())] {
        put(64 + 56 * index, kind, 4);
        put(64 + 56 * index + 8, offset as u64, 8);
        put(64 + 56 * index + 32, len as u64, 8);
    }
    bytes[500..500 + loader.len()].copy_from_slice(loader);
    bytes.truncate(at);
    bytes.extend_from_slice(notes);
    bytes
}

#[test]
fn programs_in_go_are_known_by_a_note() {
    // Name and text lengths, a kind, the name, the text.
    let other = b"\x04\0\0\0\x05\0\0\0\x01\0\0\0GNU\0abcde\0\0\0";
    let go = b"\x04\0\0\0\x03\0\0\0\x04\0\0\0Go\0\0abc\0";
    let both = [&other[..], go].concat();
    for at in [1000, 9000] {
        assert_eq!(of_bytes(&with_notes(at, other)), Loading::Preloads(None));
        assert_eq!(of_bytes(&with_notes(at, go)), Loading::Foreign);
        assert_eq!(of_bytes(&with_notes(at, &both)), Loading::Foreign);
        // Notes that end in the middle, or claim an impossible length.
        let short = with_notes(at, &both[..both.len() - 12]);
        assert_eq!(of_bytes(&short), Loading::Preloads(None));
        let long = [&[0xff; 12][..], go].concat();
        assert_eq!(of_bytes(&with_notes(at, &long)), Loading::Preloads(None));
    }
}

/// Any number in a header may be a lie.
#[test]
fn damaged_programs_are_no_danger() {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize
    };
    let whole = std::fs::read("/bin/sh").expect("a shell");
    for _ in 0..3000 {
        let mut bytes = whole[..whole.len().min(20_000)].to_vec();
        for _ in 0..random() % 8 + 1 {
            let at = random() % 1024;
            bytes[at] = if random() % 2 == 0 {
                0xff
            } else {
                random() as u8
            };
        }
        bytes.truncate(random() % bytes.len());
        let _ = of_bytes(&bytes);
    }
    assert_eq!(of_bytes(b""), Loading::Preloads(None));
    assert_eq!(of_bytes(b"\x7fELF"), Loading::Foreign);
}
