//! `pmfs clone`: of a pool that is mounted, beside writers, and killed on the way.

mod bench;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::Bench;
use bench::installed::install;
use bench::mapper::Mapper;

#[test]
fn a_mounted_pool_is_cloned_at_once() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("tree")).unwrap();
    fs::write(bench.file("tree/large"), vec![7; 3 << 20]).unwrap();
    fs::write(bench.file("tree/small"), "small").unwrap();
    fs::hard_link(bench.file("tree/small"), bench.file("tree/too")).unwrap();
    symlink("small", bench.file("tree/link")).unwrap();
    let text = bench.ok(&["clone", "pool", "tree", "copy"]);
    assert!(
        text.starts_with(
            "cloned copy: 3 files (3.0 MiB), 1 directories, 1 symlinks; changes waited"
        ),
        "{text}"
    );
    assert_eq!(fs::read(bench.file("copy/large")).unwrap(), [7; 3 << 20]);
    assert_eq!(fs::read(bench.file("copy/link")).unwrap(), b"small");
    let linked = ["copy/small", "copy/too"].map(|name| fs::metadata(bench.file(name)).unwrap());
    assert_eq!((linked[0].ino(), linked[0].nlink()), (linked[1].ino(), 2));
    fs::write(bench.file("copy/small"), "other").unwrap();
    fs::remove_file(bench.file("tree/large")).unwrap();
    assert_eq!(fs::read(bench.file("tree/too")).unwrap(), b"small");
    assert_eq!(fs::read(bench.file("copy/large")).unwrap(), [7; 3 << 20]);
    // Into a directory, by the same name; and of a file.
    let json = bench.json(&["clone", "--json", "pool", "copy/large", "tree"]);
    assert_eq!(
        (&json["files"], &json["bytes"]),
        (&1.into(), &(3 << 20).into()),
        "{json}"
    );
    assert_eq!(json["dest"], "tree/large");
    let error = bench.fails(1, &["clone", "pool", "copy/large", "tree/too"]);
    assert!(error.contains("name another place"), "{error}");
    let error = bench.fails(1, &["clone", "pool", "nothing", "tree/two"]);
    assert!(error.contains("pmfs ls -R"), "{error}");
    let error = bench.fails(1, &["clone", "pool", "copy", "nowhere/two"]);
    assert!(error.contains("pmfs ls -R"), "{error}");
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

/// Goal: stores by a mapping, of which the kernel knows alone, are in the clone; below `pmfs run`
/// too, where the file is copied.
#[test]
fn stores_by_mappings_are_cloned() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("tree")).unwrap();
    for name in ["tree/a", "tree/b"] {
        fs::write(bench.file(name), vec![1; 3 * 4096]).unwrap();
    }
    let mut by_mount = Mapper::of(&bench.file("tree/a"), "rw", 3 * 4096);
    let mut run = Command::new(install(&bench.path("bin")));
    run.args(["run", "--pool", "pool", "--at", "mnt"])
        .current_dir(bench.path("."));
    let mut by_run = Mapper::below_run(run, &bench.file("tree/b"), "rw", 3 * 4096);
    for mapper in [&mut by_mount, &mut by_run] {
        mapper.does("store f 5000 7");
    }
    let json = bench.json(&["clone", "--json", "pool", "tree", "copy"]);
    for mapper in [&mut by_mount, &mut by_run] {
        mapper.does("store f 5000 9");
    }
    for file in ["copy/a", "copy/b"] {
        assert_eq!(
            fs::read(bench.file(file)).unwrap()[5000],
            7,
            "{file} {json}"
        );
    }
    for file in ["tree/a", "tree/b"] {
        assert_eq!(fs::read(bench.file(file)).unwrap()[5000], 9, "{file}");
    }
    drop((by_mount, by_run));
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

/// Goal: a clone that is killed is there whole or not at all, holds nobody up, and leaves nothing
/// that the next one does not remove. Method: a tree in which a program writes through a mount;
/// kill -9 a little later each time, until some come to their end.
#[test]
fn a_clone_that_is_killed_is_whole_or_not_there() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.file("tree")).unwrap();
    for number in 0..300 {
        fs::write(
            bench.file(&format!("tree/{number}")),
            vec![number as u8; 9000],
        )
        .unwrap();
    }
    let is_over = AtomicBool::new(false);
    let (mut kills, mut ends) = (0, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut file = fs::File::create(bench.file("log")).unwrap();
            let mut lines = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                file.write_all(b"a line\n").unwrap();
                lines += 1;
            }
            lines
        });
        for wait_us in (0..).step_by(500) {
            let name = format!("copy-{wait_us}");
            let mut clone = bench.command(&["clone", "pool", "tree", &name]);
            let mut child = clone.stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(wait_us));
            child.kill().unwrap();
            let ended = child.wait().unwrap();
            match fs::read_dir(bench.file(&name)) {
                Ok(names) => {
                    assert_eq!(names.count(), 300, "killed after {wait_us} us");
                    let last = fs::read(bench.file(&format!("{name}/299"))).unwrap();
                    assert_eq!(last, [299u64 as u8; 9000]);
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
                    assert!(!ended.success());
                }
            }
            kills += u32::from(!ended.success());
            ends += u32::from(ended.success());
            if ends == 3 {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let lines = writer.join().unwrap();
        let log = fs::metadata(bench.file("log")).unwrap();
        assert_eq!(log.len(), 7 * lines);
    });
    assert!(kills > 0, "none was killed");
    bench.ok(&["clone", "pool", "tree", "last"]);
    let names = fs::read_dir(bench.path("mnt")).unwrap();
    for name in names.map(|entry| entry.unwrap().file_name()) {
        assert!(!name.to_string_lossy().starts_with(".pmfs"), "{name:?}");
    }
    bench.umount();
    bench.ok(&["fsck", "pool"]);
    println!("{kills} kills");
}
