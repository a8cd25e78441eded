//! Sites: every place in the source that flushes or fences, taken out one at a time. Some workload must then have a
//! crash state that is neither before nor after; else the place is not needed, or what shows it is missing here.

use crate::explore::{Explorer, IMAGES_MAX, Options, Recording, Violation, explore, record};
use crate::files::FileSystem;
use crate::files::ace::{sequences, wide};
use crate::files::call::parse;
use crate::files::debts::debts;
use crate::files::kinds::kinds;
use crate::files::pool::POOL_BYTES;
use crate::files::reopen::Reopen;
use crate::files::tree::Tree;
use crate::pairs::building_on;
use crate::program::Program;
use crate::trace::{Event, Place};
use pmfs::DataMode;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a site does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Begins the write-back of a line.
    Flush,
    /// Waits for what was flushed and streamed.
    Fence,
}

/// A place that flushes or fences. Sites are sorted by where they are, and numbered in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// What it does.
    pub what: What,
    /// Where in the source.
    pub place: Place,
}

impl Site {
    fn key(&self) -> (&'static str, u32, u32, What) {
        let place = self.place;
        (place.file(), place.line(), place.column(), self.what)
    }
}

impl PartialOrd for Site {
    fn partial_cmp(&self, other: &Site) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Site {
    fn cmp(&self, other: &Site) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The site of an event, if it has one.
pub(crate) fn site_of(event: &Event) -> Option<Site> {
    let (what, place) = match *event {
        Event::Flush { at, .. } => (What::Flush, at),
        Event::Fence { at, .. } => (What::Fence, at),
        _ => return None,
    };
    Some(Site { what, place })
}

const MODES: [DataMode; 2] = [DataMode::Atomic, DataMode::Ordered];

/// Calls after which a later one shows what an earlier one left undone: a deep tree, whose pointers share no line with
/// the inode; a full pool, in which what was freed is had again. With the number of the first one that is crashed.
const REVISITS: [(&str, usize); 3] = [
    ("create foo; write foo 4194304 10; write foo 8388608 10", 1),
    (
        "create foo; write foo 4194304 10; fallocate foo 1 8388608 8192; write foo 8388608 100",
        2,
    ),
    (
        "create foo; fallocate foo 0 0 800000; truncate foo 4096; create bar; fallocate bar 0 0 700000",
        2,
    ),
];
/// Images of a point of these.
const REVISIT_IMAGES: u64 = 4096;

/// Records what the sites are tried in: every kind of call, one in `one_in` of the workloads of two calls, and some
/// that come back to what an earlier call left. With `recoveries`, sites of recoveries are tried too.
///
/// # Errors
/// A workload that can't be done, in words.
pub fn recorded(one_in: usize, recoveries: bool) -> Result<Vec<Recorded>, String> {
    let mut recorded = Vec::new();
    if let Some((name, _)) = elsewhere(None) {
        return Err(format!("{name}: a violation with every site in place"));
    }
    for mode in MODES {
        for kind in kinds() {
            // Recoveries of large pools take long to crash, and are as those of small ones.
            let recoveries = recoveries && kind.pool_bytes == POOL_BYTES;
            let program = FileSystem::of_kind(&kind, mode);
            recorded.push(Recorded::of(program, Options::default(), recoveries)?);
        }
        let set = wide();
        let two = sequences(&set, 2).step_by(one_in.max(1));
        for calls in two.chain(debts()) {
            let program = FileSystem::of_calls(&calls, mode);
            recorded.push(Recorded::of(program, Options::default(), false)?);
        }
        for (calls, from) in REVISITS {
            let program = FileSystem::of_calls(&parse(calls)?, mode);
            let options = Options {
                from,
                images_max: REVISIT_IMAGES,
                ..Options::default()
            };
            recorded.push(Recorded::of(program, options, false)?);
        }
    }
    Ok(recorded)
}

/// A recorded workload and the sites in it.
pub struct Recorded {
    program: FileSystem,
    recording: Recording<Tree>,
    options: Options,
    /// Those of its steps.
    steps: BTreeSet<Site>,
    /// Those of the recoveries of its crash images.
    recoveries: BTreeSet<Site>,
}

impl Recorded {
    /// Runs a workload; with `recoveries`, also recovers its crash images, for the sites in there.
    ///
    /// # Errors
    /// A step that failed, or a violation.
    fn of(program: FileSystem, options: Options, recoveries: bool) -> Result<Recorded, String> {
        let recording = record(&program)?;
        let mut recorded = Recorded {
            steps: sites_of(&recording),
            options,
            recoveries: BTreeSet::new(),
            program,
            recording,
        };
        if recoveries {
            let mut explorer = Explorer::new(&recorded.program, &recorded.recording, NESTED);
            let explored = explorer.explore();
            explored.map_err(|violation| violation.to_string())?;
            recorded.recoveries = explorer.take_sites();
        }
        Ok(recorded)
    }

    /// The sites of the steps and of the recoveries.
    pub fn sites(&self) -> impl Iterator<Item = Site> {
        self.steps.union(&self.recoveries).copied()
    }

    /// Explores it without a site; none if the site is not in it, or not missed.
    #[must_use]
    pub fn without(&self, site: Site) -> Option<Box<Violation>> {
        let options = if self.steps.contains(&site) {
            self.options
        } else if self.recoveries.contains(&site) {
            NESTED
        } else {
            return None;
        };
        let options = Options {
            without: Some(site),
            ..options
        };
        let mut explorer = Explorer::new(&self.program, &self.recording, options);
        explorer.explore().err()
    }

    /// The workload's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.program.name()
    }
}

/// Who misses a site that no workload misses by itself. Without nothing, nobody must.
fn elsewhere(without: Option<Site>) -> Option<(String, u64)> {
    let tries = MODES
        .into_iter()
        .flat_map(|mode| Reopen::OPTIONS.map(|options| (Reopen::new(mode), options)));
    let mut tries = tries.map(|(reopen, options)| (reopen, Options { without, ..options }));
    let left = tries.find_map(|(reopen, options)| {
        let violation = explore(&reopen, options).ok()?.err()?;
        Some((reopen.name(), violation.after_images))
    });
    left.or_else(|| {
        building_on(DataMode::Atomic)
            .into_iter()
            .find_map(|mut pair| {
                pair.without = without;
                let violation = pair.explore().ok()?.err()?;
                Some((pair.name(), violation.after_images))
            })
    })
}

/// The sites that a pool is left and opened by.
fn leaving() -> BTreeSet<Site> {
    let recording = record(&Reopen::new(DataMode::Atomic)).expect("steps that can be done");
    sites_of(&recording)
}

/// The sites of what comes after preparation, which is not crashed.
fn sites_of(recording: &Recording<Tree>) -> BTreeSet<Site> {
    let events = recording.trace.events.iter();
    let events = events.skip_while(|event| !matches!(event, Event::Return { .. }));
    events.filter_map(site_of).collect()
}

/// Recoveries are crashed too.
const NESTED: Options = Options {
    from: 0,
    depth: 1,
    without: None,
    seed: 1,
    images_max: IMAGES_MAX,
    durable_first: false,
};

/// What taking a site out showed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The site.
    pub site: Site,
    /// Whether only recoveries have it.
    pub in_recovery: bool,
    /// The workload that missed it, and the images that it took there.
    pub missed: Option<(String, u64)>,
}

/// Takes each site out that is `chosen`, also by its number, on `threads` threads.
#[must_use]
pub fn verdicts(
    recorded: &[Recorded],
    threads: usize,
    chosen: impl Fn(usize, &Site) -> bool + Sync,
) -> Vec<Verdict> {
    let mut sites = leaving();
    sites.extend(recorded.iter().flat_map(Recorded::sites));
    let sites: Vec<Site> = sites.into_iter().collect();
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&site) = sites.get(number) else {
                return;
            };
            if !chosen(number, &site) {
                continue;
            }
            let missed = recorded.iter().find_map(|recorded| {
                let violation = recorded.without(site)?;
                Some((recorded.name(), violation.after_images))
            });
            let missed = missed.or_else(|| elsewhere(Some(site)));
            let in_recovery = !recorded
                .iter()
                .any(|recorded| recorded.steps.contains(&site));
            verdicts.lock().expect("not poisoned").push(Verdict {
                site,
                in_recovery,
                missed,
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut verdicts = verdicts.into_inner().expect("not poisoned");
    verdicts.sort_by_key(|verdict| verdict.site);
    verdicts
}

const PROGRAMS: &str = "what programs store in mapped blocks is not recorded";

/// Fences alone, whose flushes are missed: as in [`UNSEEN`].
const UNSEEN_FENCES: [(&str, &str, &str); 3] = [
    (
        "file/extend.rs",
        "publish_hidden_run(",
        "what is owed is paid before any store in place; that of a leaf into a hole is of a word that no log has which is owed",
    ),
    (
        "file/expose.rs",
        "publish(found.slot, word, durable)",
        "who writes to the block, or has it mapped, fences before anything is promised of what is in it",
    ),
    (
        "file/overwrite.rs",
        "self.locks.change(); self.pool.pm.publish_bytes",
        "what is owed there is a log of new bytes; it matters where who stores the word is killed, others see it, and then the power fails",
    ),
];

/// Flushes alone, whose fences are missed: as in [`UNSEEN`].
const UNSEEN_FLUSHES: [(&str, &str, &str); 2] = [
    (
        "dir/split.rs",
        "fresh.barrier() };",
        "of what is owed, before a change of words that it seldom speaks of",
    ),
    (
        "promise.rs",
        "restore.commit(last)",
        "a pool at rest has no open log; but its locks keep what is owed, and whoever meets that closes the promise",
    ),
];

/// Places whose absence no workload shows: file, what the source says there, why it is there.
const UNSEEN: [(&str, &str, &str); 17] = [
    (
        "defrag.rs",
        "publish(swing.slot, swing.new.0, durable)",
        MOVED,
    ),
    ("defrag.rs", "publish(slot, new, durable)", MOVED),
    (
        "dir/split.rs",
        "pool.pm.publish_early(dir.root_slot()",
        COVERED,
    ),
    ("file/allocate.rs", "pm.barrier()", PLACEMENT),
    ("file/allocate.rs", "pm.publish_hidden(", PLACEMENT),
    ("file/extend.rs", "zero(0, head)", NEIGHBOUR),
    (
        "file/replace.rs",
        "fresh.range(off, BLOCK_BYTES).bytes(0, piece)",
        "only a copy that fails in the middle of a line flushes; nothing will name that block",
    ),
    (
        "file/overwrite.rs",
        "tx.commit(); }",
        "a log that stays open shows when the blocks that it saved to are had again: bug-put-back-unclosed",
    ),
    ("pin.rs", "self.pm.barrier()", PROGRAMS),
    ("pin.rs", "self.pm.flush_mapped(", PROGRAMS),
    (
        "superblock.rs",
        "words(CLAIM_OFFSET",
        "a claim that comes back after power loss is of another boot",
    ),
    (
        "namespace/create.rs",
        "LINKABLE",
        "nothing durable names an O_TMPFILE; its link logs the inode",
    ),
    (
        "persist/runtime.rs",
        ".flush(self.area.start",
        "a runtime area of which a line is lost fails the pool's checksum, and is rebuilt",
    ),
    (
        "persist/runtime.rs",
        "self.mem.fence()",
        "it keeps the zeros before what other processes load; nothing there has to be durable",
    ),
    (
        "superblock.rs",
        "restore.barrier()",
        "the first change of the pool fences too, unless another thread makes it",
    ),
    (
        "recovery.rs",
        "restore.close(",
        "at a mount the superblock's next fence covers it; the kill model needs it",
    ),
    (
        "superblock.rs",
        "restore.words(RUN_RECORD_OFFSET",
        "a record that is lost or torn fails its CRC and counts as another boot's",
    ),
];
const COVERED: &str =
    "the call's own transaction flushes the line again, unless it fails before that";
const MOVED: &str =
    "both places read the same; it shows once another thread has the old blocks again";
const PLACEMENT: &str =
    "it keeps space reserved; what has it is not looked at, for the file reads as zeros there";
const NEIGHBOUR: &str = "once for a write past the end: the bytes beside it flush the line again";

/// Why a site is there though no workload misses it.
#[must_use]
pub fn why_unseen(site: &Site) -> Option<&'static str> {
    let source = source(site);
    let is_it = |(file, text, _): &&(&str, &str, &str)| {
        site.place.file().ends_with(file) && source.contains(text)
    };
    let alone: &[_] = match site.what {
        What::Fence => &UNSEEN_FENCES,
        What::Flush => &UNSEEN_FLUSHES,
    };
    let mut all = UNSEEN.iter().chain(alone);
    all.find(is_it).map(|(_, _, why)| *why)
}

/// The source at a place: two lines, for a call may be spread over them.
#[must_use]
pub fn source(site: &Site) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(site.place.file())).unwrap_or_default();
    let line = site.place.line() as usize;
    let lines = text.lines().skip(line.saturating_sub(1)).take(2);
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}
