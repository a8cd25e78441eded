//! Calls as data: made by generators, written down in reports, read again for a replay.
//!
//! `create A/foo; write A/foo 100 5000; rename A B`: calls are separated by semicolons. A path
//! names a file from the root on; a component `name*200` is padded to 200 bytes; `#0` is the first
//! file that `open` or `tmpfile` has held, whatever became of its name.

use super::pool::{NODE, pattern};
use pmfs::{
    Error, FallocateMode, Fs, Ino, ROOT_INO, RenameFlags, Result, SetAttr, SetTime, XattrFlags,
};
use std::fmt;

/// A path, as it is written.
pub type Name = String;

/// One call. Offsets, lengths and sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Call {
    Create(Name),
    Mkdir(Name),
    Mknod(Name),
    Symlink {
        len: u64,
        name: Name,
    },
    Link {
        old: Name,
        new: Name,
    },
    Unlink(Name),
    Rmdir(Name),
    Rename {
        old: Name,
        new: Name,
        flags: u32,
    },
    Write {
        name: Name,
        offset: u64,
        len: u64,
    },
    Append {
        name: Name,
        len: u64,
    },
    Truncate {
        name: Name,
        size: u64,
    },
    Fallocate {
        name: Name,
        mode: u32,
        offset: u64,
        len: u64,
    },
    Collapse {
        name: Name,
        offset: u64,
        len: u64,
    },
    Insert {
        name: Name,
        offset: u64,
        len: u64,
    },
    Copy {
        from: Name,
        at: u64,
        to: Name,
        offset: u64,
        len: u64,
    },
    /// A clone of a whole file.
    Clone {
        from: Name,
        to: Name,
    },
    Chmod {
        name: Name,
        mode: u32,
    },
    Chown {
        name: Name,
        uid: u32,
    },
    Utimens(Name),
    Setxattr {
        name: Name,
        len: u64,
    },
    Removexattr(Name),
    Open(Name),
    Tmpfile(Name),
    Close(usize),
}

/// Files that are held open, `None` once closed.
pub type Held = Vec<Option<Ino>>;

/// The extended attribute of [`Call::Setxattr`].
const ATTRIBUTE: &[u8] = b"user.yat";

impl Call {
    /// Returns whether it may write over what a file has: docs/adr/0031-atomic-writes.md and
    /// docs/adr/0034-times.md.
    #[must_use]
    pub fn overwrites(&self) -> bool {
        match self {
            Call::Write { .. } | Call::Copy { .. } | Call::Clone { .. } => true,
            Call::Fallocate { mode, .. } => {
                let zeroing = FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE;
                FallocateMode::from_bits_truncate(*mode).intersects(zeroing)
            }
            _ => false,
        }
    }

    /// Its offsets, lengths and sizes.
    pub fn numbers(&mut self) -> Vec<&mut u64> {
        match self {
            Call::Symlink { len, .. } | Call::Append { len, .. } | Call::Setxattr { len, .. } => {
                vec![len]
            }
            Call::Truncate { size, .. } => vec![size],
            Call::Write { offset, len, .. }
            | Call::Fallocate { offset, len, .. }
            | Call::Collapse { offset, len, .. }
            | Call::Insert { offset, len, .. } => vec![offset, len],
            Call::Copy {
                at, offset, len, ..
            } => vec![at, offset, len],
            _ => Vec::new(),
        }
    }

    /// The names in it.
    pub fn names(&mut self) -> Vec<&mut Name> {
        match self {
            Call::Create(name)
            | Call::Mkdir(name)
            | Call::Mknod(name)
            | Call::Symlink { name, .. }
            | Call::Unlink(name)
            | Call::Rmdir(name)
            | Call::Write { name, .. }
            | Call::Append { name, .. }
            | Call::Truncate { name, .. }
            | Call::Fallocate { name, .. }
            | Call::Collapse { name, .. }
            | Call::Insert { name, .. }
            | Call::Chmod { name, .. }
            | Call::Chown { name, .. }
            | Call::Utimens(name)
            | Call::Setxattr { name, .. }
            | Call::Removexattr(name)
            | Call::Open(name)
            | Call::Tmpfile(name) => vec![name],
            Call::Link { old, new } | Call::Rename { old, new, .. } => vec![old, new],
            Call::Copy { from, to, .. } | Call::Clone { from, to } => vec![from, to],
            Call::Close(_) => Vec::new(),
        }
    }

    /// Does it. `salt` goes into the data, so that each call writes its own.
    ///
    /// # Errors
    /// The call's own.
    pub fn run(&self, fs: &Fs, held: &mut Held, salt: u8) -> Result<()> {
        match self {
            Call::Write { name, offset, len } => {
                let data = pattern(*len as usize, salt);
                fs.write(find(fs, held, name)?, *offset, &data).map(drop)
            }
            Call::Append { name, len } => {
                let data = pattern(*len as usize, salt);
                fs.append(find(fs, held, name)?, &data).map(drop)
            }
            Call::Copy {
                from,
                at,
                to,
                offset,
                len,
            } => {
                let (from, to) = (find(fs, held, from)?, find(fs, held, to)?);
                fs.copy_range(from, *at, to, *offset, *len).map(drop)
            }
            Call::Clone { from, to } => {
                let (from, to) = (find(fs, held, from)?, find(fs, held, to)?);
                fs.clone_range((from, 0), (to, 0), 0)
            }
            Call::Fallocate {
                name,
                mode,
                offset,
                len,
            } => {
                let mode = FallocateMode::from_bits_truncate(*mode);
                fs.fallocate(find(fs, held, name)?, mode, *offset, *len)
            }
            Call::Collapse { name, offset, len } => {
                fs.collapse_range(find(fs, held, name)?, *offset, *len)
            }
            Call::Insert { name, offset, len } => {
                fs.insert_range(find(fs, held, name)?, *offset, *len)
            }
            Call::Open(name) => {
                let ino = find(fs, held, name)?;
                fs.hold(ino)?;
                held.push(Some(ino));
                Ok(())
            }
            Call::Tmpfile(name) => {
                let ino = fs.tmpfile(find(fs, held, name)?, &NODE)?.ino;
                held.push(Some(ino));
                Ok(())
            }
            Call::Close(at) => match held.get_mut(*at).and_then(Option::take) {
                Some(ino) => fs.release(ino),
                None => Err(Error::NotFound),
            },
            _ => self.run_on_names(fs, held, salt),
        }
    }

    fn run_on_names(&self, fs: &Fs, held: &Held, salt: u8) -> Result<()> {
        let parent = |name: &Name| parent(fs, held, name);
        match self {
            Call::Create(name) => {
                let (dir, last) = parent(name)?;
                fs.create(dir, &last, &NODE).map(drop)
            }
            Call::Mkdir(name) => {
                let (dir, last) = parent(name)?;
                fs.mkdir(dir, &last, &NODE).map(drop)
            }
            Call::Mknod(name) => {
                let (dir, last) = parent(name)?;
                fs.mknod(dir, &last, &NODE, 0o010_000, 0).map(drop)
            }
            Call::Symlink { len, name } => {
                let (dir, last) = parent(name)?;
                let target = vec![b'a' + salt % 26; *len as usize];
                fs.symlink(dir, &last, &target, &NODE).map(drop)
            }
            Call::Link { old, new } => {
                let ino = find(fs, held, old)?;
                let (dir, last) = parent(new)?;
                fs.link(ino, dir, &last).map(drop)
            }
            Call::Unlink(name) => {
                let (dir, last) = parent(name)?;
                fs.unlink(dir, &last)
            }
            Call::Rmdir(name) => {
                let (dir, last) = parent(name)?;
                fs.rmdir(dir, &last)
            }
            Call::Rename { old, new, flags } => {
                let (dir, last) = parent(old)?;
                let (new_dir, new_last) = parent(new)?;
                let flags = RenameFlags::from_bits_truncate(*flags);
                fs.rename(dir, &last, new_dir, &new_last, flags)
            }
            _ => self.run_on_attributes(fs, held, salt),
        }
    }

    fn run_on_attributes(&self, fs: &Fs, held: &Held, salt: u8) -> Result<()> {
        let none = SetAttr::default();
        let (name, set) = match self {
            Call::Truncate { name, size } => (
                name,
                SetAttr {
                    size: Some(*size),
                    ..none
                },
            ),
            Call::Chmod { name, mode } => (
                name,
                SetAttr {
                    mode: Some(*mode),
                    ..none
                },
            ),
            Call::Chown { name, uid } => (
                name,
                SetAttr {
                    uid: Some(*uid),
                    ..none
                },
            ),
            Call::Utimens(name) => {
                let at = Some(SetTime::At(i64::from(salt)));
                (
                    name,
                    SetAttr {
                        atime_ns: at,
                        mtime_ns: at,
                        ..none
                    },
                )
            }
            Call::Setxattr { name, len } => {
                let ino = find(fs, held, name)?;
                let value = pattern(*len as usize, salt);
                return fs.setxattr(ino, ATTRIBUTE, &value, XattrFlags::empty());
            }
            Call::Removexattr(name) => return fs.removexattr(find(fs, held, name)?, ATTRIBUTE),
            _ => unreachable!("the calls on data and names are done elsewhere"),
        };
        fs.setattr(find(fs, held, name)?, &set).map(drop)
    }
}

/// A component, padded if it says so.
fn component(text: &str) -> Vec<u8> {
    let padded = text.split_once('*').and_then(|(name, len)| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(len.parse().ok()?, b'n');
        Some(bytes)
    });
    padded.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn find(fs: &Fs, held: &Held, name: &str) -> Result<Ino> {
    if let Some(at) = name.strip_prefix('#') {
        let at = at.parse().ok().and_then(|at: usize| held.get(at).copied());
        return at.flatten().ok_or(Error::NotFound);
    }
    let mut ino = ROOT_INO;
    for part in name.split('/').filter(|part| !part.is_empty()) {
        ino = fs.lookup(ino, &component(part))?.ino;
    }
    Ok(ino)
}

fn parent(fs: &Fs, held: &Held, name: &str) -> Result<(Ino, Vec<u8>)> {
    let (dir, last) = name.rsplit_once('/').unwrap_or(("", name));
    Ok((find(fs, held, dir)?, component(last)))
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Create(name) => write!(f, "create {name}"),
            Call::Mkdir(name) => write!(f, "mkdir {name}"),
            Call::Mknod(name) => write!(f, "mknod {name}"),
            Call::Symlink { len, name } => write!(f, "symlink {name} {len}"),
            Call::Link { old, new } => write!(f, "link {old} {new}"),
            Call::Unlink(name) => write!(f, "unlink {name}"),
            Call::Rmdir(name) => write!(f, "rmdir {name}"),
            Call::Rename { old, new, flags: 0 } => write!(f, "rename {old} {new}"),
            Call::Rename { old, new, flags } => write!(f, "rename {old} {new} {flags}"),
            Call::Write { name, offset, len } => write!(f, "write {name} {offset} {len}"),
            Call::Append { name, len } => write!(f, "append {name} {len}"),
            Call::Truncate { name, size } => write!(f, "truncate {name} {size}"),
            Call::Fallocate {
                name,
                mode,
                offset,
                len,
            } => {
                write!(f, "fallocate {name} {mode} {offset} {len}")
            }
            Call::Collapse { name, offset, len } => write!(f, "collapse {name} {offset} {len}"),
            Call::Insert { name, offset, len } => write!(f, "insert {name} {offset} {len}"),
            Call::Copy {
                from,
                at,
                to,
                offset,
                len,
            } => {
                write!(f, "copy {from} {at} {to} {offset} {len}")
            }
            Call::Clone { from, to } => write!(f, "clone {from} {to}"),
            Call::Chmod { name, mode } => write!(f, "chmod {name} {mode}"),
            Call::Chown { name, uid } => write!(f, "chown {name} {uid}"),
            Call::Utimens(name) => write!(f, "utimens {name}"),
            Call::Setxattr { name, len } => write!(f, "setxattr {name} {len}"),
            Call::Removexattr(name) => write!(f, "removexattr {name}"),
            Call::Open(name) => write!(f, "open {name}"),
            Call::Tmpfile(name) => write!(f, "tmpfile {name}"),
            Call::Close(at) => write!(f, "close {at}"),
        }
    }
}

/// The words of a call, as [`Call`]'s `Display` writes them.
struct Words<'a>(Vec<&'a str>);

impl Words<'_> {
    fn bad(&self) -> String {
        format!("no call that yat knows: {:?}", self.0.join(" "))
    }

    fn name(&self, at: usize) -> std::result::Result<Name, String> {
        let word = self.0.get(at).ok_or_else(|| self.bad())?;
        Ok((*word).to_owned())
    }

    fn number(&self, at: usize) -> std::result::Result<u64, String> {
        let word = self.0.get(at).and_then(|word| word.parse().ok());
        word.ok_or_else(|| self.bad())
    }

    fn small(&self, at: usize) -> std::result::Result<u32, String> {
        u32::try_from(self.number(at)?).map_err(|_| self.bad())
    }

    /// A call on data; none if it is another one.
    fn on_data(&self) -> std::result::Result<Option<Call>, String> {
        let (name, number) = (|at| self.name(at), |at| self.number(at));
        Ok(Some(match self.0[0] {
            "write" => Call::Write {
                name: name(1)?,
                offset: number(2)?,
                len: number(3)?,
            },
            "append" => Call::Append {
                name: name(1)?,
                len: number(2)?,
            },
            "truncate" => Call::Truncate {
                name: name(1)?,
                size: number(2)?,
            },
            "fallocate" => Call::Fallocate {
                name: name(1)?,
                mode: self.small(2)?,
                offset: number(3)?,
                len: number(4)?,
            },
            "collapse" => Call::Collapse {
                name: name(1)?,
                offset: number(2)?,
                len: number(3)?,
            },
            "insert" => Call::Insert {
                name: name(1)?,
                offset: number(2)?,
                len: number(3)?,
            },
            "copy" => Call::Copy {
                from: name(1)?,
                at: number(2)?,
                to: name(3)?,
                offset: number(4)?,
                len: number(5)?,
            },
            "clone" => Call::Clone {
                from: name(1)?,
                to: name(2)?,
            },
            _ => return Ok(None),
        }))
    }

    fn call(&self) -> std::result::Result<Call, String> {
        let (name, number) = (|at| self.name(at), |at| self.number(at));
        if let Some(call) = self.on_data()? {
            return Ok(call);
        }
        Ok(match self.0[0] {
            "create" => Call::Create(name(1)?),
            "mkdir" => Call::Mkdir(name(1)?),
            "mknod" => Call::Mknod(name(1)?),
            "symlink" => Call::Symlink {
                name: name(1)?,
                len: number(2)?,
            },
            "link" => Call::Link {
                old: name(1)?,
                new: name(2)?,
            },
            "unlink" => Call::Unlink(name(1)?),
            "rmdir" => Call::Rmdir(name(1)?),
            "rename" => {
                let flags = if self.0.len() > 3 { self.small(3)? } else { 0 };
                Call::Rename {
                    old: name(1)?,
                    new: name(2)?,
                    flags,
                }
            }
            "chmod" => Call::Chmod {
                name: name(1)?,
                mode: self.small(2)?,
            },
            "chown" => Call::Chown {
                name: name(1)?,
                uid: self.small(2)?,
            },
            "utimens" => Call::Utimens(name(1)?),
            "setxattr" => Call::Setxattr {
                name: name(1)?,
                len: number(2)?,
            },
            "removexattr" => Call::Removexattr(name(1)?),
            "open" => Call::Open(name(1)?),
            "tmpfile" => Call::Tmpfile(name(1)?),
            "close" => Call::Close(number(1)? as usize),
            _ => return Err(self.bad()),
        })
    }
}

/// Reads a workload: calls with semicolons between.
///
/// # Errors
/// The call that is none.
pub fn parse(text: &str) -> std::result::Result<Vec<Call>, String> {
    text.split(';')
        .map(|call| Words(call.split_whitespace().collect()))
        .filter(|words| !words.0.is_empty())
        .map(|words| words.call())
        .collect()
}

/// Writes a workload as [`parse`] reads it.
#[must_use]
pub fn text(calls: &[Call]) -> String {
    let calls: Vec<String> = calls.iter().map(Call::to_string).collect();
    calls.join("; ")
}

#[cfg(test)]
mod tests {
    use super::{parse, text};
    use crate::files::ace::{sequences, wide};

    /// Goal: a report's workload is the one that ran. Method: there and back.
    #[test]
    fn calls_are_read_as_they_are_written() {
        for calls in sequences(&wide(), 1) {
            assert_eq!(parse(&text(&calls)).unwrap(), calls);
        }
        let others =
            "collapse A/foo 4096 4096; copy foo 0 bar 100 9; open foo; write #0 3 4; close 0";
        assert_eq!(text(&parse(others).unwrap()), others);
        assert!(parse("write foo").is_err());
    }
}
