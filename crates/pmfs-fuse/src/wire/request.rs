//! The fixed parts of what the kernel sends, `struct fuse_*_in` of `linux/fuse.h`:
//! names, sizes and order are its, padding included.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares structures with the sizes that the header gives them.
macro_rules! wire {
    ($($(#[$about:meta])* $name:ident: $bytes:literal { $($field:ident: $type:ty),+ $(,)? })+) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)+
            }

            const _: () = assert!(size_of::<$name>() == $bytes);
        )+
    };
}

pub(super) use wire;

wire! {
    /// The header of every request.
    InHeader: 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    ForgetIn: 8 { nlookup: u64 }
    ForgetOne: 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn: 8 { count: u32, dummy: u32 }
    /// Since 7.39.
    StatxIn: 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn: 8 { mode: u32, umask: u32 }
    RenameIn: 8 { newdir: u64 }
    Rename2In: 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn: 8 { oldnodeid: u64 }
    SetattrIn: 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    OpenIn: 8 { flags: u32, open_flags: u32 }
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn: 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn: 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn: 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn: 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// The form with FUSE_SETXATTR_EXT.
    SetxattrIn: 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn: 8 { size: u32, padding: u32 }
    FileLock: 24 { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn: 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    InterruptIn: 8 { unique: u64 }
    IoctlIn: 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// The body of [`pmfs::FOLLOW_REQUEST`].
    FollowIn: 16 { file: u64, at: u64 }
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn: 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn: 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
}

/// `FATTR_*`: which fields of a SETATTR count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

/// `FUSE_READ_LOCKOWNER`: of read(2) and the like, past the pages; without it pages are
/// to be filled.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// `FUSE_WRITE_CACHE`: a page is written back; the file handle is guessed.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`: the writer may not keep set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_SETXATTR_ACL_KILL_SGID`: the caller that sets the ACL may not keep set-gid.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `FUSE_IOCTL_UNRESTRICTED`: the argument is a pointer in the caller.
pub(crate) const IOCTL_UNRESTRICTED: u32 = 1 << 1;
/// `FUSE_LK_FLOCK`: of flock(2), not of a range.
pub(crate) const LK_FLOCK: u32 = 1 << 0;
