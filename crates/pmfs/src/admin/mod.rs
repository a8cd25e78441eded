//! The work that runs beside the calls: it makes, checks, repairs, copies, grows and shows pools.

pub mod check;
pub(crate) mod defrag;
pub mod dump;
pub(crate) mod dump_stream;
pub(crate) mod grow;
pub(crate) mod holders;
pub(crate) mod info;
pub(crate) mod inspect;
pub(crate) mod mkfs;
pub(crate) mod name_of;
pub(crate) mod owner_words;
pub(crate) mod repair;
pub(crate) mod statfs;
