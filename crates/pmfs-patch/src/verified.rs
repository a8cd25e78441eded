//! The record of verified images, so that the few milliseconds of hashing a libc and its image are
//! not spent before each program.
//!
//! The record is a file beside the images, with a line of text for each library file: the file and
//! its last change, its image, and the image's last change. Library and image have the bytes that
//! were hashed as long as these fields match: a write to a file sets its change time to the
//! present. The kernel's clock for change times stands still for some milliseconds at a time, so a
//! file that changed just now is not recorded.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

use crate::header::VERSION;

/// The coarsest clock of a file system: that of FAT.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(2);
/// More than any record has.
pub(crate) const RECORD_BYTES_MAX: u64 = 8192;

/// A library as it was found: where, and as which file.
pub(crate) struct Seen<'a> {
    pub(crate) path: &'a Path,
    pub(crate) status: Stat,
}

impl Seen<'_> {
    /// The name of its record.
    pub(crate) fn record_name(&self) -> String {
        format!("{:x}-{:x}.verified", self.status.st_dev, self.status.st_ino)
    }

    /// The record: all that must be the same again.
    pub(crate) fn record(&self, image_name: &str, image: &Stat) -> String {
        format!(
            "{image_name}\n{} {}\n{}\n",
            identity(&self.status),
            identity(image),
            self.path.display()
        )
    }
}

/// The image's name in a record, if it is one, of an image as they are made now.
pub(crate) fn patched_text_name(record: &str) -> Option<&str> {
    let name = record.lines().next()?;
    (name.ends_with(&ending()) && !name.contains('/')).then_some(name)
}

/// The ending of images' names. The version is in it, so that two versions of this crate don't
/// replace each other's for ever.
pub(crate) fn ending() -> String {
    format!(".v{VERSION}.image")
}

/// Returns whether a file's change time tells all that is written to it from now on.
pub(crate) fn is_stable(status: &Stat, after: Duration) -> bool {
    let changed = SystemTime::UNIX_EPOCH
        + Duration::from_secs(u64::try_from(status.st_ctime).unwrap_or(u64::MAX / 2));
    SystemTime::now()
        .duration_since(changed)
        .is_ok_and(|age| age >= after)
}

fn identity(status: &Stat) -> String {
    format!(
        "{:x} {:x} {} {}.{:09} {}.{:09}",
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime,
        status.st_mtime_nsec,
        status.st_ctime,
        status.st_ctime_nsec
    )
}
