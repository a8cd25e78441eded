//! Whose kernels and programs hold pages of files.

pub(crate) mod records;
