//! Planted bugs of the engines, by which yat is judged (`crates/pmem/src/planted.rs`).

#[cfg(any(feature = "planted-bugs", test))]
mod list;
#[cfg(test)]
mod tests;

#[cfg(any(feature = "planted-bugs", test))]
pub use list::{BUGS, Bug};
#[cfg(feature = "planted-bugs")]
pub use pmem::planted::select;
