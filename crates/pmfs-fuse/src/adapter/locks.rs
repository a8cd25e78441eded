//! Requests about file locks, and the ends of open files.

use pmfs::{LockKind, LockRange};
use rustix::io::Errno;

use super::dispatch::{Adapter, Answer, Refusal};
use crate::server::LockRequest;
use crate::wire::message::Body;
use crate::wire::reply::{LkOut, Reply};
use crate::wire::request::{FileLock, FlushIn, InHeader, LK_FLOCK, LkIn, ReleaseIn};

/// F_RDLCK, F_WRLCK and F_UNLCK of `fcntl(2)`.
const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;

/// The kernel's last byte of a range that reaches as far as the file may grow; the
/// engine's is `u64::MAX`.
const END: u64 = i64::MAX as u64;

impl Adapter {
    pub(super) fn flush(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let FlushIn { lock_owner, .. } = body.take()?;
        self.run(|server| server.flush(header.nodeid, lock_owner))
    }

    pub(super) fn release(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let asked: ReleaseIn = body.take()?;
        self.run(|server| server.close_file(header.nodeid, asked.fh))
    }

    pub(super) fn getlk(&self, header: &InHeader, body: Body<'_>, reply: &mut Reply) -> Answer {
        let asked = lock_request(header, body)?;
        let found = self.run(|server| server.lock_conflict(&asked))?;
        let lk = match found {
            None => FileLock {
                start: asked.range.start,
                end: asked.range.end.min(END),
                kind: UNLOCK,
                pid: 0,
            },
            Some(lock) => FileLock {
                start: lock.range.start.min(END),
                end: lock.range.end.min(END),
                kind: match lock.kind {
                    LockKind::Read => READ,
                    LockKind::Write => WRITE,
                },
                pid: lock.pid,
            },
        };
        reply.put(&LkOut { lk });
        Ok(())
    }

    pub(super) fn setlk(&self, header: &InHeader, body: Body<'_>) -> Answer {
        let asked = lock_request(header, body)?;
        self.run(|server| server.lock(&asked))
    }

    /// Waits; of SETLKW, after [`Adapter::setlk`] has failed.
    pub(super) fn wait_for_lock(
        &self,
        asked: &LockRequest,
        interrupted: &dyn Fn() -> bool,
    ) -> Answer {
        self.run(|server| server.lock_wait(asked, interrupted))
    }
}

/// The arguments of GETLK, SETLK and SETLKW.
pub(super) fn lock_request(header: &InHeader, mut body: Body<'_>) -> Result<LockRequest, Refusal> {
    let asked: LkIn = body.take()?;
    let FileLock {
        start,
        end,
        kind,
        pid,
    } = asked.lk;
    if start > end || end > END {
        return Err(Errno::INVAL.into());
    }
    Ok(LockRequest {
        node: header.nodeid,
        handle: asked.fh,
        owner: asked.owner,
        flock: asked.lk_flags & LK_FLOCK != 0,
        range: LockRange {
            start,
            end: if end == END { u64::MAX } else { end },
        },
        kind: match kind {
            READ => Some(LockKind::Read),
            WRITE => Some(LockKind::Write),
            UNLOCK => None,
            _ => return Err(Errno::INVAL.into()),
        },
        pid,
    })
}
