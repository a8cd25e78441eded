//! Goal: sizes of memory operands are right for every instruction that two decoders know. Method:
//! random encodings, seeded, of all maps and prefixes, compared with Capstone's; rows in which
//! Capstone differs from Intel's manual are named here, with what the manual says.
//!
//! `PMMON_ENCODINGS` sets how many encodings both must have taken, `PMMON_SEED` where they begin.

use std::env;

use capstone::Capstone;
use capstone::arch::x86::{ArchMode, X86OperandType};
use capstone::arch::{ArchOperand, BuildsCapstone};
use iced_x86::{Decoder as Linear, DecoderOptions, Instruction, Mnemonic, OpKind};
use pmmon::decode::{Bytes, Decoder};

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// An encoding: prefixes, a map, an opcode, and a memory operand more often than not.
fn encoding(random: &mut Random) -> Vec<u8> {
    let mut code = Vec::new();
    let form = random.below(4);
    if form < 2 {
        const PREFIXES: [u8; 6] = [0x66, 0xf2, 0xf3, 0xf0, 0x67, 0x64];
        for prefix in PREFIXES {
            if random.below(5) == 0 {
                code.push(prefix);
            }
        }
        if random.below(2) == 0 {
            code.push(0x40 | random.byte() & 15);
        }
        match random.below(4) {
            0 => {}
            1 | 2 => code.push(0x0f),
            _ => code.extend([0x0f, if random.below(2) == 0 { 0x38 } else { 0x3a }]),
        }
    } else if form == 2 {
        code.extend([0xc4, 0xe0 | (1 + random.below(3)) as u8, random.byte()]);
    } else {
        let first = 0xf0 | [1, 2, 3, 5, 6][random.below(5) as usize];
        code.extend([0x62, first, random.byte() | 4, random.byte() | 8]);
    }
    code.push(random.byte());
    // A byte of operands: a register as its base three times out of four.
    code.push(random.byte() & if random.below(4) == 0 { 0xff } else { 0x3f });
    code.extend((0..10).map(|_| random.byte()));
    code.truncate(15);
    code
}

/// The explicit memory operand's size: `None` if there is none or nothing of it is accessed.
fn ours(decoder: &mut Decoder, instruction: &Instruction) -> Option<u32> {
    let has_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    if !has_memory || instruction.is_vsib() {
        return None;
    }
    let size = instruction.memory_size().size() as u32;
    let accesses = decoder.accesses(instruction);
    let explicit = accesses
        .iter()
        .find(|memory| memory.bytes.max() == Some(size))?;
    match explicit.bytes {
        Bytes::Exact(bytes) | Bytes::UpTo(bytes) => Some(bytes),
        Bytes::Unknown => None,
    }
}

/// Sizes in Intel's manual of instructions for which Capstone has others.
const MANUAL: &[(Mnemonic, &[u32])] = &[
    // A far pointer m16:16, m16:32 or m16:64.
    (Mnemonic::Call, &[4, 6, 10]),
    (Mnemonic::Jmp, &[4, 6, 10]),
    (Mnemonic::Lfs, &[4, 6, 10]),
    (Mnemonic::Lgs, &[4, 6, 10]),
    (Mnemonic::Lss, &[4, 6, 10]),
    // A token of a shadow stack.
    (Mnemonic::Clrssbsy, &[8]),
    (Mnemonic::Rstorssp, &[8]),
    // The state of the FPU, by operand size.
    (Mnemonic::Fldenv, &[14, 28]),
    (Mnemonic::Fnstenv, &[14, 28]),
    (Mnemonic::Fnsave, &[94, 108]),
    (Mnemonic::Frstor, &[94, 108]),
    (Mnemonic::Fxrstor, &[512]),
    (Mnemonic::Fxrstor64, &[512]),
    (Mnemonic::Fxsave, &[512]),
    (Mnemonic::Fxsave64, &[512]),
    // A scalar.
    (Mnemonic::Comisd, &[8]),
    // m64bcst.
    (Mnemonic::Vgf2p8affineinvqb, &[8]),
    (Mnemonic::Vgf2p8affineqb, &[8]),
];

/// Encodings with a second prefix that changes the operand's size and that no assembler makes:
/// Capstone takes the first for it, the manual lets REX.W win, then 66.
fn has_redundant_prefixes(code: &[u8]) -> bool {
    let end = code
        .iter()
        .position(|byte| !matches!(byte, 0x40..0x50 | 0x64 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3))
        .unwrap_or(code.len());
    let prefixes = &code[..end];
    let is_wide = prefixes
        .last()
        .is_some_and(|rex| (0x48..0x50).contains(rex));
    let has = |byte| prefixes.contains(&byte);
    let kinds = [has(0x66), has(0xf2) || has(0xf3), is_wide];
    kinds.into_iter().filter(|kind| *kind).count() > 1
}

/// The explicit memory operand's size by Capstone, if it took as many bytes for the instruction.
fn theirs(capstone: &Capstone, code: &[u8], length: usize) -> Option<u32> {
    let all = capstone.disasm_count(code, 0x1000, 1).ok()?;
    let other = all.iter().next()?;
    if other.bytes().len() != length {
        return None;
    }
    let detail = capstone.insn_detail(other).expect("details");
    detail
        .arch_detail()
        .operands()
        .into_iter()
        .find_map(|operand| {
            let ArchOperand::X86Operand(operand) = operand;
            let is_memory = matches!(operand.op_type, X86OperandType::Mem(_));
            is_memory.then_some(u32::from(operand.size))
        })
}

/// Compares until both have taken as many encodings; says where they differ without a reason.
fn compare(wanted: u64, seed: u64) -> Vec<String> {
    let capstone = Capstone::new()
        .x86()
        .mode(ArchMode::Mode64)
        .detail(true)
        .build()
        .expect("Capstone");
    let mut random = Random(seed);
    let mut decoder = Decoder::default();
    let mut compared = 0;
    let mut differ = Vec::new();
    while compared < wanted {
        let code = encoding(&mut random);
        let instruction = Linear::with_ip(64, &code, 0x1000, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            continue;
        }
        let Some(bytes) = ours(&mut decoder, &instruction) else {
            continue;
        };
        let Some(theirs) = theirs(&capstone, &code, instruction.len()) else {
            continue;
        };
        compared += 1;
        let mnemonic = instruction.mnemonic();
        let is_by_manual = MANUAL
            .iter()
            .any(|(known, sizes)| *known == mnemonic && sizes.contains(&bytes));
        if theirs != bytes && !is_by_manual && !has_redundant_prefixes(&code) {
            let name = instruction.code();
            differ.push(format!("{name:?} {code:02x?}: {bytes}, Capstone {theirs}"));
        }
    }
    differ
}

#[test]
fn two_decoders_agree() {
    let wanted = number("PMMON_ENCODINGS", 20_000);
    let seed = number("PMMON_SEED", 1);
    println!("PMMON_SEED={seed} PMMON_ENCODINGS={wanted}");
    let differ = compare(wanted, seed);
    println!("{wanted} encodings by both, {} differ", differ.len());
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
