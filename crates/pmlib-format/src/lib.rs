//! The format of a persistent heap, version 2: structures and constants, no logic, no I/O.
//!
//! Everything is little-endian. A heap is cut into chunks of 64 KiB. It is made of spans: the first
//! as long as the heap was when it was made, then one for each step of growth.
//!
//! | region of the first span | bytes | holds |
//! |---|---|---|
//! | header, copy | 2 x 4 KiB | [`HeaderRaw`], and words that change, each in a line of its own |
//! | chunk table | 256 a group of 15 chunks | what each chunk is, and a CRC-32C of the group |
//! | lanes | `lane_bytes` each | a line with `closed`, then a ring of redo records |
//! | volatile area | 640, 256 a slot, 64 a lock line, 512 a lane, 64 a chunk | who has what |
//! | chunks | 64 KiB each | objects |
//!
//! A further span has a chunk table, lines of its chunks and chunks. The volatile area is shared by
//! the processes that have the heap. It means nothing once all of them have gone.
#![forbid(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("a heap is mapped as it stands: only 64-bit little-endian machines can");

pub mod chunk;
pub mod container;
pub mod header;
pub mod kv;
pub mod lane;
pub mod named;
pub mod record;
pub mod shared;

pub use header::HeaderRaw;
pub use named::NamedRaw;

/// Bytes of a cache line: the unit in which the CPU writes to the medium.
pub const LINE_BYTES: u64 = 64;
/// Bytes of a word: the unit that is stored whole.
pub const WORD_BYTES: u64 = 8;
/// Bytes a chunk.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// The format that this crate describes. Version 1 had no lines of counts: all behind them stood
/// elsewhere, and heaps of it are refused.
pub const VERSION: u32 = 2;
