//! The mounts below which some workers work: a daemon each, which may be killed too.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};

use crate::face::mount_dir;
use crate::worker::Orders;

/// Mounts, where there may be any.
pub const MOUNTS: usize = 2;
/// The time that a daemon may take to be there.
const START_MAX: Duration = Duration::from_secs(30);

pub struct Mount {
    root: PathBuf,
    number: usize,
    pub daemon: Option<Child>,
}

/// Returns whether this machine mounts.
pub fn are_possible() -> bool {
    let able = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !able {
        println!(
            "torture: no mounts: /dev/fuse and root are needed; all workers use the libraries"
        );
    }
    able
}

/// A test that fails leaves no mount.
impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // This unmounts a killed daemon's mount too, which nobody else has removed.
        let _ = unmount(self.dir(), UnmountFlags::DETACH);
    }
}

impl Mount {
    pub fn new(root: &Path, number: usize) -> Mount {
        fs::create_dir(mount_dir(root, number)).expect("a directory");
        Mount {
            root: root.to_owned(),
            number,
            daemon: None,
        }
    }

    fn dir(&self) -> PathBuf {
        mount_dir(&self.root, self.number)
    }

    fn said_path(&self) -> PathBuf {
        self.root.join(format!("m{}.said", self.number))
    }

    /// Returns what the daemon said last.
    pub fn said(&self) -> String {
        fs::read_to_string(self.said_path()).unwrap_or_default()
    }

    fn command(arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmfs"));
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null());
        command
    }

    /// Starts the daemon; [`Mount::wait`] tells when it is there.
    pub fn start(&mut self) {
        let said = File::create(self.said_path()).expect("a file");
        let daemon = Mount::command(&["mount", "--foreground"])
            .arg(Orders::pool(&self.root))
            .arg(self.dir())
            .stderr(said)
            .spawn();
        self.daemon = Some(daemon.expect("a daemon"));
    }

    /// Until files are below the mount point.
    pub fn wait(&mut self) {
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
        let outside = device(&self.root).expect("stat");
        let deadline = Instant::now() + START_MAX;
        while device(&self.dir()).is_ok_and(|inside| inside == outside) {
            let ended = self.daemon.as_mut().expect("started").try_wait();
            if let Some(end) = ended.expect("wait") {
                panic!("mount {}: {end}: {}", self.number, self.said());
            }
            assert!(
                Instant::now() < deadline,
                "mount {}: not there",
                self.number
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes away what a dead daemon has left.
    pub fn detach(&self) {
        unmount(self.dir(), UnmountFlags::DETACH).expect("it was mounted");
    }

    /// Ends it in good order.
    pub fn stop(&mut self) {
        let output = Mount::command(&["umount"])
            .arg(self.dir())
            .stderr(Stdio::piped())
            .output()
            .expect("umount");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "mount {}: {text}", self.number);
        let mut daemon = self.daemon.take().expect("started");
        let end = daemon.wait().expect("wait");
        assert!(
            end.success(),
            "mount {}: {end}: {}",
            self.number,
            self.said()
        );
    }
}
