//! The interface of a program on persistent memory whose crash states yat is to check.
//! `docs/YAT.md` has an example.

use pmem::Pmem;
use pmem::record::Observer;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

/// A program and the steps that it is to do. The same steps must do the same stores each time:
/// clocks and random numbers are the program's to pin down.
pub trait Program: Sync {
    /// An attached instance.
    type Running;
    /// The state that can be seen of it from outside.
    type Visible: Clone + Hash + Send + Sync;

    /// Returns the workload's name.
    fn name(&self) -> String;

    /// A fresh pool, all of it durable.
    ///
    /// # Errors
    /// In words.
    fn setup(&self) -> Result<Pmem, String>;

    /// A range of the pool (bytes) whose content means nothing after a crash.
    fn volatile(&self, mem: &Pmem) -> Range<u64> {
        let _ = mem;
        0..0
    }

    /// Attaches to a pool, recovering it first if it was left uncleanly. Everything that is done to
    /// the pool has to be shown to `observer` ([`Pmem::observe`]), from the first access on.
    ///
    /// # Errors
    /// A pool that can't be recovered, in words.
    fn attach(&self, mem: Pmem, observer: Arc<dyn Observer>) -> Result<Self::Running, String>;

    /// Does what comes before the first step; crashes in it are not looked at.
    ///
    /// # Errors
    /// In words.
    fn prepare(&self, running: &mut Self::Running) -> Result<(), String> {
        let _ = running;
        Ok(())
    }

    /// Returns how many steps there are.
    fn steps(&self) -> usize;

    /// Returns a step's name.
    fn step_name(&self, step: usize) -> String;

    /// Does one step. The work of a step must be durable when it returns.
    ///
    /// # Errors
    /// A step that fails, in words: not a violation but a workload that makes no sense.
    fn step(&self, running: &mut Self::Running, step: usize) -> Result<(), String>;

    /// Looks at everything that can be seen, storing nothing.
    ///
    /// # Errors
    /// The part that could not be read, in words.
    fn inspect(&self, running: &mut Self::Running) -> Result<Self::Visible, String>;

    /// Checks the invariants of a recovered pool.
    ///
    /// # Errors
    /// The broken invariant, in words.
    fn check(&self, running: &mut Self::Running) -> Result<(), String> {
        let _ = running;
        Ok(())
    }

    /// Checks whether what is seen after a crash may be: at a moment in the middle of a step, what
    /// was seen before or after it; at its return, what was seen after it.
    ///
    /// # Errors
    /// The difference, in words.
    fn accepts(
        &self,
        seen: &Self::Visible,
        moment: &Moment<'_, Self::Visible>,
    ) -> Result<(), String>;

    /// Uses a recovered pool: it must go on working.
    ///
    /// # Errors
    /// The use that failed, in words.
    fn go_on(&self, running: &mut Self::Running) -> Result<(), String> {
        let _ = running;
        Ok(())
    }

    /// Gives the memory back, as it is, if that can be had: it is filled anew and attached to
    /// again.
    fn detach(&self, running: Self::Running) -> Option<Pmem> {
        let _ = running;
        None
    }
}

/// The moment of a crash.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a, V> {
    /// The states that were seen before the first step, after it, after the second, ...
    pub history: &'a [V],
    /// The step in which the crash happened, or the one that had just returned.
    pub step: usize,
    /// Says whether the step had returned.
    pub returned: bool,
}

impl<'a, V> Moment<'a, V> {
    /// Returns what may be seen, strictly: before the step, if it had not returned, and after it.
    pub fn allowed(&self) -> &'a [V] {
        let first = self.step + usize::from(self.returned);
        &self.history[first..self.step + 2]
    }
}

/// [`Program::accepts`] for programs whose states can be compared as they are.
///
/// # Errors
/// The difference.
pub fn accepts_equal<V: PartialEq + Debug>(seen: &V, moment: &Moment<'_, V>) -> Result<(), String> {
    if moment.allowed().contains(seen) {
        return Ok(());
    }
    Err(format!("seen: {seen:?}\nallowed: {:?}", moment.allowed()))
}
