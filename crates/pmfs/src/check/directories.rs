//! Every directory that can be reached from the root.

use super::inodes::Pieces;
use super::{Checker, number};
use crate::dir::bucket::{Bucket, Record, fingerprint, kind_of};
use crate::dir::hash;
use crate::inode::Inode;
use crate::tree::visit::Piece;
use crate::types::{Ino, mode};
use pmfs_format::BLOCK_SHIFT;
use pmfs_format::directory::{BUCKET_LINES, FINGERPRINT_MORE};
use pmfs_format::inode::ROOT_INO;
use std::collections::HashSet;

impl Checker<'_> {
    /// Follows the names from the root.
    pub(super) fn directories(&mut self) {
        let mut next = vec![ROOT_INO];
        if let Some(root) = self.inodes.get_mut(ROOT_INO as usize) {
            root.named = 2;
            root.reachable = true;
        }
        while let Some(dir) = next.pop() {
            if self.is_directory(dir) {
                self.directory(dir, &mut next);
            } else {
                self.find(number::INODE, format!("inode {dir} is no directory"));
            }
        }
    }

    fn directory(&mut self, dir: Ino, next: &mut Vec<Ino>) {
        self.report.directories += 1;
        let Ok(inode) = Inode::load(self.pool(), dir) else {
            return;
        };
        let mut pieces = Pieces::new();
        inode.tree().visit(self.pool(), &mut pieces);
        let mut names = HashSet::new();
        for piece in pieces.leaves {
            self.bucket(dir, &piece, &mut names, next);
        }
        if names.len() as u64 != inode.size() {
            let text = format!(
                "directory {dir} says {} entries and has {}",
                inode.size(),
                names.len()
            );
            self.find(number::ENTRY_COUNT, text);
        }
    }

    fn bucket(
        &mut self,
        dir: Ino,
        piece: &Piece,
        names: &mut HashSet<Vec<u8>>,
        next: &mut Vec<Ino>,
    ) {
        let bucket = Bucket::at(piece.run.block << BLOCK_SHIFT);
        let header = bucket.header(self.pool());
        let mut expected = header;
        expected.0[1..].fill(0);
        for line in header.starts() {
            match bucket.record(self.pool(), line) {
                Err(error) => {
                    self.find(number::RECORD, format!("directory {dir}: {error}"));
                    expected.0[line] = header.0[line];
                }
                Ok(record) => {
                    expected.put(line, record.lines, fingerprint(record.hash));
                    self.record(dir, piece, &record, names, next);
                }
            }
        }
        if expected != header {
            let lines: Vec<usize> = (1..BUCKET_LINES)
                .filter(|&line| expected.0[line] != header.0[line])
                .collect();
            let stray = lines.iter().all(|&line| header.0[line] == FINGERPRINT_MORE);
            let what = if stray {
                "lines of no record"
            } else {
                "wrong fingerprints"
            };
            let off = bucket.off;
            let text = format!("directory {dir}: {what} in the bucket at {off:#x}: {lines:?}");
            self.find(number::RECORD, text);
        }
    }

    fn record(
        &mut self,
        dir: Ino,
        piece: &Piece,
        record: &Record,
        names: &mut HashSet<Vec<u8>>,
        next: &mut Vec<Ino>,
    ) {
        let Ok(name) = record.name(self.pool()) else {
            return self.find(number::RECORD, format!("directory {dir}: unreadable name"));
        };
        let shown = String::from_utf8_lossy(&name).into_owned();
        let at = format!("directory {dir}, name '{shown}'");
        if name.contains(&0) || name.contains(&b'/') {
            self.find(number::RECORD, format!("{at}: not a name"));
        }
        let hash = hash(self.pool(), &name);
        if hash != record.hash || hash < piece.base || hash - piece.base >= piece.units {
            self.find(
                number::RECORD_PLACE,
                format!("{at}: in the wrong place, lookup misses it"),
            );
        }
        if !names.insert(name) {
            self.find(number::NAME_TWICE, format!("{at}: there twice"));
        }
        let ino = Ino::from(record.ino);
        let Some(known) = self.inodes.get_mut(ino as usize).filter(|known| known.live) else {
            return self.find(
                number::DEAD_NAME,
                format!("{at}: inode {ino} is not in use"),
            );
        };
        let is_dir = known.kind == mode::S_IFDIR;
        known.named += if is_dir { 2 } else { 1 };
        let (kind, parent, seen) = (known.kind, known.parent, known.reachable);
        known.reachable = true;
        if kind_of(kind) != record.kind {
            self.find(number::KIND, format!("{at}: its type is not its inode's"));
        }
        if !is_dir {
            return;
        }
        if seen {
            return self.find(number::LINKS, format!("{at}: a directory with two names"));
        }
        if parent != dir {
            let text = format!("{at}: its '..' is {parent}");
            self.find(number::PARENT, text);
        }
        self.inodes[dir as usize].named += 1;
        next.push(ino);
    }
}
