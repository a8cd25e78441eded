//! Planted bugs: a crash checker is judged by what it finds, so that bugs which others had, and one
//! of each kind at each kind of place, can be compiled in.
//!
//! A place in the engine asks `planted!("bug-x")`, which is a constant:
//!
//! - in a normal build `false`, so that nothing of a bug is in a normal binary;
//! - with the feature `bug-x` alone `true`;
//! - with `planted-bugs`, which is all of them and the recorder, whether [`select`] has picked that
//!   bug. Then the one build tries all.

/// Whether a bug is to be there.
#[cfg(not(feature = "planted-bugs"))]
macro_rules! planted {
    ($name:literal) => {
        cfg!(feature = $name)
    };
}

/// Whether a bug is to be there.
#[cfg(feature = "planted-bugs")]
macro_rules! planted {
    ($name:literal) => {
        const { $crate::planted::number_of($name) } == $crate::planted::selected()
    };
}

#[cfg(any(feature = "planted-bugs", test))]
mod list;
#[cfg(feature = "planted-bugs")]
mod select;
#[cfg(test)]
mod tests;

#[cfg(any(feature = "planted-bugs", test))]
pub use list::{BUGS, Bug, Needs};
#[cfg(feature = "planted-bugs")]
pub use select::select;
#[cfg(feature = "planted-bugs")]
pub(crate) use select::{number_of, selected};
