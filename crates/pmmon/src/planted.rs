//! Bugs on purpose, to see that tests find them. Without the feature `planted-bugs` each is a
//! constant `false`, and nothing of it is left in the program.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A hit stands for a fortieth too many words.
    WrongWeight,
    /// A decoded size is one byte too large.
    SizeOffByOne,
    /// Hits whose samples were lost are not made up for.
    LostMissed,
    /// Calls come to another thread than their own.
    WrongThread,
    /// The last that a process counted is not told.
    LastLost,
    /// The media's lines count half.
    MediaLineShort,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug on this thread while `run` lasts.
    pub fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
        struct Removed;
        impl Drop for Removed {
            fn drop(&mut self) {
                PLANTED.set(None);
            }
        }
        PLANTED.set(Some(bug));
        let _removed = Removed;
        run()
    }

    /// Whether the bug is planted on this thread.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(not(feature = "planted-bugs"))]
mod switch {
    use super::Bug;

    /// Whether the bug is planted: never, without the feature.
    #[must_use]
    pub const fn is(_: Bug) -> bool {
        false
    }
}

pub use switch::is;
#[cfg(feature = "planted-bugs")]
pub use switch::with;
