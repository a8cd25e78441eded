//! libpmkv: persistent heaps and key-value engines for C. `include/pmkv.h` says what each function
//! does; here pointers become Rust, errors become codes, and handles are looked up. One function
//! does one call of [`pmlib`] or [`pmkv`].
//!
//! - [`answer`] has how a function ends: a code, words;
//! - [`handles`] the numbers by which C names things;
//! - [`heaps`] the process's heaps, and calls on them;
//! - [`engines`] their key-value engines, and calls on these;
//! - [`readers`] sessions of readers, with values where they are;
//! - [`snapshots`] engines as they were at one instant;
//! - [`transactions`] the thread's transactions, and calls in them;
//! - [`maps`] maps and trees of bytes;
//! - [`sequences`] vectors and queues of bytes, logs and texts;
//! - [`lent`] memory that a program edits;
//! - [`types`] fingerprints.
//!
//! Pointers from C can't be checked, so this crate holds `unsafe`: each function trusts its caller
//! for exactly what the header asks of it, and hands on slices and references.

#![allow(clippy::missing_safety_doc)]

mod answer;
mod changes;
mod engines;
mod handles;
mod heaps;
mod lent;
mod maps;
mod pointers;
mod readers;
mod sequences;
mod snapshots;
mod transactions;
mod types;
