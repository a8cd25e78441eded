//! The processes that have a file mapped, for messages about those that delay others.

use super::stalled::is_stopped;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

/// A process that may hold a lock of the file, for a message: another one that has the file mapped,
/// a stopped one rather than one that runs; this process if there is no other; 0 if nobody can be
/// told. The kernel names no process for a lock that a mapping keeps.
#[cold]
pub fn mapper_pid(path: &Path) -> u32 {
    let own = std::process::id();
    let others = mappers(path).into_iter().filter(|&pid| pid != own);
    let mut others: Vec<u32> = others.collect();
    others.sort_by_key(|&pid| !is_stopped(pid.into()));
    others.first().copied().unwrap_or(own)
}

/// The processes that have the file mapped, of those whose maps may be read.
fn mappers(path: &Path) -> Vec<u32> {
    let (Ok(meta), Ok(processes)) = (path.metadata(), std::fs::read_dir("/proc")) else {
        return Vec::new();
    };
    let (dev, inode) = (meta.st_dev(), meta.st_ino().to_string());
    let [major, minor] = [rustix::fs::major(dev), rustix::fs::minor(dev)];
    let device = format!("{major:02x}:{minor:02x}");
    let name = path.canonicalize().unwrap_or_else(|_| path.into());
    let is_of = |line: &str| {
        // Addresses, rights, offset, device, inode, name (proc_pid_maps(5)).
        let mut words = line.split_ascii_whitespace().skip(3);
        let (there, of) = (words.next(), words.next());
        let is_named = || name.to_str().is_some_and(|name| line.ends_with(name));
        of == Some(&inode) && (there == Some(&device) || is_named())
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        maps.is_ok_and(|maps| maps.lines().any(is_of))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Goal: a process that has the file mapped is told from those that have not, and a stopped one
    /// is preferred. Method: programs that are files themselves, which their processes map.
    #[test]
    fn a_process_with_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sleeper");
        let shell = ["/usr/bin/sleep", "/bin/sleep"].into_iter();
        let sleep = shell.map(Path::new).find(|path| path.exists()).unwrap();
        std::fs::copy(sleep, &path).unwrap();
        assert_eq!(mapper_pid(&path), std::process::id(), "nobody has it");
        let start = || {
            let mut command = Command::new(&path);
            command.arg("100").stdin(Stdio::null());
            command.spawn().expect("it starts")
        };
        let mut children = [start(), start()];
        let stopped = children[1].id();
        let pid = rustix::process::Pid::from_child(&children[1]);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let since = std::time::Instant::now();
        while mapper_pid(&path) != stopped && since.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        let found = mapper_pid(&path);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, stopped);
    }
}
