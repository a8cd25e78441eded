//! Listing directories.

use libc::{EINVAL, ENOTDIR};

use crate::call::{Answer, errno, kernel_answer};
use crate::descriptors as table;
use crate::descriptors::pool::fs;
use crate::names::numbered;
use crate::own::kernel;
use crate::program;
use crate::thread::descriptor::Descriptor;

/// Bytes before the name: inode, offset, length, type.
const HEAD: usize = 19;
/// The most bytes that one call returns.
const ROOM: usize = 64 << 10;

/// Returns a directory's next entries as struct linux_dirent64.
pub(crate) fn getdents64(dir: &Descriptor, args: [u64; 6]) -> Answer {
    if !dir.is_dir {
        return Err(ENOTDIR);
    }
    let fs = fs()?;
    let room = (args[2] as u32 as usize).min(ROOM);
    let mut records = Vec::with_capacity(room.min(32 << 10));
    let mut met_none = true;
    let open = fs.file(dir.file).map_err(errno)?;
    let (before, wants_atime) = (open.offset, open.wants_atime());
    let listed = fs.at_offset(dir.file, |now| {
        let mut end = now.offset;
        let listed = fs.readdir_for(dir.ino, now.offset, wants_atime, &mut |entry| {
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
        });
        // Entries before an error are returned first, as on a mount.
        match listed {
            Err(error) if records.is_empty() => Err(error),
            _ => Ok((end, records.len())),
        }
    });
    let listed = listed.map_err(errno)?;
    if listed == 0 && !met_none {
        // Not even one entry fits.
        return Err(EINVAL);
    }
    if let Err(error) = program::write_bytes(args[1], &records) {
        // The entry was not returned, so the next call lists it again.
        let _ = fs.seek_file(dir.file, std::io::SeekFrom::Start(before));
        return Err(error);
    }
    Ok(listed as u64)
}

/// The offset of a record's length inside the record.
const LENGTH: usize = 16;

/// Lists this process's descriptors, without this library's own.
pub(crate) fn descriptors(args: [u64; 6]) -> Answer {
    let mut records = vec![0u8; (args[2] as u32 as usize).min(ROOM)];
    loop {
        let at = records.as_mut_ptr().expose_provenance() as u64;
        let asked = [args[0], at, records.len() as u64, 0, 0, 0];
        // SAFETY: the kernel fills at most the room.
        let len = unsafe { kernel::call(libc::SYS_getdents64, asked) };
        let len = kernel_answer(len)? as usize;
        let shown = without_own(&records[..len]);
        if len > 0 && shown.is_empty() {
            continue;
        }
        program::write_bytes(args[1], &shown)?;
        return Ok(shown.len() as u64);
    }
}

fn without_own(records: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(records.len());
    let mut at = 0;
    while at + HEAD < records.len() {
        let bytes = usize::from(u16::from_le_bytes([
            records[at + LENGTH],
            records[at + LENGTH + 1],
        ]));
        let record = &records[at..(at + bytes).min(records.len())];
        let name = record[HEAD..].split(|byte| *byte == 0).next();
        let number = name.and_then(numbered::decimal);
        if !number.is_some_and(table::is_own) {
            shown.extend_from_slice(record);
        }
        at += bytes.max(HEAD);
    }
    shown
}
