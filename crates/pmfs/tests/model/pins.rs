//! Pins: the blocks that were had once stay those of the file, whatever is called, until the pin ends.

use crate::apply::{Need, World};
use pmfs::{BlockRun, Error, Fs, Ino};
use std::collections::BTreeMap;

/// What an instance has pinned, with the blocks that it was told of.
pub type Pins = BTreeMap<Ino, Vec<BlockRun>>;

/// Bytes of holes that a pin may fill.
const MISSING_MAX: u64 = 64 << 10;
/// Bytes of a file that are looked at.
const LOOK: u64 = 1 << 20;

impl World<'_> {
    /// A hold and a pin, or its end.
    pub fn pin(&mut self, fs: &Fs, instance: usize, ino: Ino) -> Result<(), String> {
        if self.model.pins[instance].contains_key(&ino) {
            return self.unpin(fs, instance, ino);
        }
        let held = self.judge(
            fs,
            "hold",
            self.model.live(ino).map(drop),
            fs.hold(ino),
            Need::Open,
        )?;
        if held.is_none() {
            return Ok(());
        }
        self.model.did_hold(instance, ino);
        let verdict = self.model.file(ino).map(drop);
        let pinned = self.judge(fs, "pin", verdict, fs.pin(ino, true), Need::Pin)?;
        if pinned.is_none() {
            fs.release(ino).map_err(|error| error.to_string())?;
            self.model.did_release(instance, ino);
            return Ok(());
        }
        self.model.pins[instance].insert(ino, Vec::new());
        self.look_at_blocks(fs, instance, ino)
    }

    pub fn unpin(&mut self, fs: &Fs, instance: usize, ino: Ino) -> Result<(), String> {
        self.look_at_blocks(fs, instance, ino)?;
        self.model.pins[instance].remove(&ino);
        fs.unpin(ino).map_err(|error| format!("unpin: {error}"))?;
        fs.release(ino)
            .map_err(|error| format!("release of what was pinned: {error}"))?;
        self.model.did_release(instance, ino);
        self.coverage.count("unpin", "ok");
        Ok(())
    }

    /// Those known are still there, as far as the file goes.
    fn look_at_blocks(&mut self, fs: &Fs, instance: usize, ino: Ino) -> Result<(), String> {
        let size = self.model.file(ino).expect("it is pinned").size;
        let runs = match fs.blocks(ino, 0, LOOK, MISSING_MAX) {
            Ok(runs) => runs,
            Err(Error::NoSpace) => return Ok(()),
            Err(error) => return Err(format!("blocks: {error}")),
        };
        let known = self.model.pins[instance]
            .insert(ino, runs.clone())
            .expect("it is pinned");
        for block in known.iter().flat_map(blocks).filter(|(at, _)| *at < size) {
            if !runs.iter().flat_map(blocks).any(|now| now == block) {
                return Err(format!(
                    "block {block:?} of a pinned file is elsewhere: {runs:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Where in the file and where in the pool.
fn blocks(run: &BlockRun) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (at, off) = (run.at, run.off);
    (0..run.len / 4096).map(move |block| (at + block * 4096, off + block * 4096))
}
