//! Mounts that read and write files through the kernel's pages, as all do before Linux
//! 6.6 (`-o paged`): what is opened for writing alone goes past them, so that a write
//! is whole, and agrees with what programs have mapped.

mod bench;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bench::Bench;
use bench::mapper::Mapper;
use pmfs::{Fs, OpenOptions as Attach};

const PAGE: usize = 4096;

/// No whole number of pages.
const RECORD: usize = 4500;

fn library(bench: &Bench) -> Fs {
    Fs::open(&bench.path("pool"), &Attach::default()).unwrap()
}

/// The pool is sound when all have left it.
fn end(bench: &Bench) {
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

/// Appends records by a descriptor, while another process looks at the size: it never
/// sees a part of one.
fn appends_are_whole(paged: &str, open: &OpenOptions) {
    let Some(bench) = Bench::mounted(&["-o", paged]) else {
        return;
    };
    fs::write(bench.file("log"), "").unwrap();
    let fs = library(&bench);
    let ino = fs.walk(b"/log", true).unwrap().ino;
    let done = AtomicBool::new(false);
    let parts = thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut parts = 0;
            while !done.load(Ordering::SeqCst) {
                let size = fs.getattr(ino).unwrap().size;
                parts += u32::from(!size.is_multiple_of(RECORD as u64));
            }
            parts
        });
        let mut log = open.open(bench.file("log")).unwrap();
        for _ in 0..3000 {
            log.write_all(&[7; RECORD]).unwrap();
        }
        done.store(true, Ordering::SeqCst);
        looker.join().unwrap()
    });
    assert_eq!(parts, 0, "looks that met a part of a record");
    assert_eq!(fs.getattr(ino).unwrap().size, 3000 * RECORD as u64);
    fs.close().unwrap();
    end(&bench);
}

#[test]
fn appends_of_write_only_files_are_whole() {
    appends_are_whole("paged=always", OpenOptions::new().append(true));
}

#[test]
fn appends_past_all_pages_are_whole() {
    appends_are_whole("paged=never", OpenOptions::new().append(true).read(true));
}

/// A file that is mapped, read and written below one mount, by a descriptor for writing
/// alone among them.
#[test]
fn what_goes_past_pages_agrees_with_them() {
    let Some(bench) = Bench::mounted(&["-o", "paged=always"]) else {
        return;
    };
    let path = bench.file("f");
    fs::write(&path, vec![0; 2 * PAGE]).unwrap();
    let fs = library(&bench);
    let ino = fs.walk(b"/f", true).unwrap().ino;
    let mut mapper = Mapper::of(&path, "rw", 2 * PAGE);
    let reader = File::open(&path).unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    let both = OpenOptions::new().read(true).write(true).open(&path);
    let both = both.unwrap();
    for step in 1..100_u8 {
        // In pages that the kernel has, and has not written back.
        mapper.does(&format!("store f 0 {step}"));
        mapper.does(&format!("store f {PAGE} {step}"));
        writer.write_all_at(&[step; 10], PAGE as u64 - 5).unwrap();
        assert_eq!(mapper.load(PAGE - 5, 10), [step; 10]);
        assert_eq!(mapper.load(0, 1), [step], "stored before");
        let mut seen = [0];
        reader.read_exact_at(&mut seen, PAGE as u64 + 4).unwrap();
        assert_eq!(seen, [step]);
        both.write_all_at(&[step], 100).unwrap();
        assert_eq!(mapper.load(100, 1), [step]);
        writer.write_all_at(&[step], 101).unwrap();
        let mut seen = [0; 2];
        both.read_exact_at(&mut seen, 100).unwrap();
        assert_eq!(seen, [step; 2]);
        let mut seen = [0; 2];
        fs.read(ino, 100, &mut seen).unwrap();
        assert_eq!(seen, [step; 2]);
    }
    drop((mapper, reader, writer, both));
    fs.close().unwrap();
    end(&bench);
}

/// A program stores to pages as fast as it can while others write past them: nobody
/// waits for ever, and nothing is lost.
#[test]
fn writing_past_pages_of_a_busy_program() {
    let Some(bench) = Bench::mounted(&["-o", "paged=always"]) else {
        return;
    };
    let path = bench.file("f");
    fs::write(&path, vec![0; 16 * PAGE]).unwrap();
    let stop = bench.path("stop");
    let mut mapper = Mapper::of(&path, "rw", 16 * PAGE);
    mapper.tell(&format!("hammer f {}", stop.display()));
    thread::scope(|scope| {
        for thread in 0..4 {
            let writer = OpenOptions::new().write(true).open(&path).unwrap();
            scope.spawn(move || {
                for step in 1..=50_u8 {
                    let at = thread * 4 * PAGE as u64 + 100;
                    writer.write_all_at(&[step; PAGE + 500], at).unwrap();
                }
            });
        }
    });
    fs::write(&stop, "").unwrap();
    assert_eq!(mapper.says(), "ok");
    for thread in 0..4 {
        let at = thread * 4 * PAGE + 100;
        assert_eq!(mapper.load(at, 100), [50; 100]);
        assert_eq!(mapper.load(at + PAGE + 400, 100), [50; 100]);
    }
    drop(mapper);
    end(&bench);
}
