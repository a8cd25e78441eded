//! Messages of the library. They go to the file that `PMFS_LOG` names and never to the program's
//! own outputs, unless the program can't be served at all.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

use crate::own::environment::{Environment, value_of};
use crate::own::kernel;

/// The variable that names the file.
const VARIABLE: &[u8] = b"PMFS_LOG";

static FILE: OnceLock<Vec<u8>> = OnceLock::new();

/// Finds the file's name.
pub(crate) fn read(mut environment: Environment) {
    let name = environment.find_map(|entry| value_of(entry, VARIABLE));
    if let Some(name) = name {
        let _ = FILE.set([name, b"\0"].concat());
    }
}

/// Returns whether there is a file.
pub(crate) fn is_wanted() -> bool {
    FILE.get().is_some()
}

/// Writes a line, preceded by the process's number.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    if let Some(name) = FILE.get() {
        append(name, text);
    }
}

/// Writes a line to the program's own stderr, if the program can't run as intended.
pub(crate) fn loudly(text: fmt::Arguments<'_>) {
    let line = format!("pmfs: {text}\n");
    let at = line.as_ptr().expose_provenance() as u64;
    let stderr = libc::STDERR_FILENO as u64;
    // SAFETY: the kernel reads the line.
    unsafe { kernel::call(libc::SYS_write, [stderr, at, line.len() as u64, 0, 0, 0]) };
}

/// Appends a line to a file, whose name ends with NUL.
pub(crate) fn append(name: &[u8], text: fmt::Arguments<'_>) {
    let mut line = Vec::new();
    let _ = writeln!(line, "{} {text}", kernel::process());
    let here = libc::AT_FDCWD as u64;
    let flags = (libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC) as u64;
    let file = kernel::with_path(
        libc::SYS_openat,
        [here, kernel::PATH, flags, 0o600, 0, 0],
        name,
    );
    if file >= 0 {
        let at = line.as_ptr().expose_provenance() as u64;
        // SAFETY: the kernel reads the line.
        unsafe {
            kernel::call(
                libc::SYS_write,
                [file as u64, at, line.len() as u64, 0, 0, 0],
            )
        };
        kernel::plain(libc::SYS_close, &[file as u64]);
    }
}
