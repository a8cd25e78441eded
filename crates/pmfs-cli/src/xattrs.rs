//! Extended attributes, ACLs among them, on their way between a pool and another file system: as
//! many as the caller may read, and the destination takes.

use std::ffi::{CStr, CString};
use std::path::Path;

use pmfs::{Error, Fs, Ino, XattrFlags};
use rustix::fs::{lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;

/// The longest value, and the longest list of names, that Linux has.
const MOST: usize = 64 << 10;

/// Puts the attributes of the file at `src` on the inode. A file system without
/// attributes has none.
///
/// # Errors
/// The pool's.
pub fn put(fs: &Fs, src: &Path, ino: Ino) -> Result<(), Error> {
    for (name, value) in of_file(src) {
        match fs.setxattr(ino, name.to_bytes(), &value, XattrFlags::empty()) {
            // `system.nfs4_acl`, say, which no pool has.
            Ok(()) | Err(Error::NotSupported(_) | Error::NotPermitted(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Puts the inode's attributes on the file at `dest`; those that are refused there stay behind.
///
/// # Errors
/// The pool's.
pub fn get(fs: &Fs, ino: Ino, dest: &Path) -> Result<(), Error> {
    for name in fs.listxattr(ino)? {
        let value = fs.getxattr(ino, &name)?;
        if let Ok(name) = CString::new(name) {
            let _ = lsetxattr(
                dest,
                name.as_c_str(),
                &value,
                rustix::fs::XattrFlags::empty(),
            );
        }
    }
    Ok(())
}

fn of_file(src: &Path) -> Vec<(CString, Vec<u8>)> {
    let mut names = vec![0; MOST];
    let Ok(len) = llistxattr(src, &mut names) else {
        return Vec::new();
    };
    names[..len]
        .split_inclusive(|&byte| byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
        .filter_map(|name| Some((name.to_owned(), value_of(src, name).ok()?)))
        .collect()
}

fn value_of(src: &Path, name: &CStr) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; MOST];
    let len = lgetxattr(src, name, &mut value)?;
    value.truncate(len);
    Ok(value)
}
