//! The visible tree: everything that a program could see of a pool through the file system's calls.

use pmfs::{Attr, Fs, Ino, ROOT_INO};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One inode as programs see it. Times that the contract lets go either way are left out by
/// [`Leniency`].
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Content, or a symlink's target.
    pub data: Vec<u8>,
    /// Extended attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What the comparison lets go either way (DECISIONS 16).
#[derive(Clone, Copy, Debug, Default)]
pub struct Leniency {
    /// mtime and ctime of files: the call was an overwrite, whose times are stored unflushed.
    pub file_times: bool,
    /// Content of files: `ordered` mode, in which an overwrite may tear.
    pub content: bool,
}

/// Names, as paths, and what they name.
pub type Tree = BTreeMap<Vec<u8>, Node>;

/// Reads the whole tree.
///
/// # Errors
/// What any call answered.
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
        if name == b"." || name == b".." {
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
        let value = fs.getxattr(attr.ino, &name)?;
        attributes.insert(name, value);
    }
    Ok(Node {
        ino: attr.ino,
        mode: attr.mode,
        owner: (attr.uid, attr.gid),
        links: attr.links,
        rdev: attr.rdev,
        size: attr.size,
        times: (attr.mtime_ns, attr.ctime_ns),
        data,
        attributes,
    })
}

fn same(a: &Node, b: &Node, leniency: Leniency) -> bool {
    let mut a = a.clone();
    let is_file = a.mode & 0o170_000 == 0o100_000;
    if leniency.file_times && is_file {
        a.times = b.times;
    }
    if leniency.content && is_file && a.size == b.size {
        a.data.clone_from(&b.data);
    }
    a == *b
}

/// What differs between two trees, in words; `None` if nothing does.
#[must_use]
pub fn difference(got: &Tree, expected: &Tree, leniency: Leniency) -> Option<String> {
    let mut text = String::new();
    for (path, node) in expected {
        let path = String::from_utf8_lossy(path);
        match got.get(path.as_bytes()) {
            None => {
                let _ = writeln!(text, "  {path} is missing");
            }
            Some(found) if !same(found, node, leniency) => {
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

fn brief(found: &Node, expected: &Node) -> String {
    let show = |node: &Node| Node {
        data: Vec::new(),
        ..node.clone()
    };
    let first = found
        .data
        .iter()
        .zip(&expected.data)
        .position(|(a, b)| a != b);
    format!(
        "found {:?}, expected {:?}, content differs at {first:?}",
        show(found),
        show(expected)
    )
}
