//! The checker's view of every access.

#[cfg(feature = "record")]
pub(crate) mod bad_buffer;
#[cfg(feature = "record")]
pub mod record;
#[cfg(not(feature = "record"))]
pub(crate) mod unrecorded;
