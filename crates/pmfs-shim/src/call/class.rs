//! The classes of system calls: those that may concern the pool, and those among them that leave
//! the numbers of descriptors as they are (`parked.rs`).

/// The numbers of libc, and those that it lacks.
#[expect(non_upper_case_globals, reason = "named as libc names them")]
pub(crate) mod numbers {
    pub use libc::*;
    pub const SYS_create_module: i64 = 174;
    pub const SYS_get_kernel_syms: i64 = 177;
    pub const SYS_query_module: i64 = 178;
    pub const SYS_io_pgetevents: i64 = 333;
    pub const SYS_uretprobe: i64 = 335;
    pub const SYS_uprobe: i64 = 336;
    pub const SYS_cachestat: i64 = 451;
    pub const SYS_map_shadow_stack: i64 = 453;
    pub const SYS_futex_wake: i64 = 454;
    pub const SYS_futex_wait: i64 = 455;
    pub const SYS_futex_requeue: i64 = 456;
    pub const SYS_statmount: i64 = 457;
    pub const SYS_listmount: i64 = 458;
    pub const SYS_lsm_get_self_attr: i64 = 459;
    pub const SYS_lsm_set_self_attr: i64 = 460;
    pub const SYS_lsm_list_modules: i64 = 461;
    pub const SYS_setxattrat: i64 = 463;
    pub const SYS_getxattrat: i64 = 464;
    pub const SYS_listxattrat: i64 = 465;
    pub const SYS_removexattrat: i64 = 466;
    pub const SYS_open_tree_attr: i64 = 467;
    pub const SYS_file_getattr: i64 = 468;
    pub const SYS_file_setattr: i64 = 469;
}

/// Numbers and names.
macro_rules! calls {
    ($($number:ident),* $(,)?) => {
        &[$((numbers::$number, stringify!($number))),*]
    };
}

#[cfg(test)]
mod page;
mod passed;

use passed::{PASSED, PROMOTED};

/// The call never concerns the pool, and is passed on at once.
const PASS: u8 = 0;
/// The call concerns the pool only if its first argument is a descriptor of the pool.
pub(crate) const BY_DESCRIPTOR: u8 = 1;
/// The call is checked.
pub(crate) const PEEK: u8 = 2;
/// The call is checked and ends parked numbers: it may free or take numbers, or use numbers that
/// are not checked here.
pub(crate) const PEEK_AND_FLUSH_PARKED: u8 = 3;
/// The call concerns the pool only if its first argument is a descriptor of the pool; for other
/// descriptors it ends parked numbers.
const BY_DESCRIPTOR_OR_FLUSH_PARKED: u8 = 4;
/// The call only ends parked numbers.
pub(crate) const FLUSH_PARKED: u8 = 5;
/// The call is passed on, after the holes in the memory that it names have got memory
/// (`maps/lazy.rs`).
pub(crate) const MEMORY: u8 = 6;

/// The class of each number. A call in no list is refused for descriptors of the pool, and may do
/// anything with others.
pub(crate) static CLASS: [u8; crate::call::NUMBERS] = {
    let mut class = [BY_DESCRIPTOR_OR_FLUSH_PARKED; crate::call::NUMBERS];
    let mut at = 0;
    while at < PASSED.len() {
        class = with(class, PASSED[at].calls, FLUSH_PARKED);
        at += 1;
    }
    at = 0;
    while at < PROMOTED.len() {
        class[PROMOTED[at].0 as usize] = PEEK_AND_FLUSH_PARKED;
        at += 1;
    }
    class = with(class, WITHOUT_DESCRIPTORS, PASS);
    class = with(class, WITH_MEMORY, MEMORY);
    class = with(class, DESCRIPTOR_CALLS, BY_DESCRIPTOR);
    class = with(class, CHANGES_OF_DESCRIPTORS, BY_DESCRIPTOR_OR_FLUSH_PARKED);
    class = with(class, PEEKED, PEEK);
    with(class, PEEKED_AND_FLUSH_PARKED, PEEK_AND_FLUSH_PARKED)
};

type Calls = &'static [(i64, &'static str)];
type Classes = [u8; crate::call::NUMBERS];

const fn with(mut class: Classes, calls: Calls, of: u8) -> Classes {
    let mut at = 0;
    while at < calls.len() {
        class[calls[at].0 as usize] = of;
        at += 1;
    }
    class
}

/// Calls without descriptors that are frequent, or must not be served on another stack.
const WITHOUT_DESCRIPTORS: Calls = calls![
    SYS_brk,
    SYS_rt_sigreturn,
    SYS_rt_sigsuspend,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_sched_yield,
    SYS_pause,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_getres,
    SYS_getitimer,
    SYS_setitimer,
    SYS_alarm,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getpgrp,
    SYS_exit,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_restart_syscall,
    SYS_arch_prctl,
    SYS_getrlimit,
    SYS_sched_getaffinity,
    SYS_membarrier,
];

/// Calls without descriptors that get memory of the program.
const WITH_MEMORY: Calls = calls![
    SYS_futex,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_time,
    SYS_times,
    SYS_getrusage,
    SYS_uname,
    SYS_sysinfo,
    SYS_wait4,
];

const DESCRIPTOR_CALLS: Calls = calls![
    SYS_read,
    SYS_write,
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
    SYS_cachestat,
];

const CHANGES_OF_DESCRIPTORS: Calls = calls![SYS_close, SYS_dup, SYS_fcntl,];

const PEEKED: Calls = calls![
    // Calls by path.
    SYS_open,
    SYS_openat,
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
    // Calls with descriptors behind the first argument.
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_splice,
    SYS_tee,
    // Calls about memory, and about requests under way.
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_pkey_mprotect,
    SYS_mremap,
    SYS_msync,
    SYS_madvise,
    SYS_remap_file_pages,
    SYS_mseal,
    SYS_shmat,
    SYS_mlockall,
    SYS_vserver,
    SYS_io_getevents,
    SYS_io_pgetevents,
    SYS_io_destroy,
    SYS_fchmodat2,
    SYS_setxattrat,
    SYS_getxattrat,
    SYS_listxattrat,
    SYS_removexattrat,
    // Calls about the process.
    SYS_umask,
    SYS_exit_group,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_sigaltstack,
];

const PEEKED_AND_FLUSH_PARKED: Calls = calls![
    // Calls with any descriptor, or with many.
    SYS_openat2,
    SYS_dup2,
    SYS_dup3,
    SYS_close_range,
    SYS_io_submit,
    SYS_vmsplice,
    SYS_process_madvise,
    // Calls about the process.
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
    // Calls whose memory carries descriptors or paths.
    SYS_bind,
    SYS_connect,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_inotify_add_watch,
    SYS_fanotify_mark,
    SYS_landlock_add_rule,
    SYS_kcmp,
    // Calls by a descriptor, some of them with a second one in their memory.
    SYS_ioctl,
];

/// Returns whether a call never concerns the pool.
pub(crate) fn is_none_of_ours(number: i64) -> bool {
    matches!(CLASS[number as usize], PASS | FLUSH_PARKED | MEMORY)
}

/// Returns whether a call concerns the pool only if its first argument is a descriptor of the pool.
pub(crate) fn is_by_descriptor(number: i64) -> bool {
    matches!(
        CLASS[number as usize],
        BY_DESCRIPTOR | BY_DESCRIPTOR_OR_FLUSH_PARKED
    )
}

/// The served calls.
const SERVED: [Calls; 4] = [
    DESCRIPTOR_CALLS,
    CHANGES_OF_DESCRIPTORS,
    PEEKED,
    PEEKED_AND_FLUSH_PARKED,
];

/// Bytes of a name's field, as long as the longest name.
const NAME_MAX: usize = 24;
type Names = [[u8; NAME_MAX]; crate::call::NUMBERS];

/// The names in one block: pointers would be some 500 relocations at each program's start.
static NAMES: Names = {
    let mut names = [[0; NAME_MAX]; crate::call::NUMBERS];
    let mut at = 0;
    while at < SERVED.len() {
        names = named(names, SERVED[at]);
        at += 1;
    }
    at = 0;
    while at < PASSED.len() {
        names = named(names, PASSED[at].calls);
        at += 1;
    }
    at = 0;
    while at < PROMOTED.len() {
        let (number, name, _) = PROMOTED[at];
        names[number as usize] = padded(name);
        at += 1;
    }
    names = named(names, WITHOUT_DESCRIPTORS);
    named(names, WITH_MEMORY)
};

const fn named(mut names: Names, calls: Calls) -> Names {
    let mut at = 0;
    while at < calls.len() {
        names[calls[at].0 as usize] = padded(calls[at].1);
        at += 1;
    }
    names
}

/// A name without the prefix that all have, padded.
const fn padded(name: &str) -> [u8; NAME_MAX] {
    const BEFORE: usize = "SYS_".len();
    let (name, mut padded) = (name.as_bytes(), [0; NAME_MAX]);
    let mut at = BEFORE;
    while at < name.len() {
        padded[at - BEFORE] = name[at];
        at += 1;
    }
    padded
}

/// The name of a call.
pub(crate) fn name(number: i64) -> &'static str {
    let name = usize::try_from(number).ok().and_then(|at| NAMES.get(at));
    let name = name.and_then(|name| name.split(|byte| *byte == 0).next());
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    name.filter(|name| !name.is_empty()).unwrap_or("?")
}

/// The arguments of a promoted call that are descriptors, one bit each; 0 for other calls.
pub(crate) static PROMOTES: [u8; crate::call::NUMBERS] = {
    let mut all = [0; crate::call::NUMBERS];
    let mut at = 0;
    while at < PROMOTED.len() {
        let (number, _, which) = PROMOTED[at];
        let mut argument = 0;
        while argument < which.len() {
            all[number as usize] |= 1 << which[argument];
            argument += 1;
        }
        at += 1;
    }
    all
};
