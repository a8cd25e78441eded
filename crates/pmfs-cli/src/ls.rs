//! `pmfs ls`: what is in an unmounted pool.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmfs::Attr;
use pmfs::types::mode;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Ls;
use crate::failure::Failure;
use crate::names::{Names, below, is_dir};
use crate::time::utc;
use crate::{pool, report};
use pm_cli::escaped;

#[derive(Serialize)]
struct LsReport {
    pool: String,
    path: String,
    entries: Vec<Entry>,
    #[serde(skip)]
    long: bool,
}

#[derive(Serialize)]
struct Entry {
    /// From the PATH that was asked for.
    path: String,
    kind: &'static str,
    /// Permission bits, octal.
    mode: String,
    ino: u64,
    links: u32,
    uid: u32,
    gid: u32,
    size_bytes: u64,
    mtime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip)]
    letter: char,
    #[serde(skip)]
    bits: u32,
}

pub fn run(arguments: &Ls) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let entries = pool::with(&path, &pool::for_reading(), |fs| {
        let names = Names { fs, pool: &path };
        let found = names.find(&arguments.path, false)?;
        let mut entries = Vec::new();
        if is_dir(&found) {
            list(&names, &found, Path::new(""), arguments, &mut entries)?;
        } else {
            let name = arguments.path.file_name().unwrap_or_default();
            entries.push(entry(&names, Path::new(name), &found)?);
        }
        Ok(entries)
    })?;
    let report = LsReport {
        pool: path.display().to_string(),
        path: format!("/{}", arguments.path.display()).replace("//", "/"),
        entries,
        long: arguments.long,
    };
    if report.entries.is_empty() && !arguments.json {
        return Ok(ExitCode::SUCCESS);
    }
    report::print(arguments.json, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(
    names: &Names<'_>,
    dir: &Attr,
    at: &Path,
    arguments: &Ls,
    entries: &mut Vec<Entry>,
) -> Result<(), Failure> {
    // The directories still to be shown, so that their depth costs no stack.
    let mut next: Vec<(Attr, PathBuf)> = vec![(*dir, at.to_owned())];
    while let Some((dir, at)) = next.pop() {
        let whole = arguments.path.join(&at);
        for child in names.children(dir.ino, &whole)? {
            let path = below(&at, &child.name);
            entries.push(entry(names, &path, &child.attr)?);
            if arguments.recursive && is_dir(&child.attr) {
                next.push((child.attr, path));
            }
        }
    }
    if arguments.recursive {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(())
}

fn entry(names: &Names<'_>, path: &Path, attr: &Attr) -> Result<Entry, Failure> {
    let kind = attr.mode & mode::S_IFMT;
    let (kind, letter) = match kind {
        mode::S_IFDIR => ("directory", 'd'),
        mode::S_IFLNK => ("symlink", 'l'),
        mode::S_IFBLK => ("block device", 'b'),
        mode::S_IFCHR => ("character device", 'c'),
        mode::S_IFIFO => ("fifo", 'p'),
        mode::S_IFSOCK => ("socket", 's'),
        _ => ("file", '-'),
    };
    let target = if letter == 'l' {
        let target = names
            .fs
            .readlink(attr.ino)
            .map_err(|error| names.failed(path, &error))?;
        Some(String::from_utf8_lossy(&target).into_owned())
    } else {
        None
    };
    Ok(Entry {
        path: String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned(),
        kind,
        mode: format!("{:04o}", attr.mode & 0o7777),
        ino: attr.ino,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size_bytes: attr.size,
        mtime_ns: attr.mtime_ns,
        target,
        letter,
        bits: attr.mode,
    })
}

/// A name, which on a terminal must not be an order to it. Programs read the bytes as they are, as
/// from ls(1).
fn shown(name: &str) -> String {
    match io::stdout().is_terminal() {
        true => escaped(name.as_bytes()),
        false => name.to_owned(),
    }
}

fn text(report: &LsReport) -> String {
    if !report.long {
        let paths: Vec<String> = report.entries.iter().map(|e| shown(&e.path)).collect();
        return paths.join("\n");
    }
    let width = |of: &dyn Fn(&Entry) -> String| report.entries.iter().map(|e| of(e).len()).max();
    let links = width(&|e| e.links.to_string()).unwrap_or(0);
    let uid = width(&|e| e.uid.to_string()).unwrap_or(0);
    let gid = width(&|e| e.gid.to_string()).unwrap_or(0);
    let size = width(&|e| e.size_bytes.to_string()).unwrap_or(0);
    let line = |e: &Entry| {
        let target = e.target.as_ref();
        let target = target.map(|target| format!(" -> {}", shown(target)));
        format!(
            "{}{} {:>links$} {:>uid$} {:>gid$} {:>size$} {} {}{}",
            e.letter,
            bits(e.bits),
            e.links,
            e.uid,
            e.gid,
            e.size_bytes,
            utc(e.mtime_ns),
            shown(&e.path),
            target.unwrap_or_default()
        )
    };
    let lines: Vec<String> = report.entries.iter().map(line).collect();
    lines.join("\n")
}

/// `rwxr-s--T`
fn bits(mode: u32) -> String {
    let mut text = String::with_capacity(9);
    for (shift, special, mark) in [
        (6, mode::S_ISUID, 's'),
        (3, mode::S_ISGID, 's'),
        (0, mode::S_ISVTX, 't'),
    ] {
        let three = mode >> shift & 7;
        text.push(if three & 4 != 0 { 'r' } else { '-' });
        text.push(if three & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, three & 1 != 0) {
            (true, true) => mark,
            (true, false) => mark.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn permission_bits_as_ls_shows_them() {
        for (mode, shown) in [
            (0o755, "rwxr-xr-x"),
            (0o640, "rw-r-----"),
            (0o4755, "rwsr-xr-x"),
            (0o2640, "rw-r-S---"),
            (0o1777, "rwxrwxrwt"),
            (0o1000, "--------T"),
        ] {
            assert_eq!(super::bits(mode), shown);
        }
    }
}
