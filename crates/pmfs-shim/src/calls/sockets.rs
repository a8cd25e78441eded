//! bind(2) and connect(2). Without a mount a socket can't have a name in the pool, and the kernel
//! would create it elsewhere.

use libc::{AF_UNIX, EOPNOTSUPP};

use crate::call::{Call, Verdict, kernel_answer};
use crate::names::{AtEnd, Lead, find};
use crate::own::kernel;
use crate::own::mountless::{self, Refused};
use crate::program;
use crate::thread::Inner;

/// Bytes of an address before its path.
const HEAD: usize = 2;
/// Bytes of the longest address.
const ADDRESS_MAX: usize = size_of::<libc::sockaddr_un>();

/// `[socket, address, bytes]`.
pub(crate) fn name(room: &mut Inner, call: &Call) -> Verdict {
    let [socket, address, bytes, ..] = call.args;
    let bytes = bytes as u32 as usize;
    if !mountless::is() || !(HEAD + 1..=ADDRESS_MAX).contains(&bytes) {
        return Verdict::Pass;
    }
    let mut named = [0u8; ADDRESS_MAX + 1];
    if program::read_bytes(address, &mut named[..bytes]).is_err() {
        return Verdict::Pass;
    }
    let family = u16::from_le_bytes([named[0], named[1]]);
    if i32::from(family) != AF_UNIX || named[HEAD] == 0 {
        return Verdict::Pass;
    }
    let path = named[HEAD..].as_ptr().expose_provenance() as u64;
    let at_end = match call.rax as i64 {
        libc::SYS_bind => AtEnd::Name,
        _ => AtEnd::Follow,
    };
    match find(room, libc::AT_FDCWD as u64, path, at_end) {
        Err(errno) => Err(errno).into(),
        Ok(Lead::Kernel) => Verdict::Pass,
        Ok(Lead::Pool(..)) => Err(mountless::refuse(Refused::Socket, EOPNOTSUPP)).into(),
        Ok(Lead::Out(path)) => {
            let whole = [&family.to_le_bytes()[..], path].concat();
            if whole.len() > ADDRESS_MAX {
                return Err(libc::ENAMETOOLONG).into();
            }
            let at = whole.as_ptr().expose_provenance() as u64;
            let args = [socket, at, whole.len() as u64, 0, 0, 0];
            // SAFETY: the program's own call, with another address, which stays until it is over.
            kernel_answer(unsafe { kernel::call(call.rax as i64, args) }).into()
        }
    }
}
