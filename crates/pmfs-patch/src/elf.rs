//! The parts of a library's file that an image needs: its text, the places where code may begin,
//! and the pointers into it.

use std::ops::Range;

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym};

use crate::error::PatchError;
use crate::header::{BUILD_ID_BYTES_MAX, PAGE_BYTES, STUBS_VADDR};

type Header = elf::FileHeader64<LittleEndian>;
type Segment = elf::ProgramHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// A shared library, read.
pub(crate) struct Library<'data> {
    data: &'data [u8],
    segments: &'data [Segment],
    pub(crate) build_id: &'data [u8],
    pub(crate) text: Text,
    /// Executable sections, by address.
    pub(crate) code: Vec<Range<u64>>,
    pub(crate) symbols: Vec<Symbol<'data>>,
    /// Addresses that relocations write somewhere.
    pub(crate) relocated: Vec<u64>,
    /// Address of .eh_frame_hdr.
    pub(crate) eh_frame_hdr: Option<u64>,
}

/// The executable segment, in whole pages, as the kernel maps it.
pub(crate) struct Text {
    pub(crate) vaddr: u64,
    pub(crate) file_offset: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Text {
    pub(crate) fn range(&self) -> Range<u64> {
        self.vaddr..self.vaddr + self.bytes.len() as u64
    }
}

pub(crate) struct Symbol<'data> {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) name: &'data [u8],
    pub(crate) is_function: bool,
}

impl From<object::Error> for PatchError {
    fn from(_: object::Error) -> Self {
        PatchError::Malformed {
            reason: "a table of it lies outside of the file or is damaged",
        }
    }
}

impl<'data> Library<'data> {
    /// Fails unless the file is a shared library for x86-64 with a build-id, section headers and
    /// one executable segment.
    pub(crate) fn parse(data: &'data [u8]) -> Result<Self, PatchError> {
        let header = file_header(data)?;
        let segments = header.program_headers(LE, data)?;
        let text = text(data, segments)?;
        let sections = header.sections(LE, data)?;
        let mut code = Vec::new();
        for section in sections.iter() {
            let flags = section.sh_flags(LE);
            if flags.contains(elf::SHF_ALLOC) && flags.contains(elf::SHF_EXECINSTR) {
                let start = section.sh_addr(LE);
                let end = start.saturating_add(section.sh_size(LE));
                if start < text.range().start || end > text.range().end {
                    return Err(PatchError::Malformed {
                        reason: "an executable section lies outside of the executable segment",
                    });
                }
                code.push(start..end);
            }
        }
        if code.is_empty() {
            return Err(PatchError::NoSections);
        }
        code.sort_by_key(|range| range.start);
        let eh_frame_hdr = segments
            .iter()
            .find(|segment| segment.p_type(LE) == elf::PT_GNU_EH_FRAME)
            .map(|segment| segment.p_vaddr(LE));
        let mut library = Library {
            data,
            segments,
            build_id: build_id(data, segments)?,
            text,
            code,
            symbols: Vec::new(),
            relocated: vec![header.e_entry(LE)],
            eh_frame_hdr,
        };
        library.read_symbols(header)?;
        library.read_relocations(header)?;
        Ok(library)
    }

    /// The file's bytes from an address to the end of its segment.
    pub(crate) fn bytes_from(&self, address: u64) -> Option<&'data [u8]> {
        let segment = self.segments.iter().find(|segment| {
            let start = segment.p_vaddr(LE);
            segment.p_type(LE) == elf::PT_LOAD
                && (start..start.saturating_add(segment.p_filesz(LE))).contains(&address)
        })?;
        let inside = address - segment.p_vaddr(LE);
        let start = segment.p_offset(LE).checked_add(inside)?;
        let end = segment.p_offset(LE).checked_add(segment.p_filesz(LE))?;
        self.data
            .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    pub(crate) fn word_at(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes_from(address)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Returns whether there is code at an address.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    /// The exported function around an address.
    pub(crate) fn function_at(&self, address: u64) -> Option<String> {
        self.symbols
            .iter()
            .filter(|symbol| symbol.is_function)
            .find(|symbol| (symbol.address..symbol.address + symbol.len).contains(&address))
            .map(|symbol| String::from_utf8_lossy(symbol.name).into_owned())
    }

    fn read_symbols(&mut self, header: &'data Header) -> Result<(), PatchError> {
        let sections = header.sections(LE, self.data)?;
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let table = sections.symbols(LE, self.data, kind)?;
            for symbol in table.iter() {
                let address = symbol.st_value(LE);
                if self.is_code(address) {
                    let kind = symbol.st_type();
                    self.symbols.push(Symbol {
                        address,
                        len: symbol.st_size(LE).min(u64::from(u32::MAX)),
                        name: symbol.name(LE, table.strings())?,
                        is_function: kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC,
                    });
                }
            }
        }
        Ok(())
    }

    fn refuse_in_text(&self, place: u64) -> Result<(), PatchError> {
        if self.text.range().contains(&place) {
            return Err(PatchError::TextRelocation { place });
        }
        Ok(())
    }

    /// Reads all pointers into the text that relocations make: function pointers, tables of labels,
    /// resolvers. Addends of every type count, also where the symbol's value would have to be
    /// added: one too many costs nothing.
    fn read_relocations(&mut self, header: &'data Header) -> Result<(), PatchError> {
        let sections = header.sections(LE, self.data)?;
        let dynamic = sections.symbols(LE, self.data, elf::SHT_DYNSYM)?;
        for section in sections.iter() {
            if let Some((relocations, _)) = section.rela(LE, self.data)? {
                for relocation in relocations {
                    self.refuse_in_text(relocation.r_offset(LE))?;
                    let addend = relocation.r_addend(LE) as u64;
                    self.relocated.push(addend);
                    if let Some(index) = relocation.symbol(LE, false) {
                        let value = dynamic.symbol(index)?.st_value(LE);
                        self.relocated.push(value.wrapping_add(addend));
                    }
                }
            }
            if let Some(places) = section.relr(LE, self.data)? {
                for place in places {
                    self.refuse_in_text(place)?;
                    self.relocated.extend(self.word_at(place));
                }
            }
        }
        Ok(())
    }
}

fn file_header(data: &[u8]) -> Result<&Header, PatchError> {
    let ident = data.get(..20).ok_or(PatchError::Malformed {
        reason: "the file is too short",
    })?;
    if !ident.starts_with(b"\x7fELF") {
        return Err(PatchError::Malformed {
            reason: "it doesn't begin as one",
        });
    }
    let half = |at: usize| u16::from_le_bytes([ident[at], ident[at + 1]]);
    // Class 64-bit, little-endian, machine x86-64.
    if ident[4] != 2 || ident[5] != 1 || half(18) != elf::EM_X86_64.0 {
        return Err(PatchError::Machine);
    }
    if half(16) != elf::ET_DYN.0 {
        return Err(PatchError::NotShared { found: half(16) });
    }
    Ok(Header::parse(data)?)
}

fn build_id<'data>(data: &'data [u8], segments: &[Segment]) -> Result<&'data [u8], PatchError> {
    for segment in segments {
        let Some(mut notes) = segment.notes(LE, data)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
                let id = note.desc();
                return match id.len() {
                    0 => Err(PatchError::NoBuildId),
                    len if len > BUILD_ID_BYTES_MAX => Err(PatchError::BuildIdLength {
                        len,
                        max: BUILD_ID_BYTES_MAX,
                    }),
                    _ => Ok(id),
                };
            }
        }
    }
    Err(PatchError::NoBuildId)
}

/// The one executable segment, as whole pages: what stands in the file around its ends
/// is mapped with it, and what would lie behind the file's end is zero.
fn text(data: &[u8], segments: &[Segment]) -> Result<Text, PatchError> {
    let executable: Vec<&Segment> = segments
        .iter()
        .filter(|segment| {
            segment.p_type(LE) == elf::PT_LOAD && segment.p_flags(LE).contains(elf::PF_X)
        })
        .collect();
    let &[segment] = executable.as_slice() else {
        return Err(PatchError::Segments {
            count: executable.len(),
        });
    };
    let (vaddr, offset) = (segment.p_vaddr(LE), segment.p_offset(LE));
    if vaddr % PAGE_BYTES != offset % PAGE_BYTES {
        return Err(PatchError::Alignment {
            reason: "address and file offset differ within a page",
        });
    }
    if segment.p_flags(LE).contains(elf::PF_W) {
        return Err(PatchError::Alignment {
            reason: "it is writable",
        });
    }
    if segment.p_filesz(LE) != segment.p_memsz(LE) || segment.p_filesz(LE) == 0 {
        return Err(PatchError::Alignment {
            reason: "it isn't all in the file",
        });
    }
    let end = vaddr.saturating_add(segment.p_memsz(LE));
    // Jumps from a stub to the text and back, and a margin for the stubs themselves.
    let reach = i64::from(i32::MAX) + STUBS_VADDR;
    if end > reach as u64 {
        return Err(PatchError::TooLarge { end });
    }
    let start = vaddr - vaddr % PAGE_BYTES;
    let file_offset = offset - offset % PAGE_BYTES;
    let len = (end.next_multiple_of(PAGE_BYTES) - start) as usize;
    let cut = PatchError::Malformed {
        reason: "it ends before its text does",
    };
    let file = usize::try_from(file_offset)
        .ok()
        .and_then(|at| data.get(at..));
    let file = file.ok_or(cut)?;
    if (file.len() as u64) < end - start {
        return Err(PatchError::Malformed {
            reason: "it ends before its text does",
        });
    }
    let mut bytes = file[..len.min(file.len())].to_vec();
    bytes.resize(len, 0);
    Ok(Text {
        vaddr: start,
        file_offset,
        bytes,
    })
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
