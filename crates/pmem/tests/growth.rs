//! Goal: a mapping with reserved address space grows in place, by this process or another, while
//! other threads use it; one that can't grow gives the reason and is unchanged. Method: files on
//! tmpfs and private memory are lengthened; children have a limit.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use pmem::{Error, MapOptions, Pmem, ProtectMode};

const MIB: u64 = 1 << 20;

fn growing(reserve: u64) -> MapOptions {
    MapOptions {
        protect: ProtectMode::None,
        reserve,
        ..MapOptions::default()
    }
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    (dir, path)
}

fn create(path: &Path, len: u64, reserve: u64) -> Pmem {
    Pmem::create(path, len, false, true, &growing(reserve)).unwrap()
}

/// Checks that the last word before `end` can be used, and that a word behind it is refused.
fn ends_at(mem: &Pmem, end: u64) {
    assert_eq!(mem.len(), end);
    mem.store(end - 8, end);
    assert_eq!(mem.load(end - 8), end);
    mem.write_nt(end - 64, &[3; 64]).unwrap();
    mem.fence();
    // In an optimised build such an access ends the process.
    let behind = [end, end + 4096].into_iter();
    for off in behind.filter(|_| cfg!(debug_assertions)) {
        let outside = catch_unwind(AssertUnwindSafe(|| mem.load(off)));
        assert!(outside.is_err(), "{off:#x} is outside");
        let outside = catch_unwind(AssertUnwindSafe(|| mem.copy_out(off - 8, &mut [0; 16])));
        assert!(outside.is_err(), "{off:#x} is outside");
    }
}

#[test]
fn it_grows_where_it_is() {
    let (_dir, path) = place();
    let mem = create(&path, 4 * MIB, 64 * MIB);
    assert_eq!(mem.room(), 64 * MIB);
    ends_at(&mem, 4 * MIB);
    mem.store(4096, 77);
    let base = mem.addresses().start;
    // Lengths that are no multiple of 2 MiB, or of a page.
    for len in [5 * MIB, 5 * MIB + 4096, 5 * MIB + 8192 + 64, 64 * MIB] {
        mem.lengthen(len, false).unwrap();
        assert_eq!(mem.load(len - 72), 0, "what is new is zeros");
        ends_at(&mem, len);
        let file = std::fs::metadata(&path).unwrap();
        assert_eq!(file.len(), len);
        assert!(file.blocks() * 512 >= len, "with space");
    }
    assert_eq!((mem.load(4096), mem.addresses().start), (77, base));
    let again = Pmem::open(&path, &growing(0)).unwrap();
    assert_eq!((again.load(4096), again.len()), (77, 64 * MIB));
    assert_eq!(again.load(64 * MIB - 8), u64::from_le_bytes([3; 8]));
}

#[test]
fn sparse_takes_no_space() {
    let (_dir, path) = place();
    let mem = create(&path, MIB, 64 * MIB);
    mem.lengthen(64 * MIB, true).unwrap();
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 4 * MIB);
    ends_at(&mem, 64 * MIB);
}

#[test]
fn what_another_made_longer_is_reached() {
    let (_dir, path) = place();
    let first = create(&path, MIB, 16 * MIB);
    let second = Pmem::open(&path, &growing(16 * MIB)).unwrap();
    let reader = MapOptions {
        read_only: true,
        ..growing(16 * MIB)
    };
    let reader = Pmem::open(&path, &reader).unwrap();
    first.lengthen(8 * MIB, false).unwrap();
    first.store(7 * MIB, 5);
    for mem in [&second, &reader] {
        assert_eq!(mem.len(), MIB);
        mem.extend(8 * MIB).unwrap();
        assert_eq!((mem.len(), mem.load(7 * MIB)), (8 * MIB, 5));
        // Growing again, and to the present length, changes nothing.
        mem.extend(8 * MIB).unwrap();
        mem.extend(MIB).unwrap();
        assert_eq!(mem.len(), 8 * MIB);
    }
    ends_at(&second, 8 * MIB);
}

#[test]
fn private_memory_grows() {
    let mem = Pmem::private_within(8192, 3 * MIB);
    mem.store(0, 1);
    mem.extend(2 * MIB + 100).unwrap();
    assert_eq!(
        (mem.len(), mem.load(0), mem.load(MIB)),
        (2 * MIB + 100, 1, 0)
    );
    mem.lengthen(3 * MIB, false).unwrap();
    ends_at(&mem, 3 * MIB);
    assert!(matches!(mem.extend(4 * MIB), Err(Error::NoRoom { room, .. }) if room == 3 * MIB));
}

#[test]
fn what_can_not_grow_says_why_and_stays() {
    let (dir, path) = place();
    let fixed = create(&path, MIB, 0);
    let refused = fixed.lengthen(2 * MIB, false).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::NoRoom { room: MIB, .. }), "{text}");
    assert!(text.contains("address space"), "{text}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB);
    ends_at(&fixed, MIB);

    let mem = Pmem::open(&path, &growing(1 << 45)).unwrap();
    assert!(mem.room() > 1 << 44, "{:#x}", mem.room());
    // The file is shorter.
    let short = mem.extend(2 * MIB).unwrap_err();
    assert!(
        matches!(short, Error::TooSmall { len: MIB, .. }),
        "{short:?}"
    );
    // No medium is so large; the file keeps its length.
    let full = mem.lengthen(1 << 44, false).unwrap_err();
    assert!(matches!(full, Error::NoSpace { .. }), "{full:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB);
    ends_at(&mem, MIB);
    mem.lengthen(2 * MIB, false).unwrap();
    ends_at(&mem, 2 * MIB);
    // The name belongs to another file.
    std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
    drop(create(&path, 16 * MIB, 0));
    for refused in [mem.extend(3 * MIB), mem.lengthen(3 * MIB, false)] {
        assert!(matches!(refused, Err(Error::Open { .. })), "{refused:?}");
    }
    ends_at(&mem, 2 * MIB);
}

#[test]
fn threads_use_what_is_there_while_it_grows() {
    const STEP: u64 = 64 << 10;
    let (_dir, path) = place();
    let mem = create(&path, STEP, 128 * STEP);
    let second = Pmem::open(&path, &growing(128 * STEP)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let mem = &mem;
            scope.spawn(move || {
                loop {
                    let end = mem.len();
                    mem.store(end - 8 * (thread + 1), end);
                    assert_eq!(mem.load(end - 8 * (thread + 1)), end);
                    if end == 128 * STEP {
                        break;
                    }
                }
            });
        }
        // Two threads lengthen the same mapping at once.
        for _ in 0..2 {
            let (mem, second) = (&mem, &second);
            scope.spawn(move || {
                for step in 2..=128 {
                    let file = OpenOptions::new().write(true).open(second.path().unwrap());
                    pmem::lengthen_file(second.path().unwrap(), &file.unwrap(), step * STEP, true)
                        .unwrap();
                    mem.extend(step * STEP).unwrap();
                }
            });
        }
    });
    ends_at(&mem, 128 * STEP);
}

/// Goal: a failure of the medium in the new part gives zeros and is reported, as elsewhere.
#[test]
fn the_new_end_may_fail_too() {
    let (_dir, path) = place();
    let mem = create(&path, MIB, 4 * MIB);
    mem.lengthen(2 * MIB, false).unwrap();
    mem.store(2 * MIB - 8, 1);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(MIB).unwrap();
    assert_eq!(mem.load(2 * MIB - 8), 0);
    assert_eq!(mem.failed(), Some(2 * MIB - 8));
    let stopped = mem.copy_out(MIB - 64, &mut [0; 128]).unwrap_err();
    assert_eq!(stopped.done, 64);
}

#[test]
fn a_limit_leaves_room_for_the_program() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_a_limit", "--ignored"])
        .args(["--test-threads=1", "-q", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
}

#[test]
#[ignore = "run as a child"]
fn child_with_a_limit() {
    let limit = libc::rlimit {
        rlim_cur: 8 << 30,
        rlim_max: 8 << 30,
    };
    // SAFETY: a limit of this process, which is made for it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let (_dir, path) = place();
    let mem = create(&path, MIB, 7 << 30);
    let room = mem.room();
    assert!((2 << 30..=4 << 30).contains(&room), "{room:#x}");
    mem.lengthen(3 * MIB, false).unwrap();
    ends_at(&mem, 3 * MIB);
    // A second mapping gets less, and both work.
    let second = Pmem::open(&path, &growing(1 << 40)).unwrap();
    assert!(second.room() >= 3 * MIB);
    let rest = std::hint::black_box(vec![1u8; 64 << 20]);
    assert_eq!(rest.len(), 64 << 20, "the program has memory left");
}
