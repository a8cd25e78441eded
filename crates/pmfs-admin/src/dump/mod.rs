//! Structures of a pool as values that print: to look into a pool, sound or not. Nothing is changed
//! or recovered, and an invalid value is shown as it stands, with a note.

mod journal;
mod superblocks;
mod trees;

use crate::inspect::Inspector;
use pmfs::Result;

pub use superblocks::dump_superblocks;

/// Records that one dump shows at most; of more, their number.
const SHOWN_MAX: usize = 100_000;

/// A structure: its fields, in order.
#[derive(Clone, Debug, Default)]
pub struct Dumped(pub Vec<(&'static str, Value)>);

/// A field's value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A count, an id, a size.
    Number(u64),
    /// A time, ns since the epoch.
    Time(i64),
    /// A byte offset, or bits.
    Address(u64),
    /// Permission and type bits.
    Octal(u64),
    /// A word, a name, or what is wrong.
    Text(String),
    /// Structures of one kind.
    List(Vec<Dumped>),
}

impl Dumped {
    fn number(&mut self, name: &'static str, value: impl Into<u64>) {
        self.0.push((name, Value::Number(value.into())));
    }

    fn time(&mut self, name: &'static str, ns: i64) {
        self.0.push((name, Value::Time(ns)));
    }

    fn address(&mut self, name: &'static str, value: u64) {
        self.0.push((name, Value::Address(value)));
    }

    fn text(&mut self, name: &'static str, value: impl std::fmt::Display) {
        self.0.push((name, Value::Text(value.to_string())));
    }

    fn list(&mut self, name: &'static str, value: Vec<Dumped>) {
        self.0.push((name, Value::List(value)));
    }
}

/// The part of a pool to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An inode's fields and attributes.
    Inode(u64),
    /// A directory's buckets and records.
    Directory(u64),
    /// The nodes and leaves of an inode's tree; of number 1, the inode table's.
    Tree(u64),
    /// A lane's log and intents; `None`: all lanes, in a line each.
    Lane(Option<u64>),
    /// The processes that the runtime area knows of.
    Slots,
}

impl Inspector {
    /// Shows a part of the pool.
    ///
    /// # Errors
    /// There is no such inode or lane; what leads to it is damaged.
    pub fn dump(&self, part: Part) -> Result<Dumped> {
        let pool = &self.pool;
        match part {
            Part::Inode(ino) => trees::inode(pool, ino),
            Part::Directory(ino) => trees::directory(pool, ino),
            Part::Tree(ino) => trees::tree(pool, ino),
            Part::Lane(Some(index)) => journal::lane(pool, index),
            Part::Lane(None) => Ok(journal::lanes(pool)),
            Part::Slots => Ok(journal::slots(pool)),
        }
    }
}
