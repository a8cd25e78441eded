//! Goal: a byte lock lives exactly as long as the address space that took it. Method: a prober sees
//! locks of this process, of forked children, and of child processes that are killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use pmem::slots::{ByteLock, Probe, Prober};

const BYTE: u64 = (1 << 62) + 5;

/// A pool's file, and the right to be the only running test: a fork in another would inherit a
/// descriptor that is open for a moment.
struct Alone {
    dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn file() -> (Alone, PathBuf) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|failed| failed.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    std::fs::write(&path, [0; 4096]).unwrap();
    (Alone { dir, _turn: turn }, path)
}

fn exclusive(path: &Path, byte: u64) -> Option<ByteLock> {
    ByteLock::try_exclusive(path, byte).unwrap()
}

#[test]
fn locks_exclude_each_other_within_a_process() {
    let (_alone, path) = file();
    let prober = Prober::open(&path).unwrap();
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::Free);
    let first = exclusive(&path, BYTE).expect("nobody has it");
    assert!(exclusive(&path, BYTE).is_none());
    assert!(ByteLock::try_shared(&path, BYTE).unwrap().is_none());
    assert!(exclusive(&path, BYTE + 1).is_some(), "bytes are apart");
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::HeldBy(0));
    assert_eq!(prober.probe(BYTE + 1).unwrap(), Probe::Free);
    drop(first);
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::Free);
    let shared = ByteLock::try_shared(&path, BYTE).unwrap();
    let beside = ByteLock::try_shared(&path, BYTE).unwrap();
    assert!(shared.is_some() && beside.is_some());
    assert!(exclusive(&path, BYTE).is_none());
    drop(shared);
    assert!(exclusive(&path, BYTE).is_none());
    drop(beside);
    assert!(exclusive(&path, BYTE).is_some());
}

#[test]
fn a_lock_needs_no_descriptor() {
    let (_alone, path) = file();
    let before = descriptors_of(&path);
    let lock = exclusive(&path, BYTE).unwrap();
    // Where the mapping does not keep the description (overlayfs), one descriptor stays open.
    let kept = descriptors_of(&path) - before;
    assert!(kept <= 1);
    let stacked = !["ext4", "tmpfs", "xfs", "btrfs"].contains(&file_system(&path).as_str());
    assert!(
        kept == 0 || stacked,
        "the mapping should keep the lock here"
    );
    // Any close of the file drops classic record locks, but not this one.
    drop(std::fs::File::open(&path).unwrap());
    let prober = Prober::open(&path).unwrap();
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::HeldBy(0));
    drop(lock);
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::Free);
}

fn descriptors_of(path: &Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == path))
        .count()
}

fn file_system(path: &Path) -> String {
    let out = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(path)
        .output()
        .unwrap();
    match String::from_utf8(out.stdout).unwrap().trim() {
        "ext2/ext3" => "ext4".into(),
        other => other.into(),
    }
}

#[test]
fn a_forked_child_neither_holds_nor_drops_it() {
    let (_alone, path) = file();
    let prober = Prober::open(&path).unwrap();
    let lock = exclusive(&path, BYTE).unwrap();
    let kept_by_mapping = descriptors_of(&path) == 1; // the prober's alone
    // SAFETY: the child only calls _exit, which is async-signal-safe.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    assert!(reap(pid));
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::HeldBy(0));
    // SAFETY: the child only waits for a signal.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: waits, then ends the child.
        unsafe {
            libc::pause();
            libc::_exit(0)
        };
    }
    drop(lock);
    let probed = prober.probe(BYTE).unwrap();
    // SAFETY: a child of ours that was not reaped yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    assert!(!reap(pid), "killed, not exited");
    if kept_by_mapping {
        assert_eq!(probed, Probe::Free, "a living child must not keep it");
    }
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::Free);
}

/// Waits for a child. Returns whether it exited with 0.
fn reap(pid: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: a child of ours, and a valid place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// A process that holds the lock until it is killed, even if the test fails.
struct Holder(Child);

impl Holder {
    fn start(path: &Path) -> Holder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child_holds_the_lock",
                "--ignored",
                "--nocapture",
            ])
            .env("PMEM_LOCK_FILE", path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let holder = Holder(child);
        let mut lines = BufReader::new(stdout).lines();
        assert!(lines.any(|line| line.unwrap().contains("locked")));
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_process_loses_it() {
    let (_alone, path) = file();
    let prober = Prober::open(&path).unwrap();
    let holder = Holder::start(&path);
    assert_eq!(prober.probe(BYTE).unwrap(), Probe::HeldBy(0));
    assert!(exclusive(&path, BYTE).is_none());
    drop(holder);
    let start = Instant::now();
    while prober.probe(BYTE).unwrap() != Probe::Free {
        assert!(start.elapsed() < Duration::from_secs(10), "still held");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(exclusive(&path, BYTE).is_some());
}

#[test]
#[ignore = "run as a child"]
fn child_holds_the_lock() {
    let path = std::env::var_os("PMEM_LOCK_FILE").expect("set by the parent");
    let _lock = exclusive(Path::new(&path), BYTE).unwrap();
    println!("locked");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_classic_lock_names_its_process() {
    let (_alone, path) = file();
    let prober = Prober::open(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // SAFETY: all-zero is a valid struct flock: here one byte from the start.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_type = libc::F_WRLCK as libc::c_short;
    flock.l_len = 1;
    // SAFETY: a valid descriptor and struct flock.
    let locked = unsafe {
        libc::fcntl(
            std::os::fd::AsRawFd::as_raw_fd(&file),
            libc::F_SETLK,
            &flock,
        )
    };
    assert_eq!(locked, 0);
    assert_eq!(prober.probe(0).unwrap(), Probe::HeldBy(std::process::id()));
}

#[test]
fn a_missing_file_is_an_error() {
    let (alone, _) = file();
    let missing = alone.dir.path().join("missing");
    assert!(ByteLock::try_exclusive(&missing, BYTE).is_err());
    assert!(Prober::open(&missing).is_err());
}
