//! The library's own parts: system calls, memory, settings, a log, words of its threads.

pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod kernel;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod mountless;
pub(crate) mod stats;
pub(crate) mod unwind;
pub(crate) mod words;
