//! The code of one stub, and the jump to it.
//!
//! ```text
//! stub:   what stood before the syscall and was overwritten
//!         lea rcx, [rip + pass]
//!         jmp qword ptr [rip + entry_slot]   ; the hook goes on at rcx, or, having served, at rcx+2
//! pass:   syscall
//!         what stood behind the syscall and was overwritten
//!         jmp back
//! ```
//!
//! `syscall` itself destroys rcx and r11, so both are free; the stack is not touched.

use iced_x86::{BlockEncoder, BlockEncoderOptions, Instruction, InstructionBlock};

use crate::choose::JUMP_BYTES;
use crate::header::STUB_ALIGN_BYTES;
use crate::targets::branch_target;

/// Bytes of the longest stub.
const STUB_BYTES_MAX: usize = 2 * STUB_ALIGN_BYTES as usize;
const LEA_BYTES: u64 = 7;
const JUMP_INDIRECT_BYTES: u64 = 6;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Fills bytes that never run.
pub(crate) const INT3: u8 = 0xcc;

/// The bytes of a stub, at most two units of alignment, and where its `syscall` is.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pass: u32,
}

/// Assembles the stub that lies at `at`. `range` is what the site's jump overwrites, `site`
/// the index of the `syscall` in it. `None` if an instruction can't be encoded there, or if
/// the stub would be too long. Addresses are relative to the module's base, and wrap below it.
pub(crate) fn assemble(
    range: &[Instruction],
    site: usize,
    at: u64,
    entry_slot: u64,
) -> Option<Stub> {
    let mut bytes = moved(&range[..site], at)?;
    let lea = at.wrapping_add(bytes.len() as u64);
    let pass = lea.wrapping_add(LEA_BYTES + JUMP_INDIRECT_BYTES);
    bytes.extend([0x48, 0x8d, 0x0d]);
    bytes.extend(displacement(lea.wrapping_add(LEA_BYTES), pass)?);
    bytes.extend([0xff, 0x25]);
    bytes.extend(displacement(pass, entry_slot)?);
    bytes.extend(SYSCALL);
    let resume = at.wrapping_add(bytes.len() as u64);
    bytes.extend(moved(&range[site + 1..], resume)?);
    let back = at.wrapping_add(bytes.len() as u64);
    bytes.extend(jump(back, range.last()?.next_ip())?);
    if bytes.len() > STUB_BYTES_MAX {
        return None;
    }
    Some(Stub {
        bytes,
        pass: pass.wrapping_sub(at) as u32,
    })
}

/// `jmp rel32` at `from`.
pub(crate) fn jump(from: u64, to: u64) -> Option<[u8; JUMP_BYTES as usize]> {
    let [a, b, c, d] = displacement(from.wrapping_add(JUMP_BYTES), to)?;
    Some([0xe9, a, b, c, d])
}

fn displacement(from: u64, to: u64) -> Option<[u8; 4]> {
    let distance = to.wrapping_sub(from) as i64;
    Some(i32::try_from(distance).ok()?.to_le_bytes())
}

/// Returns whether a whole stub that begins at `from` can address it by 32 bits.
fn is_in_reach(from: u64, address: u64) -> bool {
    let end = from.wrapping_add(STUB_BYTES_MAX as u64);
    displacement(from, address).is_some() && displacement(end, address).is_some()
}

/// Encodes instructions for another place, where they address the same memory relative to rip.
/// Addresses out of reach from there are refused: the encoder would go a longer way, or address by
/// eip, which is wrong for addresses relative to a base.
fn moved(instructions: &[Instruction], to: u64) -> Option<Vec<u8>> {
    if instructions.is_empty() {
        return Some(Vec::new());
    }
    let out_of_reach = |one: &Instruction| {
        let memory = one
            .is_ip_rel_memory_operand()
            .then(|| one.ip_rel_memory_address());
        let addressed = memory.or_else(|| branch_target(one));
        addressed.is_some_and(|address| !is_in_reach(to, address))
    };
    if instructions.iter().any(out_of_reach) {
        return None;
    }
    let block = InstructionBlock::new(instructions, to);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?;
    Some(encoded.code_buffer)
}

#[cfg(test)]
#[path = "stub_tests.rs"]
mod tests;
