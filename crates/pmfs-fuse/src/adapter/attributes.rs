//! Requests about attributes, ordinary and extended, and about the pool as a whole.

use pmfs::{Error, FOLLOW_REQUEST};
use rustix::io::Errno;

use super::dispatch::{Adapter, Answer, Refusal};
use super::translate::{attr_out, caller, set_attr, statfs_out, statx_out};
use crate::freeze::{self, Frozen};
use crate::presence;
use crate::remount::Manner;
use crate::served;
use crate::server::Server;
use crate::wire::message::Body;
use crate::wire::reply::{GetxattrOut, IoctlOut, Reply};
use crate::wire::request::{
    FollowIn, GetxattrIn, IOCTL_UNRESTRICTED, InHeader, IoctlIn, SETXATTR_ACL_KILL_SGID, SetattrIn,
    SetxattrIn, StatxIn,
};

impl Adapter {
    pub(super) fn getattr(&self, header: &InHeader, reply: &mut Reply) -> Answer {
        let attr = self.run(|server| server.getattr(header.nodeid))?;
        let ttl = self.ttl_of(&attr, reply);
        reply.put(&attr_out(&attr, ttl));
        Ok(())
    }

    /// Serves statx, which the kernel sends only for a caller that wants the time of creation.
    pub(super) fn statx(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let _: StatxIn = body.take()?;
        let attr = self.run(|server| server.getattr(header.nodeid))?;
        let ttl = self.ttl_of(&attr, reply);
        reply.put(&statx_out(&attr, ttl));
        Ok(())
    }

    pub(super) fn setattr(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let asked: SetattrIn = body.take()?;
        let set = set_attr(&asked)?;
        let attr = self.run(|server| server.setattr(header.nodeid, &set, &caller(header)))?;
        let ttl = self.ttl_of(&attr, reply);
        reply.put(&attr_out(&attr, ttl));
        Ok(())
    }

    pub(super) fn statfs(&self, reply: &mut Reply) -> Answer {
        let stat = self.run(Server::statfs)?;
        reply.put(&statfs_out(&stat));
        Ok(())
    }

    pub(super) fn setxattr(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let asked: SetxattrIn = body.take()?;
        let name = body.name()?;
        let value = body.bytes(asked.size as usize)?;
        let kill_set_gid = asked.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
        self.run(|server| {
            let name = self.enforced(name)?;
            server.setxattr(header.nodeid, name, value, asked.flags, kill_set_gid)
        })
    }

    pub(super) fn getxattr(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let GetxattrIn { size, .. } = body.take()?;
        let name = body.name()?;
        let value = self.run(|server| server.getxattr(header.nodeid, self.enforced(name)?))?;
        put_sized(reply, size, &value)
    }

    pub(super) fn listxattr(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let GetxattrIn { size, .. } = body.take()?;
        let names = self.run(|server| server.listxattr(header.nodeid, &caller(header)))?;
        put_sized(reply, size, &names)
    }

    pub(super) fn removexattr(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let name = body.name()?;
        self.run(|server| server.removexattr(header.nodeid, self.enforced(name)?))
    }

    /// Our own, by which tools talk to the daemon. Terminals are asked for by programs
    /// that only want to know whether this is one.
    pub(super) fn ioctl(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let asked: IoctlIn = body.take()?;
        if asked.flags & IOCTL_UNRESTRICTED != 0 {
            return Err(Errno::NOSYS.into());
        }
        if let Some(bytes) = flags_answer(asked.cmd, &mut body)? {
            put_ioctl(reply, 0);
            reply.append(&[0; FSXATTR_BYTES][..bytes]);
            return Ok(());
        }
        let result = if let Some(manner) = Manner::of(asked.cmd) {
            self.run(|server| server.remount(header.uid, manner))?;
            0
        } else if asked.cmd == freeze::REQUEST {
            // The freeze waits for the other requests, so this one must not hold the pass that they
            // wait for.
            let frozen = self.server.freeze(header.uid).map_err(Refusal::Engine)?;
            i32::from(frozen == Frozen::Damaged)
        } else if asked.cmd == presence::REQUEST {
            self.name as i32
        } else if asked.cmd == served::REQUEST {
            0
        } else if asked.cmd == FOLLOW_REQUEST {
            let FollowIn { file, at } = body.take()?;
            let (uid, node) = (header.uid, header.nodeid);
            self.run(|server| server.follow(uid, node, asked.fh, file, at))?;
            0
        } else {
            return Err(Errno::NOTTY.into());
        };
        put_ioctl(reply, result);
        if asked.cmd == served::REQUEST {
            reply.append(&self.run(|server| Ok(server.served()))?);
        }
        Ok(())
    }

    /// ACLs are refused where the kernel does not enforce them.
    fn enforced<'a>(&self, name: &'a [u8]) -> pmfs::Result<&'a [u8]> {
        if !self.terms.acls && name.starts_with(b"system.") {
            return Err(Error::NotSupported(&"ACLs, by this kernel"));
        }
        Ok(name)
    }
}

/// Requests of `linux/fs.h`, which lsattr(1) and chattr(1) make. No file here has any of these
/// flags.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FSXATTR_BYTES: usize = 28;
/// The kernel passes flags as 32 bits, though the request's number says 64.
const FLAGS_BYTES: usize = 4;

/// The number of zeros that answer a request about such flags; `None` for another request.
fn flags_answer(number: u32, body: &mut Body<'_>) -> Result<Option<usize>, Refusal> {
    let sets = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    match number {
        FS_IOC_GETFLAGS => Ok(Some(FLAGS_BYTES)),
        FS_IOC_FSGETXATTR => Ok(Some(FSXATTR_BYTES)),
        FS_IOC_SETFLAGS if !sets(body.bytes(FLAGS_BYTES)?) => Ok(Some(0)),
        FS_IOC_FSSETXATTR if !sets(body.bytes(FSXATTR_BYTES)?) => Ok(Some(0)),
        FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR => Err(Errno::OPNOTSUPP.into()),
        _ => Ok(None),
    }
}

fn put_ioctl(reply: &mut Reply, result: i32) {
    reply.put(&IoctlOut {
        result,
        flags: 0,
        in_iovs: 0,
        out_iovs: 0,
    });
}

/// The caller's room is `size` bytes, and 0 asks how much it takes.
fn put_sized(reply: &mut Reply, size: u32, value: &[u8]) -> Answer {
    if size == 0 {
        reply.put(&GetxattrOut {
            size: value.len() as u32,
            padding: 0,
        });
    } else if value.len() > size as usize {
        return Err(Errno::RANGE.into());
    } else {
        reply.append(value);
    }
    Ok(())
}
