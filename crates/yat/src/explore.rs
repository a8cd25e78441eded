//! The power-loss model over one call: every fence, and the return.

use crate::image::{Chooser, CrashImage, Pending};
use crate::trace::{Event, Place, Recorder};
use crate::tree::{self, Leniency, Tree};
use crate::workload::{self, Prepared, Workload};
use pmem::Pmem;
use pmfs::{DataMode, Fs, Ino, NewNode, ROOT_INO};
use pmfs_format::{BLOCK_BYTES, SuperblockRaw};
use std::sync::Arc;

/// How many images one fence may have before the explorer gives up on it, loudly.
const IMAGES_MAX: u64 = 1 << 16;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Crash points: fences and returns.
    pub points: u64,
    /// Images on which recovery, check and comparison all ran.
    pub images: u64,
    /// The most that one point had.
    pub images_max: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.points += other.points;
        self.images += other.images;
        self.images_max = self.images_max.max(other.images_max);
    }
}

/// A recorded call: where it began, what it did, and the trees before and after.
pub struct Recorded {
    name: &'static str,
    base: Vec<u8>,
    /// What it did to the pool.
    pub events: Vec<Event>,
    before: Tree,
    after: Tree,
    leniency: Leniency,
}

/// Where a superblock says the runtime area is.
pub(crate) fn runtime_range(mem: &Pmem) -> std::ops::Range<u64> {
    let word = |off| mem.load(off);
    let start = word(std::mem::offset_of!(SuperblockRaw, runtime_start) as u64);
    let blocks = word(std::mem::offset_of!(SuperblockRaw, runtime_blocks) as u64);
    start * BLOCK_BYTES..(start + blocks) * BLOCK_BYTES
}

/// Runs a workload's call under the recorder.
///
/// # Panics
/// If the call fails: a workload is one that succeeds.
#[must_use]
pub fn record(workload: &Workload, mode: DataMode) -> Recorded {
    let image = {
        let mem = Pmem::private(workload.pool_bytes);
        // Free blocks are not zeros: what a call forgets to write there shows.
        mem.poke(0, &vec![0xdb; workload.pool_bytes as usize]);
        Fs::format_private(mem, &workload::mkfs_options(workload.pool_bytes)).expect("mkfs")
    };
    let range = runtime_range(&image);
    let recorder = Arc::new(Recorder::new(range));
    let mut options = workload::open_options(mode, 1_000_000);
    options.observer = Some(recorder.clone());
    let fs = Fs::open_private(image, &options).expect("open");
    let prepared: Prepared = workload::prepare(&fs).expect("prepare");
    (workload.first)(&fs, &prepared).expect("prepare");
    let before = tree::read(&fs).expect("the tree before");
    let base = fs.mapping().snapshot_image();
    recorder.start();
    let answer = (workload.call)(&fs, &prepared);
    let events = recorder.stop();
    answer.unwrap_or_else(|error| panic!("{}: {error}", workload.name));
    let after = tree::read(&fs).expect("the tree after");
    Recorded {
        name: workload.name,
        base,
        events,
        before,
        after,
        leniency: (workload.lenient)(mode),
    }
}

/// Explores one workload; the error tells the violation and what replays it.
///
/// # Errors
/// A violation.
pub fn explore(workload: &Workload, mode: DataMode) -> Result<Counts, String> {
    explore_recorded(&record(workload, mode), None)
}

/// Explores a recorded call as if the flush or fence at `without` were not in the source.
///
/// # Errors
/// A violation.
pub fn explore_recorded(recorded: &Recorded, without: Option<Place>) -> Result<Counts, String> {
    let leniency = recorded.leniency;
    let name = recorded.name;
    let mut pending = Pending::new(recorded.base.clone(), leniency.content);
    let mut counts = Counts::default();
    let mut point = 0;
    for event in &recorded.events {
        match event {
            Event::Flush { at, .. } | Event::Fence { at } if Some(*at) == without => continue,
            Event::Fence { at } => {
                let allowed = [&recorded.before, &recorded.after];
                explore_point(&pending, &allowed, leniency, &mut counts)
                    .map_err(|text| format!("{name} at fence {point} ({at}): {text}"))?;
                point += 1;
            }
            _ => {}
        }
        pending.apply(event);
    }
    explore_point(&pending, &[&recorded.after], leniency, &mut counts)
        .map_err(|text| format!("{name} after its return: {text}"))?;
    Ok(counts)
}

fn explore_point(
    pending: &Pending,
    allowed: &[&Tree],
    leniency: Leniency,
    counts: &mut Counts,
) -> Result<(), String> {
    let mut chooser = Chooser::default();
    let mut images = 0;
    loop {
        let (mem, image) = CrashImage::new(pending, chooser);
        let verdict = judge(mem, image.clone(), allowed, leniency);
        chooser = image.into_chooser();
        verdict.map_err(|text| format!("image {:?}: {text}", chooser.choices()))?;
        images += 1;
        if images > IMAGES_MAX {
            return Err(format!("more than {IMAGES_MAX} images: not exhaustive"));
        }
        if !chooser.advance() {
            break;
        }
    }
    counts.points += 1;
    counts.images += images;
    counts.images_max = counts.images_max.max(images);
    Ok(())
}

/// Recovers one image, checks it, compares its tree, and uses it.
fn judge(
    mem: Pmem,
    image: Arc<CrashImage>,
    allowed: &[&Tree],
    leniency: Leniency,
) -> Result<(), String> {
    let mut options = workload::open_options(DataMode::Atomic, 9_000_000);
    options.observer = Some(image);
    let fs = Fs::open_private(mem, &options).map_err(|error| format!("recovery: {error}"))?;
    judge_recovered(&fs, allowed, leniency)?;
    use_it(&fs).map_err(|error| format!("using it: {error}"))?;
    sound(&fs)
}

/// Checks a recovered pool and compares its tree.
pub(crate) fn judge_recovered(
    fs: &Fs,
    allowed: &[&Tree],
    leniency: Leniency,
) -> Result<(), String> {
    sound(fs)?;
    let got = tree::read(fs).map_err(|error| format!("reading the tree: {error}"))?;
    let mut text = String::new();
    for (at, expected) in allowed.iter().enumerate() {
        match tree::difference(&got, expected, leniency) {
            None => return Ok(()),
            Some(difference) => {
                let which = if allowed.len() == 1 || at == 1 {
                    "after"
                } else {
                    "before"
                };
                text.push_str(&format!("\n not the tree {which} the call:\n{difference}"));
            }
        }
    }
    Err(text)
}

fn sound(fs: &Fs) -> Result<(), String> {
    let report = fs.check().map_err(|error| format!("check: {error}"))?;
    if report.is_clean() {
        Ok(())
    } else {
        Err(format!("check: {:#?}", report.findings))
    }
}

/// The recovered pool must be fit for use: a name made and removed, a byte written and every file extended
/// and read, in each directory.
pub(crate) fn use_it(fs: &Fs) -> pmfs::Result<()> {
    let mut directories = vec![ROOT_INO];
    let node = NewNode {
        umask: 0,
        mode: 0o600,
        uid: 0,
        gid: 0,
    };
    while let Some(dir) = directories.pop() {
        let mut files = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            match entry.kind {
                0o040_000 if entry.name != b"." && entry.name != b".." => {
                    directories.push(entry.ino);
                }
                0o100_000 => files.push(entry.ino),
                _ => {}
            }
            true
        })?;
        for file in files {
            extend(fs, file)?;
        }
        let made = fs.create(dir, b"used after the crash", &node)?.ino;
        fs.write(made, 0, &[1; 5000])?;
        fs.unlink(dir, b"used after the crash")?;
    }
    Ok(())
}

/// Bytes past the end are undefined until exposed: extended, they must read as zeros.
fn extend(fs: &Fs, file: Ino) -> pmfs::Result<()> {
    let old = fs.getattr(file)?.size;
    let set = pmfs::SetAttr {
        size: Some(old + 9000),
        ..pmfs::SetAttr::default()
    };
    fs.setattr(file, &set)?;
    let mut tail = vec![1; 9000];
    fs.read(file, old, &mut tail)?;
    assert!(
        tail.iter().all(|&byte| byte == 0),
        "what an extended file exposes is zero"
    );
    Ok(())
}
