//! Clones of ranges: the bytes of the one file are those of the other, and stay so whatever is
//! called on either.

use crate::apply::{Need, World};
use crate::content::BLOCK;
use crate::reference::Span;
use pmfs::{Error, Fs, Ino};
use pmfs_format::inode::SIZE_MAX;
use rustix::io::Errno;

impl World<'_> {
    pub fn clone_range(
        &mut self,
        fs: &Fs,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
    ) -> Result<(), String> {
        let answer = fs.clone_range((from, from_at), (to, to_at), len);
        let is_full = matches!(answer, Err(Error::NoSpace));
        let len = self.may_clone((from, from_at), (to, to_at), len);
        // Blocks without room for their counts are copied.
        let need = Need::Blocks(len.unwrap_or(0).div_ceil(BLOCK).min(1 << 20) + 8);
        let done = self.judge(fs, "clonerange", len.map(drop), answer, need)?;
        let (Ok(len), now) = (len, self.span()) else {
            return Ok(());
        };
        for ino in [from, to] {
            self.model.node(ino).cloned = true;
        }
        let source = self.model.file(from).expect("judged").clone();
        if done.is_some() {
            if len > 0 {
                let content = self.model.content(to);
                content.become_of(&source, (from_at, to_at), len);
                self.model.node(to).touch(now);
            }
            return Ok(());
        }
        if !is_full {
            return Ok(());
        }
        // Some of its steps were done, from the first on.
        let mut whole = self.model.file(to).expect("judged").clone();
        let size = whole.size;
        whole.become_of(&source, (from_at, to_at), len);
        whole.truncate(size);
        self.follow_steps(fs, to, &whole, now)
    }

    fn may_clone(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<u64, Errno> {
        let size = self.model.file(from.0)?.size;
        let target = self.model.file(to.0)?.size;
        if self.model.is_pinned(from.0) || self.model.is_pinned(to.0) {
            return Err(Errno::BUSY);
        }
        let len = match len {
            0 => size.saturating_sub(from.1),
            len => len,
        };
        let end = |at: u64| at.checked_add(len).filter(|&end| end <= SIZE_MAX);
        let to_end = end(to.1).ok_or(Errno::FBIG)?;
        let from_end = end(from.1).filter(|&end| end <= size);
        let from_end = from_end.ok_or(Errno::INVAL)?;
        let is_tail = from_end == size && to_end >= target;
        let whole = |at: u64| at.is_multiple_of(BLOCK);
        let fits = whole(from.1) && whole(to.1) && (whole(len) || is_tail);
        let overlap = from.0 == to.0 && from.1 < to_end && to.1 < from_end;
        match fits && !overlap {
            true => Ok(len),
            false => Err(Errno::INVAL),
        }
    }

    /// Follows a call that went some of its way: block by block a file is as it was to become, and
    /// from some block on as it was.
    fn follow_steps(
        &mut self,
        fs: &Fs,
        ino: Ino,
        whole: &crate::content::Content,
        now: Span,
    ) -> Result<(), String> {
        let old = self.model.file(ino).expect("judged").clone();
        let mut blocks: Vec<u64> = old
            .blocks
            .keys()
            .chain(whole.blocks.keys())
            .copied()
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        let (mut end, mut is_changed) = (None, false);
        for block in blocks {
            let at = block * BLOCK;
            let mut bytes = vec![0; BLOCK as usize];
            let got = fs.read(ino, at, &mut bytes);
            bytes.truncate(got.map_err(|error| format!("read: {error}"))?);
            let [was, is] = [&old, whole].map(|content| content.read(at, BLOCK as usize));
            if was == is {
                continue;
            }
            if bytes == is && end.is_none() {
                is_changed = true;
            } else if bytes == was {
                end.get_or_insert(at);
            } else {
                return Err(format!("block {block} is neither as it was nor cloned"));
            }
        }
        // It was read here.
        let read = self.span();
        self.model.node(ino).atime.push(read);
        let content = self.model.content(ino);
        let (head, tail) = (end.unwrap_or(u64::MAX) / BLOCK, &old);
        content.blocks = whole.blocks.clone();
        content.blocks.split_off(&head);
        let mut rest = tail.blocks.clone();
        content.blocks.append(&mut rest.split_off(&head));
        let attr = fs
            .getattr(ino)
            .map_err(|error| format!("getattr: {error}"))?;
        if is_changed || (now.from..=now.to).contains(&attr.mtime_ns) {
            self.model.node(ino).touch(now);
        }
        Ok(())
    }
}
