//! Calls on an inode's content and attributes, on both sides.

use crate::apply::{Need, World};
use crate::content::BLOCK;
use crate::operation::Operation;
use crate::random::bytes;
use crate::reference::{Span, Verdict};
use pmfs::types::mode::{S_IFDIR, S_IFREG};
use pmfs::{Error, FallocateMode, Fs, Ino, SetAttr, SetTime, XattrFlags};
use pmfs_admin::{Admin, Merged};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The largest file.
pub const SIZE_MAX: u64 = 1 << 48;
const XATTR_VALUE_MAX: usize = 65536;
/// Bytes that an inode's attributes may take, with 8 for all and 8 for each.
const XATTR_ALL_MAX: usize = 32 * 4096;

/// The height of the tree that has a block of this index.
fn height_of(index: u64) -> usize {
    (0..)
        .find(|&height| index < 1 << (9 * height))
        .expect("there is a height")
}

impl World<'_> {
    pub fn call_on_inode(&mut self, fs: &Fs, operation: &Operation) -> Result<(), String> {
        use Operation::*;
        match operation {
            GetAttr { ino } => {
                let answer = fs.getattr(*ino);
                let verdict = self.model.live(*ino).map(drop);
                let attr = self.judge(fs, "getattr", verdict, answer, Need::Nothing)?;
                attr.map_or(Ok(()), |attr| self.model.compare(&attr))
            }
            SetAttr { ino, set } => self.setattr(fs, *ino, set),
            Read { ino, at, len } => self.read(fs, *ino, *at, *len),
            Write { ino, at, len, seed } => self.write(fs, *ino, *at, &bytes(*seed, *len)),
            Append { ino, len, seed } => self.append(fs, *ino, &bytes(*seed, *len)),
            Fallocate { ino, mode, at, len } => self.fallocate(fs, *ino, *mode, *at, *len),
            Merge { ino, at } => self.merge(fs, *ino, *at),
            Shift {
                ino,
                insert,
                at,
                len,
            } => self.shift(fs, *ino, *insert, (*at, *len)),
            SeekData { ino, at } => self.seek(fs, *ino, *at, true),
            SeekHole { ino, at } => self.seek(fs, *ino, *at, false),
            CopyRange {
                from,
                from_at,
                to,
                to_at,
                len,
            } => self.copy_range(fs, (*from, *from_at), (*to, *to_at), *len),
            CloneRange {
                from,
                from_at,
                to,
                to_at,
                len,
            } => self.clone_range(fs, (*from, *from_at), (*to, *to_at), *len),
            Fsync { ino } => {
                let answer = fs.fsync(*ino);
                self.judge(fs, "fsync", Ok(()), answer, Need::Nothing)
                    .map(drop)
            }
            GetXattr { ino, name } => self.getxattr(fs, *ino, &name.0),
            SetXattr {
                ino,
                name,
                len,
                seed,
                flags,
            } => self.setxattr(fs, *ino, &name.0, &bytes(*seed, *len), *flags),
            SetAcl {
                ino,
                name,
                given,
                kill,
            } => self.set_acl(fs, *ino, &name.0, given, *kill),
            ListXattr { ino } => self.listxattr(fs, *ino),
            RemoveXattr { ino, name } => self.removexattr(fs, *ino, &name.0),
            _ => unreachable!("a call on names"),
        }
    }

    fn merge(&mut self, fs: &Fs, ino: Ino, at: u64) -> Result<(), String> {
        let verdict = self.model.file(ino).map(drop);
        let answer = fs.merge(ino, at);
        let merged = self.judge(fs, "merge", verdict, answer, Need::Nothing)?;
        match merged {
            Some(Merged::Merged) => self.coverage.count("merge", "merged"),
            Some(Merged::Busy) => self.coverage.count("merge", "busy"),
            _ => {}
        }
        Ok(())
    }

    fn setattr(&mut self, fs: &Fs, ino: Ino, set: &SetAttr) -> Result<(), String> {
        let answer = fs.setattr(ino, set);
        let verdict = match set.size {
            None => self.model.live(ino).map(drop),
            Some(size) if size > SIZE_MAX => Err(Errno::FBIG),
            Some(_) => self.model.file(ino).map(drop),
        };
        // chmod writes an access ACL anew, with all other attributes.
        let need = match self.attribute_blocks(ino) {
            blocks @ 2.. if set.mode.is_some() => Need::Run(blocks),
            _ if set.size.is_some() => self.need_of_own(ino, SIZE_MAX),
            _ => Need::Nothing,
        };
        let full = matches!(answer, Err(Error::NoSpace));
        let judged = self.judge(fs, "setattr", verdict, answer, need)?;
        let now = self.span();
        let Some(attr) = judged else {
            // The size is a step of its own; the other one had no room.
            if let (Some(size), true) = (set.size, full)
                && let Ok(attr) = fs.getattr(ino)
                && (now.from..=now.to).contains(&attr.mtime_ns)
            {
                self.model.content(ino).truncate(size);
                self.model.node(ino).touch(now);
            }
            return Ok(());
        };
        if let Some(size) = set.size {
            self.model.content(ino).truncate(size);
            self.model.node(ino).touch(now);
        }
        let node = self.model.node(ino);
        if let Some(mode) = set.mode {
            node.chmod(mode);
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        let time = |set| match set {
            SetTime::Now => now,
            SetTime::At(ns) => Span::at(ns),
        };
        if let Some(atime) = set.atime_ns {
            node.atime = vec![time(atime)];
        }
        if let Some(mtime) = set.mtime_ns {
            node.mtime = time(mtime);
        }
        let owner = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        if let Some(ctime) = set.ctime_ns {
            node.ctime = Span::at(ctime);
        } else if owner || set.atime_ns.is_some() || set.mtime_ns.is_some() {
            node.ctime = now;
        }
        self.model.compare(&attr)
    }

    /// The need of a call on `len` bytes that takes no blocks, but those in place of shared ones:
    /// of a file that is mapped, all of them.
    fn need_of_own(&self, ino: Ino, len: u64) -> Need {
        match self.model.live(ino) {
            Ok(node) if node.cloned && self.model.is_pinned(ino) => Need::AtOnce(len / BLOCK + 8),
            Ok(node) if node.cloned => Need::Blocks(8),
            _ => Need::Nothing,
        }
    }

    fn read(&mut self, fs: &Fs, ino: Ino, at: u64, len: usize) -> Result<(), String> {
        let mut buffer = vec![0xee; len];
        let answer = fs.read(ino, at, &mut buffer);
        let verdict = self.model.file(ino).map(drop);
        let Some(got) = self.judge(fs, "read", verdict, answer, Need::Nothing)? else {
            return Ok(());
        };
        let should = self.model.file(ino).expect("judged").read(at, len);
        if got > 0 {
            let now = self.span();
            self.model.node(ino).atime.push(now);
        }
        differ(&buffer[..got], &should, at)
    }

    /// A write's verdict, and how many bytes a file of the largest size lets it write.
    fn may_write(&self, ino: Ino, at: u64, len: usize) -> Result<usize, Errno> {
        self.model.file(ino)?;
        if at >= SIZE_MAX {
            return Err(Errno::FBIG);
        }
        Ok(len.min((SIZE_MAX - at).min(usize::MAX as u64) as usize))
    }

    fn write(&mut self, fs: &Fs, ino: Ino, at: u64, data: &[u8]) -> Result<(), String> {
        let answer = fs.write(ino, at, data);
        if data.is_empty() {
            let none = self.judge(fs, "write", Ok(()), answer, Need::Nothing)?;
            return if none == Some(0) {
                Ok(())
            } else {
                Err(format!("wrote {none:?} of no bytes"))
            };
        }
        let most = self.may_write(ino, at, data.len());
        let need = Need::Blocks(data.len() as u64 / BLOCK + 2);
        let written = self.judge(fs, "write", most.map(drop), answer, need)?;
        let Some(written) = written else {
            return Ok(());
        };
        self.wrote(
            "write",
            fs,
            (ino, at),
            data,
            (written, most.expect("judged")),
        )
    }

    /// Follows a write that went through, in part or in whole.
    fn wrote(
        &mut self,
        kind: &str,
        fs: &Fs,
        (ino, at): (Ino, u64),
        data: &[u8],
        (written, most): (usize, usize),
    ) -> Result<(), String> {
        if written > most || written == 0 {
            return Err(format!("wrote {written} of {most} bytes"));
        }
        if written < most {
            let free = fs.statfs().map_err(|error| format!("statfs: {error}"))?;
            let need = most as u64 / BLOCK;
            // A lane of a small pool has 48 records: scattered space may take more for a longer
            // write.
            if need < 48 && free.blocks_free > 2 * need + 48 {
                let free = free.blocks_free;
                return Err(format!(
                    "wrote {written} of {most} bytes with {free} blocks free"
                ));
            }
            self.coverage.count("short", kind);
        }
        let now = self.span();
        self.model.content(ino).write(at, &data[..written]);
        self.model.node(ino).touch(now);
        let height = height_of((at + written as u64 - 1) / BLOCK);
        self.coverage
            .count("height", ["0", "1", "2", "3", "4"][height]);
        Ok(())
    }

    fn append(&mut self, fs: &Fs, ino: Ino, data: &[u8]) -> Result<(), String> {
        let answer = fs.append(ino, data);
        let end = self.model.live(ino).map_or(0, |node| node.size());
        let most = if data.is_empty() {
            self.model.live(ino).map(|_| 0)
        } else {
            self.may_write(ino, end, data.len())
        };
        let need = Need::Blocks(data.len() as u64 / BLOCK + 2);
        let answer = self.judge(fs, "append", most.map(drop), answer, need)?;
        let Some((at, written)) = answer else {
            return Ok(());
        };
        if at != end {
            return Err(format!("appended at {at}, not {end}"));
        }
        if data.is_empty() && written == 0 {
            return Ok(());
        }
        self.wrote(
            "append",
            fs,
            (ino, at),
            data,
            (written, most.expect("judged")),
        )
    }

    fn may_fallocate(&self, ino: Ino, mode: FallocateMode, at: u64, len: u64) -> Verdict {
        if len == 0 {
            return Err(Errno::INVAL);
        }
        let keep = mode.contains(FallocateMode::KEEP_SIZE);
        let zero = mode.contains(FallocateMode::ZERO_RANGE);
        if mode.contains(FallocateMode::PUNCH_HOLE) && (!keep || zero) {
            return Err(Errno::OPNOTSUPP);
        }
        self.model.file(ino)?;
        match at.checked_add(len) {
            Some(end) if end <= SIZE_MAX => Ok(()),
            _ => Err(Errno::FBIG),
        }
    }

    fn fallocate(
        &mut self,
        fs: &Fs,
        ino: Ino,
        mode: FallocateMode,
        at: u64,
        len: u64,
    ) -> Result<(), String> {
        let answer = fs.fallocate(ino, mode, at, len);
        let punch = mode.contains(FallocateMode::PUNCH_HOLE);
        let need = if punch {
            self.need_of_own(ino, len)
        } else if mode.contains(FallocateMode::ZERO_RANGE) {
            Need::AtOnce(len / BLOCK + 2)
        } else {
            Need::Blocks(len / BLOCK + 2)
        };
        let verdict = self.may_fallocate(ino, mode, at, len);
        if let Ok(live) = self.model.live(ino) {
            // The contract leaves open whether times change where nothing else shows.
            let (mtime, ctime) = (live.mtime, live.ctime);
            let now = self.span();
            let node = self.model.node(ino);
            let attr = fs
                .getattr(ino)
                .map_err(|error| format!("getattr: {error}"))?;
            let is = Span::at(attr.mtime_ns);
            if verdict.is_ok() && (now.from..=now.to).contains(&is.from) {
                node.touch(now);
            } else {
                (node.mtime, node.ctime) = (mtime, ctime);
            }
        }
        if self
            .judge(fs, "fallocate", verdict, answer, need)?
            .is_none()
        {
            return Ok(());
        }
        let content = self.model.content(ino);
        if punch || mode.contains(FallocateMode::ZERO_RANGE) {
            content.zero(at, at + len);
        }
        if !mode.contains(FallocateMode::KEEP_SIZE) {
            content.size = content.size.max(at + len);
        }
        Ok(())
    }

    fn may_shift(&self, ino: Ino, insert: bool, at: u64, len: u64) -> Verdict {
        if len == 0 || !at.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
            return Err(Errno::INVAL);
        }
        let end = at.checked_add(len).filter(|&end| end <= SIZE_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        let size = self.model.file(ino)?.size;
        if self.model.is_pinned(ino) {
            return Err(Errno::BUSY);
        }
        match insert {
            true if size + len > SIZE_MAX => Err(Errno::FBIG),
            true if at >= size => Err(Errno::INVAL),
            false if end >= size => Err(Errno::INVAL),
            _ => Ok(()),
        }
    }

    /// Collapses or inserts a range. Scattered space, or blocks that were allocated past the end
    /// and would come to lie past the largest file, may make it refuse.
    fn shift(
        &mut self,
        fs: &Fs,
        ino: Ino,
        insert: bool,
        (at, len): (u64, u64),
    ) -> Result<(), String> {
        let (kind, answer) = match insert {
            true => ("insert", fs.insert_range(ino, at, len)),
            false => ("collapse", fs.collapse_range(ino, at, len)),
        };
        let verdict = self.may_shift(ino, insert, at, len);
        if verdict.is_ok() && matches!(answer, Err(Error::FileTooBig)) {
            self.coverage.count(kind, "too much for a lane");
            return Ok(());
        }
        // Fresh nodes: one for 512 blocks at least, and what leads to each.
        let blocks = self.model.live(ino).map_or(0, |node| node.size() / BLOCK);
        let need = Need::Blocks(blocks.min(1 << 20) / 64 + 8);
        if self.judge(fs, kind, verdict, answer, need)?.is_none() {
            return Ok(());
        }
        let now = self.span();
        match insert {
            true => self.model.content(ino).insert(at, len),
            false => self.model.content(ino).collapse(at, len),
        }
        self.model.node(ino).touch(now);
        Ok(())
    }

    /// Checks an answer: a hole that is shown holds no data; what is shown as data may be zeros.
    fn seek(&mut self, fs: &Fs, ino: Ino, at: u64, data: bool) -> Result<(), String> {
        let (kind, answer) = if data {
            ("seekdata", fs.seek_data(ino, at))
        } else {
            ("seekhole", fs.seek_hole(ino, at))
        };
        let mut verdict = self.model.file(ino).map(drop);
        if let Ok(file) = self.model.file(ino) {
            let none = data && matches!(answer, Err(pmfs::Error::NoSuchOffset));
            if at >= file.size || none && file.is_zero(at, file.size) {
                verdict = Err(Errno::NXIO);
            }
        }
        let Some(found) = self.judge(fs, kind, verdict, answer, Need::Nothing)? else {
            return Ok(());
        };
        let file = self.model.file(ino).expect("judged");
        let size = file.size;
        let aligned = found == at || found.is_multiple_of(BLOCK) || found == size && !data;
        if found < at || found > size || !aligned || data && found == size {
            return Err(format!("found {found} in a file of {size} bytes"));
        }
        let hidden = if data {
            (at, found)
        } else {
            (found, (found / BLOCK + 1) * BLOCK)
        };
        if !file.is_zero(hidden.0, hidden.1) {
            return Err(format!("found {found}: data is shown as a hole"));
        }
        // The other call must agree.
        let again = if data {
            fs.seek_data(ino, found)
        } else {
            fs.seek_hole(ino, found)
        };
        match again {
            Ok(same) if same == found => Ok(()),
            Err(_) if !data && found == size => Ok(()),
            again => Err(format!("found {found}, from there {again:?}")),
        }
    }

    fn copy_range(
        &mut self,
        fs: &Fs,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
    ) -> Result<(), String> {
        let answer = fs.copy_range(from, from_at, to, to_at, len);
        let most = self.may_copy((from, from_at), (to, to_at), len);
        let need = Need::Blocks(len / BLOCK + 4);
        let copied = self.judge(fs, "copyrange", most.map(drop), answer, need)?;
        let now = self.span();
        if most.is_ok_and(|most| most > 0) {
            self.model.node(from).atime.push(now);
            // It may have shared their blocks.
            for ino in [from, to] {
                self.model.node(ino).cloned = true;
            }
        }
        let Some(copied) = copied else { return Ok(()) };
        let most = most.expect("judged");
        if most == 0 && copied == 0 {
            return Ok(());
        }
        let data = self
            .model
            .file(from)
            .expect("judged")
            .read(from_at, most as usize);
        let lens = (copied as usize, most as usize);
        self.wrote("copyrange", fs, (to, to_at), &data, lens)
    }

    fn may_copy(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64, Errno> {
        let nodes = [self.model.live(from.0)?, self.model.live(to.0)?];
        if nodes.iter().any(|node| node.is_dir()) {
            return Err(Errno::ISDIR);
        }
        self.model.file(to.0)?;
        let len = len.min(self.model.file(from.0)?.size.saturating_sub(from.1));
        if len == 0 {
            return Ok(0);
        }
        if to.1 >= SIZE_MAX {
            return Err(Errno::FBIG);
        }
        let len = len.min(SIZE_MAX - to.1);
        if from.0 == to.0 && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(Errno::INVAL);
        }
        Ok(len)
    }

    fn xattrs(&self, ino: Ino, name: &[u8]) -> Result<&BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
        name_verdict(name)?;
        Ok(&self.model.live(ino)?.xattrs)
    }

    /// Returns whether the inode may have attributes of that name.
    fn may_have(&self, ino: Ino, name: &[u8]) -> Verdict {
        let node = self.model.live(ino)?;
        let plain = matches!(node.kind(), S_IFREG | S_IFDIR);
        if name.starts_with(b"user.") && !plain {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    fn getxattr(&mut self, fs: &Fs, ino: Ino, name: &[u8]) -> Result<(), String> {
        let answer = fs.getxattr(ino, name);
        let should = self
            .xattrs(ino, name)
            .and_then(|xattrs| xattrs.get(name).ok_or(Errno::NODATA).cloned());
        let verdict = should.as_ref().map(drop).map_err(|&errno| errno);
        let is = self.judge(fs, "getxattr", verdict, answer, Need::Nothing)?;
        match is {
            Some(is) if Ok(&is) != should.as_ref() => Err(format!("a value of {}", is.len())),
            _ => Ok(()),
        }
    }

    fn may_setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<u64, Errno> {
        if !name.is_empty() && name.len() <= 255 && value.len() > XATTR_VALUE_MAX {
            return Err(Errno::TOOBIG);
        }
        let xattrs = self.xattrs(ino, name)?;
        self.may_have(ino, name)?;
        let old = xattrs.get(name);
        if old.is_some() && flags.contains(XattrFlags::CREATE) {
            return Err(Errno::EXIST);
        }
        if old.is_none() && flags.contains(XattrFlags::REPLACE) {
            return Err(Errno::NODATA);
        }
        let each = |name: &[u8], value: &[u8]| 8 + name.len() + value.len();
        let others = xattrs.iter().filter(|(key, _)| key.as_slice() != name);
        let all = others.map(|(key, value)| each(key, value)).sum::<usize>();
        let all = 8 + all + each(name, value);
        if all > XATTR_ALL_MAX {
            return Err(Errno::NOSPC);
        }
        Ok((all as u64).div_ceil(BLOCK))
    }

    fn setxattr(
        &mut self,
        fs: &Fs,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), String> {
        let answer = fs.setxattr(ino, name, value, flags);
        let blocks = self.may_setxattr(ino, name, value, flags);
        let need = Need::Run(*blocks.as_ref().unwrap_or(&0));
        let set = self.judge(fs, "setxattr", blocks.map(drop), answer, need)?;
        if set.is_some() {
            let now = self.span();
            let node = self.model.node(ino);
            node.ctime = now;
            node.xattrs.insert(name.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn listxattr(&mut self, fs: &Fs, ino: Ino) -> Result<(), String> {
        let answer = fs.listxattr(ino);
        let verdict = self.model.live(ino).map(drop);
        let names = self.judge(fs, "listxattr", verdict, answer, Need::Nothing)?;
        let Some(mut names) = names else {
            return Ok(());
        };
        names.sort();
        if names.iter().eq(self.model.node(ino).xattrs.keys()) {
            Ok(())
        } else {
            Err(format!("{} attributes are listed", names.len()))
        }
    }

    fn removexattr(&mut self, fs: &Fs, ino: Ino, name: &[u8]) -> Result<(), String> {
        let answer = fs.removexattr(ino, name);
        let verdict = self.xattrs(ino, name).and_then(|xattrs| {
            self.may_have(ino, name)?;
            let there = xattrs.contains_key(name);
            there.then_some(()).ok_or(Errno::NODATA)
        });
        // The rest is written anew, in one run: which a full pool may not have, if it is long.
        let left = self.model.live(ino).map_or(0, |node| {
            let others = node.xattrs.iter().filter(|(key, _)| key.as_slice() != name);
            others.map(|(key, value)| 8 + key.len() + value.len()).sum()
        });
        let need = match (8 + left) as u64 {
            0..=BLOCK => Need::Nothing,
            bytes => Need::Run(bytes.div_ceil(BLOCK)),
        };
        let gone = self.judge(fs, "removexattr", verdict, answer, need)?;
        if gone.is_some() {
            let now = self.span();
            let node = self.model.node(ino);
            node.ctime = now;
            node.xattrs.remove(name);
        }
        Ok(())
    }
}

/// Returns what is wrong with an attribute's name as such.
fn name_verdict(name: &[u8]) -> Verdict {
    if name.is_empty() || name.len() > 255 {
        return Err(Errno::RANGE);
    }
    for space in ["user.", "trusted.", "security."] {
        match name.strip_prefix(space.as_bytes()) {
            Some([]) => return Err(Errno::INVAL),
            Some(_) => return Ok(()),
            None => {}
        }
    }
    Err(Errno::OPNOTSUPP)
}

/// Says where two readings of a file part.
pub fn differ(is: &[u8], should: &[u8], at: u64) -> Result<(), String> {
    if is == should {
        return Ok(());
    }
    if is.len() != should.len() {
        return Err(format!("read {} bytes, not {}", is.len(), should.len()));
    }
    let first = (0..is.len()).find(|&at| is[at] != should[at]).unwrap_or(0);
    let count = is.iter().zip(should).filter(|(is, be)| is != be).count();
    Err(format!(
        "byte {} is {:#04x}, not {:#04x} ({count} bytes of {} differ)",
        at + first as u64,
        is[first],
        should[first],
        is.len()
    ))
}
