//! The requests of pmmon to the kernel and the CPU. The only crate of the monitor with `unsafe`.
//!
//! [`Watch`] is the backend that watches words by hardware breakpoints; [`run`] has the
//! loops of `pmm-writer`, whose stores are counted by construction.

mod breakpoint;
mod regions;
mod stores;
mod watch;

pub use breakpoint::calibrate;
pub use regions::Finder;
pub use stores::{ACCESS_BYTES, Compiled, Kind, Mapping, Op, run, supported};
pub use watch::{Watch, WatchOptions};
