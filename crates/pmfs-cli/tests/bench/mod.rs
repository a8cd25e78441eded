//! A pool and a mount point in a temporary directory, taken away when the test ends, however it
//! ends: what is still mounted below it is detached, and a daemon that is still there is killed.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod actor;
pub mod installed;
pub mod mapper;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pmfs_fuse::mounts::pool_mounts;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub struct Bench {
    root: TempDir,
    /// Daemons that were seen, by process id.
    daemons: Vec<u32>,
}

impl Bench {
    /// An empty directory, on tmpfs if there is one, with a mount point in it.
    pub fn empty() -> Bench {
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let root = TempDir::with_prefix_in("pmfs-cli-test-", place).unwrap();
        fs::create_dir(root.path().join("mnt")).unwrap();
        Bench {
            root,
            daemons: Vec::new(),
        }
    }

    /// With a fresh pool of 64 MiB.
    pub fn pool() -> Bench {
        let bench = Bench::empty();
        bench.ok(&["mkfs", "--size", "64M", "pool"]);
        bench
    }

    /// A mounted pool of 64 MiB. `None`, with a message on stderr, where this machine can't mount.
    pub fn mounted(options: &[&str]) -> Option<Bench> {
        if !can_mount() {
            return None;
        }
        let mut bench = Bench::pool();
        bench.mount(options);
        Some(bench)
    }

    /// Mounts `pool` on `mnt`; what `--json` says of it.
    pub fn mount(&mut self, options: &[&str]) -> Value {
        self.mount_pool("pool", options)
    }

    pub fn mount_pool(&mut self, pool: &str, options: &[&str]) -> Value {
        self.mount_on("mnt", pool, options)
    }

    pub fn mount_on(&mut self, dir: &str, pool: &str, options: &[&str]) -> Value {
        let mut arguments = vec!["mount", "--json", pool, dir];
        arguments.extend(options);
        let report = self.json(&arguments);
        self.daemons.push(report["pid"].as_u64().unwrap() as u32);
        report
    }

    pub fn umount(&self) {
        self.ok(&["umount", "mnt"]);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Below the mount point.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path("mnt").join(name)
    }

    pub fn daemon(&self) -> Pid {
        Pid::from_raw(*self.daemons.last().unwrap() as i32).unwrap()
    }

    /// `pmfs` with these arguments, standing in the directory.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmfs"));
        command
            .args(arguments)
            .current_dir(self.root.path())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Has to work; its stdout.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        // A slow machine is told how far it is.
        let is_progress = |line: &str| line.starts_with("pmfs: ") && line.contains(" %, ");
        let other = stderr.lines().find(|line| !is_progress(line));
        assert_eq!(other, None, "{arguments:?}");
        text(&output.stdout)
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(arguments)).unwrap()
    }

    /// Has to fail with this exit code, one line on stderr, nothing on stdout; the line.
    pub fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(
            stderr.starts_with("pmfs: ") && stderr.contains("; "),
            "{stderr}"
        );
        stderr
    }

    /// Returns what is mounted below the directory.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let mounts = pool_mounts().unwrap();
        mounts
            .into_iter()
            .map(|m| m.dir)
            .filter(|dir| dir.starts_with(self.root.path()))
            .collect()
    }

    /// A process that does nothing, below the mount point.
    pub fn bystander(&self) -> Bystander {
        let child = Command::new("sleep")
            .arg("600")
            .current_dir(self.path("mnt"))
            .spawn();
        Bystander(child.unwrap())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for dir in self.mounts() {
            let _ = rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH);
            let _ = Command::new("fusermount3").arg("-uzq").arg(&dir).output();
        }
        for pid in &self.daemons {
            let deadline = Instant::now() + Duration::from_secs(10);
            while is_daemon(*pid) {
                if Instant::now() > deadline {
                    let _ = kill_process(Pid::from_raw(*pid as i32).unwrap(), Signal::KILL);
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Killed and reaped with the test.
pub struct Bystander(pub Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process runs, and is one of ours and not a later one of the same number.
pub fn is_daemon(pid: u32) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let state = fs::read_to_string(process.join("stat")).unwrap_or_default();
    !state.contains(") Z ")
        && fs::read(process.join("cmdline")).is_ok_and(|line| line.starts_with(b"pmfs\0mount"))
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn can_mount() -> bool {
    let able = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !able {
        eprintln!("skipped: needs /dev/fuse and root");
    }
    able
}

/// Returns whether an ordinary user can mount here.
pub fn fuse_is_open() -> bool {
    let open = fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o006 == 0o006);
    let helpers = ["/usr/bin/fusermount3", "/bin/fusermount3"];
    open && helpers.iter().any(|path| Path::new(path).exists())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
