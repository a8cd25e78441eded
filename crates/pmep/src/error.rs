//! Errors of input: each names the place, the cause and the way out.

/// Input that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {cause}; {way_out}")]
pub struct BadInput {
    /// A line of a file, an option or a key of a parameter.
    pub place: String,
    /// The fault.
    pub cause: String,
    /// A repair that a user can make.
    pub way_out: String,
}

impl BadInput {
    /// An error at `place`.
    pub fn new(
        place: impl Into<String>,
        cause: impl Into<String>,
        way_out: impl Into<String>,
    ) -> BadInput {
        BadInput {
            place: place.into(),
            cause: cause.into(),
            way_out: way_out.into(),
        }
    }
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, BadInput>;
