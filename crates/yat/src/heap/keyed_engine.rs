//! An engine of either kind, as workloads on keys use it.

use pmkv::{Change, Error, Expect, Expiry, Hash, Kind, OnDamage, Scrubs, Shape, Tree, TreeShape};
use pmlib::Heap;
use std::fmt;
use std::time::Duration;

/// Entries of an engine.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// How an engine is cut, and so its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A hash engine.
    Hash(Shape),
    /// A tree.
    Tree(TreeShape),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Hash(shape) => write!(f, "kv of {}+{} lines", shape.lines, shape.stash),
            Cut::Tree(shape) => {
                let leaves = shape.groups * shape.leaves;
                write!(f, "tree of {leaves} leaves of {} lines", shape.lines)
            }
        }
    }
}

/// An engine that is open.
pub enum Engine<'h> {
    /// A hash engine.
    Hash(Hash<'h>),
    /// A tree.
    Tree(Tree<'h>),
}

macro_rules! either {
    ($engine:expr, $kv:ident => $call:expr) => {
        match $engine {
            Engine::Hash($kv) => $call,
            Engine::Tree($kv) => $call,
        }
    };
}

impl<'h> Engine<'h> {
    /// Opens it; made, if it is missing.
    pub fn open(heap: &'h Heap, cut: Cut) -> Result<Engine<'h>, Error> {
        Ok(match cut {
            Cut::Hash(shape) => Engine::Hash(Hash::open_as(heap, "kv", shape)?),
            Cut::Tree(shape) => Engine::Tree(Tree::open_as(heap, "kv", shape)?),
        })
    }

    /// Opens the one that is there.
    pub fn existing(heap: &'h Heap) -> Result<Engine<'h>, Error> {
        Ok(match Kind::of_engine(heap, "kv")? {
            Some(Kind::Tree) => Engine::Tree(Tree::open(heap, "kv")?),
            _ => Engine::Hash(Hash::open(heap, "kv")?),
        })
    }

    /// Has a key have a value.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        either!(self, kv => kv.put(key, value))
    }

    /// The same, if the key is as expected; whether it was.
    pub fn put_if(&self, key: &[u8], expected: Expect<'_>, value: &[u8]) -> Result<bool, Error> {
        either!(self, kv => kv.put_if(key, expected, value))
    }

    /// Has a key have a value up to a moment.
    pub fn put_until(&self, key: &[u8], value: &[u8], expires: u64) -> Result<(), Error> {
        either!(self, kv => kv.put_until(key, value, expires))
    }

    /// When a key expires; `None`: it is not there.
    pub fn expiry(&self, key: &[u8]) -> Result<Option<Expiry>, Error> {
        either!(self, kv => kv.expiry(key))
    }

    /// Takes keys away that have expired; how many.
    pub fn purge_expired(&self) -> Result<u64, Error> {
        either!(self, kv => kv.purge_expired())
    }

    /// Takes a key away; whether it was there.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        either!(self, kv => kv.delete(key))
    }

    /// Does several changes at once.
    pub fn batch(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        either!(self, kv => kv.batch(changes))
    }

    /// Does something while a session has a key's value, for as long as it takes.
    pub fn beside(
        &self,
        key: &[u8],
        body: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let reader = either!(self, kv => kv.reader_for(Duration::MAX))?;
        let value = reader.get(key)?;
        let before = value.map(|value| value.to_vec()).transpose()?;
        body()?;
        let after = value.map(|value| value.to_vec()).transpose()?;
        assert_eq!(before, after, "a value that a session has was changed");
        Ok(())
    }

    /// All entries of a snapshot that is taken now, in the order of their keys.
    pub fn in_snapshot(&self) -> Result<Entries, Error> {
        let snapshot = either!(self, kv => kv.snapshot())?;
        let mut entries: Entries = snapshot.iter().collect::<Result<_, _>>()?;
        entries.sort();
        Ok(entries)
    }

    /// Does something while a snapshot is open: that has what was there before.
    pub fn in_sight(&self, body: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut before = self.all()?;
        before.sort();
        let snapshot = either!(self, kv => kv.snapshot())?;
        body()?;
        let mut after: Entries = snapshot.iter().collect::<Result<_, _>>()?;
        after.sort();
        assert_eq!(before, after, "a snapshot was changed");
        for (key, value) in before {
            assert_eq!(snapshot.get(&key)?, Some(value), "a snapshot was changed");
        }
        Ok(())
    }

    /// Gives room back that is not needed.
    pub fn compact(&self) -> Result<u64, Error> {
        either!(self, kv => kv.compact())
    }

    /// Verifies all records: none is damaged.
    pub fn scrub(&self) -> Result<(), String> {
        let steps: Scrubs<'_> = either!(self, kv => Box::new(kv.scrub(OnDamage::Keep)));
        for step in steps {
            let step = step.map_err(|error| error.to_string())?;
            if !step.damaged.is_empty() {
                return Err(format!("damaged records: {:?}", step.damaged));
            }
        }
        Ok(())
    }

    /// Takes all keys away; how many.
    pub fn clear(&self) -> Result<u64, Error> {
        either!(self, kv => kv.clear())
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        either!(self, kv => kv.get(key))
    }

    /// How many keys there are.
    pub fn count(&self) -> Result<u64, Error> {
        either!(self, kv => kv.count())
    }

    /// All entries, by a walk.
    pub fn all(&self) -> Result<Entries, Error> {
        either!(self, kv => kv.iter().collect())
    }

    /// Whether a walk's entries are in the order that the engine promises, and a walk from behind
    /// has the same.
    pub fn is_order_kept(&self, walked: &Entries) -> Result<bool, Error> {
        let Engine::Tree(tree) = self else {
            return Ok(true);
        };
        let back: Result<Entries, Error> = tree.iter().rev().collect();
        let is_same = back?.iter().rev().eq(walked);
        Ok(is_same && walked.is_sorted_by(|one, other| one.0 < other.0))
    }
}
