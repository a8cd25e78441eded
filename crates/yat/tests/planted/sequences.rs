//! A second crash: a call is cut short, the pool recovered, and power fails again, during the recovery or in the
//! call after it. And power loss while a pool is made, and calls on a file that has lost its name.

use crate::Search;
use crate::tree::{self, Leniency, Tree};
use crate::workload::{self, Prepared, Workload};
use pmem::Pmem;
use pmfs::{DataMode, Fs, NewNode};
use pmfs_format::{BLOCK_BYTES, SuperblockRaw};
use std::sync::Arc;
use yat::image::{Chooser, CrashImage, Pending};
use yat::trace::{Event, Recorder};

const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 10,
    gid: 20,
};

/// Calls that a second crash is tried on.
const CUT_SHORT: [&str; 3] = [
    "write over the end, one block",
    "rename over a file",
    "unlink",
];

/// Where a pool's runtime area is, which no crash keeps.
fn runtime_of(mem: &Pmem) -> std::ops::Range<u64> {
    let start = mem.load(std::mem::offset_of!(SuperblockRaw, runtime_start) as u64);
    let blocks = mem.load(std::mem::offset_of!(SuperblockRaw, runtime_blocks) as u64);
    start * BLOCK_BYTES..(start + blocks) * BLOCK_BYTES
}

fn pool_of(image: &[u8]) -> Pmem {
    let mem = Pmem::private(image.len() as u64);
    mem.poke(0, image);
    mem
}

/// A fresh pool's memory: free blocks are not zeros.
fn unmade(bytes: u64) -> Pmem {
    pool_of(&vec![0xdb; bytes as usize])
}

fn watched(mem: Pmem, recorder: &Arc<Recorder>, start: i64) -> pmfs::Result<Fs> {
    let mut options = workload::open_options(DataMode::Atomic, start);
    options.observer = Some(recorder.clone());
    Fs::open_private(mem, &options)
}

/// A call up to each of its stores, every store durable at once.
struct Cut {
    image: Vec<u8>,
    rest: std::vec::IntoIter<Event>,
}

impl Iterator for Cut {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        for event in self.rest.by_ref() {
            if let Event::Store { off, bytes, .. } = event {
                let off = off as usize;
                self.image[off..off + bytes.len()].copy_from_slice(&bytes);
                return Some(self.image.clone());
            }
        }
        None
    }
}

/// The images, what [`workload::prepare`] made, and where the runtime area is.
fn cut_short(workload: &Workload) -> pmfs::Result<(Cut, Prepared, std::ops::Range<u64>)> {
    let options = workload::mkfs_options(workload.pool_bytes);
    let mem = Fs::format_private(unmade(workload.pool_bytes), &options)?;
    let runtime = runtime_of(&mem);
    let recorder = Arc::new(Recorder::new(runtime.clone()));
    let fs = watched(mem, &recorder, 1_000_000)?;
    let prepared = workload::prepare(&fs)?;
    (workload.first)(&fs, &prepared)?;
    let image = fs.mapping().snapshot_image();
    recorder.start();
    (workload.call)(&fs, &prepared)?;
    let rest = recorder.stop().into_iter();
    Ok((Cut { image, rest }, prepared, runtime))
}

/// What comes after the recovery.
type Then = fn(&Fs, &Prepared) -> pmfs::Result<()>;

const THEN: [(&str, Then); 2] = [
    ("append", |fs, p| fs.append(p.small, &[b'a'; 20]).map(drop)),
    ("chmod", |fs, p| {
        let set = pmfs::SetAttr {
            mode: Some(0o600),
            ..pmfs::SetAttr::default()
        };
        fs.setattr(p.small, &set).map(drop)
    }),
];

/// Recovers one image, does a call, and lets power fail at each fence from the first one of the recovery on.
fn crash_again(
    image: Vec<u8>,
    prepared: &Prepared,
    runtime: std::ops::Range<u64>,
    then: Then,
) -> Result<u64, String> {
    let recorder = Arc::new(Recorder::new(runtime));
    recorder.start();
    let fs = watched(pool_of(&image), &recorder, 2_000_000).map_err(|error| error.to_string())?;
    let recovered = tree::read(&fs).map_err(|error| error.to_string())?;
    then(&fs, prepared).map_err(|error| format!("the call after: {error}"))?;
    let events = recorder.stop();
    let done = tree::read(&fs).map_err(|error| error.to_string())?;
    let mut pending = Pending::new(image, false);
    let mut images = 0;
    for (at, event) in events.iter().enumerate() {
        if matches!(event, Event::Fence { .. }) {
            images += every_image(&pending, &mut |mem| judge(mem, &[&recovered, &done]))
                .map_err(|text| format!("event {at}: {text}"))?;
        }
        pending.apply(event);
    }
    images += every_image(&pending, &mut |mem| judge(mem, &[&done]))
        .map_err(|text| format!("after its return: {text}"))?;
    Ok(images)
}

/// Opens every image there may be.
fn every_image(
    pending: &Pending,
    judge: &mut dyn FnMut((Pmem, Arc<CrashImage>)) -> Result<(), String>,
) -> Result<u64, String> {
    let mut chooser = Chooser::default();
    let mut images = 0;
    loop {
        let (mem, image) = CrashImage::new(pending, chooser);
        let verdict = judge((mem, image.clone()));
        chooser = image.into_chooser();
        verdict?;
        images += 1;
        if images > 1 << 14 {
            return Err("too many images: not exhaustive".into());
        }
        if !chooser.advance() {
            return Ok(images);
        }
    }
}

fn judge((mem, image): (Pmem, Arc<CrashImage>), allowed: &[&Tree]) -> Result<(), String> {
    let mut options = workload::open_options(DataMode::Atomic, 9_000_000);
    options.observer = Some(image);
    let fs = Fs::open_private(mem, &options).map_err(|error| format!("recovery: {error}"))?;
    sound(&fs)?;
    let got = tree::read(&fs).map_err(|error| error.to_string())?;
    let differences = allowed
        .iter()
        .map(|tree| tree::difference(&got, tree, Leniency::default()));
    differences
        .min_by_key(Option::is_some)
        .flatten()
        .map_or(Ok(()), Err)
}

/// Nothing may be wrong with the pool.
pub(crate) fn sound(fs: &Fs) -> Result<(), String> {
    let report = fs.check().map_err(|error| format!("check: {error}"))?;
    match report.findings.first() {
        None => Ok(()),
        Some(finding) => Err(format!("check: {}", finding.text)),
    }
}

/// Crashes in recovery and in the call after it.
pub(crate) fn search() -> Search {
    let mut search = Search::default();
    if search.step("unlinked while open", unlinked_while_open) {
        return search;
    }
    let calls = workload::one_call();
    for name in CUT_SHORT {
        let workload = calls.iter().find(|call| call.name == name);
        let workload = workload.expect("a call of that name");
        for (next, then) in THEN {
            let (cut, prepared, runtime) = cut_short(workload).expect("prepare");
            for (store, image) in cut.enumerate() {
                let what = format!("{} cut at store {store}, then {next}", workload.name);
                let again = || crash_again(image, &prepared, runtime.clone(), then);
                if search.step(&what, again) {
                    return search;
                }
            }
        }
    }
    search
}

/// A file without a name lives as long as it is held: nobody gets its number or its blocks.
fn unlinked_while_open() -> Result<u64, String> {
    let told = |error: pmfs::Error| error.to_string();
    let options = workload::mkfs_options(1 << 20);
    let mem = Fs::format_private(unmade(1 << 20), &options).map_err(told)?;
    let fs = Fs::open_private(mem, &workload::open_options(DataMode::Atomic, 1)).map_err(told)?;
    let prepared = workload::prepare(&fs).map_err(told)?;
    fs.append(prepared.blank, b"held").map_err(told)?;
    fs.unlink(prepared.dir, b"blank").map_err(told)?;
    sound(&fs)?;
    for name in 0u8..32 {
        let made = fs
            .create(prepared.dir, &[b'a' + name], &NODE)
            .map_err(told)?;
        if made.ino == prepared.blank {
            return Err("a held file's number is given out".into());
        }
        fs.append(made.ino, &[b'n'; 5000]).map_err(told)?;
    }
    let mut bytes = [0; 4];
    fs.read(prepared.blank, 0, &mut bytes).map_err(told)?;
    if bytes == *b"held" {
        Ok(1)
    } else {
        Err("a held file has lost its content".into())
    }
}

/// Power fails while a pool is made: it is no pool, or a whole one, whose first superblock at most is torn.
pub(crate) fn mkfs() -> Search {
    let mut search = Search::default();
    let bytes = 1 << 20;
    let options = workload::mkfs_options(bytes);
    let made = Fs::format_private(unmade(bytes), &options).expect("mkfs");
    let recorder = Arc::new(Recorder::new(runtime_of(&made)));
    let mut mem = unmade(bytes);
    mem.observe(Some(recorder.clone()));
    let mut image = mem.snapshot_image();
    recorder.start();
    Fs::format_private(mem, &options).expect("mkfs");
    let events = recorder.stop();
    // Between two fences everything is flushed or streamed, some words both: then the order counts, which
    // `Pending` does not know. So each fence starts from what the stores before it gave.
    for (at, epoch) in events
        .split(|event| matches!(event, Event::Fence { .. }))
        .enumerate()
    {
        let mut pending = Pending::new(image.clone(), true);
        for event in epoch {
            pending.apply(event);
            if let Event::Store { off, bytes, .. } = event {
                let off = *off as usize;
                image[off..off + bytes.len()].copy_from_slice(bytes);
            }
        }
        let images = || every_image(&pending, &mut pool_or_none);
        if search.step(&format!("mkfs, fence {at}"), images) {
            break;
        }
    }
    search
}

fn pool_or_none((mem, image): (Pmem, Arc<CrashImage>)) -> Result<(), String> {
    let mut options = workload::open_options(DataMode::Atomic, 9_000_000);
    options.observer = Some(image);
    let fs = match Fs::open_private(mem, &options) {
        Err(pmfs::Error::NotAPool(_)) => return Ok(()),
        opened => opened.map_err(|error| format!("opening: {error}"))?,
    };
    let report = fs.check().map_err(|error| format!("check: {error}"))?;
    let torn = "the superblock is damaged; its copy serves";
    let worse = report.findings.iter().find(|found| found.text != torn);
    worse.map_or(Ok(()), |finding| Err(format!("check: {}", finding.text)))
}
