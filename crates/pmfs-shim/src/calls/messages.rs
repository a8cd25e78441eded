//! Descriptors sent through sockets. The receiver of a descriptor of the pool needs one of the
//! mount, which stands for the same open file.

use libc::{EBADF, SCM_RIGHTS, SOL_SOCKET};

use crate::call::{Answer, Verdict, kernel_answer};
use crate::descriptors;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::descriptors::spare::{self, Lent};
use crate::own::kernel;
use crate::own::mountless::{self, Refused};
use crate::own::stats;
use crate::program;
use crate::thread::descriptor::Descriptor;
use crate::thread::gate;

/// The kernel's struct msghdr.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    name: u64,
    name_bytes: u64,
    vector: u64,
    vector_count: u64,
    control: u64,
    control_bytes: u64,
    flags: u64,
}

/// Bytes of a control message before its data: length, level, type.
const HEAD: usize = 16;
/// More bytes than the kernel accepts.
const CONTROL_MAX: u64 = 1 << 20;
/// The most messages that sendmmsg(2) sends.
const COUNT_MAX: u64 = 1024;
/// struct mmsghdr: a message, and the bytes sent of it.
const ONE_OF_MANY: u64 = size_of::<Message>() as u64 + 8;

pub(crate) fn send(args: [u64; 6]) -> Verdict {
    match Replaced::of(args[1]) {
        Ok(None) => Verdict::Pass,
        Ok(Some(replaced)) => replaced.send(args).into(),
        Err(errno) => Err(errno).into(),
    }
}

/// Serves sendmmsg(2) by single messages, if any of them carries a descriptor of the pool.
pub(crate) fn send_many(args: [u64; 6]) -> Verdict {
    let count = args[2].min(COUNT_MAX);
    let at = |index: u64| args[1] + index * ONE_OF_MANY;
    let carries = |index: u64| matches!(carried(at(index)), Ok(Some(_)) | Err(_));
    if !(0..count).any(carries) {
        return Verdict::Pass;
    }
    for index in 0..count {
        let one = [args[0], at(index), args[3], 0, 0, 0];
        let sent = match Replaced::of(at(index)) {
            Ok(Some(replaced)) => replaced.send(one),
            Ok(None) => pass(one),
            Err(errno) => Err(errno),
        };
        let told = sent.and_then(|sent| {
            program::write(at(index) + size_of::<Message>() as u64, &(sent as u32))
        });
        match told {
            Ok(()) => {}
            Err(_) if index > 0 => return Ok(index).into(),
            Err(errno) => return Err(errno).into(),
        }
    }
    Ok(count).into()
}

fn pass(args: [u64; 6]) -> Answer {
    // The call may wait for the receiver.
    // SAFETY: the program's own call, of messages that stay until it is over.
    kernel_answer(gate::away(|| unsafe {
        kernel::call(libc::SYS_sendmsg, args)
    }))
}

/// A message's control data, and the positions in it of descriptors of the pool.
type Carried = (Message, Vec<u8>, Vec<(usize, Descriptor)>);

fn carried(at: u64) -> Result<Option<Carried>, i32> {
    let message: Message = program::read(at)?;
    if message.control == 0 || !(HEAD as u64..CONTROL_MAX).contains(&message.control_bytes) {
        return Ok(None);
    }
    let mut control = vec![0; message.control_bytes as usize];
    program::read_bytes(message.control, &mut control)?;
    let mut ours = Vec::new();
    let mut at = 0;
    while at + HEAD <= control.len() {
        let word =
            |at: usize| i32::from_le_bytes(control[at..at + 4].try_into().unwrap_or_default());
        let bytes = u64::from_le_bytes(control[at..at + 8].try_into().unwrap_or_default());
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes < HEAD || bytes > control.len() - at {
            // The kernel refuses it.
            return Ok(None);
        }
        if word(at + 8) == SOL_SOCKET && word(at + 12) == SCM_RIGHTS {
            for place in (at + HEAD..at + bytes - 3).step_by(4) {
                let number = word(place) as u32;
                if descriptors::is_own(number.into()) {
                    return Err(EBADF);
                }
                let ours_there = descriptors::get(number.into());
                ours.extend(
                    ours_there
                        .filter(|file| !file.is_path_only())
                        .map(|file| (place, file)),
                );
            }
        }
        at += bytes.next_multiple_of(8);
    }
    Ok((!ours.is_empty()).then_some((message, control, ours)))
}

/// A message with the mount's descriptors in place of ours.
struct Replaced {
    message: Message,
    control: Vec<u8>,
    through: Vec<i32>,
    /// Dropped last.
    _lent: Lent,
}

impl Replaced {
    fn of(at: u64) -> Result<Option<Replaced>, i32> {
        let Some((message, control, ours)) = carried(at)? else {
            return Ok(None);
        };
        if mountless::is() {
            return Err(mountless::refuse(Refused::Sent, libc::EOPNOTSUPP));
        }
        let fs = pool::get().ok_or(libc::EIO)?;
        let mut replaced = Replaced {
            message,
            control,
            through: Vec::new(),
            _lent: spare::lend(),
        };
        for (place, file) in ours {
            let through = promote::stand_in(fs, &file)?;
            replaced.through.push(through);
            replaced.control[place..place + 4].copy_from_slice(&through.to_le_bytes());
            stats::promoted();
        }
        Ok(Some(replaced))
    }

    fn send(&self, args: [u64; 6]) -> Answer {
        let mut message = self.message;
        message.control = self.control.as_ptr().expose_provenance() as u64;
        let at = (&raw const message).expose_provenance() as u64;
        pass([args[0], at, args[2], 0, 0, 0])
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        for through in &self.through {
            kernel::plain(libc::SYS_close, &[*through as u64]);
        }
    }
}
