//! The requests of pmmon to the kernel and the CPU. The only crate of the monitor with `unsafe`.
//!
//! [`Watch`] is the backend that watches words by hardware breakpoints; [`ClockTicks`]
//! tells how much of a thread's time accesses take; [`Engine`] reads what processes count
//! themselves; [`WrittenPages`] tells which pages were written; [`run`] has the loops of
//! `pmm-writer`, whose stores are counted by construction. [`Masks`], [`Cpusets`] and
//! [`Threaded`] say on which cores threads run.

mod affinity;
mod breakpoint;
mod clock;
mod engine;
mod pages;
mod regions;
mod stores;
mod stray;
mod threaded;
mod watch;

pub use affinity::{Cpusets, Masks, move_to};
pub use breakpoint::calibrate;
pub use clock::ClockTicks;
pub use engine::Engine;
pub use pages::{PAGE, TrackedPages, WrittenPages, has_soft_dirty, probe_pages};
pub use regions::Finder;
pub use stores::{ACCESS_BYTES, Compiled, Kind, Mapping, Op, run, supported};
pub use stray::{Stray, is_virtual};
pub use threaded::{Threaded, Undo, disable, threads_in};
pub use watch::{Watch, WatchOptions};
