//! Deliberate bugs, which show whether a crash checker finds them. The crates above list theirs.
//!
//! A place in the source asks `planted!("bug-x")`. In a normal build that is `false`, so that
//! nothing of a bug is in a normal binary. With the feature `planted-bugs` all of them are compiled
//! in, and the answer is whether [`select`] has picked that bug.

/// Returns whether this bug is selected: never, without the feature `planted-bugs`.
#[cfg(not(feature = "planted-bugs"))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// Returns whether this bug is selected.
#[cfg(feature = "planted-bugs")]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        const { $crate::planted::key_of($name) } == $crate::planted::selected()
    };
}

#[cfg(feature = "planted-bugs")]
pub use selection::{Bug, key_of, select, selected};

/// Lists a crate's bugs as `BUGS`: for each its name and, in words, the fault that results.
#[cfg(feature = "planted-bugs")]
#[macro_export]
macro_rules! bugs {
    ($( $name:literal, $what:literal; )+) => {
        /// All bugs of this crate.
        pub const BUGS: &[$crate::planted::Bug] =
            &[ $( $crate::planted::Bug { name: $name, what: $what } ),+ ];
    };
}

#[cfg(feature = "planted-bugs")]
mod selection {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A bug that can be compiled in.
    #[derive(Clone, Copy, Debug)]
    pub struct Bug {
        /// The name by which the source asks for it.
        pub name: &'static str,
        /// The fault that results.
        pub what: &'static str,
    }

    /// The key that stands for no bug.
    const NONE: u64 = 0;

    static SELECTED: AtomicU64 = AtomicU64::new(NONE);

    /// Selects the bug of this name and deselects all others; `None` selects no bug.
    pub fn select(name: Option<&str>) {
        SELECTED.store(name.map_or(NONE, key_of), Ordering::Relaxed);
    }

    /// The key of the selected bug.
    #[inline]
    pub fn selected() -> u64 {
        SELECTED.load(Ordering::Relaxed)
    }

    /// The key of a name: its hash (FNV-1a).
    pub const fn key_of(name: &str) -> u64 {
        let (name, mut key, mut at) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325u64, 0);
        while at < name.len() {
            key = (key ^ name[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        key
    }
}
