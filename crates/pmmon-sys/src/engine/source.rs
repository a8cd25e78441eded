//! Files in which processes publish counts.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use pmem::published::{NAME, read};
use pmmon::calls::{Calls, Line, Lines, Owner};
use pmmon::proc;

/// A file, open: it outlives its process, so that the last counts are read after the end.
#[derive(Debug)]
pub(super) struct Source {
    /// The process that publishes.
    pub pid: u32,
    /// The file's number, which tells a process's next file from this one.
    pub inode: u64,
    /// Device and inode of the pool.
    pub pool: (u64, u64),
    file: File,
    lines: Lines,
}

impl Source {
    /// Reads it, and tells what was counted since the last time.
    pub fn take(&mut self) -> io::Result<Vec<(Owner, Calls)>> {
        let snapshot = read(&self.file)?;
        let line = |line: &pmem::published::Line| Line {
            owner: Owner {
                name: line.name,
                number: line.number,
                is_caller: line.is_caller,
                start: line.start,
                process: line.process,
            },
            counts: calls(line.counts),
        };
        let lines: Vec<Line> = snapshot.lines.iter().map(line).collect();
        Ok(self.lines.take(&lines))
    }

    /// Takes counts of before the monitor as told.
    pub fn skip(&mut self) {
        let _ = self.take();
    }
}

fn calls(counts: pmem::published::Counts) -> Calls {
    Calls {
        read_bytes: counts.read_bytes,
        written_bytes: counts.written_bytes,
        reads: counts.reads,
        changes: counts.changes,
        flushed_lines: counts.flushed_lines,
        barriers: counts.barriers,
    }
}

/// The files of a process that are not `known`, by their inodes. A file that it has from its parent
/// is the parent's.
///
/// # Errors
/// The process is gone, or may not be looked at.
pub(super) fn find(pid: u32, known: impl Fn(u64) -> bool) -> io::Result<Vec<Source>> {
    let own = proc::inner_pid(pid).unwrap_or(pid);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        // A descriptor may be closed meanwhile.
        let Ok(link) = std::fs::read_link(&path) else {
            continue;
        };
        let Some(name) = link.to_str().and_then(|link| link.strip_prefix("/memfd:")) else {
            continue;
        };
        let Ok(data) = std::fs::metadata(&path) else {
            continue;
        };
        let is_there = found.iter().any(|it: &Source| it.inode == data.ino());
        let is_page = name.split(' ').next() == Some(NAME) && data.is_file();
        if !is_page || is_there || known(data.ino()) {
            continue;
        }
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let opened = File::options().read(true).custom_flags(flags).open(&path);
        let Ok(file) = opened else { continue };
        match read(&file) {
            Ok(snapshot) if snapshot.pid == own => found.push(Source {
                pid,
                inode: data.ino(),
                pool: snapshot.pool,
                file,
                lines: Lines::default(),
            }),
            _ => {}
        }
    }
    Ok(found)
}
