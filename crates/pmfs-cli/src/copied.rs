//! The report of `get` and `put`.

use std::path::Path;

use serde::Serialize;

use pm_cli::Size;

/// The copied files and bytes.
#[derive(Serialize)]
pub struct Copied {
    pool: String,
    path: String,
    pub dest: String,
    pub files: u64,
    pub directories: u64,
    pub symlinks: u64,
    /// Devices, FIFOs, sockets.
    pub others: u64,
    /// Bytes of data: holes take none.
    pub bytes: u64,
    /// The files that could not be made at the other side.
    pub skipped: Vec<String>,
}

impl Copied {
    /// Nothing yet.
    pub fn new(pool: &Path, path: &Path) -> Copied {
        Copied {
            pool: pool.display().to_string(),
            path: path.display().to_string(),
            dest: String::new(),
            files: 0,
            directories: 0,
            symlinks: 0,
            others: 0,
            bytes: 0,
            skipped: Vec::new(),
        }
    }

    /// Leaves one out, and says so.
    pub fn skip(&mut self, path: &Path) {
        eprintln!(
            "pmfs: {} left out: devices and sockets take root",
            path.display()
        );
        self.skipped.push(path.display().to_string());
    }

    /// Returns the totals in a line.
    pub fn text(&self, did: &str) -> String {
        let mut parts = vec![format!("{} files ({})", self.files, Size(self.bytes))];
        for (count, what) in [
            (self.directories, "directories"),
            (self.symlinks, "symlinks"),
            (self.others, "special files"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        format!("{did} {}: {}", self.dest, parts.join(", "))
    }
}
