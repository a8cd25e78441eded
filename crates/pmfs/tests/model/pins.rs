//! Pins: the blocks that were had once stay those of the file, whatever is called, until the pin
//! ends.

use crate::apply::{Need, World};
use crate::content::BLOCK;
use crate::random::bytes;
use pmfs::{BlockRun, Error, Fs, Ino};
use std::collections::BTreeMap;

/// The pins of an instance, with the blocks that it was told of.
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

    /// Blocks here and there, all at once.
    pub fn hand_over(
        &mut self,
        fs: &Fs,
        ino: Ino,
        (first, step, count): (u64, u64, u64),
        seed: u64,
    ) -> Result<(), String> {
        if self.model.is_pinned(ino) {
            return Ok(());
        }
        let data: Vec<(u64, Vec<u8>)> = (0..count)
            .map(|turn| (first + turn * step, bytes(seed ^ turn, BLOCK as usize)))
            .collect();
        let pages: Vec<(u64, &[u8])> = data
            .iter()
            .map(|(block, bytes)| (block * BLOCK, bytes.as_slice()))
            .collect();
        let verdict = self.model.file(ino).map(drop);
        // Each may take a node of its own, and the blocks that it replaces go afterwards.
        let answer = fs.write_pages(ino, &pages);
        let need = Need::AtOnce(count * 2 + 4);
        if self
            .judge(fs, "hand over", verdict, answer, need)?
            .is_none()
        {
            return Ok(());
        }
        let size = self.model.file(ino).expect("judged").size;
        let now = self.span();
        for (block, bytes) in data {
            let len = size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
            self.model.content(ino).write(block * BLOCK, &bytes[..len]);
            if len > 0 {
                self.model.node(ino).touch(now);
            }
        }
        self.model.content(ino).truncate(size);
        Ok(())
    }

    /// Those known are still there, as far as the file goes; giving memory to holes moves none.
    fn look_at_blocks(&mut self, fs: &Fs, instance: usize, ino: Ino) -> Result<(), String> {
        let size = self.model.file(ino).expect("it is pinned").size;
        let there = fs.blocks_there(ino, 0, LOOK);
        let there = there.map_err(|error| format!("blocks that are there: {error}"))?;
        let runs = match fs.blocks(ino, 0, LOOK, MISSING_MAX) {
            Ok(runs) => runs,
            Err(Error::NoSpace) => return Ok(()),
            Err(error) => return Err(format!("blocks: {error}")),
        };
        let known = self.model.pins[instance]
            .insert(ino, runs.clone())
            .expect("it is pinned");
        let known = known.iter().flat_map(blocks).filter(|(at, _)| *at < size);
        for block in known.chain(there.iter().flat_map(blocks)) {
            if !runs.iter().flat_map(blocks).any(|now| now == block) {
                return Err(format!(
                    "block {block:?} of a pinned file is elsewhere: {runs:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the blocks' places in the file and in the pool.
fn blocks(run: &BlockRun) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (at, off) = (run.at, run.off);
    (0..run.len / 4096).map(move |block| (at + block * 4096, off + block * 4096))
}
