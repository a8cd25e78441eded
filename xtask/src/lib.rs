//! The rules that the tree itself must keep are in `tests/tidy.rs`.
#![forbid(unsafe_code)]
