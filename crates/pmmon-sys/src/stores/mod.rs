//! Loops of loads and stores whose number is known: each loop has one instruction that touches the
//! mapping, or as many of them as an access of 128 or 256 bytes needs, and no other store.
//! `tests/stores.rs` counts them one step of the CPU at a time.

mod compiled;
mod loops;

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};

pub use compiled::Compiled;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The sizes of accesses that there are loops for, in bytes. The last two are made of pieces of 64.
pub const ACCESS_BYTES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// How a store goes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Through the caches.
    Temporal,
    /// Past the caches.
    NonTemporal,
    /// Through the caches, and each line is written back (`clwb`) behind its store.
    Flushed,
}

/// The work of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Loads.
    Read,
    /// Stores.
    Write(Kind),
}

/// A file, mapped shared.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that only the loops below touch, by raw stores and loads of
// which no reference ever exists.
unsafe impl Send for Mapping {}
// SAFETY: as above; races of the loops change which value is left, and nobody reads it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first bytes of a file.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn new(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            mmap(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, bytes })
    }

    /// The address of its first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and no loop runs any more: they borrow it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Whether this CPU has an instruction for accesses of so many bytes; larger ones are made of
/// several of 64.
#[must_use]
pub fn supported(op: Op, bytes: u32) -> bool {
    // Leaf 7, EBX, bit 24 (Intel SDM, CPUID).
    let writes_back = || __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 24) != 0;
    if op == Op::Write(Kind::Flushed) && !writes_back() {
        return false;
    }
    match bytes {
        1 | 2 => op != Op::Write(Kind::NonTemporal),
        4 | 8 | 16 => true,
        32 => is_x86_feature_detected!("avx"),
        64 | 128 | 256 => is_x86_feature_detected!("avx512f"),
        _ => false,
    }
}

/// Makes one access at each of the offsets, of so many bytes, and waits for stores that went past
/// the caches.
///
/// # Panics
/// An offset is not within the mapping, or the CPU has no such access ([`supported`]).
pub fn run(mapping: &Mapping, op: Op, bytes: u32, offsets: &[u32]) {
    assert!(supported(op, bytes), "no access of {bytes} bytes");
    check(mapping, bytes, offsets);
    if offsets.is_empty() {
        return;
    }
    let base = mapping.start.as_ptr();
    let range = offsets.as_ptr_range();
    // SAFETY: every access lies in the mapping, which lives as long as the borrow; the offsets are
    // read only. Non-temporal and vector accesses are aligned if offsets are multiples of `bytes`,
    // which is checked next; the CPU has the instructions.
    unsafe {
        match op {
            Op::Read => loops::read(base, range, bytes),
            Op::Write(Kind::Temporal) => loops::store(base, range, bytes),
            Op::Write(Kind::Flushed) => loops::store_flushed(base, range, bytes),
            Op::Write(Kind::NonTemporal) => {
                let aligned = offsets.iter().all(|offset| offset.is_multiple_of(bytes));
                assert!(aligned, "stores past the caches are aligned");
                loops::stream(base, range, bytes);
            }
        }
    }
}

/// # Panics
/// An offset is not within the mapping.
fn check(mapping: &Mapping, bytes: u32, offsets: &[u32]) {
    let last = mapping.bytes.checked_sub(bytes as usize);
    let last = last.expect("a mapping of at least one access");
    assert!(offsets.iter().all(|offset| *offset as usize <= last));
}
