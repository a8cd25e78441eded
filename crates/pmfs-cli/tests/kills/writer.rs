//! One writer: a thread that calls, and remembers what returned.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::{Errno, write};

use crate::model::{
    Change, DIR_MODE, FILE_MODE, Found, Kind, Model, Node, Seen, content, difference, view_of,
};
use crate::random::Random;

const SHARED_DIR: &str = "shared";
const SHARED_LOG: &str = "shared.log";
const RECORD_BYTES: usize = 40;
const NAMES_MAX: usize = 40;
const FILE_BYTES_MAX: usize = 256 << 10;

/// A call, of those that change something. Each is one request to the daemon.
#[derive(Clone, Debug)]
enum Op {
    Own(Change),
    /// A record of this writer's at the end of the log that all writers share: its number.
    Record(u64),
}

pub struct Writer {
    name: String,
    random: Random,
    model: Model,
    in_flight: Option<Op>,
    /// The answer of the call in flight, once the daemon was dead.
    failed: Option<io::Error>,
    /// Records in the shared log.
    records: u64,
    /// Calls that returned, ever.
    pub returned: u64,
    open: BTreeMap<u64, File>,
    log: Option<File>,
    /// Files without a name, held open so that recovery has something to reclaim.
    unlinked: Vec<File>,
}

/// The directories of all writers and what they share.
pub fn lay_out(mount: &Path, writers: &[Writer]) {
    for writer in writers {
        fs::create_dir(mount.join(&writer.name)).unwrap();
    }
    fs::create_dir(mount.join(SHARED_DIR)).unwrap();
    File::create(mount.join(SHARED_LOG)).unwrap();
}

impl Writer {
    pub fn new(number: usize, seed: u64) -> Writer {
        Writer {
            name: format!("w{number}"),
            random: Random::new(seed),
            model: Model::default(),
            in_flight: None,
            failed: None,
            records: 0,
            returned: 0,
            open: BTreeMap::new(),
            log: None,
            unlinked: Vec::new(),
        }
    }

    /// Calls until the daemon is gone.
    pub fn work(&mut self, mount: &Path, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let Some(op) = self.choose() else { continue };
            self.in_flight = Some(op);
            match self.call(mount) {
                Ok(()) => {
                    let op = self.in_flight.take().expect("just put there");
                    self.returned += 1;
                    self.conclude(&op);
                }
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        self.open.clear();
        self.unlinked.clear();
        self.log = None;
    }

    /// The call has taken effect.
    fn conclude(&mut self, op: &Op) {
        match op {
            Op::Record(_) => self.records += 1,
            Op::Own(change) => self.model.apply(change),
        }
        // A file whose last name went may be kept open, as programs do with temporary files.
        let nodes = &self.model.nodes;
        let gone: Vec<u64> = (self.open.keys().copied())
            .filter(|number| !nodes.contains_key(number))
            .collect();
        for number in gone {
            let file = self.open.remove(&number).expect("just listed");
            if self.unlinked.len() < 4 && self.random.below(2) == 0 {
                self.unlinked.push(file);
            }
        }
        if self.unlinked.len() == 4 {
            self.unlinked.clear();
        }
    }

    fn choose(&mut self) -> Option<Op> {
        let names: Vec<String> = self.model.names.keys().cloned().collect();
        let files = self.paths(|node| node.kind == Kind::File);
        let dirs = self.paths(|node| node.kind == Kind::Dir);
        let dice = self.random.below(100);
        if names.len() > NAMES_MAX || (names.len() > 20 && dice < 12) {
            return self.removal(&names).map(Op::Own);
        }
        if (45..55).contains(&dice) {
            return Some(Op::Record(self.records));
        }
        self.change(dice, &files, &dirs).map(Op::Own)
    }

    fn change(&mut self, dice: u64, files: &[String], dirs: &[String]) -> Option<Change> {
        match dice {
            0..12 => Some(Change::Create {
                path: self.fresh_name(dirs),
            }),
            12..17 => Some(Change::Mkdir {
                path: self.fresh_name(dirs),
            }),
            17..20 => Some(Change::Symlink {
                target: format!("to/{dice}/{}", self.random.below(1000)),
                path: self.fresh_name(dirs),
            }),
            20..30 => self.rename(files, dirs),
            30..33 => Some(Change::Exchange {
                one: self.random.pick(files)?.clone(),
                other: self.random.pick(files)?.clone(),
            })
            .filter(|change| !matches!(change, Change::Exchange { one, other } if one == other)),
            33..37 => Some(Change::Link {
                from: self.random.pick(files)?.clone(),
                to: self.fresh_name(dirs),
            }),
            37..40 => Some(Change::Chmod {
                path: self.random.pick(files)?.clone(),
                mode: 0o600 | self.random.below(64) as u32,
            }),
            40..45 => Some(Change::Truncate {
                path: self.random.pick(files)?.clone(),
                len: self.random.below(FILE_BYTES_MAX as u64) as usize,
            }),
            _ => self.data(files, dice),
        }
    }

    fn data(&mut self, files: &[String], dice: u64) -> Option<Change> {
        let path = self.random.pick(files)?.clone();
        let len = self.model.node(&path).content.len();
        let blocks = (len / 4096) as u64;
        match dice {
            55..70 if len < FILE_BYTES_MAX => Some(Change::Append {
                path,
                len: self.random.below(9000) as usize + 1,
                fill: self.random.next(),
            }),
            // Whole blocks, as databases do.
            70..90 if blocks > 0 => Some(Change::Write {
                path,
                at: self.random.below(blocks) as usize * 4096,
                len: 4096,
                fill: self.random.next(),
            }),
            _ => Some(Change::Write {
                path,
                at: self.random.below(len.min(FILE_BYTES_MAX) as u64 + 1) as usize,
                len: self.random.below(40_000) as usize + 1,
                fill: self.random.next(),
            }),
        }
    }

    fn removal(&mut self, names: &[String]) -> Option<Change> {
        let path = self.random.pick(names)?.clone();
        let is_dir = self.model.node(&path).kind == Kind::Dir;
        if !is_dir {
            return Some(Change::Unlink { path });
        }
        let below = format!("{path}/");
        let empty = !names.iter().any(|name| name.starts_with(&below));
        empty.then_some(Change::Rmdir { path })
    }

    fn rename(&mut self, files: &[String], dirs: &[String]) -> Option<Change> {
        let from = self.random.pick(files)?.clone();
        let over = self.random.below(2) == 0;
        let to = if over {
            self.random.pick(files)?.clone()
        } else {
            self.fresh_name(dirs)
        };
        (from != to).then_some(Change::Rename { from, to })
    }

    fn paths(&self, wanted: impl Fn(&Node) -> bool) -> Vec<String> {
        let names = self.model.names.iter();
        names
            .filter(|(_, number)| wanted(&self.model.nodes[number]))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// In the writer's directory, below one of its own, or in the one that all share.
    fn fresh_name(&mut self, dirs: &[String]) -> String {
        loop {
            let number = self.random.below(100_000);
            let path = match self.random.below(3) {
                0 => format!("{SHARED_DIR}/{}-{number}", self.name),
                1 if !dirs.is_empty() => {
                    let dir = self.random.pick(dirs).expect("not empty");
                    format!("{dir}/{number}")
                }
                _ => format!("{}/{number}", self.name),
            };
            if !self.model.names.contains_key(&path) {
                return path;
            }
        }
    }

    fn call(&mut self, mount: &Path) -> io::Result<()> {
        let op = self.in_flight.clone().expect("a call to make");
        let change = match op {
            Op::Own(change) => change,
            Op::Record(number) => return self.record(mount, number),
        };
        let at = |path: &String| mount.join(path);
        match &change {
            Change::Create { path } => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true);
                options.mode(FILE_MODE).open(at(path)).map(drop)
            }
            Change::Write {
                path,
                at: offset,
                len,
                fill,
            } => self.write(mount, path, *offset, &content(*fill, *len)),
            Change::Append { path, len, fill } => {
                let end = self.model.node(path).content.len();
                self.write(mount, path, end, &content(*fill, *len))
            }
            Change::Truncate { path, len } => self.file(mount, path)?.set_len(*len as u64),
            Change::Rename { from, to } => fs::rename(at(from), at(to)),
            Change::Exchange { one, other } => Ok(renameat_with(
                CWD,
                at(one),
                CWD,
                at(other),
                RenameFlags::EXCHANGE,
            )?),
            Change::Link { from, to } => fs::hard_link(at(from), at(to)),
            Change::Symlink { target, path } => symlink(target, at(path)),
            Change::Unlink { path } => fs::remove_file(at(path)),
            Change::Mkdir { path } => DirBuilder::new().mode(DIR_MODE).create(at(path)),
            Change::Rmdir { path } => fs::remove_dir(at(path)),
            Change::Chmod { path, mode } => {
                fs::set_permissions(at(path), Permissions::from_mode(*mode))
            }
            Change::Punch { .. } | Change::SetXattr { .. } | Change::RemoveXattr { .. } => {
                unreachable!("{change:?} is not chosen here")
            }
        }
    }

    fn write(&mut self, mount: &Path, path: &str, at: usize, bytes: &[u8]) -> io::Result<()> {
        let done = self.file(mount, path)?.write_at(bytes, at as u64)?;
        whole(done, bytes.len())
    }

    /// The file, open: opened once, as programs do.
    fn file(&mut self, mount: &Path, path: &str) -> io::Result<&File> {
        match self.open.entry(self.model.names[path]) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).open(mount.join(path))?;
                Ok(place.insert(file))
            }
        }
    }

    fn record(&mut self, mount: &Path, number: u64) -> io::Result<()> {
        if self.log.is_none() {
            let log = OpenOptions::new()
                .append(true)
                .open(mount.join(SHARED_LOG))?;
            self.log = Some(log);
        }
        let text = record_text(&self.name, number);
        whole(
            write(self.log.as_ref().expect("open"), text.as_bytes())?,
            text.len(),
        )
    }

    /// Returns whether the files are what the model says, and if not, what it says once the call in
    /// flight is applied; the model then follows. Answers whether that call took effect.
    ///
    /// # Errors
    /// The difference, in words.
    pub fn verify(&mut self, mount: &Path) -> Result<bool, String> {
        if let Some(error) = self.failed.take() {
            let dead = [Errno::NOTCONN, Errno::CONNABORTED];
            if !dead
                .iter()
                .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
            {
                return Err(format!("{}: {:?}: {error}", self.name, self.in_flight));
            }
        }
        let mut found = Found::new();
        observe(mount, &self.name, "", &mut found)
            .and_then(|()| observe(mount, SHARED_DIR, &format!("{}-", self.name), &mut found))
            .map_err(|error| format!("{}: reading back: {error}", self.name))?;
        let found = view_of(found);
        let Some(before) = difference(&self.model.view(), &found) else {
            // A record in flight is judged with the shared log.
            self.in_flight = self
                .in_flight
                .take()
                .filter(|op| matches!(op, Op::Record(_)));
            return Ok(false);
        };
        let Some(Op::Own(change)) = self.in_flight.take() else {
            return Err(format!(
                "{}: {before}; no such call was in flight",
                self.name
            ));
        };
        self.model.apply(&change);
        match difference(&self.model.view(), &found) {
            None => Ok(true),
            Some(after) => Err(format!(
                "{}: neither before nor after {change:?}\nbefore: {before}\nafter: {after}",
                self.name
            )),
        }
    }
}

/// All records are whole, and each writer has as many as returned, in order; or one more.
///
/// # Errors
/// The fault, in words.
pub fn verify_shared_log(mount: &Path, writers: &mut [Writer]) -> Result<(), String> {
    let log = fs::read(mount.join(SHARED_LOG)).map_err(|error| error.to_string())?;
    if log.len() % RECORD_BYTES != 0 {
        return Err(format!("{SHARED_LOG}: {} bytes", log.len()));
    }
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, record) in log.chunks(RECORD_BYTES).enumerate() {
        let writer = (writers.iter())
            .find(|writer| record.starts_with(writer.name.as_bytes()))
            .ok_or_else(|| format!("{SHARED_LOG}: record {at} is nobody's: {record:?}"))?;
        let number = seen.entry(&writer.name).or_default();
        if record != record_text(&writer.name, *number).as_bytes() {
            let text = String::from_utf8_lossy(record);
            return Err(format!(
                "{SHARED_LOG}: record {at} is {text:?}, not number {number} of {}",
                writer.name
            ));
        }
        *number += 1;
    }
    let counts: Vec<u64> = (writers.iter())
        .map(|writer| seen.get(writer.name.as_str()).copied().unwrap_or(0))
        .collect();
    for (writer, count) in writers.iter_mut().zip(counts) {
        let more = u64::from(writer.in_flight.take().is_some());
        if !(writer.records..=writer.records + more).contains(&count) {
            return Err(format!(
                "{SHARED_LOG}: {count} records of {}, of which {} returned",
                writer.name, writer.records
            ));
        }
        writer.records = count;
    }
    Ok(())
}

fn record_text(writer: &str, number: u64) -> String {
    format!(
        "{:<width$}\n",
        format!("{writer} record {number}"),
        width = RECORD_BYTES - 1
    )
}

fn whole(done: usize, asked: usize) -> io::Result<()> {
    if done == asked {
        return Ok(());
    }
    Err(io::Error::other(format!("{done} of {asked} bytes written")))
}

/// Adds everything below `dir` to what is found, by path from `mount`; of names directly in it,
/// those that begin with `prefix`.
///
/// # Errors
/// Those of the mount.
fn observe(mount: &Path, dir: &str, prefix: &str, found: &mut Found) -> io::Result<()> {
    for entry in fs::read_dir(mount.join(dir))? {
        let name = entry?.file_name().into_string().expect("names are ASCII");
        if !name.starts_with(prefix) {
            continue;
        }
        let path = format!("{dir}/{name}");
        let at = mount.join(&path);
        let metadata = fs::symlink_metadata(&at)?;
        let mut node = Node {
            kind: Kind::File,
            mode: metadata.permissions().mode() & 0o7777,
            xattrs: BTreeMap::new(),
            content: Vec::new(),
        };
        if metadata.is_dir() {
            observe(mount, &path, "", found)?;
            node.kind = Kind::Dir;
        } else if metadata.is_symlink() {
            let target = fs::read_link(&at)?.into_os_string();
            node.kind = Kind::Symlink(target.into_string().expect("targets are ASCII"));
        } else {
            node.content = fs::read(&at)?;
            assert_eq!(node.content.len() as u64, metadata.len(), "{path}: size");
        }
        let seen = Seen {
            node,
            links: metadata.nlink(),
            first: String::new(),
        };
        found.insert(path, (seen, metadata.ino()));
    }
    Ok(())
}
