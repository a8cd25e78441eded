//! What can be typed after `pmfs`, as data: for the program itself, and for what is made of the
//! same definitions (manual pages, completions). What the commands do is in the program alone.

#![forbid(unsafe_code)]

pub mod cli;
pub mod size;
