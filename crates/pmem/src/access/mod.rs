//! Loads, stores and copies, each at an offset that is checked.

pub(crate) mod copy;
pub(crate) mod dirty;
pub(crate) mod flush;
pub(crate) mod landing;
pub(crate) mod load;
pub(crate) mod order;
#[cfg(feature = "poison")]
pub(crate) mod poison;
pub(crate) mod stage;
pub(crate) mod store;
pub(crate) mod stream;
