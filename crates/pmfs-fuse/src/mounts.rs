//! The kernel's table of mounts, as far as it concerns PMFS.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::MountError;

/// The type of our mounts in the kernel's table.
pub const FS_TYPE: &str = "fuse.pmfs";

const MOUNT_INFO: &str = "/proc/self/mountinfo";

/// A mount of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMount {
    /// The directory of the mount.
    pub dir: PathBuf,
    /// The pool file, as it was named (absolute) when it was mounted.
    pub pool: PathBuf,
    /// The kernel's options of the mount: "rw,nosuid,nodev,relatime".
    pub options: String,
    /// The kernel's number for it, "0:57"; no two that exist at the same time share one.
    pub device: String,
}

/// All mounts of pools in this mount namespace, oldest first.
///
/// # Errors
/// If the kernel's table can't be read.
pub fn pool_mounts() -> Result<Vec<PoolMount>, MountError> {
    let table = fs::read(MOUNT_INFO).map_err(|source| MountError::Io {
        what: "reading",
        path: MOUNT_INFO.into(),
        source,
    })?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect())
}

/// The topmost PMFS mount at exactly this path.
///
/// # Errors
/// If the kernel's table can't be read.
pub fn pool_mount_at(dir: &Path) -> Result<Option<PoolMount>, MountError> {
    Ok(pool_mounts()?.into_iter().rfind(|mount| mount.dir == dir))
}

/// The error of a mount that was taken away and goes on: it stands elsewhere, too.
#[must_use]
pub fn copied(mount: &PoolMount) -> Option<MountError> {
    let copies = copies_of(mount);
    (!copies.is_empty()).then(|| MountError::Copied {
        pool: mount.pool.clone(),
        copies,
    })
}

/// Other directories that it was bound to, and mount namespaces that have copies of it,
/// each named by one of its processes, as far as this user may look.
fn copies_of(mount: &PoolMount) -> Vec<String> {
    let is_copy = |at: &PoolMount| at.device == mount.device && at.pool == mount.pool;
    let bound = pool_mounts().unwrap_or_default();
    let bound = bound.iter().filter(|at| is_copy(at));
    let mut copies: Vec<String> = bound.map(|at| format!("at {}", at.dir.display())).collect();
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt"));
    let mut seen: Vec<PathBuf> = namespace(Path::new("/proc/self")).into_iter().collect();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = process.path();
        let Ok(found) = namespace(&process) else {
            continue;
        };
        if seen.contains(&found) {
            continue;
        }
        let table = fs::read(process.join("mountinfo")).unwrap_or_default();
        let mut lines = table.split(|byte| *byte == b'\n').filter_map(parse_line);
        if lines.any(|at| is_copy(&at)) {
            seen.push(found);
            let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let pid = process.file_name().unwrap_or_default().to_string_lossy();
            let name = command.trim();
            copies.push(format!("in the mount namespace of {name}[{pid}]"));
        }
    }
    copies
}

/// The mounts of file systems whose files are memory: tmpfs, hugetlbfs, DAX.
///
/// # Errors
/// If the kernel's table can't be read.
pub fn memory_mounts() -> Result<Vec<PathBuf>, MountError> {
    let table = fs::read(MOUNT_INFO).map_err(|source| MountError::Io {
        what: "reading",
        path: MOUNT_INFO.into(),
        source,
    })?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(memory_mount)
        .collect())
}

fn memory_mount(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let dir = fields.nth(4)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = rest.next()?;
    let of_memory = [&b"tmpfs"[..], b"ramfs", b"hugetlbfs"].contains(&kind);
    let options = rest.nth(1)?;
    let dax = options
        .split(|byte| *byte == b',')
        .any(|option| option == b"dax" || option == b"dax=always");
    (of_memory || dax).then(|| unescape(dir))
}

/// `id parent major:minor root dir options [tag...] - type source super`, proc_pid_mountinfo(5).
fn parse_line(line: &[u8]) -> Option<PoolMount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let dir = fields.nth(1)?;
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    if rest.next()? != FS_TYPE.as_bytes() {
        return None;
    }
    let pool = rest.next()?;
    Some(PoolMount {
        dir: unescape(dir),
        pool: unescape(pool),
        options,
        device,
    })
}

/// The kernel writes space, tab, newline, backslash and '#' as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).filter(|digits| {
            field[at] == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
        });
        if let Some(digits) = octal {
            let value = digits
                .iter()
                .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(value as u8);
            at += 4;
        } else {
            bytes.push(field[at]);
            at += 1;
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let ours = br"98 29 0:57 / /mnt/a\040b rw,nosuid shared:3 master:1 - fuse.pmfs /dev/shm/p\134\054 rw,user_id=0";
        let mount = parse_line(ours).unwrap();
        assert_eq!(mount.dir, Path::new("/mnt/a b"));
        assert_eq!(mount.pool, Path::new("/dev/shm/p\\,"));
        assert_eq!(mount.options, "rw,nosuid");
        assert_eq!(mount.device, "0:57");
        let untagged = b"98 29 0:57 / /mnt rw - fuse.pmfs /p rw";
        assert_eq!(parse_line(untagged).unwrap().pool, Path::new("/p"));
        assert_eq!(memory_mount(ours), None);
        let shm = b"30 25 0:26 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,inode64";
        assert_eq!(memory_mount(shm).unwrap(), Path::new("/dev/shm"));
        let dax = b"31 25 259:1 / /mnt/pm rw - ext4 /dev/pmem0 rw,dax=always";
        assert_eq!(memory_mount(dax).unwrap(), Path::new("/mnt/pm"));
        assert_eq!(memory_mount(b"31 25 8:1 / / rw - ext4 /dev/sda rw"), None);
        for other in [
            &b"98 29 0:57 / /mnt rw - fuse.sshfs host: rw"[..],
            b"",
            b"1 2 3",
        ] {
            assert_eq!(parse_line(other), None);
        }
    }
}
