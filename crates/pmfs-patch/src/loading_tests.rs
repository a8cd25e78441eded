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
