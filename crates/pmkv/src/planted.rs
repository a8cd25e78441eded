//! Planted bugs of the engines, by which yat is judged (`crates/pmem/src/planted.rs`).

mod list;

pub use list::BUGS;
pub use pmem::planted::select;
