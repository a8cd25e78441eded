//! Goal: the image of the libc that this very test runs on is right, byte by byte. Method: the file
//! is read as the preloaded library will read it, and held against the original, decoded again.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use iced_x86::{Code as Mnemonic, Decoder, DecoderOptions, FlowControl, Register};

use super::*;

/// The path of the libc that the dynamic linker mapped into this process.
pub(crate) fn libc_path() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("this process's mappings");
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| path.ends_with("/libc.so.6"));
    PathBuf::from(path.expect("a process that uses glibc"))
}

/// The image, taken apart; the original beside it.
struct Subject<'a> {
    library: Library<'a>,
    functions: Vec<Function>,
    code: Code,
    header: HeaderRaw,
    text: Vec<u8>,
    stubs: Vec<u8>,
    rows: Vec<SiteRaw>,
    report: Report,
    is_glibc_2_36: bool,
}

fn part(bytes: &[u8], at: u64, len: u64) -> Vec<u8> {
    bytes[at as usize..(at + len) as usize].to_vec()
}

fn with_libc(check: impl FnOnce(&Subject)) {
    let file = fs::read(libc_path()).expect("libc");
    let begun = Instant::now();
    let PatchedText { bytes, report } = PatchedText::make(&file).expect("an image");
    println!("made in {:?}, {} bytes", begun.elapsed(), bytes.len());
    let library = Library::parse(&file).expect("libc");
    let functions = functions(&library).expect("its functions");
    let header = HeaderRaw::read_from_bytes(&bytes[..size_of::<HeaderRaw>()]).expect("a header");
    let table = part(&bytes, header.table_offset, header.table_len);
    let rows = table.chunks_exact(size_of::<SiteRaw>());
    check(&Subject {
        code: decode(&library, &functions),
        text: part(&bytes, header.text_offset, header.text_len),
        stubs: part(&bytes, header.stubs_offset, header.stubs_len),
        rows: rows
            .map(|row| SiteRaw::read_from_bytes(row).expect("a row"))
            .collect(),
        header,
        functions,
        library,
        report,
        is_glibc_2_36: file.windows(21).any(|at| at == b" release version 2.36"),
    });
}

impl Subject<'_> {
    fn original(&self, range: Range<u32>) -> Vec<Instruction> {
        let first = self.code.index_of(u64::from(range.start));
        let first = first.expect("an instruction begins there");
        self.code.instructions[first..]
            .iter()
            .take_while(|one| one.ip() < u64::from(range.end))
            .copied()
            .collect()
    }

    /// The exported function around a site, none of whose instructions is said to have
    /// a vector register.
    fn without_vectors(&self, site: u32) -> String {
        let around = |symbol: &&crate::elf::Symbol| {
            let end = symbol.address + symbol.len;
            (symbol.address..end).contains(&u64::from(site))
        };
        let symbol = self.library.symbols.iter().find(around).expect("exported");
        let end = symbol.address + symbol.len;
        for one in self.original(symbol.address as u32..end as u32) {
            let named = (0..one.op_count()).map(|operand| one.op_register(operand));
            let vectors = named.filter(|register| register.is_vector_register());
            assert_eq!(vectors.count(), 0, "{:#x} {one:?}", one.ip());
        }
        let name = String::from_utf8_lossy(symbol.name);
        name.trim_start_matches('_').into()
    }

    fn stub_end(&self, at: usize) -> usize {
        let next = self.rows.get(at + 1);
        next.map_or(self.stubs.len(), |next| next.stub as usize)
    }
}

/// All but a few are patched, what is not is named, and no `syscall` is lost between the two.
#[test]
fn counts() {
    with_libc(|subject| {
        let Report {
            patched, skipped, ..
        } = &subject.report;
        println!("patched {patched}, skipped {}", skipped.len());
        for skipped in skipped {
            let function = skipped.function.as_deref().unwrap_or("no symbol");
            println!("  {:#x} in {function}: {}", skipped.site, skipped.reason);
        }
        let count = |kind| subject.rows.iter().filter(|row| row.kind == kind).count();
        let (before, after) = (count(KIND_BEFORE), count(KIND_AFTER));
        let both = count(KIND_BEFORE | KIND_AFTER);
        let numbered = subject.rows.iter().filter(|row| row.nr >= 0).count();
        println!("by what stood before {before}, behind {after}, both {both}");
        println!("number known {numbered}");
        println!("not decoded {} bytes", subject.report.undecoded_bytes);
        println!("stubs {} bytes", subject.stubs.len());
        assert_eq!(before + after + both, *patched);
        assert_eq!(patched + skipped.len(), subject.code.sites().count());
        assert!(skipped.len() <= 3);
        let returns = skipped
            .iter()
            .filter(|skipped| skipped.reason == Reason::SignalReturn);
        assert_eq!(returns.count(), 1, "rt_sigreturn");
        assert!(subject.rows.iter().all(|row| row.nr != NR_RT_SIGRETURN));
        assert_eq!(subject.report.undecoded_bytes, 0);
        if subject.is_glibc_2_36 {
            assert!(*patched >= 523, "of 526");
        }
    });
}

#[test]
fn the_header_describes_the_file() {
    let file = fs::read(libc_path()).expect("libc");
    let image = PatchedText::make(&file).expect("an image");
    let library = Library::parse(&file).expect("libc");
    assert!(is_patched_text_of(&image.bytes, &library));
    with_libc(|subject| {
        let header = &subject.header;
        assert_eq!(
            (header.magic, header.version, header.reserved),
            (MAGIC, VERSION, 0)
        );
        assert_eq!(
            u64::from(header.pages) * PAGE_BYTES,
            image.bytes.len() as u64
        );
        assert_eq!(header.sites as usize, subject.report.patched);
        assert_eq!(header.skipped as usize, subject.report.skipped.len());
        assert_eq!(header.text_vaddr % PAGE_BYTES, 0);
        assert_eq!(header.entry_slot, header.stubs_len);
        for len in [header.text_len, header.stubs_len, header.table_offset] {
            assert_eq!(len % PAGE_BYTES, 0);
        }
        let original = &file[header.library_offset as usize..][..header.text_len as usize];
        assert_eq!(*original, subject.library.text.bytes);
        assert_eq!(
            header.text_sha256,
            <[u8; 32]>::from(Sha256::digest(original))
        );
        let id = &header.build_id[..header.build_id_len as usize];
        assert_eq!(*id, *subject.library.build_id);
    });
}

/// The kernel's own view of this process's libc is what the header says is to be replaced.
#[test]
fn the_text_is_as_the_kernel_mapped_it() {
    let path = libc_path();
    let maps = fs::read_to_string("/proc/self/maps").expect("this process's mappings");
    with_libc(|subject| {
        let of_libc = |line: &&str| line.ends_with(path.to_str().expect("a plain path"));
        let executable = maps
            .lines()
            .filter(of_libc)
            .find(|line| line.contains(" r-xp "));
        let fields: Vec<&str> = executable.expect("its text").split_whitespace().collect();
        let hex = |digits: &str| u64::from_str_radix(digits, 16).expect("a hexadecimal number");
        let (start, end) = fields[0].split_once('-').expect("a range");
        assert_eq!(hex(end) - hex(start), subject.header.text_len);
        assert_eq!(hex(fields[2]), subject.header.library_offset);
    });
}

#[test]
fn the_table_is_sorted_and_stubs_do_not_overlap() {
    with_libc(|subject| {
        assert!(
            subject
                .rows
                .is_sorted_by(|a, b| a.site < b.site && a.stub < b.stub)
        );
        for (at, row) in subject.rows.iter().enumerate() {
            assert_eq!(row.stub % STUB_ALIGN_BYTES, 0);
            let len = subject.stub_end(at) - row.stub as usize;
            assert!(row.pass < len as u32);
            assert!(row.start_site <= row.site && row.resume_site == row.site + 2);
            assert!(row.end_site >= row.resume_site);
            assert!(u64::from(row.end_site - row.start_site) >= JUMP_BYTES);
            let next = subject.rows.get(at + 1);
            assert!(next.is_none_or(|next| next.start_site >= row.end_site));
        }
    });
}

/// At each site a jump to its stub, and int3 up to the end of what was overwritten; all
/// else is the original.
#[test]
fn only_the_sites_are_changed() {
    with_libc(|subject| {
        let mut expected = subject.library.text.bytes.clone();
        for row in &subject.rows {
            let vaddr = subject.header.text_vaddr as u32;
            let range = (row.start_site - vaddr) as usize..(row.end_site - vaddr) as usize;
            let patched = &subject.text[range.clone()];
            let from = i64::from(row.start_site) + 5;
            let distance = STUBS_VADDR + i64::from(row.stub) - from;
            assert_eq!(patched[0], 0xe9);
            assert_eq!(patched[1..5], (distance as i32).to_le_bytes());
            assert!(patched[5..].iter().all(|byte| *byte == 0xcc));
            expected[range].copy_from_slice(patched);
        }
        assert!(subject.text == expected);
    });
}

/// Each stub, decoded again: the overwritten instructions with the operands and addresses
/// that they had, the call of the hook between them, the jump back, and nothing else.
#[test]
fn stubs_do_what_was_overwritten() {
    with_libc(|subject| {
        let base = STUBS_VADDR as u64;
        let mut plains = BTreeSet::new();
        for (at, row) in subject.rows.iter().enumerate() {
            let bytes = &subject.stubs[row.stub as usize..subject.stub_end(at)];
            let stub = base.wrapping_add(u64::from(row.stub));
            let pass = stub.wrapping_add(u64::from(row.pass));
            let mut decoder = Decoder::with_ip(64, bytes, stub, DecoderOptions::NONE);
            for original in subject.original(row.start_site..row.site) {
                assert_same(&original, &decoder.decode());
            }
            let lea = decoder.decode();
            assert_eq!(lea.code(), Mnemonic::Lea_r64_m);
            assert_eq!(lea.op0_register(), Register::RCX);
            assert_eq!(lea.ip_rel_memory_address(), pass);
            let hook = decoder.decode();
            assert_eq!(hook.code(), Mnemonic::Jmp_rm64);
            let slot = hook.ip_rel_memory_address().wrapping_sub(base);
            let plain = slot.wrapping_sub(subject.header.entry_slot);
            assert!(plain == 0 || plain == 8, "{slot:#x}");
            if plain == 8 {
                plains.insert(subject.without_vectors(row.site));
            }
            assert_eq!(decoder.ip(), pass);
            assert_eq!(decoder.decode().code(), Mnemonic::Syscall);
            assert_eq!(decoder.ip(), pass.wrapping_add(2));
            for original in subject.original(row.resume_site..row.end_site) {
                assert_same(&original, &decoder.decode());
            }
            let back = decoder.decode();
            assert_eq!(back.code(), Mnemonic::Jmp_rel32_64);
            assert_eq!(back.near_branch_target(), u64::from(row.end_site));
            assert!(bytes[decoder.position()..].iter().all(|byte| *byte == 0xcc));
        }
        println!("without vector registers: {plains:?}");
        if subject.is_glibc_2_36 {
            let frequent = [
                "fstatat64",
                "lseek64",
                "pread64",
                "pwrite64",
                "read",
                "write",
            ];
            let all = |name: &&str| {
                plains.contains(*name) || plains.contains(name.trim_end_matches("64"))
            };
            assert!(frequent.iter().all(all), "{plains:?}");
        }
    });
}

/// Instructions compare by operation, registers, immediates and displacements; of rip-relative
/// ones the address counts, of branches where they lead and not in how many bytes they say so.
fn assert_same(original: &Instruction, moved: &Instruction) {
    let same = |at: &Instruction| {
        let mut same = *at;
        same.as_near_branch();
        same
    };
    assert_eq!(same(original), same(moved), "{:#x}", original.ip());
    assert_ne!(moved.memory_base(), Register::EIP, "{:#x}", original.ip());
    let stays = matches!(
        original.flow_control(),
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    assert!(stays && !original.is_stack_instruction());
}

#[test]
fn nothing_leads_into_overwritten_bytes() {
    with_libc(|subject| {
        let targets = targets(&subject.library, &subject.functions, &subject.code);
        for row in &subject.rows {
            for address in row.start_site + 1..row.end_site {
                assert!(!targets.contains(u64::from(address)), "{address:#x}");
            }
        }
    });
}

/// Each kind of target is found at all: landing pads, what relocations name, and the
/// jump tables that a compiler's dispatch (movsxd of an entry, add of the table, jmp)
/// uses, of which the first entry is looked at.
#[test]
fn hidden_targets_are_known() {
    with_libc(|subject| {
        let targets = targets(&subject.library, &subject.functions, &subject.code);
        let pads: Vec<u64> = subject
            .functions
            .iter()
            .flat_map(|function| function.landing_pads.iter().copied())
            .collect();
        let relocated = subject.library.relocated.iter().copied();
        let relocated: Vec<u64> = relocated
            .filter(|address| subject.library.is_code(*address))
            .collect();
        let mut entries = Vec::new();
        let code = &subject.code.instructions;
        for at in 40..code.len() {
            if let Some(table) = dispatch_table(&code[at - 40..=at]) {
                let bytes = subject.library.bytes_from(table).expect("a table");
                let offset = i32::from_le_bytes(*bytes.first_chunk().expect("an entry"));
                entries.push(table.wrapping_add_signed(i64::from(offset)));
            }
        }
        let counts = [pads.len(), relocated.len(), entries.len()];
        println!("landing pads, relocations, jump tables: {counts:?}");
        assert!(counts.iter().all(|count| *count > 20));
        for address in pads.iter().chain(&relocated).chain(&entries) {
            assert!(targets.contains(*address), "{address:#x}");
            assert!(subject.code.index_of(*address).is_some(), "{address:#x}");
        }
    });
}

/// An address that only a relocation names is a target.
#[test]
fn what_only_a_relocation_names_is_a_target() {
    let file = fs::read(libc_path()).expect("libc");
    let mut library = Library::parse(&file).expect("libc");
    let functions = functions(&library).expect("its functions");
    let code = decode(&library, &functions);
    let before = targets(&library, &functions, &code);
    let mut addresses = library.text.range();
    let only = addresses.find(|address| library.is_code(*address) && !before.contains(*address));
    let only = only.expect("an address that nothing leads to");
    library.relocated.push(only);
    assert!(targets(&library, &functions, &code).contains(only));
}

/// The table of `lea T, [rip+..] ... movsxd r, [T+i*4]; add r, T; jmp r`, if that is
/// how these instructions end.
fn dispatch_table(code: &[Instruction]) -> Option<u64> {
    let [before @ .., movsxd, add, jmp] = code else {
        return None;
    };
    let base = movsxd.memory_base();
    let is_dispatch = jmp.code() == Mnemonic::Jmp_rm64
        && add.mnemonic() == iced_x86::Mnemonic::Add
        && add.op1_register() == base
        && movsxd.mnemonic() == iced_x86::Mnemonic::Movsxd
        && movsxd.memory_index_scale() == 4;
    let writes = |one: &&Instruction| one.op0_register() == base;
    let lea = before.iter().rev().find(writes).filter(|_| is_dispatch)?;
    (lea.code() == Mnemonic::Lea_r64_m && lea.is_ip_rel_memory_operand())
        .then(|| lea.ip_rel_memory_address())
}

/// The unwinder's rules change where functions push and pop: rows lie behind instructions that move
/// the stack pointer, in all functions together by the thousand, and inside of their function.
#[test]
fn unwinding_rows_follow_the_stack_pointer() {
    with_libc(|subject| {
        let (mut rows, mut behind_push) = (0, 0);
        for function in &subject.functions {
            for row in &function.rows {
                let range = function.range.start..=function.range.end;
                assert!(range.contains(row), "{row:#x}");
                rows += 1;
                let index = subject.code.index_of(*row);
                let before = index.and_then(|at| subject.code.instructions.get(at.checked_sub(1)?));
                let moves = |one: &Instruction| {
                    one.is_stack_instruction() || one.op0_register() == Register::RSP
                };
                behind_push += u32::from(before.is_some_and(moves));
            }
        }
        println!("{rows} rows, {behind_push} of them behind a change of rsp");
        assert!(rows > 1000 && behind_push * 2 > rows);
    });
}

/// Two other decodings find an instruction at every site, and at both ends of what is
/// overwritten: one that starts from frame descriptions alone, and one that starts at a
/// section's first byte and never again.
#[test]
fn other_decodings_agree() {
    with_libc(|subject| {
        let starts: Vec<u64> = subject.functions.iter().map(Function::entry).collect();
        let text = &subject.library.text;
        for starts in [starts.as_slice(), &[]] {
            let code = Code::decode(&text.bytes, text.vaddr, &subject.library.code, starts);
            let sites = |code: &Code| -> BTreeSet<u64> {
                code.sites().map(|at| code.instructions[at].ip()).collect()
            };
            assert_eq!(sites(&code), sites(&subject.code));
            for row in &subject.rows {
                for address in [row.start_site, row.site, row.resume_site, row.end_site] {
                    let found = code.index_of(u64::from(address));
                    assert!(found.is_some(), "{address:#x}");
                }
            }
        }
    });
}

/// Goal: after a system call the program uses neither the flags from before it nor rcx and r11, as
/// the kernel's interface says: the hook does not keep them. Method: reads each site up to the end
/// of the basic block.
#[test]
fn nothing_lost_in_a_stub_is_used_behind_it() {
    with_libc(|subject| {
        let mut factory = iced_x86::InstructionInfoFactory::new();
        for site in subject.code.sites() {
            let mut lost = vec![Register::RCX, Register::R11];
            let mut flags_lost = true;
            for one in &subject.code.instructions[site + 1..] {
                assert!(!flags_lost || one.rflags_read() == 0, "{:#x}", one.ip());
                flags_lost &= one.rflags_modified() == 0;
                for used in factory.info(one).used_registers() {
                    use iced_x86::OpAccess::{Read, ReadWrite, Write};
                    let register = used.register().full_register();
                    let reads = matches!(used.access(), Read | ReadWrite);
                    assert!(!(reads && lost.contains(&register)), "{:#x}", one.ip());
                    if used.access() == Write {
                        lost.retain(|lost| *lost != register);
                    }
                }
                if one.flow_control() != FlowControl::Next {
                    break;
                }
            }
        }
    });
}

/// No byte of the header can be wrong, none of the rest either, and no length but the
/// right one: the image is refused.
#[test]
fn damage_is_seen() {
    let file = fs::read(libc_path()).expect("libc");
    let library = Library::parse(&file).expect("libc");
    let good = PatchedText::make(&file).expect("an image").bytes;
    let mut bytes = good.clone();
    let in_body = (PAGE_BYTES as usize..good.len()).step_by(good.len() / 20);
    for at in (0..PAGE_BYTES as usize).step_by(13).chain(in_body) {
        bytes[at] ^= 0x10;
        assert!(!is_patched_text_of(&bytes, &library), "byte {at}");
        bytes[at] ^= 0x10;
    }
    assert!(is_patched_text_of(&bytes, &library));
    for len in [0, 1, 4095, 4096, bytes.len() - 4096, bytes.len() - 1] {
        assert!(!is_patched_text_of(&bytes[..len], &library), "{len} bytes");
    }
    bytes.extend([0; 4096]);
    assert!(!is_patched_text_of(&bytes, &library), "a page more");
    // The image of another library with the same build-id.
    let mut other = file.clone();
    let header_at = library.text.file_offset as usize + 0x1000;
    other[header_at] ^= 1;
    let other = Library::parse(&other).expect("libc");
    assert!(!is_patched_text_of(&good, &other));
}

/// A byte that is no instruction, put behind a site: its function's system calls are
/// left alone, all others are patched as before.
#[test]
fn data_in_a_function_keeps_it_from_being_patched() {
    let mut file = fs::read(libc_path()).expect("libc");
    with_libc(|subject| {
        let row = subject.rows[100];
        let text = &subject.library.text;
        // push es: there is none in 64-bit code.
        file[(u64::from(row.end_site) - text.vaddr + text.file_offset) as usize] = 0x06;
        let report = PatchedText::make(&file).expect("an image").report;
        println!("{} bytes are no instruction", report.undecoded_bytes);
        assert!(report.undecoded_bytes > 0);
        let known = |site| subject.report.skipped.iter().any(|one| one.site == site);
        let mut new = report.skipped.iter().filter(|one| !known(one.site));
        assert!(new.clone().any(|one| one.site == u64::from(row.site)));
        assert!(new.all(|one| one.reason == Reason::DataInCode));
        let all = subject.report.patched + subject.report.skipped.len();
        assert_eq!(report.patched + report.skipped.len(), all);
        assert!(report.patched + 10 > subject.report.patched);
    });
}

/// rt_sigreturn is known by its number too, where no unwind table says what it is: one
/// function's number changed.
#[test]
fn the_number_of_rt_sigreturn_is_enough() {
    let mut file = fs::read(libc_path()).expect("libc");
    with_libc(|subject| {
        let text = &subject.library.text;
        let at = |address: u32| (u64::from(address) - text.vaddr + text.file_offset) as usize;
        let loads =
            |row: &&SiteRaw| file[at(row.site) - 5] == 0xb8 && row.start_site + 5 == row.site;
        let row = subject.rows.iter().find(loads).expect("mov eax, number");
        let number = at(row.site) - 4;
        file[number..number + 4].copy_from_slice(&NR_RT_SIGRETURN.to_le_bytes());
        let skipped = PatchedText::make(&file).expect("an image").report.skipped;
        let new = skipped.iter().find(|one| one.site == u64::from(row.site));
        assert_eq!(new.expect("skipped").reason, Reason::SignalReturn);
    });
}
