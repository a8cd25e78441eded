//! The reference's calls on names: verdicts and effects.

use crate::reference::{Body, Reference, Span, Verdict};
use pmfs::types::mode::{S_IFBLK, S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK};
use pmfs::{Ino, RenameFlags};
use rustix::io::Errno;

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Returns what is wrong with a name as such.
fn name_verdict(name: &[u8]) -> Verdict {
    match name {
        _ if name.len() > 255 => Err(Errno::NAMETOOLONG),
        [] => Err(Errno::NOENT),
        _ if name.contains(&0) || name.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

impl Reference {
    /// A directory that still has a name.
    fn named_dir(&self, dir: Ino) -> Verdict {
        let node = self.live(dir)?;
        if node.names == 0 {
            return Err(Errno::NOENT);
        }
        self.entries(dir).map(drop)
    }

    pub fn may_lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> {
        if name == b"." {
            self.live(dir)?;
            self.entries(dir)?;
            return Ok(dir);
        }
        if name == b".." {
            self.entries(dir)?;
            return match self.live(dir)?.body {
                Body::Directory { parent, .. } => Ok(parent),
                _ => Err(Errno::NOTDIR),
            };
        }
        name_verdict(name)?;
        Ok(self.entries(dir)?.get(name).ok_or(Errno::NOENT)?.ino)
    }

    pub fn may_make(&self, dir: Ino, name: &[u8]) -> Verdict {
        if is_dots(name) {
            return Err(Errno::EXIST);
        }
        name_verdict(name)?;
        self.named_dir(dir)?;
        match self.find(dir, name) {
            Some(_) => Err(Errno::EXIST),
            None => Ok(()),
        }
    }

    pub fn may_mknod(&self, dir: Ino, name: &[u8], kind: u32) -> Verdict {
        match kind {
            S_IFREG | S_IFIFO | S_IFSOCK | S_IFBLK | S_IFCHR => self.may_make(dir, name),
            _ => Err(Errno::INVAL),
        }
    }

    pub fn may_symlink(&self, dir: Ino, name: &[u8], target: &[u8]) -> Verdict {
        match target.len() {
            0 => Err(Errno::NOENT),
            4096.. => Err(Errno::NAMETOOLONG),
            _ => self.may_make(dir, name),
        }
    }

    pub fn may_tmpfile(&self, dir: Ino) -> Verdict {
        self.named_dir(dir)
    }

    pub fn may_link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Verdict {
        match self.may_make(dir, name) {
            Err(Errno::EXIST) if !is_dots(name) => {
                self.live(ino)?;
                return Err(Errno::EXIST);
            }
            verdict => verdict?,
        }
        let node = self.live(ino)?;
        if node.is_dir() {
            return Err(Errno::PERM);
        }
        if node.names == 0 && !node.linkable {
            return Err(Errno::NOENT);
        }
        Ok(())
    }

    pub fn did_link(&mut self, ino: Ino, dir: Ino, name: &[u8], now: Span) {
        self.enter(dir, name, ino, now);
        self.node(ino).ctime = now;
    }

    fn may_remove(&self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> {
        name_verdict(name)?;
        Ok(self.entries(dir)?.get(name).ok_or(Errno::NOENT)?.ino)
    }

    pub fn may_unlink(&self, dir: Ino, name: &[u8]) -> Verdict {
        if is_dots(name) {
            return Err(Errno::ISDIR);
        }
        let ino = self.may_remove(dir, name)?;
        if self.live(ino)?.is_dir() {
            return Err(Errno::ISDIR);
        }
        Ok(())
    }

    pub fn may_rmdir(&self, dir: Ino, name: &[u8]) -> Verdict {
        match name {
            b"." => return Err(Errno::INVAL),
            b".." => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        let ino = self.may_remove(dir, name)?;
        if self.entries(ino)?.is_empty() {
            Ok(())
        } else {
            Err(Errno::NOTEMPTY)
        }
    }

    pub fn did_remove(&mut self, dir: Ino, name: &[u8], now: Span) {
        let ino = self.strike(dir, name, now);
        self.reap(ino);
    }

    /// Returns whether `above` is `below` or one of its ancestors.
    pub fn is_ancestor(&self, above: Ino, below: Ino) -> bool {
        let mut at = below;
        loop {
            if at == above {
                return true;
            }
            if at == self.root {
                return false;
            }
            match self.nodes.get(&at).map(|node| &node.body) {
                Some(Body::Directory { parent, .. }) => at = *parent,
                _ => return false,
            }
        }
    }

    pub fn may_rename(
        &self,
        (dir, name): (Ino, &[u8]),
        (new_dir, new_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Verdict {
        if flags.contains(RenameFlags::EXCHANGE) && flags != RenameFlags::EXCHANGE {
            return Err(Errno::INVAL);
        }
        if is_dots(name) {
            return Err(Errno::BUSY);
        }
        if is_dots(new_name) {
            let there = flags.contains(RenameFlags::NOREPLACE);
            return Err(if there { Errno::EXIST } else { Errno::BUSY });
        }
        name_verdict(name)?;
        name_verdict(new_name)?;
        self.entries(dir)?;
        self.entries(new_dir)?;
        let source = self.find(dir, name).ok_or(Errno::NOENT)?;
        self.named_dir(new_dir)?;
        let target = self.find(new_dir, new_name);
        if flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
            return Err(Errno::EXIST);
        }
        if flags == RenameFlags::EXCHANGE && target.is_none() {
            return Err(Errno::NOENT);
        }
        if dir != new_dir && self.live(source)?.is_dir() && self.is_ancestor(source, new_dir) {
            return Err(Errno::INVAL);
        }
        let Some(target) = target else { return Ok(()) };
        if dir != new_dir && self.live(target)?.is_dir() && self.is_ancestor(target, dir) {
            let exchange = flags == RenameFlags::EXCHANGE;
            return Err(if exchange {
                Errno::INVAL
            } else {
                Errno::NOTEMPTY
            });
        }
        if source == target || flags == RenameFlags::EXCHANGE {
            return Ok(());
        }
        match (self.live(source)?.is_dir(), self.live(target)?.is_dir()) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if !self.entries(target)?.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    pub fn did_rename(
        &mut self,
        (dir, name): (Ino, &[u8]),
        (new_dir, new_name): (Ino, &[u8]),
        flags: RenameFlags,
        whiteout: Option<Ino>,
        now: Span,
    ) {
        let source = self.find(dir, name).expect("the verdict found it");
        let target = self.find(new_dir, new_name);
        // A name that stays, with another inode, has existed throughout.
        let born_source = self.entries(dir).expect("a directory")[name].born;
        let born_target =
            target.map(|_| self.entries(new_dir).expect("a directory")[new_name].born);
        self.strike(dir, name, now);
        if target.is_some() {
            self.strike(new_dir, new_name, now);
        }
        self.place(new_dir, new_name, source, now, born_target);
        if let Some(whiteout) = whiteout {
            self.place(dir, name, whiteout, now, Some(born_source));
        }
        if let Some(target) = target {
            if flags == RenameFlags::EXCHANGE {
                self.place(dir, name, target, now, Some(born_source));
            } else {
                self.reap(target);
            }
        }
    }

    fn place(&mut self, dir: Ino, name: &[u8], ino: Ino, now: Span, born: Option<u64>) {
        self.enter(dir, name, ino, now);
        self.node(ino).ctime = now;
        if let Body::Directory { parent, .. } = &mut self.node(ino).body {
            *parent = dir;
        }
        if let (Some(born), Body::Directory { entries, .. }) = (born, &mut self.node(dir).body) {
            entries.get_mut(name).expect("just entered").born = born;
        }
    }

    pub fn may_release(&self, instance: usize, ino: Ino) -> Verdict {
        if self.holds[instance].contains_key(&ino) {
            Ok(())
        } else if self.live(ino).is_ok() {
            Err(Errno::INVAL)
        } else {
            Err(Errno::STALE)
        }
    }

    pub fn did_hold(&mut self, instance: usize, ino: Ino) {
        *self.holds[instance].entry(ino).or_default() += 1;
    }

    pub fn did_release(&mut self, instance: usize, ino: Ino) {
        let holds = &mut self.holds[instance];
        let count = holds.get_mut(&ino).expect("the verdict said it is held");
        *count -= 1;
        if *count == 0 {
            holds.remove(&ino);
        }
        self.reap(ino);
    }
}
