//! Reading and writing.

use std::cell::Cell;
use std::io::SeekFrom;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EBADF, EINVAL, EISDIR, ENXIO};
use pmfs::{FallocateMode, Fs, SetAttr};

use super::{done, kernel_answer};
use crate::credentials;
use crate::descriptors::{self, Descriptor};
use crate::dispatch::Verdict;
use crate::names::errno;
use crate::program::{self, Answer, IO_MAX};
use crate::{gate, kernel, limits, mapped_size, maps, mountless, pool};

/// Longest read whose first line is asked for while the call is on its way: of a longer one the copy waits little for it, and where it is
/// in the cache anyway, to ask costs more than it saves.
const EXPECTED_MAX: u64 = 512;

/// The pool: whoever has a descriptor of it has it attached.
pub(crate) fn fs() -> Result<&'static Fs, i32> {
    pool::get().ok_or(libc::EIO)
}

fn for_reading(file: &Descriptor) -> Result<&'static Fs, i32> {
    match (file.reads(), file.is_dir) {
        (false, _) => Err(EBADF),
        (_, true) => Err(EISDIR),
        _ => fs(),
    }
}

fn for_writing(file: &Descriptor) -> Result<&'static Fs, i32> {
    if !file.writes() {
        return Err(EBADF);
    }
    fs()
}

/// As [`for_writing`], for calls that change what is there or how much it is.
fn for_change(file: &Descriptor) -> Result<&'static Fs, i32> {
    let fs = for_writing(file)?;
    credentials::drop_privileges(fs, file.ino)?;
    Ok(fs)
}

/// As [`for_change`], for calls that change what is there.
fn for_storing(file: &Descriptor) -> Result<&'static Fs, i32> {
    let fs = for_change(file)?;
    maps::refuse_write(file.ino)?;
    Ok(fs)
}

fn offset(value: u64) -> Result<u64, i32> {
    if value > i64::MAX as u64 {
        Err(EINVAL)
    } else {
        Ok(value)
    }
}

/// The program has mapped files of the pool, through the mount. A touch of such a mapping may have to wait for the mount, and
/// that for a lock of ours: so no memory of the program's is touched under one from then on.
static MAPS: AtomicBool = AtomicBool::new(false);

/// Reads into the program's memory; answers the bytes read.
#[inline(always)]
fn into_program(
    at: u64,
    bytes: u64,
    read: impl FnOnce(&mut [u8]) -> pmfs::Result<usize>,
) -> Answer {
    let bytes = bytes.min(IO_MAX) as usize;
    if MAPS.load(Ordering::Relaxed) {
        let mut kept = vec![0; bytes];
        let read = read(&mut kept).map_err(errno)?;
        program::write_bytes(at, &kept[..read])?;
        return Ok(read as u64);
    }
    // SAFETY: the program's buffer, for this call.
    let buffer = unsafe { program::buffer(at, bytes) };
    read(buffer).map(|read| read as u64).map_err(errno)
}

/// Writes from the program's memory; answers the bytes written.
fn from_program(at: u64, bytes: u64, write: impl FnOnce(&[u8]) -> pmfs::Result<usize>) -> Answer {
    let bytes = bytes.min(IO_MAX) as usize;
    let written = if MAPS.load(Ordering::Relaxed) {
        write(&gather(&[(at, bytes as u64)])?)
    } else {
        let mut room = program::NOTHING;
        // SAFETY: the program's data, for this call.
        write(unsafe { program::data(&mut room, at, bytes) }?)
    };
    written.map(|written| written as u64).map_err(errno)
}

pub(crate) fn read(file: &Descriptor, args: &[u64; 6]) -> Verdict {
    let read = || {
        let fs = for_reading(file)?;
        into_program(args[1], args[2], |buffer| fs.read_file(file.file, buffer))
    };
    Verdict::done(read())
}

pub(crate) fn write(file: &Descriptor, args: &[u64; 6]) -> Verdict {
    let write = || {
        if args[2] == 0 {
            return for_writing(file).map(|_| 0);
        }
        let fs = for_storing(file)?;
        let append = appends(fs, file);
        let bytes = limits::cut(args[2], || end(fs, file, append))?;
        from_program(args[1], bytes, |data| {
            fs.write_file(file.file, data, append)
        })
    };
    Verdict::done(write())
}

/// Where the next write begins.
fn end(fs: &Fs, file: &Descriptor, append: bool) -> Answer {
    if append {
        return fs.getattr(file.ino).map(|attr| attr.size).map_err(errno);
    }
    fs.file(file.file).map(|now| now.offset).map_err(errno)
}

/// Whether writes go to the end: a flag that all who share the open file may change.
fn appends(fs: &Fs, file: &Descriptor) -> bool {
    fs.file_flags(file.file) & libc::O_APPEND as u64 != 0
}

/// Before anything else of a pread: its bytes are asked for, as the descriptor looks at first sight.
#[inline]
pub(crate) fn expect(args: &[u64; 6]) {
    if args[2] <= EXPECTED_MAX
        && let Some(ino) = descriptors::likely_inode(args[0])
        && let Some(fs) = pool::attached()
    {
        fs.expect(ino, args[3]);
    }
}

#[inline(always)]
pub(crate) fn pread(file: &Descriptor, args: &[u64; 6]) -> Answer {
    let at = offset(args[3])?;
    let fs = for_reading(file)?;
    into_program(args[1], args[2], |buffer| fs.read(file.ino, at, buffer))
}

pub(crate) fn pwrite(file: &Descriptor, args: &[u64; 6]) -> Answer {
    let at = offset(args[3])?;
    if args[2] == 0 {
        return for_writing(file).map(|_| 0);
    }
    let fs = for_storing(file)?;
    let append = appends(fs, file);
    let place = || {
        if append { end(fs, file, true) } else { Ok(at) }
    };
    let bytes = limits::cut(args[2], place)?;
    from_program(args[1], bytes, |data| {
        if append {
            // As Linux does it, whatever the offset.
            fs.append(file.ino, data).map(|(_, written)| written)
        } else {
            fs.write(file.ino, at, data)
        }
    })
}

/// Where a vector of buffers goes.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// The open file's offset.
    Own,
    At(u64),
    Bad(i32),
}

impl Place {
    /// From the arguments of the calls with an offset; those with flags take -1 for the file's own.
    pub fn of(args: [u64; 6], with_flags: bool) -> Place {
        const APPEND: u64 = 0x10;
        const KNOWN: u64 = 0x1f;
        if with_flags && args[5] & !KNOWN != 0 {
            return Place::Bad(libc::EOPNOTSUPP);
        }
        if with_flags && args[5] & APPEND != 0 {
            return Place::Bad(libc::EOPNOTSUPP);
        }
        match args[3] {
            u64::MAX if with_flags => Place::Own,
            at if at > i64::MAX as u64 => Place::Bad(EINVAL),
            at => Place::At(at),
        }
    }
}

/// The program's vector of buffers, as (address, bytes).
fn vector(at: u64, count: u64) -> Result<Vec<(u64, u64)>, i32> {
    if count > libc::UIO_MAXIOV as u64 {
        return Err(EINVAL);
    }
    let mut parts = Vec::with_capacity(count as usize);
    let mut total = 0u64;
    for index in 0..count {
        let [address, bytes]: [u64; 2] = program::read(at.wrapping_add(index * 16))?;
        if bytes > i64::MAX as u64 {
            return Err(EINVAL);
        }
        let bytes = bytes.min(IO_MAX - total);
        total += bytes;
        parts.push((address, bytes));
    }
    Ok(parts)
}

pub(crate) fn readv(file: &Descriptor, args: [u64; 6], place: Place) -> Verdict {
    let failed = Cell::new(0);
    let all = |fs: &Fs, mut at: u64, parts: &[(u64, u64)]| -> pmfs::Result<(u64, usize)> {
        let start = at;
        for &(address, bytes) in parts {
            let read = into_program(address, bytes, |buffer| fs.read(file.ino, at, buffer));
            match read {
                Ok(read) => {
                    at += read;
                    if read < bytes {
                        break;
                    }
                }
                Err(_) if at > start => break,
                Err(errno) => {
                    failed.set(errno);
                    break;
                }
            }
        }
        Ok((at, (at - start) as usize))
    };
    let read = || {
        let fs = for_reading(file)?;
        let parts = vector(args[1], args[2])?;
        let read = match place {
            Place::Bad(error) => return Err(error),
            Place::Own => fs.at_offset(file.file, |now| all(fs, now.offset, &parts)),
            Place::At(at) => all(fs, at, &parts).map(|(_, read)| read),
        };
        match failed.get() {
            0 => read.map(|read| read as u64).map_err(errno),
            errno => Err(errno),
        }
    };
    Verdict::done(read())
}

pub(crate) fn writev(file: &Descriptor, args: [u64; 6], place: Place) -> Verdict {
    let write = || {
        for_writing(file)?;
        let parts = vector(args[1], args[2])?;
        if let Place::Bad(error) = place {
            return Err(error);
        }
        if parts.iter().all(|(_, bytes)| *bytes == 0) {
            return Ok(0);
        }
        let fs = for_storing(file)?;
        let append = appends(fs, file);
        let gathered;
        let mut room = program::NOTHING;
        // One write is all or nothing, also of many parts.
        let data = match parts.as_slice() {
            [] => &[][..],
            &[(address, bytes)] if !MAPS.load(Ordering::Relaxed) => {
                // SAFETY: the program's data, for this call.
                unsafe { program::data(&mut room, address, bytes as usize) }?
            }
            parts => {
                gathered = gather(parts)?;
                &gathered[..]
            }
        };
        let start = || match place {
            Place::At(at) if !append => Ok(at),
            _ => end(fs, file, append),
        };
        let data = &data[..limits::cut(data.len() as u64, start)? as usize];
        let written = match place {
            Place::At(at) if !append => fs.write(file.ino, at, data),
            Place::At(_) => fs.append(file.ino, data).map(|(_, written)| written),
            _ => fs.write_file(file.file, data, append),
        };
        written.map(|written| written as u64).map_err(errno)
    };
    Verdict::done(write())
}

/// The parts in one piece.
fn gather(parts: &[(u64, u64)]) -> Result<Vec<u8>, i32> {
    let mut all = Vec::new();
    for &(address, bytes) in parts {
        let start = all.len();
        all.resize(start + bytes as usize, 0);
        if let Err(error) = program::read_bytes(address, &mut all[start..]) {
            // What came before it is written, as the kernel does.
            all.truncate(start);
            return if start == 0 { Err(error) } else { Ok(all) };
        }
    }
    Ok(all)
}

pub(crate) fn lseek(file: &Descriptor, args: [u64; 6]) -> Answer {
    let fs = fs()?;
    let by = args[1] as i64;
    let to = match args[2] as i32 {
        libc::SEEK_SET => SeekFrom::Start(offset(args[1])?),
        libc::SEEK_CUR => SeekFrom::Current(by),
        libc::SEEK_END if file.is_dir => return Err(EINVAL),
        libc::SEEK_END => SeekFrom::End(by),
        whence @ (libc::SEEK_DATA | libc::SEEK_HOLE) => {
            let from = u64::try_from(by).map_err(|_| ENXIO)?;
            let found = if whence == libc::SEEK_DATA {
                fs.seek_data(file.ino, from)
            } else {
                fs.seek_hole(file.ino, from)
            };
            SeekFrom::Start(found.map_err(errno)?)
        }
        _ => return Err(EINVAL),
    };
    fs.seek_file(file.file, to).map_err(errno)
}

pub(crate) fn ftruncate(file: &Descriptor, args: [u64; 6]) -> Answer {
    if !file.writes() || file.is_dir {
        return Err(EINVAL);
    }
    let size = offset(args[1])?;
    let fs = for_change(file)?;
    limits::allow_size(size, || end(fs, file, true))?;
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    done(fs.setattr(file.ino, &set).map(drop))
}

pub(crate) fn fallocate(file: &Descriptor, args: [u64; 6]) -> Answer {
    let (mode, at, len) = (args[1] as u32, args[2] as i64, args[3] as i64);
    if at < 0 || len <= 0 {
        return Err(EINVAL);
    }
    if !file.writes() {
        return Err(EBADF);
    }
    const KEEP_SIZE: u32 = 0x01;
    let fs = match mode & !KEEP_SIZE {
        0 => for_change(file)?,
        _ => for_storing(file)?,
    };
    let (at, len) = (at as u64, len as u64);
    const COLLAPSE: u32 = 0x08;
    const INSERT: u32 = 0x20;
    let size = || end(fs, file, true);
    match mode {
        INSERT => limits::allow_size(size()?.saturating_add(len), size)?,
        mode if mode & (KEEP_SIZE | COLLAPSE) == 0 => {
            limits::allow_size(at.saturating_add(len), size)?;
        }
        _ => {}
    }
    done(match mode {
        COLLAPSE => fs.collapse_range(file.ino, at, len),
        INSERT => fs.insert_range(file.ino, at, len),
        mode => {
            let mode = FallocateMode::from_bits(mode).ok_or(libc::EOPNOTSUPP)?;
            fs.fallocate(file.ino, mode, at, len)
        }
    })
}

/// A file of ours is mapped by its own blocks, or else through the mount.
pub(crate) fn mmap(args: [u64; 6]) -> Verdict {
    let others = || match maps::mmap_of_others(args) {
        Verdict::Pass if maps::may_be_loading(args) => maps::load(args).into(),
        verdict => verdict,
    };
    if args[3] & libc::MAP_ANONYMOUS as u64 != 0 {
        return others();
    }
    let Some(file) = descriptors::get(args[4]).filter(|file| !file.is_path_only()) else {
        return others();
    };
    let map = || {
        if file.is_place() {
            return Err(EBADF);
        }
        if file.is_dir {
            return Err(libc::ENODEV);
        }
        if let Some(at) = maps::mmap(&file, args)? {
            return Ok(at);
        }
        if mountless::is() {
            return maps::copied(&file, args);
        }
        MAPS.store(true, Ordering::Relaxed);
        mapped_size::note(file.ino);
        let through = crate::promote::open(&file)?;
        let mut changed = args;
        changed[4] = through as u64;
        let answer = match maps::mmap_of_others(changed) {
            Verdict::Done(rax) => Verdict::answer(rax),
            // SAFETY: the program's own call; it names where the mapping may come.
            _ => kernel_answer(unsafe { kernel::call(libc::SYS_mmap, changed) }),
        };
        kernel::plain(libc::SYS_close, &[through as u64]);
        answer
    };
    Verdict::done(map())
}

/// Bytes that one step of a copy between the pool and elsewhere takes.
const STEP: usize = 256 << 10;

pub(crate) fn sendfile(args: [u64; 6]) -> Verdict {
    let (to, from) = (descriptors::get(args[0]), descriptors::get(args[1]));
    if to.is_none() && from.is_none() {
        return Verdict::Pass;
    }
    let Some(from) = from else {
        return Verdict::done(to.map_or(Err(EBADF), |to| receive(&to, args)));
    };
    let send = || {
        let fs = for_reading(&from)?;
        let given: Option<u64> = if args[2] == 0 {
            None
        } else {
            Some(program::read(args[2])?)
        };
        let start = match given {
            Some(at) => offset(at)?,
            None => fs.file(from.file).map_err(errno)?.offset,
        };
        let mut buffer = vec![0; STEP.min(args[3].max(1) as usize)];
        let mut sent = 0;
        while sent < args[3].min(IO_MAX) {
            let want = (args[3] - sent).min(STEP as u64) as usize;
            let read = fs
                .read(from.ino, start + sent, &mut buffer[..want])
                .map_err(errno)?;
            let wrote = match put(fs, to.as_ref(), args[0], &buffer[..read]) {
                Ok(wrote) => wrote,
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            };
            sent += wrote;
            if wrote < want as u64 {
                break;
            }
        }
        match given {
            Some(_) => program::write(args[2], &(start + sent))?,
            None => {
                let to = SeekFrom::Start(start + sent);
                fs.seek_file(from.file, to).map_err(errno)?;
            }
        }
        Ok(sent)
    };
    Verdict::done(send())
}

/// sendfile(2) from a file of others into one of ours. A source without offsets is refused, as the kernel does.
fn receive(to: &Descriptor, args: [u64; 6]) -> Answer {
    let fs = for_writing(to)?;
    let number = |answer: i64| kernel_answer(answer);
    let own = number(kernel::plain(
        libc::SYS_lseek,
        &[args[1], 0, libc::SEEK_CUR as u64],
    ))
    .map_err(|_| EINVAL)?;
    let start = match args[2] {
        0 => own,
        pointer => offset(program::read(pointer)?)?,
    };
    let mut buffer = vec![0; STEP.min(args[3].max(1) as usize)];
    let mut sent = 0;
    while sent < args[3].min(IO_MAX) {
        let want = (args[3] - sent).min(STEP as u64);
        let at = buffer.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the kernel fills the buffer.
        let read = number(unsafe {
            kernel::call(libc::SYS_pread64, [args[1], at, want, start + sent, 0, 0])
        });
        let wrote = match read {
            Ok(0) => break,
            Ok(read) => put(fs, Some(to), args[0], &buffer[..read as usize]),
            Err(error) => Err(error),
        };
        match wrote {
            Ok(wrote) => sent += wrote,
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    if args[2] == 0 {
        let to = start + sent;
        kernel::plain(libc::SYS_lseek, &[args[1], to, libc::SEEK_SET as u64]);
    } else {
        program::write(args[2], &(start + sent))?;
    }
    Ok(sent)
}

/// Writes to a file of ours, or to any other descriptor.
fn put(fs: &Fs, to: Option<&Descriptor>, number: u64, data: &[u8]) -> Answer {
    let Some(to) = to else {
        let at = data.as_ptr().expose_provenance() as u64;
        let args = [number, at, data.len() as u64, 0, 0, 0];
        // A pipe may take it only when somebody reads.
        // SAFETY: the kernel reads the data.
        let answer = gate::away(|| unsafe { kernel::call(libc::SYS_write, args) });
        return kernel_answer(answer);
    };
    for_storing(to)?;
    let append = appends(fs, to);
    let bytes = limits::cut(data.len() as u64, || end(fs, to, append))?;
    let written = fs.write_file(to.file, &data[..bytes as usize], append);
    mapped_size::changed(to.ino);
    written.map(|written| written as u64).map_err(errno)
}

pub(crate) fn copy_file_range(args: [u64; 6]) -> Verdict {
    let (from, to) = match (descriptors::get(args[0]), descriptors::get(args[2])) {
        (None, None) => return Verdict::Pass,
        (Some(from), Some(to)) => (from, to),
        // Between file systems: the program copies by itself.
        _ => return Verdict::done(Err(libc::EXDEV)),
    };
    let copy = || {
        let fs = for_reading(&from)?;
        for_storing(&to)?;
        if args[5] != 0 {
            return Err(EINVAL);
        }
        if to.is_dir {
            return Err(EISDIR);
        }
        if appends(fs, &to) {
            return Err(EBADF);
        }
        let place = |pointer: u64, file: &Descriptor| -> Result<u64, i32> {
            if pointer == 0 {
                return Ok(fs.file(file.file).map_err(errno)?.offset);
            }
            offset(program::read(pointer)?)
        };
        let (start, target) = (place(args[1], &from)?, place(args[3], &to)?);
        let bytes = limits::cut(args[4].min(IO_MAX), || Ok(target))?;
        let copied = fs
            .copy_range(from.ino, start, to.ino, target, bytes)
            .map_err(errno)?;
        let advance = |pointer: u64, file: &Descriptor, at: u64| -> Result<(), i32> {
            if pointer != 0 {
                return program::write(pointer, &at);
            }
            fs.seek_file(file.file, SeekFrom::Start(at))
                .map(drop)
                .map_err(errno)
        };
        advance(args[1], &from, start + copied)?;
        advance(args[3], &to, target + copied)?;
        mapped_size::changed(to.ino);
        Ok(copied)
    };
    Verdict::done(copy())
}

/// Between a pipe and a file of ours: refused as for files without it, and programs copy instead.
pub(crate) fn splice(args: [u64; 6]) -> Verdict {
    let ours = descriptors::get(args[0]).is_some() || descriptors::get(args[2]).is_some();
    if ours {
        Verdict::done(Err(EINVAL))
    } else {
        Verdict::Pass
    }
}
