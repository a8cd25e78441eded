//! A thread's registers at a sample.

use iced_x86::Register;

/// The general registers, in the order of their numbers in instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    pub general: [u64; 16],
    /// RIP.
    pub ip: u64,
    /// RFLAGS.
    pub flags: u64,
}

impl Registers {
    /// The mask of registers that samples must have: AX to SP, IP, FLAGS, R8 to R15
    /// (`asm/perf_regs.h`).
    pub const PERF_MASK: u64 = 0xff_03ff;

    /// Takes the registers of a sample with [`PERF_MASK`](Self::PERF_MASK), in ascending order of
    /// their bits. `None` if there are not as many as the mask says.
    #[must_use]
    pub fn from_perf(values: &[u64]) -> Option<Self> {
        let values: &[u64; 18] = values.try_into().ok()?;
        let [ax, bx, cx, dx, si, di, bp, sp, ip, flags, high @ ..] = *values;
        let mut general = [0; 16];
        general[..8].copy_from_slice(&[ax, cx, dx, bx, sp, bp, si, di]);
        general[8..].copy_from_slice(&high);
        Some(Self { general, ip, flags })
    }

    /// The value of a general register of any width. Bases of segments are 0, but for FS and GS,
    /// which samples do not have.
    #[must_use]
    pub fn value(&self, register: Register) -> Option<u64> {
        use Register::{CS, DS, EIP, ES, RIP, SS};
        match register {
            ES | CS | SS | DS => return Some(0),
            RIP | EIP => return Some(self.ip),
            _ => {}
        }
        if !register.is_gpr() {
            return None;
        }
        let number = register.full_register().number();
        let whole = *self.general.get(number)?;
        match register.size() {
            8 => Some(whole),
            4 => Some(whole & 0xffff_ffff),
            2 => Some(whole & 0xffff),
            _ => None,
        }
    }

    /// String instructions count downward.
    #[must_use]
    pub fn is_downward(&self) -> bool {
        self.flags & (1 << 10) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each register of a sample lands at its number. Method: values that tell their place.
    #[test]
    fn registers_of_a_sample_have_their_places() {
        assert_eq!(Registers::PERF_MASK.count_ones(), 18);
        let values: Vec<u64> = (100..118).collect();
        let registers = Registers::from_perf(&values).expect("as many as the mask says");
        assert_eq!(registers.value(Register::RBX), Some(101));
        assert_eq!(registers.value(Register::RCX), Some(102));
        assert_eq!(registers.value(Register::RSP), Some(107));
        assert_eq!(registers.value(Register::R15), Some(117));
        assert_eq!((registers.ip, registers.flags), (108, 109));
        assert_eq!(registers.value(Register::FS), None);
        assert_eq!(registers.value(Register::XMM0), None);
        assert!(Registers::from_perf(&values[1..]).is_none());
    }
}
