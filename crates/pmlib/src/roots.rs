//! Named roots: objects that are found by a name, and made when they are missing.
//!
//! They are a list, to which entries are added at its front and of which none changes. So it is
//! read without a lock; who adds one locks the word that leads to it.

use pmlib_format::NamedRaw;
use pmlib_format::header::NAMES_OFFSET;
use pmlib_format::named::NAME_BYTES_MAX;
use zerocopy::{FromBytes, IntoBytes};

use crate::engine::Core;
use crate::error::{Error, Result, inside};
use crate::heap::Heap;
use crate::pointer::{P, RawP};
use crate::repair::changes;
use crate::safe::PmSafe;
use crate::tx::Tx;
use crate::view::View;

const HEAD_BYTES: u64 = size_of::<NamedRaw>() as u64;

/// The check of the entry at `offset`.
fn check(offset: u64, head: &NamedRaw, name: &[u8]) -> u32 {
    let crc = crc32c::crc32c(offset.as_bytes());
    let bytes = head.as_bytes();
    let crc = crc32c::crc32c_append(crc, &bytes[..bytes.len() - size_of::<u32>()]);
    crc32c::crc32c_append(crc, name)
}

/// The entry at `offset` as it stands; `None`: there is none, or it is damaged.
pub(crate) fn entry_at(core: &Core, offset: u64) -> Option<(NamedRaw, Vec<u8>)> {
    decoded(offset, &bytes_at(core, offset)?)
}

/// The bytes in which an entry at `offset` would stand.
fn bytes_at(core: &Core, offset: u64) -> Option<Vec<u8>> {
    let size = core.object(offset).ok()?.size();
    let mut bytes = vec![0; size.min(HEAD_BYTES + NAME_BYTES_MAX) as usize];
    if offset + size > core.mem.len() {
        return None;
    }
    core.mem.copy_out(offset, &mut bytes).ok()?;
    Some(bytes)
}

/// The entry that begins with these bytes.
fn decoded(offset: u64, bytes: &[u8]) -> Option<(NamedRaw, Vec<u8>)> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES as usize)?;
    let head = NamedRaw::read_from_bytes(head).ok()?;
    let name = rest.get(..head.name_bytes as usize)?;
    let fits = (1..=NAME_BYTES_MAX as usize).contains(&name.len());
    (fits && head.crc == check(offset, &head, name)).then(|| (head, name.to_vec()))
}

/// The entry at `offset` of which one byte is another.
pub(crate) fn mended_entry(core: &Core, offset: u64) -> Option<(NamedRaw, Vec<u8>)> {
    let mut bytes = bytes_at(core, offset)?;
    changes(bytes.len()).find_map(|(at, change)| {
        bytes[at] ^= change;
        let found = decoded(offset, &bytes);
        bytes[at] ^= change;
        found
    })
}

/// An entry as it stands at `offset`.
pub(crate) fn entry_bytes(offset: u64, mut head: NamedRaw, name: &[u8]) -> Vec<u8> {
    head.crc = check(offset, &head, name);
    [head.as_bytes(), name].concat()
}

/// Reads the entry at `offset`.
fn entry(view: &View<'_>, offset: u64) -> Result<(NamedRaw, Vec<u8>)> {
    let what = "a named root";
    let mut bytes = [0; HEAD_BYTES as usize];
    inside(view.read_bytes(offset, 0, &mut bytes), what, offset)?;
    let head = NamedRaw::read_from_bytes(&bytes).map_err(|_| Error::Broken)?;
    let len = u64::from(head.name_bytes);
    if len == 0 || len > NAME_BYTES_MAX {
        return Err(Error::Damaged { what, offset });
    }
    let mut name = vec![0; len as usize];
    inside(view.read_bytes(offset, HEAD_BYTES, &mut name), what, offset)?;
    if head.crc != check(offset, &head, &name) {
        return Err(Error::Damaged { what, offset });
    }
    Ok((head, name))
}

/// Walks the list; answers its length, and the root of this name.
fn find(view: &View<'_>, name: &str) -> Result<(u64, Option<NamedRaw>)> {
    walk(view, |_, found| found == name.as_bytes())
}

/// Walks the list up to the entry that was looked for; answers its length, and this entry.
fn walk(
    view: &View<'_>,
    mut is_it: impl FnMut(&NamedRaw, &[u8]) -> bool,
) -> Result<(u64, Option<NamedRaw>)> {
    let (mut offset, mut count, mut left) = (view.names()?, 0, None);
    while offset != 0 {
        let (head, found) = entry(view, offset)?;
        let expected = *left.get_or_insert(head.left);
        count = expected.max(count);
        // Fewer are left with each step, so that a circle that somebody forged ends.
        if head.left != expected || head.left == 0 || (head.next == 0) != (head.left == 1) {
            return Err(Error::Damaged {
                what: "a named root",
                offset,
            });
        }
        if is_it(&head, &found) {
            return Ok((count, Some(head)));
        }
        left = Some(expected - 1);
        offset = head.next;
    }
    Ok((count, None))
}

/// The type of a root.
#[derive(Clone, Copy)]
struct Kind {
    fingerprint: u64,
    size: u64,
}

impl Kind {
    fn of<T: PmSafe>() -> Kind {
        Kind {
            fingerprint: T::FINGERPRINT,
            size: size_of::<T>() as u64,
        }
    }

    /// The root that was found, if it is of this type.
    fn object(self, name: &str, found: &NamedRaw) -> Result<u64> {
        if found.fingerprint == self.fingerprint {
            return Ok(found.object);
        }
        Err(Error::Type {
            name: name.to_owned(),
            expected: self.fingerprint,
            found: found.fingerprint,
        })
    }

    /// The object, if it has the bytes of this type: the caller's fingerprint says nothing of them.
    fn in_bytes(self, offset: u64, found: u64) -> Result<u64> {
        if self.size <= found {
            return Ok(offset);
        }
        Err(Error::Class {
            offset,
            wanted: self.size,
            found,
        })
    }
}

impl Heap {
    /// The root of this name; made, with all its bytes 0, if it is missing. It is there for good.
    ///
    /// # Errors
    /// `Type`: it is of another type; `Name`; `Damaged`; `Full`, `Nested`: it is missing, and there
    /// is no room for it, or this thread has a transaction (use [`Tx::root`]).
    pub fn root<T: PmSafe>(&self, name: &str) -> Result<P<T>> {
        Ok(P::at(RawP(self.root_as(name, Kind::of::<T>())?)))
    }

    /// Like [`Heap::root`], of a type that Rust does not know: by its fingerprint and size, bytes;
    /// answers the root's offset.
    ///
    /// # Errors
    /// Those of [`Heap::root`]; `Class`: there are fewer bytes; `Size`.
    pub fn root_of(&self, name: &str, fingerprint: u64, size: u64) -> Result<u64> {
        let kind = Kind { fingerprint, size };
        let offset = self.root_as(name, kind)?;
        kind.in_bytes(offset, self.size_of(offset)?)
    }

    /// Like [`Heap::root_of`], but makes nothing; `None`: there is no root of this name.
    ///
    /// # Errors
    /// `Type`, `Class`: the root is of another type; `Damaged`.
    pub fn find_root_of(&self, name: &str, fingerprint: u64, size: u64) -> Result<Option<u64>> {
        let kind = Kind { fingerprint, size };
        let (_, Some(found)) = self.view(|view| find(view, name))? else {
            return Ok(None);
        };
        let offset = kind.object(name, &found)?;
        kind.in_bytes(offset, self.size_of(offset)?).map(Some)
    }

    /// The names of all roots of a type, the latest first. Bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn root_names(&self, fingerprint: u64) -> Result<Vec<String>> {
        self.view(|view| {
            let mut names = Vec::new();
            walk(view, |head, name| {
                if head.fingerprint == fingerprint {
                    names.push(String::from_utf8_lossy(name).into_owned());
                }
                false
            })?;
            Ok(names)
        })
    }

    fn root_as(&self, name: &str, kind: Kind) -> Result<u64> {
        match self.view(|view| find(view, name))? {
            (_, Some(found)) => kind.object(name, &found),
            (_, None) => self.tx(|tx| tx.root_as(name, kind)),
        }
    }
}

impl Tx<'_> {
    /// Like [`Heap::root`], in this transaction.
    ///
    /// # Errors
    /// Those of [`Heap::root`]; `Deadlock`.
    pub fn root<T: PmSafe>(&mut self, name: &str) -> Result<P<T>> {
        Ok(P::at(RawP(self.root_as(name, Kind::of::<T>())?)))
    }

    /// Like [`Heap::root_of`], in this transaction.
    ///
    /// # Errors
    /// Those of [`Heap::root_of`]; `Deadlock`.
    pub fn root_of(&mut self, name: &str, fingerprint: u64, size: u64) -> Result<u64> {
        let kind = Kind { fingerprint, size };
        let offset = self.root_as(name, kind)?;
        kind.in_bytes(offset, self.size_of(offset)?)
    }

    fn root_as(&mut self, name: &str, kind: Kind) -> Result<u64> {
        let len = name.len();
        if len == 0 || len as u64 > NAME_BYTES_MAX {
            return Err(Error::Name { len });
        }
        self.lock(NAMES_OFFSET)?;
        let (count, found) = find(&View::within(self), name)?;
        if let Some(found) = found {
            return kind.object(name, &found);
        }
        let object = self.alloc(kind.size)?;
        let place = match self.alloc(HEAD_BYTES + len as u64) {
            Ok(place) => place,
            Err(error) => {
                // The transaction may go on: nobody would know of the object.
                self.free(object)?;
                return Err(error);
            }
        };
        let mut head = NamedRaw {
            next: self.names()?,
            left: count + 1,
            object,
            fingerprint: kind.fingerprint,
            name_bytes: len as u32,
            crc: 0,
        };
        head.crc = check(place, &head, name.as_bytes());
        let bytes = self.edit_bytes(place, 0, HEAD_BYTES + len as u64)?;
        let (first, rest) = bytes.split_at_mut(HEAD_BYTES as usize);
        first.copy_from_slice(head.as_bytes());
        rest.copy_from_slice(name.as_bytes());
        self.set_names(place);
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// Goal: a look for roots makes none. Method: two types of roots, one name that is missing.
    #[test]
    fn roots_are_listed_and_looked_for() {
        let heap = Heap::private(1 << 20, &Options::default()).unwrap();
        let first = heap.root_of("first", 7, 64).unwrap();
        heap.root_of("second", 7, 64).unwrap();
        heap.root_of("other", 8, 64).unwrap();
        assert_eq!(heap.root_names(7).unwrap(), ["second", "first"]);
        assert_eq!(heap.find_root_of("first", 7, 64).unwrap(), Some(first));
        assert_eq!(heap.find_root_of("none", 7, 64).unwrap(), None);
        let found = heap.find_root_of("other", 7, 64);
        assert!(matches!(found, Err(Error::Type { .. })), "{found:?}");
        assert_eq!(heap.root_names(9).unwrap(), Vec::<String>::new());
    }

    /// Goal: a list that somebody forged into a circle, with the right checks, ends. Method: the
    /// last entry leads to the first.
    #[test]
    fn a_circle_of_roots_ends() {
        let heap = Heap::private(1 << 20, &Options::default()).unwrap();
        heap.root::<u64>("first").unwrap();
        heap.root::<u64>("last").unwrap();
        let start = heap.core().names().unwrap();
        let (newest, _) = heap.view(|view| entry(view, start)).unwrap();
        for left in [1, 2, 3, 0, u64::MAX] {
            let (mut oldest, name) = heap.view(|view| entry(view, newest.next)).unwrap();
            (oldest.next, oldest.left) = (start, left);
            oldest.crc = check(newest.next, &oldest, &name);
            heap.tx(|tx| {
                let bytes = tx.edit_bytes(newest.next, 0, HEAD_BYTES)?;
                bytes.copy_from_slice(oldest.as_bytes());
                Ok::<_, Error>(())
            })
            .unwrap();
            let found = heap.root::<u64>("neither");
            assert!(
                matches!(found, Err(Error::Damaged { .. })),
                "{left}: {found:?}"
            );
        }
    }
}
