//! Versions of a key's records: a number on a circle, and the slot of the one before.
//!
//! - Power loss can leave two versions of a key at most, which follow each other
//!   (`docs/adr/0073-slots-with-states.md`): 16 bits tell which one is newer.
//! - The other 16 bits name the slot of the one before, if that slot was in the same line, where
//!   its clear may not be durable. So an older version's slot that has lost its record is told from
//!   a damaged record of another key with the same hash.

use crate::slot::Slot;
use pmlib_format::kv::STATE_LIVE;

/// Mixes the bits of a slot.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Where the bits begin that name a slot.
const NAME_SHIFT: u32 = 16;

/// A record's version, as its head has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version(pub u32);

/// The bits by which a version names a slot, never 0.
fn name_of(slot: Slot) -> u32 {
    let name = (slot.with_state(STATE_LIVE).0.wrapping_mul(ODD) >> 48) as u32;
    name.max(1)
}

impl Version {
    /// The first one of a key.
    pub const FIRST: Version = Version(1);

    /// The next one; `before`: the slot of this one, if its clear is not durable before a later
    /// store of its line is.
    #[inline]
    pub fn next(self, before: Option<Slot>) -> Version {
        let number = (self.0 as u16).wrapping_add(1);
        Version(u32::from(number) | before.map_or(0, name_of) << NAME_SHIFT)
    }

    /// Whether it is newer than another one of its key.
    pub fn is_after(self, other: Version) -> bool {
        ((self.0 as u16).wrapping_sub(other.0 as u16) as i16) > 0
    }

    /// Whether the version before may have had this slot, in the same line.
    pub fn names(self, slot: Slot) -> bool {
        self.0 >> NAME_SHIFT == name_of(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each version is after the one before, all around the circle, and names its slot alone.
    #[test]
    fn versions_follow_each_other() {
        let slot = |nth: u64| Slot::new(nth * 16, nth & 0xf, 7);
        let mut version = Version::FIRST;
        assert!(!(0..1000).any(|nth| version.names(slot(nth))));
        for nth in 0..70_000 {
            let next = version.next(Some(slot(nth)));
            assert!(next.is_after(version) && !version.is_after(next));
            assert!(next.names(slot(nth)) && !next.names(slot(nth + 1)));
            assert!(!version.next(None).names(slot(nth)));
            version = next;
        }
    }
}
