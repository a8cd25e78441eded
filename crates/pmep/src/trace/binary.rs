//! The recorder's binary form of a trace: a header of 16 bytes, then 32 bytes a step. All words are
//! little-endian. Each step takes the same place, so that a fault has its offset, and a trace
//! can be cut anywhere between two steps. A text takes about as many bytes.
//!
//! | header | bytes | |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 2 | version, 1 |
//! | 10 | 2 | bytes of a step, 32 |
//! | 12 | 4 | 0 |
//!
//! | step | bytes | |
//! |---|---|---|
//! | 0 | 8 | time, ns |
//! | 8 | 8 | address; 0 of a fence |
//! | 16 | 8 | bytes; 0 of a fence |
//! | 24 | 4 | stream |
//! | 28 | 1 | operation: 0 r, 1 w, 2 nt, 3 clwb, 4 fence |
//! | 29 | 3 | 0 |

use super::{Fields, Step, Word, accept};
use crate::error::{BadInput, Result};
use crate::pattern::Op;

/// The first bytes of a trace in this form.
pub const MAGIC: [u8; 8] = *b"PMEPTRC\0";
/// Bytes of the header.
pub const HEADER: usize = 16;
/// Bytes of a step.
pub const STEP: usize = 32;
const VERSION: u16 = 1;

/// The header of a trace.
#[must_use]
pub fn header() -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&(STEP as u16).to_le_bytes());
    bytes
}

/// The bytes of a step. Its time loses what is less than a nanosecond; a flush that drops the line
/// is written as one that keeps it, as texts have it.
#[must_use]
pub fn encode(step: &Step) -> [u8; STEP] {
    let (time_ns, address, count, stream, code) = match *step {
        Step::Fence { stream, time_ns } => (time_ns, 0, 0, stream, 4),
        Step::Access(access) => {
            let code = match access.op {
                Op::Load => 0,
                Op::Store => 1,
                Op::NtStore => 2,
                Op::StoreClwb | Op::StoreClflushopt => 3,
            };
            let (address, count) = (access.address, access.bytes);
            (access.time_ns, address, count, access.stream, code)
        }
    };
    let mut bytes = [0; STEP];
    bytes[..8].copy_from_slice(&(time_ns as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&address.to_le_bytes());
    bytes[16..24].copy_from_slice(&count.to_le_bytes());
    bytes[24..28].copy_from_slice(&stream.to_le_bytes());
    bytes[28] = code;
    bytes
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A reader of steps, which sees that time does not go back.
#[derive(Clone, Debug)]
pub struct Binary {
    offset: u64,
    last_ns: f64,
}

impl Binary {
    /// A reader behind this header, which may be cut off.
    ///
    /// # Errors
    /// Another beginning, version or length of a step.
    pub fn new(header: &[u8]) -> Result<Binary> {
        let bad = |offset: usize, cause: String, way_out: &str| {
            Err(BadInput::new(format!("offset {offset}"), cause, way_out))
        };
        if header.len() < HEADER {
            let cause = format!("the trace ends within its header of {HEADER} bytes");
            return bad(header.len(), cause, "record it again");
        }
        if header[..8] != MAGIC {
            let way_out = "give a text, or a trace that `pmep convert` wrote";
            return bad(0, "no trace begins like that".to_owned(), way_out);
        }
        let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        if short(8) != VERSION {
            let cause = format!("version {} of the form", short(8));
            return bad(8, cause, "record it again, in version 1");
        }
        if short(10) as usize != STEP || header[12..HEADER] != [0; 4] {
            let cause = "steps of another length".to_owned();
            return bad(10, cause, "record it again, in version 1");
        }
        Ok(Binary {
            offset: HEADER as u64,
            last_ns: 0.0,
        })
    }

    /// The byte at which the next step begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The step of these bytes: [`STEP`] of them, or fewer if the trace is cut off.
    ///
    /// # Errors
    /// Bytes that are no step, or whose time is before the last one's.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step> {
        let place = format_args!("offset {}", self.offset).to_string();
        if bytes.len() < STEP {
            let cause = format!("the trace ends within a step of {STEP} bytes");
            let way_out = "cut it off here, or record it again";
            return Err(BadInput::new(place, cause, way_out));
        }
        let last = word(bytes, 24);
        let fields = Fields {
            time_ns: Some(word(bytes, 0) as f64),
            stream: Some(last & u64::from(u32::MAX)),
            word: match last >> 32 {
                0 => Some(Word::Access(Op::Load)),
                1 => Some(Word::Access(Op::Store)),
                2 => Some(Word::Access(Op::NtStore)),
                3 => Some(Word::Access(Op::StoreClwb)),
                4 if bytes[8..24] == [0; 16] => Some(Word::Fence),
                _ => None,
            },
            address: Some(word(bytes, 8)),
            bytes: Some(word(bytes, 16)),
        };
        let step = accept(&mut self.last_ns, &fields)
            .map_err(|(cause, way_out)| BadInput::new(place, cause, way_out))?;
        self.offset += STEP as u64;
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Access;

    fn access(time_ns: f64, op: Op) -> Step {
        Step::Access(Access {
            time_ns,
            stream: 7,
            op,
            address: 0x1234_5678_9abc,
            bytes: 4096,
        })
    }

    #[test]
    fn steps_come_back() {
        let steps = [
            access(1.0, Op::Load),
            access(1.0, Op::Store),
            access(2.0, Op::NtStore),
            access(1e15, Op::StoreClwb),
            Step::Fence {
                stream: 65_535,
                time_ns: 1e15,
            },
        ];
        let mut binary = Binary::new(&header()).unwrap();
        for step in steps {
            assert_eq!(binary.step(&encode(&step)).unwrap(), step);
        }
        assert_eq!(binary.offset(), 16 + 5 * 32);
    }

    /// Goal: each fault has its place. Method: one byte is changed at a time.
    #[test]
    fn what_is_no_step_names_its_offset() {
        let whole = encode(&access(5.0, Op::NtStore));
        let with = |at: usize, byte: u8| {
            let mut bytes = whole;
            bytes[at] = byte;
            bytes
        };
        let cases = [
            (with(7, 0xff), "no count of ns"),
            (with(0, 4), "goes back"),
            (with(28, 5), "no such operation"),
            (with(28, 4), "no such operation"),
            (with(29, 1), "no such operation"),
            (with(26, 1), "no such stream"),
            (with(17, 0), "no such count of bytes"),
            (with(22, 9), "no such count of bytes"),
        ];
        for (bytes, cause) in cases {
            let mut binary = Binary::new(&header()).unwrap();
            binary.step(&whole).unwrap();
            let error = binary.step(&bytes).unwrap_err();
            assert_eq!(error.place, "offset 48");
            assert!(error.cause.contains(cause), "{error}");
        }
        let mut beyond = whole;
        beyond[8..16].fill(0xff);
        let mut binary = Binary::new(&header()).unwrap();
        assert!(binary.step(&beyond).is_err() && binary.step(&whole[..31]).is_err());
        assert_eq!(binary.step(&whole[..31]).unwrap_err().place, "offset 16");
        for (at, place) in [(0, "offset 0"), (8, "offset 8"), (10, "offset 10")] {
            let mut head = header();
            head[at] ^= 1;
            assert_eq!(Binary::new(&head).unwrap_err().place, place);
            assert_eq!(Binary::new(&head[..9]).unwrap_err().place, "offset 9");
        }
    }
}
