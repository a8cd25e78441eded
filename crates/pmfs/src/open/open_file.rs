//! Open files ("open file descriptions" of POSIX): the offset and flags that descriptors of one
//! open share, also after fork and exec.
//!
//! A file's line is claimed, released, and changed in its offset under its owner word. Words of the
//! open table say which processes have it; each of them also holds the inode once. A line without
//! such a word belongs to nobody.

use crate::inode::Inode;
use crate::open::file_lock::table::Lock;
use crate::open::file_lock::{Owner, Request};
use crate::pool::Pool;
use crate::tables::annex::{HeldLine, Line, Table};
use crate::tables::open_table::Thing;
use crate::types::{Attr, FileId, Ino, LockClass, LockKind, LockRange, mode};
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;
use pm_space::Class;
use pmfs_format::OpenFileRaw;
use pmshare::owner;
use std::io::SeekFrom;
use std::sync::atomic::Ordering;

const INDEX_BITS: u32 = 32;

impl FileId {
    fn new(index: u64, generation: u64) -> FileId {
        FileId(generation << INDEX_BITS | index)
    }

    /// The file's number, which is handed over exec.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The file with a number.
    #[must_use]
    pub fn from_number(number: u64) -> FileId {
        FileId(number)
    }

    /// Its index in the table.
    #[doc(hidden)]
    #[must_use]
    pub fn index(self) -> u64 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }
}

/// The next generation. Half of it is in a file's number, which is never 0: that means none.
fn next_generation(last: u64) -> u64 {
    let next = last.wrapping_add(1);
    match next << INDEX_BITS {
        0 => next + 1,
        _ => next,
    }
}

/// The present state of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Its inode.
    pub ino: Ino,
    /// The offset of the next read or write, bytes.
    pub offset: u64,
    /// The flags, as given.
    pub flags: u64,
}

/// Returns whether writes with these flags of open(2) append: O_APPEND is set.
pub fn appends(flags: u64) -> bool {
    const O_APPEND: u64 = 0o2000;
    flags & O_APPEND != 0
}

/// Returns whether a file opened with these flags of open(2) is one to be written to.
fn is_for_writing(flags: u64) -> bool {
    const O_ACCMODE: u64 = 0o3;
    const O_PATH: u64 = 0o10000000;
    flags & O_ACCMODE != 0 && flags & O_PATH == 0
}

/// Returns whether reads with these flags of open(2) update the time of access: O_NOATIME is not
/// set.
pub fn wants_atime(flags: u64) -> bool {
    const O_NOATIME: u64 = 0o1000000;
    flags & O_NOATIME == 0
}

impl OpenFile {
    /// Returns whether writes append: O_APPEND is set.
    pub fn appends(&self) -> bool {
        appends(self.flags)
    }

    /// [`wants_atime`] of its flags.
    pub fn wants_atime(&self) -> bool {
        wants_atime(self.flags)
    }
}

impl Pool {
    /// Creates an open file of an inode, with one descriptor of this process, which holds the
    /// inode.
    ///
    /// # Errors
    /// [`Error::TooManyOpen`]; the inode is gone.
    pub(crate) fn open_file(&self, ino: Ino, flags: u64) -> Result<FileId> {
        self.hold(ino)?;
        self.open_held(ino, flags)
    }

    /// Opens as [`Pool::open_file`] does, after a lookup: names and numbers may have changed since.
    ///
    /// # Errors
    /// Those of [`Pool::open_file`]; [`Error::Stale`].
    pub(crate) fn open_found(&self, found: &Attr, flags: u64) -> Result<FileId> {
        // A held inode keeps its number.
        let now = self.hold(found.ino)?;
        if now.generation != found.generation && !planted!("bug-opened-by-number") {
            self.release(found.ino)?;
            return Err(Error::Stale);
        }
        self.open_held(found.ino, flags)
    }

    fn open_held(&self, ino: Ino, flags: u64) -> Result<FileId> {
        let made = self
            .may_open(ino, flags)
            .and_then(|()| self.new_file(ino, flags));
        if made.is_err() {
            self.release(ino)?;
        }
        made
    }

    /// A file of a snapshot is not one to be written to. A device, a FIFO or a socket there is.
    #[inline]
    fn may_open(&self, ino: Ino, flags: u64) -> Result<()> {
        if !is_for_writing(flags) {
            return Ok(());
        }
        let inode = Inode::load(self, ino)?;
        match inode.kind() {
            mode::S_IFREG | mode::S_IFDIR => inode.changeable(),
            _ => Ok(()),
        }
    }

    fn new_file(&self, ino: Ino, flags: u64) -> Result<FileId> {
        let count = self.geometry.file_count();
        let start = self.next_file.load(Ordering::Relaxed);
        if let Some(number) = start.checked_sub(count)
            && let Some(made) = self.new_file_near(number, ino, flags)
        {
            return made;
        }
        for index in (0..count).map(|step| (start + step) % count) {
            if let Some(made) = self.make_file(index, self.own_file(index), ino, flags) {
                return made;
            }
        }
        self.new_file_in_annexes(ino, flags)
    }

    #[cold]
    fn new_file_near(&self, number: u64, ino: Ino, flags: u64) -> Option<Result<FileId>> {
        let count = self.geometry.file_count();
        let make = |number, line| self.make_file(count + number, line, ino, flags);
        self.take_line_near(Table::Files, number, &make)
    }

    #[cold]
    fn new_file_in_annexes(&self, ino: Ino, flags: u64) -> Result<FileId> {
        let count = self.geometry.file_count();
        let make = |number, line| self.make_file(count + number, line, ino, flags);
        self.take_line_in_annexes(Table::Files, Class::Ordinary, &make)
            .unwrap_or(Err(Error::TooManyOpen))
    }

    /// Makes a free line an open file. A line that can't become one is no longer in its annex.
    fn make_file(
        &self,
        index: u64,
        Line { off: line, annex }: Line,
        ino: Ino,
        flags: u64,
    ) -> Option<Result<FileId>> {
        let runtime = self.pm.runtime();
        let me = self.holder().word();
        if runtime.load(OpenFileRaw::ino.of(line)) != 0 || runtime.load(line) != 0 {
            return None;
        }
        if runtime.cas(OpenFileRaw::owner.of(line), 0, me).is_err() {
            return None;
        }
        if runtime.load(OpenFileRaw::ino.of(line)) != 0 {
            owner::release(self, line);
            return None;
        }
        let generation = next_generation(runtime.load(OpenFileRaw::generation.of(line)));
        runtime.store(OpenFileRaw::offset.of(line), 0);
        runtime.store(OpenFileRaw::flags.of(line), flags);
        runtime.store(OpenFileRaw::generation.of(line), generation);
        runtime.store(OpenFileRaw::ino.of(line), ino);
        let added = self.open_add(Thing::File(index));
        if added.is_err() {
            runtime.store(OpenFileRaw::ino.of(line), 0);
        }
        owner::release(self, line);
        if let Err(error) = added {
            self.leave_annex(annex);
            return Some(Err(error));
        }
        // The same line is tried first next time: it is in a cache, and the next one is not.
        self.next_file.store(index, Ordering::Relaxed);
        Some(Ok(FileId::new(index, generation)))
    }

    /// A line of the runtime area.
    #[inline]
    fn own_file(&self, index: u64) -> Line {
        Line {
            off: self.geometry.file(index),
            annex: None,
        }
    }

    /// The line of an open file, by index.
    #[inline]
    fn line_of_file(&self, index: u64) -> Option<Line> {
        match index.checked_sub(self.geometry.file_count()) {
            None => Some(self.own_file(index)),
            Some(number) => self.line_in_annexes(Table::Files, number),
        }
    }

    /// All lines that may be in use, with their indices.
    pub fn file_lines(&self) -> impl Iterator<Item = (u64, Line)> + '_ {
        let count = self.geometry.file_count();
        let own = (0..count).map(|index| (index, self.own_file(index)));
        let more = self.lines_in_annexes(Table::Files);
        own.chain(more.map(move |(number, line)| (count + number, line)))
    }

    /// Returns where an open file's line is.
    fn file_line(&self, file: FileId) -> Result<Line> {
        self.alive()?;
        let found = self.line_of_file(file.index()).ok_or(Error::NotOpen)?;
        self.state_in(found, file).map(|_| found)
    }

    /// Returns the state of an open file.
    ///
    /// # Errors
    /// [`Error::NotOpen`].
    pub(crate) fn file_state(&self, file: FileId) -> Result<OpenFile> {
        let line = self.file_line(file)?;
        self.state_in(line, file)
    }

    /// Returns the state of a line's open file, if the line is still that file's.
    #[inline]
    fn state_in(&self, line: Line, file: FileId) -> Result<OpenFile> {
        let [ino, offset, flags, generation] = self.pm.read::<4>(OpenFileRaw::ino.of(line.off));
        if ino == 0 || FileId::new(file.index(), generation) != file {
            return Err(Error::NotOpen);
        }
        Ok(OpenFile { ino, offset, flags })
    }

    /// The flags of an open file that this process has; otherwise they may be another file's.
    #[inline]
    pub(crate) fn file_flags(&self, file: FileId) -> u64 {
        let line = self.line_of_file(file.index());
        line.map_or(0, |line| self.pm.load(OpenFileRaw::flags.of(line.off)))
    }

    /// Sets those flags that may change.
    ///
    /// # Errors
    /// [`Error::NotOpen`].
    pub(crate) fn set_file_flags(&self, file: FileId, flags: u64) -> Result<()> {
        let line = self.file_line(file)?;
        let _held = HeldLine::new(self, line);
        self.pm
            .runtime()
            .store(OpenFileRaw::flags.of(line.off), flags);
        Ok(())
    }

    /// Calls `body` with the offset, and advances it by the result. No other call moves it
    /// meanwhile. `body` may store to a program's memory, so no window is open around it.
    ///
    /// # Errors
    /// [`Error::NotOpen`]; those of `body`.
    pub(crate) fn at_offset(
        &self,
        file: FileId,
        body: impl FnOnce(OpenFile) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        let line = self.file_line(file)?;
        let writable = self.pm.mapping().writable();
        let held = HeldLine::new(self, line);
        drop(writable);
        let (end, done) = body(self.state_in(line, file)?)?;
        let _writable = self.pm.mapping().writable();
        self.pm
            .runtime()
            .store(OpenFileRaw::offset.of(line.off), end);
        drop(held);
        Ok(done)
    }

    /// Works as [`Pool::at_offset`] does on the named ones of two open files, in the order of their
    /// lines, so that two calls in opposite directions don't wait for each other.
    ///
    /// # Errors
    /// Those of [`Pool::at_offset`].
    pub(crate) fn at_offsets(
        &self,
        files: [Option<FileId>; 2],
        body: impl FnOnce([u64; 2]) -> Result<([u64; 2], u64)>,
    ) -> Result<u64> {
        let mut lines = [None; 2];
        for (line, file) in lines.iter_mut().zip(files) {
            *line = file.map(|file| self.file_line(file)).transpose()?;
        }
        let mut order = lines;
        order.sort_unstable();
        let writable = self.pm.mapping().writable();
        let first = order[0].map(|line| HeldLine::new(self, line));
        let second = order[1].filter(|_| order[0] != order[1]);
        let held = (first, second.map(|line| HeldLine::new(self, line)));
        drop(writable);
        let offset = |line: Option<Line>| {
            line.map_or(0, |line| self.pm.load(OpenFileRaw::offset.of(line.off)))
        };
        // A line whose file was closed and that was opened anew belongs to another file.
        for file in files.into_iter().flatten() {
            self.file_line(file)?;
        }
        let (ends, done) = body(lines.map(offset))?;
        let _writable = self.pm.mapping().writable();
        for (line, end) in lines.into_iter().zip(ends) {
            if let Some(line) = line {
                self.pm
                    .runtime()
                    .store(OpenFileRaw::offset.of(line.off), end);
            }
        }
        drop(held);
        Ok(done)
    }

    /// Moves the offset. SEEK_SET, SEEK_CUR and SEEK_END of `lseek(2)`.
    ///
    /// # Errors
    /// [`Error::NotOpen`], [`Error::Invalid`] before the start.
    pub(crate) fn seek_file(&self, file: FileId, to: SeekFrom) -> Result<u64> {
        let line = self.file_line(file)?;
        let _held = HeldLine::new(self, line);
        let now = self.state_in(line, file)?;
        let (base, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (now.offset, by),
            SeekFrom::End(by) => (self.getattr(now.ino)?.size, by),
        };
        let offset = base
            .checked_add_signed(by)
            .filter(|&offset| i64::try_from(offset).is_ok())
            .ok_or(Error::Invalid(&"an offset before the start of the file"))?;
        self.pm
            .runtime()
            .store(OpenFileRaw::offset.of(line.off), offset);
        Ok(offset)
    }

    /// Adds a descriptor of this process, which has the file.
    ///
    /// # Errors
    /// [`Error::NotOpen`], [`Error::TooManyOpen`].
    pub(crate) fn dup_file(&self, file: FileId) -> Result<()> {
        self.file_line(file)?;
        self.open_add(Thing::File(file.index()))
    }

    /// Shares a file as [`Pool::dup_file`] does, even one that this process does not have yet; the
    /// process then holds the inode too.
    ///
    /// # Errors
    /// Those of [`Pool::dup_file`].
    pub(crate) fn share_file(&self, file: FileId) -> Result<()> {
        let line = self.file_line(file)?;
        let _held = HeldLine::new(self, line);
        let ino = self.state_in(line, file)?.ino;
        let mine = self.holder().slot;
        let is_new = !self.is_had_by(Thing::File(file.index()), |slot| slot == mine);
        if is_new {
            self.hold(ino)?;
        }
        let added = self.open_add(Thing::File(file.index()));
        if added.is_err() && is_new {
            self.release(ino)?;
        }
        added
    }

    /// Removes a descriptor. The last one of all ends the file, its locks, and its hold on the
    /// inode.
    ///
    /// # Errors
    /// [`Error::NotOpen`].
    pub(crate) fn close_file(&self, file: FileId) -> Result<()> {
        let line = self.file_line(file)?;
        let (ino, gone) = {
            // If this thread dies in between, the finder of its owner word ends the file.
            let _held = HeldLine::new(self, line);
            let ino = self.state_in(line, file)?.ino;
            let _locks = LockSet::take(self, &[ino]);
            let gone = self
                .open_remove(Thing::File(file.index()))
                .map_err(|_| Error::NotOpen)?;
            self.end_file_unless_had(file.index());
            (ino, gone)
        };
        if gone { self.release(ino) } else { Ok(()) }
    }

    /// Ends an open file without descriptors. The caller has the lock of its inode, or cleans up
    /// after the dead.
    pub(crate) fn end_file_unless_had(&self, index: u64) {
        self.end_file_unless_had_beside(index, 0);
    }

    /// Ends a file as [`Pool::end_file_unless_had`] does, before the word at `word`, of a dead
    /// process, is removed. If this thread dies in between, the next one finds the file by that
    /// word.
    pub(crate) fn end_file_unless_had_beside(&self, index: u64, word: u64) {
        let Some(line) = self.line_of_file(index) else {
            return;
        };
        let ino = self.pm.load(OpenFileRaw::ino.of(line.off));
        if ino == 0 || self.is_had_beside(Thing::File(index), word) {
            return;
        }
        let classes = [LockClass::File, LockClass::Flock];
        let ended = classes.len() * usize::from(!planted!("bug-file-locks-outlive-it"));
        for class in classes.into_iter().take(ended) {
            let owner = self.file_owner(index, class);
            // This can't fail, because no lock is split.
            let _ = self.take_lock_away(ino, owner, LockRange::WHOLE);
        }
        self.free_in_table(OpenFileRaw::ino.of(line.off), line.annex);
    }

    /// The count of files that a line has been; 0 if there is no line.
    #[inline]
    fn file_generation(&self, index: u64) -> u64 {
        let line = self.line_of_file(index);
        line.map_or(0, |line| self.pm.load(OpenFileRaw::generation.of(line.off)))
    }

    /// An open file as an owner of locks.
    pub(crate) fn file_owner(&self, index: u64, class: LockClass) -> Owner {
        Owner {
            class,
            token: 0,
            id: FileId::new(index, self.file_generation(index)).0,
        }
    }

    /// A lock request of an open file.
    ///
    /// # Errors
    /// [`Error::NotOpen`].
    pub(crate) fn file_request(
        &self,
        file: FileId,
        class: LockClass,
        (kind, range): (LockKind, LockRange),
    ) -> Result<Request> {
        Ok(Request {
            lock: Lock {
                ino: self.file_state(file)?.ino,
                owner: self.file_owner(file.index(), class),
                kind,
                range,
                pid: std::process::id(),
            },
            slot: None,
        })
    }

    /// An open file by index, with its offset.
    pub fn file_at(&self, index: u64) -> (FileId, u64) {
        let line = self.line_of_file(index);
        let offset = line.map_or(0, |line| self.pm.load(OpenFileRaw::offset.of(line.off)));
        (FileId::new(index, self.file_generation(index)), offset)
    }

    /// The inode of an open file, by index; 0 if it is none.
    pub fn file_ino(&self, index: u64) -> Ino {
        let line = self.line_of_file(index);
        line.map_or(0, |line| self.pm.load(OpenFileRaw::ino.of(line.off)))
    }

    /// Releases the lines whose owner is dead, under the recovery lock.
    pub(crate) fn release_files(&self, is_dead: &impl Fn(u64) -> bool) {
        for (index, line) in self.file_lines() {
            if is_dead(self.pm.load(OpenFileRaw::owner.of(line.off))) {
                // The owner died while it opened or closed the file.
                self.end_file_unless_had(index);
                owner::release(self, line.off);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ROOT_INO;
    use crate::scratch::Scratch;

    /// Goal: the numbers of open files are never 0, also after the count of a line's files has
    /// wrapped around. Method: the count begins near its end.
    #[test]
    fn the_end_of_a_lines_generations() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let line = OpenFileRaw::generation.of(fs.pool().geometry.file(0));
        for last in [u64::from(u32::MAX) - 1, u64::MAX - 1] {
            let writable = fs.mapping().writable();
            fs.pool().pm.runtime().store(line, last);
            drop(writable);
            let mut before = None;
            for _ in 0..3 {
                let file = fs.open_file(ROOT_INO, 0).unwrap();
                assert_eq!(file.index(), 0);
                assert!(file.number() != 0 && before != Some(file));
                assert_eq!(fs.file(file).unwrap().ino, ROOT_INO);
                fs.close_file(file).unwrap();
                assert!(fs.file(file).is_err());
                before = Some(file);
            }
        }
    }
}
