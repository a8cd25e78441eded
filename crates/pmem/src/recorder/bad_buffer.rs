//! A program's buffer that ends early, for checks of calls that read one (feature `record`).

use crate::address_space::Mapping;
use std::io;

const PAGE: usize = 4096;

/// Memory that begins with these bytes and claims to be `len` bytes long, but faults behind them,
/// like a buffer whose length a program states wrongly. Only for calls that expect such buffers; it
/// lasts for the rest of the process's life.
///
/// # Errors
/// The kernel's.
///
/// # Panics
/// If `len` is less than the count of bytes given.
pub fn bad_buffer(good: &[u8], len: usize) -> io::Result<&'static [u8]> {
    assert!(good.len() <= len, "a buffer that ends early");
    let there = good.len().next_multiple_of(PAGE);
    let room = there + (len - good.len()).next_multiple_of(PAGE) + PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let pages = Mapping::new(None, room, PAGE, protection, flags)?;
    let start = pages.base().wrapping_add(there - good.len());
    // SAFETY: the mapping just made, which nobody else knows of: `good` ends where its readable
    // part does, and the rest of it is closed.
    let closed = unsafe {
        start.copy_from_nonoverlapping(good.as_ptr(), good.len());
        libc::mprotect(
            pages.base().wrapping_add(there).cast(),
            room - there,
            libc::PROT_NONE,
        )
    };
    if closed != 0 {
        return Err(io::Error::last_os_error());
    }
    std::mem::forget(pages);
    // SAFETY: as a program's bad pointer is: only the copy routine, which may fault, looks at what
    // is behind `good`.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}

#[cfg(test)]
mod tests {
    use super::bad_buffer;
    use crate::Pmem;

    #[test]
    fn it_ends_where_it_is_to_end() {
        let mem = Pmem::private(64 << 10);
        for good in [0, 1, 100, 4096, 5000] {
            let bytes = bad_buffer(&vec![7; good], 9000).unwrap();
            assert_eq!(mem.write_nt(4000, bytes).unwrap_err().done, good);
            mem.write_nt(4000, &bytes[..good]).unwrap();
        }
    }
}
