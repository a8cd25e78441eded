//! rename, with NOREPLACE, EXCHANGE and WHITEOUT.

use super::whiteout::Whiteout;
use super::{find, named, named_dir, peek, with_links};
use crate::dir::bucket::{HeaderEdit, kind_of};
use crate::dir::{Hit, Name, bucket_of, expect, split};
use crate::inode::Inode;
use crate::namespace::planted;
use crate::pool::Pool;
use crate::purpose::Claim;
use crate::resolve::intend_reclaim;
use crate::types::{Ino, RenameFlags};
use arrayvec::ArrayVec;
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;
use pm_journal::medium::header::rename_word;
use pm_journal::medium::store::Held;
use pm_journal::{Change, Logged, Sealed, Transaction};
use pm_store::FreshSet;
use pmfs_format::InodeRaw;
use pmfs_format::inode::{LINKS_MAX, ROOT_INO};

/// A value for each directory of a rename, one or two. The values are not on the heap: freeing heap
/// memory waits for the lines that are being flushed.
type Both<T> = ArrayVec<T, 2>;

/// Everything that a rename looks at, read under its locks.
struct Situation {
    from: Inode,
    to: Inode,
    source: Inode,
    source_hit: Hit,
    target: Option<(Inode, Hit)>,
}

/// The request beyond the names.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    pub flags: RenameFlags,
    /// The owner that a whiteout is to have.
    pub owner: (u32, u32),
    /// The directory at the top of a snapshot may move.
    pub moves_snapshots: bool,
}

impl Situation {
    /// Returns whether the names stand for these.
    fn is_of(&self, source: Ino, target: Option<Ino>) -> bool {
        let there = self.target.as_ref().map(|(inode, _)| inode.ino);
        self.source.ino == source && there == target
    }

    fn across(&self) -> bool {
        self.from.ino != self.to.ino
    }

    /// Checks what POSIX asks of a rename that replaces.
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
    /// Moves a name; see `renameat2(2)`, and [`crate::Fs::rename_by`].
    pub(crate) fn rename(
        &self,
        (dir, name): (Ino, &[u8]),
        (new_dir, new_name): (Ino, &[u8]),
        how: How,
        mut seen: Option<(Ino, Option<Ino>)>,
    ) -> Result<()> {
        self.writable()?;
        let flags = how.flags;
        if flags.contains(RenameFlags::EXCHANGE) && flags != RenameFlags::EXCHANGE {
            return Err(Error::Invalid(&"EXCHANGE goes with no other flag"));
        }
        let is_dots = |name: &[u8]| name == b"." || name == b"..";
        if is_dots(name) {
            return Err(Error::Busy);
        }
        if is_dots(new_name) {
            let keep = flags.contains(RenameFlags::NOREPLACE);
            return Err(if keep { Error::Exists } else { Error::Busy });
        }
        let name = Name::new(self, name)?;
        let new_name = Name::new(self, new_name)?;
        expect(self, dir, &name);
        expect(self, new_dir, &new_name);
        loop {
            let told = seen.take();
            let (source, target) = match told {
                Some(told) => told,
                None => {
                    let source = peek(self, dir, &name)?;
                    let target = peek(self, new_dir, &new_name)?;
                    (source.ok_or(Error::NotFound)?, target)
                }
            };
            // Trees of directories change shape only under this lock.
            let across = dir != new_dir;
            let _shape = across.then(|| Held::new(self, rename_word(self)));
            let inos = [dir, new_dir, source, target.unwrap_or(source)];
            let locks = LockSet::take(self, &inos);
            let situation = match self.situation(dir, &name, new_dir, &new_name) {
                Ok(Some(situation)) if situation.is_of(source, target) => situation,
                Ok(None) if told.is_none() => return Err(Error::NotFound),
                Err(error) if told.is_none() => return Err(error),
                // The caller's knowledge may be out of date in any way: its own lookup says why.
                _ => continue,
            };
            return self.rename_locked(&locks, situation, &name, &new_name, how);
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
            Some(hit) => Some((named(self, &to, &hit)?, hit)),
        };
        Ok(Some(Situation {
            source: named(self, &from, &source_hit)?,
            from,
            to,
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
        how: How,
    ) -> Result<()> {
        let flags = how.flags;
        if !how.moves_snapshots {
            situation.source.changeable()?;
            if let Some((target, _)) = &situation.target {
                target.changeable()?;
            }
        }
        if flags.contains(RenameFlags::NOREPLACE) && situation.target.is_some() {
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
                    // The target holds the source, so the target is not empty.
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
        if planted!("bug-rename-over-loses-both")
            && let Some((_, hit)) = situation.target
        {
            planted::unname(self, &hit);
            self.transfer(locks, situation, name, new_name, how)?;
            planted::name_again(self, &hit);
            return Ok(());
        }
        self.transfer(locks, situation, name, new_name, how)
    }

    /// A directory can't move below itself.
    fn check_descent(&self, moved: Ino, into: Ino) -> Result<()> {
        let mut at = into;
        for _ in 0..1 << 20 {
            if at == moved {
                return Err(Error::Invalid(&"a directory can't be moved below itself"));
            }
            if at == ROOT_INO {
                return Ok(());
            }
            at = Inode::load(self, at)?.parent;
        }
        Err(crate::tree::corrupt("directories in a circle", 0))
    }

    /// The name moves; a target goes, a whiteout stays.
    fn transfer(
        &self,
        locks: &LockSet<'_>,
        mut situation: Situation,
        name: &Name<'_>,
        new_name: &Name<'_>,
        how: How,
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
        let stays = how.flags.contains(RenameFlags::WHITEOUT);
        let make = || Whiteout::make(self, &lane, &mut fresh, &situation.from, how.owner, now);
        let whiteout = stays.then(make).transpose()?;
        let headers = self.moved_headers(&mut fresh, &situation, new_name, stays)?;
        fresh.until_seal();

        if let Some((target, _)) = &situation.target
            && links_left(target) == 0
        {
            intend_reclaim(&lane, target.ino)?;
        }
        let mut tx = Transaction::begin(&lane);
        let logged: Both<Change<8>> = headers.iter().map(|edit| edit.log(&mut tx)).collect();
        let replaced = situation.target.as_ref().map(|(target, hit)| {
            let word = hit.record.renamed_to(source.ino, kind_of(source.mode));
            let hot = with_links(target, links_left(target), now);
            (tx.log(hit.record.off, 8), word, target.log(&mut tx, &hot))
        });
        let parents = parent_changes(&mut tx, &situation, stays, now);
        let whiteout = whiteout.map(|made| made.log(&mut tx, &situation.source_hit));
        let moved = [ctime_change(&mut tx, &source, now)];
        let dotdot = [dotdot(&mut tx, &situation, &source, situation.to.ino)];

        let mut tx = tx.seal();
        locks.change();
        for header in &logged {
            header.apply(&mut tx);
        }
        if let Some(whiteout) = &whiteout {
            whiteout.apply(&mut tx);
        }
        if let Some((record, word, change)) = &replaced {
            tx.set(record, 0, *word);
            change.apply(&mut tx);
        }
        finish(&mut tx, &parents, &moved, &dotdot);
        match whiteout {
            // The whiteout's own lock is not held.
            Some(_) => tx.commit(),
            None => locks.commit(tx),
        }
        Ok(())
    }

    /// The bucket headers of a move: the old name goes, unless it stays for another inode; the new
    /// one comes, unless it is there.
    fn moved_headers(
        &self,
        fresh: &mut FreshSet<'_>,
        situation: &Situation,
        new_name: &Name<'_>,
        stays: bool,
    ) -> Result<Both<HeaderEdit>> {
        let source = &situation.source;
        let mut headers = Both::new();
        if !stays {
            headers.push(HeaderEdit::of(self, situation.source_hit.bucket));
        }
        if situation.target.is_none() {
            let bucket = bucket_of(self, &situation.to.tree(), new_name.hash)?;
            if headers.iter().all(|header| bucket != header.bucket()) {
                headers.push(HeaderEdit::of(self, bucket));
            }
            let header = headers.last_mut().expect("there is one");
            let kind = kind_of(source.mode);
            header.insert(fresh, source.ino, kind, new_name.hash, new_name.bytes);
        }
        if !stays {
            headers[0].remove(&situation.source_hit.record);
        }
        Ok(headers)
    }

    /// Gives each of two names the other's inode.
    fn exchange(&self, locks: &LockSet<'_>, situation: &Situation) -> Result<()> {
        let Some((target, target_hit)) = &situation.target else {
            return Err(Error::NotFound);
        };
        let lane = Claim::new(self);
        let now = self.clock.now_ns();
        let source = &situation.source;
        let mut tx = Transaction::begin(&lane);
        let at_source = tx.log(situation.source_hit.record.off, 8);
        let at_target = tx.log(target_hit.record.off, 8);
        let parents = exchanged_parents(&mut tx, situation, target, now);
        let moved = [source, target].map(|inode| ctime_change(&mut tx, inode, now));
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
        locks.commit(tx);
        Ok(())
    }
}

/// An inode whose ctime alone changes.
fn ctime_change(tx: &mut Transaction<'_>, inode: &Inode, now: i64) -> Change<6> {
    let mut hot = inode.hot();
    hot.change(now);
    inode.log(tx, &hot)
}

/// Links of what a rename replaces, after it.
fn links_left(target: &Inode) -> u32 {
    match target.is_dir() {
        true => 0,
        false => target.links.saturating_sub(1),
    }
}

/// The parents' sizes, links and times after a move.
fn parent_changes(
    tx: &mut Transaction<'_>,
    situation: &Situation,
    stays: bool,
    now: i64,
) -> Both<Change<6>> {
    let dir_moves = u32::from(situation.source.is_dir());
    let dir_goes = situation
        .target
        .as_ref()
        .map_or(0, |(target, _)| u32::from(target.is_dir()));
    let replaces = u64::from(situation.target.is_some());
    let left = situation.from.size() + u64::from(stays);
    let mut parents = Both::new();
    let mut from = situation.from.hot();
    from.touch(now);
    if situation.across() {
        let mut to = situation.to.hot();
        to.touch(now);
        to.set_size(situation.to.size() + 1 - replaces);
        to.set_links(situation.to.links + dir_moves - dir_goes);
        parents.push(situation.to.log(tx, &to));
        from.set_size(left.saturating_sub(1));
        from.set_links(situation.from.links - dir_moves);
    } else {
        from.set_size(left - replaces);
        let goes = dir_goes + dir_moves * u32::from(planted!("bug-rename-within-directory"));
        from.set_links(situation.from.links - goes);
    }
    parents.push(situation.from.log(tx, &from));
    parents
}

/// The parents' links and times after an exchange with `target`.
fn exchanged_parents(
    tx: &mut Transaction<'_>,
    situation: &Situation,
    target: &Inode,
    now: i64,
) -> Both<Change<6>> {
    let (from, to) = (&situation.from, &situation.to);
    let mut parents = Both::new();
    let mut of_from = from.hot();
    of_from.touch(now);
    if situation.across() {
        let balance = i64::from(target.is_dir()) - i64::from(situation.source.is_dir());
        let links = |links: u32, by: i64| (i64::from(links) + by) as u32;
        of_from.set_links(links(from.links, balance));
        let mut of_to = to.hot();
        of_to.touch(now);
        of_to.set_links(links(to.links, -balance));
        parents.push(to.log(tx, &of_to));
    }
    parents.push(from.log(tx, &of_from));
    parents
}

/// A directory that changes its parent.
fn dotdot(
    tx: &mut Transaction<'_>,
    situation: &Situation,
    inode: &Inode,
    parent: Ino,
) -> Option<(Logged, u64)> {
    (inode.is_dir() && situation.across())
        .then(|| (tx.log(InodeRaw::parent.of(inode.off), 8), parent))
}

fn finish(
    tx: &mut Sealed<'_>,
    parents: &[Change<6>],
    moved: &[Change<6>],
    dotdots: &[Option<(Logged, u64)>],
) {
    for change in parents.iter().chain(moved) {
        change.apply(tx);
    }
    for (range, parent) in dotdots.iter().flatten() {
        tx.set(range, 0, *parent);
    }
}
