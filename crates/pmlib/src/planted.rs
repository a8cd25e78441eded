//! Planted bugs, by which yat is judged, as `crates/pmfs/src/planted.rs` has them.
//!
//! A place asks `planted!("bug-x")`: `false` in a normal build, `true` with that feature alone, and
//! with `planted-bugs` whether [`select`] has picked it.

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
pub use list::{BUGS, Bug};
#[cfg(feature = "planted-bugs")]
pub use select::select;
#[cfg(feature = "planted-bugs")]
pub(crate) use select::{number_of, selected};
