//! Files on the mount, through the kernel, as programs use them.

mod bench;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use bench::Bench;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    Uid, XattrFlags, fallocate, getxattr, listxattr, mknodat, removexattr, renameat_with, setxattr,
    utimensat,
};
use rustix::io::Errno;

#[test]
fn written_is_read() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("a");
    fs::write(&path, "hello").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"hello");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.write_all_at(b"J", 0).unwrap();
    file.write_all_at(b"!", 9).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"Jello\0\0\0\0!");
    file.set_len(3).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"Jel\0\0");
    fs::write(&path, "x").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x", "O_TRUNC");

    // Larger than a request may be, at odd offsets.
    let large: Vec<u8> = (0..5_000_001u32).map(|n| (n % 251) as u8).collect();
    file.write_all_at(&large, 4_095).unwrap();
    let mut back = vec![0; large.len()];
    file.read_exact_at(&mut back, 4_095).unwrap();
    assert!(back == large);
    assert_eq!(file.metadata().unwrap().len(), 4_095 + 5_000_001);
}

#[test]
fn contents_and_names_outlive_the_mount() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 253) as u8).collect();
    fs::create_dir_all(bench.file("d/e")).unwrap();
    fs::write(bench.file("d/e/f"), &large).unwrap();
    fs::set_permissions(bench.file("d/e/f"), fs::Permissions::from_mode(0o640)).unwrap();
    setxattr(bench.file("d/e/f"), "user.k", b"v", XattrFlags::empty()).unwrap();
    symlink("e/f", bench.file("d/s")).unwrap();
    let before = fs::metadata(bench.file("d/e/f")).unwrap();
    bench.umount();
    assert!(!bench.file("d").exists());
    let report = bench.mount(&[]);
    assert_eq!(report["recovery"]["kind"], "none", "{report}");
    let after = fs::metadata(bench.file("d/e/f")).unwrap();
    assert!(fs::read(bench.file("d/s")).unwrap() == large);
    assert_eq!(
        (
            before.ino(),
            before.mode(),
            before.mtime_nsec(),
            before.ctime_nsec()
        ),
        (
            after.ino(),
            after.mode(),
            after.mtime_nsec(),
            after.ctime_nsec()
        )
    );
    let mut value = [0; 8];
    assert_eq!(getxattr(bench.file("d/e/f"), "user.k", &mut value), Ok(1));
}

#[test]
fn appends_of_two_go_behind_each_other() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let append = || {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(bench.file("log"))
            .unwrap()
    };
    let (mut one, mut two) = (append(), append());
    for _ in 0..100 {
        one.write_all(b"one.").unwrap();
        two.write_all(b"two!!").unwrap();
    }
    assert_eq!(
        fs::read(bench.file("log")).unwrap(),
        b"one.two!!".repeat(100)
    );
    // O_APPEND decides where, not the offset.
    one.write_all_at(b"end", 0).unwrap();
    assert!(
        fs::read(bench.file("log"))
            .unwrap()
            .ends_with(b"one.two!!end")
    );

    std::thread::scope(|scope| {
        for letter in [b'a', b'b', b'c'] {
            let mut file = append();
            scope.spawn(move || (0..200).for_each(|_| file.write_all(&[letter; 100]).unwrap()));
        }
    });
    let all = fs::read(bench.file("log")).unwrap();
    let records = &all[903..];
    assert_eq!(records.len(), 3 * 200 * 100);
    for record in records.chunks(100) {
        assert!(
            record.iter().all(|byte| *byte == record[0]),
            "a torn append"
        );
    }
}

#[test]
fn rename_and_its_flags() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let (a, b) = (bench.file("a"), bench.file("b"));
    let rename = |from: &Path, to: &Path, flags| renameat_with(CWD, from, CWD, to, flags);
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    assert_eq!(rename(&a, &b, RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename(&a, &b, RenameFlags::EXCHANGE), Ok(()));
    assert_eq!(
        (fs::read(&a).unwrap(), fs::read(&b).unwrap()),
        (b"b".to_vec(), b"a".to_vec())
    );
    assert_eq!(rename(&a, &bench.file("c"), RenameFlags::NOREPLACE), Ok(()));
    assert_eq!(rename(&a, &b, RenameFlags::EXCHANGE), Err(Errno::NOENT));
    let whiteout = RenameFlags::WHITEOUT;
    assert_eq!(
        rename(&b, &a, whiteout | RenameFlags::EXCHANGE),
        Err(Errno::INVAL)
    );
    assert_eq!(rename(&b, &a, whiteout | RenameFlags::NOREPLACE), Ok(()));
    let left = fs::symlink_metadata(&b).unwrap();
    assert_eq!((left.mode(), left.rdev(), left.nlink()), (0o020_000, 0, 1));
    assert_eq!(fs::read(&a).unwrap(), b"a");
    assert_eq!(
        rename(&a, &b, whiteout | RenameFlags::NOREPLACE),
        Err(Errno::EXIST)
    );
    assert_eq!(rename(&a, &b, whiteout), Ok(()));
    assert_eq!(fs::read(&b).unwrap(), b"a");
    assert_eq!(fs::symlink_metadata(&a).unwrap().mode(), 0o020_000);

    let mut open = File::open(&b).unwrap();
    fs::rename(bench.file("c"), &b).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"b");
    let mut old = String::new();
    open.read_to_string(&mut old).unwrap();
    assert_eq!(
        (old.as_str(), open.metadata().unwrap().nlink()),
        ("a", 0),
        "renamed over, still open"
    );

    fs::create_dir(bench.file("d")).unwrap();
    fs::create_dir(bench.file("d/e")).unwrap();
    assert_eq!(
        fs::rename(bench.file("d"), bench.file("d/e/d"))
            .unwrap_err()
            .raw_os_error(),
        Some(22)
    );
    fs::rename(bench.file("d/e"), bench.file("e")).unwrap();
    assert_eq!(fs::metadata(bench.file("d")).unwrap().nlink(), 2);
    fs::create_dir(bench.file("d/x")).unwrap();
    assert_eq!(
        fs::rename(bench.file("e"), bench.file("d"))
            .unwrap_err()
            .kind(),
        ErrorKind::DirectoryNotEmpty
    );
}

#[test]
fn links_and_symlinks() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("a"), "text").unwrap();
    fs::hard_link(bench.file("a"), bench.file("b")).unwrap();
    let (a, b) = (
        fs::metadata(bench.file("a")).unwrap(),
        fs::metadata(bench.file("b")).unwrap(),
    );
    assert_eq!((a.ino(), a.nlink(), b.nlink()), (b.ino(), 2, 2));
    fs::remove_file(bench.file("a")).unwrap();
    assert_eq!(fs::metadata(bench.file("b")).unwrap().nlink(), 1);
    let long = "x/".repeat(1_000);
    for target in ["b", "nowhere", &long] {
        symlink(target, bench.file("s")).unwrap();
        assert_eq!(fs::read_link(bench.file("s")).unwrap(), Path::new(target));
        assert_eq!(
            fs::symlink_metadata(bench.file("s")).unwrap().len(),
            target.len() as u64
        );
        fs::remove_file(bench.file("s")).unwrap();
    }
    symlink("b", bench.file("s")).unwrap();
    assert_eq!(fs::read(bench.file("s")).unwrap(), b"text");
}

/// An inode without names keeps content and number while it is open, and gives both up after.
#[test]
fn unlinked_while_open() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let free = || rustix::fs::statvfs(bench.path("mnt")).unwrap().f_bfree;
    // The directory and the inode table have grown before anything is counted.
    let empty = free();
    fs::write(bench.file("warm"), vec![1; 8 << 20]).unwrap();
    fs::remove_file(bench.file("warm")).unwrap();
    bench::wait_until("the blocks to come free", || empty - free() < 1024);
    let before = free();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(bench.file("a"))
        .unwrap();
    file.write_all(&vec![7; 8 << 20]).unwrap();
    let ino = file.metadata().unwrap().ino();
    fs::remove_file(bench.file("a")).unwrap();
    assert!(!bench.file("a").exists());
    for n in 0..200 {
        let other = File::create(bench.file(&format!("new{n}"))).unwrap();
        assert_ne!(
            other.metadata().unwrap().ino(),
            ino,
            "a number given out while it is in use"
        );
    }
    let mut back = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut back).unwrap();
    assert!(back.len() == 8 << 20 && back.iter().all(|byte| *byte == 7));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert!(before - free() >= 2048, "blocks of an open file were freed");
    drop(file);
    bench::wait_until("the blocks to come free", || before - free() < 1024);
}

#[test]
fn removed_directory_while_in_use() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("d")).unwrap();
    let dir = File::open(bench.file("d")).unwrap();
    fs::remove_dir(bench.file("d")).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let created = rustix::fs::openat(&dir, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
    assert_eq!(created.unwrap_err(), Errno::NOENT);
    fs::create_dir(bench.file("d")).unwrap();
    assert_ne!(
        fs::metadata(bench.file("d")).unwrap().ino(),
        dir.metadata().unwrap().ino()
    );
}

#[test]
fn sparse_files() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(bench.file("a"))
        .unwrap();
    file.write_all_at(b"far", 1 << 30).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!(found.len(), (1 << 30) + 3);
    assert!(
        found.blocks() * 512 <= 1 << 20,
        "{} sectors for a hole",
        found.blocks()
    );
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));
    let data = seek(rustix::fs::SeekFrom::Data(0)).unwrap();
    assert!(data <= 1 << 30 && data > 0, "{data}");
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1 << 30)), Ok((1 << 30) + 3));
    assert_eq!(
        seek(rustix::fs::SeekFrom::Data((1 << 30) + 3)),
        Err(Errno::NXIO)
    );
    assert_eq!(seek(rustix::fs::SeekFrom::End(-3)), Ok(1 << 30));
    let mut hole = [1; 4096];
    file.read_exact_at(&mut hole, 1 << 29).unwrap();
    assert_eq!(hole, [0; 4096]);
}

#[test]
fn fallocate_and_copy() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(bench.file("a"))
        .unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    assert!(file.metadata().unwrap().blocks() >= 2048);
    file.write_all_at(&vec![5; 1 << 20], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 4096, 8192).unwrap();
    let mut back = vec![0; 1 << 20];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back[..4096].iter().all(|b| *b == 5) && back[4096..12288].iter().all(|b| *b == 0));
    assert!(back[12288..].iter().all(|b| *b == 5));
    assert_eq!(
        fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096),
        Err(Errno::OPNOTSUPP)
    );

    let to = File::create(bench.file("b")).unwrap();
    let mut left = 1 << 20;
    while left > 0 {
        left -= rustix::fs::copy_file_range(&file, None, &to, None, left).unwrap();
    }
    assert!(fs::read(bench.file("b")).unwrap() == back);
}

#[test]
fn extended_attributes() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("a");
    fs::write(&path, "").unwrap();
    let mut buffer = vec![0; 65536];
    assert_eq!(
        getxattr(&path, "user.none", &mut buffer),
        Err(Errno::NODATA)
    );
    setxattr(&path, "user.k", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(
        setxattr(&path, "user.k", b"x", XattrFlags::CREATE),
        Err(Errno::EXIST)
    );
    assert_eq!(
        setxattr(&path, "user.l", b"x", XattrFlags::REPLACE),
        Err(Errno::NODATA)
    );
    let large = vec![9; 1_000];
    setxattr(&path, "user.large", &large, XattrFlags::empty()).unwrap();
    assert_eq!(getxattr(&path, "user.k", &mut buffer), Ok(5));
    assert_eq!(&buffer[..5], b"value");
    assert_eq!(
        getxattr(&path, "user.k", &mut buffer[..2]),
        Err(Errno::RANGE)
    );
    assert_eq!(getxattr(&path, "user.large", &mut buffer), Ok(1_000));
    let len = listxattr(&path, &mut buffer).unwrap();
    let names: BTreeSet<&[u8]> = buffer[..len]
        .split(|b| *b == 0)
        .filter(|n| !n.is_empty())
        .collect();
    assert_eq!(names, BTreeSet::from([&b"user.k"[..], b"user.large"]));
    removexattr(&path, "user.k").unwrap();
    assert_eq!(removexattr(&path, "user.k"), Err(Errno::NODATA));
}

#[test]
fn owners_modes_and_times() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("a");
    fs::write(&path, "x").unwrap();
    chown(&path, Some(12), Some(34)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode()), (12, 34, 0o106755));
    chown(&path, Some(13), None).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().mode(),
        0o100755,
        "chown drops set-id bits"
    );

    let set = |sec, nsec| {
        let time = Timespec {
            tv_sec: sec,
            tv_nsec: nsec,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (sec, nsec));
        assert_eq!((found.atime(), found.atime_nsec()), (sec, nsec));
    };
    set(1_000_000_000, 123_456_789);
    set(0, 0);
    set(-2, 800_000_000);
    set(5_000_000_000, 1);
    let now = std::time::SystemTime::now();
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(written > now);
    fs::write(&path, "y").unwrap();
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(
        written >= now - std::time::Duration::from_secs(1)
            && written < now + std::time::Duration::from_secs(60)
    );
}

#[test]
fn set_gid_directories_hand_down_their_group() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("d")).unwrap();
    chown(bench.file("d"), None, Some(4321)).unwrap();
    fs::set_permissions(bench.file("d"), fs::Permissions::from_mode(0o2775)).unwrap();
    fs::create_dir(bench.file("d/sub")).unwrap();
    fs::write(bench.file("d/file"), "").unwrap();
    let (sub, file) = (
        fs::metadata(bench.file("d/sub")).unwrap(),
        fs::metadata(bench.file("d/file")).unwrap(),
    );
    assert_eq!((sub.gid(), file.gid()), (4321, 4321));
    assert_eq!((sub.mode() & 0o2000, file.mode() & 0o2000), (0o2000, 0));
}

#[test]
fn directories_of_thousands() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("d")).unwrap();
    let mut names = BTreeSet::new();
    for n in 0..5_000 {
        let name = format!("file-{n}-{}", "x".repeat(n % 200));
        File::create(bench.file("d").join(&name)).unwrap();
        names.insert(name);
    }
    let list = || -> Vec<String> {
        fs::read_dir(bench.file("d"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let found = list();
    assert_eq!(found.len(), 5_000, "names twice, or missing");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
    // Removing while reading, as rm -r does.
    for entry in fs::read_dir(bench.file("d")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(list(), Vec::<String>::new());
    fs::remove_dir(bench.file("d")).unwrap();
}

#[test]
fn names_at_the_limit() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let longest = "n".repeat(255);
    fs::write(bench.file(&longest), "x").unwrap();
    assert_eq!(fs::read(bench.file(&longest)).unwrap(), b"x");
    let error = fs::write(bench.file(&"n".repeat(256)), "x").unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(Errno::NAMETOOLONG.raw_os_error())
    );
}

#[test]
fn special_files() {
    let Some(bench) = Bench::mounted(&["-o", "dev"]) else {
        return;
    };
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        (
            "far",
            FileType::BlockDevice,
            rustix::fs::makedev(259, 70_000),
        ),
    ] {
        mknodat(
            CWD,
            bench.file(name),
            kind,
            Mode::from_raw_mode(0o644),
            device,
        )
        .unwrap();
        let found = fs::symlink_metadata(bench.file(name)).unwrap();
        assert_eq!(FileType::from_raw_mode(found.mode()), kind);
        assert_eq!(found.rdev(), device);
    }
    fs::write(bench.file("null"), "into the void").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.file("socket")).unwrap();
}

#[test]
fn space_is_told() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let before = rustix::fs::statvfs(bench.path("mnt")).unwrap();
    assert_eq!((before.f_bsize, before.f_namemax), (4096, 255));
    assert!(
        before.f_blocks > 10_000 && before.f_blocks <= 16_384 && before.f_bfree <= before.f_blocks
    );
    fs::write(bench.file("a"), vec![1; 4 << 20]).unwrap();
    let after = rustix::fs::statvfs(bench.path("mnt")).unwrap();
    assert!(before.f_bfree - after.f_bfree >= 1024);
    assert_eq!(before.f_ffree - after.f_ffree, 1);
}

/// Space that an unlinked file gave up is there for the very next write.
#[test]
fn full_and_then_not() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let chunk = vec![3; 1 << 20];
    for _ in 0..5 {
        let mut file = File::create(bench.file("a")).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&chunk) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        drop(file);
        fs::remove_file(bench.file("a")).unwrap();
        fs::write(bench.file("b"), vec![4; 32 << 20]).unwrap();
        fs::remove_file(bench.file("b")).unwrap();
    }
}

fn nameless(bench: &Bench, flags: OFlags) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o640)
        .custom_flags((OFlags::TMPFILE | flags).bits() as i32)
        .open(bench.path("mnt"))
        .unwrap()
}

/// O_TMPFILE: nothing to be seen, until it gets a name; gone with the last close if it gets none.
#[test]
fn files_without_a_name() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("grown"), "").unwrap();
    let free = || rustix::fs::statvfs(bench.path("mnt")).unwrap().f_ffree;
    let before = free();
    let file = nameless(&bench, OFlags::empty());
    file.write_all_at(b"text", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::read_dir(bench.path("mnt")).unwrap().count(), 1);
    let link = |file: &File, name: &str| {
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, open, CWD, bench.file(name), AtFlags::SYMLINK_FOLLOW)
    };
    link(&file, "named").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(fs::read(bench.file("named")).unwrap(), b"text");
    assert_eq!(
        link(&nameless(&bench, OFlags::EXCL), "no"),
        Err(Errno::NOENT)
    );
    fs::remove_file(bench.file("named")).unwrap();
    let mut text = [0; 4];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"text");
    drop(file);
    // The kernel forgets them in its own time.
    bench::wait_until("their inodes are free again", || free() == before);
    drop(nameless(&bench, OFlags::empty()));
    bench::wait_until("its inode is free again", || free() == before);
}

/// The time that `stat --format=%w` shows is asked for by a request of its own.
#[test]
fn the_time_of_creation() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("a");
    let before = SystemTime::now() - Duration::from_secs(1);
    fs::write(&path, "text").unwrap();
    let created = fs::metadata(&path).unwrap().created().unwrap();
    // Longer than a tick of the clock that times are taken from.
    std::thread::sleep(Duration::from_millis(20));
    assert!(before <= created && created <= SystemTime::now());
    fs::write(&path, "changed").unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!(found.created().unwrap(), created);
    assert!(found.modified().unwrap() > created);
    assert_eq!((found.len(), found.nlink(), found.is_file()), (7, 1, true));
}

#[test]
fn writes_by_others_drop_set_id_bits() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    let path = bench.file("a");
    for (mode, left) in [(0o6777, 0o777), (0o2767, 0o767), (0o4767, 0o767)] {
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(bench.file("root"), "").unwrap();
        // A write by root drops nothing.
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"x")
            .unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        as_nobody(&bench, "printf y >> a");
        assert_eq!(
            fs::metadata(&path).unwrap().mode() & 0o7777,
            left,
            "after a write, from {mode:o}"
        );
        fs::remove_file(&path).unwrap();
    }
    fs::write(&path, "text").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    as_nobody(&bench, "truncate -s 2 a");
    assert_eq!(
        fs::metadata(&path).unwrap().mode() & 0o7777,
        0o777,
        "after a truncate"
    );
}

#[test]
fn permissions_hold_and_creates_are_the_callers() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("secret"), "s").unwrap();
    fs::set_permissions(bench.file("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(bench.file("open")).unwrap();
    fs::set_permissions(bench.file("open"), fs::Permissions::from_mode(0o1777)).unwrap();
    as_nobody(&bench, "! cat secret && ! touch new && ! rm secret");
    as_nobody(
        &bench,
        "umask 027; echo hi > open/f; mkdir open/d; ln -s f open/s; mkfifo open/p",
    );
    for (name, mode) in [("f", 0o640), ("d", 0o750), ("s", 0o777), ("p", 0o640)] {
        let found = fs::symlink_metadata(bench.file("open").join(name)).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o777),
            (65534, 65534, mode),
            "{name}"
        );
    }
    fs::write(bench.file("open/roots"), "").unwrap();
    as_nobody(&bench, "! rm open/roots && rm open/f");
}

#[test]
fn mapped_and_written() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    // Writing through a mapping needs unsafe code here; dd with conv=notrunc on one side and a
    // program that maps (cmp maps nothing; python does) on the other.
    let script = "import mmap\n\
        f = open('m', 'w+b'); f.truncate(8192)\n\
        m = mmap.mmap(f.fileno(), 8192)\n\
        m[10:15] = b'hello'; m.flush()\n\
        assert open('m', 'rb').read()[10:15] == b'hello'\n\
        f.seek(4096); f.write(b'world'); f.flush()\n\
        assert m[4096:4101] == b'world', m[4096:4101]\n";
    let python = std::process::Command::new("python3")
        .args(["-c", script])
        .current_dir(bench.path("mnt"))
        .output();
    let Ok(output) = python else {
        eprintln!("skipped: needs python3");
        return;
    };
    assert!(output.status.success(), "{}", bench::text(&output.stderr));
}

/// A shell of user nobody, in the mount; has to succeed.
fn as_nobody(bench: &Bench, script: &str) {
    use std::os::unix::process::CommandExt;
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let output = std::process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(bench.path("mnt"))
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        bench::text(&output.stderr)
    );
    let _ = (Uid::ROOT, Gid::ROOT);
}
