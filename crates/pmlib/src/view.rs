//! Reading several ranges as they were at one moment, without a lock.
//!
//! Each chunk has a sequence that every commit in it advances. A view notes the sequences of the
//! chunks that it reads, before it reads them. If all are the same at the end, no commit came
//! between, and neither what was read nor an error that it led to is of two moments. Otherwise it
//! is read again.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Instant;

use pmlib_format::CHUNK_BYTES;

use crate::engine::Core;
use crate::error::{Error, Result, in_object};
use crate::heap::Heap;
use crate::pointer::{P, RawP};
use crate::reader::{Look, Reader};
use crate::safe::PmSafe;
use crate::space::Object;
use crate::tx::Tx;
use crate::typed::{Field, read_all, read_one};

/// Views that come to nothing, before the processor is left to others.
const SPINS: u32 = 16;
/// Views that come to nothing, before a container's lock is taken.
const TRIES: u32 = 64;

/// A look at a heap, as of one moment.
pub struct View<'a> {
    source: Source<'a>,
}

enum Source<'a> {
    /// How it is one, and chunks that were read, each with its sequence before.
    Moment(&'a Core, Look, RefCell<Vec<(u64, u64)>>),
    /// The heap as a transaction sees it.
    Within(&'a Tx<'a>),
}

impl<'a> View<'a> {
    /// The heap as a transaction sees it, with its changes.
    pub(crate) fn within(tx: &'a Tx<'_>) -> View<'a> {
        View {
            source: Source::Within(tx),
        }
    }

    pub(crate) fn core(&self) -> &Core {
        match &self.source {
            Source::Moment(core, ..) => core,
            Source::Within(tx) => tx.core(),
        }
    }

    /// The transaction whose view it is, if it is one's.
    pub(crate) fn tx(&self) -> Option<&Tx<'a>> {
        match &self.source {
            Source::Moment(..) => None,
            Source::Within(tx) => Some(tx),
        }
    }

    /// Copies bytes of an object from `start` on.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn read_bytes(&self, offset: u64, start: u64, to: &mut [u8]) -> Result<()> {
        match &self.source {
            Source::Within(tx) => tx.read_bytes(offset, start, to),
            Source::Moment(core, look, seen) => {
                let size = noted_object(core, *look, seen, offset)?.size();
                in_object(offset, size, start, to.len() as u64)?;
                if to.is_empty() {
                    return Ok(());
                }
                let first = offset + start;
                note(core, *look, seen, first, first + to.len() as u64 - 1)?;
                core.mem.copy_out(first, to)?;
                Ok(())
            }
        }
    }

    /// Bytes of an object: at least those that were asked for.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn size_of(&self, object: impl Into<RawP>) -> Result<u64> {
        let RawP(offset) = object.into();
        match &self.source {
            Source::Within(tx) => tx.size_of(offset),
            Source::Moment(core, look, seen) => Ok(noted_object(core, *look, seen, offset)?.size()),
        }
    }

    /// A copy of a value.
    ///
    /// # Errors
    /// `NoObject`; `Class`; `Range`.
    pub fn read<T: PmSafe>(&self, from: impl Into<Field<T>>) -> Result<T> {
        let from = from.into();
        from.test_class(|| self.size_of(from.object()))?;
        read_one(|to| self.read_bytes(from.object().0, from.start(), to))
    }

    /// Copies of some values of a slice.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn read_range<T: PmSafe>(&self, from: P<[T]>, range: Range<u64>) -> Result<Vec<T>> {
        let RawP(offset) = from.into();
        let size = self.size_of(offset)?;
        read_all(offset, size, range, |start, to| {
            self.read_bytes(offset, start, to)
        })
    }

    /// The object that the root pointer names; 0: none.
    pub(crate) fn root(&self) -> Result<u64> {
        match &self.source {
            Source::Within(tx) => tx.core().root(),
            Source::Moment(core, look, seen) => {
                note(core, *look, seen, 0, 0)?;
                core.root()
            }
        }
    }

    /// How a view of one moment is one, of one who only reads.
    pub(crate) fn reader(&self) -> Option<(&Reader, Look)> {
        match &self.source {
            Source::Within(_) => None,
            Source::Moment(core, look, _) => Some((core.reader.as_ref()?, *look)),
        }
    }

    /// Where the list of named roots begins; 0: there are none.
    pub(crate) fn names(&self) -> Result<u64> {
        match &self.source {
            Source::Within(tx) => tx.names(),
            Source::Moment(core, look, seen) => {
                note(core, *look, seen, 0, 0)?;
                core.names()
            }
        }
    }

    /// Whether all that was read is of one moment.
    fn holds(&self) -> bool {
        match &self.source {
            Source::Within(_) => true,
            Source::Moment(core, look, seen) => {
                let mut seen = seen.borrow_mut();
                let holds = core.is_unchanged(&seen);
                seen.clear();
                (holds || planted!("bug-view-of-two-moments")) && core.is_same_run(*look)
            }
        }
    }
}

/// The object at an offset. The sequences of its chunk and of the one with its bit are noted
/// before.
fn noted_object(
    core: &Core,
    look: Look,
    seen: &RefCell<Vec<(u64, u64)>>,
    offset: u64,
) -> Result<Object> {
    note(core, look, seen, offset, offset)?;
    let found = core.object(offset)?;
    match found {
        Object::Shared(place) if place.chunk != offset / CHUNK_BYTES => {
            let bit = place.chunk * CHUNK_BYTES;
            note(core, look, seen, bit, bit)?;
            core.object(offset)
        }
        _ => Ok(found),
    }
}

/// Notes the sequences of the chunks of `first..=last` before they are read.
fn note(
    core: &Core,
    look: Look,
    seen: &RefCell<Vec<(u64, u64)>>,
    first: u64,
    last: u64,
) -> Result<()> {
    let mut seen = seen.borrow_mut();
    for chunk in first / CHUNK_BYTES..=last / CHUNK_BYTES {
        if seen.last().is_some_and(|&(noted, _)| noted == chunk) {
            continue;
        }
        if core.span_of(chunk).is_none() {
            return Err(Error::NoObject { offset: first });
        }
        let sequence = match look {
            Look::Member => core.sequence(core.line(chunk))?,
            Look::Use(run) => core.sequence_in(run, chunk)?,
            Look::Rest(_) => continue,
        };
        seen.push((chunk, sequence));
    }
    Ok(())
}

impl Heap {
    /// Reads several things as they were at one moment, between two commits. The closure is called
    /// again when a commit came between; so it does nothing but read.
    ///
    /// # Errors
    /// The closure's; `Busy`: commits came between again and again, for longer than
    /// [`crate::Options::wait`] (10 s).
    pub fn view<R>(&self, mut body: impl FnMut(&View<'_>) -> Result<R>) -> Result<R> {
        let (mut spins, mut since) = (0u32, None);
        loop {
            if let Some(answer) = self.try_view(&mut body) {
                return answer;
            }
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(SPINS) {
                if since.get_or_insert_with(Instant::now).elapsed() > self.core().patience {
                    return Err(Error::Busy { pid: 0 });
                }
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// Like [`Heap::view`], of what only holders of the lock `key` change: the lock is taken when
    /// commits come between again and again.
    pub(crate) fn view_locked<R>(
        &self,
        key: RawP,
        mut body: impl FnMut(&View<'_>) -> Result<R>,
    ) -> Result<R> {
        if self.core().reader.is_some() {
            return self.view(body);
        }
        for _ in 0..TRIES {
            if let Some(answer) = self.try_view(&mut body) {
                return answer;
            }
            std::hint::spin_loop();
        }
        let locked = self.tx(|tx| {
            tx.lock(key)?;
            body(&View::within(tx))
        });
        match locked {
            // In a transaction of this thread nothing can be locked apart from it.
            Err(Error::Nested) => self.view(body),
            answer => answer,
        }
    }

    /// One try; `None`: a commit came between.
    fn try_view<R>(&self, body: &mut impl FnMut(&View<'_>) -> Result<R>) -> Option<Result<R>> {
        let core = self.core();
        if let Err(error) = core.enter() {
            return Some(Err(error));
        }
        let look = match core.look() {
            Ok(look) => look,
            Err(error) => return Some(Err(error)),
        };
        let view = View {
            source: Source::Moment(core, look, RefCell::new(Vec::new())),
        };
        let answer = body(&view);
        view.holds().then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// Goal: two objects that a transaction changes together are seen together. Method: a commit in
    /// the middle of a view's first call; the second one is believed.
    #[test]
    fn a_view_is_of_one_moment() {
        let heap = Heap::private(1 << 20, &Options::default()).unwrap();
        let [a, b] = heap
            .tx(|tx| Ok::<_, Error>([tx.new(1u64)?, tx.new(1u64)?]))
            .unwrap();
        let mut calls = 0;
        let seen = heap.view(|view| {
            calls += 1;
            let first = view.read(a)?;
            if calls == 1 {
                heap.tx(|tx| {
                    *tx.edit(a)? = 2;
                    *tx.edit(b)? = 2;
                    Ok::<_, Error>(())
                })?;
            }
            Ok((first, view.read(b)?))
        });
        assert_eq!((seen.unwrap(), calls), ((2, 2), 2));
    }

    /// Goal: a view comes to an end beside commits that do not. Method: a commit in every call of
    /// it, of one who has the heap and of one who only reads.
    #[test]
    fn a_view_that_is_never_of_one_moment_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let wait = std::time::Duration::from_millis(20);
        let options = Options {
            wait,
            ..Options::default()
        };
        let heap = Heap::create(&path, 1 << 20, &options).unwrap();
        let place = heap.root::<u64>("number").unwrap();
        let reader = Heap::open(
            &path,
            &Options {
                wait,
                ..Options::read_only()
            },
        );
        let reader = reader.unwrap();
        for looks in [&heap, &reader] {
            let seen = looks.view(|view| {
                let seen = view.read(place)?;
                heap.tx(|tx| tx.write(place, &(seen + 1)))?;
                Ok(seen)
            });
            assert!(matches!(seen, Err(Error::Busy { pid: 0 })), "{seen:?}");
            assert!(looks.view(|view| view.read(place)).is_ok());
        }
    }

    /// Goal: an error that only a mixture of two moments leads to is none. Method: an object is
    /// freed between the pointer to it and itself.
    #[test]
    fn an_error_of_two_moments_is_no_answer() {
        let heap = Heap::private(1 << 20, &Options::default()).unwrap();
        let (pointer, first) = heap
            .tx(|tx| {
                let first = tx.new(7u64)?;
                Ok::<_, Error>((tx.new(first)?, first))
            })
            .unwrap();
        let mut calls = 0;
        let seen = heap.view_locked(pointer.into(), |view| {
            calls += 1;
            let to = view.read(pointer)?;
            if calls == 1 {
                heap.tx(|tx| {
                    tx.free(first)?;
                    let second = tx.new(8u64)?;
                    *tx.edit(pointer)? = second;
                    Ok::<_, Error>(())
                })?;
            }
            view.read(to)
        });
        assert_eq!((seen.unwrap(), calls), (8, 2));
    }
}
