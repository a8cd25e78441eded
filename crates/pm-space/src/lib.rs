//! The state of a pool's blocks and inode numbers: which are free, and which in use.
//!
//! A [`Bitmap`] says it, and a [`Space`] gives what is free to lanes. A [`Lane`] holds records of
//! what its call is about to do to the bitmaps, and a [`Claim`] ends with the call. The meaning of
//! a record is a parameter ([`Meaning`]), which the layer above chooses.
#![forbid(unsafe_code)]

mod alloc;
mod bitmap;
mod budget;
mod claim;
mod hints;
mod lane;

pub use alloc::Wish;
pub use bitmap::{Bitmap, FreePages, REGION, Told, step_block};
pub use budget::{Class, Space};
pub use claim::{Claim, Resolve};
pub use lane::{Lane, Meaning, Zone};
