//! What a writer's files are: names, contents, modes. Plain maps, the same from a model and from a mount.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A call, of those that change something. Each is one request to the daemon.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        path: String,
    },
    Write {
        path: String,
        at: usize,
        bytes: Vec<u8>,
    },
    Append {
        path: String,
        bytes: Vec<u8>,
    },
    Truncate {
        path: String,
        len: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        one: String,
        other: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Unlink {
        path: String,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    /// Record number `number` of this writer, at the end of the log that all writers share.
    Record {
        number: u64,
    },
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Dir { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink { target: String },
}

/// A writer's files: names to numbers, numbers to nodes (two names may have one).
#[derive(Clone, Default)]
pub struct Model {
    pub names: BTreeMap<String, u64>,
    pub nodes: BTreeMap<u64, Node>,
    next: u64,
}

/// A name's node, and how many names the node has.
pub type View = BTreeMap<String, (Node, u64)>;

pub const FILE_MODE: u32 = 0o644;
pub const DIR_MODE: u32 = 0o755;

impl Model {
    fn add(&mut self, path: &str, node: Node) {
        self.next += 1;
        self.nodes.insert(self.next, node);
        self.names.insert(path.to_owned(), self.next);
    }

    fn content(&mut self, path: &str) -> &mut Vec<u8> {
        match self.nodes.get_mut(&self.names[path]) {
            Some(Node::File { content, .. }) => content,
            other => unreachable!("{path} is {other:?}"),
        }
    }

    /// Drops nodes that no name leads to.
    fn sweep(&mut self, number: u64) {
        if !self.names.values().any(|&other| other == number) {
            self.nodes.remove(&number);
        }
    }

    fn remove(&mut self, path: &str) {
        let number = self.names.remove(path).expect("the model has the name");
        self.sweep(number);
    }

    /// Does the call.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { path } => self.add(
                path,
                Node::File {
                    mode: FILE_MODE,
                    content: Vec::new(),
                },
            ),
            Op::Write { path, at, bytes } => {
                let content = self.content(path);
                let end = at + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*at..end].copy_from_slice(bytes);
            }
            Op::Append { path, bytes } => self.content(path).extend(bytes),
            Op::Truncate { path, len } => self.content(path).resize(*len, 0),
            Op::Rename { from, to } => self.rename(from, to),
            Op::Exchange { one, other } => {
                let (first, second) = (self.names[one], self.names[other]);
                self.names.insert(one.clone(), second);
                self.names.insert(other.clone(), first);
            }
            Op::Link { from, to } => {
                self.names.insert(to.clone(), self.names[from]);
            }
            Op::Symlink { target, path } => self.add(
                path,
                Node::Symlink {
                    target: target.clone(),
                },
            ),
            Op::Unlink { path } | Op::Rmdir { path } => self.remove(path),
            Op::Mkdir { path } => self.add(path, Node::Dir { mode: DIR_MODE }),
            Op::Chmod { path, mode: new } => match self.nodes.get_mut(&self.names[path]) {
                Some(Node::File { mode, .. } | Node::Dir { mode }) => *mode = *new,
                other => unreachable!("{path} is {other:?}"),
            },
            Op::Record { .. } => {}
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let number = self.names[from];
        if self.names.get(to) == Some(&number) {
            // Two names of one file: POSIX says that nothing happens.
            return;
        }
        self.names.remove(from);
        if let Some(replaced) = self.names.insert(to.to_owned(), number) {
            self.sweep(replaced);
        }
    }

    /// As a mount would show it.
    pub fn view(&self) -> View {
        self.names
            .iter()
            .map(|(path, number)| {
                let node = self.nodes[number].clone();
                let links = match node {
                    Node::Dir { .. } => 2 + self.directories_in(path),
                    _ => self.names.values().filter(|&other| other == number).count() as u64,
                };
                (path.clone(), (node, links))
            })
            .collect()
    }

    fn directories_in(&self, path: &str) -> u64 {
        let below = format!("{path}/");
        let is_dir = |number| matches!(self.nodes[number], Node::Dir { .. });
        self.names
            .iter()
            .filter(|(name, number)| {
                is_dir(number)
                    && name
                        .strip_prefix(&below)
                        .is_some_and(|rest| !rest.contains('/'))
            })
            .count() as u64
    }
}

/// Adds everything below `dir` to `view`, by path from `mount`; of names directly in it, those that begin
/// with `prefix`.
///
/// # Errors
/// What the mount answers.
pub fn observe(mount: &Path, dir: &str, prefix: &str, view: &mut View) -> io::Result<()> {
    for entry in fs::read_dir(mount.join(dir))? {
        let name = entry?.file_name().into_string().expect("names are ASCII");
        if !name.starts_with(prefix) {
            continue;
        }
        let path = format!("{dir}/{name}");
        let at = mount.join(&path);
        let metadata = fs::symlink_metadata(&at)?;
        let mode = metadata.permissions().mode() & 0o7777;
        let node = if metadata.is_dir() {
            observe(mount, &path, "", view)?;
            Node::Dir { mode }
        } else if metadata.is_symlink() {
            let target = fs::read_link(&at)?.into_os_string();
            Node::Symlink {
                target: target.into_string().expect("targets are ASCII"),
            }
        } else {
            let content = fs::read(&at)?;
            assert_eq!(content.len() as u64, metadata.len(), "{path}: size");
            Node::File { mode, content }
        };
        view.insert(path, (node, metadata.nlink()));
    }
    Ok(())
}

/// The first difference, in words; `None` if there is none.
pub fn difference(expected: &View, found: &View) -> Option<String> {
    for (path, (node, links)) in expected {
        let Some((other, other_links)) = found.get(path) else {
            return Some(format!("{path} is not there"));
        };
        if let Some(text) = node_difference(node, other) {
            return Some(format!("{path}: {text}"));
        }
        if links != other_links {
            return Some(format!("{path}: {other_links} links, not {links}"));
        }
    }
    let more = found.keys().find(|path| !expected.contains_key(*path));
    more.map(|path| format!("{path} is there"))
}

fn node_difference(expected: &Node, found: &Node) -> Option<String> {
    let (
        Node::File { mode, content },
        Node::File {
            mode: other_mode,
            content: other,
        },
    ) = (expected, found)
    else {
        return (expected != found).then(|| format!("{found:?}, not {expected:?}"));
    };
    if mode != other_mode {
        return Some(format!("mode {other_mode:o}, not {mode:o}"));
    }
    if content.len() != other.len() {
        return Some(format!("{} bytes, not {}", other.len(), content.len()));
    }
    let at = content.iter().zip(other).position(|(a, b)| a != b)?;
    let wrong = content.iter().zip(other).filter(|(a, b)| a != b).count();
    Some(format!("{wrong} wrong bytes, the first at {at}"))
}
