//! The whole visible tree against the reference: names, attributes, data, symlinks, extended
//! attributes.

use crate::apply::World;
use crate::apply_inode::differ;
use crate::content::BLOCK;
use crate::operation::Operation;
use crate::reference::{Body, Node};
use pmfs::{Error, Fs, Ino};
use pmfs_admin::Admin;

/// Bytes that one read of a comparison takes.
const CHUNK: u64 = 1 << 20;

impl World<'_> {
    /// Compares everything, the nameless files too, and has the engine check itself.
    pub fn compare_all(&mut self, fs: &Fs) -> Result<(), String> {
        let began = self.pool.now_ns();
        let inos: Vec<Ino> = self.model.nodes.keys().copied().collect();
        for ino in inos {
            self.compare_inode(fs, ino)
                .map_err(|text| format!("comparing all, inode {ino}: {text}"))?;
        }
        let mut now = self.span();
        now.from = began;
        for ino in self.model.files.clone() {
            self.model.node(ino).atime.push(now);
        }
        self.check(fs)
    }

    /// Compares the data of the files that an operation names.
    pub fn compare_named(&mut self, fs: &Fs, operation: &Operation) -> Result<(), String> {
        let began = self.pool.now_ns();
        for ino in operation.inos().into_iter().flatten() {
            let Some(node) = self.model.nodes.get(&ino) else {
                continue;
            };
            compare_data(fs, ino, node).map_err(|text| format!("inode {ino}: {text}"))?;
            if self.model.files.contains(&ino) {
                let mut now = self.span();
                now.from = began;
                self.model.node(ino).atime.push(now);
            }
        }
        Ok(())
    }

    pub fn check(&self, fs: &Fs) -> Result<(), String> {
        if !self.alone {
            return Ok(());
        }
        let report = fs.check().map_err(|error| format!("check: {error}"))?;
        if report.is_clean() {
            return Ok(());
        }
        let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        Err(format!("check found:\n  {}", findings.join("\n  ")))
    }

    fn compare_inode(&mut self, fs: &Fs, ino: Ino) -> Result<(), String> {
        let said = |error: Error| error.to_string();
        let attr = fs.getattr(ino).map_err(said)?;
        self.model.compare(&attr)?;
        let node = &self.model.nodes[&ino];
        match &node.body {
            Body::Directory { .. } if node.names > 0 => {
                self.list(fs, ino, u64::MAX)?;
                let entries = self.model.entries(ino).expect("a directory");
                for (name, entry) in entries {
                    let found = fs.lookup(ino, name).map_err(said)?.ino;
                    if found != entry.ino {
                        return Err(format!("'{}' is inode {found}", name.escape_ascii()));
                    }
                }
            }
            Body::Symlink(target) if fs.readlink(ino).map_err(said)? != *target => {
                return Err("another target".into());
            }
            Body::File(_) => compare_data(fs, ino, node)?,
            _ => {}
        }
        let node = &self.model.nodes[&ino];
        let mut names = fs.listxattr(ino).map_err(said)?;
        names.sort();
        if !names.iter().eq(node.xattrs.keys()) {
            return Err(format!("{} attributes are listed", names.len()));
        }
        for (name, value) in &node.xattrs {
            if fs.getxattr(ino, name).map_err(said)? != *value {
                return Err(format!("attribute '{}' differs", name.escape_ascii()));
            }
        }
        Ok(())
    }
}

/// Reads what the engine shows as data and what the reference has as blocks; the rest both call a
/// hole.
pub fn compare_data(fs: &Fs, ino: Ino, node: &Node) -> Result<(), String> {
    let Body::File(content) = &node.body else {
        return Ok(());
    };
    let said = |error: Error| error.to_string();
    let mut buffer = vec![0; CHUNK as usize];
    let mut compare = |from: u64, to: u64| -> Result<(), String> {
        let mut at = from;
        while at < to {
            let len = (to - at).min(CHUNK) as usize;
            let got = fs.read(ino, at, &mut buffer[..len]).map_err(said)?;
            differ(&buffer[..got], &content.read(at, len), at)?;
            at += len as u64;
        }
        Ok(())
    };
    let mut at = 0;
    loop {
        let from = match fs.seek_data(ino, at) {
            Ok(from) => from,
            Err(Error::NoSuchOffset) => break,
            Err(error) => return Err(format!("seek_data: {error}")),
        };
        if !content.is_zero(at, from) {
            return Err(format!("data between {at} and {from} is shown as a hole"));
        }
        let to = fs.seek_hole(ino, from).map_err(said)?;
        compare(from, to)?;
        at = to;
    }
    if !content.is_zero(at, content.size) {
        return Err(format!("data after {at} is shown as a hole"));
    }
    // A read across the last bytes, and one across the end.
    let tail = content.size.saturating_sub(2 * BLOCK);
    compare(tail, content.size)
}
