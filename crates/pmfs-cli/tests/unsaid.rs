//! The facts that Linux does not tell the daemon of a mount: that programs have stored to pages
//! when it asks where a file has data and how many blocks, and by which flags `pwritev2(2)` writes.

mod bench;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use bench::mapper::Mapper;
use bench::{Bench, text};
use pmfs::{Attr, Fs, OpenOptions as Attach};
use rustix::fs::{SeekFrom, seek};

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// A file of nothing but a hole.
fn sparse(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len((PAGES * PAGE) as u64).unwrap();
}

/// Goal: what is stored in a hole is data for everybody at once. Method: pages are
/// stored to, one by one, while a descriptor that was open before, and others, look;
/// nothing is written back by itself in so short a time.
fn stores_are_data(options: &[&str]) {
    let Some(bench) = Bench::mounted(options) else {
        return;
    };
    let path = bench.file("f");
    sparse(&path);
    let before = File::open(&path).unwrap();
    let mut mapper = Mapper::of(&path, "rw", PAGES * PAGE);
    // The mount is busy: it remembers, as far as it may.
    for _ in 0..200 {
        fs::metadata(&path).unwrap();
    }
    for page in (1..PAGES - 1).step_by(4) {
        let at = (page * PAGE) as u64;
        let blocks = fs::metadata(&path).unwrap().blocks();
        mapper.does(&format!("store f {at} 7"));
        // A node of the file's tree may come with it.
        let now = fs::metadata(&path).unwrap().blocks();
        assert!(now >= blocks + 8, "page {page}: {now}");
        mapper.does(&format!("store f {at} 8"));
        let data = seek(&before, SeekFrom::Data(at - PAGE as u64)).unwrap();
        assert_eq!(data, at);
        mapper.does(&format!("store f {} 9", at + PAGE as u64));
        let hole = seek(&before, SeekFrom::Hole(at)).unwrap();
        assert_eq!(hole, at + 2 * PAGE as u64);
    }
    drop((mapper, before));
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn stores_are_data_at_once() {
    stores_are_data(&[]);
}

#[test]
fn stores_are_data_at_once_through_pages() {
    stores_are_data(&["-o", "paged=always"]);
}

#[test]
fn stores_are_data_at_once_where_all_is_remembered() {
    stores_are_data(&["-o", "cache"]);
}

/// Programs that copy by holes lose nothing of what was stored before they began; nor
/// do those that have the pool themselves.
#[test]
fn sparse_copies_have_what_was_stored() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("f");
    let stored = |bytes: &[u8]| bytes[5 * PAGE] == 7 && bytes.len() == PAGES * PAGE;
    for (tool, arguments) in [
        ("cp", &["--sparse=auto", "f", "copy"]),
        ("tar", &["-Scf", "copy.tar", "f"]),
    ] {
        sparse(&path);
        let mut mapper = Mapper::of(&path, "rw", PAGES * PAGE);
        mapper.does(&format!("store f {} 7", 5 * PAGE));
        let mut command = Command::new(tool);
        let output = command
            .args(arguments)
            .current_dir(bench.path("mnt"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{tool}: {}", text(&output.stderr));
        drop(mapper);
    }
    assert!(stored(&fs::read(bench.file("copy")).unwrap()), "cp");
    let untar = Command::new("tar")
        .args(["-xOf", "copy.tar"])
        .current_dir(bench.path("mnt"))
        .output();
    assert!(stored(&untar.unwrap().stdout), "tar");
    // The call is the one of a stat below `pmfs run`.
    sparse(&path);
    let mut mapper = Mapper::of(&path, "rw", PAGES * PAGE);
    mapper.does(&format!("store f {} 7", 5 * PAGE));
    let fs = Fs::open(&bench.path("pool"), &Attach::default()).unwrap();
    let mut attr = Attr::default();
    fs.getattr_into(fs.walk(b"/f", true).unwrap().ino, &mut attr)
        .unwrap();
    assert!(attr.sectors >= 8, "{attr:?}");
    fs.close().unwrap();
    drop(mapper);
    bench.umount();
}

/// Appends `count` lines by `pwritev2(2)`, or one by the other flag.
const WRITER: &str = "
import os, sys
path, flags, how, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
file = os.open(path, flags)
for line in range(count):
    os.pwritev(file, [b'mount %04d\\n' % line], 0, how)
";

fn writer(path: &Path, flags: i32, how: i32, count: usize) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", WRITER]).arg(path);
    python.args([flags.to_string(), how.to_string(), count.to_string()]);
    python
}

const RWF_APPEND: i32 = 0x10;
const RWF_NOAPPEND: i32 = 0x20;
const O_RDWR: i32 = 2;
const O_APPEND: i32 = 0o2000;

/// Goal: nobody's lines are written over. Method: three append to one file, one through
/// a mount by RWF_APPEND, one through it by O_APPEND, one by the library.
#[test]
fn appends_by_flag_beside_others() {
    const LINES: usize = 1000;
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("log");
    fs::write(&path, "").unwrap();
    let fs = Fs::open(&bench.path("pool"), &Attach::default()).unwrap();
    let ino = fs.walk(b"/log", true).unwrap().ino;
    let mut by_flag = writer(&path, O_RDWR, RWF_APPEND, LINES).spawn().unwrap();
    let mut opened_so = writer(&path, O_RDWR | O_APPEND, 0, LINES).spawn().unwrap();
    let mut others = 0;
    let is_over = |child: &mut Child| {
        let ended = child.try_wait().unwrap();
        ended.map(|status| assert!(status.success())).is_some()
    };
    while !(is_over(&mut by_flag) & is_over(&mut opened_so)) {
        fs.append(ino, format!("other {others:04}\n").as_bytes())
            .unwrap();
        others += 1;
        thread::sleep(Duration::from_micros(100));
    }
    let mut lines: Vec<String> = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.len(), 2 * LINES + others);
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), LINES + others, "each is whole");
    fs.close().unwrap();
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

/// RWF_NOAPPEND writes where it says, also once others have made the file longer; a
/// write to there is no append.
#[test]
fn writes_inside_are_no_appends() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("f");
    fs::write(&path, "0123456789abcdefghij").unwrap();
    let over = |how, flags| {
        let status = writer(&path, flags, how, 1).status().unwrap();
        assert!(status.success());
    };
    over(RWF_NOAPPEND, O_RDWR | O_APPEND);
    assert_eq!(fs::read(&path).unwrap(), b"mount 0000\nbcdefghij");
    let ours = OpenOptions::new().write(true).open(&path).unwrap();
    let fs = Fs::open(&bench.path("pool"), &Attach::default()).unwrap();
    let ino = fs.walk(b"/f", true).unwrap().ino;
    fs.append(ino, b"klm").unwrap();
    // The offset is where this kernel takes the end to be.
    ours.write_all_at(b"KLM", 20).unwrap();
    ours.write_all_at(b"B", 11).unwrap();
    fs.append(ino, b"nop").unwrap();
    over(RWF_NOAPPEND, O_RDWR | O_APPEND);
    over(RWF_APPEND, O_RDWR);
    assert_eq!(
        fs::read(&path).unwrap(),
        b"mount 0000\nBcdefghijKLMnopmount 0000\n"
    );
    drop(ours);
    fs.close().unwrap();
    bench.umount();
}
