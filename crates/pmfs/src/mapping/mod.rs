//! Blocks of files in programs' memory, and pages of files in kernels' memory.

pub(crate) mod kernel_copy;
pub(crate) mod pin;
pub(crate) mod stored;
