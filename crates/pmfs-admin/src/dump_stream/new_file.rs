//! A file that gets its name when it is whole: until then it has none, and goes with the process
//! that makes it. Where nameless files can't be had, the file has a hidden name meanwhile.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A file in the making.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// The file's name until it is whole, where it has to have one.
    aside: Option<PathBuf>,
    dest: PathBuf,
}

impl NewFile {
    /// Makes it, mode 0600, in the directory where it is to be `dest`.
    ///
    /// # Errors
    /// The system's.
    pub fn create(dest: &Path) -> io::Result<NewFile> {
        let dir = match dest.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = open(dir, flags, Mode::RUSR | Mode::WUSR) {
            return Ok(NewFile {
                file: file.into(),
                aside: None,
                dest: dest.to_owned(),
            });
        }
        let aside = dir.join(aside());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open(&aside, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(NewFile {
            file: file.into(),
            aside: Some(aside),
            dest: dest.to_owned(),
        })
    }

    /// To write to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path that leads to it, for this process alone.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Gives it its name; with `replace`, in place of what has the name.
    ///
    /// # Errors
    /// The system's: `AlreadyExists` without `replace`.
    pub fn publish(mut self, replace: bool) -> io::Result<()> {
        if self.aside.is_none() {
            match self.link(&self.dest) {
                Err(error) if replace && error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
            let aside = self.dest.with_file_name(aside());
            self.link(&aside)?;
            self.aside = Some(aside);
        }
        let aside = self.aside.as_ref().expect("just set");
        if replace {
            std::fs::rename(aside, &self.dest)?;
            self.aside = None;
            return Ok(());
        }
        // The name in between goes when this does.
        std::fs::hard_link(aside, &self.dest)
    }

    fn link(&self, name: &Path) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_FOLLOW;
        Ok(linkat(CWD, self.path(), CWD, name, flags)?)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            let _ = std::fs::remove_file(aside);
        }
    }
}

fn aside() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".pmfs-{}-{number}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn named_when_whole_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("dest");
        let count = || std::fs::read_dir(dir.path()).unwrap().count();
        let fill = |new: &NewFile, text: &str| new.file().write_all(text.as_bytes()).unwrap();
        drop(NewFile::create(&dest).unwrap());
        assert_eq!(count(), 0);
        let first = NewFile::create(&dest).unwrap();
        fill(&first, "first");
        assert!(!dest.exists());
        first.publish(false).unwrap();
        let second = NewFile::create(&dest).unwrap();
        fill(&second, "second");
        let error = second.publish(false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&dest).unwrap(), b"first");
        let third = NewFile::create(&dest).unwrap();
        fill(&third, "third");
        third.publish(true).unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), b"third");
        assert_eq!(count(), 1);
    }
}
