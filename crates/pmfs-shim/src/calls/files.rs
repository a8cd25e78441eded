//! Reading and writing.

use std::cell::Cell;
use std::io::SeekFrom;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EBADF, EFAULT, EINVAL, EISDIR, ENXIO};
use pmfs::{FallocateMode, Fs, OpenFile, SetAttr};

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::calls::done;
use crate::descriptors;
use crate::descriptors::pool::{self, fs};
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::maps;
use crate::maps::mapped_size;
use crate::own::kernel;
use crate::own::mountless;
use crate::program::credentials;
use crate::program::limits;
use crate::program::{self, IO_MAX};
use crate::thread::descriptor::Descriptor;
use crate::thread::gate;

/// The longest read whose first line is prefetched at the start of the call. A longer copy waits
/// little for that line, and where it is in the cache anyway, the prefetch costs more than it
/// saves.
const EXPECTED_MAX: u64 = 512;

pub(super) fn for_reading(file: &Descriptor) -> Result<&'static Fs, i32> {
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

/// The engine for a file open for writing ([`for_writing`]), before its content or its allocation
/// changes.
fn for_change(file: &Descriptor) -> Result<&'static Fs, i32> {
    let fs = for_writing(file)?;
    credentials::drop_privileges(fs, file.ino)?;
    Ok(fs)
}

/// The engine for a file open for writing ([`for_writing`]), before its content changes.
pub(super) fn for_storing(file: &Descriptor) -> Result<&'static Fs, i32> {
    let fs = for_writing(file)?;
    before_storing(fs, file)?;
    Ok(fs)
}

/// Prepares a file that may be written for a change of its content.
pub(super) fn before_storing(fs: &Fs, file: &Descriptor) -> Result<(), i32> {
    credentials::drop_privileges(fs, file.ino)?;
    maps::refuse_write(file.ino)
}

fn offset(value: u64) -> Result<u64, i32> {
    if value > i64::MAX as u64 {
        Err(EINVAL)
    } else {
        Ok(value)
    }
}

/// Set once the program has mapped files through the mount. Touching such memory may wait for the
/// mount, which may wait for a lock of this process: from then on no memory of the program is
/// touched under a lock.
static MAPS: AtomicBool = AtomicBool::new(false);

/// Reads at an offset of a file into the program's memory. Returns the bytes read.
#[inline(always)]
fn into_program(fs: &Fs, file: &Descriptor, at: u64, (address, bytes): (u64, u64)) -> Answer {
    let bytes = bytes.min(IO_MAX) as usize;
    if MAPS.load(Ordering::Relaxed) {
        return by_steps(fs, file, at, (address, bytes as u64));
    }
    // SAFETY: the program's buffer, for this call.
    let buffer = unsafe { program::buffer(address, bytes) };
    fs.read_for(file.ino, at, buffer, || wants_atime(fs, file))
        .map(|read| read as u64)
        .map_err(errno)
}

/// Returns whether reads by this descriptor set the file's time of access.
#[cold]
pub(super) fn wants_atime(fs: &Fs, file: &Descriptor) -> bool {
    fs.file(file.file).is_ok_and(|open| open.wants_atime())
}

/// Bytes that are read at once into a buffer of the library.
const KEPT_STEP: u64 = 1 << 20;

/// Reads as [`into_program`] does, without touching the program's memory under a lock.
#[cold]
fn by_steps(fs: &Fs, file: &Descriptor, at: u64, (address, bytes): (u64, u64)) -> Answer {
    let there = fs.getattr(file.ino).map_err(errno)?.size;
    let bytes = bytes.min(there.saturating_sub(at));
    let mut kept = vec![0; bytes.min(KEPT_STEP) as usize];
    let mut done = 0;
    while done < bytes {
        let want = (bytes - done).min(KEPT_STEP) as usize;
        let wants_atime = || wants_atime(fs, file);
        let read = fs.read_for(file.ino, at + done, &mut kept[..want], wants_atime);
        let step = read.map_err(errno).and_then(|read| {
            program::write_bytes(address.wrapping_add(done), &kept[..read])?;
            Ok(read)
        });
        match step {
            Ok(read) => {
                done += read as u64;
                if read < want {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Reads at an open file's offset without touching the program's memory under its lock: the offset
/// is advanced first, and moved back by the bytes that could not be read.
#[cold]
fn at_taken_offset(
    fs: &Fs,
    file: &Descriptor,
    bytes: u64,
    read: impl FnOnce(u64, u64) -> Answer,
) -> Answer {
    let mut start = 0;
    let take = |now: pmfs::OpenFile| {
        start = now.offset;
        let there = fs.getattr(now.ino)?.size.saturating_sub(start);
        let taken = bytes.min(IO_MAX).min(there);
        Ok((start + taken, taken as usize))
    };
    let taken = fs.at_offset(file.file, take).map_err(errno)? as u64;
    let answer = read(start, taken);
    give_back(fs, file, taken - answer.unwrap_or(0).min(taken))?;
    answer
}

/// Moves an offset back by bytes that were taken and not used.
pub(super) fn give_back(fs: &Fs, file: &Descriptor, bytes: u64) -> Result<(), i32> {
    if bytes == 0 {
        return Ok(());
    }
    let back = SeekFrom::Current(-(bytes as i64));
    fs.seek_file(file.file, back).map(drop).map_err(errno)
}

/// Writes from the program's memory. Returns the bytes written.
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
        if MAPS.load(Ordering::Relaxed) {
            return at_taken_offset(fs, file, args[2], |at, bytes| {
                by_steps(fs, file, at, (args[1], bytes))
            });
        }
        // SAFETY: the program's buffer, for this call.
        let buffer = unsafe { program::buffer(args[1], args[2].min(IO_MAX) as usize) };
        fs.read_file(file.file, buffer)
            .map(|read| read as u64)
            .map_err(errno)
    };
    Verdict::done(read())
}

pub(crate) fn write(file: &Descriptor, args: &[u64; 6]) -> Verdict {
    let write = || {
        if args[2] == 0 {
            return for_writing(file).map(|_| 0);
        }
        let fs = for_storing(file)?;
        let bytes = limits::cut(args[2], || end(fs, file, appends(fs, file)))?;
        from_program(args[1], bytes, |data| {
            fs.write_file(file.file, data, OpenFile::appends)
        })
    };
    Verdict::done(write())
}

/// The offset where the next write begins.
pub(super) fn end(fs: &Fs, file: &Descriptor, append: bool) -> Answer {
    if append {
        return fs.getattr(file.ino).map(|attr| attr.size).map_err(errno);
    }
    fs.file(file.file).map(|now| now.offset).map_err(errno)
}

/// Returns whether writes append: a flag that all sharers of the open file may change.
pub(super) fn appends(fs: &Fs, file: &Descriptor) -> bool {
    pmfs::appends(fs.file_flags(file.file))
}

/// Prefetches for a pread before anything else, from the descriptor as first seen.
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
    into_program(fs, file, at, (args[1], args[2]))
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
            // Linux appends, whatever the offset.
            fs.append(file.ino, data).map(|(_, written)| written)
        } else {
            fs.write(file.ino, at, data)
        }
    })
}

/// The place in the file of a vector of buffers.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// The open file's own offset.
    Own,
    At(u64),
    Bad(i32),
}

impl Place {
    /// The place given by the arguments of calls with an offset.
    pub fn of(args: [u64; 6]) -> Place {
        match args[3] {
            at if at > i64::MAX as u64 => Place::Bad(EINVAL),
            at => Place::At(at),
        }
    }

    /// The place given by the arguments of calls with flags, where -1 is the file's own offset. The
    /// offset is checked first.
    pub fn with_flags(args: [u64; 6], reads: bool) -> Place {
        const KNOWN: u32 = 0x0f;
        /// RWF_APPEND, RWF_NOAPPEND and RWF_NOSIGNAL, which reads accept and ignore.
        const OF_WRITES: u32 = 0x130;
        let known = if reads { KNOWN | OF_WRITES } else { KNOWN };
        let place = match args[3] {
            u64::MAX => Place::Own,
            _ => Place::of(args),
        };
        match place {
            Place::Own | Place::At(_) if args[5] as u32 & !known != 0 => {
                Place::Bad(libc::EOPNOTSUPP)
            }
            place => place,
        }
    }
}

/// The end of a program's addresses. No buffer of a vector may lie behind it.
const ADDRESS_END: u64 = 0x7fff_ffff_f000;

/// The program's vector of buffers, as (address, bytes).
fn vector(at: u64, count: u64) -> Result<Vec<(u64, u64)>, i32> {
    if count > libc::UIO_MAXIOV as u64 {
        return Err(EINVAL);
    }
    let part = |index: u64| program::read::<[u64; 2]>(at.wrapping_add(index * 16));
    let mut parts = (0..count).map(part).collect::<Result<Vec<_>, _>>()?;
    if parts.iter().any(|[_, bytes]| *bytes > i64::MAX as u64) {
        return Err(EINVAL);
    }
    // With one buffer the bytes read or written count, with several their stated lengths.
    let ends = |[address, bytes]: &[u64; 2]| address.saturating_add(*bytes) <= ADDRESS_END;
    if count > 1 && !parts.iter().all(ends) {
        return Err(EFAULT);
    }
    let mut total = 0u64;
    for [_, bytes] in &mut parts {
        *bytes = (*bytes).min(IO_MAX - total);
        total += *bytes;
    }
    Ok(parts
        .into_iter()
        .map(|[address, bytes]| (address, bytes))
        .collect())
}

/// Reads into several buffers in order.
fn into_parts(fs: &Fs, file: &Descriptor, start: u64, parts: &[(u64, u64)]) -> Answer {
    let mut at = start;
    for &(address, bytes) in parts {
        match into_program(fs, file, at, (address, bytes)) {
            Ok(read) => {
                at += read;
                if read < bytes {
                    break;
                }
            }
            Err(_) if at > start => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(at - start)
}

pub(crate) fn readv(file: &Descriptor, args: [u64; 6], place: Place) -> Verdict {
    let at_own_offset = |fs: &Fs, parts: &[(u64, u64)]| {
        if MAPS.load(Ordering::Relaxed) {
            let all = parts.iter().map(|(_, bytes)| bytes).sum();
            let read = |at, _| into_parts(fs, file, at, parts);
            return at_taken_offset(fs, file, all, read);
        }
        let failed = Cell::new(0);
        let read = fs.at_offset(file.file, |now| {
            let read = into_parts(fs, file, now.offset, parts);
            failed.set(read.err().unwrap_or(0));
            let read = read.unwrap_or(0);
            Ok((now.offset + read, read as usize))
        });
        match failed.get() {
            0 => read.map(|read| read as u64).map_err(errno),
            errno => Err(errno),
        }
    };
    let read = || {
        let fs = for_reading(file)?;
        let parts = vector(args[1], args[2])?;
        match place {
            Place::Bad(error) => Err(error),
            Place::Own => at_own_offset(fs, &parts),
            Place::At(at) => into_parts(fs, file, at, &parts),
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
        // A write is all or nothing, even of several parts.
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
            _ => fs.write_file(file.file, data, |_| append),
        };
        written.map(|written| written as u64).map_err(errno)
    };
    Verdict::done(write())
}

/// Copies the parts into one buffer.
fn gather(parts: &[(u64, u64)]) -> Result<Vec<u8>, i32> {
    let mut all = Vec::new();
    for &(address, bytes) in parts {
        let mut done = 0;
        // The copy goes by steps, because a stated length need not exist.
        while done < bytes {
            let (start, step) = (all.len(), (bytes - done).min(KEPT_STEP));
            all.resize(start + step as usize, 0);
            let from = address.wrapping_add(done);
            if let Err(error) = program::read_bytes(from, &mut all[start..]) {
                // The buffers before a bad one are written, as by the kernel.
                all.truncate(start);
                return if start == 0 { Err(error) } else { Ok(all) };
            }
            done += step;
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

/// Returns whether a mode of fallocate(2) exists in any file system: at most one operation, with
/// the size kept where it must be, and not kept where it can't.
fn names_one_way(mode: u32) -> bool {
    matches!(
        mode,
        0 | 1 | 3 | 0x08 | 0x10 | 0x11 | 0x20 | 0x40 | 0x41 | 0x80
    )
}

pub(crate) fn fallocate(file: &Descriptor, args: [u64; 6]) -> Answer {
    let (mode, at, len) = (args[1] as u32, args[2] as i64, args[3] as i64);
    if at < 0 || len <= 0 {
        return Err(EINVAL);
    }
    if !names_one_way(mode) {
        return Err(libc::EOPNOTSUPP);
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

/// Maps a file of the pool by its own blocks, or through the mount.
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
        let _lent = spare::lend();
        let through = promote::open(&file)?;
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

/// Bytes of one step of a copy between the pool and elsewhere.
const STEP: usize = 256 << 10;

/// Serves sendfile(2) after the checks in `moves.rs`; `given` is the program's offset, if it gives
/// one.
pub(crate) fn sendfile(
    args: [u64; 6],
    given: Option<u64>,
    [from, to]: [Option<Descriptor>; 2],
) -> Answer {
    let fs = fs()?;
    let bytes = args[3].min(IO_MAX);
    let sent = match (&from, &to) {
        (Some(from), Some(to)) => send_within(fs, (from, given), to, bytes)?,
        (Some(from), None) => send_out(fs, (from, given), args[0], bytes)?,
        (None, Some(to)) => receive(fs, (args[1], given), to, bytes)?,
        (None, None) => return Err(EBADF),
    };
    if let Some(start) = given {
        program::write(args[2], &(start + sent))?;
    }
    Ok(sent)
}

/// Serves sendfile(2) between two files of the pool. No sharer of their offsets comes between.
fn send_within(
    fs: &Fs,
    (from, given): (&Descriptor, Option<u64>),
    to: &Descriptor,
    bytes: u64,
) -> Answer {
    before_storing(fs, to)?;
    let mut buffer = vec![0; STEP.min(bytes.max(1) as usize)];
    let failed = Cell::new(0);
    let own = given.is_none().then_some(from.file);
    let moved = fs.at_offsets([own, Some(to.file)], |[at, target]| {
        let (start, mut target) = (given.unwrap_or(at), target);
        let mut sent = 0;
        let mut step = || {
            let want = (bytes - sent).min(STEP as u64) as usize;
            let wants_atime = || wants_atime(fs, from);
            let read = fs.read_for(from.ino, start + sent, &mut buffer[..want], wants_atime);
            let read = read.map_err(errno)?;
            let fits = limits::cut(read as u64, || Ok(target))? as usize;
            let written = fs.write(to.ino, target, &buffer[..fits]);
            let written = written.map_err(errno)?;
            target += written as u64;
            sent += written as u64;
            Ok(written == want && sent < bytes)
        };
        let stopped = loop {
            match step() {
                Ok(true) => {}
                Ok(false) => break 0,
                Err(errno) => break errno,
            }
        };
        failed.set(if sent > 0 { 0 } else { stopped });
        Ok(([start + sent, target], sent))
    });
    mapped_size::changed(to.ino);
    match failed.get() {
        0 => moved.map_err(errno),
        errno => Err(errno),
    }
}

/// Serves sendfile(2) from a file of the pool to another descriptor. That may block, so the offset
/// is advanced step by step, before each write.
fn send_out(fs: &Fs, (from, given): (&Descriptor, Option<u64>), to: u64, bytes: u64) -> Answer {
    let mut buffer = vec![0; STEP.min(bytes.max(1) as usize)];
    let mut sent = 0;
    while sent < bytes {
        let want = (bytes - sent).min(STEP as u64) as usize;
        let room = &mut buffer[..want];
        let read = match given {
            Some(start) => fs.read_for(from.ino, start + sent, room, || wants_atime(fs, from)),
            None => fs.read_file(from.file, room),
        };
        let read = read.map_err(errno)?;
        let wrote = put(to, &buffer[..read]);
        let taken = read as u64 - wrote.unwrap_or(0).min(read as u64);
        if given.is_none() {
            give_back(fs, from, taken)?;
        }
        match wrote {
            Ok(wrote) => sent += wrote,
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
        if taken > 0 || read < want {
            break;
        }
    }
    Ok(sent)
}

/// Serves sendfile(2) from another file into one of the pool. A source without offsets is refused,
/// as by the kernel.
fn receive(fs: &Fs, (from, given): (u64, Option<u64>), to: &Descriptor, bytes: u64) -> Answer {
    let number = |answer: i64| kernel_answer(answer);
    let own = number(kernel::plain(
        libc::SYS_lseek,
        &[from, 0, libc::SEEK_CUR as u64],
    ))
    .map_err(|_| EINVAL)?;
    let start = given.unwrap_or(own);
    let is_own = given.is_none();
    let mut buffer = vec![0; STEP.min(bytes.max(1) as usize)];
    let mut sent = 0;
    while sent < bytes {
        let want = (bytes - sent).min(STEP as u64);
        let at = buffer.as_mut_ptr().expose_provenance() as u64;
        // The kernel gives each byte at the source's own offset to one sharer alone.
        let (call, place) = match is_own {
            true => (libc::SYS_read, 0),
            false => (libc::SYS_pread64, start + sent),
        };
        // SAFETY: the kernel fills the buffer.
        let read = number(unsafe { kernel::call(call, [from, at, want, place, 0, 0]) });
        let wrote = match read {
            Ok(0) => break,
            Ok(read) => store(fs, to, &buffer[..read as usize]),
            Err(error) => Err(error),
        };
        let left = read.unwrap_or(0) - wrote.unwrap_or(0);
        if is_own && left > 0 {
            let back = -(left as i64) as u64;
            kernel::plain(libc::SYS_lseek, &[from, back, libc::SEEK_CUR as u64]);
        }
        match wrote {
            Ok(wrote) => sent += wrote,
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
        if left > 0 {
            break;
        }
    }
    Ok(sent)
}

/// Writes to a descriptor outside of the pool.
fn put(number: u64, data: &[u8]) -> Answer {
    let at = data.as_ptr().expose_provenance() as u64;
    let args = [number, at, data.len() as u64, 0, 0, 0];
    // A pipe may block until it is read.
    // SAFETY: the kernel reads the data.
    let answer = gate::away(|| unsafe { kernel::call(libc::SYS_write, args) });
    kernel_answer(answer)
}

/// Writes to a file of the pool, at its offset.
fn store(fs: &Fs, to: &Descriptor, data: &[u8]) -> Answer {
    before_storing(fs, to)?;
    let bytes = limits::cut(data.len() as u64, || end(fs, to, false))?;
    let written = fs.write_file(to.file, &data[..bytes as usize], |_| false);
    mapped_size::changed(to.ino);
    written.map(|written| written as u64).map_err(errno)
}

/// Serves copy_file_range(2) after its checks; the offsets are the program's, if it gives them.
pub(crate) fn copy_file_range(
    args: [u64; 6],
    [start, target]: [Option<u64>; 2],
    [from, to]: [&Descriptor; 2],
) -> Answer {
    let fs = fs()?;
    before_storing(fs, to)?;
    let own = [
        start.is_none().then_some(from.file),
        target.is_none().then_some(to.file),
    ];
    let failed = Cell::new(0);
    let mut ends = [0; 2];
    let copied = fs.at_offsets(own, |[at, to_at]| {
        let places = [start.unwrap_or(at), target.unwrap_or(to_at)];
        let bytes = limits::cut(args[4].min(IO_MAX), || Ok(places[1]));
        failed.set(bytes.err().unwrap_or(0));
        let [at, to_at] = places;
        let copied = match bytes {
            Ok(bytes) => fs.copy_range(from.ino, at, to.ino, to_at, bytes)?,
            Err(_) => 0,
        };
        ends = places.map(|at| at + copied);
        Ok((ends, copied))
    });
    if failed.get() != 0 {
        return Err(failed.get());
    }
    let copied = copied.map_err(errno)?;
    for (pointer, end) in [(args[1], ends[0]), (args[3], ends[1])] {
        if pointer != 0 {
            program::write(pointer, &end)?;
        }
    }
    mapped_size::changed(to.ino);
    Ok(copied)
}
