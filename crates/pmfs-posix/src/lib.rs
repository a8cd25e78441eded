//! POSIX's rules for files, as Linux keeps them. The engine has none of them: it does
//! what it is told. The faces that serve programs (the mount, `pmfs run`, libpmfs) ask
//! here, so that each rule is written once.
//!
//! Plain functions of attributes, flags and who asks: no system calls, no state,
//! nothing of the pool. An error is an errno.
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
