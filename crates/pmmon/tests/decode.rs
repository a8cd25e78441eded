//! Goal: the size, the direction and the address of each kind of access are right. Method: a table
//! of encodings, with what Intel's manual says of each.

use iced_x86::{Decoder as Linear, DecoderOptions, Instruction};
use pmmon::Access::{self, Read, Write};
use pmmon::decode::Bytes::{self, Exact, Unknown, UpTo};
use pmmon::decode::{Decoder, Hit, Registers, Sites, When, ending};

fn instruction(code: &[u8]) -> Instruction {
    let instruction = Linear::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
    assert_eq!(
        instruction.len(),
        code.len(),
        "{code:02x?} is one instruction"
    );
    instruction
}

type Row = (&'static str, &'static [u8], &'static [(Access, Bytes)]);

const PLAIN: &[Row] = &[
    ("mov [rdi], al", &[0x88, 0x07], &[(Write, Exact(1))]),
    ("mov [rdi], ax", &[0x66, 0x89, 0x07], &[(Write, Exact(2))]),
    ("mov [rdi], eax", &[0x89, 0x07], &[(Write, Exact(4))]),
    ("mov [rdi], rax", &[0x48, 0x89, 0x07], &[(Write, Exact(8))]),
    ("mov rax, [rdi]", &[0x48, 0x8b, 0x07], &[(Read, Exact(8))]),
    (
        "movnti [rdi], eax",
        &[0x0f, 0xc3, 0x07],
        &[(Write, Exact(4))],
    ),
    (
        "movntdq [rdi], xmm0",
        &[0x66, 0x0f, 0xe7, 0x07],
        &[(Write, Exact(16))],
    ),
    (
        "movups [rdi], xmm0",
        &[0x0f, 0x11, 0x07],
        &[(Write, Exact(16))],
    ),
    (
        "vmovups [rdi], ymm0",
        &[0xc5, 0xfc, 0x11, 0x07],
        &[(Write, Exact(32))],
    ),
    (
        "vmovntdq [rdi], zmm0",
        &[0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x07],
        &[(Write, Exact(64))],
    ),
    ("push rax", &[0x50], &[(Write, Exact(8))]),
    (
        "movdir64b rax, [rdi]",
        &[0x66, 0x0f, 0x38, 0xf8, 0x07],
        &[(Read, Exact(64)), (Write, Exact(64))],
    ),
];

const ATOMIC: &[Row] = &[
    (
        "add [rdi], eax",
        &[0x01, 0x07],
        &[(Read, Exact(4)), (Write, Exact(4))],
    ),
    (
        "lock inc qword [rdi]",
        &[0xf0, 0x48, 0xff, 0x07],
        &[(Read, Exact(8)), (Write, Exact(8))],
    ),
    (
        "xchg [rdi], rax",
        &[0x48, 0x87, 0x07],
        &[(Read, Exact(8)), (Write, Exact(8))],
    ),
    (
        "lock cmpxchg [rdi], rcx",
        &[0xf0, 0x48, 0x0f, 0xb1, 0x0f],
        &[(Read, Exact(8)), (Write, Exact(8))],
    ),
    (
        "lock cmpxchg16b [rdi]",
        &[0xf0, 0x48, 0x0f, 0xc7, 0x0f],
        &[(Read, Exact(16)), (Write, Exact(16))],
    ),
];

const NONE: &[Row] = &[
    ("lea rax, [rdi]", &[0x48, 0x8d, 0x07], &[]),
    ("clwb [rdi]", &[0x66, 0x0f, 0xae, 0x37], &[]),
    ("clflushopt [rdi]", &[0x66, 0x0f, 0xae, 0x3f], &[]),
    ("clflush [rdi]", &[0x0f, 0xae, 0x3f], &[]),
    ("prefetcht0 [rdi]", &[0x0f, 0x18, 0x0f], &[]),
    ("prefetchw [rdi]", &[0x0f, 0x0d, 0x0f], &[]),
    ("nop [rdi]", &[0x0f, 0x1f, 0x07], &[]),
    ("sfence", &[0x0f, 0xae, 0xf8], &[]),
];

const PARTIAL: &[Row] = &[
    (
        "rep movsb",
        &[0xf3, 0xa4],
        &[(Read, Exact(1)), (Write, Exact(1))],
    ),
    ("rep stosq", &[0xf3, 0x48, 0xab], &[(Write, Exact(8))]),
    (
        "maskmovdqu xmm0, xmm1",
        &[0x66, 0x0f, 0xf7, 0xc1],
        &[(Write, UpTo(16))],
    ),
    (
        "vmaskmovps [rdi], ymm1, ymm0",
        &[0xc4, 0xe2, 0x75, 0x2e, 0x07],
        &[(Write, UpTo(32))],
    ),
    (
        "vmovdqu32 [rdi]{k1}, zmm0",
        &[0x62, 0xf1, 0x7e, 0x49, 0x7f, 0x07],
        &[(Write, UpTo(64))],
    ),
    (
        "vpgatherdd zmm0{k1}, [rdi+zmm1]",
        &[0x62, 0xf2, 0x7d, 0x49, 0x90, 0x04, 0x0f],
        &[(Read, UpTo(64))],
    ),
    (
        "vpscatterqd [rdi+zmm1]{k1}, ymm0",
        &[0x62, 0xf2, 0x7d, 0x49, 0xa1, 0x04, 0x0f],
        &[(Write, UpTo(32))],
    ),
    (
        "vaddps zmm0, zmm0, [rdi]{1to16}",
        &[0x62, 0xf1, 0x7c, 0x58, 0x58, 0x07],
        &[(Read, Exact(4))],
    ),
    (
        "xsave [rdi]",
        &[0x0f, 0xae, 0x27],
        &[(Read, Unknown), (Write, Unknown)],
    ),
];

#[test]
pub(crate) fn sizes_are_those_of_the_manual() {
    let mut decoder = Decoder::default();
    for (text, code, expected) in [PLAIN, ATOMIC, NONE, PARTIAL].concat() {
        let mut found: Vec<(Access, Bytes)> = decoder
            .accesses(&instruction(code))
            .iter()
            .map(|memory| (memory.access, memory.bytes))
            .collect();
        found.sort_by_key(|(access, _)| *access);
        assert_eq!(found, expected, "{text}");
    }
}

fn registers() -> Registers {
    let mut registers = Registers::default();
    for (number, value) in registers.general.iter_mut().enumerate() {
        *value = 0x10_0000 * (number as u64 + 1);
    }
    registers
}

/// Goal: an address is that which the instruction used, though registers are those behind it.
#[test]
fn addresses_are_those_of_before() {
    let behind = |code: &[u8]| {
        Decoder::default()
            .accesses_at(&instruction(code), &registers(), When::Behind)
            .iter()
            .max_by_key(|memory| memory.access)
            .and_then(|memory| memory.address)
    };
    // mov [rdi+rcx*4+0x10], eax
    assert_eq!(
        behind(&[0x89, 0x44, 0x8f, 0x10]),
        Some(0x80_0000 + 0x80_0000 + 0x10)
    );
    // mov [rip+0x10], eax
    assert_eq!(behind(&[0x89, 0x05, 0x10, 0, 0, 0]), Some(0x1016));
    // push rax: RSP is already lower.
    assert_eq!(behind(&[0x50]), Some(0x50_0000));
    // stosq, movsb: RDI is already higher.
    assert_eq!(behind(&[0x48, 0xab]), Some(0x80_0000 - 8));
    assert_eq!(behind(&[0xa4]), Some(0x80_0000 - 1));
    // mov rdi, [rdi]: the base is gone.
    assert_eq!(behind(&[0x48, 0x8b, 0x3f]), None);
    // mov fs:[rdi], eax: samples have no base of FS.
    assert_eq!(behind(&[0x64, 0x89, 0x07]), None);
    // mov [edi], eax with high bits set: they do not take part.
    let mut high = registers();
    high.general[7] |= 1 << 40;
    let found =
        Decoder::default().accesses_at(&instruction(&[0x67, 0x89, 0x07]), &high, When::Before);
    assert_eq!(found[0].address, Some(0x80_0000));
    // stosq downward.
    high.flags = 1 << 10;
    high.general[7] = 0x1000;
    let found = Decoder::default().accesses_at(&instruction(&[0x48, 0xab]), &high, When::Behind);
    assert_eq!(found[0].address, Some(0x1008));
}

/// Code as compilers make it: moves, stores, a call, a jump, immediates that look like opcodes.
const CODE: &[u8] = &[
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x89, 0x7d, 0xec, 0x48, 0x89, 0x75, 0xe0, 0xb8,
    0x89, 0x07, 0x48, 0x89, 0xe8, 0x00, 0x00, 0x00, 0x00, 0xc7, 0x45, 0xfc, 0x48, 0x89, 0x07, 0x90,
    0x8b, 0x45, 0xfc, 0x01, 0xd0, 0x74, 0x05, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x66, 0x0f, 0xe7, 0x07,
    0x48, 0x89, 0x44, 0xcf, 0x08, 0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x07, 0xf3, 0x48, 0xab, 0xc3, 0x90,
];

/// Goal: the instruction that ends at an address is found. Method: each boundary of code whose
/// boundaries are known.
#[test]
fn the_majority_has_the_real_boundary() {
    let long: Vec<u8> = CODE.iter().chain(CODE).chain(CODE).copied().collect();
    let mut linear = Linear::with_ip(64, &long, 0, DecoderOptions::NONE);
    let mut seen = 0;
    while linear.can_decode() {
        let real = linear.decode();
        assert!(!real.is_invalid());
        let end = real.next_ip();
        if end > 71 {
            let found = ending(&long[(end - 71) as usize..end as usize], end);
            assert_eq!(found[0].instruction.ip(), real.ip(), "ends at {end}");
            assert_eq!(found[0].instruction.len(), real.len());
            seen += 1;
        }
    }
    assert!(seen > 20);
    assert!(ending(&[], 0).is_empty());
    assert!(ending(&[0x06; 80], 80).is_empty(), "06 is no instruction");
    assert_eq!(ending(&[0x89, 0x07], 2)[0].instruction.ip(), 0);
}

/// Goal: a hit finds its site; code that changes is seen after a second. Method: hits at the end of
/// stores, within a repetition, and at another's code.
#[test]
fn a_hit_finds_its_site() {
    let base = 0x40_0000;
    let mut code = vec![0x90; 100];
    code[90..93].copy_from_slice(&[0x48, 0x89, 0x07]);
    code[93..96].copy_from_slice(&[0xf3, 0x48, 0xab]);
    let mut registers = registers();
    registers.general[7] = 0x7000;
    let read_of = |code: &[u8], from: u64, to: &mut [u8]| {
        let at = (from - base) as usize;
        code.get(at..at + to.len()).is_some_and(|bytes| {
            to.copy_from_slice(bytes);
            true
        })
    };
    let mut sites = Sites::default();
    let hit = |ip, word| Hit {
        ip,
        word,
        registers: &registers,
        reads_trap: false,
    };
    let found = sites
        .resolve(&hit(base + 93, 0x7000), 0, |from, to| {
            read_of(&code, from, to)
        })
        .expect("the store");
    assert_eq!(found.ip, base + 90);
    assert_eq!(found.accesses[0].bytes, Exact(8));
    let found = sites.resolve(&hit(base + 93, 0x6ff8), 0, |from, to| {
        read_of(&code, from, to)
    });
    assert_eq!(found.expect("an iteration has ended").ip, base + 93);
    let found = sites.resolve(&hit(base + 93, 0x9000), 0, |from, to| {
        read_of(&code, from, to)
    });
    assert_eq!(found, None, "no address covers the word");
    code[90..93].copy_from_slice(&[0x90, 0x89, 0x07]);
    let bytes_at = |sites: &mut Sites, now| {
        let found = sites.resolve(&hit(base + 93, 0x7000), now, |from, to| {
            read_of(&code, from, to)
        });
        found.expect("the store").accesses[0].bytes
    };
    assert_eq!(bytes_at(&mut sites, 999_999_999), Exact(8));
    assert_eq!(bytes_at(&mut sites, 1_000_000_000), Exact(4));
}
