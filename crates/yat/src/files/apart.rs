//! Blocks that a program stored to apart from the file, and hands over all at once.

use super::kinds::{Kind, Prepared};
use super::pool::{LARGE_POOL_BYTES, POOL_BYTES, pattern};
use pmfs::{Fs, Ino, Result, SetAttr};

fn pin(fs: &Fs, p: &Prepared) -> Result<()> {
    for ino in [p.small, p.large, p.sparse, p.blank] {
        fs.hold(ino)?;
        fs.pin_apart(ino)?;
    }
    Ok(())
}

/// Writes these blocks of a file.
fn hand_over(fs: &Fs, ino: Ino, blocks: &[u64]) -> Result<()> {
    let bytes: Vec<Vec<u8>> = blocks
        .iter()
        .map(|block| pattern(4096, (*block as u8).wrapping_add(7)))
        .collect();
    let pages: Vec<(u64, &[u8])> = blocks
        .iter()
        .zip(&bytes)
        .map(|(block, bytes)| (block * 4096, bytes.as_slice()))
        .collect();
    fs.write_pages(ino, &pages)
}

macro_rules! kinds {
    ($( $name:literal, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Kind {
            name: $name, pool_bytes: POOL_BYTES, first: pin,
            call: |$fs, $p| { $body; Ok(()) }, overwrites: true, in_place: false, doomed: None,
            large: pmfs::LargePages::Grow,
        } ),+ ]
    };
}

/// The kinds.
pub fn kinds() -> Vec<Kind> {
    let mut all = kinds! {
        "apart: the only block", |fs, p| hand_over(fs, p.small, &[0])?;
        "apart: some blocks of a node", |fs, p| hand_over(fs, p.large, &[0, 2, 3, 5])?;
        "apart: blocks, holes and unwritten ones", |fs, p| hand_over(fs, p.sparse, &[0, 1, 3, 6, 8])?;
    };
    all.extend(kinds! {
        "apart: a block behind all that the tree covers", |fs, p| hand_over(fs, p.large, &[1, 700])?;
    });
    let longer = all.last_mut().expect("the last of them");
    longer.first = |fs, p| {
        let size = Some(4 << 20);
        fs.setattr(
            p.large,
            &SetAttr {
                size,
                ..SetAttr::default()
            },
        )?;
        pin(fs, p)
    };
    all.extend(kinds! {
        "apart: blocks of a large leaf and behind it", |fs, p| hand_over(fs, p.blank, &[1, 17, 511, 513])?;
    });
    let large = all.last_mut().expect("the last of them");
    large.pool_bytes = LARGE_POOL_BYTES;
    large.first = |fs, p| {
        fs.write(p.blank, 0, &pattern((2 << 20) + 9000, 5))?;
        pin(fs, p)
    };
    all
}
