//! Lanes, their records, and what becomes of the records of a call that was cut off.

pub(crate) mod debt;
pub(crate) mod lane;
pub(crate) mod log_entry;
pub(crate) mod promise;
pub(crate) mod settle;
