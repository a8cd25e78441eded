//! Words that hold more than one thing.

use pmlib_format::chunk::{KIND_OBJECTS, KIND_RUN, PLACE_BYTES};
use pmlib_format::lane::STAMP_BITS;

const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

/// A record of a lane: its number of the lane (12 bits) above its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub lane: u32,
    pub stamp: u64,
}

impl Ticket {
    pub fn word(self) -> u64 {
        u64::from(self.lane) << STAMP_BITS | self.stamp
    }

    pub fn of(word: u64) -> Ticket {
        Ticket {
            lane: (word >> STAMP_BITS) as u32,
            stamp: word & STAMP_MASK,
        }
    }
}

/// A lane's `closed` as it is stored: a stamp with a check, so that damage is seen.
pub(crate) fn closed_word(stamp: u64) -> u64 {
    stamp | stamp_check(stamp) << STAMP_BITS
}

/// The stamp of such a word; `None`: damage.
pub(crate) fn closed_of(word: u64) -> Option<u64> {
    let stamp = word & STAMP_MASK;
    (word == closed_word(stamp)).then_some(stamp)
}

/// The word of a record's head that says which records are in place for good, with a check of the
/// head. Most words where no record begins are not taken for a head by it, and not read to where it
/// seems to end.
pub(crate) fn done_word(done: u64, stamp: u64, size: u64) -> u64 {
    done | stamp_check(done ^ stamp.rotate_left(20) ^ size.rotate_left(40)) << STAMP_BITS
}

/// The stamp of such a word; `None`: no record begins here.
pub(crate) fn done_of(word: u64, stamp: u64, size: u64) -> Option<u64> {
    let done = word & STAMP_MASK;
    (word == done_word(done, stamp, size)).then_some(done)
}

/// Twelve bits, on the path of each commit: a multiplication, not a CRC. Never all zero bytes.
fn stamp_check(stamp: u64) -> u64 {
    (stamp ^ 0x6d5a_56a9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> STAMP_BITS
}

/// A small value with the CRC-32C of it and of its place above it.
pub(crate) fn checked_word(value: u32, place: u64) -> u64 {
    u64::from(value) | u64::from(salted_crc(u64::from(value), place)) << 32
}

/// The value of such a word; `None`: damage.
pub(crate) fn checked_value(word: u64, place: u64) -> Option<u32> {
    (word == checked_word(word as u32, place)).then_some(word as u32)
}

fn salted_crc(value: u64, place: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&place.to_le_bytes()), &value.to_le_bytes())
}

const ROOT_BITS: u32 = 42;

/// The root pointer as it is stored.
pub(crate) fn root_word(offset: u64) -> u64 {
    let place = offset / PLACE_BYTES;
    place | u64::from(salted_crc(place, 0)) << ROOT_BITS
}

/// The offset in such a word; `None`: damage.
pub(crate) fn root_of(word: u64) -> Option<u64> {
    let offset = (word & ((1 << ROOT_BITS) - 1)) * PLACE_BYTES;
    (word == root_word(offset)).then_some(offset)
}

/// A chunk's entry in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub kind: u64,
    pub class: usize,
    /// Chunks of a run, or of objects that share them; of others 1.
    pub chunks: u64,
    pub generation: u64,
    /// The object whose run it is, by its offset; 0: none, or not asked for.
    pub owner: u64,
}

impl Entry {
    pub fn words(self) -> [u64; 2] {
        let word = self.kind | (self.class as u64) << 4 | self.chunks << 12 | self.generation << 40;
        [word, self.owner]
    }

    pub fn of(word: u64) -> Entry {
        Entry {
            kind: word & 0xf,
            class: (word >> 4 & 0xff) as usize,
            chunks: word >> 12 & 0xfff_ffff,
            generation: word >> 40,
            owner: 0,
        }
    }

    /// Chunks from this one on that it is the entry of.
    pub fn extent(self) -> u64 {
        match self.kind {
            KIND_RUN | KIND_OBJECTS => self.chunks.max(1),
            _ => 1,
        }
    }

    /// The same chunk, as something else from now on.
    pub fn becomes(self, kind: u64, class: usize, chunks: u64) -> Entry {
        Entry {
            kind,
            class,
            chunks,
            generation: (self.generation + 1) & 0xff_ffff,
            owner: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One damaged byte is seen in every word that has a check; of `closed`, whose check is short,
    /// mostly.
    #[test]
    fn a_damaged_byte_is_seen() {
        let mut missed = 0;
        for byte in 0..8 {
            for change in 1..=255u64 {
                let flip = change << (8 * byte);
                assert_eq!(checked_value(checked_word(77, 1024) ^ flip, 1024), None);
                assert_eq!(root_of(root_word(0x1_0440) ^ flip), None);
                missed += u32::from(closed_of(closed_word(123_456) ^ flip).is_some());
            }
        }
        assert!(missed <= 3, "{missed} of 2,040");
        assert_eq!(closed_of(0), None);
        assert_eq!(closed_of(closed_word(0)), Some(0));
    }

    #[test]
    fn words_come_back() {
        let ticket = Ticket {
            lane: 1023,
            stamp: STAMP_MASK,
        };
        assert_eq!(Ticket::of(ticket.word()), ticket);
        let entry = Entry {
            kind: 2,
            class: 31,
            chunks: 0xfff_ffff,
            generation: 0xff_ffff,
            owner: 0,
        };
        assert_eq!(Entry::of(entry.words()[0]), entry);
        assert_eq!(entry.becomes(0, 0, 1).generation, 0);
        assert_eq!(root_of(root_word(1 << 45)), Some(1 << 45));
    }
}
