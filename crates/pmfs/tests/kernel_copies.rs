//! Goal: whoever touches the content of a file of which a mount's kernel has pages gets these back
//! first, and nobody else waits. Method: doubles of mounts: an attachment of their own, a "kernel"
//! with one page of the file, and a thread that gives it back when it is asked, as the mount's
//! revoker does.

mod scratch;

use pmfs::{Error, FallocateMode, Fs, Ino, NewNode, OpenOptions, ROOT_INO, SetAttr};
use pmfs_admin::Admin;
use scratch::Scratch;
use std::fs::File as OpenFile;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

const PAGE: usize = 4096;

fn bench() -> Scratch {
    Scratch::new(16 << 20)
}

fn open(path: &Path) -> Fs {
    Fs::open(path, &OpenOptions::default()).unwrap()
}

/// A kernel's page: the bytes, and whether a program has stored to it.
#[derive(Clone)]
struct Page {
    bytes: Vec<u8>,
    dirty: bool,
}

/// A mount with one file open, and its kernel.
struct Mount {
    fs: Arc<Fs>,
    ino: Ino,
    writing: Arc<AtomicBool>,
    page: Arc<Mutex<Option<Page>>>,
    taken_back: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    revoker: Option<JoinHandle<()>>,
}

impl Mount {
    fn new(path: &Path, ino: Ino, writing: bool) -> Mount {
        let mut mount = Mount {
            fs: Arc::new(open(path)),
            ino,
            writing: Arc::default(),
            page: Arc::default(),
            taken_back: Arc::default(),
            ends: Arc::default(),
            revoker: None,
        };
        mount.fs.tell_of_pages();
        mount.fs.hold(ino).unwrap();
        mount.revoker = Some(mount.revoke());
        if writing {
            mount.open_for_writing();
        }
        mount
    }

    fn revoke(&self) -> JoinHandle<()> {
        let (fs, page, ends) = (self.fs.clone(), self.page.clone(), self.ends.clone());
        let taken_back = self.taken_back.clone();
        thread::spawn(move || {
            let mut seen = 0;
            while !ends.load(Ordering::SeqCst) {
                fs.wait_to_be_asked(seen, Duration::from_secs(1)).unwrap();
                seen = fs.asked_for_pages().unwrap();
                for wanted in fs.wanted_pages().unwrap() {
                    if let Some(page) = page.lock().unwrap().take()
                        && page.dirty
                    {
                        fs.write_back(wanted.ino, 0, &page.bytes).unwrap();
                    }
                    if fs.give_pages_back(wanted.ino, wanted.generation).unwrap() {
                        taken_back.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        })
    }

    /// Calls as a worker does for a request that may meet others' pages.
    fn until_back<T>(&self, call: impl Fn() -> pmfs::Result<T>) -> T {
        loop {
            match call() {
                Err(Error::PagesElsewhere(pages)) => {
                    self.fs.wait_for_pages(*pages, &|| false).unwrap();
                }
                other => return other.unwrap(),
            }
        }
    }

    fn open_for_writing(&self) {
        let begin = || self.writing.store(true, Ordering::SeqCst);
        self.until_back(|| self.fs.begin_kernel_writing(self.ino, &begin));
    }

    /// A program touches the page; `change` is what it does to it.
    fn touch<T>(&self, change: impl Fn(&mut Page) -> T) -> T {
        loop {
            if let Some(page) = self.page.lock().unwrap().as_mut() {
                return change(page);
            }
            self.until_back(|| {
                // The folio is locked while the READ is answered.
                let mut page = self.page.lock().unwrap();
                let writing = || self.writing.load(Ordering::SeqCst);
                self.fs.note_kernel_read(self.ino, &writing)?;
                let mut bytes = vec![0; PAGE];
                self.fs.read(self.ino, 0, &mut bytes)?;
                *page = Some(Page {
                    bytes,
                    dirty: false,
                });
                Ok(())
            });
        }
    }

    fn store(&self, at: usize, value: u8) {
        assert!(self.writing.load(Ordering::SeqCst));
        self.touch(|page| {
            page.bytes[at] = value;
            page.dirty = true;
        });
    }

    fn load(&self, at: usize) -> u8 {
        self.touch(|page| page.bytes[at])
    }

    /// So often, by now or in a moment: the revoker counts after who asked goes on.
    fn was_taken_back(&self, times: u64) -> bool {
        let began = Instant::now();
        while self.taken_back() < times && began.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
        self.taken_back() == times
    }

    fn taken_back(&self) -> u64 {
        self.taken_back.load(Ordering::SeqCst)
    }

    /// The last handle goes; the program has unmapped the file before.
    fn close(self) {
        if let Some(page) = self.page.lock().unwrap().take()
            && page.dirty
        {
            self.fs.write_back(self.ino, 0, &page.bytes).unwrap();
        }
        self.fs.forget_kernel_copies(self.ino, &|| false).unwrap();
        self.fs.release(self.ino).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.fs.end_wait_to_be_asked();
        if let Some(revoker) = self.revoker.take() {
            let ended = revoker.join();
            if !thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

/// Leaves, and has the pool checked.
fn end(bench: &Scratch, fs: Fs) {
    assert_eq!(fs.kernel_copies(), []);
    fs.close().unwrap();
    let alone = OpenOptions {
        exclusive: true,
        ..OpenOptions::default()
    };
    let fs = Fs::open(&bench.path, &alone).unwrap();
    let report = fs.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
    fs.close().unwrap();
}

fn file(fs: &Fs, name: &[u8], len: usize) -> Ino {
    let ino = fs.create(ROOT_INO, name, &NODE).unwrap().ino;
    fs.write(ino, 0, &vec![b'.'; len]).unwrap();
    ino
}

/// Every call on the content sees what the program has stored; those that look at other things do
/// not ask for pages.
#[test]
fn each_call_gets_pages_back_first() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", PAGE);
    let other = file(&fs, b"other", 1);
    let mount = Mount::new(&bench.path, ino, true);
    type Call<'a> = (&'a str, &'a dyn Fn(&Fs) -> u64);
    let size = Some(2 * PAGE as u64);
    let longer = SetAttr {
        size,
        ..SetAttr::default()
    };
    let keep = FallocateMode::KEEP_SIZE;
    let calls: [Call<'_>; 10] = [
        ("read", &|fs| fs.read(ino, 0, &mut [0; 8]).unwrap() as u64),
        ("write", &|fs| fs.write(ino, 100, b"w").unwrap() as u64),
        ("append", &|fs| fs.append(ino, b"a").unwrap().0),
        ("fallocate", &|fs| {
            fs.fallocate(ino, keep, 8192, 4096).unwrap();
            0
        }),
        ("seek_data", &|fs| fs.seek_data(ino, 0).unwrap()),
        ("seek_hole", &|fs| fs.seek_hole(ino, 0).unwrap()),
        ("copy from", &|fs| {
            fs.copy_range(ino, 0, other, 0, 8).unwrap()
        }),
        ("copy to", &|fs| {
            fs.copy_range(other, 0, ino, 50, 1).unwrap()
        }),
        ("insert", &|fs| {
            fs.insert_range(ino, 4096, 4096).unwrap();
            0
        }),
        ("setattr", &|fs| fs.setattr(ino, &longer).unwrap().size),
    ];
    for (value, (name, call)) in (1..).zip(calls) {
        mount.store(7, value);
        let before = mount.taken_back();
        fs.getattr(ino).unwrap();
        fs.lookup(ROOT_INO, b"f").unwrap();
        assert_eq!(mount.taken_back(), before, "{name}");
        call(&fs);
        assert!(mount.was_taken_back(before + 1), "{name}");
        let mut byte = [0];
        fs.read(ino, 7, &mut byte).unwrap();
        assert_eq!(byte, [value], "{name}");
        assert_eq!(mount.load(7), value, "{name}");
    }
    mount.store(7, 99);
    fs.collapse_range(ino, 0, 4096).unwrap();
    assert_ne!(mount.load(7), 99, "that block is gone");
    mount.close();
    end(&bench, fs);
}

/// Clean pages are in the way of changes only, and several mounts may have them; once one of them
/// opens the file for writing it has them alone.
#[test]
fn clean_pages_stand_side_by_side() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", PAGE);
    let [first, second] = [0, 1].map(|_| Mount::new(&bench.path, ino, false));
    assert_eq!((first.load(0), second.load(0)), (b'.', b'.'));
    assert_eq!(fs.kernel_copies().len(), 2);
    fs.read(ino, 0, &mut [0; 8]).unwrap();
    fs.seek_data(ino, 0).unwrap();
    assert_eq!((first.taken_back(), second.taken_back()), (0, 0));
    fs.write(ino, 0, b"x").unwrap();
    assert!(first.was_taken_back(1) && second.was_taken_back(1));
    assert_eq!((first.load(0), second.load(0)), (b'x', b'x'));
    first.open_for_writing();
    assert!(first.was_taken_back(1) && second.was_taken_back(2));
    first.store(0, b'y');
    assert_eq!(fs.kernel_copies().len(), 1);
    assert_eq!(second.load(0), b'y');
    assert!(first.was_taken_back(2));
    first.close();
    second.close();
    end(&bench, fs);
}

/// A mount's own requests are its kernel's business.
#[test]
fn what_is_ones_own_is_not_in_the_way() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", PAGE);
    let mount = Mount::new(&bench.path, ino, true);
    mount.store(0, 1);
    mount.fs.read(ino, 0, &mut [0; 8]).unwrap();
    mount.fs.write(ino, 8, b"direct").unwrap();
    assert_eq!(mount.taken_back(), 0);
    // Another file whose lock falls on any line, among them this file's: not in the way either.
    for n in 0..200 {
        let other = file(&fs, n.to_string().as_bytes(), 1);
        fs.write(other, 0, b"x").unwrap();
    }
    assert_eq!(mount.taken_back(), 0);
    mount.close();
    end(&bench, fs);
}

/// Two mounts and a library user count in one page; no step is lost. Both mounts ask each other all
/// the time.
#[test]
fn counting_together() {
    const STEPS: u64 = 300;
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", PAGE);
    fs.write(ino, 0, &[0; 24]).unwrap();
    let mounts = [0, 1].map(|_| Mount::new(&bench.path, ino, true));
    thread::scope(|scope| {
        for (own, mount) in (0..).zip(&mounts) {
            scope.spawn(move || {
                for _ in 0..STEPS {
                    mount.touch(|page| {
                        let cell = &mut page.bytes[own * 8..own * 8 + 8];
                        let count = u64::from_le_bytes((&*cell).try_into().unwrap()) + 1;
                        cell.copy_from_slice(&count.to_le_bytes());
                        page.dirty = true;
                    });
                }
            });
        }
        for count in 1..=STEPS {
            fs.write(ino, 16, &count.to_le_bytes()).unwrap();
        }
    });
    let mut cells = [0; 24];
    fs.read(ino, 0, &mut cells).unwrap();
    for cell in cells.chunks_exact(8) {
        assert_eq!(u64::from_le_bytes(cell.try_into().unwrap()), STEPS);
    }
    for mount in mounts {
        mount.close();
    }
    end(&bench, fs);
}

/// A page that is read while its kernel drops the others is asked for once more.
#[test]
fn pages_served_meanwhile_are_not_given_back() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", PAGE);
    let mount = open(&bench.path);
    mount.tell_of_pages();
    mount.hold(ino).unwrap();
    mount.note_kernel_read(ino, &|| true).unwrap();
    let seen = mount.asked_for_pages().unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| fs.read(ino, 0, &mut [0; 8]).unwrap());
        while mount.asked_for_pages().unwrap() == seen {
            let most = Duration::from_secs(30);
            mount.wait_to_be_asked(seen, most).unwrap();
        }
        let wanted = mount.wanted_pages().unwrap()[0];
        mount.note_kernel_read(ino, &|| true).unwrap();
        assert!(!mount.give_pages_back(ino, wanted.generation).unwrap());
        assert!(!reader.is_finished());
        let wanted = mount.wanted_pages().unwrap()[0];
        assert!(mount.give_pages_back(ino, wanted.generation).unwrap());
        reader.join().unwrap();
    });
    // Nobody waits, and it is held for no longer than there is a handle.
    mount.note_kernel_read(ino, &|| true).unwrap();
    mount.forget_kernel_copies(ino, &|| true).unwrap();
    assert_eq!(fs.kernel_copies().len(), 1, "another handle");
    mount.forget_kernel_copies(ino, &|| false).unwrap();
    mount.close().unwrap();
    end(&bench, fs);
}

/// Bytes that come back from a page never make the file longer: it may have been cut since.
#[test]
fn nothing_is_written_back_past_the_end() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", 100);
    fs.write_back(ino, 0, &[b'x'; PAGE]).unwrap();
    fs.write_back(ino, PAGE as u64, &[b'x'; PAGE]).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().size, 100);
    let mut bytes = [0; 200];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), 100);
    assert_eq!(bytes[..100], [b'x'; 100]);
    end(&bench, fs);
}

/// Goal: a mount that leaves, or is left as a killed one is, holds nobody up.
#[test]
fn records_end_with_their_mount() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", PAGE);
    let mount = open(&bench.path);
    mount.note_kernel_read(ino, &|| true).unwrap();
    mount.close().unwrap();
    assert_eq!(fs.kernel_copies(), []);
    fs.write(ino, 0, b"x").unwrap();

    let mount = open(&bench.path);
    mount.note_kernel_read(ino, &|| true).unwrap();
    assert_eq!(fs.kernel_copies().len(), 1);
    // The lock of its slot falls, as at its death.
    drop(mount);
    let began = Instant::now();
    fs.write(ino, 0, b"y").unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(fs.kernel_copies(), []);
    end(&bench, fs);
}

/// A record whose slot is nobody's is told of by a check. Method: the slot's first word, its state,
/// in the pool's file.
#[test]
fn a_record_in_vain_is_found() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = file(&fs, b"f", PAGE);
    let mount = open(&bench.path);
    mount.note_kernel_read(ino, &|| false).unwrap();
    assert!(fs.check().unwrap().is_clean());
    let slot = fs.kernel_copies()[0].slot;
    let name = format!("slot {slot}");
    let mut offsets = (4096..).step_by(64);
    let off = offsets.find(|&off| fs.name_of(off) == name).unwrap();
    let pool = OpenFile::options().write(true).open(&bench.path).unwrap();
    pool.write_at(&0_u64.to_ne_bytes(), off).unwrap();
    let found = fs.check().unwrap().findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].number, 53);
    pool.write_at(&1_u64.to_ne_bytes(), off).unwrap();
    mount.close().unwrap();
    end(&bench, fs);
}

/// More files than the table has room for: refused, and nothing is wrong after.
#[test]
fn a_full_table_refuses() {
    let bench = bench();
    let fs = open(&bench.path);
    let mut refused = None;
    let mut noted = Vec::new();
    for n in 0..10_000 {
        let ino = file(&fs, n.to_string().as_bytes(), 1);
        match fs.note_kernel_read(ino, &|| false) {
            Ok(()) => noted.push(ino),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(Error::TooManyOpen)), "{refused:?}");
    let other = open(&bench.path);
    assert_eq!(other.kernel_copies().len(), noted.len());
    for ino in noted {
        fs.forget_kernel_copies(ino, &|| false).unwrap();
    }
    other.close().unwrap();
    end(&bench, fs);
}
