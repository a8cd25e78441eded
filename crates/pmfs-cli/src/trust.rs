//! The test that only root can write to a pool: only such a pool may have set-user-ID programs and
//! devices. A user that can write to the file, or replace it, can write a set-user-ID program into
//! it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pmfs_fuse::MountError;

const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Refuses a pool that others than root can change: `pool` has no symbolic link in it.
pub fn is_roots(pool: &Path) -> Result<(), MountError> {
    let looked = |path: &Path| {
        fs::metadata(path).map_err(|source| MountError::Io {
            what: "looking at",
            path: path.to_owned(),
            source,
        })
    };
    let refused = |path: &Path, who| {
        Err(MountError::OthersWrite {
            path: PathBuf::from(path),
            who,
        })
    };
    let file = looked(pool)?;
    if file.uid() != 0 {
        return Err(MountError::NotRoots {
            path: pool.to_owned(),
        });
    }
    if let Some(who) = writer(pool, &file) {
        return refused(pool, who);
    }
    for above in pool.ancestors().skip(1) {
        let dir = looked(above)?;
        if dir.uid() != 0 {
            return refused(above, "its owner");
        }
        // In a sticky directory only root can move root's files.
        if dir.mode() & STICKY == 0
            && let Some(who) = writer(above, &dir)
        {
            return refused(above, who);
        }
    }
    Ok(())
}

/// Users beside its owner that may write to it. A device's group is that of the machine's disks.
fn writer(path: &Path, file: &Metadata) -> Option<&'static str> {
    let kind = file.file_type();
    let is_device = kind.is_block_device() || kind.is_char_device();
    match file.mode() {
        mode if mode & OTHERS_WRITE != 0 => Some("everybody"),
        mode if mode & GROUP_WRITE == 0 => None,
        // With an ACL these bits are the upper limit for each user or group that it names.
        _ if has_acl(path) => Some("a user or group that its ACL names"),
        _ if is_device || file.gid() == 0 => None,
        _ => Some("its group"),
    }
}

fn has_acl(path: &Path) -> bool {
    let mut nothing: [u8; 0] = [];
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut nothing).is_ok()
}
