//! The steps by which a place is taken without its chunk's lock, on memory as a trait, so that
//! `yat` tries these very steps in every order that a memory model allows
//! (`crates/yat/tests/kv_protocol.rs`).
//!
//! - A word has a byte for each of eight places: taken, or free, above the instance of the last
//!   record there.
//! - A process that gives a chunk back takes all of its places, then each index chunk's lock once,
//!   and then lets the heap have the chunk, whose words may be anything from there on.
//! - A process that takes a place holds an index chunk's lock, and reads the word before the chunk
//!   is seen to be the engine's. So the word was read before the chunk was given back, or after
//!   that lock was waited for; and the CAS finds a place that was taken meanwhile.

use pmlib::protocol::Words;

/// A place's byte: taken, above its record's instance.
pub(crate) const TAKEN: u64 = 0x80;
/// A place's byte: free, above its last record's instance.
pub(crate) const FREE: u64 = 0x40;
/// Free places of a word.
const FREE_BYTES: u64 = 0x4040_4040_4040_4040;

/// Takes the first free place of the word at `at`: its number in the word and its record's
/// instance. `may` says whether that place is one of the engine's, after the word was read.
#[inline(always)]
pub fn take_free<W: Words>(
    words: &W,
    at: u64,
    mut may: impl FnMut(u64) -> bool,
) -> Option<(u64, u64)> {
    let is_late = planted!("bug-place-read-after-its-owner") && may(0);
    let mut word = words.load(at);
    loop {
        let free = word & FREE_BYTES;
        if free == 0 {
            return None;
        }
        let place = u64::from(free.trailing_zeros() / 8);
        if !(is_late || may(place)) {
            return None;
        }
        let last = word >> (place * 8) & 0xf;
        let instance = match planted!("bug-instance-kept") {
            true => last,
            false => (last + 1) & 0xf,
        };
        let taken = word & !(0xff << (place * 8)) | (TAKEN | instance) << (place * 8);
        match words.cas(at, word, taken) {
            Ok(_) => return Some((place, instance)),
            Err(found) => word = found,
        }
    }
}
