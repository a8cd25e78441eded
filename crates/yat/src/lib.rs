//! yat: every state in which a crash or a kill may leave a pool, recovered and judged.
//!
//! Two models (DECISIONS 26):
//!
//! - **Power loss** ([`explore`]): a call is recorded ([`trace`]); at each of its fences and at its return every
//!   image that x86 allows of the unfenced lines is recovered by the real code, checked, and its visible
//!   tree compared ([`tree`]): before or after the call, nothing between; after it, once it has returned.
//!   Images are branched lazily ([`image`]): a choice is made when recovery first loads an unfenced word.
//! - **Kill** ([`kill`]): a call is stopped before its n-th store of any kind, flush or fence, and another instance recovers on
//!   the same live memory.
//!
//! The memory model: cached stores to one line persist as a prefix in program order, lines in any
//! combination; a line may be evicted at any time; non-temporal stores persist word by word in any order;
//! what was flushed, or stored non-temporally, before a fence is durable after it.
#![forbid(unsafe_code)]

pub mod damage;
pub mod explore;
pub mod image;
pub mod kill;

pub mod trace;
pub mod tree;
pub mod workload;
