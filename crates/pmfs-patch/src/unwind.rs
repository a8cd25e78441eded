//! Functions as the unwind tables know them: .eh_frame_hdr leads to a frame description
//! each, which gives the function's range, where its unwinding rules change, and its
//! landing pads. Format: LSB Core, "Exception Frames"; DWARF 5, 6.4.

use std::ops::Range;

use crate::dwarf::{ENCODING_OMIT, Reader};
use crate::elf::Library;
use crate::error::PatchError;

/// A function, or the cold part of one.
pub(crate) struct Function {
    pub(crate) range: Range<u64>,
    /// A frame that the kernel made, to which signal handlers return. The frame's range begins one
    /// byte before the code.
    pub(crate) is_signal_return: bool,
    /// Addresses from which the unwinder acts in another way: other rules for the
    /// frame, or another landing pad; sorted.
    pub(crate) rows: Vec<u64>,
    /// The places where an exception or a cancellation enters it.
    pub(crate) landing_pads: Vec<u64>,
}

impl Function {
    /// The address of its first instruction.
    pub(crate) fn entry(&self) -> u64 {
        self.range.start + u64::from(self.is_signal_return)
    }
}

/// All functions of the tables, by address.
pub(crate) fn functions(library: &Library) -> Result<Vec<Function>, PatchError> {
    let Some(address) = library.eh_frame_hdr else {
        return Err(PatchError::Unwind {
            reason: "there are none",
        });
    };
    let starts = frame_addresses(library, address).ok_or(PatchError::Unwind {
        reason: "an .eh_frame_hdr of an unknown form",
    })?;
    let mut functions = Vec::with_capacity(starts.len());
    for frame in starts {
        let function = function(library, frame).ok_or(PatchError::Unwind {
            reason: "a frame description of an unknown form",
        })?;
        functions.push(function);
    }
    functions.sort_by_key(|function| function.range.start);
    Ok(functions)
}

/// The addresses of the frame descriptions, from the header's search table.
fn frame_addresses(library: &Library, header: u64) -> Option<Vec<u64>> {
    let mut reader = Reader::new(library.bytes_from(header)?, header);
    let [version, frame_encoding, count_encoding, table_encoding] =
        *reader.take(4)?.first_chunk::<4>()?;
    if version != 1 || count_encoding == ENCODING_OMIT || table_encoding == ENCODING_OMIT {
        return None;
    }
    reader.pointer(frame_encoding, header)?;
    let count = reader.pointer(count_encoding, header)?;
    let mut frames = Vec::new();
    for _ in 0..count {
        reader.pointer(table_encoding, header)?;
        frames.push(reader.pointer(table_encoding, header)?);
    }
    Some(frames)
}

/// The part that frame descriptions share.
struct Common {
    code_align: u64,
    pointer_encoding: u8,
    lsda_encoding: u8,
    has_augmentation: bool,
    is_signal_return: bool,
}

/// The contents of the entry at an address, behind its length.
fn entry<'data>(library: &Library<'data>, address: u64) -> Option<Reader<'data>> {
    let mut reader = Reader::new(library.bytes_from(address)?, address);
    let len = reader.word()?;
    // All ones: the 64-bit form, which no linker writes for a table below 4 GiB.
    if len == 0 || len == u32::MAX {
        return None;
    }
    reader.part(u64::from(len))
}

fn common(library: &Library, address: u64) -> Option<Common> {
    let mut reader = entry(library, address)?;
    let (id, version) = (reader.word()?, reader.byte()?);
    if id != 0 || !(version == 1 || version == 3) {
        return None;
    }
    let augmentation = reader.c_string()?;
    let code_align = reader.uleb()?;
    reader.skip_leb()?;
    reader.skip_leb()?;
    let mut common = Common {
        code_align,
        pointer_encoding: 0,
        lsda_encoding: ENCODING_OMIT,
        has_augmentation: augmentation.first() == Some(&b'z'),
        is_signal_return: false,
    };
    if !common.has_augmentation {
        return augmentation.is_empty().then_some(common);
    }
    let len = reader.uleb()?;
    let mut data = reader.part(len)?;
    for letter in &augmentation[1..] {
        match letter {
            b'R' => common.pointer_encoding = data.byte()?,
            b'L' => common.lsda_encoding = data.byte()?,
            b'S' => common.is_signal_return = true,
            b'P' => {
                let encoding = data.byte()?;
                data.value(encoding)?;
            }
            _ => return None,
        }
    }
    Some(common)
}

fn function(library: &Library, address: u64) -> Option<Function> {
    let mut reader = entry(library, address)?;
    let place = reader.address();
    let common_at = place.checked_sub(u64::from(reader.word()?))?;
    let common = common(library, common_at)?;
    let start = reader.pointer(common.pointer_encoding, 0)?;
    let len = reader.value(common.pointer_encoding)?;
    let range = start..start.checked_add(len)?;
    let mut handlers = Handlers::default();
    if common.has_augmentation {
        let len = reader.uleb()?;
        let mut data = reader.part(len)?;
        if common.lsda_encoding != ENCODING_OMIT {
            let place = data.clone().value(common.lsda_encoding)?;
            let lsda = data.pointer(common.lsda_encoding, 0)?;
            if place != 0 {
                handlers = self::handlers(library, lsda, start)?;
            }
        }
    }
    let mut rows = rows(reader, start, &common)?;
    rows.append(&mut handlers.edges);
    rows.sort_unstable();
    Some(Function {
        range,
        is_signal_return: common.is_signal_return,
        rows,
        landing_pads: handlers.landing_pads,
    })
}

/// The content of a language-specific data area.
#[derive(Default)]
struct Handlers {
    /// The beginnings and ends of call sites.
    edges: Vec<u64>,
    landing_pads: Vec<u64>,
}

/// A header, then call sites, of which some have a landing pad.
fn handlers(library: &Library, address: u64, function_start: u64) -> Option<Handlers> {
    let mut reader = Reader::new(library.bytes_from(address)?, address);
    let start_encoding = reader.byte()?;
    let base = if start_encoding == ENCODING_OMIT {
        function_start
    } else {
        reader.pointer(start_encoding, 0)?
    };
    if reader.byte()? != ENCODING_OMIT {
        reader.uleb()?;
    }
    let encoding = reader.byte()?;
    let len = reader.uleb()?;
    let mut sites = reader.part(len)?;
    let mut handlers = Handlers::default();
    while !sites.is_empty() {
        let start = function_start.wrapping_add(sites.value(encoding)?);
        let len = sites.value(encoding)?;
        let pad = sites.value(encoding)?;
        sites.uleb()?;
        handlers.edges.extend([start, start.wrapping_add(len)]);
        if pad != 0 {
            handlers.landing_pads.push(base.wrapping_add(pad));
        }
    }
    Some(handlers)
}

/// The addresses that the call frame instructions advance to: only their operands' lengths matter
/// here, not their meaning.
fn rows(mut reader: Reader, start: u64, common: &Common) -> Option<Vec<u64>> {
    let mut rows = Vec::new();
    let mut at = start;
    while !reader.is_empty() {
        let code = reader.byte()?;
        let advance = match (code & 0xc0, code) {
            (0x40, _) => Some(u64::from(code & 0x3f)),
            (0x80, _) => {
                reader.uleb()?;
                None
            }
            (0xc0, _) => None,
            (_, 0x02) => Some(u64::from(reader.byte()?)),
            (_, 0x03) => Some(u64::from(reader.half()?)),
            (_, 0x04) => Some(u64::from(reader.word()?)),
            (_, 0x01) => {
                at = reader.pointer(common.pointer_encoding, 0)?;
                rows.push(at);
                None
            }
            _ => {
                skip_operands(&mut reader, code)?;
                None
            }
        };
        if let Some(steps) = advance {
            at = at.checked_add(steps.checked_mul(common.code_align)?)?;
            rows.push(at);
        }
    }
    Some(rows)
}

fn skip_operands(reader: &mut Reader, code: u8) -> Option<()> {
    match code {
        // nop, remember_state, restore_state.
        0x00 | 0x0a | 0x0b => {}
        // restore_extended, undefined, same_value, def_cfa_register, def_cfa_offset
        // (and _sf), GNU_args_size.
        0x06 | 0x07 | 0x08 | 0x0d | 0x0e | 0x13 | 0x2e => reader.skip_leb()?,
        // offset_extended (and _sf), register, def_cfa (and _sf), val_offset (and _sf),
        // GNU_negative_offset.
        0x05 | 0x09 | 0x0c | 0x11 | 0x12 | 0x14 | 0x15 | 0x2f => {
            reader.skip_leb()?;
            reader.skip_leb()?;
        }
        // def_cfa_expression.
        0x0f => {
            let len = reader.uleb()?;
            reader.take(len)?;
        }
        // expression, val_expression.
        0x10 | 0x16 => {
            reader.skip_leb()?;
            let len = reader.uleb()?;
            reader.take(len)?;
        }
        _ => return None,
    }
    Some(())
}
