//! Usage of persistent memory by process and thread, from samples of unmodified programs.
//!
//! A [`Sampler`] sees some of the accesses and says how likely it was to see each ([`Exposure`]).
//! [`account`] turns them into bytes and accesses with intervals; [`decode`] finds out how much an
//! instruction reads and writes.
//! A [`Monitor`] looks after processes and threads and tells [`Event`]s; a [`Ledger`] makes tables
//! of events, whether they come from a monitor or from a [`recording`].
//!
//! Nothing here makes a system call but reads of `/proc`: the backends are `pmmon-sys`.
#![forbid(unsafe_code)]

pub mod account;
pub mod adapt;
pub mod calls;
pub mod decode;
pub mod event;
pub mod group;
pub mod ledger;
pub mod media;
pub mod monitor;
pub mod perfdata;
pub mod planted;
pub mod proc;
pub mod recording;
pub mod regions;
mod sample;

pub use event::Event;
pub use ledger::Ledger;
pub use monitor::{Monitor, Wanted};
pub use sample::{
    Access, Arm, Coverage, Drained, Exposure, Lacking, Origin, Sample, Sampler, Thread, Tid,
};
