//! POSIX's rules for files, as Linux keeps them. The engine has none of them: it checks no rights.
//! The faces that serve programs (the mount, `pmfs run`, libpmfs) ask here, so that each rule is
//! written once.
//!
//! All are plain functions of attributes, flags and the caller's ids: no system calls, no state, no
//! access to the pool. An error is an errno.
#![forbid(unsafe_code)]

pub mod flags;
pub mod mount_options;
pub mod names;
pub mod options;
pub mod privileges;
pub mod rights;
pub mod stat;
pub mod subject;
pub mod times;

pub use subject::{Subject, capability};
