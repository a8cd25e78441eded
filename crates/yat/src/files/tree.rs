//! The visible tree: everything that a program could see of a pool through the file system's calls.

use pmfs::{Attr, Fs, Ino, ROOT_INO};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One inode as programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Inode number: names of one file show the same.
    pub ino: Ino,
    /// Type and permissions.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Hard links.
    pub links: u32,
    /// Device number.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of content, of the inode.
    pub times: (i64, i64),
    /// Last use of its content: workloads that set it do so by a call, for their pools are open
    /// without access times.
    pub used: i64,
    /// Content, or a symlink's target.
    pub data: Vec<u8>,
    /// Extended attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// It is of a snapshot, and refuses changes.
    pub of_snapshot: bool,
}

/// The extended attribute of directories in which staging directories come and go: their times and
/// links do not count.
pub const ANY_TIMES: &[u8] = b"user.yat.any-times";
/// The extended attribute of a snapshot with a random number.
const SNAPSHOT_ID: &[u8] = b"user.pmfs.snapshot.id";
/// The names of staging directories begin so. A crash may leave one, which the next call that makes
/// one beside it removes.
const STAGING: &[u8] = b".pmfs-clone-";

/// Names, as paths, and what they name.
pub type Tree = BTreeMap<Vec<u8>, Node>;

/// Reads the whole tree.
///
/// # Errors
/// Those of any call.
pub fn read(fs: &Fs) -> pmfs::Result<Tree> {
    let mut tree = Tree::new();
    let root = fs.getattr(ROOT_INO)?;
    tree.insert(b"/".to_vec(), node(fs, &root)?);
    descend(fs, ROOT_INO, b"", &mut tree)?;
    Ok(tree)
}

fn descend(fs: &Fs, dir: Ino, path: &[u8], tree: &mut Tree) -> pmfs::Result<()> {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        entries.push((entry.ino, entry.kind, entry.name.to_vec()));
        true
    })?;
    for (ino, kind, name) in entries {
        if name == b"." || name == b".." || name.starts_with(STAGING) {
            continue;
        }
        let mut child = path.to_vec();
        child.push(b'/');
        child.extend_from_slice(&name);
        let attr = fs.lookup(dir, &name)?;
        assert_eq!(attr.ino, ino, "readdir and lookup agree");
        assert_eq!(attr.mode & 0o170_000, kind, "readdir and getattr agree");
        let seen = tree.insert(child.clone(), node(fs, &attr)?);
        assert!(seen.is_none(), "readdir shows a name once");
        if kind == 0o040_000 {
            descend(fs, ino, &child, tree)?;
        }
    }
    Ok(())
}

fn node(fs: &Fs, attr: &Attr) -> pmfs::Result<Node> {
    let mut data = Vec::new();
    match attr.mode & 0o170_000 {
        0o100_000 => {
            data = vec![0; attr.size as usize];
            let got = fs.read(attr.ino, 0, &mut data)?;
            assert_eq!(got as u64, attr.size, "a file is as long as its size");
        }
        0o120_000 => data = fs.readlink(attr.ino)?,
        _ => {}
    }
    let mut attributes = BTreeMap::new();
    for name in fs.listxattr(attr.ino)? {
        let mut value = fs.getxattr(attr.ino, &name)?;
        if name == SNAPSHOT_ID {
            value.clear();
        }
        attributes.insert(name, value);
    }
    let counts = !attributes.contains_key(ANY_TIMES);
    Ok(Node {
        ino: attr.ino,
        mode: attr.mode,
        owner: (attr.uid, attr.gid),
        links: if counts { attr.links } else { 0 },
        rdev: attr.rdev,
        size: if counts { attr.size } else { 0 },
        times: if counts {
            (attr.mtime_ns, attr.ctime_ns)
        } else {
            (0, 0)
        },
        used: attr.atime_ns,
        data,
        attributes,
        of_snapshot: fs.is_of_snapshot(attr.ino)?,
    })
}

/// The differences that a comparison lets go either way: the exceptions of
/// docs/adr/0031-atomic-writes.md and docs/adr/0034-times.md, and no others.
#[derive(Clone, Debug, Default)]
pub struct Exceptions {
    /// Times that files which were overwritten had at some time: mtimes, ctimes. An overwrite's are
    /// stored unflushed.
    pub times: BTreeMap<Ino, (BTreeSet<i64>, BTreeSet<i64>)>,
    /// Files of which each byte may be that of any of these contents: `ordered` mode, in which an
    /// overwrite may tear.
    pub torn: BTreeMap<Ino, Vec<Vec<u8>>>,
}

impl Exceptions {
    fn same(&self, found: &Node, expected: &Node) -> bool {
        // An undo may bring back the bit that says they are the same, beside an older mtime.
        let is_one = found.times.0 == found.times.1;
        let times = found.times == expected.times
            || self.times.get(&found.ino).is_some_and(|(mtimes, ctimes)| {
                mtimes.contains(&found.times.0) && (is_one || ctimes.contains(&found.times.1))
            });
        let data = found.data == expected.data
            || self.torn.get(&found.ino).is_some_and(|contents| {
                let either = |(at, byte): (usize, &u8)| {
                    contents.iter().any(|content| content.get(at) == Some(byte))
                };
                found.data.len() == expected.data.len() && found.data.iter().enumerate().all(either)
            });
        times
            && data
            && (found.ino, found.mode, found.owner) == (expected.ino, expected.mode, expected.owner)
            && (found.links, found.rdev, found.size)
                == (expected.links, expected.rdev, expected.size)
            && (found.used, found.of_snapshot) == (expected.used, expected.of_snapshot)
            && found.attributes == expected.attributes
    }
}

/// Returns what differs between two trees, in words; `None` if nothing does.
#[must_use]
pub fn difference(got: &Tree, expected: &Tree, exceptions: &Exceptions) -> Option<String> {
    let mut text = String::new();
    for (path, node) in expected {
        match got.get(path) {
            None => {
                let _ = writeln!(text, "  {} is missing", String::from_utf8_lossy(path));
            }
            Some(found) if !exceptions.same(found, node) => {
                let path = String::from_utf8_lossy(path);
                let _ = writeln!(text, "  {path}: {}", brief(found, node));
            }
            Some(_) => {}
        }
    }
    for path in got.keys().filter(|path| !expected.contains_key(*path)) {
        let _ = writeln!(text, "  {} is there", String::from_utf8_lossy(path));
    }
    (!text.is_empty()).then_some(text)
}

/// Returns what differs between two nodes.
fn brief(found: &Node, expected: &Node) -> String {
    let mut text = String::new();
    let mut say = |what: &str, found: String, expected: String| {
        if found != expected {
            let _ = write!(text, "{what} {found}, expected {expected}; ");
        }
    };
    say("inode", found.ino.to_string(), expected.ino.to_string());
    let mode = |node: &Node| format!("{:o}", node.mode);
    say("mode", mode(found), mode(expected));
    let owner = |node: &Node| format!("{:?}", node.owner);
    say("owner", owner(found), owner(expected));
    say("links", found.links.to_string(), expected.links.to_string());
    say("size", found.size.to_string(), expected.size.to_string());
    let times = |node: &Node| format!("{:?}", node.times);
    say("times", times(found), times(expected));
    say(
        "last use",
        found.used.to_string(),
        expected.used.to_string(),
    );
    let attributes = |node: &Node| format!("{:?}", node.attributes);
    say("attributes", attributes(found), attributes(expected));
    let first = found
        .data
        .iter()
        .zip(&expected.data)
        .position(|(found, expected)| found != expected);
    if let Some(at) = first {
        let shown = |data: &[u8]| format!("{:02x?}", &data[at..data.len().min(at + 8)]);
        say(
            &format!("content from {at}"),
            shown(&found.data),
            shown(&expected.data),
        );
    }
    text
}
