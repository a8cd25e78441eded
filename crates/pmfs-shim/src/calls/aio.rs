//! io_submit(2): what is ours is done at once; its completion is the kernel's, so that it is found where libaio looks, in
//! the ring that the program shares with the kernel.
//!
//! For that the request goes to the kernel as a write of as many bytes as were moved, to /dev/null: for the time of the
//! call, in the program's own structure, whose address the completion names.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::{EAGAIN, EINVAL};

use super::files::{self, Place};
use super::kernel_answer;
use crate::descriptors::{self, Descriptor};
use crate::dispatch::Verdict;
use crate::kernel::{self, PATH};
use crate::program::{self, Answer};

/// The kernel's struct iocb.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    operation: u16,
    priority: u16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: u64,
    reserved: u64,
    flags: u32,
    event: u32,
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const SYNC: u16 = 2;
const DATA_SYNC: u16 = 3;
const READ_VECTOR: u16 = 7;
const WRITE_VECTOR: u16 = 8;

/// Most requests of one call that are looked at.
const COUNT_MAX: u64 = 1 << 16;

/// Every byte of it is taken.
static NULL: AtomicI32 = AtomicI32::new(-1);

pub(crate) fn submit(args: [u64; 6]) -> Verdict {
    let [context, count, list, ..] = args;
    if count as i64 <= 0 || count > COUNT_MAX {
        return Verdict::Pass;
    }
    let request = |index: u64| -> Result<(u64, Request), i32> {
        let at: u64 = program::read(list + index * 8)?;
        Ok((at, program::read(at)?))
    };
    let is_ours = |index| {
        request(index).is_ok_and(|(_, asked)| descriptors::get(asked.file.into()).is_some())
    };
    if !(0..count).any(is_ours) {
        return Verdict::Pass;
    }
    let mut done = 0;
    for index in 0..count {
        let one = match request(index) {
            Err(errno) => Err(errno),
            Ok((at, asked)) => match descriptors::get(asked.file.into()) {
                Some(file) => serve(context, &file, at, &asked),
                None => pass_one(context, at),
            },
        };
        match one {
            Ok(_) => done += 1,
            // What came before it is under way.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno).into(),
        }
    }
    Ok(done).into()
}

fn serve(context: u64, file: &Descriptor, at: u64, asked: &Request) -> Answer {
    let io = [
        asked.file.into(),
        asked.buffer,
        asked.bytes,
        asked.offset,
        0,
        0,
    ];
    let moved = match asked.operation {
        READ => files::pread(file, &io)?,
        WRITE => files::pwrite(file, &io)?,
        READ_VECTOR => done(files::readv(file, io, Place::At(asked.offset)))?,
        WRITE_VECTOR => done(files::writev(file, io, Place::At(asked.offset)))?,
        SYNC | DATA_SYNC => 0,
        _ => return Err(EINVAL),
    };
    let stand_in = Request {
        operation: WRITE,
        rw_flags: 0,
        file: null()? as u32,
        bytes: moved,
        offset: 0,
        ..*asked
    };
    program::write(at, &stand_in)?;
    let answer = pass_one(context, at);
    program::write(at, asked)?;
    answer
}

fn done(verdict: Verdict) -> Answer {
    match verdict {
        Verdict::Done(rax) => Verdict::answer(rax),
        _ => Err(EAGAIN),
    }
}

fn pass_one(context: u64, at: u64) -> Answer {
    let list = (&raw const at).expose_provenance() as u64;
    // SAFETY: the kernel reads one address, and what the program has there.
    kernel_answer(unsafe { kernel::call(libc::SYS_io_submit, [context, 1, list, 0, 0, 0]) })
}

fn null() -> Result<i32, i32> {
    let known = NULL.load(Ordering::Acquire);
    if known >= 0 {
        return Ok(known);
    }
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as u64;
    let args = [libc::AT_FDCWD as u64, PATH, flags, 0, 0, 0];
    let made = descriptors::number(kernel::with_path(libc::SYS_openat, args, b"/dev/null\0"))?;
    let high = [
        made as u64,
        libc::F_DUPFD_CLOEXEC as u64,
        descriptors::choose_floor() as u64,
    ];
    let kept = kernel::plain(libc::SYS_fcntl, &high);
    kernel::plain(libc::SYS_close, &[made as u64]);
    let kept = descriptors::number(kept)?;
    NULL.store(kept, Ordering::Release);
    Ok(kept)
}
