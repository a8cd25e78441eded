//! One call on the engine and on the reference, and the comparison of what they answer.

use crate::coverage::Coverage;
use crate::operation::{Name, Operation};
use crate::pool::TestPool;
use crate::reader::Reader;
use crate::reference::{Body, Reference, Span, Verdict, body};
use pmfs::types::mode::{S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};
use pmfs::{Attr, Error, Fs, Ino, NewNode, RenameFlags};
use pmfs_admin::Admin;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Blocks that may be free when a call that needs next to none is refused: what a split, a path of
/// nodes or a whole bucket takes.
const SLACK_BLOCKS: u64 = 48;
/// Inodes in use that no tree shows: numbers 0 and 1, the pool's root.
const HIDDEN_INODES: u64 = 3;

/// The need for which a refusal for want of room is allowed.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// The call must go through on a full pool.
    Nothing,
    /// So many blocks, and what leads to them.
    Blocks(u64),
    /// So many blocks by one transaction: a lane's records may not do for as many scattered ones.
    AtOnce(u64),
    /// So many blocks in a row: scattered ones don't do.
    Run(u64),
    /// A new inode and its name.
    Inode,
    /// A place in the table of open files.
    Open,
    /// A place among the pins: 16 at least.
    Pin,
    /// An inode and a place among the open files.
    OpenInode,
}

/// The reference beside the engine.
pub struct World<'p> {
    pub pool: &'p TestPool,
    pub model: Reference,
    pub readers: BTreeMap<Ino, Reader>,
    pub coverage: Coverage,
    /// Nobody else is in the pool: its counters are ours.
    pub alone: bool,
    /// Records of a lane: 48 in pools below 32 MiB, 512 in others.
    pub records: u64,
    began: i64,
}

impl<'p> World<'p> {
    pub fn new(pool: &'p TestPool, root: &Attr, parent: Ino, instances: usize) -> World<'p> {
        World {
            pool,
            model: Reference::new(root, parent, instances),
            readers: BTreeMap::new(),
            coverage: Coverage::default(),
            alone: true,
            records: 48,
            began: 0,
        }
    }

    /// The steps since the call began.
    pub fn span(&self) -> Span {
        Span {
            from: self.began,
            to: self.pool.now_ns(),
        }
    }

    /// Does one call on both sides.
    pub fn run(&mut self, fs: &Fs, instance: usize, operation: &Operation) -> Result<(), String> {
        self.began = self.pool.now_ns();
        self.call(fs, instance, operation)?;
        for ino in operation.inos().into_iter().flatten() {
            if self.model.nodes.contains_key(&ino) {
                let attr = fs.getattr(ino).map_err(|error| {
                    format!("inode {ino} should live after the call, but getattr: {error}")
                })?;
                self.model.compare(&attr)?;
            }
        }
        Ok(())
    }

    /// Compares a verdict with an answer; gives the answer if both agree that the call went
    /// through.
    pub fn judge<T>(
        &mut self,
        fs: &Fs,
        kind: &str,
        verdict: Verdict,
        answer: Result<T, Error>,
        need: Need,
    ) -> Result<Option<T>, String> {
        match (verdict, answer) {
            (Ok(()), Ok(answer)) => {
                self.coverage.count(kind, "ok");
                Ok(Some(answer))
            }
            (Ok(()), Err(error)) => {
                self.refusal(fs, &error, need)?;
                let errno = name_of(error.errno());
                self.coverage.count(kind, errno);
                Ok(None)
            }
            (Err(errno), Ok(_)) => Err(format!("went through, but should fail with {errno:?}")),
            (Err(errno), Err(error)) => {
                let is = error.errno();
                // A number given up may or may not have a place in the table still.
                let gone = match kind {
                    "release" => Errno::INVAL,
                    "hold" if self.refusal(fs, &error, need).is_ok() => Errno::NFILE,
                    _ => Errno::NOENT,
                };
                if is != errno && !(errno == Errno::STALE && is == gone) {
                    return Err(format!("failed with {is:?} ({error}), not {errno:?}"));
                }
                self.coverage.count(kind, name_of(errno));
                Ok(None)
            }
        }
    }

    /// Checks whether a call that should go through may be refused.
    fn refusal(&self, fs: &Fs, error: &Error, need: Need) -> Result<(), String> {
        let room = fs.statfs().map_err(|error| format!("statfs: {error}"))?;
        let blocks = match need {
            Need::Nothing | Need::Open | Need::Pin => None,
            Need::AtOnce(blocks) if blocks > self.records / 2 => Some(u64::MAX / 4),
            Need::Blocks(blocks) | Need::AtOnce(blocks) => Some(blocks),
            // At worst every run of free blocks is one too short.
            Need::Run(blocks) => Some(blocks * 64),
            Need::Inode | Need::OpenInode => Some(1),
        };
        let fits = match error {
            Error::NoSpace => {
                blocks.is_none_or(|need| room.blocks_free / 2 > need + SLACK_BLOCKS / 2)
            }
            Error::NoInodes => {
                !matches!(need, Need::Inode | Need::OpenInode) || room.inodes_free > 0
            }
            Error::TooManyOpen => {
                let held: usize = self.model.holds.iter().map(BTreeMap::len).sum();
                let pinned: usize = self.model.pins.iter().map(BTreeMap::len).sum();
                // Others may hold the rest of the table.
                let open = matches!(need, Need::Open | Need::OpenInode);
                let full = open && !(self.alone && held < 64);
                !(full || matches!(need, Need::Pin) && pinned >= 16)
            }
            _ => true,
        };
        if fits {
            return Err(format!(
                "failed with {:?} ({error}), with {} blocks and {} inodes free",
                error.errno(),
                room.blocks_free,
                room.inodes_free
            ));
        }
        Ok(())
    }

    fn call(&mut self, fs: &Fs, instance: usize, operation: &Operation) -> Result<(), String> {
        use Operation::*;
        match operation {
            Lookup { dir, name } => self.lookup(fs, *dir, name),
            TmpFile { dir, node } => self.tmpfile(fs, instance, *dir, node),
            ReadLink { ino } => {
                let answer = fs.readlink(*ino);
                let verdict = self.model.live(*ino).and_then(|node| match node.body {
                    Body::Symlink(_) => Ok(()),
                    _ => Err(Errno::INVAL),
                });
                let target = self.judge(fs, "readlink", verdict, answer, Need::Nothing)?;
                match (target, self.model.nodes.get(ino).map(|node| &node.body)) {
                    (Some(is), Some(Body::Symlink(should))) if is != *should => {
                        Err(format!("target is {}", is.escape_ascii()))
                    }
                    _ => Ok(()),
                }
            }
            ReadDir { dir, batch } => self.list(fs, *dir, *batch),
            ReadOn { dir, batch } => self.read_on(fs, *dir, *batch),
            Hold { ino } => {
                let answer = fs.hold(*ino);
                let verdict = self.model.live(*ino).map(drop);
                if let Some(attr) = self.judge(fs, "hold", verdict, answer, Need::Open)? {
                    self.model.did_hold(instance, *ino);
                    self.model.compare(&attr)?;
                }
                Ok(())
            }
            Pin { ino } => self.pin(fs, instance, *ino),
            HandOver {
                ino,
                first,
                step,
                count,
                seed,
            } => self.hand_over(fs, *ino, (*first, *step, *count), *seed),
            Defrag => {
                let answer = fs.defrag(false, &mut |_, _| {});
                self.judge(fs, "defrag", Ok(()), answer, Need::Nothing)
                    .map(drop)
            }
            // An instance that has a file's blocks mapped holds it.
            Release { ino } if self.model.is_pinned_by(instance, *ino) => {
                self.unpin(fs, instance, *ino)
            }
            Release { ino } => {
                let answer = fs.release(*ino);
                let verdict = self.model.may_release(instance, *ino);
                if self
                    .judge(fs, "release", verdict, answer, Need::Nothing)?
                    .is_some()
                {
                    self.model.did_release(instance, *ino);
                }
                Ok(())
            }
            StatFs => self.statfs(fs),
            Create { .. } | MkDir { .. } | MkNod { .. } | Symlink { .. } => {
                self.make(fs, operation)
            }
            Link { .. } | Unlink { .. } | RmDir { .. } | Rename { .. } => {
                self.change_names(fs, operation)
            }
            _ => self.call_on_inode(fs, operation),
        }
    }

    /// A new inode with a name.
    fn make(&mut self, fs: &Fs, operation: &Operation) -> Result<(), String> {
        use Operation::*;
        match operation {
            Create { dir, name, node } => {
                let answer = fs.create(*dir, &name.0, node);
                let verdict = self.model.may_make(*dir, &name.0);
                let made = self.judge(fs, "create", verdict, answer, Need::Inode)?;
                self.made((*dir, name), S_IFREG, b"", node, 0, made)
            }
            MkDir { dir, name, node } => {
                let answer = fs.mkdir(*dir, &name.0, node);
                let verdict = self.model.may_make(*dir, &name.0);
                let made = self.judge(fs, "mkdir", verdict, answer, Need::Inode)?;
                self.made((*dir, name), S_IFDIR, b"", node, 0, made)
            }
            MkNod {
                dir,
                name,
                node,
                kind,
                rdev,
            } => {
                let answer = fs.mknod(*dir, &name.0, node, *kind, *rdev);
                let verdict = self.model.may_mknod(*dir, &name.0, *kind);
                let made = self.judge(fs, "mknod", verdict, answer, Need::Inode)?;
                self.made((*dir, name), *kind, b"", node, *rdev, made)
            }
            Symlink {
                dir,
                name,
                target_len,
                seed,
                node,
            } => {
                let target = crate::random::bytes(*seed, *target_len);
                let answer = fs.symlink(*dir, &name.0, &target, node);
                let verdict = self.model.may_symlink(*dir, &name.0, &target);
                let made = self.judge(fs, "symlink", verdict, answer, Need::Inode)?;
                self.made((*dir, name), S_IFLNK, &target, node, 0, made)
            }
            _ => unreachable!("it makes nothing"),
        }
    }

    /// Names of inodes that there are.
    fn change_names(&mut self, fs: &Fs, operation: &Operation) -> Result<(), String> {
        use Operation::*;
        match operation {
            Link { ino, dir, name } => {
                let answer = fs.link(*ino, *dir, &name.0);
                let verdict = self.model.may_link(*ino, *dir, &name.0);
                if let Some(attr) = self.judge(fs, "link", verdict, answer, Need::Inode)? {
                    let now = self.span();
                    self.model.did_link(*ino, *dir, &name.0, now);
                    self.model.compare(&attr)?;
                }
                Ok(())
            }
            Unlink { dir, name } => {
                let answer = match seen(fs, (*dir, &name.0), name.0.len()) {
                    Some(ino) => fs.unlink_seen(*dir, &name.0, ino),
                    None => fs.unlink(*dir, &name.0),
                };
                let verdict = self.model.may_unlink(*dir, &name.0);
                if self
                    .judge(fs, "unlink", verdict, answer, Need::Nothing)?
                    .is_some()
                {
                    let now = self.span();
                    self.model.did_remove(*dir, &name.0, now);
                }
                Ok(())
            }
            RmDir { dir, name } => {
                let answer = fs.rmdir(*dir, &name.0);
                let verdict = self.model.may_rmdir(*dir, &name.0);
                if self
                    .judge(fs, "rmdir", verdict, answer, Need::Nothing)?
                    .is_some()
                {
                    let now = self.span();
                    self.model.did_remove(*dir, &name.0, now);
                }
                Ok(())
            }
            Rename {
                dir,
                name,
                new_dir,
                new_name,
                flags,
            } => {
                let (from, to) = ((*dir, name.0.as_slice()), (*new_dir, new_name.0.as_slice()));
                let which = from.1.len() + to.1.len();
                let seen = seen(fs, from, which).map(|source| (source, seen(fs, to, which)));
                let answer = fs.rename_by(from, to, *flags, (0, 0), seen);
                let verdict = self.model.may_rename(from, to, *flags);
                match self.judge(fs, "rename", verdict, answer, Need::Inode)? {
                    Some(()) => self.renamed(fs, from, to, *flags),
                    None => Ok(()),
                }
            }
            _ => unreachable!("it changes no names"),
        }
    }

    /// Follows a rename, and finds the whiteout that it left.
    fn renamed(
        &mut self,
        fs: &Fs,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), String> {
        // Two names of one inode both stay.
        if self.model.find(from.0, from.1) == self.model.find(to.0, to.1) {
            return Ok(());
        }
        let now = self.span();
        let mut whiteout = None;
        if flags.contains(RenameFlags::WHITEOUT) {
            let found = fs.lookup(from.0, from.1);
            let attr = found.map_err(|error| format!("the whiteout: {error}"))?;
            let node = NewNode {
                mode: 0,
                umask: 0,
                uid: 0,
                gid: 0,
            };
            self.model
                .adopt(from.0, S_IFCHR, Body::Special, &node, 0, (&attr, now))?;
            self.coverage.count("rename", "whiteout");
            whiteout = Some(attr);
        }
        let ino = whiteout.as_ref().map(|attr| attr.ino);
        self.model.did_rename(from, to, flags, ino, now);
        whiteout.map_or(Ok(()), |attr| self.model.compare(&attr))
    }

    fn lookup(&mut self, fs: &Fs, dir: Ino, name: &Name) -> Result<(), String> {
        let answer = fs.lookup(dir, &name.0);
        let found = self.model.may_lookup(dir, &name.0);
        // The parent of a removed directory, or of the topmost, need not be known.
        if name.0 == b".." && found.is_ok_and(|ino| !self.model.nodes.contains_key(&ino)) {
            return Ok(());
        }
        let verdict = found.map(drop);
        match (
            self.judge(fs, "lookup", verdict, answer, Need::Nothing)?,
            found,
        ) {
            (Some(attr), Ok(ino)) if attr.ino != ino => {
                Err(format!("found inode {}, not {ino}", attr.ino))
            }
            (Some(attr), _) => self.model.compare(&attr),
            _ => Ok(()),
        }
    }

    fn made(
        &mut self,
        (dir, name): (Ino, &Name),
        kind: u32,
        target: &[u8],
        node: &NewNode,
        rdev: u32,
        made: Option<Attr>,
    ) -> Result<(), String> {
        let Some(attr) = made else { return Ok(()) };
        let now = self.span();
        let body = body(kind, dir, target);
        self.model
            .adopt(dir, kind, body, node, rdev, (&attr, now))?;
        self.model.enter(dir, &name.0, attr.ino, now);
        self.model.compare(&attr)
    }

    fn tmpfile(
        &mut self,
        fs: &Fs,
        instance: usize,
        dir: Ino,
        node: &NewNode,
    ) -> Result<(), String> {
        let answer = fs.tmpfile(dir, node);
        let verdict = self.model.may_tmpfile(dir);
        let made = self.judge(fs, "tmpfile", verdict, answer, Need::OpenInode)?;
        let Some(attr) = made else { return Ok(()) };
        let now = self.span();
        let body = body(S_IFREG, dir, b"");
        self.model
            .adopt(dir, S_IFREG, body, node, 0, (&attr, now))?;
        self.model.node(attr.ino).linkable = true;
        self.model.did_hold(instance, attr.ino);
        self.model.compare(&attr)
    }

    fn statfs(&mut self, fs: &Fs) -> Result<(), String> {
        let answer = fs.statfs().map_err(|error| format!("statfs: {error}"))?;
        self.coverage.count("statfs", "ok");
        let inodes = self.model.nodes.len() as u64 + HIDDEN_INODES;
        let used = answer.inodes - answer.inodes_free;
        if self.alone && used != inodes {
            return Err(format!("{used} inodes are in use, not {inodes}"));
        }
        if answer.blocks_free > answer.blocks || answer.name_max != 255 || answer.block_size != 4096
        {
            return Err(format!("{answer:?}"));
        }
        Ok(())
    }
}

/// An errno's name without its prefix.
fn name_of(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "NOENT",
        Errno::STALE => "STALE",
        Errno::EXIST => "EXIST",
        Errno::NOTDIR => "NOTDIR",
        Errno::ISDIR => "ISDIR",
        Errno::NOTEMPTY => "NOTEMPTY",
        Errno::NAMETOOLONG => "NAMETOOLONG",
        Errno::INVAL => "INVAL",
        Errno::OPNOTSUPP => "OPNOTSUPP",
        Errno::PERM => "PERM",
        Errno::FBIG => "FBIG",
        Errno::NOSPC => "NOSPC",
        Errno::NODATA => "NODATA",
        Errno::NXIO => "NXIO",
        Errno::NFILE => "NFILE",
        Errno::BUSY => "BUSY",
        Errno::RANGE => "RANGE",
        Errno::TOOBIG => "2BIG",
        Errno::ACCESS => "ACCES",
        _ => "another",
    }
}

/// Returns what a caller has seen of a name, by one number in three: nothing, what is there,
/// something else.
fn seen(fs: &Fs, (dir, name): (Ino, &[u8]), which: usize) -> Option<Ino> {
    match which % 3 {
        0 => None,
        1 => fs.lookup(dir, name).ok().map(|attr| attr.ino),
        _ => Some(dir),
    }
}
