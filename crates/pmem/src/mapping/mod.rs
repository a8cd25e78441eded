//! A pool: its file, mapped.

pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod renew;
pub mod view;
