//! The bytes of an image file: header, patched text, stubs, site table. Plain integers,
//! core and zerocopy only: the preloaded library compiles this very file, by path.
//!
//! | at | pages |
//! |---|---|
//! | 0 | [`HeaderRaw`], then zeros to the end of the page |
//! | `text_offset` | the library's executable segment with its sites patched, `text_len` bytes |
//! | `stubs_offset` | the stubs, `stubs_len` bytes; unused bytes are int3 |
//! | `table_offset` | `sites` times [`SiteRaw`], then zeros to the end of the page |
//!
//! A process that maps it puts the text over the library's own, the stubs at base + `stubs_vaddr`,
//! and one page of his own at base + `stubs_vaddr` + `entry_slot`, whose first 8 bytes are
//! the address of the hook, and whose next 8 that of one that may change vector registers.
//! All addresses but those are relative to the module's base, as in its program headers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "PMFSTEXT", as a little-endian word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PMFSTEXT");
/// The version of the format and of the rules by which sites are patched: a change of either makes
/// all images anew.
pub const VERSION: u32 = 2;
/// Bytes a page, in the file and in memory.
pub const PAGE_BYTES: u64 = 4096;
/// The place of the stubs relative to the module's base: 512 MiB below, within reach of a 32-bit
/// jump.
pub const STUBS_VADDR: i64 = -0x2000_0000;
/// Stubs begin at multiples of this, and are one or two of it long.
pub const STUB_ALIGN_BYTES: u32 = 64;
/// The longest build-id that fits into the header, bytes.
pub const BUILD_ID_BYTES_MAX: usize = 32;

/// The first bytes of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeaderRaw {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Pages of the whole file.
    pub pages: u32,
    /// Rows of the site table.
    pub sites: u32,
    /// `syscall` instructions that were left as they are.
    pub skipped: u32,
    /// Bytes of `build_id` that count.
    pub build_id_len: u32,
    /// Zero.
    pub reserved: u32,
    /// The library's build-id, then zeros.
    pub build_id: [u8; BUILD_ID_BYTES_MAX],
    /// First page of the executable segment.
    pub text_vaddr: u64,
    /// The text's length, whole pages, in bytes.
    pub text_len: u64,
    /// The offset of the patched text in this file.
    pub text_offset: u64,
    /// The offset of the original in the library's file: /proc/self/maps has it for the mapping to
    /// be replaced.
    pub library_offset: u64,
    /// [`STUBS_VADDR`].
    pub stubs_vaddr: i64,
    /// Length of the stub area, whole pages, in bytes.
    pub stubs_len: u64,
    /// The offset of the stubs in this file.
    pub stubs_offset: u64,
    /// Offset in the stub area of the page whose first words point to the hooks: the
    /// page behind the stubs.
    pub entry_slot: u64,
    /// The offset of the site table in this file.
    pub table_offset: u64,
    /// Length of its rows, bytes.
    pub table_len: u64,
    /// Zero.
    pub reserved_words: [u64; 2],
    /// SHA-256 of the original text, as the kernel maps it: the file's bytes up to the page's end.
    pub text_sha256: [u8; 32],
    /// SHA-256 of the pages behind the header.
    pub body_sha256: [u8; 32],
    /// SHA-256 of the header up to here.
    pub header_sha256: [u8; 32],
}

/// A patched `syscall`. The table is sorted by `site`; stubs are laid out in the same order, so
/// that it is sorted by `stub` too.
///
/// A program counter in a stub stands for one in the library: up to and including the
/// `syscall` at `pass` for `start_site`, behind it for `resume_site`. The call frame is
/// the same at both, and so are the unwinder's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SiteRaw {
    /// Address of the `syscall` instruction.
    pub site: u32,
    /// Offset of the stub in the stub area.
    pub stub: u32,
    /// Offset within the stub of its `syscall`; the hook gets this address in rcx, and
    /// comes back to it to pass the call on, or two bytes behind it when it has served it.
    pub pass: u32,
    /// System call number, or -1 where the code before the site doesn't tell.
    pub nr: i32,
    /// [`KIND_BEFORE`], [`KIND_AFTER`] or both.
    pub kind: u32,
    /// Address of the jump: the first byte that was overwritten.
    pub start_site: u32,
    /// Address of what follows the `syscall`.
    pub resume_site: u32,
    /// Address behind the last byte that was overwritten: where the stub jumps back to.
    pub end_site: u32,
}

/// Instructions from before the `syscall` are in the stub.
pub const KIND_BEFORE: u32 = 1;
/// Instructions from behind the `syscall` are in the stub.
pub const KIND_AFTER: u32 = 2;

const _: () = {
    assert!(size_of::<HeaderRaw>() == 256);
    assert!(core::mem::offset_of!(HeaderRaw, header_sha256) == HEADER_HASHED_BYTES);
    assert!(size_of::<SiteRaw>() == 32);
    assert!(STUBS_VADDR % PAGE_BYTES as i64 == 0);
};

/// Bytes of the header that `header_sha256` covers.
pub const HEADER_HASHED_BYTES: usize = 224;
