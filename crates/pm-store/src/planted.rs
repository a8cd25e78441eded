//! Planted bugs: a crash checker is judged by what it finds, so that bugs which others had, and one
//! of each kind at each kind of place, can be compiled in.
//!
//! [`BUGS`] lists them. A bug that leaves something out at a store, a flush, a fence or a log entry
//! names the site there, and the checker plants it from outside. For the others a place in this
//! crate, or in one above it, asks by `planted!` (`crates/pmem/src/planted.rs`).

#[cfg(any(feature = "planted-bugs", test))]
mod list;
#[cfg(any(feature = "planted-bugs", test))]
mod site;
#[cfg(test)]
mod tests;

#[cfg(any(feature = "planted-bugs", test))]
pub use list::{BUGS, Bug, Needs, Plant};
#[cfg(any(feature = "planted-bugs", test))]
pub use site::{Rule, Site, What};

/// Selects the bug of this name and deselects all others; `None` selects no bug.
///
/// # Panics
/// If no bug has that name.
#[cfg(feature = "planted-bugs")]
pub fn select(name: Option<&str>) {
    let is_known = |name| BUGS.iter().any(|bug| bug.name == name);
    assert!(name.is_none_or(is_known), "no planted bug has that name");
    pmem::planted::select(name);
}
