//! Clones of ranges: the bytes of the one file are those of the other, and stay so whatever is
//! called on either.

use crate::apply::{Need, World};
use crate::compare::compare_data;
use crate::content::{BLOCK, Content};
use pmfs::{Error, Fs, Ino};
use pmfs_format::inode::SIZE_MAX;
use rustix::io::Errno;
use std::collections::BTreeSet;

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
        self.follow_steps(fs, (&source, from_at), (to, to_at), len)
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

    /// Follows a call that went some of its way: block by block, from the first on.
    fn follow_steps(
        &mut self,
        fs: &Fs,
        (source, from_at): (&Content, u64),
        (ino, at): (Ino, u64),
        len: u64,
    ) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let attr = fs.getattr(ino).map_err(text)?;
        let old = self.model.file(ino).expect("judged").clone();
        let mut whole = old.clone();
        whole.become_of(source, (from_at, at), len);
        whole.size = attr.size;
        let end = attr.size.min(at + len).max(at);
        let blocks: BTreeSet<u64> = old
            .blocks
            .keys()
            .chain(whole.blocks.keys())
            .copied()
            .collect();
        let mut bytes = vec![0; BLOCK as usize];
        let mut is_as_whole = |place: u64| {
            let got = fs.read(ino, place, &mut bytes).map_err(text)?;
            Ok::<_, String>(bytes[..got] == whole.read(place, BLOCK as usize))
        };
        let mut done = end - at;
        for block in blocks.range(at / BLOCK..end.div_ceil(BLOCK)) {
            if !is_as_whole(block * BLOCK)? {
                done = block * BLOCK - at;
                break;
            }
        }
        if attr.size > old.size && at + done != attr.size {
            return Err(format!("{} bytes, of which {done} are cloned", attr.size));
        }
        if done > 0 {
            let content = self.model.content(ino);
            content.become_of(source, (from_at, at), done);
            // Part of a block may be zeros in both, and the rest of it is past the end.
            content.truncate(content.size);
        }
        let now = self.span();
        if done > 0 && now.holds(attr.mtime_ns) {
            self.model.node(ino).touch(now);
        }
        compare_data(fs, ino, &self.model.nodes[&ino])?;
        // It was read here.
        let now = self.span();
        self.model.node(ino).atime.push(now);
        Ok(())
    }
}
