//! The work that runs beside the calls on files: it makes, checks, repairs, copies, grows and shows
//! pools of [`pmfs`].
//!
//! A pool is made by [`mkfs`], made larger by [`grow`], and read back from a stream by [`load`].
//! [`Admin`] has what an attachment does; an [`Inspector`] looks at a pool from outside.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as pmfs_admin;

pub mod check;
mod clone_tree;
mod defrag;
mod difference;
pub mod dump;
mod dump_stream;
mod grow;
mod holders;
mod info;
mod inspect;
mod mkfs;
mod name_of;
mod owner_words;
mod repair;
#[cfg(test)]
#[path = "../../pmfs/tests/scratch/mod.rs"]
mod scratch;
mod snapshot;
mod staging;

use clone_tree::Becomes;
use pmfs::types::Ino;
use pmfs::{Fs, Result};
use std::io::{Read, Write};

pub use check::{CheckReport, Finding};
pub use clone_tree::CloneReport;
pub use defrag::{DefragReport, Merged};
pub use difference::{ReceiveReport, SendReport};
pub use dump_stream::new_file::NewFile;
pub use dump_stream::save::Progress;
pub use dump_stream::{LoadOptions, LoadReport, SaveReport, load};
pub use grow::{GrowReport, grow, grow_private};
pub use holders::{Holding, Locked, Process};
pub use info::{FilePages, PoolDetails, PoolInfo};
pub use inspect::{Inspector, PoolState, is_pool, remove};
pub use mkfs::{MkfsOptions, format_private, mkfs, mkfs_watched};
pub use owner_words::OwnerWords;
/// The engine whose types are in the signatures here.
pub use pmfs;
pub use repair::RepairReport;
pub use repair::medium::{Mended, mend, renew};
pub use snapshot::Snapshot;
pub use staging::SNAPSHOTS;

/// An attachment's work on its pool as a whole.
#[allow(clippy::missing_errors_doc)]
pub trait Admin {
    /// The attachment.
    fn fs(&self) -> &Fs;

    /// Geometry, medium, free space.
    #[must_use]
    fn info(&self) -> PoolInfo {
        info::info(self.fs().pool())
    }

    /// History, regions, free pages.
    #[must_use]
    fn details(&self) -> PoolDetails {
        info::details(self.fs().pool())
    }

    /// By which pages a file is held.
    fn pages(&self, ino: Ino) -> Result<FilePages> {
        self.fs().read_call(|pool| info::pages(pool, ino))
    }

    /// The attached processes.
    #[must_use]
    fn processes(&self) -> Vec<Process> {
        holders::processes(self.fs().pool())
    }

    /// The inodes that they have open.
    #[must_use]
    fn holdings(&self) -> Vec<Holding> {
        holders::holdings(self.fs().pool())
    }

    /// The file locks, held and waited for.
    #[must_use]
    fn locked(&self) -> Vec<Locked> {
        holders::locked(self.fs().pool())
    }

    /// Returns what stands at an offset of the pool, in words.
    #[must_use]
    fn name_of(&self, off: u64) -> String {
        name_of::name_of(self.fs().pool(), off)
    }

    /// Checks the whole pool, which must be at rest.
    fn check(&self) -> Result<CheckReport> {
        self.check_watched(&mut |_, _| {})
    }

    /// Checks like [`Admin::check`], telling how far it is.
    fn check_watched(&self, watch: check::Watch<'_>) -> Result<CheckReport> {
        check::check(self.fs().pool(), watch)
    }

    /// Reads the whole pool, and tells which blocks the medium can't give; `watch` is told how many
    /// blocks were read.
    fn bad_blocks(&self, watch: check::Watch<'_>) -> Result<Vec<check::BadBlock>> {
        check::bad_blocks::bad_blocks(self.fs().pool(), watch)
    }

    /// Mends what check finds, in a pool attached for [`repair`](pmfs::OpenOptions::repair); see
    /// `docs/FSCK.md`.
    fn repair(&self) -> Result<RepairReport> {
        self.repair_watched(&mut |_, _| {})
    }

    /// Repairs like [`Admin::repair`], telling how far each round's check is.
    fn repair_watched(&self, watch: check::Watch<'_>) -> Result<RepairReport> {
        repair::repair(self.fs().pool(), watch)
    }

    /// Writes all of the pool, which this attachment has to itself; no other call may run
    /// meanwhile. Every block of a damaged pool is written, used or not.
    ///
    /// # Errors
    /// [`File`](pmfs::Error::File) of `out`, [`Medium`](pmfs::Error::Medium).
    fn save(&self, out: &mut dyn Write, progress: Progress<'_>) -> Result<SaveReport> {
        let pool = self.fs().pool();
        dump_stream::save::save(pool, pool.is_damaged(), out, progress)
    }

    /// Gives the tree below `source`, or a file, a second place: `name` in `dir`, with all of it as
    /// it is at one instant. Files share their blocks with the copies until either is changed. Hard
    /// links, owners, modes, ACLs, extended attributes, and times of access and change of content
    /// are kept. Meanwhile all changes of the pool wait, in all processes. After a crash the copy
    /// is there whole, or not at all.
    ///
    /// # Errors
    /// [`Exists`](pmfs::Error::Exists), [`NoSpace`](pmfs::Error::NoSpace),
    /// [`NoInodes`](pmfs::Error::NoInodes): nothing is left of the copy then.
    /// [`PagesElsewhere`](pmfs::Error::PagesElsewhere): a mount's kernel takes stores to a file
    /// faster than it can give them back.
    fn clone_tree(&self, source: Ino, dir: Ino, name: &[u8]) -> Result<CloneReport> {
        clone_tree::clone_tree(self.fs(), source, (dir, name), Becomes::Tree)
    }

    /// Makes a snapshot: a clone of a directory ([`Admin::clone_tree`]) that does not change.
    /// Its name is in [`SNAPSHOTS`]; `path` is kept for those who list it. Each call that would
    /// change one of its inodes gets [`OfSnapshot`](pmfs::Error::OfSnapshot), in all processes. The
    /// snapshots in the pool are no part of it.
    ///
    /// # Errors
    /// Those of [`Admin::clone_tree`]; [`NotDirectory`](pmfs::Error::NotDirectory),
    /// [`NotPermitted`](pmfs::Error::NotPermitted): [`SNAPSHOTS`] is something else.
    fn create_snapshot(&self, source: Ino, path: &[u8], name: &[u8]) -> Result<CloneReport> {
        snapshot::create(self.fs(), source, path, name)
    }

    /// All snapshots, in the order in which they were made.
    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        snapshot::list(self.fs())
    }

    /// The snapshot of a name.
    ///
    /// # Errors
    /// [`NotFound`](pmfs::Error::NotFound).
    fn snapshot(&self, name: &[u8]) -> Result<Snapshot> {
        snapshot::named(self.fs(), name)
    }

    /// Deletes a snapshot: its name at one instant, then what it has. A process that is killed
    /// meanwhile leaves a staging directory, which the next snapshot made or deleted removes.
    ///
    /// # Errors
    /// [`NotFound`](pmfs::Error::NotFound).
    fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        snapshot::delete(self.fs(), name)
    }

    /// Gives a snapshot's tree a second place that can be changed. With `replaces`, what has that
    /// name is exchanged for it at one instant, and removed.
    ///
    /// # Errors
    /// Those of [`Admin::clone_tree`]; [`Stale`](pmfs::Error::Stale): it was deleted meanwhile.
    fn restore_snapshot(
        &self,
        snapshot: &Snapshot,
        to: (Ino, &[u8]),
        replaces: bool,
    ) -> Result<CloneReport> {
        snapshot::restore(self.fs(), snapshot, to, replaces)
    }

    /// Writes a snapshot; with a `base`, another snapshot, what differs from that one. Neither may
    /// be deleted meanwhile. All else of the pool may be in use.
    ///
    /// # Errors
    /// [`File`](pmfs::Error::File) of `out`; [`Stale`](pmfs::Error::Stale),
    /// [`NotFound`](pmfs::Error::NotFound): one of the two is being deleted.
    fn send_snapshot(
        &self,
        snapshot: &Snapshot,
        base: Option<&Snapshot>,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<SendReport> {
        difference::send(self.fs(), snapshot, base, out, progress)
    }

    /// Makes the snapshot of a stream of [`Admin::send_snapshot`], from its base, which this pool
    /// has, too. It is there whole, or not at all.
    ///
    /// # Errors
    /// [`BadImage`](pmfs::Error::BadImage): the stream is damaged;
    /// [`NoBase`](pmfs::Error::NoBase), [`Exists`](pmfs::Error::Exists),
    /// [`NoSpace`](pmfs::Error::NoSpace), [`NoInodes`](pmfs::Error::NoInodes).
    fn receive_snapshot(
        &self,
        input: &mut dyn Read,
        progress: Progress<'_>,
    ) -> Result<ReceiveReport> {
        difference::receive(self.fs(), input, progress)
    }

    /// Makes one large leaf of the small ones that hold the 2 MiB around a byte of a file, if all
    /// of it is there in such. The large leaf counts as grown: in `atomic` mode an overwrite of a
    /// part splits it again.
    fn merge(&self, ino: Ino, offset: u64) -> Result<Merged> {
        self.fs().change(|pool| defrag::merge_at(pool, ino, offset))
    }

    /// Merges all that can be of a file. With `dry` it only counts.
    fn defrag_file(&self, ino: Ino, dry: bool) -> Result<DefragReport> {
        let mut report = DefragReport::default();
        defrag::merge_file(self.fs().pool(), ino, &mut report, dry)?;
        Ok(report)
    }

    /// Empties regions of which little is used, then merges what can be of all files, then empties
    /// regions again. `watch` is told how much of how much is done. With `dry` it only counts.
    fn defrag(&self, dry: bool, watch: &mut dyn FnMut(u64, u64)) -> Result<DefragReport> {
        defrag::defrag(self.fs(), dry, watch)
    }
}

impl Admin for Fs {
    fn fs(&self) -> &Fs {
        self
    }
}
