//! Texts: up to 15 bytes stand in the head, longer ones in an object.
//!
//! [`PStr`] is a value: it is kept in structs and vectors and used as a key, and its text does not
//! change. [`PString`] is a container, whose text does.

use std::cmp::Ordering;

use pmlib_format::container::{TEXT_FAR, TEXT_NEAR_BYTES, TextRaw};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::containers::{At, Within, damaged};
use crate::error::{Error, Result, inside};
use crate::heap::Heap;
use crate::pointer::RawP;
use crate::safe::{PmSafe, of_text};
use crate::tx::Tx;
use crate::typed::Field;
use crate::view::View;

const HEAD: &str = "a text's head";
const TEXT: &str = "a text";
const LEN_BITS: u32 = 56;

/// Where a text, or bytes, are.
pub(super) enum Kept {
    Near([u8; TEXT_NEAR_BYTES], usize),
    /// Offset and length of an object.
    Far(u64, u64),
}

/// A head with at most 15 bytes in it; `None`: they are more.
pub(super) fn short(bytes: &[u8]) -> Option<TextRaw> {
    (bytes.len() <= TEXT_NEAR_BYTES).then(|| near(bytes))
}

fn near(text: &[u8]) -> TextRaw {
    let mut bytes = [0; TEXT_NEAR_BYTES + 1];
    bytes[..text.len()].copy_from_slice(text);
    bytes[TEXT_NEAR_BYTES] = text.len() as u8;
    TextRaw::read_from_bytes(&bytes).unwrap_or_else(|_| TextRaw::new_zeroed())
}

fn far(offset: u64, len: u64) -> TextRaw {
    TextRaw {
        words: [offset, len | u64::from(TEXT_FAR) << LEN_BITS],
    }
}

/// The meaning of a head; `None`: no head can be so.
fn kept(raw: &TextRaw) -> Option<Kept> {
    let bytes = raw.as_bytes();
    let (text, last) = (&bytes[..TEXT_NEAR_BYTES], bytes[TEXT_NEAR_BYTES]);
    if last == TEXT_FAR {
        let len = raw.words[1] & ((1 << LEN_BITS) - 1);
        return (raw.words[0] != 0 && len > TEXT_NEAR_BYTES as u64)
            .then_some(Kept::Far(raw.words[0], len));
    }
    let len = usize::from(last);
    (len <= TEXT_NEAR_BYTES).then(|| Kept::Near(text.try_into().unwrap_or([0; 15]), len))
}

/// The meaning of a head that stands at `at`.
pub(super) fn kept_at(raw: &TextRaw, at: RawP) -> Result<Kept> {
    kept(raw).map_or_else(|| damaged(HEAD, at), Ok)
}

fn read(view: &View<'_>, raw: &TextRaw, at: RawP) -> Result<String> {
    let bytes = read_bytes(view, raw, at)?;
    String::from_utf8(bytes).or_else(|_| damaged(TEXT, at))
}

/// The bytes of a head that stands at `at`.
pub(super) fn read_bytes(view: &View<'_>, raw: &TextRaw, at: RawP) -> Result<Vec<u8>> {
    match kept_at(raw, at)? {
        Kept::Near(bytes, len) => Ok(bytes[..len].to_vec()),
        Kept::Far(offset, len) => {
            // Room after a look at the object: a length that somebody forged asks for none.
            if inside(view.size_of(offset), HEAD, at.0)? < len {
                return damaged(HEAD, at);
            }
            let mut bytes = vec![0; len as usize];
            inside(view.read_bytes(offset, 0, &mut bytes), HEAD, at.0)?;
            Ok(bytes)
        }
    }
}

/// The object of a head that stands at `at`, if it has one.
pub(super) fn object_of(raw: &TextRaw, at: RawP) -> Result<Option<RawP>> {
    Ok(match kept_at(raw, at)? {
        Kept::Near(..) => None,
        Kept::Far(offset, _) => Some(RawP(offset)),
    })
}

/// Where the bytes of a head are; its own place is not known here.
pub(super) fn place_of(raw: &TextRaw) -> RawP {
    match kept(raw) {
        Some(Kept::Far(offset, _)) => RawP(offset),
        _ => RawP(0),
    }
}

/// Makes a text; `room`: bytes that its object has at least.
pub(super) fn make(tx: &mut Tx<'_>, text: &[u8], room: u64) -> Result<TextRaw> {
    if text.len() <= TEXT_NEAR_BYTES {
        return Ok(near(text));
    }
    let len = text.len() as u64;
    let offset = tx.alloc(room.max(len))?;
    tx.edit_bytes(offset, 0, len)?.copy_from_slice(text);
    Ok(far(offset, len))
}

/// Frees the object of a text, if it has one.
pub(super) fn free(tx: &mut Tx<'_>, raw: &TextRaw, at: RawP) -> Result<()> {
    match kept_at(raw, at)? {
        Kept::Near(..) => Ok(()),
        Kept::Far(offset, len) => {
            // A damaged offset may be that of another object.
            if inside(tx.size_of(offset), HEAD, at.0)? < len {
                return damaged(HEAD, at);
            }
            inside(tx.free(offset), HEAD, at.0)
        }
    }
}

pub(super) fn len(raw: &TextRaw) -> u64 {
    match kept(raw) {
        Some(Kept::Near(_, len)) => len as u64,
        Some(Kept::Far(_, len)) => len,
        None => 0,
    }
}

pub(super) fn trace(raw: &TextRaw, visit: &mut dyn FnMut(RawP)) {
    if let Some(Kept::Far(offset, _)) = kept(raw) {
        visit(RawP(offset));
    }
}

/// A text as a value: made by [`Tx::new_str`], read by [`Heap::read_str`]. Two of the same text are
/// not the same bytes, if they are longer than 15.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PStr {
    raw: TextRaw,
}

impl PStr {
    /// A text of at most 15 bytes, which needs no object; `None`: it is longer.
    #[must_use]
    pub fn short(text: &str) -> Option<PStr> {
        short(text.as_bytes()).map(|raw| PStr { raw })
    }

    /// Its length, bytes; 0 of bytes that are no text's.
    #[must_use]
    pub fn len(&self) -> u64 {
        len(&self.raw)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object of its text, if it has one; its head stands at `at`.
    pub(super) fn object(&self, at: RawP) -> Result<Option<RawP>> {
        object_of(&self.raw, at)
    }

    /// Its text; its head stands at `at`.
    pub(super) fn read_at(&self, view: &View<'_>, at: RawP) -> Result<String> {
        read(view, &self.raw, at)
    }

    /// The order of its text and another one; its head stands at `at`.
    pub(super) fn order_at(&self, view: &View<'_>, at: RawP, other: &str) -> Result<Ordering> {
        match kept_at(&self.raw, at)? {
            Kept::Near(bytes, len) => Ok(bytes[..len].cmp(other.as_bytes())),
            Kept::Far(..) => Ok(self.read_at(view, at)?.as_str().cmp(other)),
        }
    }
}

impl PmSafe for PStr {
    const FINGERPRINT: u64 = of_text("PStr");

    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        trace(&self.raw, visit);
    }
}

impl Heap {
    /// A text.
    ///
    /// # Errors
    /// `Damaged`: it is none, or it was freed.
    pub fn read_str(&self, text: PStr) -> Result<String> {
        self.view(|view| view.read_str(text))
    }
}

impl View<'_> {
    /// A text.
    ///
    /// # Errors
    /// Those of [`Heap::read_str`].
    pub fn read_str(&self, text: PStr) -> Result<String> {
        read(self, &text.raw, place_of(&text.raw))
    }
}

impl Tx<'_> {
    /// Makes a text that does not change, to be kept in what else is kept.
    ///
    /// # Errors
    /// `Full`; `Size`.
    pub fn new_str(&mut self, text: &str) -> Result<PStr> {
        let raw = make(self, text.as_bytes(), 0)?;
        Ok(PStr { raw })
    }

    /// A text, with this transaction's changes.
    ///
    /// # Errors
    /// Those of [`Heap::read_str`].
    pub fn read_str(&self, text: PStr) -> Result<String> {
        View::within(self).read_str(text)
    }

    /// Frees a text. One of at most 15 bytes has nothing to be freed.
    ///
    /// # Errors
    /// `Damaged`: it is none, or it was freed.
    pub fn free_str(&mut self, text: PStr) -> Result<()> {
        free(self, &text.raw, place_of(&text.raw))
    }
}

/// The head of a text that changes; its calls are those of [`At`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PString {
    raw: TextRaw,
}

impl PString {
    /// An empty one.
    #[must_use]
    pub fn new() -> PString {
        PString::new_zeroed()
    }
}

impl Default for PString {
    fn default() -> PString {
        PString::new()
    }
}

impl PmSafe for PString {
    const FINGERPRINT: u64 = of_text("PString");

    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        trace(&self.raw, visit);
    }
}

fn write_head(tx: &mut Tx<'_>, place: Field<PString>, raw: TextRaw) -> Result<()> {
    if planted!("bug-string-head-before-record") {
        let (mem, at) = (&tx.core().mem, place.place().0);
        let _window = mem.window();
        mem.write(at, &raw.words);
        mem.flush(at, 16);
    }
    tx.write(place, &PString { raw })
}

/// Has the text from byte `start` on be `tail`; what it was before `start` is kept.
fn splice(tx: &mut Tx<'_>, place: Field<PString>, start: Option<u64>, tail: &str) -> Result<()> {
    let at = place.place();
    let raw = View::within(tx).read(place)?.raw;
    let old = kept_at(&raw, at)?;
    let start = start.unwrap_or(len(&raw));
    let total = start.saturating_add(tail.len() as u64);
    if total >> LEN_BITS != 0 {
        return Err(Error::Size { size: total });
    }
    if let Kept::Far(offset, _) = old
        && total > TEXT_NEAR_BYTES as u64
        && inside(tx.size_of(offset), HEAD, at.0)? >= total
    {
        let bytes = inside(tx.edit_bytes(offset, start, tail.len() as u64), HEAD, at.0)?;
        bytes.copy_from_slice(tail.as_bytes());
        return write_head(tx, place, far(offset, total));
    }
    let mut text = match start {
        0 => String::new(),
        _ => read(&View::within(tx), &raw, at)?,
    };
    text.push_str(tail);
    // A text that grows is given room to go on.
    let room = if start == 0 {
        0
    } else {
        total.saturating_mul(2)
    };
    let new = match make(tx, text.as_bytes(), room) {
        Err(Error::Full { .. }) if room > total => make(tx, text.as_bytes(), 0)?,
        made => made?,
    };
    free(tx, &raw, at)?;
    write_head(tx, place, new)
}

impl<W: Within> At<W, PString> {
    /// The text.
    ///
    /// # Errors
    /// `NoObject`, `Class`: no such text; `Damaged`.
    pub fn get(&mut self) -> Result<String> {
        let (place, at) = (self.place, self.place.place());
        self.within.look(at, |view| {
            let raw = view.read(place)?.raw;
            read(view, &raw, at)
        })
    }

    /// Its length, bytes.
    ///
    /// # Errors
    /// Those of [`At::get`].
    pub fn byte_len(&mut self) -> Result<u64> {
        let (place, at) = (self.place, self.place.place());
        self.within.look(at, |view| {
            let raw = view.read(place)?.raw;
            kept_at(&raw, at)?;
            Ok(len(&raw))
        })
    }

    /// Has it be another text.
    ///
    /// # Errors
    /// Those of [`At::get`]; `Full`; `Deadlock`.
    pub fn set_text(&mut self, text: &str) -> Result<()> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| splice(tx, place, Some(0), text))
    }

    /// Adds to its end.
    ///
    /// # Errors
    /// Those of [`At::set_text`].
    pub fn push_str(&mut self, tail: &str) -> Result<()> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| splice(tx, place, None, tail))
    }

    /// Has it be empty, and gives its room back.
    ///
    /// # Errors
    /// Those of [`At::set_text`].
    pub fn clear(&mut self) -> Result<()> {
        let (place, at) = (self.place, self.place.place());
        self.within.change(at, |tx| {
            let raw = View::within(tx).read(place)?.raw;
            free(tx, &raw, at)?;
            write_head(tx, place, near(&[]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        for len in 0..=15 {
            let text = &b"fifteen letters"[..len];
            let found = kept(&near(text));
            assert!(matches!(found, Some(Kept::Near(bytes, n)) if bytes[..n] == *text));
        }
        let found = kept(&far(4096, (1 << LEN_BITS) - 1));
        assert!(matches!(found, Some(Kept::Far(4096, len)) if len == (1 << 56) - 1));
        assert!(kept(&far(0, 20)).is_none() && kept(&far(64, 15)).is_none());
        for last in 16..255 {
            assert!(
                kept(&TextRaw {
                    words: [0, last << LEN_BITS]
                })
                .is_none()
            );
        }
        assert_eq!(len(&TextRaw::new_zeroed()), 0);
    }
}
