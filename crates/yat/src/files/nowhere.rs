//! Writes from memory that ends: a program told a wrong length. In `atomic` mode they change
//! nothing.

use super::kinds::Kind;
use super::pool::{LARGE_POOL_BYTES, POOL_BYTES, pattern};
use pmem::record::bad_buffer;
use pmfs::{DataMode, Error, FallocateMode, Fs, Ino, Result};
use std::ops::Range;
use std::sync::LazyLock;

/// Bytes that are there, of those that are said to be.
const GOOD: usize = 5000;
const SAID: usize = 9000;

/// A part of it that is less than a block: some bytes that are there, more that are not.
const PART: Range<usize> = 4000..7000;

/// The call fails. The part that it had not come to is as it was; and so, in `atomic` mode, is the
/// rest, which those see who compare trees: before such a call and after it they are the same.
fn fails(fs: &Fs, ino: Ino, offset: u64, part: Range<usize>) -> Result<()> {
    static BUFFER: LazyLock<&[u8]> =
        LazyLock::new(|| bad_buffer(&pattern(GOOD, 3), SAID).expect("memory"));
    let content = || -> Result<Vec<u8>> {
        let mut bytes = vec![0; fs.getattr(ino)?.size as usize];
        fs.read(ino, 0, &mut bytes)?;
        Ok(bytes)
    };
    let before = content()?;
    let answer = fs.write(ino, offset, &BUFFER[part.clone()]);
    assert!(matches!(answer, Err(Error::BadAddress)), "{answer:?}");
    let after = content()?;
    assert_eq!(
        before.len(),
        after.len(),
        "a write from nowhere is no growth"
    );
    let same = |range: Range<usize>| before[range.clone()] == after[range];
    let start = (offset as usize).min(before.len());
    let good = part.start..GOOD;
    let end = (start + good.len()).min(before.len());
    assert!(
        same(0..start) && same(end..before.len()),
        "nor a change elsewhere"
    );
    let wrote = after[start..end] == pattern(GOOD, 3)[good][..end - start];
    assert!(
        same(start..end) || fs.data_mode() == DataMode::Ordered && wrote,
        "it changes nothing"
    );
    Ok(())
}

macro_rules! kinds {
    ($bytes:expr, $first:expr, $( $name:literal, $file:ident, $offset:literal, $part:expr; )+) => {
        [ $( Kind {
            name: $name, pool_bytes: $bytes, first: $first,
            call: |fs, p| fails(fs, p.$file, $offset, $part), overwrites: true, in_place: false, doomed: None,
            large: pmfs::LargePages::Grow,
        } ),+ ]
    };
}

pub(super) fn from_nowhere() -> Vec<Kind> {
    let mut all = Vec::new();
    all.extend(kinds! { POOL_BYTES, |_, _| Ok(()),
        "overwrite from memory that ends", large, 3000, 0..SAID;
        "overwrite of part of a block from memory that ends", large, 9000, PART;
        "write over the end from memory that ends", large, 18_000, 0..SAID;
        "append from memory that ends", small, 100, 0..SAID;
        "write into holes from memory that ends", sparse, 5000, 0..SAID;
    });
    all.extend(
        kinds! { POOL_BYTES, |fs, p| fs.write(p.large, 4096, &pattern(4096, 6)).map(drop),
            "overwrite of part of a block from memory that ends, to a spare one", large, 9000, PART;
        },
    );
    all.extend(kinds! { LARGE_POOL_BYTES, |fs, p| {
            fs.fallocate(p.blank, FallocateMode::KEEP_SIZE, 0, 2 << 20)?;
            fs.write(p.blank, 0, &pattern(100_000, 5)).map(drop)
        },
        "overwrite in a large leaf from memory that ends", blank, 70_001, 0..SAID;
    });
    all
}
