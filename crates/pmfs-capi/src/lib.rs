//! libpmfs: the engine's face for C. `include/pmfs.h` says what each function does;
//! here pointers become Rust, errors become errno, and handles are kept. One function
//! does one call of [`pmfs::Fs`].
//!
//! - [`answer`]: how a function ends: a number, errno, words.
//! - [`pools`]: pools, and what fork does with them.
//! - [`handles`]: what is open; data, offsets.
//! - [`locks`]: flock and fcntl.
//! - [`maps`]: files at addresses.
//! - [`names`]: calls by path.
//! - [`dirs`]: reading directories.
//!
//! Pointers from C can't be checked, so this crate holds `unsafe`: each function trusts
//! its caller for exactly what the header asks of him, and hands on slices and references.

#![allow(clippy::missing_safety_doc)]

mod answer;
mod dirs;
mod handles;
mod locks;
mod maps;
mod names;
mod pointers;
mod pools;
