//! Lines that more than one process writes: what keeps them from working side by side. Two
//! instances do the same kind of call in turns, on things of their own or on the same ones, and
//! each line that both have stored to is named.

use crate::files::pool;
use crate::trace::Place;
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{DataMode, Fs, Ino, OpenOptions, ROOT_INO, Result};
use pmfs_admin::Admin;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Calls of each instance.
const ROUNDS: u64 = 64;
/// Bytes of the pool: room for a lane, a group and a part of the tables for each.
const POOL_BYTES: u64 = 1 << 30;

/// Stores to a line, by the first instance and by the second.
type Stores = BTreeMap<u64, [u64; 2]>;

struct Watcher {
    who: usize,
    stores: Arc<Mutex<Stores>>,
}

impl Observer for Watcher {
    fn store(&self, _: &Pmem, off: u64, bytes: &[u8], _: StoreKind, _: Place) -> Verdict {
        let mut stores = self.stores.lock().expect("nobody panics with it");
        for line in off / 64..=(off + bytes.len() as u64 - 1) / 64 {
            stores.entry(line).or_default()[self.who] += 1;
        }
        Verdict::Do
    }

    fn flush(&self, _: &Pmem, _: u64, _: (u64, u64), _: Place) {
        // Only stores make a line move.
    }

    fn fence(&self, _: &Pmem, _: Place) {
        // Nor this.
    }
}

/// A scene that two instances play in turns.
pub struct Scene {
    /// The scene in words.
    pub name: &'static str,
    /// A call of an instance, in its own directory and file.
    call: fn(&Fs, &Own, u64) -> Result<()>,
    /// Says whether both have the same ones.
    shares: bool,
}

struct Own {
    dir: Ino,
    file: Ino,
}

fn write(fs: &Fs, own: &Own, round: u64) -> Result<()> {
    fs.write(own.file, round % 16 * 4096, &[round as u8; 4096])
        .map(drop)
}

fn append(fs: &Fs, own: &Own, round: u64) -> Result<()> {
    fs.append(own.file, &[round as u8; 100]).map(drop)
}

fn names(fs: &Fs, own: &Own, round: u64) -> Result<()> {
    let name = format!("name-{round}");
    fs.create(own.dir, name.as_bytes(), &pool::NODE)?;
    fs.unlink(own.dir, name.as_bytes())
}

/// All of them.
pub const SCENES: [Scene; 6] = [
    Scene {
        name: "write 4 KiB, own files",
        call: write,
        shares: false,
    },
    Scene {
        name: "write 4 KiB, one file",
        call: write,
        shares: true,
    },
    Scene {
        name: "append 100 bytes, own files",
        call: append,
        shares: false,
    },
    Scene {
        name: "append 100 bytes, one file",
        call: append,
        shares: true,
    },
    Scene {
        name: "create + unlink, own directories",
        call: names,
        shares: false,
    },
    Scene {
        name: "create + unlink, one directory",
        call: names,
        shares: true,
    },
];

/// A line that both have stored to.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The name of what stands there.
    pub name: String,
    /// Stores a call, of the first instance and of the second.
    pub stores: [f64; 2],
}

impl Scene {
    /// Plays it on a pool made in `dir`; answers the lines that both wrote, and how many either
    /// did.
    ///
    /// # Errors
    /// Those of any call.
    pub fn play(&self, dir: &Path) -> Result<(Vec<Shared>, u64)> {
        let path = dir.join("pool");
        let mut mkfs = pool::mkfs_options(POOL_BYTES);
        (mkfs.force, mkfs.sparse) = (true, true);
        pmfs_admin::mkfs(&path, &mkfs)?;
        let stores = Arc::new(Mutex::new(Stores::new()));
        let open = |who| {
            let watcher = Watcher {
                who,
                stores: stores.clone(),
            };
            let options = OpenOptions {
                observer: Some(Arc::new(watcher)),
                ..pool::open_options(DataMode::Atomic, 1000)
            };
            Fs::open(&path, &options)
        };
        let instances = [open(0)?, open(1)?];
        let mut own = Vec::new();
        for (at, fs) in instances.iter().enumerate() {
            let number = if self.shares { 0 } else { at };
            let (dir, file) = (format!("dir-{number}"), format!("file-{number}"));
            if number == at {
                fs.mkdir(ROOT_INO, dir.as_bytes(), &pool::NODE)?;
                let made = fs.create(ROOT_INO, file.as_bytes(), &pool::NODE)?;
                fs.write(made.ino, 0, &[1; 16 * 4096])?;
            }
            own.push(Own {
                dir: fs.lookup(ROOT_INO, dir.as_bytes())?.ino,
                file: fs.lookup(ROOT_INO, file.as_bytes())?.ino,
            });
        }
        for round in 0..ROUNDS {
            if round == ROUNDS / 2 {
                // The first half has brought each its lane and its blocks.
                stores.lock().expect("nobody panics with it").clear();
            }
            for (at, fs) in instances.iter().enumerate() {
                // Each has a lane of its own, as threads of two processes would.
                pmfs::prefer_lane(at as u64 * 3 + 1);
                (self.call)(fs, &own[at], round * 2 + at as u64)?;
            }
        }
        let seen = std::mem::take(&mut *stores.lock().expect("nobody panics with it"));
        let all = seen.len() as u64;
        let both = seen.into_iter().filter(|(_, by)| by[0] > 0 && by[1] > 0);
        let calls = (ROUNDS / 2) as f64;
        let found = both.map(|(line, by)| Shared {
            name: instances[0].name_of(line * 64),
            stores: by.map(|stores| stores as f64 / calls),
        });
        let found = found.collect();
        let [first, second] = instances;
        first.close()?;
        second.close()?;
        Ok((found, all))
    }
}
