//! splice(2) between a pipe and a file of the pool. The kernel serves the pipe's side, from or to a
//! memory file, so that waits, flags and the room in the pipe are as usual. A memory file serves
//! one call alone, because its pages may stay in the pipe.

use libc::{
    EBADF, EINVAL, ESPIPE, F_GETPIPE_SZ, MFD_CLOEXEC, O_APPEND, S_IFIFO, S_IFREG, SYS_splice,
};
use pmfs::{Fs, OpenFile};

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::calls::files::{self, for_reading, for_storing, give_back};
use crate::calls::moves::{End, offset_at};
use crate::descriptors;
use crate::descriptors::spare;
use crate::maps::mapped_size;
use crate::own::kernel::{self, PATH};
use crate::program::limits;
use crate::program::{self, IO_MAX};
use crate::thread::descriptor::Descriptor;
use crate::thread::gate;

/// The bits of flags that exist.
const KNOWN: u64 = 15;
const PAGE: u64 = 4096;

/// `[from, its offset, to, its offset, bytes, flags]`.
pub(crate) fn splice(args: [u64; 6]) -> Verdict {
    let (from, to) = (descriptors::get(args[0]), descriptors::get(args[2]));
    if to.is_none() && from.is_none() {
        return Verdict::Pass;
    }
    if args[4] == 0 {
        return Ok(0).into();
    }
    let _lent = spare::lend();
    let served = allow(args, from.as_ref(), to.as_ref()).and_then(|places| match (from, to) {
        (Some(from), None) => out(&from, places[0], args),
        (None, Some(to)) => into(&to, places[1], args),
        _ => Err(EINVAL),
    });
    served.into()
}

/// Checks the call in the kernel's order; returns the offsets that were given.
fn allow(
    args: [u64; 6],
    from: Option<&Descriptor>,
    to: Option<&Descriptor>,
) -> Result<[Option<u64>; 2], i32> {
    if args[5] & u64::from(u32::MAX) & !KNOWN != 0 {
        return Err(EINVAL);
    }
    let (source, target) = (End::of(args[0], from)?, End::of(args[2], to)?);
    let pipes = [source.kind, target.kind].map(|kind| kind == S_IFIFO);
    if (pipes[0] && args[1] != 0) || (pipes[1] && args[3] != 0) {
        return Err(ESPIPE);
    }
    // The target's offset is checked first.
    let at_target = offset_at(args[3])?;
    let places = [offset_at(args[1])?, at_target];
    if !source.reads() || !target.writes() {
        return Err(EBADF);
    }
    let file = if pipes[0] { &target } else { &source };
    let place = places[usize::from(pipes[0])].unwrap_or(0);
    let end = place.checked_add(args[4]);
    let fits = args[4] <= i64::MAX as u64 && end.is_some_and(|end| end <= i64::MAX as u64);
    let appended = pipes[0] && target.flags & O_APPEND != 0;
    match pipes[0] != pipes[1] && file.kind == S_IFREG && !appended && fits {
        true => Ok(places),
        false => Err(EINVAL),
    }
}

/// A memory file, closed at the end.
struct Between(u64);

impl Between {
    fn new() -> Result<Between, i32> {
        let flags = u64::from(MFD_CLOEXEC);
        let args = [PATH, flags, 0, 0, 0, 0];
        let make = || kernel::with_path(libc::SYS_memfd_create, args, b"pmfs-splice\0");
        let made = spare::retry(|| kernel_answer(make()));
        made.map(Between).map_err(|_| libc::ENOMEM)
    }

    /// Moves bytes between the memory file, from `at` on, and a pipe.
    fn splice(&self, at: u64, pipe: u64, (bytes, flags): (u64, u64), reads: bool) -> Answer {
        let place = [at];
        let pointer = place.as_ptr().expose_provenance() as u64;
        let args = match reads {
            true => [pipe, 0, self.0, pointer, bytes, flags],
            false => [self.0, pointer, pipe, 0, bytes, flags],
        };
        // The call may wait for the other end of the pipe.
        // SAFETY: the kernel reads the offset, and moves it.
        let answer = gate::away(|| unsafe { kernel::call(SYS_splice, args) });
        std::hint::black_box(place);
        kernel_answer(answer)
    }

    /// Reads or writes a whole buffer at an offset.
    fn move_all(&self, number: i64, (buffer, bytes): (u64, u64), at: u64) -> Result<(), i32> {
        let mut done = 0;
        while done < bytes {
            let args = [self.0, buffer + done, bytes - done, at + done, 0, 0];
            // SAFETY: the caller's buffer, of so many bytes.
            let answer = unsafe { kernel::call(number, args) };
            if answer <= 0 {
                return Err(libc::ENOMEM);
            }
            done += answer as u64;
        }
        Ok(())
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        kernel::plain(libc::SYS_close, &[self.0]);
    }
}

/// The most that a pipe can hold.
fn capacity(pipe: u64) -> u64 {
    let bytes = kernel::plain(libc::SYS_fcntl, &[pipe, F_GETPIPE_SZ as u64]);
    u64::try_from(bytes).map_or(PAGE, |bytes| bytes.clamp(PAGE, IO_MAX))
}

/// Moves bytes from a file of the pool to a pipe. The kernel sees no file of the pool, so its
/// offset is moved here.
fn out(from: &Descriptor, given: Option<u64>, args: [u64; 6]) -> Answer {
    let fs = for_reading(from)?;
    let pipe = args[2];
    let between = Between::new()?;
    let want = args[4].min(capacity(pipe)) as usize;
    let mut buffer = vec![0; want];
    let (read, start) = match given {
        Some(start) => {
            let wants_atime = || files::wants_atime(fs, from);
            (
                fs.read_for(from.ino, start, &mut buffer, wants_atime),
                start,
            )
        }
        None => {
            let read = fs.read_file(from.file, &mut buffer);
            let end = fs.file(from.file).map(|now| now.offset).map_err(errno)?;
            let bytes = read.as_ref().map_or(0, |read| *read as u64);
            (read, end.saturating_sub(bytes))
        }
    };
    let read = read.map_err(errno)? as u64;
    // An unaligned start takes one more page of the pipe, as in a file of the kernel.
    let at = start % PAGE;
    let data = buffer.as_mut_ptr().expose_provenance() as u64;
    let sent = between
        .move_all(libc::SYS_pwrite64, (data, read), at)
        .and_then(|()| between.splice(at, pipe, (args[4], args[5]), false));
    match given {
        None => give_back(fs, from, read - sent.unwrap_or(0).min(read))?,
        Some(start) => program::write(args[1], &(start + sent?))?,
    }
    sent
}

/// Takes the bytes that a pipe has, once. They can't be put back, so known obstacles are checked
/// before.
fn into(to: &Descriptor, given: Option<u64>, args: [u64; 6]) -> Answer {
    let fs = for_storing(to)?;
    let place = || match given {
        Some(place) => Ok(place),
        None => files::end(fs, to, false),
    };
    let want = args[4].min(capacity(args[0]));
    let want = limits::cut(want, place)?;
    // In a nearly full pool the program copies by itself, and knows which part is left.
    let free = fs.statfs().map_err(errno)?;
    if free.blocks_free.saturating_mul(free.block_size.into()) < 2 * want + (1 << 20) {
        return Err(EINVAL);
    }
    let between = Between::new()?;
    let taken = between.splice(0, args[0], (want, args[5]), true)?;
    let mut buffer = vec![0u8; taken as usize];
    let data = buffer.as_mut_ptr().expose_provenance() as u64;
    between.move_all(libc::SYS_pread64, (data, taken), 0)?;
    let wrote = store(fs, to, given, &buffer);
    mapped_size::changed(to.ino);
    if let (Some(start), Ok(wrote)) = (given, wrote) {
        program::write(args[3], &(start + wrote))?;
    }
    wrote
}

/// Stores all of the data, or returns an error.
fn store(fs: &Fs, to: &Descriptor, given: Option<u64>, data: &[u8]) -> Answer {
    let mut done = 0;
    while done < data.len() {
        let rest = &data[done..];
        let wrote = match given {
            Some(start) => fs.write(to.ino, start + done as u64, rest),
            None => fs.write_file(to.file, rest, OpenFile::appends),
        };
        match wrote.map_err(errno)? {
            0 => return Err(libc::EIO),
            wrote => done += wrote,
        }
    }
    Ok(done as u64)
}
