//! Calls on descriptors as such: close, dup, fcntl, flock, ioctl.

use libc::{EBADF, EINVAL, ENOTTY, F_RDLCK, F_UNLCK, F_WRLCK};
use pmfs::{Error, Fs, Ino, LockClass, LockKind, LockRange};

use crate::call::class::numbers::SYS_cachestat;
use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::calls::opens::CREATED;
use crate::calls::{clones, done, extents};
use crate::descriptors as table;
use crate::descriptors::parked;
use crate::descriptors::pool::fs;
use crate::own::kernel;
use crate::process::vfork;
use crate::program;
use crate::program::credentials::{self, WRITE};
use crate::signals;
use crate::thread::descriptor::Descriptor;
use crate::thread::guest;

/// Drops a descriptor's reference, and this process's POSIX locks on the inode.
fn drop_reference(fs: &Fs, file: &Descriptor) -> Answer {
    if file.is_path_only() {
        return Ok(0);
    }
    let unlocked = fs.unlock_all(file.ino, guest::lock_owner());
    if file.borrowed {
        return done(unlocked);
    }
    let closed = fs.close_file(file.file);
    done(unlocked.and(closed))
}

pub(crate) fn close(_file: &Descriptor, number: u64) -> Answer {
    let on_exec = table::on_exec(number);
    let Some(file) = table::remove(number) else {
        return Err(EBADF);
    };
    let dropped = drop_reference(fs()?, &file);
    parked::close(number, on_exec);
    dropped
}

/// Makes another descriptor like `source`, with the lowest free number from `from` on.
pub(crate) fn duplicate(file: &Descriptor, source: u64, from: u64, on_exec: bool) -> Answer {
    let number = if file.is_path_only() {
        let command = if on_exec {
            libc::F_DUPFD
        } else {
            libc::F_DUPFD_CLOEXEC
        };
        table::number(kernel::plain(
            libc::SYS_fcntl,
            &[source, command as u64, from],
        ))?
    } else {
        table::placeholder(from, on_exec)?
    };
    refer(file, number)
}

/// Gives a placeholder the meaning of an open file, with a reference of its own.
fn refer(file: &Descriptor, number: i32) -> Answer {
    let mut file = *file;
    if !file.borrowed
        && !file.is_path_only()
        && let Err(error) = fs()?.dup_file(file.file)
    {
        parked::close(number as u64, None);
        return Err(errno(error));
    }
    // A duplicate in a guest is borrowed if its source is.
    file.borrowed &= true;
    table::set(number, file);
    Ok(number as u64)
}

pub(crate) fn dup2(args: [u64; 6]) -> Verdict {
    if args[0] as u32 == args[1] as u32 {
        return if table::is_own(args[0]) {
            Err(EBADF).into()
        } else {
            Verdict::Pass
        };
    }
    onto(args[0], args[1], 0)
}

pub(crate) fn dup3(args: [u64; 6]) -> Verdict {
    if args[0] as u32 == args[1] as u32 || args[2] & !(libc::O_CLOEXEC as u64) != 0 {
        return Err(EINVAL).into();
    }
    onto(args[0], args[1], args[2])
}

/// Serves dup3 onto a number, which may be a descriptor of the pool.
fn onto(from: u64, to: u64, flags: u64) -> Verdict {
    if table::is_own(from) || table::is_own(to) {
        return Err(EBADF).into();
    }
    let (source, before) = (table::get(from), table::get(to));
    if source.is_none() && before.is_none() {
        return Verdict::Pass;
    }
    let put = || {
        let answer = kernel_answer(kernel::plain(libc::SYS_dup3, &[from, to, flags]))?;
        if let Some(before) = table::remove(to) {
            let _ = drop_reference(fs()?, &before);
        }
        match source {
            Some(source) if answer < table::COUNT as u64 => refer(&source, answer as i32),
            Some(_) => {
                kernel::plain(libc::SYS_close, &[answer]);
                Err(EBADF)
            }
            None => Ok(answer),
        }
    };
    Verdict::done(put())
}

/// Serves close_range(2), leaving out this library's own descriptors.
pub(crate) fn close_range(args: [u64; 6]) -> Verdict {
    const UNSHARE: u64 = 2;
    const CLOEXEC: u64 = 4;
    let (first, last) = (args[0] as u32, args[1] as u32);
    if first > last || args[2] & !(UNSHARE | CLOEXEC) != 0 {
        return Verdict::Pass;
    }
    if args[2] & UNSHARE != 0
        && let Err(errno) = vfork::leave_table()
    {
        return Err(errno).into();
    }
    for (number, file) in table::all() {
        if !(first..=last).contains(&(number as u32)) {
            continue;
        }
        if args[2] & CLOEXEC != 0 {
            table::set_on_exec(number as u64, false);
            continue;
        }
        table::remove(number as u64);
        if let Ok(fs) = fs() {
            let _ = drop_reference(fs, &file);
        }
    }
    let mut answer = 0;
    let mut part = |first: u32, last: u32| {
        if first <= last {
            let failed =
                kernel::plain(libc::SYS_close_range, &[first.into(), last.into(), args[2]]);
            answer = if failed < 0 { failed } else { answer };
        }
    };
    let mut from = first;
    for own in table::own_numbers().filter(|number| table::is_own((*number).into())) {
        if (first..=last).contains(&own) {
            if own > from {
                part(from, own - 1);
            }
            from = own + 1;
        }
    }
    part(from, last);
    Verdict::done(kernel_answer(answer))
}

pub(crate) fn ioctl(file: &Descriptor, args: [u64; 6]) -> Answer {
    match args[1] {
        // The kernel keeps close-on-exec, on the placeholder.
        libc::FIOCLEX | libc::FIONCLEX => {
            table::set_on_exec(args[0], args[1] == libc::FIONCLEX);
            kernel_answer(kernel::plain(libc::SYS_ioctl, &args[..2]))
        }
        libc::FIONREAD if !file.is_dir => {
            let fs = fs()?;
            let size = fs.getattr(file.ino).map_err(errno)?.size;
            let offset = fs.file(file.file).map_err(errno)?.offset;
            program::write(args[2], &(size.saturating_sub(offset) as i32)).map(|()| 0)
        }
        libc::FIONBIO => {
            let on: i32 = program::read(args[2])?;
            let set = if on == 0 { 0 } else { libc::O_NONBLOCK as u64 };
            change_flags(file, libc::O_NONBLOCK as u64, set)
        }
        FIGETBSZ => program::write(args[2], &BLOCK_BYTES).map(|()| 0),
        FICLONE => clones::whole(file, args[2]),
        FICLONERANGE => clones::range(file, args[2]),
        FIDEDUPERANGE => clones::dedupe(file, args[2]),
        FS_IOC_FIEMAP => extents::fiemap(file, args[2]),
        _ => Err(ENOTTY),
    }
}

/// A request of ioctl(2), from linux/fs.h.
const FIGETBSZ: u64 = 2;
const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;
const FIDEDUPERANGE: u64 = 0xc018_9436;
const FS_IOC_FIEMAP: u64 = 0xc020_660b;
const BLOCK_BYTES: i32 = 4096;

/// Serves cachestat(2), `[file, range, answer, flags]`. Pages with data are in memory and holes are
/// not, as on tmpfs. No page is dirty or evicted, because all data is durable and stays.
pub(crate) fn cachestat(file: &Descriptor, args: [u64; 6]) -> Answer {
    const NO_FILE: u64 = u64::MAX;
    let without = -i64::from(libc::ENOSYS);
    if kernel::plain(SYS_cachestat, &[NO_FILE, 0, 0, 0]) == without {
        return Err(libc::ENOSYS);
    }
    let range: [u64; 2] = program::read(args[1])?;
    let fs = fs()?;
    // The kernel does the same from 6.13 on: of other users' files it reports only those that may
    // be written.
    if !file.writes() {
        let attr = fs.getattr(file.ino).map_err(errno)?;
        let owner = credentials::allow_owner(&attr);
        let may = owner.or_else(|_| credentials::allow(fs, &attr, WRITE));
        may.map_err(|_| libc::EPERM)?;
    }
    if args[3] as u32 != 0 {
        return Err(EINVAL);
    }
    let cached = match file.is_dir {
        true => 0,
        false => pages_with_data(fs, file.ino, range)?,
    };
    program::write(args[2], &[cached, 0, 0, 0, 0]).map(|()| 0)
}

/// The count of pages with data in a range; 0 bytes stand for all bytes to the end.
fn pages_with_data(fs: &Fs, ino: Ino, [at, bytes]: [u64; 2]) -> Answer {
    const PAGE: u64 = BLOCK_BYTES as u64;
    let last = match bytes {
        0 => u64::MAX,
        bytes => at.wrapping_add(bytes - 1),
    };
    // Whole pages count, even where the range covers a part.
    let (mut from, end) = (at / PAGE * PAGE, last / PAGE + 1);
    let mut pages = 0;
    loop {
        let data = match fs.seek_data(ino, from) {
            Ok(data) if data / PAGE < end => data,
            Ok(_) | Err(Error::NoSuchOffset) => return Ok(pages),
            Err(error) => return Err(errno(error)),
        };
        // Others may have truncated the file meanwhile.
        from = match fs.seek_hole(ino, data) {
            Err(Error::NoSuchOffset) => return Ok(pages),
            hole => hole.map_err(errno)?,
        };
        pages += from.div_ceil(PAGE).min(end) - data / PAGE;
    }
}

/// Sets the flags `these` of an open file to their values in `set`.
fn change_flags(file: &Descriptor, these: u64, set: u64) -> Answer {
    let fs = fs()?;
    let before = fs.file(file.file).map_err(errno)?.flags;
    done(fs.set_file_flags(file.file, before & !these | set & these))
}

/// Flags that F_SETFL may change.
const CHANGEABLE: u64 =
    (libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME) as u64;

/// Commands of fcntl(2), from the kernel's headers: libc has no names for them.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;

pub(crate) fn fcntl(file: &Descriptor, args: [u64; 6]) -> Verdict {
    let command = args[1] as i32;
    let class = match command {
        libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => LockClass::File,
        _ => LockClass::Posix,
    };
    match command {
        libc::F_DUPFD => duplicate(file, args[0], args[2], true).into(),
        libc::F_DUPFD_CLOEXEC => duplicate(file, args[0], args[2], false).into(),
        _ if file.is_path_only() => Verdict::Pass,
        libc::F_SETFL if file.is_place() => Err(EBADF).into(),
        libc::F_GETFD => Verdict::Pass,
        libc::F_SETFD => {
            table::set_on_exec(args[0], args[2] & libc::FD_CLOEXEC as u64 == 0);
            Verdict::Pass
        }
        libc::F_GETFL => {
            let flags = fs().and_then(|fs| fs.file(file.file).map_err(errno));
            flags.map(|file| file.flags & !CREATED).into()
        }
        libc::F_SETFL => change_flags(file, CHANGEABLE, args[2]).into(),
        libc::F_GETLK | libc::F_OFD_GETLK => conflict(file, class, args[2]).into(),
        libc::F_SETLK | libc::F_OFD_SETLK => lock(file, class, args[2], false),
        libc::F_SETLKW | libc::F_OFD_SETLKW => lock(file, class, args[2], true),
        // The receiver of signals, which files never send.
        libc::F_GETOWN | libc::F_SETOWN | F_GETOWN_EX | F_SETOWN_EX | F_GETSIG | F_SETSIG => {
            Verdict::Pass
        }
        _ => rarer(file, command, args[2]).into(),
    }
}

/// A command of fcntl(2), from the kernel's headers.
const F_DUPFD_QUERY: i32 = 1027;
const F_CREATED_QUERY: i32 = 1028;
const F_GET_RW_HINT: i32 = 1035;
const F_SET_RW_HINT: i32 = 1036;

/// Serves leases, notes of changes and hints. The first two are refused, because nothing would keep
/// them; hints may be ignored.
fn rarer(file: &Descriptor, command: i32, argument: u64) -> Answer {
    /// RWH_WRITE_LIFE_NOT_SET to RWH_WRITE_LIFE_EXTREME.
    const HINTS: u64 = 5;
    match command {
        libc::F_GETLEASE => Ok(F_UNLCK as u64),
        libc::F_SETLEASE if argument as i32 == F_UNLCK => Err(libc::EAGAIN),
        libc::F_NOTIFY if !file.is_dir => Err(libc::ENOTDIR),
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => Err(EBADF),
        F_GET_RW_HINT => program::write(argument, &0u64).map(|()| 0),
        F_SET_RW_HINT => match program::read::<u64>(argument)? <= HINTS {
            true => Ok(0),
            false => Err(EINVAL),
        },
        F_CREATED_QUERY => Ok((fs()?.file_flags(file.file) & CREATED != 0).into()),
        F_DUPFD_QUERY => match table::get(argument) {
            Some(other) => Ok((other.file == file.file).into()),
            None if kernel::plain(libc::SYS_fcntl, &[argument, libc::F_GETFD as u64]) < 0 => {
                Err(EBADF)
            }
            None => Ok(0),
        },
        _ => Err(EINVAL),
    }
}

/// Reads the program's struct flock and computes its range.
fn range_of(fs: &Fs, file: &Descriptor, at: u64) -> Result<(libc::flock, LockRange), i32> {
    let asked: libc::flock = program::read(at)?;
    let base = match i32::from(asked.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => fs.file(file.file).map_err(errno)?.offset as i64,
        libc::SEEK_END => fs.getattr(file.ino).map_err(errno)?.size as i64,
        _ => return Err(EINVAL),
    };
    let start = base.checked_add(asked.l_start).ok_or(libc::EOVERFLOW)?;
    let (first, last) = match asked.l_len {
        0 => (start, None),
        len if len > 0 => (
            start,
            Some(start.checked_add(len - 1).ok_or(libc::EOVERFLOW)?),
        ),
        len => (start + len, Some(start - 1)),
    };
    if first < 0 {
        return Err(EINVAL);
    }
    let end = last.map_or(u64::MAX, |last| last as u64);
    Ok((
        asked,
        LockRange {
            start: first as u64,
            end,
        },
    ))
}

fn kind_of(file: &Descriptor, kind: i32) -> Result<LockKind, i32> {
    match kind {
        F_RDLCK if file.reads() => Ok(LockKind::Read),
        F_WRLCK if file.writes() => Ok(LockKind::Write),
        F_RDLCK | F_WRLCK => Err(EBADF),
        _ => Err(EINVAL),
    }
}

fn conflict(file: &Descriptor, class: LockClass, at: u64) -> Answer {
    let fs = fs()?;
    let (mut asked, range) = range_of(fs, file, at)?;
    if class == LockClass::File && asked.l_pid != 0 {
        return Err(EINVAL);
    }
    let kind = match i32::from(asked.l_type) {
        F_RDLCK => LockKind::Read,
        F_WRLCK => LockKind::Write,
        _ => return Err(EINVAL),
    };
    let there = match class {
        LockClass::Posix => fs.lock_conflict(file.ino, guest::lock_owner(), kind, range),
        _ => fs.file_lock_conflict(file.file, class, kind, range),
    };
    match there.map_err(errno)? {
        None => asked.l_type = F_UNLCK as i16,
        Some(there) => {
            let write = there.kind == LockKind::Write;
            asked.l_type = if write { F_WRLCK } else { F_RDLCK } as i16;
            asked.l_whence = libc::SEEK_SET as i16;
            asked.l_start = there.range.start as i64;
            let whole = there.range.end == u64::MAX;
            asked.l_len = if whole {
                0
            } else {
                (there.range.end - there.range.start + 1) as i64
            };
            asked.l_pid = if there.class == LockClass::Posix {
                there.pid as i32
            } else {
                -1
            };
        }
    }
    program::write(at, &asked).map(|()| 0)
}

fn lock(file: &Descriptor, class: LockClass, at: u64, waits: bool) -> Verdict {
    let lock = || {
        let fs = fs()?;
        let (asked, range) = range_of(fs, file, at)?;
        if class == LockClass::File && asked.l_pid != 0 {
            return Err(EINVAL);
        }
        if i32::from(asked.l_type) == F_UNLCK {
            return done(match class {
                LockClass::Posix => fs.unlock(file.ino, guest::lock_owner(), range),
                _ => fs.unlock_file(file.file, class, range),
            });
        }
        let kind = kind_of(file, asked.l_type.into())?;
        let (pid, owner) = (kernel::process(), guest::lock_owner());
        if class == LockClass::Posix {
            guest::locks();
        }
        done(match (class, waits) {
            (LockClass::Posix, false) => fs.lock(file.ino, owner, kind, range, pid),
            (LockClass::Posix, true) => {
                fs.lock_wait(file.ino, owner, kind, range, pid, &signals::waiting)
            }
            (_, false) => fs.lock_file(file.file, class, kind, range),
            (_, true) => fs.lock_file_wait(file.file, class, kind, range, &signals::waiting),
        })
    };
    interrupted(lock())
}

/// Restarts a wait that a signal has ended, if its handler was installed so.
fn interrupted(answer: Answer) -> Verdict {
    if answer == Err(libc::EINTR) && signals::restarts() {
        return Verdict::Again;
    }
    Verdict::done(answer)
}

pub(crate) fn flock(file: &Descriptor, args: [u64; 6]) -> Verdict {
    let lock = || {
        let fs = fs()?;
        let operation = args[1] as i32;
        const LOCK_MAND: i32 = 32;
        // Linux accepts this former kind of lock, and ignores it.
        if operation & LOCK_MAND != 0 {
            return Ok(0);
        }
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_SH => LockKind::Read,
            libc::LOCK_EX => LockKind::Write,
            libc::LOCK_UN => {
                return done(fs.unlock_file(file.file, LockClass::Flock, LockRange::WHOLE));
            }
            _ => return Err(EINVAL),
        };
        let whole = LockRange::WHOLE;
        let taken = if operation & libc::LOCK_NB != 0 {
            fs.lock_file(file.file, LockClass::Flock, kind, whole)
        } else {
            fs.lock_file_wait(file.file, LockClass::Flock, kind, whole, &signals::waiting)
        };
        match taken {
            Err(Error::WouldBlock) => Err(libc::EWOULDBLOCK),
            taken => done(taken),
        }
    };
    interrupted(lock())
}
