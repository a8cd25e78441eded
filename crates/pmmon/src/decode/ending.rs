//! The instruction that ends at an address.
//!
//! Instructions have no mark at their end. Linear decoding falls into step with the real boundaries
//! after a few instructions, wherever it begins: of the decodes from 32 places before the address,
//! the majority has the right one.

use std::ops::RangeInclusive;

use iced_x86::{Decoder as Linear, DecoderOptions, Instruction};

/// Distances before the address from which decoding begins.
const STARTS: RangeInclusive<u64> = 40..=71;
/// The most code before the address that is looked at.
pub const CODE_BEFORE: u64 = *STARTS.end();
/// The longest instruction, in bytes.
pub const INSTRUCTION_BYTES_MAX: u64 = 15;

/// An instruction that may be the one that ends at an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The instruction, with its address.
    pub instruction: Instruction,
    /// The decodes that found it, of 32.
    pub votes: u32,
}

/// The instructions that may end at `end`, the likeliest first. `code` are the bytes from
/// `end - code.len()` to `end`; 71 of them are enough, fewer give fewer votes. Where there are less
/// than 40 bytes, decoding begins at each of them.
#[must_use]
pub fn ending(code: &[u8], end: u64) -> Vec<Candidate> {
    let length = code.len() as u64;
    let starts = if length < *STARTS.start() {
        1..=length
    } else {
        STARTS
    };
    let mut found: Vec<Candidate> = Vec::new();
    for distance in starts.take_while(|distance| *distance <= length) {
        let begin = code.len() - distance as usize;
        let Some(instruction) = last_of(&code[begin..], end.wrapping_sub(distance)) else {
            continue;
        };
        match found
            .iter_mut()
            .find(|other| other.instruction.ip() == instruction.ip())
        {
            Some(known) => known.votes += 1,
            None => found.push(Candidate {
                instruction,
                votes: 1,
            }),
        }
    }
    found.sort_by_key(|candidate| {
        (
            std::cmp::Reverse(candidate.votes),
            candidate.instruction.ip(),
        )
    });
    found
}

/// The last instruction of a linear decode that ends with `code`; `None` if it does not end there.
fn last_of(code: &[u8], ip: u64) -> Option<Instruction> {
    let mut linear = Linear::with_ip(64, code, ip, DecoderOptions::NONE);
    let mut last = None;
    while linear.can_decode() {
        let instruction = linear.decode();
        if instruction.is_invalid() {
            return None;
        }
        last = Some(instruction);
    }
    last
}
