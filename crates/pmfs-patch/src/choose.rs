//! The choice of the bytes to overwrite at a site: at least the five bytes of a jump, as whole
//! instructions around the `syscall`, those before it preferred.
//!
//! Instructions are moved into the stub only if the program can't tell:
//! - nothing branches to an overwritten byte but the first, where the jump stands;
//! - each falls through to the next; only the last may branch, directly;
//! - the stack pointer is not changed, and the unwinder's rules are the same wherever a
//!   program counter in the stub may be: up to the `syscall` as at the jump, behind it
//!   as behind the `syscall`;
//! - no second system call is among them.

use std::fmt;

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

use crate::addresses::Addresses;

/// Bytes of `jmp rel32`.
pub(crate) const JUMP_BYTES: u64 = 5;
/// Bytes of `syscall` without prefixes: what the hook steps over.
const SYSCALL_BYTES: usize = 2;

/// Reasons for which a `syscall` was left in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A return from a signal handler; unwinders and debuggers know these bytes.
    SignalReturn,
    /// A `syscall` with prefixes.
    Prefixed,
    /// Neither side of it has room for a jump.
    NoRoom {
        /// The obstacle to the instructions before it.
        before: Obstacle,
        /// The obstacle to those after it.
        after: Obstacle,
    },
    /// The function around it has bytes that are no instruction: what else was read of
    /// it may be wrong.
    DataInCode,
    /// The instructions don't fit into a stub, or can't be encoded there.
    NotMovable,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::SignalReturn => out.write_str("returns from a signal handler"),
            Reason::Prefixed => out.write_str("has prefixes"),
            Reason::NoRoom { before, after } => {
                write!(out, "no room: before it {before}, behind it {after}")
            }
            Reason::DataInCode => out.write_str("its function has data between the instructions"),
            Reason::NotMovable => out.write_str("what stands around it can't be moved"),
        }
    }
}

/// Reasons for which an instruction beside a site is not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Something may branch into the bytes.
    Target,
    /// A call, return, jump or trap.
    Flow,
    /// A change of the stack pointer.
    Stack,
    /// The unwinder's rules change.
    Unwind,
    /// Another system call, or bytes that belong to its jump.
    Site,
    /// No instruction follows directly, or none that is known.
    Gap,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Obstacle::Target => "something may branch there",
            Obstacle::Flow => "is a call, return, jump or trap",
            Obstacle::Stack => "the stack pointer changes",
            Obstacle::Unwind => "the unwinder's rules change",
            Obstacle::Site => "is another system call",
            Obstacle::Gap => "is no known code",
        })
    }
}

/// The overwritten instructions: `before` instructions, the `syscall`, `after` instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) before: usize,
    pub(crate) after: usize,
}

/// The facts for the choice.
pub(crate) struct Surroundings<'a> {
    pub(crate) instructions: &'a [Instruction],
    pub(crate) targets: &'a Addresses,
    /// Addresses where what the unwinder does changes, sorted.
    pub(crate) rows: &'a [u64],
    /// All bytes below belong to an earlier site's jump.
    pub(crate) floor: u64,
}

impl Surroundings<'_> {
    /// For the `syscall` at index `site`.
    pub(crate) fn choose(&self, site: usize) -> Result<Choice, Reason> {
        let syscall = &self.instructions[site];
        if syscall.len() != SYSCALL_BYTES {
            return Err(Reason::Prefixed);
        }
        let needed = JUMP_BYTES - syscall.len() as u64;
        let (befores, against_before) = self.movable_before(site, needed);
        let (afters, against_after) = self.movable_after(site, needed);
        let enough = |list: &[u64]| list.iter().position(|bytes| *bytes >= needed);
        if let Some(at) = enough(&befores) {
            return Ok(Choice {
                before: at + 1,
                after: 0,
            });
        }
        if let Some(at) = enough(&afters) {
            return Ok(Choice {
                before: 0,
                after: at + 1,
            });
        }
        if let Some(before) = befores.last()
            && let Some(at) = afters.iter().position(|after| before + after >= needed)
        {
            return Ok(Choice {
                before: befores.len(),
                after: at + 1,
            });
        }
        Err(Reason::NoRoom {
            before: against_before,
            after: against_after,
        })
    }

    /// The lengths in bytes of one, two, ... instructions before the site, as far as they may be
    /// moved and are needed, and the obstacle that ended the list.
    fn movable_before(&self, site: usize, needed: u64) -> (Vec<u64>, Obstacle) {
        let site_ip = self.instructions[site].ip();
        let mut found = Vec::new();
        let mut behind = site;
        while found.last().is_none_or(|bytes| *bytes < needed) {
            // The instruction behind would become an inner byte of the range.
            if self.targets.contains(self.instructions[behind].ip()) {
                return (found, Obstacle::Target);
            }
            let Some(at) = behind.checked_sub(1) else {
                return (found, Obstacle::Gap);
            };
            let one = &self.instructions[at];
            if one.next_ip() != self.instructions[behind].ip() {
                return (found, Obstacle::Gap);
            }
            if one.ip() < self.floor {
                return (found, Obstacle::Site);
            }
            if let Some(obstacle) = self.obstacle(one, false) {
                return (found, obstacle);
            }
            if self.has_row(one.ip() + 1, site_ip) {
                return (found, Obstacle::Unwind);
            }
            if (one.ip() + 1..one.next_ip()).any(|inner| self.targets.contains(inner)) {
                return (found, Obstacle::Target);
            }
            found.push(site_ip - one.ip());
            behind = at;
        }
        (found, Obstacle::Gap)
    }

    /// The same for the instructions behind the site.
    fn movable_after(&self, site: usize, needed: u64) -> (Vec<u64>, Obstacle) {
        let resume = self.instructions[site].next_ip();
        let mut found = Vec::new();
        let mut end = resume;
        for one in &self.instructions[site + 1..] {
            if found.last().is_some_and(|bytes| *bytes >= needed) {
                break;
            }
            if one.ip() != end {
                return (found, Obstacle::Gap);
            }
            if (one.ip()..one.next_ip()).any(|inner| self.targets.contains(inner)) {
                return (found, Obstacle::Target);
            }
            if let Some(obstacle) = self.obstacle(one, true) {
                return (found, obstacle);
            }
            if self.has_row(resume + 1, one.next_ip()) {
                return (found, Obstacle::Unwind);
            }
            end = one.next_ip();
            found.push(end - resume);
            if one.flow_control() != FlowControl::Next {
                return (found, Obstacle::Flow);
            }
        }
        (found, Obstacle::Gap)
    }

    /// Returns whether the unwinder's rules change at an address of this range, both ends included.
    fn has_row(&self, first: u64, last: u64) -> bool {
        let at = self.rows.partition_point(|row| *row < first);
        self.rows.get(at).is_some_and(|row| *row <= last)
    }

    fn obstacle(&self, one: &Instruction, may_branch: bool) -> Option<Obstacle> {
        if one.code() == Code::Syscall {
            return Some(Obstacle::Site);
        }
        // Loops and jcxz can't reach far, and rcx is not the program's in a stub.
        let branches = one.is_jcc_short_or_near() || one.is_jmp_short_or_near();
        if one.flow_control() != FlowControl::Next && !(may_branch && branches) {
            return Some(Obstacle::Flow);
        }
        // An indirect branch may want to find it here.
        if matches!(one.code(), Code::Endbr64 | Code::Endbr32) {
            return Some(Obstacle::Target);
        }
        changes(one, Register::RSP).then_some(Obstacle::Stack)
    }

    /// The system call number, if the code of the same basic block before the site says it.
    pub(crate) fn number(&self, site: usize) -> Option<i32> {
        let mut behind = site;
        loop {
            if self.targets.contains(self.instructions[behind].ip()) {
                return None;
            }
            let at = behind.checked_sub(1)?;
            let one = &self.instructions[at];
            let falls_through = matches!(
                one.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            );
            if !falls_through || one.next_ip() != self.instructions[behind].ip() {
                return None;
            }
            if changes(one, Register::RAX) {
                return loaded_number(one);
            }
            behind = at;
        }
    }
}

/// Returns whether an instruction may write any part of a 64-bit register.
fn changes(instruction: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    info.used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
    })
}

/// The value that `mov` of an immediate or `xor` with itself puts into eax.
fn loaded_number(instruction: &Instruction) -> Option<i32> {
    match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32 | Code::Mov_r64_imm64
            if instruction.op0_register().full_register() == Register::RAX =>
        {
            i32::try_from(instruction.immediate(1)).ok()
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Xor_r64_rm64 | Code::Xor_rm64_r64
            if instruction.op0_register() == instruction.op1_register() =>
        {
            Some(0)
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
