//! Files that programs map MAP_SHARED below one mount while others use them: below another mount of
//! the pool, by the library, by a tool. Nobody sees old bytes, and nothing that was stored is lost.

mod bench;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::installed::install;
use bench::mapper::Mapper;
use bench::{Bench, is_daemon, wait_until};
use pmfs::{Fs, Ino, OpenOptions as Attach};
use rustix::process::{Pid, Signal, kill_process};

const PAGE: usize = 4096;

struct Both {
    bench: Bench,
    daemons: [u64; 2],
}

/// One pool on `mnt` and on `other`; a file `f` of `len` zeros in it.
fn both(len: usize) -> Option<Both> {
    let mut bench = Bench::mounted(&[])?;
    fs::create_dir(bench.path("other")).unwrap();
    let first = bench.daemon().as_raw_nonzero().get() as u64;
    let second = bench.mount_on("other", "pool", &[])["pid"]
        .as_u64()
        .unwrap();
    fs::write(bench.file("f"), vec![0; len]).unwrap();
    Some(Both {
        bench,
        daemons: [first, second],
    })
}

impl Both {
    fn first(&self) -> PathBuf {
        self.bench.path("mnt/f")
    }

    fn second(&self) -> PathBuf {
        self.bench.path("other/f")
    }

    fn library(&self) -> Fs {
        Fs::open(&self.bench.path("pool"), &Attach::default()).unwrap()
    }

    /// The daemon of the first stands still until it is told to go on.
    fn stop_first(&self) -> Stopped {
        let pid = Pid::from_raw(self.daemons[0] as i32).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = Stopped(pid);
        let stat = format!("/proc/{}/stat", self.daemons[0]);
        wait_until("it stands still", || {
            fs::read_to_string(&stat).unwrap().contains(") T ")
        });
        stopped
    }

    /// `pmfs get` of the file, which reads it by the library.
    fn get(&self) -> Child {
        let mut get = self.bench.command(&["get", "pool", "/f", "got"]);
        get.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Ends both; the pool has to be clean and sound then.
    fn end(self) {
        for dir in ["mnt", "other"] {
            wait_until("unmounted", || {
                self.bench.run(&["umount", dir]).status.success()
            });
        }
        let report = self.bench.json(&["fsck", "--json", "pool"]);
        assert_eq!(report["clean"], true, "{report}");
    }
}

/// Goes on when this goes: a program with pages of the mount could not even end before.
struct Stopped(Pid);

impl Stopped {
    fn kill(&self) {
        kill_process(self.0, Signal::KILL).unwrap();
        let pid = self.0.as_raw_nonzero().get() as u32;
        wait_until("it is gone", || !is_daemon(pid));
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Linux 6.6 and later map files that are open for direct I/O; before, read(2) is
/// served from pages.
fn has_direct_mappings() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6_u32))
}

fn ino(fs: &Fs) -> Ino {
    fs.walk(b"/f", true).unwrap().ino
}

fn byte(path: &Path, at: u64) -> u8 {
    let mut byte = [0];
    let file = File::open(path).unwrap();
    assert_eq!(file.read_at(&mut byte, at).unwrap(), 1);
    byte[0]
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The next call of anybody sees what a mapping has; a mapping sees what anybody has written.
#[test]
fn mappings_and_calls_agree() {
    let Some(both) = both(2 * PAGE) else { return };
    let fs = both.library();
    let f = ino(&fs);
    let mut mapper = Mapper::of(&both.first(), "rw", 2 * PAGE);
    let mut other = Mapper::of(&both.second(), "rw", 2 * PAGE);
    let writer = OpenOptions::new().write(true).open(both.second()).unwrap();
    for step in 1..60_u8 {
        mapper.does(&format!("store f 0 {step}"));
        let mut seen = [0];
        fs.read(f, 0, &mut seen).unwrap();
        assert_eq!(seen, [step], "by the library");
        mapper.does(&format!("store f {PAGE} {step}"));
        assert_eq!(byte(&both.second(), PAGE as u64), step, "by the other");
        assert_eq!(other.load(0, 1), [step], "mapped below the other");
        writer.write_at(&[step], 100).unwrap();
        assert_eq!(mapper.load(100, 1), [step], "written below the other");
        fs.write(f, 200, &[step]).unwrap();
        assert_eq!(mapper.load(200, 1), [step], "written by the library");
        assert_eq!(other.load(200, 1), [step], "written by the library");
        // The calls of its own mount agree, too.
        assert_eq!(byte(&both.first(), 200), step);
        mapper.does("write f 300 x");
        assert_eq!(other.load(300, 1), *b"x");
    }
    let mut tool = both.get();
    assert!(tool.wait().unwrap().success());
    assert_eq!(fs::read(both.bench.path("got")).unwrap()[0], 59);
    drop((mapper, other, writer));
    fs.close().unwrap();
    both.end();
}

/// Goal: the kernel says which READ fills pages. Method: read(2) leaves no record, a
/// mapping does, of what it may do; the end of the last handle takes it away.
#[test]
fn the_kernel_tells_pages_from_reads() {
    let Some(both) = both(PAGE) else { return };
    let fs = both.library();
    let f = ino(&fs);
    let kinds = || -> Vec<bool> {
        let copies = fs.kernel_copies();
        assert!(copies.iter().all(|copy| copy.ino == f));
        copies.iter().map(|copy| copy.may_be_dirty).collect()
    };
    let mut mapper = Mapper::of(&both.first(), "r", PAGE);
    assert_eq!(mapper.ask("read f 0 2"), "0000");
    fs::read(both.first()).unwrap();
    if has_direct_mappings() {
        assert_eq!(kinds(), [false; 0], "read(2) is not served from pages");
    }
    mapper.load(0, 1);
    assert_eq!(kinds(), [false]);
    let mut other = Mapper::of(&both.second(), "r", PAGE);
    other.load(0, 1);
    assert_eq!(kinds(), [false, false], "clean ones stand side by side");
    let report = both.bench.json(&["info", "--json", "--open", "pool"]);
    let open = report["open"].as_array().unwrap();
    let mapped = |held: &&serde_json::Value| held["mapped"] == true && held["inode"] == f;
    assert_eq!(open.iter().filter(mapped).count(), 2, "{report}");
    let text = both.bench.ok(&["info", "--open", "pool"]);
    assert!(text.contains("/f, mapped"), "{text}");
    // A descriptor for writing alone can't map it; through one for both a program may store to
    // the page without a word.
    let mut options = OpenOptions::new();
    let writer = options.write(true).open(both.first()).unwrap();
    assert_eq!(kinds(), [false, false]);
    drop(writer);
    let writer = options.read(true).open(both.first()).unwrap();
    assert_eq!(kinds(), [true]);
    other.load(0, 1);
    assert_eq!(kinds(), [false]);
    drop((mapper, other, writer));
    wait_until("released", || fs.kernel_copies().is_empty());
    fs.close().unwrap();
    both.end();
}

/// Two programs below two mounts count in one page under flock.
#[test]
fn counting_under_flock() {
    const STEPS: u64 = 1000;
    let Some(both) = both(PAGE) else { return };
    let mut mappers = [both.first(), both.second()].map(|path| Mapper::of(&path, "rw", PAGE));
    for mapper in &mut mappers {
        mapper.tell(&format!("count f 8 {STEPS} flock"));
    }
    for mapper in &mut mappers {
        assert_eq!(mapper.says(), "ok");
        mapper.does("close f");
    }
    let fs = both.library();
    let mut count = [0; 8];
    fs.read(ino(&fs), 8, &mut count).unwrap();
    assert_eq!(number(&count), 2 * STEPS);
    fs.close().unwrap();
    both.end();
}

/// Goal: mounts that ask each other for pages all the time both get on, though all their
/// workers may wait for the other one, which can't give back what it has without one of its
/// own. Method: programs below both count without any lock in more files than two mounts have
/// workers (for each file the kernel asks for pages once at a time), each in bytes of its own.
#[test]
fn asking_each_other() {
    const STEPS: u64 = 200;
    const FILES: usize = 10;
    let Some(both) = both(PAGE) else { return };
    let name = |file: usize| format!("f{file}");
    let mut mappers = Vec::new();
    for file in 0..FILES {
        fs::write(both.bench.file(&name(file)), [0; PAGE]).unwrap();
        for dir in ["mnt", "other"] {
            let path = both.bench.path(dir).join(name(file));
            mappers.push(Mapper::of(&path, "rw", PAGE));
        }
    }
    for (at, mapper) in mappers.iter_mut().enumerate() {
        mapper.tell(&format!("count f {} {STEPS} alone", at % 2 * 8));
    }
    for mapper in &mut mappers {
        assert_eq!(mapper.says(), "ok");
    }
    for file in 0..FILES {
        let bytes = fs::read(both.bench.path("other").join(name(file))).unwrap();
        assert_eq!([&bytes[..8], &bytes[8..16]].map(number), [STEPS; 2]);
    }
    drop(mappers);
    both.end();
}

/// Goal: who asks comes through, however busy the program with the mapping is. Method: two
/// programs store to 16 pages as fast as they can, while the library writes and reads.
#[test]
fn asking_a_busy_program() {
    let Some(both) = both(16 * PAGE) else { return };
    let fs = both.library();
    let f = ino(&fs);
    let stop = both.bench.path("stop");
    let mut mappers = [0, 1].map(|_| Mapper::of(&both.first(), "rw", 16 * PAGE));
    for mapper in &mut mappers {
        mapper.tell(&format!("hammer f {}", stop.display()));
    }
    wait_until("it has pages", || !fs.kernel_copies().is_empty());
    let began = Instant::now();
    for step in 0..100_u8 {
        fs.write(f, 100, &[step]).unwrap();
        let mut seen = [255];
        fs.read(f, 100, &mut seen).unwrap();
        assert_eq!(seen, [step]);
    }
    let took = began.elapsed();
    fs::write(&stop, "").unwrap();
    for mapper in &mut mappers {
        assert_eq!(mapper.says(), "ok");
    }
    assert!(took < Duration::from_secs(60), "{took:?}");
    drop(mappers);
    fs.close().unwrap();
    both.end();
}

/// sqlite3 with a database, and what it is to do there.
fn sqlite(database: &Path, text: &str) -> Child {
    let mut child = Command::new("sqlite3")
        .args(["-batch", "-bail"])
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = format!(".timeout 60000\n{text}");
    thread::spawn(move || input.write_all(text.as_bytes()));
    child
}

/// Runs it, requires success, and returns its output.
fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Reads the header of WAL's index as its readers do: it stands there twice, and counts if both are
/// the same. Returns how often it did.
fn looks_at_index(fs: &Fs, done: &AtomicBool) -> u64 {
    let mut looked = 0;
    while !done.load(Ordering::SeqCst) {
        // Removed by the last one to close the database, unless another one is just
        // closing it, too.
        let Ok(attr) = fs.walk(b"/db-shm", true) else {
            continue;
        };
        if fs.hold(attr.ino).is_err() {
            continue;
        }
        let mut header = [0; 96];
        let read = fs.read(attr.ino, 0, &mut header).unwrap();
        fs.release(attr.ino).unwrap();
        if read == 96 && header[..48] == header[48..] && header[12] == 1 {
            looked += 1;
            assert_eq!(header[..4], 3_007_000_u32.to_le_bytes());
        }
    }
    looked
}

/// SQLite's WAL mode has an index in shared memory (`-shm`), which it maps, here from
/// both sides, while the library looks at it.
#[test]
fn sqlite_in_wal_mode() {
    const TRANSACTIONS: usize = 200;
    let Some(both) = both(PAGE) else { return };
    if Command::new("sqlite3").arg("-version").output().is_err() {
        eprintln!("skipped: needs sqlite3");
        return;
    }
    let sqlite = |dir: &str, text: &str| sqlite(&both.bench.path(dir).join("db"), text);
    let made = "pragma journal_mode=wal; create table t(who, n);";
    assert_eq!(said(sqlite("mnt", made)), "wal\n");
    let insert = |who: &str| -> String {
        (0..TRANSACTIONS)
            .map(|n| format!("begin immediate; insert into t values('{who}', {n}); commit;\n"))
            .collect()
    };
    let writers = ["mnt", "other"].map(|dir| sqlite(dir, &insert(dir)));
    let fs = both.library();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| looks_at_index(&fs, &done));
        for writer in writers {
            said(writer);
        }
        done.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0);
    });
    for dir in ["mnt", "other"] {
        let asked =
            "pragma integrity_check; select who, count(*) from t group by who order by who;";
        let answer = said(sqlite(dir, asked));
        assert_eq!(
            answer,
            format!("ok\nmnt|{TRANSACTIONS}\nother|{TRANSACTIONS}\n")
        );
    }
    fs.close().unwrap();
    both.end();
}

/// A mount that does not run holds up who needs the pages, and is told of; when it goes
/// on, so do they.
#[test]
fn a_stopped_mount_is_told_of() {
    let Some(both) = both(PAGE) else { return };
    let mut mapper = Mapper::of(&both.first(), "rw", PAGE);
    mapper.does("store f 0 7");
    let stopped = both.stop_first();
    let mut get = both.get();
    thread::sleep(Duration::from_millis(2500));
    assert!(get.try_wait().unwrap().is_none(), "it waits");
    drop(stopped);
    let output = get.wait_with_output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    let named = format!("pmfs: waiting for process {}", both.daemons[0]);
    assert!(stderr.contains(&named), "{stderr}");
    assert_eq!(fs::read(both.bench.path("got")).unwrap()[0], 7);
    drop(mapper);
    both.end();
}

/// A mount that was killed has no pages any more.
#[test]
fn a_killed_mount_holds_nobody_up() {
    let Some(both) = both(PAGE) else { return };
    let mut mapper = Mapper::of(&both.first(), "rw", PAGE);
    mapper.does("store f 0 7");
    mapper.does("sync f");
    mapper.does("store f 1 8");
    let stopped = both.stop_first();
    let fs = both.library();
    let f = ino(&fs);
    thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut bytes = [0; 2];
            fs.read(f, 0, &mut bytes).unwrap();
            bytes
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!asker.is_finished());
        stopped.kill();
        let bytes = asker.join().unwrap();
        assert_eq!(bytes[0], 7, "what was synced");
    });
    assert!(fs.kernel_copies().is_empty());
    fs::write(both.second(), "on").unwrap();
    drop((mapper, stopped));
    fs.close().unwrap();
    both.end();
}

/// Goal: a daemon that is killed while its kernel gives pages back ends, and holds
/// nobody up, neither those who asked nor the programs below its own mount. Method:
/// programs below both mounts store to many pages, so that at most instants some are
/// being given back; one daemon is killed at another instant each time.
#[test]
fn a_mount_is_killed_while_it_gives_back() {
    for round in 0..5 {
        let Some(both) = both(64 * PAGE) else { return };
        let fs = both.library();
        let f = ino(&fs);
        let stop = both.bench.path("stop");
        let mut mappers =
            [both.first(), both.second()].map(|path| Mapper::of(&path, "rw", 64 * PAGE));
        for mapper in &mut mappers {
            mapper.tell(&format!("hammer f {}", stop.display()));
        }
        wait_until("they have pages", || !fs.kernel_copies().is_empty());
        thread::sleep(Duration::from_millis(100 + 7 * round));
        let daemon = both.daemons[0] as u32;
        kill_process(Pid::from_raw(daemon as i32).unwrap(), Signal::KILL).unwrap();
        wait_until("it is gone", || {
            let threads = fs::read_dir(format!("/proc/{daemon}/task"));
            threads.map_or(0, Iterator::count) <= 1
        });
        let mut bytes = [0; 8];
        assert_eq!(fs.read(f, 0, &mut bytes).unwrap(), 8);
        assert_eq!(fs.write(f, 8, &bytes).unwrap(), 8);
        fs::write(&stop, "").unwrap();
        // The pages that it waited for below the first mount are refused; if it had all pages it
        // has not noticed.
        if mappers[0].says().is_empty() {
            assert_eq!(mappers[0].ended().signal(), Some(Signal::BUS.as_raw()));
        }
        assert_eq!(mappers[1].says(), "ok");
        drop(mappers);
        fs.close().unwrap();
        both.end();
    }
}

/// A mapping of a file that others cut shows zeros behind the end in its last page, and
/// SIGBUS is for pages beyond; what was stored behind the end does not come back.
#[test]
fn others_cut_what_is_mapped() {
    let Some(both) = both(3 * PAGE) else { return };
    let fs = both.library();
    let f = ino(&fs);
    let mut mapper = Mapper::of(&both.first(), "rw", 3 * PAGE);
    for page in 0..3 {
        mapper.does(&format!("store f {} 9", page * PAGE + 500));
    }
    fs.setattr(
        f,
        &pmfs::SetAttr {
            size: Some(100),
            ..pmfs::SetAttr::default()
        },
    )
    .unwrap();
    assert_eq!(mapper.load(500, 1), [0]);
    mapper.does("store f 600 1");
    assert_eq!(mapper.ask("sync f"), "ok");
    assert_eq!(
        fs.getattr(f).unwrap().size,
        100,
        "a mapping does not grow it"
    );
    fs.write(f, 3 * PAGE as u64, b"x").unwrap();
    let mut bytes = vec![1; PAGE];
    fs.read(f, 100, &mut bytes).unwrap();
    assert_eq!(bytes, [0; PAGE], "a hole");
    fs.setattr(
        f,
        &pmfs::SetAttr {
            size: Some(100),
            ..pmfs::SetAttr::default()
        },
    )
    .unwrap();
    assert_eq!(mapper.load(0, 1), [0]);
    mapper.tell(&format!("load f {} 1", 2 * PAGE));
    assert_eq!(mapper.says(), "");
    assert_eq!(mapper.ended().signal(), Some(Signal::BUS.as_raw()));
    fs.close().unwrap();
    both.end();
}

fn pins(both: &Both) -> usize {
    let fs = both.library();
    let _ = fs.recover_dead();
    fs.kernel_copies().iter().filter(|copy| copy.is_pin).count()
}

/// A program below `pmfs run` maps the pool's own blocks; one below the mount has pages
/// of the kernel's. Both see the same, or the second one to come is refused.
#[test]
fn blocks_and_pages() {
    let Some(both) = both(2 * PAGE) else {
        return;
    };
    let pmfs = install(&both.bench.path("bin"));
    let below_run = |mode| {
        let mut run = Command::new(&pmfs);
        run.args(["run", "--pool", "pool", "--at", "mnt"])
            .current_dir(both.bench.path("."));
        Mapper::below_run(run, &both.first(), mode, 2 * PAGE)
    };
    let below_mnt = format!("{}/", both.bench.path("mnt").display());
    let shows_blocks = |mapper: &Mapper| !mapper.maps().contains(&below_mnt);
    // The first has the blocks; others read and write, and can't map.
    let mut run = below_run("rw");
    assert!(shows_blocks(&run), "{}", run.maps());
    run.does("store f 5 7");
    let mut got = [0; 10];
    let plain = File::options()
        .read(true)
        .write(true)
        .open(both.second())
        .unwrap();
    plain.read_exact_at(&mut got, 0).unwrap();
    assert_eq!(got, [0, 0, 0, 0, 0, 7, 0, 0, 0, 0]);
    plain.write_all_at(&[9], 6).unwrap();
    assert_eq!(run.load(5, 2), [7, 9]);
    assert_eq!(pins(&both), 1);
    let mut late = Mapper::of(&both.second(), "r", 2 * PAGE);
    late.tell("load f 0 1");
    assert_eq!(late.says(), "");
    assert_eq!(late.ended().signal(), Some(Signal::BUS.as_raw()));
    // A second one below `pmfs run` shares the blocks.
    let mut second = below_run("rw");
    assert!(shows_blocks(&second), "{}", second.maps());
    second.does("store f 4 6");
    assert_eq!(run.load(4, 3), [6, 7, 9]);
    drop(plain);
    // The obstacle is gone when they are gone.
    run.does("close f");
    drop((run, second));
    wait_until("the pins end", || pins(&both) == 0);
    let mut pages = Mapper::of(&both.second(), "rw", 2 * PAGE);
    assert_eq!(pages.load(5, 2), [7, 9]);
    pages.does("store f 7 1");
    // Now it is the other way round: who comes second goes through the mount, and both
    // see the same.
    let mut run = below_run("rw");
    assert!(!shows_blocks(&run), "{}", run.maps());
    assert_eq!(run.load(5, 3), [7, 9, 1]);
    run.does("store f 8 2");
    assert_eq!(pages.load(5, 4), [7, 9, 1, 2]);
    drop((run, pages));
    both.end();
}
