//! Calls on files whose blocks a program has mapped: what is there is changed in place.

use super::kinds::{Kind, Prepared};
use super::pool::{POOL_BYTES, pattern};
use pmfs::{FallocateMode, Fs, Result, SetAttr};

/// Pins all there is.
fn pin(fs: &Fs, p: &Prepared) -> Result<()> {
    for ino in [p.small, p.large, p.sparse] {
        fs.hold(ino)?;
        fs.pin(ino, true)?;
    }
    Ok(())
}

/// Stores as a program does that has the file mapped.
fn stored(fs: &Fs, ino: u64, at: u64) -> Result<()> {
    for run in fs.blocks(ino, at, 4096, 0)? {
        let _window = fs.mapping().window();
        fs.mapping().write_bytes(run.off + 60, b"stored by itself");
    }
    Ok(())
}

fn resize(fs: &Fs, ino: u64, size: u64) -> Result<()> {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    fs.setattr(ino, &set).map(drop)
}

macro_rules! kinds {
    ($( $name:literal, $overwrites:literal, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Kind {
            name: $name, pool_bytes: POOL_BYTES, first: pin,
            call: |$fs, $p| { $body; Ok(()) }, overwrites: $overwrites, in_place: true, doomed: None,
            large: pmfs::LargePages::Grow,
        } ),+ ]
    };
}

/// The kinds. Few lines are changed by each, for any part of any of them may reach the medium.
pub fn kinds() -> Vec<Kind> {
    const PUNCH: FallocateMode = FallocateMode::KEEP_SIZE.union(FallocateMode::PUNCH_HOLE);
    let mut all = kinds! {
        "pinned: overwrite of 3 bytes", true, |fs, p| fs.write(p.large, 4099, b"xyz")?;
        "pinned: overwrite of two blocks", true, |fs, p| fs.write(p.large, 4060, &pattern(80, 3))?;
        "pinned: overwrite from data into a hole", true,
            |fs, p| fs.write(p.sparse, 16_360, &pattern(50, 3))?;
        "pinned: write over the end", true, |fs, p| fs.write(p.large, 20_530, &pattern(90, 3))?;
        "pinned: append", false, |fs, p| fs.append(p.large, &pattern(9000, 3))?;
        "pinned: write a gap past the end", false, |fs, p| fs.write(p.small, 5000, &pattern(5000, 3))?;
        "pinned: truncate to nothing", false, |fs, p| resize(fs, p.large, 0)?;
        "pinned: truncate into a block", false, |fs, p| resize(fs, p.large, 5000)?;
        "pinned: truncate up", false, |fs, p| resize(fs, p.large, 70_000)?;
        "pinned: punch", true, |fs, p| fs.fallocate(p.large, PUNCH, 4060, 80)?;
        "pinned: punch of lines in a block", true, |fs, p| fs.fallocate(p.large, PUNCH, 8250, 70)?;
        "pinned: zero a range past the end", true,
            |fs, p| fs.fallocate(p.large, FallocateMode::ZERO_RANGE, 20_540, 9_000)?;
        "pinned: holes filled, and one written to", true, |fs, p| {
            fs.blocks(p.sparse, 0, 1 << 20, 1 << 20)?;
            fs.write(p.sparse, 100, b"in what was a hole")?
        };
        "pinned: written back", true, |fs, p| fs.flush_blocks(p.large, &[(0, 1 << 20)])?;
        "pinned: stored to in two places, written back", true, |fs, p| {
            let parts = [(0, 4096), (8192, 8192)];
            for (at, _) in parts {
                stored(fs, p.large, at)?;
            }
            fs.flush_blocks(p.large, &parts)?
        };
        "pinned: up after down", false, |fs, p| resize(fs, p.large, 20_000)?;
        "unpinned after it was made shorter", false, |fs, p| fs.unpin(p.large)?;
    };
    let count = all.len();
    for kind in &mut all[count - 2..] {
        kind.first = |fs, p| {
            pin(fs, p)?;
            resize(fs, p.large, 5000)
        };
    }
    all
}
