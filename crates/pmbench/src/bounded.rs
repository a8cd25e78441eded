//! A command with limited memory, page cache included, as on a machine of that size: the sources
//! measured with a page cache smaller than the data (PMFS, section 4.2.4: data of 32 GB beside 16
//! GB of DRAM).
//!
//! By a memory cgroup, version 1 or 2. Version 1 does not count dirty pages, so that reclaim waits
//! for the device, where a small machine would have begun to write them back long before; the block
//! device below the directory gets the kernel's default limit, a fifth, until the command has
//! ended. At the start the page cache is emptied of the directory, as pages that other processes
//! brought in would not count. The memory of a pool or a device does not count either: it was made
//! before.

use crate::experiments::shell::Cannot;
use anyhow::{Context, bail, ensure};
use clap::Args;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

const BASE: &str = "/sys/fs/cgroup";
/// The name of groups that we make, before the number of the process.
const NAME: &str = "pmbench-bounded-";
/// The part of the memory that may be dirty: the kernel's `vm.dirty_ratio`, unless someone changed
/// it.
const DIRTY: u64 = 5;

/// The bounds of a command.
#[derive(Args)]
pub struct Options {
    /// The memory that the command gets, in MiB.
    #[arg(long)]
    mib: u64,
    /// A directory of the file system whose page cache it is.
    #[arg(long)]
    dir: PathBuf,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs it; its exit status is ours.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let ended = {
        let bytes = options.mib << 20;
        let group = Group::new(bytes)?;
        let device = block_device(&options.dir)?;
        if device.is_some() {
            forget(&options.dir)?;
        }
        let _writeback = match device.filter(|_| !group.counts_dirty) {
            Some(device) => Some(Writeback::bound(device, bytes / DIRTY)?),
            None => None,
        };
        group.run(&options.command)?
    };
    match (ended.code(), ended.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => std::process::exit(code),
        (None, signal) => bail!(
            "ended by signal {}: {} MiB may be too few for the program itself",
            signal.unwrap_or(0),
            options.mib
        ),
    }
}

/// A cgroup, as long as this lives.
struct Group {
    dir: PathBuf,
    /// Dirty pages are written back as on a machine of the bound's size.
    counts_dirty: bool,
}

impl Group {
    fn new(bytes: u64) -> anyhow::Result<Group> {
        let first = Path::new(BASE).join("memory");
        let (base, limit, counts_dirty) = match first.join("memory.limit_in_bytes").exists() {
            true => (first, "memory.limit_in_bytes", false),
            false => (PathBuf::from(BASE), "memory.max", true),
        };
        remove_left(&base);
        let dir = base.join(format!("{NAME}{}", std::process::id()));
        let made = std::fs::create_dir(&dir);
        made.map_err(|why| Cannot(format!("no memory cgroup can be made in {BASE}: {why}")))?;
        let group = Group { dir, counts_dirty };
        let bounded = std::fs::write(group.dir.join(limit), bytes.to_string());
        bounded.map_err(|why| Cannot(format!("no cgroup can bound memory here: {why}")))?;
        Ok(group)
    }

    fn run(&self, command: &[String]) -> anyhow::Result<ExitStatus> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", r#"echo $$ > "$0"; exec "$@""#]);
        shell.arg(self.dir.join("cgroup.procs")).args(command);
        shell.status().context("/bin/sh can't be run")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Groups of runs that were killed; one with processes stays.
fn remove_left(base: &Path) {
    let all = std::fs::read_dir(base).into_iter().flatten().flatten();
    for left in all.filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME)) {
        let _ = std::fs::remove_dir(left.path());
    }
}

/// Returns what the kernel knows of writing back to the block device below; nothing where there is
/// none, and so no page cache over one.
fn block_device(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let device = rustix::fs::stat(dir)
        .with_context(|| dir.display().to_string())?
        .st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let known = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}"));
    Ok((major != 0).then_some(known))
}

/// Nothing below it is in the page cache any more.
fn forget(dir: &Path) -> anyhow::Result<()> {
    rustix::fs::syncfs(File::open(dir)?)?;
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
            match entry? {
                kind if kind.is_dir() => dirs.push(path),
                kind if kind.is_file() => fadvise(File::open(path)?, 0, None, Advice::DontNeed)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// A bound for the part of a block device's data that may be dirty, as long as this lives.
struct Writeback {
    device: PathBuf,
    ratio: String,
    strict: String,
}

impl Writeback {
    fn bound(device: PathBuf, bytes: u64) -> anyhow::Result<Writeback> {
        let read = |name: &str| -> anyhow::Result<String> {
            let text = std::fs::read_to_string(device.join(name));
            let text = text.map_err(|why| Cannot(format!("{}: {why}", device.display())))?;
            Ok(text.trim().to_owned())
        };
        let too_old = "the kernel can't bound what is dirty of one device (Linux 6.2 can, or a cgroup of version 2)";
        ensure!(
            device.join("max_bytes").exists(),
            Cannot(too_old.to_owned())
        );
        let writeback = Writeback {
            ratio: read("max_ratio")?,
            strict: read("strict_limit")?,
            device,
        };
        writeback.set("strict_limit", "1")?;
        writeback.set("max_bytes", &bytes.to_string())?;
        Ok(writeback)
    }

    fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let path = self.device.join(name);
        std::fs::write(&path, value).with_context(|| path.display().to_string())
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        let _ = self.set("max_ratio", &self.ratio);
        let _ = self.set("strict_limit", &self.strict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(group: &Group, command: &str) -> ExitStatus {
        let command = ["sh", "-c", command].map(str::to_owned);
        group.run(&command).unwrap()
    }

    /// Goal: the bound holds, for what a program has and not for what the page cache can give back,
    /// and nothing is left of it.
    #[test]
    fn a_command_has_no_more_memory_than_it_may() {
        let group = match Group::new(24 << 20) {
            Ok(group) => group,
            Err(why) => return println!("skipped: {why}"),
        };
        let (dir, place) = (group.dir.clone(), tempfile::tempdir_in(".").unwrap());
        let file = place.path().join("file").display().to_string();
        assert!(ends(&group, &format!("head -c 64M /dev/zero > {file}")).success());
        let all = ends(&group, "head -c 64M /dev/zero | tail -c 60M > /dev/null");
        assert!(!all.success(), "tail has to keep 60 MiB");
        assert_eq!(ends(&group, "exit 3").code(), Some(3));
        drop(group);
        assert!(!dir.exists());
    }

    #[test]
    fn what_may_be_dirty_of_a_device_is_as_before_afterwards() {
        assert_eq!(block_device(Path::new("/proc")).unwrap(), None);
        let Ok(Some(device)) = block_device(Path::new(".")) else {
            return println!("skipped: no block device is below the sources");
        };
        let read = |name: &str| std::fs::read_to_string(device.join(name)).unwrap_or_default();
        let state = || ["max_ratio", "strict_limit"].map(read);
        let before = state();
        let Ok(bound) = Writeback::bound(device.clone(), 8 << 20) else {
            return println!("skipped: not root, or a kernel before Linux 6.2");
        };
        assert_eq!(read("strict_limit").trim(), "1");
        assert_ne!(state()[0], before[0]);
        drop(bound);
        assert_eq!(state(), before);
    }

    /// Goal: files stay as they are, in directories too. Method: they are read again.
    #[test]
    fn what_is_forgotten_is_still_there() {
        let place = tempfile::tempdir_in(".").unwrap();
        let deep = place.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "what is dirty").unwrap();
        std::os::unix::fs::symlink("nowhere", deep.join("link")).unwrap();
        forget(place.path()).unwrap();
        let text = std::fs::read_to_string(deep.join("file")).unwrap();
        assert_eq!(text, "what is dirty");
    }
}
