//! A pool: its file, mapped.

pub(crate) mod growth;
pub(crate) mod holes;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod renew;
pub(crate) mod room;
pub mod view;
