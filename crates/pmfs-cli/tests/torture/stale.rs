//! How many calls below the mounts gave ESTALE: a byte each in a file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

const NAME: &str = "stale";

pub fn count(dir: &Path) {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(dir.join(NAME));
    file.and_then(|mut file| file.write_all(b"."))
        .expect("a file");
}

pub fn counted(dir: &Path) -> u64 {
    fs::metadata(dir.join(NAME)).map_or(0, |file| file.len())
}
