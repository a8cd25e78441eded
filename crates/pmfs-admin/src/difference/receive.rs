//! Making a snapshot from a stream, beside the one that the stream is based on.

use super::nodes::{Node, nodes};
use super::record::{Header, Kept, Reader, Record, bad};
use crate::clone_tree::clone_below;
use crate::snapshot::{self, Snapshot};
use crate::staging::{INSIDE, Staging, fix};
use pmfs::types::mode;
use pmfs::{Error, Fs, Ino, NewNode, NoBase, Result, SetAttr};
use std::collections::HashMap;
use std::io::Read;

/// The result of receiving a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveReport {
    /// Its name.
    pub name: Vec<u8>,
    /// The name of its base in this pool.
    pub base: Option<Vec<u8>>,
    /// Names in it.
    pub names: u64,
    /// Bytes of content that the stream had.
    pub content: u64,
}

/// Reads a stream and makes its snapshot, of which the pool has the base. The snapshot is there
/// whole, or not at all. `watch` gets names done and names in all.
///
/// # Errors
/// [`Error::BadImage`]: the stream is damaged; [`Error::NoBase`], [`Error::Exists`],
/// [`Error::NoSpace`], [`Error::NoInodes`].
pub fn receive(
    fs: &Fs,
    input: &mut dyn Read,
    watch: &mut dyn FnMut(u64, u64),
) -> Result<ReceiveReport> {
    fs.pool().writable()?;
    let mut reader = Reader::new(input);
    let Record::Header(header) = reader.next()? else {
        return Err(bad("it does not begin as a saved snapshot", 0));
    };
    let base = header
        .base
        .as_ref()
        .map(|(id, name)| with_id(fs, *id, name));
    let base = base.transpose()?;
    let home = snapshot::place_for(fs, &header.name)?;
    let staging = snapshot::begin_staging(fs, home)?;
    let staged = staged(fs, &staging, &header, base.as_ref(), &mut reader, watch);
    let done = staged.and_then(|content| {
        let (from, to) = ((staging.ino, INSIDE), (home, &header.name[..]));
        fs.change(|pool| pool.move_snapshot(from, to))?;
        Ok(ReceiveReport {
            name: header.name.clone(),
            base: base.map(|base| base.name),
            names: header.nodes,
            content,
        })
    });
    staging.end(fs)?;
    done
}

fn with_id(fs: &Fs, id: [u8; 16], name: &[u8]) -> Result<Snapshot> {
    let mut all = snapshot::list(fs)?.into_iter();
    let found = all.find(|snapshot| snapshot.id == id);
    let name = String::from_utf8_lossy(name).into_owned();
    found.ok_or_else(|| Error::NoBase(Box::new(NoBase { name })))
}

/// Makes the tree in a staging directory; answers the bytes of content that the stream had.
fn staged(
    fs: &Fs,
    staging: &Staging,
    header: &Header,
    base: Option<&Snapshot>,
    reader: &mut Reader<'_>,
    watch: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let mut receiver = Receiver {
        fs,
        staging,
        base: match base {
            Some(base) => nodes(fs, base.ino)?,
            None => Vec::new(),
        },
        open: Vec::new(),
        file: None,
        groups: HashMap::new(),
        made: Vec::new(),
        names: 0,
        content: 0,
    };
    loop {
        let at = reader.at;
        let record = reader.next()?;
        if let Record::End(names) = record {
            receiver.end_file()?;
            let is_whole = receiver.open.is_empty() && receiver.names == names;
            if !is_whole || names != header.nodes || receiver.made.is_empty() {
                return Err(bad("names are missing", at));
            }
            break;
        }
        receiver.take(record, at)?;
        watch(receiver.names, header.nodes);
    }
    fix(fs, &receiver.made, &header.origin, header.id)?;
    Ok(receiver.content)
}

/// A file whose content comes.
struct Open {
    ino: Ino,
    kept: Kept,
    size: u64,
}

struct Receiver<'a> {
    fs: &'a Fs,
    staging: &'a Staging,
    base: Vec<Node>,
    /// Directories that are not at their end, and their attributes to be.
    open: Vec<(Ino, Kept)>,
    file: Option<Open>,
    groups: HashMap<u32, Ino>,
    /// All inodes, each before the directory that has it.
    made: Vec<Ino>,
    names: u64,
    content: u64,
}

impl Receiver<'_> {
    fn take(&mut self, record: Record, at: u64) -> Result<()> {
        match record {
            Record::Data(offset, bytes) => return self.data(offset, &bytes, at),
            Record::Same(node, from, to, len) => {
                return self.same(node as usize, from, to, len, at);
            }
            _ => self.end_file()?,
        }
        if let Record::Up = record {
            let (ino, kept) = self.open.pop().ok_or_else(|| misplaced(at))?;
            kept.apply(self.fs, ino)?;
            self.made.push(ino);
            return Ok(());
        }
        if self.open.is_empty() && self.names > 0 {
            return Err(misplaced(at));
        }
        self.name(record, at)
    }

    /// A record that makes a name, in the last directory.
    fn name(&mut self, record: Record, at: u64) -> Result<()> {
        let dir = match self.open.last() {
            Some((dir, _)) => *dir,
            None => self.staging.ino,
        };
        let fs = self.fs;
        self.names += 1;
        match record {
            Record::Directory(name, kept) => {
                let is_top = self.open.is_empty();
                let name = if is_top { INSIDE } else { &name[..] };
                let ino = fs.mkdir(dir, name, &node(&kept, 0o700))?.ino;
                self.open.push((ino, kept));
            }
            _ if self.open.is_empty() => return self.top(record, at),
            Record::File(name, kept, size, group) => {
                let ino = fs.create(dir, &name, &node(&kept, 0o600))?.ino;
                if group != 0 {
                    self.groups.insert(group, ino);
                }
                self.made.push(ino);
                self.file = Some(Open { ino, kept, size });
            }
            Record::Link(name, group) => {
                let ino = self.groups.get(&group).ok_or_else(|| misplaced(at))?;
                fs.link(*ino, dir, &name)?;
            }
            Record::Symlink(name, kept, target) => {
                let made = fs.symlink(dir, &name, &target, &node(&kept, kept.mode & 0o7777))?;
                self.made.push(made.ino);
                kept.apply(fs, made.ino)?;
            }
            Record::Special(name, kept, device) => {
                let kind = kept.mode & mode::S_IFMT;
                let kinds = [mode::S_IFCHR, mode::S_IFBLK, mode::S_IFIFO, mode::S_IFSOCK];
                if !kinds.contains(&kind) {
                    return Err(misplaced(at));
                }
                let made = fs.mknod(dir, &name, &node(&kept, 0o600), kind, device)?;
                self.made.push(made.ino);
                kept.apply(fs, made.ino)?;
            }
            Record::Unchanged(number) => {
                let name = self.of_base(number as usize, at)?.name.clone();
                self.unchanged(number as usize, dir, &name)?;
            }
            _ => return Err(misplaced(at)),
        }
        Ok(())
    }

    /// The top, if it is no directory that differs: all is as in the base.
    fn top(&mut self, record: Record, at: u64) -> Result<()> {
        match record {
            Record::Unchanged(0) if !self.base.is_empty() => {
                self.unchanged(0, self.staging.ino, INSIDE)
            }
            _ => Err(misplaced(at)),
        }
    }

    fn of_base(&self, number: usize, at: u64) -> Result<&Node> {
        self.base.get(number).ok_or_else(|| misplaced(at))
    }

    fn unchanged(&mut self, number: usize, dir: Ino, name: &[u8]) -> Result<()> {
        let node = &self.base[number];
        self.names += (node.end - number) as u64 - 1;
        let made = clone_below(self.fs, self.staging, &node.attr, (dir, name))?;
        self.made.extend(made);
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8], at: u64) -> Result<()> {
        let file = self.file.as_ref().ok_or_else(|| misplaced(at))?;
        let mut done = 0;
        while done < bytes.len() {
            let place = offset
                .checked_add(done as u64)
                .ok_or_else(|| misplaced(at))?;
            let written = self.fs.write(file.ino, place, &bytes[done..])?;
            if written == 0 {
                return Err(Error::NoSpace);
            }
            done += written;
        }
        self.content += done as u64;
        Ok(())
    }

    fn same(&mut self, number: usize, from: u64, to: u64, len: u64, at: u64) -> Result<()> {
        let node = self.of_base(number, at)?;
        let (source, size) = (node.attr.ino, node.attr.size);
        let is_there = from.checked_add(len).is_some_and(|end| end <= size);
        let file = self
            .file
            .as_ref()
            .filter(|_| node.is(mode::S_IFREG) && is_there);
        let file = file.ok_or_else(|| misplaced(at))?;
        let mut done = 0;
        while done < len {
            let place = to.checked_add(done).ok_or_else(|| misplaced(at))?;
            let left = len - done;
            let copied = self
                .fs
                .copy_range(source, from + done, file.ino, place, left)?;
            if copied == 0 {
                return Err(Error::NoSpace);
            }
            done += copied;
        }
        Ok(())
    }

    /// The last file has its content: it gets its size and attributes.
    fn end_file(&mut self) -> Result<()> {
        let Some(Open { ino, kept, size }) = self.file.take() else {
            return Ok(());
        };
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.fs.setattr(ino, &set)?;
        kept.apply(self.fs, ino)
    }
}

fn misplaced(at: u64) -> Error {
    bad("a record makes no sense there", at)
}

/// The inode to be. Its attributes come last.
fn node(kept: &Kept, bits: u32) -> NewNode {
    NewNode {
        mode: bits,
        uid: kept.uid,
        gid: kept.gid,
        umask: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Writer;
    use super::*;
    use crate::Admin;
    use crate::scratch::{NODE, Scratch};
    use pmfs::ROOT_INO;

    fn records(id: u8) -> Vec<Record> {
        let kept = |kind| Kept {
            mode: kind | 0o644,
            ..Kept::default()
        };
        let name = |name: &str| name.as_bytes().to_vec();
        vec![
            Record::Header(Header {
                base: Some(([id; 16], name("base"))),
                id: [2; 16],
                name: name("new"),
                origin: name("/"),
                nodes: 3,
            }),
            Record::Directory(name("d"), kept(mode::S_IFDIR)),
            Record::File(name("f"), kept(mode::S_IFREG), 10, 1),
            Record::Data(5, vec![1; 100]),
            Record::Data(u64::MAX - 50, vec![1; 100]),
            Record::Same(1, 0, 4096, 100),
            Record::Same(0, 0, 0, 0),
            Record::Same(7, u64::MAX, u64::MAX, u64::MAX),
            Record::Link(name("f"), 1),
            Record::Link(name("g"), 2),
            Record::Symlink(name("s"), kept(mode::S_IFLNK), Vec::new()),
            Record::Symlink(name("a/b"), kept(mode::S_IFLNK), name("t")),
            Record::Special(name("c"), kept(mode::S_IFREG), 0),
            Record::Special(name(".."), kept(mode::S_IFIFO), 0),
            Record::Unchanged(0),
            Record::Unchanged(1),
            Record::Unchanged(9),
            Record::Up,
            Record::End(3),
            Record::End(0),
        ]
    }

    /// Goal: records in any order, whose checks fit, end with an answer and leave nothing that is
    /// not whole. Method: random ones behind a header; the pool is checked at the end.
    #[test]
    fn records_in_any_order() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).unwrap().ino;
        let file = fs.create(dir, b"file", &NODE).unwrap().ino;
        fs.write(file, 0, &[3; 5000]).unwrap();
        fs.create_snapshot(dir, b"/dir", b"base").unwrap();
        let base = fs.snapshot(b"base").unwrap();
        let mut random = 20_261_129u64;
        let mut made = 0;
        for _ in 0..3000 {
            let mut pick = |count: usize| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 33) as usize % count
            };
            let mut all = records(0);
            if let Record::Header(header) = &mut all[0] {
                header.base = Some((base.id, base.name.clone()));
                header.nodes = pick(4) as u64;
            }
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            writer.put(&all[0]).unwrap();
            let begin = if pick(4) > 0 { 1 } else { pick(all.len()) };
            writer.put(&all[begin]).unwrap();
            for _ in 0..pick(8) {
                writer.put(&all[pick(all.len())]).unwrap();
            }
            writer.put(&Record::Up).unwrap();
            writer.put(&Record::End(pick(4) as u64)).unwrap();
            if receive(&fs, &mut &bytes[..], &mut |_, _| {}).is_ok() {
                made += 1;
                fs.delete_snapshot(b"new").unwrap();
            }
        }
        assert!(made > 10, "{made}");
        let names: Vec<Vec<u8>> = fs
            .snapshots()
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, [b"base".to_vec()]);
        drop(fs);
        assert!(scratch.is_sound());
    }
}
