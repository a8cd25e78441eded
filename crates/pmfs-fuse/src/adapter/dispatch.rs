//! Dispatch of a request to the method that answers it, and the rules for all: the callers that are
//! let in, a pool that stays attached meanwhile, errors as errnos.

use std::sync::Arc;
use std::time::Duration;

use pmfs::{Attr, Error};
use rustix::io::Errno;

use super::handshake::Terms;
use crate::server::{Server, may_remember};
use crate::wire::message::{Body, Malformed};
use crate::wire::opcode::Opcode;
use crate::wire::reply::Reply;
use crate::wire::request::InHeader;
use pmfs_posix::mount_options::Remember;

/// The time for which the kernel may remember names and attributes with `-o cache`.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Reasons for which a request is not granted.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The engine's word.
    Engine(Error),
    /// Decided here.
    Number(Errno),
    /// The message can't be right.
    Malformed,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Engine(error)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Number(errno)
    }
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Refusal {
        Refusal::Malformed
    }
}

/// The answer of a method: the reply's bytes are in its [`Reply`].
pub(super) type Answer = Result<(), Refusal>;

/// Answers requests by a [`Server`].
pub(super) struct Adapter {
    pub(super) server: Arc<Server>,
    pub(super) terms: Terms,
    /// The validity of an answer about a name or an inode, also beside other processes.
    ttl: Duration,
    /// The mount's name, told on request.
    pub(super) name: u32,
    /// The only user that is let in, if not all are.
    only: Option<u32>,
}

impl Adapter {
    pub(super) fn new(
        server: Arc<Server>,
        terms: Terms,
        remember: Remember,
        name: u32,
        only: Option<u32>,
    ) -> Adapter {
        Adapter {
            server,
            terms,
            ttl: match remember {
                Remember::Always => REMEMBERED,
                Remember::Alone | Remember::Never => Duration::ZERO,
            },
            name,
            only,
        }
    }

    /// Answers one request into `reply`.
    pub(super) fn dispatch(
        &self,
        opcode: Opcode,
        header: &InHeader,
        body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        self.admit(opcode, header)?;
        match opcode {
            Opcode::Lookup => self.lookup(header, body, reply),
            Opcode::Forget => self.forget(header, body),
            Opcode::BatchForget => self.batch_forget(body),
            Opcode::Getattr => self.getattr(header, reply),
            Opcode::Statx => self.statx(header, body, reply),
            Opcode::Setattr => self.setattr(header, body, reply),
            Opcode::Readlink => self.readlink(header, reply),
            Opcode::Symlink => self.symlink(header, body, reply),
            Opcode::Mknod => self.mknod(header, body, reply),
            Opcode::Mkdir => self.mkdir(header, body, reply),
            Opcode::Unlink => self.unlink(header, body),
            Opcode::Rmdir => self.rmdir(header, body),
            Opcode::Rename => self.rename(header, body),
            Opcode::Rename2 => self.rename2(header, body),
            Opcode::Link => self.link(header, body, reply),
            Opcode::Create => self.create(header, body, reply),
            Opcode::Tmpfile => self.tmpfile(header, body, reply),
            Opcode::Open => self.open(header, body, reply),
            Opcode::Flush => self.flush(header, body),
            Opcode::Release | Opcode::Releasedir => self.release(header, body),
            Opcode::Getlk => self.getlk(header, body, reply),
            // The worker sees to the waiting.
            Opcode::Setlk | Opcode::Setlkw => self.setlk(header, body),
            Opcode::Read => self.read(header, body, reply),
            Opcode::Write => self.write(header, body, reply),
            Opcode::Fallocate => self.fallocate(header, body),
            Opcode::Lseek => self.lseek(header, body, reply),
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
                self.copy_file_range(opcode, header, body, reply)
            }
            Opcode::Ioctl => self.ioctl(header, body, reply),
            Opcode::Opendir => self.opendir(header, reply),
            Opcode::Readdir => self.readdir(header, body, reply),
            Opcode::Readdirplus => self.readdirplus(header, body, reply),
            Opcode::Statfs => self.statfs(reply),
            Opcode::Setxattr => self.setxattr(header, body),
            Opcode::Getxattr => self.getxattr(header, body, reply),
            Opcode::Listxattr => self.listxattr(header, body, reply),
            Opcode::Removexattr => self.removexattr(header, body),
            // All is durable already.
            Opcode::Syncfs | Opcode::Destroy => Ok(()),
            // The worker's own.
            Opcode::Interrupt => Ok(()),
            // Comes once, and has been answered.
            Opcode::Init => Err(Errno::IO.into()),
            // FSYNC: the kernel then knows that there is nothing to do. POLL: files are
            // always ready. The others are the kernel's own business here.
            Opcode::Fsync | Opcode::Fsyncdir | Opcode::Poll | Opcode::Bmap | Opcode::Access => {
                Err(Errno::NOSYS.into())
            }
        }
    }

    /// The kernel admits the users that the mount is for; this checks it once more. Requests that
    /// it sends by itself, or for a descriptor that was handed on, come with any user.
    fn admit(&self, opcode: Opcode, header: &InHeader) -> Answer {
        if self.only.is_none_or(|only| only == header.uid) {
            return Ok(());
        }
        match opcode {
            Opcode::Init
            | Opcode::Destroy
            | Opcode::Interrupt
            | Opcode::Read
            | Opcode::Readdir
            | Opcode::Readdirplus
            | Opcode::Write
            | Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Flush
            | Opcode::Fsync
            | Opcode::Fsyncdir
            | Opcode::Syncfs
            | Opcode::Release
            | Opcode::Releasedir => Ok(()),
            _ => Err(Errno::ACCESS.into()),
        }
    }

    /// Runs a request's work while the pool stays attached.
    pub(super) fn run<T>(
        &self,
        work: impl FnOnce(&Server) -> pmfs::Result<T>,
    ) -> Result<T, Refusal> {
        let _attached = self.server.enter()?;
        Ok(work(&self.server)?)
    }

    /// The validity of these attributes, which the answer in `reply` tells the kernel.
    pub(super) fn ttl_of(&self, attr: &Attr, reply: &mut Reply) -> Duration {
        match may_remember(attr) {
            true => self.ttl(reply),
            false => Duration::ZERO,
        }
    }

    /// The validity of the answer in `reply`.
    pub(super) fn ttl(&self, reply: &mut Reply) -> Duration {
        self.ttl.max(self.server.term(&mut reply.grant))
    }
}
