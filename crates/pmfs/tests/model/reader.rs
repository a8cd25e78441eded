//! Directory readers: whole listings in batches, and readers that stand still while the directory
//! changes.

use crate::apply::{Need, World};
use pmfs::{Fs, Ino};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Somebody who reads a directory bit by bit.
#[derive(Default)]
pub struct Reader {
    cookie: u64,
    /// The operation before which it began.
    began: u64,
    /// The number of times that it has seen each name.
    seen: BTreeMap<Vec<u8>, u32>,
}

/// One entry as it was shown.
struct Shown {
    name: Vec<u8>,
    ino: Ino,
    kind: u32,
    cookie: u64,
}

/// Up to `batch` entries after `cookie`.
fn batch_of(fs: &Fs, dir: Ino, cookie: u64, batch: u64) -> pmfs::Result<Vec<Shown>> {
    let mut shown = Vec::new();
    fs.readdir(dir, cookie, &mut |entry| {
        if shown.len() as u64 == batch {
            return false;
        }
        shown.push(Shown {
            name: entry.name.to_vec(),
            ino: entry.ino,
            kind: entry.kind,
            cookie: entry.cookie,
        });
        true
    })?;
    Ok(shown)
}

/// Names, with inode number and kind.
type Listing = BTreeMap<Vec<u8>, (Ino, u32)>;

impl World<'_> {
    /// The directory as it is now, by name; the dots must be there and are left out.
    pub fn listing(&self, fs: &Fs, dir: Ino, batch: u64) -> pmfs::Result<Result<Listing, String>> {
        let mut all = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let shown = batch_of(fs, dir, cookie, batch)?;
            let Some(last) = shown.last() else { break };
            cookie = last.cookie;
            for entry in shown {
                let text = entry.name.escape_ascii().to_string();
                if all.insert(entry.name, (entry.ino, entry.kind)).is_some() {
                    return Ok(Err(format!("'{text}' is listed twice")));
                }
            }
        }
        let dots = [all.remove(b".".as_slice()), all.remove(b"..".as_slice())];
        if dots[0].is_none_or(|(ino, _)| ino != dir) || dots[1].is_none() {
            return Ok(Err(format!("'.' and '..' are listed as {dots:?}")));
        }
        Ok(Ok(all))
    }

    /// Compares a whole listing with the reference.
    pub fn list(&mut self, fs: &Fs, dir: Ino, batch: u64) -> Result<(), String> {
        let answer = self.listing(fs, dir, batch.max(1));
        let verdict = match self.model.live(dir) {
            Ok(node) if node.is_dir() && node.names == 0 => Err(Errno::NOENT),
            _ => self.model.entries(dir).map(drop),
        };
        let Some(listed) = self.judge(fs, "readdir", verdict, answer, Need::Nothing)? else {
            return Ok(());
        };
        let listed = listed?;
        let now = self.span();
        self.model.node(dir).atime.push(now);
        let entries = self.model.entries(dir).expect("judged");
        for (name, entry) in entries {
            let should = (entry.ino, self.model.nodes[&entry.ino].kind());
            match listed.get(name) {
                Some(is) if *is == should => {}
                is => {
                    let name = name.escape_ascii();
                    return Err(format!("'{name}' is listed as {is:?}, not {should:?}"));
                }
            }
        }
        if let Some(name) = listed.keys().find(|name| !entries.contains_key(*name)) {
            return Err(format!("'{}' is listed", name.escape_ascii()));
        }
        Ok(())
    }

    /// Lets the directory's reader go on by a batch. At its end: every name that existed throughout
    /// was seen exactly once.
    pub fn read_on(&mut self, fs: &Fs, dir: Ino, batch: u64) -> Result<(), String> {
        let operation = self.model.operation;
        let gone = match self.model.live(dir) {
            Ok(node) => node.names == 0 || !node.is_dir(),
            Err(_) => true,
        };
        if gone {
            self.readers.remove(&dir);
            return self.list(fs, dir, batch);
        }
        let mut reader = self.readers.remove(&dir).unwrap_or(Reader {
            began: operation,
            ..Reader::default()
        });
        let batch = batch.max(1);
        let shown =
            batch_of(fs, dir, reader.cookie, batch).map_err(|error| format!("readdir: {error}"))?;
        self.coverage.count("readon", "ok");
        let now = self.span();
        self.model.node(dir).atime.push(now);
        let entries = self.model.entries(dir).expect("it is a directory");
        let ended = shown.is_empty();
        for entry in shown {
            reader.cookie = entry.cookie;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let text = entry.name.escape_ascii().to_string();
            let Some(known) = entries.get(&entry.name) else {
                return Err(format!("'{text}' is listed, but is not there"));
            };
            if known.ino != entry.ino || self.model.nodes[&known.ino].kind() != entry.kind {
                return Err(format!("'{text}' is listed as inode {}", entry.ino));
            }
            *reader.seen.entry(entry.name).or_default() += 1;
        }
        if !ended {
            self.readers.insert(dir, reader);
            return Ok(());
        }
        for (name, entry) in entries {
            let seen = reader.seen.get(name).copied().unwrap_or(0);
            if entry.born < reader.began && seen != 1 {
                let name = name.escape_ascii();
                return Err(format!(
                    "'{name}', there throughout, was listed {seen} times"
                ));
            }
        }
        self.coverage
            .count("readon", "a directory read while it changed");
        Ok(())
    }
}
