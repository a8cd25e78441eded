//! A pool's file in the address space, and the medium below it.

pub(crate) mod map;
pub(crate) mod medium;
pub(crate) mod open;
pub(crate) mod pages;
pub(crate) mod pool;
pub(crate) mod renew;
pub mod view;
