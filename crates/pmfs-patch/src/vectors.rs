//! Sites in functions that keep nothing in vector registers.
//!
//! The kernel keeps vector registers across a `syscall`, and a compiler may rely on that. So a hook
//! has to save them all, which is a good part of the time of a short call. A function that has no
//! instruction with such a register relies on none, if its callers assume only the calling
//! convention. GCC may assume more of a function in the same file (-fipa-ra); the frequent calls of
//! glibc each have a file of their own.

use iced_x86::InstructionInfoFactory;

use crate::code::Code;
use crate::elf::{Library, Symbol};

/// Functions that are alone in their file.
const ALONE: [&[u8]; 12] = [
    b"read",
    b"write",
    b"pread",
    b"pread64",
    b"pwrite",
    b"pwrite64",
    b"lseek",
    b"lseek64",
    b"fstat",
    b"fstat64",
    b"fstatat",
    b"fstatat64",
];

/// Returns whether nothing is in a vector register at a site that the hook must leave there.
pub(crate) fn are_none_kept(library: &Library, code: &Code, site: u64) -> bool {
    let around = |symbol: &&Symbol| {
        symbol.is_function && (symbol.address..symbol.address + symbol.len).contains(&site)
    };
    let mut symbols = library.symbols.iter().filter(around);
    let Some(function) = symbols.find(|symbol| ALONE.contains(&symbol.name)) else {
        return false;
    };
    let range = function.address..function.address + function.len;
    let first = code
        .instructions
        .partition_point(|one| one.ip() < range.start);
    let mut factory = InstructionInfoFactory::new();
    let inside = code.instructions[first..]
        .iter()
        .take_while(|one| one.ip() < range.end);
    code.is_decoded(&range)
        && inside.into_iter().all(|one| {
            let used = factory.info(one).used_registers();
            used.iter()
                .all(|used| !used.register().is_vector_register())
        })
}
