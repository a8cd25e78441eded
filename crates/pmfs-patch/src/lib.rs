//! Ready-patched text images of shared libraries, libc above all.
//!
//! A process that is to see files of a pool by their system calls maps an image over the library's
//! own text: each `syscall` instruction has become a jump to a stub, which asks a hook. The mapping
//! costs a few tens of microseconds a process and no private memory, where patching in place makes
//! a private copy of every touched page. This crate makes the images and keeps them
//! ([`PatchedTexts`]), before the program starts; the preloaded library only maps them, and reads
//! their [`header`].
//!
//! Invariants of an image:
//! - Only decoded instructions are patched, never bytes that look like them.
//! - Nothing can branch to an overwritten byte but the first of a jump (`targets` has the method).
//! - A stub does what the overwritten instructions did, in their order, at another place. The
//!   stub's own code touches no stack, and no register but rcx and r11, which `syscall` destroys
//!   anyway.
//! - All other bytes are the library's.
//! - Each site that was not patched is named, with the reason ([`Report`]).
#![forbid(unsafe_code)]

mod addresses;
mod cache;
mod choose;
mod code;
mod dwarf;
mod elf;
mod error;
pub mod header;
pub mod loading;
#[cfg(test)]
mod loading_tests;
mod patched_text;
mod stub;
mod targets;
mod unwind;
mod vectors;
mod verified;

pub use cache::PatchedTexts;
pub use choose::{Obstacle, Reason};
pub use error::PatchError;
pub use patched_text::{PatchedText, Report, Skipped};
