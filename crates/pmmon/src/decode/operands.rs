//! The memory that an instruction reads and writes.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, Register,
    UsedMemory,
};

use super::Registers;
use crate::Access;
use crate::planted::{Bug, is};

/// How many bytes an access moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// So many.
    Exact(u32),
    /// At most so many: a mask, which samples do not have, says which.
    UpTo(u32),
    /// The state of the CPU says how many (XSAVE, AMX).
    Unknown,
}

impl Bytes {
    /// The most bytes that are moved; `None` if that is not known.
    #[must_use]
    pub fn max(self) -> Option<u32> {
        match self {
            Self::Exact(bytes) | Self::UpTo(bytes) => Some(bytes),
            Self::Unknown => None,
        }
    }
}

/// An access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Load or store. An instruction that does both has two.
    pub access: Access,
    /// Its size; of a repeated instruction, that of one iteration.
    pub bytes: Bytes,
    /// The effective address, where registers tell it.
    pub address: Option<u64>,
    /// The instruction has a `rep` prefix: RCX says how often the access is made.
    pub is_repeated: bool,
}

/// Whether registers are those before the instruction or those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The instruction has not run.
    Before,
    /// The instruction, or an iteration of it, has just ended.
    Behind,
}

/// Finds memory operands. One is reused, because it holds buffers.
#[derive(Debug, Default)]
pub struct Decoder {
    factory: Factory,
}

struct Factory(InstructionInfoFactory);

impl Default for Factory {
    fn default() -> Self {
        Self(InstructionInfoFactory::new())
    }
}

impl std::fmt::Debug for Factory {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("InstructionInfoFactory")
    }
}

impl Decoder {
    /// The accesses of an instruction, without addresses.
    pub fn accesses(&mut self, instruction: &Instruction) -> Vec<Memory> {
        self.find(instruction, |_| None)
    }

    /// The accesses of an instruction, with addresses where the registers tell them. The address is
    /// `None` where the instruction has overwritten a register that it was computed from, where it
    /// is relative to FS or GS, and where it depends on vectors.
    pub fn accesses_at(
        &mut self,
        instruction: &Instruction,
        registers: &Registers,
        when: When,
    ) -> Vec<Memory> {
        let changed = match when {
            When::Before => Vec::new(),
            When::Behind => self.changed(instruction),
        };
        let value = |register: Register| {
            let whole = register.full_register();
            let now = registers.value(register)?;
            if !changed.contains(&whole) {
                return Some(now);
            }
            let step = step_behind(instruction, registers, whole)?;
            Some(now.wrapping_sub(step))
        };
        self.find(instruction, value)
    }

    fn find(
        &mut self,
        instruction: &Instruction,
        value: impl Fn(Register) -> Option<u64>,
    ) -> Vec<Memory> {
        if is_cache_control(instruction) {
            return Vec::new();
        }
        let options = InstructionInfoOptions::NO_REGISTER_USAGE;
        let info = self.factory.0.info_options(instruction, options);
        let mut found = Vec::new();
        for memory in info.used_memory() {
            let (reads, writes) = directions(memory.access());
            let address = match memory.vsib_size() {
                0 => memory.virtual_address(0, |register, _, _| value(register)),
                _ => None,
            };
            let bytes = size(instruction, memory);
            for (happens, access) in [(reads, Access::Read), (writes, Access::Write)] {
                if happens {
                    found.push(Memory {
                        access,
                        bytes,
                        address,
                        is_repeated: is_repeated(instruction),
                    });
                }
            }
        }
        found
    }

    /// The general registers that an instruction changes.
    fn changed(&mut self, instruction: &Instruction) -> Vec<Register> {
        let options = InstructionInfoOptions::NO_MEMORY_USAGE;
        let info = self.factory.0.info_options(instruction, options);
        info.used_registers()
            .iter()
            .filter(|used| directions(used.access()).1)
            .map(|used| used.register().full_register())
            .collect()
    }
}

/// Whether an operand is read, and whether it is written.
fn directions(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        // CMPXCHG stores in either case: the old value if the comparison fails.
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
    }
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

fn size(instruction: &Instruction, memory: &UsedMemory) -> Bytes {
    // The size of a repeated access is not known, that of an iteration is.
    let whole = match is_repeated(instruction) {
        true => instruction.memory_size(),
        false => memory.memory_size(),
    };
    let bytes = u32::try_from(whole.size()).unwrap_or(0);
    let bytes = bytes + u32::from(is(Bug::SizeOffByOne) && bytes > 0);
    if bytes == 0 {
        return Bytes::Unknown;
    }
    if memory.vsib_size() != 0 {
        return Bytes::UpTo(bytes * elements(instruction, memory));
    }
    let by_condition = matches!(memory.access(), OpAccess::CondRead | OpAccess::CondWrite)
        && !is_repeated(instruction);
    if instruction.op_mask() != Register::None || by_condition || is_masked(instruction) {
        return Bytes::UpTo(bytes);
    }
    Bytes::Exact(bytes)
}

/// The elements that a gather or scatter moves: as many as the shorter of its data and its index
/// vector holds.
fn elements(instruction: &Instruction, memory: &UsedMemory) -> u32 {
    let element = memory.memory_size().size();
    let indices = memory.index().size() / memory.vsib_size() as usize;
    let data = (0..instruction.op_count())
        .map(|operand| instruction.op_register(operand))
        .find(|register| register.is_vector_register() && *register != memory.index());
    let of_data = data.map_or(indices, |register| register.size() / element);
    u32::try_from(indices.min(of_data)).unwrap_or(64)
}

/// Instructions that move lines between the caches and the memory, but no data of the program. The
/// decoder has a read of one byte for them.
fn is_cache_control(instruction: &Instruction) -> bool {
    use Mnemonic::{Cldemote, Clflush, Clflushopt, Clwb};
    matches!(
        instruction.mnemonic(),
        Cldemote | Clflush | Clflushopt | Clwb
    )
}

/// Stores whose mask is in a vector register.
fn is_masked(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Maskmovdqu, Maskmovq, Vmaskmovdqu, Vmaskmovpd, Vmaskmovps, Vpmaskmovd, Vpmaskmovq,
    };
    matches!(
        instruction.mnemonic(),
        Maskmovq | Maskmovdqu | Vmaskmovdqu | Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq
    )
}

/// By how much an instruction, or an iteration of it, has moved a register; `None` if it has
/// overwritten the register.
fn step_behind(
    instruction: &Instruction,
    registers: &Registers,
    register: Register,
) -> Option<u64> {
    if register == Register::RSP {
        let step = instruction.stack_pointer_increment();
        return (step != 0).then_some(i64::from(step) as u64);
    }
    let is_index = matches!(register, Register::RSI | Register::RDI);
    if !instruction.is_string_instruction() || !is_index {
        return None;
    }
    let step = instruction.memory_size().size() as u64;
    Some(if registers.is_downward() {
        step.wrapping_neg()
    } else {
        step
    })
}
