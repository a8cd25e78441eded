//! Every directory that can be reached from the root.

use super::checker::Checker;
use super::fix::Fix;
use super::inodes::has_depth;
use super::pieces::Pieces;
use super::report::number;
use pmfs::parts::dir::bucket::{Bucket, Header, Record, fingerprint, kind_of};
use pmfs::parts::dir::{hash, is_name};
use pmfs::parts::inode::{Inode, is_kind};
use pmfs::parts::namespace::create::link_target;
use pmfs::parts::tree::visit::Piece;
use pmfs::types::{Ino, mode};
use pmfs_format::directory::{BUCKET_LINES, FINGERPRINT_MORE};
use pmfs_format::inode::{ROOT_INO, SIZE_MASK};
use pmfs_format::{BLOCK_SHIFT, InodeRaw};
use std::collections::{HashMap, HashSet};

/// Directories above another one that are looked at: damaged ones may be in a circle.
const DEPTH_MAX: usize = 65_536;

/// A directory being checked.
struct Scan<'a> {
    dir: Ino,
    /// The names that stay in it.
    names: HashMap<Vec<u8>, Ino>,
    /// Directories found, to be looked at next.
    next: &'a mut Vec<Ino>,
    /// The directory has to be filled anew.
    torn: bool,
    /// The bucket being read belongs to nothing else. A shared bucket may hold anything: it is only
    /// read, names whose hash matches are taken, and nothing in it is mended.
    own: bool,
}

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
        let pieces = Pieces::of(self.pool(), &inode.tree());
        let torn = self.inodes[dir as usize].torn;
        let mut scan = Scan {
            dir,
            names: HashMap::new(),
            next,
            torn,
            own: true,
        };
        let mut buckets = HashSet::new();
        for piece in pieces.leaves().filter(|p| buckets.insert(p.run.block)) {
            scan.own = !torn || self.torn_blocks.contains(&piece.run.block);
            self.bucket(piece, &mut scan);
        }
        let (torn, found) = (scan.torn, scan.names);
        self.step(found.len() as u64);
        if torn {
            let names = found.into_iter().collect();
            self.fixes.push(Fix::Refill { dir, names });
        } else if found.len() as u64 != inode.size() {
            let count = found.len() as u64;
            let text = format!(
                "directory {dir} says {} entries and has {count}",
                inode.size()
            );
            let fix = Fix::word(inode.off, inode.size_word & !SIZE_MASK | count);
            self.find_to_fix(number::ENTRY_COUNT, text, fix);
        }
    }

    fn bucket(&mut self, piece: &Piece, scan: &mut Scan<'_>) {
        let dir = scan.dir;
        let bucket = Bucket::at(piece.run.block << BLOCK_SHIFT);
        let header = bucket.header(self.pool());
        let mut expected = header;
        expected.0[1..].fill(0);
        let mut wanted = expected;
        for line in header.starts() {
            match bucket.record(self.pool(), line) {
                Err(_) if !scan.own => {}
                Err(error) => {
                    self.find(number::RECORD, format!("directory {dir}: {error}"));
                    expected.0[line] = header.0[line];
                    scan.torn = true;
                }
                Ok(record) => {
                    expected.put(line, record.lines, fingerprint(record.hash));
                    if self.record(piece, &record, scan) {
                        wanted.put(line, record.lines, fingerprint(record.hash));
                    }
                }
            }
        }
        if !scan.own {
            return;
        }
        if !has_depth(&header, piece) {
            let text = format!(
                "directory {dir}: the bucket at {:#x} has a wrong depth",
                bucket.off
            );
            self.find(number::RECORD, text);
            scan.torn = true;
        }
        if expected != header {
            self.wrong_lines(dir, &bucket, &expected, &header);
            scan.torn = true;
        } else if wanted != header {
            self.fixes.push(Fix::Words {
                off: bucket.off,
                words: wanted.words().to_vec(),
            });
        }
    }

    fn wrong_lines(&mut self, dir: Ino, bucket: &Bucket, expected: &Header, header: &Header) {
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

    /// Answers whether the record may stay.
    fn record(&mut self, piece: &Piece, record: &Record, scan: &mut Scan<'_>) -> bool {
        let dir = scan.dir;
        let Ok(name) = record.name(self.pool()) else {
            self.find(number::RECORD, format!("directory {dir}: unreadable name"));
            return false;
        };
        if !scan.own && hash(self.pool(), &name) != record.hash {
            return false;
        }
        let shown = String::from_utf8_lossy(&name).into_owned();
        let at = format!("directory {dir}, name '{shown}'");
        if !is_name(&name) {
            self.find(number::RECORD, format!("{at}: not a name"));
            return false;
        }
        let hash = hash(self.pool(), &name);
        if hash != record.hash || hash < piece.base || hash - piece.base >= piece.units {
            let text = format!("{at}: in the wrong place, lookup misses it");
            self.find(number::RECORD_PLACE, text);
            scan.torn = true;
        }
        if scan.names.contains_key(&name) {
            self.find(number::NAME_TWICE, format!("{at}: there twice"));
            return false;
        }
        let ino = Ino::from(record.ino);
        if !self
            .inodes
            .get(ino as usize)
            .is_some_and(|known| known.live)
        {
            let text = format!("{at}: inode {ino} is not in use");
            let revival = self.revival(ino, record.kind);
            let stays = revival.is_some();
            self.find(number::DEAD_NAME, text);
            self.fixes.extend(revival);
            if stays {
                scan.names.insert(name, ino);
            }
            return stays;
        }
        let stays = self.named(record, &at, scan);
        if stays {
            scan.names.insert(name, ino);
        }
        stays
    }

    /// A record's inode and the directory it stands in have to agree.
    fn named(&mut self, record: &Record, at: &str, scan: &mut Scan<'_>) -> bool {
        let (dir, ino) = (scan.dir, Ino::from(record.ino));
        let known = self.inodes[ino as usize];
        if scan.own {
            self.kinds(record, at);
        }
        if self.inodes[dir as usize].of_snapshot != known.of_snapshot {
            self.snapshots(dir, ino, at);
        }
        if known.kind != mode::S_IFDIR {
            self.inodes[ino as usize].named += 1;
            self.inodes[ino as usize].reachable = true;
            return true;
        }
        if known.reachable {
            self.find(number::LINKS, format!("{at}: a directory with two names"));
            return false;
        }
        self.inodes[ino as usize].named += 2;
        self.inodes[ino as usize].reachable = true;
        if known.parent != dir
            && let Ok(inode) = Inode::load(self.pool(), ino)
        {
            let text = format!("{at}: its '..' is {}", known.parent);
            let fix = Fix::word(InodeRaw::parent.of(inode.off), dir);
            self.find_to_fix(number::PARENT, text, fix);
        }
        self.inodes[dir as usize].named += 1;
        scan.next.push(ino);
        true
    }

    /// An inode in a directory of a snapshot is of it, too; one that is of a snapshot is below the
    /// directory of all snapshots.
    fn snapshots(&mut self, dir: Ino, ino: Ino, at: &str) {
        let is_of_one = self.inodes[dir as usize].of_snapshot;
        if !is_of_one && self.may_have_snapshots(dir) {
            return;
        }
        self.inodes[ino as usize].of_snapshot = is_of_one;
        if let Ok(inode) = Inode::load(self.pool(), ino) {
            let text = match is_of_one {
                true => format!("{at}: it can be changed, and its directory is of a snapshot"),
                false => format!("{at}: it can't be changed, and is of no snapshot"),
            };
            let mut hot = inode.hot();
            hot.set_of_snapshot(is_of_one);
            let fix = Fix::word(InodeRaw::links.of(inode.off), hot.links_word());
            self.find_to_fix(number::SNAPSHOT, text, fix);
        }
    }

    /// Returns whether a directory is that of all snapshots, or below it.
    fn may_have_snapshots(&self, dir: Ino) -> bool {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            let Some(known) = self.inodes.get(at as usize) else {
                return false;
            };
            if known.has_snapshots || at == ROOT_INO {
                return known.has_snapshots;
            }
            at = known.parent;
        }
        false
    }

    /// The type that the name tells against the inode's own. The name is believed where the inode
    /// can't be what it says.
    fn kinds(&mut self, record: &Record, at: &str) {
        let ino = Ino::from(record.ino);
        let known = self.inodes[ino as usize];
        if kind_of(known.kind) == record.kind {
            return;
        }
        let Ok(inode) = Inode::load(self.pool(), ino) else {
            return;
        };
        let told = u32::from(record.kind) << 12;
        let doubtful = known.kindless
            || !inode.has_tree() && inode.root != 0
            || inode.kind() == mode::S_IFLNK && link_target(self.pool(), &inode).is_err();
        let fix = if doubtful && is_kind(told) {
            self.inodes[ino as usize].kindless = false;
            self.inodes[ino as usize].misfit = false;
            let word = u64::from(inode.mode & 0xfff | told) | u64::from(inode.generation) << 32;
            Fix::word(InodeRaw::mode.of(inode.off), word)
        } else {
            Fix::word(record.off, record.renamed_to(ino, kind_of(known.kind)))
        };
        let text = format!("{at}: its type is not its inode's");
        self.find_to_fix(number::KIND, text, fix);
    }
}
