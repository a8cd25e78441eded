//! The processes whose kernels and programs hold pages of files.

mod pins;
pub(crate) mod records;
