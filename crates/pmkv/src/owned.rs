//! Engines that have their heap, for faces whose handles outlive every call.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use pmlib::{Heap, Options};
use self_cell::self_cell;

use crate::error::{Error, Result};
use crate::opening::Kind;
use crate::session::Reader;
use crate::snapshot::{Snapshot, SnapshotEntries};
use crate::store::{Entries, Entry, Store};

type Opened<'h> = Box<dyn Store + 'h>;
type Walked<'o> = Entries<'o>;
type Snapshots<'o> = Vec<Snapshot<'o>>;

/// The name of a volatile engine in its heap.
const VOLATILE: &str = "kv";

self_cell! {
    struct WithHeap {
        owner: Arc<Heap>,
        #[covariant]
        dependent: Opened,
    }
}

self_cell! {
    struct WithEngine {
        owner: Arc<Owned>,
        #[covariant]
        dependent: Walked,
    }
}

self_cell! {
    struct WithReader {
        owner: Arc<Owned>,
        #[covariant]
        dependent: Reader,
    }
}

/// An engine that has a share of its heap: no lifetime binds it.
///
/// ```
/// # use std::sync::Arc;
/// # use pmkv::{Kind, Owned};
/// # use pmlib::{Heap, Options};
/// let heap = Arc::new(Heap::private(4 << 20, &Options::default())?);
/// let users = Owned::open(heap, Kind::Hash, "users")?;
/// let thread = std::thread::spawn(move || users.store().put(b"ada", b"1815"));
/// thread.join().unwrap()?;
/// # Ok::<_, pmkv::Error>(())
/// ```
pub struct Owned {
    // The engine is dropped before its share of the heap.
    cell: WithHeap,
}

self_cell! {
    struct WithSnapshots {
        owner: Vec<Arc<Owned>>,
        #[covariant]
        dependent: Snapshots,
    }
}

self_cell! {
    struct WithSnapshotWalk {
        owner: Arc<OwnedSnapshot>,
        #[covariant]
        dependent: SnapshotEntries,
    }
}

impl Owned {
    /// The engine of this kind and name; made, if it is missing.
    ///
    /// # Errors
    /// Those of [`crate::Kv::open`].
    pub fn open(heap: Arc<Heap>, kind: Kind, name: &str) -> Result<Owned> {
        let cell = WithHeap::try_new(heap, |heap| kind.open(heap, name))?;
        Ok(Owned { cell })
    }

    /// A volatile engine: in memory of this process, with no flush and no fence, gone with it. The
    /// code is that of persistent ones. Its memory grows from `bytes` up to `bytes_max`.
    ///
    /// ```
    /// # use pmkv::{Kind, Owned};
    /// let cache = Owned::volatile(Kind::Tree, 4 << 20, 1 << 30)?;
    /// cache.store().put(b"ada", b"1815")?;
    /// # Ok::<_, pmkv::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Heap`: the machine has not so much memory.
    pub fn volatile(kind: Kind, bytes: u64, bytes_max: u64) -> Result<Owned> {
        let options = Options {
            max: bytes_max,
            ..Options::default()
        };
        let heap = Heap::private(bytes, &options)?;
        Owned::open(Arc::new(heap), kind, VOLATILE)
    }

    /// The engine.
    #[must_use]
    pub fn store(&self) -> &(dyn Store + '_) {
        &**self.cell.borrow_dependent()
    }

    /// Its heap.
    #[must_use]
    pub fn heap(&self) -> &Arc<Heap> {
        self.cell.borrow_owner()
    }

    /// Closes the engine, and answers its share of the heap.
    #[must_use]
    pub fn into_heap(self) -> Arc<Heap> {
        self.cell.into_owner()
    }

    /// A walk over keys between two bounds that has a share of the engine; what comes is what
    /// [`Store::between`] has.
    pub fn walk(self: &Arc<Self>, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Walk {
        let cell = WithEngine::new(self.clone(), |engine| engine.store().between(start, end));
        Walk { cell }
    }

    /// A session that has a share of the engine; [`crate::Kv::reader_for`] says more.
    ///
    /// # Errors
    /// Those of [`crate::Kv::reader_for`].
    pub fn read(self: &Arc<Self>, limit: Duration) -> Result<OwnedReader> {
        let cell = WithReader::try_new(self.clone(), |engine| engine.store().reader(limit))?;
        Ok(OwnedReader { cell })
    }
}

impl Owned {
    /// A snapshot that has a share of the engine; [`crate::Kv::snapshot_for`] says more.
    ///
    /// # Errors
    /// Those of [`crate::Kv::snapshot_for`].
    pub fn snapshot(self: &Arc<Self>, limit: Duration) -> Result<OwnedSnapshot> {
        let one = Owned::snapshots(vec![self.clone()], limit)?.pop();
        one.ok_or(Error::Apart)
    }

    /// A snapshot of each of these engines, all of one instant; [`Snapshot::of`] says more. Each
    /// has a share of all of them, and all of them hold room until the last one is dropped.
    ///
    /// # Errors
    /// Those of [`Snapshot::of`].
    pub fn snapshots(engines: Vec<Arc<Self>>, limit: Duration) -> Result<Vec<OwnedSnapshot>> {
        let count = engines.len();
        let all = WithSnapshots::try_new(engines, |engines| {
            let stores: Vec<&dyn Store> = engines.iter().map(|engine| engine.store()).collect();
            Snapshot::of(&stores, limit)
        });
        let all = Arc::new(all?);
        let one = |nth| OwnedSnapshot {
            all: all.clone(),
            nth,
        };
        Ok((0..count).map(one).collect())
    }
}

/// A snapshot that has a share of its engine ([`Owned::snapshot`]).
pub struct OwnedSnapshot {
    all: Arc<WithSnapshots>,
    nth: usize,
}

impl OwnedSnapshot {
    /// The snapshot.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot<'_> {
        &self.all.borrow_dependent()[self.nth]
    }

    /// A walk over keys between two bounds that has a share of the snapshot.
    pub fn walk(self: &Arc<Self>, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> SnapshotWalk {
        let cell = WithSnapshotWalk::new(self.clone(), |shot| {
            shot.snapshot().range::<Vec<u8>, _>((start, end))
        });
        SnapshotWalk { cell }
    }
}

/// A walk that has a share of its snapshot ([`OwnedSnapshot::walk`]).
pub struct SnapshotWalk {
    cell: WithSnapshotWalk,
}

impl Iterator for SnapshotWalk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cell.with_dependent_mut(|_, entries| entries.next())
    }
}

/// A session that has a share of its engine ([`Owned::read`]).
pub struct OwnedReader {
    cell: WithReader,
}

impl OwnedReader {
    /// The session.
    #[must_use]
    pub fn reader(&self) -> &Reader<'_> {
        self.cell.borrow_dependent()
    }
}

/// A walk that has a share of its engine ([`Owned::walk`]).
pub struct Walk {
    cell: WithEngine,
}

impl Walk {
    /// The next key with its value, lent until the next call.
    pub fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.cell
            .with_dependent_mut(|_, entries| entries.next_ref())
    }
}

impl Iterator for Walk {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cell.with_dependent_mut(|_, entries| entries.next())
    }
}
