//! Goal: a pool that was edited on purpose, with right checksums ([`yat::files::crafted`]), does no
//! harm. Each call ends in an answer or an error, after a bounded number of steps; no name, target
//! or attribute is one that no call could have made; names that lead down never lead back up.
//! Repair ends clean or says that it can't, and a second one finds nothing to do.
//!
//! `PMFS_CRAFTED` pools are tried, from number `PMFS_CRAFTED_SEED` on.

use pmem::Pmem;
use pmem::record::Observer;
use pmfs::types::mode;
use pmfs::{Attr, Error, Fs, Ino, OpenOptions, ROOT_INO};
use pmfs_admin::Admin;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use yat::files::crafted::{Edits, craft, renamed};
use yat::files::damage::{Base, Seen, disturb, inspect, load};

/// Loads that one of the steps of a case may take: a check of such a pool takes some 50,000.
const LOADS_MAX: u64 = 30_000_000;
/// Sleeps of the only thread there is.
const WAITS_MAX: u64 = 20;
/// Names that a walk may meet.
const NAMES_MAX: usize = 20_000;

/// Counts what a step takes, and ends it if that is too much.
#[derive(Default)]
struct Steps {
    loads: AtomicU64,
    waits: AtomicU64,
}

impl Observer for Steps {
    fn load(&self, _mem: &Pmem, _off: u64, _len: u64) {
        let loads = self.loads.fetch_add(1, Ordering::Relaxed);
        assert!(loads < LOADS_MAX, "it does not end");
    }

    fn wait(&self, _mem: &Pmem, off: u64) {
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        assert!(waits < WAITS_MAX, "nobody will wake who sleeps on {off:#x}");
    }
}

impl Steps {
    fn begin(&self) {
        self.loads.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
    }
}

/// Ends the process if a case hangs where no step is counted; told which one is being tried.
fn watch() -> Arc<AtomicU64> {
    let case = Arc::new(AtomicU64::new(0));
    let told = case.clone();
    std::thread::spawn(move || {
        let (mut last, mut since) = (0, 0);
        loop {
            std::thread::sleep(Duration::from_secs(1));
            if Arc::strong_count(&case) == 1 {
                return;
            }
            let now = case.load(Ordering::Relaxed);
            since = if now == last { since + 1 } else { 0 };
            last = now;
            if since > 120 {
                eprintln!("PMFS_CRAFTED_SEED={now}: it does not end");
                std::process::abort();
            }
        }
    });
    told
}

fn open(image: &[u8], steps: &Arc<Steps>, repair: bool) -> pmfs::Result<Fs> {
    steps.begin();
    let options = OpenOptions {
        repair,
        // Left clean: what stands in the runtime area is believed.
        rebooted: true,
        observer: Some(steps.clone()),
        ..OpenOptions::default()
    };
    Fs::open_private(load(image), &options)
}

/// No answer may be one that no call could have made.
fn judge_attr(attr: &Attr) {
    let kinds = [
        mode::S_IFREG,
        mode::S_IFDIR,
        mode::S_IFLNK,
        mode::S_IFIFO,
        mode::S_IFSOCK,
        mode::S_IFBLK,
        mode::S_IFCHR,
    ];
    assert!(
        kinds.contains(&(attr.mode & !0o7777)),
        "mode {:o}",
        attr.mode
    );
    assert!(attr.size <= i64::MAX as u64, "size {:#x}", attr.size);
    assert!(attr.sectors <= i64::MAX as u64, "{} sectors", attr.sectors);
}

/// Walks all there is as `find` does, which knows no inode that it has seen.
fn walk(fs: &Fs) {
    let mut next: Vec<(Ino, usize)> = vec![(ROOT_INO, 0)];
    let mut count = 0;
    while let Some((dir, depth)) = next.pop() {
        let mut names = Vec::new();
        let _ = fs.readdir(dir, 0, &mut |entry| {
            let own = entry.name == b"." || entry.name == b"..";
            assert_eq!(own, entry.cookie < 3, "{}", entry.name.escape_ascii());
            if !own {
                names.push(entry.name.to_vec());
            }
            names.len() < NAMES_MAX
        });
        count += names.len();
        assert!(
            count < NAMES_MAX,
            "names without end, {depth} directories deep"
        );
        for name in names {
            let shown = name.escape_ascii();
            assert!((1..=255).contains(&name.len()), "{shown}");
            assert!(!name.iter().any(|byte| matches!(byte, 0 | b'/')), "{shown}");
            let Ok(attr) = fs.lookup(dir, &name) else {
                continue;
            };
            judge_attr(&attr);
            let _ = fs.seek_data(attr.ino, 0);
            let _ = fs.seek_hole(attr.ino, 0);
            if let Ok(target) = fs.readlink(attr.ino) {
                let fits = (1..=4095).contains(&target.len()) && !target.contains(&0);
                assert!(fits, "target {}", target.escape_ascii());
            }
            for name in fs.listxattr(attr.ino).unwrap_or_default() {
                assert!(!name.contains(&0) && name.contains(&b'.'), "attribute");
            }
            if attr.mode & mode::S_IFMT == mode::S_IFDIR {
                next.push((attr.ino, depth + 1));
            }
        }
    }
}

/// The outcome of a repair.
#[derive(Debug, PartialEq, Eq)]
enum Repaired {
    /// The file is no pool any more.
    Refused,
    /// The call says so: no room for what has to be made.
    Not,
    Clean,
}

/// Repairs twice: the second one has nothing to do, and leaves all as it was.
fn repair(image: &[u8], steps: &Arc<Steps>) -> Repaired {
    let Ok(fs) = open(image, steps, true) else {
        return Repaired::Refused;
    };
    steps.begin();
    let report = match fs.repair() {
        Err(Error::NoSpace | Error::NoInodes) => return Repaired::Not,
        report => report.expect("repair"),
    };
    assert!(report.left.is_clean(), "left: {:#?}", report.left.findings);
    steps.begin();
    walk(&fs);
    let first = inspect(&fs);
    fs.detach().expect("close");
    let mended = fs.mapping().snapshot_image();
    let fs = open(&mended, steps, true).expect("attaching a second time");
    steps.begin();
    let again = fs.repair().expect("repair");
    assert!(
        again.left.is_clean(),
        "the second: {:#?}",
        again.left.findings
    );
    assert!(
        again.repaired.is_empty(),
        "the second: {:#?}",
        again.repaired
    );
    assert!(inspect(&fs) == first, "the second changes something");
    steps.begin();
    let mut failed = disturb(&fs, &first);
    // A size may be the largest that there is.
    failed.retain(|what| !what.contains("file too large"));
    assert!(failed.is_empty(), "after repair: {failed:#?}");
    steps.begin();
    let after = fs.check().expect("check");
    assert!(after.is_clean(), "after use: {:#?}", after.findings);
    Repaired::Clean
}

/// Walks, uses and checks it; answers whether it could be attached to.
fn tried(image: &[u8], steps: &Arc<Steps>) -> bool {
    let Ok(fs) = open(image, steps, false) else {
        return false;
    };
    steps.begin();
    walk(&fs);
    let seen: Seen = inspect(&fs);
    steps.begin();
    let _ = disturb(&fs, &seen);
    steps.begin();
    walk(&fs);
    let _ = fs.check();
    let _ = fs.close();
    true
}

/// Pools to try in this run: another part each day.
fn numbers() -> std::ops::Range<u64> {
    let of = |name: &str, or: u64| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let days = std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs()
        / 86_400;
    let first = of("PMFS_CRAFTED_SEED", days * 100_000);
    println!("PMFS_CRAFTED_SEED={first}");
    first..first + of("PMFS_CRAFTED", 400)
}

fn campaign(edits: Edits, also_use: bool) {
    let case = watch();
    let base = Base::new();
    let places = base.places();
    let (mut attached, mut clean, mut unable, mut bad) = (0, 0, 0, Vec::new());
    let numbers = numbers();
    let count = numbers.end - numbers.start;
    for number in numbers {
        case.store(number, Ordering::Relaxed);
        let (image, said) = craft(base.image(), places, edits, number);
        let steps = Arc::new(Steps::default());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let attaches = also_use && tried(&image, &steps);
            (attaches, repair(&image, &steps))
        }));
        match outcome {
            Ok((attaches, repaired)) => {
                attached += u64::from(attaches);
                clean += u64::from(repaired == Repaired::Clean);
                unable += u64::from(repaired == Repaired::Not);
            }
            // The child ran into a limit, or into a panic.
            Err(_) => {
                eprintln!("PMFS_CRAFTED_SEED={number}: {said}");
                bad.push(number);
            }
        }
        assert!(bad.len() < 20, "{edits:?}: {bad:?}");
    }
    println!(
        "{count} pools crafted ({edits:?}): {attached} attached to and used, {clean} repaired, {unable} without room for that"
    );
    assert!(bad.is_empty(), "{edits:?}: {bad:?}");
    assert!(clean > count / 2, "hardly any is a pool");
}

/// Goal: a name that no call makes is an error where it is listed, whoever wrote it and however
/// right its checksums are.
#[test]
fn names_that_lead_out_are_no_answers() {
    let base = Base::new();
    for name in [&b"../../esc/owned"[..], b"/", b".", b"..", b"a\0b"] {
        let image = renamed(base.image(), base.places(), name);
        let fs = open(&image, &Arc::default(), false).expect("it opens");
        let mut listed = Vec::new();
        let end = fs.readdir(ROOT_INO, 2, &mut |entry| {
            listed.push(entry.name.to_vec());
            true
        });
        assert!(matches!(end, Err(Error::Corrupt(_))), "{end:?} {listed:?}");
        assert!(listed.is_empty(), "{listed:?}");
    }
}

/// Goal: nothing that somebody wrote into a pool becomes a wrong answer, or a call without an end.
#[test]
fn any_pool_is_answered_for() {
    campaign(Edits::All, true);
}

/// Goal: a pointer that leads to what is another's is cut where it stands, and nothing is written
/// through it.
#[test]
fn repair_converges() {
    campaign(Edits::Pointers, false);
}
