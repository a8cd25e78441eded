//! The places where control may arrive other than from the instruction before.
//!
//! An address counts as a target if
//! - an instruction anywhere in the text branches to it or calls it, or it follows a call;
//! - a symbol, a frame description, a landing pad, the entry point or a relocation names it;
//! - an instruction forms it relative to rip (its address is taken);
//! - a jump table can lead there. Compilers and glibc's assembly make tables of 32-bit offsets,
//!   from the table itself or from a label, and form both addresses relative to rip. So every
//!   address T that an instruction forms is read as a table: T + entry is a target for entry after
//!   entry, up to the first that doesn't lead to an instruction; and so is B + entry for every
//!   address B in the code that is formed in the same function. Whether a jump uses the table is
//!   not checked. Too many targets cost a site at worst, too few would break the program.

use iced_x86::{Instruction, OpKind};

use crate::addresses::Addresses;
use crate::code::Code;
use crate::elf::Library;
use crate::unwind::Function;

/// Adds the targets that the instructions name: branches, calls, the instructions after them,
/// addresses formed.
pub(crate) fn add_code(targets: &mut Addresses, instructions: &[Instruction]) {
    for instruction in instructions {
        if let Some(target) = branch_target(instruction) {
            targets.add(target);
        }
        if is_call(instruction) {
            targets.add(instruction.next_ip());
        }
        if instruction.is_ip_rel_memory_operand() {
            targets.add(instruction.ip_rel_memory_address());
        }
    }
}

/// Returns whether it is a call; `syscall` is none, although the decoder counts it among calls.
fn is_call(instruction: &Instruction) -> bool {
    instruction.is_call_near()
        || instruction.is_call_far()
        || instruction.is_call_near_indirect()
        || instruction.is_call_far_indirect()
}

/// The target of a direct branch, call or transaction begin.
pub(crate) fn branch_target(instruction: &Instruction) -> Option<u64> {
    let is_near = |kind| {
        matches!(
            kind,
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
    };
    instruction
        .op_kinds()
        .any(is_near)
        .then(|| instruction.near_branch_target())
}

/// All targets of a library.
pub(crate) fn targets(library: &Library, functions: &[Function], code: &Code) -> Addresses {
    let text = library.text.range();
    let mut targets = Addresses::new(text.start, library.text.bytes.len());
    add_code(&mut targets, &code.instructions);
    for symbol in &library.symbols {
        targets.add(symbol.address);
    }
    for address in &library.relocated {
        targets.add(*address);
    }
    for function in functions {
        targets.add(function.range.start);
        targets.add(function.entry());
        for pad in &function.landing_pads {
            targets.add(*pad);
        }
    }
    add_jump_tables(library, functions, &code.instructions, &mut targets);
    targets
}

fn add_jump_tables(
    library: &Library,
    functions: &[Function],
    instructions: &[Instruction],
    targets: &mut Addresses,
) {
    let text = &library.text;
    let mut tables = Tables {
        library,
        beginnings: Addresses::new(text.vaddr, text.bytes.len()),
        targets,
    };
    for instruction in instructions {
        tables.beginnings.add(instruction.ip());
    }
    for table in formed(instructions) {
        tables.read(table, table);
    }
    for function in functions {
        let first = instructions.partition_point(|one| one.ip() < function.range.start);
        let behind = instructions.partition_point(|one| one.ip() < function.range.end);
        let addresses = formed(&instructions[first..behind]);
        for base in addresses.iter().filter(|base| library.is_code(**base)) {
            for table in &addresses {
                tables.read(*table, *base);
            }
        }
    }
}

/// The addresses that instructions form relative to rip, each once.
fn formed(instructions: &[Instruction]) -> Vec<u64> {
    let mut addresses: Vec<u64> = instructions
        .iter()
        .filter(|instruction| instruction.is_ip_rel_memory_operand())
        .map(Instruction::ip_rel_memory_address)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

struct Tables<'a> {
    library: &'a Library<'a>,
    /// The beginnings of instructions.
    beginnings: Addresses,
    targets: &'a mut Addresses,
}

impl Tables<'_> {
    /// Entries at `table`, relative to `base`, up to the first that doesn't lead to an instruction.
    fn read(&mut self, table: u64, base: u64) {
        let Some(bytes) = self.library.bytes_from(table) else {
            return;
        };
        for entry in bytes.chunks_exact(4) {
            let offset = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let address = base.wrapping_add_signed(i64::from(offset));
            if !self.beginnings.contains(address) {
                return;
            }
            self.targets.add(address);
        }
    }
}
