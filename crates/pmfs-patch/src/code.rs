//! The text, decoded: linearly from every place where code is known to begin, up to the next such
//! place. Bytes are never searched for a pattern: 0f 05 inside of an immediate is no system call.

use std::ops::Range;

use iced_x86::{Code as Mnemonic, Decoder, DecoderOptions, Instruction};

/// All instructions, by address.
pub(crate) struct Code {
    pub(crate) instructions: Vec<Instruction>,
    /// Bytes that are no instruction, or would run into the next known beginning: their
    /// ranges, by address.
    pub(crate) undecoded: Vec<Range<u64>>,
}

impl Code {
    /// `bytes` stand at `vaddr`; `sections` are the ranges of code in them; `starts`
    /// are sorted, and those outside of a section are ignored.
    pub(crate) fn decode(
        bytes: &[u8],
        vaddr: u64,
        sections: &[Range<u64>],
        starts: &[u64],
    ) -> Self {
        let mut code = Code {
            instructions: Vec::with_capacity(bytes.len() / 4),
            undecoded: Vec::new(),
        };
        for section in sections {
            let first = starts.partition_point(|start| *start <= section.start);
            let behind = starts.partition_point(|start| *start < section.end);
            let mut from = section.start;
            let inside = starts.get(first..behind).unwrap_or(&[]);
            for end in inside.iter().copied().chain([section.end]) {
                let part = &bytes[(from - vaddr) as usize..(end - vaddr) as usize];
                code.decode_run(part, from);
                from = end;
            }
        }
        code
    }

    fn decode_run(&mut self, bytes: &[u8], vaddr: u64) {
        let mut decoder = Decoder::with_ip(64, bytes, vaddr, DecoderOptions::NONE);
        while decoder.can_decode() {
            let before = decoder.ip();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                self.undecoded.push(before..decoder.ip());
            } else {
                self.instructions.push(instruction);
            }
        }
    }

    pub(crate) fn undecoded_bytes(&self) -> u64 {
        self.undecoded
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    /// Returns whether every byte of a range is part of an instruction.
    pub(crate) fn is_decoded(&self, range: &Range<u64>) -> bool {
        let at = self
            .undecoded
            .partition_point(|undecoded| undecoded.end <= range.start);
        let next = self.undecoded.get(at);
        next.is_none_or(|undecoded| undecoded.start >= range.end)
    }

    /// Indices of the `syscall` instructions.
    pub(crate) fn sites(&self) -> impl Iterator<Item = usize> + '_ {
        let instructions = self.instructions.iter().enumerate();
        instructions
            .filter(|(_, instruction)| instruction.code() == Mnemonic::Syscall)
            .map(|(at, _)| at)
    }

    /// Index of the instruction that begins at an address.
    #[cfg(test)]
    pub(crate) fn index_of(&self, address: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&address, Instruction::ip)
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of `syscall` in an immediate are none; the same bytes behind it are one.
    #[test]
    fn a_pattern_in_an_immediate_is_no_site() {
        let bytes = [0xb8, 0x0f, 0x05, 0x0f, 0x05, 0x0f, 0x05, 0xc3];
        let code = Code::decode(&bytes, 0x1000, std::slice::from_ref(&(0x1000..0x1008)), &[]);
        let sites: Vec<u64> = code.sites().map(|at| code.instructions[at].ip()).collect();
        assert_eq!(sites, [0x1005]);
        assert_eq!(code.undecoded_bytes(), 0);
        assert_eq!(code.index_of(0x1005), Some(1));
    }

    /// A known beginning ends the run before it: the instruction that would span it is
    /// given up and counted, and decoding goes on at the beginning.
    #[test]
    fn a_beginning_wins_over_what_runs_into_it() {
        // mov eax, imm32, of which only two bytes are left; then syscall.
        let bytes = [0x90, 0xb8, 0x01, 0x0f, 0x05, 0xc3];
        let code = Code::decode(
            &bytes,
            0x1000,
            std::slice::from_ref(&(0x1000..0x1006)),
            &[0x1003],
        );
        let ips: Vec<u64> = code.instructions.iter().map(Instruction::ip).collect();
        assert_eq!(ips, [0x1000, 0x1003, 0x1005]);
        assert_eq!(code.undecoded_bytes(), 2);
        assert!(code.is_decoded(&(0x1000..0x1001)));
        assert!(!code.is_decoded(&(0x1000..0x1002)));
        assert!(!code.is_decoded(&(0x1002..0x1006)));
        assert!(code.is_decoded(&(0x1003..0x1006)));
    }
}
