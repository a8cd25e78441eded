//! Goal: pools are created and opened as requested, the medium is reported correctly, and every
//! refusal has its own cause.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pmem::{Durability, Error, FlushInstr, FlushMode, MapOptions, MediumKind, Pmem, ProtectMode};

const MIB: u64 = 1 << 20;

/// Options without protection: stores need no window here.
fn unprotected() -> MapOptions {
    MapOptions {
        protect: ProtectMode::None,
        ..MapOptions::default()
    }
}

fn create(path: &Path, len: u64, sparse: bool, exclusive: bool) -> Result<Pmem, Error> {
    Pmem::create(path, len, sparse, exclusive, &unprotected())
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    (dir, path)
}

#[test]
fn created_whole_private_and_zero() {
    let (_dir, path) = place();
    let mem = create(&path, 4 * MIB, false, true).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), 4 * MIB);
    assert!(metadata.blocks() * 512 >= 4 * MIB, "allocated");
    assert_eq!((mem.len(), mem.path()), (4 * MIB, Some(path.as_path())));
    assert_eq!(mem.identity().ino, metadata.ino());
    assert_eq!(mem.identity().dev, metadata.dev());
    assert!((0..4 * MIB).step_by(4096).all(|off| mem.load(off) == 0));
}

#[test]
fn sparse_is_sparse() {
    let (_dir, path) = place();
    let mem = create(&path, 64 * MIB, true, true).unwrap();
    assert_eq!(mem.len(), 64 * MIB);
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 32 * MIB);
}

#[test]
fn exclusive_refuses_and_overwriting_empties() {
    let (_dir, path) = place();
    let first = create(&path, MIB, false, true).unwrap();
    first.store(0, 1);
    let refused = create(&path, MIB, false, true).unwrap_err();
    assert!(matches!(refused, Error::Exists { .. }), "{refused:?}");
    assert_eq!(first.load(0), 1);
    drop(first);
    let second = create(&path, 2 * MIB, false, false).unwrap();
    assert_eq!((second.len(), second.load(0)), (2 * MIB, 0));
}

#[test]
fn two_mappings_show_one_pool() {
    let (_dir, path) = place();
    let first = create(&path, MIB, false, true).unwrap();
    let second = Pmem::open(&path, &unprotected()).unwrap();
    assert_eq!(first.identity(), second.identity());
    first.store(4096, 77);
    assert_eq!(second.load(4096), 77);
    second.write_nt(8192, b"through the other").unwrap();
    let mut bytes = [0; 17];
    first.copy_out(8192, &mut bytes).unwrap();
    assert_eq!(&bytes, b"through the other");
}

#[test]
fn read_only_reads() {
    let (_dir, path) = place();
    create(&path, MIB, false, true).unwrap().store(4096, 5);
    let options = MapOptions {
        read_only: true,
        ..unprotected()
    };
    let mem = Pmem::open(&path, &options).unwrap();
    assert_eq!(mem.load(4096), 5);
    assert_eq!(mem.load_pair(4096), [5, 0]);
}

#[test]
fn too_little_space_is_said_and_cleaned_up() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let refused = create(&path, 1 << 50, false, true).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused:?}");
    assert!(!path.exists(), "the file must go again");
}

#[test]
fn what_is_no_pool_is_refused() {
    let (dir, path) = place();
    let open = |path: &Path| Pmem::open(path, &unprotected()).unwrap_err();
    assert!(matches!(open(&path), Error::Open { .. }));
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(open(&path), Error::TooSmall { len: 5, .. }));
    let read_only = MapOptions {
        read_only: true,
        ..unprotected()
    };
    for path in [dir.path(), Path::new("/dev/null")] {
        let refused = Pmem::open(path, &read_only).unwrap_err();
        assert!(matches!(refused, Error::NotAFile { .. }), "{refused:?}");
    }
    assert!(matches!(
        create(&path, 100, false, false),
        Err(Error::TooSmall { len: 100, .. })
    ));
}

#[test]
fn tmpfs_is_known_and_volatile() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let mem = create(&path, MIB, false, true).unwrap();
    let medium = mem.medium();
    assert_eq!(medium.kind, MediumKind::Tmpfs);
    assert_eq!(medium.fs_magic, 0x0102_1994);
    assert_eq!(medium.durability, Durability::Process);
    assert_eq!(medium.flush, FlushInstr::None);
    drop(mem);
    let always = MapOptions {
        flush: FlushMode::Always,
        ..unprotected()
    };
    let mem = Pmem::open(&path, &always).unwrap();
    assert_ne!(mem.medium().flush, FlushInstr::None);
    assert_eq!(mem.medium().durability, Durability::Process);
    mem.store(0, 1);
    mem.flush(0, 4096);
    mem.fence();
    assert_eq!(mem.load(0), 1);
}

#[test]
fn flush_modes_by_name() {
    for mode in [FlushMode::Auto, FlushMode::Always] {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("never".parse::<FlushMode>().is_err());
}

/// Kilobytes of the mapping of `path` that are dirty, from smaps.
fn dirty_kib(path: &Path) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.to_str().unwrap();
    smaps
        .lines()
        .skip_while(|line| !line.ends_with(name))
        .filter(|line| line.starts_with("Shared_Dirty") || line.starts_with("Private_Dirty"))
        .take(2)
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .map(|kib| kib.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn a_durable_plain_file_is_synced_at_the_fence() {
    // The directory of the build's output is more likely on a disk than /tmp.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    let options = MapOptions {
        durable: true,
        ..unprotected()
    };
    let mem = Pmem::create(&path, 16 * MIB, false, true, &options).unwrap();
    if mem.medium().kind != MediumKind::File {
        eprintln!("not on a plain file: {:?}", mem.medium().kind);
        return;
    }
    assert_eq!(mem.medium().durability, Durability::ProcessAndMsync);
    mem.fence();
    type Act = fn(&Pmem, u64);
    let acts: &[(&str, Act)] = &[
        ("store", |m, off| {
            m.store(off, 1);
            m.flush(off, 8);
        }),
        ("write_nt", |m, off| m.write_nt(off, &[1; 64]).unwrap()),
        ("copy_nt", |m, off| m.copy_nt(off, 4096, 64).unwrap()),
        ("zero_nt", |m, off| m.zero_nt(off, 64)),
    ];
    for (i, (what, act)) in acts.iter().enumerate() {
        // The ranges are far apart, because a sync takes whole folios.
        act(&mem, (4 * i as u64 + 1) * MIB);
        act(&mem, (4 * i as u64 + 3) * MIB);
        let dirty = dirty_kib(&path);
        assert!(dirty >= 8, "{what}: {dirty}");
        mem.fence();
        assert_eq!(dirty_kib(&path), 0, "{what}: all of it is on the disk");
    }
    drop(mem);
    let plain = Pmem::open(&path, &unprotected()).unwrap();
    assert_eq!(plain.medium().durability, Durability::Process);
}

/// Goal: the first write never waits for the kernel to zero a page, and the creator is told about
/// progress. Method: all pages of a new pool on tmpfs are in this process's memory; the reports are
/// compared.
#[test]
fn a_new_pool_is_all_there() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: needs /dev/shm");
        return;
    };
    let path = dir.path().join("pool");
    let len = 100 * MIB;
    let mut told = Vec::new();
    let mut progress = |done, of| told.push((done, of));
    let pool = Pmem::create_watched(&path, len, false, true, &unprotected(), &mut progress);
    let pool = pool.unwrap();
    assert_eq!(told, [(64 * MIB, len), (len, len)], "as it goes on");
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (_, ours) = maps
        .split_once(path.to_str().unwrap())
        .expect("it is mapped");
    let resident = ours
        .lines()
        .find_map(|line| line.strip_prefix("Rss:"))
        .expect("a count");
    let kib: u64 = resident
        .trim()
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .unwrap();
    assert_eq!(kib, len >> 10);
    drop(pool);
}
