//! Asking a file system for something by number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// ioctl(2) with no argument; what it answers. For numbers made with `_IO`, which carry none.
///
/// # Errors
/// The system's word; `ENOTTY` where nobody knows the number.
pub fn request(file: BorrowedFd<'_>, number: u32) -> io::Result<i32> {
    // SAFETY: the argument is 0, so a handler that took it for a pointer would find nothing mapped
    // there and fail with EFAULT: no memory of this process is read or written.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), number.into(), 0) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}
