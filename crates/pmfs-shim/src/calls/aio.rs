//! io_submit(2): requests for the pool's files are done at once. The kernel completes them, so that
//! libaio finds them in order with those of other files ([`completions`]).

use libc::{EAGAIN, EINVAL, EOPNOTSUPP};

use crate::call::{Answer, Verdict};
use crate::calls::completions::{self, Request, WRITE};
use crate::calls::files::{self, Place};
use crate::descriptors;
use crate::program;
use crate::thread::descriptor::Descriptor;

const READ: u16 = 0;
const SYNC: u16 = 2;
const DATA_SYNC: u16 = 3;
const READ_VECTOR: u16 = 7;
const WRITE_VECTOR: u16 = 8;

/// The most requests of one call that are examined.
const COUNT_MAX: u64 = 1 << 16;

/// Known bits of `rw_flags`. All but RWF_APPEND have no effect: each request is done at once and is
/// durable.
const FLAGS_KNOWN: u32 = 0xf;

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
                None => completions::pass(context, at),
            },
        };
        match one {
            Ok(_) => done += 1,
            // The earlier requests are under way.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno).into(),
        }
    }
    Ok(done).into()
}

fn serve(context: u64, file: &Descriptor, at: u64, asked: &Request) -> Answer {
    if asked.rw_flags & !FLAGS_KNOWN != 0 {
        return Err(EOPNOTSUPP);
    }
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
        SYNC | DATA_SYNC if asked.buffer | asked.bytes | asked.offset == 0 => 0,
        _ => return Err(EINVAL),
    };
    completions::add(context, at, asked, moved)
}

fn done(verdict: Verdict) -> Answer {
    match verdict {
        Verdict::Done(rax) => Verdict::answer(rax),
        _ => Err(EAGAIN),
    }
}
