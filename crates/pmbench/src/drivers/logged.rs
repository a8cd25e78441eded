//! Bytes that PMFS logs for work on names: table 3 of Dulloor et al. 2014. Counts, which are the
//! same on any machine.
//!
//! touch is what touch(1) does: the file is made, and its times are set.

use crate::pool::{NODE, map_options};
use clap::{Args, ValueEnum};
use pmem::counters::{Counters, snapshot};
use pmfs::{AtimeMode, Fs, OpenOptions, ROOT_INO, RenameFlags, SetAttr, SetTime};
use pmfs_admin::MkfsOptions;
use std::path::{Path, PathBuf};

/// The call to make.
#[derive(Args)]
pub struct Options {
    /// The directory in which the pool is made.
    #[arg(long)]
    dir: PathBuf,
    /// The call.
    #[arg(long, value_enum)]
    call: Call,
}

/// The lines of the table.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Call {
    /// Makes an empty file and sets its times.
    Touch,
    /// Makes an empty directory.
    Mkdir,
    /// Moves a file to a directory that is empty.
    Mv,
}

/// Counts and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let counted = count(&options.dir, options.call)?;
    println!(
        "{}",
        serde_json::json!({"call": format!("{:?}", options.call), "logged_bytes": counted.logged_bytes, "barriers": counted.fences})
    );
    Ok(())
}

/// On a pool whose directories are in use, as others' are.
fn count(dir: &Path, call: Call) -> anyhow::Result<Counters> {
    let path = tempfile::Builder::new().make_in(dir, |path| {
        let made = MkfsOptions {
            size: Some(64 << 20),
            map: map_options(),
            ..MkfsOptions::default()
        };
        pmfs_admin::mkfs(path, &made).map_err(std::io::Error::other)
    })?;
    let open = OpenOptions {
        map: map_options(),
        atime: AtimeMode::Noatime,
        ..OpenOptions::default()
    };
    let fs = Fs::open(path.path(), &open)?;
    let from = fs.mkdir(ROOT_INO, b"dir", &NODE)?.ino;
    fs.create(from, b"there", &NODE)?;
    fs.create(from, b"file", &NODE)?;
    let to = fs.mkdir(from, b"empty", &NODE)?.ino;
    let before = snapshot();
    match call {
        Call::Touch => {
            let ino = fs.create(from, b"touched", &NODE)?.ino;
            let now = SetAttr {
                atime_ns: Some(SetTime::Now),
                mtime_ns: Some(SetTime::Now),
                ..SetAttr::default()
            };
            fs.setattr(ino, &now)?;
        }
        Call::Mkdir => drop(fs.mkdir(from, b"made", &NODE)?),
        Call::Mv => fs.rename(from, b"file", to, b"file", RenameFlags::empty())?,
    }
    let counted = snapshot() - before;
    fs.detach()?;
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source's own figures are what is to be beaten.
    #[test]
    fn table_3_is_beaten() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        for (call, theirs) in [(Call::Touch, 512), (Call::Mkdir, 320), (Call::Mv, 384)] {
            let bytes = count(place.path(), call).unwrap().logged_bytes;
            assert!(0 < bytes && bytes <= theirs, "{call:?}: {bytes}");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
