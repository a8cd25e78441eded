//! From a library's bytes to an image's.

use iced_x86::Instruction;
use sha2::{Digest, Sha256};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::addresses::Addresses;
use crate::choose::{Choice, JUMP_BYTES, Reason, Surroundings};
use crate::code::Code;
use crate::elf::Library;
use crate::error::PatchError;
use crate::header::{
    HEADER_HASHED_BYTES, HeaderRaw, KIND_AFTER, KIND_BEFORE, MAGIC, PAGE_BYTES, STUB_ALIGN_BYTES,
    STUBS_VADDR, SiteRaw, VERSION,
};
use crate::stub::{INT3, Stub, assemble, jump};
use crate::targets::targets;
use crate::unwind::{Function, functions};
use crate::vectors;

/// `rt_sigreturn` in Linux's table for x86-64.
const NR_RT_SIGRETURN: i32 = 15;

/// The treatment of a library's system calls.
#[derive(Debug)]
pub struct Report {
    /// The number of patched calls.
    pub patched: usize,
    /// The others, by address.
    pub skipped: Vec<Skipped>,
    /// Bytes in executable sections that are no instruction, as far as decoding can tell.
    pub undecoded_bytes: u64,
}

/// A `syscall` that was left as it is.
#[derive(Debug)]
pub struct Skipped {
    /// The site's address, relative to the module's base.
    pub site: u64,
    /// The exported function that it stands in.
    pub function: Option<String>,
    /// The reason for which it is not patched.
    pub reason: Reason,
}

/// A finished image.
#[derive(Debug)]
pub struct PatchedText {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// The patched sites, and the others.
    pub report: Report,
}

impl PatchedText {
    /// Makes the image of a library from its file's bytes.
    ///
    /// Fails if the file is no shared library for x86-64 with a build-id and one
    /// executable segment, or if its tables are of an unknown form.
    pub fn make(library: &[u8]) -> Result<PatchedText, PatchError> {
        let library = Library::parse(library)?;
        let functions = functions(&library)?;
        let code = decode(&library, &functions);
        let targets = targets(&library, &functions, &code);
        let mut patches = Patches {
            library: &library,
            functions: &functions,
            code: &code,
            targets: &targets,
            chosen: Vec::new(),
            skipped: Vec::new(),
        };
        patches.choose();
        let laid_out = patches.lay_out();
        let report = Report {
            patched: laid_out.rows.len(),
            skipped: patches.skipped,
            undecoded_bytes: code.undecoded_bytes(),
        };
        let bytes = assemble_file(&library, &laid_out, report.skipped.len());
        Ok(PatchedText { bytes, report })
    }
}

/// Decodes from every place where code is known to begin.
pub(crate) fn decode(library: &Library, functions: &[Function]) -> Code {
    let mut starts: Vec<u64> = functions.iter().map(Function::entry).collect();
    let of_functions = library.symbols.iter().filter(|symbol| symbol.is_function);
    starts.extend(of_functions.map(|symbol| symbol.address));
    starts.sort_unstable();
    starts.dedup();
    let text = &library.text;
    Code::decode(&text.bytes, text.vaddr, &library.code, &starts)
}

/// A site and what its jump overwrites.
struct Chosen {
    site: usize,
    choice: Choice,
    nr: Option<i32>,
}

struct Patches<'a> {
    library: &'a Library<'a>,
    functions: &'a [Function],
    code: &'a Code,
    targets: &'a Addresses,
    chosen: Vec<Chosen>,
    skipped: Vec<Skipped>,
}

/// The parts of the file behind the header.
struct LaidOut {
    text: Vec<u8>,
    stubs: Vec<u8>,
    rows: Vec<SiteRaw>,
}

impl<'a> Patches<'a> {
    fn choose(&mut self) {
        let mut floor = 0;
        for site in self.code.sites() {
            let ip = self.code.instructions[site].ip();
            let function = self.function_before(ip);
            let surroundings = Surroundings {
                instructions: &self.code.instructions,
                targets: self.targets,
                rows: function.map_or(&[], |function| &function.rows),
                floor,
            };
            let nr = surroundings.number(site);
            let returns = function
                .is_some_and(|function| function.is_signal_return && function.range.contains(&ip));
            let choice = if returns || nr == Some(NR_RT_SIGRETURN) {
                Err(Reason::SignalReturn)
            } else if function.is_some_and(|function| !self.code.is_decoded(&function.range)) {
                Err(Reason::DataInCode)
            } else {
                surroundings.choose(site)
            };
            match choice {
                Ok(choice) => {
                    let chosen = Chosen { site, choice, nr };
                    floor = self
                        .range(&chosen)
                        .last()
                        .map_or(floor, Instruction::next_ip);
                    self.chosen.push(chosen);
                }
                Err(reason) => self.skip(ip, reason),
            }
        }
    }

    fn skip(&mut self, site: u64, reason: Reason) {
        self.skipped.push(Skipped {
            site,
            function: self.library.function_at(site),
            reason,
        });
    }

    /// Returns the last function that begins at or before an address. The function may end before
    /// the address, as that of `clone` does: the child has no frame to unwind to.
    fn function_before(&self, address: u64) -> Option<&'a Function> {
        let behind = self
            .functions
            .partition_point(|function| function.range.start <= address);
        self.functions.get(behind.checked_sub(1)?)
    }

    fn range(&self, chosen: &Chosen) -> &'a [Instruction] {
        let first = chosen.site - chosen.choice.before;
        &self.code.instructions[first..=chosen.site + chosen.choice.after]
    }

    /// Assembles the stubs, in the order of their sites, and puts the jumps into the text. The
    /// stubs refer to the page behind them, whose place follows from their lengths; a first round
    /// gives the lengths, which do not depend on that place.
    fn lay_out(&mut self) -> LaidOut {
        let mut chosen = std::mem::take(&mut self.chosen);
        let mut offsets = Vec::new();
        let mut offset = 0u64;
        chosen.retain(|chosen| match self.stub(chosen, offset, offset) {
            Some(stub) => {
                offsets.push(offset);
                offset += (stub.bytes.len() as u64).next_multiple_of(u64::from(STUB_ALIGN_BYTES));
                true
            }
            None => {
                let ip = self.code.instructions[chosen.site].ip();
                self.skip(ip, Reason::NotMovable);
                false
            }
        });
        self.skipped.sort_by_key(|skipped| skipped.site);
        let entry_slot = offset.next_multiple_of(PAGE_BYTES);
        let mut laid_out = LaidOut {
            text: self.library.text.bytes.clone(),
            stubs: vec![INT3; entry_slot as usize],
            rows: Vec::new(),
        };
        for (chosen, offset) in chosen.iter().zip(offsets) {
            let stub = self.stub(chosen, offset, entry_slot);
            let stub = stub.expect("it could be assembled in the first round");
            self.put(chosen, offset, &stub, &mut laid_out);
        }
        laid_out
    }

    fn stub(&self, chosen: &Chosen, offset: u64, entry_slot: u64) -> Option<Stub> {
        let at = self.code.instructions[chosen.site].ip();
        let plain = vectors::are_none_kept(self.library, self.code, at);
        let slot = stub_address(entry_slot + if plain { 8 } else { 0 });
        assemble(
            self.range(chosen),
            chosen.choice.before,
            stub_address(offset),
            slot,
        )
    }

    fn put(&self, chosen: &Chosen, offset: u64, stub: &Stub, laid_out: &mut LaidOut) {
        let range = self.range(chosen);
        let syscall = &self.code.instructions[chosen.site];
        let start = range[0].ip();
        let end = range[range.len() - 1].next_ip();
        let at = offset as usize;
        laid_out.stubs[at..at + stub.bytes.len()].copy_from_slice(&stub.bytes);
        let vaddr = self.library.text.vaddr;
        let overwritten = &mut laid_out.text[(start - vaddr) as usize..(end - vaddr) as usize];
        overwritten.fill(INT3);
        let jump = jump(start, stub_address(offset)).expect("checked to be in reach");
        overwritten[..JUMP_BYTES as usize].copy_from_slice(&jump);
        let kind = |moved: usize, kind: u32| if moved > 0 { kind } else { 0 };
        laid_out.rows.push(SiteRaw {
            site: syscall.ip() as u32,
            stub: offset as u32,
            pass: stub.pass,
            nr: chosen.nr.unwrap_or(-1),
            kind: kind(chosen.choice.before, KIND_BEFORE) | kind(chosen.choice.after, KIND_AFTER),
            start_site: start as u32,
            resume_site: syscall.next_ip() as u32,
            end_site: end as u32,
        });
    }
}

/// The address of an offset in the stub area, relative to the base; it wraps.
fn stub_address(offset: u64) -> u64 {
    (STUBS_VADDR as u64).wrapping_add(offset)
}

fn assemble_file(library: &Library, laid_out: &LaidOut, skipped: usize) -> Vec<u8> {
    let table = laid_out.rows.as_bytes();
    let text_len = laid_out.text.len() as u64;
    let stubs_len = laid_out.stubs.len() as u64;
    let stubs_offset = PAGE_BYTES + text_len;
    let table_offset = stubs_offset + stubs_len;
    let end = (table_offset + table.len() as u64).next_multiple_of(PAGE_BYTES);
    let mut bytes = Vec::with_capacity(end as usize);
    bytes.resize(PAGE_BYTES as usize, 0);
    bytes.extend_from_slice(&laid_out.text);
    bytes.extend_from_slice(&laid_out.stubs);
    bytes.extend_from_slice(table);
    bytes.resize(end as usize, 0);
    let mut header = HeaderRaw::new_zeroed();
    header.magic = MAGIC;
    header.version = VERSION;
    header.pages = (end / PAGE_BYTES) as u32;
    header.sites = laid_out.rows.len() as u32;
    header.skipped = skipped as u32;
    header.build_id_len = library.build_id.len() as u32;
    header.build_id[..library.build_id.len()].copy_from_slice(library.build_id);
    header.text_vaddr = library.text.vaddr;
    header.text_len = text_len;
    header.text_offset = PAGE_BYTES;
    header.library_offset = library.text.file_offset;
    header.stubs_vaddr = STUBS_VADDR;
    header.stubs_len = stubs_len;
    header.stubs_offset = stubs_offset;
    header.entry_slot = stubs_len;
    header.table_offset = table_offset;
    header.table_len = table.len() as u64;
    header.text_sha256 = Sha256::digest(&library.text.bytes).into();
    header.body_sha256 = Sha256::digest(&bytes[PAGE_BYTES as usize..]).into();
    header.header_sha256 = Sha256::digest(&header.as_bytes()[..HEADER_HASHED_BYTES]).into();
    bytes[..size_of::<HeaderRaw>()].copy_from_slice(header.as_bytes());
    bytes
}

/// Returns whether these are the bytes of an image of this library, whole and undamaged, in this
/// crate's version.
pub(crate) fn is_patched_text_of(bytes: &[u8], library: &Library) -> bool {
    let Ok((header, _)) = HeaderRaw::read_from_prefix(bytes) else {
        return false;
    };
    let hashed = Sha256::digest(&header.as_bytes()[..HEADER_HASHED_BYTES]);
    let (page, body) = bytes.split_at(bytes.len().min(PAGE_BYTES as usize));
    header.magic == MAGIC
        && header.version == VERSION
        && header.header_sha256 == <[u8; 32]>::from(hashed)
        && u64::from(header.pages) * PAGE_BYTES == bytes.len() as u64
        && page[size_of::<HeaderRaw>()..].iter().all(|byte| *byte == 0)
        && header.build_id[..library.build_id.len()] == *library.build_id
        && header.text_vaddr == library.text.vaddr
        && header.text_sha256 == <[u8; 32]>::from(Sha256::digest(&library.text.bytes))
        && header.body_sha256 == <[u8; 32]>::from(Sha256::digest(body))
}

#[cfg(test)]
#[path = "libc_tests.rs"]
pub(crate) mod tests;
