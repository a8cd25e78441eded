//! Calls on files that share blocks. The counts of shares have their blocks beforehand: these are
//! volatile, and each of their lines would double the images.

use super::call::{Call, parse};
use super::kinds::{Kind, Prepared};
use super::pool::{LARGE_POOL_BYTES, NODE, POOL_BYTES, pattern};
use pmfs::{FallocateMode, Fs, Ino, ROOT_INO, Result, SetAttr};

/// `dir/blank` is a clone of `dir/large`, by leaves.
fn cloned(fs: &Fs, p: &Prepared) -> Result<()> {
    fs.clone_range((p.large, 0), (p.blank, 0), 4096)?;
    fs.clone_range((p.large, 0), (p.blank, 0), 0)
}

/// `dir/blank` has the node of `dir/large`, and `dir/small` is a hole.
fn node_cloned(fs: &Fs, p: &Prepared) -> Result<()> {
    resize(fs, p.small, 0)?;
    resize(fs, p.small, 5000)?;
    fs.clone_range((p.large, 0), (p.blank, 0), 0)
}

/// `dir/blank` has the size of `dir/large` and no block.
fn holes(fs: &Fs, p: &Prepared) -> Result<()> {
    elsewhere(fs, p)?;
    resize(fs, p.blank, fs.getattr(p.large)?.size)
}

/// `dir/blank` had the node of `dir/large`, and has one of its own now, for the same blocks.
fn node_left(fs: &Fs, p: &Prepared) -> Result<()> {
    node_cloned(fs, p)?;
    fs.write(p.blank, 4096, &pattern(4096, 7)).map(drop)
}

/// No other file has the node of `dir/large` any more, which others had.
fn node_kept(fs: &Fs, p: &Prepared) -> Result<()> {
    elsewhere(fs, p)?;
    node_cloned(fs, p)?;
    resize(fs, p.blank, 0)
}

/// Another file has shared blocks.
fn elsewhere(fs: &Fs, p: &Prepared) -> Result<()> {
    let other = fs.create(ROOT_INO, b"other", &NODE)?.ino;
    fs.clone_range((p.large, 4096), (other, 0), 4096)
}

/// `dir/blank` is a copy of `dir/large`, which shares nothing with it.
fn copied(fs: &Fs, p: &Prepared) -> Result<()> {
    elsewhere(fs, p)?;
    let size = fs.getattr(p.large)?.size;
    fs.copy_range(p.large, 0, p.blank, 0, size).map(drop)
}

/// `dir/small` has blocks enough to be shared by a copy.
fn long(fs: &Fs, p: &Prepared) -> Result<()> {
    elsewhere(fs, p)?;
    fs.write(p.small, 0, &pattern(17 * 4096, 5)).map(drop)
}

/// `dir/small` is a clone of `dir/blank`, which has a large leaf.
fn large_cloned(fs: &Fs, p: &Prepared) -> Result<()> {
    fs.write(p.blank, 0, &pattern(2 << 20, 5))?;
    fs.clone_range((p.blank, 0), (p.small, 0), 0)
}

/// `dir/blank` has a large leaf, and `dir/small` is empty.
fn large_written(fs: &Fs, p: &Prepared) -> Result<()> {
    fs.write(p.blank, 0, &pattern(2 << 20, 5))?;
    resize(fs, p.small, 0)
}

/// `dir/small` has old bytes behind its end.
fn cut(fs: &Fs, p: &Prepared) -> Result<()> {
    elsewhere(fs, p)?;
    fs.write(p.small, 0, &pattern(4096, 5))?;
    resize(fs, p.small, 1000)
}

fn resize(fs: &Fs, ino: Ino, size: u64) -> Result<()> {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    fs.setattr(ino, &set).map(drop)
}

macro_rules! kinds {
    ($first:expr, $bytes:expr; $( $name:literal, $overwrites:literal, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Kind {
            name: $name, pool_bytes: $bytes, first: $first,
            call: |$fs, $p| { $body; Ok(()) }, overwrites: $overwrites, in_place: false, doomed: None,
            large: pmfs::LargePages::Grow,
        } ),+ ]
    };
}

const PUNCH: FallocateMode = FallocateMode::KEEP_SIZE.union(FallocateMode::PUNCH_HOLE);

/// The kinds.
pub fn kinds() -> Vec<Kind> {
    let mut all = kinds! { elsewhere, POOL_BYTES;
        "clone: a file", false, |fs, p| fs.clone_range((p.large, 0), (p.blank, 0), 0)?;
        "clone: holes and an unwritten block", false,
            |fs, p| fs.clone_range((p.sparse, 0), (p.blank, 0), 0)?;
        "clone: over a part", true,
            |fs, p| fs.clone_range((p.large, 4096), (p.sparse, 3 * 4096), 8192)?;
        "clone: inside a file", true,
            |fs, p| fs.clone_range((p.large, 0), (p.large, 3 * 4096), 4096)?;
        "clone: of one block that is the root", true,
            |fs, p| fs.clone_range((p.small, 0), (p.blank, 0), 0)?;
        "clone: past the end", false,
            |fs, p| fs.clone_range((p.large, 0), (p.small, 8192), 4096)?;
    };
    all.extend(kinds! { cloned, POOL_BYTES;
        "clone: the same again", true, |fs, p| fs.clone_range((p.large, 0), (p.blank, 0), 0)?;
        "clone: of a clone, shifted", true,
            |fs, p| fs.clone_range((p.blank, 0), (p.large, 4096), 8192)?;
        "cloned: overwrite of 3 bytes", true, |fs, p| fs.write(p.large, 4099, b"xyz")?;
        "cloned: overwrite of 64 bytes", true, |fs, p| fs.write(p.blank, 4090, &[b'o'; 64])?;
        "cloned: overwrite of a block", true, |fs, p| fs.write(p.blank, 8192, &pattern(4096, 3))?;
        "cloned: overwrite of several blocks", true,
            |fs, p| fs.write(p.large, 3000, &pattern(10_000, 3))?;
        "cloned: write over the end", true, |fs, p| fs.write(p.blank, 20_000, &pattern(3000, 3))?;
        "cloned: a clone over the end", true,
            |fs, p| fs.clone_range((p.sparse, 3 * 4096), (p.blank, 5 * 4096), 4096)?;
        "cloned: append", false, |fs, p| fs.append(p.blank, &pattern(900, 3))?;
        "cloned: append across blocks", false, |fs, p| fs.append(p.large, &pattern(9000, 3))?;
        "cloned: truncate into a block", false, |fs, p| resize(fs, p.large, 5000)?;
        "cloned: truncate to nothing", false, |fs, p| resize(fs, p.blank, 0)?;
        "cloned: truncate up", false, |fs, p| resize(fs, p.blank, 70_000)?;
        "cloned: punch", true, |fs, p| fs.fallocate(p.large, PUNCH, 3000, 10_000)?;
        "cloned: zero a range", true,
            |fs, p| fs.fallocate(p.blank, FallocateMode::ZERO_RANGE, 3000, 10_000)?;
        "cloned: collapse", false, |fs, p| fs.collapse_range(p.large, 4096, 8192)?;
        "cloned: insert", false, |fs, p| fs.insert_range(p.blank, 4096, 8192)?;
        "cloned: unlink of the source", false, |fs, p| fs.unlink(p.dir, b"large")?;
    });
    all.extend(of_nodes());
    all.extend(kinds! { copied, POOL_BYTES;
        "dedupe: all of a file", false, |fs, p| {
            let size = fs.getattr(p.large)?.size;
            assert!(fs.dedupe_range((p.large, 0), (p.blank, 0), size)?);
        };
    });
    all.extend(kinds! { long, POOL_BYTES;
        "copy_file_range that shares", false,
            |fs, p| fs.copy_range(p.small, 0, p.blank, 0, 17 * 4096)?;
    });
    all.extend(kinds! { cut, POOL_BYTES;
        "clone: a hole past the end", false,
            |fs, p| fs.clone_range((p.sparse, 0), (p.small, 8192), 4096)?;
    });
    all.extend(kinds! { large_written, LARGE_POOL_BYTES;
        "clone: a large leaf", false, |fs, p| fs.clone_range((p.blank, 0), (p.small, 0), 0)?;
    });
    all.extend(kinds! { large_cloned, LARGE_POOL_BYTES;
        "cloned: overwrite in a large leaf", true,
            |fs, p| fs.write(p.small, 9000, &pattern(1400, 3))?;
        "cloned: unlink of a large leaf", false, |fs, p| fs.unlink(p.dir, b"small")?;
    });
    all
}

/// The kinds of calls on files of which some name one node.
fn of_nodes() -> Vec<Kind> {
    let mut all = kinds! { node_cloned, POOL_BYTES;
        "node: cloned again", true, |fs, p| fs.clone_range((p.large, 0), (p.blank, 0), 0)?;
        "node: clone of a clone", true, |fs, p| fs.clone_range((p.blank, 0), (p.small, 0), 0)?;
        "node: a part cloned from it", true,
            |fs, p| fs.clone_range((p.blank, 4096), (p.small, 0), 4096)?;
        "node: clone inside the file", true,
            |fs, p| fs.clone_range((p.blank, 0), (p.blank, 3 * 4096), 4096)?;
        "node: overwrite of 3 bytes", true, |fs, p| fs.write(p.large, 4099, b"xyz")?;
        "node: overwrite of a block", true, |fs, p| fs.write(p.blank, 8192, &pattern(4096, 3))?;
        "node: overwrite of several blocks", true,
            |fs, p| fs.write(p.large, 3000, &pattern(10_000, 3))?;
        "node: write over the end", true, |fs, p| fs.write(p.blank, 20_000, &pattern(3000, 3))?;
        "node: append", false, |fs, p| fs.append(p.blank, &pattern(900, 3))?;
        "node: append across blocks", false, |fs, p| fs.append(p.large, &pattern(9000, 3))?;
        "node: truncate into a block", false, |fs, p| resize(fs, p.large, 5000)?;
        "node: truncate to nothing", false, |fs, p| resize(fs, p.blank, 0)?;
        "node: truncate up", false, |fs, p| resize(fs, p.blank, 70_000)?;
        "node: punch", true, |fs, p| fs.fallocate(p.large, PUNCH, 3000, 10_000)?;
        "node: collapse", false, |fs, p| fs.collapse_range(p.large, 4096, 8192)?;
        "node: unlink of the source", false, |fs, p| fs.unlink(p.dir, b"large")?;
        "node: unlink of the clone", false, |fs, p| fs.unlink(p.dir, b"blank")?;
        "node: rename over the clone", false,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"blank", pmfs::RenameFlags::empty())?;
    };
    all.extend(kinds! { holes, POOL_BYTES;
        "node: clone over a file of holes", true,
            |fs, p| fs.clone_range((p.large, 0), (p.blank, 0), 0)?;
    });
    all.extend(kinds! { node_left, POOL_BYTES;
        "node left: overwrite of 3 bytes", true, |fs, p| fs.write(p.large, 99, b"xyz")?;
        "node left: unlink of the source", false, |fs, p| fs.unlink(p.dir, b"large")?;
        "node left: unlink of the clone", false, |fs, p| fs.unlink(p.dir, b"blank")?;
        "node left: cloned again", true, |fs, p| fs.clone_range((p.large, 0), (p.small, 0), 0)?;
    });
    all.extend(kinds! { node_kept, POOL_BYTES;
        "node kept: overwrite of 3 bytes", true, |fs, p| fs.write(p.large, 4099, b"xyz")?;
        "node kept: append", false, |fs, p| fs.append(p.large, &pattern(900, 3))?;
        "node kept: unlink", false, |fs, p| fs.unlink(p.dir, b"large")?;
    });
    all
}

/// A beginning of the sequences: `f` and `g` share a node with three blocks, and `c` is empty.
pub const BEGINNING: &str = "create f; write f 0 9000; create g; clone f g; create c";

/// Another: `f` and `g` have a node each, and share two blocks.
pub const LEAVES_BEGINNING: &str = "create f; write f 0 9000; create g; clone f g; \
     write g 8192 100; write f 8192 50; create c";

/// Calls on these files.
const CALLS: [&str; 14] = [
    "clone f c",
    "clone f g",
    "write f 100 3",
    "write g 4096 4096",
    "write g 3000 9000",
    "append f 5000",
    "truncate f 5000",
    "truncate g 0",
    "truncate g 20000",
    "fallocate f 3 3000 5000",
    "collapse g 0 4096",
    "unlink f",
    "rename g f",
    "rename c g",
];

/// All sequences of two calls on files of which some share blocks.
///
/// # Panics
/// Never: the calls can be read.
#[must_use]
pub fn sequences() -> Vec<Vec<Call>> {
    let after = |beginning: &'static str| {
        CALLS
            .iter()
            .flat_map(move |first| CALLS.map(|second| format!("{beginning}; {first}; {second}")))
    };
    // Over blocks that are others and blocks that are the same, a clone has several steps.
    let is_one_step = |calls: &String| !calls.ends_with("; clone f g");
    after(BEGINNING)
        .chain(after(LEAVES_BEGINNING).filter(is_one_step))
        .map(|calls| parse(&calls).expect("calls that can be read"))
        .collect()
}
