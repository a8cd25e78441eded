//! The dispatch of a call to the function that serves it, or to the kernel.

use std::sync::atomic::Ordering;

use crate::call::class::{self, numbers};
use crate::call::{Call, Verdict};
use crate::calls::aio;
use crate::calls::attributes;
use crate::calls::completions;
use crate::calls::cwd;
use crate::calls::descriptors as handles;
use crate::calls::directories;
use crate::calls::files;
use crate::calls::messages;
use crate::calls::moves;
use crate::calls::names;
use crate::calls::opens;
use crate::calls::promoted;
use crate::calls::sockets;
use crate::calls::splice;
use crate::calls::watches;
use crate::calls::xattrs;
use crate::descriptors;
use crate::descriptors::parked;
use crate::maps;
use crate::maps::mapped_size;
use crate::own::mountless;
use crate::own::stats;
use crate::own::words::{self, word};
use crate::process;
use crate::process::retire;
use crate::process::vfork;
use crate::signals;
use crate::thread::descriptor::Descriptor;
use crate::thread::gate;
use crate::thread::{self, Inner};
use pmfs_posix::flags::{allow_advice, allow_sync_range};

/// The distance from a stub's `pass` to the end of its `syscall`.
const BEHIND: i64 = 2;
/// The distance from a stub's `pass` back to its jump to the entry.
const BEFORE: i64 = -13;

/// Dispatches a call, on the library's stack. Returns the distance to add to the stub's `pass`.
pub(crate) extern "C" fn dispatch(call: &mut Call) -> i64 {
    // SAFETY: errno of this thread, which calls of the library's own may set and the
    // program must not see.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    words::set(word::AFTERWARDS, crate::own::words::OUTSIDE);
    let own = thread::own_room();
    // Only a guest that was killed can have left the shared room so.
    let left_inside = own.busy.load(Ordering::Relaxed) != 0;
    gate::enter(own);
    if call.rax == libc::SYS_pread64 as u64 {
        files::expect(&call.args);
    }
    // SAFETY: this thread's room, for the time of this dispatch.
    let room = unsafe { &mut *thread::room() };
    vfork::note(room, left_inside);
    maps::before(call.rax as i64, &call.args);
    let mut followed = false;
    let verdict = loop {
        let verdict = serve(call, room);
        // The program's memory may belong to a file that others have lengthened.
        let is_there_now = || verdict.is_error(libc::EFAULT) && maps::any() && maps::follow_all();
        if followed || !is_there_now() {
            break verdict;
        }
        followed = true;
    };
    if stats::are_wanted() {
        tell(call, &verdict);
    }
    let step = match verdict {
        Verdict::Pass => 0,
        Verdict::Again => BEFORE,
        Verdict::Done(rax) => {
            call.rax = rax;
            BEHIND
        }
    };
    gate::leave(own);
    // SAFETY: as above.
    unsafe { *errno = kept };
    step
}

#[cold]
fn tell(call: &Call, verdict: &Verdict) {
    let (number, first) = (call.rax as i64, call.args[0]);
    let is_ours = !class::is_none_of_ours(number)
        && (!class::is_by_descriptor(number) || descriptors::get(first).is_some());
    stats::note(call, verdict, is_ours);
}

#[inline(always)]
fn serve(call: &mut Call, room: &mut Inner) -> Verdict {
    let number = call.rax as i64;
    parked::before(number, &call.args);
    if class::is_none_of_ours(number) || retire::passes(number, completions::are_out) {
        // All calls of a child that shares memory come here.
        return Verdict::Pass;
    }
    if class::is_by_descriptor(number) {
        return by_descriptor(number, &call.args);
    }
    serve_rarer(call, room)
}

/// Serves calls that are not by a descriptor alone. This and [`others_by_open_file`] are separate
/// functions: the next read overtakes one that waits for memory if few instructions, registers and
/// stack lie between.
#[inline(never)]
fn serve_rarer(call: &mut Call, room: &mut Inner) -> Verdict {
    if let Some(verdict) = by_path_again(call, room) {
        return verdict;
    }
    let (number, args) = (call.rax as i64, call.args);
    match number {
        libc::SYS_fchdir if !descriptors::is_own(args[0]) => {
            cwd::fchdir(args[0], descriptors::get(args[0]), room)
        }
        libc::SYS_fchdir => Verdict::done(Err(libc::EBADF)),
        libc::SYS_dup2 => handles::dup2(args),
        libc::SYS_dup3 => handles::dup3(args),
        libc::SYS_close_range => handles::close_range(args),
        libc::SYS_mmap => files::mmap(args),
        libc::SYS_munmap => maps::unmap(number, args),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => maps::change_protection(number, args),
        libc::SYS_mremap => maps::move_mapping(args),
        libc::SYS_msync => maps::sync(args),
        libc::SYS_madvise => maps::advise(args),
        libc::SYS_remap_file_pages => maps::remap(args),
        libc::SYS_mseal => maps::seal(args),
        libc::SYS_mlockall => maps::lock_all(args),
        libc::SYS_shmat => maps::attach_segment(args),
        libc::SYS_process_madvise => maps::advise_by_vectors(args),
        libc::SYS_vmsplice => maps::give_to_pipe(call),
        maps::FAULT => maps::serve_fault(args, room),
        libc::SYS_sendfile => moves::sendfile(args),
        libc::SYS_copy_file_range => moves::copy_file_range(args),
        libc::SYS_splice => splice::splice(args),
        libc::SYS_tee => moves::tee(args),
        libc::SYS_io_submit => aio::submit(args),
        libc::SYS_io_getevents | numbers::SYS_io_pgetevents => completions::take(number, args),
        libc::SYS_io_destroy => completions::destroy(args),
        libc::SYS_bind | libc::SYS_connect => sockets::name(room, call),
        libc::SYS_sendmsg => messages::send(args),
        libc::SYS_sendmmsg => messages::send_many(args),
        libc::SYS_inotify_add_watch => watches::inotify(room, args),
        libc::SYS_fanotify_mark => watches::fanotify(room, args),
        libc::SYS_rt_sigaction => signals::action(args, room),
        libc::SYS_sigaltstack => signals::stack(args, room),
        libc::SYS_rt_sigprocmask => signals::mask(args, room),
        libc::SYS_ioctl => match promoted::ioctl(args) {
            Some(verdict) => verdict,
            None => by_descriptor(number, &args),
        },
        libc::SYS_io_uring_setup => Verdict::done(Err(libc::ENOSYS)),
        libc::SYS_landlock_add_rule => promoted::landlock_rule(args),
        libc::SYS_kcmp => promoted::compare(args),
        _ if promoted::is(number) => promoted::serve(number, args),
        libc::SYS_chroot if mountless::is() => match cwd::chroot(room, args[0]) {
            Some(verdict) => verdict,
            None => process::serve(call, room),
        },
        _ => process::serve(call, room),
    }
}

/// Serves calls whose first argument is a descriptor. Inlined into `dispatch`, it made calls by
/// path some 20 ns slower.
#[inline(never)]
fn by_descriptor(number: i64, args: &[u64; 6]) -> Verdict {
    let Some(file) = descriptors::get(args[0]) else {
        return match descriptors::is_own(args[0]) {
            true => Verdict::done(Err(libc::EBADF)),
            false => Verdict::Pass,
        };
    };
    if file.has_path_only()
        && let Some(verdict) = by_path_only(number, &file, args)
    {
        return verdict;
    }
    let before = mapped_size::Before::of(file.ino);
    let verdict = by_open_file(number, &file, args);
    before.compare();
    verdict
}

/// The answer for a descriptor opened with O_PATH, where it differs.
#[cold]
fn by_path_only(number: i64, file: &Descriptor, args: &[u64; 6]) -> Option<Verdict> {
    if file.is_list() && number == libc::SYS_getdents64 {
        return Some(directories::descriptors(*args).into());
    }
    if file.is_place() && !descriptors::serves_place(number) {
        return Some(Verdict::done(Err(libc::EBADF)));
    }
    let of_all = [libc::SYS_close, libc::SYS_dup, libc::SYS_fcntl];
    (file.is_path_only() && !of_all.contains(&number)).then_some(Verdict::Pass)
}

#[inline(always)]
fn by_open_file(number: i64, file: &Descriptor, args: &[u64; 6]) -> Verdict {
    // The range ends outside of all addresses.
    if (args[2] as i64) < 0 && is_plain_transfer(number) {
        return Err(libc::EFAULT).into();
    }
    // The common calls get the arguments by reference: words that were just stored are slow to copy
    // in larger pieces.
    match number {
        libc::SYS_read => files::read(file, args),
        libc::SYS_write => files::write(file, args),
        libc::SYS_pread64 => files::pread(file, args).into(),
        libc::SYS_pwrite64 => files::pwrite(file, args).into(),
        libc::SYS_fstat => attributes::fstat(file, args[1]).into(),
        _ => others_by_open_file(number, file, args),
    }
}

fn is_plain_transfer(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64
    )
}

#[inline(never)]
fn others_by_open_file(number: i64, file: &Descriptor, args: &[u64; 6]) -> Verdict {
    match number {
        libc::SYS_readv => files::readv(file, *args, files::Place::Own),
        libc::SYS_writev => files::writev(file, *args, files::Place::Own),
        libc::SYS_preadv => files::readv(file, *args, files::Place::of(*args)),
        libc::SYS_pwritev => files::writev(file, *args, files::Place::of(*args)),
        libc::SYS_preadv2 => files::readv(file, *args, files::Place::with_flags(*args, true)),
        libc::SYS_pwritev2 => files::writev(file, *args, files::Place::with_flags(*args, false)),
        libc::SYS_close => handles::close(file, args[0]).into(),
        libc::SYS_lseek => files::lseek(file, *args).into(),
        libc::SYS_ioctl => handles::ioctl(file, *args).into(),
        libc::SYS_dup => handles::duplicate(file, args[0], 0, true).into(),
        libc::SYS_fcntl => handles::fcntl(file, *args),
        libc::SYS_flock => handles::flock(file, *args),
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => Ok(0).into(),
        libc::SYS_sync_file_range => done(allow_sync_range(args[1], args[2], args[3])),
        libc::SYS_fadvise64 => done(allow_advice(args[2], args[3])),
        libc::SYS_readahead if !file.reads() => Err(libc::EBADF).into(),
        libc::SYS_readahead if file.is_dir => Err(libc::EINVAL).into(),
        libc::SYS_readahead => Ok(0).into(),
        libc::SYS_ftruncate => files::ftruncate(file, *args).into(),
        libc::SYS_fallocate => files::fallocate(file, *args).into(),
        libc::SYS_getdents64 => directories::getdents64(file, *args).into(),
        libc::SYS_fchmod => attributes::fchmod(file, *args).into(),
        libc::SYS_fchown => attributes::fchown(file, *args).into(),
        libc::SYS_fstatfs => attributes::fstatfs(args[1]).into(),
        libc::SYS_fsetxattr => xattrs::fset(file, *args).into(),
        libc::SYS_fgetxattr => xattrs::fget(file, *args).into(),
        libc::SYS_flistxattr => xattrs::flist(file, *args).into(),
        libc::SYS_fremovexattr => xattrs::fremove(file, *args).into(),
        numbers::SYS_cachestat => handles::cachestat(file, *args).into(),
        // An unknown call must not reach a placeholder.
        _ => Err(libc::ENOSYS).into(),
    }
}

/// The answer of a call that does nothing if its arguments are valid.
fn done(judged: Result<(), i32>) -> Verdict {
    judged.map(|()| 0).into()
}

/// The most lookups of a name whose file others replaced between lookup and use.
const AGAIN_MAX: u32 = 1000;

#[inline(always)]
fn by_path_again(call: &Call, room: &mut Inner) -> Option<Verdict> {
    let mut verdict = by_path(call, room);
    for _ in 0..AGAIN_MAX {
        if !verdict
            .as_ref()
            .is_some_and(|verdict| verdict.is_error(libc::ESTALE))
        {
            break;
        }
        verdict = by_path(call, room);
    }
    verdict
}

/// Serves calls by path.
fn by_path(call: &Call, room: &mut Inner) -> Option<Verdict> {
    let (number, a) = (call.rax as i64, |at| call.arg(at));
    let here = libc::AT_FDCWD as u64;
    let no_follow = libc::AT_SYMLINK_NOFOLLOW as u64;
    Some(match number {
        libc::SYS_open => opens::open(room, here, a(0), a(1) as i32, a(2) as u32),
        libc::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            opens::open(room, here, a(0), flags, a(1) as u32)
        }
        libc::SYS_openat => opens::open(room, a(0), a(1), a(2) as i32, a(3) as u32),
        libc::SYS_openat2 => opens::openat2(room, call.args),
        libc::SYS_stat => attributes::stat(room, [here, a(0), a(1), 0]),
        libc::SYS_lstat => attributes::stat(room, [here, a(0), a(1), no_follow]),
        libc::SYS_newfstatat => attributes::stat(room, [a(0), a(1), a(2), a(3)]),
        libc::SYS_statx => attributes::statx(room, call.args),
        libc::SYS_access => names::access(room, [here, a(0), a(1), 0]),
        libc::SYS_faccessat => names::access(room, [a(0), a(1), a(2), 0]),
        libc::SYS_faccessat2 => names::access(room, [a(0), a(1), a(2), a(3)]),
        libc::SYS_readlink => names::readlink(room, [here, a(0), a(1), a(2)]),
        libc::SYS_readlinkat => names::readlink(room, [a(0), a(1), a(2), a(3)]),
        libc::SYS_mkdir => names::mkdir(room, here, a(0), a(1) as u32),
        libc::SYS_mkdirat => names::mkdir(room, a(0), a(1), a(2) as u32),
        libc::SYS_mknod => names::mknod(room, [here, a(0), a(1), a(2)]),
        libc::SYS_mknodat => names::mknod(room, [a(0), a(1), a(2), a(3)]),
        libc::SYS_rmdir => names::unlink(room, here, a(0), libc::AT_REMOVEDIR),
        libc::SYS_unlink => names::unlink(room, here, a(0), 0),
        libc::SYS_unlinkat => names::unlink(room, a(0), a(1), a(2) as i32),
        libc::SYS_rename => names::rename(room, [here, a(0)], [here, a(1)], 0),
        libc::SYS_renameat => names::rename(room, [a(0), a(1)], [a(2), a(3)], 0),
        libc::SYS_renameat2 => names::rename(room, [a(0), a(1)], [a(2), a(3)], a(4) as u32),
        libc::SYS_link => names::link(room, [here, a(0)], [here, a(1)], 0),
        libc::SYS_linkat => names::link(room, [a(0), a(1)], [a(2), a(3)], a(4) as i32),
        libc::SYS_symlink => names::symlink(room, a(0), here, a(1)),
        libc::SYS_symlinkat => names::symlink(room, a(0), a(1), a(2)),
        libc::SYS_chdir => cwd::chdir(room, a(0)),
        libc::SYS_getcwd => cwd::getcwd(room, call.args),
        libc::SYS_chmod => attributes::chmod(room, here, a(0), a(1) as u32),
        libc::SYS_fchmodat => attributes::chmod(room, a(0), a(1), a(2) as u32),
        libc::SYS_fchmodat2 => attributes::fchmodat2(room, call.args),
        libc::SYS_chown => attributes::chown(room, [here, a(0), a(1), a(2), 0]),
        libc::SYS_lchown => attributes::chown(room, [here, a(0), a(1), a(2), no_follow]),
        libc::SYS_fchownat => attributes::chown(room, [a(0), a(1), a(2), a(3), a(4)]),
        libc::SYS_truncate => attributes::truncate(room, call.args),
        libc::SYS_utime => attributes::utime(room, call.args),
        libc::SYS_utimes => attributes::utimes(room, here, a(0), a(1)),
        libc::SYS_futimesat => attributes::utimes(room, a(0), a(1), a(2)),
        libc::SYS_utimensat => attributes::utimensat(room, call.args),
        libc::SYS_statfs => attributes::statfs(room, call.args),
        libc::SYS_setxattr => xattrs::set(room, call.args, true),
        libc::SYS_lsetxattr => xattrs::set(room, call.args, false),
        libc::SYS_getxattr => xattrs::get(room, call.args, true),
        libc::SYS_lgetxattr => xattrs::get(room, call.args, false),
        libc::SYS_listxattr => xattrs::list(room, call.args, true),
        libc::SYS_llistxattr => xattrs::list(room, call.args, false),
        libc::SYS_removexattr => xattrs::remove(room, call.args, true),
        libc::SYS_lremovexattr => xattrs::remove(room, call.args, false),
        numbers::SYS_setxattrat | numbers::SYS_getxattrat => xattrs::by_structure(room, call),
        numbers::SYS_listxattrat => xattrs::list_at(room, call.args),
        numbers::SYS_removexattrat => xattrs::remove_at(room, call.args),
        _ => return None,
    })
}
