//! A directory's bucket: a header line of fingerprints, 63 record lines. The format is in
//! [`pmfs_format::directory`].

use crate::pool::Pool;
use crate::tree::corrupt;
use crate::types::Ino;
use pm_journal::error::Result;
use pm_journal::{Change, Transaction};
use pm_store::FreshSet;
use pmfs_format::directory::{BUCKET_LINES, FINGERPRINT_FREE, FINGERPRINT_MORE, NAME_FIRST_LINE};
use pmfs_format::{DentryRaw, LINE_BYTES};

/// A bucket, by its byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub off: u64,
}

/// The header line's 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; 64]);

/// A record's first line, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Byte offset of its first line.
    pub off: u64,
    /// Number of that line in its bucket.
    pub line: usize,
    pub ino: u32,
    pub name_len: usize,
    /// The mode's top four bits.
    pub kind: u8,
    /// Lines it takes.
    pub lines: usize,
    pub hash: u64,
    first: [u8; NAME_FIRST_LINE],
}

/// The fingerprint of a hash: 2 to 255.
#[inline]
pub fn fingerprint(hash: u64) -> u8 {
    2 + ((hash & 0xffff) % 254) as u8
}

/// Lines that a name of `len` bytes takes.
pub(crate) fn lines_for(len: usize) -> usize {
    1 + len.saturating_sub(NAME_FIRST_LINE).div_ceil(64)
}

pub(crate) fn first_word(ino: Ino, kind: u8, name_len: usize) -> u64 {
    ino | (name_len as u64) << DentryRaw::name_len.shift()
        | u64::from(kind) << DentryRaw::kind.shift()
        | (lines_for(name_len) as u64) << DentryRaw::lines.shift()
}

/// The kind byte of a mode.
pub fn kind_of(mode: u32) -> u8 {
    (mode >> 12) as u8
}

/// A record's lines, as words.
pub(crate) struct Encoded {
    words: [u64; RECORD_WORDS_MAX],
    count: usize,
}

/// Words of the longest record: a name of 255 bytes takes five lines.
const RECORD_WORDS_MAX: usize = 5 * 8;

impl Encoded {
    pub fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }
}

pub(crate) fn encode(ino: Ino, kind: u8, hash: u64, name: &[u8]) -> Encoded {
    let mut words = [0u64; RECORD_WORDS_MAX];
    words[0] = first_word(ino, kind, name.len());
    words[DentryRaw::hash.word()] = hash;
    for (word, bytes) in words[DentryRaw::name.word()..]
        .iter_mut()
        .zip(name.chunks(8))
    {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    Encoded {
        words,
        count: lines_for(name.len()) * 8,
    }
}

/// Returns one bit for each byte of a word that is 0.
#[inline]
pub(crate) fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let zeros = !(((word & LOW) + LOW) | word | LOW);
    // The eight top bits, gathered into one byte.
    (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Returns the place where the first `lines` set bits in a row begin.
fn first_run(bits: u64, lines: usize) -> Option<usize> {
    let runs = (1..lines).fold(bits, |runs, by| runs & bits >> by);
    (runs != 0).then(|| runs.trailing_zeros() as usize)
}

impl Header {
    /// Depth: the bucket covers `512 >> depth` entries of its node.
    pub fn depth(&self) -> u8 {
        self.0[0]
    }

    /// Returns one bit for each line whose byte is `print`; the header's own is left out.
    #[inline]
    fn lines_of(&self, print: u8) -> u64 {
        let pattern = u64::from(print) * 0x0101_0101_0101_0101;
        let bits = (0..8).fold(0, |bits, at| {
            bits | zero_bytes(self.word(at) ^ pattern) << (at * 8)
        });
        bits & !1
    }

    /// Record lines whose fingerprint is `print`, lowest first.
    #[inline]
    pub fn matches(&self, print: u8) -> Matches {
        Matches(self.lines_of(print))
    }

    /// Returns one bit for each free line.
    fn free(&self) -> u64 {
        self.lines_of(FINGERPRINT_FREE)
    }

    /// The first of `lines` free lines in a row.
    pub fn room(&self, lines: usize) -> Option<usize> {
        first_run(self.free(), lines)
    }

    /// Marks `lines` lines from `line` on as a record's.
    pub fn put(&mut self, line: usize, lines: usize, print: u8) {
        self.0[line] = print;
        self.0[line + 1..line + lines].fill(FINGERPRINT_MORE);
    }

    /// Marks lines as free.
    pub fn clear(&mut self, line: usize, lines: usize) {
        self.0[line..line + lines].fill(FINGERPRINT_FREE);
    }

    /// Lines at which records start.
    pub fn starts(&self) -> impl Iterator<Item = usize> + '_ {
        (1..BUCKET_LINES).filter(|&line| self.0[line] > FINGERPRINT_MORE)
    }

    /// The line as words.
    pub fn words(&self) -> [u64; 8] {
        std::array::from_fn(|at| self.word(at))
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at * 8..at * 8 + 8].try_into().expect("eight bytes"))
    }
}

/// Lines found, as bits.
pub struct Matches(u64);

impl Iterator for Matches {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let line = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(line)
    }
}

impl Bucket {
    pub fn at(off: u64) -> Bucket {
        Bucket { off }
    }

    #[inline]
    pub fn header(&self, pool: &Pool) -> Header {
        let words = pool.pm.read::<8>(self.off);
        let mut bytes = [0; 64];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Header(bytes)
    }

    pub fn line_off(&self, line: usize) -> u64 {
        self.off + line as u64 * LINE_BYTES
    }

    /// Reads the record that starts at `line`.
    ///
    /// # Errors
    /// `Corrupt` if it can't be one.
    #[inline]
    pub fn record(&self, pool: &Pool, line: usize) -> Result<Record> {
        let off = self.line_off(line);
        let words = pool.pm.read::<8>(off);
        let mut first = [0; NAME_FIRST_LINE];
        for (chunk, word) in first
            .chunks_exact_mut(8)
            .zip(&words[DentryRaw::name.word()..])
        {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let name_len = (words[0] >> DentryRaw::name_len.shift() & 0xff) as usize;
        let lines = (words[0] >> DentryRaw::lines.shift() & 0xff) as usize;
        if name_len == 0 || lines != lines_for(name_len) || line + lines > BUCKET_LINES {
            return Err(corrupt("directory record", off));
        }
        Ok(Record {
            off,
            line,
            ino: words[0] as u32,
            name_len,
            kind: (words[0] >> DentryRaw::kind.shift()) as u8,
            lines,
            hash: words[DentryRaw::hash.word()],
            first,
        })
    }
}

impl Record {
    /// Returns whether this is the record of `name`.
    #[inline]
    pub fn name_is(&self, pool: &Pool, name: &[u8]) -> bool {
        if self.name_len != name.len() {
            return false;
        }
        let head = name.len().min(NAME_FIRST_LINE);
        if self.first[..head] != name[..head] {
            return false;
        }
        if self.lines == 1 {
            return true;
        }
        let mut rest = [0u8; 256];
        let rest = &mut rest[..name.len() - head];
        pool.pm.copy_out(self.off + LINE_BYTES, rest).is_ok() && *rest == name[head..]
    }

    /// The name's bytes.
    ///
    /// # Errors
    /// `Medium`.
    pub fn name(&self, pool: &Pool) -> Result<Vec<u8>> {
        let mut name = vec![0; self.name_len];
        let head = self.name_len.min(NAME_FIRST_LINE);
        name[..head].copy_from_slice(&self.first[..head]);
        if self.lines > 1 {
            pool.pm.copy_out(self.off + LINE_BYTES, &mut name[head..])?;
        }
        Ok(name)
    }

    /// The record's first word, naming another inode.
    pub fn renamed_to(&self, ino: Ino, kind: u8) -> u64 {
        first_word(ino, kind, self.name_len)
    }
}

/// A header that is to change in a transaction: what is logged is just the words that differ.
pub struct HeaderEdit {
    bucket: Bucket,
    old: Header,
    pub new: Header,
}

impl HeaderEdit {
    pub fn of(pool: &Pool, bucket: Bucket) -> HeaderEdit {
        let header = bucket.header(pool);
        HeaderEdit {
            bucket,
            old: header,
            new: header,
        }
    }

    pub fn bucket(&self) -> Bucket {
        self.bucket
    }

    /// Writes a record into free lines, which nothing refers to, and marks them in the new header.
    ///
    /// # Panics
    /// If there is no room: the caller has made it.
    pub fn insert(&mut self, fresh: &mut FreshSet<'_>, ino: Ino, kind: u8, hash: u64, name: &[u8]) {
        let lines = lines_for(name.len());
        // Lines that this very transaction frees hold what an undo needs.
        let free = self.old.free() & self.new.free();
        let line = first_run(free, lines).expect("room was made");
        let encoded = encode(ino, kind, hash, name);
        let range = fresh.range(self.bucket.line_off(line), lines as u64 * LINE_BYTES);
        range.words(0, encoded.words());
        self.new.put(line, lines, fingerprint(hash));
    }

    /// Unmarks a record.
    pub fn remove(&mut self, record: &Record) {
        self.new.clear(record.line, record.lines);
    }

    /// Logs the words that change.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn log(&self, tx: &mut Transaction<'_>) -> Change<8> {
        tx.change(self.bucket.off, &self.old.words(), &self.new.words())
    }
}
