//! A map: a value for each key, found by a hash of the key.
//!
//! - An entry is an object, and never moves. Buckets lead to chains of entries, sorted by their
//!   hashes, then by their keys' bytes.
//! - One entry more makes one bucket more, if there are fewer of them than entries. The new
//!   bucket's entries are the end of another one's chain: two words change, however many entries
//!   there are. One entry less takes two buckets away, if less than half of them is needed.
//! - Keys of one hash make a longer chain, and nothing else. The hash has a key of the heap's own,
//!   so that they can't be found without it.
//! - Chains only ascend. So one that somebody forged into a circle is damage.
//! - Iterators go by the hash. Neither one bucket more nor one less changes that order.

use std::cmp::Ordering;
use std::hash::Hasher;

use pmlib_format::container::{MAP_BUCKETS_MAX, MAP_FIRST, MapEntryRaw, MapRaw};
use siphasher::sip::SipHasher13;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::containers::buckets::{self, HEAD, Share, Word, halves};
use crate::containers::key::Key;
use crate::containers::{At, Of, Within, damaged};
use crate::error::{Error, Result, inside};
use crate::pointer::RawP;
use crate::safe::{PmSafe, mix, of_text};
use crate::tx::Tx;
use crate::typed::{Field, is_given_for, read_one};
use crate::view::View;

const ENTRY: &str = "a map's entry";
const ENTRY_HEAD_BYTES: u64 = size_of::<MapEntryRaw>() as u64;
/// Entries that an iterator reads at once.
const BATCH_ENTRIES: usize = 16;
/// Buckets that it looks through at once.
const BATCH_BUCKETS: usize = 64;

/// The head of a map of `K`s to `V`s; its calls are those of [`At`]. Keys are named by reference:
/// `&K`, or `&str` where `K` is `PStr`.
///
/// ```
/// # use pmlib::{Error, Heap, Options};
/// # use pmlib::containers::{PMap, PStr};
/// let heap = Heap::private(1 << 20, &Options::default())?;
/// let ages = heap.root::<PMap<PStr, u64>>("ages")?;
/// heap.at(ages).insert("Ann", 41)?;
/// heap.tx(|tx| {
///     tx.at(ages).insert("Bob", 7)?;
///     tx.at(ages).update("Ann", |age| *age += 1)
/// })?;
/// assert_eq!(heap.at(ages).get("Ann")?, Some(42));
/// assert_eq!(heap.at(ages).remove("Bob")?, Some(7));
/// # Ok::<_, Error>(())
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PMap<K, V> {
    raw: MapRaw,
    of: Of<(K, V)>,
}

impl<K, V> PMap<K, V> {
    /// An empty one.
    #[must_use]
    pub fn new() -> PMap<K, V> {
        PMap::new_zeroed()
    }
}

impl<K, V> Default for PMap<K, V> {
    fn default() -> PMap<K, V> {
        PMap::new()
    }
}

impl<K: Key, V: PmSafe> PmSafe for PMap<K, V> {
    const FINGERPRINT: u64 = mix(mix(of_text("PMap"), K::FINGERPRINT), V::FINGERPRINT);

    /// Shows the objects that its head leads to; what entries point to is not seen from here.
    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        let all = self.raw.near.iter().chain([&self.raw.far]);
        all.filter(|&&to| to != 0).for_each(|&to| visit(RawP(to)));
    }
}

/// Where an entry's value begins.
const fn value_start<K>() -> u64 {
    const { assert!(size_of::<K>() > 0, "a key has bytes") };
    ENTRY_HEAD_BYTES + (size_of::<K>() as u64).next_multiple_of(8)
}

const fn entry_bytes<K, V>() -> u64 {
    value_start::<K>() + size_of::<V>() as u64
}

/// The hash of a key in this heap.
fn hash_of<K: Key>(seed: u64, name: &K::Name) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, K::FINGERPRINT);
    hasher.write(K::bytes(name));
    hasher.finish()
}

/// A head, whose numbers can be.
fn head<K: Key, V: PmSafe>(view: &View<'_>, place: Field<PMap<K, V>>) -> Result<MapRaw> {
    let raw = view.read(place)?.raw;
    buckets::test(view, &raw, place.place())?;
    Ok(raw)
}

fn write_head<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PMap<K, V>>,
    raw: MapRaw,
) -> Result<()> {
    if planted!("bug-map-count-before-record") {
        let _window = tx.core().mem.window();
        tx.core().mem.store(place.place().0, raw.len);
        tx.core().mem.flush(place.place().0, 8);
    }
    let of = Of::<(K, V)>::default();
    tx.write(place, &PMap { raw, of })
}

/// An entry without its value.
#[derive(Debug)]
struct Entry<K> {
    offset: u64,
    hash: u64,
    key: K,
}

impl<K: Key> Entry<K> {
    /// Where its key is.
    fn key_at(&self) -> RawP {
        RawP(self.offset + ENTRY_HEAD_BYTES)
    }

    /// The word that leads to the next one.
    fn link(&self) -> Word {
        Word {
            object: self.offset,
            start: 0,
        }
    }

    fn order(&self, view: &View<'_>, hash: u64, name: &K::Name) -> Result<Ordering> {
        match self.hash.cmp(&hash) {
            Ordering::Equal => self.key.compare_bytes(view, self.key_at(), name),
            other => Ok(other),
        }
    }

    fn read(&self, view: &View<'_>) -> Result<K::Read> {
        self.key.read(view, self.key_at())
    }

    fn value<V: PmSafe>(&self, view: &View<'_>) -> Result<V> {
        let value = read_one(|to| view.read_bytes(self.offset, value_start::<K>(), to));
        inside(value, ENTRY, self.offset)
    }

    fn set_value<V: PmSafe>(&self, tx: &mut Tx<'_>, value: &V) -> Result<()> {
        let (start, bytes) = (value_start::<K>(), value.as_bytes());
        if bytes.is_empty() {
            return Ok(());
        }
        let copy = tx.edit_bytes(self.offset, start, bytes.len() as u64);
        inside(copy, ENTRY, self.offset)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// A walk along a bucket's chain.
struct Chain<K, V> {
    share: Share,
    /// The word that leads to the next entry.
    link: Word,
    last: Option<Entry<K>>,
    of: Of<V>,
}

impl<K: Key, V: PmSafe> Chain<K, V> {
    fn new(view: &View<'_>, raw: &MapRaw, at: RawP, share: Share) -> Result<Chain<K, V>> {
        Ok(Chain {
            share,
            link: buckets::word_of(view, raw, at, share.index)?,
            last: None,
            of: Of::default(),
        })
    }

    /// The offset of the next entry; 0: there is none.
    fn next_offset(&self, view: &View<'_>) -> Result<u64> {
        self.link.get(view, ENTRY)
    }

    /// The next entry, which is one of this chain.
    fn peek(&self, view: &View<'_>) -> Result<Option<Entry<K>>> {
        let offset = self.next_offset(view)?;
        if offset == 0 {
            return Ok(None);
        }
        let named_at = self.link.object;
        let size = inside(view.size_of(offset), ENTRY, named_at)?;
        if !is_given_for(entry_bytes::<K, V>(), size) {
            return damaged(ENTRY, RawP(named_at));
        }
        let [_, hash] = read_one::<[u64; 2]>(|to| view.read_bytes(offset, 0, to))?;
        let key = read_one(|to| view.read_bytes(offset, ENTRY_HEAD_BYTES, to))?;
        let entry = Entry { offset, hash, key };
        if !self.share.has(hash) {
            return damaged(ENTRY, RawP(offset));
        }
        if let Some(last) = &self.last
            && last.hash >= hash
        {
            let name = entry.read(view)?;
            if last.order(view, hash, K::name(&name))? != Ordering::Less {
                return damaged(ENTRY, RawP(offset));
            }
        }
        Ok(Some(entry))
    }

    /// Goes behind an entry that was looked at.
    fn pass(&mut self, entry: Entry<K>) {
        self.link = entry.link();
        self.last = Some(entry);
    }

    /// Goes on to the first entry for which this answers no; answers that entry.
    fn pass_while(
        &mut self,
        view: &View<'_>,
        mut passes: impl FnMut(&Entry<K>) -> Result<bool>,
    ) -> Result<Option<Entry<K>>> {
        while let Some(entry) = self.peek(view)? {
            if !passes(&entry)? {
                return Ok(Some(entry));
            }
            self.pass(entry);
        }
        Ok(None)
    }
}

/// The place of a key: the word that leads to it, or would; and its entry if it is there.
fn find<K: Key, V: PmSafe>(
    view: &View<'_>,
    raw: &MapRaw,
    at: RawP,
    name: &K::Name,
) -> Result<(u64, Word, Option<Entry<K>>)> {
    let hash = hash_of::<K>(view.core().header.seed, name);
    let share = Share::of(hash, raw.buckets);
    let mut chain = Chain::<K, V>::new(view, raw, at, share)?;
    let found = chain.pass_while(view, |entry| {
        Ok(entry.order(view, hash, name)? == Ordering::Less)
    })?;
    let is_it = match &found {
        Some(entry) => entry.order(view, hash, name)? == Ordering::Equal,
        None => false,
    };
    Ok((hash, chain.link, found.filter(|_| is_it)))
}

/// The entry of a key; `None`: it is not there.
fn entry_of<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PMap<K, V>>,
    name: &K::Name,
) -> Result<Option<Entry<K>>> {
    let raw = head(view, place)?;
    if raw.buckets == 0 {
        return Ok(None);
    }
    Ok(find::<K, V>(view, &raw, place.place(), name)?.2)
}

/// A key's value; `None`: the key is not there.
pub(super) fn value_of<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PMap<K, V>>,
    name: &K::Name,
) -> Result<Option<V>> {
    let entry = entry_of(view, place, name)?;
    entry.map(|entry| entry.value(view)).transpose()
}

/// Puts a value in; answers the one that the key had.
pub(super) fn insert<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PMap<K, V>>,
    name: &K::Name,
    value: &V,
) -> Result<Option<V>> {
    let at = place.place();
    let mut raw = head(&View::within(tx), place)?;
    if raw.buckets == 0 {
        buckets::add(tx, &mut raw, at)?;
    }
    let (hash, link, found) = find::<K, V>(&View::within(tx), &raw, at, name)?;
    if let Some(entry) = found {
        let old = entry.value(&View::within(tx))?;
        entry.set_value(tx, value)?;
        return Ok(Some(old));
    }
    let next = link.get(&View::within(tx), ENTRY)?;
    let key = K::make(tx, name)?;
    let offset = tx.alloc(entry_bytes::<K, V>())?;
    let copy = tx.edit_bytes(offset, 0, entry_bytes::<K, V>())?;
    let (first, rest) = copy.split_at_mut(ENTRY_HEAD_BYTES as usize);
    first.copy_from_slice(MapEntryRaw { next, hash }.as_bytes());
    rest[..size_of::<K>()].copy_from_slice(key.as_bytes());
    let (_, to) = rest.split_at_mut((value_start::<K>() - ENTRY_HEAD_BYTES) as usize);
    to.copy_from_slice(value.as_bytes());
    link.set(tx, offset, ENTRY)?;
    let Some(len) = raw.len.checked_add(1) else {
        return damaged(HEAD, at);
    };
    raw.len = len;
    if len > raw.buckets && raw.buckets < MAP_BUCKETS_MAX {
        raw = grown::<K, V>(tx, raw, at)?;
    }
    write_head(tx, place, raw)?;
    Ok(None)
}

/// The head with one bucket more, or as it was if there is no room for it.
fn grown<K: Key, V: PmSafe>(tx: &mut Tx<'_>, raw: MapRaw, at: RawP) -> Result<MapRaw> {
    let mut more = raw;
    // Seldom a bucket needs room, and then a failure has to leave nothing.
    let added = if buckets::needs_room(&raw) {
        tx.nested(|tx| buckets::add(tx, &mut more, at))
    } else {
        buckets::add(tx, &mut more, at)
    };
    match added {
        Ok(()) => {}
        // Longer chains do.
        Err(Error::Full { .. }) => return Ok(raw),
        Err(error) => return Err(error),
    }
    let (source, bit) = halves(raw.buckets);
    let (link, moved) = {
        let view = View::within(tx);
        let mut chain = Chain::<K, V>::new(&view, &raw, at, Share::nth(source, raw.buckets))?;
        let moved = chain.pass_while(&view, |entry| Ok(entry.hash & bit == 0))?;
        (chain.link, moved)
    };
    if let Some(entry) = moved {
        link.set(tx, 0, ENTRY)?;
        if !planted!("bug-map-split-drops-entries") {
            let word = buckets::word_of(&View::within(tx), &more, at, raw.buckets)?;
            word.set(tx, entry.offset, ENTRY)?;
        }
    }
    Ok(more)
}

/// Joins the last bucket with the one that it was once taken from.
fn shrink<K: Key, V: PmSafe>(tx: &mut Tx<'_>, raw: &mut MapRaw, at: RawP) -> Result<()> {
    let (index, (target, _)) = (raw.buckets - 1, halves(raw.buckets - 1));
    let word = buckets::word_of(&View::within(tx), raw, at, index)?;
    let first = word.get(&View::within(tx), ENTRY)?;
    if first != 0 {
        let link = {
            let view = View::within(tx);
            let mut chain = Chain::<K, V>::new(&view, raw, at, Share::nth(target, raw.buckets))?;
            chain.pass_while(&view, |_| Ok(true))?;
            chain.link
        };
        word.set(tx, 0, ENTRY)?;
        if !planted!("bug-map-merge-drops-entries") {
            link.set(tx, first, ENTRY)?;
        }
    }
    buckets::remove(tx, raw, at)
}

/// Takes a key away; answers its value.
pub(super) fn remove<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PMap<K, V>>,
    name: &K::Name,
) -> Result<Option<V>> {
    let at = place.place();
    let mut raw = head(&View::within(tx), place)?;
    if raw.buckets == 0 {
        return Ok(None);
    }
    let (_, link, found) = find::<K, V>(&View::within(tx), &raw, at, name)?;
    let Some(entry) = found else {
        return Ok(None);
    };
    let value = entry.value(&View::within(tx))?;
    let next = entry.link().get(&View::within(tx), ENTRY)?;
    link.set(tx, next, ENTRY)?;
    if let Some(object) = entry.key.owned(entry.key_at())? {
        inside(tx.free(object), ENTRY, entry.offset)?;
    }
    inside(tx.free(entry.offset), ENTRY, link.object)?;
    let Some(len) = raw.len.checked_sub(1) else {
        return damaged(HEAD, at);
    };
    raw.len = len;
    for _ in 0..2 {
        if raw.buckets > MAP_FIRST && len < raw.buckets / 2 {
            shrink::<K, V>(tx, &mut raw, at)?;
        }
    }
    write_head(tx, place, raw)?;
    Ok(Some(value))
}

/// Takes all entries away, and gives all room back.
pub(super) fn clear<K: Key, V: PmSafe>(tx: &mut Tx<'_>, place: Field<PMap<K, V>>) -> Result<()> {
    let at = place.place();
    let raw = head(&View::within(tx), place)?;
    let mut objects = Vec::new();
    for index in 0..raw.buckets {
        let view = View::within(tx);
        objects.extend(buckets::begun_by(&view, &raw, at, index)?);
        let share = Share::nth(index, raw.buckets);
        let mut chain = Chain::<K, V>::new(&view, &raw, at, share)?;
        chain.pass_while(&view, |entry| {
            objects.extend(entry.key.owned(entry.key_at())?.map(|RawP(offset)| offset));
            objects.push(entry.offset);
            Ok(true)
        })?;
    }
    // In ascending order a transaction notes them fastest.
    objects.sort_unstable();
    for offset in objects {
        inside(tx.free(offset), ENTRY, at.0)?;
    }
    write_head(tx, place, MapRaw::new_zeroed())
}

impl<W: Within, K: Key, V: PmSafe> At<W, PMap<K, V>> {
    /// Entries.
    ///
    /// # Errors
    /// `NoObject`, `Class`: no such map; `Damaged`.
    pub fn len(&mut self) -> Result<u64> {
        let place = self.place;
        let raw = self.within.look(place.place(), |view| head(view, place))?;
        Ok(raw.len)
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// A copy of a key's value; `None`: the key is not there.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn get(&mut self, key: &K::Name) -> Result<Option<V>> {
        let place = self.place;
        self.within
            .look(place.place(), |view| value_of(view, place, key))
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn contains(&mut self, key: &K::Name) -> Result<bool> {
        let place = self.place;
        self.within.look(place.place(), |view| {
            entry_of(view, place, key).map(|entry| entry.is_some())
        })
    }

    /// Has a key's value be this one; answers the value that it was, `None`: the key is new.
    ///
    /// # Errors
    /// Those of [`At::len`]; `Full`; `Deadlock`.
    pub fn insert(&mut self, key: &K::Name, value: V) -> Result<Option<V>> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| insert(tx, place, key, &value))
    }

    /// Takes a key away; answers its value, `None`: the key was not there.
    ///
    /// # Errors
    /// Those of [`At::insert`].
    pub fn remove(&mut self, key: &K::Name) -> Result<Option<V>> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| remove(tx, place, key))
    }

    /// Changes a key's value by a closure; answers the closure's answer, `None`: the key is not
    /// there.
    ///
    /// # Errors
    /// Those of [`At::insert`].
    pub fn update<R>(
        &mut self,
        key: &K::Name,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            let Some(entry) = entry_of(&View::within(tx), place, key)? else {
                return Ok(None);
            };
            let mut value = entry.value(&View::within(tx))?;
            let answer = change(&mut value);
            entry.set_value(tx, &value)?;
            Ok(Some(answer))
        })
    }

    /// Takes all entries away and gives back all room.
    ///
    /// # Errors
    /// Those of [`At::insert`]. A record of so many objects needs room itself: in a full heap it
    /// may find none, and [`At::remove`] does.
    pub fn clear(&mut self) -> Result<()> {
        let place = self.place;
        self.within.change(place.place(), |tx| clear(tx, place))
    }

    /// The entries, in no order that means anything.
    ///
    /// They are read some at a time, each time as they are at one moment. A key that is there
    /// throughout comes once, and no key twice.
    pub fn iter(self) -> Entries<W, K, V> {
        Entries {
            at: self,
            next: Next::From(0),
            batch: Vec::new().into_iter(),
        }
    }
}

/// The place where an iterator goes on.
enum Next<R> {
    /// At this hash.
    From(u64),
    /// After this key, which has that hash.
    After(u64, R),
    Over,
}

/// The entries of a map ([`At::iter`]).
pub struct Entries<W, K: Key, V> {
    at: At<W, PMap<K, V>>,
    next: Next<K::Read>,
    batch: std::vec::IntoIter<(K::Read, V)>,
}

/// Entries that were read, and where to go on.
type Batch<K, V> = (Vec<(<K as Key>::Read, V)>, Next<<K as Key>::Read>);

/// Reads the entries from a place on, some of them.
fn batch<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PMap<K, V>>,
    from: &Next<K::Read>,
) -> Result<Batch<K, V>> {
    let (raw, at) = (head(view, place)?, place.place());
    let seed = view.core().header.seed;
    let mut hash = match from {
        Next::From(hash) | Next::After(hash, _) if raw.buckets > 0 => *hash,
        _ => return Ok((Vec::new(), Next::Over)),
    };
    let mut read = Vec::new();
    for _ in 0..BATCH_BUCKETS {
        let share = Share::of(hash, raw.buckets);
        let mut chain = Chain::<K, V>::new(view, &raw, at, share)?;
        let mut entry = chain.pass_while(view, |entry| match from {
            Next::After(last, name) => {
                Ok(entry.order(view, *last, K::name(name))? != Ordering::Greater)
            }
            _ => Ok(entry.hash < hash),
        })?;
        while let Some(here) = entry {
            let (key, value) = (here.read(view)?, here.value(view)?);
            if hash_of::<K>(seed, K::name(&key)) != here.hash {
                return damaged(ENTRY, RawP(here.offset));
            }
            let next = Next::After(here.hash, K::copy(K::name(&key)));
            read.push((key, value));
            if read.len() >= BATCH_ENTRIES {
                return Ok((read, next));
            }
            chain.pass(here);
            entry = chain.peek(view)?;
        }
        match share.end() {
            Some(end) => hash = end,
            None => return Ok((read, Next::Over)),
        }
    }
    Ok((read, Next::From(hash)))
}

impl<W: Within, K: Key, V: PmSafe> Iterator for Entries<W, K, V> {
    type Item = Result<(K::Read, V)>;

    fn next(&mut self) -> Option<Result<(K::Read, V)>> {
        while self.batch.as_slice().is_empty() && !matches!(self.next, Next::Over) {
            let (place, from) = (self.at.place, &self.next);
            let look = self
                .at
                .within
                .look(place.place(), |view| batch(view, place, from));
            match look {
                Ok((read, next)) => {
                    self.next = next;
                    self.batch = read.into_iter();
                }
                Err(error) => {
                    self.next = Next::Over;
                    return Some(Err(error));
                }
            }
        }
        self.batch.next().map(Ok)
    }
}
