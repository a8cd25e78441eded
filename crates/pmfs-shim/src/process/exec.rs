//! exec: the next program finds this library, the pool, and the open files that it inherits
//! (docs/adr/0026-fork-exec-threads.md, docs/adr/0046-exec-targets.md).

use std::fmt::Write;

use libc::{AT_FDCWD, O_RDONLY};

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::descriptors;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::loading;
use crate::maps;
use crate::names::cwd;
use crate::names::{AtEnd, Lead, find};
use crate::own::config::{self, HANDED, PRELOAD, VARIABLE};
use crate::own::environment::value_of;
use crate::own::kernel::{self, PATH};
use crate::own::mountless;
use crate::own::stats;
use crate::process::programs;
use crate::process::retire;
use crate::process::target::Target;
use crate::program;
use crate::thread::descriptor::Descriptor;
use crate::thread::gate;
use crate::thread::guest;
use crate::thread::{self, Given, Inner, PATH_MAX};

/// The most entries of an environment that are examined.
const ENTRIES_MAX: usize = 1 << 20;

/// Forgets the preparation, when the parent of a guest continues. `shares_table`: the guest used
/// the parent's descriptors.
pub(crate) fn forget(room: &mut Inner, shares_table: bool) {
    let Some(mut given) = room.given.take() else {
        return;
    };
    if !shares_table {
        // These numbers are the guest's, and mean nothing here.
        std::mem::forget(given.prepared.take());
    } else if let Some(file) = given.handed {
        kernel::plain(libc::SYS_close, &[file as u64]);
    }
}

pub(crate) fn execve(args: [u64; 6], room: &mut Inner) -> Verdict {
    let _lent = spare::lend();
    run(room, AT_FDCWD as u64, args[0], [args[1], args[2], 0])
}

pub(crate) fn execveat(args: [u64; 6], room: &mut Inner) -> Verdict {
    let _lent = spare::lend();
    if !mountless::is()
        && let Some(file) = descriptors::inode_at(args[0])
    {
        return by_descriptor(&file, args, room).into();
    }
    run(room, args[0], args[1], [args[2], args[3], args[4]])
}

/// Serves fexecve of a file of the pool, with the mount's descriptor of it.
fn by_descriptor(file: &Descriptor, args: [u64; 6], room: &mut Inner) -> Answer {
    let through = promote::open(&Descriptor {
        access: O_RDONLY,
        ..*file
    })?;
    kernel::plain(libc::SYS_fcntl, &[through as u64, libc::F_SETFD as u64, 0]);
    let verdict = run(room, through as u64, args[1], [args[2], args[3], args[4]]);
    kernel::plain(libc::SYS_close, &[through as u64]);
    match verdict {
        Verdict::Done(rax) => Verdict::answer(rax),
        _ => Err(libc::ENOENT),
    }
}

/// Serves exec without a mount.
fn run_apart(room: &mut Inner, dirfd: u64, path: u64, rest: [u64; 3]) -> Verdict {
    room.given = Some(Given::default());
    let inherited = inherited();
    let mut told = Vec::new();
    let mut resolve = || {
        let program = programs::resolve(room, dirfd, path, rest[2], !inherited.is_empty())?;
        let mut arguments = rest[0];
        if let Some(texts) = &program.told {
            told = texts
                .iter()
                .map(|text| [text, &b"\0"[..]].concat())
                .collect();
            let all = programs::arguments(rest[0], &told)?;
            let given = room.given.get_or_insert_default();
            given.arguments = all;
            arguments = given.arguments.as_ptr().expose_provenance() as u64;
        }
        Ok((program, arguments))
    };
    let (program, arguments) = match resolve() {
        Ok(resolved) => resolved,
        Err(errno) => {
            room.given = None;
            return Verdict::done(Err(errno));
        }
    };
    let next = Next {
        dirfd: program.dirfd,
        path: Some(&program.path),
        raw: 0,
        arguments,
        environment: rest[1],
        flags: program.flags,
        own_name: program.own_name.as_deref(),
        target: &program.target,
    };
    become_another(room, &next, &inherited)
}

/// The next program.
struct Next<'a> {
    dirfd: u64,
    /// Its path with NUL; `None` stands for the program's own pointer.
    path: Option<&'a [u8]>,
    raw: u64,
    arguments: u64,
    environment: u64,
    flags: u64,
    /// Its name in the pool, if the kernel has only a copy.
    own_name: Option<&'a [u8]>,
    target: &'a Target,
}

/// Executes the call. `rest` is the argument vector, the environment and the flags.
fn run(room: &mut Inner, dirfd: u64, path: u64, rest: [u64; 3]) -> Verdict {
    if retire::is_retired() {
        return run_retired(room, dirfd, path, rest);
    }
    if mountless::is() {
        return run_apart(room, dirfd, path, rest);
    }
    let absolute = match made_absolute(room, dirfd, path) {
        Ok(absolute) => absolute,
        Err(errno) => return Verdict::done(Err(errno)),
    };
    let mut name = Box::new([0; PATH_MAX]);
    let known = absolute.clone().or_else(|| {
        let len = program::path(path, &mut name).ok()?;
        Some(name[..=len].to_vec())
    });
    room.given = Some(Given::default());
    let inherited = inherited();
    let target = Target::of(dirfd, known.as_deref(), rest[2]);
    if !target.has_library && crate::own::log::is_wanted() {
        let name = known.as_deref().and_then(|name| name.strip_suffix(b"\0"));
        let name = String::from_utf8_lossy(name.unwrap_or(b"the next program"));
        crate::own::log::line(format_args!("{name} {}; the mount serves it", target.why));
    }
    let next = Next {
        dirfd: if absolute.is_some() {
            AT_FDCWD as u64
        } else {
            dirfd
        },
        path: absolute.as_deref(),
        raw: path,
        arguments: rest[0],
        environment: rest[1],
        flags: rest[2],
        own_name: None,
        target: &target,
    };
    become_another(room, &next, &inherited)
}

fn become_another(room: &mut Inner, next: &Next<'_>, inherited: &[(i32, Descriptor)]) -> Verdict {
    // The state that is handed over must not change, and no thread may use a pool that is left.
    let alone = room.guest_of.is_none() && pool::attached().is_some() && gate::close();
    let nothing = inherited.is_empty() && cwd::file(room).is_none() && next.own_name.is_none();
    let handed = if nothing {
        if alone && descriptors::none() && !maps::any() {
            pool::leave();
        }
        Ok(None)
    } else if next.target.has_library {
        hand_over(room, inherited, next.own_name).map(Some)
    } else {
        promote::all(inherited);
        Ok(None)
    };
    let handed = match handed {
        Ok(handed) => handed,
        Err(errno) if mountless::is() && !finds_nothing(errno, inherited) => {
            // Without this library in the next program the mount must serve the open files.
            if alone {
                gate::open();
            }
            take_back(room, None);
            return Verdict::done(Err(errno));
        }
        Err(_) => None,
    };
    let given = room.given.get_or_insert_default();
    let environment = match environment(given, next.environment, handed.as_ref(), next.target) {
        Ok(environment) => environment,
        Err(errno) => {
            if alone {
                gate::open();
            }
            take_back(room, handed.as_ref());
            return Verdict::done(Err(errno));
        }
    };
    stats::flush(pool::attached());
    // In a guest, no later call would notice that this one is over.
    if room.guest_of.is_some() {
        gate::leave(thread::own_room());
    }
    let path = next.path.map_or(next.raw, |_| PATH);
    let (arguments, flags) = (next.arguments, next.flags);
    let args = [next.dirfd, path, arguments, environment, flags, 0];
    let answer = match next.path {
        Some(path) => kernel::with_path(libc::SYS_execveat, args, path),
        // SAFETY: the program's own call, with another environment, which stays until it is over.
        None => unsafe { kernel::call(libc::SYS_execveat, args) },
    };
    // The call has failed, and this program continues.
    if room.guest_of.is_some() {
        gate::enter(thread::own_room());
    } else if alone {
        gate::open();
    }
    take_back(room, handed.as_ref());
    Verdict::done(kernel_answer(answer))
}

/// Returns whether the next program works without the state that could not be handed over: a user
/// who may not open the pool finds nothing there, and has no directory in it.
fn finds_nothing(errno: i32, inherited: &[(i32, Descriptor)]) -> bool {
    errno == libc::EACCES && inherited.is_empty()
}

/// Executes the call with no system call but the program's own: others may be forbidden, for the
/// next program too.
fn run_retired(room: &mut Inner, dirfd: u64, path: u64, rest: [u64; 3]) -> Verdict {
    let given = room.given.insert(Given::default());
    let environment = match environment(given, rest[1], None, &Target::WITHOUT) {
        Ok(environment) => environment,
        Err(errno) => return Verdict::done(Err(errno)),
    };
    let args = [dirfd, path, rest[0], environment, rest[2], 0];
    // The program's own call is used, because a filter may allow that one alone.
    let (number, args) = if dirfd as i32 == AT_FDCWD && rest[2] == 0 {
        (libc::SYS_execve, [path, rest[0], environment, 0, 0, 0])
    } else {
        (libc::SYS_execveat, args)
    };
    // SAFETY: the program's own call, with another environment, which stays until it is over.
    let answer = unsafe { kernel::call(number, args) };
    room.given = None;
    Verdict::done(kernel_answer(answer))
}

/// Converts a path relative to a directory of the pool, or one that leaves it again, to a path that
/// the kernel understands. Any other path leads the kernel to the mount unchanged.
fn made_absolute(room: &mut Inner, dirfd: u64, path: u64) -> Result<Option<Vec<u8>>, i32> {
    match find(room, dirfd, path, AtEnd::Follow)? {
        Lead::Out(path) => Ok(Some(path.to_vec())),
        Lead::Pool(_, place) if descriptors::get(dirfd).is_some() => {
            let mut dir = promote::directory(place.dir)?;
            dir.pop();
            Ok(Some([dir.as_slice(), b"/", place.name, b"\0"].concat()))
        }
        _ => Ok(None),
    }
}

/// Descriptors of ours that the next program inherits.
fn inherited() -> Vec<(i32, Descriptor)> {
    let stays = |number: i32| {
        let flags = kernel::plain(libc::SYS_fcntl, &[number as u64, libc::F_GETFD as u64]);
        flags >= 0 && flags & i64::from(libc::FD_CLOEXEC) == 0
    };
    let mut all = descriptors::all();
    all.retain(|(number, file)| !file.is_path_only() && stays(*number));
    all
}

/// The way in which the state reaches the next program.
enum Handed {
    File(i32),
    /// In its environment, because no number was free for a file.
    Text(Vec<u8>),
}

/// The most bytes of an environment entry (MAX_ARG_STRLEN) without this entry's name.
const TEXT_MAX: usize = (128 << 10) - 64;

/// Writes down the state that the next program inherits.
///
/// # Errors
/// ENFILE, and others if nothing can be handed over. With a mount, the mount then serves the open
/// files.
fn hand_over(
    room: &mut Inner,
    inherited: &[(i32, Descriptor)],
    own_name: Option<&[u8]>,
) -> Result<Handed, i32> {
    let fs = pool::attached().ok_or(libc::ENFILE)?;
    let cwd = cwd::file(room);
    // A guest may have placeholders whose files other threads of the parent have closed since. They
    // stay placeholders, and give EBADF.
    let guest = room.guest_of.is_some();
    let alone = guest && gate::close();
    let there = |(_, file): &&(i32, Descriptor)| !guest || fs.file(file.file).is_ok();
    let inherited: &Vec<_> = &inherited.iter().filter(there).copied().collect();
    let files: Vec<_> = inherited
        .iter()
        .map(|(_, descriptor)| descriptor.file)
        .chain(cwd.map(|(file, _)| file))
        .collect();
    let mut why = String::new();
    let prepared = spare::retry(|| {
        let prepared = match guest::heir() {
            Some(owner) => fs.before_exec_of_guest(&files, owner),
            None => fs.before_exec_with(&files),
        };
        prepared.map_err(|error| {
            why = error.to_string();
            errno(error)
        })
    });
    let instead = match mountless::is() {
        true => "nothing serves the next program",
        false => "its open files go to the mount",
    };
    if prepared.is_err() {
        crate::own::log::line(format_args!("exec: {why}; {instead}"));
    }
    if alone {
        gate::open();
    }
    let prepared = prepared.inspect_err(|_| promote::all(inherited))?;
    let text = told(&prepared, inherited, cwd, own_name);
    room.given.get_or_insert_default().prepared = Some(prepared);
    let args = [PATH, 0, 0, 0, 0, 0];
    let make = || kernel::with_path(libc::SYS_memfd_create, args, b"pmfs-handed\0");
    let file = match spare::retry(|| kernel_answer(make())) {
        Err(libc::EMFILE) if text.len() < TEXT_MAX => return Ok(Handed::Text(text)),
        file => file?,
    };
    let at = text.as_ptr().expose_provenance() as u64;
    // SAFETY: the kernel reads the text.
    unsafe { kernel::call(libc::SYS_write, [file, at, text.len() as u64, 0, 0, 0]) };
    room.given.get_or_insert_default().handed = Some(file as i32);
    Ok(Handed::File(file as i32))
}

/// The settings for the next program, which `start` reads.
fn told(
    prepared: &pmfs::ForExec,
    inherited: &[(i32, Descriptor)],
    cwd: Option<(pmfs::FileId, pmfs::Ino)>,
    own_name: Option<&[u8]>,
) -> Vec<u8> {
    let mut text = format!("{prepared}\n");
    for (number, file) in inherited {
        let (id, ino, access) = (file.file.number(), file.ino, file.access);
        let _ = writeln!(
            text,
            "{number} {id} {ino} {access} {}",
            u8::from(file.is_dir)
        );
    }
    if let Some((file, ino)) = cwd {
        let _ = writeln!(text, "cwd {} {ino}", file.number());
    }
    let mut text = text.into_bytes();
    if let Some(name) = own_name {
        // This line is the last, because a name may contain any byte.
        text.extend_from_slice(b"exe ");
        text.extend_from_slice(name);
    }
    text
}

/// Takes the state back after an exec that failed.
fn take_back(room: &mut Inner, handed: Option<&Handed>) {
    if let Some(Handed::File(file)) = handed {
        kernel::plain(libc::SYS_close, &[*file as u64]);
    }
    if let Some(given) = room.given.take()
        && let Some(prepared) = given.prepared
        && let Some(fs) = pool::attached()
    {
        fs.cancel_exec(prepared);
    }
}

/// Builds the program's environment with our variables. Returns the address of the new vector.
fn environment(given: &mut Given, at: u64, handed: Option<&Handed>, target: &Target) -> Answer {
    let config = config::get();
    let mut preload = target.preload(&config.library);
    let mut pointers = Vec::new();
    for index in 0..ENTRIES_MAX {
        let pointer: u64 = if at == 0 {
            0
        } else {
            program::read(at + index as u64 * 8)?
        };
        if pointer == 0 {
            break;
        }
        match ours(pointer)? {
            Ours::No => pointers.push(pointer),
            Ours::Drop => {}
            Ours::Preload(others) => {
                for other in of_the_program(&others, &config.library) {
                    if !preload.is_empty() {
                        preload.push(b':');
                    }
                    preload.extend_from_slice(other);
                }
            }
        }
    }
    let mut texts = Vec::new();
    if !preload.is_empty() {
        texts.push([PRELOAD, b"=", &preload, b"\0"].concat());
    }
    if target.takes_variables {
        texts.push([VARIABLE, b"=", &config.text, b"\0"].concat());
    }
    match handed {
        Some(Handed::File(file)) => {
            texts.push([HANDED, b"=", file.to_string().as_bytes(), b"\0"].concat());
        }
        Some(Handed::Text(text)) => texts.push([HANDED, b"=", text, b"\0"].concat()),
        None => {}
    }
    pointers.extend(
        texts
            .iter()
            .map(|text| text.as_ptr().expose_provenance() as u64),
    );
    pointers.push(0);
    given.texts = texts;
    given.pointers = pointers;
    Ok(given.pointers.as_ptr().expose_provenance() as u64)
}

/// The libraries that a program preloads by itself, without a sanitizer that was put before this
/// library for the previous program.
fn of_the_program<'a>(list: &'a [u8], library: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let parts: Vec<&[u8]> = list.split(|byte| b" :".contains(byte)).collect();
    let own = parts.iter().position(|part| *part == library).unwrap_or(0);
    let is_its = move |(at, part): &(usize, &[u8])| {
        !(part.is_empty() || *at < own && loading::is_sanitizer(part))
    };
    let its = parts.into_iter().enumerate().filter(is_its);
    let library = library.to_vec();
    its.map(|(_, part)| part)
        .filter(move |part| *part != library)
}

/// The kinds of entries of an environment that are ours.
enum Ours {
    No,
    Drop,
    Preload(Vec<u8>),
}

fn ours(pointer: u64) -> Result<Ours, i32> {
    let mut head = [0; 12];
    for (at, byte) in head.iter_mut().enumerate() {
        *byte = program::read(pointer + at as u64)?;
        if *byte == 0 || *byte == b'=' {
            break;
        }
    }
    if value_of(&head, VARIABLE).is_some() || value_of(&head, HANDED).is_some() {
        return Ok(Ours::Drop);
    }
    if value_of(&head, PRELOAD).is_none() {
        return Ok(Ours::No);
    }
    let mut room = Box::new([0; PATH_MAX]);
    let len = program::path(pointer, &mut room).unwrap_or(0);
    Ok(Ours::Preload(
        room[PRELOAD.len() + 1..len.max(PRELOAD.len() + 1)].to_vec(),
    ))
}
