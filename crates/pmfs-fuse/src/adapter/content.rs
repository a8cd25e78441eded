//! Requests about the content of files.

use pmfs::Error;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::dispatch::{Adapter, Answer};
use super::translate::{caller, within_a_file};
use crate::server::{Access, WriteKind};
use crate::wire::message::Body;
use crate::wire::opcode::Opcode;
use crate::wire::reply::{CopyFileRangeOut, LseekOut, Reply, WriteOut};
use crate::wire::request::{
    CopyFileRangeIn, FallocateIn, InHeader, LseekIn, OpenIn, READ_LOCKOWNER, ReadIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WriteIn,
};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// More than the kernel ever asks for at once (it counts in pages, 1 MiB of them here), bytes.
const READ_MAX: u32 = 16 << 20;

/// The access that these flags of open(2) ask for.
pub(super) fn access(flags: u32) -> Access {
    match OFlags::from_bits_retain(flags) & OFlags::RWMODE {
        OFlags::RDONLY => Access::Reading,
        OFlags::WRONLY => Access::Writing,
        _ => Access::Both,
    }
}

impl Adapter {
    pub(super) fn open(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let OpenIn { flags, .. } = body.take()?;
        let handle = self.run(|server| server.open(header.nodeid, access(flags)))?;
        self.put_opened(reply, handle);
        Ok(())
    }

    pub(super) fn read(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let ReadIn {
            fh,
            offset,
            size,
            read_flags,
            flags,
            ..
        } = body.take()?;
        let offset = within_a_file(offset)?;
        if size > READ_MAX {
            return Err(Errno::INVAL.into());
        }
        let wants_atime = pmfs::wants_atime(flags.into());
        self.run(|server| {
            reply.fill(size as usize, |room| {
                if read_flags & READ_LOCKOWNER == 0 {
                    server.read_pages(header.nodeid, offset, room, wants_atime)
                } else {
                    server.read(header.nodeid, (fh, wants_atime), offset, room)
                }
            })
        })
    }

    pub(super) fn write(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let asked: WriteIn = body.take()?;
        let offset = within_a_file(asked.offset)?;
        let data = body.bytes(asked.size as usize)?;
        // A page written back has its place, however the file was opened.
        if asked.write_flags & WRITE_CACHE != 0 {
            self.run(|server| server.write_back(header.nodeid, offset, data))?;
            reply.put(&WriteOut {
                size: asked.size,
                padding: 0,
            });
            return Ok(());
        }
        let flags = OFlags::from_bits_retain(asked.flags);
        let kind = WriteKind {
            append: flags.contains(OFlags::APPEND),
            writer: caller(header),
            kill_set_id: asked.write_flags & WRITE_KILL_SUIDGID != 0,
        };
        let written =
            self.run(|server| server.write(header.nodeid, asked.fh, offset, data, &kind))?;
        reply.put(&WriteOut {
            size: written as u32,
            padding: 0,
        });
        Ok(())
    }

    pub(super) fn fallocate(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let asked: FallocateIn = body.take()?;
        let offset = within_a_file(asked.offset)?;
        let length = within_a_file(asked.length)?;
        self.run(|server| {
            let who = caller(header);
            server.fallocate(header.nodeid, asked.mode, offset, length, &who)
        })
    }

    pub(super) fn lseek(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let LseekIn { offset, whence, .. } = body.take()?;
        let found = self.run(|server| {
            if i64::try_from(offset).is_err() {
                return Err(Error::NoSuchOffset);
            }
            match whence {
                SEEK_DATA => server.seek_data(header.nodeid, offset),
                SEEK_HOLE => server.seek_hole(header.nodeid, offset),
                _ => Err(Error::Invalid(&"whence")),
            }
        })?;
        reply.put(&LseekOut { offset: found });
        Ok(())
    }

    /// The two forms of the request: the later one (Linux 6.18) can report more than 4 GiB, of
    /// which a copy here stays short.
    pub(super) fn copy_file_range(
        &self,
        opcode: Opcode,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let asked: CopyFileRangeIn = body.take()?;
        let from = (header.nodeid, within_a_file(asked.off_in)?);
        let to = (asked.nodeid_out, within_a_file(asked.off_out)?);
        let copied = self.run(|server| server.copy_range(from, to, asked.len, &caller(header)))?;
        if opcode == Opcode::CopyFileRange64 {
            reply.put(&CopyFileRangeOut {
                bytes_copied: copied,
            });
        } else {
            reply.put(&WriteOut {
                size: copied as u32,
                padding: 0,
            });
        }
        Ok(())
    }
}
