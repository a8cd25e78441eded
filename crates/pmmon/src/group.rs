//! Core specialisation: threads that write to persistent memory run on cores of their own, for as
//! long as they do (T. Schmidt, KIT 2022, 5.2.2).
//!
//! A decision is a pure function of state, sight and time ([`next`]). [`Specialiser`] applies it:
//!
//! - a thread's mask is read before the first change, and is as it was at the end;
//! - a mask that the program sets itself wins: the thread is let go for good;
//! - a thread whose mask can not be changed is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::Tid;

/// The highest number of a core.
const CORE_MAX: u32 = 1023;

/// Cores, by number.
pub type Cores = BTreeSet<u32>;

/// Cores as the kernel lists them: `0-2,5`.
#[must_use]
pub fn listed(cores: &Cores) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for core in cores {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => runs.push((*core, *core)),
        }
    }
    let run = |(first, last): (u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

/// Reads a list of cores as the kernel writes it. `None` is no list, or an empty one.
#[must_use]
pub fn cores(text: &str) -> Option<Cores> {
    let mut found = Cores::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last > CORE_MAX {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

/// A group of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The cores of its threads.
    pub cores: Cores,
    /// The time after which a thread leaves it, in nanoseconds.
    pub expiry_ns: u64,
}

/// The groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Threads that have written lately.
    pub general: Group,
    /// Threads that write.
    pub pm: Group,
    /// A thread stays in `pm` until it expires; otherwise it leaves at the first look that does
    /// not see it write.
    pub is_sticky: bool,
}

/// The place of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In no group: the thread has its own mask.
    #[default]
    Own,
    /// In `general` until then.
    General(u64),
    /// In `pm` until then.
    Pm(u64),
}

/// The place after a look at `now_ns`, at which the thread was seen to write or was not.
#[must_use]
pub fn next(groups: &Groups, place: Place, is_seen: bool, now_ns: u64) -> Place {
    if is_seen {
        return Place::Pm(now_ns.saturating_add(groups.pm.expiry_ns));
    }
    match place {
        Place::Pm(until) if groups.is_sticky && now_ns < until => place,
        Place::Pm(_) => Place::General(now_ns.saturating_add(groups.general.expiry_ns)),
        Place::General(until) if now_ns < until => place,
        Place::General(_) | Place::Own => Place::Own,
    }
}

/// Masks of threads.
pub trait Affinity {
    /// The cores on which a thread may run.
    ///
    /// # Errors
    /// The thread is gone.
    fn get(&self, tid: Tid) -> io::Result<Cores>;

    /// Says on which cores a thread may run.
    ///
    /// # Errors
    /// The thread is gone, not ours, or its cpuset has none of the cores.
    fn set(&mut self, tid: Tid, cores: &Cores) -> io::Result<()>;

    /// A thread was started by one whose mask was changed, and has that mask from birth.
    fn adopt(&mut self, _tid: Tid, _parent: Tid) {}

    /// A thread has ended.
    fn forget(&mut self, _tid: Tid) {}
}

/// A thread that was seen.
#[derive(Clone, Debug)]
struct Member {
    place: Place,
    original: Cores,
    /// The mask that was set last, as the kernel shows it.
    applied: Cores,
}

/// The state of all threads.
#[derive(Debug)]
pub struct Specialiser<A> {
    groups: Groups,
    affinity: A,
    members: BTreeMap<Tid, Member>,
    /// Threads that are not touched any more.
    let_go: BTreeSet<Tid>,
    /// Cores that `pm` has had before: a thread may have been born with them.
    earlier: BTreeSet<Cores>,
}

impl<A: Affinity> Specialiser<A> {
    /// No thread is in a group.
    pub fn new(groups: Groups, affinity: A) -> Self {
        Self {
            groups,
            affinity,
            members: BTreeMap::new(),
            let_go: BTreeSet::new(),
            earlier: BTreeSet::new(),
        }
    }

    /// The groups as they are now.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Gives `pm` other cores. Its threads come to them with the next look.
    pub fn set_pm_cores(&mut self, cores: Cores) {
        let before = std::mem::replace(&mut self.groups.pm.cores, cores);
        self.earlier.insert(before);
    }

    /// One look: the threads that were seen to write since the last. The answer has the threads
    /// that have come to another group, or to none.
    pub fn look(&mut self, seen: &BTreeSet<Tid>, now_ns: u64) -> Vec<(Tid, Place)> {
        for tid in seen {
            self.meet(*tid);
        }
        let members: Vec<Tid> = self.members.keys().copied().collect();
        let mut moved = Vec::new();
        for tid in members {
            let before = self.place(tid);
            self.decide(tid, seen.contains(&tid), now_ns);
            let after = self.place(tid);
            if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
                moved.push((tid, after));
            }
        }
        moved
    }

    /// A thread is new. It has the mask of the thread that has started it: if that is a group's,
    /// the new thread is of the same group, and its own mask is the one that its parent had. `kin`
    /// are the threads of its process and of the one that has started it.
    pub fn born(&mut self, tid: Tid, kin: &BTreeSet<Tid>) {
        if self.members.contains_key(&tid) || self.let_go.contains(&tid) {
            return;
        }
        let Ok(mask) = self.affinity.get(tid) else {
            return;
        };
        let of_kin = || self.members.iter().filter(|(one, _)| kin.contains(one));
        let is_group = mask == self.groups.pm.cores
            || mask == self.groups.general.cores
            || self.earlier.contains(&mask);
        let parent = of_kin()
            .find(|(_, member)| member.applied == mask && member.applied != member.original)
            .or_else(|| of_kin().find(|(_, member)| is_group && member.original != mask));
        let Some((parent, member)) = parent else {
            return;
        };
        let (parent, member) = (*parent, member.clone());
        self.affinity.adopt(tid, parent);
        self.members.insert(
            tid,
            Member {
                applied: mask,
                ..member
            },
        );
    }

    /// The place of a thread.
    #[must_use]
    pub fn place(&self, tid: Tid) -> Place {
        let member = self.members.get(&tid);
        member.map_or(Place::Own, |member| member.place)
    }

    /// Threads that are not touched any more: their program has set a mask itself, or the kernel
    /// refuses.
    pub fn let_go(&self) -> impl Iterator<Item = Tid> {
        self.let_go.iter().copied()
    }

    /// A thread has ended: its number may come again.
    pub fn forget(&mut self, tid: Tid) {
        self.members.remove(&tid);
        self.let_go.remove(&tid);
        self.affinity.forget(tid);
    }

    /// Gives all threads their own masks back. The answer has the threads that could not get it.
    pub fn end(mut self) -> (A, Vec<Tid>) {
        let mut failed = Vec::new();
        for (tid, member) in std::mem::take(&mut self.members) {
            if let Ok(now) = self.affinity.get(tid)
                && now == member.applied
                && self.affinity.set(tid, &member.original).is_err()
            {
                failed.push(tid);
            }
        }
        (self.affinity, failed)
    }

    fn meet(&mut self, tid: Tid) {
        if self.members.contains_key(&tid) || self.let_go.contains(&tid) {
            return;
        }
        if let Ok(original) = self.affinity.get(tid) {
            let member = Member {
                place: Place::Own,
                applied: original.clone(),
                original,
            };
            self.members.insert(tid, member);
        }
    }

    fn decide(&mut self, tid: Tid, is_seen: bool, now_ns: u64) {
        let Some(member) = self.members.get_mut(&tid) else {
            return;
        };
        let Ok(now) = self.affinity.get(tid) else {
            // Gone.
            self.members.remove(&tid);
            self.affinity.forget(tid);
            return;
        };
        if now != member.applied {
            self.members.remove(&tid);
            self.let_go.insert(tid);
            self.affinity.forget(tid);
            return;
        }
        let place = next(&self.groups, member.place, is_seen, now_ns);
        let cores = match place {
            Place::Own => &member.original,
            Place::General(_) => &self.groups.general.cores,
            Place::Pm(_) => &self.groups.pm.cores,
        };
        if *cores != member.applied {
            if self.affinity.set(tid, cores).is_err() {
                self.members.remove(&tid);
                self.let_go.insert(tid);
                return;
            }
            // A cpuset may leave only some of the cores.
            member.applied = self.affinity.get(tid).unwrap_or_else(|_| cores.clone());
        }
        member.place = place;
        if place == Place::Own {
            self.members.remove(&tid);
        }
    }
}
