//! Copies of files of the pool for the kernel, where there is no mount: programs to be run, and
//! memory that can't be the pool's own blocks. Each is a memory file, sealed when it is complete.

use libc::{ENOMEM, F_ADD_SEALS};
use pmfs::{Fs, Ino};

use crate::call::{errno, kernel_answer};
use crate::own::kernel::{self, PATH};

/// Bytes of one step of a copy.
const STEP: usize = 256 << 10;
/// Flag of linux/memfd.h, from 6.3 on: the file may be executed, whatever the machine's default.
const MFD_EXEC: u64 = 0x10;

/// A descriptor, closed on drop.
pub(crate) struct Copy(pub u64);

impl Drop for Copy {
    fn drop(&mut self) {
        kernel::plain(libc::SYS_close, &[self.0]);
    }
}

/// Copies `bytes` bytes of a file from `at` on, or up to its end. `name` ends with NUL.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM; those of the engine.
pub(crate) fn of(fs: &Fs, ino: Ino, (at, bytes): (u64, u64), name: &[u8]) -> Result<Copy, i32> {
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    let make = |flags| kernel::with_path(libc::SYS_memfd_create, [PATH, flags, 0, 0, 0, 0], name);
    let made = match kernel_answer(make(flags | MFD_EXEC)) {
        Err(libc::EINVAL) => kernel_answer(make(flags)),
        made => made,
    };
    let copy = Copy(made?);
    let mut buffer = vec![0; STEP];
    let mut done = 0;
    while done < bytes {
        let want = (bytes - done).min(STEP as u64) as usize;
        let read = fs.read(ino, at + done, &mut buffer[..want]);
        let read = read.map_err(errno)?;
        if read == 0 {
            break;
        }
        put(&copy, &buffer[..read])?;
        done += read as u64;
    }
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    kernel::plain(libc::SYS_fcntl, &[copy.0, F_ADD_SEALS as u64, seals as u64]);
    Ok(copy)
}

fn put(copy: &Copy, mut data: &[u8]) -> Result<(), i32> {
    while !data.is_empty() {
        let at = data.as_ptr().expose_provenance() as u64;
        // SAFETY: the kernel reads the data.
        let wrote =
            unsafe { kernel::call(libc::SYS_write, [copy.0, at, data.len() as u64, 0, 0, 0]) };
        if wrote <= 0 {
            return Err(ENOMEM);
        }
        data = &data[wrote as usize..];
    }
    Ok(())
}
