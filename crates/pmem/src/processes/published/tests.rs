//! Goal: a reader sees what threads have counted, by thread, and nothing that a hostile file can
//! hold harms it. Method: pages of this process, and files that are none.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use super::page::Page;
use super::{BYTES, CALLER, Counts, LINES, MAGIC, NAME, Snapshot, for_caller, read};

/// The file of this process's page, as a monitor opens it. Other tests look beside this one.
fn opened(inode: u64) -> Vec<File> {
    static LOOKS: Mutex<()> = Mutex::new(());
    let _look = LOOKS.lock();
    let mut found = Vec::new();
    // All names first: the files that are opened here have some too.
    let all: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().collect();
    for entry in all {
        let path = entry.unwrap().path();
        let Ok(link) = std::fs::read_link(&path) else {
            continue;
        };
        let is_page = link
            .to_string_lossy()
            .starts_with(&format!("/memfd:{NAME}"));
        if is_page && let Ok(file) = File::open(&path) {
            let ours = read(&file).is_ok_and(|snapshot| snapshot.pool == (1, inode));
            // A number that another test has closed may be that of a file which is opened here.
            let number = |file: &File| file.metadata().unwrap().ino();
            let is_known = found.iter().any(|known| number(known) == number(&file));
            found.extend((ours && !is_known).then_some(file));
        }
    }
    found
}

fn counts(read_bytes: u64, written_bytes: u64) -> Counts {
    Counts {
        read_bytes,
        written_bytes,
        ..Counts::default()
    }
}

fn publish(page: &Page, tag: u64, counts: Counts) -> bool {
    let words = counts.as_words();
    page.publish_counts(tag, std::array::from_fn::<_, 6, _>(|at| (at, words[at])))
}

fn of(snapshot: &Snapshot, name: u64) -> Option<Counts> {
    let mut lines = snapshot.lines.iter();
    lines.find(|line| line.name == name).map(|line| line.counts)
}

fn own() -> u64 {
    // SAFETY: the call has no arguments and cannot fail.
    u64::from(unsafe { libc::gettid() }.cast_unsigned())
}

#[test]
fn each_thread_has_a_line() {
    let page = Page::new().unwrap();
    publish(&page, own(), counts(1, 1));
    page.begin_publishing((1, 11)).unwrap();
    publish(&page, own(), counts(10, 0));
    publish(&page, own(), counts(5, 7));
    let other = std::thread::scope(|scope| {
        let count = || {
            publish(&page, own(), counts(0, 100));
            own()
        };
        scope.spawn(count).join().unwrap()
    });
    let mut files = opened(11);
    let file = &files.pop().unwrap();
    assert!(files.is_empty());
    let snapshot = read(file).unwrap();
    assert_eq!(snapshot.pid, std::process::id());
    assert_eq!(of(&snapshot, own()), Some(counts(15, 7)));
    assert_eq!(of(&snapshot, other), Some(counts(0, 100)));
    let line = snapshot.lines.iter().find(|line| line.name == other);
    let line = line.unwrap();
    assert!(line.start > 0 && !line.is_caller && u64::from(line.number) == other);
    page.end_publishing();
    assert_eq!(opened(11).len(), 1, "the test's alone is left");
    publish(&page, own(), counts(1, 1));
    assert_eq!(of(&read(file).unwrap(), own()), Some(counts(15, 7)));
    page.begin_publishing((1, 11)).unwrap();
    publish(&page, own(), counts(3, 0));
    let again = opened(11).into_iter();
    let again = again.map(|file| read(&file).unwrap());
    let again = again.min_by_key(|snapshot| snapshot.lines.len()).unwrap();
    assert_eq!(of(&again, own()), Some(counts(3, 0)), "counted anew");
}

#[test]
fn callers_of_a_mount_have_lines() {
    let page = Page::new().unwrap();
    page.begin_publishing((1, 12)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..3000 {
                    for_caller(round % 3 * 7);
                    publish(&page, own(), counts(1, 2));
                }
            });
        }
    });
    let snapshot = read(&opened(12)[0]).unwrap();
    for caller in [0, 7, 14] {
        let found = of(&snapshot, CALLER | caller);
        assert_eq!(found, Some(counts(4000, 8000)), "{caller}");
    }
    let lines = snapshot.lines.iter();
    assert_eq!(lines.filter(|line| line.is_caller).count(), 2);
}

/// Goal: nothing is lost where threads come and go, more than there are lines.
#[test]
fn a_full_page_is_swept() {
    let page = Page::new().unwrap();
    page.begin_publishing((1, 13)).unwrap();
    let threads = LINES as u64 * 2;
    for _ in 0..threads {
        let count = || publish(&page, own(), counts(1, 1));
        std::thread::scope(|scope| _ = scope.spawn(count).join());
    }
    let snapshot = read(&opened(13)[0]).unwrap();
    let sum = snapshot
        .lines
        .iter()
        .fold(Counts::default(), |sum, line| sum.with_more(line.counts));
    assert_eq!(sum, counts(threads, threads));
}

/// Goal: a thread whose number an earlier one had does not go on with that one's counts. Method:
/// the earlier one's line is written into the file.
#[test]
fn a_number_that_comes_again_is_another_thread() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    let page = Page::new().unwrap();
    page.begin_publishing((1, 16)).unwrap();
    let known = opened(16).remove(0);
    let path = format!("/proc/self/fd/{}", known.as_raw_fd());
    let file = File::options().write(true).open(path).unwrap();
    let count = || {
        let name = own();
        let line = 2 + name as usize % (LINES - 2);
        let words = [name, 1, 40, 50];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all_at(&bytes, line as u64 * 64).unwrap();
        publish(&page, name, counts(1, 2));
        name
    };
    let name = std::thread::scope(|scope| scope.spawn(count).join().unwrap());
    let snapshot = read(&opened(16)[0]).unwrap();
    assert_eq!(of(&snapshot, name), Some(counts(1, 2)));
    assert_eq!(of(&snapshot, CALLER), Some(counts(40, 50)));
    let line = snapshot.lines.iter().find(|line| line.name == name);
    assert!(line.unwrap().start > 1);
}

/// Goal: threads that use two pools by turns keep their lines in both.
#[test]
fn lines_of_two_pages_are_kept() {
    let pages = [Page::new().unwrap(), Page::new().unwrap()];
    for (page, inode) in pages.iter().zip(17..) {
        page.begin_publishing((1, inode)).unwrap();
    }
    let count = || {
        for _ in 0..1000 {
            publish(&pages[0], own(), counts(1, 0));
            publish(&pages[1], own(), counts(0, 2));
        }
        own()
    };
    let names: Vec<u64> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (inode, wanted) in [(17, counts(1000, 0)), (18, counts(0, 2000))] {
        let snapshot = read(&opened(inode)[0]).unwrap();
        for name in &names {
            assert_eq!(of(&snapshot, *name), Some(wanted), "{inode}");
        }
        assert_eq!(of(&snapshot, CALLER), Some(counts(0, 0)), "{inode}");
    }
}

#[test]
fn a_child_does_not_count_for_its_parent() {
    let page = Page::new().unwrap();
    page.begin_publishing((1, 14)).unwrap();
    publish(&page, own(), counts(1, 0));
    let status = crate::life::in_child(|| {
        page.leave_parents();
        publish(&page, own(), counts(100, 0));
        u8::from(page.begin_publishing((1, 15)).is_err())
    });
    assert_eq!(status, 0);
    let snapshot = read(&opened(14)[0]).unwrap();
    assert_eq!(of(&snapshot, own()), Some(counts(1, 0)));
}

fn memfd(flags: libc::c_uint, len: i64, seals: libc::c_int) -> io::Result<File> {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: a string that ends in NUL.
    let made = unsafe { libc::memfd_create(c"other".as_ptr(), flags) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor just made.
    let file = unsafe { File::from_raw_fd(made) };
    // SAFETY: numbers alone.
    unsafe { libc::ftruncate(file.as_raw_fd(), len) };
    // SAFETY: numbers alone.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    Ok(file)
}

#[test]
fn hostile_files_are_refused() {
    use std::os::unix::fs::FileExt;
    let sealable = libc::MFD_ALLOW_SEALING;
    let sealed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    let whole = BYTES as i64;
    let null = File::open("/dev/null").unwrap();
    assert!(read(&null).is_err());
    for (len, seals) in [
        (whole, 0),
        (whole, libc::F_SEAL_GROW),
        (whole - 4096, sealed),
        (whole * 2, sealed),
        (0, sealed),
        (whole, sealed),
    ] {
        let file = memfd(sealable, len, seals).unwrap();
        assert!(read(&file).is_err(), "{len} {seals}");
    }
    // All words are the worst.
    let file = memfd(sealable, whole, sealed).unwrap();
    file.write_all_at(&vec![0xff; BYTES], 0).unwrap();
    assert!(read(&file).is_err());
    file.write_all_at(&MAGIC.to_le_bytes(), 0).unwrap();
    assert!(read(&file).is_err(), "always odd");
    file.write_all_at(&[0; 8], 32).unwrap();
    let snapshot = read(&file).unwrap();
    assert_eq!(snapshot.lines.len(), LINES - 1);
}
