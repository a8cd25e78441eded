//! Sites: every place in the source that flushes or fences, taken out one at a time. Some workload must then have a
//! crash state that is neither before nor after; else the place is not needed, or what shows it is missing here.

use crate::explore::{Explorer, IMAGES_MAX, Options, Recording, Violation, record};
use crate::files::FileSystem;
use crate::files::tree::Tree;
use crate::program::Program;
use crate::trace::{Event, Place};
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

/// A recorded workload and the sites in it.
pub struct Recorded {
    program: FileSystem,
    recording: Recording<Tree>,
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
    pub fn of(program: FileSystem, recoveries: bool) -> Result<Recorded, String> {
        let recording = record(&program)?;
        let events = recording.trace.events.iter();
        // What comes before the first step is not crashed.
        let events = events.skip_while(|event| !matches!(event, Event::Return { .. }));
        let steps = events.filter_map(site_of).collect();
        let mut recorded = Recorded {
            steps,
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
            Options::default()
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

/// Recoveries are crashed too.
const NESTED: Options = Options {
    from: 0,
    depth: 1,
    without: None,
    seed: 1,
    images_max: IMAGES_MAX,
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

/// Takes each site out, on `threads` threads; `only`: the site of that number.
#[must_use]
pub fn verdicts(recorded: &[Recorded], threads: usize, only: Option<usize>) -> Vec<Verdict> {
    let sites: BTreeSet<Site> = recorded.iter().flat_map(Recorded::sites).collect();
    let sites: Vec<Site> = sites.into_iter().collect();
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    let work = || {
        while let Some(&site) = sites.get(next.fetch_add(1, Ordering::Relaxed)) {
            if only.is_some_and(|number| sites.get(number) != Some(&site)) {
                continue;
            }
            let missed = recorded.iter().find_map(|recorded| {
                let violation = recorded.without(site)?;
                Some((recorded.name(), violation.after_images))
            });
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

/// Places whose absence no workload shows: file, what the source says there, why it is there.
const UNSEEN: [(&str, &str, &str); 17] = [
    ("dir/split.rs", ".publish(dir.root_slot()", COVERED),
    ("dir/split.rs", ".publish(slot, word.0", REUSE),
    ("file/allocate.rs", "pm.barrier()", PLACEMENT),
    ("file/allocate.rs", "pm.publish_hidden(", PLACEMENT),
    ("file/allocate.rs", "block.copy(0,", NEIGHBOUR),
    ("file/extend.rs", "zero(0, head)", NEIGHBOUR),
    ("file/replace.rs", "block.", NEIGHBOUR),
    (
        "namespace/create.rs",
        "LINKABLE",
        "nothing durable names an O_TMPFILE; its link logs the inode",
    ),
    (
        "persist/runtime.rs",
        "self.mem.fence()",
        "it keeps the zeros before what other processes load; nothing there has to be durable",
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
    ("file/allocate.rs", "self.swing(", OPEN),
    ("file/extend.rs", "self.swing(", OPEN),
    ("file/truncate.rs", "self.swing(", OPEN),
    ("namespace/inode_table.rs", ".publish(swing.slot", COVERED),
    ("superblock.rs", "restore.words(STATE_OFFSET", REBUILT),
    ("superblock.rs", "restore.barrier()", REBUILT),
];
/// To be settled: a workload has to show it, or the place has to go.
const OPEN: &str =
    "missed while lanes were left to chance; since they are chosen, by none of the workloads here";
const REBUILT: &str = "the pools here are rebuilt whatever their state says";
const COVERED: &str = "the call's own transaction fences again, unless it fails in between";
const REUSE: &str =
    "the old bucket is free on return; a later call that gets its block would show it";
const PLACEMENT: &str = "which blocks a range has that reads as zeros is promised to nobody";
const NEIGHBOUR: &str = "the same line is flushed again by the store beside it";

/// Why a site is there though no workload misses it.
#[must_use]
pub fn why_unseen(site: &Site) -> Option<&'static str> {
    let source = source(site);
    let is_it = |(file, text, _): &&(&str, &str, &str)| {
        site.place.file().ends_with(file) && source.contains(text)
    };
    UNSEEN.iter().find(is_it).map(|(_, _, why)| *why)
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
