//! The XPBuffer: lines of 256 B between the controller and the media, each with a mask of four
//! parts.
//!
//! Rules: a line whose four parts are written goes to the media by one write, and stays as a copy
//! that costs nothing to push out. A line that is pushed out before costs a media read, for the
//! missing parts, and a write. Replacement is random within a set.

use crate::geometry::{LINE, REQUEST};

const WAYS: usize = 8;
const NO_LINE: u64 = u64::MAX;
const WHOLE: u8 = 0b1111;

/// Lines that an access moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Lines read from the media.
    pub read: u32,
    /// Lines written to it.
    pub written: u32,
    /// The line was in the buffer.
    pub hit: bool,
}

/// A module's buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    tags: Vec<[u64; WAYS]>,
    masks: Vec<[u8; WAYS]>,
    random: u64,
    /// The line that was met last, which only another one's arrival can push out, and its way.
    last: (u64, usize),
}

/// The parts of a line that `bytes` bytes at `offset` within it touch.
#[must_use]
pub fn parts(offset: u64, bytes: u64) -> u8 {
    let first = (offset % LINE) / REQUEST;
    let last = ((offset % LINE + bytes.max(1) - 1) / REQUEST).min(3);
    (WHOLE << first) & (WHOLE >> (3 - last))
}

impl Buffer {
    /// A buffer of about `lines` lines: whole sets, a power of two of them.
    #[must_use]
    pub fn new(lines: u64, seed: u64) -> Buffer {
        let sets = (lines.clamp(1, 1 << 20) as usize)
            .div_ceil(WAYS)
            .next_power_of_two();
        Buffer {
            tags: vec![[NO_LINE; WAYS]; sets],
            masks: vec![[0; WAYS]; sets],
            random: seed | 1,
            last: (NO_LINE, 0),
        }
    }

    #[inline]
    fn place(&self, line: u64) -> (usize, Option<usize>) {
        let set = (line as usize) & (self.tags.len() - 1);
        if line == self.last.0 {
            return (set, Some(self.last.1));
        }
        (set, self.tags[set].iter().position(|tag| *tag == line))
    }

    /// A way for a new line, and the lines that its last one costs.
    fn make_room(&mut self, set: usize) -> (usize, Moved) {
        if let Some(free) = self.tags[set].iter().position(|tag| *tag == NO_LINE) {
            return (free, Moved::default());
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let way = (self.random >> 32) as usize % WAYS;
        let dirty = u32::from(self.masks[set][way] != 0);
        let moved = Moved {
            read: dirty,
            written: dirty,
            hit: false,
        };
        (way, moved)
    }

    /// Writes parts of a line.
    #[inline]
    pub fn write(&mut self, line: u64, parts: u8) -> Moved {
        let (set, found) = self.place(line);
        if let Some(way) = found {
            self.last = (line, way);
            let mask = self.masks[set][way] | parts;
            let is_whole = mask == WHOLE;
            self.masks[set][way] = if is_whole { 0 } else { mask };
            return Moved {
                read: 0,
                written: u32::from(is_whole),
                hit: true,
            };
        }
        if parts == WHOLE {
            return Moved {
                written: 1,
                ..Moved::default()
            };
        }
        let (way, moved) = self.make_room(set);
        self.tags[set][way] = line;
        self.last = (line, way);
        self.masks[set][way] = parts;
        moved
    }

    /// Reads of a line.
    #[inline]
    pub fn read(&mut self, line: u64) -> Moved {
        let (set, found) = self.place(line);
        if let Some(way) = found {
            self.last = (line, way);
            return Moved {
                hit: true,
                ..Moved::default()
            };
        }
        let (way, moved) = self.make_room(set);
        self.tags[set][way] = line;
        self.last = (line, way);
        self.masks[set][way] = 0;
        Moved {
            read: moved.read + 1,
            ..moved
        }
    }

    /// Lines that hold bytes which the media does not.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        let masks = self.masks.iter().flatten();
        masks.filter(|mask| **mask != 0).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn parts_are_those_touched() {
        assert_eq!(parts(0, 64), 0b0001);
        assert_eq!(parts(64, 128), 0b0110);
        assert_eq!(parts(0, 256), 0b1111);
        assert_eq!(parts(192, 64), 0b1000);
        assert_eq!(parts(63, 2), 0b0011);
    }

    /// Goal: the step of Yang et al. 2020, figure 10. Method: two passes by halves of lines over
    /// regions around the buffer's size; the closed form is the reference beyond it.
    #[test]
    fn amplification_steps_at_the_buffer() {
        for (lines, low, high) in [
            (32, 0.99, 1.01),
            (64, 0.99, 1.01),
            (80, 1.2, 1.45),
            (256, 1.9, 2.0),
        ] {
            let mut buffer = Buffer::new(64, 7);
            let mut written = 0;
            for round in 0..200_u64 {
                let half = if round % 2 == 0 { 0b0011 } else { 0b1100 };
                written += (0..lines)
                    .map(|line| buffer.write(line, half).written)
                    .sum::<u32>();
            }
            let amplification = f64::from(written) / (100.0 * lines as f64);
            assert!(
                (low..high).contains(&amplification),
                "{lines} lines: {amplification}"
            );
        }
    }

    proptest! {
        /// Goal: no byte is lost or invented. Method: a map of written parts beside the buffer.
        /// Each line that left must have been written, and the rest is dirty in the buffer.
        #[test]
        fn lines_in_are_lines_out_and_dirty(steps in prop::collection::vec((0_u64..300, 1_u8..16, any::<bool>()), 1..2000)) {
            let mut buffer = Buffer::new(64, 3);
            let mut held: HashMap<u64, u8> = HashMap::new();
            let (mut entered, mut left) = (0_u64, 0_u64);
            for (line, parts, is_write) in steps {
                let inside = buffer.place(line).1.is_some();
                let moved = match is_write {
                    true => buffer.write(line, parts),
                    false => buffer.read(line),
                };
                prop_assert_eq!(moved.hit, inside);
                let was_dirty = inside && held.get(&line).is_some_and(|mask| *mask != 0);
                if is_write && !was_dirty {
                    entered += 1;
                }
                left += u64::from(moved.written);
                if is_write {
                    let mask = if inside { held.get(&line).copied().unwrap_or(0) | parts } else { parts };
                    held.insert(line, if mask == WHOLE { 0 } else { mask });
                } else if !inside {
                    held.insert(line, 0);
                }
            }
            prop_assert_eq!(entered, left + buffer.dirty());
        }
    }
}
