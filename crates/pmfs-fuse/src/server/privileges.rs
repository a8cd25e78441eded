//! The privileges that a write, a truncate and a chown remove: file capabilities and set-id bits.

use pmfs::types::mode;
use pmfs::{Attr, Ino, Result, SetAttr};
use pmfs_posix::privileges::{CAPABILITY, SET_ID, gone_with_content, gone_with_owner, without};

use super::{Server, ino_of};
use crate::caller::Caller;

/// Returns whether it is a file with set-id bits.
pub(crate) fn has_set_id(attr: &Attr) -> bool {
    let set_id = attr.mode & SET_ID != 0;
    set_id && attr.mode & mode::S_IFMT == mode::S_IFREG
}

impl Server {
    /// SETATTR.
    pub fn setattr(&self, node: u64, set: &SetAttr, caller: &Caller) -> Result<Attr> {
        let attr = self.changed(ino_of(node), set, caller)?;
        if set.size.is_some() {
            self.known.set_size(attr.ino, attr.size);
        }
        let _ = self.known.see(attr.ino, attr.generation, attr.size);
        Ok(attr)
    }

    /// With an owner or a size the kernel sends the mode that it has seen, less some of the set-id
    /// bits that go: no call of a program's sets a mode and one of these. The kernel does not clear
    /// set-gid without group execution, which a caller outside the group loses too.
    fn changed(&self, ino: Ino, set: &SetAttr, caller: &Caller) -> Result<Attr> {
        let changes_owner = set.uid.is_some() || set.gid.is_some();
        if !changes_owner && set.size.is_none() {
            return self.with_space(|| self.fs.setattr(ino, set));
        }
        let by_kernel = set.mode.map_or(0, |kept| SET_ID & !kept);
        if set.mode.is_none() && !self.fs.may_have_privileges(ino) {
            return self.with_space(|| self.fs.setattr(ino, set));
        }
        let who = caller.known();
        if let Some(size) = set.size {
            let size = SetAttr {
                size: Some(size),
                ..SetAttr::default()
            };
            self.with_space(|| self.fs.setattr(ino, &size))?;
        }
        let less = |now: &Attr| {
            let gone = match changes_owner {
                true => gone_with_owner(now, &who),
                false => gone_with_content(now, &who),
            };
            SetAttr {
                mode: without(now, gone | by_kernel).mode,
                size: None,
                ..*set
            }
        };
        self.with_space(|| self.fs.setattr_by(ino, &less))
    }

    /// Takes away set-id bits and capabilities before a change of the content. `writer`: for a
    /// write, the caller if the kernel says that it may not keep set-id bits; for another change,
    /// its caller.
    pub(super) fn drop_privileges(&self, ino: Ino, writer: Option<Caller>) -> Result<()> {
        if !self.fs.may_have_privileges(ino) {
            return Ok(());
        }
        if self.fs.getxattr(ino, CAPABILITY).is_ok() {
            self.fs.removexattr(ino, CAPABILITY)?;
        }
        let Some(writer) = writer else {
            return Ok(());
        };
        if self.fs.getattr(ino)?.mode & SET_ID == 0 {
            return Ok(());
        }
        let who = writer.known();
        let less = |now: &Attr| without(now, gone_with_content(now, &who));
        self.fs.setattr_by(ino, &less).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use pmfs::{Error, NewNode};

    use super::*;
    use crate::server::{Access, WriteKind};

    const NOBODY: Caller = Caller {
        uid: 7,
        gid: 7,
        pid: 0,
    };

    /// A server with an empty file that is closed.
    fn server(dir: &tempfile::TempDir) -> (Server, u64) {
        let server = Server::new(crate::temporary::pool(dir));
        let new = NewNode {
            umask: 0,
            mode: 0o644,
            uid: 0,
            gid: 0,
        };
        let (attr, handle) = server.create(1, b"a", &new, Access::Both).unwrap();
        server.close_file(attr.ino, handle).unwrap();
        (server, attr.ino)
    }

    #[test]
    fn file_capabilities_go_with_a_write() {
        let dir = crate::temporary::dir();
        let (server, node) = server(&dir);
        server.setxattr(node, CAPABILITY, b"cap", 0, false).unwrap();
        server
            .write(node, 0, 0, b"x", &WriteKind::by(NOBODY))
            .unwrap();
        assert!(matches!(
            server.getxattr(node, CAPABILITY),
            Err(Error::NoAttribute)
        ));
    }

    const ROOT: Caller = Caller {
        uid: 0,
        gid: 0,
        pid: 0,
    };

    fn mode(bits: u32) -> SetAttr {
        SetAttr {
            mode: Some(bits),
            ..SetAttr::default()
        }
    }

    /// Goal: what the kernel takes away with an owner or a size is taken away of the
    /// mode as it is, not as the kernel has seen it.
    #[test]
    fn what_the_kernel_takes_away_gives_no_bit_back() {
        let dir = crate::temporary::dir();
        let (server, node) = server(&dir);
        let seen = 0o6755;
        let truncate = |mode| SetAttr {
            size: Some(3),
            ..mode
        };
        let chown = |mode| SetAttr {
            uid: Some(7),
            ..mode
        };
        for call in [truncate, chown] {
            server.setattr(node, &mode(seen), &ROOT).unwrap();
            server.setattr(node, &mode(0o4600), &ROOT).unwrap();
            let gone = call(mode(seen & !SET_ID));
            let after = server.setattr(node, &gone, &ROOT).unwrap();
            assert_eq!(after.mode & 0o7777, 0o600);
        }
        let after = server.getattr(node).unwrap();
        assert_eq!((after.size, after.uid), (3, 7));
    }

    /// Goal: a write by a user who may not keep the bits gives none back beside a chmod to fewer
    /// bits.
    #[test]
    fn a_write_gives_no_bit_back() {
        let dir = crate::temporary::dir();
        let (server, node) = server(&dir);
        let kind = WriteKind {
            kill_set_id: true,
            ..WriteKind::by(NOBODY)
        };
        let changed = || {
            server.setattr(node, &mode(0o4755), &ROOT).unwrap();
            server.setattr(node, &mode(0o600), &ROOT).unwrap();
            let look = |_| server.getattr(node).unwrap().mode & 0o7777;
            (0..50).map(look).max().unwrap()
        };
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    server.write(node, 0, 0, b"x", &kind).unwrap();
                }
            });
            let left = (0..20_000).map(|_| changed()).find(|&left| left != 0o600);
            ended.store(true, Ordering::Relaxed);
            assert_eq!(left, None);
        });
    }
}
