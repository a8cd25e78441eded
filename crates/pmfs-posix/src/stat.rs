//! stat(2) and statx(2) from attributes. The structures are the caller's, all zero before.

use pmfs::Attr;

use crate::times::SECOND_NS;

/// The preferred size of writes, bytes.
const BLOCK_BYTES: u32 = 4096;

fn split(ns: i64) -> (i64, i64) {
    (ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS))
}

/// The two numbers of a device, of the kernel's 32-bit form: minor's upper bits stand above major.
fn numbers(device: u64) -> (u32, u32) {
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    (major as u32, minor as u32)
}

/// Fills a struct stat; `device` is the file system's number, as the kernel has it.
pub fn fill_stat(stat: &mut libc::stat, attr: &Attr, device: u64) {
    let (major, minor) = numbers(attr.rdev.into());
    stat.st_dev = device;
    stat.st_ino = attr.ino;
    stat.st_nlink = attr.links.into();
    stat.st_mode = attr.mode;
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = libc::makedev(major, minor);
    stat.st_size = attr.size as i64;
    stat.st_blksize = BLOCK_BYTES.into();
    stat.st_blocks = attr.sectors as i64;
    (stat.st_atime, stat.st_atime_nsec) = split(attr.atime_ns);
    (stat.st_mtime, stat.st_mtime_nsec) = split(attr.mtime_ns);
    (stat.st_ctime, stat.st_ctime_nsec) = split(attr.ctime_ns);
}

/// Fills a struct statx.
pub fn fill_statx(all: &mut libc::statx, attr: &Attr, device: u64) {
    all.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    all.stx_blksize = BLOCK_BYTES;
    all.stx_nlink = attr.links;
    all.stx_uid = attr.uid;
    all.stx_gid = attr.gid;
    all.stx_mode = attr.mode as u16;
    all.stx_ino = attr.ino;
    all.stx_size = attr.size;
    all.stx_blocks = attr.sectors;
    for (time, ns) in [
        (&mut all.stx_atime, attr.atime_ns),
        (&mut all.stx_btime, attr.crtime_ns),
        (&mut all.stx_ctime, attr.ctime_ns),
        (&mut all.stx_mtime, attr.mtime_ns),
    ] {
        let (seconds, rest) = split(ns);
        (time.tv_sec, time.tv_nsec) = (seconds, rest as u32);
    }
    (all.stx_rdev_major, all.stx_rdev_minor) = numbers(attr.rdev.into());
    (all.stx_dev_major, all.stx_dev_minor) = numbers(device);
}
