//! `pmfs get`: files and trees out of an unmounted pool.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmfs::types::mode;
use pmfs::{Attr, Error, Ino};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};

use crate::Outcome;
use crate::cli::Get;
use crate::copied::Copied;
use crate::failure::Failure;
use crate::names::{Names, below, is_dir};
use crate::progress::Progress;
use crate::{pool, report, xattrs};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

pub fn run(arguments: &Get) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let to_stdout = arguments.dest.as_deref() == Some(Path::new("-"));
    if to_stdout && (arguments.json || arguments.recursive) {
        return Err(Failure::new(
            "stdout takes one file and nothing else",
            "leave out --json and -r, or name a file as DEST",
        )
        .with_code(2));
    }
    let copied = pool::with(&path, &pool::for_reading(), |fs| {
        let names = Names { fs, pool: &path };
        let found = names.find(&arguments.path, !arguments.recursive)?;
        if is_dir(&found) && (!arguments.recursive || to_stdout) {
            return Err(names.failed(&arguments.path, &Error::IsDirectory));
        }
        let mut getter = Getter {
            names,
            progress: Progress::new(
                arguments.json,
                "copying",
                if is_dir(&found) { 0 } else { found.size },
            ),
            linked: HashMap::new(),
            keep_owner: rustix::process::geteuid().is_root(),
            copied: Copied::new(&path, &arguments.path),
        };
        if to_stdout {
            getter.stream(&arguments.path, &found)?;
        } else {
            let dest = destination(arguments)?;
            getter.copied.dest = dest.display().to_string();
            getter.node(&arguments.path, &found, &dest)?;
        }
        Ok(getter.copied)
    })?;
    if !to_stdout {
        report::print(arguments.json, &copied, |copied| copied.text("got"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// DEST, or a name of the same kind in it if it is a directory, or in the current one.
fn destination(arguments: &Get) -> Result<PathBuf, Failure> {
    let name = arguments.path.file_name();
    match &arguments.dest {
        // The root as a tree: its content goes into DEST.
        Some(dest) if dest.is_dir() && name.is_some() => Ok(dest.join(name.unwrap_or_default())),
        Some(dest) => Ok(dest.clone()),
        None => name.map(PathBuf::from).ok_or_else(|| {
            Failure::new("the pool's root has no name", "say where to put it: DEST").with_code(2)
        }),
    }
}

struct Getter<'a> {
    names: Names<'a>,
    progress: Progress,
    /// The first place of a file with several names.
    linked: HashMap<Ino, PathBuf>,
    keep_owner: bool,
    copied: Copied,
}

impl Getter<'_> {
    fn node(&mut self, path: &Path, attr: &Attr, dest: &Path) -> Result<(), Failure> {
        if attr.links > 1 && !is_dir(attr) {
            if let Some(first) = self.linked.get(&attr.ino) {
                remove(dest)?;
                fs::hard_link(first, dest).map_err(|error| failed("linking", dest, &error))?;
                self.copied.files += 1;
                return Ok(());
            }
            self.linked.insert(attr.ino, dest.to_owned());
        }
        match attr.mode & mode::S_IFMT {
            mode::S_IFDIR => self.directory(path, attr, dest)?,
            mode::S_IFREG => self.file(path, attr, dest)?,
            mode::S_IFLNK => {
                let target = self.names.fs.readlink(attr.ino);
                let target = target.map_err(|error| self.names.failed(path, &error))?;
                remove(dest)?;
                symlink(std::ffi::OsStr::from_bytes(&target), dest)
                    .map_err(|error| failed("making", dest, &error))?;
                self.copied.symlinks += 1;
                self.attributes(attr, dest)?;
            }
            _ => self.special(path, attr, dest)?,
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path, attr: &Attr, dest: &Path) -> Result<(), Failure> {
        match fs::create_dir(dest) {
            Ok(()) => {}
            // Into one that is there; a link to one is not followed.
            Err(_) if fs::symlink_metadata(dest).is_ok_and(|file| file.is_dir()) => {}
            Err(error) => return Err(failed("making", dest, &error)),
        }
        self.copied.directories += 1;
        for child in self.names.children(attr.ino, path)? {
            let dest = below(dest, &child.name);
            self.node(&below(path, &child.name), &child.attr, &dest)?;
        }
        self.attributes(attr, dest)
    }

    /// Beside its place first, so that no half file stands there.
    fn file(&mut self, path: &Path, attr: &Attr, dest: &Path) -> Result<(), Failure> {
        let there = fs::metadata(dest);
        if there.is_ok_and(|file| !file.is_file() && !file.is_dir()) {
            let device = File::options().write(true).open(dest);
            let mut device = device.map_err(|error| failed("opening", dest, &error))?;
            return self.copy(path, attr, &mut |_, bytes| device.write_all(bytes), dest);
        }
        let part = dest.with_file_name(format!(".pmfs-{}-{}", std::process::id(), attr.ino));
        let made = self.file_at(path, attr, &part).and_then(|()| {
            fs::rename(&part, dest).map_err(|error| failed("replacing", dest, &error))
        });
        if made.is_err() {
            let _ = fs::remove_file(&part);
        }
        self.copied.files += 1;
        made
    }

    fn file_at(&mut self, path: &Path, attr: &Attr, part: &Path) -> Result<(), Failure> {
        let file = File::create(part).map_err(|error| failed("making", part, &error))?;
        file.set_len(attr.size)
            .map_err(|error| failed("making", part, &error))?;
        let mut write = |offset, bytes: &[u8]| file.write_all_at(bytes, offset);
        self.copy(path, attr, &mut write, part)?;
        self.attributes(attr, part)
    }

    /// Hands the file's data on, its holes left out.
    fn copy(
        &mut self,
        path: &Path,
        attr: &Attr,
        write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
        dest: &Path,
    ) -> Result<(), Failure> {
        let fs = self.names.fs;
        let lost = |error| self.names.failed(path, &error);
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while offset < attr.size {
            offset = match fs.seek_data(attr.ino, offset) {
                Ok(data) => data,
                Err(Error::NoSuchOffset) => break,
                Err(error) => return Err(lost(error)),
            };
            let hole = fs.seek_hole(attr.ino, offset).map_err(lost)?;
            while offset < hole {
                let want = (hole - offset).min(CHUNK as u64) as usize;
                let got = fs
                    .read(attr.ino, offset, &mut buffer[..want])
                    .map_err(lost)?;
                if got == 0 {
                    break;
                }
                write(offset, &buffer[..got]).map_err(|error| failed("writing", dest, &error))?;
                offset += got as u64;
                self.copied.bytes += got as u64;
                self.progress.at(self.copied.bytes);
            }
        }
        Ok(())
    }

    fn stream(&mut self, path: &Path, attr: &Attr) -> Result<(), Failure> {
        if attr.mode & mode::S_IFMT != mode::S_IFREG {
            return Err(self
                .names
                .failed(path, &Error::Invalid(&"not a regular file")));
        }
        let mut out = io::stdout().lock();
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        loop {
            let got = self.names.fs.read(attr.ino, offset, &mut buffer);
            let got = got.map_err(|error| self.names.failed(path, &error))?;
            match out.write_all(&buffer[..got]) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
            if got == 0 {
                return Ok(out.flush()?);
            }
            offset += got as u64;
            self.progress.at(offset);
        }
    }

    fn special(&mut self, path: &Path, attr: &Attr, dest: &Path) -> Result<(), Failure> {
        remove(dest)?;
        let kind = FileType::from_raw_mode(attr.mode);
        let made = mknodat(
            CWD,
            dest,
            kind,
            Mode::from_raw_mode(attr.mode & 0o7777),
            // The kernel's 32-bit form and the 64-bit one agree up to 12 and 20 bits.
            rustix::fs::makedev(
                attr.rdev >> 8 & 0xfff,
                attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00,
            ),
        );
        match made {
            Ok(()) => {
                self.copied.others += 1;
                self.attributes(attr, dest)
            }
            Err(_) => {
                self.copied.skip(path);
                Ok(())
            }
        }
    }

    /// Owner (root alone may give files away), permissions, extended attributes, times:
    /// in this order, for each changes what comes after it.
    fn attributes(&self, attr: &Attr, dest: &Path) -> Result<(), Failure> {
        let wrong = |error| failed("setting attributes of", dest, &error);
        if self.keep_owner {
            lchown(dest, Some(attr.uid), Some(attr.gid)).map_err(wrong)?;
        }
        if attr.mode & mode::S_IFMT != mode::S_IFLNK {
            let permissions = fs::Permissions::from_mode(attr.mode & 0o7777);
            fs::set_permissions(dest, permissions).map_err(wrong)?;
        }
        let lost = |error| self.names.failed(dest, &error);
        xattrs::get(self.names.fs, attr.ino, dest).map_err(lost)?;
        let times = Timestamps {
            last_access: timespec(attr.atime_ns),
            last_modification: timespec(attr.mtime_ns),
        };
        utimensat(CWD, dest, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| wrong(errno.into()))
    }
}

fn timespec(ns: i64) -> Timespec {
    Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000) as _,
    }
}

/// Makes way, unless a directory stands there.
fn remove(dest: &Path) -> Result<(), Failure> {
    match fs::remove_file(dest) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("replacing", dest, &error))
        }
        _ => Ok(()),
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("{what} {}: {error}", path.display()),
        "choose another DEST, or make room there",
    )
}
