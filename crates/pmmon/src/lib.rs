//! Usage of persistent memory by process and thread, from samples of unmodified programs.
//!
//! A [`Sampler`] sees some of the accesses and says how likely it was to see each ([`Exposure`]).
//! [`account`] turns them into bytes and accesses with intervals; [`decode`] finds out how much an
//! instruction reads and writes.
//!
//! Nothing here makes a system call but reads of `/proc`: the backends are `pmmon-sys`.
#![forbid(unsafe_code)]

pub mod account;
pub mod decode;
pub mod planted;
mod sample;

pub use sample::{
    Access, Arm, Coverage, Drained, Exposure, Lacking, Origin, Sample, Sampler, Thread, Tid,
};
