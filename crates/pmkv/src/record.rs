//! Records: put together, and read with their checks.

use pmem::{Pmem, Stage};
use pmlib::ground::Ground;
use pmlib_format::kv::{
    KEY_BITS, KEY_BYTES_MAX, KV_RECORD_HEAD_BYTES, RECORD_EXPIRES, RECORD_FLAGS, RECORD_INSTANCE,
    VALUE_BITS, VALUE_BYTES_MAX,
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::error::{Error, Result};

/// Records, and heads with their keys, up to so many bytes are read without a buffer of the heap's,
/// and in less space up to fewer.
const NEAR: u64 = 512;
const SMALL: u64 = 128;
/// Where a record has its word of sizes.
const SIZES_OFFSET: u64 = 16;
/// A longer value is hashed piece by piece where only its check is asked for.
const PIECE: usize = 64 << 10;

/// The first words of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub check: u64,
    pub version: u32,
    pub epoch: u32,
    pub value: u64,
    pub key: u64,
    pub instance: u64,
    /// Milliseconds since 1970.
    pub expires: Option<u64>,
}

impl Head {
    /// The head in these words; `None`: of no record.
    #[inline]
    pub fn of(words: [u64; 4]) -> Option<Head> {
        let sized = Head::sized(words[2])?;
        Some(Head {
            check: words[0],
            version: words[1] as u32,
            epoch: (words[1] >> 32) as u32,
            expires: sized.expires.map(|_| words[3]),
            ..sized
        })
    }

    /// The parts of a head that its word of sizes has; the others are 0.
    #[inline(always)]
    fn sized(sizes: u64) -> Option<Head> {
        let value = sizes & ((1 << VALUE_BITS) - 1);
        let key = sizes >> VALUE_BITS & ((1 << KEY_BITS) - 1);
        let flags = sizes >> (VALUE_BITS + KEY_BITS);
        let fits = value <= VALUE_BYTES_MAX && key <= KEY_BYTES_MAX && flags & !RECORD_FLAGS == 0;
        fits.then_some(Head {
            check: 0,
            version: 0,
            epoch: 0,
            value,
            key,
            instance: flags & RECORD_INSTANCE,
            expires: (flags & RECORD_EXPIRES != 0).then_some(0),
        })
    }

    /// The parts of a word of sizes with those of the bytes of a record that begins with it;
    /// `None`: it begins with another one.
    #[inline(always)]
    fn with(self, bytes: &[u8], sizes: u64) -> Option<Head> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |nth: usize| words.get(nth).map_or(0, |word| u64::from_le_bytes(*word));
        let expires = self.expires.map(|_| word(3));
        (word(2) == sizes).then_some(Head {
            check: word(0),
            version: word(1) as u32,
            epoch: (word(1) >> 32) as u32,
            expires,
            ..self
        })
    }

    /// The instance that the words of a place have, whatever they are.
    pub fn instance_of(words: [u64; 3]) -> u64 {
        words[2] >> (VALUE_BITS + KEY_BITS) & RECORD_INSTANCE
    }

    /// The words behind the check.
    #[inline]
    fn words(self) -> [u64; 2] {
        let versions = u64::from(self.version) | u64::from(self.epoch) << 32;
        [versions, self.sizes()]
    }

    #[inline]
    fn sizes(self) -> u64 {
        let expires = match self.expires {
            Some(_) => RECORD_EXPIRES,
            None => 0,
        };
        let flags = (self.instance | expires) << (VALUE_BITS + KEY_BITS);
        self.value | self.key << VALUE_BITS | flags
    }

    /// Bytes before the key.
    #[inline]
    pub fn before_key(self) -> u64 {
        KV_RECORD_HEAD_BYTES + expiry_bytes(self.expires)
    }

    #[inline]
    pub fn bytes(self) -> u64 {
        self.before_key() + self.key + self.value
    }
}

/// Bytes that a record has for when it expires.
#[inline]
pub(crate) fn expiry_bytes(expires: Option<u64>) -> u64 {
    match expires {
        Some(_) => 8,
        None => 0,
    }
}

/// The check of a record at a place: the head behind its check with the key, and the value.
#[inline(always)]
fn check_of(seed: u64, place: u64, head_and_key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, head_seed(seed, place, head_and_key))
}

#[inline(always)]
fn head_seed(seed: u64, place: u64, head_and_key: &[u8]) -> u64 {
    let at = seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxh3_64_with_seed(head_and_key, at)
}

/// Puts a record together that is to stand at `place`.
pub(crate) fn stage(seed: u64, place: u64, head: Head, key: &[u8], value: &[u8]) -> Stage {
    let mut stage = Stage::of_len(head.before_key() as usize + key.len() + value.len());
    let bytes = stage.staged_mut();
    let (head_and_key, rest) = bytes.split_at_mut(head.before_key() as usize + key.len());
    rest.copy_from_slice(value);
    let (before, after) = head_and_key.split_at_mut(head.before_key() as usize);
    after.copy_from_slice(key);
    let [versions, sizes] = head.words();
    let words = [0, versions, sizes, head.expires.unwrap_or(0)];
    for (to, word) in before.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    let check = check_of(seed, place, &head_and_key[8..], value);
    head_and_key[..8].copy_from_slice(&check.to_le_bytes());
    stage
}

/// The meaning of what stands at a place, to one who looks for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A record of the key.
    Same(Head),
    /// A whole record of another key.
    Other,
    /// No whole record, or one of another instance.
    None,
}

/// The words of a place's head, if the heap has it.
pub(crate) fn words_at(ground: Ground<'_>, place: u64) -> Option<[u64; 4]> {
    // The whole line: a record begins at one.
    let is_there = place != 0 && ground.has(place, 64);
    is_there.then(|| ground.mem().read(place))
}

/// The head at a place, if it is one and the heap has its bytes.
pub(crate) fn head_at(ground: Ground<'_>, place: u64) -> Option<Head> {
    let head = Head::of(words_at(ground, place)?)?;
    ground.has(place, head.bytes()).then_some(head)
}

/// Reads the head behind its check, and the key.
fn with_head<T>(mem: &Pmem, place: u64, head: Head, body: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let len = (head.before_key() - 8 + head.key) as usize;
    if len <= NEAR as usize {
        let mut near = [0; NEAR as usize];
        let near = &mut near[..len];
        mem.copy_out(place + 8, near)?;
        Ok(body(near))
    } else {
        let mut far = vec![0; len];
        mem.copy_out(place + 8, &mut far)?;
        Ok(body(&far))
    }
}

/// Looks for a key at a place, of this instance; its value is put into `to`.
#[inline(always)]
pub(crate) fn read(
    ground: Ground<'_>,
    place: u64,
    instance: u64,
    key: &[u8],
    to: &mut Vec<u8>,
) -> Result<Seen> {
    // The whole line: a record begins at one.
    if place == 0 || !ground.has(place, 64) {
        return Ok(Seen::None);
    }
    let sizes = ground.mem().load(place + SIZES_OFFSET);
    let Some(sized) = Head::sized(sizes) else {
        return Ok(Seen::None);
    };
    let bytes = sized.bytes();
    if sized.instance != instance || !ground.has(place, bytes) {
        return Ok(Seen::None);
    }
    let at = (place, sizes, sized);
    if bytes <= SMALL {
        read_near::<{ SMALL as usize }>(ground, at, key, to)
    } else if bytes <= NEAR {
        read_near::<{ NEAR as usize }>(ground, at, key, to)
    } else {
        read_far(ground, place, key, to)
    }
}

/// Reads a record at once, whose word of sizes is this, and that word's parts.
#[inline(always)]
fn read_near<const ROOM: usize>(
    ground: Ground<'_>,
    (place, sizes, sized): (u64, u64, Head),
    key: &[u8],
    to: &mut Vec<u8>,
) -> Result<Seen> {
    let mut near = [0; ROOM];
    let near = &mut near[..sized.bytes() as usize];
    ground.mem().copy_out(place, near)?;
    let (head_and_key, value) = near.split_at(near.len() - sized.value as usize);
    let Some(head) = sized.with(head_and_key, sizes) else {
        return Ok(Seen::None);
    };
    if check_of(ground.seed(), place, &head_and_key[8..], value) != head.check {
        return Ok(Seen::None);
    }
    if head_and_key[head_and_key.len() - head.key as usize..] != *key {
        return Ok(Seen::Other);
    }
    to.clear();
    to.extend_from_slice(value);
    Ok(Seen::Same(head))
}

/// Reads a record by its parts.
#[inline(never)]
fn read_far(ground: Ground<'_>, place: u64, key: &[u8], to: &mut Vec<u8>) -> Result<Seen> {
    let Some(head) = head_at(ground, place) else {
        return Ok(Seen::None);
    };
    let (mem, seed) = (ground.mem(), ground.seed());
    let (is_same, value_seed) = with_head(mem, place, head, |bytes| {
        (
            bytes[head.before_key() as usize - 8..] == *key && is_head(bytes, head),
            head_seed(seed, place, bytes),
        )
    })?;
    if !is_same {
        let whole = is_whole(ground, place, head)?;
        return Ok(if whole { Seen::Other } else { Seen::None });
    }
    to.clear();
    to.resize(head.value as usize, 0);
    mem.copy_out(place + head.before_key() + head.key, to)?;
    let fits = xxh3_64_with_seed(to, value_seed) == head.check;
    Ok(if fits { Seen::Same(head) } else { Seen::None })
}

/// Where a value is, once [`Seek::read`] has found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub offset: u64,
    pub len: u64,
}

/// A use of the value of a record that is looked for.
pub(crate) trait Seek {
    /// Looks for a key at a place, of this instance, and keeps its value.
    fn read(&mut self, ground: Ground<'_>, place: u64, instance: u64, key: &[u8]) -> Result<Seen>;
}

/// The value is copied.
impl Seek for Vec<u8> {
    #[inline(always)]
    fn read(&mut self, ground: Ground<'_>, place: u64, instance: u64, key: &[u8]) -> Result<Seen> {
        read(ground, place, instance, key, self)
    }
}

/// Its place is noted, after its check was verified.
impl Seek for Pinned {
    fn read(&mut self, ground: Ground<'_>, place: u64, instance: u64, key: &[u8]) -> Result<Seen> {
        let Some(head) = head_at(ground, place).filter(|head| head.instance == instance) else {
            return Ok(Seen::None);
        };
        if !is_whole(ground, place, head)? {
            return Ok(Seen::None);
        }
        let is_same = with_head(ground.mem(), place, head, |bytes| {
            bytes[head.before_key() as usize - 8..] == *key
        })?;
        self.offset = place + head.before_key() + head.key;
        self.len = head.value;
        Ok(match is_same {
            true => Seen::Same(head),
            false => Seen::Other,
        })
    }
}

/// Whether these bytes behind a check are the ones that a head was read from.
#[inline]
fn is_head(bytes: &[u8], head: Head) -> bool {
    let [first, second] = head.words();
    bytes[..8] == first.to_le_bytes()
        && bytes[8..16] == second.to_le_bytes()
        && head
            .expires
            .is_none_or(|at| bytes[16..24] == at.to_le_bytes())
}

/// Whether the record with this head is as it was stored.
pub(crate) fn is_whole(ground: Ground<'_>, place: u64, head: Head) -> Result<bool> {
    let (mem, seed) = (ground.mem(), ground.seed());
    let value_seed = with_head(mem, place, head, |bytes| head_seed(seed, place, bytes))?;
    let (mut at, mut left) = (place + head.before_key() + head.key, head.value as usize);
    if left <= NEAR as usize {
        let mut near = [0; NEAR as usize];
        mem.copy_out(at, &mut near[..left])?;
        return Ok(xxh3_64_with_seed(&near[..left], value_seed) == head.check);
    }
    if left <= PIECE {
        let mut value = vec![0; left];
        mem.copy_out(at, &mut value)?;
        return Ok(xxh3_64_with_seed(&value, value_seed) == head.check);
    }
    let (mut hash, mut piece) = (Xxh3::with_seed(value_seed), vec![0; PIECE]);
    while left > 0 {
        let step = left.min(PIECE);
        mem.copy_out(at, &mut piece[..step])?;
        hash.update(&piece[..step]);
        (at, left) = (at + step as u64, left - step);
    }
    Ok(hash.digest() == head.check)
}

/// Stores a record again as it stands, past the caches: the next fence makes it durable, whoever
/// has stored it.
pub(crate) fn store_again(ground: Ground<'_>, place: u64, head: Head) -> Result<()> {
    let (mem, end) = (ground.mem(), place + head.bytes().next_multiple_of(64));
    let (mut at, mut piece) = (place, Vec::new());
    while at < end {
        piece.resize((end - at).min(PIECE as u64) as usize, 0);
        mem.copy_out(at, &mut piece)?;
        mem.write_nt(at, &piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// The key of the record with this head.
pub(crate) fn key_of(ground: Ground<'_>, place: u64, head: Head) -> Result<Vec<u8>> {
    with_head(ground.mem(), place, head, |bytes| {
        bytes[head.before_key() as usize - 8..].to_vec()
    })
}

/// Whether a record's parts can be as long; the bytes that it takes.
pub(crate) fn taken(key: &[u8], value: &[u8]) -> Result<u64> {
    let (key, value) = (key.len() as u64, value.len() as u64);
    if key > KEY_BYTES_MAX || value > VALUE_BYTES_MAX {
        return Err(Error::TooLarge { key, value });
    }
    Ok(KV_RECORD_HEAD_BYTES + key + value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmlib::{Heap, Options};

    /// Goal: a record is one at its place alone, and as it was stored. Method: one is stored at
    /// another place, and with each of its bits flipped.
    #[test]
    fn a_record_is_one_at_its_place() {
        let heap = Heap::private(1 << 20, &Options::default()).unwrap();
        let (ground, place) = (heap.ground(), 15 << 16);
        let mem = ground.mem();
        for expires in [None, Some(77)] {
            let head = Head {
                check: 0,
                version: 7,
                epoch: 1,
                value: 5,
                key: 3,
                instance: 9,
                expires,
            };
            let staged = stage(ground.seed(), place, head, b"key", b"value");
            let find = |at: u64| {
                let mut value = Vec::new();
                let seen = read(ground, at, 9, b"key", &mut value).unwrap();
                matches!(seen, Seen::Same(_)) && value == b"value"
            };
            let put = |at: u64, bytes: &[u8]| {
                let _window = mem.window();
                mem.write_nt(at, bytes).unwrap();
            };
            put(place, staged.whole_lines());
            assert!(find(place));
            put(place + 64, staged.whole_lines());
            assert!(!find(place + 64));
            for bit in 0..staged.len() * 8 {
                let mut bytes = staged.whole_lines().to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                put(place, &bytes);
                assert!(!find(place), "{bit}");
            }
        }
    }
}
