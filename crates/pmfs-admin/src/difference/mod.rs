//! A snapshot as a stream of bytes, by what differs from another one that the reader has, too.
//!
//! All numbers are little-endian. The stream is a sequence of records:
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of the payload |
//! | 4 | CRC-32C of the record's number, as eight bytes, and of the payload |
//! | | payload: a tag of one byte, and what the tag says ([`record::Record`]) |
//!
//! A flipped bit, a missing, doubled or moved record and a missing end are all found. The first
//! record is the header, the last one the end. Between them stand the names of the snapshot, each
//! directory before what is in it. Both sides number the names of the base in the order of a walk
//! by sorted names ([`nodes`]), and so name its parts by numbers.

mod nodes;
mod receive;
mod record;
mod send;

pub use receive::{ReceiveReport, receive};
pub use send::{SendReport, send};
