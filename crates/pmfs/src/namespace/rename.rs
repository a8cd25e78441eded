//! rename, with NOREPLACE and EXCHANGE.

use super::{Change, find, named_dir, peek};
use crate::dir::bucket::{HeaderEdit, LoggedHeader, kind_of};
use crate::dir::{Hit, Name, bucket_of, split};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::lane::Claim;
use crate::locks::LockSet;
use crate::owner::Held;
use crate::persist::{FreshSet, Logged, Sealed, Transaction};
use crate::pool::Pool;
use crate::recovery::rename_word;
use crate::settle::intend_reclaim;
use crate::types::{Ino, RenameFlags};
use pmfs_format::inode::{LINKS_MAX, ROOT_INO, offset};

/// Everything that a rename looks at, read under its locks.
struct Situation {
    from: Inode,
    to: Inode,
    source: Inode,
    source_hit: Hit,
    target: Option<(Inode, Hit)>,
}

impl Situation {
    fn across(&self) -> bool {
        self.from.ino != self.to.ino
    }

    /// What POSIX asks of a rename that replaces.
    fn check_replace(&self) -> Result<()> {
        let Some((target, _)) = &self.target else {
            return Ok(());
        };
        match (self.source.is_dir(), target.is_dir()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) if target.size() > 0 => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }
}

impl Pool {
    /// Moves a name; see `renameat2(2)`.
    pub(crate) fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.writable()?;
        if flags == RenameFlags::NOREPLACE | RenameFlags::EXCHANGE {
            return Err(Error::Invalid("NOREPLACE and EXCHANGE exclude each other"));
        }
        let is_dots = |name: &[u8]| name == b"." || name == b"..";
        if is_dots(name) {
            return Err(Error::Busy);
        }
        if is_dots(new_name) {
            let keep = flags == RenameFlags::NOREPLACE;
            return Err(if keep { Error::Exists } else { Error::Busy });
        }
        let name = Name::new(self, name)?;
        let new_name = Name::new(self, new_name)?;
        loop {
            let source = peek(self, dir, &name)?;
            let target = peek(self, new_dir, &new_name)?;
            let source = source.ok_or(Error::NotFound)?;
            // Trees of directories change shape only under this lock.
            let _shape = (dir != new_dir).then(|| Held::new(self, rename_word(self)));
            let inos = [dir, new_dir, source, target.unwrap_or(source)];
            let locks = LockSet::take(self, &inos);
            let Some(situation) = self.situation(dir, &name, new_dir, &new_name)? else {
                return Err(Error::NotFound);
            };
            let seen = situation.target.as_ref().map(|(inode, _)| inode.ino);
            if situation.source.ino != source || seen != target {
                continue;
            }
            return self.rename_locked(&locks, situation, &name, &new_name, flags);
        }
    }

    fn situation(
        &self,
        dir: Ino,
        name: &Name<'_>,
        new_dir: Ino,
        new_name: &Name<'_>,
    ) -> Result<Option<Situation>> {
        let from = named_dir(self, dir)?;
        let to = named_dir(self, new_dir)?;
        let Some(source_hit) = find(self, &from, name)? else {
            return Ok(None);
        };
        let target = match find(self, &to, new_name)? {
            None => None,
            Some(hit) => Some((Inode::load(self, hit.ino)?, hit)),
        };
        Ok(Some(Situation {
            from,
            to,
            source: Inode::load(self, source_hit.ino)?,
            source_hit,
            target,
        }))
    }

    fn rename_locked(
        &self,
        locks: &LockSet<'_>,
        situation: Situation,
        name: &Name<'_>,
        new_name: &Name<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        if flags == RenameFlags::NOREPLACE && situation.target.is_some() {
            return Err(Error::Exists);
        }
        if flags == RenameFlags::EXCHANGE && situation.target.is_none() {
            return Err(Error::NotFound);
        }
        if let Some((target, _)) = &situation.target
            && target.ino == situation.source.ino
        {
            // Two names of one file: nothing to do, both stay.
            return Ok(());
        }
        if situation.across() {
            if situation.source.is_dir() {
                self.check_descent(situation.source.ino, situation.to.ino)?;
            }
            if let Some((target, _)) = &situation.target
                && target.is_dir()
            {
                let above = self.check_descent(target.ino, situation.from.ino);
                if matches!(above, Err(Error::Invalid(_))) && flags != RenameFlags::EXCHANGE {
                    // What holds the source is not empty, whatever the source is.
                    return Err(Error::NotEmpty);
                }
                above?;
            }
        }
        if flags == RenameFlags::EXCHANGE {
            return self.exchange(locks, &situation);
        }
        // A directory that holds the source can't be replaced by it.
        situation.check_replace()?;
        if situation.across() && situation.source.is_dir() && situation.to.links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        self.transfer(locks, situation, name, new_name)
    }

    /// A directory can't move below itself.
    fn check_descent(&self, moved: Ino, into: Ino) -> Result<()> {
        let mut at = into;
        for _ in 0..1 << 20 {
            if at == moved {
                return Err(Error::Invalid("a directory can't be moved below itself"));
            }
            if at == ROOT_INO {
                return Ok(());
            }
            at = Inode::load(self, at)?.parent;
        }
        Err(crate::tree::corrupt("directories in a circle", 0))
    }

    /// The name moves; a target goes.
    fn transfer(
        &self,
        locks: &LockSet<'_>,
        mut situation: Situation,
        name: &Name<'_>,
        new_name: &Name<'_>,
    ) -> Result<()> {
        let lane = Claim::new(self);
        if situation.target.is_none() {
            let len = new_name.bytes.len();
            let changed = split::make_room(self, &lane, locks, situation.to, new_name.hash, len)?;
            if changed.is_some() {
                // A bucket was split, perhaps the source's: look again.
                let (dir, new_dir) = (situation.from.ino, situation.to.ino);
                situation = self
                    .situation(dir, name, new_dir, new_name)?
                    .ok_or(Error::NotFound)?;
            }
        }
        let now = self.clock.now_ns();
        let source = situation.source;
        let mut fresh = self.pm.fresh();
        let headers = self.moved_headers(&mut fresh, &situation, new_name)?;
        fresh.until_seal();

        let last_link = |target: &Inode| target.is_dir() || target.links <= 1;
        if let Some((target, _)) = &situation.target
            && last_link(target)
        {
            intend_reclaim(&lane, target.ino)?;
        }
        let mut tx = Transaction::begin(&self.pm, &lane);
        let logged: Vec<LoggedHeader> = headers.iter().map(|edit| edit.log(&mut tx)).collect();
        let replaced = situation.target.as_ref().map(|(target, hit)| {
            let word = hit.record.renamed_to(source.ino, kind_of(source.mode));
            let gone = if last_link(target) {
                0
            } else {
                target.links - 1
            };
            let mut change = Change::log(&mut tx, target);
            change.hot.set_links(gone);
            change.hot.change(now);
            (tx.log(hit.record.off, 8), word, change)
        });
        let parents = parent_changes(&mut tx, &situation, now);
        let mut moved = Change::log(&mut tx, &source);
        moved.hot.change(now);
        let dotdot = dotdot(&mut tx, &situation, &source, situation.to.ino);

        let mut tx = tx.seal();
        locks.change();
        for header in &logged {
            header.apply(&mut tx);
        }
        if let Some((record, word, change)) = &replaced {
            tx.set(record, 0, *word);
            change.apply(&mut tx);
        }
        finish(&mut tx, &parents, &[moved], &[dotdot]);
        tx.commit();
        Ok(())
    }

    /// The bucket headers of a move: the old name goes; the new one comes, unless it is there.
    fn moved_headers(
        &self,
        fresh: &mut FreshSet<'_>,
        situation: &Situation,
        new_name: &Name<'_>,
    ) -> Result<Vec<HeaderEdit>> {
        let source = &situation.source;
        let mut headers = vec![HeaderEdit::of(self, situation.source_hit.bucket)];
        if situation.target.is_none() {
            let bucket = bucket_of(self, &situation.to.tree(), new_name.hash)?;
            if bucket != headers[0].bucket() {
                headers.push(HeaderEdit::of(self, bucket));
            }
            let header = headers.last_mut().expect("there is one");
            let kind = kind_of(source.mode);
            header.insert(fresh, source.ino, kind, new_name.hash, new_name.bytes);
        }
        headers[0].remove(&situation.source_hit.record);
        Ok(headers)
    }

    /// Both names stay, each with the other's inode.
    fn exchange(&self, locks: &LockSet<'_>, situation: &Situation) -> Result<()> {
        let Some((target, target_hit)) = &situation.target else {
            return Err(Error::NotFound);
        };
        let lane = Claim::new(self);
        let now = self.clock.now_ns();
        let source = &situation.source;
        let mut tx = Transaction::begin(&self.pm, &lane);
        let at_source = tx.log(situation.source_hit.record.off, 8);
        let at_target = tx.log(target_hit.record.off, 8);
        let mut parents = vec![Change::log(&mut tx, &situation.from)];
        if situation.across() {
            parents.push(Change::log(&mut tx, &situation.to));
            let balance = i64::from(target.is_dir()) - i64::from(source.is_dir());
            let links = |links: u32, by: i64| (i64::from(links) + by) as u32;
            parents[0]
                .hot
                .set_links(links(situation.from.links, balance));
            parents[1]
                .hot
                .set_links(links(situation.to.links, -balance));
        }
        for parent in &mut parents {
            parent.hot.touch(now);
        }
        let mut moved = [Change::log(&mut tx, source), Change::log(&mut tx, target)];
        for inode in &mut moved {
            inode.hot.change(now);
        }
        let dotdots = [
            dotdot(&mut tx, situation, source, situation.to.ino),
            dotdot(&mut tx, situation, target, situation.from.ino),
        ];
        let source_word = target_hit
            .record
            .renamed_to(source.ino, kind_of(source.mode));
        let target_word = situation
            .source_hit
            .record
            .renamed_to(target.ino, kind_of(target.mode));
        let mut tx = tx.seal();
        locks.change();
        tx.set(&at_source, 0, target_word);
        tx.set(&at_target, 0, source_word);
        finish(&mut tx, &parents, &moved, &dotdots);
        tx.commit();
        Ok(())
    }
}

/// The parents' sizes, links and times after a move.
fn parent_changes(tx: &mut Transaction<'_>, situation: &Situation, now: i64) -> Vec<Change> {
    let dir_moves = u32::from(situation.source.is_dir());
    let dir_goes = situation
        .target
        .as_ref()
        .map_or(0, |(target, _)| u32::from(target.is_dir()));
    let replaces = u64::from(situation.target.is_some());
    let mut parents = vec![Change::log(tx, &situation.from)];
    if situation.across() {
        let mut to = Change::log(tx, &situation.to);
        to.hot.set_size(situation.to.size() + 1 - replaces);
        to.hot.set_links(situation.to.links + dir_moves - dir_goes);
        parents.push(to);
        parents[0]
            .hot
            .set_size(situation.from.size().saturating_sub(1));
        parents[0].hot.set_links(situation.from.links - dir_moves);
    } else {
        parents[0].hot.set_size(situation.from.size() - replaces);
        parents[0].hot.set_links(situation.from.links - dir_goes);
    }
    for parent in &mut parents {
        parent.hot.touch(now);
    }
    parents
}

/// A directory that changes its parent.
fn dotdot(
    tx: &mut Transaction<'_>,
    situation: &Situation,
    inode: &Inode,
    parent: Ino,
) -> Option<(Logged, u64)> {
    (inode.is_dir() && situation.across()).then(|| (tx.log(inode.off + offset::PARENT, 8), parent))
}

fn finish(
    tx: &mut Sealed<'_>,
    parents: &[Change],
    moved: &[Change],
    dotdots: &[Option<(Logged, u64)>],
) {
    for change in parents.iter().chain(moved) {
        change.apply(tx);
    }
    for (range, parent) in dotdots.iter().flatten() {
        tx.set(range, 0, *parent);
    }
}
