//! The library for C: a program of its own (`calls.c`) at the other end of stdin, which
//! makes the calls that it is told. When it dies, so does this process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use pmfs::types::mode::{S_IFDIR, S_IFLNK, S_IFMT};
use pmfs::{LockClass, LockKind, RenameFlags};
use rustix::io::Errno;

use super::mount::die;
use super::{Done, Face, Handle, Range, Stat};
use crate::model::Kind;

/// The answer of `calls.c`: a number, and bytes.
struct Answer {
    value: u64,
    bytes: Vec<u8>,
}

/// The words of a call, in the order of `struct call` there.
#[derive(Default)]
struct Call<'a> {
    name: &'a str,
    path: &'a str,
    other: &'a str,
    bytes: &'a [u8],
    a: u64,
    b: u64,
    c: u64,
    d: u64,
}

pub struct C(RefCell<UnixStream>);

impl C {
    pub fn attach(pool: &Path) -> C {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned();
        let face = C(RefCell::new(UnixStream::from(stdin.expect("stdin"))));
        let bytes = pool.as_os_str().as_bytes();
        let attached = face.call(&Call {
            name: "attach",
            bytes,
            ..Call::default()
        });
        attached.expect("attach");
        face
    }

    fn call(&self, call: &Call<'_>) -> Done<Answer> {
        let mut frame = vec![0; 4];
        for word in [call.a, call.b, call.c, call.d] {
            frame.extend(word.to_le_bytes());
        }
        for text in [call.name, call.path, call.other] {
            frame.extend((text.len() as u32 + 1).to_le_bytes());
            frame.extend(text.as_bytes());
            frame.push(0);
        }
        // A NUL behind, for those that are names.
        frame.extend((call.bytes.len() as u32).to_le_bytes());
        frame.extend(call.bytes);
        frame.push(0);
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        let mut stream = self.0.borrow_mut();
        let mut head = [0; 16];
        let told = stream.write_all(&frame);
        if told.and_then(|()| stream.read_exact(&mut head)).is_err() {
            die();
        }
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let value = u64::from_le_bytes(head[8..].try_into().expect("eight"));
        let mut bytes = vec![0; word(4) as usize];
        if stream.read_exact(&mut bytes).is_err() {
            die();
        }
        match word(0) {
            0 => Ok(Answer { value, bytes }),
            errno => Err(Errno::from_raw_os_error(errno as i32)),
        }
    }

    fn on_path(&self, name: &str, path: &str, a: u64, b: u64) -> Done<Answer> {
        self.call(&Call {
            name,
            path,
            a,
            b,
            ..Call::default()
        })
    }

    fn on_handle(&self, name: &str, handle: Handle, b: u64, c: u64) -> Done<Answer> {
        self.call(&Call {
            name,
            a: handle,
            b,
            c,
            ..Call::default()
        })
    }

    fn with_bytes(&self, name: &str, path: &str, (a, b): (u64, u64), bytes: &[u8]) -> Done<Answer> {
        self.call(&Call {
            name,
            path,
            bytes,
            a,
            b,
            ..Call::default()
        })
    }

    fn on_two(&self, name: &str, path: &str, other: &str, a: u64) -> Done<()> {
        let answer = self.call(&Call {
            name,
            path,
            other,
            a,
            ..Call::default()
        });
        answer.map(drop)
    }
}

fn strings(bytes: &[u8]) -> Vec<String> {
    let names = bytes
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

fn class_number(lock: LockClass) -> u64 {
    match lock {
        LockClass::Posix => 1,
        LockClass::File => 2,
        LockClass::Flock => 3,
    }
}

impl Face for C {
    fn create(&self, path: &str, mode: u32) -> Done<()> {
        self.on_path("create", path, mode.into(), 0).map(drop)
    }

    fn mkdir(&self, path: &str, mode: u32) -> Done<()> {
        self.on_path("mkdir", path, mode.into(), 0).map(drop)
    }

    fn symlink(&self, target: &str, path: &str) -> Done<()> {
        self.on_two("symlink", target, path, 0)
    }

    fn link(&self, from: &str, to: &str) -> Done<()> {
        self.on_two("link", from, to, 0)
    }

    fn unlink(&self, path: &str) -> Done<()> {
        self.on_path("unlink", path, 0, 0).map(drop)
    }

    fn rmdir(&self, path: &str) -> Done<()> {
        self.on_path("rmdir", path, 0, 0).map(drop)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done<()> {
        self.on_two("rename", from, to, flags.bits().into())
    }

    fn truncate(&self, path: &str, len: u64) -> Done<()> {
        self.on_path("truncate", path, len, 0).map(drop)
    }

    fn chmod(&self, path: &str, mode: u32) -> Done<()> {
        self.on_path("chmod", path, mode.into(), 0).map(drop)
    }

    fn punch(&self, path: &str, at: u64, len: u64) -> Done<()> {
        self.on_path("punch", path, at, len).map(drop)
    }

    fn setxattr(&self, path: &str, name: &str, value: &[u8]) -> Done<()> {
        let call = Call {
            name: "setxattr",
            path,
            other: name,
            bytes: value,
            ..Call::default()
        };
        self.call(&call).map(drop)
    }

    fn removexattr(&self, path: &str, name: &str) -> Done<()> {
        self.on_two("removexattr", path, name, 0)
    }

    fn xattrs(&self, path: &str) -> Done<BTreeMap<String, Vec<u8>>> {
        let names = strings(&self.on_path("listxattr", path, 0, 0)?.bytes);
        let values = names.into_iter().map(|name| {
            let call = Call {
                name: "getxattr",
                path,
                other: &name,
                ..Call::default()
            };
            let value = self.call(&call)?.bytes;
            Ok((name, value))
        });
        values.collect()
    }

    fn stat(&self, path: &str) -> Done<Stat> {
        let bytes = self.on_path("lstat", path, 0, 0)?.bytes;
        let words: Vec<u64> = bytes
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect();
        let [ino, mode, links, size] = words[..] else {
            panic!("{} words", words.len());
        };
        Ok(Stat {
            ino,
            mode: mode as u32,
            links,
            size,
        })
    }

    fn kind(&self, path: &str, stat: &Stat) -> Done<Kind> {
        Ok(match stat.mode & S_IFMT {
            S_IFDIR => Kind::Dir,
            S_IFLNK => {
                let target = self.on_path("readlink", path, 0, 0)?.bytes;
                Kind::Symlink(String::from_utf8_lossy(&target).into_owned())
            }
            _ => Kind::File,
        })
    }

    fn list(&self, path: &str) -> Done<Vec<String>> {
        Ok(strings(&self.on_path("list", path, 0, 0)?.bytes))
    }

    fn write(&self, path: &str, at: u64, bytes: &[u8]) -> Done<()> {
        self.with_bytes("write", path, (at, 0), bytes).map(drop)
    }

    fn append(&self, path: &str, bytes: &[u8]) -> Done<Option<u64>> {
        let end = self.with_bytes("append", path, (0, 0), bytes)?.value;
        Ok(Some(end))
    }

    fn read(&self, path: &str, at: u64, len: usize) -> Done<Vec<u8>> {
        Ok(self.on_path("read", path, at, len as u64)?.bytes)
    }

    fn open(&self, path: &str) -> Done<Handle> {
        Ok(self.on_path("open", path, 0, 0)?.value)
    }

    fn close(&self, handle: Handle) -> Done<()> {
        self.on_handle("close", handle, 0, 0).map(drop)
    }

    fn write_open(&self, handle: Handle, at: u64, bytes: &[u8]) -> Done<()> {
        self.with_bytes("pwrite", "", (handle, at), bytes).map(drop)
    }

    fn read_open(&self, handle: Handle, at: u64, len: usize) -> Done<Vec<u8>> {
        Ok(self.on_handle("pread", handle, at, len as u64)?.bytes)
    }

    fn dup(&self, handle: Handle) -> Done<Handle> {
        Ok(self.on_handle("dup", handle, 0, 0)?.value)
    }

    fn seek(&self, handle: Handle, to: u64) -> Done<()> {
        self.on_handle("seek", handle, to, 0).map(drop)
    }

    fn write_next(&self, handle: Handle, bytes: &[u8]) -> Done<()> {
        self.with_bytes("write next", "", (handle, 0), bytes)
            .map(drop)
    }

    fn read_next(&self, handle: Handle, len: usize) -> Done<Vec<u8>> {
        Ok(self.on_handle("read next", handle, len as u64, 0)?.bytes)
    }

    fn lock(
        &self,
        handle: Handle,
        lock: LockClass,
        kind: LockKind,
        (b, c): Range,
        waits: bool,
    ) -> Done<()> {
        let alone = u64::from(kind == LockKind::Write);
        let call = Call {
            name: if waits { "lock" } else { "try to lock" },
            a: handle,
            b,
            c,
            d: class_number(lock) << 1 | alone,
            ..Call::default()
        };
        self.call(&call).map(drop)
    }

    fn unlock(&self, handle: Handle, lock: LockClass, (b, c): Range) -> Done<()> {
        let call = Call {
            name: "unlock",
            a: handle,
            b,
            c,
            d: class_number(lock) << 1,
            ..Call::default()
        };
        self.call(&call).map(drop)
    }

    fn write_with_child(&self, path: &str, bytes: &[u8], times: u64) -> Done<()> {
        let twice = bytes.repeat(2 * times as usize);
        self.with_bytes("write with child", path, (times, 0), bytes)?;
        let is = self.read(path, 0, twice.len() + 1)?;
        assert!(is == twice, "{} bytes, not {}", is.len(), twice.len());
        Ok(())
    }

    fn leave(&self) -> Done<()> {
        self.on_path("leave", "", 0, 0).map(drop)
    }
}
