//! libpmemkv.so.1: the functions of pmemkv 1.5, as its manual pages describe them, on the engines
//! of [`pmkv`]. A program that was linked with the original runs with this library by
//! `LD_LIBRARY_PATH`. `docs/KV.md` says in what they differ.
//!
//! - [`status`] has how a function ends: a status, and the cause in words;
//! - [`config`] what a program says of a database before it opens it;
//! - [`db`] databases, and the calls on them;
//! - [`iterator`] iterators;
//! - [`tx`] transactions.
//!
//! Pointers from C can't be checked, so this crate holds `unsafe`: each function trusts its caller
//! for what the manual page asks of it. NULL is told.

#![allow(clippy::missing_safety_doc)]

mod config;
mod db;
mod iterator;
mod open;
mod pointers;
mod range;
mod status;
mod tx;
