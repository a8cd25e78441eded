//! A call after a recovery: a first call was cut short and the pool recovered, and then power fails
//! in the next one.

use crate::explore::record;
use crate::files::call::parse;
use crate::files::kinds::Kind;
use crate::files::tree::Tree;
use crate::files::{Attached, FileSystem};
use crate::program::{Moment, Program};
use crate::trace::Event;
use pmem::Pmem;
use pmem::record::Observer;
use pmfs::DataMode;
use std::ops::Range;
use std::sync::Arc;

/// The calls after the recovery, in the lane of the call that was cut short.
const THEN: [&str; 2] = ["append dir/small 20", "chmod dir/linked 384"];

/// A workload on a pool that a first call has left.
pub struct Again {
    name: String,
    image: Vec<u8>,
    then: FileSystem,
}

impl Again {
    /// A call of a kind cut short after each of its stores, all of them durable, and then each of a
    /// few calls.
    ///
    /// # Errors
    /// A call that failed, in words.
    pub fn after(kind: &Kind, mode: DataMode) -> Result<Vec<Again>, String> {
        let first = FileSystem::of_kind(kind, mode);
        let recording = record(&first)?;
        let trace = &recording.trace;
        let mut image = recording.base.to_vec();
        let mut all = Vec::new();
        let (mut returned, mut stores) = (false, 0);
        for event in &trace.events {
            match *event {
                // The first return is that of the preparation, before the first step.
                Event::Return { .. } => returned = true,
                Event::Store { off, bytes, .. } => {
                    let (off, bytes) = (off as usize, trace.bytes(bytes));
                    image[off..off + bytes.len()].copy_from_slice(bytes);
                    stores += u64::from(returned);
                }
                _ => continue,
            }
            if returned && matches!(event, Event::Store { .. }) {
                for then in THEN {
                    all.push(Again {
                        name: format!(
                            "{} cut short after {stores} stores, then {then}",
                            first.name()
                        ),
                        image: image.clone(),
                        then: FileSystem {
                            pool_bytes: first.pool_bytes,
                            ..FileSystem::of_calls(&parse(then)?, mode)
                        },
                    });
                }
            }
        }
        Ok(all)
    }
}

impl Program for Again {
    type Running = Attached;
    type Visible = Tree;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn setup(&self) -> Result<Pmem, String> {
        let mem = Pmem::private(self.image.len() as u64);
        mem.poke(0, &self.image);
        Ok(mem)
    }

    fn volatile(&self, mem: &Pmem) -> Range<u64> {
        self.then.volatile(mem)
    }

    fn attach(&self, mem: Pmem, observer: Arc<dyn Observer>) -> Result<Attached, String> {
        self.then.attach(mem, observer)
    }

    fn steps(&self) -> usize {
        self.then.steps()
    }

    fn step_name(&self, step: usize) -> String {
        self.then.step_name(step)
    }

    fn step(&self, running: &mut Attached, step: usize) -> Result<(), String> {
        self.then.step(running, step)
    }

    fn inspect(&self, running: &mut Attached) -> Result<Tree, String> {
        self.then.inspect(running)
    }

    fn check(&self, running: &mut Attached) -> Result<(), String> {
        self.then.check(running)
    }

    fn accepts(&self, seen: &Tree, moment: &Moment<'_, Tree>) -> Result<(), String> {
        self.then.accepts(seen, moment)
    }

    fn go_on(&self, running: &mut Attached) -> Result<(), String> {
        self.then.go_on(running)
    }

    fn detach(&self, running: Attached) -> Option<Pmem> {
        self.then.detach(running)
    }
}
