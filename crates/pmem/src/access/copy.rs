//! Bulk copies that survive a fault: the assembly of `copy.s`, chosen once.
//!
//! They are assembly for two reasons: another process may store to the pool's side of a copy at any
//! time, which Rust allows for atomic accesses alone; and a signal handler can leave only code
//! whose every instruction is known.

use std::arch::global_asm;
use std::sync::OnceLock;

use crate::cpu::cpu;

global_asm!(include_str!("copy.s"));

/// The values that a routine of `copy.s` returns, in rax and rdx.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Bytes not copied; 0 unless a fault ended the copy.
    pub left: usize,
    /// The address that faulted.
    pub address: usize,
}

/// Arguments: to, from, bytes.
type CopyFn = unsafe extern "C" fn(*mut u8, *const u8, usize) -> Outcome;
/// Arguments: to, bytes (whole lines, not 0).
type ZeroFn = unsafe extern "C" fn(*mut u8, usize);

macro_rules! routines {
    ($($name:ident $land:ident $left:ident),*) => {
        unsafe extern "C" {
            $(
                fn $name(to: *mut u8, from: *const u8, bytes: usize) -> Outcome;
                static $land: u8;
            )*
            fn pmem_zero_sse2(to: *mut u8, bytes: usize);
            fn pmem_zero_avx512(to: *mut u8, bytes: usize);
        }

        /// The landing of the routine that contains `rip`, and the register with its count of bytes
        /// left. Async-signal-safe.
        pub(crate) fn landing(rip: usize) -> Option<(usize, Left)> {
            $(
                let land = (&raw const $land).addr();
                if rip >= $name as *const () as usize && rip < land {
                    return Some((land, Left::$left));
                }
            )*
            None
        }
    };
}

/// The register in which a routine keeps the count of bytes left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Rcx,
    Rdx,
}

routines! {
    pmem_copy_bytes pmem_copy_bytes_land Rcx,
    pmem_touch pmem_touch_land Rdx,
    pmem_copy_sse2 pmem_copy_sse2_land Rdx,
    pmem_copy_avx2 pmem_copy_avx2_land Rdx,
    pmem_copy_avx512 pmem_copy_avx512_land Rdx,
    pmem_copy_avx512_pages pmem_copy_avx512_pages_land Rdx,
    pmem_stream_sse2 pmem_stream_sse2_land Rdx,
    pmem_stream_avx2 pmem_stream_avx2_land Rdx,
    pmem_stream_avx512 pmem_stream_avx512_land Rdx
}

/// Checks that a byte can be read, without waiting for it. `Err` is the address.
#[inline]
pub(crate) fn touch(at: *const u8) -> Result<(), usize> {
    // SAFETY: the routine loads one byte and stores nothing; where it is not there it lands.
    let outcome = unsafe { pmem_touch(std::ptr::null_mut(), at, 1) };
    match outcome.left {
        0 => Ok(()),
        _ => Err(outcome.address),
    }
}

/// The routines for one width of vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copier {
    copy: CopyFn,
    stream: CopyFn,
    zero: ZeroFn,
}

/// The set that copies several pages at once. It was not measured on Zen 4, where several streams
/// within a page were slower.
const PAGES: &str = "avx512, pages";
/// The family of all Intel CPUs with 64-byte vectors, and of no other maker's.
const INTEL: u32 = 6;

impl Copier {
    /// The best set for this CPU.
    pub(crate) fn best() -> Copier {
        static BEST: OnceLock<Copier> = OnceLock::new();
        *BEST.get_or_init(|| {
            let worth = |(name, _): &(&str, Copier)| *name != PAGES || cpu().family == INTEL;
            let best = Copier::all().into_iter().rfind(worth);
            best.expect("SSE2 is on every x86-64 CPU").1
        })
    }

    /// Every set that this CPU can run, in rising order of preference.
    pub(crate) fn all() -> Vec<(&'static str, Copier)> {
        let mut all = vec![(
            "sse2",
            Copier {
                copy: pmem_copy_sse2,
                stream: pmem_stream_sse2,
                zero: pmem_zero_sse2,
            },
        )];
        if cpu().avx2 {
            all.push((
                "avx2",
                Copier {
                    copy: pmem_copy_avx2,
                    stream: pmem_stream_avx2,
                    zero: pmem_zero_sse2,
                },
            ));
        }
        if cpu().avx512 {
            all.push((
                "avx512",
                Copier {
                    copy: pmem_copy_avx512,
                    stream: pmem_stream_avx512,
                    zero: pmem_zero_avx512,
                },
            ));
            all.push((
                PAGES,
                Copier {
                    copy: pmem_copy_avx512_pages,
                    stream: pmem_stream_avx512,
                    zero: pmem_zero_avx512,
                },
            ));
        }
        all
    }

    /// Copies with cached stores, at any alignment. `Err` has the bytes copied and the address that
    /// faulted.
    ///
    /// # Safety
    /// `to` may be stored to for `bytes`: it is the caller's own buffer or pool memory. A fault on
    /// either side is allowed once the landing is installed.
    #[inline]
    pub(crate) unsafe fn copy(
        &self,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), (usize, usize)> {
        // SAFETY: the routine stores to `to..to+bytes` alone (the caller's
        // promise) and follows the C calling convention.
        let outcome = unsafe { (self.copy)(to, from, bytes) };
        if outcome.left == 0 {
            return Ok(());
        }
        // SAFETY: as above, for the rest.
        unsafe { finish(to, from, bytes, outcome) }
    }

    /// Copies whole lines with non-temporal stores; `to` is 64-aligned. `Err` has the bytes left
    /// and the address that faulted. The chunk that faulted may be partly in place; [`finish`]
    /// continues from there.
    ///
    /// # Safety
    /// The rules of [`Copier::copy`]; `to` is 64-aligned, `bytes` a multiple of 64.
    #[inline]
    pub(crate) unsafe fn stream(
        &self,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), Outcome> {
        debug_assert!(to.addr().is_multiple_of(64) && bytes.is_multiple_of(64));
        // SAFETY: as in `copy`; alignment is the caller's promise.
        let outcome = unsafe { (self.stream)(to, from, bytes) };
        if outcome.left == 0 {
            Ok(())
        } else {
            Err(outcome)
        }
    }

    /// Zeroes whole lines with non-temporal stores.
    ///
    /// # Safety
    /// `to` is 64-aligned, `bytes` a multiple of 64, all of it pool memory.
    #[inline]
    pub(crate) unsafe fn zero(&self, to: *mut u8, bytes: usize) {
        if bytes > 0 {
            debug_assert!(to.addr().is_multiple_of(64) && bytes.is_multiple_of(64));
            // SAFETY: the caller's promise; the routine stores to that range
            // alone and follows the C calling convention.
            unsafe { (self.zero)(to, bytes) };
        }
    }
}

/// Continues after a fault in a vector routine: byte by byte, with cached stores, from the last
/// whole chunk, so that the count is exact.
///
/// # Safety
/// The rules of the copy that faulted, with its arguments.
#[cold]
#[inline(never)]
pub(crate) unsafe fn finish(
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    outcome: Outcome,
) -> Result<(), (usize, usize)> {
    let done = bytes - outcome.left;
    // SAFETY: the rest of the same two ranges.
    let exact = unsafe { pmem_copy_bytes(to.add(done), from.wrapping_add(done), outcome.left) };
    if exact.left == 0 {
        // The page is accessible again: all is copied.
        return Ok(());
    }
    Err((bytes - exact.left, exact.address))
}

#[cfg(test)]
mod tests {
    //! These tests run every routine that the CPU supports, on both sides of a bad page.

    use super::*;
    use crate::access::landing;
    use crate::address_space::Mapping;

    const PAGE: usize = 4096;
    const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

    /// The greatest length of a copy, and a few bytes.
    const ROOM: usize = 37_000;
    const GOOD: usize = 10;

    /// Accessible pages, one inaccessible page, and one accessible page.
    fn pages() -> Mapping {
        landing::install();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapping = Mapping::new(None, (GOOD + 2) * PAGE, PAGE, READ_WRITE, flags).unwrap();
        // SAFETY: a page of the mapping just made, which nothing refers to.
        let refused = unsafe {
            libc::mprotect(
                mapping.base().add(GOOD * PAGE).cast(),
                PAGE,
                libc::PROT_NONE,
            )
        };
        assert_eq!(refused, 0);
        mapping
    }

    fn fill(at: *mut u8, bytes: usize, seed: usize) {
        for i in 0..bytes {
            // SAFETY: the tests below fill buffers and good pages alone.
            unsafe { at.add(i).write((i * 13 + seed) as u8) };
        }
    }

    const LENGTHS: &[usize] = &[
        1, 2, 3, 5, 8, 12, 16, 24, 32, 40, 64, 65, 100, 128, 192, 256, 300, 448, 512, 1000, 4096,
        4100, 5000, 8192, 16_384, 16_385, 20_000, 32_768, 36_900,
    ];

    #[test]
    fn a_bad_source_page_stops_a_copy_exactly() {
        let mapping = pages();
        let bad = mapping.base().wrapping_add(GOOD * PAGE);
        fill(mapping.base(), GOOD * PAGE, 1);
        let mut buffer = vec![0u8; ROOM];
        for (name, copier) in Copier::all() {
            for &bytes in LENGTHS {
                for good in (0..bytes).step_by(1 + bytes / 97) {
                    buffer.fill(0xee);
                    let from = bad.wrapping_sub(good);
                    // SAFETY: a buffer of ROOM bytes.
                    let copied = unsafe { copier.copy(buffer.as_mut_ptr(), from, bytes) };
                    let case = format!("{name}: {good} of {bytes}");
                    assert_eq!(copied, Err((good, bad.addr())), "{case}");
                    let wanted: Vec<u8> = (0..good)
                        .map(|i| ((GOOD * PAGE - good + i) * 13 + 1) as u8)
                        .collect();
                    assert_eq!(buffer[..good], wanted, "{case}");
                    assert!(buffer[good..].iter().all(|&b| b == 0xee), "{case}");
                }
            }
        }
    }

    #[test]
    fn a_byte_is_there_or_not() {
        let mapping = pages();
        let bad = mapping.base().wrapping_add(GOOD * PAGE);
        assert_eq!(touch(bad.wrapping_sub(1)), Ok(()));
        assert_eq!(touch(bad), Err(bad.addr()));
        assert_eq!(touch(bad.wrapping_add(PAGE)), Ok(()));
    }

    #[test]
    fn a_bad_target_page_stops_a_copy_exactly() {
        let mapping = pages();
        let bad = mapping.base().wrapping_add(GOOD * PAGE);
        let mut source = vec![0u8; ROOM];
        fill(source.as_mut_ptr(), ROOM, 5);
        for (name, copier) in Copier::all() {
            for &bytes in LENGTHS {
                let good = bytes / 3;
                let to = bad.wrapping_sub(good);
                // SAFETY: good pages, then a page that faults and stores nothing.
                let copied = unsafe { copier.copy(to, source.as_ptr(), bytes) };
                assert_eq!(copied, Err((good, bad.addr())), "{name}: {bytes}");
                for (i, wanted) in source[..good].iter().enumerate() {
                    // SAFETY: before the bad page.
                    assert_eq!(unsafe { to.add(i).read() }, *wanted, "{name}: {bytes}");
                }
            }
        }
    }

    #[test]
    fn streams_copy_lines_and_stop_at_a_bad_page() {
        let mapping = pages();
        let base = mapping.base();
        let bad = base.wrapping_add(GOOD * PAGE);
        let mut source = vec![0u8; ROOM];
        fill(source.as_mut_ptr(), ROOM, 9);
        for (name, copier) in Copier::all() {
            for lines in [0, 1, 2, 3, 4, 5, 7, 8, 9, 64, 65, 130] {
                let bytes = lines * 64;
                let from = source.as_ptr().wrapping_add(lines % 17);
                fill(base, GOOD * PAGE, lines);
                // SAFETY: good pages; base + 64 is on a line.
                let copied = unsafe { copier.stream(base.add(64), from, bytes) };
                assert_eq!(copied, Ok(()), "{name}: {lines}");
                for i in 0..bytes + 128 {
                    let wanted = match i.checked_sub(64) {
                        Some(at) if at < bytes => source[lines % 17 + at],
                        _ => (i * 13 + lines) as u8,
                    };
                    // SAFETY: good pages.
                    assert_eq!(unsafe { base.add(i).read() }, wanted, "{name}: {lines}");
                }
                if lines == 0 {
                    continue;
                }
                let good = lines / 2 * 64;
                // SAFETY: good pages, then one that faults.
                let outcome = unsafe { copier.stream(bad.sub(good), from, bytes) }.unwrap_err();
                assert_eq!(outcome.address, bad.addr(), "{name}: {lines}");
                assert!(bytes - outcome.left <= good, "{name}: {lines}");
                // SAFETY: the same ranges.
                let exact = unsafe { finish(bad.sub(good), from, bytes, outcome) };
                assert_eq!(exact, Err((good, bad.addr())), "{name}: {lines}");
            }
        }
    }

    #[test]
    fn zeroes_lines_and_nothing_beside() {
        let mapping = pages();
        let base = mapping.base();
        for (name, copier) in Copier::all() {
            for bytes in [0, 64, 128, 4096, 4160] {
                fill(base, 2 * PAGE, 3);
                // SAFETY: good pages; base + 64 is on a line.
                unsafe { copier.zero(base.add(64), bytes) };
                for i in 0..bytes + 128 {
                    let inside = (64..64 + bytes).contains(&i);
                    let wanted = if inside { 0 } else { (i * 13 + 3) as u8 };
                    // SAFETY: good pages.
                    assert_eq!(unsafe { base.add(i).read() }, wanted, "{name}: {bytes}");
                }
            }
        }
    }
}
