//! Bounded workloads after ACE (CrashMonkey) in Chipmunk's form for persistent memory: every
//! sequence of one, two or three calls from a small set of calls on a few names, each with the
//! calls that it depends on put before it.
//!
//! The 56 calls are `create` 2, `mkdir` 1, `fallocate` 30, `write` 6, `link` 6, `unlink` 4 and
//! `rename` 7; so there are 3,136 sequences of two. [`wide`] adds the calls that this set leaves
//! out.

use super::call::Call;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A call of the set, before its offsets are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// `creat`.
    Create(&'static str),
    /// `mkdir`.
    Mkdir(&'static str),
    /// `rmdir`.
    Rmdir(&'static str),
    /// `fallocate` with a mode, over one of the ranges.
    Fallocate(&'static str, u32, Span),
    /// `pwrite` over one of the ranges.
    Write(&'static str, Span),
    /// `link`.
    Link(&'static str, &'static str),
    /// `unlink`.
    Unlink(&'static str),
    /// `renameat2` of a file, with flags.
    Rename(&'static str, &'static str, u32),
    /// `rename` of a directory.
    RenameDir(&'static str, &'static str),
    /// `truncate`: to a block's end, or not.
    Truncate(&'static str, bool),
    /// `symlink`, of a target so long.
    Symlink(&'static str, u64),
    /// `mknod`.
    Mknod(&'static str),
    /// `setxattr`, of so many bytes.
    Setxattr(&'static str, u64),
    /// `removexattr`.
    Removexattr(&'static str),
    /// `chmod`.
    Chmod(&'static str),
}

/// A range of a file, by its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// The range begins at the end.
    Append,
    /// Over what is there, from inside a block to inside another.
    Overlap,
    /// Over the end.
    Extend,
}

const FILES: [&str; 2] = ["foo", "A/foo"];
const OTHERS: [&str; 2] = ["bar", "A/bar"];
const SPANS: [Span; 3] = [Span::Append, Span::Overlap, Span::Extend];
/// ZERO_RANGE, ZERO_RANGE and KEEP_SIZE, PUNCH_HOLE and KEEP_SIZE, KEEP_SIZE, none.
const MODES: [u32; 5] = [0x10, 0x11, 0x03, 0x01, 0];
/// Bytes of a file that has to have some.
const FILLED: u64 = 9000;

/// The 56 calls.
#[must_use]
pub fn ace() -> Vec<Core> {
    let mut all = Vec::new();
    all.extend(FILES.map(Core::Create));
    all.push(Core::Mkdir("A"));
    for file in FILES {
        for mode in MODES {
            all.extend(SPANS.map(|span| Core::Fallocate(file, mode, span)));
        }
        all.extend(SPANS.map(|span| Core::Write(file, span)));
    }
    let pairs = || {
        let olds = FILES.into_iter().chain(OTHERS);
        olds.flat_map(|old| OTHERS.map(|new| (old, new)))
            .filter(|(old, new)| old != new)
    };
    all.extend(pairs().map(|(old, new)| Core::Link(old, new)));
    all.extend(FILES.into_iter().chain(OTHERS).map(Core::Unlink));
    all.extend(pairs().map(|(old, new)| Core::Rename(old, new, 0)));
    all.push(Core::RenameDir("A", "B"));
    all
}

/// The 56 and those that they leave out.
#[must_use]
pub fn wide() -> Vec<Core> {
    let mut all = ace();
    all.push(Core::Rmdir("A"));
    for file in FILES {
        all.extend([Core::Truncate(file, true), Core::Truncate(file, false)]);
    }
    all.extend([
        Core::Symlink("foo", 20),
        Core::Symlink("A/bar", 300),
        Core::Mknod("foo"),
        Core::Setxattr("foo", 40),
        Core::Setxattr("A/foo", 3000),
        Core::Removexattr("foo"),
        Core::Chmod("A/foo"),
        Core::Rename("foo", "A/bar", 2),
        Core::Rename("foo", "bar", 4),
    ]);
    all
}

/// Calls that change names and sizes only: the set for sequences of three.
#[must_use]
pub fn metadata() -> Vec<Core> {
    let is_metadata = |core: &Core| match core {
        Core::Write(_, span) => *span != Span::Extend,
        Core::Fallocate(..) => false,
        _ => true,
    };
    ace().into_iter().filter(is_metadata).collect()
}

/// All sequences of `len` calls of `set`, each with what it depends on.
pub fn sequences(set: &[Core], len: u32) -> impl Iterator<Item = Vec<Call>> + '_ {
    let count = set.len().pow(len);
    (0..count).map(move |number| {
        let mut number = number;
        let mut cores = Vec::new();
        for _ in 0..len {
            cores.push(set[number % set.len()]);
            number /= set.len();
        }
        cores.reverse();
        workload(&cores)
    })
}

/// For each workload, how many of its calls begin one that came before: those were crashed there. A
/// workload that is the beginning of another one before it has nothing left.
pub fn shared_prefixes(workloads: &[Vec<Call>]) -> Vec<usize> {
    let mut seen = HashSet::new();
    let mut shared = Vec::new();
    for calls in workloads {
        let mut hasher = DefaultHasher::new();
        let mut known = 0;
        for (at, call) in calls.iter().enumerate() {
            call.hash(&mut hasher);
            if !seen.insert(hasher.finish()) {
                known = at + 1;
            }
        }
        shared.push(known);
    }
    shared
}

/// One sequence, with what each call depends on put before it.
#[must_use]
pub fn workload(cores: &[Core]) -> Vec<Call> {
    let mut names = Names::default();
    for &core in cores {
        names.add(core);
    }
    names.calls
}

/// The names that exist, as far as dependencies need them.
#[derive(Default)]
struct Names {
    calls: Vec<Call>,
    dirs: BTreeSet<String>,
    /// Files and what else is no directory: a number for each inode.
    files: BTreeMap<String, usize>,
    /// Length and whether it has an attribute, of each inode.
    inodes: Vec<(u64, bool)>,
}

impl Names {
    fn add(&mut self, core: Core) {
        match core {
            Core::Create(name) => {
                self.absent(name);
                self.make(name, Call::Create(name.into()));
            }
            Core::Mknod(name) => {
                self.absent(name);
                self.make(name, Call::Mknod(name.into()));
                // Not a regular file: whoever wants one replaces it.
                self.inodes.last_mut().expect("just made").0 = u64::MAX;
            }
            Core::Symlink(name, len) => {
                self.absent(name);
                self.make(
                    name,
                    Call::Symlink {
                        len,
                        name: name.into(),
                    },
                );
                self.inodes.last_mut().expect("just made").0 = u64::MAX;
            }
            Core::Mkdir(name) => {
                self.no_directory(name);
                self.mkdir(name);
            }
            Core::Rmdir(name) => {
                self.directory(name);
                self.empty(name);
                self.calls.push(Call::Rmdir(name.into()));
                self.dirs.remove(name);
            }
            Core::Unlink(name) => {
                self.file(name);
                self.unlink(name);
            }
            Core::Link(old, new) => {
                self.file(old);
                self.absent(new);
                self.calls.push(Call::Link {
                    old: old.into(),
                    new: new.into(),
                });
                let inode = self.files[old];
                self.files.insert(new.into(), inode);
            }
            Core::Rename(old, new, flags) => self.rename(old, new, flags),
            Core::RenameDir(old, new) => self.rename_dir(old, new),
            _ => self.add_on_file(core),
        }
    }

    fn add_on_file(&mut self, core: Core) {
        match core {
            Core::Write(name, span) => {
                let (offset, len) = self.span(name, span);
                self.grow(name, offset + len);
                self.calls.push(Call::Write {
                    name: name.into(),
                    offset,
                    len,
                });
            }
            Core::Fallocate(name, mode, span) => {
                let (offset, len) = self.span(name, span);
                if mode & 1 == 0 {
                    self.grow(name, offset + len);
                }
                self.calls.push(Call::Fallocate {
                    name: name.into(),
                    mode,
                    offset,
                    len,
                });
            }
            Core::Truncate(name, aligned) => {
                self.file(name);
                let size = if aligned { 4096 } else { 2500 };
                let inode = self.files[name];
                self.inodes[inode].0 = size;
                self.calls.push(Call::Truncate {
                    name: name.into(),
                    size,
                });
            }
            Core::Setxattr(name, len) => {
                self.file(name);
                let inode = self.files[name];
                self.inodes[inode].1 = true;
                self.calls.push(Call::Setxattr {
                    name: name.into(),
                    len,
                });
            }
            Core::Removexattr(name) => {
                self.file(name);
                let inode = self.files[name];
                if !std::mem::take(&mut self.inodes[inode].1) {
                    self.calls.push(Call::Setxattr {
                        name: name.into(),
                        len: 40,
                    });
                }
                self.calls.push(Call::Removexattr(name.into()));
            }
            Core::Chmod(name) => {
                self.file(name);
                self.calls.push(Call::Chmod {
                    name: name.into(),
                    mode: 0o600,
                });
            }
            _ => unreachable!("the calls on names are done elsewhere"),
        }
    }

    fn make(&mut self, name: &str, call: Call) {
        self.parent(name);
        self.calls.push(call);
        self.files.insert(name.into(), self.inodes.len());
        self.inodes.push((0, false));
    }

    fn mkdir(&mut self, name: &str) {
        self.calls.push(Call::Mkdir(name.into()));
        self.dirs.insert(name.into());
    }

    fn unlink(&mut self, name: &str) {
        self.calls.push(Call::Unlink(name.into()));
        self.files.remove(name);
    }

    fn directory(&mut self, name: &str) {
        if !self.dirs.contains(name) {
            self.mkdir(name);
        }
    }

    fn parent(&mut self, name: &str) {
        if let Some((dir, _)) = name.rsplit_once('/') {
            self.directory(dir);
        }
    }

    /// A regular file of that name.
    fn file(&mut self, name: &str) {
        let kind = self.files.get(name).map(|&inode| self.inodes[inode].0);
        if kind == Some(u64::MAX) {
            self.unlink(name);
        }
        if kind.is_none() || kind == Some(u64::MAX) {
            self.make(name, Call::Create(name.into()));
        }
    }

    /// Nothing of that name, in a directory that is there.
    fn absent(&mut self, name: &str) {
        self.parent(name);
        if self.files.contains_key(name) {
            self.unlink(name);
        }
    }

    fn empty(&mut self, dir: &str) {
        let below = format!("{dir}/");
        let names: Vec<String> = self
            .files
            .keys()
            .filter(|name| name.starts_with(&below))
            .cloned()
            .collect();
        for name in names {
            self.unlink(&name);
        }
    }

    fn no_directory(&mut self, name: &str) {
        if self.dirs.contains(name) {
            self.empty(name);
            self.calls.push(Call::Rmdir(name.into()));
            self.dirs.remove(name);
        }
    }

    fn rename(&mut self, old: &str, new: &str, flags: u32) {
        self.file(old);
        self.parent(new);
        if flags == 2 {
            self.file(new);
        }
        self.calls.push(Call::Rename {
            old: old.into(),
            new: new.into(),
            flags,
        });
        let inode = self.files[old];
        let other = self.files.insert(new.into(), inode);
        match flags {
            2 => {
                self.files
                    .insert(old.into(), other.expect("both are there"));
            }
            4 => {
                self.files.insert(old.into(), self.inodes.len());
                self.inodes.push((u64::MAX, false));
            }
            // Two names of one file: nothing happens.
            _ if other == Some(inode) => {}
            _ => {
                self.files.remove(old);
            }
        }
    }

    fn rename_dir(&mut self, old: &str, new: &str) {
        self.directory(old);
        if self.dirs.contains(new) {
            self.empty(new);
        }
        let call = Call::Rename {
            old: old.into(),
            new: new.into(),
            flags: 0,
        };
        self.calls.push(call);
        self.dirs.remove(old);
        self.dirs.insert(new.into());
        let below = format!("{old}/");
        let moved: Vec<String> = self
            .files
            .keys()
            .filter(|name| name.starts_with(&below))
            .cloned()
            .collect();
        for name in moved {
            let inode = self.files.remove(&name).expect("just listed");
            self.files
                .insert(format!("{new}/{}", &name[below.len()..]), inode);
        }
    }

    /// Offset and length of a range of a file, which is filled first if the range is to meet
    /// something.
    fn span(&mut self, name: &str, span: Span) -> (u64, u64) {
        self.file(name);
        let inode = self.files[name];
        if self.inodes[inode].0 == 0 && span != Span::Append {
            self.inodes[inode].0 = FILLED;
            let (name, offset, len) = (name.into(), 0, FILLED);
            self.calls.push(Call::Write { name, offset, len });
        }
        let size = self.inodes[inode].0;
        match span {
            Span::Append => (size, 5000),
            Span::Overlap => (size / 9, size / 2),
            Span::Extend => (size - size / 9, 3000),
        }
    }

    fn grow(&mut self, name: &str, end: u64) {
        let inode = self.files[name];
        self.inodes[inode].0 = self.inodes[inode].0.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::{HashSet, ace, sequences, wide};
    use crate::files::pool;
    use pmfs::{DataMode, Fs};

    /// Goal: the numbers are those of Chipmunk. Method: count.
    #[test]
    fn there_are_56_and_3136() {
        assert_eq!(ace().len(), 56);
        assert_eq!(sequences(&ace(), 2).count(), 3136);
        assert_eq!(
            wide().into_iter().collect::<HashSet<_>>().len(),
            wide().len()
        );
    }

    /// Goal: a workload's calls all succeed, so that nothing is left out. Method: do them.
    #[test]
    fn every_call_succeeds() {
        for calls in sequences(&wide(), 2) {
            let options = pool::open_options(DataMode::Atomic, 1000);
            let fs = Fs::open_private(pool::fresh(pool::POOL_BYTES), &options).unwrap();
            for call in &calls {
                let done = call.run(&fs, &mut Vec::new(), 1);
                assert!(done.is_ok(), "{call} in {calls:?}: {done:?}");
            }
        }
    }
}
