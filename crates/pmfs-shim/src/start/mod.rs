//! The library's constructor. It runs before any other object's (`-z initfirst`), even libc's, so
//! the environment is the one that the loader passes.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pmfs::{FileId, Fs};

use crate::descriptors;
use crate::descriptors::pool;
use crate::names::cwd;
use crate::names::exe;
use crate::own::config::{self, Config};
use crate::own::environment::Environment;
use crate::own::kernel;
use crate::own::log;
use crate::own::stats;
use crate::own::words;
use crate::signals;
use crate::stubs::patch;
use crate::thread::descriptor::Descriptor;
use crate::thread::gate;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(i32, *const *const c_char, *const *const c_char) = start;

extern "C" fn start(
    _count: i32,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    let entries = Environment(environment);
    log::read(entries);
    if let Some(config) = config::read(entries) {
        words::inside(|| begin(config));
    }
}

fn begin(config: &Config) {
    std::panic::set_hook(Box::new(|what| {
        log::line(format_args!("{what}"));
        // Other processes undo and free what it held.
        kernel::plain(
            libc::SYS_kill,
            &[kernel::process().into(), libc::SIGABRT as u64],
        );
        kernel::plain(libc::SYS_exit_group, &[134]);
    }));
    gate::start();
    pmfs::tell_of_stalled(log::line);
    signals::start();
    if config.keeper.is_some() || config.keeps_images() {
        // They have some of these numbers.
        descriptors::choose_floor();
    }
    stats::start();
    if let Err(why) = patch::apply() {
        let instead = if config.mountless {
            "nothing serves this process"
        } else {
            "the mount serves this process"
        };
        log::line(format_args!("{why}; {instead}"));
        if config.mountless {
            // The program finds nothing below the directory, and none of its calls would say why.
            log::loudly(format_args!("{why}; {instead}"));
        }
    }
    // This follows the image, whose stubs need a place near libc: the pool's mapping may be
    // anywhere.
    if let Some(handed) = &config.handed {
        take(config, handed);
    }
}

/// Takes over the state that the previous program in this process has left.
fn take(config: &Config, handed: &[u8]) {
    let number = std::str::from_utf8(handed).ok();
    let text = match number.and_then(|number| number.parse().ok()) {
        Some(file) => read_all(file),
        // The text itself, from a program that had no free number for a file.
        None => Some(handed.to_vec()),
    };
    let Some(text) = text else {
        log::line(format_args!("what was handed over can't be read"));
        return;
    };
    // This line is the last, because a name may contain any byte.
    let name = text.windows(5).position(|bytes| bytes == b"\nexe ");
    if let Some(at) = name {
        exe::set_own_name(&text[at + 5..]);
    }
    let text = std::str::from_utf8(&text[..name.unwrap_or(text.len())]).unwrap_or_default();
    let mut lines = text.lines();
    pmem::slots::keep_descriptors_from(descriptors::choose_floor());
    let path = Path::new(OsStr::from_bytes(&config.pool));
    let slot = lines.next().unwrap_or_default();
    match Fs::open_after_exec(path, &config.open_options(), slot) {
        Ok(fs) => pool::put(fs),
        Err(error) => {
            log::line(format_args!("after exec: {error}"));
            return;
        }
    };
    for line in lines {
        if let Some((file, ino)) = line
            .strip_prefix("cwd ")
            .and_then(|two| two.split_once(' '))
            && let (Ok(file), Ok(ino)) = (file.parse(), ino.parse())
        {
            cwd::take(FileId::from_number(file), ino);
            continue;
        }
        let numbers: Vec<u64> = line
            .split(' ')
            .filter_map(|number| number.parse().ok())
            .collect();
        if let &[number, file, ino, access, is_dir] = numbers.as_slice() {
            let descriptor = Descriptor {
                file: FileId::from_number(file),
                ino,
                access: access as i32,
                is_dir: is_dir == 1,
                borrowed: false,
            };
            descriptors::set(number as i32, descriptor);
        }
    }
}

/// Reads a small file and closes it.
fn read_all(file: u64) -> Option<Vec<u8>> {
    let size = kernel::plain(libc::SYS_lseek, &[file, 0, libc::SEEK_END as u64]);
    let mut text = vec![0u8; size.clamp(0, 1 << 26) as usize];
    let at = text.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the kernel fills the buffer.
    let len = unsafe { kernel::call(libc::SYS_pread64, [file, at, text.len() as u64, 0, 0, 0]) };
    kernel::plain(libc::SYS_close, &[file]);
    text.truncate(usize::try_from(len).ok()?);
    Some(text)
}
