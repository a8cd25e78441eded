//! Calls whose ranges end or begin at an edge: of a line, of a block, of what a record's lines hold, of a line of pointers.
//! What is flushed is counted in lines, and a count that is off by one shows here alone.

use super::kinds::{Kind, Prepared};
use super::pool::{NODE, POOL_BYTES, pattern};
use pmfs::{Fs, LargePages, RenameFlags, Result, XattrFlags};
use pmfs_format::inode::INLINE_BYTES;

/// Bytes of a name that a record's first line holds; each further line holds 64.
const FIRST_LINE: usize = 48;

type Step = fn(&Fs, &Prepared) -> Result<()>;

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

/// All of them.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    let calls: [(&str, bool, Step, Step); 21] = [
        (
            "append of 2 bytes from a line's last byte",
            false,
            late_in_a_line,
            |fs, p| fs.append(p.blank, b"ab").map(drop),
        ),
        (
            "append of a line from a line's last byte",
            false,
            late_in_a_line,
            |fs, p| fs.append(p.blank, &pattern(64, 3)).map(drop),
        ),
        (
            "append of 66 bytes from a line's last byte",
            false,
            late_in_a_line,
            |fs, p| fs.append(p.blank, &pattern(66, 3)).map(drop),
        ),
        (
            "append of 300 bytes from a line's last byte",
            false,
            late_in_a_line,
            |fs, p| fs.append(p.blank, &pattern(300, 3)).map(drop),
        ),
        (
            "append of 2 bytes from a block's last byte",
            false,
            late_in_a_block,
            |fs, p| fs.append(p.blank, b"ab").map(drop),
        ),
        (
            "append of three lines of pointers",
            false,
            nothing,
            |fs, p| fs.append(p.blank, &pattern(70_000, 3)).map(drop),
        ),
        (
            "append of three lines of pointers behind a block",
            false,
            late_in_a_block,
            |fs, p| fs.append(p.blank, &pattern(70_000, 3)).map(drop),
        ),
        (
            "overwrite of 2 bytes from a line's last byte",
            true,
            nothing,
            |fs, p| fs.write(p.large, 63, b"ab").map(drop),
        ),
        (
            "overwrite of 66 bytes from a line's last byte",
            true,
            nothing,
            |fs, p| fs.write(p.large, 63, &pattern(66, 3)).map(drop),
        ),
        (
            "overwrite of 300 bytes from a block's last byte",
            true,
            nothing,
            |fs, p| fs.write(p.large, 4095, &pattern(300, 3)).map(drop),
        ),
        (
            "overwrite of 1000 bytes from a line's last byte",
            true,
            nothing,
            |fs, p| fs.write(p.large, 127, &pattern(1000, 3)).map(drop),
        ),
        (
            "create of a name that fills a line",
            false,
            nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE], &NODE).map(drop),
        ),
        (
            "create of a name of one byte in a second line",
            false,
            nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 1], &NODE).map(drop),
        ),
        (
            "create of a name that fills two lines",
            false,
            nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 64], &NODE).map(drop),
        ),
        (
            "create of a name that fills four lines",
            false,
            nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 192], &NODE).map(drop),
        ),
        (
            "create of a name of one byte in a fifth line",
            false,
            nothing,
            |fs, p| fs.create(p.dir, &[b'n'; FIRST_LINE + 193], &NODE).map(drop),
        ),
        (
            "rename to a name that fills four lines",
            false,
            nothing,
            |fs, p| {
                let name = [b'n'; FIRST_LINE + 192];
                fs.rename(p.dir, b"small", p.empty, &name, RenameFlags::empty())
            },
        ),
        (
            "symlink of a target that fills its inode",
            false,
            nothing,
            |fs, p| {
                fs.symlink(p.dir, b"new", &[b't'; INLINE_BYTES], &NODE)
                    .map(drop)
            },
        ),
        (
            "symlink of a target that fills lines",
            false,
            nothing,
            |fs, p| fs.symlink(p.dir, b"new", &[b't'; 320], &NODE).map(drop),
        ),
        (
            "symlink of a target of one byte in a line",
            false,
            nothing,
            |fs, p| fs.symlink(p.dir, b"new", &[b't'; 321], &NODE).map(drop),
        ),
        ("setxattr that fills lines", false, nothing, |fs, p| {
            fs.setxattr(p.small, b"user.edge", &[9; 4096], XattrFlags::empty())
        }),
    ];
    let kind = |(name, overwrites, first, call)| Kind {
        name,
        pool_bytes: POOL_BYTES,
        first,
        call,
        overwrites,
        in_place: false,
        large: LargePages::Grow,
    };
    calls.into_iter().map(kind).collect()
}
