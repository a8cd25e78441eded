//! Listing directories.

use libc::{EINVAL, ENOTDIR};

use super::files::fs;
use crate::descriptors::Descriptor;
use crate::names::errno;
use crate::program::{self, Answer};

/// Before the name: inode, offset, length, type.
const HEAD: usize = 19;
/// Most that one call gives.
const ROOM: usize = 64 << 10;

/// A directory's next entries, as struct linux_dirent64.
pub(crate) fn getdents64(dir: &Descriptor, args: [u64; 6]) -> Answer {
    if !dir.is_dir {
        return Err(ENOTDIR);
    }
    let fs = fs()?;
    let room = (args[2] as u32 as usize).min(ROOM);
    let mut records = Vec::with_capacity(room.min(32 << 10));
    let mut met_none = true;
    let before = fs.file(dir.file).map_err(errno)?.offset;
    let listed = fs.at_offset(dir.file, |now| {
        let mut end = now.offset;
        fs.readdir(dir.ino, now.offset, &mut |entry| {
            met_none = false;
            let bytes = (HEAD + entry.name.len() + 1).next_multiple_of(8);
            if records.len() + bytes > room {
                return false;
            }
            let start = records.len();
            records.extend_from_slice(&entry.ino.to_le_bytes());
            records.extend_from_slice(&entry.cookie.to_le_bytes());
            records.extend_from_slice(&(bytes as u16).to_le_bytes());
            records.push((entry.kind >> 12) as u8);
            records.extend_from_slice(entry.name);
            records.resize(start + bytes, 0);
            end = entry.cookie;
            true
        })?;
        Ok((end, records.len()))
    });
    let listed = listed.map_err(errno)?;
    if listed == 0 && !met_none {
        // Not even one fits.
        return Err(EINVAL);
    }
    if let Err(error) = program::write_bytes(args[1], &records) {
        // Nothing was given: it comes again.
        let _ = fs.seek_file(dir.file, std::io::SeekFrom::Start(before));
        return Err(error);
    }
    Ok(listed as u64)
}
