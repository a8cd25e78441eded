//! Readers' sessions: values without a copy.
//!
//! Places that are freed while a session is open are not used again, so that a value stays where a
//! session has found it (`crates/pmlib/src/eras.rs`). The session believes a slot only if it has
//! seen the chunk's lock open since it began: a writer that took the lock before may not know of
//! it.

use std::time::Duration;

use pmlib::Session;
use pmlib::ground::Ground;

use crate::engine::Index;
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::group::LOOKS;
use crate::key::Key;
use crate::kv::Kv;
use crate::record::{Head, Pinned};

/// A session may last so long, if nothing else is said.
const LIMIT: Duration = Duration::from_secs(10);
/// A value is shown in pieces of so many bytes.
const PIECE: usize = 4096;

/// A session, and the heap in which it holds places.
pub(crate) struct Hold<'a> {
    pub ground: Ground<'a>,
    pub session: Session<'a>,
}

impl Hold<'_> {
    /// That it is open still.
    pub fn check(&self) -> Result<()> {
        self.ground.enter()?;
        match self.session.is_open() {
            true => Ok(()),
            false => Err(Error::Ended),
        }
    }
}

/// An engine, to a session.
trait Pins: Sync {
    /// Where a key's value is; `None`: it is not there.
    fn pin(&self, key: &[u8]) -> Result<Option<(Pinned, Head)>>;
}

impl<I: Index> Pins for Kv<'_, I> {
    fn pin(&self, key: &[u8]) -> Result<Option<(Pinned, Head)>> {
        self.ground.enter()?;
        let mut pinned = Pinned::default();
        let found = self.find_pinned(self.key(key), &mut pinned)?;
        let there = found.filter(|head| !self.is_expired(head));
        self.ground.count_get(there.map_or(0, |_| pinned.len));
        Ok(there.map(|head| (pinned, head)))
    }
}

impl<'h, I: Index> Kv<'h, I> {
    /// Begins a session of 10 seconds at most ([`Kv::reader_for`]).
    ///
    /// # Errors
    /// Those of [`Kv::reader_for`].
    pub fn reader(&self) -> Result<Reader<'_>> {
        self.reader_for(LIMIT)
    }

    /// Begins a session, in which values are got without a copy. While it is open, no room is used
    /// again that is freed. Once it has lasted longer than `limit`, any process that wants room may
    /// end it; `Duration::MAX`: none may.
    ///
    /// ```
    /// # use pmlib::{Heap, Options};
    /// # let heap = Heap::private(4 << 20, &Options::default())?;
    /// # let users = pmkv::Hash::open(&heap, "users")?;
    /// users.put(b"ada", b"1815")?;
    /// let reader = users.reader()?;
    /// let value = reader.get(b"ada")?.expect("it is there");
    /// users.put(b"ada", b"10 December 1815")?;
    /// assert_eq!(value.to_vec()?, b"1815");
    /// # Ok::<_, pmkv::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Heap`: it can't be used, or was opened to be read.
    pub fn reader_for(&self, limit: Duration) -> Result<Reader<'_>> {
        let (ground, session) = (self.ground, self.ground.session(limit)?);
        Ok(Reader {
            engine: self,
            hold: Hold { ground, session },
            limit,
        })
    }

    /// Finds a key's record as it stays where it is while this thread's session is open.
    fn find_pinned(&self, key: Key<'_>, pinned: &mut Pinned) -> Result<Option<Head>> {
        for _ in 0..LOOKS {
            let Some(located) = I::locate(self, key)? else {
                break;
            };
            if self.ground.is_at_rest(located.chunk) {
                if let Some(answer) = self.look(&located, key, pinned)? {
                    return Ok(answer);
                }
                if !self.is_settled(&located) {
                    break;
                }
            }
            std::hint::spin_loop();
        }
        let _window = self.ground.mem().window();
        let group = self.lock(key)?;
        Ok(self.find(&group, key, pinned)?.map(|found| found.head))
    }
}

/// A session of a reader ([`Kv::reader`]). It ends when it is dropped.
pub struct Reader<'a> {
    engine: &'a dyn Pins,
    hold: Hold<'a>,
    limit: Duration,
}

impl<'a> Reader<'a> {
    /// The value of a key as it is now, where it is; `None`: the key is not there. The value's
    /// check is verified.
    ///
    /// # Errors
    /// `Ended`: the session was ended; those of [`Kv::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<ValueRef<'_>>> {
        let found = self.engine.pin(key);
        // The value is of the session only if that is open.
        self.check()?;
        Ok(found?.map(|(pinned, head)| ValueRef::of(&self.hold, pinned, head)))
    }

    /// Whether it is open still. While it is, all values that it has got are as they were.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.check().is_ok()
    }

    /// That it is open still: to be asked after something was read, and before that is believed.
    ///
    /// # Errors
    /// `Ended`: it is not; `Heap`: the heap can't be used.
    pub fn check(&self) -> Result<()> {
        self.hold.check()
    }

    /// Begins the session anew, with as much time as before: room that was freed since its
    /// beginning may be used again. No value of it is left.
    ///
    /// # Errors
    /// Those of [`Kv::reader_for`].
    pub fn renew(&mut self) -> Result<()> {
        self.hold.session = self.hold.ground.session(self.limit)?;
        Ok(())
    }
}

/// A value where it is, in a session ([`Reader::get`]) or a snapshot
/// ([`crate::Snapshot::get_ref`]).
#[derive(Clone, Copy)]
pub struct ValueRef<'r> {
    hold: &'r Hold<'r>,
    pinned: Pinned,
    head: Head,
}

impl<'r> ValueRef<'r> {
    pub(crate) fn of(hold: &'r Hold<'r>, pinned: Pinned, head: Head) -> ValueRef<'r> {
        ValueRef { hold, pinned, head }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pinned.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pinned.len == 0
    }

    /// When its key expires.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        self.head.expires.map_or(Expiry::Never, Expiry::At)
    }

    /// The address of its first byte. Reading there is unsafe: the bytes are as they were while
    /// the session is open. Ask [`Reader::is_open`] after they were read, and before they are
    /// believed; or have a session without an end. Only a thread that has called the engine before
    /// may read there, and no child of a fork.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        let mem = self.hold.ground.mem();
        mem.address(self.pinned.offset, self.pinned.len)
    }

    /// Copies bytes of it from `from` on; answers how many, fewer than asked for at its end.
    ///
    /// # Errors
    /// `Ended`: the session was ended, and what was copied is of no use; `Heap`.
    pub fn copy_to(&self, from: u64, to: &mut [u8]) -> Result<usize> {
        let rest = self.pinned.len.saturating_sub(from);
        let len = usize::try_from(rest).map_or(to.len(), |rest| rest.min(to.len()));
        let mem = self.hold.ground.mem();
        self.hold.ground.enter()?;
        if len > 0 {
            mem.copy_out(self.pinned.offset + from, &mut to[..len])?;
        }
        self.hold.check()?;
        Ok(len)
    }

    /// A copy.
    ///
    /// # Errors
    /// Those of [`ValueRef::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut copy = vec![0; self.pinned.len as usize];
        self.copy_to(0, &mut copy)?;
        Ok(copy)
    }

    /// Shows it piece by piece, each of 4 KiB at most, in a buffer on the stack.
    ///
    /// # Errors
    /// Those of [`ValueRef::copy_to`], after pieces that were shown.
    pub fn pieces(&self, mut show: impl FnMut(&[u8])) -> Result<()> {
        let (mut piece, mut from) = ([0; PIECE], 0);
        while from < self.pinned.len {
            let len = self.copy_to(from, &mut piece)?;
            show(&piece[..len]);
            from += len as u64;
        }
        Ok(())
    }
}
