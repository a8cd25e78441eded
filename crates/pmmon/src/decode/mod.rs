//! Which instruction made an access, and how many bytes it moves.
//!
//! A watched word is hit by an instruction that has *ended*: the sample's IP is that of the one
//! behind it ([`ending`]). [`Sites`] finds the instruction, [`Decoder`] its memory operands, and
//! the effective address, computed from the registers, must cover the word. x86-64 only.

mod ending;
mod operands;
mod registers;
mod sites;

pub use ending::{Candidate, ending};
pub use operands::{Bytes, Decoder, Memory, When};
pub use registers::Registers;
pub use sites::{Hit, Resolved, Sites};
