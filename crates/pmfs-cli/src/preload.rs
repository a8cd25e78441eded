//! The preload list of the first program of `pmfs run`. The library itself sets it for programs
//! that this one starts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pmfs_patch::loading::{self, Loading};

/// Loads the library.
pub const VARIABLE: &str = "LD_PRELOAD";

/// The depth to which the kernel follows scripts that are run by scripts.
const SCRIPTS_MAX: u32 = 5;

/// The variable's value for a program; `None`: its loader would stumble over the library.
pub fn value(library: &Path, program: &OsStr) -> Option<OsString> {
    let first = first_of(program)?;
    let mut all = first.map(OsString::from_vec).unwrap_or_default();
    let others = env::var_os(VARIABLE).filter(|others| !others.is_empty());
    for part in [Some(library.as_os_str().to_owned()), others]
        .into_iter()
        .flatten()
    {
        if !all.is_empty() {
            all.push(":");
        }
        all.push(part);
    }
    Some(all)
}

/// A library that has to come before ours, if there is one; `None`: ours can't come at all.
fn first_of(program: &OsStr) -> Option<Option<Vec<u8>>> {
    let mut next = found(program);
    for _ in 0..SCRIPTS_MAX {
        let Some(file) = next.take().and_then(|path| File::open(path).ok()) else {
            break;
        };
        match loading::of(|at, bytes| file.read_at(bytes, at).unwrap_or(0)) {
            Loading::Preloads(first) => return Some(first),
            Loading::Static => break,
            Loading::Foreign => return None,
            Loading::Script(path, _) => next = Some(PathBuf::from(OsString::from_vec(path))),
        }
    }
    Some(None)
}

/// The reason for which a program will not load the library, if its file shows one.
pub fn stranger(program: &OsStr) -> Option<&'static str> {
    let mut next = found(program);
    for _ in 0..SCRIPTS_MAX {
        let file = next.take().and_then(|path| File::open(path).ok())?;
        match loading::of(|at, bytes| file.read_at(bytes, at).unwrap_or(0)) {
            Loading::Preloads(_) => return None,
            Loading::Static => return Some("is linked statically"),
            Loading::Foreign => return Some("has another loader, or is Go's"),
            Loading::Script(path, _) => next = Some(PathBuf::from(OsString::from_vec(path))),
        }
    }
    None
}

/// Returns whether the kernel finds it.
pub fn is_found(program: &OsStr) -> bool {
    found(program).is_some_and(|path| path.exists())
}

/// Returns whether a program that the kernel does not find may be below a directory that the kernel
/// knows nothing of.
pub fn may_be_below(dir: &Path, program: &OsStr) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    program.as_bytes().contains(&b'/') || env::split_paths(&path).any(|path| path.starts_with(dir))
}

/// The file that execvp(3) would find.
pub fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let dirs = env::var_os("PATH")?;
    env::split_paths(&dirs)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}
