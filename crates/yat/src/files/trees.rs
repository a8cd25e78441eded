//! Clones of whole trees, and snapshots: calls of many steps, each a call of its own.
//!
//! A staging directory has the copy until it is renamed, and a snapshot's tree while it is taken
//! apart. The visible tree leaves such directories out ([`super::tree`]): the copy, or the
//! snapshot, is there whole or not at all.

use super::kinds::{Kind, Prepared};
use super::pool::POOL_BYTES;
use super::tree::ANY_TIMES;
use pmfs::{Fs, Ino, LargePages, ROOT_INO, Result, XattrFlags};
use pmfs_admin::{Admin, SNAPSHOTS};

const PATH: &[u8] = b"/dir";

/// The times of the directory at the end of a path are those of the last step.
fn let_times_go(fs: &Fs, dir: Ino) -> Result<()> {
    fs.setxattr(dir, ANY_TIMES, b"", XattrFlags::empty())
}

fn empty(fs: &Fs, p: &Prepared) -> Result<()> {
    let_times_go(fs, p.empty)
}

/// There is a snapshot.
fn snapshot(fs: &Fs, p: &Prepared) -> Result<()> {
    empty(fs, p)?;
    fs.create_snapshot(p.dir, PATH, b"zero")?;
    let_times_go(fs, fs.lookup(ROOT_INO, SNAPSHOTS.as_bytes())?.ino)?;
    fs.write(p.large, 100, b"later").map(drop)
}

/// There is a snapshot, and its tree is at a second place.
fn restored(fs: &Fs, p: &Prepared) -> Result<()> {
    snapshot(fs, p)?;
    restore(fs, p, false)
}

fn restore(fs: &Fs, p: &Prepared, replaces: bool) -> Result<()> {
    let snapshot = fs.snapshot(b"zero")?;
    fs.restore_snapshot(&snapshot, (p.empty, b"back"), replaces)
        .map(drop)
}

macro_rules! kinds {
    ($( $first:expr, $name:literal, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Kind {
            name: $name, pool_bytes: POOL_BYTES, first: $first,
            call: |$fs, $p| { $body; Ok(()) }, overwrites: false, in_place: false, doomed: None,
            large: LargePages::Grow,
        } ),+ ]
    };
}

/// The kinds.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    kinds! {
        empty, "tree: clone", |fs, p| fs.clone_tree(p.dir, p.empty, b"copy")?;
        snapshot, "tree: snapshot", |fs, p| fs.create_snapshot(p.dir, PATH, b"one")?;
        snapshot, "tree: snapshot deleted", |fs, _| fs.delete_snapshot(b"zero")?;
        snapshot, "tree: snapshot restored", |fs, p| restore(fs, p, false)?;
        restored, "tree: snapshot restored over a tree", |fs, p| restore(fs, p, true)?;
    }
}
