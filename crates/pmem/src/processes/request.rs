//! Requests to a file system or a device by number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Calls ioctl(2) without an argument, for numbers made with `_IO`, and returns its result.
///
/// # Errors
/// The kernel's error; `ENOTTY` for an unknown number.
pub fn request(file: BorrowedFd<'_>, number: u32) -> io::Result<i32> {
    // SAFETY: the argument is 0, so a handler that took it for a pointer would find nothing mapped
    // there and fail with EFAULT: no memory of this process is read or written.
    answered(unsafe { libc::ioctl(file.as_raw_fd(), number.into(), 0) })
}

/// Calls ioctl(2) with a pointer to one 32-bit word, for numbers that declare this argument (made
/// with `_IOR`, `_IOW` or `_IOWR` of four bytes).
///
/// # Errors
/// The kernel's error; `EINVAL` for a number that declares another size.
pub fn request_with_word(file: BorrowedFd<'_>, number: u32, word: u32) -> io::Result<i32> {
    // asm-generic/ioctl.h: fourteen bits of size above eight bits of type and eight of number.
    if number >> 16 & 0x3fff != 4 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut word = word;
    // SAFETY: the number says that its handler reads or writes four bytes at the address given, and
    // `word` is four bytes of this function's own that nothing else refers to during the call.
    answered(unsafe { libc::ioctl(file.as_raw_fd(), number.into(), &raw mut word) })
}

/// Calls ioctl(2) to fill `room`, for numbers that declare this argument (made with `_IOR` of as
/// many bytes).
///
/// # Errors
/// The kernel's error; `EINVAL` for a number that declares another size.
pub fn request_for_bytes(file: BorrowedFd<'_>, number: u32, room: &mut [u8]) -> io::Result<i32> {
    if (number >> 16 & 0x3fff) as usize != room.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the number says that its handler writes `room.len()` bytes to the address given, and
    // `room` is as long and borrowed for the call alone.
    answered(unsafe { libc::ioctl(file.as_raw_fd(), number.into(), room.as_mut_ptr()) })
}

fn answered(answer: i32) -> io::Result<i32> {
    match answer {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn only_numbers_of_one_word() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let refused = request_with_word(null.as_fd(), 0x8008_e500, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        let short = request_for_bytes(null.as_fd(), 0x8008_e500, &mut [0; 7]).unwrap_err();
        assert_eq!(short.raw_os_error(), Some(libc::EINVAL));
        let unknown = request_with_word(null.as_fd(), 0x8004_e500, 0).unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(libc::ENOTTY));
    }
}
