//! Planted bugs: a crash checker is judged by what it finds, so that bugs which others had, and one
//! of each kind at each kind of place, can be compiled in.
//!
//! [`BUGS`] lists them. A bug that leaves something out at a store, a flush, a fence or a log entry
//! names the site there, and the checker plants it from outside. For the others a place in this
//! crate, or in one above it, asks `planted!("bug-x")`:
//!
//! - in a normal build that is `false`, so that nothing of a bug is in a normal binary;
//! - with `planted-bugs`, which is all of them and the recorder, it is whether [`select`] has
//!   picked that bug. So one build tries all.

/// Whether a bug is to be there.
#[cfg(not(feature = "planted-bugs"))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// Whether a bug is to be there.
#[cfg(feature = "planted-bugs")]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        const { $crate::planted::number_of($name) } == $crate::planted::selected()
    };
}

#[cfg(any(feature = "planted-bugs", test))]
mod list;
#[cfg(feature = "planted-bugs")]
mod select;
#[cfg(any(feature = "planted-bugs", test))]
mod site;
#[cfg(test)]
mod tests;

#[cfg(any(feature = "planted-bugs", test))]
pub use list::{BUGS, Bug, Needs, Plant};
#[cfg(feature = "planted-bugs")]
pub use select::{number_of, select, selected};
#[cfg(any(feature = "planted-bugs", test))]
pub use site::{Rule, Site, What};
