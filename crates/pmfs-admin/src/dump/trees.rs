//! Inodes, and what their trees name.

use super::{Dumped, SHOWN_MAX, Value};
use pmfs::parts::dir::bucket::{Bucket, fingerprint};
use pmfs::parts::dir::hash;
use pmfs::parts::inode::xattr;
use pmfs::parts::inode::{Inode, plausible};
use pmfs::parts::namespace::create::link_target;
use pmfs::parts::pool::Pool;
use pmfs::parts::tree::Tree;
use pmfs::parts::tree::entry::Entry;
use pmfs::parts::tree::visit::{Piece, Visitor};
use pmfs::types::{Ino, mode};
use pmfs::{Error, Result};
use pmfs_format::inode::TABLE_INO;
use pmfs_format::{BLOCK_SHIFT, InodeRaw, directory::BUCKET_LINES};

pub(super) fn inode(pool: &Pool, ino: Ino) -> Result<Dumped> {
    let inode = Inode::load(pool, ino)?;
    let mut shown = Dumped::default();
    shown.number("inode", ino);
    shown.address("at", inode.off);
    let state = match plausible(&inode) {
        _ if inode.links == 0 && inode.mode == 0 => "never used".to_owned(),
        _ if inode.links == 0 => "no links: free, or unlinked and open".to_owned(),
        Ok(()) => "in use".to_owned(),
        Err(error) => error.to_string(),
    };
    shown.text("state", state);
    shown.text("type", kind_name(inode.kind()));
    shown
        .0
        .push(("mode", Value::Octal(u64::from(inode.mode & 0o7777))));
    let attr = pool.attr_of(&inode);
    shown.number("links", inode.links);
    shown.number("uid", attr.uid);
    shown.number("gid", attr.gid);
    shown.number("size", inode.size());
    shown.number("blocks", attr.sectors / 8);
    shown.number("generation", inode.generation);
    shown.address("flags", inode.flags.into());
    shown.address("root", inode.root);
    shown.number("height", Entry(inode.root).height());
    shown.number("parent or device", inode.parent);
    shown.time("mtime", inode.mtime_ns);
    shown.time("ctime", inode.ctime_ns());
    shown.time("atime", attr.atime_ns);
    shown.time("crtime", attr.crtime_ns);
    if inode.kind() == mode::S_IFLNK {
        match link_target(pool, &inode) {
            Ok(target) => shown.text("target", String::from_utf8_lossy(&target)),
            Err(error) => shown.text("target", error),
        }
    }
    shown.address("xattr", pool.pm.load(InodeRaw::xattr.of(inode.off)));
    match xattr::load(pool, &inode) {
        Err(error) => shown.text("attributes", error),
        Ok(attributes) => {
            let one = |(name, value): &(Vec<u8>, Vec<u8>)| {
                let mut one = Dumped::default();
                one.text("name", String::from_utf8_lossy(name));
                one.number("bytes", value.len() as u64);
                one.text("value", String::from_utf8_lossy(value));
                one
            };
            shown.list("attributes", attributes.iter().map(one).collect());
        }
    }
    Ok(shown)
}

/// The nodes and leaves of a tree.
pub(super) fn tree(pool: &Pool, ino: Ino) -> Result<Dumped> {
    let mut shown = Dumped::default();
    shown.number("inode", ino);
    let tree = tree_of(pool, ino)?;
    shown.address("root", tree.root.0);
    shown.number("height", tree.root.height());
    let mut pieces = Pieces::new();
    tree.visit(pool, &mut pieces);
    let one = |piece: &Piece| {
        let mut one = Dumped::default();
        let what = if piece.level == 0 { "leaf" } else { "node" };
        one.text("what", what);
        one.number("level", piece.level);
        one.number("first index", piece.base);
        one.number("indexes", piece.units);
        one.number("block", piece.run.block);
        one.number("blocks", piece.run.count);
        one
    };
    shown.list("pieces", pieces.shown.iter().map(one).collect());
    pieces.close(&mut shown);
    Ok(shown)
}

fn tree_of(pool: &Pool, ino: Ino) -> Result<Tree> {
    if ino == TABLE_INO {
        return Ok(pool.inode_table());
    }
    let inode = Inode::load(pool, ino)?;
    if inode.has_tree() {
        Ok(inode.tree())
    } else {
        Err(Error::Invalid(&"an inode of this type has no tree"))
    }
}

/// A directory's buckets, each with its records.
pub(super) fn directory(pool: &Pool, ino: Ino) -> Result<Dumped> {
    let inode = Inode::load(pool, ino)?;
    inode.require_dir()?;
    let mut pieces = Pieces::new();
    inode.tree().visit(pool, &mut pieces);
    let mut shown = Dumped::default();
    shown.number("directory", ino);
    shown.number("entries", inode.size());
    shown.number("parent", inode.parent);
    let leaves = pieces.shown.iter().filter(|piece| piece.level == 0);
    let buckets = leaves.map(|piece| bucket(pool, piece)).collect();
    shown.list("buckets", buckets);
    pieces.close(&mut shown);
    Ok(shown)
}

fn bucket(pool: &Pool, piece: &Piece) -> Dumped {
    let bucket = Bucket::at(piece.run.block << BLOCK_SHIFT);
    let header = bucket.header(pool);
    let mut shown = Dumped::default();
    shown.address("bucket", bucket.off);
    shown.number("depth", header.depth());
    shown.address("first hash", piece.base);
    shown.address("hashes", piece.units);
    let free = (1..BUCKET_LINES)
        .filter(|&line| header.0[line] == 0)
        .count();
    shown.number("free lines", free as u64);
    let mut records = Vec::new();
    for line in header.starts() {
        let mut one = Dumped::default();
        one.number("line", line as u64);
        match bucket.record(pool, line) {
            Err(error) => one.text("damage", error),
            Ok(record) => {
                one.number("inode", record.ino);
                one.text("type", kind_name(u32::from(record.kind) << 12));
                one.address("hash", record.hash);
                match record.name(pool) {
                    Err(error) => one.text("damage", error),
                    Ok(name) => {
                        one.text("name", String::from_utf8_lossy(&name));
                        if hash(pool, &name) != record.hash {
                            one.text("damage", "the hash is not the name's");
                        }
                    }
                }
                if fingerprint(record.hash) != header.0[line] {
                    one.text("damage", "the fingerprint is not the hash's");
                }
            }
        }
        records.push(one);
    }
    shown.list("records", records);
    shown
}

/// The pieces that a tree names, up to a number.
struct Pieces {
    shown: Vec<Piece>,
    more: u64,
    damage: Vec<String>,
}

impl Pieces {
    fn new() -> Pieces {
        Pieces {
            shown: Vec::new(),
            more: 0,
            damage: Vec::new(),
        }
    }

    /// Adds what was wrong, and what was left out.
    fn close(self, shown: &mut Dumped) {
        if self.more > 0 {
            shown.number("not shown", self.more);
        }
        let one = |text: String| {
            let mut one = Dumped::default();
            one.text("damage", text);
            one
        };
        shown.list("damage", self.damage.into_iter().map(one).collect());
    }
}

impl Visitor for Pieces {
    fn piece(&mut self, piece: Piece) -> bool {
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(piece);
            return true;
        }
        // Damaged nodes can name each other without end.
        self.more += 1;
        false
    }

    fn damage(&mut self, error: Error) {
        if self.damage.len() < SHOWN_MAX {
            self.damage.push(error.to_string());
        }
    }
}

fn kind_name(kind: u32) -> String {
    match kind {
        mode::S_IFREG => "file".to_owned(),
        mode::S_IFDIR => "directory".to_owned(),
        mode::S_IFLNK => "symlink".to_owned(),
        mode::S_IFBLK => "block device".to_owned(),
        mode::S_IFCHR => "character device".to_owned(),
        mode::S_IFIFO => "fifo".to_owned(),
        mode::S_IFSOCK => "socket".to_owned(),
        other => format!("{other:#o}: no type"),
    }
}
