//! The medium that a pool lies on, and its guarantees.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::address_space::HUGE;
use crate::cpu::{FlushInstr, cpu};
use crate::error::Error;

/// statfs magics (include/uapi/linux/magic.h).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// Kinds of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediumKind {
    /// A file on tmpfs (or ramfs).
    Tmpfs,
    /// A file on hugetlbfs.
    Hugetlbfs,
    /// A file in the page cache of any other file system.
    File,
    /// A file on a DAX file system, mapped with MAP_SYNC.
    FsDax,
    /// A device-DAX character device.
    DevDax,
    /// Anonymous memory of this process (tests, crash images).
    Private,
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MediumKind::Tmpfs => "tmpfs",
            MediumKind::Hugetlbfs => "hugetlbfs",
            MediumKind::File => "plain file",
            MediumKind::FsDax => "DAX file",
            MediumKind::DevDax => "DAX device",
            MediumKind::Private => "private memory",
        })
    }
}

/// The choice to flush lines on media that do not survive power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMode {
    /// Flush and fence only where the medium needs it.
    #[default]
    Auto,
    /// Flush everywhere, as on a medium that survives power loss: for measurements.
    Always,
}

impl fmt::Display for FlushMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlushMode::Auto => "auto",
            FlushMode::Always => "always",
        })
    }
}

impl FromStr for FlushMode {
    type Err = String;

    fn from_str(s: &str) -> Result<FlushMode, String> {
        match s {
            "auto" => Ok(FlushMode::Auto),
            "always" => Ok(FlushMode::Always),
            _ => Err(format!("flush mode is auto or always, not {s:?}")),
        }
    }
}

/// The events that stores survive after the next fence has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Power loss.
    PowerFail,
    /// The death of processes.
    Process,
    /// The death of processes, and power loss through msync at each fence.
    ProcessAndMsync,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::PowerFail => {
                "durable: survives the death of processes and power loss (as far as the device under the mapping does)"
            }
            Durability::Process => {
                "volatile: survives the death of processes, not power loss, a kernel crash or a reboot"
            }
            Durability::ProcessAndMsync => {
                "durable but slow: survives the death of processes, and power loss by an msync at each barrier"
            }
        })
    }
}

/// The medium that a pool lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Medium {
    /// Kind of medium.
    pub kind: MediumKind,
    /// The guarantee of a fence.
    pub durability: Durability,
    /// The way that lines are written back.
    pub flush: FlushInstr,
    /// f_type of statfs(2) (include/uapi/linux/magic.h); 0 = not a file.
    pub fs_magic: u64,
    /// Granularity of the medium's lengths and pages, bytes.
    pub page_size: u64,
}

impl Medium {
    /// Anonymous memory.
    pub(crate) const PRIVATE: Medium = Medium {
        kind: MediumKind::Private,
        durability: Durability::Process,
        flush: FlushInstr::None,
        fs_magic: 0,
        page_size: 4096,
    };

    /// Returns whether the smallest page of a mapping is 2 MiB or 1 GiB: hugetlbfs, most DAX
    /// devices.
    #[must_use]
    pub fn has_large_pages(&self) -> bool {
        self.page_size > 4096
    }

    /// Alignment of the mapping's address, bytes.
    pub(crate) fn alignment(&self) -> usize {
        HUGE.max(self.page_size as usize)
    }
}

/// Kind, page size and magic of an open file, before it is mapped. A plain file
/// may turn out to be `FsDax` when MAP_SYNC is tried.
pub(crate) fn examine(path: &Path, file: &File) -> Result<(MediumKind, u64, u64), Error> {
    let probe = |what: &str, source| Error::Probe {
        path: path.into(),
        what: what.into(),
        source,
    };
    let metadata = file.metadata().map_err(|e| probe("fstat", e))?;
    if metadata.file_type().is_char_device() {
        let device = DaxDevice::find(Path::new("/sys/dev/char"), path, metadata.rdev())?;
        return Ok((MediumKind::DevDax, device.align, 0));
    }
    if !metadata.is_file() {
        return Err(Error::NotAFile { path: path.into() });
    }
    // SAFETY: all-zero is a valid statfs, and fstatfs fills the one given.
    let statfs = unsafe {
        let mut statfs: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut statfs) != 0 {
            return Err(probe("fstatfs", io::Error::last_os_error()));
        }
        statfs
    };
    let magic = statfs.f_type as u64 & 0xffff_ffff;
    Ok(match magic {
        TMPFS_MAGIC | RAMFS_MAGIC => (MediumKind::Tmpfs, 4096, magic),
        HUGETLBFS_MAGIC => (MediumKind::Hugetlbfs, statfs.f_bsize as u64, magic),
        _ => (MediumKind::File, 4096, magic),
    })
}

/// A device-DAX device, as sysfs shows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DaxDevice {
    /// Length, bytes.
    pub size: u64,
    /// Page size of its mappings, bytes.
    pub align: u64,
}

impl DaxDevice {
    /// Looks up device number `rdev` under `sys_dev_char` (/sys/dev/char).
    pub(crate) fn find(sys_dev_char: &Path, path: &Path, rdev: u64) -> Result<DaxDevice, Error> {
        let dir = sys_dev_char.join(format!("{}:{}", libc::major(rdev), libc::minor(rdev)));
        let is_dax = fs::read_link(dir.join("subsystem"))
            .is_ok_and(|target| target.file_name().is_some_and(|name| name == "dax"));
        if !is_dax {
            return Err(Error::NotAFile { path: path.into() });
        }
        let read = |file: PathBuf| {
            let text = fs::read_to_string(&file);
            text.and_then(|t| t.trim().parse::<u64>().map_err(io::Error::other))
                .map_err(|source| Error::Probe {
                    path: path.into(),
                    what: file.display().to_string(),
                    source,
                })
        };
        let size = read(dir.join("size"))?;
        // Kernels before 5.10 keep this file at the region.
        let align = read(dir.join("align")).or_else(|_| read(dir.join("device/align")));
        let align = align.unwrap_or(HUGE as u64);
        if !align.is_power_of_two() || align < 4096 {
            return Err(Error::Probe {
                path: path.into(),
                what: format!("align {align} of the device"),
                source: io::ErrorKind::InvalidData.into(),
            });
        }
        Ok(DaxDevice { size, align })
    }
}

/// The flush instruction and the durability for a mapped medium.
pub(crate) fn persistence(
    kind: MediumKind,
    mode: FlushMode,
    durable: bool,
) -> (FlushInstr, Durability) {
    let durability = match kind {
        MediumKind::FsDax | MediumKind::DevDax => Durability::PowerFail,
        MediumKind::File if durable => Durability::ProcessAndMsync,
        _ => Durability::Process,
    };
    let needed = durability == Durability::PowerFail && !caches_are_durable(Path::new("/sys"));
    let flush = if needed || mode == FlushMode::Always {
        cpu().flush
    } else {
        FlushInstr::None
    };
    (flush, durability)
}

/// Returns whether the machine has eADR: every region of persistent memory says that power loss
/// drains the caches.
fn caches_are_durable(sys: &Path) -> bool {
    let Ok(entries) = fs::read_dir(sys.join("bus/nd/devices")) else {
        return false;
    };
    let mut regions = entries
        .flatten()
        .filter(|e| e.file_name().as_encoded_bytes().starts_with(b"region"))
        .peekable();
    regions.peek().is_some()
        && regions.all(|region| {
            fs::read_to_string(region.path().join("persistence_domain"))
                .is_ok_and(|domain| domain.trim() == "cpu_cache")
        })
}

#[cfg(test)]
mod tests {
    //! Test machines have no DAX device, so the tests make a directory like sysfs.

    use std::os::unix::fs::symlink;

    use super::*;

    fn device(subsystem: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("250:1");
        fs::create_dir_all(device.join("device")).unwrap();
        symlink(format!("../../bus/{subsystem}"), device.join("subsystem")).unwrap();
        for (name, text) in files {
            fs::write(device.join(name), text).unwrap();
        }
        dir
    }

    fn find(dir: &tempfile::TempDir) -> Result<DaxDevice, Error> {
        let path = Path::new("/dev/dax0.0");
        DaxDevice::find(dir.path(), path, libc::makedev(250, 1))
    }

    #[test]
    fn a_dax_device_has_a_size_and_an_alignment() {
        let new = device(
            "dax",
            &[("size", "16909336576\n"), ("align", "1073741824\n")],
        );
        let wanted = DaxDevice {
            size: 16_909_336_576,
            align: 1 << 30,
        };
        assert_eq!(find(&new).unwrap(), wanted);
        let old = device("dax", &[("size", "4194304\n"), ("device/align", "4096\n")]);
        assert_eq!(find(&old).unwrap().align, 4096);
        let silent = device("dax", &[("size", "4194304\n")]);
        assert_eq!(find(&silent).unwrap().align, 2 << 20);
    }

    #[test]
    fn other_devices_and_nonsense_are_refused() {
        let tty = device("tty", &[("size", "4194304\n")]);
        assert!(matches!(find(&tty), Err(Error::NotAFile { .. })));
        let sizeless = device("dax", &[]);
        assert!(matches!(find(&sizeless), Err(Error::Probe { .. })));
        let skewed = device("dax", &[("size", "4194304\n"), ("align", "5000\n")]);
        assert!(matches!(find(&skewed), Err(Error::Probe { .. })));
    }

    #[test]
    fn caches_are_durable_only_if_every_region_says_so() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!caches_are_durable(dir.path()), "no PM at all");
        let region = |name: &str, domain: &str| {
            let region = dir.path().join("bus/nd/devices").join(name);
            fs::create_dir_all(&region).unwrap();
            fs::write(region.join("persistence_domain"), domain).unwrap();
        };
        region("region0", "cpu_cache\n");
        assert!(caches_are_durable(dir.path()));
        region("region1", "memory_controller\n");
        assert!(!caches_are_durable(dir.path()));
    }

    #[test]
    fn flushes_are_left_out_only_where_power_loss_loses_all() {
        use MediumKind::{DevDax, File, FsDax, Hugetlbfs, Private, Tmpfs};
        for kind in [Tmpfs, Hugetlbfs, File, Private] {
            let auto = persistence(kind, FlushMode::Auto, false);
            assert_eq!(auto, (FlushInstr::None, Durability::Process));
            let always = persistence(kind, FlushMode::Always, false);
            assert_eq!(always, (cpu().flush, Durability::Process));
        }
        let durable = persistence(File, FlushMode::Auto, true);
        assert_eq!(durable, (FlushInstr::None, Durability::ProcessAndMsync));
        assert_eq!(
            persistence(Tmpfs, FlushMode::Auto, true).1,
            Durability::Process
        );
        for kind in [FsDax, DevDax] {
            assert_eq!(persistence(kind, FlushMode::Always, false).0, cpu().flush);
            assert_eq!(
                persistence(kind, FlushMode::Auto, false).1,
                Durability::PowerFail
            );
        }
        assert_ne!(cpu().flush, FlushInstr::None);
    }
}
