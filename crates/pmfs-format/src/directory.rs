//! Directory buckets: a 4 KiB block of one header line and 63 record lines.
//!
//! Header byte 0 is the bucket's depth: it covers `512 >> depth` neighbouring entries of its node.
//! Header byte `i` is the fingerprint of record line `i`: 0 free, 1 a further line of the record
//! before it, else the fingerprint of the record that starts there. Setting that byte makes a name
//! appear, so a record line whose byte is 0 may be written at will.

use crate::layout::{neighbours, on_media};

/// Lines of a bucket, header included.
pub const BUCKET_LINES: usize = 64;
/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Bytes of a name that stand in a record's first line.
pub const NAME_FIRST_LINE: usize = 48;
/// Fingerprint: the line is free.
pub const FINGERPRINT_FREE: u8 = 0;
/// Fingerprint: the line continues the record before it.
pub const FINGERPRINT_MORE: u8 = 1;
/// Directory hashes have this many bits; they are also the readdir cookies.
pub const HASH_BITS: u32 = 63;
/// Hashes below this are given to "." and "..", and to the start.
pub const HASH_FIRST: u64 = 4;

on_media! {
    /// The first line of a directory record. A longer name goes on in the lines after it, 64 bytes
    /// each.
    pub struct DentryRaw[64] {
        /// The inode it names.
        @ 0 ino: u32,
        /// Bytes of the name.
        @ 4 name_len: u8,
        /// Type: the mode's top four bits.
        @ 5 kind: u8,
        /// Lines that the record takes.
        @ 6 lines: u8,
        /// Zero.
        @ 7 unused: u8,
        /// The name's keyed hash.
        @ 8 hash: u64,
        /// The name, or its first 48 bytes, NUL-padded.
        @ 16 name: [u8; 48],
    }
}

// A record's first word is one, and its name stands in whole words.
neighbours!(DentryRaw: ino, name_len, kind, lines, unused, hash, name);
