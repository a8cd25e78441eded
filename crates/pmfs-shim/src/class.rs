//! Which system calls may concern us.

/// The numbers of libc, and those that it lacks.
pub(crate) mod numbers {
    pub use libc::*;
    #[expect(non_upper_case_globals, reason = "named as libc names them")]
    pub const SYS_io_pgetevents: i64 = 333;
}

/// Numbers and names.
macro_rules! calls {
    ($($number:ident),* $(,)?) => {
        &[$((numbers::$number, stringify!($number))),*]
    };
}

/// Never: passed on at once.
const PASS: u8 = 0;
/// Only if the first argument is a descriptor of ours.
pub(crate) const BY_DESCRIPTOR: u8 = 1;
/// To be looked at.
const LOOK: u8 = 2;

/// The class of each number.
pub(crate) static CLASS: [u8; crate::entry::NUMBERS] = {
    let mut class = [PASS; crate::entry::NUMBERS];
    let mut at = 0;
    while at < DESCRIPTOR_CALLS.len() {
        class[DESCRIPTOR_CALLS[at].0 as usize] = BY_DESCRIPTOR;
        at += 1;
    }
    at = 0;
    while at < LOOKED_AT.len() {
        class[LOOKED_AT[at].0 as usize] = LOOK;
        at += 1;
    }
    class
};

const DESCRIPTOR_CALLS: &[(i64, &str)] = calls![
    SYS_read,
    SYS_write,
    SYS_close,
    SYS_fstat,
    SYS_lseek,
    SYS_pread64,
    SYS_pwrite64,
    SYS_readv,
    SYS_writev,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_ioctl,
    SYS_dup,
    SYS_fcntl,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync_file_range,
    SYS_syncfs,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_readahead,
    SYS_getdents64,
    SYS_getdents,
    SYS_fchmod,
    SYS_fchown,
    SYS_fstatfs,
    SYS_fsetxattr,
    SYS_fgetxattr,
    SYS_flistxattr,
    SYS_fremovexattr,
];

const LOOKED_AT: &[(i64, &str)] = calls![
    // By path.
    SYS_open,
    SYS_openat,
    SYS_openat2,
    SYS_creat,
    SYS_stat,
    SYS_lstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_access,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlink,
    SYS_readlinkat,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_mknod,
    SYS_mknodat,
    SYS_rmdir,
    SYS_unlink,
    SYS_unlinkat,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_link,
    SYS_linkat,
    SYS_symlink,
    SYS_symlinkat,
    SYS_chmod,
    SYS_fchmodat,
    SYS_chown,
    SYS_lchown,
    SYS_fchownat,
    SYS_truncate,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_statfs,
    SYS_chdir,
    SYS_getcwd,
    SYS_fchdir,
    // By descriptors that are not the first argument, or by many.
    SYS_dup2,
    SYS_dup3,
    SYS_close_range,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_pkey_mprotect,
    SYS_mremap,
    SYS_msync,
    SYS_madvise,
    SYS_vserver,
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_splice,
    SYS_io_submit,
    SYS_io_getevents,
    SYS_io_pgetevents,
    SYS_io_destroy,
    // About the process.
    SYS_umask,
    SYS_setrlimit,
    SYS_prlimit64,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_fork,
    SYS_vfork,
    SYS_clone,
    SYS_clone3,
    SYS_execve,
    SYS_execveat,
    SYS_exit_group,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_sigaltstack,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_setgroups,
    SYS_capset,
    SYS_io_uring_setup,
    SYS_prctl,
    SYS_seccomp,
    SYS_landlock_restrict_self,
    // By what they carry.
    SYS_bind,
    SYS_connect,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_inotify_add_watch,
    SYS_fanotify_mark,
];

/// Whether a call never concerns us.
pub(crate) fn is_none_of_ours(number: i64) -> bool {
    CLASS[number as usize] == PASS
}

/// A call's name, of those above.
pub(crate) fn name(number: i64) -> &'static str {
    let all = DESCRIPTOR_CALLS.iter().chain(LOOKED_AT);
    let found = all.clone().find(|(other, _)| *other == number);
    found.map_or("?", |(_, name)| name.trim_start_matches("SYS_"))
}
