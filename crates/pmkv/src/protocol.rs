//! The steps by which a place is taken without its chunk's lock, and freed beside sessions of
//! readers, on memory as a trait, so that `yat` tries these very steps in every order that a memory
//! model allows (`crates/yat/tests/kv_protocol.rs`, `kv_sessions.rs`).
//!
//! - A word has a byte for each of eight places: taken, or free, above the instance of the last
//!   record there. A place that was freed while a session was open is held: neither taken nor free,
//!   with the tag of its era (`crates/pmlib/src/eras.rs`). It is freed with the chunk locked, so
//!   that it is not freed twice, and held again in between.
//! - A process that gives a chunk back takes all of its places, then each index chunk's lock once,
//!   and then lets the heap have the chunk, whose words may be anything from there on.
//! - A process that takes a place holds an index chunk's lock, and reads the word before the chunk
//!   is seen to be the engine's. So the word was read before the chunk was given back, or after
//!   that lock was waited for; and the CAS finds a place that was taken meanwhile.

use pmlib::eras::{Era, era_of_free};
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

/// Where a held place's byte has its era's tag, plus one.
const HELD_SHIFT: u64 = 4;
/// The bits of that.
const HELD: u64 = 3 << HELD_SHIFT;

/// The byte of a place whose record no slot names any more: free, or held in this era.
#[inline]
pub(crate) fn unused_byte(era: Era, instance: u64) -> u64 {
    match era.is_off() {
        true => FREE | instance,
        false => (era.tag() + 1) << HELD_SHIFT | instance,
    }
}

/// Whether a place is held.
pub(crate) fn is_held(byte: u64) -> bool {
    byte & (TAKEN | FREE) == 0 && byte & HELD != 0
}

/// The byte that a place gets whose last slot this thread has cleared, with the slot's lock taken.
#[inline(always)]
pub fn byte_of_free<W: Words>(words: &W, era_at: u64, instance: u64) -> u64 {
    if Era(words.load(era_at)).is_off() || planted!("bug-place-of-a-session-free") {
        return FREE | instance;
    }
    unused_byte(era_of_free(words, era_at), instance)
}

/// Changes a byte of the word at `at`, if it is what it is thought to be; whether it was.
#[inline(always)]
pub fn change_byte<W: Words>(words: &W, (at, shift): (u64, u64), from: u64, to: u64) -> bool {
    let mut word = words.load(at);
    while word >> shift & 0xff == from {
        let new = word & !(0xff << shift) | to << shift;
        match words.cas(at, word, new) {
            Ok(_) => return true,
            Err(found) => word = found,
        }
    }
    false
}

/// Frees the held places of the word at `at` whose eras are over, with their chunk locked; answers
/// how many, and whether others are held still.
pub fn free_held<W: Words>(words: &W, at: u64, era_at: u64) -> (u64, bool) {
    loop {
        let word = words.load(at);
        // Behind the bytes: each had its tag before this.
        let era = Era(words.load(era_at));
        let (mut new, mut freed, mut rest) = (word, 0, false);
        for shift in (0..64).step_by(8) {
            let byte = word >> shift & 0xff;
            if !is_held(byte) {
                continue;
            }
            let tag = ((byte & HELD) >> HELD_SHIFT) - 1;
            if era.is_over(tag) || planted!("bug-held-place-free-at-once") {
                new = new & !(0xff << shift) | (FREE | byte & 0xf) << shift;
                freed += 1;
            } else {
                rest = true;
            }
        }
        if new == word || words.cas(at, word, new).is_ok() {
            return (freed, rest);
        }
    }
}
