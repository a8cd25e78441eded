//! Calls whose ranges end or begin at an edge: of a line, of a block, of what a record's lines
//! hold, of a line of pointers. Flushes are counted in lines, and a count that is off by one shows
//! here alone.

use super::kinds::{Kind, Prepared};
use super::pool::{NODE, POOL_BYTES, pattern};
use pmfs::{Fs, LargePages, RenameFlags, Result, XattrFlags};
use pmfs_format::inode::INLINE_BYTES;

/// Bytes of a name that a record's first line holds; each further line holds 64.
const FIRST_LINE: usize = 48;

/// `blank` ends in the last byte of a line.
fn late_in_a_line(fs: &Fs, p: &Prepared) -> Result<()> {
    fs.write(p.blank, 0, &pattern(63, 5)).map(drop)
}

/// `blank` ends in the last byte of a line, which is the last one of a block.
fn late_in_a_block(fs: &Fs, p: &Prepared) -> Result<()> {
    fs.write(p.blank, 0, &pattern(4095, 5)).map(drop)
}

fn nothing(_: &Fs, _: &Prepared) -> Result<()> {
    Ok(())
}

macro_rules! kinds {
    ($( $name:literal, $overwrites:literal, $first:ident, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Kind {
            name: $name, pool_bytes: POOL_BYTES, first: $first,
            call: |$fs, $p| { $body; Ok(()) }, overwrites: $overwrites, in_place: false, doomed: None,
            large: LargePages::Grow,
        } ),+ ]
    };
}

/// All of them.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    let mut all = contents();
    all.extend(names());
    all
}

fn contents() -> Vec<Kind> {
    kinds! {
        "append of 2 bytes from a line's last byte", false, late_in_a_line,
            |fs, p| fs.append(p.blank, b"ab")?;
        "append of a line from a line's last byte", false, late_in_a_line,
            |fs, p| fs.append(p.blank, &pattern(64, 3))?;
        "append of 66 bytes from a line's last byte", false, late_in_a_line,
            |fs, p| fs.append(p.blank, &pattern(66, 3))?;
        "append of 300 bytes from a line's last byte", false, late_in_a_line,
            |fs, p| fs.append(p.blank, &pattern(300, 3))?;
        "append of 2 bytes from a block's last byte", false, late_in_a_block,
            |fs, p| fs.append(p.blank, b"ab")?;
        "append of three lines of pointers", false, nothing,
            |fs, p| fs.append(p.blank, &pattern(70_000, 3))?;
        "append of three lines of pointers behind a block", false, late_in_a_block,
            |fs, p| fs.append(p.blank, &pattern(70_000, 3))?;
        "overwrite of 2 bytes from a line's last byte", true, nothing,
            |fs, p| fs.write(p.large, 63, b"ab")?;
        "overwrite of 66 bytes from a line's last byte", true, nothing,
            |fs, p| fs.write(p.large, 63, &pattern(66, 3))?;
        "overwrite of 300 bytes from a block's last byte", true, nothing,
            |fs, p| fs.write(p.large, 4095, &pattern(300, 3))?;
        "overwrite of 1000 bytes from a line's last byte", true, nothing,
            |fs, p| fs.write(p.large, 127, &pattern(1000, 3))?;
    }
}

fn names() -> Vec<Kind> {
    const NONE: RenameFlags = RenameFlags::empty();
    kinds! {
        "create of a name that fills a line", false, nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE], &NODE)?;
        "create of a name of one byte in a second line", false, nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 1], &NODE)?;
        "create of a name that fills two lines", false, nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 64], &NODE)?;
        "create of a name that fills four lines", false, nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 192], &NODE)?;
        "create of a name of one byte in a fifth line", false, nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 193], &NODE)?;
        "rename to a name that fills four lines", false, nothing,
            |fs, p| fs.rename(p.dir, b"small", p.empty, &[b'n'; FIRST_LINE + 192], NONE)?;
        "symlink of a target that fills its inode", false, nothing,
            |fs, p| fs.symlink(p.dir, b"new", &[b't'; INLINE_BYTES], &NODE)?;
        "symlink of a target that fills lines", false, nothing,
            |fs, p| fs.symlink(p.dir, b"new", &[b't'; 320], &NODE)?;
        "symlink of a target of one byte in a line", false, nothing,
            |fs, p| fs.symlink(p.dir, b"new", &[b't'; 321], &NODE)?;
        "setxattr that fills lines", false, nothing,
            |fs, p| fs.setxattr(p.small, b"user.edge", &[9; 4096], XattrFlags::empty())?;
    }
}
