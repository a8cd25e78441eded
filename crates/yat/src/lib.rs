//! yat: every state in which a crash or a kill may leave a pool, recovered and judged.
//!
//! Two models (docs/adr/0042-yat-models.md):
//!
//! - **Power loss** ([`explore`]): a workload is recorded ([`trace`]); at each of its fences and at
//!   the return of each step every image that x86 allows ([`memory`]) is recovered by the real
//!   code, checked, what can be seen of it compared, and used: in the middle of a step it is what
//!   it was before or after, after it what it was after. Images are branched lazily ([`image`]): a
//!   choice is made when somebody first loads an undecided word. A recovery may be crashed too.
//! - **Kill** ([`kill`]): a call is stopped before its n-th store of any kind, flush or fence, and
//!   another instance recovers on the same live memory.
//!
//! Any program can be checked that implements [`program::Program`]; the file system ([`files`]) is
//! the first.
#![forbid(unsafe_code)]

pub mod again;
pub mod campaign;
pub mod crash_image;
pub mod explore;
pub mod files;
pub mod fuzz;
pub mod heap;
pub mod kill;
pub mod linear;
pub mod lines;
pub mod making;
pub mod memory;
pub mod mutants;
pub mod pairs;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod program;
pub mod quiet;
pub mod report;
pub mod shrink;
mod stopper;
pub mod stops;
pub mod tables;
mod third;
pub mod trace;
mod turns;
