//! The commands around a pool: what they print, what they leave behind, what they exit with.

mod bench;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use bench::{Bench, text};

/// A tree with all that has to be kept: times, modes, a hole, a link, two names of one
/// file, a long name.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub/empty")).unwrap();
    fs::write(at.join("file"), vec![7; 3 << 20]).unwrap();
    fs::write(at.join("sub/script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at.join("sub/script"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(at.join("sub/script"), at.join("twin")).unwrap();
    symlink("../nowhere", at.join("link")).unwrap();
    fs::write(at.join("n".repeat(255)), "long").unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"tail", 8 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    sparse.set_modified(old).unwrap();
    fs::File::open(at.join("sub"))
        .unwrap()
        .set_modified(old)
        .unwrap();
}

/// Everything that is to be the same on both sides, a line a file.
fn described(at: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut next = vec![at.to_owned()];
    while let Some(dir) = next.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = match () {
                () if meta.is_dir() => {
                    next.push(path.clone());
                    "directory".to_owned()
                }
                () if meta.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
                () => format!("{:08x}", crc32(&fs::read(&path).unwrap())),
            };
            lines.push(format!(
                "{} {:o} {} {} {}.{} {} {content}",
                path.strip_prefix(at).unwrap().display(),
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.mtime(),
                meta.mtime_nsec(),
                if meta.is_dir() { 0 } else { meta.nlink() },
            ));
        }
    }
    lines.sort();
    lines
}

fn crc32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |sum: u32, byte| sum.rotate_left(5) ^ u32::from(*byte))
}

#[test]
fn help_of_each_tool_has_an_example() {
    let bench = Bench::empty();
    let all = bench.ok(&["--help"]);
    for command in [
        "ls", "get", "put", "list", "rm", "save", "load", "dump", "grow", "defrag",
    ] {
        assert!(all.contains(&format!("\n  {command} ")), "{command}: {all}");
        let help = bench.ok(&[command, "--help"]);
        assert!(help.contains("Example"), "{help}");
        assert!(help.contains(&format!("pmfs {command} ")), "{help}");
        if command != "list" {
            assert_eq!(bench.run(&[command]).status.code(), Some(2));
        }
    }
}

#[test]
fn a_tree_goes_in_and_out_unchanged() {
    let bench = Bench::pool();
    tree(&bench.path("tree"));
    let put = bench.json(&["put", "-r", "--json", "pool", "tree", "/"]);
    assert_eq!(put["files"], 5);
    assert_eq!(put["directories"], 3);
    assert_eq!(put["symlinks"], 1);
    assert_eq!(put["skipped"].as_array().unwrap().len(), 0);
    // Holes cost nothing.
    assert!(put["bytes"].as_u64().unwrap() < (3 << 20) + 10_000, "{put}");
    let got = bench.json(&["get", "-r", "--json", "pool", "tree", "back"]);
    for same in ["files", "directories", "symlinks", "bytes"] {
        assert_eq!(got[same], put[same], "{same}");
    }
    let (before, after) = (
        described(&bench.path("tree")),
        described(&bench.path("back")),
    );
    assert_eq!(before, after);
    assert!(before.len() > 7);
    let hole = fs::metadata(bench.path("back/sparse")).unwrap();
    assert!(hole.blocks() * 512 < 1 << 20, "{} sectors", hole.blocks());
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
    // Once more, over what is there.
    bench.ok(&["put", "-r", "pool", "tree", "/"]);
    bench.ok(&["get", "-r", "pool", "tree", "again"]);
    assert_eq!(before, described(&bench.path("again")));
    bench.ok(&["get", "-r", "pool", "/", "root"]);
    assert_eq!(before, described(&bench.path("root/tree")));
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
}

#[test]
fn ls_shows_names_and_attributes() {
    let bench = Bench::pool();
    assert_eq!(bench.ok(&["ls", "pool"]), "");
    tree(&bench.path("tree"));
    bench.ok(&["put", "-r", "pool", "tree", "/"]);
    assert_eq!(bench.ok(&["ls", "pool"]), "tree\n");
    let paths = bench.ok(&["ls", "-R", "pool"]);
    assert!(
        paths.contains("\ntree/sub/script\n") && paths.contains("\ntree/link\n"),
        "{paths}"
    );
    let long = bench.ok(&["ls", "-l", "pool", "/tree/sub/script"]);
    assert!(long.starts_with("-rwsr-x--x 2 "), "{long}");
    assert!(long.ends_with(" script\n"), "{long}");
    let long = bench.ok(&["ls", "-l", "pool", "tree"]);
    assert!(long.contains(" link -> ../nowhere"), "{long}");
    assert!(long.contains(" 2001-09-09 01:46 sparse"), "{long}");
    let json = bench.json(&["ls", "-R", "--json", "pool", "tree"]);
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 8);
    let sparse = entries
        .iter()
        .find(|entry| entry["path"] == "sparse")
        .unwrap();
    assert_eq!(sparse["size_bytes"], 9 << 20);
    assert_eq!(sparse["kind"], "file");
    assert_eq!(sparse["mtime_ns"], 1_000_000_000_123_456_789_u64);
    let error = bench.fails(1, &["ls", "pool", "tree/absent"]);
    assert!(
        error.contains("absent") && error.contains("pmfs ls"),
        "{error}"
    );
    bench.fails(1, &["ls", "absent"]);
}

#[test]
fn single_files_and_streams() {
    let bench = Bench::pool();
    fs::write(bench.path("a"), "first").unwrap();
    fs::write(bench.path("b"), "second").unwrap();
    bench.ok(&["put", "pool", "a", "x"]);
    assert_eq!(bench.ok(&["get", "pool", "x", "-"]), "first");
    bench.ok(&["put", "pool", "b", "x"]);
    assert_eq!(bench.ok(&["get", "pool", "/x", "-"]), "second");
    bench.ok(&["get", "pool", "x"]);
    assert_eq!(fs::read(bench.path("x")).unwrap(), b"second");
    let mut piped = bench.command(&["put", "pool", "-", "y"]);
    let file = fs::File::open(bench.path("a")).unwrap();
    assert!(
        piped
            .stdin(file)
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(bench.ok(&["get", "pool", "y", "-"]), "first");
    // Nothing is left of how it was done.
    assert_eq!(bench.ok(&["ls", "-R", "pool"]), "x\ny\n");

    fs::create_dir(bench.path("dir")).unwrap();
    let error = bench.fails(1, &["put", "pool", "dir", "/"]);
    assert!(error.contains("-r"), "{error}");
    bench.ok(&["put", "-r", "pool", "dir", "/"]);
    let error = bench.fails(1, &["get", "pool", "dir"]);
    assert!(error.contains("-r"), "{error}");
    bench.fails(1, &["put", "pool", "absent", "/"]);
    bench.fails(1, &["put", "pool", "a", "no/such/dir"]);
    bench.fails(1, &["get", "pool", "absent", "-"]);
    bench.fails(2, &["get", "--json", "pool", "x", "-"]);
    bench.ok(&["put", "pool", "a", "dir"]);
    assert_eq!(bench.ok(&["get", "pool", "dir/a", "-"]), "first");
    fs::write(bench.path("big"), vec![1; 80 << 20]).unwrap();
    let error = bench.fails(1, &["put", "pool", "big", "/"]);
    assert!(error.contains("no space"), "{error}");
    assert_eq!(bench.ok(&["ls", "pool"]), "dir\nx\ny\n");
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
}

/// A mounted pool is reached by name, too, and each sees the other's work.
#[test]
fn a_mounted_pool_by_name() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.path("a"), "a").unwrap();
    bench.ok(&["put", "pool", "a", "x"]);
    assert_eq!(fs::read(bench.file("x")).unwrap(), b"a");
    fs::write(bench.file("y"), "y").unwrap();
    assert_eq!(bench.ok(&["ls", "pool"]), "x\ny\n");
    umount(&bench);
    assert_eq!(text(&bench.run(&["ls", "pool"]).stdout), "x\ny\n");
}

/// The state that `list` gives for each pool of the bench, by file name.
fn states(bench: &Bench) -> Vec<(String, String)> {
    let list = bench.json(&["list", "--json", "."]);
    let root = bench.path("");
    let pools = list["pools"].as_array().unwrap();
    let ours = pools.iter().filter_map(|pool| {
        let path = Path::new(pool["pool"].as_str().unwrap());
        let name = path.strip_prefix(&root).ok()?.display().to_string();
        Some((name, pool["state"].as_str().unwrap().to_owned()))
    });
    ours.collect()
}

#[test]
fn list_tells_the_state_of_each_pool() {
    let bench = Bench::pool();
    bench.ok(&["mkfs", "--size", "32M", "hurt"]);
    bench.ok(&["mkfs", "--size", "32M", "half"]);
    fs::write(bench.path("other"), vec![1; 1 << 20]).unwrap();
    fs::write(bench.path("short"), "PMFSPOOL").unwrap();
    // Both superblocks of one, the copy of the other.
    let damage = |pool: &str, offset| {
        let file = fs::File::options()
            .write(true)
            .open(bench.path(pool))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"\xff\xff", offset).unwrap();
    };
    damage("hurt", 100);
    damage("hurt", (32 << 20) - 4096 + 100);
    damage("half", (32 << 20) - 4096);
    let is = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    assert_eq!(
        states(&bench),
        [
            is("half", "damaged"),
            is("hurt", "damaged"),
            is("pool", "clean")
        ]
    );
    let table = bench.ok(&["list", "."]);
    assert!(
        table.contains("64 MiB") && table.contains("  clean"),
        "{table}"
    );
    // The current directory is looked into where nothing is named.
    assert!(bench.ok(&["list"]).contains("fail their checksums"));
    bench.fails(1, &["list", "absent"]);
    bench.fails(1, &["list", "other"]);
    assert!(bench.ok(&["list", "pool"]).contains("clean"));
}

#[test]
fn list_shows_heaps() {
    let bench = Bench::pool();
    let options = pmlib::Options::default();
    let make = |name: &str| pmlib::Heap::create(&bench.path(name), 2 << 20, &options).unwrap();
    make("clean").close().unwrap();
    let held = make("held");
    drop(make("killed").into_memory());
    make("hurt").close().unwrap();
    let mut bytes = fs::read(bench.path("hurt")).unwrap();
    bytes[8192 + 16] ^= 4;
    fs::write(bench.path("hurt"), bytes).unwrap();
    let list = bench.json(&["list", "--json", "."]);
    let heaps = list["heaps"].as_array().unwrap().iter();
    let states: Vec<(&str, &str)> = heaps
        .map(|heap| {
            let name = heap["heap"].as_str().unwrap().rsplit('/').next().unwrap();
            (name, heap["state"].as_str().unwrap())
        })
        .collect();
    let expected = [
        ("clean", "clean"),
        ("held", "in use"),
        ("hurt", "damaged"),
        ("killed", "needs recovery"),
    ];
    assert_eq!(states, expected);
    assert_eq!(states_of_pools(&list), 1);
    let table = bench.ok(&["list", "."]);
    assert!(table.contains("2 MiB  heap  needs recovery"), "{table}");
    assert!(bench.ok(&["list", "clean"]).contains("heap  clean"));
    held.close().unwrap();
}

fn states_of_pools(list: &serde_json::Value) -> usize {
    list["pools"].as_array().unwrap().len()
}

#[test]
fn list_and_rm_see_mounts() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    let pid = bench.daemon().as_raw_nonzero().get();
    let list = bench.json(&["list", "--json", "."]);
    let ours = list["pools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pool| pool["pool"] == bench.path("pool").to_str().unwrap());
    let ours = ours.unwrap();
    assert_eq!(ours["state"], "mounted");
    assert_eq!(ours["mounted_on"][0], bench.path("mnt").to_str().unwrap());
    assert_eq!(ours["pid"], pid);
    for force in [&["rm", "pool"][..], &["rm", "--force", "pool"]] {
        let error = bench.fails(1, force);
        assert!(error.contains("pmfs umount"), "{error}");
    }
    rustix::process::kill_process(bench.daemon(), rustix::process::Signal::KILL).unwrap();
    bench::wait_until("the daemon is gone", || !bench::is_daemon(pid as u32));
    bench.ok(&["umount", "--lazy", "mnt"]);
    assert_eq!(
        states(&bench),
        [("pool".to_owned(), "needs recovery".to_owned())]
    );
    bench.mount(&[]);
    umount(&bench);
    assert_eq!(states(&bench), [("pool".to_owned(), "clean".to_owned())]);
    let gone = bench.json(&["rm", "--json", "pool"]);
    assert_eq!(gone["removed"][0], bench.path("pool").to_str().unwrap());
    assert!(!bench.path("pool").exists());
}

#[test]
fn rm_deletes_pools_and_nothing_else() {
    let bench = Bench::pool();
    fs::write(bench.path("other"), vec![1; 1 << 20]).unwrap();
    let error = bench.fails(1, &["rm", "pool", "other"]);
    assert!(
        error.contains("not a PMFS pool") && error.contains("--force"),
        "{error}"
    );
    assert!(bench.path("pool").exists(), "one of several was deleted");
    bench.fails(1, &["rm", "absent"]);
    bench.fails(1, &["rm", "--force", "mnt"]);
    // Held by a program without a mount.
    let fs = pmfs::Fs::open(&bench.path("pool"), &pmfs::OpenOptions::default()).unwrap();
    let error = bench.fails(1, &["rm", "--force", "pool"]);
    assert!(error.contains("in use"), "{error}");
    assert_eq!(states(&bench), [("pool".to_owned(), "in use".to_owned())]);
    fs.close().unwrap();
    bench.ok(&["rm", "pool"]);
    bench.ok(&["rm", "--force", "other"]);
    assert!(!bench.path("pool").exists() && !bench.path("other").exists());
}

#[test]
fn save_and_load_an_unmounted_pool() {
    let bench = Bench::pool();
    tree(&bench.path("tree"));
    bench.ok(&["put", "-r", "pool", "tree", "/"]);
    let saved = bench.json(&["save", "--json", "pool", "file"]);
    assert_eq!(saved["mounted_on"], serde_json::Value::Null);
    assert_eq!(saved["size_bytes"], 64 << 20);
    let len = fs::metadata(bench.path("file")).unwrap().len();
    assert_eq!(saved["bytes"], len);
    // The stream has what is in use, not what there is.
    assert!(len > 3 << 20 && len < 5 << 20, "{len}");
    let loaded = bench.json(&["load", "--json", "file", "copy"]);
    assert_eq!(loaded["blocks"], saved["blocks"]);
    assert_eq!(loaded["damage"], 0);
    bench.ok(&["get", "-r", "copy", "tree", "back"]);
    assert_eq!(
        described(&bench.path("tree")),
        described(&bench.path("back"))
    );
    let fsck = bench.json(&["fsck", "--json", "copy"]);
    assert_eq!(fsck["clean"], true);
    assert_eq!(fsck["recovery"]["kind"], "none");

    let error = bench.fails(1, &["save", "pool", "file"]);
    assert!(error.contains("--force"), "{error}");
    bench.ok(&["save", "--force", "pool", "file"]);
    let error = bench.fails(1, &["load", "file", "copy"]);
    assert!(error.contains("--force"), "{error}");
    bench.ok(&["load", "--force", "file", "copy"]);
    bench.fails(1, &["load", "absent", "other"]);
    bench.fails(1, &["save", "absent", "other"]);
    bench.fails(2, &["save", "--json", "pool", "-"]);
    assert!(!bench.path("other").exists());
}

#[test]
fn a_damaged_file_makes_no_pool() {
    let bench = Bench::empty();
    bench.ok(&["mkfs", "--size", "8M", "pool"]);
    fs::write(bench.path("a"), vec![5; 100_000]).unwrap();
    bench.ok(&["put", "pool", "a", "/"]);
    let image = bench.run(&["save", "pool", "-"]).stdout;
    let names = || fs::read_dir(bench.path("")).unwrap().count();
    let before = names() + 1;
    for step in 0..12 {
        let at = image.len() / 12 * step;
        let mut flipped = image.clone();
        flipped[at] ^= 4;
        for hurt in [&flipped[..], &image[..at]] {
            fs::write(bench.path("hurt"), hurt).unwrap();
            let error = bench.fails(1, &["load", "--sparse", "hurt", "copy"]);
            assert!(error.contains("no pool was made"), "{error}");
            assert_eq!(names(), before, "something is left");
        }
    }
    // The same file comes from a pipe.
    fs::write(bench.path("hurt"), &image).unwrap();
    let mut load = bench.command(&["load", "-", "copy"]);
    load.stdin(fs::File::open(bench.path("hurt")).unwrap());
    assert!(load.output().unwrap().status.success());
    assert_eq!(
        bench.run(&["get", "copy", "a", "-"]).stdout,
        vec![5; 100_000]
    );
}

/// A thread that keeps `B <= A <= B + 1` over two files of a mount, until it is dropped.
struct Writer {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    count: std::sync::Arc<std::sync::atomic::AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    fn start(bench: &Bench) -> Writer {
        use std::os::unix::fs::FileExt;
        let stop = std::sync::Arc::default();
        let count = std::sync::Arc::default();
        let [a, b] = ["A", "B"].map(|name| fs::File::create(bench.file(name)).unwrap());
        let mut writer = Writer {
            stop: std::sync::Arc::clone(&stop),
            count: std::sync::Arc::clone(&count),
            thread: None,
        };
        writer.thread = Some(std::thread::spawn(move || {
            for n in 1u64.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                a.write_all_at(&n.to_le_bytes(), 0).unwrap();
                b.write_all_at(&n.to_le_bytes(), 0).unwrap();
                count.store(n, std::sync::atomic::Ordering::Relaxed);
            }
        }));
        writer
    }

    fn count(&self) -> u64 {
        self.count.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn goes_on(&self) {
        let before = self.count();
        bench::wait_until("the writer goes on", || self.count() > before + 1);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Goal: what is saved of a mount is of one instant. Method: two files that a writer
/// keeps in step, and a reader whose access times are stored all the while.
#[test]
fn a_mounted_pool_is_saved_as_of_one_instant() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    tree(&bench.file("tree"));
    let writer = Writer::start(&bench);
    let mut last = 0;
    for round in 0..12 {
        writer.goes_on();
        let saved = bench.json(&["save", "--force", "--json", "pool", "file"]);
        assert_eq!(saved["mounted_on"], bench.path("mnt").to_str().unwrap());
        let during = writer.count();
        fs::read(bench.file("tree/file")).unwrap();
        bench.ok(&["load", "--force", "file", "copy"]);
        let [a, b] = ["A", "B"].map(|name| {
            let content = bench.run(&["get", "copy", name, "-"]).stdout;
            u64::from_le_bytes(content.try_into().unwrap())
        });
        assert!(b <= a && a <= b + 1, "round {round}: A {a}, B {b}");
        assert!(b >= last && b <= during + 1, "{last} {b} {during}");
        last = a;
        let fsck = bench.json(&["fsck", "--json", "copy"]);
        assert_eq!(fsck["clean"], true, "{fsck}");
        if round == 0 {
            bench.ok(&["get", "-r", "copy", "tree", "back"]);
            assert_eq!(
                described(&bench.path("back")),
                described(&bench.file("tree"))
            );
        }
    }
    drop(writer);
    umount(&bench);
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
}

/// Goal: a `save` that dies holds nobody up. Method: one whose output nobody takes,
/// killed while writers wait.
#[test]
fn a_killed_save_lets_the_mount_go_on() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    tree(&bench.file("tree"));
    let error = bench.fails(1, &["save", "pool", "mnt/file"]);
    assert!(error.contains("itself"), "{error}");
    let writers = [
        Writer::start(&bench),
        Writer::start(&bench),
        Writer::start(&bench),
    ];
    for _ in 0..5 {
        let mut command = bench.command(&["save", "pool", "-"]);
        let mut save = bench::Bystander(command.stdout(Stdio::piped()).spawn().unwrap());
        bench::wait_until("the writers stand still", || {
            let before: Vec<u64> = writers.iter().map(Writer::count).collect();
            std::thread::sleep(Duration::from_millis(50));
            before
                .iter()
                .zip(&writers)
                .all(|(before, now)| *before == now.count())
        });
        assert!(save.0.try_wait().unwrap().is_none(), "it had ended before");
        let error = bench.fails(1, &["save", "pool", "other"]);
        assert!(error.contains("being saved"), "{error}");
        assert!(!bench.path("other").exists());
        // More writers wait than there may be workers; who only looks does not.
        assert!(fs::metadata(bench.file("tree")).is_ok());
        assert!(save.0.try_wait().unwrap().is_none(), "it was waited for");
        save.0.kill().unwrap();
        save.0.wait().unwrap();
        for writer in &writers {
            writer.goes_on();
        }
    }
    drop(writers);
    bench.ok(&["save", "pool", "file"]);
    umount(&bench);
    assert_eq!(bench.json(&["fsck", "--json", "pool"])["clean"], true);
}

/// Unmounts. A child that another test of this process forks meanwhile may hold a file
/// of the mount for a moment.
fn umount(bench: &Bench) {
    bench::wait_until("unmounted", || {
        bench.run(&["umount", "mnt"]).status.success()
    });
}

/// A list of named directories shows only what is there, whatever others have mounted.
#[test]
fn list_of_a_directory_is_of_that_alone() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir(bench.path("empty")).unwrap();
    let list = bench.json(&["list", "--json", "empty"]);
    assert_eq!(list["pools"].as_array().unwrap().len(), 0, "{list}");
    assert!(bench.ok(&["list", "pool"]).contains("mounted on"));
    bench.umount();
}

#[test]
fn sizes_are_taken_as_they_are_given() {
    let bench = Bench::pool();
    bench.ok(&["grow", "pool", "--size", "96M"]);
    bench.ok(&["grow", "pool", "128M"]);
    assert_eq!(
        bench.json(&["info", "--json", "pool"])["size_bytes"],
        128 << 20
    );
    assert_eq!(bench.run(&["grow", "pool"]).status.code(), Some(2));
    assert_eq!(
        bench
            .run(&["grow", "pool", "1G", "--size", "1G"])
            .status
            .code(),
        Some(2)
    );
    // The size that is named as the least is enough, and less is not.
    let said = bench.fails(1, &["mkfs", "--size", "1K", "least"]);
    let (_, least) = said.split_once("it takes ").expect("a size");
    let least: u64 = least.split(' ').next().unwrap().parse().unwrap();
    let size = |kib: u64| format!("{kib}K");
    bench.ok(&["mkfs", "--size", &size(least), "least"]);
    bench.fails(1, &["mkfs", "--force", "--size", &size(least - 4), "least"]);
}

#[test]
fn what_a_mount_hides_is_told() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    bench.umount();
    assert_eq!(bench.mount(&[])["hides"], 0);
    bench.umount();
    fs::write(bench.file("there"), "").unwrap();
    let said = bench.ok(&["mount", "pool", "mnt"]);
    assert!(said.contains("hidden until it is unmounted"), "{said}");
    assert!(!bench.file("there").exists());
    bench.umount();
}
