//! The machine as `doctor` looks at it: files below a root directory, so that tests can
//! play another one.

use std::env;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The usual places of programs, searched beside PATH, as a user's PATH seldom has them all.
const USUAL_PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

pub struct Machine {
    /// "/", or a test's own.
    pub base: PathBuf,
    pub is_root: bool,
    /// uname -r.
    pub kernel: String,
    /// The output of `rustc --version`.
    pub rustc: Option<String>,
    pub path: Vec<PathBuf>,
}

impl Machine {
    pub fn this() -> Machine {
        let mut path: Vec<PathBuf> = env::var_os("PATH")
            .map(|path| env::split_paths(&path).collect())
            .unwrap_or_default();
        path.extend(USUAL_PLACES.map(PathBuf::from));
        let uname = rustix::system::uname();
        let rustc = Command::new("rustc").arg("--version").output().ok();
        Machine {
            base: "/".into(),
            is_root: rustix::process::geteuid().is_root(),
            kernel: uname.release().to_string_lossy().into_owned(),
            rustc: rustc
                .filter(|output| output.status.success())
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned()),
            path,
        }
    }

    /// An absolute path of the machine.
    pub fn at(&self, path: &str) -> PathBuf {
        self.base.join(path.trim_start_matches('/'))
    }

    /// A file's text; nothing if it can't be read.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    /// Checks that this user may open it for reading and writing.
    pub fn open(&self, path: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.open(self.at(path)).map(drop)
    }

    /// Names in a directory, sorted.
    pub fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(dir)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The path of a program, and whether it is root's and set-user-id.
    pub fn program(&self, name: &str) -> Option<(PathBuf, bool)> {
        // The owner of the root directory is root.
        let root = fs::metadata(&self.base).ok()?.uid();
        let executable = |path: &Path| {
            let file = fs::metadata(path).ok()?;
            let mode = file.permissions().mode();
            (file.is_file() && mode & 0o111 != 0).then_some((mode & 0o4000 != 0, file.uid()))
        };
        self.path.iter().find_map(|dir| {
            let path = dir.join(name);
            let (set_id, owner) = executable(&self.at(path.to_str()?))?;
            Some((path, set_id && owner == root))
        })
    }

    /// Bytes in all and bytes free of the file system at a path.
    pub fn space(&self, path: &str) -> Option<(u64, u64)> {
        let space = rustix::fs::statvfs(self.at(path)).ok()?;
        Some((
            space.f_blocks * space.f_frsize,
            space.f_bavail * space.f_frsize,
        ))
    }

    /// A command that changes the machine, as this user has to type it.
    pub fn as_root(&self, command: &str) -> String {
        let needs_shell = command.contains(['>', '&', '|']);
        match (self.is_root, needs_shell) {
            (true, _) => command.to_owned(),
            (false, false) => format!("sudo {command}"),
            (false, true) => format!("sudo sh -c '{command}'"),
        }
    }
}
