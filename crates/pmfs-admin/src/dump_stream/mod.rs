//! A pool as a stream of bytes, which `pmfs save` writes and `pmfs load` reads.
//!
//! All numbers are little-endian. A [`Header`], then runs, then a trailer:
//!
//! | part | bytes |
//! |---|---|
//! | header | 64: magic, version, block size, blocks in the pool, uuid, time, blocks in use; CRC-32C of these |
//! | run | 32: first block, number of blocks, CRC-32C of their content, place in the stream; CRC-32C of these. Then the content |
//! | trailer | 32: as a run of 0 blocks, whose "first block" is the number of blocks of all runs and whose CRC of content is that of all run headers |
//!
//! Nothing comes after the trailer. A flipped bit, a missing, doubled or moved run and a missing
//! end are all found. The runtime area is left out: the next opener of the loaded pool rebuilds it.
//! Blocks of zeros are left out too.

mod load;
pub(crate) mod new_file;
pub(crate) mod save;

use pmfs::{Damage, Error, Result};
use pmfs_format::BLOCK_BYTES;
use std::io::{self, Read};

pub use load::{LoadOptions, LoadReport, load};
pub use save::SaveReport;

const MAGIC: [u8; 8] = *b"PMFSSAVE";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const RUN_BYTES: usize = 32;
/// Blocks a run: a megabyte.
const RUN_BLOCKS_MAX: u64 = 256;
/// The largest pool, blocks.
const BLOCKS_MAX: u64 = 1 << 32;

/// A stream's head: what it says of itself at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    blocks: u64,
    uuid: [u8; 16],
    time_ns: i64,
    /// About how many blocks will come, for a bar.
    used: u64,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.uuid);
        bytes[40..48].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.used.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        if bytes[..8] != MAGIC {
            return Err(bad("it does not begin as one", 0));
        }
        if word32(bytes, 8) > VERSION {
            return Err(bad("made by a newer pmfs, or damaged", 8));
        }
        if !is_sealed(bytes) || word32(bytes, 12) != BLOCK_BYTES as u32 {
            return Err(bad("the header is damaged", 0));
        }
        let blocks = word64(bytes, 16);
        if !(16..=BLOCKS_MAX).contains(&blocks) {
            return Err(bad("a pool of impossible size", 16));
        }
        Ok(Header {
            blocks,
            uuid: bytes[24..40].try_into().expect("sixteen bytes"),
            time_ns: word64(bytes, 40) as i64,
            used: word64(bytes, 48).min(blocks),
        })
    }
}

/// The head that stands before a run's content; with 0 blocks it is the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunHeader {
    block: u64,
    count: u32,
    crc: u32,
    place: u64,
}

impl RunHeader {
    fn encode(&self) -> [u8; RUN_BYTES] {
        let mut bytes = [0; RUN_BYTES];
        bytes[..8].copy_from_slice(&self.block.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.place.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8; RUN_BYTES], at: u64) -> Result<RunHeader> {
        if !is_sealed(bytes) {
            return Err(bad("a run's header is damaged", at));
        }
        Ok(RunHeader {
            block: word64(bytes, 0),
            count: word32(bytes, 8),
            crc: word32(bytes, 12),
            place: word64(bytes, 16),
        })
    }
}

/// The last four bytes become the CRC of those before.
fn seal(bytes: &mut [u8]) {
    let (body, crc) = bytes.split_at_mut(bytes.len() - 4);
    crc.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    let (body, crc) = bytes.split_at(bytes.len() - 4);
    crc == crc32c::crc32c(body).to_le_bytes()
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn bad(what: &'static str, offset: u64) -> Error {
    Error::BadImage(Box::new(Damage { what, offset }))
}

/// Reads all of `to`; a stream that ends before is damaged.
fn fill(input: &mut dyn Read, to: &mut [u8], offset: u64) -> Result<()> {
    input.read_exact(to).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => bad("it ends too early", offset),
        _ => Error::file("reading", source),
    })
}
