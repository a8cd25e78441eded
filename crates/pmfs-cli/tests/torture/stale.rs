//! The count of calls below the mounts that gave ESTALE: a byte each in a file, another one for
//! renames.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

const NAME: &str = "stale";

pub fn count(dir: &Path, is_rename: bool) {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(dir.join(NAME));
    file.and_then(|mut file| file.write_all(if is_rename { b"r" } else { b"." }))
        .expect("a file");
}

/// Renames, and other calls.
pub fn counted(dir: &Path) -> (usize, usize) {
    let bytes = fs::read(dir.join(NAME)).unwrap_or_default();
    let renames = bytes.iter().filter(|byte| **byte == b'r').count();
    (renames, bytes.len() - renames)
}
